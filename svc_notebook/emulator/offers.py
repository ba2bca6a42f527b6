"""The document's rules on `tools`: the definitions on offer.

What it is not: `tools` decides which offer is called and with what.

Rules for this file: only the shape shown is checked (doc: Tool definition); what
stands in a property's schema is left to whoever calls the tool.
"""

from .ask import JsonObject, Tool
from .fault import RuleError


def read_tools(value: object) -> tuple[Tool, ...]:
    """Check the tools on offer.

    Raises:
        RuleError: They are not an array of function definitions, or one name is
            used twice.
    """
    if not isinstance(value, list):
        raise RuleError("'tools' has to be an array.")
    tools = tuple(_tool(each, f"tools[{at}]") for at, each in enumerate(value))
    if len({tool.name for tool in tools}) < len(tools):
        raise RuleError(
            "'tools' holds one function name twice, which this emulator does not "
            "take (a bound of its own)."
        )
    return tools


def _tool(value: object, where: str) -> Tool:
    """Check one definition."""
    if not isinstance(value, dict) or value.get("type") != "function":
        raise RuleError(f"'{where}' has to be an object with type 'function'.")
    function = value.get("function")
    if not isinstance(function, dict):
        raise RuleError(f"'{where}.function' has to be an object.")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RuleError(f"'{where}.function.name' has to be a non-empty string.")
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise RuleError(f"'{where}.function.description' has to be a string.")
    return Tool(name=name, description=description, parameters=_schema(function, where))


def _schema(function: JsonObject, where: str) -> JsonObject:
    """Check that parameters, if there, are an object schema."""
    schema = function.get("parameters")
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise RuleError(
            f"'{where}.function.parameters' has to be a schema of type 'object'."
        )
    _check_words(schema, f"{where}.function.parameters")
    return schema


def _check_words(schema: JsonObject, where: str) -> None:
    """Check the two words of an object schema that say what its inputs are."""
    properties = schema.get("properties", {})
    # JSON Schema also knows true and false, for anything and nothing.
    if not isinstance(properties, dict) or not all(
        isinstance(each, dict | bool) for each in properties.values()
    ):
        raise RuleError(f"'{where}.properties' has to be an object of objects.")
    required = schema.get("required")
    if required is None:
        return
    if not isinstance(required, list) or not all(isinstance(x, str) for x in required):
        raise RuleError(f"'{where}.required' has to be an array of input names.")
