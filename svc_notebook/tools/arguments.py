"""The text of a call's arguments: strict JSON of an object, and calls that were cut."""

import json
import sys
from math import isfinite
from typing import Any

from svc_notebook.completion import Completion
from svc_notebook.errors import CutError, ToolCallError
from svc_notebook.service.params import one_line
from svc_notebook.tokens import more_room

MAX_DEPTH = 100
MAX_EXACT = 2**53  # larger floats are not exact integers


def parse_arguments(text: str, *, takes_none: bool = False) -> dict[str, Any]:
    """Read a call's arguments: strict JSON of an object (doc: Tool call).

    A float without a fraction becomes an integer, since 3.0 is both in JSON schema. If
    the tool has no parameters (`takes_none`), the text may be empty.
    """
    if takes_none and not text.strip():
        return {}
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_not_json,
            parse_float=_number,
            parse_int=_whole_number,
        )
        json.dumps(value, ensure_ascii=False).encode()
        _check_depth(value, MAX_DEPTH)
    except UnicodeEncodeError:
        reason = "are not text: they contain half of a surrogate pair"
    except (ValueError, RecursionError) as problem:
        reason = f"are not JSON ({one_line(str(problem), 200)})"
    else:
        if isinstance(value, dict):
            return value
        reason = "are not an object"
    raise ToolCallError(
        f"The arguments {reason}. Write the arguments as one JSON object."
    )


def check_whole(completion: Completion) -> None:
    """Refuse the calls of a reply that was cut in the middle of one (CutError)."""
    for call in completion.tool_calls if completion.is_cut else ():
        try:
            parse_arguments(call.function.arguments)
        except ToolCallError:
            what = f"in the middle of a call of {one_line(call.function.name)}"
            raise cut_error(completion, f"{what}, which was not run") from None


def cut_error(completion: Completion, where: str) -> CutError:
    """Build the error for a reply that was cut, with what to pass."""
    error = CutError(f"The reply was cut {where}. {more_room(completion.request)}.")
    error.partial = completion
    error.exchange_id = completion.exchange.exchange_id
    return error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is given twice in one object")
    return members


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{one_line(text)} is too large")
    is_whole = number.is_integer() and abs(number) <= MAX_EXACT
    return int(number) if is_whole else number


def _whole_number(text: str) -> int:
    number = int(text)
    if abs(number) > sys.float_info.max:  # it would be infinity as a float
        raise ValueError(f"{one_line(text)} is too large")
    return number


def _check_depth(value: object, n_left: int) -> None:
    """Refuse deep nesting, which later readers of the value could not handle."""
    if n_left <= 0:
        raise RecursionError("nested too deep")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, n_left - 1)
