"""Ready-made tool definitions: checks their schemas, and calls against the schemas.

A schema may only refer to parts of itself: nothing is downloaded.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from referencing import Registry

from svc_notebook.errors import ToolCallError, ToolSchemaError
from svc_notebook.service.params import one_line

from .validation_errors import MAX_FAULTS

_EXTERNAL_REF = re.compile(r'"\$(?:dynamicR|r)ef": "([^#"][^"]*)"')


class DefinedParameters:
    """The parameters of a ready-made definition; without a schema, any are allowed."""

    def __init__(self, schema: Mapping[str, Any] | None, name: str) -> None:
        object_schema = {"type": "object"} if schema is None else schema
        _check_schema(object_schema, name)
        self._validator = Draft202012Validator(object_schema, registry=Registry())

    def read(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return a copy of a call's arguments if they fit the schema."""
        try:
            copied: dict[str, Any] = json.loads(json.dumps(arguments, allow_nan=False))
            errors = list(self._validator.iter_errors(copied))
        except Exception as problem:  # noqa: BLE001 - a schema's references and patterns may raise anything
            reason = one_line(f"{type(problem).__name__}: {problem}", 200)
            raise ToolCallError(f"The arguments cannot be checked: {reason}.") from None
        faults = tuple(map(_to_sentence, errors[:MAX_FAULTS]))
        if faults:
            raise ToolCallError(" ".join(faults), faults=faults)
        return copied


def _to_sentence(error: ValidationError) -> str:
    path = error.json_path.removeprefix("$").removeprefix(".") or "the arguments"
    return f"{path}: {one_line(error.message, 200)}."


def _check_schema(schema: object, name: str) -> None:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ToolSchemaError(
            f"The parameters of {name} are not a schema of an object; give a mapping "
            "with type 'object' and properties."
        )
    try:
        Draft202012Validator.check_schema(schema)
        external_ref = _EXTERNAL_REF.search(json.dumps(schema))
    except SchemaError as problem:
        reason = one_line(f"{'.'.join(map(str, problem.path))}: {problem.message}", 300)
    except RecursionError:
        reason = "it is nested too deep"
    else:
        if external_ref is None:
            return
        reason = f"it refers to {one_line(external_ref[1])}, which is not downloaded"
    raise ToolSchemaError(
        f"The parameters of {name} are not a valid JSON schema ({reason}); correct "
        "them."
    )
