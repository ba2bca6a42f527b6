"""Replies of a frame side by side: rows, columns, labels, and what differs.

Of replies that are not shown, only the columns are read that say where they belong.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.comparison_table import (
    ComparedText,
    ComparisonTable,
)
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import REPLIES
from svc_notebook.service.params import check_flag, shorten

from .missing import missing_lines
from .reply_factors import (
    LABEL,
    TEMPLATE,
    check_replies,
    factors,
    in_words,
    named,
    unit,
)
from .summary import say
from .text_diff import Differences

MAX_ROWS = 50
MAX_COLUMNS = 12
MAX_IN_FIELD = 12
_LABEL_CHARS = 60
_N_OWN = 3
_REFUSED = 400  # the status of what would be refused again
# what a table shows of a reply; replies that are equal in all this are shown once
_SAID = (
    *("text", "tool_calls", "status", "is_cut", "finish_reason"),
    *("error_type", "http_status", "error_message"),
)
_AGAIN = ("repeat", "choice_index")  # shown only where labels would be the same
_INSTEAD = {
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
    down = _down(df, varied) if rows is None else named(df, rows, param="rows")
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
    """Refuse replies that came from elsewhere without what they say."""
    said = [name for name in ("text", "tool_calls") if name in df.columns]
    is_silent = (df["status"] == "ok").all() and df[said].isna().all(axis=None)
    if is_silent and len(df):
        raise ParameterError(
            "No reply of the frame has a text, so there is nothing to set side by "
            "side. svc.as_replies(df, reply=...) names the column with the texts.",
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
        ParameterError: No reply fits, or several do; the message says what still
            varies.
    """
    left = check_replies(df)
    for condition, value in conditions.items():
        [name] = named(df, condition, param=condition)
        is_meant = [row_value == value for row_value in plain(left[name])]
        if not any(is_meant):
            raise ParameterError(
                f"No reply has {name}={shorten(repr(value), _LABEL_CHARS)}; "
                f"{_choices(left, name)}.",
                param=condition,
            )
        left = left[is_meant]
    exchange_ids = left["exchange_id"].dropna().unique()
    if len(exchange_ids) == 1:
        return str(exchange_ids[0])
    if not len(exchange_ids):
        status = _INSTEAD.get(str(next(iter(left["status"]), "")), "no reply")
        raise ParameterError(
            f"There is no reply to return: {status}. run.run() sends what is missing."
        )
    names = dict.fromkeys((*factors(left), *unit(left), "run", "repeat"))
    more = [_choices(left, name) for name in names if len(left[name].unique()) > 1]
    raise ParameterError(
        f"{len(exchange_ids):,} replies match. Say which one: "
        f"{'; '.join(more) or 'give its exchange_id'}."
    )


def _choices(df: pd.DataFrame, name: str) -> str:
    """Return the values of a column in words."""
    values = plain(df[name].drop_duplicates().iloc[: MAX_COLUMNS + 1])
    words = [shorten(repr(value), _LABEL_CHARS) for value in values[:MAX_COLUMNS]]
    more = " and others" if len(values) > MAX_COLUMNS else ""
    return f"{name} is {', '.join(words)}{more}"


def _down(df: pd.DataFrame, varied: Sequence[str]) -> list[str]:
    """Return what tells prompts apart to a reader: their texts, if each has one."""
    names = unit(df)
    if "row" in names and df["prompt"].isna().all():  # made elsewhere
        return names
    prompts = df.groupby(names, dropna=False)["prompt"] if len(df) else None
    if prompts is None or prompts.nunique(dropna=False).max() <= 1:
        return ["prompt"]
    known = {*varied, *(column.name for column in REPLIES)}
    before = list(df.columns[: df.columns.get_loc("text")])
    own = [
        name
        for name in before
        if name not in known and not name.endswith((LABEL, TEMPLATE))
    ]
    return list(dict.fromkeys((*names, *own[:_N_OWN])))


