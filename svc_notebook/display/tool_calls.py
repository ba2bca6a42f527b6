"""The tool_runs: which tools were called for a reply, folded away below one line each.

What it is not: it runs nothing and knows no notebook; it answers strings. Rules:
what a model or a tool wrote reaches HTML through `to_text` alone, and a terminal
through `to_terminal`; one line says a call, its result and its seconds; the rest is
behind it, cut where it is long, and the cut is stated.
"""

from collections.abc import Sequence
from typing import Protocol

from .markup import to_terminal, to_text

LINE_CHARS = 60
SHOWN_CHARS = 4000
MAX_OPEN = 6
_QUIET = (
    "color:#767676;"
    "color:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#767676));"
    "font-size:.85em;line-height:1.6"
)
_PRE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:.2em 0 .5em 1.2em"
_SUMMARY = "cursor:pointer;overflow-wrap:anywhere"


class Step(Protocol):
    """A tool call that was answered, as it is drawn; a `ToolRun` is one."""

    @property
    def call_id(self) -> str:
        """The id that the model gave the call."""

    @property
    def name(self) -> str:
        """The tool, as the model wrote it."""

    @property
    def arguments(self) -> str:
        """As the model wrote them."""

    @property
    def result(self) -> str:
        """What the model was told."""

    @property
    def error(self) -> str | None:
        """Why there is no result, in words; None if there is one."""

    @property
    def traceback(self) -> str | None:
        """Where a tool failed; None if it did not."""

    @property
    def seconds_s(self) -> float:
        """From the call of the function to its end."""

    @property
    def is_approved(self) -> bool | None:
        """What somebody said who was asked; None if nobody was."""


def call_line(name: str, arguments: str) -> str:
    """Write a call on one line, cut where it is long."""
    inner = " ".join(arguments.split())
    return f"{_short(name)}({_short('' if inner == '{}' else inner)})"


def result_line(step: Step) -> str:
    """Write what came of a call on one line, with its seconds."""
    said = "" if step.is_approved is None else _ASKED[step.is_approved]
    text = _short(" ".join(step.result.split())) or "(an empty text)"
    took = f" · {step.seconds_s:.1f}\N{NO-BREAK SPACE}s" if step.seconds_s else ""
    return f"{said}{text}{took}"


def trail_html(steps: Sequence[Step]) -> str:
    """Draw a tool_runs; many calls are behind one line together.

    Returns:
        HTML of `details`, styles inline, nothing in it that acts; empty for no steps.
    """
    if not steps:
        return ""
    lines = "".join(map(step_html, steps))
    if len(steps) > MAX_OPEN:
        title = f"{len(steps)} tool calls"
        lines = _details(title, f'<div style="margin-left:1.2em">{lines}</div>')
    return f'<div style="{_QUIET}">{lines}</div>'


def step_html(step: Step) -> str:
    """Draw one call: a line, and behind it what was sent and what came."""
    parts = [_pre("arguments", step.arguments), _pre("result", step.result)]
    if step.traceback:
        parts.append(_pre("traceback (the model has not seen it)", step.traceback))
    return _details(_line(step), "".join(parts))


def trail_text(steps: Sequence[Step]) -> str:
    """Write a tool_runs for a terminal, a line each; safe to print."""
    return to_terminal("\n".join(map(_line, steps)))


_ASKED = {True: "approved · ", False: "denied · "}


def _line(step: Step) -> str:
    mark = "\N{MULTIPLICATION X}" if step.error is not None else "\N{RIGHTWARDS ARROW}"
    return f"{call_line(step.name, step.arguments)} {mark} {result_line(step)}"


def _details(title: str, body: str) -> str:
    return (
        f'<details><summary style="{_SUMMARY}">{to_text(title)}</summary>'
        f"{body}</details>"
    )


def _pre(title: str, text: str) -> str:
    shown = text
    if len(text) > SHOWN_CHARS:
        shown = f"{text[:SHOWN_CHARS]}\n[... of {len(text)} characters]"
    return f'<div>{to_text(title)}</div><pre style="{_PRE}">{to_text(shown)}</pre>'


def _short(text: str) -> str:
    return text if len(text) <= LINE_CHARS else f"{text[: LINE_CHARS - 3]}..."
