"""Whether an answer is the same value as what a column says is right."""

import json
import math
from typing import Any

from svc_notebook.service.params import as_number

_JSON = ("{", "[")


def is_same(answer: Any, right: Any) -> bool:  # noqa: ANN401 - of any columns
    """Say whether two values are the same; only None is the same as None.

    Blanks around texts are ignored. A number may be given as a text, a date as ISO
    text, and a list or a dict as JSON.
    """
    if answer is None or right is None:
        return answer is right
    if isinstance(right, (list, tuple, dict)) or getattr(right, "ndim", 0) > 0:
        right = json.dumps(_listed(right), default=str)
    answer_text, right_text = plain(answer), plain(right)
    if answer_text == right_text:
        return True
    if answer_text.startswith(_JSON) and right_text.startswith(_JSON):
        return _is_same_json(answer_text, right_text)
    if hasattr(right, "isoformat"):
        return answer_text in _as_iso(right)
    one, other = number_of(answer), number_of(right)
    if one is not None and other is not None:
        return math.isclose(one, other, rel_tol=1e-9)
    return False


def plain(value: object) -> str:
    """Return a value as text, without blanks around it; "" for None."""
    return "" if value is None else str(value).strip()


def number_of(value: object) -> float | None:
    """Return the number that a value is, or is as text; None if it is none."""
    if isinstance(value, bool):
        return float(value)
    number = as_number(value)
    if number is None and isinstance(value, str):
        try:
            number = float(value.replace(",", ""))
        except ValueError:
            return None
    return number


def _listed(right: Any) -> Any:  # noqa: ANN401 - a list, a dict, or numpy's
    return right.tolist() if hasattr(right, "tolist") else right


def _is_same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _as_iso(instant: Any) -> set[str]:  # noqa: ANN401 - a date or an instant
    """Return how a date or an instant may be written: midnight as the date alone."""
    iso = str(instant.isoformat())
    day, _, time = iso.partition("T")
    return {iso, iso.replace("T", " ")} | ({day} if time == "00:00:00" else set())
