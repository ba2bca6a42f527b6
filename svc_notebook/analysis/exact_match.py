"""Exact match: whether an answer is what a column says is right, or never can be."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svc_notebook.service.params import as_number, shorten

from .read_answers import AnswerType

_SHOWN_CHARS = 40
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


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How many values of a column can never be right.

    Attributes:
        column: The column.
        n_values: How many replies have a value in it.
        n_never: For how many of them no answer would be right.
        example: The first such value.
        why: What the answers are instead.
    """

    column: str = ""
    n_values: int = 0
    n_never: int = 0
    example: object = None
    why: str = ""

    def __add__(self, other: "Mismatch") -> "Mismatch":
        """Return the counts of both, with the first example."""
        first = self if self.n_never or not other.n_never else other
        return Mismatch(
            column=self.column or other.column,
            n_values=self.n_values + other.n_values,
            n_never=self.n_never + other.n_never,
            example=first.example,
            why=first.why,
        )

    def in_words(self) -> str:
        """Return a sentence."""
        example = shorten(repr(self.example), _SHOWN_CHARS)
        return (
            f"{self.n_never} of {self.n_values} replies have a {self.column} that can "
            f"never be the answer, such as {example}: {self.why}."
        )


def mismatch(
    columns: Mapping[str, Sequence[Any]],
    positions: Sequence[int],
    column: str,
    answer: AnswerType | None,
) -> Mismatch:
    """Count the values that no answer can be the same as.

    Args:
        columns: Of a frame of replies.
        positions: The rows of good replies.
        column: What the answers are compared with.
        answer: How they were read; if None, the answers themselves show it.
    """
    if "answer_ok" not in columns or column not in columns:
        return Mismatch()
    is_ok, answers = columns["answer_ok"], columns["answer"]
    values = [
        columns[column][at]
        for at in positions
        if is_ok[at] is not None and columns[column][at] is not None
    ]
    why = _reason_of(answer, [answers[at] for at in positions if is_ok[at]])
    reasons: dict[tuple[type, str], str] = {}  # each value once
    never: list[tuple[object, str]] = []
    for value in values:
        key = type(value), repr(value)
        if key not in reasons:
            reasons[key] = why(value)
        if reasons[key]:
            never.append((value, reasons[key]))
    example, reason = never[0] if never else (None, "")
    return Mismatch(column, len(values), len(never), example, reason)


def _reason_of(
    answer: AnswerType | None, answers: Sequence[Any]
) -> Callable[[Any], str]:
    """Return a function that says why a value can never be right; "" if it can."""
    is_unknown = answer is None or answer.dtype is None
    is_json = any(isinstance(x, str) and x.startswith("{") for x in answers)
    if (answer is not None and answer.form) or (is_unknown and is_json):
        return _not_fields
    if answer is not None and answer.labels is not None:
        return lambda value: _not_a_label(value, answer.labels or ())
    if all(isinstance(x, bool) for x in answers) and answers:
        return lambda value: _not_a_label(value, (True, False))
    if answers and all(number_of(x) is not None for x in answers):
        has_texts = any(isinstance(x, str) for x in answers)
        return _fits if has_texts else _not_a_number
    texts = {plain(x).casefold(): plain(x) for x in answers}
    return lambda value: _other_case(plain(value), texts)


def _fits(_: object) -> str:
    return ""


def _not_fields(value: object) -> str:
    if isinstance(value, (dict, list)) or plain(value).startswith(("{", "[")):
        return ""
    return "the answer has fields; svc.scores.fields('gold_{}') compares each"


def _not_a_label(value: object, labels: Sequence[Any]) -> str:
    if any(is_same(label, value) for label in labels):
        return ""
    near = [x for x in labels if plain(x).casefold() == plain(value).casefold()]
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"the answers are {shorten(', '.join(map(repr, labels)), 80)}{hint}"


def _not_a_number(value: object) -> str:
    return "" if number_of(value) is not None else "the answers are numbers"


def _other_case(value: str, texts: Mapping[str, str]) -> str:
    near = texts.get(value.casefold())
    is_other = near is not None and near != value and value not in texts.values()
    return f"the replies say {near!r}" if is_other else ""
