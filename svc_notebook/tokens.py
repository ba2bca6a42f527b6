"""Tokens: estimates of a text's size, and the budget of one request (doc: Limits).

The service names no tokenizer, and reports usage only for replies in one piece (doc:
Completion, usage). Users see a best estimate with an interval. The budget uses bounds:
the upper bound to compute max_tokens, the lower one to refuse what cannot fit.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, hypot, sqrt
from operator import mul
from typing import Any, Final, Literal, NamedTuple

import msgspec

from svc_notebook.errors import OverBudgetError, ParameterError, warn
from svc_notebook.service.catalogue import (
    BUDGET_TOKENS,
    DEFAULT_MAX_TOKENS,
    DOCUMENTED,
    ModelInfo,
)
from svc_notebook.service.chunk import Choice
from svc_notebook.service.params import check, must_be
from svc_notebook.service.request import CompletionRequest, Message, ToolCall

Z_90 = 1.645
"""90 % of a normal distribution lie within this many standard deviations."""


@dataclass(frozen=True, slots=True, repr=False)
class Tokens:
    """An estimated number of tokens: `best`, and an interval from `low` to `high`.

    The true number is in the interval in at least 9 of 10 cases. Estimates can be
    added. The errors of single texts then partly cancel, so the interval of a sum is
    relatively narrower. The error from not knowing the tokenizer is the same for all
    texts, and does not cancel.

    Attributes:
        mean: The best estimate, not rounded, so that sums are unbiased.
        under, over: How far the counts of the tokenizer can be below and above the
            mean.
        variance: The variance of the errors of single texts.

    Example:
        >>> sum(map(svc.estimate_tokens, ["one", "two"]), svc.Tokens()).best
        2
    """

    mean: float = 0.0
    under: float = 0.0
    over: float = 0.0
    variance: float = 0.0

    @property
    def best(self) -> int:
        """The best estimate."""
        return round(self.mean)

    @property
    def low(self) -> int:
        """The lower end of the interval."""
        return floor(max(round(self.mean - self._width(self.under), _DIGITS), 0.0))

    @property
    def high(self) -> int:
        """The upper end of the interval."""
        return ceil(round(self.mean + self._width(self.over), _DIGITS))

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.mean + other.mean,
            self.under + other.under,
            self.over + other.over,
            self.variance + other.variance,
        )

    def __radd__(self, other: int) -> "Tokens":
        return self if other == 0 else NotImplemented  # because `sum` begins with 0

    def __str__(self) -> str:
        high = f" to {self.high:,}" if self.low != self.high else ""
        return f"{self.low:,}{high}"

    def __repr__(self) -> str:
        return f"<Tokens ~{self.best:,} ({self})>"

    def times(self, n: float) -> "Tokens":
        """Return the estimate of `n` times the same text."""
        return Tokens(
            self.mean * n, self.under * n, self.over * n, self.variance * n**2
        )

    def capped(self, max_tokens: int) -> "Tokens":
        """Return the estimate limited to a known maximum."""
        if self.high <= max_tokens:
            return self
        mean = min(self.mean, float(max_tokens))
        share = (max_tokens - mean) / self._width(self.over)
        variance = self.variance * share**2
        under = hypot(self.under, Z_90 * sqrt(self.variance - variance))
        return Tokens(mean, under, self.over * share, variance)

    def _width(self, of_tokenizer: float) -> float:
        return hypot(of_tokenizer, Z_90 * sqrt(self.variance))


_DIGITS = 6  # enough to undo the rounding of floats


class Counts(NamedTuple):
    """The features of a text that are counted to estimate its tokens."""

    words: int = 0  # runs of ASCII letters; `aB` is two words
    letters: int = 0  # in words of more than 12 letters: those after the eighth
    numbers: int = 0  # runs of up to three digits
    digits: int = 0  # digits of a number after its first one
    signs: int = 0  # runs of other ASCII characters
    more_signs: int = 0  # characters of such a run after its first one
    gaps: int = 0  # runs of spaces, and runs of line ends and tabs
    breaks: int = 0  # line ends and tabs
    spaces: int = 0  # spaces of a run after its first one
    thai: int = 0
    cjk: int = 0  # Chinese characters and kana
    two_bytes: int = 0  # in UTF-8: accented letters, Cyrillic, Arabic, …
    three_bytes: int = 0  # scripts of India, Hangul, symbols, …; control characters
    four_bytes: int = 0  # emoji
    messages: int = 0


# Tokens per feature, in the order of `Counts`. On average, a tokenizer's value is
# between low and high. For a single text, no plausible tokenizer is below least or
# above most. Measured with prose, docstrings, source code, JSON, Thai and Chinese
# interface texts, tables, numbers and emoji, and the vocabularies of tests/tokens:
# these hardly differ for English and code, but by a factor of three for Thai.
_BEST, _LOW, _HIGH, _LEAST, _MOST = zip(
    (1.05, 0.95, 1.15, 0.7, 1.5),
    (0.35, 0.1, 0.6, 0.1, 0.8),
    (1.35, 1.1, 1.7, 0.9, 2.0),
    (0.12, 0.0, 0.75, 0.0, 1.0),
    (0.85, 0.72, 1.15, 0.4, 1.4),
    (0.05, 0.0, 0.15, 0.0, 1.0),
    (0.55, 0.45, 0.7, 0.0, 1.0),
    (0.05, 0.0, 0.1, 0.0, 1.0),
    (0.03, 0.0, 0.06, 0.0, 0.13),
    (0.45, 0.29, 1.1, 0.22, 1.15),
    (0.65, 0.5, 1.2, 0.35, 1.5),
    (0.45, 0.2, 1.0, 0.12, 1.5),
    (0.7, 0.3, 1.2, 0.15, 3.0),
    (1.8, 1.0, 2.9, 0.6, 4.2),
    (4.0, 3.0, 6.0, 0.0, 8.0),
    strict=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRule:
    """Tokens as a weighted sum of counts."""

    weights: tuple[float, ...]  # tokens per feature, in the order of `Counts`
    lows: tuple[float, ...]  # lower ends of the weights, on average
    highs: tuple[float, ...]  # upper ends of the weights, on average
    noise: float = 0.07  # relative standard deviation of the error of a single text
    is_by_chunk: bool = False  # whether the model's streams have one token per chunk
    n_rows: int = 0  # requests with reported usage that the rule was fitted to

    def tokens(self, counts: Counts) -> Tokens:
        """Return the estimated tokens; 0 for an empty text."""
        mean = _weigh(self.weights, counts)
        return Tokens(
            mean,
            mean - _weigh(self.lows, counts),
            _weigh(self.highs, counts) - mean,
            (self.noise * mean) ** 2 + _OWN_VARIANCE * mean,
        )


_OWN_VARIANCE = 0.3  # per token: this error dominates in short texts

FIXED = TokenRule(weights=_BEST, lows=_LOW, highs=_HIGH)


def _weigh(weights: Sequence[float], counts: Counts) -> float:
    return float(sum(map(mul, weights, counts)))


_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_LONG_LETTERS = 12
_SHORT_LETTERS = 8
_NUMBERS = re.compile(r"[0-9]{1,3}")
_SIGN_ROWS = re.compile(r"[!-/:-@\[-`{-~]+")
_GAPS = re.compile(r"  +")
_BREAK_ROWS = re.compile(r"[\n\t\r]+")
_SIGNS = bytes(n for n in range(0x21, 0x7F) if not chr(n).isalnum())
_THAI_LEADS = (b"\xe0\xb8", b"\xe0\xb9")  # U+0E00 to U+0E7F, three bytes each
_CJK_LEADS = bytes(range(0xE3, 0xEA))
_TWO_LEADS = bytes(range(0xC2, 0xE0))
_CONTROLS = bytes([*(n for n in range(0x20) if chr(n) not in "\n\t\r"), 0x7F])
_THREE_LEADS = bytes([*range(0xE0, 0xE3), *range(0xEA, 0xF0)])
_FOUR_LEADS = bytes(range(0xF0, 0xF5))


def count(text: str) -> Counts:
    """Count words, signs and characters of other scripts in a text."""
    encoded = text.encode("utf-8", "surrogatepass")

    def n_of(
        byte_values: bytes,
    ) -> int:  # the fastest way to count bytes of several values
        return len(encoded) - len(encoded.translate(None, byte_values))

    words = _WORDS.findall(text)
    longs = [len(word) for word in words if len(word) > _LONG_LETTERS]
    n_numbers = len(_NUMBERS.findall(text))
    n_signs = len(_SIGN_ROWS.findall(text))
    gaps = _GAPS.findall(text) if "  " in text else []
    counts = Counts(
        words=len(words),
        letters=sum(longs) - _SHORT_LETTERS * len(longs),
        numbers=n_numbers,
        digits=n_of(b"0123456789") - n_numbers,
        signs=n_signs,
        more_signs=n_of(_SIGNS) - n_signs,
        gaps=len(gaps) + len(_BREAK_ROWS.findall(text)),
        breaks=n_of(b"\n\t\r"),
        spaces=sum(map(len, gaps)) - len(gaps),
        three_bytes=n_of(_CONTROLS),
    )
    if len(encoded) == len(text):
        return counts
    n_thai = sum(encoded.count(lead) for lead in _THAI_LEADS)
    return counts._replace(
        thai=n_thai,
        cjk=n_of(_CJK_LEADS),
        two_bytes=n_of(_TWO_LEADS),
        three_bytes=counts.three_bytes + n_of(_THREE_LEADS) - n_thai,
        four_bytes=n_of(_FOUR_LEADS),
    )


# Cached, because a history is counted again for each turn and each redraw of a panel,
# and a sweep gets the same short labels many times.
_LABEL_CHARS = 40
_count_cached = lru_cache(maxsize=512)(count)


def count_prompt(
    messages: Iterable[Message], tools: Iterable[Mapping[str, Any]] = ()
) -> Counts:
    """Count the features of a whole prompt with its tool definitions."""
    messages = tuple(messages)
    counted = [_count_cached(message.content or "") for message in messages]
    counted += [
        _count_call(call) for message in messages for call in message.tool_calls
    ]
    counted += [count(msgspec.json.encode(tool).decode()) for tool in tools]
    return Counts(*add_up(counted)[:-1], messages=len(messages))


def count_choices(choices: Iterable[Choice]) -> Counts:
    """Count the features of the choices of a reply."""
    counted = []
    for choice in choices:
        text = choice.text or ""
        is_label = len(text) <= _LABEL_CHARS
        counted.append((_count_cached if is_label else count)(text))
        if choice.reasoning:  # reported usage includes its tokens
            counted.append(count(choice.reasoning))
        counted += map(_count_call, choice.tool_calls)
    return add_up(counted)


def add_up(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    counts = tuple(counts)
    if len(counts) == 1:
        return counts[0]
    return Counts(*map(sum, zip(*counts, strict=True)))


def _count_call(call: ToolCall) -> Counts:
    return count(call.function.name + call.function.arguments)


def estimate_tokens(text: str) -> Tokens:
    """Estimate the tokens of a text.

    The service names no tokenizer, so the estimate fits several common ones. They agree
    within a few percent on English and code. For Thai, some count three times as many
    tokens as others, and the interval is correspondingly wide.

    Args:
        text: A text of any length, in any language.

    Returns:
        `best`, an integer, and the interval `low` to `high`; 0 for an empty text.
        Estimates can be added, for example with `sum(estimates, svc.Tokens())`.

    Example:
        >>> svc.estimate_tokens("How many tokens does this have?").best
        7
    """
    if not isinstance(text, str):
        raise must_be("text", "a text", text)
    return FIXED.tokens(count(text))


def estimate_prompt_tokens(
    messages: Iterable[Message],
    tools: Iterable[Mapping[str, Any]] = (),
    *,
    info: ModelInfo = DOCUMENTED,
) -> Tokens:
    """Estimate the tokens of a whole prompt with its tool definitions.

    A refusal may have told how the model counts: see `info.prompt_excess`.
    """
    estimate = FIXED.tokens(count_prompt(messages, tools))
    if info.prompt_excess is None:
        return estimate
    mean = estimate.mean + info.prompt_excess * estimate.over
    return Tokens(max(mean, 0.0), variance=estimate.variance)


def estimate_reply_tokens(
    choices: Sequence[Choice], *, max_tokens: int | None
) -> Tokens:
    """Estimate the tokens of a reply; each choice has at most `max_tokens`."""
    estimate = FIXED.tokens(count_choices(choices))
    if max_tokens is None:
        return estimate
    return estimate.capped(max_tokens * max(len(choices), 1))


def by_chunks(n_chunks: int) -> Tokens:
    """Estimate the tokens of a stream with one token per chunk.

    The last chunk has no text, and the first may only have the role (doc: Stream
    chunk).
    """
    mean = max(n_chunks - 1.5, 0.0)
    return Tokens(mean, min(mean, 0.5), 0.5, (_CHUNK_NOISE * mean) ** 2)


_CHUNK_NOISE = 0.02  # a character of several tokens arrives as one chunk


def most_tokens(text: str) -> int:
    """Return the most tokens that a text can have, for the budget."""
    return ceil(round(_weigh(_MOST, count(text)), _DIGITS))


def most_prompt_tokens(
    messages: Iterable[Message], tools: Iterable[Mapping[str, Any]] = ()
) -> int:
    """Return the most tokens that a whole prompt can have, for the budget."""
    return ceil(round(_weigh(_MOST, count_prompt(messages, tools)), _DIGITS))


MARGIN_TOKENS = 32
"""Kept free for tokens that the service adds around messages; they are unknown."""

FLOOR_TOKENS = 256
"""Requested even if the upper estimate of the prompt leaves no room."""

LEAST_REPLY_TOKENS = 16
"""Requested even if the prompt, whose size is known from a refusal, leaves no room."""

REPLY_TOKENS = 512
"""Kept free for the reply when turns are left out and max_tokens is `fit`."""

MaxTokens = int | Literal["fit", "service"] | None
"""A number; `fit` for the most that fits; `service` or None to send none."""


def fit_max_tokens(
    prompt_tokens: int,
    best_tokens: int | None = None,
    *,
    info: ModelInfo = DOCUMENTED,
) -> int | None:
    """Return the most tokens that a reply can have (doc: Limits).

    Args:
        prompt_tokens: Upper bound of the tokens of the whole prompt.
        best_tokens: Best estimate of the same. The room that it leaves is used up to
            `REPLY_TOKENS`, because the upper bound can be far above the true number.
        info: What is known of the model.

    Returns:
        The tokens that the prompt leaves of the context, at most those that a reply may
        have; None if the most tokens of a reply are unknown.
    """
    most, context_tokens = info.max_reply_tokens, info.context_tokens
    if most is None or context_tokens is None:
        return most
    room = context_tokens - MARGIN_TOKENS
    best = prompt_tokens if best_tokens is None else best_tokens
    is_known = info.prompt_excess is not None
    floor_tokens = min(  # smaller in a very small context
        LEAST_REPLY_TOKENS if is_known else FLOOR_TOKENS, context_tokens // 4
    )
    left = max(room - prompt_tokens, min(room - best, REPLY_TOKENS), floor_tokens)
    return min(left, most)


def room_for_reply(max_tokens: MaxTokens) -> int:
    """Return the tokens to keep free for a reply when turns are left out."""
    if isinstance(max_tokens, int):
        return max(max_tokens, 0)
    return REPLY_TOKENS if max_tokens == "fit" else DEFAULT_MAX_TOKENS


_REMEDIES = {
    "the messages": "Shorten the prompt, or split it over several requests",
    "the model's tool calls": "Ask for fewer or shorter tool calls",
    "the tools' results": "Let the tools return less (max_result_tokens), or allow "
    "fewer rounds",
    "the tools' definitions": "Offer fewer tools, or shorten their descriptions",
}
"""The parts of a prompt, and what to do if one is too large."""


def _sizes_of_parts(request: CompletionRequest) -> dict[str, int]:
    """Estimate the tokens of the parts of a prompt, largest first."""
    results = [message for message in request.messages if message.role == "tool"]
    calls = [message for message in request.messages if message.tool_calls]
    others = [
        message
        for message in request.messages
        if message.role != "tool" and not message.tool_calls
    ]
    estimates = [
        estimate_prompt_tokens(messages) for messages in (others, calls, results)
    ]
    estimates.append(estimate_prompt_tokens((), request.tools))
    sizes = zip(_REMEDIES, (estimate.best for estimate in estimates), strict=True)
    return dict(sorted(sizes, key=lambda size: size[1], reverse=True))


def check_budget(request: CompletionRequest) -> Tokens:
    """Return the estimated tokens of the prompt; refuse a request that cannot fit."""
    counts = count_prompt(request.messages, request.tools)
    prompt, least = FIXED.tokens(counts), floor(_weigh(_LEAST, counts))
    max_tokens = int(request.params.get("max_tokens", 0))
    budget = request.context_tokens
    if budget is None or least + max_tokens <= budget:
        return prompt
    parts = _sizes_of_parts(request)
    sizes = ", ".join(f"{name} {size:,}" for name, size in parts.items() if size)
    largest, room = next(iter(parts)), budget - sum(parts.values())
    remedy = _REMEDIES[largest]
    if room > 0 and max_tokens >= parts[largest]:
        remedy = f"Ask for at most {room:,} tokens with max_tokens"
    is_asked = max_tokens and not request.is_fitted
    reply = f" and max_tokens={max_tokens} was requested" if is_asked else ""
    raise OverBudgetError(
        f"The prompt has about {prompt.best:,} tokens (estimated: {sizes}), at least "
        f"{least:,}{reply}; prompt and reply together may have {budget:,}. It was "
        f"not sent. {remedy}.{context_source_note(request.info)}",
        prompt_tokens=prompt.best,
        budget_tokens=budget,
    )


def context_source_note(info: ModelInfo) -> str:
    """Return where a context is from, and how to correct it; "" for the document's."""
    if not info.source:
        return ""
    return (
        f" This number is from {info.source}. If it is wrong, set the right one: "
        "svc.use(context=N), or context = N in svc_notebook.toml."
    )


