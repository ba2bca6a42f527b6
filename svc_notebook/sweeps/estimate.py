"""Estimates the tokens, cost and duration of a plan, before and while it runs.

A run that is larger than `confirm_above` shows these figures and asks before it sends.
A duration depends on the rate limits, and on the requests in their windows now.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, sqrt
from random import Random
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from svc_notebook.client.rate_windows import MARGIN_S, MINUTE_S, SECOND_S, UNLIMITED
from svc_notebook.display.number_words import (
    cost_in_words,
    count_in_words,
    duration_in_words,
)
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.catalogue import Limit, limit_of
from svc_notebook.tokens import Z_90, Tokens

from .grid import Grid, Trial

SAMPLE_TRIALS = 1_000
"""A plan with more combinations is estimated from about so many of them."""


class ModelSize(NamedTuple):
    """The size of all requests to one model, by the plan alone."""

    n: int
    prompt: Tokens
    completion_tokens: float  # the most, by max_tokens
    cost: tuple[float, float] | None  # the least and the most; None without a price


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """What a run has used, and what the requests that are missing will use.

    Attributes:
        prompt_tokens, completion_tokens: Those of the replies so far.
        cost: What these replies cost, of the models with a price; of one model, None if
            its price is unknown.
        n_left: How many requests are missing.
        n_unmeasured: How many of them go to models with too few replies; their figures
            are those of the plan.
        prompt, completion: Estimated tokens of the requests that are missing.
        rest: What these cost, the least and the most, as `cost`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    n_left: int = 0
    n_unmeasured: int = 0
    prompt: Tokens = Tokens()  # noqa: RUF009 - it cannot change
    completion: Tokens = Tokens()  # noqa: RUF009 - it cannot change
    rest: tuple[float, float] | None = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """How large a plan is.

    Attributes:
        n_trials: Requests, without those that the ledger answers.
        prompt: Estimated tokens of all prompts.
        completion_tokens: The most tokens that all replies can have, by max_tokens.
        n_default: Requests without max_tokens, to which the service's default applies.
        n_unlimited: Requests without max_tokens to another server, where the length of
            a reply has no known limit.
        n_over: Requests whose prompt and max_tokens probably exceed the budget.
        budgets: The budgets of those requests: tokens of prompt and reply together.
        is_sampled: Whether the figures were scaled up from a sample.
        cost_low, cost_high: In the currency of the table, of the models that have a
            price in it; None if no model has one.
        prices: The price table, if there is one.
        unpriced: Models without a price in the table.
        completion: Estimated tokens of all replies, by the replies so far; None until
            there are any.
        by_model: The size of the requests to each model, by the plan alone.
        so_far: What was used and what is missing; None until there are replies.
        is_emulated: Whether the emulator gave the replies, at no cost.
        answered: How many requests to each model the ledger answers, at no cost.
    """

    n_trials: int
    prompt: Tokens
    completion_tokens: int
    n_default: int
    n_over: int
    is_sampled: bool
    n_unlimited: int = 0
    budgets: tuple[int, ...] = ()
    cost_low: float | None = None
    cost_high: float | None = None
    prices: Prices | None = None
    unpriced: tuple[str, ...] = ()
    completion: Tokens | None = None
    by_model: Mapping[str, ModelSize] = field(default_factory=dict)
    so_far: SoFar | None = None
    is_emulated: bool = False
    answered: Mapping[str, int] = field(default_factory=dict)


