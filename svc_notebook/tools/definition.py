"""Ready-made tool definitions, and the check of calls against their JSON schema.

Nothing is downloaded, so a schema may only refer to itself.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from svc_notebook.errors import ParameterError, ToolCallError, ToolSchemaError
from svc_notebook.service.tool import check_definition

from .schema import short

MAX_FAULTS = 8
_FOREIGN = re.compile(r'"\$(?:dynamicR|r)ef": "([^#"][^"]*)"')


class ReadyParameters:
    """The parameters of a ready-made definition.

    Args:
        schema: Their JSON schema; None for an object with any fields.
        name: The tool's name, for errors.

    Raises:
        ToolSchemaError: It is not the JSON schema of an object.
    """

    def __init__(self, schema: Mapping[str, Any] | None, name: str) -> None:
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to load
        from referencing import Registry  # noqa: PLC0415 - slow to load

        known = {"type": "object"} if schema is None else schema
        _check_schema(known, name)
        self._validator = Draft202012Validator(known, registry=Registry())

    def read(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return a copy of a call's arguments if they fit the schema.

        Raises:
            ToolCallError: They do not fit; the message lists the first errors.
        """
        try:
            copied: dict[str, Any] = json.loads(json.dumps(arguments, allow_nan=False))
            found = list(self._validator.iter_errors(copied))
        except Exception as problem:  # noqa: BLE001 - references, patterns of any kind
            reason = short(f"{type(problem).__name__}: {problem}", 200)
            raise ToolCallError(f"The arguments cannot be checked: {reason}.") from None
        faults = tuple(
            f"{each.json_path.removeprefix('$').removeprefix('.') or 'the arguments'}: "
            f"{short(each.message, 200)}."
            for each in found[:MAX_FAULTS]
        )
        if faults:
            raise ToolCallError(" ".join(faults), faults=faults)
        return copied


def read_definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Check a ready-made definition and return a copy.

    Raises:
        ToolSchemaError: It is not valid (doc: Tool definition).
    """
    try:
        return sendable(dict(check_definition(definition)))
    except ParameterError as problem:
        reason = str(problem)
    raise ToolSchemaError(reason)


def sendable(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a definition as it is sent.

    Raises:
        ToolSchemaError: It cannot be sent as JSON.
    """
    try:
        text = json.dumps(definition, allow_nan=False, ensure_ascii=False)
        text.encode()
        copied: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as problem:
        reason = short(f"{type(problem).__name__}: {problem}", 200)
    else:
        return copied
    raise ToolSchemaError(
        f"A tool definition cannot be sent as JSON ({reason}); use texts, numbers, "
        "lists and dicts (doc: Tool definition)."
    )


def _check_schema(schema: object, name: str) -> None:
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - slow

    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ToolSchemaError(
            f"The parameters of {name} are not a schema of an object; give a mapping "
            "with type 'object' and properties (doc: Tool definition)."
        )
    try:
        Draft202012Validator.check_schema(schema)
        foreign = _FOREIGN.search(json.dumps(schema))
    except SchemaError as problem:
        reason = short(f"{'.'.join(map(str, problem.path))}: {problem.message}", 300)
    except RecursionError:
        reason = "it is nested too deep"
    else:
        if foreign is None:
            return
        reason = f"it refers to {short(foreign[1])}, which is not downloaded"
    raise ToolSchemaError(
        f"The parameters of {name} are not a valid JSON schema ({reason}); correct "
        "them (doc: Tool definition)."
    )
