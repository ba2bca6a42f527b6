"""Deletes exchanges of a ledger: `svc-notebook ledger forget`.

Other kernels may go on using the ledger meanwhile.
"""

import shlex
import sqlite3
from contextlib import closing
from datetime import datetime
from typing import NamedTuple

import msgspec

from svc_notebook.display.escape import in_a_line
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import near_names

from .exchange_rows import from_row, since_sql
from .ledger import exists, size_in_words
from .ledger_file import SHORT_BUSY_S, explained, open_file, transaction

_COMPARED = 1000  # an unknown name is compared with so many of the newest names


class Selection(NamedTuple):
    """The exchanges to delete; without a condition, all of them."""

    condition: str = "1"
    values: tuple[str, ...] = ()
    description: str = ""  # follows the number of exchanges in a sentence
    kind: str = ""  # one of `KINDS`, if the exchanges are chosen by a name


ALL = Selection()
KINDS = {"exchange": "exchange_id", "conversation": "conversation", "run": "run"}


def select(*, before: datetime | str | None = None, **named: str | None) -> Selection:
    """Select the exchanges that started before an instant, or that have a name.

    `named` has one of the `KINDS`: the id of an exchange, or the name of a conversation
    or of a run.
    """
    if before is not None:
        instant = (since_sql(before, name="before"),)
        return Selection("started_at < ?", instant, f" that started before {before}")
    for kind, name in named.items():
        if name is not None:
            is_one = kind == "exchange"
            description = f" ({name})" if is_one else f" of the {kind} {name!r}"
            return Selection(f"{KINDS[kind]} = ?", (name,), description, kind)
    return ALL


def forget(place: str, selection: Selection = ALL) -> str:
    """Delete exchanges, and overwrite their texts in the file.

    `place` is the ledger, as in the settings.
    """
    if not exists(place):
        return "nothing was kept"
    with explained(place), closing(open_file(place, busy_s=SHORT_BUSY_S)) as connection:
        n = _delete(connection, selection)
        # copies of old pages stay in the file and in its WAL until both are rewritten
        connection.execute("VACUUM")
        emptying = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        is_held = emptying.fetchone()[0]  # 1 if another program reads the file
    note = (
        ". Another program is reading the ledger; until it ends, the -wal file may "
        "still hold the deleted texts"
    )
    return f"{count_in_words(n, 'exchanges')} deleted from {place}{note * is_held}"


def preview(place: str, selection: Selection) -> str:
    """Say what would be deleted; "" if nothing is kept.

    Raises:
        ParameterError: No exchange has the name; the message suggests similar names.
    """
    if not exists(place):
        return ""
    with explained(place), closing(open_file(place, busy_s=SHORT_BUSY_S)) as connection:
        n, *others = (
            connection.execute(
                f"SELECT count(*) {clause}", selection.values
            ).fetchone()[0]
            for clause in _from_clauses(selection)
        )
        if selection.kind and not n:
            raise _unknown_name(connection, selection, place)
        kept = _kept_elsewhere(connection, selection, place)
    counts = zip(others, ("tool calls", "scores", "ratings"), strict=True)
    more = "".join(
        f", {count_in_words(n_rows, nouns)}" for n_rows, nouns in counts if n_rows
    )
    return (
        f"This permanently deletes {count_in_words(n, 'exchanges')}{more}"
        f"{selection.description} from {place} (it holds {size_in_words(place)}).{kept}"
    )


def _from_clauses(selection: Selection) -> tuple[str, ...]:
    """Return the FROM clauses of the exchanges, tool calls, scores and ratings."""
    exchanges = f"exchanges WHERE {selection.condition}"
    ids = f"(SELECT exchange_id FROM {exchanges})"  # noqa: S608 - our own
    return (
        f"FROM {exchanges}",
        f"FROM tool_runs WHERE {selection.condition}",
        f"FROM scores WHERE exchange_id IN {ids}",
        f"FROM ratings WHERE exchange_id IN {ids}",
    )


