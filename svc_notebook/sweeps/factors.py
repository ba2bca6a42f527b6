"""Factors of a sweep: values in lists, with labels, zipped, or in conditions.

The grid is the product of its dimensions. None is a value that is not sent. The labels
of a factor vary with it, as a name that is not sent: `prompt_label`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import (
    PARAM_NAMES,
    PARAMS,
    check_extra,
    check_text,
    shorten,
)
from svc_notebook.service.request import to_messages
from svc_notebook.tools.extract import Form, with_order
from svc_notebook.tools.toolbox import to_offer

from .rows import columns_in, is_missing, read_rows, size_and_end

EXTRA = "extra"
TOOLS = "tools"
ROWS = "rows"
"""The name of the rows in `tied`."""
FACTORS = ("prompt", "model", "system", TOOLS, *PARAM_NAMES, EXTRA)
"""Names of what is sent and can vary; other names in conditions are labels."""
LABELS = {name: f"{name}_label" for name in FACTORS}
"""The column with the labels of each factor."""
_ONE_AS_A_LIST: dict[str, Callable[[object], bool]] = {
    "prompt": lambda value: not _is_prompt(value),
    "stop": lambda value: isinstance(value, str),
    TOOLS: lambda value: isinstance(value, Mapping) or callable(value),
}
"""Factors whose single value may be a list, with a check of that list's elements."""
_INTEGERS = frozenset(param.name for param in PARAMS if param.kind == "integer")
_SHOWN_CHARS = 60

