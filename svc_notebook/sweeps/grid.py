"""The grid of a sweep: the product of its factors, and its numbered trials.

The values of a factor are given in a list, by label, zipped with other lists, or in
conditions. A factor whose value is None is not sent. Labels of a factor vary with it,
under a name that is not sent, such as `prompt_label`. A trial is made when needed.
"""

import itertools
from array import array
from collections import Counter
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableSequence,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from inspect import signature
from math import prod
from typing import Any

import msgspec

from svc_notebook.display.number_words import count_in_words
from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.params import (
    PARAM_NAMES,
    PARAMS,
    check_extra,
    check_text,
    did_you_mean,
    shorten,
)
from svc_notebook.service.request import (
    CompletionRequest,
    Message,
    build_request,
    to_messages,
)
from svc_notebook.tokens import (
    Tokens,
    estimate_prompt_tokens,
    refitted,
    with_max_tokens,
)
from svc_notebook.tools.toolbox import to_offer
from svc_notebook.tools.typed_answer import Form, with_order
from svc_notebook.wire.encode import encode

from .rows import (
    ROW,
    Rows,
    columns_in,
    fill_prompt,
    is_missing,
    read_rows,
    size_and_end,
)

EXTRA = "extra"
TOOLS = "tools"
ROWS = "rows"
"""The name that stands for the rows in `tied`."""
FACTORS = ("prompt", "model", "system", TOOLS, *PARAM_NAMES, EXTRA)
"""Names of everything that is sent and can vary; other names are labels."""
LABELS = {name: f"{name}_label" for name in FACTORS}
"""The column with the labels of each factor."""
_LIST_IS_ONE_VALUE: dict[str, Callable[[object], bool]] = {
    "prompt": lambda value: not _is_prompt(value),
    "stop": lambda value: isinstance(value, str),
    TOOLS: lambda value: isinstance(value, Mapping) or callable(value),
}
"""Factors of which one value may be a list, with a check of such a list's elements."""
_INTEGERS = frozenset(param.name for param in PARAMS if param.kind == "integer")
_FLOATS = frozenset(param.name for param in PARAMS if param.kind == "float")
_SHOWN_CHARS = 60

