"""Show the tool calls of a reply: a line for each call, with its details folded."""

import re
from collections.abc import Sequence
from typing import Protocol

from svc_notebook.service.params import shorten

from .escape import to_terminal, to_text
from .html_styles import FOLDED_TEXT, PLAIN_CODE, details_html, quiet_html

# The part of a line that the next part overwrites, as progress bars do.
_REWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)")
CALL_CHARS = 60  # at most, for the name, the arguments and the result in a line
SHOWN_CHARS = 4000  # of each folded text
CONSENT = {None: "", True: "approved · ", False: "denied · "}
MAX_OPEN = 6  # calls with a line each; more are folded together below one line


class Step(Protocol):
    """The parts of a `ToolRun` that are shown: a tool call that was answered."""

    @property
    def call_id(self) -> str:
        """The id that the model gave the call."""

    @property
    def name(self) -> str:
        """The tool, as the model wrote it."""

    @property
    def arguments(self) -> str:
        """The arguments, as the model wrote them."""

    @property
    def result(self) -> str:
        """The text that was sent back to the model."""

    @property
    def error(self) -> str | None:
        """The reason why there is no result; None if there is one."""

    @property
    def traceback(self) -> str | None:
        """The traceback if the tool failed; None if it did not."""

    @property
    def printed(self) -> str:
        """The output that the tool printed, if it is shown with the call."""

    @property
    def seconds_s(self) -> float:
        """The time from the call of the function to its end."""

    @property
    def is_approved(self) -> bool | None:
        """Whether the user allowed it; None if the user was not asked."""


def call_line(name: str, arguments: str) -> str:
    """Return a call as one line; a long one is cut."""
    inner = " ".join(arguments.split())
    inner = "" if inner == "{}" else shorten(inner, CALL_CHARS)
    return f"{shorten(name, CALL_CHARS)}({inner})"


def result_line(step: Step) -> str:
    """Return the result of a call as one line, with its seconds."""
    text = shorten(" ".join(step.result.split()), CALL_CHARS) or "(an empty text)"
    seconds = f" · {step.seconds_s:.1f}\N{NO-BREAK SPACE}s" if step.seconds_s else ""
    return f"{CONSENT[step.is_approved]}{text}{seconds}"


def tool_runs_html(steps: Sequence[Step]) -> str:
    """Return answered calls as HTML; many are folded together below one line."""
    if not steps:
        return ""
    lines = "".join(map(tool_run_html, steps))
    if len(steps) > MAX_OPEN:
        title = f"{len(steps)} tool calls"
        lines = details_html(title, f'<div style="margin-left:1.2em">{lines}</div>')
    return quiet_html(lines)


def tool_run_html(step: Step) -> str:
    """Return one call as a line, with the arguments and the result folded below it."""
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
    """Escape a text for HTML; of a long one, only the beginning."""
    if len(text) > SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}\n[... of {len(text)} characters]"
    return to_text(text)


def tool_runs_text(steps: Sequence[Step]) -> str:
    """Return answered calls as text that is safe to print, a line for each."""
    return to_terminal("\n".join(map(_run_line, steps)))


def _run_line(step: Step) -> str:
    mark = "\N{MULTIPLICATION X}" if step.error is not None else "\N{RIGHTWARDS ARROW}"
    return f"{call_line(step.name, step.arguments)} {mark} {result_line(step)}"
