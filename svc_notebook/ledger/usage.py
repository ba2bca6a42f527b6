"""Usage summed up by group: the frame of `usage_df`, and its columns.

Usage counts all requests, also repeated ones; the summary of a run counts each trial
once. Tokens and costs are those that were reported, or else estimated; the columns
`estimated_…` have the estimated part.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, is_cut
from svc_notebook.service.params import did_you_mean
from svc_notebook.tokens import (
    TokenRule,
    Tokens,
    by_chunks,
    count_choices,
    count_prompt,
)

from .exchange_rows import Filters
from .ledger import Ledger, WhichTexts
from .prices import Prices
from .reply_columns import (
    ANSWERS,
    REPLIES,
    TEXTS,
    Batch,
    Column,
    ReadColumn,
    as_names,
    chunks,
    cut_flags,
    exchange_batch,
    extra_columns,
    pick,
    template_columns,
    usage_source,
)
from .reply_frames import JoinExchanges, assemble_frame, unchanged
from .token_calibration import TokenRules, estimates_of

_INFINITE = float("inf")
How = (
    Literal["count", "sum", "known", "round", "low", "high", "median", "first"] | float
)
"""How a column is summed up. If there are no values, `count` is 0 and the others are
missing. `known` is a sum that is missing if one value is unknown, which is written as
infinity. `round` rounds a sum; `low` and `high` are the ends of a sum of estimates. A
float is a quantile."""


@dataclass(frozen=True, slots=True)
class Measure(Column):
    """A column that sums up the values of its source for each group."""

    how: How = "count"


def usage_df(  # noqa: PLR0913 - the arguments of `svc.usage_df`
    ledger: Ledger,
    *,
    by: str | Sequence[str] = ("model",),
    include_emulated: bool = False,
    include_reused: bool = False,
    prices: Prices | None = None,
    priced_as: str | None = None,
    joined: JoinExchanges = unchanged,
    **filters: Unpack[Filters],
) -> pd.DataFrame:
    """Sum up what the exchanges of a ledger used: see `svc.usage_df`.

    Tokens that were not reported are estimated: see `TokenRules`. Texts are read only
    for these estimates, and if `by` needs them. Without `prices`, costs are unknown.
    `joined` and `filters` are those of `replies_df`.
    """
    known = {column.name for column in REPLIES}
    wanted = {str(name) for name in as_names(by)}
    is_templated = not wanted <= known
    texts: WhichTexts = True if is_templated or wanted & TEXTS else "estimated"
    exchanges: Iterable[Exchange] = ledger.read(texts=texts, **filters)
    columns = REPLIES
    if is_templated:
        exchanges = list(joined(ledger, exchanges))
        templates = template_columns(
            (exchange.origin.columns for exchange in exchanges), known
        )
        extras = extra_columns(exchange.request.extra for exchange in exchanges)
        columns = (*REPLIES, *extras, *templates)
    return usage_frame(
        exchanges,
        pick(columns, by),
        include_emulated=include_emulated,
        include_reused=include_reused,
        estimates=estimates_of(ledger),
        prices=prices if priced_as is None else _priced_as(priced_as, prices),
    )[0]


def _priced_as(model: str, prices: Prices | None) -> Prices:
    """Return a price table in which every model has the price of this one."""
    known = {} if prices is None else prices.models
    if prices is None or model not in known:
        remedy = "There is no price table; set SVC_PRICES to one."
        if known:
            names = ", ".join(known)
            remedy = f"Your price table has {names}.{did_you_mean(str(model), known)}"
        raise ParameterError(
            f"priced_as={model!r} has no price. {remedy}", param="priced_as"
        )
    return replace(prices, priced_as=model)


def say_left_out(
    usage: pd.DataFrame, *, hint: str, say: Callable[[str], object]
) -> pd.DataFrame:
    """Write how many exchanges a frame of `usage_df` does not count, if any.

    Returns:
        The frame without groups in which no exchange is counted.
    """
    if n := int(usage["n_left_out"].sum()):
        exchanges = count_in_words(n, "exchanges")
        say(f"{exchanges} left out: emulated or reused{hint}.")
    is_counted = (usage["n_exchanges"] > 0) | (usage["n_left_out"] == 0)
    return usage[is_counted].reset_index(drop=True)


def say_unpriced(usage: pd.DataFrame, *, say: Callable[[str], object]) -> None:
    """Write how many exchanges have no price, if there is a price table."""
    is_unpriced = (usage["n_unpriced"] > 0) & usage["cost_source"].notna()
    if not (n := int(usage.loc[is_unpriced, "n_unpriced"].sum())):
        return
    table = str(usage["cost_source"].dropna().iloc[0]).rsplit(", ", 2)[0]
    have, costs = ("has", "its cost is") if n == 1 else ("have", "their costs are")
    models = ""
    if "model" in usage:
        models = f": {', '.join(usage.loc[is_unpriced, 'model'].unique())}"
    exchanges = count_in_words(n, "exchanges")
    say(f"{exchanges} {have} no price in {table}, so {costs} unknown{models}.")


class UsageGroups(NamedTuple):
    """A frame with one row per group, and the position of the first row of each group.

    Groups are in order of first appearance. The frame has the columns that it is
    grouped by, then the sums.
    """

    frame: pd.DataFrame
    firsts: list[int]


def usage_frame(
    exchanges: Iterable[Exchange],
    by: Sequence[Column],
    *,
    include_emulated: bool = False,
    include_reused: bool = False,
    estimates: TokenRules | None = None,
    prices: Prices | None = None,
) -> UsageGroups:
    """Sum up what exchanges used, in the columns `USAGE`.

    The columns to group by are read from the first choice of an exchange. Without
    `estimates` the fixed rule estimates tokens.
    """
    rules = estimates or TokenRules(lambda *_: ())

    def batch_of(chunk: list[Exchange]) -> Batch:
        batch = _with_good(exchange_batch(chunk, is_by_choice=False))
        batch.parts["is_left_out"] = is_left_out = [
            (exchange.is_emulated and not include_emulated)
            or (exchange.is_reused and not include_reused)
            for exchange in chunk
        ]
        batch.parts["used"] = [None] * len(chunk)
        if prices is not None or None in batch.part("first.body.usage"):
            batch.parts["used"] = [
                None if is_out else _usage_of(exchange, rules, prices)
                for exchange, is_out in zip(chunk, is_left_out, strict=True)
            ]
        return batch

    groups = _group(map(batch_of, chunks(exchanges)), by, USAGE)
    _add_estimates(groups.frame)
    stamp = None if prices is None else prices.stamp
    groups.frame["cost_source"] = pd.array([stamp] * len(groups.frame), dtype="string")
    return groups


def _add_estimates(usage: pd.DataFrame) -> None:
    """Add the estimated tokens to those that were reported."""
    parts = ("prompt_tokens", "completion_tokens")
    sums = [("total_tokens", part) for part in parts]
    for name, part in [*zip(parts, parts, strict=True), *sums]:
        usage[name] = usage[name].add(usage[f"estimated_{part}"], fill_value=0)


def _with_good(batch: Batch) -> Batch:
    """Add the part `good`: the exchange if it is ok, on its first row."""
    batch.parts["good"] = [
        exchange if exchange is not None and exchange.status == "ok" else None
        for exchange in batch.part("first")
    ]
    return batch


class _Usage(NamedTuple):
    """Cost of an exchange, and its estimates; an unknown cost is infinite."""

    cost: float | None = None
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    both: Tokens | None = None
    estimated_cost: float | None = None  # the same as `cost`, if tokens are estimated


def _usage_of(
    exchange: Exchange, estimates: TokenRules, prices: Prices | None
) -> _Usage | None:
    """Return the costs, and the estimates of tokens that were not reported; or None."""
    body, request = exchange.body, exchange.request
    if body is None or (body.usage is not None and prices is None):
        return None
    if body.usage is not None:
        tokens = body.usage.prompt_tokens, body.usage.completion_tokens
        return _Usage(cost=_cost(request.model, prices, *tokens))
    rule = estimates.rule(request.model, is_emulated=exchange.is_emulated)
    prompt = rule.tokens(count_prompt(request.messages, request.tools))
    reply = _reply_tokens(exchange, rule)
    cost = _cost(request.model, prices, prompt.mean, reply.mean)
    return _Usage(
        cost=cost,
        prompt_tokens=prompt.mean,
        completion_tokens=reply.mean,
        both=prompt + reply,
        estimated_cost=cost,
    )


def _reply_tokens(exchange: Exchange, rule: TokenRule) -> Tokens:
    """Estimate a reply by its chunks if each has one token, else by its text."""
    if rule.is_by_chunk and exchange.n_chunks:
        tokens = by_chunks(exchange.n_chunks)
    else:
        tokens = rule.tokens(count_choices(exchange.choices))
    if (max_tokens := exchange.max_tokens) is None:
        return tokens
    return tokens.capped(max_tokens * max(len(exchange.choices), 1))


def _cost(
    model: str, prices: Prices | None, prompt: float | None, completion: float | None
) -> float:
    """Return what tokens cost; infinite if the cost is unknown."""
    if prices is None:
        return _INFINITE
    cost = prices.cost(model, prompt_tokens=prompt, completion_tokens=completion)
    return _INFINITE if cost is None else cost


def _group(
    batches: Iterator[Batch], by: Sequence[Column], measures: Sequence[Measure]
) -> UsageGroups:
    names = {measure.name for measure in measures}
    for column in by:
        if column in ANSWERS:
            raise ParameterError(
                f"usage_df cannot group by {column.name!r}, because it does not read "
                f"answers. Use replies_df().groupby({column.name!r}) instead.",
                param="by",
            )
        if column.name in names:
            raise ParameterError(
                f"usage_df cannot group by {column.name!r}, because that is one of its "
                "sums. Group the frame of replies_df() by it instead.",
                param="by",
            )
    # before they are summed up, columns have the dtype of the single values
    sources = [
        replace(measure, dtype=_DTYPES.get(measure.how, measure.dtype))
        for measure in measures
    ]
    rows = assemble_frame(batches, (*by, *sources))
    keys = rows.iloc[:, : len(by)]
    if "n_left_out" in names and (is_left_out := rows["n_left_out"] > 0).any():
        for name in names - {"n_left_out"}:
            rows[name] = rows[name].mask(is_left_out)
    codes, firsts = group_codes(keys)
    groups = rows.groupby(codes)
    # without columns to group by there is one group, even without rows
    frame = keys.iloc[firsts].reset_index(drop=True) if by else pd.DataFrame(index=[0])
    sums = {measure.name: _sum_up(groups, measure, len(frame)) for measure in measures}
    return UsageGroups(frame.assign(**sums), firsts)


_DTYPES: dict[How, Any] = {"round": "Float64", "low": "object", "high": "object"}


def group_codes(keys: pd.DataFrame) -> tuple["np.ndarray", list[int]]:
    """Return the group number of each row, and the position of each group's first row.

    Groups are numbered in order of first appearance. Missing values are one group.
    """
    codes = np.zeros(len(keys), dtype="int64")
    for name in keys:
        of_column, values = pd.factorize(keys[name], use_na_sentinel=False)
        codes, _ = pd.factorize(codes * len(values) + of_column)
    return codes, np.unique(codes, return_index=True)[1].tolist()


def _sum_up(groups: Any, measure: Measure, n_groups: int) -> pd.Series:  # noqa: ANN401 - of pandas
    values, how = groups[measure.name], measure.how
    if isinstance(how, float):
        sums = values.quantile(how)
    elif how in {"first", "median"}:
        sums = values.agg(how)
    elif how in {"low", "high"}:
        sums = values.agg(lambda part: _end_of(part.dropna(), how))
    else:
        sums = values.sum(min_count=how != "count")
    sums = sums.reindex(range(n_groups))
    if how == "count":
        sums = sums.fillna(0)
    elif how == "known":
        sums = sums.where(np.isfinite(sums.fillna(0.0)))
    elif how == "round":
        sums = sums.round()
    summed: pd.Series = sums.astype(measure.dtype)
    return summed


def _end_of(estimates: Iterable[Tokens], end: str) -> int | None:
    """Return the lower or upper end of a sum; None if there is nothing to add."""
    tokens = list(estimates)
    return getattr(sum(tokens, Tokens()), end) if tokens else None


def _has_failed(batch: Batch) -> list[bool]:
    rows = zip(batch.part("status"), batch.part("failure"), batch.rows, strict=True)
    # a run sends a trial again after a 429, so that exchange is not a failure
    return [
        status == "error"
        and not (exchange.origin.run and failure and failure.type == "RateLimitError")
        for status, failure, exchange in rows
    ]


def _has_source(source: str) -> ReadColumn:
    return lambda batch: [row_source == source for row_source in usage_source(batch)]


def _has_cut(batch: Batch) -> list[bool | None]:
    choices, flags = batch.part("choices"), cut_flags(batch)
    if max(map(len, choices), default=1) > 1:
        rows = zip(batch.rows, choices, flags, strict=True)
        flags = [
            is_first_cut or any(is_cut(exchange, other) for other in others)
            for exchange, (_, *others), is_first_cut in rows
        ]
    return flags


def _is_unpriced(batch: Batch) -> list[bool]:
    rows = zip(batch.part("exchange.body"), batch.part("used"), strict=True)
    return [
        body is not None and (used is None or _INFINITE in used) for body, used in rows
    ]


def _count(
    name: str, source: str | ReadColumn, doc: str, how: How = "count"
) -> Measure:
    return Measure(name, "Int64", source, doc, how)


def _number(name: str, source: str, doc: str, how: How) -> Measure:
    return Measure(name, "Float64", source, doc, how)


_TOKENS = tuple(
    _count(
        name,
        f"first.body.usage.{name}",
        "what the service reported, and the estimate where it reported none",
        "sum",
    )
    for name in ("prompt_tokens", "completion_tokens", "total_tokens")
)
USAGE = (
    _count("n_requests", "first.n_attempts", "requests sent, retries included"),
    _count("n_exchanges", lambda batch: [1] * len(batch.rows), "exchanges counted"),
    _count(
        "n_failed",
        _has_failed,
        "exchanges that ended in an error, except 429s that a run sends again",
    ),
    _count(
        "n_cancelled",
        lambda batch: [status == "cancelled" for status in batch.part("status")],
        "exchanges that were interrupted",
    ),
    _count("n_cut", _has_cut, "exchanges with a reply that was cut: see is_cut"),
    _count("n_refused", "first.n_refused", "429 answers, retried ones included"),
    _count("n_reported", _has_source("reported"), "exchanges with reported tokens"),
    *_TOKENS,
    _count(
        "n_estimated", _has_source("estimated"), "exchanges without reported tokens"
    ),
    _count(
        "estimated_prompt_tokens",
        "used.prompt_tokens",
        "the part of prompt_tokens that is estimated, for the n_estimated exchanges",
        "round",
    ),
    _count(
        "estimated_completion_tokens",
        "used.completion_tokens",
        "the part of completion_tokens that is estimated",
        "round",
    ),
    _count(
        "estimated_low_tokens",
        "used.both",
        "lower end of the interval for all tokens of the n_estimated exchanges",
        "low",
    ),
    _count("estimated_high_tokens", "used.both", "upper end of that interval", "high"),
    _count("n_missing", _has_source("missing"), "exchanges without an answer"),
    _number("queue_s", "first.queue_s", "all waits for our own rate limit", "count"),
    _number("retry_wait_s", "first.retry_wait_s", "all waits for retries", "count"),
    _number(
        "median_first_text_s",
        "good.first_text_s",
        "median of the ok exchanges",
        "median",
    ),
    _number(
        "median_latency_s", "good.latency_s", "median of the ok exchanges", "median"
    ),
    _number(
        "cost",
        "used.cost",
        "cost of these tokens by your price table; missing if any is unknown",
        "known",
    ),
    _number(
        "estimated_cost",
        "used.estimated_cost",
        "the part of cost that is estimated",
        "known",
    ),
    _count("n_unpriced", _is_unpriced, "exchanges without a price"),
    Measure(
        "cost_source",
        "string",
        lambda batch: [None] * len(batch.rows),  # filled in by `usage_frame`
        "the price table, its currency and its date",
        "first",
    ),
    _count("n_left_out", "is_left_out", "exchanges not counted: emulated or reused"),
)
"""The columns of `usage_df`, after the columns that it is grouped by."""
