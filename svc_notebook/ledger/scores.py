"""Scores of replies: a table of the ledger, shown as columns `score_*`.

A score has a name and belongs to one choice of an exchange; a newer score replaces it.
Within a run, all scores with the same name are numbers, or all are texts.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from svc_notebook.credentials import known_keys
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import as_number, check_text, shorten
from svc_notebook.tracing import send_scores

from .exchange_rows import to_sortable
from .frame_interchange import to_pandas
from .ledger import Ledger
from .ledger_file import transaction
from .writer import INSERT_SCORE

if TYPE_CHECKING:  # a run asks for names without a frame
    import pandas as pd

PREFIX = "score_"
JUDGED = "judge_"
"""Prefix of the names of scores that `run.judge` gives."""


class Score(NamedTuple):
    """The score of a choice: a number or a label."""

    exchange_id: str
    choice_index: int
    name: str
    value: int | float | str | None  # None in the table: the score was removed


def keep_scores(ledger: Ledger, frame: "pd.DataFrame") -> int:
    """Save the columns `score_*` of a frame of replies: see `svc.score`."""
    frame = to_pandas(frame)
    scores = list(_scores_of(frame))
    values: dict[str, list[object]] = {}
    for score in scores:
        values.setdefault(score.name, []).append(score.value)
    check_types(values, param="frame")
    with ledger.opened() as connection:
        _check_known(connection, {score.exchange_id for score in scores})
        with transaction(connection):
            insert_scores(connection, scores, param="frame")
    send_scores(scores)
    return len(scores)


def insert_scores(
    connection: sqlite3.Connection,
    scores: Collection[Score],
    *,
    param: str | None = None,
) -> None:
    """Insert scores; a score of another type raises, so that the caller rolls back."""
    scored_at = to_sortable(datetime.now(UTC))
    rows = [{**score._asdict(), "scored_at": scored_at} for score in scores]
    connection.executemany(INSERT_SCORE, rows)
    exchange_ids = json.dumps(sorted({score.exchange_id for score in scores}))
    for name, value in {score.name: score.value for score in scores}.items():
        is_text = isinstance(value, str)
        (n_others,) = connection.execute(
            _COUNT_OF_OTHER_TYPE, (name, is_text, exchange_ids)
        ).fetchone()
        if n_others:
            new, old = ("text", "a number") if is_text else ("a number", "text")
            raise ParameterError(
                f"The score {name} is {new}, but {old} in {n_others:,} other replies "
                f"of the run. Remove those first with run.score({name}=None), or "
                "choose another name. No score was saved.",
                param=param or name,
            )


# The + makes SQLite begin with the scores of the other type. Usually there are none,
# and then it reads no exchange.
_COUNT_OF_OTHER_TYPE = """
    SELECT count(*) FROM scores
    WHERE name = ? AND value IS NOT NULL AND (typeof(value) = 'text') != ?
    AND +exchange_id IN (
        SELECT exchange_id FROM exchanges WHERE run IN (
            SELECT run FROM exchanges
            WHERE exchange_id IN (SELECT value FROM json_each(?))
        )
    )
"""


def check_types(
    values_by_name: Mapping[str, Iterable[object]], *, param: str | None = None
) -> None:
    """Refuse a score that has numbers and texts as values; None is a missing value.

    A column of a frame has one dtype. True and False are numbers here, and integers
    become floats where there are floats.
    """
    for name, values in values_by_name.items():
        present = [value for value in values if value is not None]
        texts = [value for value in present if isinstance(value, str)]
        if texts and len(texts) < len(present):
            raise ParameterError(
                f"The score {name} is text in {len(texts):,} of {len(present):,} "
                f"replies, such as {shorten(repr(texts[0]), 40)}, and a number (True "
                "is 1, False is 0) in the others. Use one type for all. No score was "
                "saved.",
                param=param or name,
            )


def replace_scores(
    ledger: Ledger, scores: Sequence[Score], *, old: Iterable[str], among: set[str]
) -> set[str]:
    """Replace the old scores of some exchanges.

    Args:
        ledger: The ledger; scores of exchanges that it does not have are left out.
        scores: The new scores.
        old: The names of the scores that are removed before.
        among: The ids of the exchanges whose old scores are removed.

    Returns:
        Those of the ids that the ledger does not have.
    """
    with ledger.opened() as connection:
        unknown = among - _known_ids(connection, among)
        with transaction(connection):
            connection.execute(
                "DELETE FROM scores WHERE name IN (SELECT value FROM json_each(?)) "
                "AND exchange_id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(old)), json.dumps(sorted(among))),
            )
            known = [score for score in scores if score.exchange_id not in unknown]
            insert_scores(connection, known)
    send_scores(known)
    return unknown


def add_scores(ledger: Ledger, scores: Sequence[Score]) -> None:
    """Save scores whose names have this type in the run already; nothing is checked."""
    scored_at = to_sortable(datetime.now(UTC))
    rows = [{**score._asdict(), "scored_at": scored_at} for score in scores]
    with ledger.opened() as connection, transaction(connection):
        connection.executemany(INSERT_SCORE, rows)
    send_scores(scores)


def unscored(ledger: Ledger, run: str, names: Iterable[str]) -> set[str]:
    """Return the ids of a run's good exchanges that have none of these scores."""
    sql = (
        "SELECT exchange_id FROM exchanges WHERE started_at >= "
        "(SELECT first_started_at FROM runs WHERE run = :run) "
        "AND run = :run AND status = 'ok' AND exchange_id NOT IN "
        "(SELECT exchange_id FROM scores WHERE value IS NOT NULL AND name IN "
        "(SELECT value FROM json_each(:names)))"
    )
    with ledger.opened() as connection:
        values = {"run": run, "names": json.dumps(list(names))}
        return {exchange_id for (exchange_id,) in connection.execute(sql, values)}


