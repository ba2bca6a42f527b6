"""A plan and its run in words, before and after it is run.

Rules: pure; numbers that are estimates are called so; what the service's default
will do is said before anything is spent; no time of day and no id is in it, so that
the same plan reads the same everywhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.params import DEFAULT_MAX_TOKENS

from .dimension import TOOLS, Dimension, tool_names
from .forecast import Forecast, forecast
from .grid import Grid
from .order import by_model
from .size import Size

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
        _cells(grid),
        *([("rows", _rows(grid))] if grid.source is not None else []),
        *(_values(each) for each in grid.dimensions),
        *([("repeats", str(grid.repeats))] if grid.repeats > 1 else []),
        *_left_out(grid),
        *([] if is_through else _outlook(size, n_left)),
    ]
    return [line for line in lines if line[1]]


def _outlook(size: Size, n_left: Mapping[str, int]) -> list[Line]:
    left = {model: n for model, n in n_left.items() if n}
    is_part = sum(left.values()) < size.n_cells
    of_all = f", for all {size.n_cells:,} requests" if is_part else ""
    return [
        ("tokens", _tokens(size) + of_all),
        *(("cost", line + of_all) for line in _cost(size)),
        *(("time", line) for line in pace(forecast(left))),
        *(("note", line) for line in _warnings(size)),
    ]


def headline(grid: Grid, counts: Mapping[str, int], *, is_begun: bool) -> str:
    """Return one line: how many requests, and what became of them."""
    n_cells = len(grid)
    requests = f"{n_cells} request{'' if n_cells == 1 else 's'}"
    if not is_begun:
        return f"{requests} planned, nothing sent yet."
    known = Counter(counts)
    known["not_run"] = n_cells - sum(
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


def _cells(grid: Grid) -> Line:
    n_rows = [] if grid.source is None else [f"rows ({len(grid.source)})"]
    factors = [
        f"{' + '.join(each.names)} ({len(each.points)})"
        for each in grid.dimensions
        if len(each.points) > 1 and not each.is_by_row
    ]
    repeats = [f"repeats ({grid.repeats})"] if grid.repeats > 1 else []
    parts = [*n_rows, *factors, *repeats]
    return "cells", " x ".join(parts) if len(parts) > 1 else ""


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
        is_all = size.n_default == size.n_cells
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
