"""Deletes exchanges of a ledger: `svc-notebook ledger forget`.

Other kernels may go on using the ledger meanwhile.
"""

import shlex
import sqlite3
from contextlib import closing
from datetime import datetime
from typing import NamedTuple

import msgspec

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import near_names

from .exchange_rows import from_row, since_sql
from .ledger import counted, exists, size_in_words
from .ledger_file import SHORT_BUSY_S, explained, open_file, transaction

_COMPARED = 1000  # newest names that a wrong one is compared with


class Which(NamedTuple):
    """Which exchanges to delete; without a condition all."""

    condition: str = "1"
    values: tuple[str, ...] = ()
    words: str = ""
    kind: str = ""  # one of `KINDS`, if they are named


ALL = Which()
KINDS = {"exchange": "exchange_id", "conversation": "conversation", "run": "run"}


def which(*, before: datetime | str | None = None, **named: str | None) -> Which:
    """Choose exchanges: that started before an instant, or by a name.

    `named` has one of the `KINDS`: the id of an exchange, or the name of a conversation
    or of a run.
    """
    if before is not None:
        started = (since_sql(before, name="before"),)
        return Which("started_at < ?", started, f" that started before {before}")
    for kind, name in named.items():
        if name is not None:
            words = f" of the {kind} {name!r}" if kind != "exchange" else f" ({name})"
            return Which(f"{KINDS[kind]} = ?", (name,), words, kind)
    return ALL


def forget(place: str, chosen: Which = ALL) -> str:
    """Delete exchanges, and overwrite them in the file; other kernels may be using it.

    `place` is the ledger, as in the settings.
    """
    if not exists(place):
        return "nothing was kept"
    with explained(place), closing(open_file(place, busy_s=SHORT_BUSY_S)) as connection:
        n = _delete(connection, chosen)
        connection.execute("VACUUM")
        emptying = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        is_held = emptying.fetchone()[0]
    held = ". Until the program that reads it now ends, its -wal may hold their texts"
    return f"{counted(n, 'exchange')} deleted from {place}{held * is_held}"


def preview(place: str, chosen: Which) -> str:
    """Say what would be deleted; "" if nothing is kept.

    Raises:
        ParameterError: No exchange has the name; the message has near ones.
    """
    if not exists(place):
        return ""
    with explained(place), closing(open_file(place, busy_s=SHORT_BUSY_S)) as connection:
        n, *others = (
            connection.execute(f"SELECT count(*) {rows}", chosen.values).fetchone()[0]
            for rows in _rows(chosen)
        )
        if chosen.kind and not n:
            raise _unknown(connection, chosen, place)
        also = _also(connection, chosen, place)
    counts = zip(others, ("tool call", "score", "rating"), strict=True)
    more = "".join(f", {counted(n_rows, what)}" for n_rows, what in counts if n_rows)
    return (
        f"This permanently deletes {counted(n, 'exchange')}{more}{chosen.words} from "
        f"{place} (it holds {size_in_words(place)}).{also}"
    )


def _rows(chosen: Which) -> tuple[str, ...]:
    """Return the clauses for the exchanges, tool calls, scores and ratings."""
    these = f"exchanges WHERE {chosen.condition}"
    ids = f"(SELECT exchange_id FROM {these})"  # noqa: S608 - our own
    return (
        f"FROM {these}",
        f"FROM tool_runs WHERE {chosen.condition}",
        f"FROM scores WHERE exchange_id IN {ids}",
        f"FROM ratings WHERE exchange_id IN {ids}",
    )


def _unknown(
    connection: sqlite3.Connection, chosen: Which, place: str
) -> ParameterError:
    (name,), near = chosen.values, list[str]()
    for kind in sorted(KINDS, key=chosen.kind.__ne__):
        newest = connection.execute(
            f"SELECT {KINDS[kind]} FROM exchanges WHERE {KINDS[kind]} IS NOT NULL "  # noqa: S608 - our own
            f"GROUP BY 1 ORDER BY max(seq) DESC LIMIT {_COMPARED}"
        )
        near_of_kind = near_names(name, [candidate for (candidate,) in newest])
        near += [f"--{kind} {shlex.quote(candidate)}" for candidate in near_of_kind]
    hint = f" Did you mean {' or '.join(near[:3])}?" if near else ""
    return ParameterError(
        f"The ledger {place} has no {chosen.kind} {name!r}; nothing was deleted.{hint}",
        param=chosen.kind,
    )


def _also(connection: sqlite3.Connection, chosen: Which, place: str) -> str:
    """Say where texts stay: in later turns, in copies, or in kernels."""
    if chosen.kind == "conversation":
        name = chosen.values[0]
        return f" A kernel that has it open sends its turns until `%svc reset {name}`."
    if chosen.kind != "exchange":
        return ""
    sql = "SELECT CAST(record AS BLOB), record_crc32 FROM exchanges WHERE exchange_id=?"
    record, crc32 = connection.execute(sql, chosen.values).fetchone()
    exchange = from_row(record, crc32, chosen.values[0].encode(), place)
    said = [exchange.request.prompt, *(choice.text for choice in exchange.choices)]
    texts = [msgspec.json.encode(text).decode() for text in said if text]
    like = " OR ".join(["instr(record, ?)"] * len(texts)) or "0"
    counting = f"SELECT count(*) FROM exchanges WHERE ({like}) AND exchange_id != ?"  # noqa: S608 - our own
    (n,) = connection.execute(counting, (*texts, *chosen.values)).fetchone()
    stay = "1 other has" if n == 1 else f"{n} others have"
    same = f" {stay} the same prompt or reply, sent again or reused, and will stay."
    run = exchange.origin.run
    plans = connection.execute("SELECT count(*) FROM manifests WHERE run = ?", (run,))
    rows = ""
    if run is not None and plans.fetchone()[0]:
        rows = (
            " The plan of its run stays, with prompts and rows: --run "
            f"{shlex.quote(run)} deletes that too, with all of its replies."
        )
    return (same if n else "") + rows


def _delete(connection: sqlite3.Connection, chosen: Which) -> int:
    connection.execute("PRAGMA secure_delete = ON")
    with transaction(connection):
        for rows in reversed(_rows(chosen)):  # the exchanges last
            done = connection.execute(f"DELETE {rows}", chosen.values)
        connection.execute(  # of pairs whose other reply is gone
            "DELETE FROM ratings WHERE other_exchange_id != '' AND other_exchange_id "
            "NOT IN (SELECT exchange_id FROM exchanges)"
        )
        connection.execute("DELETE FROM requests")  # `seq` starts again
        for table, name in (
            ("runs", "run"),
            ("manifests", "run"),
            ("turn_marks", "conversation"),
        ):
            connection.execute(
                f"DELETE FROM {table} WHERE {name} NOT IN "  # noqa: S608 - our own
                f"(SELECT {name} FROM exchanges WHERE {name} IS NOT NULL)"
            )
        # sessions stay: a running kernel writes only once when it began
    return done.rowcount