def estimate_of(
    grid: Grid,
    *,
    prices: Prices | None = None,
    is_answered: Callable[[Trial], object] = lambda _: False,
) -> PlanEstimate:
    """Estimate the size of a plan; of a very large one, from a sample.

    `is_answered` says whether the ledger answers a trial, which then costs nothing.
    """
    sample = _sample(grid)
    n_default, n_unlimited, n_over, budgets = 0.0, 0.0, 0.0, set[int]()
    prompts, replies = dict[str, Tokens](), defaultdict[str, float](float)
    answered = defaultdict[str, float](float)
    for number, weight in sample:
        trial = grid.trial(number, 0)
        if is_answered(trial):
            answered[trial.model] += weight
            continue
        request, model, prompt = trial.request, trial.model, trial.prompt_tokens
        max_tokens, budget = request.max_tokens or 0, request.context_tokens
        prompts[model] = prompts.get(model, Tokens()) + prompt.times(weight)
        replies[model] += max_tokens * int(request.params.get("n", 1)) * weight
        is_default = "max_tokens" not in request.params
        n_default += weight * (is_default and request.info.is_documented)
        n_unlimited += weight * (request.max_tokens is None)
        if budget is not None and prompt.best + max_tokens > budget:
            n_over += weight
            budgets.add(budget)
    n_answered = {model: round(n) for model, n in answered.items()}
    by_model = {
        model: ModelSize(
            grid.n_by_model[model],
            prompt,
            replies[model],
            _cost_of(model, prompt, replies[model], prices),
        )
        for model, prompt in prompts.items()
    }
    costs = [size.cost for size in by_model.values() if size.cost is not None]
    unpriced = tuple(model for model, size in by_model.items() if size.cost is None)
    is_priced = prices is not None and (bool(costs) or not unpriced)
    high = inf if n_unlimited else sum(high for _, high in costs)
    return PlanEstimate(
        n_trials=len(grid) - sum(n_answered.values()),
        answered=n_answered,
        prompt=sum(prompts.values(), Tokens()),
        completion_tokens=round(sum(replies.values())),
        n_default=_rounded_up(n_default),
        n_unlimited=_rounded_up(n_unlimited),
        n_over=_rounded_up(n_over),
        budgets=tuple(sorted(budgets)),
        is_sampled=len(sample) < grid.n_combinations,
        cost_low=sum(low for low, _ in costs) if is_priced else None,
        cost_high=high if is_priced else None,
        prices=prices,
        by_model=by_model,
        unpriced=unpriced,
    )


