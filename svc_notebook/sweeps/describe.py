"""A run in words: its requests, tokens, cost and duration, its outcome, its errors.

The time of day makes no difference; only what the limits hold just now does.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from statistics import fmean, stdev
from textwrap import wrap
from typing import Any, NamedTuple

from svc_notebook.client.rate_windows import MARGIN_S, MINUTE_S, SECOND_S, UNLIMITED
from svc_notebook.display.markup import to_terminal
from svc_notebook.display.reply import Final
from svc_notebook.exchange import Failure
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.catalogue import Limit, limit_of
from svc_notebook.service.checks import shorten
from svc_notebook.service.params import DEFAULT_MAX_TOKENS
from svc_notebook.tokens import Tokens

from .dimensions import EXTRA, LABELS, TOOLS, Dimension, tool_names
from .grid import Grid
from .source import Source

SAMPLE_TRIALS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a plan is.

    Attributes:
        n_trials: Requests.
        prompt: Estimated tokens of all prompts.
        completion_tokens: The most that the replies can have, by max_tokens.
        n_default: Requests without max_tokens: the service's default applies.
        n_over: Requests whose prompt and max_tokens probably exceed the budget.
        budgets: The tokens that prompt and reply of those may have.
        is_sampled: Whether the figures were scaled up from a sample.
        cost_low, cost_high: In the table's currency; None if a price is unknown.
        prices: The price table, if there is one.
        unpriced: Models without a price in it.
        completion: Estimated tokens of all replies, by those that were seen; None
            before there are some of each model.
        n_seen: How many replies the figures were estimated from.
    """

    n_trials: int
    prompt: Tokens
    completion_tokens: int
    n_default: int
    n_over: int
    is_sampled: bool
    budgets: tuple[int, ...] = ()
    cost_low: float | None = None
    cost_high: float | None = None
    prices: Prices | None = None
    unpriced: tuple[str, ...] = ()
    completion: Tokens | None = None
    n_seen: int = 0


