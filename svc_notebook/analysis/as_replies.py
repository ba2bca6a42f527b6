"""Turn any DataFrame into a frame of replies: name, check and fill in its columns."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import numpy as np
import pandas as pd

from svc_notebook.display.front_end import write_warning
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.reply_columns import (
    ANSWER,
    LATER,
    REPLIES,
    Column,
    RowStatus,
    as_names,
)
from svc_notebook.ledger.reply_frames import put_score, to_array
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import did_you_mean, shorten, shown

from .reply_factors import LABEL, SENT, check_column_names, check_replies, prompt_codes

_STATUSES = get_args(RowStatus)
_COLUMNS = {column.name: column for column in REPLIES}
_LABELS = tuple(f"{name}{LABEL}" for name in ("prompt", "system", "model"))
_NAMES = ("row", *_LABELS, *_COLUMNS)
# the finish reasons of a reply that was cut, as several services spell them
_CUT = ("length", "max_tokens", "model_length")
_DEFAULTS: dict[str, Any] = {
    "choice_index": 0,
    "is_cut": False,
    "is_emulated": False,
    "is_reused": False,
}
_CONVERSIONS = {
    "string": ("text", "df[{0!r}].map(str, na_action='ignore')"),
    "Int64": ("whole numbers", "pd.to_numeric(df[{0!r}]).round()"),
    "Float64": ("numbers", "pd.to_numeric(df[{0!r}])"),
    "boolean": ("True and False", "df[{0!r}] == 'yes'"),
    "datetime64[us, UTC]": ("instants", "pd.to_datetime(df[{0!r}], utc=True)"),
}
"""For each dtype: what such a column holds, and code that converts a column to it."""


def as_replies(
    df: Any,  # noqa: ANN401 - pandas, or what gives an Arrow stream
    reply: str | None = None,
    *,
    scores: str | Iterable[str] = (),
    factors: str | Iterable[str] = (),
    columns: Mapping[str, str],
) -> pd.DataFrame:
    """Turn any frame into a frame of replies: see `svc.as_replies`.

    `columns` maps names of `REPLIES` to names in the source.
    """
    source = _plain_frame(df)
    names = list(map(str, source.columns))
    named = dict(columns) if reply is None else {"text": reply, **columns}
    _check_names(source, named, as_names(scores), as_names(factors))
    taken = {*named, *named.values()}
    named |= {name: name for name in _NAMES if name in names and name not in taken}
    ours = {name: _typed(source, theirs, name) for name, theirs in named.items()}
    outcomes = [*as_names(scores), *(x for x in names if x.startswith(PREFIX))]
    scored = {
        PREFIX + name.removeprefix(PREFIX): _score(source, name)
        for name in dict.fromkeys(outcomes)
    }
    extra = {
        name: _without_objects(source[name])
        for name in names
        if name not in {*named.values(), *outcomes}
    }
    front = [name for name in extra if name in as_names(factors)]
    return _filled_frame(source, ours, extra, scored, front)


def _plain_frame(df: Any) -> pd.DataFrame:  # noqa: ANN401 - not checked yet
    """Return a pandas frame with a plain index; a named index becomes columns."""
    frame = to_pandas(df)
    if not isinstance(frame, pd.DataFrame):
        raise ParameterError(
            "df must be a pandas or Polars DataFrame, or an Arrow table, with one row "
            f"for each reply; got a value of type {type(df).__name__}.",
            param="df",
        )
    is_plain = all(name is None for name in frame.index.names)
    frame = frame.reset_index(drop=is_plain)
    names = list(map(str, frame.columns))
    check_column_names(names)
    return frame.set_axis(names, axis="columns")


def _check_names(
    source: pd.DataFrame, named: Mapping[str, str], *more: Iterable[str]
) -> None:
    for ours in named:
        if ours not in _NAMES:
            raise ParameterError(
                f"{ours} is not a column of replies.{did_you_mean(ours, _NAMES, n=1)} "
                f"The allowed names are reply, {', '.join(_NAMES)}. Other columns of "
                "your frame are kept as they are: list those that are scores in "
                "scores=, and those that are factors in factors=.",
                param=ours,
            )
    wanted = [*named.items()]
    for param, names in zip(("scores", "factors"), more, strict=True):
        wanted += [(param, name) for name in names]
    for param, theirs in wanted:
        if theirs not in source.columns:
            argument = "reply" if param == "text" else param
            known = list(source.columns)
            raise ParameterError(
                f"{argument}={shown(theirs)} is not a column of the frame."
                f"{did_you_mean(str(theirs), known, n=1)} Its columns are "
                f"{', '.join(known) or 'none'}.",
                param=argument,
            )


def _typed(source: pd.DataFrame, theirs: str, name: str) -> Any:  # noqa: ANN401 - an array or a column
    """Return a column of the source with the dtype that `name` has in `REPLIES`."""
    values = source[theirs]
    column = _COLUMNS.get(name)
    if name == "row":
        _check_row(values, theirs)
    if column is None or column is ANSWER:  # an answer may be of any type
        return _without_objects(values)
    if values.isna().all():
        return to_array([None] * len(values), column.dtype)
    try:
        typed: Any = _converted(values, column)
    except (TypeError, ValueError, OverflowError):
        typed = None
    if typed is None:
        kind, how = _CONVERSIONS[column.dtype]
        example = shorten(repr(values.dropna().iloc[0]), 40)
        raise ParameterError(
            f"The column {theirs!r} is used as {name}, which must be {kind}; it holds "
            f"{example}. Convert it first, for example with {how.format(theirs)}.",
            param="reply" if name == "text" else name,
        )
    return typed


def _converted(values: pd.Series, column: Column) -> Any:  # noqa: ANN401 - an array, or None
    """Return the values with the column's dtype; None if they cannot have it."""
    present = values.dropna()
    plain = present.tolist()
    if column.dtype == "string":
        is_text = all(isinstance(value, str) for value in plain)
        texts = values.astype(object).where(values.notna(), None)
        return to_array(texts.tolist(), "string") if is_text else None
    if column.dtype.startswith("datetime"):
        instants = pd.to_datetime(values, utc=True, format="ISO8601")
        return instants.dt.as_unit("us").array
    is_flag = all(isinstance(value, (bool, np.bool_)) for value in plain)
    if column.dtype == "boolean":
        return (
            values.astype("boolean").array if is_flag or set(plain) <= {0, 1} else None
        )
    is_number = pd.api.types.is_numeric_dtype(present.infer_objects().dtype)
    if is_flag or not is_number:
        return None
    if column.dtype == "Int64" and not (present.astype("float64") % 1 == 0).all():
        return None
    return pd.to_numeric(values).astype(column.dtype).array


