"""Show the tool calls of a reply: a line for each call, with its details folded."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from svc_notebook.service.params import shorten
from svc_notebook.service.written_float import WrittenFloat

from .escape import to_terminal, to_text
from .html_styles import FOLDED_TEXT, PLAIN_CODE, details_html, quiet_html

# The part of a line that the next part overwrites, as progress bars do.
_REWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)")
CALL_CHARS = 60  # for the name, the arguments and the result in a line
_WHOLE_CHARS = 24  # of a value that is never shortened, however long the line is
_MAX_CHARS = 400  # of all arguments in a line: of a call that has dozens of them
SHOWN_CHARS = 4000  # of each folded text
_CHANGES_CHARS = 160  # of all that the user changed in a call
_VALUE_CHARS = 30  # of a value that the user changed
CHANGED_NOTE = "(The user changed the arguments to {arguments}.)\n"
"""The start of a result, for the model, if the user changed the arguments."""
_CHANGED_START, _, _CHANGED_END = CHANGED_NOTE.partition("{arguments}")
NOT_ANSWERED = "not answered"
"""Instead of the result of a call that has none, and will have none."""
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
    def arguments(self) -> Mapping[str, Any] | None:
        """The arguments that the tool ran with; None if it did not run."""

    @property
    def asked_arguments(self) -> str:
        """The arguments that the model asked for, as it wrote them."""

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


def to_arguments(text: str) -> dict[str, Any] | None:
    """Read arguments that a model or a user has written; None if no JSON object."""
    try:
        arguments = json.loads(text, parse_float=WrittenFloat)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def arguments_line(arguments: Mapping[str, Any] | str) -> str:
    """Return arguments as in a call; a text that is not JSON is not changed."""
    values = to_arguments(arguments) if isinstance(arguments, str) else arguments
    if values is None:
        return " ".join(str(arguments).split())
    return ", ".join(f"{name}={_value_text(value)}" for name, value in values.items())


def call_line(
    name: str, arguments: Mapping[str, Any] | str, n_chars: int = CALL_CHARS
) -> str:
    """Return a call as one line, such as `pay(baht=100)`.

    Long values are shortened, each at its end, so that the last ones are seen too.
    """
    return f"{shorten(name, CALL_CHARS)}({_short_arguments(arguments, n_chars)})"


def _short_arguments(arguments: Mapping[str, Any] | str, n_chars: int) -> str:
    line = arguments_line(arguments)
    if len(line) <= n_chars:
        return line
    values = to_arguments(arguments) if isinstance(arguments, str) else arguments
    if values is None:
        return shorten(line, n_chars)
    texts = {name: _value_text(value) for name, value in values.items()}
    for value_chars in range(n_chars, _WHOLE_CHARS - 1, -1):
        line = ", ".join(
            f"{name}={_shorten_value(text, value_chars)}"
            for name, text in texts.items()
        )
        if len(line) <= n_chars:
            break
    return shorten(line, _MAX_CHARS)


def _shorten_value(text: str, n_chars: int) -> str:
    """Shorten a value; its last character, such as a quote, shows where it ends."""
    return text if len(text) <= n_chars else f"{text[: n_chars - 4]}...{text[-1]}"


def run_arguments(step: Step) -> Mapping[str, Any] | str:
    """Return the arguments that the tool ran with, or was to be run with."""
    return step.asked_arguments if step.arguments is None else step.arguments


def consent_line(step: Step) -> str:
    """Return the user's decision about a call and what they changed, or ""."""
    if step.is_approved is None:
        return ""
    if not step.is_approved:
        return "denied · "
    changes = shorten(", ".join(_changes(step)), _CHANGES_CHARS)
    return f"approved, you {changes} · " if changes else "approved · "


def _changes(step: Step) -> list[str]:
    """Return what the user did to each argument that they changed."""
    asked, ran = to_arguments(step.asked_arguments), step.arguments
    if asked is None or ran is None:
        return []
    removed = [f"removed {name}" for name in asked if name not in ran]
    added = [f"added {name}={_value(ran[name])}" for name in ran if name not in asked]
    changed = [
        f"changed {name} from {_value(before)} to {_value(ran[name])}"
        for name, before in asked.items()
        if name in ran and not _is_same(before, ran[name])
    ]
    return [*changed, *added, *removed]


def _is_same(asked: object, ran: object) -> bool:
    """Compare arguments; a number for a Decimal was run as its text."""
    if isinstance(asked, dict) and isinstance(ran, dict):
        return asked.keys() == ran.keys() and all(
            _is_same(value, ran[name]) for name, value in asked.items()
        )
    if isinstance(asked, list) and isinstance(ran, list):
        return len(asked) == len(ran) and all(map(_is_same, asked, ran))
    return asked == ran or (isinstance(asked, WrittenFloat) and asked.text == ran)


def _value(value: object) -> str:
    return shorten(" ".join(_value_text(value).split()), _VALUE_CHARS)


def _value_text(value: object) -> str:
    return value.text if isinstance(value, WrittenFloat) else _to_json(value)


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def own_result(step: Step) -> str:
    """Return the result without the note to the model about changed arguments."""
    if _changes(step) and step.result.startswith(_CHANGED_START):
        return step.result.partition(_CHANGED_END)[2]
    return step.result


def result_line(step: Step) -> str:
    """Return the result of a call as one line, with its seconds."""
    result = shorten(" ".join(own_result(step).split()), CALL_CHARS)
    seconds = f" · {step.seconds_s:.1f}\N{NO-BREAK SPACE}s" if step.seconds_s else ""
    return f"{consent_line(step)}{result or '(an empty text)'}{seconds}"


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
    texts = {"arguments": step.asked_arguments, "result": step.result}
    if step.arguments is not None and _changes(step):
        texts = {
            "arguments": _to_json(step.arguments),
            "arguments that the model asked for": step.asked_arguments,
            "result": step.result,
        }
    if step.printed:
        texts["printed"] = _REWRITTEN.sub("", step.printed)
    if step.traceback:
        texts["traceback (the model has not seen it)"] = step.traceback
    return [(title, shortened_html(text)) for title, text in texts.items()]


def shortened_html(text: str) -> str:
    """Escape a text for HTML; of a long one, only the beginning."""
    if len(text) > SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}\n[... of {len(text):,} characters]"
    return to_text(text)


def tool_runs_text(steps: Sequence[Step]) -> str:
    """Return answered calls as text that is safe to print, a line for each."""
    return to_terminal("\n".join(map(_run_line, steps)))


def _run_line(step: Step) -> str:
    mark = "\N{MULTIPLICATION X}" if step.error is not None else "\N{RIGHTWARDS ARROW}"
    return f"{call_line(step.name, run_arguments(step))} {mark} {result_line(step)}"
