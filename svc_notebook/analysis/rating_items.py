"""What is rated, in which order: replies of a run, one by one or in pairs.

The order is the same for all raters, so that they meet at the same replies, and in
every kernel, so that a rater goes on where they ended. What is on the left is drawn for
each rater.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from random import Random
from typing import Literal

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
)

First = Literal["differs", "random"]
ReplyKey = tuple[str, int]
"""The exchange_id and the index of a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownReply:
    """A reply as it is rated.

    Attributes:
        keys: The replies it stands for: those that say the same to the same prompt.
        text: What it says.
        candidates: What made it, such as a model; raters do not see it if they are
            blind.
    """

    keys: tuple[ReplyKey, ...]
    text: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingItem:
    """What is rated at once.

    Attributes:
        number: Its place in the order, from 0.
        replies: One, or the left and the right one.
        chosen: Whether it comes at random, or because replies differ.
    """

    number: int
    replies: tuple[ShownReply, ...]
    chosen: Chosen

    @property
    def id(self) -> str:
        """What names it in a spreadsheet; of two replies the left one is first."""
        return " ".join("{}:{}".format(*reply.keys[0]) for reply in self.replies)

    def pairs(self) -> Iterator[tuple[ReplyKey, ReplyKey | None]]:
        """Return the replies that a rating of it is kept for."""
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
        rater: Who rates.
        pairs: The factor whose values are compared in pairs; None for single replies.
        first: Whether replies that differ come first, or all at random.
        n: How many at most, rounded up to whole rows; all if None.
        seed: That of the run.
        unsure: The exchanges on which a judge is unsure.
    """

    name: str
    rater: str
    pairs: str | None
    first: First
    n: int | None
    seed: int
    unsure: frozenset[str] = frozenset()


def rating_items(df: pd.DataFrame, order: RatingOrder) -> list[RatingItem]:
    """Return what is rated, in its order.

    Args:
        df: A frame of replies; those that failed are left out.
        order: How they are chosen.

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
    apart: list[str] | None = None  # replies that differ in these are no pair
    if order.pairs is not None:
        others = [name for name in factors(df) if name not in by]
        apart = [*others, "repeat", "choice_index"]
    candidates = _candidates(df, by)
    prompts = prompt_codes(df)
    rows = [group for _, group in df.groupby(prompts, sort=False)]
    Random(f"{order.seed}/rate/{order.name}").shuffle(rows)  # noqa: S311 - no secret
    chosen: Chosen = "random"
    if order.first == "differs":
        ranks = [_rank(row, order) for row in rows]
        if len(set(ranks)) > 1:  # else the order says nothing, and is at random
            chosen = "differs"
            rows = [rows[at] for at in sorted(range(len(rows)), key=ranks.__getitem__)]
    sides = Random(f"{order.seed}/rate/{order.name}/{order.rater}")  # noqa: S311 - no secret
    items = list[RatingItem]()
    for row in rows:
        if len(items) >= (inf if order.n is None else order.n):
            break
        shown = [*_shown(row, candidates, apart)]
        sides.shuffle(shown)
        items += [
            RatingItem(
                number=len(items) + nth,
                replies=tuple(sides.sample(group, len(group))),
                chosen=chosen,
            )
            for nth, group in enumerate(shown)
        ]
    return items


def _factor(df: pd.DataFrame, name: str) -> str:
    """Return the column of a factor, if it varies."""
    (column,) = named(df, name, param="pairs")
    if len(coded(df[column])[1]) < 2:  # noqa: PLR2004 - a pair
        raise ParameterError(
            f"pairs={name!r} has one value in the replies, so there is nothing to "
            f"compare. What varies is {', '.join(factors(df)) or 'nothing'}.",
            param="pairs",
        )
    return column


def _candidates(df: pd.DataFrame, by: Sequence[str]) -> list[str]:
    values = [[in_words(name, value) for value in df[name]] for name in by]
    return [" · ".join(parts) for parts in zip(*values, strict=True)] or [""] * len(df)


def _rank(row: pd.DataFrame, order: RatingOrder) -> int:
    """Return 0 for a row whose scores differ, 1 for one whose texts do, else 2.

    A row about which a judge is unsure comes with those whose scores differ.
    """
    if order.unsure.intersection(row["exchange_id"]):
        return 0
    own = f"{PREFIX}{RATED}{order.name}"
    for column in scores(row):
        if column != own and len(coded(row[column])[1]) > 1:
            return 0
    return 1 if len(coded(row["text"])[1]) > 1 else 2


def _shown(
    row: pd.DataFrame, candidates: Sequence[str], apart: list[str] | None
) -> Iterator[tuple[ShownReply, ...]]:
    """Return the replies to one prompt, one by one or in pairs; each text once."""
    if apart is None:
        yield from ((reply,) for reply in _replies(row, candidates))
        return
    for _, group in row.groupby(apart, sort=False, dropna=False):
        for left, right in combinations(_replies(group, candidates), 2):
            if len({*left.candidates, *right.candidates}) > 1:
                yield left, right


def _replies(row: pd.DataFrame, candidates: Sequence[str]) -> list[ShownReply]:
    places_of = row.groupby("text", sort=False).indices
    return [
        ShownReply(
            keys=tuple(
                (str(row["exchange_id"].iloc[at]), int(row["choice_index"].iloc[at]))
                for at in places
            ),
            text=str(text),
            candidates=tuple(
                dict.fromkeys(candidates[int(row.index[at])] for at in places)
            ),
        )
        for text, places in places_of.items()
    ]
