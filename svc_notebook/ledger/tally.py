"""The sums over one group of exchanges, kept while they go by.

Rules: exchanges are looked at once and not kept; a sum is missing where nothing
went into it; estimates are by the model's rule where the texts are there.
"""

from dataclasses import dataclass, field
from math import ceil, floor
from statistics import median

from svc_notebook.exchange import Exchange
from svc_notebook.service.completion import Usage
from svc_notebook.tokens import FIXED, Rule, count_choices, count_prompt

from .columns import Scalar
from .cost import Cost, cost_of
from .estimate import Estimates
from .prices import Prices


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