Zipped = Sequence[str] | Sequence[Sequence[str]]
"""Names, or groups of names, whose lists are zipped: `tied=` of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """Names that vary together, with the values they take.

    Attributes:
        points: Values by name; a name that a point lacks is not sent.
        is_varied: Whether it was given as a list.
        is_by_row: Whether it is zipped with the rows, so that each row has one point.
    """

    names: tuple[str, ...]
    points: tuple[Mapping[str, Any], ...]
    is_varied: bool
    is_by_row: bool = False

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """The names without those of labels."""
        return tuple(name for name in self.names if not self._is_label(name))

    def _is_label(self, name: str) -> bool:
        factor = name.removesuffix("_label")
        return LABELS.get(factor) == name and factor in self.names

    def in_words(self, position: int) -> str:
        """Return the values of one point as a text."""
        point = self.points[position]
        values = ((name, point.get(name)) for name in self.names)
        return ", ".join(
            f"{name}={tool_names(value) if name == TOOLS else short(value)}"
            for name, value in values
        )


def dimension_of(name: str, value: object) -> Dimension:
    """Read the prompt, `model`, `system` or a parameter: one value, or several.

    Several are a list, or a mapping from labels to values. A mapping for `extra` is
    one value.
    """
    if name == EXTRA:
        _refuse_labels(value)
    is_one = name == EXTRA or (name == TOOLS and _is_definition(value))
    if isinstance(value, Mapping) and not is_one:
        return _labelled(name, value)
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


def _refuse_labels(extra: object) -> None:
    """Refuse a mapping for `extra` that looks like labels; its names would be sent."""
    if not isinstance(extra, Mapping) or len(extra) < 2:  # noqa: PLR2004 - several labels
        return
    if all(isinstance(value, Mapping) for value in extra.values()):
        names = ", ".join(map(str, extra))
        raise ParameterError(
            f"extra has a mapping for each of its names ({shorten(names, 60)}). To try "
            "one after the other, give a list: extra=[{...}, {...}], or conditions, "
            "which have labels. To send all of them as fields, put the whole mapping "
            "in a list.",
            param=EXTRA,
        )


def _of_values(name: str, values: Iterable[object], *, is_varied: bool) -> Dimension:
    points = tuple({name: sent(name, value)} for value in values)
    return _with_prompt_labels(
        Dimension(names=(name,), points=points, is_varied=is_varied)
    )


def _labelled(name: str, values: Mapping[Any, object]) -> Dimension:
    """Read the values of a factor by their labels."""
    if name == "prompt" and {"role", "content"} <= values.keys():
        raise ParameterError("prompt is one message; put it in a list.", param=name)
    if not values:
        raise ParameterError(
            f"{name} is an empty mapping, so there is nothing to send; give at least "
            "one label with its value, or remove it.",
            param=name,
        )
    for label in values:
        if not isinstance(label, str) or not label.strip():
            wrong = "empty" if isinstance(label, str) else type(label).__name__
            raise ParameterError(
                f"The label {label!r} of {name} is {wrong}; a label must be a text "
                "that is not empty.",
                param=name,
            )
        check_text(label, param=name, name=f"The label {label!r}")
    points = tuple(
        {name: sent(name, value), LABELS[name]: label}
        for label, value in values.items()
    )
    return Dimension(names=(name, LABELS[name]), points=points, is_varied=True)


def _is_definition(tools: object) -> bool:
    """Return whether a mapping is the definition of a tool, and not tools by label."""
    if not isinstance(tools, Mapping):
        return False
    is_any_text = any(isinstance(value, str) for value in tools.values())
    return is_any_text or isinstance(tools.get("function"), Mapping)


def _with_prompt_labels(dimension: Dimension) -> Dimension:
    """Label prompts that look the same in the column `prompt`.

    The column has only the user's last message. The label is the number of messages,
    with the number of the prompt in front where that is not enough.
    """
    column = LABELS["prompt"]
    if "prompt" not in dimension.names or column in dimension.names:
        return dimension
    prompts = [point.get("prompt") for point in dimension.points]
    if all(prompt is None or isinstance(prompt, str) for prompt in prompts):
        return dimension
    different = {repr(prompt): prompt for prompt in prompts}
    sizes, ends = zip(*map(size_and_end, different.values()), strict=True)
    is_filled = any(map(columns_in, different.values()))
    if len(different) == 1 or (len(set(ends)) == len(ends) and not is_filled):
        return dimension
    labels = [f"{n} message{'' if n == 1 else 's'}" for n in sizes]
    if len(set(sizes)) < len(sizes):
        labels = [f"{number}: {label}" for number, label in enumerate(labels, start=1)]
    label_of = dict(zip(different, labels, strict=True))
    points = tuple(
        {**point, column: label_of[repr(prompt)]}
        for point, prompt in zip(dimension.points, prompts, strict=True)
    )
    return replace(dimension, names=(*dimension.names, column), points=points)


def sent(name: str, value: object) -> object:
    """Return a value as it is sent: functions become the definitions of tools."""
    if name == EXTRA:
        return check_extra(value) or None
    if name != TOOLS:
        return value
    return to_offer(value, run_tools=False).definitions


def with_answer_tool(
    form: Form[Any], dimensions: Sequence[Dimension]
) -> tuple[Dimension, ...]:
    """Offer the tool of an answer, and ask for it at the end of each prompt."""
    if any(TOOLS in dimension.names for dimension in dimensions):
        raise ParameterError(
            f"answer={form.name} offers a tool of its own, so tools cannot be given. "
            "Remove tools, or give answer a function that reads the text.",
            param="answer",
        )
    with_orders = tuple(
        replace(
            dimension,
            points=tuple(_with_order(form, point) for point in dimension.points),
        )
        for dimension in dimensions
    )
    return (*with_orders, dimension_of(TOOLS, [form.definition]))


def _with_order(form: Form[Any], point: Mapping[str, Any]) -> Mapping[str, Any]:
    prompt = point.get("prompt")
    if prompt is None:
        return point
    if isinstance(prompt, str):
        return {**point, "prompt": f"{prompt}\n\n{form.order}"}
    return {**point, "prompt": with_order(form, to_messages(prompt))}


def _is_prompt(value: object) -> bool:
    return isinstance(value, str) or _several("prompt", value) is not None


def _several(name: str, value: object) -> tuple[Any, ...] | None:
    """Return the values of a list, an array or the like; None if it is one value."""
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
    return ", ".join(str(tool["function"]["name"]) for tool in definitions)


def short(value: object) -> str:
    """Return a value as Python writes it, shortened if it is long."""
    return shorten(repr(value), _SHOWN_CHARS)


def zip_dimensions(
    dimensions: Iterable[Dimension], tied: Zipped, *, n_rows: int | None = None
) -> tuple[Dimension, ...]:
    """Zip some dimensions of one name each; `tied` is as in `svc.sweep`."""
    by_name = {dimension.names[0]: dimension for dimension in dimensions}
    groups = _groups(tied)
    sizes = {} if n_rows is None else {ROWS: n_rows}
    sizes |= {
        name: len(dimension.points)
        for name, dimension in by_name.items()
        if dimension.is_varied
    }
    _check_groups(groups, sizes)
    by_row = {name for group in groups if ROWS in group for name in group}
    groups = [tuple(name for name in group if name != ROWS) for group in groups]
    # a group has the place of its first name
    group_of = {group[0]: group for group in groups if group}
    others = {name for group in groups for name in group[1:]}
    return tuple(
        _zip([by_name[other] for other in group_of[name]], is_by_row=name in by_row)
        if name in group_of
        else dimension
        for name, dimension in by_name.items()
        if name not in others
    )


def conditions_of(conditions: object) -> Dimension:
    """Read a list, or a DataFrame, of conditions; a missing value is not sent."""
    rows = read_rows(conditions, called="conditions")
    if not len(rows):
        raise ParameterError(
            "conditions is empty, so there is nothing to send; give at least one, or "
            "remove it.",
            param="conditions",
        )
    for name, values in rows.columns.items():
        for label, value in zip(rows.labels, values, strict=True):
            where = f"{name} of condition {label!r}"
            check_text(str(value), param="conditions", name=where)
    points = tuple(
        {
            name: _as_integer(name, value)
            for name, value in rows.row(position).items()
            if not is_missing(value)
        }
        for position in range(len(rows))
    )
    names = tuple(rows.columns)
    return _with_prompt_labels(Dimension(names=names, points=points, is_varied=True))


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
                f"The column {name!r} is in rows and in "
                f"{'labels' if name in LABELS.values() else 'conditions'}. Rename one.",
                param="conditions",
            )


def _as_integer(name: str, value: object) -> object:
    # pandas has a column of integers with a gap as floats
    if name in _INTEGERS and isinstance(value, float) and value.is_integer():
        return int(value)
    return sent(name, value)


def _groups(tied: Zipped) -> list[tuple[str, ...]]:
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


def _zip(dimensions: Sequence[Dimension], *, is_by_row: bool) -> Dimension:
    names = tuple(name for dimension in dimensions for name in dimension.names)
    points = tuple(
        {name: value for point in points for name, value in point.items()}
        for points in zip(*(dimension.points for dimension in dimensions), strict=True)
    )
    return Dimension(names=names, points=points, is_varied=True, is_by_row=is_by_row)
