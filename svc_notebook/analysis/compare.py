"""Replies of a frame side by side: rows, columns, labels, and what differs.

Only what is shown is looked at, but for the columns that say where a reply belongs.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from typing import Any
from unicodedata import category

import numpy as np
import pandas as pd

from svc_notebook.display.comparison import Comparison, Entry, Part
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import REPLIES
from svc_notebook.service.checks import check_flag, shorten

from .frame import LABEL, TEMPLATE, check_replies, factors, in_words, named, unit
from .summary import missing_lines, say

MAX_ROWS = 50
MAX_COLUMNS = 12
MAX_IN_FIELD = 12
_LABEL_CHARS = 60
_N_OWN = 3
_REFUSED = 400  # the status of what would be refused again
_SAID = (
    *("text", "tool_calls", "status", "is_cut", "finish_reason"),
    *("error_type", "http_status", "error_message"),
)
_AGAIN = ("repeat", "choice_index")
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
) -> Comparison:
    """Arrange the replies of a frame in a table: see `svc.compare`."""
    df = check_replies(df)
    check_flag("markdown", markdown)
    check_flag("diff", diff)
    varied = factors(df)
    down = _down(df, varied) if rows is None else named(df, rows, param="rows")
    if columns is None:
        across = [name for name in varied if name not in down] or ["model"]
    else:
        across = named(df, columns, param="columns")
    outside = {*down, *across}
    inside = [name for name in (*varied, *unit(df), "run") if name not in outside]
    fields = _Fields(df, down, across, inside)
    differences = _Differences()
    found = []
    for row, key in fields.rows.items():
        of_row = [fields.entries(row, top) for top in fields.heads]
        if diff:
            of_row = differences.mark(of_row)
        elif markdown:
            of_row = [list(map(_as_markdown, entries)) for entries in of_row]
        found.append((key, tuple(map(tuple, of_row))))
    say(missing_lines(df))
    return Comparison(
        title=" · ".join((title or f"{len(df):,} replies", *_emulator_notes(df))),
        row_names=tuple(down),
        column_names=tuple(across),
        heads=tuple(fields.heads.values()),
        rows=tuple(found),
        n_more_rows=max(fields.n_rows - MAX_ROWS, 0),
        n_more_columns=max(fields.n_columns - MAX_COLUMNS, 0),
        n_more_replies=fields.n_more_replies,
    )


def _emulator_notes(df: pd.DataFrame) -> list[str]:
    """Return what the emulator says of its replies, such as who wrote them."""
    if "emulator_note" not in df:
        return []
    return [f"emulator: {each}" for each in df["emulator_note"].dropna().unique()]


def find(df: pd.DataFrame, conditions: Mapping[str, object]) -> str:
    """Return the id of the one exchange whose columns have these values.

    Raises:
        ParameterError: No reply fits, or several do; the message says what still
            varies.
    """
    left = check_replies(df)
    for given, value in conditions.items():
        [name] = named(df, given, param=given)
        is_meant = [each == value for each in plain(left[name])]
        if not any(is_meant):
            raise ParameterError(
                f"No reply has {name}={shorten(repr(value), _LABEL_CHARS)}; "
                f"{_choices(left, name)}.",
                param=given,
            )
        left = left[is_meant]
    found = left["exchange_id"].dropna().unique()
    if len(found) == 1:
        return str(found[0])
    if not len(found):
        status = _INSTEAD.get(str(next(iter(left["status"]), "")), "no reply")
        raise ParameterError(
            f"There is no reply to return: {status}. run.run() sends what is missing."
        )
    names = dict.fromkeys((*factors(left), *unit(left), "run", "repeat"))
    more = [_choices(left, name) for name in names if len(left[name].unique()) > 1]
    raise ParameterError(
        f"{len(found):,} replies match. Say which one: "
        f"{'; '.join(more) or 'give its exchange_id'}."
    )


def _choices(df: pd.DataFrame, name: str) -> str:
    """Return the values of a column in words."""
    values = plain(df[name].drop_duplicates().iloc[: MAX_COLUMNS + 1])
    words = [shorten(repr(each), _LABEL_CHARS) for each in values[:MAX_COLUMNS]]
    more = " and others" if len(values) > MAX_COLUMNS else ""
    return f"{name} is {', '.join(words)}{more}"


def _down(df: pd.DataFrame, varied: Sequence[str]) -> list[str]:
    """Return what tells prompts apart to a reader: their texts, if each has one."""
    names = unit(df)
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
        self._found: dict[tuple[int, int], list[int]] = {}
        for position, place in enumerate(zip(*map(list, places), strict=True)):
            self._found.setdefault(place, []).append(position)

    def entries(self, row: int, top: int) -> list[Entry]:
        """Return the replies of a field, equal ones once."""
        equal: dict[Any, list[int]] = {}
        for position in self._found.get((row, top), ()):
            key = (self._read(self._labels, position), self._read(_SAID, position))
            equal.setdefault(key, []).append(position)
        n_alike = Counter(labels for labels, _ in equal)
        shown = list(equal.items())[:MAX_IN_FIELD]
        self.n_more_replies += len(self._found.get((row, top), ()))
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
    found = zip(*values, strict=True) if names else [()] * len(firsts)
    return {
        int(numbers[first]): tuple(map(in_words, names, key))
        for first, key in zip(firsts, found, strict=True)
    }


def _varying(
    df: pd.DataFrame, places: tuple["np.ndarray", "np.ndarray"], names: Sequence[str]
) -> list[str]:
    """Return the columns that have several values in one field."""
    if df.empty:
        return []
    index = pd.RangeIndex(len(df))
    keys = [pd.Series(each, index=index) for each in places]
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


def _entry(said: Mapping[str, Any]) -> Entry:
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
    return Entry(text="\n".join(filter(None, (text, *calls))), marks=tuple(marks))


def _calls(tool_calls: Any) -> list[str]:  # noqa: ANN401 - of a frame that people change
    with suppress(ValueError, TypeError, AttributeError, KeyError):
        called = [each["function"] for each in json.loads(tool_calls)]
        return [f"{each['name']}({each['arguments']})" for each in called]
    return []


def _as_markdown(entry: Entry) -> Entry:
    is_reply = not {"failed", "refused", "tool calls"} & {*entry.marks}
    return replace(entry, is_markdown=is_reply)


# Differences

_MAX_ALIKE = 60_000  # pairs of equal tokens in two texts; more take long
_LITTLE = 0.3  # a ratio; with less in common, marks only confuse
_JOINED = "\u0e33\u0eb3"  # SARA AM of Thai and Lao: belongs to the consonant before it
_SKIN = "\U0001f3fb-\U0001f3ff"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"


class _Differences:
    """Marks what differs, as long as that takes no longer than a reader waits."""

    def __init__(self) -> None:
        self._n_alike_left = 1_000_000

    def mark(self, fields: Sequence[Sequence[Entry]]) -> list[list[Entry]]:
        """Mark in the replies of a row what differs from the first one."""
        first = next((x for each in fields for x in each if _is_reply(x)), None)
        if first is None:
            return [list(entries) for entries in fields]
        return [[self._against(first, each) for each in entries] for entries in fields]

    def _against(self, first: Entry, entry: Entry) -> Entry:
        if not _is_reply(entry):
            return entry
        mark = ""
        parts: tuple[Part, ...] = ()
        if entry is first:
            mark = "reference"
        elif entry.text == first.text:
            mark = "same"
        else:
            old, new = tokens(first.text), tokens(entry.text)
            n_alike = _n_alike(old, new)
            self._n_alike_left -= n_alike
            if n_alike > _MAX_ALIKE or self._n_alike_left < 0:
                mark = "not compared: too long"
            elif not (parts := difference(old, new)):
                mark = "differs throughout"
        return replace(entry, parts=parts, marks=(*entry.marks, *filter(None, (mark,))))


def _is_reply(entry: Entry) -> bool:
    return bool(entry.text) and not {"failed", "refused"} & {*entry.marks}


def _n_alike(old: Sequence[str], new: Sequence[str]) -> int:
    counts = Counter(token.strip() for token in new)
    return sum(counts[token.strip()] for token in old)


def difference(old: Sequence[str], new: Sequence[str]) -> tuple[Part, ...]:
    """Return what became of a text, by its tokens; () if little of it is left.

    Blanks make no difference.
    """
    before, after = ([token.strip() for token in each] for each in (old, new))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    parts: list[Part] = []
    for kind, from_old, to_old, from_new, to_new in matcher.get_opcodes():
        if kind != "equal" and to_old > from_old:
            parts.append(Part("gone", "".join(old[from_old:to_old])))
        if to_new > from_new:
            text = "".join(new[from_new:to_new])
            parts.append(Part("same" if kind == "equal" else "added", text))
    return tuple(parts) if matcher.ratio() >= _LITTLE else ()


def tokens(text: str) -> list[str]:
    """Split a text into words and signs, each with the blanks behind it.

    A script without blanks between words, such as Thai, is split into characters as
    people see them (grapheme clusters).
    """
    return _token().findall(text)


@cache
def _token() -> re.Pattern[str]:
    marks = "".join(c for c in map(chr, range(0x10000)) if category(c)[0] == "M")
    with_marks = f"[{_JOINED}{_SKIN}{marks}]*"
    word = rf"(?:(?![{_UNSPACED}])[^\W_]{with_marks})+"
    cluster = rf".{with_marks}(?:\u200d.{with_marks})*"
    return re.compile(rf"(?:{word}|{cluster})\s*", re.DOTALL)