Zipped = Sequence[str] | Sequence[Sequence[str]]
"""Names, or groups of names, whose lists are zipped: `tied=` of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """Names that vary together, with the values they take.

    Attributes:
        points: The values of each point by name; a name that a point lacks is not sent.
        is_varied: Whether the values were given as a list, also as a list of one.
        is_by_row: Whether it is zipped with the rows, so that each row has one point.
    """

    names: tuple[str, ...]
    points: tuple[Mapping[str, Any], ...]
    is_varied: bool
    is_by_row: bool = False

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """The names without the names of labels."""
        return tuple(name for name in self.names if not self._is_label(name))

    def _is_label(self, name: str) -> bool:
        factor = name.removesuffix("_label")
        return LABELS.get(factor) == name and factor in self.names

    def in_words(self, position: int) -> str:
        """Return the values of one point in words."""
        point = self.points[position]
        values = ((name, point.get(name)) for name in self.names)
        return ", ".join(
            f"{name}={tool_names(value) if name == TOOLS else short_repr(value)}"
            for name, value in values
        )


def dimension_of(name: str, value: object) -> Dimension:
    """Read the prompt, `model`, `system` or a parameter: one value, or several.

    Several values are a list, or a mapping from labels to values. A mapping for `extra`
    is one value.
    """
    if name == EXTRA:
        _refuse_labels(value)
    is_one = name == EXTRA or (name == TOOLS and _is_definition(value))
    if isinstance(value, Mapping) and not is_one:
        return _labelled_dimension(name, value)
    values = _values_in(name, value)
    is_element = _LIST_IS_ONE_VALUE.get(name, lambda _: False)
    if values is None or (values and all(map(is_element, values))):
        return _dimension_of_values(name, [value], is_varied=False)
    if not values:
        raise ParameterError(
            f"{name} is an empty list, so there is nothing to send; give at least one "
            "value, or remove it.",
            param=name,
        )
    return _dimension_of_values(name, values, is_varied=True)


def _refuse_labels(extra: object) -> None:
    """Refuse a mapping for `extra` that looks like labels, which would be sent."""
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


def _dimension_of_values(
    name: str, values: Iterable[object], *, is_varied: bool
) -> Dimension:
    points = tuple({name: to_sent_value(name, value)} for value in values)
    return _with_prompt_labels(
        Dimension(names=(name,), points=points, is_varied=is_varied)
    )


def _labelled_dimension(name: str, values: Mapping[Any, object]) -> Dimension:
    """Read a mapping from labels to the values of a factor."""
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
        {name: to_sent_value(name, value), LABELS[name]: label}
        for label, value in values.items()
    )
    return Dimension(names=(name, LABELS[name]), points=points, is_varied=True)


def _is_definition(tools: object) -> bool:
    """Return whether a mapping defines one tool; else it has tools by label."""
    if not isinstance(tools, Mapping):
        return False
    is_any_text = any(isinstance(value, str) for value in tools.values())
    return is_any_text or isinstance(tools.get("function"), Mapping)


def _with_prompt_labels(dimension: Dimension) -> Dimension:
    """Add labels to prompts that would look the same in the column `prompt`.

    That column has only the last message of the user. A label is the number of messages
    of the prompt; if two prompts have as many, the number of the prompt comes first.
    """
    column = LABELS["prompt"]
    if "prompt" not in dimension.names or column in dimension.names:
        return dimension
    prompts = [point.get("prompt") for point in dimension.points]
    if all(prompt is None or isinstance(prompt, str) for prompt in prompts):
        return dimension
    distinct = {repr(prompt): prompt for prompt in prompts}
    sizes, ends = zip(*map(size_and_end, distinct.values()), strict=True)
    is_filled = any(map(columns_in, distinct.values()))
    if len(distinct) == 1 or (len(set(ends)) == len(ends) and not is_filled):
        return dimension
    labels = [count_in_words(n, "messages") for n in sizes]
    if len(set(sizes)) < len(sizes):
        labels = [f"{number}: {label}" for number, label in enumerate(labels, start=1)]
    label_of = dict(zip(distinct, labels, strict=True))
    points = tuple(
        {**point, column: label_of[repr(prompt)]}
        for point, prompt in zip(dimension.points, prompts, strict=True)
    )
    return replace(dimension, names=(*dimension.names, column), points=points)


def to_sent_value(name: str, value: object) -> object:
    """Return a value as it is sent: functions become definitions of tools."""
    if name == EXTRA:
        return check_extra(value) or None
    if name != TOOLS:
        return value
    return to_offer(value, run_tools=False).definitions


def with_answer_tool(
    form: Form[Any], dimensions: Sequence[Dimension]
) -> tuple[Dimension, ...]:
    """Offer the tool of a typed answer, and ask for it at the end of each prompt."""
    if any(TOOLS in dimension.names for dimension in dimensions):
        raise ParameterError(
            f"answer={form.name} is read from a tool call, so other tools cannot be "
            "offered. Remove tools, or give answer a function that reads the text.",
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
    return isinstance(value, str) or _values_in("prompt", value) is not None


def _values_in(name: str, value: object) -> tuple[Any, ...] | None:
    """Return the values in a list, an array or the like; None if it is one value."""
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
    """Return the names of the tools that are offered; None if no tools are."""
    if definitions is None:
        return None
    return ", ".join(str(tool["function"]["name"]) for tool in definitions)


def short_repr(value: object) -> str:
    """Return the repr of a value, shortened if it is long."""
    return shorten(repr(value), _SHOWN_CHARS)


def zip_dimensions(
    dimensions: Iterable[Dimension], tied: Zipped, *, n_rows: int | None
) -> tuple[Dimension, ...]:
    """Zip the dimensions that `tied` names, as in `svc.sweep`; each has one name."""
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
    # a group comes where its first name was
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
    """Read conditions from a list or a DataFrame; a missing value is not sent."""
    rows = read_rows(conditions, called="conditions")
    if not len(rows):
        raise ParameterError(
            "conditions is empty, so there is nothing to send; give at least one "
            "condition, or remove it.",
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
    # in pandas, integers with a missing value between them become floats
    if name in _INTEGERS and isinstance(value, float) and value.is_integer():
        return int(value)
    return to_sent_value(name, value)


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
                f"tied has only {group[0]!r}; name at least two lists to zip, out of "
                f"{', '.join(sizes)}.",
                param="tied",
            )
        if len({sizes[name] for name in group}) > 1:
            lengths = ", ".join(f"{name} has {sizes[name]}" for name in group)
            raise ParameterError(
                "Lists that are tied must have the same length, because they are "
                f"zipped; {lengths}.",
                param="tied",
            )


def _zip(dimensions: Sequence[Dimension], *, is_by_row: bool) -> Dimension:
    names = tuple(name for dimension in dimensions for name in dimension.names)
    points = tuple(
        {name: value for point in points for name, value in point.items()}
        for points in zip(*(dimension.points for dimension in dimensions), strict=True)
    )
    return Dimension(names=names, points=points, is_varied=True, is_by_row=is_by_row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One request of the plan: a row, a condition and a repeat, counted from 0.

    Attributes:
        request_key: Hash of all that is sent; repeats share it.
        row: Position of the row that fills the prompt; None without rows.
        columns: The values of the row in the prompt, and labels; stored with the reply.
    """

    request_key: str
    repeat: int
    request: CompletionRequest
    row: int | None = None
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the trial in its grid."""
        return self.request_key, self.repeat

    @property
    def model(self) -> str:
        """Id of the model to ask."""
        return self.request.model

    @property
    def prompt_tokens(self) -> Tokens:
        """Estimated tokens of the prompt."""
        return prompt_tokens_of(self.request)


def prompt_tokens_of(request: CompletionRequest) -> Tokens:
    """Estimate the tokens of a request's prompt."""
    if request.tools:
        return estimate_prompt_tokens(request.messages, request.tools)
    return _text_tokens(request.messages)


