"""Summaries of groups of replies: counts, scores, tokens, seconds, costs, repeats."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd

from svc_notebook.display.front_end import write_note
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.prices import PER_TOKENS, Prices
from svc_notebook.ledger.reply_columns import Column, as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import check_flag, must_be

from . import statistics
from .missing import Missing, check_missing, missing_lines, with_missing
from .repeats import Requests, exact_agreement
from .reply_factors import (
    OF_REQUESTS,
    check_replies,
    column,
    column_of,
    counted,
    factors,
    has,
    has_flag,
    is_rate,
    is_request,
    measure,
    named,
    prompt_codes,
    scores,
    unit_codes,
)
from .statistics import HOW_TO_INSTALL, MIN_PROMPTS, Estimates, Prompts, Weight

TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
LATENCIES = {"p50": 0.5, "p90": 0.9, "max": 1.0}
SUMMARY = tuple(
    Column(
        name, "Int64" if name[:2] == "n_" or name in TOKENS else "Float64", name, doc
    )
    for name, doc in {
        "n_cells": "requests of the plan, sent or not",
        "n_prompts": "different prompts: rows, or texts; with scores, those scored",
        "n_units": "number of units intervals are over: prompts, or values of unit; "
        "a score with another number has n_units_NAME",
        "n_scored": "replies with a score; a score with another number of them has "
        "n_scored_NAME",
        "n_ok": "requests with a good answer",
        "n_failed": "requests that ended in an error",
        "n_replies": "choices of good answers",
        "n_cut": "of all choices, those that were cut",
        "failed_rate": "share of the ended requests that failed",
        "refused_rate": "share that were refused as invalid (400), part of the failed",
        "cut_rate": "share of the replies that were cut",
        **dict.fromkeys(TOKENS, "sum of the tokens that the service reported"),
        "latency_p50_s": "median of latency_s of the requests that are ok",
        "latency_p90_s": "9 of 10 of these requests took no longer",
        "latency_max_s": "the longest of these requests",
        "cost_per_reply": "all costs, failures included, divided by the good replies",
        "repeats_equal": "share of pairs of repeats whose answers or texts are equal",
        "repeats_distinct": "different answers or texts divided by the repeats",
        "repeats_alpha": "Krippendorff's alpha: how far labels agree beyond chance",
    }.items()
)
"""The columns of `summary_df`, after the columns of `by`; scores are among them."""
_DTYPES: dict[str, Any] = {column.name: column.dtype for column in SUMMARY}
REFUSED = "BadRequestError"  # the service would refuse the same request again
_ENDINGS = ("", "_low", "_high")  # of the columns of a score


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


@dataclass(frozen=True, slots=True)
class ReplySample:
    """How the replies of a frame are a sample of prompts and units.

    Attributes:
        prompt: The code of each reply's prompt.
        unit: The code of each reply's unit; None if each prompt is a unit.
        weight: Whether each prompt or each reply counts the same.
        missing: How replies without a value are treated.
    """

    prompt: Any
    unit: Any
    weight: Weight
    missing: Missing

    @classmethod
    def of(
        cls,
        df: pd.DataFrame,
        *,
        unit: str | Sequence[str] | None = None,
        weight: Any = "prompts",  # noqa: ANN401 - checked here
        missing: Any = "drop",  # noqa: ANN401 - checked here
    ) -> "ReplySample":
        """Read the sample from a frame of replies.

        Raises:
            ParameterError: An argument is not allowed, or `unit` does not say which
                prompts belong together.
        """
        if weight not in get_args(Weight):
            raise must_be("weight", "'prompts' or 'replies'", weight)
        codes = unit_codes(df, unit)
        return cls(prompt_codes(df), codes, weight, check_missing(missing))


def say(lines: Iterable[str]) -> None:
    """Write notes, each once: quiet lines in a cell, else on stderr."""
    for line in dict.fromkeys(lines):
        write_note(line)


def summary_df(  # noqa: PLR0913 - those of the public verb
    df: pd.DataFrame,
    by: str | Sequence[str] | None = None,
    on: str | Sequence[str] | None = None,
    *,
    unit: str | Sequence[str] | None = None,
    weight: Weight = "prompts",
    missing: Missing = "drop",
    prices: Prices | Mapping[str, Any] | str | Path | None = None,
    include_emulated: bool = False,
    tell: Callable[[Iterable[str]], object] = say,
) -> pd.DataFrame:
    """Sum up replies by group: see `svc.summary_df`. `tell` takes notes about it."""
    df = with_costs(check_replies(df), prices, include_emulated=include_emulated)
    groups = grouped(df, named(df, by) if by is not None else factors(df) or ["model"])
    rates = [name for name in (*scores(df), "answer_ok") if _has_numbers(df, name)]
    wanted = rates if on is None else [column_of(df, name) for name in as_names(on)]
    sample = ReplySample.of(df, unit=unit, weight=weight, missing=missing)
    estimates = {name: estimated(df, name, groups, sample) for name in wanted}
    names = _names(wanted, df)
    counts = {name: _n_scored(df, name, groups, estimates[name]) for name in wanted}
    most = max(counts.values(), key=lambda n: n["n_scored"].sum(), default=None)
    columns: dict[str, Any] = {}  # pandas shows the first ones of many
    for name, estimate in estimates.items():
        ends = zip(_ENDINGS, estimate[:3], strict=True)
        columns |= {names[name] + ending: values for ending, values in ends}
        if most is not None:
            columns |= _other_counts(counts[name], most, names[name], sample)
    columns |= {"n_cells": None} | (_unscored(groups, sample) if most is None else most)
    columns |= _counts(df, groups)
    columns |= _sums(df, groups) | _costs(df, groups, names, sample.missing)
    columns |= _agreement(df, groups, sample)
    refuse_clash(groups.keys, columns)
    frame = groups.keys.assign(
        **{
            name: pd.array(values, dtype=_dtype(name))
            for name, values in columns.items()
        }
    )
    lines = missing_lines(
        df, on=wanted or None, by=groups.keys.columns, missing=missing
    )
    tell([*lines, *_interval_lines(estimates, counted(df, unit))])
    return frame


def grouped(df: pd.DataFrame, names: Sequence[str]) -> Groups:
    """Group the rows of a frame; groups are in order of first appearance."""
    codes, firsts = group_codes(df[list(names)])
    return Groups(codes, df[list(names)].iloc[firsts].reset_index(drop=True))


def estimated(
    df: pd.DataFrame, on: str, groups: Groups, sample: ReplySample
) -> Estimates:
    """Return the mean or rate of a score by group, with its interval over prompts.

    Args:
        df: A frame of replies.
        on: A score or another column, as in `measure`.
        groups: As `grouped` returns them.
        sample: How the replies are a sample.
    """

    def of(values: Any) -> Estimates:  # noqa: ANN401 - an array
        prompts = Prompts.of(
            values,
            sample.prompt,
            groups.codes,
            len(groups.keys),
            unit=sample.unit,
            weight=sample.weight,
        )
        if is_rate(df, on):
            return statistics.rates(prompts)
        return statistics.means(prompts, limits=_limits(df, on))

    ends = with_missing(df, on, sample.missing)
    if sample.missing != "bounds":
        return of(ends.low)
    known, wrong, right = map(of, (measure(df, on).to_numpy(), *ends))
    return known._replace(low=wrong.low, high=right.high)


def _limits(df: pd.DataFrame, on: str) -> tuple[float, float]:
    """Return the range of possible means: 0 to 1 for shares, from 0 for seconds."""
    name, values = column_of(df, on), measure(df, on).dropna()
    if name.startswith(PREFIX) and values.between(0, 1).all():
        return 0.0, 1.0
    return (0.0 if name in OF_REQUESTS else -np.inf), np.inf


def intervals_df(
    df: pd.DataFrame,
    on: str,
    by: str | Sequence[str],
    *,
    unit: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return one row for each group, over `n_prompts` prompts and `n_units` units.

    The columns are those of `by`, then `value`, `low`, `high`, `n_prompts` and
    `n_units`. The arguments are as in `svc.summary_df`. Without SciPy, or with fewer
    than 3 units, `low` and `high` are missing.
    """
    df = check_replies(df)
    groups = grouped(df, named(df, by))
    sample = ReplySample.of(df, unit=unit, weight="prompts", missing="drop")
    estimates = estimated(df, on, groups, sample)
    columns = estimates._asdict().items()
    return groups.keys.assign(
        **{name: pd.array(values, dtype=_dtype(name)) for name, values in columns}
    )


