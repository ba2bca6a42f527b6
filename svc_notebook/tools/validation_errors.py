"""Sentences that say why a JSON value does not fit a type.

Each has the path in the value, what is expected there, and what came instead. A model
reads them and tries again; a user reads them in the error of a typed answer.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from svc_notebook.service.params import one_line

JsonSchema = dict[str, Any]
MAX_FAULTS = 8
"""Most errors of one value that the model is told."""

_MISSING = ("missing", "missing_argument")  # pydantic's error types
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_OF_USER = ("value_error", "assertion_error")
_IS_MISSING = "is missing"


def join_names(names: Iterable[str]) -> str:
    """Join names with commas; without names, return "no names"."""
    return ", ".join(names) or "no names"


def coerced_values(schema: JsonSchema, value: object, at: str) -> Iterator[str]:
    """Find values that pydantic would convert even in strict mode.

    For a date, it takes a text of digits as seconds since 1970; for an IntEnum, it
    takes True as 1.
    """
    path = at or "the value"
    if isinstance(value, str):
        is_number = value.strip().lstrip("+-").replace(".", "", 1).isdigit()
        if is_number and schema.get("format") in ("date", "date-time"):
            got = _to_json(value)
            yield f'{path}: expected a date such as "2026-01-31"; got {got}.'
    elif isinstance(value, bool):
        allowed = schema.get("enum", [value])
        if not any(value is member for member in allowed):
            yield f"{path}: expected one of {_to_json(allowed)}; got {_to_json(value)}."
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for step, item in items:
            yield from coerced_values(
                _schema_at(schema, step), item, _join_path(at, step)
            )


def _schema_at(schema: JsonSchema, step: str | int) -> JsonSchema:
    """Return the schema of an item or a field; in a union, of the first option."""
    options: list[JsonSchema] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    for option in options:
        inner = option.get("items")
        if isinstance(step, str):
            additional = option.get("additionalProperties")
            inner = option.get("properties", {}).get(step, additional)
        if isinstance(inner, dict):
            return inner
    return {}


def _join_path(at: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{at}[{step}]"
    return f"{at}.{one_line(step)}".removeprefix(".")


def validation_faults(
    errors: Iterable[Mapping[str, Any]], schema: JsonSchema, value: object, at: str
) -> tuple[str, ...]:
    """Return pydantic's errors as sentences: path, expected value, and value sent.

    The errors of all options of a union become one sentence.
    """
    reasons: dict[str, list[str]] = {}
    for error in errors:
        path, reason = _path_and_reason(error, schema, value, at)
        reasons.setdefault(path or "the value", []).append(reason)
    return tuple(
        f"{path} {_IS_MISSING}."
        if path_reasons == [_IS_MISSING]
        else f"{path}: {', or '.join(dict.fromkeys(path_reasons))}."
        for path, path_reasons in list(reasons.items())[:MAX_FAULTS]
    )


def _path_and_reason(
    error: Mapping[str, Any],
    schema: JsonSchema,
    value: Any,  # noqa: ANN401 - JSON
    at: str,
) -> tuple[str, str]:
    kind, known, last = error["type"], list[str](), len(error["loc"]) - 1
    for index, step in enumerate(error["loc"]):
        is_field = isinstance(value, dict) and step in value
        is_item = isinstance(value, list) and isinstance(step, int)
        is_missing = kind in _MISSING and index == last
        if not (is_field or is_item or is_missing):
            continue  # a union's option, which is not part of the value's path
        known = [
            name
            for option in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ()))
            for name in option.get("properties", ())
        ]
        at, schema = _join_path(at, step), _schema_at(schema, step)
        has_more = is_field or (is_item and step < len(value))
        value = value[step] if has_more else None
    if kind in _MISSING:
        return at, _IS_MISSING
    if kind in _UNKNOWN:
        return at, f"unknown name; expected {join_names(known)}"
    return at, _to_reason(error)


def _to_reason(error: Mapping[str, Any]) -> str:
    text = str(error["msg"])
    if error["type"] in _OF_USER:  # raised by a user's class: its own text, unchanged
        return one_line(text.partition(", ")[2], 300)
    is_simple = isinstance(error["input"], str | int | float | None)
    got = f"; got {_to_json(error['input'])}" if is_simple else ""
    return f"{text[:1].lower()}{one_line(text[1:], 300)}{got}"


def _to_json(value: object) -> str:
    return one_line(json.dumps(value, ensure_ascii=False))
