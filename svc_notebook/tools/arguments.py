"""A call's arguments: JSON text as the model wrote it, read strictly.

Rules: whatever is wrong is told in a sentence for the model, and no error of a JSON
library leaves here; a name that stands twice, a number that is none and half of a
character are refused, since nobody can say what was meant (doc: Tool call).
"""

import json
from typing import Any

from svc_notebook.errors import ToolCallError

from .faults import short, shown

MAX_DEPTH = 100
_REMEDY = "Write the arguments as one JSON object"


def parse_arguments(text: str, *, takes_none: bool = False) -> dict[str, Any]:
    """Read a call's arguments.

    Args:
        text: As the model wrote it.
        takes_none: Whether the tool has no parameters; then an empty text will do.

    Raises:
        ToolCallError: It is not the JSON of an object.
    """
    if takes_none and not text.strip():
        return {}
    value = _parsed(text)
    if isinstance(value, dict):
        return value
    raise ToolCallError(f"The arguments are {shown(value)}, not an object. {_REMEDY}.")


def _parsed(text: str) -> object:
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_number,
        )
        _check(value)
    except RecursionError:
        reason = "are nested too deep"
    except ValueError as problem:
        reason = _reason(problem)
    else:
        return value
    raise ToolCallError(f"The arguments {reason}. {_REMEDY}.")


def _reason(problem: ValueError) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"are not JSON: {problem.msg} at character {problem.pos}"
    if isinstance(problem, UnicodeEncodeError):
        return "hold half of a surrogate pair, which is no character"
    if isinstance(problem, _UnclearError):
        return f"are not clear: {problem}"
    return "hold a number of too many digits"  # Python reads at most 4300


class _UnclearError(ValueError):
    """Why JSON cannot be taken; stays in this file."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _UnclearError(f"the name {short(twice)} stands twice in one object")
    return found


def _constant(name: str) -> None:
    raise _UnclearError(f"{name} is not a number in JSON")


def _number(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _UnclearError(f"the number {short(text)} is too large")
    return number


def _check(value: object) -> None:
    """Refuse depth that later readers could not follow, and what UTF-8 cannot carry."""
    level = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            break
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += [*each.keys(), *each.values()]
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, str):
                each.encode()
        level = inner
    if level:
        raise RecursionError
