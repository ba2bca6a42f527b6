"""Dimensions of a grid: a list, lists that are tied, or a list of conditions.

The grid is the product of its dimensions. None is a value that is not sent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import PARAM_NAMES, PARAMS
from svc_notebook.tools.tool_options import to_offer

from .source import is_missing, source_of

_ONE_AS_A_LIST: dict[str, Callable[[object], bool]] = {
    "stop": lambda each: isinstance(each, str),
    "tools": lambda each: isinstance(each, Mapping) or callable(each),
}
"""Parameters of which one value is a list, with a check of its elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One argument with the values it takes.

    Attributes:
        name: As given.
        values: In the order given; a single one if it does not vary.
        is_varied: Whether it was given as a list.
    """

    name: str
    values: tuple[Any, ...]
    is_varied: bool


def axis_of(name: str, value: object) -> Axis:
    """Tell one value from a list of values.

    Args:
        name: `model`, `system` or a parameter.
        value: One value, or several.

    Raises:
        ParameterError: The list is empty, or has no order.
        ToolSchemaError: A function in `tools` cannot be offered.
    """
    several = _several(name, value)
    if several is None or _is_one(name, several):
        return Axis(name=name, values=(sent(name, value),), is_varied=False)
    if not several:
        raise ParameterError(
            f"{name} is an empty list, so there is nothing to send; give at least one "
            "value, or remove it.",
            param=name,
        )
    values = tuple(sent(name, each) for each in several)
    return Axis(name=name, values=values, is_varied=True)


def sent(name: str, value: object) -> object:
    """Return a value as it is sent: functions become the definitions of tools."""
    if name != "tools":
        return value
    return to_offer(value, run_tools=False).definitions


def prompts_of(prompt: object) -> tuple[Any, ...]:
    """Tell one prompt, a text or a list of messages, from a list of prompts."""
    if not has_many(prompt):
        return (prompt,)
    return axis_of("prompt", prompt).values


def has_many(prompt: object) -> bool:
    """Say whether these are several prompts: a list of anything but messages."""
    several = _several("prompt", prompt)
    if several is None:
        return False
    return not several or any(_is_prompt(each) for each in several)


def _is_prompt(each: object) -> bool:
    return isinstance(each, str) or _several("prompt", each) is not None


def _several(name: str, value: object) -> tuple[Any, ...] | None:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return None
    if isinstance(value, (set, frozenset)):
        raise ParameterError(
            f"{name} is a set, which has no order; give a list.", param=name
        )
    to_list = getattr(value, "tolist", None)  # numpy and pandas: plain Python values
    if not callable(to_list):
        return tuple(value)
    values = to_list()
    return tuple(values) if isinstance(values, list) else None


def _is_one(name: str, several: Sequence[object]) -> bool:
    kind = _ONE_AS_A_LIST.get(name)
    if kind is None or not several:
        return False
    return all(map(kind, several))


ASKED = ("prompt", "model", "system", "tools", *PARAM_NAMES)
"""Names of what is sent; any other name in a list of conditions is a label."""
TOOLS = "tools"
ROWS = "rows"
"""The name of the rows in `tied`."""
_INTEGERS = frozenset(param.name for param in PARAMS if param.kind == "integer")
_SHOWN_CHARS = 60

Tied = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """Names that vary together, with the values they take.

    Attributes:
        names: Of what varies.
        points: Values by name; a name that a point lacks is not sent.
        is_varied: Whether it was given as a list.
        is_by_row: Whether it is tied to the rows, so that each row has one point.
    """

    names: tuple[str, ...]
    points: tuple[Mapping[str, Any], ...]
    is_varied: bool
    is_by_row: bool = False

    def in_words(self, position: int) -> str:
        """Return the values of one point as a text."""
        point = self.points[position]
        found = ((name, point.get(name)) for name in self.names)
        return ", ".join(
            f"{name}={tool_names(value) if name == TOOLS else short(value)}"
            for name, value in found
        )


def tool_names(definitions: Iterable[Mapping[str, Any]] | None) -> str | None:
    """Return the names of the tools that are offered; None if none are."""
    if definitions is None:
        return None
    return ", ".join(str(each["function"]["name"]) for each in definitions)


def short(value: object) -> str:
    """Return a value as Python writes it, or the beginning of that if it is long."""
    return brief(repr(value), _SHOWN_CHARS)


def brief(text: str, n_chars: int) -> str:
    """Return a text, or its beginning and three dots if it is longer than that."""
    return text if len(text) <= n_chars else text[: n_chars - 3] + "..."


def dimension_of(axis: Axis) -> Dimension:
    """Return one list, or one value, as a dimension."""
    points = tuple({axis.name: value} for value in axis.values)
    return Dimension(names=(axis.name,), points=points, is_varied=axis.is_varied)


def tie(
    axes: Iterable[Axis], tied: Tied, *, n_rows: int | None = None
) -> tuple[Dimension, ...]:
    """Return the dimensions of axes, some of them tied together.

    Args:
        axes: In the order in which they vary.
        tied: Names whose lists go side by side, or several such groups. With `rows`
            in a group, each row has its own value.
        n_rows: How many rows there are; None without rows.

    Raises:
        ParameterError: A name is not a list that was given or is tied twice, or the
            lists of a group differ in length.
    """
    by_name = {axis.name: axis for axis in axes}
    groups = _groups(tied)
    sizes = {axis.name: len(axis.values) for axis in by_name.values() if axis.is_varied}
    _check_groups(groups, sizes if n_rows is None else {ROWS: n_rows, **sizes})
    by_row = {name for group in groups if ROWS in group for name in group}
    groups = [tuple(name for name in group if name != ROWS) for group in groups]
    first = {group[0]: group for group in groups if group}
    others = {name for group in groups for name in group[1:]}
    return tuple(
        _zipped([by_name[each] for each in first[name]], is_by_row=name in by_row)
        if name in first
        else dimension_of(axis)
        for name, axis in by_name.items()
        if name not in others
    )


def conditions_of(conditions: object) -> Dimension:
    """Read a list, or a DataFrame, of conditions as one dimension.

    Args:
        conditions: Mappings, or one row each; a missing value is not sent.
    """
    source = source_of(conditions, called="conditions")
    points = tuple(
        {
            name: _mended(name, value)
            for name, value in source.row(position).items()
            if _is_given(value)
        }
        for position in range(len(source))
    )
    return Dimension(names=tuple(source.columns), points=points, is_varied=True)


def check_names(dimensions: Sequence[Dimension], columns: Iterable[str]) -> None:
    """Refuse a name that is given twice, or that rows and conditions share."""
    seen: set[str] = set()
    for name in (name for dimension in dimensions for name in dimension.names):
        if name in seen:
            raise ParameterError(
                f"{name} is given twice, by name and in conditions; give it once.",
                param=name,
            )
        seen.add(name)
    for name in columns:
        if name in seen - set(ASKED):
            raise ParameterError(
                f"The column {name!r} is in rows and in conditions. Rename one.",
                param="conditions",
            )


def _is_given(value: object) -> bool:
    return not is_missing(value)


def _mended(name: str, value: object) -> object:
    # a column of integers with a gap comes as floats
    if name in _INTEGERS and isinstance(value, float) and value.is_integer():
        return int(value)
    return sent(name, value)


def _groups(tied: Tied) -> list[tuple[str, ...]]:
    if not isinstance(tied, Iterable):
        raise ParameterError(
            f"tied is {type(tied).__name__}; give a list of names.", param="tied"
        )
    each = [tied] if isinstance(tied, str) else list(tied)
    if not each:
        return []
    if all(isinstance(name, str) for name in each):
        return [tuple(str(name) for name in each)]
    return [tuple(str(name) for name in group) for group in each]


def _check_groups(groups: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> None:
    names = [name for group in groups for name in group]
    for name in names:
        if name not in sizes or names.count(name) > 1:
            raise ParameterError(
                f"tied has {name!r}; each name in it must be one of the lists given, "
                f"once. The lists are: {', '.join(sizes) or 'none'}.",
                param="tied",
            )
    for group in groups:
        if len(group) == 1:
            raise ParameterError(
                f"tied has only {group[0]!r}; name at least two lists that go side by "
                f"side, of {', '.join(sizes)}.",
                param="tied",
            )
        found = {name: sizes[name] for name in group}
        if len(set(found.values())) > 1:
            said = ", ".join(f"{name} has {size}" for name, size in found.items())
            raise ParameterError(
                "Lists that are tied must have the same length, because their values "
                f"go side by side; {said}.",
                param="tied",
            )


def _zipped(axes: Sequence[Axis], *, is_by_row: bool) -> Dimension:
    names = tuple(axis.name for axis in axes)
    points = tuple(
        dict(zip(names, values, strict=True))
        for values in zip(*(axis.values for axis in axes), strict=True)
    )
    return Dimension(names=names, points=points, is_varied=True, is_by_row=is_by_row)
