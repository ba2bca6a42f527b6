"""Numbers of a tool call, with every digit of those that become a Decimal."""

from collections.abc import Iterator, Mapping
from typing import Any

from svc_notebook.service.written_float import WrittenFloat

MAX_EXACT = 2**53  # larger floats may not be exact integers
_OTHER = ("null", "boolean", "array", "object")  # types that no number fits


def with_digits(value: Any, *schemas: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON value whose numbers for a Decimal are texts, as the schema says.

    Another float without a fraction becomes an integer, since 3.0 is both in JSON
    schema. The value fits one of the schemas.
    """
    options = [option for schema in schemas for option in _options(schema)]
    if isinstance(value, dict):
        return {
            name: with_digits(item, *_fields(options, name))
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = [option["items"] for option in options if "items" in option]
        return [with_digits(item, *items) for item in value]
    if not isinstance(value, WrittenFloat):
        return value
    fitting = [option for option in options if option.get("type") not in _OTHER]
    if {option.get("format") for option in fitting} == {"decimal"}:
        return value.text
    is_whole = value.is_integer() and abs(value) <= MAX_EXACT
    return int(value) if is_whole else float(value)


def _options(schema: object) -> Iterator[Mapping[str, Any]]:
    """Yield the options of a union, at any depth, or else the schema."""
    if not isinstance(schema, Mapping):  # True allows anything
        schema = {} if schema else {"type": "null"}
    union = schema.get("anyOf") or schema.get("oneOf")
    if not union:
        yield schema
    for option in union or ():
        yield from _options(option)


def _fields(options: list[Mapping[str, Any]], name: str) -> Iterator[object]:
    """Yield what each option says about the field with this name."""
    for option in options:
        additional = option.get("additionalProperties", False)
        yield option.get("properties", {}).get(name, additional)
