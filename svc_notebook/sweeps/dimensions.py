"""Dimensions of a grid: a list, lists that are tied, or a list of conditions.

The grid is the product of its dimensions. None is a value that is not sent. The labels
of a factor vary with it, as a name of their own that is not sent: `prompt_label`. Also
the other arguments that a run's manifest keeps, such as the user's own `limits`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import decompress

import msgspec

from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.row import KeptPlan
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.checks import (
    check_int,
    check_text,
    did_you_mean,
    must_be,
    shorten,
)
from svc_notebook.service.params import PARAM_NAMES, PARAMS, check_extra
from svc_notebook.service.request import to_messages
from svc_notebook.tools.extract import Form, with_order
from svc_notebook.tools.permissions import Permit, to_offer
from svc_notebook.tools.toolbox import Tool, Toolbox

from .row_files import FoundFiles
from .source import columns_in, is_missing, size_and_end, source_of

_ONE_AS_A_LIST: dict[str, Callable[[object], bool]] = {
    "prompt": lambda each: not _is_prompt(each),
    "stop": lambda each: isinstance(each, str),
    "tools": lambda each: isinstance(each, Mapping) or callable(each),
}
"""Names of which one value can be a list, with a check of its elements."""
EXTRA = "extra"
FACTORS = ("prompt", "model", "system", "tools", *PARAM_NAMES, EXTRA)
"""Names of what is sent and can vary; other names in conditions are labels."""
TOOLS = "tools"
LABELS = {name: f"{name}_label" for name in FACTORS}
"""The column with the labels of each factor."""
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
        found = ((name, point.get(name)) for name in self.names)
        return ", ".join(
            f"{name}={tool_names(value) if name == TOOLS else short(value)}"
            for name, value in found
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
    is_mapping = isinstance(extra, Mapping) and len(extra) > 1
    if is_mapping and all(isinstance(each, Mapping) for each in extra.values()):  # type: ignore[attr-defined]  # a mapping
        names = ", ".join(map(str, extra))  # type: ignore[call-overload]  # as above
        raise ParameterError(
            f"extra has a mapping for each of its names ({shorten(names, 60)}). To try "
            "one after the other, give a list: extra=[{...}, {...}], or conditions, "
            "which have labels. To send all of them as fields, put the whole mapping "
            "in a list.",
            param=EXTRA,
        )


def _of_values(name: str, values: Iterable[object], *, is_varied: bool) -> Dimension:
    points = tuple({name: sent(name, value)} for value in values)
    return _told_apart(Dimension(names=(name,), points=points, is_varied=is_varied))


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
    is_any_text = any(isinstance(each, str) for each in tools.values())
    return is_any_text or isinstance(tools.get("function"), Mapping)


def _told_apart(dimension: Dimension) -> Dimension:
    """Give labels to prompts that the column `prompt` would not tell apart.

    It has the last message only. The label is the number of messages, with the number
    of the prompt in front where that is not enough.
    """
    column = LABELS["prompt"]
    if "prompt" not in dimension.names or column in dimension.names:
        return dimension
    given = [each.get("prompt") for each in dimension.points]
    if all(each is None or isinstance(each, str) for each in given):
        return dimension
    prompts = {repr(each): each for each in given}
    sizes, ends = zip(*map(size_and_end, prompts.values()), strict=True)
    is_filled = any(map(columns_in, prompts.values()))
    if len(prompts) == 1 or (len(set(ends)) == len(ends) and not is_filled):
        return dimension
    words = [f"{n} message{'' if n == 1 else 's'}" for n in sizes]
    if len(set(sizes)) < len(sizes):
        words = [f"{at}: {each}" for at, each in enumerate(words, start=1)]
    label_of = dict(zip(prompts, words, strict=True))
    points = tuple(
        {**point, column: label_of[repr(prompt)]}
        for point, prompt in zip(dimension.points, given, strict=True)
    )
    return replace(dimension, names=(*dimension.names, column), points=points)


def sent(name: str, value: object) -> object:
    """Return a value as it is sent: functions become the definitions of tools."""
    if name == EXTRA:
        return check_extra(value) or None
    if name != "tools":
        return value
    return to_offer(value, run_tools=False).definitions


def offering(form: Form[Any], dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Offer the tool of an answer, and ask for it at the end of each prompt."""
    if any(TOOLS in dimension.names for dimension in dimensions):
        raise ParameterError(
            f"answer={form.name} offers a tool of its own, so tools cannot be given. "
            "Remove tools, or give answer a function that reads the text.",
            param="answer",
        )
    asking = tuple(
        replace(each, points=tuple(_asking(form, point) for point in each.points))
        for each in dimensions
    )
    return (*asking, dimension_of(TOOLS, [form.definition]))


