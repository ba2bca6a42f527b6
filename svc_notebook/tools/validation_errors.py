"""Why a JSON value does not fit a type: its path, what is expected, what came.

A model reads them and tries again; a user finds them in a typed answer's error.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from svc_notebook.service.params import one_line

JsonSchema = dict[str, Any]
MAX_FAULTS = 8
"""Errors of one value that the model is told."""

_MISSING = ("missing", "missing_argument")  # pydantic's names of errors
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_OF_USER = ("value_error", "assertion_error")
_IS_MISSING = "is missing"


def listed(names: Iterable[str]) -> str:
    """Write names with commas between them."""
    return ", ".join(names) or "no names"


def coerced_values(schema: JsonSchema, value: object, at: str) -> Iterator[str]:
    """Find what pydantic would convert even in strict mode.

    Digits alone are seconds since 1970 for a date, and True is 1 for an IntEnum.
    """
    path = at or "the value"
    if isinstance(value, str):
        is_number = value.strip().lstrip("+-").replace(".", "", 1).isdigit()
        if is_number and schema.get("format") in ("date", "date-time"):
            yield f'{path}: expected a date such as "2026-01-31"; got {_shown(value)}.'
    elif isinstance(value, bool):
        allowed = schema.get("enum", [value])
        if not any(value is member for member in allowed):
            yield f"{path}: expected one of {_shown(allowed)}; got {_shown(value)}."
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for step, item in items:
            yield from coerced_values(_inner(schema, step), item, _path(at, step))


def _inner(schema: JsonSchema, step: str | int) -> JsonSchema:
    """Return the schema of an item or a field; of a union, that of an option."""
    options: list[JsonSchema] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    for option in options:
        inner = option.get("items")
        if isinstance(step, str):
            rest = option.get("additionalProperties")
            inner = option.get("properties", {}).get(step, rest)
        if isinstance(inner, dict):
            return inner
    return {}


def _path(at: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{at}[{step}]"
    return f"{at}.{one_line(step)}".removeprefix(".")


def validation_faults(
    errors: Iterable[Mapping[str, Any]], schema: JsonSchema, value: object, at: str
) -> tuple[str, ...]:
    """Return pydantic's errors as sentences: the path, what is expected, what was sent.

    The options of a union fail one by one; they are one sentence.
    """
    reasons: dict[str, list[str]] = {}
    for error in errors:
        path, reason = _path_and_reason(error, schema, value, at)
        reasons.setdefault(path or "the value", []).append(reason)
    return tuple(
        f"{path} {_IS_MISSING}."
        if several == [_IS_MISSING]
        else f"{path}: {', or '.join(dict.fromkeys(several))}."
        for path, several in list(reasons.items())[:MAX_FAULTS]
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
            continue  # the name of an option of a union, which is not in the path
        known = [
            name
            for option in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ()))
            for name in option.get("properties", ())
        ]
        at, schema = _path(at, step), _inner(schema, step)
        has_more = is_field or (is_item and step < len(value))
        value = value[step] if has_more else None
    if kind in _MISSING:
        return at, _IS_MISSING
    if kind in _UNKNOWN:
        return at, f"unknown name; expected {listed(known)}"
    return at, _reason(error)


def _reason(error: Mapping[str, Any]) -> str:
    text = str(error["msg"])
    if error["type"] in _OF_USER:  # what a class of the user raised, word for word
        return one_line(text.partition(", ")[2], 300)
    is_simple = isinstance(error["input"], str | int | float | None)
    got = f"; got {_shown(error['input'])}" if is_simple else ""
    return f"{text[:1].lower()}{one_line(text[1:], 300)}{got}"


def _shown(value: object) -> str:
    return one_line(json.dumps(value, ensure_ascii=False))
