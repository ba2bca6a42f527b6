"""A conversation as a DataFrame: one row per message."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.columns import Column
from svc_notebook.ledger.frames import to_frame
from svc_notebook.service.message import Message

from .history import History, Turn, Version


class Row(NamedTuple):
    """A message and its place in the history.

    Attributes:
        turn_number: From 1; None for the system message.
        turn, version: Where it belongs; None for the system message.
        version_number: From 1.
        choice_index: From 0, for the reply.
        is_chosen: Whether it feeds later turns.
        message: The message.
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
        doc="text of the message",
    ),
    Column(
        name="tool_calls",
        dtype="string",
        read=lambda row: _calls(row.message),
        doc="JSON text of the calls; missing if there are none",
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
        doc="whether the answer was interrupted or the connection broke",
    ),
    Column(
        name="is_cut",
        dtype="boolean",
        read=lambda row: row.version.is_cut if row.version else None,
        doc="whether the answer ended at the token limit",
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
        doc="the exchange in the ledger with the answer",
    ),
)


def to_df(history: History, *, versions: str) -> pd.DataFrame:
    """List the messages of a history.

    Args:
        history: The turns.
        versions: `chosen` or `all`.

    Returns:
        One row per message; columns `MESSAGES`.

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
