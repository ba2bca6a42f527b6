"""A plan and its run in words, before and after it is run.

Rules: pure; numbers that are estimates are called so; what the service's default
will do is said before anything is spent; no time of day and no id is in it, so that
the same plan reads the same everywhere.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from textwrap import wrap
from typing import Any

from svc_notebook.display.markup import to_terminal
from svc_notebook.display.progress import Part
from svc_notebook.display.reply import Final
from svc_notebook.exchange import Failure
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.params import DEFAULT_MAX_TOKENS

from .dimensions import TOOLS, Dimension, tool_names
from .forecast import Forecast, Size, forecast
from .grid import Grid
from .scheduler import ModelQueue, by_model

Line = tuple[str, str]
"""A fact of a plan: its label and its text."""

_SHOWN_VALUES = 6
_SHOWN_CHARS = 40
_SHOWN_MODELS = 4
_MINUTE_S = 60
_MINUTES_S = 120
_HOURS_S = 7200


def plan_lines(
    grid: Grid, *, size: Size, n_left: Mapping[str, int] | None = None
) -> list[Line]:
    """Return what a plan asks, and what it will take: a line a fact, with its label.

    Args:
        grid: What was planned.
        size: Of the plan.
        n_left: How many requests of each model are still to be sent; all if None.
            Of a plan that is through, what it will take is no longer said.
    """
    n_left = n_by_model(grid) if n_left is None else n_left
    is_through = len(grid) > 0 and not any(n_left.values())
    lines = [
        _trials(grid),
        *([("rows", _rows(grid))] if grid.source is not None else []),
        *(_values(each) for each in grid.dimensions),
        *([("repeats", str(grid.repeats))] if grid.repeats > 1 else []),
        *_left_out(grid),
        *([] if is_through else _outlook(size, n_left)),
    ]
    return [line for line in lines if line[1]]


def _outlook(size: Size, n_left: Mapping[str, int]) -> list[Line]:
    left = {model: n for model, n in n_left.items() if n}
    is_part = sum(left.values()) < size.n_trials
    of_all = f", for all {size.n_trials:,} requests" if is_part else ""
    return [
        ("tokens", _tokens(size) + of_all),
        *(("cost", line + of_all) for line in _cost(size)),
        *(("time", line) for line in pace(forecast(left))),
        *(("note", line) for line in _warnings(size)),
    ]


def headline(grid: Grid, counts: Mapping[str, int], *, is_begun: bool) -> str:
    """Return one line: how many requests, and what became of them."""
    n_trials = len(grid)
    requests = f"{n_trials} request{'' if n_trials == 1 else 's'}"
    if not is_begun:
        return f"{requests} planned, nothing sent yet."
    known = Counter(counts)
    known["not_run"] = n_trials - sum(
        known[mark] for mark in ("ok", "error", "cancelled")
    )
    parts = [
        f"{known[mark]} {word}"
        for mark, word in _MARK_WORDS.items()
        if known[mark] or mark == "ok"
    ]
    return f"{requests}: {', '.join(parts)}."


_MARK_WORDS = {
    "ok": "ok",
    "error": "failed",
    "cancelled": "interrupted",
    "not_run": "not run",
}


def n_by_model(grid: Grid) -> dict[str, int]:
    """Return how many requests each model gets."""
    return {
        model: len(combinations) * grid.repeats
        for model, combinations in by_model(grid).items()
    }


def pace(forecasts: Sequence[Forecast]) -> list[str]:
    """Say when the last request can be sent, and what decides that."""
    known = [each for each in forecasts if each.last_sent_s is not None]
    lines = []
    if known and (known[0].last_sent_s or 0.0) > 0:
        slowest = known[0]
        lines.append(
            f"the last request can be sent {duration(slowest.last_sent_s or 0)} after "
            f"the first, by the documented limits; the {slowest.binds} of "
            f"{slowest.model} decides"
        )
    unknown = [each.model for each in forecasts if each.last_sent_s is None]
    if unknown:
        shown = ", ".join(unknown[:_SHOWN_MODELS])
        lines.append(f"no limit is documented for {shown}, so its pace is not known")
    return lines


def duration(length_s: float) -> str:
    """Return a length of time for people."""
    if length_s < _MINUTES_S:
        return f"{length_s:.0f} s"
    if length_s < _HOURS_S:
        minutes, rest_s = divmod(round(length_s), _MINUTE_S)
        return f"{minutes} min {rest_s} s"
    hours, minutes = divmod(round(length_s / _MINUTE_S), _MINUTE_S)
    return f"{hours} h {minutes} min"


def _trials(grid: Grid) -> Line:
    n_rows = [] if grid.source is None else [f"rows ({len(grid.source)})"]
    factors = [
        f"{' + '.join(each.names)} ({len(each.points)})"
        for each in grid.dimensions
        if len(each.points) > 1 and not each.is_by_row
    ]
    repeats = [f"repeats ({grid.repeats})"] if grid.repeats > 1 else []
    parts = [*n_rows, *factors, *repeats]
    return "trials", " x ".join(parts) if len(parts) > 1 else ""


def _rows(grid: Grid) -> str:
    if grid.source is None:
        return ""
    names = ", ".join(grid.source.columns)
    return f"{len(grid.source)} ({names})" if names else str(len(grid.source))


def _left_out(grid: Grid) -> list[Line]:
    n_out = grid.n_product - grid.n_combinations
    return [("where", f"leaves out {n_out} of {grid.n_product}")] if n_out else []


def _tokens(size: Size) -> str:
    how = "estimated from a sample" if size.is_sampled else "estimated"
    return (
        f"{size.prompt_tokens_low:,} to {size.prompt_tokens:,} in prompts ({how}) and "
        f"0 to {size.completion_tokens:,} in replies, by max_tokens"
    )


def _cost(size: Size) -> list[str]:
    if size.prices is None:
        return []
    if size.cost_low is None or size.cost_high is None:
        unpriced = ", ".join(size.unpriced[:_SHOWN_MODELS])
        return [f"not known: your price table has no price for {unpriced}"]
    table = size.prices
    interval = f"{size.cost_low:,.4g} to {size.cost_high:,.4g} {table.currency}"
    return [f"{interval}, by your prices ({table.source}, {table.as_of.isoformat()})"]


def _warnings(size: Size) -> list[str]:
    lines = []
    if size.n_default:
        is_all = size.n_default == size.n_trials
        whose = "" if is_all else f" for {size.n_default} of them"
        lines.append(
            f"max_tokens is not set{whose}: the service's default of "
            f"{DEFAULT_MAX_TOKENS} will apply and cut longer replies"
        )
    if size.n_over:
        lines.append(
            f"{size.n_over} may not fit: prompt (estimated) and max_tokens together "
            f"exceed the {BUDGET_TOKENS} tokens of one request"
        )
    return lines


def _values(dimension: Dimension) -> Line:
    points = dimension.points
    shown = [_point(dimension, point) for point in points[:_SHOWN_VALUES]]
    n_more = len(points) - len(shown)
    rest = f" and {n_more} more" if n_more else ""
    names = ("rows", *dimension.names) if dimension.is_by_row else dimension.names
    return " + ".join(names), f"{', '.join(shown)}{rest}"


def _point(dimension: Dimension, point: Mapping[str, Any]) -> str:
    return " + ".join(_short(name, point.get(name)) for name in dimension.names)


def in_a_line(name: str, value: Any) -> str:  # noqa: ANN401 - of any parameter
    """Return a value in one line; blanks and line ends are seen where they matter.

    Args:
        name: Of the parameter.
        value: As sent; not None.
    """
    if name == TOOLS:
        return tool_names(value) or "none"
    value = list(value) if isinstance(value, tuple) else value
    plain = " ".join(str(value).split())
    is_plain = plain and (name != "stop" or plain == value)
    return plain if is_plain else repr(value)


def _short(name: str, value: object) -> str:
    if value is None:
        return "not sent"
    text = in_a_line(name, value)
    text = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
    fence = "``" if "`" in text else "`"
    pad = " " if fence == "``" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


_LINE_CHARS = 88
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#])")  # of Markdown, in a name
_LEAST_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A run in words.

    Attributes:
        name: Of the run, if it has one.
        head: Where it stands, in one line.
        lines: Facts, each with its label.
        footer: What can be done next.
    """

    name: str | None
    head: str
    lines: Sequence[Line] = ()
    footer: str = ""

    @property
    def text(self) -> str:
        """Plain text, labels in a column of their own."""
        title = f"Run {self.name}: " if self.name else "Run: "
        width = max((len(label) for label, _ in self.lines), default=0) + 2
        body = [
            line for label, text in self.lines for line in _wrapped(label, text, width)
        ]
        parts = [title + self.head, *body, *([self.footer] if self.footer else [])]
        return to_terminal("\n".join(parts))

    def bundle(self) -> dict[str, str]:
        """Draw it: `text/html` and `text/plain`."""
        name = _SIGNS.sub(r"\\\1", self.name or "")
        title = f"**Run {name}** · " if name else "**Run** · "
        facts = "\n".join(f"- {label}: {text}" for label, text in self.lines)
        final = Final(texts=(f"{title}{self.head}\n\n{facts}",), footer=self.footer)
        return {**final.bundle(), "text/plain": self.text}