def _check_row(values: pd.Series, theirs: str) -> None:
    if n := int(values.isna().sum()):
        raise ParameterError(
            f"The column {theirs!r} is used as row, which says which question a reply "
            f"answers, but {n} of its values are missing. Fill them in, or remove "
            "these rows.",
            param="row",
        )


def _score(source: pd.DataFrame, name: str) -> Any:  # noqa: ANN401 - a column
    values = _without_objects(source[name])
    if values.dtype.kind == "c" or values.dtype.kind in "mM":
        raise ParameterError(
            f"The column {name!r} cannot be a score: scores are numbers, True and "
            f"False, or texts, and it holds {shorten(repr(values.iloc[0]), 40)}.",
            param="scores",
        )
    return values


def _without_objects(values: pd.Series) -> pd.Series:
    """Return a column that is not of dtype object; lists and the like become texts."""
    if values.dtype != object:
        return values
    values = values.convert_dtypes()
    if values.dtype == object:
        texts = [None if value is None else str(value) for value in values]
        values = pd.Series(texts, index=values.index, dtype="string")
    return values


def _filled_frame(
    source: pd.DataFrame,
    ours: dict[str, Any],
    extra: dict[str, Any],
    scored: dict[str, Any],
    front: list[str],
) -> pd.DataFrame:
    """Return the frame of replies, and fill in columns that follow from others."""
    n = len(source)
    if not {"row", "prompt"} & {*ours} and n:
        write_warning(
            "Neither row= nor prompt= is given, so each reply counts as a separate "
            "prompt, and replies are not compared in pairs. Name the column that says "
            "which replies answer the same question, such as row='id'."
        )
        ours["row"] = pd.array(np.arange(n), dtype="Int64")
    frame = pd.DataFrame(
        {
            column.name: ours.get(column.name, to_array([None] * n, column.dtype))
            for column in REPLIES
        },
        index=source.index,
    )
    for name, value in _DEFAULTS.items():
        frame[name] = frame[name].fillna(value)
    _fill_status(frame)
    _fill_cuts(frame)
    _fill_tokens(frame)
    for name, values in scored.items():
        put_score(frame, name, values)
    ahead = {name: ours[name] for name in ("row", *_LABELS) if name in ours}
    known = frame.assign(**ahead)
    front += _constant(
        known, {name: extra[name] for name in extra if name not in front}
    )
    ahead |= {_free_name(name, known): extra[name] for name in extra if name in front}
    behind = {
        _free_name(name, known): extra[name] for name in extra if name not in front
    }
    if "repeat" not in ours:
        frame["repeat"] = _repeat_numbers(frame, ahead)
    if "exchange_id" not in ours:
        frame["exchange_id"] = _exchange_ids(frame.assign(**ahead))
    first, last = (pd.DataFrame(part, index=frame.index) for part in (ahead, behind))
    return check_replies(pd.concat([first, frame, last], axis="columns"))


