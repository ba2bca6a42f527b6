"""Scores of replies: the ledger's second table, shown as columns `score_*`.

A score belongs to one choice of one exchange and has a name; a newer one replaces it.
"""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pandas as pd

from svc_notebook.errors import ParameterError

from .row import to_sortable
from .store import Ledger

PREFIX = "score_"
_INSERT = (
    "INSERT INTO scores (exchange_id, choice_index, name, value, scored_at) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (exchange_id, choice_index, name) "
    "DO UPDATE SET value = excluded.value, scored_at = excluded.scored_at"
)


class Score(NamedTuple):
    """What a choice was worth: a number, or a label."""

    exchange_id: str
    choice_index: int
    name: str
    value: int | float | str


def keep_scores(ledger: Ledger, frame: pd.DataFrame) -> int:
    """Keep the columns `score_*` of a frame of replies: see `svc.score`.

    Args:
        ledger: That holds the replies.
        frame: With `exchange_id` and `choice_index`; a missing value is no score.

    Returns:
        How many scores were kept.
    """
    scores = list(_scores_of(frame))
    scored_at = to_sortable(datetime.now(UTC))
    with ledger.opened() as connection:
        _check_known(connection, {score.exchange_id for score in scores})
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_INSERT, [(*score, scored_at) for score in scores])
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    return len(scores)


def read_scores(ledger: Ledger) -> list[Score]:
    """Return every score in a ledger, oldest first.

    Raises:
        LedgerError: It cannot be read.
    """
    sql = f"SELECT {', '.join(Score._fields)} FROM scores ORDER BY rowid"  # noqa: S608 - our own names
    with ledger.opened() as connection:
        return [Score(*row) for row in connection.execute(sql).fetchall()]


def _scores_of(frame: pd.DataFrame) -> Iterator[Score]:
    columns = [str(name) for name in getattr(frame, "columns", ())]
    names = [name for name in columns if name.startswith(PREFIX) and name != PREFIX]
    if not names or not {"exchange_id", "choice_index"} <= set(columns):
        raise ParameterError(
            "There is nothing to score by: give a frame of replies_df() with a column "
            "of your own whose name begins with 'score_', such as "
            "replies['score_right'] = replies['text'] == 'spam'.",
            param="frame",
        )
    for name in names:
        rows = zip(
            frame["exchange_id"], frame["choice_index"], frame[name], strict=True
        )
        for exchange_id, choice_index, value in rows:
            if pd.api.types.is_scalar(value) and pd.isna(value):
                continue
            plain = _plain(name, value)
            if not isinstance(exchange_id, str):
                raise _refused(
                    f"{name} scores a row that has no reply; leave it missing there."
                )
            yield Score(exchange_id, int(choice_index), name[len(PREFIX) :], plain)


def _plain(name: str, value: Any) -> int | float | str:  # noqa: ANN401 - of any frame
    item = getattr(value, "item", None)
    value = item() if callable(item) and getattr(value, "ndim", None) == 0 else value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float, str)):
        return value
    raise _refused(
        f"{name} holds a {type(value).__name__}; a score must be a number, True or "
        "False, or a text."
    )


def _check_known(connection: sqlite3.Connection, exchange_ids: set[str]) -> None:
    known = {row[0] for row in connection.execute("SELECT exchange_id FROM exchanges")}
    if unknown := exchange_ids - known:
        raise _refused(
            f"{len(unknown)} of these replies are not in the ledger in use, such as "
            f"{min(unknown)}; use(ledger=...) names another."
        )


def _refused(reason: str) -> ParameterError:
    return ParameterError(f"{reason} Nothing was kept.", param="frame")