def without_values(df: pd.DataFrame, groups: Groups) -> list[str]:
    """Return the words that replace the mean of each group if it has no value."""
    n_replies = groups.count(has(df, "status", "ok"))
    return ["no value" if n else "no replies" for n in n_replies]


def _n_scored(
    df: pd.DataFrame, on: str, groups: Groups, estimate: Estimates
) -> dict[str, Any]:
    """Return the numbers of prompts, units and replies that a score is over."""
    return {
        "n_prompts": estimate.n_prompts,
        "n_units": estimate.n_units,
        "n_scored": groups.count(measure(df, on).notna()),
    }


def _unscored(groups: Groups, sample: ReplySample) -> dict[str, Any]:
    """Return the same numbers if there is no score."""
    n = np.full(len(groups.keys), np.nan)
    n_prompts = _n_prompts(sample.prompt, groups)
    return {"n_prompts": n_prompts, "n_units": n, "n_scored": n}


def _other_counts(
    counts: Mapping[str, Any], most: Mapping[str, Any], score: str, sample: ReplySample
) -> dict[str, Any]:
    """Return the numbers of a score if they differ from those of the fullest score.

    Without `unit`, the number of units is that of prompts, and one of them is enough.
    """
    names = ["n_units", "n_scored"]
    names += [] if sample.unit is None else ["n_prompts"]
    if all(np.array_equal(counts[name], most[name]) for name in names):
        return {}
    return {f"{name}_{score}": counts[name] for name in names}


