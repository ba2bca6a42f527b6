"""Estimated tokens: a rule of letters, signs and scripts, on the safe side.

What it is not: a tokenizer. The service names none, and counts tokens itself in
whole replies (doc: Completion, usage); an estimate is always called one.

The fixed rule: a token for every 3 letters or blanks of ASCII, a token for every
other character of ASCII (digits, punctuation, line ends) and of Thai, one for every
2 bytes of any other script, 4 for every message. Common tokenizers take about 4
letters, 1 to 3 digits, or 1 to 3 Thai characters together; so the rule says too
many rather than too few: what is counted is a third of it to all of it. Rules that
were fitted on counted tokens say how far they were off (see `ledger.groups`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from string import ascii_letters
from typing import Any, NamedTuple

import msgspec

from svc_notebook.service.chunk import Choice
from svc_notebook.service.message import Message
from svc_notebook.service.tool import ToolCall

MESSAGE_TOKENS = 4
_LETTERS = (ascii_letters + " ").encode()
_THAI_LEADS = (b"\xe0\xb8", b"\xe0\xb9")  # U+0E00 to U+0E7F, three bytes each
_DIGITS = 6  # enough to take the rounding of thirds back


class Counts(NamedTuple):
    """What a rule looks at.

    Attributes:
        letters: ASCII letters and blanks.
        signs: Other characters of ASCII.
        thai: Thai characters.
        other_bytes: UTF-8 bytes of all other scripts.
        messages: Messages around the texts.
    """

    letters: int = 0
    signs: int = 0
    thai: int = 0
    other_bytes: int = 0
    messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Tokens as a weighted sum of counts.

    Attributes:
        weights: Tokens for one of each of `Counts`, in their order.
        low, high: A request's counted tokens were, or are taken to be, from `low` to
            `high` times the estimate.
        n_rows: Requests with reported usage that it was fitted on; 0: the fixed rule.
    """

    weights: tuple[float, ...]
    low: float
    high: float
    n_rows: int = 0

    def tokens(self, counts: Counts) -> int:
        """Return the estimated tokens; 0 for nothing."""
        total = sum(
            weight * count for weight, count in zip(self.weights, counts, strict=True)
        )
        return ceil(round(total, _DIGITS))


FIXED = Rule(weights=(1 / 3, 1.0, 1.0, 0.5, float(MESSAGE_TOKENS)), low=1 / 3, high=1.0)


def count(text: str) -> Counts:
    """Count what a rule looks at in a text."""
    if text.isascii():
        encoded = text.encode()
        n_signs = len(encoded.translate(None, _LETTERS))
        return Counts(letters=len(encoded) - n_signs, signs=n_signs)
    n_bytes = len(encoded := text.encode("utf-8", "surrogatepass"))
    ascii_part = text.encode("ascii", "ignore")
    n_signs = len(ascii_part.translate(None, _LETTERS))
    n_thai = sum(encoded.count(lead) for lead in _THAI_LEADS)
    return Counts(
        letters=len(ascii_part) - n_signs,
        signs=n_signs,
        thai=n_thai,
        other_bytes=n_bytes - len(ascii_part) - 3 * n_thai,
    )


def count_prompt(
    messages: Iterable[Message], tools: Iterable[Mapping[str, Any]] = ()
) -> Counts:
    """Count what a rule looks at in a whole prompt, tool definitions included."""
    found = [Counts()]
    for message in messages:
        found.append(count(message.content or "")._replace(messages=1))
        found += [_count_call(call) for call in message.tool_calls]
    found += [count(msgspec.json.encode(tool).decode()) for tool in tools]
    return add_up(found)


def count_choices(choices: Iterable[Choice]) -> Counts:
    """Count what a rule looks at in the choices of a reply."""
    found = [Counts()]
    for choice in choices:
        found.append(count(choice.text or ""))
        found += [_count_call(call) for call in choice.tool_calls]
    return add_up(found)


def add_up(counts: Iterable[Counts]) -> Counts:
    """Return the counts of all; there must be at least one."""
    return Counts(*(sum(each) for each in zip(*counts, strict=True)))


def _count_call(call: ToolCall) -> Counts:
    return count(call.function.name + call.function.arguments)


def estimate_tokens(text: str, *, rule: Rule = FIXED) -> int:
    """Estimate the tokens of a text; 0 for an empty one."""
    return rule.tokens(count(text))


def estimate_prompt_tokens(
    messages: Iterable[Message],
    tools: Iterable[Mapping[str, Any]] = (),
    *,
    rule: Rule = FIXED,
) -> int:
    """Estimate the tokens of a whole prompt, tool definitions included."""
    return rule.tokens(count_prompt(messages, tools))