def size_of(grid: Grid, *, prices: Prices | None = None) -> Size:
    """Estimate the size of a plan, from an evenly spread sample if it is very large."""
    n_all, n_taken = grid.n_combinations, min(grid.n_combinations, SAMPLE_TRIALS)
    n_default, n_over, budgets = 0, 0, set[int]()
    prompts, replies = dict[str, Tokens](), Counter[str]()
    for number in range(n_taken):
        trial = grid.trial(number * n_all // n_taken, 0)
        params, model, prompt = trial.request.params, trial.model, trial.prompt_tokens
        max_tokens = int(params.get("max_tokens", DEFAULT_MAX_TOKENS))
        prompts[model] = prompts.get(model, Tokens()) + prompt
        replies[model] += max_tokens * int(params.get("n", 1))
        n_default += "max_tokens" not in params
        if prompt.best + max_tokens > trial.request.context_tokens:
            n_over += 1
            budgets.add(trial.request.context_tokens)
    scale = n_all / max(n_taken, 1) * grid.repeats
    costs = {
        each: _cost_of(each, prompts[each], replies[each], prices) for each in prompts
    }
    known = [cost for cost in costs.values() if cost is not None]
    is_priced = prices is not None and len(known) == len(costs)
    return Size(
        n_trials=len(grid),
        prompt=sum(prompts.values(), Tokens()).times(scale),
        completion_tokens=round(replies.total() * scale),
        n_default=ceil(n_default * scale),
        n_over=ceil(n_over * scale),
        budgets=tuple(sorted(budgets)),
        is_sampled=n_taken < n_all,
        cost_low=sum(low for low, _ in known) * scale if is_priced else None,
        cost_high=sum(high for _, high in known) * scale if is_priced else None,
        prices=prices,
        unpriced=tuple(model for model, cost in costs.items() if cost is None),
    )


def _cost_of(
    model: str, prompt: Tokens, n_reply: int, prices: Prices | None
) -> tuple[float, float] | None:
    """Return the least and the most that requests can cost; None without a price."""
    if prices is None:
        return None
    low = prices.cost(model, prompt_tokens=prompt.low, completion_tokens=0)
    high = prices.cost(model, prompt_tokens=prompt.high, completion_tokens=n_reply)
    return None if low is None or high is None else (low, high)


LEAST_SEEN = 3
"""From so many replies of each model figures are estimated by what was seen."""
_Z = 1.645  # standard deviations: 9 of 10 are within


class Seen(NamedTuple):
    """What one reply took."""

    prompt_tokens: int
    completion_tokens: int
    latency_s: float | None


def size_seen(
    size: Size, n_by_model: Mapping[str, int], seen: Mapping[str, Sequence[Seen]]
) -> Size:
    """Estimate a size again by the replies so far, if there are enough of each model.

    Their totals are known; the others' are estimated from the mean, with an interval
    that is right 9 times in 10.
    """
    n_seen = sum(len(seen.get(model, ())) for model in n_by_model)
    if not n_seen or any(
        len(seen.get(model, ())) < min(LEAST_SEEN, n) for model, n in n_by_model.items()
    ):
        return size
    found = [_totals(m, seen[m], n, size.prices) for m, n in n_by_model.items()]
    prompts, completions, costs = zip(*found, strict=True)
    cost = None if None in costs else sum(costs, Tokens())
    return replace(
        size,
        prompt=sum(prompts, Tokens()),
        completion=sum(completions, Tokens()),
        n_seen=n_seen,
        is_sampled=False,
        cost_low=None if cost is None else cost.mean - cost.under,
        cost_high=None if cost is None else cost.mean + cost.over,
    )


def _totals(
    model: str, seen: Sequence[Seen], n: int, prices: Prices | None
) -> tuple[Tokens, Tokens, Tokens | None]:
    """Return the tokens of a model's prompts and replies, and their cost if known."""
    costs = []
    for prompt, reply, _ in seen if prices else ():
        given = {"prompt_tokens": prompt, "completion_tokens": reply}
        cost = None if prices is None else prices.cost(model, **given)
        costs += [] if cost is None else [cost]
    return (
        total_of([each.prompt_tokens for each in seen], n),
        total_of([each.completion_tokens for each in seen], n),
        total_of(costs, n) if costs else None,
    )


def total_of(seen: Sequence[float], n: int) -> Tokens:
    """Estimate the total of `n` values from some of them, which are part of it."""
    n_left, mean = max(n - len(seen), 0), fmean(seen)
    if not n_left:
        return Tokens(sum(seen))
    spread = stdev(seen) * sqrt(n_left * (n_left + len(seen)) / len(seen))
    width = _t_quantile(len(seen) - 1) * spread
    return Tokens(sum(seen) + mean * n_left, min(width, mean * n_left), width)


def _t_quantile(n_free: int) -> float:
    """Return Student's t for an interval of 9 in 10 (Abramowitz and Stegun 26.7.5)."""
    z = _Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n_free + second / n_free**2 + third / n_free**3


PER_MINUTE_S = MINUTE_S + MARGIN_S
PER_SECOND_S = SECOND_S + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When the last request of a model can be sent, counted from the first.

    `ends_s` is when the last reply comes: the least, the best estimate and the most;
    None before replies were seen.
    """

    model: str
    last_sent_s: float | None  # None if no limit of the model is known
    binds: str  # the limit that determines it, such as "per-minute limit"
    ends_s: tuple[float, float, float] | None = None


LimitFor = Callable[[str], Limit | None]
"""Returns the limit in force for a model: the documented one, or the user's own."""
HeldOf = Callable[[str], Sequence[float]]
"""Returns when the newest requests to a model went; see `Windows.held_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What determines how fast a run goes."""

    held_of: HeldOf = lambda _: ()
    limit_for: LimitFor = limit_of
    limit_of: LimitFor = limit_of  # without the user's own
    in_flight_of: Callable[[str], int] = lambda _: 1  # sent to a model at once
    seen: Mapping[str, Sequence[Seen]] = field(default_factory=dict)


def forecast(
    n_by_model: Mapping[str, int],
    speed: Speed = Speed(),
) -> tuple[Forecast, ...]:
    """Return a forecast for each model, the slowest first."""
    found = []
    for model, n_requests in n_by_model.items():
        limit, sent_s, binds = speed.limit_for(model), None, ""
        if limit is not None:
            sent_s = last_sent_s(n_requests, limit)
            late_s = last_sent_s(n_requests, limit, speed.held_of(model))
            if is_held := late_s > sent_s + PER_SECOND_S:
                sent_s = late_s
            if is_held or n_requests > (limit.per_minute or UNLIMITED):
                binds = "per-minute limit"
            elif n_requests > (limit.per_second or UNLIMITED):
                binds = "per-second limit"
            if binds and limit != speed.limit_of(model):
                binds = f"your {binds}"
        planned = Forecast(model=model, last_sent_s=sent_s, binds=binds)
        found.append(_by_replies(planned, n_requests, speed))
    return tuple(sorted(found, key=lambda each: -_length_s(each)))


def _length_s(forecast: Forecast) -> float:
    return forecast.ends_s[1] if forecast.ends_s else forecast.last_sent_s or 0.0


def _by_replies(planned: Forecast, n_requests: int, speed: Speed) -> Forecast:
    """Add when the last reply comes, by how long replies took so far."""
    model, sent_s = planned.model, planned.last_sent_s
    times_s = [each.latency_s for each in speed.seen.get(model, ())]
    known_s = [each for each in times_s if each is not None]
    if sent_s is None or len(known_s) < LEAST_SEEN:
        return planned
    n_more = len(known_s) * 1_000_000  # so the mean alone is uncertain
    mean = total_of(known_s, n_more).times(1 / n_more)
    n_rounds = (n_requests - 1) // speed.in_flight_of(model)
    low, best, high = (
        max(sent_s, n_rounds * each_s) + each_s
        for each_s in (mean.mean - mean.under, mean.mean, mean.mean + mean.over)
    )
    binds = "" if n_rounds * mean.mean > sent_s else planned.binds
    return replace(planned, binds=binds, ends_s=(low, best, high))


def last_sent_s(n_requests: int, limit: Limit, held_s: Sequence[float] = ()) -> float:
    """Return the seconds from now until the last of so many requests goes.

    The k-th request goes when neither window is full: the one `per_second` before it
    is a second ago, and the one `per_minute` before it a minute. `held_s` are the times
    of requests that the windows hold now, oldest first.
    """
    if n_requests < 1:
        return 0.0
    per_second = limit.per_second or UNLIMITED
    per_minute = limit.per_minute or UNLIMITED
    if held_s:
        times_s = list(held_s)
        # from then on each minute repeats the one before it
        n_more = max(n_requests - 2 * per_minute, 0)
        n_minutes = ceil(n_more / per_minute)
        for _ in range(n_requests - n_minutes * per_minute):
            full_s = [
                times_s[-most] + length_s
                for most, length_s in (
                    (per_second, PER_SECOND_S),
                    (per_minute, PER_MINUTE_S),
                )
                if len(times_s) >= most
            ]
            times_s.append(max(0.0, *full_s, times_s[-1]))
        return times_s[-1] + n_minutes * PER_MINUTE_S
    n_minutes, rest = divmod(n_requests - 1, per_minute)
    in_minutes_s = n_minutes * PER_MINUTE_S + rest // per_second * PER_SECOND_S
    in_seconds_s = (n_requests - 1) // per_second * PER_SECOND_S
    return max(in_minutes_s, in_seconds_s)


Line = tuple[str, str]
"""A label and its text."""

_SHOWN_VALUES = 6
_VALUE_CHARS = 40
_SHOWN_MODELS = 4
_MINUTES_S = 120
_HOURS_S = 7200


def plan_lines(
    grid: Grid,
    *,
    size: Size,
    n_left: Mapping[str, int] | None = None,
    is_answered: bool = False,
    speed: Speed = Speed(),
) -> list[Line]:
    """Return what a plan sends, how large it is, and warnings.

    `n_left` are the requests still to be sent to each model; all if None. `speed` is
    as for `forecast`.
    """
    n_left = grid.n_by_model if n_left is None else n_left
    is_done = not any(n_left.values())
    n_out = grid.n_product - grid.n_combinations
    left = {model: n for model, n in n_left.items() if n}
    times = None if is_answered else duration_lines(forecast(left, speed))
    lines = [
        ("trials", _product(grid)),
        ("rows", _rows(grid.source)),
        *(_values(each) for each in grid.dimensions),
        ("repeats", str(grid.repeats) if grid.repeats > 1 else ""),
        ("where", f"leaves out {n_out} of {grid.n_product}" if n_out else ""),
        *([] if is_done else _outlook(size, n_left, times)),
    ]
    return [line for line in lines if line[1]]


def headline(grid: Grid, counts: Mapping[str, int], *, is_begun: bool) -> str:
    """Return in one line how many requests there are, and how many ended how."""
    n_trials = len(grid)
    requests = f"{n_trials} request{'' if n_trials == 1 else 's'}"
    if not n_trials:
        return "0 requests planned, nothing to send."
    if not is_begun:
        return f"{requests} planned, nothing sent yet."
    words = {
        "ok": "ok",
        "error": "failed",
        "cancelled": "interrupted",
        "not_run": "not run",
    }
    parts = [
        f"{counts.get(mark, 0)} {word}"
        for mark, word in words.items()
        if counts.get(mark) or mark == "ok"
    ]
    return f"{requests}: {', '.join(parts)}."


def duration_lines(forecasts: Sequence[Forecast]) -> list[str]:
    """Return when the last request can be sent, and which limit determines that."""
    lines = []
    slowest = forecasts[0] if forecasts else None
    the = "" if slowest and slowest.binds.startswith("your") else "the "
    if slowest and slowest.ends_s:
        low, best, high = map(duration, slowest.ends_s)
        why = f"{the}{slowest.binds}" if slowest.binds else "how long replies take"
        between = "" if low == high else f" ({low} to {high}, by the replies so far)"
        lines.append(
            f"about {best} until the last reply{between}, because of {why} of "
            f"{slowest.model}"
        )
    elif slowest and slowest.last_sent_s:
        lines.append(
            f"about {duration(slowest.last_sent_s or 0)} until the last request is "
            f"sent, because of {the}{slowest.binds} of {slowest.model}"
        )
    unknown = [each.model for each in forecasts if each.last_sent_s is None]
    if unknown:
        shown = ", ".join(unknown[:_SHOWN_MODELS])
        lines.append(f"unknown for {shown}: no limit is documented")
    return lines


def duration(length_s: float) -> str:
    """Return a length of time in units that people use for it."""
    if length_s < _MINUTES_S:
        return f"{length_s:.0f} s"
    if length_s < _HOURS_S:
        return "{} min {} s".format(*divmod(round(length_s), 60))
    return "{} h {} min".format(*divmod(round(length_s / 60), 60))


def _outlook(
    size: Size, n_left: Mapping[str, int], times: Sequence[str] | None
) -> list[Line]:
    is_answered = times is None
    is_part = sum(n_left.values()) < size.n_trials
    of_all = f", for all {size.n_trials:,} requests" if is_part else ""
    cost = "" if is_answered else _cost(size)
    return [
        ("tokens", _tokens(size) + of_all),
        ("cost", cost + of_all if cost else ""),
        *(("time", line) for line in times or ()),
        ("note", "nothing is sent: the file in SVC_ANSWERS answers" * is_answered),
        *(("note", line) for line in _warnings(size)),
    ]


def _product(grid: Grid) -> str:
    parts = [] if grid.source is None else [f"rows ({len(grid.source)})"]
    parts += [
        f"{' + '.join(each.unlabelled)} ({len(each.points)})"
        for each in grid.dimensions
        if len(each.points) > 1 and not each.is_by_row
    ]
    parts += [f"repeats ({grid.repeats})"] if grid.repeats > 1 else []
    return " x ".join(parts) if len(parts) > 1 else ""


def _rows(source: Source | None) -> str:
    if source is None:
        return ""
    names = ", ".join(source.columns)
    shown = f"{len(source)} ({names})" if names else str(len(source))
    doubled = (f", the second {each} as var_{each}" for each in sorted(source.doubled))
    where = "" if source.files is None else source.files.in_words
    return shown + "".join(doubled) + where


def _tokens(size: Size) -> str:
    if size.completion is not None:
        replies = f"{size.n_seen} repl{'y' if size.n_seen == 1 else 'ies'} so far"
        prompts, answers = _about(size.prompt), _about(size.completion)
        return f"{prompts} in prompts, {answers} in replies, by the {replies}"
    how = "estimated from a sample" if size.is_sampled else "estimated"
    return (
        f"about {size.prompt.best:,} in prompts ({how}: {size.prompt}), "
        f"0 to {size.completion_tokens:,} in replies (by max_tokens)"
    )


def _about(tokens: Tokens) -> str:
    """Return a number, with its interval if it is not exact."""
    if tokens.low == tokens.high:
        return str(tokens)
    return f"about {tokens.best:,} ({tokens})"


def _cost(size: Size) -> str:
    if size.prices is None:
        return ""
    if size.cost_low is None or size.cost_high is None:
        unpriced = ", ".join(size.unpriced[:_SHOWN_MODELS])
        return f"unknown: your price table has no price for {unpriced}"
    table = size.prices
    ends = dict.fromkeys((f"{size.cost_low:,.4g}", f"{size.cost_high:,.4g}"))
    cost = f"{' to '.join(ends)} {table.currency}"
    return f"{cost}, by your prices ({table.source}, {table.as_of.isoformat()})"


def _warnings(size: Size) -> list[str]:
    lines = []
    if size.n_default:
        is_all = size.n_default == size.n_trials
        where = "" if is_all else f" for {size.n_default} of {size.n_trials} requests"
        lines.append(
            f"max_tokens is not set{where}: the service's default of "
            f"{DEFAULT_MAX_TOKENS} applies and cuts longer replies"
        )
    if size.n_over:
        lines.append(
            f"{size.n_over} may not fit: prompt (estimated) and max_tokens together "
            f"exceed the {' or '.join(map(str, size.budgets))} tokens of one request"
        )
    return lines


def _values(dimension: Dimension) -> Line:
    points = dimension.points
    shown = [
        " + ".join(_labelled(name, point) for name in dimension.unlabelled)
        for point in points[:_SHOWN_VALUES]
    ]
    n_more = len(points) - len(shown)
    rest = f" and {n_more} more" if n_more else ""
    names = dimension.unlabelled
    names = ("rows", *names) if dimension.is_by_row else names
    return " + ".join(names), f"{', '.join(shown)}{rest}"


def in_a_line(name: str, value: Any) -> str:  # noqa: ANN401 - of any parameter
    """Return a value in one line, with blanks and line ends visible if need be."""
    if name == TOOLS:
        return tool_names(value) or "none"
    if name == EXTRA and value:
        return ", ".join(f"{key}={each!r}" for key, each in value.items())
    value = list(value) if isinstance(value, tuple) else value
    plain = " ".join(str(value).split())
    is_plain = plain and (name != "stop" or plain == value)
    return plain if is_plain else repr(value)


def _labelled(name: str, point: Mapping[str, Any]) -> str:
    value, label = _value(name, point.get(name)), point.get(LABELS.get(name, ""))
    return value if label is None else f"{_value(LABELS[name], label)} ({value})"


def _value(name: str, value: object) -> str:
    if value is None:
        return "not sent"
    text = shorten(in_a_line(name, value), _VALUE_CHARS)
    fence = "``" if "`" in text else "`"
    pad = " " if fence == "``" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


_SIGNS = re.compile(r"([\\`*_{}\[\]<>#])")  # of Markdown, in a name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """A run in words: the outcome in one line, labelled facts, and what to do next."""

    name: str | None
    head: str
    lines: Sequence[Line] = ()
    footer: str = ""

    @property
    def text(self) -> str:
        """Plain text as wide as frames are printed, with the labels in one column."""
        import pandas as pd  # noqa: PLC0415 - where a run is shown

        title = f"Run {self.name}: " if self.name else "Run: "
        width = max((len(label) for label, _ in self.lines), default=0) + 4
        body = [
            line
            for label, text in self.lines
            for line in wrap(
                text,
                max(pd.get_option("display.width") or 80, width + 40),
                initial_indent=f"  {label}".ljust(width),
                subsequent_indent=" " * width,
                break_on_hyphens=False,
            )
        ]
        parts = [title + self.head, *body, self.footer]
        return to_terminal("\n".join(filter(None, parts)))

    def bundle(self) -> dict[str, str]:
        """Return `text/html` and `text/plain`."""
        name = _SIGNS.sub(r"\\\1", self.name or "")
        title = f"**Run {name}** · " if name else "**Run** · "
        facts = "\n".join(f"- {label}: {text}" for label, text in self.lines)
        final = Final(texts=(f"{title}{self.head}\n\n{facts}",), footer=self.footer)
        return {**final.bundle(), "text/plain": self.text}


SHOWN_REASONS = 5
_REASON_CHARS = 480  # the remedy is at the end of a message
_NUMBER = re.compile(r"\d+")
_LINE_END = re.compile(r"(?<=\w)\n(?=[A-Z])")  # without a full stop


def reasons_of(failures: Iterable[Failure]) -> list[str]:
    """Return why requests failed, the most frequent reason first, with its count."""
    alike: dict[tuple[object, ...], list[Failure]] = {}
    for failure in failures:
        plain = _NUMBER.sub("0", failure.message)
        mark = failure.type, failure.http_status, failure.code, failure.param, plain
        alike.setdefault(mark, []).append(failure)
    by_count = sorted(alike.values(), key=len, reverse=True)
    lines = [_reason(each[0], len(each)) for each in by_count[:SHOWN_REASONS]]
    n_more = len(by_count) - len(lines)
    return [*lines, f"{n_more} more reasons are in replies_df()"] if n_more else lines


def _reason(failure: Failure, n: int) -> str:
    said = _LINE_END.sub(". ", failure.message)
    message = shorten(" ".join(said.split()), _REASON_CHARS)
    status = "" if failure.http_status is None else f" ({failure.http_status})"
    return f"{n} x {failure.type}{status}: {message}"