def _asking(form: Form[Any], point: Mapping[str, Any]) -> Mapping[str, Any]:
    prompt = point.get("prompt")
    if prompt is None:
        return point
    if isinstance(prompt, str):
        return {**point, "prompt": f"{prompt}\n\n{form.order}"}
    return {**point, "prompt": with_order(form, to_messages(prompt))}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTools:
    """The tools of a sweep by their definitions, and what their calls may do."""

    tools: Mapping[bytes, Tool]
    permit: Permit

    @property
    def limits(self) -> dict[str, float]:
        """The limits of rounds, as a manifest has them."""
        rounds = self.permit.rounds
        names = ("max_rounds", "tool_timeout_s", "total_s")
        return {name: getattr(rounds, name) for name in names}

    def toolbox(self, definitions: Iterable[object]) -> Toolbox:
        """Return the tools with these definitions."""
        return Toolbox([self.tools[_key(each)] for each in definitions])


def sweep_tools(
    given: object, permit: Permit, dimensions: Iterable[Dimension]
) -> SweepTools:
    """Find the function of each tool that is offered, and check that all can run."""
    tools = {_key(each.definition): each for each in _with_functions(given)}
    points = [point for each in dimensions for point in each.points]
    offered = [each for point in points for each in point.get("tools") or ()]
    if not offered:
        raise _refused("run_tools=True needs tools; give functions in tools=[...].")
    if any(point.get("n", 1) not in (None, 1) for point in points):
        raise _refused("Tools can be run for one choice only; leave n out.", "n")
    for each in offered:
        name, found = each["function"]["name"], tools.get(_key(each))
        if found is None:
            raise _refused(
                f"run_tools=True needs a function for every tool, and {name} has only "
                "a definition. Give the function in tools=[...].",
                "tools",
            )
        if permit.confirm is True or (permit.confirm is None and found.confirm):
            raise _refused(
                "A sweep asks for many replies at once, so it cannot ask you about "
                f"calls of {name}. Give confirm=False to run them all, or a function "
                "that decides; it is called for one call at a time.",
                "confirm",
            )
    return SweepTools(tools=tools, permit=permit)


def _with_functions(given: object) -> Iterator[Tool]:
    """Return the tools in lists, labelled lists and toolboxes."""
    if isinstance(given, Mapping):
        given = [*given.values()]
    if callable(given):
        yield from Toolbox([given])
    elif isinstance(given, (list, tuple, Toolbox)):
        for each in given:
            yield from _with_functions(each)


_key = msgspec.json.Encoder(order="sorted").encode


def _refused(text: str, param: str = "run_tools") -> ParameterError:
    return ParameterError(f"{text} Nothing was sent.", param=param)


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
    names = tuple(source.columns)
    return _told_apart(Dimension(names=names, points=points, is_varied=True))


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
    names = tuple(name for each in dimensions for name in each.names)
    points = tuple(
        {name: value for point in points for name, value in point.items()}
        for points in zip(*(each.points for each in dimensions), strict=True)
    )
    return Dimension(names=names, points=points, is_varied=True, is_by_row=is_by_row)


