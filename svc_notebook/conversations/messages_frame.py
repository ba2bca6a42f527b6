"""A conversation as a DataFrame: one row per message."""

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from svc_notebook.ledger.reply_columns import Batch, Column, as_json
from svc_notebook.ledger.reply_frames import to_frame
from svc_notebook.service.params import must_be
from svc_notebook.service.request import Message

from .history import History, Turn, Version


class MessageRow(NamedTuple):
    """A message and its position in the history; None for the system message."""

    message: Message
    turn_number: int | None = None
    turn: Turn | None = None
    version: Version | None = None
    version_number: int | None = None
    choice_index: int | None = None
    is_chosen: bool = True


def _is_cut(batch: Batch) -> list[bool | None]:
    pairs = zip(batch.part("version.is_cut"), batch.part("message.role"), strict=True)
    return [is_cut and role == "assistant" for is_cut, role in pairs]


MESSAGES = (
    Column("turn", "Int64", "turn_number", "from 1; missing for the system message"),
    Column("version", "Int64", "version_number", "number of the version, from 1"),
    Column("choice_index", "Int64", "choice_index", "of the reply, from 0"),
    Column("is_chosen", "boolean", "is_chosen", "whether later requests send it"),
    Column("role", "string", "message.role", "system, user, assistant or tool"),
    Column("text", "string", "message.content", "text of the message"),
    Column(
        "tool_calls", "string", as_json("message.tool_calls"), "the calls, as JSON text"
    ),
    Column("tool_call_id", "string", "message.tool_call_id", "the call it answers"),
    Column(
        "is_partial",
        "boolean",
        "version.is_partial",
        "whether the answer was interrupted or incomplete",
    ),
    Column("is_cut", "boolean", _is_cut, "whether max_tokens cut the answer"),
    Column("is_pinned", "boolean", "turn.is_pinned", "whether it is always sent"),
    Column("is_hidden", "boolean", "turn.is_hidden", "whether it is never sent"),
    Column("is_stale", "boolean", "version.is_stale", "answered on turns that changed"),
    Column("exchange_id", "string", "version.exchange_id", "of the answer"),
)


def to_df(history: History, *, versions: str) -> pd.DataFrame:
    """Return one row per message: see `Conversation.to_df`."""
    if versions not in {"chosen", "all"}:
        raise must_be("versions", "'chosen' or 'all'", versions)
    rows = (row for row in _rows(history) if versions == "all" or row.is_chosen)
    return to_frame(rows, MESSAGES)


def _rows(history: History) -> Iterator[MessageRow]:
    if history.system is not None:
        yield MessageRow(Message(role="system", content=history.system))
    for turn_number, turn in enumerate(history.turns, start=1):
        for version_number, version in enumerate(turn.versions, start=1):
            row = MessageRow(
                version.prompt,
                turn_number,
                turn,
                version,
                version_number,
                is_chosen=version is turn.version,
            )
            yield from _version_rows(row, version)


def _version_rows(row: MessageRow, version: Version) -> Iterator[MessageRow]:
    yield row
    *rounds, reply = version.replies
    yield from (row._replace(message=message) for message in rounds)
    if not version.choices:
        index = 0 if reply.role == "assistant" else None
        yield row._replace(message=reply, choice_index=index)
    for index, choice in enumerate(version.choices):
        is_chosen = row.is_chosen and index == version.picked
        yield row._replace(message=choice, choice_index=index, is_chosen=is_chosen)
