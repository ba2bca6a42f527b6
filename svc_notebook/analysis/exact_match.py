"""Exact match: whether an answer equals the correct one, or no answer ever could."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from svc_notebook.service.params import as_number, shorten

from .read_answers import AnswerType

_SHOWN_CHARS = 40
_JSON = ("{", "[")


def is_same(answer: Any, right: Any) -> bool:  # noqa: ANN401 - of any columns
    """Say whether an answer equals the right value; None equals only None.

    Spaces around texts are ignored. A number may be written as text, a date or an
    instant as ISO text, and a list or a dict as JSON.
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
    if isinstance(answer, date) or isinstance(right, date):
        instant = _instant_of(answer_text)
        return instant is not None and instant == _instant_of(right_text)
    answer_number, right_number = number_of(answer), number_of(right)
    if answer_number is not None and right_number is not None:
        return math.isclose(answer_number, right_number, rel_tol=1e-9)
    return False


def plain(value: object) -> str:
    """Return a value as text, without spaces around it; "" for None."""
    return "" if value is None else str(value).strip()


def number_of(value: object) -> float | None:
    """Return a value, or a text that spells a number, as a number; else None."""
    if isinstance(value, bool):
        return float(value)
    number = as_number(value)
    if number is None and isinstance(value, (str, Decimal)):
        try:
            number = float(str(value).replace(",", ""))
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


def _instant_of(text: str) -> datetime | None:
    """Return the instant of an ISO text, in UTC if it names no offset; else None."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How many values of a column no answer can ever equal.

    Attributes:
        column: The name of the column with the right values.
        n_values: How many replies have a value in it.
        n_never: How many of these no answer can equal.
        example: The first such value.
        why: What answers look like instead.
        counted: What has the values: replies, or rows that will be sent.
    """

    column: str = ""
    n_values: int = 0
    n_never: int = 0
    example: object = None
    why: str = ""
    counted: str = "replies"

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
        """Return the mismatch as a sentence."""
        example = shorten(repr(self.example), _SHOWN_CHARS)
        return (
            f"{self.n_never:,} of {self.n_values:,} {self.counted} have a "
            f"{self.column} that can never be the answer, such as {example}: "
            f"{self.why}."
        )

    @property
    def remedy(self) -> str:
        """What such values do to the score, and what to do next."""
        return (
            f"These count as wrong, whatever the model says. Correct the {self.column} "
            "of these rows, or leave the rows out."
        )


def mismatch(
    columns: Mapping[str, Sequence[Any]],
    positions: Sequence[int],
    column: str,
    answer: AnswerType | None,
) -> Mismatch:
    """Count the values of a column that no answer can equal.

    Args:
        columns: The columns of a frame of replies.
        positions: The rows of good replies.
        column: The column that answers are compared with.
        answer: The type that answers were read as; None if it must be inferred from
            the answers.
    """
    if "answer_ok" not in columns or column not in columns:
        return Mismatch()
    is_ok, answers = columns["answer_ok"], columns["answer"]
    values = [
        columns[column][row]
        for row in positions
        if is_ok[row] is not None and columns[column][row] is not None
    ]
    why = _reason_of(answer, [answers[row] for row in positions if is_ok[row]])
    return _count_never(values, column, why)


def planned_mismatch(
    values: Sequence[Any], column: str, answer: AnswerType
) -> Mismatch:
    """Count the values of the rows of a plan that no answer of its type can equal."""
    known = [value for value in values if value is not None]
    found = _count_never(known, column, _reason_of(answer, []))
    return replace(found, counted="rows")


def _count_never(
    values: Sequence[Any], column: str, why: Callable[[Any], str]
) -> Mismatch:
    reasons: dict[tuple[type, str], str] = {}  # so that each value is checked once
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
    """Return a function that says why no answer can equal a value; "" if one can."""
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
        return _no_reason if has_texts else _not_a_number
    texts = {plain(x).casefold(): plain(x) for x in answers}
    return lambda value: _other_case(plain(value), texts)


def _no_reason(_: object) -> str:
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
