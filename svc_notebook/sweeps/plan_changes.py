"""What has changed in a plan since a run of its name was started, in words.

A plan of the same name may add rows, repeats and values. All that has replies must
still be in it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from svc_notebook.analysis.read_answers import kept_type
from svc_notebook.errors import SvcError
from svc_notebook.service.params import shorten

from .grid import FACTORS, LABELS, TOOLS, Dimension, Grid, short_repr, tool_names
from .plan import Manifest, Plan, as_stored, grid_of
from .rows import ROW, columns_in

_TEXTS = {"prompt": "prompt", "system": "system message"}
_SHOWN_CHARS = 60  # of a long text, around its first difference
_BEFORE_CHARS = 20
_LABEL_CHARS = 40
_N_TEXTS = 3  # most texts that are shown


class PlanChange(NamedTuple):
    """One thing that a plan had before and does not have now.

    Attributes:
        says: What has changed, such as "max_tokens has changed from 10 to 20".
        detail: The old and the new text, if they are long; "" if `says` has all.
    """

    says: str
    detail: str = ""


class _Value(NamedTuple):
    """A value of a factor, and its label; "" if it has none."""

    value: Any
    label: str


def refusal(name: str, changes: Sequence[PlanChange]) -> str:
    """Return the message of the error for a plan that has changed."""
    says = ", and ".join(change.says for change in changes)
    if says.startswith(("the ", "row ")):  # not the name of a parameter
        says = says[0].upper() + says[1:]
    what = f'{says} since run "{name}" was started; nothing was sent.'
    ways_on = (
        f"Choose another name, such as name={_next_name(name)!r}, or undo the change. "
        "Under the same name a plan may only add to what was sent: rows, repeats, or "
        "values, such as a prompt under another label."
    )
    return " ".join([what, *(x.detail for x in changes if x.detail), ways_on])


def _next_name(name: str) -> str:
    """Return a name with the next number: "tone-2" after "tone"."""
    stem, _, number = name.rpartition("-")
    if not (stem and re.fullmatch("[0-9]{1,6}", number)):
        return f"{name}-2"
    return f"{stem}-{int(number) + 1}"


def changes_of(before: Manifest, now: Manifest) -> list[PlanChange]:
    """Return what a plan had before and does not have now; [] if nothing is missing.

    Rows of `df.svc` may be missing, because a frame is often sent in parts.
    """
    changes = [*_answer_changes(before, now)]
    is_other_form = bool(changes)
    old, new = (_values(plan.dimensions) for plan in (before, now))
    for name in dict.fromkeys((*old, *new)):
        if is_other_form and name in ("prompt", TOOLS):
            continue  # the form of an answer is a tool, and a line of the prompt
        changes += _factor_changes(
            name, old.get(name, _NOT_SENT), new.get(name, _NOT_SENT)
        )
    if before.origin != "frame":
        changes += _row_changes(before, now)
    if now.repeats < before.repeats:
        change = f"repeats has changed from {before.repeats} to {now.repeats}"
        changes.append(PlanChange(change))
    if now.is_raw != before.is_raw:
        change = f"raw has changed from {before.is_raw} to {now.is_raw}"
        changes.append(PlanChange(change))
    return changes


def _answer_changes(before: Manifest, now: Manifest) -> Iterator[PlanChange]:
    """Say that the type of the answers has changed, if it is part of the requests."""
    if before.answer != now.answer and (_has_form(before) or _has_form(now)):
        old, new = map(_answer_name, (before, now))
        yield PlanChange(f"answer has changed from {old} to {new}")


def _answer_name(plan: Manifest) -> str:
    answer = kept_type(plan.answer)
    return "None" if answer is None else answer.name


def _has_form(plan: Manifest) -> bool:
    """Say whether answers are calls of a tool, which has the name of their type."""
    offered = (
        point.get(TOOLS) for dimension in plan.dimensions for point in dimension.points
    )
    return _answer_name(plan) in map(tool_names, offered)


def _key(value: object) -> bytes:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value, order="deterministic")


_NOT_SENT = {_key(None): _Value(None, "")}


def _values(dimensions: Iterable[Dimension]) -> dict[str, dict[bytes, _Value]]:
    """Return the values of each name that is sent or is a label of the user's own.

    A value that is written differently but sent alike has the same key.
    """
    values: dict[str, dict[bytes, _Value]] = {}
    for dimension in dimensions:
        for name in dimension.unlabelled:
            of_name = values.setdefault(name, {})
            for point in dimension.points:
                value = point.get(name)
                label = point.get(LABELS.get(name, ""), "")
                of_name.setdefault(_key(value), _Value(value, str(label)))
    return values


def _factor_changes(
    name: str, old: Mapping[bytes, _Value], new: Mapping[bytes, _Value]
) -> Iterator[PlanChange]:
    """Say which values of a factor are gone, and what is in their place."""
    gone = [value for key, value in old.items() if key not in new]
    added = [value for key, value in new.items() if key not in old]
    if not gone:
        return
    by_label = {value.label: value for value in added if value.label}
    if relabelled := [value for value in gone if value.label in by_label]:
        pairs = [(value, by_label[value.label]) for value in relabelled]
        yield _changed_under_labels(name, pairs)
        gone = [value for value in gone if value.label not in by_label]
    elif len(old) == 1 and (len(new) == 1 or gone[0].value is None):
        yield _replaced(name, gone[0], added)
        return
    if gone:
        yield _removed(name, gone)


def _changed_under_labels(
    name: str, pairs: Sequence[tuple[_Value, _Value]]
) -> PlanChange:
    """Say that values have changed although their labels are the same."""
    labels = _listed(f"`{shorten(old.label, _LABEL_CHARS)}`" for old, _ in pairs)
    verb = "has" if len(pairs) == 1 else "have"
    details = []
    for old, new in pairs[:_N_TEXTS]:
        start = "It" if len(pairs) == 1 else f"`{shorten(old.label, _LABEL_CHARS)}`"
        details.append(f"{start} {_was_and_is(name, old.value, new.value)}.")
    if name in _TEXTS:
        noun = "text" if len(pairs) == 1 else "texts"
        says = f"the {noun} of {_TEXTS[name]} {labels} {verb} changed"
    else:
        says = f"{name} {labels} {verb} changed"
    return PlanChange(says, " ".join(details))


def _replaced(name: str, old: _Value, added: Sequence[_Value]) -> PlanChange:
    """Say that the only value of a factor is another one now."""
    new = added[0]
    if name in _TEXTS and old.value and new.value:
        detail = f"It {_was_and_is(name, old.value, new.value)}."
        return PlanChange(f"the text of the {_TEXTS[name]} has changed", detail)
    return _scalar_change(name, old, added)


def _scalar_change(name: str, old: _Value, added: Sequence[_Value]) -> PlanChange:
    old_text, new_text = (
        _in_words(name, value) for value in (old.value, added[0].value)
    )
    has = "have" if name == TOOLS else "has"
    if name == TOOLS and old_text == new_text:
        return PlanChange(f"the definition of the tools ({old_text}) has changed")
    if old.value is None:
        values = _listed(_in_words(name, value.value) for value in added[:_N_TEXTS])
        return PlanChange(f"{name} ({values}) {has} been added to all requests")
    if added[0].value is None:
        return PlanChange(f"{name} ({old_text}) {has} been removed")
    return PlanChange(f"{name} {has} changed from {old_text} to {new_text}")


def _removed(name: str, gone: Sequence[_Value]) -> PlanChange:
    texts = [
        f"`{shorten(value.label, _LABEL_CHARS)}`"
        if value.label
        else _in_words(name, value.value)
        for value in gone
    ]
    more = f" and {len(texts) - _N_TEXTS:,} more" if len(texts) > _N_TEXTS else ""
    listed = ", ".join(texts[:_N_TEXTS]) + more if more else _listed(texts)
    verb = "has" if len(texts) == 1 else "have"
    return PlanChange(f"{name} {listed} {verb} been removed")


def _row_changes(before: Manifest, now: Manifest) -> Iterator[PlanChange]:
    """Say which rows are gone or have other values, in columns that prompts use."""
    if before.rows is None or now.rows is None:
        if (before.rows is None) != (now.rows is None):
            have = "are in memory" if now.rows is not None else "are not in memory"
            yield PlanChange(f"the rows {have} now, which they were not before")
        return
    points = [point for dimension in before.dimensions for point in dimension.points]
    used = dict.fromkeys(
        name
        for point in points
        for prompt in ("prompt", "system")
        for name in columns_in(point.get(prompt))
    )
    texts_of = partial(_used_values, used=[*used])
    left = Counter(map(texts_of, now.rows))
    gone = []
    for position, row in enumerate(before.rows):
        left[texts_of(row)] -= 1
        if left[texts_of(row)] < 0:
            gone.append(position)
    if not gone:
        return
    n_rows, n_gone = len(before.rows), len(gone)
    if len(now.rows) < n_rows:
        verb = "has" if n_gone == 1 else "have"
        says = f"{n_gone:,} of {n_rows:,} rows {verb} been removed"
        yield PlanChange(says, _first_row(gone[0], before.rows, used))
        return
    is_one = n_gone == 1
    says = f"row {gone[0]} has" if is_one else f"{n_gone:,} of {n_rows:,} rows have"
    detail = _changed_row(gone[0], before.rows, now.rows, used)
    yield PlanChange(f"{says} changed", detail)


def changed_trials(befores: Iterable[Manifest], plan: Plan) -> set[tuple[str, int]]:
    """Return the keys of trials whose rows have other values now, in any column.

    A column that only one of the plans has does not count. If a file has changed, all
    its rows count. `befores` are the earlier plans of the run, the newest last.
    """
    befores = [*befores]
    now = as_stored(plan)
    if now.files is not None:
        return _trials_of_changed_files(befores, plan)
    befores = [before for before in befores if before.rows != now.rows]
    if not now.rows or not befores:
        return set()
    old: dict[tuple[str, int], Mapping[str, Any]] = {}
    for before in befores:
        with suppress(SvcError):  # for example, another endpoint refuses a prompt
            old |= _row_by_trial(before.rows, grid_of(before, plan.grid.endpoint))
    return {
        key
        for key, row in _row_by_trial(now.rows, plan.grid).items()
        if (was := old.get(key)) is not None
        and any(row[name] != was[name] for name in row.keys() & was.keys())
    }


def _trials_of_changed_files(
    befores: Iterable[Manifest], plan: Plan
) -> set[tuple[str, int]]:
    """Return the keys of trials whose rows are in files that have changed."""
    grid = plan.grid
    files = None if grid.rows is None else grid.rows.files
    listed = [before.files.files for before in befores if before.files is not None]
    if files is None or not listed:
        return set()
    old = {file.name: file.digest for file in listed[-1]}
    changed = {
        number
        for number, file in enumerate(files.listed.files)
        if old.get(file.name, file.digest) != file.digest
    }
    if not changed:
        return set()
    return {
        key
        for position, key in enumerate(grid.trial_keys())
        if files.file_of(grid.place_of(position // grid.repeats)[0]) in changed
    }


def _row_by_trial(
    rows: Sequence[Mapping[str, Any]] | None, grid: Grid
) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return the row of each trial, as the ledger stores it."""
    if not rows:
        return {}
    return {key: rows[columns[ROW]] for key, columns in grid.places()}


