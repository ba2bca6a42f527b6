"""Ready-made scores, such as `run.score(right=svc.scores.exact("label"))`.

Each function here returns a score: a function of a row of a frame of replies. The
ledger keeps its name and arguments, so that a run has it again after a restart.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Literal, ParamSpec

import msgspec

from svc_notebook.errors import (
    ParameterError,
    ToolCallError,
    ToolSchemaError,
    import_extra,
)
from svc_notebook.service.params import (
    check_text,
    did_you_mean,
    must_be,
    shorten,
    shown,
)

from .exact_match import is_same, plain

__all__ = [
    "contains",
    "exact",
    "fields",
    "json_schema",
    "json_valid",
    "length",
    "regex",
]

Scorer = Callable[[Any], Any]
"""Takes a row of a frame of replies; returns a score, or a dict of scores."""
FactoryArguments = ParamSpec("FactoryArguments")
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)
_SHOWN_CHARS = 60


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True, eq=False, slots=True)
class ReadyScore:
    """A ready-made score with its arguments; it is called with a row."""

    name: str
    arguments: Mapping[str, Any]
    rule: Scorer

    def __call__(self, row: Any) -> Any:  # noqa: ANN401 - of any columns
        """Score a row."""
        return self.rule(row)

    def __repr__(self) -> str:
        """Return the call that makes this score."""
        values = (
            f"{name}={value!r}"
            for name, value in self.arguments.items()
            if value is not None
        )
        return f"svc.scores.{self.name}({shorten(', '.join(values), _SHOWN_CHARS)})"

    @property
    def column(self) -> str | None:
        """The column that it compares with, if it names one."""
        return self.arguments.get("column")

    @property
    def kept(self) -> str | None:
        """The JSON that the ledger keeps; None if an argument is a type."""
        arguments = dict(self.arguments)
        if isinstance(pattern := arguments.get("pattern"), re.Pattern):
            arguments["pattern"] = {"regex": pattern.pattern, "flags": pattern.flags}
        try:
            return msgspec.json.encode([self.name, arguments]).decode()
        except TypeError:
            return None


_FACTORIES: dict[str, Callable[..., ReadyScore]] = {}


def _ready(
    make: Callable[FactoryArguments, Scorer],
) -> Callable[FactoryArguments, ReadyScore]:
    """Turn a function that returns a rule into one that returns a `ReadyScore`."""

    @wraps(make)
    def factory(
        *args: FactoryArguments.args, **kwargs: FactoryArguments.kwargs
    ) -> ReadyScore:
        bound = inspect.signature(make).bind(*args, **kwargs)
        bound.apply_defaults()
        return ReadyScore(make.__name__, bound.arguments, make(*args, **kwargs))

    _FACTORIES[make.__name__] = factory
    return factory


def kept_score(kept: str) -> ReadyScore:
    """Return the ready-made score that the ledger kept."""
    name, arguments = msgspec.json.decode(kept)
    match arguments:
        case {"pattern": {"regex": str(pattern), "flags": int(flags)}}:
            arguments["pattern"] = re.compile(pattern, flags)
    return _FACTORIES[name](**arguments)


def compared_columns(scorers: Iterable[object]) -> list[str]:
    """Return the columns of correct answers that `exact` reads, each once."""
    names = (
        str(scorer.arguments["column"])
        for scorer in scorers
        if isinstance(scorer, ReadyScore) and scorer.name == exact.__name__
    )
    return list(dict.fromkeys(names))


@_ready
def exact(column: str = "label") -> Scorer:
    """Say whether the answer equals a column; without answers, whether the text does.

    A reply without a valid answer is wrong. Spaces around values are ignored, and 7
    equals "7". Where the column has no value, the reply gets no score. For answers with
    fields, use `svc.scores.fields`.

    Args:
        column: The column of correct answers.

    Example:
        >>> run.score(right=svc.scores.exact("label"))
        12
    """
    check_text(column, param="column")

    def score(row: Any) -> bool | None:  # noqa: ANN401 - of any columns
        right = row[column]
        if right is None:
            return None
        if row["answer_ok"] is not None:
            return bool(row["answer_ok"]) and is_same(row["answer"], right)
        return is_same(row["text"], right)

    return score


@_ready
def fields(columns: str = "gold_{}") -> Scorer:
    """Say for each field of the answer whether it is right, and whether all are.

    For each field, a column of the rows has the correct value: `gold_city` for `city`.
    Where that is missing, a missing answer is right and any other is wrong. A reply
    without a valid answer is wrong in all fields. A row without any correct value gets
    no score.

    Args:
        columns: The pattern of the columns' names; `{}` is the name of the field.

    Returns:
        A function that returns a dict, with a key for each field that has a column and
        `all`: `run.score(field=...)` makes `score_field_city` and `score_field_all`.

    Example:
        >>> run.score(field=svc.scores.fields("gold_{}"))
        36
    """
    if check_text(columns, param="columns").count("{}") != 1:
        raise must_be("columns", "a text with one {}, such as 'gold_{}'", columns)
    pattern = re.compile(re.escape(columns).replace(re.escape("{}"), "(.+)"))
    columns_of = cache(lambda names: _field_columns(pattern, names))

    def score(row: Any) -> dict[str, bool] | None:  # noqa: ANN401 - of any columns
        pairs = columns_of(tuple(row))
        rights = {field: row[right] for field, (_, right) in pairs.items()}
        if all(right is None for right in rights.values()):
            return None
        is_ok = bool(row["answer_ok"])
        is_equal = {
            field: is_ok and is_same(row[answer], rights[field])
            for field, (answer, _) in pairs.items()
        }
        return {**is_equal, "all": all(is_equal.values())}

    return score


def _fields_in_words(fields: Iterable[str]) -> str:
    names = ", ".join(fields)
    advice = "The answers have no fields; to read fields, sweep with answer=a dataclass"
    return f"The fields are {names}" if names else advice


def _field_columns(
    pattern: re.Pattern[str], names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Return, by field, the column of its answers and the column of correct values."""
    from svc_notebook.ledger.reply_columns import ANSWERS  # noqa: PLC0415 - pandas

    taken = [column.name for column in ANSWERS]
    fields_taken = {
        f"answer_var_{name.removeprefix('answer_')}": name for name in taken
    }
    answers = {
        fields_taken.get(name, name).removeprefix("answer_"): name
        for name in names
        if name.startswith("answer_") and name not in taken
    }
    rights = {
        match[1]: match[0] for name in names if (match := pattern.fullmatch(name))
    }
    if pattern.pattern == "(.+)":  # matches any column: take those named like a field
        rights = {field: field for field in answers if field in rights}
    for field, column in rights.items():
        if field not in answers:
            near = did_you_mean(field, answers, n=1)
            raise ParameterError(
                f"The column {column} is for a field {field!r}, but the answers have "
                f"no such field.{near} {_fields_in_words(answers)}.",
                param="columns",
            )
    if "all" in rights or not rights:
        raise ParameterError(
            "A field called 'all' cannot be scored; rename it."
            if rights
            else "There is no column of correct values with a name like "
            f"{pattern.pattern.replace('(.+)', 'FIELD')}. "
            f"{_fields_in_words(answers)}.",
            param="columns",
        )
    return {field: (answers[field], column) for field, column in rights.items()}


