"""Scores of replies: a table of the ledger, shown as columns `score_*`.

A score has a name and belongs to one choice of an exchange; a newer one replaces it.
"""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import as_number, check_text

from .connect import transaction
from .row import to_sortable
from .store import Ledger

PREFIX = "score_"
_INSERT = (
    "INSERT INTO scores (exchange_id, choice_index, name, value, scored_at) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (exchange_id, choice_index, name) "
    "DO UPDATE SET value = excluded.value, scored_at = excluded.scored_at"
)


class Score(NamedTuple):
    """The score of a choice: a number or a label."""

    exchange_id: str
    choice_index: int
    name: str
    value: int | float | str


def keep_scores(ledger: Ledger, frame: pd.DataFrame) -> int:
    """Save the columns `score_*` of a frame of replies: see `svc.score`."""
    scores = list(_scores_of(frame))
    scored_at = to_sortable(datetime.now(UTC))
    with ledger.opened() as connection:
        _check_known(connection, {score.exchange_id for score in scores})
        with transaction(connection):
            connection.executemany(_INSERT, [(*score, scored_at) for score in scores])
    return len(scores)


def read_scores(ledger: Ledger) -> list[Score]:
    """Return all scores in a ledger, the oldest first."""
    sql = f"SELECT {', '.join(Score._fields)} FROM scores ORDER BY rowid"  # noqa: S608 - our own names
    with ledger.opened() as connection:
        return [Score(*row) for row in connection.execute(sql).fetchall()]


def _scores_of(frame: pd.DataFrame) -> Iterator[Score]:
    columns = [str(name) for name in getattr(frame, "columns", ())]
    names = [name for name in columns if name.startswith(PREFIX) and name != PREFIX]
    if not names or not {"exchange_id", "choice_index"} <= set(columns):
        raise ParameterError(
            "The frame has no scores. Add a column whose name begins with 'score_' to "
            "a frame of replies_df(), such as "
            "replies['score_right'] = replies['text'] == 'spam'.",
            param="frame",
        )
    for name in names:
        check_text(name, param="frame", name=f"The column {name!r}")
        rows = zip(
            frame.index,
            frame["exchange_id"],
            frame["choice_index"],
            frame[name],
            strict=True,
        )
        for label, exchange_id, choice_index, value in rows:
            if pd.api.types.is_scalar(value) and pd.isna(value):
                continue
            plain = _plain(name, value)
            check_text(str(plain), param="frame", name=f"{name} of row {label!r}")
            if not isinstance(exchange_id, str):
                raise _refused(
                    f"{name} has a score for a row without a reply; leave it missing."
                )
            yield Score(exchange_id, int(choice_index), name[len(PREFIX) :], plain)


def _plain(name: str, value: Any) -> int | float | str:  # noqa: ANN401 - of any frame
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    found = str(value) if isinstance(value, str) else as_number(value)
    if found is not None:
        return found
    raise _refused(
        f"{name} holds a {type(value).__name__}; a score must be a number, True or "
        "False, or a text."
    )


def _check_known(connection: sqlite3.Connection, exchange_ids: set[str]) -> None:
    known = {row[0] for row in connection.execute("SELECT exchange_id FROM exchanges")}
    if unknown := exchange_ids - known:
        raise _refused(
            f"{len(unknown)} of these replies are not in the current ledger, such as "
            f"{min(unknown)}; choose the right ledger with use(ledger=...)."
        )


def _refused(reason: str) -> ParameterError:
    return ParameterError(f"{reason} No score was saved.", param="frame")