def _fill_status(frame: pd.DataFrame) -> None:
    """Fill in missing statuses: ok for a reply with a text and without an error."""
    if unknown := set(frame["status"].dropna()) - {*_STATUSES}:
        raise ParameterError(
            f"status has {shown(min(unknown))}; it must be one of "
            f"{', '.join(_STATUSES)}. Without status= a reply is ok if it has a text "
            "and no error_message.",
            param="status",
        )
    is_bad = frame["error_message"].notna() | frame["error_type"].notna()
    if frame["text"].notna().any():
        is_bad |= frame["text"].isna()
    statuses = pd.Series(np.where(is_bad, "error", "ok"), index=frame.index)
    frame["status"] = frame["status"].fillna(statuses.astype("string"))


def _fill_cuts(frame: pd.DataFrame) -> None:
    is_length = frame["finish_reason"].isin(_CUT)
    # without a good reply, is_cut is a missing value
    frame["is_cut"] = (frame["is_cut"] | is_length).mask(frame["status"] != "ok")


def _fill_tokens(frame: pd.DataFrame) -> None:
    total = frame["prompt_tokens"] + frame["completion_tokens"]
    frame["total_tokens"] = frame["total_tokens"].fillna(total)
    is_known = frame["usage_source"].isna() & frame["total_tokens"].notna()
    frame["usage_source"] = frame["usage_source"].mask(is_known, "reported")


def _constant(frame: pd.DataFrame, extra: Mapping[str, Any]) -> list[str]:
    """Return the columns that have a single value for each prompt.

    They belong to the rows, so they come before `text`, where columns may be factors.
    A column that differs between the replies to one prompt may be an outcome, so it
    comes after `text`.
    """
    prompt = pd.Series(prompt_codes(frame), index=frame.index)
    is_constant = {
        name: values.groupby(prompt).nunique(dropna=False).le(1).all()
        for name, values in extra.items()
    }
    has_repeats = len(frame) > prompt.nunique()  # else every column would be constant
    return [name for name, is_one in is_constant.items() if is_one and has_repeats]


def _free_name(name: str, frame: pd.DataFrame) -> str:
    """Return a name that no other column has or can get later."""
    while name in frame.columns or name.startswith(LATER):
        name = "var_" + name
    return name


def _repeat_numbers(frame: pd.DataFrame, conditions: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an array
    """Number the replies to one prompt under one condition, in the frame's order."""
    names = ["run", "choice_index", *(name for name in SENT if name in frame.columns)]
    keys = frame[names].assign(**conditions)
    return keys.groupby(list(keys.columns), dropna=False).cumcount().astype("Int64")


def _exchange_ids(frame: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return an id for each row: a hash of its content and a count of equal rows.

    So the same row has the same id each time that the frame is read.
    """
    filled = frame.dropna(axis="columns", how="all")
    content = pd.util.hash_pandas_object(filled, index=False)
    n_equal = content.groupby(content).cumcount()
    ids = [f"{value:016x}-{n}" for value, n in zip(content, n_equal, strict=True)]
    return to_array(ids, "string")