PACE_KEYS = ("per_second", "per_minute", "in_flight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The user's own limits for one model; None where only the service's apply."""

    per_second: int | None = None
    per_minute: int | None = None
    in_flight: int | None = None

    @property
    def given(self) -> dict[str, int]:
        """The limits that were given, by name."""
        found = ((name, getattr(self, name)) for name in PACE_KEYS)
        return {name: each for name, each in found if each is not None}

    def limit(self, known: Limit | None) -> Limit | None:
        """Return the limit in force: the user's, or else the known one."""
        if self.per_second is None and self.per_minute is None:
            return known
        known = known or Limit(per_second=None, per_minute=None)
        return Limit(
            per_second=self.per_second or known.per_second,
            per_minute=self.per_minute or known.per_minute,
            in_flight=known.in_flight,
        )


Paces = Mapping[str, Pace]
"""By model."""


def paces_of(
    limits: object, models: Iterable[str], endpoint: Endpoint = SERVICE
) -> Paces:
    """Read `limits` of `svc.sweep`: numbers for all models, or by model."""
    if limits is None:
        return {}
    allowed = ', such as {"per_second": 2, "in_flight": 4}, or such by model'
    if not isinstance(limits, Mapping) or not limits:
        raise must_be("limits", f"a mapping{allowed}", limits)
    models = list(models)
    if not any(isinstance(each, Mapping) for each in limits.values()):
        limits = dict.fromkeys(models, limits)
    for model, given in limits.items():
        if model not in models:
            raise ParameterError(
                f"limits has {model!r}, which this run does not ask."
                f"{did_you_mean(str(model), [*models, *PACE_KEYS])} Its models are "
                f"{', '.join(models)}.",
                param="limits",
            )
        if not isinstance(given, Mapping) or not set(given) <= set(PACE_KEYS):
            allowed = f"a mapping with some of {', '.join(PACE_KEYS)}"
            raise must_be(f"limits of {model}", allowed, given)
    known = {model: endpoint.limit_of(model) for model in limits}
    return {
        model: _pace_of(model, each, known[model]) for model, each in limits.items()
    }


def _pace_of(model: str, given: Mapping[str, object], known: Limit | None) -> Pace:
    pace = Pace(
        **{
            name: check_int(f"{name} in limits", value, minimum=1)
            for name, value in given.items()
        }
    )
    for name in PACE_KEYS:
        most, wanted = getattr(known, name, None), getattr(pace, name)
        if None not in (most, wanted) and wanted > most:
            raise ParameterError(
                f"{name}={wanted} in limits is above the service's limit for {model}, "
                f"which always applies; give at most {most}.",
                param="limits",
            )
    return pace


class Manifest(msgspec.Struct):
    """What a run's manifest says of its grid; the rest is not needed to repeat it."""

    dimensions: tuple[Dimension, ...]
    rows: list[dict[str, Any]] | None
    kept: list[int] | None
    is_raw: bool
    repeats: int
    seed: int
    dtypes: dict[str, str] = msgspec.field(default_factory=dict)
    index: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    categories: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    own_limits: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    in_flight: int | None = None
    answer: str | None = None
    run_tools: dict[str, float] | None = None
    files: FoundFiles | None = None  # of the rows, in place of them
    extra: dict[str, Any] | None = None  # of all requests, in the first manifests


def kept_manifest(plan: KeptPlan) -> dict[str, Any]:
    """Return the manifest of a plan that the ledger kept."""
    found: dict[str, Any] = msgspec.json.decode(decompress(plan.manifest))
    return found


def read_manifest(manifest: object, *others: object) -> Manifest:
    """Check a manifest, and that none of the other arguments is given with it."""
    if any(others):
        raise ParameterError(
            "manifest has the whole grid; give only name, seed, confirm_above, "
            "reuse, answer, limits and in_flight with it.",
            param="manifest",
        )
    if not isinstance(manifest, Mapping):
        raise ParameterError(
            f"manifest is {type(manifest).__name__}; give the dict that run.manifest "
            "returned, or what json.loads made of its JSON.",
            param="manifest",
        )
    try:
        return msgspec.convert(manifest, Manifest)
    except msgspec.ValidationError as problem:
        raise ParameterError(
            f"manifest is not the manifest of a run: {problem}. Give what run.manifest "
            "returned, or what was read from its JSON.",
            param="manifest",
        ) from None
