"""A conversation in other forms: entries to draw, Markdown, JSON.

What it is not: it makes no HTML (see `display.transcript`) and no frame (see
`frame`). Rules: pure; hidden turns are there and marked; what a user typed and what a
model wrote stay as they are.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pandas as pd

from svc_notebook.display.transcript import Entry
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.columns import Column
from svc_notebook.ledger.frames import to_frame
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


class Row(NamedTuple):
    """A message in its place.

    Attributes:
        turn_number: From 1; None for the system message.
        turn, version: Where it stands; None for the system message.
        version_number: From 1.
        choice_index: From 0, for the reply.
        is_chosen: Whether it feeds later turns.
        message: What was said.
    """

    message: Message
    turn_number: int | None = None
    turn: Turn | None = None
    version: Version | None = None
    version_number: int | None = None
    choice_index: int | None = None
    is_chosen: bool = True


MESSAGES: tuple[Column[Row], ...] = (
    Column(
        name="turn",
        dtype="Int64",
        read=lambda row: row.turn_number,
        doc="number of the turn, from 1; missing for the system message",
    ),
    Column(
        name="version",
        dtype="Int64",
        read=lambda row: row.version_number,
        doc="number of the version, from 1",
    ),
    Column(
        name="choice_index",
        dtype="Int64",
        read=lambda row: row.choice_index,
        doc="of the reply, from 0",
    ),
    Column(
        name="is_chosen",
        dtype="boolean",
        read=lambda row: row.is_chosen,
        doc="whether version and choice feed later turns",
    ),
    Column(name="role", dtype="string", read=lambda row: row.message.role, doc="whose"),
    Column(
        name="text",
        dtype="string",
        read=lambda row: row.message.content,
        doc="what was said",
    ),
    Column(
        name="tool_calls",
        dtype="string",
        read=lambda row: _calls(row.message),
        doc="JSON text of the calls; missing where there are none",
    ),
    Column(
        name="tool_call_id",
        dtype="string",
        read=lambda row: row.message.tool_call_id,
        doc="the call that a tool message answers",
    ),
    Column(
        name="is_partial",
        dtype="boolean",
        read=lambda row: row.version.is_partial if row.version else None,
        doc="whether the answer was interrupted or broke off",
    ),
    Column(
        name="is_cut",
        dtype="boolean",
        read=lambda row: row.version.is_cut if row.version else None,
        doc="whether the answer ended for want of tokens",
    ),
    Column(
        name="is_pinned",
        dtype="boolean",
        read=lambda row: row.turn.is_pinned if row.turn else None,
        doc="whether the turn is always sent",
    ),
    Column(
        name="is_hidden",
        dtype="boolean",
        read=lambda row: row.turn.is_hidden if row.turn else None,
        doc="whether the turn is never sent",
    ),
    Column(
        name="is_stale",
        dtype="boolean",
        read=lambda row: row.turn.is_stale if row.turn else None,
        doc="whether an earlier turn has changed since",
    ),
    Column(
        name="exchange_id",
        dtype="string",
        read=lambda row: row.version.exchange_id if row.version else None,
        doc="the exchange in the ledger that brought the answer",
    ),
)


def to_df(history: History, *, versions: str) -> pd.DataFrame:
    """List the messages of a history.

    Args:
        history: The turns.
        versions: `chosen` or `all`.

    Returns:
        One row a message; columns `MESSAGES`.

    Raises:
        ParameterError: `versions` is neither.
    """
    if versions not in {"chosen", "all"}:
        raise ParameterError(
            f"versions={versions!r} is neither 'chosen' nor 'all'.", param="versions"
        )
    rows = (row for row in _rows(history) if versions == "all" or row.is_chosen)
    return to_frame(rows, MESSAGES)


def _rows(history: History) -> Iterator[Row]:
    if history.system is not None:
        yield Row(Message(role="system", content=history.system))
    for turn_number, turn in enumerate(history.turns, start=1):
        for version_number, version in enumerate(turn.versions, start=1):
            row = Row(
                version.prompt,
                turn_number,
                turn,
                version,
                version_number,
                is_chosen=version is turn.version,
            )
            yield from _said(row, version)


def _said(row: Row, version: Version) -> Iterator[Row]:
    yield row
    *rounds, reply = version.replies
    yield from (row._replace(message=message) for message in rounds)
    if not version.choices:
        yield row._replace(message=reply, choice_index=0)
    for index, choice in enumerate(version.choices):
        is_chosen = row.is_chosen and index == version.picked
        yield row._replace(message=choice, choice_index=index, is_chosen=is_chosen)


def _calls(message: Message) -> str | None:
    if not message.tool_calls:
        return None
    return msgspec.json.encode(message.tool_calls).decode()
