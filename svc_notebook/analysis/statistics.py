"""Means, rates and agreement, where repeats of a prompt are not independent.

Prompts are the sample: repeats of one prompt tell about that prompt, so that pooling
them as rows would give intervals that are far too short. All functions take arrays;
`tests/benchmarks/coverage_bench.py` measures how often the intervals hold the truth.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from svc_notebook.errors import ConfigError

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEVEL = 0.95
MIN_PROMPTS = 3
"""With fewer prompts there is no interval: it would hold nearly everything."""
_NO_SKEW = 1e-6  # with less skew the correction would divide by nearly 0
# at 1 Hall's cubic is flat, and beyond it the correction is not defined
_MOST_BEND = 0.9
_PSEUDO = 0.5  # prompts that are always right, and always wrong, behind a rate


def special() -> Any:  # noqa: ANN401 - a module that may be missing
    """Return SciPy's functions; None if the extra `stats` is not installed."""
    try:
        import scipy.special  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return scipy.special


def need_scipy(what: str) -> None:
    """Refuse what cannot be had without SciPy, naming the extra."""
    if special() is None:
        raise ConfigError(f"{what} {HOW_TO_INSTALL}")


HOW_TO_INSTALL = "need SciPy: python -m pip install 'svc-notebook[stats]'"


def t_quantile(share: Any, df: Any) -> Any:  # noqa: ANN401 - a number or an array
    """Return quantiles of Student's t; NaN without SciPy or degrees of freedom."""
    df = np.asarray(df, dtype=float)
    scipy_special = special()
    if scipy_special is None:
        return np.full(df.shape, np.nan)[()]
    with np.errstate(all="ignore"):
        return np.where(
            df > 0, scipy_special.stdtrit(np.maximum(df, 1), share), np.nan
        )[()]


@dataclass(frozen=True, slots=True)
class Prompts:
    """What each prompt got in each group: how many replies, their mean and spread.

    Attributes:
        group: The number of the group, from 0, of each prompt.
        n: Replies with a value; at least 1.
        mean: Their mean.
        variance: Their variance, with n - 1; NaN for one reply.
    """

    group: Any
    n: Floats
    mean: Floats
    variance: Floats
    n_groups: int

    @classmethod
    def of(cls, values: Floats, prompt: Any, group: Any, n_groups: int) -> "Prompts":  # noqa: ANN401 - codes
        """Gather values by the codes of their prompt and group; NaN is left out."""
        is_there = ~np.isnan(values)
        values = values[is_there]
        key = group[is_there].astype(np.int64) * (prompt.max(initial=0) + 1)
        key, cell = np.unique(key + prompt[is_there], return_inverse=True)
        n = np.bincount(cell, minlength=len(key)).astype(float)
        mean = np.bincount(cell, values, len(key)) / n
        squares = np.bincount(cell, (values - mean[cell]) ** 2, len(key))
        variance = np.where(n > 1, squares / np.maximum(n - 1, 1), np.nan)
        group = key // (prompt.max(initial=0) + 1)
        return cls(group, n, mean, variance, n_groups)

    def sum(self, values: Any) -> Floats:  # noqa: ANN401 - an array or a number
        """Return the sum of one value for each prompt, by group."""
        weights = np.broadcast_to(values, self.group.shape).astype(float)
        total: Floats = np.bincount(self.group, weights, self.n_groups).astype(float)
        return total

    def icc(self) -> Floats:
        """Return, by group, how alike the repeats of a prompt are: the ICC.

        It is 1 if the repeats of a prompt are always equal, and 0 if they differ as
        much as replies to different prompts (intraclass correlation).

        Only for values of 0 and 1. Half a prompt that is always right and half a one
        that is always wrong keep the rate from being 0 or 1 by accident. Without
        repeats it is 1, which is the careful answer.
        """
        repeated = ~np.isnan(self.variance)
        within = self.sum(np.nan_to_num(self.variance))
        within = within / np.maximum(self.sum(repeated), 1)
        rate = (self.sum(self.mean) + _PSEUDO) / (self.sum(1) + 2 * _PSEUDO)
        return np.clip(1 - within / (rate * (1 - rate)), 0.0, 1.0)


class Estimates(NamedTuple):
    """A mean or rate for each group; NaN where there is none."""

    value: Floats
    low: Floats
    high: Floats
    n_prompts: Floats


