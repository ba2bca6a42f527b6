"""A turn as the browser draws it: texts, and HTML that is already safe.

What it is not: it decides nothing and knows no widget. Rules: pure; HTML comes from
`display.markup` alone; what a user typed, what a model called a tool with and what a
tool gave back go as text or escaped.
"""

from typing import Any

from svc_notebook.chat.readings import marks_of
from svc_notebook.chat.turns import Turn, Version
from svc_notebook.display.markup import to_text
from svc_notebook.display.trail import SHOWN_CHARS, Step
from svc_notebook.display.transcript import reply_html

ERROR = "Error:"
_ASKED = {True: "approved · ", False: "denied · "}


def draw_turn(number: int, turn: Turn, *, can: tuple[str, ...]) -> dict[str, Any]:
    """Return a turn for the browser.

    Args:
        number: From 1.
        turn: To draw; its chosen version is shown.
        can: What is allowed on it now.
    """
    version = turn.version
    said = version.choices or (version.replies[-1],)
    return {
        "id": turn.turn_id,
        "number": number,
        "prompt": turn.prompt.content or "",
        "choices": [draw_text(each.content or "") for each in said],
        "picked": version.picked,
        "footer": version.footer,
        "badges": [*version.marks],
        "trail": draw_trail(version),
        "version": turn.chosen + 1,
        "n_versions": len(turn.versions),
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "marks": marks_of(turn),
        "can": list(can),
    }


def draw_text(text: str) -> dict[str, str]:
    """Return a reply's text, rendered and as its source."""
    return {"html": reply_html(text), "text": text}


def draw_trail(version: Version) -> list[dict[str, Any]]:
    """Return the tool calls of an answer, in order, with their results."""
    if version.trail:
        return [draw_step(step) for step in version.trail]
    results = {
        each.tool_call_id: each.content or ""
        for each in version.replies
        if each.role == "tool"
    }
    return [
        draw_call(call.function.name, call.function.arguments, results.get(call.id, ""))
        for each in version.replies
        for call in each.tool_calls
    ]


def draw_call(name: str, arguments: str, result: str | None) -> dict[str, Any]:
    """Return one call of a tool.

    Args:
        name: Of the tool.
        arguments: As the model wrote them.
        result: As sent back to the model; None while it runs.
    """
    shown = "<p>running …</p>" if result is None else _pre("result", result)
    return {
        "name": name,
        "html": _pre("arguments", arguments) + shown,
        "is_error": bool(result and result.startswith(ERROR)),
    }


def draw_step(step: Step) -> dict[str, Any]:
    """Return one call of a tool that was answered, with what only the user sees."""
    html = _pre("arguments", step.arguments) + _pre("result", step.result)
    if step.traceback:
        html += _pre("traceback (the model has not seen it)", step.traceback)
    asked = "" if step.is_approved is None else _ASKED[step.is_approved]
    html += f"<p>{asked}{step.seconds_s:.1f} s</p>"
    return {"name": step.name, "html": html, "is_error": step.error is not None}


def _pre(title: str, text: str) -> str:
    shown = text
    if len(text) > SHOWN_CHARS:
        shown = f"{text[:SHOWN_CHARS]}\n[... of {len(text)} characters]"
    return f"<p>{title}</p><pre>{to_text(shown)}</pre>"
