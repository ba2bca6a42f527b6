"""What groups of replies are like: counts, scores, tokens, seconds, cost, repeats."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal
from svc_notebook.errors import ParameterError, write_line
from svc_notebook.ledger.columns import Column, as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import shorten

from . import statistics
from .reply_factors import (
    attributes,
    check_replies,
    coded,
    column_of,
    factors,
    in_words,
    is_rate,
    measure,
    named,
    prompt_codes,
    scores,
)
from .statistics import HOW_TO_INSTALL, MIN_PROMPTS, Estimates, Prompts

TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
LATENCIES = {"p50": 0.5, "p90": 0.9, "max": 1.0}
SUMMARY = tuple(
    Column(
        name, "Int64" if name[:2] == "n_" or name in TOKENS else "Float64", name, doc
    )
    for name, doc in {
        "n_cells": "requests of the plan, sent or not",
        "n_prompts": "different prompts: rows, or texts",
        "n_ok": "requests with a good answer",
        "n_failed": "requests that ended in an error",
        "n_replies": "choices of good answers",
        "n_cut": "of all choices, those that were cut",
        "failed_rate": "share of the requests that ended",
        "refused_rate": "share that were refused as invalid (400), part of the failed",
        "cut_rate": "share of the replies",
        **dict.fromkeys(TOKENS, "sum of what the service reported, if it did"),
        "latency_p50_s": "median of latency_s of the requests that are ok",
        "latency_p90_s": "9 of 10 took no longer",
        "latency_max_s": "the longest",
        "cost_per_reply": "all costs, failures included, by the good replies",
        "repeats_equal": "share of pairs of repeats whose answers or texts are equal",
        "repeats_distinct": "share of different ones among the repeats",
        "repeats_alpha": "Krippendorff's alpha: how far labels agree beyond chance",
    }.items()
)
"""Columns of `summary_df`, after those it is grouped by; scores are among them."""
_DTYPES: dict[str, Any] = {column.name: column.dtype for column in SUMMARY}
REFUSED = "BadRequestError"  # the same request would be refused again
_MAX_LABELS = 20  # of short replies; more are texts
_MAX_LABEL_CHARS = 40
_MAX_KINDS = 12  # a column with more values tells prompts apart
_CLEAR = 1.645  # standard deviations; chance alone exceeds it in 1 of 20 cases
_LEAST_SHARE = 0.1  # a smaller difference of shares gets no line
_MAX_LINES = 3


class Groups(NamedTuple):
    """Groups of rows: the code of each row, and one row of `keys` for each group."""

    codes: Any
    keys: pd.DataFrame

    def count(self, flags: Any) -> Any:  # noqa: ANN401 - an array
        """Return how many rows of each group have a flag."""
        return self.sum(np.asarray(flags, dtype=float)).astype(np.int64)

    def sum(self, values: Any) -> Any:  # noqa: ANN401 - an array
        """Return sums by group; NaN counts as 0."""
        return np.bincount(self.codes, np.nan_to_num(values), len(self.keys))


def summary_df(
    df: pd.DataFrame,
    by: str | Sequence[str] | None = None,
    on: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Sum up replies by group: see `svc.summary_df`."""
    df = check_replies(df)
    varied = factors(df)
    groups = grouped(df, named(df, by) if by is not None else varied or ["model"])
    rates = [name for name in (*scores(df), "answer_ok") if _has_numbers(df, name)]
    wanted = rates if on is None else [column_of(df, name) for name in as_names(on)]
    prompt = prompt_codes(df)
    columns = {"n_cells": None, "n_prompts": _n_prompts(prompt, groups)}
    columns |= _counts(df, groups)
    estimates = {name: estimated(df, name, prompt, groups) for name in wanted}
    for name, estimate in estimates.items():
        short = _short(name, df)
        columns |= {short: estimate.value, f"{short}_low": estimate.low}
        columns |= {f"{short}_high": estimate.high}
    columns |= _sums(df, groups) | _costs(df, groups, wanted)
    columns |= _agreement(df, prompt, groups, varied)
    _refuse_clash(groups.keys, columns)
    frame = groups.keys.assign(
        **{
            name: pd.array(values, dtype=_dtype(name))
            for name, values in columns.items()
        }
    )
    say([*missing_lines(df, by=groups.keys.columns), *_interval_lines(estimates)])
    return frame