def _counts(df: pd.DataFrame, groups: Groups) -> dict[str, Any]:
    is_first = is_request(df)
    is_ok, is_error = has(df, "status", "ok"), has(df, "status", "error")
    is_refused = is_error & has(df, "error_type", REFUSED)
    is_cut = has_flag(df, "is_cut")
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
        is_known = groups.count(~np.isnan(values)) > 0
        columns[name] = np.where(is_known, groups.sum(values), np.nan)
    is_ok = is_request(df) & has(df, "status", "ok")
    seconds = pd.Series(np.where(is_ok, _floats(df, "latency_s"), np.nan))
    by_group = seconds.groupby(groups.codes)
    for name, share in LATENCIES.items():
        quantile = by_group.quantile(share).reindex(range(len(groups.keys)))
        columns[f"latency_{name}_s"] = quantile.to_numpy()
    return columns


def _costs(
    df: pd.DataFrame, groups: Groups, on: Mapping[str, str], missing: Missing
) -> dict[str, Any]:
    """Return the cost of a reply and of a right reply, both with failures included.

    Replies without a score may be right, so their costs are left out with them, unless
    they count as wrong.
    """
    whole = np.ones(len(df))
    with np.errstate(all="ignore"):
        total = _total_costs(df, groups, whole)
        columns = {"cost_per_reply": total / groups.count(_is_reply(df))}
        for name, short in on.items():
            if is_rate(df, name):
                values = measure(df, name).to_numpy()
                is_all = missing == "wrong"
                part = whole if is_all else _scored_parts(df, groups, ~np.isnan(values))
                total, right = _total_costs(df, groups, part), groups.sum(values)
                columns[f"cost_per_{short}"] = np.where(
                    right > 0, total / right, np.nan
                )
    return columns


def _total_costs(df: pd.DataFrame, groups: Groups, part: Any) -> Any:  # noqa: ANN401 - arrays
    """Return the costs by group of a part, from 0 to 1, of each request.

    Requests of unknown cost are assumed to cost as much as the others.
    """
    cost, is_ok = _floats(df, "cost"), has(df, "status", "ok") & is_request(df)
    part_of_ok = np.where(is_ok, part, 0.0)
    known = groups.sum(part_of_ok * ~np.isnan(cost)) / groups.sum(part_of_ok)
    return np.where(known > 0, groups.sum(cost * part) / known, np.nan)


