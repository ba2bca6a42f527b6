"""Arrange the replies of a frame side by side in a table, and mark what differs.

For replies that are not shown, only the columns that place them in the table are read.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.text_table import (
    ComparedText,
    ComparisonTable,
)
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import check_flag, printable, shorten

from .contrast_sentences import ADJECTIVES
from .missing import missing_lines
from .reply_factors import (
    LABEL,
    TEMPLATE,
    check_replies,
    factors,
    in_words,
    is_rate,
    named,
    row_and_condition_columns,
    scores,
    unit,
)
from .rounding import number
from .summary import say
from .text_diff import Differences

MAX_ROWS = 50
MAX_COLUMNS = 12
MAX_IN_FIELD = 12
_LABEL_CHARS = 60
_N_SCORES = 4  # are shown with a reply
_HALF = 0.5
_N_OWN_COLUMNS = 3  # columns of the user's rows that help to tell prompts apart
_REFUSED = 400  # the HTTP status of a request that would be refused again
# the columns that a table shows; replies that are equal in all of them are shown once
_CONTENT = (
    *("text", "tool_calls", "status", "is_cut", "finish_reason"),
    *("error_type", "http_status", "error_message"),
)
_TIE_BREAKERS = ("repeat", "choice_index")  # shown only where labels would be the same
_NO_REPLY = {
    "planned": "not sent yet",
    "not_run": "not run",
    "cancelled": "interrupted",
}
_USUAL = (None, "stop", "length", "tool_calls")  # finish reasons that need no mark


def compare(
    df: pd.DataFrame,
    *,
    rows: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    markdown: bool = True,
    diff: bool = False,
    title: str = "",
) -> ComparisonTable:
    """Arrange the replies of a frame in a table: see `svc.compare`."""
    df = check_replies(df)
    check_flag("markdown", markdown)
    check_flag("diff", diff)
    _check_texts(df)
    varied = factors(df)
    down = _row_columns(df, varied) if rows is None else named(df, rows, param="rows")
    if columns is None:
        across = [name for name in varied if name not in down] or ["model"]
    else:
        across = named(df, columns, param="columns")
    outside = {*down, *across}
    inside = [name for name in (*varied, *unit(df), "run") if name not in outside]
    fields = _Fields(df, down, across, inside)
    differences = Differences()
    table_rows = []
    for row, key in fields.rows.items():
        of_row = [fields.entries(row, top) for top in fields.heads]
        if diff:
            of_row = differences.mark(of_row)
        elif markdown:
            of_row = [list(map(as_markdown, entries)) for entries in of_row]
        table_rows.append((key, tuple(map(tuple, of_row))))
    say(missing_lines(df))
    return ComparisonTable(
        title=" · ".join((title or f"{len(df):,} replies", *_emulator_notes(df))),
        row_names=tuple(down),
        column_names=tuple(across),
        heads=tuple(fields.heads.values()),
        rows=tuple(table_rows),
        n_more_rows=max(fields.n_rows - MAX_ROWS, 0),
        n_more_columns=max(fields.n_columns - MAX_COLUMNS, 0),
        n_more_replies=fields.n_more_replies,
    )


def _check_texts(df: pd.DataFrame) -> None:
    """Refuse imported replies that have neither texts nor calls of tools."""
    content = [name for name in ("text", "tool_calls") if name in df.columns]
    is_empty = (df["status"] == "ok").all() and df[content].isna().all(axis=None)
    if is_empty and len(df):
        raise ParameterError(
            "No reply of the frame has a text, so there is nothing to show side by "
            "side. Name the column with the texts: svc.as_replies(df, reply=...).",
            param="df",
        )


def _emulator_notes(df: pd.DataFrame) -> list[str]:
    """Return what the emulator says of its replies, such as who wrote them."""
    if "emulator_note" not in df:
        return []
    return [f"emulator: {note}" for note in df["emulator_note"].dropna().unique()]


def find(df: pd.DataFrame, conditions: Mapping[str, object]) -> str:
    """Return the id of the one exchange whose columns have these values.

    Raises:
        ParameterError: No exchange matches, or several do; the message names the
            columns that still differ.
    """
    left = check_replies(df)
    for condition, value in conditions.items():
        [name] = named(df, condition, param=condition)
        is_match = [row_value == value for row_value in plain(left[name])]
        if not any(is_match):
            raise ParameterError(
                f"No reply has {name}={shorten(repr(value), _LABEL_CHARS)}; "
                f"{_choices(left, name)}.",
                param=condition,
            )
        left = left[is_match]
    exchange_ids = left["exchange_id"].dropna().unique()
    if len(exchange_ids) == 1:
        return str(exchange_ids[0])
    if not len(exchange_ids):
        status = _NO_REPLY.get(str(next(iter(left["status"]), "")), "no reply")
        raise ParameterError(
            f"There is no reply to return ({status}). Call run.run() to send the "
            "requests that are missing."
        )
    names = dict.fromkeys((*factors(left), *unit(left), "run", "repeat"))
    more = [_choices(left, name) for name in names if len(left[name].unique()) > 1]
    raise ParameterError(
        f"{len(exchange_ids):,} replies match. Choose one: "
        f"{'; '.join(more) or 'give its exchange_id'}."
    )


def _choices(df: pd.DataFrame, name: str) -> str:
    """Return the values of a column for a message, such as "model is 'a', 'b'"."""
    values = plain(df[name].drop_duplicates().iloc[: MAX_COLUMNS + 1])
    texts = [shorten(repr(value), _LABEL_CHARS) for value in values[:MAX_COLUMNS]]
    more = " and others" if len(values) > MAX_COLUMNS else ""
    return f"{name} is {', '.join(texts)}{more}"


def _row_columns(df: pd.DataFrame, varied: Sequence[str]) -> list[str]:
    """Return the columns that name a table's rows: the prompt, if each unit has one.

    Otherwise they are the columns of the unit, with some columns of the user's rows.
    """
    names = unit(df)
    if "row" in names and df["prompt"].isna().all():  # imported without prompts
        return names
    prompts = df.groupby(names, dropna=False)["prompt"] if len(df) else None
    if prompts is None or prompts.nunique(dropna=False).max() <= 1:
        return ["prompt"]
    extra = [
        name
        for name in row_and_condition_columns(df)
        if name not in varied and not name.endswith((LABEL, TEMPLATE))
    ]
    return list(dict.fromkeys((*names, *extra[:_N_OWN_COLUMNS])))


class _Fields:
    """The fields of a table, and the replies in each.

    Attributes:
        rows: The key of each row that is shown, by its number.
        heads: The key of each column that is shown, by its number.
        n_rows, n_columns: How many rows and columns there are, shown or not.
        n_more_replies: How many replies `entries` has left out so far.
    """

    def __init__(
        self,
        df: pd.DataFrame,
        down: Sequence[str],
        across: Sequence[str],
        inside: Sequence[str],
    ) -> None:
        row, column = numbered(df, down), numbered(df, across)
        self.n_rows = int(row.max()) + 1 if len(df) else 0
        self.n_columns = int(column.max()) + 1 if len(df) else 0
        self.n_more_replies = 0
        is_shown = (row < MAX_ROWS) & (column < MAX_COLUMNS)
        shown, places = df[is_shown], (row[is_shown], column[is_shown])
        self.rows = _keys(shown, places[0], down)
        self.heads = _keys(shown, places[1], across)
        self._labels = _varying_columns(
            shown, places, [x for x in inside if x in df.columns]
        )
        self._tie_breakers = _varying_columns(
            shown, places, [x for x in _TIE_BREAKERS if x in df.columns]
        )
        self._scores = _shown_scores(df)
        names = dict.fromkeys(
            (*self._labels, *self._tie_breakers, *self._scores, *_CONTENT)
        )
        self._values = {
            name: plain(shown[name]) if name in shown else [None] * len(shown)
            for name in names
        }
        self._positions: dict[tuple[int, int], list[int]] = {}
        for position, place in enumerate(zip(*map(list, places), strict=True)):
            self._positions.setdefault(place, []).append(position)

    def entries(self, row: int, top: int) -> list[ComparedText]:
        """Return the replies in a field; replies with equal content appear once."""
        equal: dict[Any, list[int]] = {}
        parts_of_key = (self._labels, _CONTENT, tuple(self._scores))
        for position in self._positions.get((row, top), ()):
            key = tuple(self._read(names, position) for names in parts_of_key)
            equal.setdefault(key, []).append(position)
        n_alike = Counter(labels for labels, *_ in equal)
        shown = list(equal.items())[:MAX_IN_FIELD]
        self.n_more_replies += len(self._positions.get((row, top), ()))
        self.n_more_replies -= sum(len(positions) for _, positions in shown)
        entries = []
        for (labels, content, values), positions in shown:
            parts = list(map(_named_value, self._labels, labels))
            parts += self._scores_in_words(values)
            if len(positions) > 1:
                parts.append(f"{len(positions):,} times")
            elif n_alike[labels] > 1:
                numbers = self._read(self._tie_breakers, positions[0])
                parts += map(_named_value, self._tie_breakers, numbers)
            record = dict(zip(_CONTENT, content, strict=True))
            entries.append(replace(_entry(record), label=" · ".join(parts)))
        return entries

    def _scores_in_words(self, values: Sequence[Any]) -> list[str]:
        return [
            score_text(_short_name(name), value, is_rate=is_share)
            for (name, is_share), value in zip(
                self._scores.items(), values, strict=True
            )
            if value is not None
        ]

    def _read(self, names: Sequence[str], position: int) -> tuple[Any, ...]:
        return tuple(self._values[name][position] for name in names)


def numbered(df: pd.DataFrame, names: Sequence[str]) -> "np.ndarray":
    """Return the number of each row's group, in the order of first appearance."""
    if not names or df.empty:
        return np.zeros(len(df), dtype=int)
    keys = df[list(names)]
    objects = [name for name in names if keys[name].dtype == object]
    keys = keys.assign(**{name: keys[name].map(repr) for name in objects})  # lists
    grouped = keys.groupby(list(names), sort=False, dropna=False)
    return grouped.ngroup().to_numpy()