def _sample(grid: Grid) -> list[tuple[int, float]]:
    """Return combinations, and how many requests each represents; all if they are few.

    Each condition or model has its share in them. Of its combinations, one is drawn at
    random from each of several equal parts: with regular steps, all could have the
    same value of something that is repeated. A plan always has the same sample.
    """
    n_all = grid.n_combinations
    if n_all <= SAMPLE_TRIALS:
        return [(number, grid.repeats) for number in range(n_all)]
    random = Random(n_all)  # noqa: S311 - no secret
    sample = []
    groups = grid.similar(most=SAMPLE_TRIALS)
    for group in groups:
        n = min(max(SAMPLE_TRIALS // len(groups), 1), len(group))
        ends = [part * len(group) // n for part in range(n + 1)]
        drawn = [group[random.randrange(*part)] for part in pairwise(ends)]
        sample += [(number, len(group) / n * grid.repeats) for number in drawn]
    return sorted(sample)  # so that rows in files are read in order


def _rounded_up(n: float) -> int:
    return ceil(round(n, 6))  # a sum of weights is not exact


def _cost_of(
    model: str, prompt: Tokens, n_reply: float, prices: Prices | None
) -> tuple[float, float] | None:
    """Return the least and the most that requests can cost; None without a price."""
    if prices is None:
        return None
    low = prices.cost(model, prompt_tokens=prompt.low, completion_tokens=0)
    high = prices.cost(model, prompt_tokens=prompt.high, completion_tokens=n_reply)
    return None if low is None or high is None else (low, high)


LEAST_SEEN = 3
"""From so many replies of each model on, estimates are made from replies."""


class Seen(NamedTuple):
    """The tokens of one request and its reply, and the seconds that it took."""

    prompt_tokens: int
    completion_tokens: int
    latency_s: float | None


def estimate_by_replies(
    size: PlanEstimate,
    n_left: Mapping[str, int],
    seen: Mapping[str, Sequence[Seen]],
) -> PlanEstimate:
    """Estimate a size again from the replies so far, if there are any.

    The tokens of these replies are known. Those of the others are estimated from the
    mean of their model, with an interval that holds the true total 9 times in 10. For
    a model with too few replies, such as one that was added, they are as planned.

    Args:
        size: The size by the plan alone.
        n_left: How many requests to each model of the plan are missing.
        seen: The replies so far of each model.
    """
    if not any(map(seen.get, n_left)) or not all(
        model in size.by_model or _is_measured(seen.get(model, ()), n)
        for model, n in n_left.items()
    ):
        return size
    so_far, unpriced = SoFar(), list[str]()
    for model, n in n_left.items():
        part = _so_far(model, seen.get(model, ()), n, size)
        so_far = _added(so_far, part)
        if part.cost is None or part.rest is None:
            unpriced.append(model)
    cost, rest = so_far.cost, so_far.rest
    is_priced = len(unpriced) < len(n_left)
    return replace(
        size,
        prompt=Tokens(so_far.prompt_tokens) + so_far.prompt,
        completion=Tokens(so_far.completion_tokens) + so_far.completion,
        is_sampled=False,
        cost_low=(cost or 0.0) + rest[0] if is_priced and rest else None,
        cost_high=(cost or 0.0) + rest[1] if is_priced and rest else None,
        unpriced=tuple(unpriced),
        so_far=so_far,
    )


def _is_measured(replies: Sequence[Seen], n_left: int) -> bool:
    """Whether the replies of a model suffice to estimate the others."""
    return not n_left or len(replies) >= LEAST_SEEN


def _so_far(
    model: str, replies: Sequence[Seen], n_left: int, size: PlanEstimate
) -> SoFar:
    """Return what was used and is missing for one model."""
    prompts = [reply.prompt_tokens for reply in replies]
    completions = [reply.completion_tokens for reply in replies]
    costs = _costs(model, replies, size.prices)
    used = SoFar(
        prompt_tokens=sum(prompts),
        completion_tokens=sum(completions),
        cost=None if costs is None else sum(costs),
        n_left=n_left,
    )
    if not _is_measured(replies, n_left):
        return _with_planned(used, size.by_model[model], size)
    cost = None if costs is None else rest_of(costs, n_left)
    return replace(
        used,
        prompt=rest_of(prompts, n_left),
        completion=rest_of(completions, n_left),
        rest=None if cost is None else (cost.mean - cost.under, cost.mean + cost.over),
    )


def _with_planned(used: SoFar, planned: ModelSize, size: PlanEstimate) -> SoFar:
    """Add what is missing as it was planned, for a model with too few replies."""
    share = used.n_left / max(planned.n, 1)
    half = planned.completion_tokens * share / 2
    rest = planned.cost
    if rest is not None:
        rest = rest[0] * share, inf if size.n_unlimited else rest[1] * share
    return replace(
        used,
        n_unmeasured=used.n_left,
        prompt=planned.prompt.times(share),
        completion=Tokens(half, half, half),
        rest=rest,
    )


def _added(one: SoFar, other: SoFar) -> SoFar:
    """Add what models use, and what those with a price cost."""
    one_rest, other_rest = one.rest or (0.0, 0.0), other.rest or (0.0, 0.0)
    return SoFar(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        cost=(one.cost or 0.0) + (other.cost or 0.0),
        n_left=one.n_left + other.n_left,
        n_unmeasured=one.n_unmeasured + other.n_unmeasured,
        prompt=one.prompt + other.prompt,
        completion=one.completion + other.completion,
        rest=(one_rest[0] + other_rest[0], one_rest[1] + other_rest[1]),
    )


def _costs(
    model: str, replies: Sequence[Seen], prices: Prices | None
) -> list[float] | None:
    """Return what each reply cost; None if a price is unknown."""
    if prices is None:
        return None
    costs = list[float]()
    for prompt, reply, _ in replies:
        cost = prices.cost(model, prompt_tokens=prompt, completion_tokens=reply)
        if cost is None:
            return None
        costs.append(cost)
    return costs


def total_of(seen: Sequence[float], n: int) -> Tokens:
    """Estimate the total of `n` values, some of which were seen."""
    return Tokens(sum(seen)) + rest_of(seen, max(n - len(seen), 0))


def rest_of(seen: Sequence[float], n_left: int) -> Tokens:
    """Estimate the total of `n_left` further values like those that were seen."""
    if not n_left:
        return Tokens()
    # two errors: the spread of the values that are left, and that of the mean so far
    spread = stdev(seen) * sqrt(n_left * (n_left + len(seen)) / len(seen))
    width, mean = _t_quantile(len(seen) - 1) * spread, fmean(seen)
    return Tokens(mean * n_left, min(width, mean * n_left), width)


def _t_quantile(n_free: int) -> float:
    """Return Student's t for an interval of 9 in 10 (Abramowitz and Stegun 26.7.5)."""
    z = Z_90
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n_free + second / n_free**2 + third / n_free**3


PER_MINUTE_S = MINUTE_S + MARGIN_S
PER_SECOND_S = SECOND_S + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When the last request of a model can be sent, in seconds after the first one.

    `ends_s` is when the last reply arrives: lower end, best estimate and upper end;
    None until there are replies to estimate it from.
    """

    model: str
    last_sent_s: float | None  # None if no limit of the model is known
    binds: str  # the limit that determines the time, such as "per-minute limit"
    ends_s: tuple[float, float, float] | None = None


LimitFor = Callable[[str], Limit | None]
"""Returns the limit in force for a model: the documented one, or the user's own."""

HeldOf = Callable[[str], Sequence[float]]
"""Returns when the newest requests to a model were sent; see `Windows.held_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What determines how fast a run is sent."""

    held_of: HeldOf = lambda _: ()
    limit_for: LimitFor = limit_of
    limit_of: LimitFor = limit_of  # without the user's own limits
    in_flight_of: Callable[[str], int] = lambda _: (
        1
    )  # most requests in flight, by model
    seen: Mapping[str, Sequence[Seen]] = field(default_factory=dict)


def forecast(
    n_by_model: Mapping[str, int],
    speed: Speed = Speed(),
) -> tuple[Forecast, ...]:
    """Return a forecast for each model, the slowest first."""
    forecasts = []
    for model, n_requests in n_by_model.items():
        limit, sent_s, binds = speed.limit_for(model), None, ""
        if limit is not None:
            sent_s = last_sent_s(n_requests, limit)
            late_s = last_sent_s(n_requests, limit, speed.held_of(model))
            # requests of other runs and cells may still fill the windows
            if is_held := late_s > sent_s + PER_SECOND_S:
                sent_s = late_s
            if is_held or n_requests > (limit.per_minute or UNLIMITED):
                binds = "per-minute limit"
            elif n_requests > (limit.per_second or UNLIMITED):
                binds = "per-second limit"
            if binds and limit != speed.limit_of(model):
                binds = f"your {binds}"
        planned = Forecast(model=model, last_sent_s=sent_s, binds=binds)
        forecasts.append(_with_end(planned, n_requests, speed))
    return tuple(sorted(forecasts, key=_duration_s, reverse=True))


def _duration_s(forecast: Forecast) -> float:
    return forecast.ends_s[1] if forecast.ends_s else forecast.last_sent_s or 0.0


def _with_end(planned: Forecast, n_requests: int, speed: Speed) -> Forecast:
    """Add when the last reply arrives, estimated from how long replies took so far."""
    model, sent_s = planned.model, planned.last_sent_s
    times_s = [reply.latency_s for reply in speed.seen.get(model, ())]
    known_s = [time_s for time_s in times_s if time_s is not None]
    if sent_s is None or len(known_s) < LEAST_SEEN:
        return planned
    # for very many values, the interval of the total is that of the mean alone
    n_more = len(known_s) * 1_000_000
    mean = total_of(known_s, n_more).times(1 / n_more)
    n_rounds = (n_requests - 1) // speed.in_flight_of(model)
    low, best, high = (
        max(sent_s, n_rounds * reply_s) + reply_s
        for reply_s in (mean.mean - mean.under, mean.mean, mean.mean + mean.over)
    )
    binds = "" if n_rounds * mean.mean > sent_s else planned.binds
    return replace(planned, binds=binds, ends_s=(low, best, high))


def last_sent_s(n_requests: int, limit: Limit, held_s: Sequence[float] = ()) -> float:
    """Return the seconds from now until the last of so many requests is sent.

    Request k is sent when both windows have room: request k - per_second was sent a
    second ago or earlier, and request k - per_minute a minute ago or earlier. `held_s`
    are the times of the requests that the windows hold now, oldest first.
    """
    if n_requests < 1:
        return 0.0
    per_second = limit.per_second or UNLIMITED
    per_minute = limit.per_minute or UNLIMITED
    if held_s:
        times_s = list(held_s)
        # after two minutes each minute is like the one before, and need not be computed
        n_more = max(n_requests - 2 * per_minute, 0)
        n_minutes = ceil(n_more / per_minute)
        for _ in range(n_requests - n_minutes * per_minute):
            full_s = [
                times_s[-n_most] + length_s
                for n_most, length_s in (
                    (per_second, PER_SECOND_S),
                    (per_minute, PER_MINUTE_S),
                )
                if len(times_s) >= n_most
            ]
            times_s.append(max(0.0, *full_s, times_s[-1]))
        return times_s[-1] + n_minutes * PER_MINUTE_S
    n_minutes, rest = divmod(n_requests - 1, per_minute)
    in_minutes_s = n_minutes * PER_MINUTE_S + rest // per_second * PER_SECOND_S
    in_seconds_s = (n_requests - 1) // per_second * PER_SECOND_S
    return max(in_minutes_s, in_seconds_s)


SHOWN_MODELS = 4  # most names of models in a line


def cost_range(size: PlanEstimate) -> str:
    """Say what the plan costs by the user's prices; "" without prices."""
    if size.prices is None:
        return ""
    if size.cost_low is None or size.cost_high is None:
        unpriced = ", ".join(size.unpriced[:SHOWN_MODELS])
        return f"unknown: your price table has no price for {unpriced}"
    table, so_far = size.prices, size.so_far
    if so_far is None or so_far.cost is None or so_far.rest is None:
        cost = _between(size.cost_low, size.cost_high, f" {table.currency}")
    else:
        cost = f"{cost_in_words(so_far.cost)} {table.currency}"
        if so_far.n_left:
            rest = _between(*so_far.rest)
            cost += f" so far, {missing_requests(so_far.n_left)} {rest}"
    free = "; the emulator itself costs nothing" if size.is_emulated else ""
    source = f"by your prices ({table.source}, {table.as_of.isoformat()})"
    return f"{cost}{_without_unpriced(size)}, {source}{free}"


def _without_unpriced(size: PlanEstimate) -> str:
    """Say which models a cost leaves out; "" if none."""
    if not size.unpriced:
        return ""
    names = ", ".join(size.unpriced[:SHOWN_MODELS])
    if (n_more := len(size.unpriced) - SHOWN_MODELS) > 0:
        names += f" and {n_more:,} more"
    are = "price is" if len(size.unpriced) == 1 else "prices are"
    return f" without {names}, whose {are} unknown"


def most_of_rest(
    size: PlanEstimate, n_left: int
) -> dict[Literal["tokens", "cost"], float]:
    """Return the most that the missing requests may take; no cost if it is unknown."""
    so_far, n_all = size.so_far, size.n_trials
    if not n_left or not n_all:
        return {}
    if so_far is None:
        share = min(n_left / n_all, 1.0)
        tokens = ceil((size.prompt.high + size.completion_tokens) * share)
        cost = None if size.cost_high is None else size.cost_high * share
        is_open = size.n_unlimited > 0
    else:
        tokens = so_far.prompt.high + so_far.completion.high
        cost = None if so_far.rest is None or not size.prices else so_far.rest[1]
        is_open = size.n_unlimited > 0 and so_far.n_unmeasured > 0
    most: dict[Literal["tokens", "cost"], float] = {
        "tokens": inf if is_open else tokens
    }
    return most if cost is None else {**most, "cost": cost}


def missing_requests(n: int) -> str:
    """Return "the 3 missing requests"."""
    return "the missing request" if n == 1 else f"the {n:,} missing requests"


def _between(low: float, high: float, currency: str = "") -> str:
    if high == inf:
        return f"at least {cost_in_words(low)}{currency}, for the prompts"
    return f"{' to '.join(dict.fromkeys(map(cost_in_words, (low, high))))}{currency}"


def ask_before_sending(
    size: PlanEstimate, n_requests: int, *, lasts_s: float | None
) -> bool:
    """Ask the user whether to send so many requests of a plan.

    Args:
        size: How large the whole plan is.
        n_requests: How many of its requests would be sent now.
        lasts_s: Seconds until the last of them is sent; None if no limit is known.

    Returns:
        Whether the user agrees.

    Raises:
        ParameterError: No input is possible here.
    """
    how_long = f", which takes about {duration_in_words(lasts_s)}" if lasts_s else ""
    question = (
        f"This sends {count_in_words(n_requests, 'requests')}{how_long}"
        f"{_most_cost(size, n_requests)}. Continue?"
    )
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except (EOFError, NotImplementedError):  # IPython raises the latter
        pass
    raise ParameterError(
        f"{question} No input is possible here, so nothing was sent; give a "
        "larger confirm_above, or None to never ask.",
        param="confirm_above",
    )


def _most_cost(size: PlanEstimate, n_requests: int) -> str:
    """Say what a part of the plan costs at most; "" if prices are unknown."""
    if size.prices is None or size.cost_high is None or not size.n_trials:
        return ""
    cost, so_far = size.cost_high * n_requests / size.n_trials, size.so_far
    if so_far is not None and so_far.rest is not None and so_far.n_left:
        cost = so_far.rest[1] * n_requests / so_far.n_left
    amount = f"{cost_in_words(cost)} {size.prices.currency}"
    return f" and costs at most about {amount}{_without_unpriced(size)}"
