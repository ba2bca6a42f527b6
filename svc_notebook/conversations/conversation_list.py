"""The list of conversations in the ledger: `svc.conversations_df`, and its search.

A search covers names, prompts and replies. A damaged exchange does not hide the others.
"""

import re
import sqlite3
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import msgspec

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.exchange_rows import from_row
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.service.params import check_text, must_be, shorten

from .attachments import split_items
from .history import key_of

_PROMPT_CHARS = 120  # of the newest prompt, or of what a search found
_BEFORE_CHARS = 12  # of a text, before the words that a search found

_TURNS = (  # selects exchanges of conversations with a reply
    "conversation IS NOT NULL AND usage_source != 'missing' "
    "AND origin IN ('magic', 'panel', 'python')"
)

# A record is JSON, and a searched word may also be the name of a field. So the texts of
# a record are searched one by one, but only if the record contains the word at all.
_HAS_TEXT = r"""
    CASE
        WHEN conversation LIKE :text ESCAPE '\' THEN 1
        WHEN record NOT LIKE :json ESCAPE '\' OR NOT json_valid(record) THEN 0
        WHEN json_extract(record, '$.request.messages[#-1].content')
            LIKE :text ESCAPE '\' THEN 1
        ELSE EXISTS (
            SELECT 1 FROM json_each(record, '$.request.messages')
            WHERE json_extract(value, '$.role') IN ('user', 'assistant')
            AND json_extract(value, '$.content') LIKE :text ESCAPE '\'
        ) OR EXISTS (
            SELECT 1 FROM json_each(record, '$.body.choices')
            WHERE json_extract(value, '$.text') LIKE :text ESCAPE '\'
        )
    END
"""

_NEWEST = (
    f"SELECT conversation, max(seq) FROM exchanges WHERE {_TURNS} GROUP BY 1 "  # noqa: S608 - our own words
    "HAVING {} ORDER BY 2 DESC"
)

_RECORD = (
    "SELECT CAST(record AS BLOB), record_crc32, CAST(exchange_id AS BLOB), started_at "
    "FROM exchanges WHERE seq = ?"
)

_MATCHING = (
    f"SELECT seq FROM exchanges WHERE {_TURNS} AND conversation = :name "  # noqa: S608 - our own words
    f"AND {_HAS_TEXT} ORDER BY seq DESC LIMIT 1"
)

_TURN_ROWS = (
    "SELECT CASE WHEN json_valid(record) THEN json_extract(record, '$.origin.turn_id') "  # noqa: S608 - our own words
    f"END, model FROM exchanges WHERE {_TURNS} AND conversation = ? ORDER BY seq"
)

_NOT_COUNTED = (  # deleted turns, and those that are the same as another one
    "SELECT turn_id FROM turn_marks WHERE conversation = :name "
    "AND json_extract(marks, '$.is_deleted') UNION SELECT id.value "
    "FROM turn_marks, json_each(marks, '$.seen') AS turn, json_each(turn.value) AS id "
    "WHERE conversation = :name AND id.key > 0"
)


class Listed(NamedTuple):
    """One row of the list of conversations."""

    name: str
    n_turns: int
    models: tuple[str, ...]  # oldest first
    asked_at: datetime
    prompt: str  # the beginning of the newest prompt, without what is attached
    passage: str = ""  # what matches in prompts and replies, with its context


def read_list(
    ledger: Ledger, search: str, *, n: int | None = None
) -> tuple[list[Listed], int]:
    """Return the conversations, the newest first, and their number.

    Args:
        ledger: The ledger to read.
        search: Return only conversations whose name, prompts or replies contain this
            text; upper and lower case ASCII letters are the same.
        n: Return at most this many; all if None.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    searched: object = search
    if not isinstance(searched, str):
        raise must_be("search", "a text", search)
    text = check_text(searched.strip(), param="search")
    json = msgspec.json.encode(text).decode()[1:-1]
    values = {"text": _like_pattern(text), "json": _like_pattern(json)}
    having = f"max({_HAS_TEXT})" if text else "1"
    with ledger.opened() as connection:
        newest = connection.execute(_NEWEST.format(having), values).fetchall()
        shown = [_to_row(connection, *row, place=ledger.path) for row in newest[:n]]
        if text:
            matching = re.compile(re.escape(text), re.IGNORECASE)
            for at, row in enumerate(shown):
                sought = {**values, "name": row.name}
                passage = _passage(connection, sought, matching, place=ledger.path)
                shown[at] = row._replace(passage=passage)
    return shown, len(newest)


def _like_pattern(text: str) -> str:
    """Return the pattern for LIKE that finds a text anywhere."""
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


def _to_row(
    connection: sqlite3.Connection, name: str, seq: int, *, place: str
) -> Listed:
    record, crc32, id_, asked_at = connection.execute(_RECORD, (seq,)).fetchone()
    prompt = "(cannot be read)"
    with suppress(LedgerError):
        newest = from_row(record, crc32, id_, place)
        prompt = shorten(" ".join(_prompt(newest).split()), _PROMPT_CHARS)
    rows = connection.execute(_TURN_ROWS, (name,)).fetchall()
    others = connection.execute(_NOT_COUNTED, {"name": name}).fetchall()
    turn_ids = {turn_id for turn_id, _ in rows} - {turn_id for (turn_id,) in others}
    keys = {key_of(turn_id) for turn_id in turn_ids if turn_id}  # one for each cell
    return Listed(
        name=name,
        n_turns=len(keys),
        models=tuple(dict.fromkeys(model for _, model in rows)),
        asked_at=datetime.fromisoformat(asked_at),
        prompt=prompt,
    )


def _passage(
    connection: sqlite3.Connection,
    sought: dict[str, str],
    matching: re.Pattern[str],
    *,
    place: str,
) -> str:
    """Return what matches in the newest exchange that has it; "" if the name does."""
    if matching.search(sought["name"]):
        return ""
    (seq,) = connection.execute(_MATCHING, sought).fetchone()
    with suppress(LedgerError):
        record, crc32, id_, _ = connection.execute(_RECORD, (seq,)).fetchone()
        exchange = from_row(record, crc32, id_, place)
        messages = (m.content for m in exchange.request.messages if m.role != "system")
        for text in (*messages, *(choice.text for choice in exchange.choices)):
            line = " ".join((text or "").split())
            if match := matching.search(line):
                start = max(0, match.start() - _BEFORE_CHARS)
                return "..." * bool(start) + shorten(line[start:], _PROMPT_CHARS)
    return ""


def _prompt(newest: Exchange) -> str:
    """Return what a user typed last; a continuation adds a message of our own."""
    texts = [m.content or "" for m in newest.request.messages if m.role == "user"]
    attached = newest.origin.attached
    if newest.origin.continues:
        texts.pop()
    elif texts and attached:
        return split_items(texts[-1], attached)[0]
    return texts[-1] if texts else ""


CONVERSATIONS = (
    Column("conversation", "string", "name", "its name"),
    Column("n_turns", "Int64", "n_turns", "turns that were not deleted"),
    Column(
        "models",
        "string",
        lambda batch: [", ".join(names) for names in batch.part("models")],
        "the models that answered",
    ),
    Column("asked_at", "datetime64[us, UTC]", "asked_at", "when it was last asked"),
    Column(
        "prompt", "string", "prompt", "the beginning of the newest prompt, as typed"
    ),
)
"""Every column of `conversations_df`, in order."""