def grouped(df: pd.DataFrame, names: Sequence[str]) -> Groups:
    """Group the rows of a frame; groups are in order of first appearance."""
    codes, firsts = group_codes(df[list(names)])
    return Groups(codes, df[list(names)].iloc[firsts].reset_index(drop=True))


def estimated(df: pd.DataFrame, on: str, prompt: Any, groups: Groups) -> Estimates:  # noqa: ANN401 - codes
    """Return the mean or rate of a score by group, with its interval over prompts.

    Args:
        df: A frame of replies.
        on: A score or another column, as in `measure`.
        prompt: The code of each row's prompt.
        groups: As `grouped` returns them.
    """
    values = measure(df, on).to_numpy()
    prompts = Prompts.of(values, prompt, groups.codes, len(groups.keys))
    return (statistics.rates if is_rate(df, on) else statistics.means)(prompts)


def intervals_df(
    df: pd.DataFrame, on: str, by: str | Sequence[str] | None = None
) -> pd.DataFrame:
    """Return one row for each group: its values, `value`, `low`, `high`, `n_prompts`.

    Without SciPy, and with fewer than 3 prompts, `low` and `high` are missing.
    """
    df = check_replies(df)
    groups = grouped(df, named(df, by) if by is not None else factors(df) or ["model"])
    estimates = estimated(df, on, prompt_codes(df), groups)
    columns = estimates._asdict().items()
    return groups.keys.assign(
        **{name: pd.array(values, dtype=_dtype(name)) for name, values in columns}
    )


def say(lines: Iterable[str]) -> None:
    """Write lines on stderr, with what a terminal would obey made visible."""
    for line in dict.fromkeys(lines):
        write_line(to_terminal(line))


def missing_lines(
    df: pd.DataFrame, *, on: str | None = None, by: Iterable[str] = ()
) -> list[str]:
    """Return a line for each way in which replies are not missing at random.

    Replies that failed, were cut, or have no value of `on` are counted by prompt, for
    each factor, each column of the rows and those in `by`. A line says where they are
    clearly more frequent, because figures are then about the rest only.
    """
    is_ok, is_error = _is(df, "status", "ok"), _is(df, "status", "error")
    kinds = {"failed": (is_error, is_ok | is_error)}
    kinds["was cut"] = _flags(df, "is_cut"), is_ok
    if on is not None:
        kinds[f"has no {on}"] = measure(df, on).isna().to_numpy(), is_ok & _is_first(df)
    lines_by_gap: list[tuple[float, str]] = []
    prompt = None
    for kind, (is_bad, is_asked) in kinds.items():
        if not (is_bad & is_asked).any():
            continue
        if prompt is None:
            prompt, names = prompt_codes(df), _kinds_of(df, by)
        for name, codes in names.items():
            lines_by_gap += _uneven(name, codes, prompt, is_bad, is_asked, kind)
    lines_by_gap.sort(key=lambda line: -line[0])
    return [*_twice(df), *(line for _, line in lines_by_gap[:_MAX_LINES])]


def _twice(df: pd.DataFrame) -> list[str]:
    """Return a line if the frame has replies more than once."""
    which = ["exchange_id", "choice_index", "run", "row", "repeat"]
    which = [name for name in which if name in df.columns]
    if "exchange_id" not in which or df["exchange_id"].is_unique:
        return []
    n = int((df.duplicated(which) & df["exchange_id"].notna()).sum())
    said = f"{n:,} replies are" if n > 1 else "One reply is"
    line = (
        f"{said} in the frame again and counted again; "
        f"df.drop_duplicates({which}) keeps each once."
    )
    return [line] if n else []


def _kinds_of(df: pd.DataFrame, by: Iterable[str]) -> dict[str, Any]:
    """Return the columns that what is missing may depend on: codes and values."""
    names = dict.fromkeys([*factors(df), *by, *attributes(df)])
    codes_by_name = {name: coded(df[name]) for name in names}
    return {
        name: coded_column
        for name, coded_column in codes_by_name.items()
        if 1 < len(coded_column[1]) <= _MAX_KINDS
    }


