"""Dimensions of a grid: a list, lists that are tied, or a list of conditions.

The grid is the product of its dimensions. None is a value that is not sent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import check_text, shorten
from svc_notebook.service.params import PARAM_NAMES, PARAMS
from svc_notebook.tools.permissions import to_offer

from .source import is_missing, source_of

_ONE_AS_A_LIST: dict[str, Callable[[object], bool]] = {
    "prompt": lambda each: not _is_prompt(each),
    "stop": lambda each: isinstance(each, str),
    "tools": lambda each: isinstance(each, Mapping) or callable(each),
}
"""Names of which one value can be a list, with a check of its elements."""
FACTORS = ("prompt", "model", "system", "tools", *PARAM_NAMES)
"""Names of what is sent and can vary; other names in conditions are labels."""
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


def dimension_of(name: str, value: object) -> Dimension:
    """Read the prompt, `model`, `system` or a parameter: one value, or a list."""
    several = _several(name, value)
    is_element = _ONE_AS_A_LIST.get(name, lambda _: False)
    if several is None or (several and all(map(is_element, several))):
        return _of_values(name, [value], is_varied=False)
    if not several:
        raise ParameterError(
            f"{name} is an empty list, so there is nothing to send; give at least one "
            "value, or remove it.",
            param=name,
        )
    return _of_values(name, several, is_varied=True)


def _of_values(name: str, values: Iterable[object], *, is_varied: bool) -> Dimension:
    points = tuple({name: sent(name, value)} for value in values)
    return Dimension(names=(name,), points=points, is_varied=is_varied)


def sent(name: str, value: object) -> object:
    """Return a value as it is sent: functions become the definitions of tools."""
    if name != "tools":
        return value
    return to_offer(value, run_tools=False).definitions


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


def tool_names(definitions: Iterable[Mapping[str, Any]] | None) -> str | None:
    """Return the names of the tools that are offered; None if none are."""
    if definitions is None:
        return None
    return ", ".join(str(each["function"]["name"]) for each in definitions)


def short(value: object) -> str:
    """Return a value as Python writes it, shortened if it is long."""
    return shorten(repr(value), _SHOWN_CHARS)


def tie(
    dimensions: Iterable[Dimension], tied: Tied, *, n_rows: int | None = None
) -> tuple[Dimension, ...]:
    """Tie some dimensions of one name each together; `tied` is as in `svc.sweep`."""
    by_name = {each.names[0]: each for each in dimensions}
    groups = _groups(tied)
    sizes = {} if n_rows is None else {ROWS: n_rows}
    sizes |= {
        name: len(each.points) for name, each in by_name.items() if each.is_varied
    }
    _check_groups(groups, sizes)
    by_row = {name for group in groups if ROWS in group for name in group}
    groups = [tuple(name for name in group if name != ROWS) for group in groups]
    first = {group[0]: group for group in groups if group}
    others = {name for group in groups for name in group[1:]}
    return tuple(
        _zipped([by_name[each] for each in first[name]], is_by_row=name in by_row)
        if name in first
        else dimension
        for name, dimension in by_name.items()
        if name not in others
    )


def conditions_of(conditions: object) -> Dimension:
    """Read a list, or a DataFrame, of conditions; a missing value is not sent."""
    source = source_of(conditions, called="conditions")
    if not len(source):
        raise ParameterError(
            "conditions is empty, so there is nothing to send; give at least one, or "
            "remove it.",
            param="conditions",
        )
    for name, values in source.columns.items():
        for label, value in zip(source.labels, values, strict=True):
            where = f"{name} of condition {label!r}"
            check_text(str(value), param="conditions", name=where)
    points = tuple(
        {
            name: _as_integer(name, value)
            for name, value in source.row(position).items()
            if not is_missing(value)
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
        if name in seen - set(FACTORS):
            raise ParameterError(
                f"The column {name!r} is in rows and in conditions. Rename one.",
                param="conditions",
            )


def _as_integer(name: str, value: object) -> object:
    # a column of integers with a gap comes as floats
    if name in _INTEGERS and isinstance(value, float) and value.is_integer():
        return int(value)
    return sent(name, value)


def _groups(tied: Tied) -> list[tuple[str, ...]]:
    if not isinstance(tied, Iterable):
        raise ParameterError(
            f"tied is {type(tied).__name__}; give a list of names.", param="tied"
        )
    groups: list[Any] = [tied] if isinstance(tied, str) else list(tied)
    if groups and all(isinstance(name, str) for name in groups):
        groups = [groups]
    return [tuple(map(str, group)) for group in groups]


def _check_groups(groups: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> None:
    names = [name for group in groups for name in group]
    for name in names:
        if name not in sizes or names.count(name) > 1:
            raise ParameterError(
                f"tied has {name!r}; tied must name lists that you gave, each once. "
                f"The lists are: {', '.join(sizes) or 'none'}.",
                param="tied",
            )
    for group in groups:
        if len(group) == 1:
            raise ParameterError(
                f"tied has only {group[0]!r}; name at least two lists that go side by "
                f"side, of {', '.join(sizes)}.",
                param="tied",
            )
        if len({sizes[name] for name in group}) > 1:
            lengths = ", ".join(f"{name} has {sizes[name]}" for name in group)
            raise ParameterError(
                "Lists that are tied must have the same length, because their values "
                f"go side by side; {lengths}.",
                param="tied",
            )


def _zipped(dimensions: Sequence[Dimension], *, is_by_row: bool) -> Dimension:
    names = tuple(each.names[0] for each in dimensions)
    points = tuple(
        {name: value for point in points for name, value in point.items()}
        for points in zip(*(each.points for each in dimensions), strict=True)
    )
    return Dimension(names=names, points=points, is_varied=True, is_by_row=is_by_row)