LARGE_TOKENS = 32_768
"""If the context is unknown, there is a warning about prompts above this."""


def warn_if_over(request: CompletionRequest, prompt_tokens: int) -> None:
    """Warn about a request that probably does not fit; the service decides."""
    budget = request.context_tokens
    if budget is None:
        if prompt_tokens > LARGE_TOKENS:
            warn(
                f"The prompt has about {prompt_tokens:,} tokens (estimated), and the "
                f"context of {request.model} is unknown. The prompt is sent, and the "
                "server decides. If you know the context, set it with "
                "svc.use(context=N)."
            )
        return
    if prompt_tokens + int(request.params.get("max_tokens", 0)) > budget:
        warn(
            "A request may not fit: its prompt (estimated) and max_tokens together "
            f"exceed {budget:,} tokens. It is sent, and the service decides. If "
            "it is refused, shorten the prompt or lower max_tokens."
        )


def room_for_results(
    request: CompletionRequest, *, n_calls: int, reply_tokens: int
) -> int:
    """Return the tokens that the result of each of `n_calls` tool calls may have.

    The room that the request and its reply leave is divided evenly between the results
    and one more share for later rounds; each result gets at least `FLOOR_TOKENS`. The
    request ends with the message that has the calls.
    """
    context_tokens = (
        request.context_tokens or BUDGET_TOKENS
    )  # 8192 if unknown: a result may be of any size
    prompt_tokens = most_prompt_tokens(request.messages, request.tools)
    room = context_tokens - MARGIN_TOKENS - prompt_tokens - reply_tokens
    return max(room // (n_calls + 1), FLOOR_TOKENS)


# the values of max_tokens that are not numbers
FIT: Final = "fit"
WORDS = (FIT, "service")


def allowed_max_tokens(info: ModelInfo = DOCUMENTED) -> str:
    """Return the allowed values of max_tokens, as a text."""
    default = "150" if info.is_documented else "the server's own limit"
    service = f"or service (send none, so that {default} applies)"
    if (most := info.context_tokens) is None:
        return f"an integer, fit (the most that is known) {service}"
    fit = f"fit (what the prompt leaves of {most})"
    return f"an integer from 1 to {most}, {fit} {service}"


def check_max_tokens(value: object, info: ModelInfo) -> MaxTokens:
    """Return max_tokens if it is allowed; None means `service`."""
    if value is None or (isinstance(value, str) and value in WORDS):
        return value  # type: ignore[return-value]  # one of the words
    try:
        return check("max_tokens", value, info)  # type: ignore[return-value]  # an integer
    except ParameterError:
        refused = must_be(
            "max_tokens",
            allowed_max_tokens(info),
            value,
            hint=context_source_note(info).strip(),
        )
    raise refused


def with_max_tokens(
    request: CompletionRequest, max_tokens: object
) -> CompletionRequest:
    """Return the request with this max_tokens, if it is allowed."""
    limit = check_max_tokens(max_tokens, request.info)
    params = {**request.params, "max_tokens": limit}
    if limit == FIT and not request.other_max_tokens:
        most = most_prompt_tokens(request.messages, request.tools)
        prompt = estimate_prompt_tokens(
            request.messages, request.tools, info=request.info
        )
        params["max_tokens"] = fit_max_tokens(most, prompt.best, info=request.info)
    if not isinstance(params["max_tokens"], int):  # the server's default applies
        del params["max_tokens"]
    return msgspec.structs.replace(request, params=params, is_fitted=limit == FIT)


def refitted(request: CompletionRequest) -> CompletionRequest:
    """If max_tokens is `fit`, compute it again after a change of messages or tools."""
    return with_max_tokens(request, FIT) if request.is_fitted else request


def fit_note(request: CompletionRequest) -> str:
    """Return what the number that `fit` sets is made of; "" if it sets none."""
    context_tokens, n_tokens = request.context_tokens, request.params.get("max_tokens")
    if not request.is_fitted or n_tokens is None or context_tokens is None:
        return ""
    most = most_prompt_tokens(request.messages, request.tools)
    if n_tokens == context_tokens - most - MARGIN_TOKENS:
        parts = f"{context_tokens:,} - {most:,} (the prompt in the worst case)"
        return f"fit: max_tokens {n_tokens:,} = {parts} - {MARGIN_TOKENS} (reserve)"
    if n_tokens == request.info.max_reply_tokens:
        return f"fit: max_tokens {n_tokens:,}, the most that a reply may have"
    return (
        f"fit: max_tokens {n_tokens:,}, although the prompt may have up to {most:,} "
        f"tokens of {context_tokens:,}"
    )


def leaves_room(request: CompletionRequest) -> bool:
    """Say whether `fit` asked for far less than the prompt probably leaves.

    It keeps to the upper bound of the prompt, which for Thai may be far too high.
    """
    context_tokens, n_tokens = request.context_tokens, request.max_tokens
    if not request.is_fitted or n_tokens is None or context_tokens is None:
        return False
    prompt = estimate_prompt_tokens(request.messages, request.tools, info=request.info)
    left = context_tokens - MARGIN_TOKENS - prompt.best
    return left > 1.2 * n_tokens and n_tokens != request.info.max_reply_tokens


def more_room(request: CompletionRequest) -> str:
    """Return how to get a longer reply to a request whose reply was cut."""
    if request.is_fitted and "max_tokens" not in request.params:
        return (
            "It reached the server's own limit; pass a number as max_tokens, or set "
            "the most tokens of a reply with svc.use(max_reply=N)"
        )
    if request.is_fitted:
        return (
            "It used all tokens that the prompt left; shorten the prompt, or ask for "
            "less"
        )
    return "Pass a larger max_tokens, such as max_tokens='fit'"