@lru_cache(maxsize=1)
def _text_tokens(messages: tuple[Message, ...]) -> Tokens:
    """Estimate a prompt; cached, because conditions of a row often share it."""
    return estimate_prompt_tokens(messages)


def value_of(request: CompletionRequest, name: str) -> Any:  # noqa: ANN401 - any factor
    """Return what a request has for a factor; None or () if it is not sent."""
    return request.asked_params.get(name, getattr(request, name, None))


def request_key_of(request: CompletionRequest, *, templates: object = None) -> str:
    """Return the hash of all that is sent: 16 hexadecimal digits.

    It does not depend on the order of the parameters, or on whether a number is written
    as 0 or 0.0. Two templates that give the same text for one row are two trials.
    """
    hashed = b"" if templates is None else msgspec.json.encode(templates)
    return f"{_digest(_canonical_request(request), hashed):016x}"


def _canonical_request(request: CompletionRequest) -> CompletionRequest:
    """Sort the parameters, and write numbers alike, so that the hash is the same."""
    params = {
        name: float(value) if name in _FLOATS else value
        for name, value in sorted(request.asked_params.items())
    }
    return msgspec.structs.replace(request, params=params)


def _digest(request: CompletionRequest, templates: bytes) -> int:
    body = encode(request, is_streamed=False)
    return int.from_bytes(blake2b(body + templates, digest_size=8).digest())


Predicate = Callable[[Mapping[str, Any]], object]
"""Returns whether to keep a combination, given its values and its row's columns."""