def means(prompts: Prompts, level: float = LEVEL) -> Estimates:
    """Return the mean of the replies of each group, with Student's t over prompts.

    The variance is that of a ratio of sums over prompts (Cochran 1977, 11.3), which
    for equal numbers of repeats is that of the prompts' means. Their skew, which
    seconds and tokens have, is corrected for (Hall 1992, J. R. Stat. Soc. B 54): for
    ten prompts plain t covers 0.90 of such means, this 0.94. With few prompts the
    skew is hardly known, so it counts only as far as the correction is defined.
    """
    m, total = prompts.sum(1), prompts.sum(prompts.n)
    with np.errstate(all="ignore"):
        value = prompts.sum(prompts.n * prompts.mean) / total
        rest = prompts.n * (prompts.mean - value[prompts.group])
        rest *= (m / total)[prompts.group]
        spread = np.sqrt(prompts.sum(rest**2) / (m - 1))
        skew = m * prompts.sum(rest**3) / ((m - 1) * (m - 2) * spread**3)
        reach = t_quantile((1 + level) / 2, m - 1) / np.sqrt(m)
        skew = np.clip(skew, -_MOST_BEND / reach, _MOST_BEND / reach)
        ends = [value - spread * _unskewed(end, skew, m) for end in (reach, -reach)]
    is_known = (m >= MIN_PROMPTS) & (spread > 0)
    low, high = (np.where(is_known, end, np.nan) for end in ends)
    return Estimates(value, low, high, m)


def _unskewed(reach: Floats, skew: Floats, m: Floats) -> Any:  # noqa: ANN401 - an array
    """Solve Hall's cubic: return the deviation that it maps to `reach`."""
    small = np.abs(skew) < _NO_SKEW
    skew = np.where(small, 1.0, skew)
    deviation = 3 / skew * (np.cbrt(1 + skew * (reach - skew / (6 * m))) - 1)
    return np.where(small, reach, deviation)


def rates(prompts: Prompts, level: float = LEVEL) -> Estimates:
    """Return the rate of each group, with Wilson's interval for the effective n.

    The replies count as many as are left after the design effect of repeats (Kish
    1965), and Student's t replaces the normal quantile (Korn and Graubard 1998).
    """
    m, total = prompts.sum(1), prompts.sum(prompts.n)
    icc = prompts.icc()
    with np.errstate(all="ignore"):
        value = prompts.sum(prompts.n * prompts.mean) / total
        n = 1 / ((1 - icc) / total + icc * prompts.sum(prompts.n**2) / total**2)
        low, high = wilson(value, n, t_quantile((1 + level) / 2, m - 1))
    is_enough = m >= MIN_PROMPTS
    low, high = (np.where(is_enough, end, np.nan) for end in (low, high))
    return Estimates(value, low, high, m)


def wilson(rate: Any, n: Any, quantile: Any) -> tuple[Any, Any]:  # noqa: ANN401 - numbers or arrays
    """Return Wilson's interval (1927) of a rate seen in n independent replies."""
    squared = quantile**2 / n
    middle = (rate + squared / 2) / (1 + squared)
    reach = (
        quantile / (1 + squared) * np.sqrt(rate * (1 - rate) / n + squared / (4 * n))
    )
    return np.maximum(middle - reach, 0.0), np.minimum(middle + reach, 1.0)


class Agreement(NamedTuple):
    """How alike the repeats of one request are, by group; NaN without repeats.

    Attributes:
        equal: Share of the pairs of repeats that are equal, the mean over requests.
        distinct: Share of different replies among the repeats, likewise.
        alpha: Krippendorff's alpha for labels: 1 is agreement, 0 what chance gives.
    """

    equal: Floats
    distinct: Floats
    alpha: Floats


def agreement(values: Any, request: Any, group: Any, n_groups: int) -> Agreement:  # noqa: ANN401 - codes
    """Return how much repeats agree; alpha is that of Krippendorff (2011), nominal.

    All arguments are codes from 0: of the reply (-1 is missing), of the request that
    is repeated, and of the group, which is the same for all repeats of a request.
    """
    is_there = values >= 0
    values, request, group = (codes[is_there] for codes in (values, request, group))
    n = np.bincount(request)
    is_repeated = n[request] > 1
    values, request, group = (codes[is_repeated] for codes in (values, request, group))
    size = values.max(initial=0) + 1
    key, count = np.unique(request.astype(np.int64) * size + values, return_counts=True)
    place, label = key // size, key % size
    of_group = np.zeros(len(n), dtype=np.int64)
    of_group[request] = group
    pairs = np.bincount(place, count * (count - 1.0), len(n))
    kinds = np.bincount(place, minlength=len(n))
    repeated = np.flatnonzero(kinds)
    home, m = of_group[repeated], n[repeated]

    def mean(values: Any) -> Floats:  # noqa: ANN401 - an array
        n_requests = np.bincount(home, minlength=n_groups)
        return np.bincount(home, values, n_groups) / n_requests

    with np.errstate(all="ignore"):
        equal = mean(pairs[repeated] / (m * (m - 1)))
        distinct = mean(kinds[repeated] / m)
        total = np.bincount(home, m, n_groups)
        seen = total - np.bincount(home, pairs[repeated] / (m - 1), n_groups)
        key, of_key = np.unique(of_group[place] * size + label, return_inverse=True)
        by_label = np.bincount(of_key, count, len(key))
        same = np.bincount(key // size, by_label**2, n_groups)
        expected = (total**2 - same) / (total - 1)
        alpha = np.where(expected > 0, 1 - seen / expected, np.nan)
    return Agreement(equal, distinct, alpha)
