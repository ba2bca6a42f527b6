"""Tokens: an estimate of a text's size, and the budget of one request (doc: Limits).

The service names no tokenizer and reports tokens only for whole replies (doc:
Completion, usage), so everything here is an estimate. It errs on the high side: a
prompt that is estimated a little over the budget is still sent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from string import ascii_letters
from typing import Any, Literal, NamedTuple

import msgspec

from svc_notebook.errors import OverBudgetError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.chunk import Choice
from svc_notebook.service.params import DEFAULT_MAX_TOKENS
from svc_notebook.service.request import CompletionRequest, Message
from svc_notebook.service.tool_call import ToolCall

MESSAGE_TOKENS = 4
_LETTERS = (ascii_letters + " ").encode()
_THAI_LEADS = (b"\xe0\xb8", b"\xe0\xb9")  # U+0E00 to U+0E7F, three bytes each
_DIGITS = 6  # enough to undo the rounding of thirds


class Counts(NamedTuple):
    """What a rule counts in a text."""

    letters: int = 0  # ASCII letters and spaces
    signs: int = 0  # other ASCII characters
    thai: int = 0
    other_bytes: int = 0  # UTF-8 bytes of all other scripts
    messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Tokens as a weighted sum of counts.

    Attributes:
        weights: Tokens for one of each of `Counts`, in their order.
        low, high: The service counts from `low` to `high` times the estimate.
        n_rows: Requests with reported usage that it was fitted to; 0 for `FIXED`.
    """

    weights: tuple[float, ...]
    low: float
    high: float
    n_rows: int = 0

    def tokens(self, counts: Counts) -> int:
        """Return the estimated tokens; 0 for an empty text."""
        pairs = zip(self.weights, counts, strict=True)
        return ceil(round(sum(weight * n for weight, n in pairs), _DIGITS))


# Common tokenizers make one token of about 4 letters, 1 to 3 digits, or 1 to 3 Thai
# characters, so this rule rather counts too many: 3 letters or spaces, one other ASCII
# or Thai character, or 2 bytes of another script are a token.
FIXED = Rule(weights=(1 / 3, 1.0, 1.0, 0.5, float(MESSAGE_TOKENS)), low=1 / 3, high=1.0)


def count(text: str) -> Counts:
    """Count letters and signs in a text."""
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
    """Count letters and signs in a whole prompt, tool definitions included."""
    found = [Counts()]
    for message in messages:
        found.append(count(message.content or "")._replace(messages=1))
        found += [_count_call(call) for call in message.tool_calls]
    found += [count(msgspec.json.encode(tool).decode()) for tool in tools]
    return add_up(found)


def count_choices(choices: Iterable[Choice]) -> Counts:
    """Count letters and signs in the choices of a reply."""
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


MARGIN_TOKENS = 32
"""Kept free for the tokens around the messages, which cannot be counted."""

FLOOR_TOKENS = 256
"""Requested if the estimate leaves no room, because the estimate errs high."""

REPLY_TOKENS = 512
"""Room kept for the reply when turns are left out and max_tokens is `fit`."""

_SURE = 0.5  # estimates err high, but at most by half

MaxTokens = int | Literal["fit", "service"] | None
"""A number; `fit` for what is left of the budget; `service` or None to send none."""


def fit_max_tokens(prompt_tokens: int, *, budget_tokens: int = BUDGET_TOKENS) -> int:
    """Return the most tokens that a reply to this prompt can have.

    Args:
        prompt_tokens: Estimated tokens of the whole prompt.
        budget_tokens: Tokens that prompt and completion share (doc: Limits).
    """
    return max(budget_tokens - prompt_tokens - MARGIN_TOKENS, FLOOR_TOKENS)


def in_force(max_tokens: MaxTokens, prompt_tokens: int) -> int | None:
    """Return the max_tokens to send; None to leave it to the service's default.

    Args:
        max_tokens: As asked for.
        prompt_tokens: Estimated tokens of the whole prompt.
    """
    if max_tokens == "fit":
        return fit_max_tokens(prompt_tokens)
    return None if max_tokens in {None, "service"} else max_tokens  # type: ignore[return-value]  # the words are gone