def _uneven(
    name: str,
    factorized: Any,  # noqa: ANN401 - codes and values
    prompt: Any,  # noqa: ANN401 - codes
    is_bad: Any,  # noqa: ANN401 - flags
    is_asked: Any,  # noqa: ANN401 - flags
    kind: str,
) -> Iterable[tuple[float, str]]:
    """Return the value with clearly the most bad prompts, as a line, if there is one.

    By chance alone, the number of bad prompts would be hypergeometric.
    """
    codes, values = factorized
    size = len(values)
    cells, place = np.unique(
        prompt[is_asked] * size + codes[is_asked], return_inverse=True
    )
    bad = np.bincount(place, is_bad[is_asked], len(cells)) > 0
    n = np.bincount(cells % size, minlength=size)
    n_bad = np.bincount(cells % size, bad, size)
    total, all_bad = n.sum(), n_bad.sum()
    with np.errstate(all="ignore"):
        share = n / total
        variance = all_bad * share * (1 - share) * (total - all_bad) / (total - 1)
        clear = (n_bad - all_bad * share) / np.sqrt(variance)
        more = n_bad / n - (all_bad - n_bad) / (total - n)
    clear = np.where((n_bad >= 2) & (more >= _LEAST_SHARE), clear, 0.0)  # noqa: PLR2004 - one may be an accident
    if clear.size and clear[at := int(clear.argmax())] >= _CLEAR:
        value = shorten(in_words(name, values[at]), _MAX_LABEL_CHARS)
        line = (
            f"Missing is not at random: with {name}={value}, "
            f"{n_bad[at]:.0f} of {n[at]} prompts have a reply that {kind}, otherwise "
            f"{all_bad - n_bad[at]:.0f} of {total - n[at]}. Figures are about the rest."
        )
        yield float(clear[at]), line


def _counts(df: pd.DataFrame, groups: Groups) -> dict[str, Any]:
    is_first = _is_first(df)
    is_ok, is_error = _is(df, "status", "ok"), _is(df, "status", "error")
    is_refused = is_error & _is(df, "error_type", REFUSED)
    is_cut = _flags(df, "is_cut")
    is_reply = _is_reply(df)
    n_ok, n_failed = groups.count(is_first & is_ok), groups.count(is_first & is_error)
    n_replies = groups.count(is_reply)
    with np.errstate(all="ignore"):
        n_ended = (n_ok + n_failed).astype(float)
        return {
            "n_cells": groups.count(is_first),
            "n_ok": n_ok,
            "n_failed": n_failed,
            "n_replies": n_replies,
            "n_cut": groups.count(is_cut),
            "failed_rate": n_failed / n_ended,
            "refused_rate": groups.count(is_first & is_refused) / n_ended,
            "cut_rate": groups.count(is_cut & is_reply) / n_replies.astype(float),
        }


def _sums(df: pd.DataFrame, groups: Groups) -> dict[str, Any]:
    columns = {}
    for name in TOKENS:
        values = _floats(df, name)
        is_there = groups.count(~np.isnan(values)) > 0
        columns[name] = np.where(is_there, groups.sum(values), np.nan)
    is_ok = _is_first(df) & _is(df, "status", "ok")
    seconds = pd.Series(np.where(is_ok, _floats(df, "latency_s"), np.nan))
    by_group = seconds.groupby(groups.codes)
    for name, share in LATENCIES.items():
        quantile = by_group.quantile(share).reindex(range(len(groups.keys)))
        columns[f"latency_{name}_s"] = quantile.to_numpy()
    return columns


def _costs(df: pd.DataFrame, groups: Groups, on: Iterable[str]) -> dict[str, Any]:
    """Return what a reply costs, and what one that is right costs, failures included.

    Requests of unknown cost are taken to cost as much as the others.
    """
    cost, is_ok = _floats(df, "cost"), _is(df, "status", "ok") & _is_first(df)
    with np.errstate(all="ignore"):
        known = groups.count(is_ok & ~np.isnan(cost)) / groups.count(is_ok)
        total = np.where(known > 0, groups.sum(cost) / known, np.nan)
        columns = {"cost_per_reply": total / groups.count(_is_reply(df))}
        for name in on:
            if is_rate(df, name):
                right = groups.sum(measure(df, name).to_numpy())
                cost = np.where(right > 0, total / right, np.nan)
                columns[f"cost_per_{_short(name, df)}"] = cost
    return columns