def tell(  # noqa: PLR0913 - one part each
    grid: Grid,
    counts: Mapping[str, int],
    *,
    name: str | None,
    size: Size,
    is_begun: bool,
    n_left: Mapping[str, int],
    reasons: Sequence[str] = (),
    is_running: bool = False,
    steps: Sequence[str] = (),
) -> Told:
    """Tell a run.

    Args:
        grid: What was planned.
        counts: How many trials of each mark there are.
        name: Of the run.
        size: Of the plan.
        is_begun: Whether anything was asked yet.
        n_left: How many requests of each model are missing.
        reasons: Why requests failed.
        is_running: Whether it is being asked, so that only its outlook is told.
        steps: What can be done next.
    """
    failed = [("failed", reason) for reason in reasons]
    lines = plan_lines(grid, size=size, n_left=n_left)
    return Told(
        name=name,
        head=headline(grid, counts, is_begun=is_begun),
        lines=[
            *failed,
            *(line for line in lines if line[0] == "time" or not is_running),
        ],
        footer=" · ".join(steps),
    )


def _wrapped(label: str, text: str, width: int) -> list[str]:
    n_chars = max(_LINE_CHARS - width, _LEAST_CHARS)
    first, *rest = wrap(text, n_chars, break_on_hyphens=False) or [""]
    return [
        f"  {label:<{width}}{first}",
        *(f"  {'':<{width}}{line}" for line in rest),
    ]


