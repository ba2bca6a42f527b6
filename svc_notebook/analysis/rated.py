"""Frames of people's ratings of the replies of a run, and of preferences in pairs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ratings import NO_OTHER, RATED, ReplyRating, read_ratings
from svc_notebook.ledger.reply_columns import Column, as_names
from svc_notebook.ledger.reply_frames import to_frame
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import did_you_mean

from .reply_factors import check_replies, coded, factors, in_words, setting_name
from .reply_factors import unit as prompt_columns

SIDES = ("left", "right", "tie")


class RatedRow(NamedTuple):
    """A rating, with the reply or the pair of replies that was rated."""

    rating: ReplyRating
    row: int | None
    candidate: str
    other_candidate: str | None
    value: float | None
    label: str | None
    other_exchange_id: str | None
    other_choice_index: int | None
    rated_at: datetime


RATINGS = (
    Column("name", "string", "rating.name", "name; its score is rated_NAME"),
    Column("rater", "string", "rating.rater", "who rated"),
    Column("row", "Int64", "row", "position of the row, from 0; missing without rows"),
    Column("candidate", "string", "candidate", "such as the model; in pairs, left"),
    Column(
        "other_candidate", "string", "other_candidate", "the candidate on the right"
    ),
    Column("value", "Float64", "value", "the number; yes is 1 and no is 0"),
    Column("label", "string", "label", "the label; in pairs left, right or tie"),
    Column("note", "string", "rating.note", "what the rater wrote"),
    Column(
        "seconds_s",
        "Float64",
        "rating.seconds_s",
        "how long it took; repeated for equal replies",
    ),
    Column("chosen", "string", "rating.chosen", "random, or differs: see run.rate"),
    Column("exchange_id", "string", "rating.exchange_id", "the reply; in pairs, left"),
    Column("choice_index", "Int64", "rating.choice_index", "its choice, from 0"),
    Column(
        "other_exchange_id", "string", "other_exchange_id", "the reply on the right"
    ),
    Column("other_choice_index", "Int64", "other_choice_index", "its choice, from 0"),
    Column(
        "rated_at",
        "datetime64[us, UTC]",
        "rated_at",
        "its time; equal replies share it",
    ),
)
"""Every column of `ratings_df`, in order."""


def ratings_df(
    df: pd.DataFrame, ledger: Ledger | None, name: str | None = None
) -> pd.DataFrame:
    """List the ratings of the replies of a frame: see `Run.ratings_df`."""
    df = _good_replies(df)
    return to_frame(_rows(df, _ratings(df, ledger, name), factors(df)), RATINGS)


def random_labels(
    df: pd.DataFrame, ledger: Ledger | None, labels: str
) -> tuple[pd.DataFrame, str]:
    """Remove the labels of replies that were not drawn at random for rating.

    Only a random sample of labels can correct scores; see `prediction_powered`.

    Returns:
        The frame, and a sentence that says how many labels were removed; "" if none.

    Raises:
        ParameterError: No label is left.
    """
    column = PREFIX + labels.removeprefix(PREFIX)
    name = column.removeprefix(PREFIX + RATED)
    is_other = _is_chosen(df, ledger, column)
    n_other = int(is_other.sum())
    if not n_other:
        return df, ""
    if n_other == df[column].notna().sum():
        raise ParameterError(
            f"All {n_other:,} labels of {name} are of replies that were rated because "
            "they differ. Only labels drawn at random correct scores: rate some with "
            "run.rate(first='random').",
            param="labels",
        )
    kept = df.assign(**{column: df[column].mask(is_other)})
    return kept, (
        f"{n_other:,} labels of {name} are left out: those replies were rated because "
        "they differ, and only labels drawn at random correct scores. To draw them at "
        "random, call rate(first='random')."
    )


def of_chosen_labels(df: pd.DataFrame, ledger: Ledger | None, labels: str) -> str:
    """Say how many labels are of replies that were not drawn at random for rating.

    Returns:
        A sentence; "" if there are none.
    """
    column = PREFIX + labels.removeprefix(PREFIX)
    n_other = int(_is_chosen(df, ledger, column).sum())
    if not n_other:
        return ""
    return (
        f"{n_other:,} of {int(df[column].notna().sum()):,} labels of "
        f"{column.removeprefix(PREFIX + RATED)} are of replies that were rated because "
        "they differ, so the figures may not hold for all replies. To draw replies at "
        "random, call rate(first='random')."
    )


def _is_chosen(df: pd.DataFrame, ledger: Ledger | None, column: str) -> pd.Series:
    """Return which replies have a label and were not drawn at random for it.

    Where every reply has a label nothing was chosen, whatever came first.
    """
    name = column.removeprefix(PREFIX + RATED)
    none = pd.Series(data=False, index=df.index)
    if ledger is None or column not in df.columns or name == column:
        return none
    if df.loc[df["status"] == "ok", column].notna().all():
        return none
    ratings = read_ratings(ledger, set(df["exchange_id"].dropna()), name=name)
    random = {rating.replies for rating in ratings if rating.chosen == "random"}
    other = {rating.replies for rating in ratings} - random
    keys = zip(df["exchange_id"], df["choice_index"], strict=True)
    is_other = pd.Series([(key,) in other for key in keys], index=df.index)
    return is_other & df[column].notna()


def preferences(
    df: pd.DataFrame,
    ledger: Ledger | None,
    name: str,
    *,
    unit: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the preferences in pairs, as `svc.ranking` takes them.

    Args:
        df: A frame of replies.
        ledger: The ledger with the ratings.
        name: The name of the ratings, such as `rated_pairs`.
        unit: Further columns of the frame to include.

    Returns:
        One row for each pair of replies and rater: `row` or `prompt`, the columns of
        the unit, `left` and `right` (two candidates), `winner` ("left", "right" or
        "tie"), and `rater`.

    Raises:
        ParameterError: There are no such ratings of pairs.
    """
    df = _good_replies(df)
    ratings = _ratings(df, ledger, name)
    pairs = [rating for rating in ratings if rating.value in SIDES]
    if not pairs:
        names = {rating.name for rating in _ratings(df, ledger, None)}
        known = [RATED + known for known in sorted(names)]
        raise ParameterError(
            f"There are no ratings of pairs called {name!r}. To rate pairs, call "
            f"run.rate(pairs='model').{did_you_mean(name, known, n=1)}",
            param="on",
        )
    by = _compared_factors(df, pairs)
    keys = [*dict.fromkeys([*prompt_columns(df), *as_names(unit or [])])]
    position_of = _positions(df)
    first = [position_of[rating.replies[0]] for rating in pairs]
    rows = [
        (row.candidate, row.other_candidate, row.label, row.rating.rater)
        for row in _rows(df, pairs, by)
    ]
    frame = pd.DataFrame(rows, columns=["left", "right", "winner", "rater"])
    prompts = df[keys].iloc[first].reset_index(drop=True)
    frame = pd.concat([prompts, frame], axis="columns")
    return frame[frame["left"] != frame["right"]].reset_index(drop=True)


