"""What the columns of a frame mean: see `svc.describe`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from svc_notebook.errors import ParameterError

from .frame_interchange import to_pandas
from .reply_columns import EXTRA, REPLIES, Column
from .reply_frames import to_frame


def describe(
    frame: pd.DataFrame, known: Iterable[Sequence[Column]] = (REPLIES,)
) -> pd.DataFrame:
    """Say what the columns of a frame mean: see `svc.describe`.

    `known` has the columns of each kind of frame. The kind that shares most names with
    the frame is tried first, because a name can mean a count in one kind of frame and a
    sum in another.
    """
    frame = to_pandas(frame)
    if not isinstance(frame, pd.DataFrame):
        raise ParameterError(
            "describe takes a DataFrame such as svc.replies_df(), not "
            f"{type(frame).__name__}.",
            param="df",
        )
    names = {str(name) for name in frame.columns}
    kinds = [{column.name: column for column in kind} for kind in known]
    kinds.sort(key=lambda kind: len(names & kind.keys()), reverse=True)
    rows = (
        _Meaning(
            name,
            str(frame.dtypes.iloc[position]),
            *(
                _meaning_in(name, kinds[:1])
                or _meaning_of_estimate(name, names)
                or _meaning_in(name, kinds)
                or _meaning_by_prefix(name)
            ),
        )
        for position, name in enumerate(map(str, frame.columns))
    )
    return to_frame(rows, MEANINGS)


class _Meaning(NamedTuple):
    name: str
    dtype: str
    unit: str | None
    meaning: str


MEANINGS = (
    Column("name", "string", "name", "name of the column"),
    Column("dtype", "string", "dtype", "dtype of its values"),
    Column("unit", "string", "unit", "unit of its values, if they have one"),
    Column("meaning", "string", "meaning", "what a value says"),
)
"""The columns of `describe`."""

ADDED = {
    "score_": "your score {!r} of the reply: see svc.score",
    "answer_": "the field {!r} of the answer; a Decimal is a Float64, a date a "
    "datetime64, a list JSON text",
    EXTRA: "the field {!r} of extra, as sent; missing = not sent",
    "n_as_": "replies that answer with {!r}",
    "n_units_": "number of units the interval of {!r} is over, if not n_units",
    "n_scored_": "replies with the score {!r}, if not n_scored",
    "n_prompts_": "different prompts with the score {!r}, if not n_prompts",
    "cost_per_": "costs of the replies with the score {0!r} and of as large a share of "
    "the failures, divided by the replies that are {0!r}",
    "var_": "the column {!r} of the rows, renamed because replies have that name",
}
"""Prefixes of columns that not every frame has, and what such columns mean."""
ESTIMATES = {
    "_low": "lower end of the interval (0.95) of {!r}",
    "_high": "upper end of the interval (0.95) of {!r}",
    "": "mean of the score {!r} in a summary; for True and False the share of True",
}
"""Suffixes of the columns that a summary has for each score."""


def _meaning_of_estimate(name: str, names: Collection[str]) -> tuple[None, str] | None:
    """Return what a mean, or an end of its interval, means if the frame has all."""
    for suffix, meaning in ESTIMATES.items():
        score = name.removesuffix(suffix)
        has_all = all(score + other in names for other in ESTIMATES)
        if name == score + suffix and has_all:
            return None, meaning.format(score)
    return None


def _meaning_in(
    name: str, kinds: Iterable[Mapping[str, Column]]
) -> tuple[str | None, str] | None:
    """Return what a column means in the first kind of frame that has it."""
    for kind in kinds:
        if name in kind:
            return kind[name].unit, kind[name].doc
    return None


def _meaning_by_prefix(name: str) -> tuple[str | None, str]:
    """Return what a column means by its prefix, or that it is the user's own."""
    if name == "row":
        return None, "position of the row, from 0"
    for prefix, meaning in ADDED.items():
        if name.startswith(prefix):
            return None, meaning.format(name.removeprefix(prefix))
    return None, "your own column: from the rows or the conditions, or a label"
