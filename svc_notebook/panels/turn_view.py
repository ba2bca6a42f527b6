"""A turn as the browser draws it: prompt, replies, tool calls, footer and badges."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from svc_notebook.conversations.attachments import Item
from svc_notebook.conversations.history import Turn, Version
from svc_notebook.conversations.picks import ReplyColumn, decision, to_columns
from svc_notebook.display.footer import titled_reasonings
from svc_notebook.display.markdown import reply_html
from svc_notebook.display.tool_runs import (
    CALL_CHARS,
    CONSENT,
    Step,
    call_line,
    result_line,
    run_parts,
    shortened_html,
)
from svc_notebook.service.params import shorten
from svc_notebook.tools.consent import to_arguments

COMPARED = "Replies compared"  # in the place of the model


def draw_turn(number: int, turn: Turn, *, can: tuple[str, ...]) -> dict[str, Any]:
    """Return a turn for the browser; `can` are the actions on it in an idle panel."""
    version = turn.version
    texts = [choice.content or "" for choice in version.choices] or [version.text]
    model, _, footer = version.footer.partition(" · ")
    compared: dict[str, Any] = {}
    if turn.comparison:
        compared, texts = _draw_compared(turn)
    places = turn.places
    return {
        "id": turn.turn_id,
        "number": number,
        "prompt": version.typed,
        "attached": list(map(draw_item, version.items)),
        "choices": [{"html": reply_html(text), "text": text} for text in texts],
        "model": model,
        "picked": version.picked,
        "ended": _ended(version),
        "footer": footer,
        "badges": [*version.marks],
        "tool_runs": [*_draw_calls(version), *_draw_reasonings(turn)],
        "columns": [],
        "version": places.index(turn.chosen) + 1,
        "n_versions": len(places),
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "can": list(can),
    } | compared


def _draw_compared(turn: Turn) -> tuple[dict[str, Any], list[str]]:
    """Return what differs in a turn whose replies are compared, and their texts."""
    columns = to_columns(turn)
    fields = {
        "columns": [draw_column(column) for column in columns],
        "model": COMPARED,
        "footer": decision(turn),
        "badges": [],
    }
    return fields, [column.text for column in columns]


def draw_item(item: Item) -> dict[str, Any]:
    """Return what is attached to a prompt for the browser."""
    html = f"<pre>{shortened_html(item.text)}</pre>"
    size = {"kind": item.kind, "n_tokens": item.n_tokens}
    return {"name": item.name, **size, "html": html}


def draw_column(column: ReplyColumn) -> dict[str, Any]:
    """Return a column for the browser, without its text."""
    return {key: value for key, value in asdict(column).items() if key != "text"}


def _ended(version: Version) -> str:
    if version.is_cut:
        return f"Cut at {version.limit}" if version.limit else "Cut"
    return "Interrupted"


def _draw_calls(version: Version) -> list[dict[str, Any]]:
    if version.tool_runs:
        return [draw_run(run) for run in version.tool_runs]
    return [
        draw_call(call.function.name, call.function.arguments, result)
        for call, result in version.calls
    ]


def _draw_reasonings(turn: Turn) -> Iterator[dict[str, Any]]:
    if turn.comparison:  # it is only one of the replies that are drawn
        return
    for title, text in titled_reasonings(turn.version.reasonings):
        html = f"<pre>{shortened_html(text)}</pre>"
        yield {"name": "reasoning", "line": title, "html": html, "is_error": False}


def draw_call(name: str, arguments: str, result: str | None) -> dict[str, Any]:
    """Return a tool call for the browser; its result is None while the tool runs."""
    shown = [("arguments", shortened_html(arguments))]
    shown += [] if result is None else [("result", shortened_html(result))]
    html = _parts(shown) + ("<p>running …</p>" if result is None else "")
    is_error = bool(result and result.startswith("Error:"))
    end = "running …" if result is None else shorten(result, CALL_CHARS)
    line = f"{_call_line(name, arguments)} → {end}"
    return {"name": name, "line": line, "html": html, "is_error": is_error}


def draw_run(run: Step) -> dict[str, Any]:
    """Return a tool call that was run, with its traceback, consent and time."""
    took = f"<p>{CONSENT[run.is_approved]}{run.seconds_s:.1f} s</p>"
    html = _parts(run_parts(run)) + took
    is_error = run.error is not None
    line = f"{_call_line(run.name, run.arguments)} → {result_line(run)}"
    return {"name": run.name, "line": line, "html": html, "is_error": is_error}


def _call_line(name: str, arguments: str) -> str:
    values = to_arguments(arguments)
    if values is None:  # not the JSON of an object: shown as the model wrote it
        return call_line(name, arguments)
    pairs = (
        f"{key}={json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in values.items()
    )
    return f"{shorten(name, CALL_CHARS)}({shorten(', '.join(pairs), CALL_CHARS)})"


def _parts(parts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<p>{title}</p><pre>{html}</pre>" for title, html in parts)
