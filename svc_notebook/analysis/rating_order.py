"""The replies of a run to be rated, one by one or in pairs, in their order.

The order is the same for all raters, so that they rate the same replies first, and in
every kernel, so that a rater can continue later. Which reply of a pair is on the left
is drawn for each rater.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from random import Random
from typing import Literal, TypeVar

import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.ratings import RATED, Chosen
from svc_notebook.ledger.scores import PREFIX

from .reply_factors import (
    check_replies,
    coded,
    factors,
    in_words,
    named,
    prompt_codes,
    scores,
    setting_name,
)

_Item = TypeVar("_Item")
First = Literal["differs", "random"]
ReplyKey = tuple[str, int]
"""The exchange_id and the choice_index of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownReply:
    """A reply as it is shown to raters.

    Attributes:
        keys: All replies to the same prompt that have this text; one rating counts for
            all of them.
        text: The text of the reply.
        candidates: The candidates that gave it, such as models; raters see them only if
            they are not blind.
    """

    keys: tuple[ReplyKey, ...]
    text: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingItem:
    """One reply, or a pair of replies, to be rated.

    Attributes:
        number: Its position in the order, from 0.
        replies: One reply, or the left and the right reply of a pair.
        chosen: Whether it was drawn at random, or chosen because replies differ.
    """

    number: int
    replies: tuple[ShownReply, ...]
    chosen: Chosen

    @property
    def id(self) -> str:
        """Its id in a spreadsheet; of a pair, the left reply comes first."""
        return " ".join("{}:{}".format(*reply.keys[0]) for reply in self.replies)

    def pairs(self) -> Iterator[tuple[ReplyKey, ReplyKey | None]]:
        """Return the replies, or pairs of replies, that its rating is saved for."""
        first, *others = self.replies
        for key in first.keys:
            if not others:
                yield key, None
            for other in others:
                yield from ((key, second) for second in other.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingOrder:
    """How the items of a run are chosen.

    Attributes:
        name: The name of the score.
        rater: The name of the rater.
        pairs: The factor whose values are compared in pairs; None for single replies.
        first: Whether replies that differ come first, or all are in random order.
        n: The largest number of items, rounded up to whole rows; all if None.
        seed: The seed of the run.
        unsure: The ids of the exchanges on which a judge is unsure.
    """

    name: str
    rater: str
    pairs: str | None
    first: First
    n: int | None
    seed: int
    unsure: frozenset[str] = frozenset()


def rating_items(df: pd.DataFrame, order: RatingOrder) -> list[RatingItem]:
    """Return the items to be rated, in their order.

    Args:
        df: A frame of replies; failed requests are left out.
        order: How the items are chosen.

    Raises:
        ParameterError: There are no good replies, or `pairs` does not vary in them.
    """
    df = check_replies(df)
    df = df[(df["status"] == "ok") & df["text"].notna()].reset_index(drop=True)
    if df.empty:
        raise ParameterError(
            "The run has no good replies that could be rated. Call run() first.",
            param="run",
        )
    by = factors(df) if order.pairs is None else [_factor(df, order.pairs)]
    within: list[str] | None = None  # a pair has the same values in these columns
    if order.pairs is not None:
        others = [name for name in factors(df) if name not in by]
        within = [*others, "repeat", "choice_index"]
    candidates = _candidates(df, by)
    prompts = prompt_codes(df)
    rows = [group for _, group in df.groupby(prompts, sort=False)]
    Random(f"{order.seed}/rate/{order.name}").shuffle(rows)  # noqa: S311 - no secret
    chosen: Chosen = "random"
    if order.first == "differs":
        ranks = [_rank(row, order) for row in rows]
        if len(set(ranks)) > 1:  # if all ranks are equal, the order remains random
            chosen = "differs"
            rows = [rows[n] for n in sorted(range(len(rows)), key=ranks.__getitem__)]
    sides = Random(f"{order.seed}/rate/{order.name}/{order.rater}")  # noqa: S311 - no secret

    def shuffled(row: pd.DataFrame) -> list[tuple[ShownReply, ...]]:
        groups = [*_groups(row, candidates, within)]
        sides.shuffle(groups)
        return [tuple(sides.sample(group, len(group))) for group in groups]

    shown_replies = whole_rows(map(shuffled, rows), order.n)
    return [
        RatingItem(number=number, replies=replies, chosen=chosen)
        for number, replies in enumerate(shown_replies)
    ]


def whole_rows(rows: Iterable[Sequence[_Item]], n: int | None) -> list[_Item]:
    """Return the items of the first rows, `n` rounded up to whole rows; all if None.

    So each row that is rated or judged has all its replies, which can be compared.
    """
    items = list[_Item]()
    for row in rows:
        if len(items) >= (inf if n is None else n):
            break
        items += row
    return items


def _factor(df: pd.DataFrame, name: str) -> str:
    """Return the column of a factor, if it varies."""
    (column,) = named(df, name, param="pairs")
    if len(coded(df[column])[1]) < 2:  # noqa: PLR2004 - a pair
        raise ParameterError(
            f"pairs={name!r} has only one value in the replies, so there is nothing to "
            "compare. The columns that vary are: "
            f"{', '.join(factors(df)) or 'none'}.",
            param="pairs",
        )
    return column


def _candidates(df: pd.DataFrame, by: Sequence[str]) -> list[str]:
    values = [[in_words(name, value) for value in df[name]] for name in by]
    return [setting_name(parts) for parts in zip(*values, strict=True)] or [""] * len(
        df
    )


def _rank(row: pd.DataFrame, order: RatingOrder) -> int:
    """Return 0 if the scores of a row's replies differ, 1 if the texts do, else 2.

    A row on which a judge is unsure also has rank 0.
    """
    if order.unsure.intersection(row["exchange_id"]):
        return 0
    score = f"{PREFIX}{RATED}{order.name}"  # the score that these ratings become
    for column in scores(row):
        if column != score and len(coded(row[column])[1]) > 1:
            return 0
    return 1 if len(coded(row["text"])[1]) > 1 else 2


def _groups(
    row: pd.DataFrame, candidates: Sequence[str], within: list[str] | None
) -> Iterator[tuple[ShownReply, ...]]:
    """Return the replies to one prompt, one by one or in pairs; each text once."""
    if within is None:
        yield from ((reply,) for reply in _replies(row, candidates))
        return
    for _, group in row.groupby(within, sort=False, dropna=False):
        for left, right in combinations(_replies(group, candidates), 2):
            if len({*left.candidates, *right.candidates}) > 1:
                yield left, right


def _replies(row: pd.DataFrame, candidates: Sequence[str]) -> list[ShownReply]:
    """Return each different text once, with the keys of all replies that have it."""
    exchange_ids, choices = row["exchange_id"].tolist(), row["choice_index"].tolist()
    positions_of = row.groupby("text", sort=False).indices
    return [
        ShownReply(
            keys=tuple((str(exchange_ids[n]), int(choices[n])) for n in positions),
            text=str(text),
            candidates=tuple(
                dict.fromkeys(candidates[int(row.index[n])] for n in positions)
            ),
        )
        for text, positions in positions_of.items()
    ]
