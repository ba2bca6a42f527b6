"""Ready-made schemas: checked when they are given, and values against them.

Rules: jsonschema decides; nothing is ever fetched, so a schema may refer to itself
only; each fault is put in our own words for the model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ToolSchemaError

from .faults import Faults, inside, listed, short, shown


@dataclass(frozen=True, slots=True)
class Ready:
    """The parameters of a ready-made definition.

    Attributes:
        text: The schema as JSON: frozen.
    """

    text: str
    wanted = "an object"

    @classmethod
    def of(cls, schema: object, where: str) -> "Ready":
        """Check a schema; None stands for an object of any kind.

        Raises:
            ToolSchemaError: It is none, or is not JSON.
        """
        known = {"type": "object"} if schema is None else schema
        check_schema(known, where)
        try:
            return cls(json.dumps(known, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as problem:
            reason = short(str(problem), 200)
        raise ToolSchemaError(
            f"The parameters of {where} are not JSON ({reason}); give texts, numbers, "
            "lists and dicts (doc: Tool definition)."
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The schema, as it was given."""
        schema: dict[str, Any] = json.loads(self.text)
        return schema

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Check a value, which stays as it is."""
        add_faults(self.schema, value, at, faults)
        return value


def check_schema(schema: object, where: str) -> None:
    """Refuse what is not a JSON schema of an object.

    Raises:
        ToolSchemaError: It is none, or refers to another document.
    """
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - slow

    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ToolSchemaError(
            f"The parameters of {where} are not a schema of an object; give a mapping "
            "with type 'object' and properties (doc: Tool definition)."
        )
    try:
        Draft202012Validator.check_schema(schema)
        foreign = _foreign_refs(schema)
    except SchemaError as problem:
        reason = short(f"{'.'.join(map(str, problem.path))}: {problem.message}", 300)
    except RecursionError:
        reason = "it is nested too deep"
    else:
        if not foreign:
            return
        reason = f"it refers to {short(foreign[0])}, and nothing is fetched"
    raise ToolSchemaError(
        f"The parameters of {where} are not a JSON schema that can be used ({reason}); "
        "correct them (doc: Tool definition)."
    )


def _foreign_refs(schema: object) -> list[str]:
    if isinstance(schema, Mapping):
        own = [
            str(each)
            for name, each in schema.items()
            if name in ("$ref", "$dynamicRef") and not str(each).startswith("#")
        ]
        return own + [ref for each in schema.values() for ref in _foreign_refs(each)]
    if isinstance(schema, list | tuple):
        return [ref for each in schema for ref in _foreign_refs(each)]
    return []


def add_faults(
    schema: Mapping[str, Any], value: object, at: str, faults: Faults
) -> None:
    """Add everything in which a value does not fit a schema."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to load
    from referencing import Registry  # noqa: PLC0415 - slow to load

    checker = Draft202012Validator(schema, registry=Registry())  # fetches nothing
    try:
        for problem in checker.iter_errors(value):
            _add(problem, at, faults)
    except Exception as problem:  # noqa: BLE001 - references, patterns of any kind
        reason = short(f"{type(problem).__name__}: {problem}", 200)
        faults.add(f"{at or 'The value'} cannot be checked: {reason}.")


def _add(problem: Any, at: str, faults: Faults) -> None:  # noqa: ANN401 - jsonschema's
    place = at
    for part in problem.absolute_path:
        place = f"{place}[{part}]" if isinstance(part, int) else inside(place, part)
    value, wanted = problem.instance, problem.validator_value
    if problem.validator == "required":
        _add_once(
            [f"{inside(place, n)} is missing." for n in wanted if n not in value],
            faults,
        )
    elif problem.validator == "additionalProperties" and wanted is False:
        _add_unknown(problem.schema, value, place, faults)
    else:
        _add_value(problem, place or "The value", faults)


def _add_unknown(
    schema: Mapping[str, Any], value: Mapping[str, Any], place: str, faults: Faults
) -> None:
    known = schema.get("properties", {})
    allowed = f"the names are {', '.join(known)}" if known else "there are none"
    names = [inside(place, name) for name in value if name not in known]
    _add_once([f"{name} is not known; {allowed}." for name in names], faults)


def _add_value(problem: Any, here: str, faults: Faults) -> None:  # noqa: ANN401 - jsonschema's
    word, wanted, value = problem.validator, problem.validator_value, problem.instance
    if word == "type":
        types = wanted if isinstance(wanted, str) else " or ".join(wanted)
        faults.wrong(here, value, f"of type {types}")
    elif word == "enum":
        faults.wrong(here, value, f"one of {listed(tuple(wanted))}")
    else:
        faults.add(
            f"{here} is {shown(value)}; it does not fit: {short(problem.message, 200)}."
        )


def _add_once(sentences: list[str], faults: Faults) -> None:
    """Add what is not there yet: jsonschema tells of each missing name apart."""
    for sentence in sentences:
        if sentence not in faults.sentences:
            faults.add(sentence)