@_ready
def contains(column: str | None = None, *, text: str | None = None) -> Scorer:
    """Say whether the reply contains a text, or the value of a column; case is ignored.

    Args:
        column: The column with the text to look for in each row's reply.
        text: The text to look for in all replies.

    Example:
        >>> run.score(sorry=svc.scores.contains(text="sorry"))
        12
    """
    if (column is None) == (text is None):
        raise ParameterError(
            "contains needs either a column, as in contains('label'), or a text for "
            "all rows, as in contains(text='sorry').",
            param="text",
        )

    def score(row: Any) -> bool | None:  # noqa: ANN401 - of any columns
        wanted = text if column is None else row[column]
        if wanted is None:
            return None
        return plain(wanted).casefold() in (row["text"] or "").casefold()

    return score


@_ready
def regex(pattern: str | re.Pattern[str]) -> Scorer:
    """Say whether a regular expression matches anywhere in the reply.

    Args:
        pattern: A pattern as for `re.search`.

    Example:
        >>> run.score(number=svc.scores.regex(r"[0-9]+"))
        12
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as problem:
        raise ParameterError(
            f"pattern is not a valid regular expression: {problem}.", param="pattern"
        ) from None
    return lambda row: compiled.search(row["text"] or "") is not None


@_ready
def json_valid() -> Scorer:
    """Say whether the reply is JSON, alone or in one fenced block.

    Example:
        >>> run.score(json=svc.scores.json_valid())
        12
    """
    return lambda row: _json(row["text"]) is not _NO_JSON


@_ready
def json_schema(schema: Any) -> Scorer:  # noqa: ANN401 - a schema or a type
    """Say whether the reply is JSON that fits a schema, or a type.

    Args:
        schema: A JSON schema as a mapping (draft 2020-12); or a dataclass, a TypedDict,
            a pydantic model or another type as in `svc.extract`.

    Example:
        >>> run.score(invoice=svc.scores.json_schema(Invoice))
        12
    """
    check = _check_of(schema)

    def score(row: Any) -> bool:  # noqa: ANN401 - of any columns
        value = _json(row["text"])
        return value is not _NO_JSON and check(value)

    return score


@_ready
def length(unit: Literal["characters", "words"] = "characters") -> Scorer:
    """Count the characters of the reply, or its words.

    Args:
        unit: `words` are separated by spaces, so they mean little in Thai.

    Example:
        >>> run.score(words=svc.scores.length("words"))
        12
    """
    if unit not in ("characters", "words"):
        raise must_be("unit", "'characters' or 'words'", unit)
    if unit == "words":
        return lambda row: len((row["text"] or "").split())
    return lambda row: len(row["text"] or "")


_NO_JSON = object()  # not None, which is the JSON value null


def _json(text: str | None) -> Any:  # noqa: ANN401 - JSON
    fenced = _FENCED.fullmatch(text or "")
    try:
        return json.loads(fenced[1] if fenced else text or "", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NO_JSON


def _refuse(name: str) -> None:
    raise ValueError(name)  # JSON has neither NaN nor Infinity


def _check_of(schema: Any) -> Callable[[Any], bool]:  # noqa: ANN401 - a schema or a type
    if isinstance(schema, Mapping):
        import_extra("jsonschema", "Schemas that are given as a mapping need")
        from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - extra
        from referencing import Registry  # noqa: PLC0415 - comes with it

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as problem:
            raise ParameterError(
                f"schema is not a valid JSON schema: {problem.message}.", param="schema"
            ) from None
        # an empty registry: nothing that a schema refers to is downloaded
        return Draft202012Validator(schema, registry=Registry()).is_valid
    from svc_notebook.tools.schema import build, schema_of  # noqa: PLC0415 - pydantic

    try:
        schema_of(schema)
    except ToolSchemaError as problem:
        raise ParameterError(
            f"schema must be a JSON schema or a type; got {shown(schema)}. {problem}",
            param="schema",
        ) from None

    def fits(value: Any) -> bool:  # noqa: ANN401 - JSON
        try:
            build(schema, value)
        except ToolCallError:
            return False
        return True

    return fits