def _keys(
    df: pd.DataFrame, numbers: "np.ndarray", names: Sequence[str]
) -> dict[int, tuple[str, ...]]:
    """Return, by the number of each group, the values of its columns in words."""
    _, firsts = np.unique(numbers, return_index=True)
    values = [plain(df[name].iloc[firsts]) for name in names]
    keys = zip(*values, strict=True) if names else [()] * len(firsts)
    return {
        int(numbers[first]): tuple(map(in_words, names, key))
        for first, key in zip(firsts, keys, strict=True)
    }


def _varying_columns(
    df: pd.DataFrame, places: tuple["np.ndarray", "np.ndarray"], names: Sequence[str]
) -> list[str]:
    """Return the columns that have several values within some field."""
    if df.empty:
        return []
    index = pd.RangeIndex(len(df))
    keys = [pd.Series(numbers, index=index) for numbers in places]
    return [
        name
        for name in dict.fromkeys(names)
        if df[name].set_axis(index).groupby(keys).nunique(dropna=False).max() > 1
    ]


def plain(values: pd.Series) -> list[Any]:
    """Return the values as Python's own types; None is a missing value."""
    is_missing = values.isna()
    return values.astype(object).where(~is_missing, None).tolist()


def _named_value(name: str, value: Any) -> str:  # noqa: ANN401 - any column's
    text = " ".join(in_words(name, value).split())
    return f"{name.removesuffix('_index')} {shorten(text, _LABEL_CHARS)}"


