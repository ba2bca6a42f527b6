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

    `known` has the columns of each kind of frame; the kind that fits best is tried
    first, because the same name can be a count here and a sum there.
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
            str(frame.dtypes.iloc[at]),
            *(
                _known(name, kinds[:1])
                or _estimated(name, names)
                or _known(name, kinds)
                or _your_own(name)
            ),
        )
        for at, name in enumerate(map(str, frame.columns))
    )
    return to_frame(rows, MEANINGS)


class _Meaning(NamedTuple):
    name: str
    dtype: str
    unit: str | None
    meaning: str


MEANINGS = (
    Column("name", "string", "name", "of the column"),
    Column("dtype", "string", "dtype", "of its values"),
    Column("unit", "string", "unit", "of its numbers or instants, if they have one"),
    Column("meaning", "string", "meaning", "what a value says"),
)
"""The columns of `describe`."""

ADDED = {
    "score_": "your score {!r} of the reply: see svc.score",
    "answer_": "the field {!r} of the answer",
    EXTRA: "the field {!r} of extra, as sent; missing = not sent",
    "n_as_": "replies that answer with {!r}",
    "cost_per_": "all costs, failures included, by the replies that are {!r}",
    "var_": "the column {!r} of the rows, whose name a column of replies has",
}
"""How the names of columns begin that are not in every frame, and what they mean."""
ESTIMATES = {
    "_low": "lower end of the interval (0.95) of {!r}",
    "_high": "upper end of the interval (0.95) of {!r}",
    "": "mean of the score {!r} in a summary; of True and False the share of True",
}
"""How the names of columns end that a summary has for each score."""


def _estimated(name: str, names: Collection[str]) -> tuple[None, str] | None:
    """Say what a column means if the frame has its interval, too."""
    for last, meaning in ESTIMATES.items():
        score = name.removesuffix(last)
        has_all = all(score + ending in names for ending in ESTIMATES)
        if name == score + last and has_all:
            return None, meaning.format(score)
    return None


def _known(
    name: str, kinds: Iterable[Mapping[str, Column]]
) -> tuple[str | None, str] | None:
    """Say what a column means if a kind of frame has it."""
    for kind in kinds:
        if name in kind:
            return kind[name].unit, kind[name].doc
    return None


def _your_own(name: str) -> tuple[str | None, str]:
    """Say what a column means by how its name begins, or that it is the user's."""
    if name == "row":
        return None, "position of the row, from 0"
    for first, meaning in ADDED.items():
        if name.startswith(first):
            return None, meaning.format(name.removeprefix(first))
    return None, "a column of your own: of the rows, of the conditions, or a label"