WAITS_S = 1.5  # a shorter wait is the usual gap between two requests


def parts(
    queues: Iterable[ModelQueue],
    *,
    now_s: float,
    now_at: datetime,
    is_paused: bool = False,
    is_stopped: bool = False,
) -> tuple[Part, ...]:
    """Return a part a model.

    Args:
        queues: Of the run.
        now_s: What the clock of the run shows.
        now_at: The wall clock, in the zone of whoever reads.
        is_paused: Whether the run was paused.
        is_stopped: Whether nothing more will be sent.
    """
    state = "stopped" if is_stopped else "paused" if is_paused else ""
    return tuple(
        Part(
            name=queue.model,
            n_done=queue.n_ok + queue.n_failed,
            n_total=queue.n_trials,
            note=_note(queue, now_s=now_s, now_at=now_at, state=state),
            is_bad=bool(queue.n_failed or queue.given_up),
        )
        for queue in queues
    )


def _note(queue: ModelQueue, *, now_s: float, now_at: datetime, state: str) -> str:
    words = [f"{queue.n_tokens:,} tokens"]
    if queue.n_failed:
        words.insert(0, f"{queue.n_failed} failed")
    if queue.given_up:
        words.append(f"given up: {type(queue.given_up).__name__}")
    elif queue.n_ok + queue.n_failed < queue.n_trials:
        words += [state] if state else _queue_outlook(queue, now_s=now_s, now_at=now_at)
    return " · ".join(words)


def _queue_outlook(queue: ModelQueue, *, now_s: float, now_at: datetime) -> list[str]:
    words = []
    due = queue.waits_for
    if due.wait_s > WAITS_S:
        words.append(f"waits {due.wait_s:.0f} s: {due.reason}")
    left_s = queue.ends_after_s(now_s)
    if left_s is not None:
        ends_at = now_at + timedelta(seconds=left_s)
        words.append(f"ends about {ends_at:%H:%M:%S}")
    return words


SHOWN = 5
_REASON_CHARS = 480  # the way out stands at the end
_NUMBER = re.compile(r"\d+")


def reasons_of(failures: Iterable[Failure]) -> list[str]:
    """Return the reasons, the most frequent first; beyond some they are counted."""
    counts: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], Failure] = {}
    for failure in failures:
        plain = _NUMBER.sub("0", failure.message)
        mark = failure.type, failure.http_status, failure.code, failure.param, plain
        counts[mark] += 1
        first.setdefault(mark, failure)
    lines = [_line(first[mark], n) for mark, n in counts.most_common(SHOWN)]
    n_more = len(counts) - len(lines)
    return [*lines, f"{n_more} more reasons are in replies_df()"] if n_more else lines


def _line(failure: Failure, n: int) -> str:
    message = " ".join(failure.message.split())
    if len(message) > _REASON_CHARS:
        message = message[: _REASON_CHARS - 3] + "..."
    status = "" if failure.http_status is None else f" ({failure.http_status})"
    return f"{n} x {failure.type}{status}: {message}"