def _good_replies(df: pd.DataFrame) -> pd.DataFrame:
    df = check_replies(df)
    return df[df["status"] == "ok"].reset_index(drop=True)


def _positions(df: pd.DataFrame) -> dict[tuple[str, int], int]:
    """Return the position of each reply in the frame, by exchange and choice."""
    keys = zip(df["exchange_id"], df["choice_index"], strict=True)
    return {
        (exchange_id, int(index)): position
        for position, (exchange_id, index) in enumerate(keys)
    }


def _ratings(
    df: pd.DataFrame, ledger: Ledger | None, name: str | None
) -> list[ReplyRating]:
    if ledger is None:
        return []
    position_of = _positions(df)
    ids = {exchange_id for exchange_id, _ in position_of}
    name = name and name.removeprefix(RATED)
    ratings = read_ratings(ledger, ids, name=name)
    return [rating for rating in ratings if {*rating.replies} <= position_of.keys()]


def _compared_factors(df: pd.DataFrame, pairs: Sequence[ReplyRating]) -> list[str]:
    """Return the factors in which the two replies of some pair differ."""
    position_of = _positions(df)
    sides = list(
        zip(
            *([position_of[key] for key in pair.replies] for pair in pairs), strict=True
        )
    )
    codes = {name: coded(df[name])[0] for name in factors(df)}
    return [
        name
        for name, code in codes.items()
        if (code[list(sides[0])] != code[list(sides[1])]).any()
    ]


def _rows(
    df: pd.DataFrame, ratings: Iterable[ReplyRating], by: Sequence[str]
) -> Iterator[RatedRow]:
    position_of = _positions(df)
    values = [[in_words(name, value) for value in df[name]] for name in by]
    candidates = [setting_name(parts) for parts in zip(*values, strict=True)]
    candidates = candidates or [""] * len(df)
    rows = df["row"] if "row" in df.columns else None
    for rating in ratings:
        first, *others = (position_of[key] for key in rating.replies)
        is_text = isinstance(rating.value, str)
        is_pair = (rating.other_exchange_id, rating.other_choice_index) != NO_OTHER
        yield RatedRow(
            rating=rating,
            row=None if rows is None else int(rows[first]),
            candidate=candidates[first],
            other_candidate=candidates[others[0]] if others else None,
            value=None if is_text or rating.value is None else float(rating.value),
            label=str(rating.value) if is_text else None,
            other_exchange_id=rating.other_exchange_id if is_pair else None,
            other_choice_index=rating.other_choice_index if is_pair else None,
            rated_at=datetime.fromisoformat(rating.rated_at),
        )