# conditions in memory: in a shuffled order each one is needed again and again
_N_CONDITIONS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    """What the trials of one condition share; made once for all rows.

    Attributes:
        request: The request, whose templates are not filled yet.
        prompt, system: Its prompt and system, which may be templates.
        columns: The names in the templates.
        labels: Values of the condition that are not sent.
        templates: The columns of replies that say which template was filled.
        hashed: The request and the templates in the form that is hashed.
        fills: Identifies templates and labels: if two conditions have the same, a row
            gives the same texts for both.
    """

    request: CompletionRequest
    prompt: Any
    system: Any
    columns: tuple[str, ...]
    labels: Mapping[str, Any]
    templates: Mapping[str, Any]
    hashed: tuple[CompletionRequest, bytes]
    fills: tuple[int, ...]

    def messages(self, values: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return the messages, with the templates filled."""
        if not self.columns:
            return self.request.messages
        prompt, system = (
            fill_prompt(self.prompt, values),
            fill_prompt(self.system, values),
        )
        is_documented = self.request.info.is_documented
        return to_messages(prompt, system=system, is_documented=is_documented)

    def request_of(self, messages: tuple[Message, ...]) -> CompletionRequest:
        """Return the request with these messages."""
        request = msgspec.structs.replace(self.request, messages=messages)
        return refitted(request)

    def digest_of(self, messages: tuple[Message, ...]) -> int:
        """Return the hash of the request with these messages."""
        request, templates = self.hashed
        return _digest(msgspec.structs.replace(request, messages=messages), templates)

    def columns_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns that are stored with a reply."""
        return {**self.templates, **values, **self.labels}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All trials of a plan.

    A combination is a row with a condition. Trials are numbered in the order of the
    plan: rows vary slowest, then the dimensions in their order, then the repeats.

    Attributes:
        dimensions: The factors; the last one varies fastest.
        repeats: How many times each combination is sent.
        is_raw: Whether prompts are sent as they are, without filling templates.
        kept: Numbers of the combinations that `where` kept; None for all.
        rows: The rows that fill the prompts, if there are any.
        endpoint: The endpoint in use when the sweep was planned.
    """

    dimensions: tuple[Dimension, ...]
    rows: Rows | None = None
    repeats: int = 1
    endpoint: Endpoint = SERVICE
    is_raw: bool = False
    kept: Sequence[int] | None = None

    def __len__(self) -> int:
        return self.n_combinations * self.repeats

    def __iter__(self) -> Iterator[Trial]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Trial:
        """Return a trial by its number in the plan."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        combination, repeat = divmod(position, self.repeats)
        return self.trial(combination, repeat)

    @cached_property
    def n_combinations(self) -> int:
        """How many combinations are kept."""
        return self.n_product if self.kept is None else len(self.kept)

    @cached_property
    def n_product(self) -> int:
        """How many combinations there are, with those that `where` leaves out."""
        n_rows = 1 if self.rows is None else len(self.rows)
        return n_rows * self._n_conditions

    @cached_property
    def _product_dimensions(self) -> tuple[Dimension, ...]:
        return tuple(
            dimension for dimension in self.dimensions if not dimension.is_by_row
        )

    @cached_property
    def _row_dimensions(self) -> tuple[Dimension, ...]:
        return tuple(dimension for dimension in self.dimensions if dimension.is_by_row)

    @cached_property
    def n_by_model(self) -> dict[str, int]:
        """How many requests each model gets, in the order of the plan."""
        if self.kept is not None:
            counts = Counter(map(self.model_of, range(self.n_combinations)))
            return {model: n * self.repeats for model, n in counts.items()}
        models, _ = self._models
        # in a product, each of its points with a model occurs equally often
        n_of_point = self.n_product // max(len(models), 1) * self.repeats
        return {
            model: n * n_of_point for model, n in Counter(models).items() if n_of_point
        }

    @property
    def points(self) -> Iterator[Mapping[str, Any]]:
        """The points of all dimensions."""
        return (point for dimension in self.dimensions for point in dimension.points)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names that are not sent: labels, and columns that prompts use."""
        names = (name for dimension in self.dimensions for name in dimension.names)
        return tuple(dict.fromkeys(name for name in names if name not in FACTORS))

    @cached_property
    def telling_labels(self) -> frozenset[str]:
        """The model label, if only it distinguishes equal models, as in an A/A test."""
        label = LABELS["model"]
        labelled = {
            (point[label], str(point["model"]))
            for point in self.points
            if label in point
        }
        is_equal = len({model for _, model in labelled}) < len(labelled)
        return frozenset({label}) if is_equal else frozenset()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns that the grid adds to a frame of replies."""
        templates = [f"{name}_template" for name in self.templates]
        offered = [TOOLS] if TOOLS in self.varied else []
        joined = () if self.rows is None else (ROW, *self.rows.shown)
        return tuple(dict.fromkeys((*joined, *self.labels, *templates, *offered)))

    @property
    def varied(self) -> tuple[str, ...]:
        """The names that have more than one value, without the columns of rows."""
        return tuple(
            name
            for dimension in self.dimensions
            if len(dimension.points) > 1
            for name in dimension.names
        )

    @property
    def model_labels(self) -> dict[str, str]:
        """The label of each model that has one."""
        label = LABELS["model"]
        return {
            str(point["model"]): str(point[label])
            for point in self.points
            if label in point
        }

    def place_of(self, combination: int) -> tuple[int, int]:
        """Return the row of a combination, and the number of its condition."""
        number = self._number(combination)
        return (0, number) if self.rows is None else divmod(number, self._n_conditions)

    def block_of(self, combination: int) -> int:
        """Return the block that a combination's row is in; 0 if rows are in memory."""
        if self.rows is None or self.rows.files is None:
            return 0
        return self.rows.files.block_of(self.place_of(combination)[0])

    def trial(self, combination: int, repeat: int) -> Trial:
        """Return a trial by its combination, counted among those that `where` kept."""
        row, condition = self._place(combination)
        values = self._values(row, condition)
        messages = condition.messages(values)
        digest = condition.digest_of(messages)
        return Trial(
            request_key=self._request_key(digest, row, condition),
            repeat=repeat,
            request=condition.request_of(messages),
            row=row,
            columns=condition.columns_of(values),
        )

    def columns_of(self, trial: Trial) -> dict[str, Any]:
        """Return the columns of a trial in a frame of replies."""
        if self.rows is None or trial.row is None:
            return trial.columns
        return {**trial.columns, **self.rows.joined(trial.row)}

    def trial_keys(self) -> Iterator[tuple[str, int]]:
        """Yield the key of each trial, in the order of the plan."""
        placed = self._places(range(self.n_combinations))
        for digest, (row, condition) in zip(self._digests, placed, strict=True):
            key = self._request_key(digest, row, condition)
            yield from ((key, repeat) for repeat in range(self.repeats))

    def places(self) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        """Yield the key of each trial, and its columns in a frame of replies.

        Requests are not made, and hashes are computed only once.
        """
        row_columns: dict[str, Any] = {}
        before: int | None = None
        repeats = range(self.repeats)
        placed = self._places(range(self.n_combinations))
        for digest, (row, condition) in zip(self._digests, placed, strict=True):
            key = self._request_key(digest, row, condition)
            if row is None or self.rows is None:
                columns = condition.columns_of(self._values(row, condition))
            else:
                if row != before:
                    before, row_columns = row, self.rows.joined(row)
                rest = condition.templates or condition.labels
                columns = (
                    {**condition.columns_of({}), **row_columns} if rest else row_columns
                )
            for repeat in repeats:
                yield (key, repeat), columns

    @cached_property
    def _digests(self) -> Sequence[int]:
        """The hash of each combination; as a number, because there can be millions."""
        conditions = self._conditions_with_messages(range(self.n_combinations))
        digests = (condition.digest_of(messages) for condition, messages in conditions)
        return array("Q", digests)

    @cached_property
    def estimates(self) -> MutableSequence[int]:
        """The estimated prompt tokens of each combination; -1 until they are needed."""
        return array("q", [-1]) * self.n_combinations

    def requests(self, combinations: Iterable[int]) -> Iterator[CompletionRequest]:
        """Yield the requests of combinations that are in the order of the plan."""
        conditions = self._conditions_with_messages(combinations)
        return (condition.request_of(messages) for condition, messages in conditions)

    def _conditions_with_messages(
        self, combinations: Iterable[int]
    ) -> Iterator[tuple[_Condition, tuple[Message, ...]]]:
        """Yield conditions with messages; equal messages of a row are made once."""
        before: int | None = None
        shared: dict[tuple[int, ...], tuple[Message, ...]] = {}
        for row, condition in self._places(combinations):
            if not condition.columns:
                yield condition, condition.request.messages
                continue
            if row != before:
                before, shared = row, {}
            if condition.fills not in shared:
                values = self._values(row, condition)
                shared[condition.fills] = condition.messages(values)
            yield condition, shared[condition.fills]

    def similar(self, *, most: int) -> list[Sequence[int]]:
        """Return groups of combinations of one condition, or else of one model.

        They are of one model if there are more than `most` conditions.
        """
        n, n_all = self._n_conditions, self.n_combinations
        is_product = self.kept is None and not self._row_dimensions
        if is_product and n <= most:
            return [range(number, n_all, n) for number in range(n)]
        groups = {model: array("Q") for model in self.n_by_model}
        for number in range(n_all):
            groups[self.model_of(number)].append(number)
        return [*groups.values()]

    def model_of(self, combination: int) -> str:
        """Return the model of a combination, without making its request."""
        models, n_in_a_row = self._models
        return models[self._number(combination) // n_in_a_row % len(models)]

    @cached_property
    def _models(self) -> tuple[Sequence[str], int]:
        """The models in the order of the plan, and how often one comes in a row."""
        n_in_a_row = 1
        for dimension in (*reversed(self._product_dimensions), *self._row_dimensions):
            if "model" in dimension.names:
                break
            n_in_a_row *= 1 if dimension.is_by_row else len(dimension.points)
        return [str(point["model"]).strip() for point in dimension.points], n_in_a_row

    def factors(self, combination: int) -> dict[str, Any]:
        """Return the values of a combination, and all columns of its row."""
        row, point = self._point(self._number(combination))
        names = (name for dimension in self.dimensions for name in dimension.names)
        row_values = {} if self.rows is None else self.rows.row(row or 0)
        return {**dict.fromkeys(names), **row_values, **point}

    def request_at(self, row: int, point: Mapping[str, Any]) -> CompletionRequest:
        """Return the request of any point, also of a point that `where` leaves out."""
        condition = self._condition_of(point)
        if self.rows is not None and not self.rows:
            return condition.request  # there is no row to fill it from
        messages = condition.messages(self._values(row, condition))
        return condition.request_of(messages)

    def _number(self, combination: int) -> int:
        return combination if self.kept is None else self.kept[combination]

    def _point(self, number: int) -> tuple[int | None, dict[str, Any]]:
        point: dict[str, Any] = {}
        for dimension in reversed(self._product_dimensions):
            number, digit = divmod(number, len(dimension.points))
            point = {**dimension.points[digit], **point}
        if self.rows is None:
            return None, point
        for dimension in self._row_dimensions:
            point |= dimension.points[number]
        return number, point

    def _place(self, combination: int) -> tuple[int | None, _Condition]:
        """Return the row and the condition of a combination."""
        number = self._number(combination)
        if self.rows is None:
            return None, self._condition(number)
        row, digits = divmod(number, self._n_conditions)
        return row, self._condition(number if self._row_dimensions else digits)

    def _places(
        self, combinations: Iterable[int]
    ) -> Iterator[tuple[int | None, _Condition]]:
        """Yield the row and the condition of each combination."""
        n = self._n_conditions
        is_product = self.kept is None and not self._row_dimensions
        if self.rows is None or not is_product or n > _N_CONDITIONS:
            return map(self._place, combinations)
        conditions = [*map(self._condition, range(n))]  # the usual case, and faster
        places = map(divmod, combinations, itertools.repeat(n))
        return ((row, conditions[number]) for row, number in places)

    @cached_property
    def _n_conditions(self) -> int:
        return prod(len(dimension.points) for dimension in self._product_dimensions)

    @cached_property
    def _condition(self) -> Callable[[int], _Condition]:
        """A cached function that returns the condition of a number in the product."""
        make = lru_cache(maxsize=_N_CONDITIONS)
        return make(lambda number: self._condition_of(self._point(number)[1]))

    def _condition_of(self, point: Mapping[str, Any]) -> _Condition:
        """Make the condition of a point, with templates that are not filled."""
        params = {name: value for name, value in point.items() if name in FACTORS}
        prompt, system = params.pop("prompt", None), params.pop("system", None)
        used = () if self.is_raw else (*columns_in(prompt), *columns_in(system))
        columns = tuple(dict.fromkeys(used))
        labels = {name: text for name, text in point.items() if name not in FACTORS}
        own_labels = hashed_labels(point, self.telling_labels)
        hashed = b""
        # two templates that give the same text for one row are two trials
        if self.rows is not None or columns or own_labels:
            texts = (prompt, system, own_labels) if own_labels else (prompt, system)
            hashed = msgspec.json.encode(texts)
        templates: dict[str, Any] = {
            f"{name}_template": point.get(name)
            for name in self.templates
            if columns and isinstance(point.get(name), str)
        }
        # no other column of replies says which tools were offered
        if TOOLS in self.varied:
            templates[TOOLS] = tool_names(point.get(TOOLS))
        if not columns and not self.is_raw:
            prompt, system = fill_prompt(prompt, {}), fill_prompt(system, {})
        max_tokens = params.pop("max_tokens", None)
        request = build_request(
            prompt,
            model=params.pop("model"),
            system=system,
            params=params,
            info_of=self.endpoint.info_of,
        )
        request = with_max_tokens(request, max_tokens)
        return _Condition(
            request=request,
            prompt=prompt,
            system=system,
            columns=columns,
            labels=labels,
            templates=templates,
            hashed=(_canonical_request(request), hashed),
            # templates and labels belong to the dimensions, so their ids do not change
            fills=tuple(map(id, (prompt, system, *map(labels.get, columns)))),
        )

    def _values(self, row: int | None, condition: _Condition) -> dict[str, Any]:
        labels = condition.labels
        columns = {} if self.rows is None else self.rows.columns
        return {
            name: labels[name] if name in labels else columns[name][row or 0]
            for name in condition.columns
        }

    def _request_key(self, digest: int, row: int | None, condition: _Condition) -> str:
        """Return the request key; later rows that ask the same get -2, -3 and so on."""
        key, n_before = f"{digest:016x}", 0
        if row is not None and self.rows is not None:
            n_before = self.rows.repeated(condition.columns).get(row, 0)
        return f"{key}-{n_before + 1}" if n_before else key

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """Which of prompt and system are filled and vary: they get template columns."""
        if self.is_raw:
            return ()
        return tuple(
            name
            for name in ("prompt", "system")
            if name in self.varied and any(map(columns_in, self.values_of(name)))
        )

    def values_of(self, name: str) -> Iterator[Any]:
        """Yield the values of the prompt, system or a parameter, without None."""
        return (point[name] for point in self.points if point.get(name) is not None)


def hashed_labels(point: Mapping[str, Any], telling: frozenset[str]) -> dict[str, str]:
    """Return the labels that are hashed, so that they make combinations different.

    Labels of factors are not hashed, except those in `telling`.
    """
    known = {*FACTORS, *LABELS.values()} - telling
    return {name: str(value) for name, value in point.items() if name not in known}


class Combination(dict[str, Any]):
    """The values of a combination, as `where` gets them."""

    def __missing__(self, name: str) -> object:
        raise ParameterError(
            f"where uses {name!r}, which is not in the combinations."
            f"{did_you_mean(str(name), self)} They have {', '.join(self)}.",
            param="where",
        )


def matching(grid: Grid, where: Predicate) -> Sequence[int]:
    """Return the numbers of the combinations that `where` keeps."""
    if not callable(where):
        raise ParameterError(
            f"where is {type(where).__name__}; give a function that takes a "
            "combination, such as lambda c: c['temperature'] < 1.",
            param="where",
        )
    try:
        signature(where).bind({})
    except ValueError:
        pass  # some built-in functions have no signature
    except TypeError as problem:
        raise ParameterError(
            f"where is called with one argument, a combination ({problem}); write it "
            "like lambda c: c['temperature'] < 1.",
            param="where",
        ) from None
    numbers = range(grid.n_product)
    return array("Q", (number for number in numbers if _is_kept(grid, number, where)))


def _is_kept(grid: Grid, number: int, where: Predicate) -> bool:
    factors = Combination(grid.factors(number))
    try:
        return bool(where(factors))
    except SvcError:
        raise
    except Exception as problem:  # of the user's function: raised as it is
        shown = ", ".join(
            f"{name}={short_repr(value)}" for name, value in factors.items()
        )
        problem.add_note(f"This was the combination {shown}; nothing was sent.")
        raise
