"""How large a plan is: requests, tokens and cost, as intervals.

Rules: pure; estimates are called so, and have a low and a high end; a plan of very
many trials is sized by a sample of them, evenly spread; without a price nothing is
said about cost.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor

from svc_notebook.client.rate_windows import MARGIN_S, MINUTE_S, SECOND_S
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.catalogue import BUDGET_TOKENS, Limit, limit_of
from svc_notebook.service.params import DEFAULT_MAX_TOKENS
from svc_notebook.tokens import FIXED

from .grid import Grid, Trial

SAMPLE_CELLS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a plan will take.

    Attributes:
        n_trials: Requests.
        prompt_tokens: Estimated tokens of all prompts, on the safe side.
        prompt_tokens_low: At least about so many.
        completion_tokens: At most so many, by the max_tokens in force.
        n_default: Requests that send no max_tokens, so that 150 applies.
        n_over: Requests whose prompt and max_tokens may exceed the budget.
        is_sampled: Whether the figures were scaled up from a sample.
        cost_low, cost_high: In the table's currency; None if a price is unknown.
        prices: The price table, if there is one.
        unpriced: Models that have no price in it.
    """

    n_trials: int
    prompt_tokens: int
    prompt_tokens_low: int
    completion_tokens: int
    n_default: int
    n_over: int
    is_sampled: bool
    cost_low: float | None = None
    cost_high: float | None = None
    prices: Prices | None = None
    unpriced: tuple[str, ...] = ()


def size_of(grid: Grid, *, prices: Prices | None = None) -> Size:
    """Size a plan."""
    trials = [_Sized(trial) for trial in _sample(grid)]
    scale = grid.n_combinations / max(len(trials), 1) * grid.repeats
    costs = [each.cost(prices) for each in trials] if prices else []
    low = [cost[0] for cost in costs if cost is not None]
    high = [cost[1] for cost in costs if cost is not None]
    is_priced = prices is not None and len(low) == len(trials)
    prompt_tokens = sum(each.prompt_tokens for each in trials) * scale
    return Size(
        n_trials=len(grid),
        prompt_tokens=round(prompt_tokens),
        prompt_tokens_low=floor(prompt_tokens * FIXED.low),
        completion_tokens=round(sum(each.completion_tokens for each in trials) * scale),
        n_default=ceil(sum(each.is_default for each in trials) * scale),
        n_over=ceil(sum(each.is_over for each in trials) * scale),
        is_sampled=len(trials) < grid.n_combinations,
        cost_low=sum(low) * scale if is_priced else None,
        cost_high=sum(high) * scale if is_priced else None,
        prices=prices,
        unpriced=tuple(
            dict.fromkeys(
                each.model
                for each, cost in zip(trials, costs, strict=False)
                if cost is None
            )
        ),
    )


def _sample(grid: Grid) -> Iterator[Trial]:
    n_taken = min(grid.n_combinations, SAMPLE_CELLS)
    return (
        grid.trial(number * grid.n_combinations // n_taken, 0)
        for number in range(n_taken)
    )


class _Sized:
    """The figures of one trial."""

    def __init__(self, trial: Trial) -> None:
        params = trial.request.params
        max_tokens = int(params.get("max_tokens", DEFAULT_MAX_TOKENS))
        self.model = trial.model
        self.prompt_tokens = trial.est_prompt_tokens
        self.completion_tokens = max_tokens * int(params.get("n", 1))
        self.is_default = "max_tokens" not in params
        self.is_over = self.prompt_tokens + max_tokens > BUDGET_TOKENS

    def cost(self, prices: Prices) -> tuple[float, float] | None:
        """Return the least and the most that it can cost."""
        of_prompt = prices.cost(
            self.model, prompt_tokens=self.prompt_tokens, completion_tokens=0
        )
        of_reply = prices.cost(
            self.model, prompt_tokens=0, completion_tokens=self.completion_tokens
        )
        if of_prompt is None or of_reply is None:
            return None
        return of_prompt * FIXED.low, of_prompt * FIXED.high + of_reply


PER_MINUTE_S = MINUTE_S + MARGIN_S
PER_SECOND_S = SECOND_S + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When the last request of a model can be sent.

    Attributes:
        model: Its id.
        n_requests: How many are to be sent.
        last_sent_s: Seconds from the first to the last; None without a known limit.
        binds: The limit that decides, such as "per-minute limit"; "" if none does.
    """

    model: str
    n_requests: int
    last_sent_s: float | None
    binds: str


def forecast(n_by_model: Mapping[str, int]) -> tuple[Forecast, ...]:
    """Return a forecast a model, the one that ends last coming first."""
    found = [_of_model(model, n, limit_of(model)) for model, n in n_by_model.items()]
    return tuple(sorted(found, key=lambda each: -(each.last_sent_s or 0.0)))


def last_sent_s(n_requests: int, limit: Limit) -> float:
    """Return the seconds from the first request to the last one.

    The k-th request goes when neither window is full: the one `per_second` before it
    is a second ago, and the one `per_minute` before it a minute.
    """
    if n_requests < 1:
        return 0.0
    n_minutes, rest = divmod(n_requests - 1, limit.per_minute)
    in_minutes_s = n_minutes * PER_MINUTE_S + rest // limit.per_second * PER_SECOND_S
    in_seconds_s = (n_requests - 1) // limit.per_second * PER_SECOND_S
    return max(in_minutes_s, in_seconds_s)


def _of_model(model: str, n_requests: int, limit: Limit | None) -> Forecast:
    if limit is None:
        return Forecast(model=model, n_requests=n_requests, last_sent_s=None, binds="")
    binds = ""
    if n_requests > limit.per_minute:
        binds = "per-minute limit"
    elif n_requests > limit.per_second:
        binds = "per-second limit"
    sent_s = last_sent_s(n_requests, limit)
    return Forecast(model=model, n_requests=n_requests, last_sent_s=sent_s, binds=binds)
