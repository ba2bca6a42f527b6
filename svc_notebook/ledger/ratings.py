"""Ratings of replies by people: a table of the ledger, and the score they make.

A rating has a name and a rater, and belongs to one reply, or to two that were shown
side by side. The ratings of one reply by all raters are combined into its score
`rated_NAME`, which frames and comparisons have like any other score.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias

from svc_notebook.credentials import known_keys
from svc_notebook.tracing import send_scores

from .ledger import Ledger
from .ledger_file import transaction
from .scores import Score, insert_scores

RATED = "rated_"
"""Prefix of the names of scores that are made of ratings."""
Chosen = Literal["random", "differs"]
RatedValue: TypeAlias = int | float | str
NO_OTHER = ("", -1)  # in place of the other reply, if one reply is rated


class ReplyRating(NamedTuple):
    """How one person rates a reply, or a pair of replies.

    Attributes:
        name: What is rated, such as `good`.
        rater: Who rates.
        exchange_id, choice_index: The reply; of a pair, the one that was on the left.
        other_exchange_id, other_choice_index: The one on the right; `NO_OTHER` if
            there is only one reply.
        value: A number, a label, or "left", "right" or "tie"; None for a note alone.
        note: What the rater wrote.
        seconds_s: How long the rater took; None if unknown.
        chosen: Whether the reply was drawn at random, or chosen because replies differ.
        rated_at: When it was rated, as text that sorts by time.
    """

    name: str
    rater: str
    exchange_id: str
    choice_index: int
    other_exchange_id: str
    other_choice_index: int
    value: RatedValue | None
    note: str
    seconds_s: float | None
    chosen: Chosen
    rated_at: str

    @property
    def replies(self) -> tuple[tuple[str, int], ...]:
        """The exchange and the choice of each reply, in the order shown."""
        first = self.exchange_id, self.choice_index
        other = self.other_exchange_id, self.other_choice_index
        return (first,) if other == NO_OTHER else (first, other)


_KEY = ReplyRating._fields[:6]
_INSERT = (
    f"INSERT OR REPLACE INTO ratings ({', '.join(ReplyRating._fields)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join('?' * len(ReplyRating._fields))})"
)
_DELETE = f"DELETE FROM ratings WHERE {' AND '.join(f'{key} = ?' for key in _KEY)}"  # noqa: S608 - our own names

_VALUES = (
    "SELECT value FROM ratings WHERE exchange_id = ? AND choice_index = ? AND name = ? "
    "AND other_exchange_id = '' AND value IS NOT NULL"
)
_DELETE_SCORE = (
    "DELETE FROM scores WHERE exchange_id = ? AND choice_index = ? AND name = ?"
)


def keep_ratings(ledger: Ledger, ratings: Sequence[ReplyRating]) -> None:
    """Save ratings, and update the scores of the replies that they rate.

    An earlier rating of the same replies by the same rater is replaced. API keys that
    this kernel knows are removed from notes.
    """
    _write(ledger, _INSERT, [_without_keys(rating) for rating in ratings], ratings)


def take_back(ledger: Ledger, ratings: Sequence[ReplyRating]) -> None:
    """Delete ratings, and update the scores of the replies that they rated."""
    _write(ledger, _DELETE, [rating[: len(_KEY)] for rating in ratings], ratings)


def read_ratings(
    ledger: Ledger,
    among: Collection[str] | None = None,
    *,
    name: str | None = None,
    rater: str | None = None,
) -> list[ReplyRating]:
    """Return ratings, the oldest first.

    Args:
        ledger: Where they are.
        among: The ids of exchanges whose ratings are read; all if None.
        name: Only those of this name.
        rater: Only those of this person.
    """
    conditions, values = ["1"], list[str]()
    if among is not None:
        conditions.append("exchange_id IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(sorted(among)))
    for column, wanted in (("name", name), ("rater", rater)):
        if wanted is not None:
            conditions.append(f"{column} = ?")
            values.append(wanted)
    sql = (
        f"SELECT {', '.join(ReplyRating._fields)} FROM ratings "  # noqa: S608 - our own names
        f"WHERE {' AND '.join(conditions)} ORDER BY rated_at, rater"
    )
    with ledger.opened() as connection:
        return [ReplyRating(*row) for row in connection.execute(sql, values)]


def score_of(values: Iterable[RatedValue]) -> RatedValue | None:
    """Combine the ratings of several raters into one score.

    For yes and no (1 and 0) and for labels it is the most frequent value; None if there
    is a tie. For other numbers it is the mean.
    """
    values = list(values)
    is_number = not any(isinstance(value, str) for value in values)
    if values and is_number and not set(values) <= {0, 1}:
        return fmean(float(value) for value in values)
    counts = Counter(values).most_common(2)
    if not counts or (len(counts) > 1 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


def _without_keys(rating: ReplyRating) -> ReplyRating:
    note = rating.note
    for key in known_keys():
        note = key.redact(note)
    return rating._replace(note=note)


def _write(
    ledger: Ledger,
    sql: str,
    rows: Iterable[Sequence[object]],
    ratings: Iterable[ReplyRating],
) -> None:
    """Execute a statement for each row, and compute the scores of these replies again.

    Both are in one transaction, so that scores always fit the ratings.
    """
    changed = {
        (rating.exchange_id, rating.choice_index, rating.name)
        for rating in ratings
        if len(rating.replies) == 1  # pairs have no score
    }
    scores = list[Score]()
    with ledger.opened() as connection, transaction(connection):
        connection.executemany(sql, rows)
        for reply in sorted(changed):
            values = connection.execute(_VALUES, reply)
            score = score_of(value for (value,) in values)
            if score is None:
                connection.execute(_DELETE_SCORE, (*reply[:2], RATED + reply[2]))
            else:
                scores.append(Score(*reply[:2], RATED + reply[2], score))
        insert_scores(connection, scores, param="rate")
    send_scores(scores)
