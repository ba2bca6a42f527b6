"""A conversation in other forms: entries to draw, Markdown, JSON.

What it is not: it makes no HTML (see `display.reply`) and no frame (see
`frame`). Rules: pure; hidden turns are there and marked; what a user typed and what a
model wrote stay as they are.
"""

from typing import Any

import msgspec

from svc_notebook.display.reply import Entry
from svc_notebook.service.message import Message

from .history import History, Turn, Version


def to_entries(history: History) -> list[Entry]:
    """Return what a transcript shows: the chosen versions."""
    system = history.system
    front = [Entry(heading="system", text=system)] if system else []
    turns = enumerate(history.turns, start=1)
    return [*front, *(entry for at, turn in turns for entry in _entries(at, turn))]


def to_markdown(name: str, history: History) -> str:
    """Return the chosen versions as a Markdown document.

    Args:
        name: Of the conversation.
        history: Its turns.
    """
    front = [f"# {name}"]
    if history.system:
        front += ["## system", history.system]
    parts = [*front]
    for entry in to_entries(history)[bool(history.system) :]:
        parts += [f"## {entry.heading}", entry.text]
        if entry.footer:
            parts.append(f"*{entry.footer}*")
    return "\n\n".join(part for part in parts if part) + "\n"


def to_json(name: str, history: History) -> str:
    """Return all turns, versions and choices as JSON text.

    Args:
        name: Of the conversation.
        history: Its turns.
    """
    value = {
        "conversation": name,
        "system": history.system,
        "turns": [_turn(at, turn) for at, turn in enumerate(history.turns, start=1)],
    }
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def marks_of(turn: Turn) -> list[str]:
    """Return what a reader must know of a turn, in words."""
    version = turn.version
    ended = version.marks or (("interrupted",) if version.is_partial else ())
    marks = [
        word
        for word, is_so in (
            ("pinned", turn.is_pinned),
            ("hidden", turn.is_hidden),
            ("stale: an earlier turn has changed", turn.is_stale),
            ("tool results missing", version.is_open),
        )
        if is_so
    ]
    return [*marks, *ended]


def _entries(number: int, turn: Turn) -> tuple[Entry, Entry]:
    version, n_versions = turn.version, len(turn.versions)
    heads = ["assistant"]
    if n_versions > 1:
        heads.append(f"version {turn.chosen + 1} of {n_versions}")
    if version.choices:
        heads.append(f"choice {version.picked + 1} of {len(version.choices)}")
    heads += marks_of(turn)
    reply = "\n\n".join(
        each.content for each in version.replies if each.content and _is_said(each)
    )
    return (
        Entry(heading=f"{number} · user", text=turn.prompt.content or ""),
        Entry(
            heading=" · ".join(heads),
            text=reply,
            is_markdown=True,
            footer=version.footer,
            notes=tuple(call_lines(version)),
        ),
    )


def _is_said(message: Message) -> bool:
    return message.role == "assistant"


def call_lines(version: Version) -> list[str]:
    """Return the tool calls of an answer, a line each: call and result."""
    results = {
        each.tool_call_id: each.content or ""
        for each in version.replies
        if each.role == "tool"
    }
    return [
        f"{call.function.name}({call.function.arguments}) → {results.get(call.id, '')}"
        for each in version.replies
        for call in each.tool_calls
    ]


def _turn(number: int, turn: Turn) -> dict[str, Any]:
    return {
        "number": number,
        "turn_id": turn.turn_id,
        "chosen_version": turn.chosen + 1,
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "versions": [_version(version) for version in turn.versions],
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "exchange_id": version.exchange_id,
        "is_partial": version.is_partial,
        "is_cut": version.is_cut,
        "messages": [version.prompt, *version.replies],
        "choices": [choice.content for choice in version.choices],
        "picked_choice": version.picked + 1 if version.choices else None,
        "footer": version.footer,
    }