def room_for_reply(max_tokens: MaxTokens) -> int:
    """Return the tokens to keep free for a reply when turns are left out."""
    if isinstance(max_tokens, int):
        return max_tokens
    return REPLY_TOKENS if max_tokens == "fit" else DEFAULT_MAX_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a request, in estimated tokens.

    Attributes:
        prompt: Messages of the system and the user, and text of the assistant.
        calls: Messages of the assistant that call tools.
        results: Messages of tools.
        definitions: Tool definitions.
        reply: max_tokens; 0 where none is sent.
    """

    prompt: int
    calls: int
    results: int
    definitions: int
    reply: int

    @property
    def sent(self) -> int:
        """Tokens that are sent."""
        return self.prompt + self.calls + self.results + self.definitions

    def __str__(self) -> str:
        names = {
            "the messages": self.prompt,
            "the model's tool calls": self.calls,
            "the tools' results": self.results,
            "the tools' definitions": self.definitions,
        }
        sizes = sorted(names.items(), key=lambda each: each[1], reverse=True)
        return ", ".join(f"{name} {size}" for name, size in sizes if size)

    @property
    def remedy(self) -> str:
        """What to do about the largest part."""
        room = BUDGET_TOKENS - self.sent
        remedies = {
            f"Ask for at most {room} tokens with max_tokens": (
                self.reply if room > 0 else 0
            ),
            "Shorten the prompt, or split it over several requests": self.prompt,
            "Ask for fewer or shorter tool calls": self.calls,
            "Let the tools return less (max_result_tokens), or allow fewer rounds": (
                self.results
            ),
            "Offer fewer tools, or shorten their descriptions": self.definitions,
        }
        return max(remedies, key=lambda each: remedies[each])


def parts_of(request: CompletionRequest) -> Parts:
    """Estimate the parts of a request."""
    results = [each for each in request.messages if each.role == "tool"]
    calls = [each for each in request.messages if each.tool_calls]
    others = [
        each for each in request.messages if each.role != "tool" and not each.tool_calls
    ]
    return Parts(
        prompt=estimate_prompt_tokens(others),
        calls=estimate_prompt_tokens(calls),
        results=estimate_prompt_tokens(results),
        definitions=estimate_prompt_tokens((), request.tools),
        reply=int(request.params.get("max_tokens", 0)),
    )


def check_budget(request: CompletionRequest) -> int:
    """Return the estimated tokens of the prompt, unless it certainly does not fit.

    Raises:
        OverBudgetError: It does not fit; the message names the largest part.
    """
    prompt_tokens = estimate_prompt_tokens(request.messages, request.tools)
    max_tokens = int(request.params.get("max_tokens", 0))
    if prompt_tokens * _SURE + max_tokens <= BUDGET_TOKENS:
        return prompt_tokens
    parts = parts_of(request)
    reply = f" and max_tokens={max_tokens} was requested" if max_tokens else ""
    raise OverBudgetError(
        f"The prompt has about {prompt_tokens} tokens (estimated: {parts}){reply}; "
        f"prompt and reply together may have {BUDGET_TOKENS}. It was not sent. "
        f"{parts.remedy} (doc: Limits).",
        prompt_tokens=prompt_tokens,
        budget_tokens=BUDGET_TOKENS,
    )


def room_for_results(
    request: CompletionRequest, *, n_calls: int, reply_tokens: int
) -> int:
    """Return the tokens that each result of so many calls may have.

    The results share evenly what the request and its reply leave, and one share is
    left for later rounds; each gets at least `FLOOR_TOKENS`.

    Args:
        request: With the calls' message at its end.
        n_calls: How many results are to come.
        reply_tokens: Room to keep for the reply.
    """
    room = BUDGET_TOKENS - MARGIN_TOKENS - parts_of(request).sent - reply_tokens
    return max(room // (n_calls + 1), FLOOR_TOKENS)