class _Fields:
    """The fields of a table, and the replies in each.

    Attributes:
        rows: The key of each row that is shown, by its number.
        heads: The key of each column that is shown, by its number.
        n_rows, n_columns: How many there are.
        n_more_replies: How many replies `entries` left out so far.
    """

    def __init__(
        self,
        df: pd.DataFrame,
        down: Sequence[str],
        across: Sequence[str],
        inside: Sequence[str],
    ) -> None:
        at, top = numbered(df, down), numbered(df, across)
        self.n_rows = int(at.max()) + 1 if len(df) else 0
        self.n_columns = int(top.max()) + 1 if len(df) else 0
        self.n_more_replies = 0
        is_shown = (at < MAX_ROWS) & (top < MAX_COLUMNS)
        shown, places = df[is_shown], (at[is_shown], top[is_shown])
        self.rows = _keys(shown, places[0], down)
        self.heads = _keys(shown, places[1], across)
        self._labels = _varying(shown, places, [x for x in inside if x in df.columns])
        again = _varying(shown, places, [x for x in _AGAIN if x in df.columns])
        names = dict.fromkeys((*self._labels, *again, *_SAID))
        self._again = again
        self._values = {
            name: plain(shown[name]) if name in shown else [None] * len(shown)
            for name in names
        }
        self._positions: dict[tuple[int, int], list[int]] = {}
        for position, place in enumerate(zip(*map(list, places), strict=True)):
            self._positions.setdefault(place, []).append(position)

    def entries(self, row: int, top: int) -> list[ComparedText]:
        """Return the replies of a field, equal ones once."""
        equal: dict[Any, list[int]] = {}
        for position in self._positions.get((row, top), ()):
            key = (self._read(self._labels, position), self._read(_SAID, position))
            equal.setdefault(key, []).append(position)
        n_alike = Counter(labels for labels, _ in equal)
        shown = list(equal.items())[:MAX_IN_FIELD]
        self.n_more_replies += len(self._positions.get((row, top), ()))
        self.n_more_replies -= sum(len(positions) for _, positions in shown)
        entries = []
        for (labels, said), positions in shown:
            parts = list(map(_named_value, self._labels, labels))
            if len(positions) > 1:
                parts.append(f"{len(positions):,} times")
            elif n_alike[labels] > 1:
                again = self._read(self._again, positions[0])
                parts += map(_named_value, self._again, again)
            record = dict(zip(_SAID, said, strict=True))
            entries.append(replace(_entry(record), label=" · ".join(parts)))
        return entries

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
    """Return the values of each group, in words, in the order of the numbers."""
    _, firsts = np.unique(numbers, return_index=True)
    values = [plain(df[name].iloc[firsts]) for name in names]
    keys = zip(*values, strict=True) if names else [()] * len(firsts)
    return {
        int(numbers[first]): tuple(map(in_words, names, key))
        for first, key in zip(firsts, keys, strict=True)
    }


def _varying(
    df: pd.DataFrame, places: tuple["np.ndarray", "np.ndarray"], names: Sequence[str]
) -> list[str]:
    """Return the columns that have several values in one field."""
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
    """Return values as Python has them; None is a missing one."""
    is_missing = values.isna()
    return values.astype(object).where(~is_missing, None).tolist()


def _named_value(name: str, value: Any) -> str:  # noqa: ANN401 - any column's
    words = " ".join(in_words(name, value).split())
    return f"{name.removesuffix('_index')} {shorten(words, _LABEL_CHARS)}"


def compared(df: pd.DataFrame) -> list[ComparedText]:
    """Return the reply of each row as it is shown in a table."""
    values = [
        plain(df[name]) if name in df.columns else [None] * len(df) for name in _SAID
    ]
    return [
        _entry(dict(zip(_SAID, said, strict=True)))
        for said in zip(*values, strict=True)
    ]


def _entry(said: Mapping[str, Any]) -> ComparedText:
    """Return a reply with marks for what must not be overlooked."""
    text, status, reason = said["text"], said["status"], said["finish_reason"]
    calls = _calls(said["tool_calls"])
    marks = ["cut"] if said["is_cut"] is True else []
    if status == "error":
        marks.append("refused" if said["http_status"] == _REFUSED else "failed")
        marks.append(said["error_type"] or "error")
        text = text or said["error_message"]
    elif status in _INSTEAD:
        marks.append(_INSTEAD[status])
    elif reason not in _USUAL:
        marks.append(shorten(reason, _LABEL_CHARS))
    elif calls:
        marks.append("tool calls")
    elif not (text or "").strip():
        marks.append("empty")
    return ComparedText(
        text="\n".join(filter(None, (text, *calls))), marks=tuple(marks)
    )


def _calls(tool_calls: Any) -> list[str]:  # noqa: ANN401 - of a frame that people change
    with suppress(ValueError, TypeError, AttributeError, KeyError):
        called = [call["function"] for call in json.loads(tool_calls)]
        return [f"{call['name']}({call['arguments']})" for call in called]
    return []


def as_markdown(entry: ComparedText) -> ComparedText:
    """Let a reply be rendered; errors and calls of tools stay as written."""
    is_reply = not {"failed", "refused", "tool calls"} & {*entry.marks}
    return replace(entry, is_markdown=is_reply)
