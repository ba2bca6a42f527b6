"""Join several runs into one frame, and choose the columns that pair their replies."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import is_run_id
from svc_notebook.ledger.frame_interchange import is_interchangeable
from svc_notebook.ledger.reply_columns import as_names

from .reply_factors import attributes, check_replies, coded
from .run_differences import RunFacts
from .scoring import source_digest

RUN = "run"
REGRESSED, IMPROVED = "regressed", "improved"
"""What happened to rows that only the earlier run gets right, or only the later one."""


class Joined(NamedTuple):
    """Several runs as one frame.

    Attributes:
        df: The replies of all runs, each with the name of its run in `run`.
        names: The names of the runs, the earlier run first.
        pair_by: The columns that pair their replies: the row, or the prompt if one of
            the runs has no rows.
        facts: What else is known of the runs that are no frames, by name.
    """

    df: pd.DataFrame
    names: list[str]
    pair_by: list[str]
    facts: dict[str, RunFacts]


def joined(
    runs: Any,  # noqa: ANN401 - not checked yet
    pair_by: str | Sequence[str] | None = None,
) -> Joined:
    """Join runs, or frames of replies, into one frame.

    Args:
        runs: A list, the earlier run first, or a mapping from names to runs. In a list,
            runs keep their names if all are different; a run without a name is called
            `run 1`, `run 2` and so on, by its place.
        pair_by: The columns to pair by; if None, the row if all runs have rows, else
            the prompt.

    Raises:
        ParameterError: There are fewer than two runs, one is not a frame of replies, or
            a row has different values in two of them.
    """
    is_named = isinstance(runs, Mapping)
    runs_in_order = [*(runs.values() if is_named else runs)]
    frames = [_frame(run) for run in runs_in_order]
    if len(frames) < 2:  # noqa: PLR2004 - one run has nothing to be compared with
        raise ParameterError(
            "Give at least two runs, the earlier one first: "
            "svc.contrast([old, new], 'run').",
            param="df",
        )
    names = [str(name) for name in runs] if is_named else _names(frames)
    if pair_by is None:
        pair_by = "row" if all(map(_has_rows, frames)) else "prompt"
        if pair_by == "row":
            _check_rows(frames, names)
    labelled = [
        frame.assign(run=pd.array([name] * len(frame), dtype="string"))
        for frame, name in zip(frames, names, strict=True)
    ]
    columns = list(map(str, as_names(pair_by)))
    facts = {
        name: _facts(run.plan)
        for name, run in zip(names, runs_in_order, strict=True)
        if hasattr(run, "plan")
    }
    return Joined(pd.concat(labelled, ignore_index=True), names, columns, facts)


def is_several(runs: object) -> bool:
    """Say whether these are several runs, not one frame."""
    return isinstance(runs, list | tuple | Mapping)


def is_run(value: object) -> bool:
    """Say whether this is a run or a frame of replies, not a value of a factor."""
    is_frame = isinstance(value, pd.DataFrame) or is_interchangeable(value)
    return is_frame or hasattr(value, "replies_df")


def _frame(run: Any) -> pd.DataFrame:  # noqa: ANN401 - not checked yet
    return check_replies(run.replies_df() if hasattr(run, "replies_df") else run)


def _facts(plan: Any) -> RunFacts:  # noqa: ANN401 - of a layer above
    offered = [tools for tools in plan.grid.values_of("tools") if tools]
    names = dict.fromkeys(
        str(tool["function"]["name"]) for tools in offered for tool in tools
    )
    return RunFacts(
        scores={name: source_digest(score) for name, score in plan.scores.items()},
        tools=(", ".join(names), json.dumps(offered, sort_keys=True)),
    )


def _names(frames: Sequence[pd.DataFrame]) -> list[str]:
    """Return the name of each run: its own, or else its place in the list."""
    places = [f"run {number}" for number in range(1, len(frames) + 1)]
    names = [
        own if (own := _own_name(frame)) else place
        for frame, place in zip(frames, places, strict=True)
    ]
    return names if len(set(names)) == len(names) else places


def _own_name(frame: pd.DataFrame) -> str:
    """Return the name of the one run of a frame; "" if it has none, or only an id."""
    runs = list(frame[RUN].unique()) if RUN in frame else []
    is_named = len(runs) == 1 and not pd.isna(runs[0]) and not is_run_id(str(runs[0]))
    return str(runs[0]) if is_named else ""


def _has_rows(frame: pd.DataFrame) -> bool:
    return "row" in frame.columns and not frame["row"].isna().any()


def _check_rows(frames: Sequence[pd.DataFrame], names: Sequence[str]) -> None:
    """Refuse runs whose rows differ: they must not be paired by row number alone."""
    first = frames[0]
    for frame, name in zip(frames[1:], names[1:], strict=True):
        shared = [x for x in attributes(first) if x in attributes(frame)]
        for column in shared:
            if (row := _different_row(first, frame, column)) is not None:
                raise ParameterError(
                    f"Row {row} is not the same in {names[0]} and in {name}: its "
                    f"{column} differs. Pair by a column that both have, such as "
                    f"pair_by={column!r}, or by the text: pair_by='prompt'.",
                    param="pair_by",
                )


def _different_row(first: pd.DataFrame, second: pd.DataFrame, column: str) -> object:
    """Return the first row whose values in a column differ; None if all are equal."""
    both = pd.concat([_by_row(first, column), _by_row(second, column)])
    codes = pd.Series(coded(both[column])[0], both["row"].to_numpy())
    n_values = codes.groupby(level=0, sort=True).nunique()
    several: Iterable[object] = n_values.index[n_values.to_numpy() > 1]
    return next(iter(several), None)


def _by_row(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    rows = frame[["row", column]].drop_duplicates("row")
    return rows.astype({column: object}).reset_index(drop=True)
