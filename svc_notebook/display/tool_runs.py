"""Tool calls of a reply, above or below it: one line for each, details folded."""

import re
from collections.abc import Sequence
from typing import Protocol

from svc_notebook.service.params import shorten

from .escape import to_terminal, to_text
from .html_styles import FOLDED_TEXT, PLAIN_CODE, details_html, quiet_html

# The part of a line that the next part overwrites, as progress bars do.
_REWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)")
CALL_CHARS = 60  # most of a name, of arguments and of a result on their line
SHOWN_CHARS = 4000  # of each text behind the line
CONSENT = {None: "", True: "approved · ", False: "denied · "}
MAX_OPEN = 6  # calls with a line each; more are folded behind one line


class Step(Protocol):
    """A tool call that was answered, as it is drawn; a `ToolRun` has all of it."""

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
        """What was sent back to the model."""

    @property
    def error(self) -> str | None:
        """Why it has no result, in words; None if it has one."""

    @property
    def traceback(self) -> str | None:
        """Where a tool failed; None if it did not."""

    @property
    def printed(self) -> str:
        """What the tool printed, where that is shown with its call."""

    @property
    def seconds_s(self) -> float:
        """From the call of the function to its end."""

    @property
    def is_approved(self) -> bool | None:
        """Whether the user allowed it; None if the user was not asked."""


def call_line(name: str, arguments: str) -> str:
    """Write a call on one line, cut where it is long."""
    inner = " ".join(arguments.split())
    inner = "" if inner == "{}" else shorten(inner, CALL_CHARS)
    return f"{shorten(name, CALL_CHARS)}({inner})"


def result_line(step: Step) -> str:
    """Write the result of a call on one line, with its seconds."""
    text = shorten(" ".join(step.result.split()), CALL_CHARS) or "(an empty text)"
    seconds = f" · {step.seconds_s:.1f}\N{NO-BREAK SPACE}s" if step.seconds_s else ""
    return f"{CONSENT[step.is_approved]}{text}{seconds}"


def tool_runs_html(steps: Sequence[Step]) -> str:
    """Draw answered calls as `details`; many are folded behind one line together."""
    if not steps:
        return ""
    lines = "".join(map(tool_run_html, steps))
    if len(steps) > MAX_OPEN:
        title = f"{len(steps)} tool calls"
        lines = details_html(title, f'<div style="margin-left:1.2em">{lines}</div>')
    return quiet_html(lines)


def tool_run_html(step: Step) -> str:
    """Draw one call: a line, and folded below it the arguments and the result."""
    body = "".join(
        f'<div>{title}</div><pre style="{FOLDED_TEXT}">{PLAIN_CODE}{html}</code></pre>'
        for title, html in run_parts(step)
    )
    return details_html(_run_line(step), body)


def run_parts(step: Step) -> list[tuple[str, str]]:
    """Return the titles and the escaped, shortened texts of an answered call."""
    texts = {"arguments": step.arguments, "result": step.result}
    if step.printed:
        texts["printed"] = _REWRITTEN.sub("", step.printed)
    if step.traceback:
        texts["traceback (the model has not seen it)"] = step.traceback
    return [(title, shortened_html(text)) for title, text in texts.items()]


def shortened_html(text: str) -> str:
    """Escape a text of which only the beginning is shown."""
    if len(text) > SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}\n[... of {len(text)} characters]"
    return to_text(text)


def tool_runs_text(steps: Sequence[Step]) -> str:
    """Write answered calls for a terminal, one line each; safe to print."""
    return to_terminal("\n".join(map(_run_line, steps)))


def _run_line(step: Step) -> str:
    mark = "\N{MULTIPLICATION X}" if step.error is not None else "\N{RIGHTWARDS ARROW}"
    return f"{call_line(step.name, step.arguments)} {mark} {result_line(step)}"
