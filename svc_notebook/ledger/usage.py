"""Usage: exchanges summed up by group.

What it is not: it makes no frame (see `frames`), and holds no exchange back. Rules:
reported and estimated tokens are never added; what is left out is counted, so that
an empty sum explains itself; a sum of costs that lacks one is unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from operator import attrgetter
from statistics import median

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange
from svc_notebook.service.chunk import Usage
from svc_notebook.tokens import FIXED, Rule, count_choices, count_prompt

from .columns import Column, Scalar
from .prices import Cost, Prices, cost_of
from .reply_columns import Reply, to_replies
from .token_estimates import Estimates


@dataclass(slots=True)
class Tally:
    """What the exchanges of a group used so far.

    Attributes:
        key: What they have in common, by the columns grouped by.
        estimates: Rules to estimate by; the exchange's own figures if None.
        prices: The price table, if there is one.
        others: As the columns of `USAGE`.
    """

    key: tuple[Scalar, ...]
    estimates: Estimates | None = None
    prices: Prices | None = None
    n_requests: int = 0
    n_failed: int = 0
    n_cancelled: int = 0
    n_cut: int = 0
    n_refused: int = 0
    n_reported: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    n_estimated: int = 0
    estimated_prompt_tokens: int | None = None
    estimated_completion_tokens: int | None = None
    n_missing: int = 0
    queue_s: float = 0.0
    retry_wait_s: float = 0.0
    n_unpriced: int = 0
    n_left_out: int = 0
    _low: float = 0.0
    _high: float = 0.0
    _costs: dict[str, float] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)
    _first_text_s: list[float] = field(default_factory=list)
    _latency_s: list[float] = field(default_factory=list)

    def add(self, exchange: Exchange) -> None:
        """Count an exchange in."""
        self.n_requests += 1
        self.n_failed += exchange.status == "error"
        self.n_cancelled += exchange.status == "cancelled"
        self.n_cut += any(exchange.is_cut(choice) for choice in exchange.choices)
        self.n_refused += exchange.n_refused
        self.queue_s += exchange.queue_s
        self.retry_wait_s += exchange.retry_wait_s
        if exchange.status == "ok":
            _append(self._first_text_s, exchange.first_text_s)
            _append(self._latency_s, exchange.latency_s)
        if exchange.body is None:
            self.n_missing += 1
        elif exchange.body.usage is not None:
            self._add_reported(exchange, exchange.body.usage)
        else:
            self._add_estimated(exchange)

    def _add_reported(self, exchange: Exchange, usage: Usage) -> None:
        self.n_reported += 1
        self.prompt_tokens = _sum(self.prompt_tokens, usage.prompt_tokens)
        self.completion_tokens = _sum(self.completion_tokens, usage.completion_tokens)
        self.total_tokens = _sum(self.total_tokens, usage.total_tokens)
        self._add_cost("reported", cost_of(exchange, self.prices))

    def _add_estimated(self, exchange: Exchange) -> None:
        self.n_estimated += 1
        rule = self._rule(exchange)
        prompt_tokens = exchange.est_prompt_tokens
        completion_tokens = exchange.est_completion_tokens
        if rule is not FIXED and exchange.request.messages:
            request = exchange.request
            prompt_tokens = rule.tokens(count_prompt(request.messages, request.tools))
            completion_tokens = rule.tokens(count_choices(exchange.choices))
        self.estimated_prompt_tokens = _sum(self.estimated_prompt_tokens, prompt_tokens)
        self.estimated_completion_tokens = _sum(
            self.estimated_completion_tokens, completion_tokens
        )
        self._low += rule.low * (prompt_tokens + completion_tokens)
        self._high += rule.high * (prompt_tokens + completion_tokens)
        cost = cost_of(
            exchange, self.prices, estimated=(prompt_tokens, completion_tokens)
        )
        self._add_cost("estimated", cost)

    def _rule(self, exchange: Exchange) -> Rule:
        if self.estimates is None:
            return FIXED
        return self.estimates.rule(
            exchange.request.model, is_emulated=exchange.is_emulated
        )

    def _add_cost(self, of: str, cost: Cost | None) -> None:
        if cost is None:
            self.n_unpriced += 1
            self._unknown.add(of)
        else:
            self._costs[of] = self._costs.get(of, 0.0) + cost.amount

    @property
    def cost(self) -> float | None:
        """What the reported tokens cost, if all of it is known."""
        return None if "reported" in self._unknown else self._costs.get("reported")

    @property
    def estimated_cost(self) -> float | None:
        """What the estimated tokens cost, if all of it is known."""
        return None if "estimated" in self._unknown else self._costs.get("estimated")

    @property
    def cost_source(self) -> str | None:
        """The price table, where there is one."""
        return None if self.prices is None else self.prices.stamp

    @property
    def estimated_low_tokens(self) -> int | None:
        """At least about so many tokens, where they are estimated."""
        return floor(self._low) if self.n_estimated else None

    @property
    def estimated_high_tokens(self) -> int | None:
        """At most about so many tokens, where they are estimated."""
        return ceil(round(self._high, 6)) if self.n_estimated else None

    @property
    def median_first_text_s(self) -> float | None:
        """Median over those that are ok."""
        return median(self._first_text_s) if self._first_text_s else None

    @property
    def median_latency_s(self) -> float | None:
        """Median over those that are ok."""
        return median(self._latency_s) if self._latency_s else None


def _sum(before: int | None, more: int | None) -> int | None:
    return before if more is None else (before or 0) + more


def _append(found: list[float], value: float | None) -> None:
    if value is not None:
        found.append(value)


def to_tallies(
    exchanges: Iterable[Exchange],
    *,
    by: Sequence[Column[Reply]],
    include_emulated: bool = False,
    include_reused: bool = False,
    estimates: Estimates | None = None,
    prices: Prices | None = None,
) -> list[Tally]:
    """Sum up exchanges, in the order in which their groups first come.

    Without columns to group by there is one group, also of no exchanges.
    """
    found: dict[tuple[Scalar, ...], Tally] = {}

    def tally_of(key: tuple[Scalar, ...]) -> Tally:
        if key not in found:
            found[key] = Tally(key, estimates=estimates, prices=prices)
        return found[key]

    if not by:
        tally_of(())
    for exchange in exchanges:
        first = next(to_replies(exchange))
        tally = tally_of(tuple(column.read(first) for column in by))
        if (exchange.is_emulated and not include_emulated) or (
            exchange.is_reused and not include_reused
        ):
            tally.n_left_out += 1
        else:
            tally.add(exchange)
    return list(found.values())


def key_columns(by: Sequence[Column[Reply]]) -> tuple[Column[Tally], ...]:
    """Return the columns that hold a group's key, with their dtypes of replies.

    Raises:
        ParameterError: One of them is summed up.
    """
    summed = [column.name for column in by if column.name in _SUMMED]
    if summed:
        raise ParameterError(
            f"{summed[0]!r} is summed up here and cannot be grouped by as well; group "
            "the frame of replies_df() by it.",
            param="by",
        )
    return tuple(
        Column(
            name=column.name,
            dtype=column.dtype,
            unit=column.unit,
            read=_nth(position),
            doc=column.doc,
        )
        for position, column in enumerate(by)
    )


def _nth(position: int) -> Callable[[Tally], Scalar]:
    return lambda tally: tally.key[position]


def _count(name: str, doc: str) -> Column[Tally]:
    return Column(name=name, dtype="Int64", read=attrgetter(name), doc=doc)


def _tokens(name: str, doc: str) -> Column[Tally]:
    read = attrgetter(name)
    return Column(name=name, dtype="Int64", unit="tokens", read=read, doc=doc)


def _seconds(name: str, doc: str) -> Column[Tally]:
    read = attrgetter(name)
    return Column(name=name, dtype="Float64", unit="s", read=read, doc=doc)


_REPORTED = "sum of what the service reported; missing if it reported none"
USAGE: tuple[Column[Tally], ...] = (
    _count("n_requests", "requests that count"),
    _count("n_failed", "that ended in an error"),
    _count("n_cancelled", "that were interrupted"),
    _count("n_cut", "with a reply that ended for want of tokens"),
    _count("n_refused", "answers 429 on the way, retried ones included"),
    _count("n_reported", "whose tokens are reported"),
    _tokens("prompt_tokens", _REPORTED),
    _tokens("completion_tokens", _REPORTED),
    _tokens("total_tokens", _REPORTED),
    _count("n_estimated", "that answered without reporting tokens, such as streams"),
    _tokens(
        "estimated_prompt_tokens",
        "estimate for those n_estimated, on the safe side; not part of prompt_tokens",
    ),
    _tokens(
        "estimated_completion_tokens",
        "estimate for those n_estimated; not part of completion_tokens",
    ),
    _tokens(
        "estimated_low_tokens",
        "prompts and replies of those n_estimated have at least about so many tokens",
    ),
    _tokens("estimated_high_tokens", "and at most about so many"),
    _count("n_missing", "that nothing came back for"),
    _seconds("queue_s", "waited for our own limits, all together"),
    _seconds("retry_wait_s", "waited between attempts, all together"),
    _seconds("median_first_text_s", "median of first_text_s of those that are ok"),
    _seconds("median_latency_s", "median of latency_s of those that are ok"),
    Column(
        name="cost",
        dtype="Float64",
        read=attrgetter("cost"),
        doc="of reported tokens, by your price table; missing if any of it is unknown",
    ),
    Column(
        name="estimated_cost",
        dtype="Float64",
        read=attrgetter("estimated_cost"),
        doc="of estimated tokens, likewise; not part of cost",
    ),
    _count("n_unpriced", "with tokens, but without a price in your table"),
    Column(
        name="cost_source",
        dtype="string",
        read=attrgetter("cost_source"),
        doc="the price table, its currency and its date",
    ),
    _count(
        "n_left_out",
        "requests to the emulator, or re-used replies, that are not counted here",
    ),
)
"""What `usage_df` says of each group, after the columns it was grouped by."""

_SUMMED = frozenset(column.name for column in USAGE)