def _used_values(row: Mapping[str, Any], used: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in used)


def _first_row(
    position: int, rows: Sequence[Mapping[str, Any]], used: Iterable[str]
) -> str:
    name = next(iter(used), "")
    value = short_repr(rows[position].get(name))
    return f"The first of these is row {position}, whose {name} was {value}."


def _changed_row(
    position: int,
    before: Sequence[Mapping[str, Any]],
    now: Sequence[Mapping[str, Any]],
    used: Iterable[str],
) -> str:
    """Say which value of the first changed row was another one."""
    for name in used:
        old, new = (str(rows[position].get(name)) for rows in (before, now))
        if old != new:
            return f"In row {position}, {name} {_texts_differ(old, new)}."
    return ""


def _was_and_is(name: str, old: object, new: object) -> str:
    """Return an old and a new value, of long texts the first words that differ."""
    if name not in _TEXTS:
        return f"was {_in_words(name, old)} and is now {_in_words(name, new)}"
    return _texts_differ(_as_text(old), _as_text(new))


def _texts_differ(old: str, new: str) -> str:
    pairs = enumerate(zip(old, new, strict=False))
    shorter = min(len(old), len(new))
    at = next((at for at, (a, b) in pairs if a != b), shorter)
    return f"was {_excerpt(old, at)} and is now {_excerpt(new, at)}"


def _excerpt(text: str, at: int) -> str:
    """Return the part of a text around a position, from the beginning of a word."""
    begin = max(at - _BEFORE_CHARS, 0)
    if begin:
        blank = text.find(" ", begin, at)
        begin = blank + 1 if blank >= 0 else begin
    end = begin + _SHOWN_CHARS
    return repr("..." * (begin > 0) + text[begin:end] + "..." * (end < len(text)))


def _as_text(value: object) -> str:
    """Return a prompt as text; of messages, their contents."""
    if isinstance(value, str):
        return value
    messages: Sequence[Any] = value if isinstance(value, Sequence) else ()
    contents = (message.get("content") for message in messages)
    return "\n".join(str(content) for content in contents)


def _in_words(name: str, value: Any) -> str:  # noqa: ANN401 - any factor's
    if value is None:
        return "not sent"
    if name == TOOLS:
        return str(tool_names(value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return short_repr(value) if name in FACTORS else repr(str(value))


def _listed(texts: Iterable[str]) -> str:
    """Return texts as a list: "a, b and c"."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