def _scored_parts(df: pd.DataFrame, groups: Groups, is_scored: Any) -> Any:  # noqa: ANN401 - arrays
    """Return for each row which share of the replies to its request has a score.

    A request without a reply, such as one that failed, counts with the share in its
    group.
    """
    ids = pd.factorize(column(df, "exchange_id"))[0]
    ids = np.where(ids < 0, len(df) + np.arange(len(df)), ids)  # each one separate
    cells = ids.astype(np.int64) * len(groups.keys) + groups.codes
    requests = np.unique(cells, return_inverse=True)[1]
    is_due = _is_reply(df) | is_scored
    n_due, n_scored = np.bincount(requests, is_due), np.bincount(requests, is_scored)
    of_group = groups.count(is_scored) / groups.count(is_due)
    of_request = (n_scored / n_due)[requests]
    return np.where(n_due[requests] > 0, of_request, of_group[groups.codes])


def _agreement(df: pd.DataFrame, groups: Groups, sample: ReplySample) -> dict[str, Any]:
    cells = sample.prompt.astype(np.int64) * len(groups.keys) + groups.codes
    if len(pd.unique(cells)) == len(df):  # the usual case: there are no repeats
        unknown = np.full(len(groups.keys), np.nan)
        return dict.fromkeys(_REPEATS, unknown)
    repeats = exact_agreement(df, Requests.of(df, groups.codes, len(groups.keys)))
    values = repeats.equal.value, repeats.distinct, repeats.alpha.value
    return dict(zip(_REPEATS, values, strict=True))


_REPEATS = ("repeats_equal", "repeats_distinct", "repeats_alpha")