class ScoreSum(NamedTuple):
    """The sum of a model's numeric scores in a run, and whether all are 0 or 1."""

    model: str
    name: str
    total: float
    n: int
    is_share: bool


def sums_in_run(ledger: Ledger, run: str) -> list[ScoreSum]:
    """Return the sums of the numeric scores of a run, by model and name."""
    sql = (
        "SELECT model, name, sum(value), count(value), min(value IN (0, 1)) "
        "FROM exchanges JOIN scores USING (exchange_id) WHERE started_at >= "
        "(SELECT first_started_at FROM runs WHERE run = :run) AND run = :run "
        "AND typeof(value) IN ('integer', 'real') GROUP BY model, name"
    )
    with ledger.opened() as connection:
        rows = connection.execute(sql, {"run": run})
        return [
            ScoreSum(model, name, total, n, bool(is_share))
            for model, name, total, n, is_share in rows
        ]


def names_in_run(ledger: Ledger, run: str) -> list[str]:
    """Return the names of the scores of a run, the oldest first."""
    sql = (
        "SELECT name FROM scores WHERE value IS NOT NULL AND exchange_id IN "
        "(SELECT exchange_id FROM exchanges WHERE started_at >= "
        "(SELECT first_started_at FROM runs WHERE run = :run) AND run = :run) "
        "GROUP BY name ORDER BY min(rowid)"
    )
    with ledger.opened() as connection:
        return [name for (name,) in connection.execute(sql, {"run": run})]


def names_of_scores(ledger: Ledger, exchange_ids: Collection[str]) -> list[str]:
    """Return the names of the scores of some exchanges, the oldest first."""
    sql = (
        "SELECT name FROM scores WHERE value IS NOT NULL AND exchange_id IN "
        "(SELECT value FROM json_each(?)) GROUP BY name ORDER BY min(rowid)"
    )
    with ledger.opened() as connection:
        rows = connection.execute(sql, (json.dumps(sorted(exchange_ids)),))
        return [name for (name,) in rows]


def _known_ids(
    connection: sqlite3.Connection, exchange_ids: Collection[str]
) -> set[str]:
    """Return those of the ids that the ledger has."""
    # no index has exchange_id first; scanning this one is faster than the table
    sql = (
        "SELECT exchange_id FROM exchanges INDEXED BY exchanges_time "
        "WHERE exchange_id IN (SELECT value FROM json_each(?))"
    )
    rows = connection.execute(sql, (json.dumps(sorted(exchange_ids)),))
    return {exchange_id for (exchange_id,) in rows}


def read_scores(ledger: Ledger, among: Collection[str] | None = None) -> list[Score]:
    """Return scores of a ledger, the oldest first; removed ones are left out.

    Args:
        ledger: Where they are.
        among: The ids of exchanges whose scores are read; all if None.
    """
    select = partial(_select_scores, among=among)
    # also those that are not written yet, as for its other tables
    pending = ledger._read_pending(select)  # noqa: SLF001 - a table of the ledger
    newest = {score[:3]: score for score in [*select(ledger), *pending]}
    return [score for score in newest.values() if score.value is not None]


def _select_scores(ledger: Ledger, *, among: Collection[str] | None) -> list[Score]:
    sql = f"SELECT {', '.join(Score._fields)} FROM scores"  # noqa: S608 - our own names
    values: tuple[str, ...] = ()
    if among is not None:
        sql += " WHERE exchange_id IN (SELECT value FROM json_each(?))"
        values = (json.dumps(sorted(among)),)
    with ledger.opened() as connection:
        rows = connection.execute(f"{sql} ORDER BY rowid", values).fetchall()
    return [Score(*row) for row in rows]


def _scores_of(frame: "pd.DataFrame") -> Iterator[Score]:
    import pandas as pd  # noqa: PLC0415 - it was loaded to make the frame

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
            plain = to_score(name, value)
            check_text(str(plain), param="frame", name=f"{name} of row {label!r}")
            if not isinstance(exchange_id, str):
                raise _not_saved(
                    f"{name} has a score for a row without a reply; leave it missing."
                )
            yield Score(exchange_id, int(choice_index), name[len(PREFIX) :], plain)


def to_score(name: str, value: Any) -> int | float | str:  # noqa: ANN401 - of any frame
    """Return a value as a score, or refuse it; `name` is for the message."""
    if isinstance(value, bool) or type(value).__name__ in {"bool", "bool_"}:  # NumPy's
        return int(value)
    score = str(value) if isinstance(value, str) else as_number(value)
    if isinstance(score, int) and not -(2**63) <= score < 2**63:
        raise _not_saved(f"{name} holds an integer that needs more than 64 bits.")
    if isinstance(score, str):
        for key in known_keys():
            score = key.redact(score)
    if score is not None:
        return score
    raise _not_saved(
        f"{name} holds a {type(value).__name__}; a score must be a number, True or "
        "False, or a text."
    )


def _check_known(connection: sqlite3.Connection, exchange_ids: set[str]) -> None:
    if unknown := exchange_ids - _known_ids(connection, exchange_ids):
        raise _not_saved(
            f"{len(unknown):,} of these replies are not in the current ledger, such as "
            f"{min(unknown)}; choose the right ledger with use(ledger=...)."
        )


def _not_saved(reason: str) -> ParameterError:
    return ParameterError(f"{reason} No score was saved.", param="frame")