def _unknown_name(
    connection: sqlite3.Connection, selection: Selection, place: str
) -> ParameterError:
    (name,), near = selection.values, list[str]()
    # names of the kind that was given come first
    for kind in sorted(KINDS, key=selection.kind.__ne__):
        newest = connection.execute(
            f"SELECT {KINDS[kind]} FROM exchanges WHERE {KINDS[kind]} IS NOT NULL "  # noqa: S608 - our own
            f"GROUP BY 1 ORDER BY max(seq) DESC LIMIT {_COMPARED}"
        )
        near_of_kind = near_names(name, [candidate for (candidate,) in newest])
        near += [f"--{kind} {shlex.quote(candidate)}" for candidate in near_of_kind]
    hint = f" Did you mean {' or '.join(near[:3])}?" if near else ""
    return ParameterError(
        f"The ledger {place} has no {selection.kind} {name!r}; nothing was "
        f"deleted.{hint}",
        param=selection.kind,
    )


def _kept_elsewhere(
    connection: sqlite3.Connection, selection: Selection, place: str
) -> str:
    """Say where the texts stay: in open conversations, in copies, or in a plan."""
    if selection.kind == "conversation":
        name = selection.values[0]
        return (
            " A kernel that has the conversation open still sends its turns, until you "
            f"run `%svc reset {in_a_line(name)}` there."
        )
    if selection.kind != "exchange":
        return ""
    (exchange_id,) = selection.values
    sql = "SELECT CAST(record AS BLOB), record_crc32 FROM exchanges WHERE exchange_id=?"
    record, crc32 = connection.execute(sql, (exchange_id,)).fetchone()
    exchange = from_row(record, crc32, exchange_id.encode(), place)
    texts = [exchange.request.prompt, *(choice.text for choice in exchange.choices)]
    # as they are written in a record
    encoded = [msgspec.json.encode(text).decode() for text in texts if text]
    has_text = " OR ".join(["instr(record, ?)"] * len(encoded)) or "0"
    sql = f"SELECT count(*) FROM exchanges WHERE ({has_text}) AND exchange_id != ?"  # noqa: S608 - our own
    (n,) = connection.execute(sql, (*encoded, exchange_id)).fetchone()
    others = "1 other has" if n == 1 else f"{n:,} others have"
    copies = f" {others} the same prompt or reply, sent again or reused, and will stay."
    run = exchange.origin.run
    plans = connection.execute("SELECT count(*) FROM manifests WHERE run = ?", (run,))
    plan = ""
    if run is not None and plans.fetchone()[0]:
        plan = (
            " The plan of its run stays, with prompts and rows: --run "
            f"{shlex.quote(run)} deletes that too, with all of its replies."
        )
    return (copies if n else "") + plan


def _delete(connection: sqlite3.Connection, selection: Selection) -> int:
    """Delete exchanges and what belongs to them; return how many exchanges."""
    connection.execute("PRAGMA secure_delete = ON")
    with transaction(connection):
        # the exchanges last, because the other clauses look for their ids
        for clause in reversed(_from_clauses(selection)):
            deleted = connection.execute(f"DELETE {clause}", selection.values)
        connection.execute(  # ratings of pairs whose other reply was deleted
            "DELETE FROM ratings WHERE other_exchange_id != '' AND other_exchange_id "
            "NOT IN (SELECT exchange_id FROM exchanges)"
        )
        # the hashes are kept by `seq`, which new exchanges may get again
        connection.execute("DELETE FROM requests")
        for table, name in (
            ("runs", "run"),
            ("manifests", "run"),
            ("looks", "run"),
            ("turn_marks", "conversation"),
        ):
            connection.execute(
                f"DELETE FROM {table} WHERE {name} NOT IN "  # noqa: S608 - our own
                f"(SELECT {name} FROM exchanges WHERE {name} IS NOT NULL)"
            )
        # sessions stay: a running kernel writes the start of its session only once
    return deleted.rowcount