def _n_prompts(prompt: Any, groups: Groups) -> Any:  # noqa: ANN401 - codes
    size = prompt.max(initial=0) + 1
    cells = pd.unique(groups.codes.astype(np.int64) * size + prompt)
    return np.bincount(cells // size, minlength=len(groups.keys))


def _interval_lines(estimates: Mapping[str, Estimates], what: str) -> list[str]:
    """Return a note that says why intervals are missing, if they are."""
    if not estimates:
        return []
    if statistics.special() is None:
        return [f"low and high {HOW_TO_INSTALL}."]
    few = [estimate.n_units for estimate in estimates.values()]
    n = max(int(((n > 0) & (n < MIN_PROMPTS)).sum()) for n in few)
    return [few_prompts(count_in_words(n, "groups"), what)] if n else []


def few_prompts(subject: str, noun: str) -> str:
    """Return a note that says why something has no interval.

    Args:
        subject: What has no interval, such as "2 groups".
        noun: The plural of the units, as `counted` returns it.
    """
    return (
        f"{subject} without an interval, which needs at least {MIN_PROMPTS} {noun}: "
        "repeated replies to the same ones say nothing about others."
    )


def refuse_clash(keys: pd.DataFrame, columns: Iterable[str]) -> None:
    """Refuse to group by a column that has the same name as one of the result."""
    for name in columns:
        if name in keys.columns:
            raise ParameterError(
                f"You cannot group by {name!r}, since the result has a column of that "
                "name. Rename the column, or group replies_df() with pandas.",
                param="by",
            )


def _names(wanted: Iterable[str], df: pd.DataFrame) -> dict[str, str]:
    """Return the name of each score in the columns of a summary.

    That is the score's name without `score_`, unless it clashes with another column.
    """
    names: dict[str, str] = {}
    taken, used = {*map(str, df.columns), *_DTYPES}, set[str]()
    # by length, so that of scores called x and x_low, x keeps its name
    for name in sorted(wanted, key=len):
        short = name.removeprefix(PREFIX)
        new = {short + ending for ending in _ENDINGS}
        if new & (taken | used) or short.startswith(("n_", "repeats_", "cost_")):
            short = name
        while used & {short + ending for ending in _ENDINGS}:
            short = PREFIX + short
        names[name] = short
        used |= {short + ending for ending in _ENDINGS}
    return {name: names[name] for name in wanted}


def _has_numbers(df: pd.DataFrame, name: str) -> bool:
    if name not in df.columns:
        return False
    try:
        return bool(measure(df, name).notna().any())
    except ParameterError:  # a score of labels has no mean
        return False


def _dtype(name: str) -> Any:  # noqa: ANN401 - pandas' literals
    return _DTYPES.get(name, "Int64" if name.startswith("n_") else "Float64")


def _floats(df: pd.DataFrame, name: str) -> Any:  # noqa: ANN401 - an array
    if name not in df.columns:
        return np.full(len(df), np.nan)
    return df[name].to_numpy(dtype="float64", na_value=np.nan)


def _is_reply(df: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return which rows are choices of good answers; an answer may have no choice."""
    is_choice = column(df, "is_cut").notna() | column(df, "text").notna()
    return has(df, "status", "ok") & is_choice.to_numpy()


def with_costs(
    df: pd.DataFrame,
    prices: Prices | Mapping[str, Any] | str | Path | None,
    *,
    include_emulated: bool,
) -> pd.DataFrame:
    """Return the replies with costs by a price table; without one, unchanged.

    Costs are based on reported tokens, or else on estimated ones. The emulator's
    replies have costs only with `include_emulated`; re-used replies never have.

    Raises:
        ParameterError: `include_emulated` is given without prices.
        SettingsError: The table cannot be read.
    """
    check_flag("include_emulated", include_emulated)
    if prices is None:
        if include_emulated:
            raise ParameterError(
                "include_emulated=True needs a price table, such as "
                "prices='prices.toml'.",
                param="prices",
            )
        return df
    table = _table(prices)
    is_paid = is_request(df) & (has(df, "status", "ok") | _is_reported(df))
    is_paid &= ~has_flag(df, "is_reused")
    if not include_emulated:
        is_paid &= ~has_flag(df, "is_emulated")
    cost = np.zeros(len(df))
    for kind in ("prompt", "completion"):
        amounts = {name: getattr(price, kind) for name, price in table.models.items()}
        amount = df["model"].astype(object).map(amounts).to_numpy(dtype="float64")
        cost += amount * _tokens(df, kind) / PER_TOKENS
    is_known = is_paid & ~np.isnan(cost)
    source = np.where(_is_reported(df), "reported", "estimated")
    sources = pd.Series(source, df.index, dtype="string") + f" tokens; {table.stamp}"
    return df.assign(
        cost=pd.Series(cost, df.index).where(is_known).astype("Float64"),
        cost_source=sources.where(is_known),
    )


def total_cost(df: pd.DataFrame) -> float:
    """Return what all requests cost; NaN if one is unknown, or nothing was paid."""
    cost = df["cost"].to_numpy(dtype="float64", na_value=np.nan)
    is_known, is_emulated = ~np.isnan(cost), has_flag(df, "is_emulated")
    is_due = has(df, "status", "ok") & is_request(df) & ~has_flag(df, "is_reused")
    if not is_known[is_emulated].any():  # emulated replies are free unless they count
        is_due &= ~is_emulated
    if not is_known.any() or (is_due & ~is_known).any():
        return float("nan")
    return float(np.nansum(cost))


def _table(prices: Prices | Mapping[str, Any] | str | Path) -> Prices:
    if isinstance(prices, Prices):
        return prices
    if isinstance(prices, str | Path):
        return Prices.from_file(prices)
    return Prices.from_mapping(prices)


def _is_reported(df: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return for which rows the service reported prompt and completion tokens."""
    reported = [column(df, f"{kind}_tokens") for kind in ("prompt", "completion")]
    return reported[0].notna().to_numpy() & reported[1].notna().to_numpy()


def _tokens(df: pd.DataFrame, kind: str) -> Any:  # noqa: ANN401 - an array
    """Return tokens as floats: reported ones, or else estimated ones."""
    reported, estimated = (
        column(df, name).to_numpy(dtype="float64", na_value=np.nan)
        for name in (f"{kind}_tokens", f"est_{kind}_tokens")
    )
    return np.where(_is_reported(df), reported, estimated)