def score_text(score: str, value: Any, *, is_rate: bool) -> str:  # noqa: ANN401 - a number or a text
    """Say the score of a reply, such as "right", "not right" or "grade 0.5"."""
    if not is_rate:
        text = number(value) if isinstance(value, (int, float)) else str(value)
        return f"{score} {text}"
    is_true = value > _HALF
    if score in ADJECTIVES:
        return score if is_true else f"not {score}"
    return f"{score} is {'true' if is_true else 'false'}"


def _short_name(column: str) -> str:
    return shorten(printable(column.removeprefix(PREFIX)), _LABEL_CHARS)


def _shown_scores(df: pd.DataFrame) -> dict[str, bool]:
    """Return the first scores, and whether each is a rate."""
    names = [name for name in scores(df) if df[name].notna().any()][:_N_SCORES]
    return {
        name: pd.api.types.is_numeric_dtype(df[name].dtype) and is_rate(df, name)
        for name in names
    }


def compared(df: pd.DataFrame) -> list[ComparedText]:
    """Return the reply of each row as a table shows it."""
    values = [
        plain(df[name]) if name in df.columns else [None] * len(df) for name in _CONTENT
    ]
    return [
        _entry(dict(zip(_CONTENT, content, strict=True)))
        for content in zip(*values, strict=True)
    ]


def _entry(content: Mapping[str, Any]) -> ComparedText:
    """Return a reply with marks such as "cut", "refused" or "empty"."""
    text, status, reason = content["text"], content["status"], content["finish_reason"]
    calls = _calls(content["tool_calls"])
    marks = ["cut"] if content["is_cut"] is True else []
    if status == "error":
        marks.append("refused" if content["http_status"] == _REFUSED else "failed")
        marks.append(content["error_type"] or "error")
        text = text or content["error_message"]
    elif status in _NO_REPLY:
        marks.append(_NO_REPLY[status])
    elif reason not in _USUAL:
        marks.append(shorten(reason, _LABEL_CHARS))
    elif calls:
        marks.append("tool calls")
    elif not (text or "").strip():
        marks.append("empty")
    return ComparedText(
        text="\n".join(filter(None, (text, *calls))), marks=tuple(marks)
    )


def _calls(tool_calls: Any) -> list[str]:  # noqa: ANN401 - users may change the frame
    """Return each call of a tool as "name(arguments)"; none if it cannot be read."""
    with suppress(ValueError, TypeError, AttributeError, KeyError):
        called = [call["function"] for call in json.loads(tool_calls)]
        return [f"{call['name']}({call['arguments']})" for call in called]
    return []


def as_markdown(entry: ComparedText) -> ComparedText:
    """Mark a reply as Markdown; errors and calls of tools stay plain text."""
    is_reply = not {"failed", "refused", "tool calls"} & {*entry.marks}
    return replace(entry, is_markdown=is_reply)