def _agreement(
    df: pd.DataFrame,
    prompt: Any,  # noqa: ANN401 - codes
    groups: Groups,
    varied: Iterable[str],
) -> dict[str, Any]:
    names = ("repeats_equal", "repeats_distinct", "repeats_alpha")
    answers = _column(df, "answer")
    if not answers.notna().any():
        answers = _column(df, "text")
    is_good = _is(df, "status", "ok")
    same = pd.DataFrame({"prompt": prompt, "group": groups.codes}).assign(
        **{f"factor {name}": df[name].array for name in varied}
    )
    request = group_codes(same)[0]
    if len(df) == 0 or request.max(initial=-1) + 1 == is_good.sum():
        nothing = np.full(len(groups.keys), np.nan)
        return dict.fromkeys(names, nothing)
    values, kinds = pd.factorize(answers)
    values = np.where(is_good, values, -1)
    agreement = statistics.agreement(values, request, groups.codes, len(groups.keys))
    if not _are_labels(kinds):
        agreement = agreement._replace(alpha=np.full(len(groups.keys), np.nan))
    return dict(zip(names, agreement, strict=True))


def _are_labels(kinds: Any) -> bool:  # noqa: ANN401 - an array or an index
    is_few = 1 <= len(kinds) <= _MAX_LABELS
    return is_few and max(len(str(value)) for value in kinds) <= _MAX_LABEL_CHARS


def _n_prompts(prompt: Any, groups: Groups) -> Any:  # noqa: ANN401 - codes
    size = prompt.max(initial=0) + 1
    cells = pd.unique(groups.codes.astype(np.int64) * size + prompt)
    return np.bincount(cells // size, minlength=len(groups.keys))


def _interval_lines(estimates: dict[str, Estimates]) -> list[str]:
    """Return why there are no intervals, if they are missing."""
    if not estimates:
        return []
    if statistics.special() is None:
        return [f"low and high {HOW_TO_INSTALL}."]
    few = [estimate.n_prompts for estimate in estimates.values()]
    if n := max(
        int(((n_prompts > 0) & (n_prompts < MIN_PROMPTS)).sum()) for n_prompts in few
    ):
        return [few_prompts(f"{n} group{'s'[: n != 1]}")]
    return []


def few_prompts(what: str) -> str:
    """Return why something has no interval."""
    return (
        f"{what} without an interval: it needs at least {MIN_PROMPTS} prompts, because "
        "repeats of one prompt do not tell what other prompts would give."
    )


def _refuse_clash(keys: pd.DataFrame, columns: Iterable[str]) -> None:
    for name in columns:
        if name in keys.columns:
            raise ParameterError(
                f"{name!r} is one of the sums, so you cannot group by it. Group the "
                "frame of replies_df() by it instead.",
                param="by",
            )


def _short(name: str, df: pd.DataFrame) -> str:
    """Return the score's own name, unless a column has that name."""
    short = name.removeprefix(PREFIX)
    is_taken = short in df.columns or short.startswith(("n_", "repeats_", "cost_"))
    return name if is_taken else short


def _has_numbers(df: pd.DataFrame, name: str) -> bool:
    if name not in df.columns:
        return False
    try:
        return bool(measure(df, name).notna().any())
    except ParameterError:  # a score of labels has no mean
        return False


def _dtype(name: str) -> Any:  # noqa: ANN401 - pandas' literals
    return _DTYPES.get(name, "Float64")


def _column(df: pd.DataFrame, name: str) -> pd.Series:
    """Return a column, all missing if the frame lacks it."""
    if name in df.columns:
        return df[name]
    return pd.Series(pd.NA, index=df.index, dtype="string")


def _floats(df: pd.DataFrame, name: str) -> Any:  # noqa: ANN401 - an array
    if name not in df.columns:
        return np.full(len(df), np.nan)
    return df[name].to_numpy(dtype="float64", na_value=np.nan)


def _flags(df: pd.DataFrame, name: str) -> Any:  # noqa: ANN401 - an array
    if name not in df.columns:
        return np.zeros(len(df), dtype=bool)
    return df[name].to_numpy(dtype=bool, na_value=False)


def _is(df: pd.DataFrame, name: str, value: str) -> Any:  # noqa: ANN401 - an array
    """Return which rows have a value; a missing one is another."""
    return (_column(df, name) == value).to_numpy(dtype=bool, na_value=False)


def _is_reply(df: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return which rows are choices of good answers; only choices can be cut."""
    return _is(df, "status", "ok") & _column(df, "is_cut").notna().to_numpy()


def _is_first(df: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return which rows have the numbers of a request."""
    return df["choice_index"].to_numpy(dtype="float64", na_value=0.0) == 0.0
