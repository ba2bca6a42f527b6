"""Learns from a server's refusals: its context, how it counts, its reply limit, a name.

Servers word their refusals differently. The learnt values are kept in this process as
long as the endpoint is in use, so that a repeated request fits.
"""

import re
from collections.abc import Iterable, Iterator
from math import inf

from svc_notebook.endpoints import Endpoint, facts_of
from svc_notebook.errors import ServiceError, UnknownModelError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.params import PARAM_NAMES, did_you_mean, shorten
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import (
    LEAST_REPLY_TOKENS,
    MARGIN_TOKENS,
    Tokens,
    most_prompt_tokens,
)

_COUNT = (
    r"[`'\"]?(\d{1,3}(?:[,_ ]\d{3})+|\d+)[`'\"]?"
    r"(?!\w|\s?[km]\b|[^\w)]\d|\\)"  # not parts of "32k", of a decimal or of a date
)
_SUBJECT = (
    r"(?:context[ _](?:length|size|window|limit)|model[ _]length|max_model_len|n_ctx)"
    r"(?:\s+limit)?"
)
_IS_ABOUT_CONTEXT = re.compile(rf"{_SUBJECT}|`max_new_tokens`", re.IGNORECASE)
_NAMED_CONTEXT = re.compile(
    rf"(?:{_SUBJECT}(?:[\"']?\s*[:=(]|\s+(?:is|of|with))"
    rf"|\bmax(?:imum)?(?:\s+{_SUBJECT})?(?:\s+(?:is|of))?"
    rf"|\+ `max_new_tokens` must be <=)\s*{_COUNT}",
    re.IGNORECASE,
)
_ANY_COUNT = re.compile(rf"(?<![\w.,-]){_COUNT}", re.IGNORECASE)
_MAX_FIELD = r"[`'\"]?max_?(?:completion_|output_|new_)?tokens[`'\"]?"
_NAMED_REPLY = re.compile(
    rf"(?:at most {_COUNT} (?:completion|output) tokens"
    rf"|> {_COUNT}, which is the maximum allowed number of output tokens"
    rf"|(?<!\+ )(?<!\+ `){_MAX_FIELD} (?:must be|should be|cannot be) "
    rf"(?:less than or equal to|at most|<=|more than|greater than) {_COUNT}"
    rf"|range of {_MAX_FIELD} is [\[(]\d+, ?{_COUNT}[\])]"
    rf"|{_MAX_FIELD} must be in range \[\d+, ?{_COUNT}\]"
    rf"|maximum (?:number of )?(?:output|completion) tokens (?:is|of|:) ?{_COUNT})",
    re.IGNORECASE,
)
_BELOW = re.compile(
    r"supported range is from \d+ \(inclusive\) to (\d+) \(exclusive\)", re.IGNORECASE
)
_OTHER_FIELD = re.compile(
    r"['\"`]?max_tokens['\"`]? is not supported.{0,60}?"
    r"use ['\"`]?(max_completion_tokens)['\"`]? instead",
    re.IGNORECASE | re.DOTALL,
)
_ABOUT_USAGE = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_OTHER_PARAMS = frozenset(PARAM_NAMES) - {"max_tokens"}
_TOO_LONG_STATUSES = frozenset({400, 413})
_REFUSED_STATUSES = frozenset({400, 413, 422})
_MAX_MESSAGE_CHARS = 2000
_MIN_LEARNT = 256


def refuses_stream_usage(error: ServiceError) -> bool:
    """Say whether a refusal is about the option that asks a stream for its usage."""
    return error.status in _REFUSED_STATUSES and bool(
        _ABOUT_USAGE.search(str(error)[:_MAX_MESSAGE_CHARS])
    )


_SHOWN_MODELS = 12
_MODEL_CHARS = 80


def name_unknown_model(
    error: UnknownModelError, endpoint: Endpoint, model: str
) -> None:
    """Add the model that was asked for to an error, and which models there are."""
    known_ids = [known.id for known in endpoint.known_models()]
    hint = "" if model in known_ids else did_you_mean(model.lower(), known_ids, n=1)
    if endpoint.is_documented:
        if model not in known_ids:
            asked_for = f"The model asked for is {shorten(model, _MODEL_CHARS)!r}."
            error.remedy = f"{error.remedy}\n{asked_for}{hint}"
        return
    listed = [known_id for known_id in known_ids if known_id != model]
    facts = facts_of(endpoint.base_url or "")
    if any(known.id == model for known in facts.listed):
        # the server was restarted with other models, so the list is outdated
        facts.asked_s, listed = -inf, []
    shown = ", ".join(listed[:_SHOWN_MODELS])
    has = f"it lists {shown}" if shown else "`%svc models` asks for its list"
    error.remedy = (
        f"Either {endpoint.base_url} has no model {shorten(model, _MODEL_CHARS)!r} "
        f"({has}), or it has chat completions at another address. Check both.{hint}"
    )


def learn(
    endpoint: Endpoint,
    error: ServiceError,
    *,
    request: CompletionRequest,
    prompt: Tokens,
) -> str:
    """Learn from a refusal; return a remedy for its error, "" without one.

    Args:
        endpoint: The endpoint that refused the request.
        error: The refusal.
        request: The refused request.
        prompt: Estimated tokens of its prompt.
    """
    if error.status not in _REFUSED_STATUSES or error.param in _OTHER_PARAMS:
        return ""
    prompt_text = "\n".join(message.content or "" for message in request.messages)
    message = f"{str(error)[:_MAX_MESSAGE_CHARS]} {error.code or ''}"
    learnt = ""
    if not endpoint.is_documented:
        learnt = _learn_field(endpoint, message, request) or _learn_reply(
            endpoint, message, prompt_text, request
        )
    return (
        learnt
        or _learn_context(endpoint, error, message, prompt_text, request, prompt.high)
        or _learn_excess(endpoint, message, prompt_text, request, prompt)
    )


def _learn_field(endpoint: Endpoint, message: str, request: CompletionRequest) -> str:
    other = _OTHER_FIELD.search(message)
    if not other or "max_tokens" not in request.params:
        return ""
    facts_of(endpoint.base_url or "").fields[request.model] = other[1].lower()
    return (
        f"{request.model} calls max_tokens {other[1].lower()}. This is known now: ask "
        "again. For other kernels, write max_tokens_field = "
        f'"{other[1].lower()}" in svc_notebook.toml.'
    )


def _learn_reply(
    endpoint: Endpoint, message: str, prompt_text: str, request: CompletionRequest
) -> str:
    """Learn the most tokens of a reply, if that explains the refusal."""
    asked_tokens = request.max_tokens
    if asked_tokens is None:
        return ""
    likely = {
        count
        for count in _counts_in(_NAMED_REPLY.finditer(message), prompt_text)
        if count < asked_tokens
    }
    likely |= {
        int(match[1]) - 1
        for match in _BELOW.finditer(message)
        if match[0] not in prompt_text and int(match[1]) <= asked_tokens
    }
    if len(likely) != 1:
        return ""
    (n_tokens,) = likely
    facts_of(endpoint.base_url or "").max_replies[request.model] = n_tokens
    return (
        f"{request.model} gives at most {n_tokens} tokens in a reply. This is known "
        f"now: ask again{_retry_advice(request)}. For other kernels, write max_reply = "
        f"{n_tokens} in svc_notebook.toml."
    )


def _learn_context(
    endpoint: Endpoint,
    error: ServiceError,
    message: str,
    prompt_text: str,
    request: CompletionRequest,
    prompt_tokens: int,
) -> str:
    model = request.model
    # if no number was sent, the server's own default may be large
    asked_tokens = prompt_tokens + (request.max_tokens or BUDGET_TOKENS)
    is_new_form = (
        "max_new_tokens" in message
    )  # one server answers 422 with this name in its message
    if error.status not in _TOO_LONG_STATUSES and not is_new_form:
        return ""
    n_tokens = _context_in(message, asked_tokens, prompt_text)
    if not n_tokens or n_tokens == request.context_tokens:
        return ""
    if stated := endpoint.stated_context(model):
        return (
            f"The server takes {n_tokens} tokens of prompt and reply for {model}, but "
            f"your settings say context = {stated}: correct it in svc_notebook.toml, "
            "or with svc.use(context=N)."
        )
    facts_of(endpoint.base_url or "").contexts[model] = n_tokens
    return (
        f"{model} takes {n_tokens} tokens of prompt and reply. This is known now: ask "
        f"again{_retry_advice(request)}."
    )


def _learn_excess(
    endpoint: Endpoint,
    message: str,
    prompt_text: str,
    request: CompletionRequest,
    prompt: Tokens,
) -> str:
    """Learn how the model counts, if the refusal names the tokens of the prompt."""
    n_tokens = _prompt_in(message, prompt_text, request, prompt)
    if not n_tokens or not prompt.over:
        return ""
    model, context_tokens = request.model, request.context_tokens or 0
    excess = (n_tokens - prompt.mean) / prompt.over
    facts_of(endpoint.base_url or "").excesses[model] = excess
    has_turns = any(message.role == "assistant" for message in request.messages)
    if not has_turns and n_tokens + LEAST_REPLY_TOKENS + MARGIN_TOKENS > context_tokens:
        return "Shorten the prompt, or split it over several requests."
    return (
        f"{model} counts {n_tokens:,} tokens in this prompt, which was estimated at "
        f"about {prompt.best:,}. This is known now: ask again{_retry_advice(request)}."
    )


def _retry_advice(request: CompletionRequest) -> str:
    """Return how to change max_tokens, if a number was requested."""
    is_number = not request.is_fitted
    return ", with max_tokens='fit' or a smaller number" if is_number else ""


def _context_in(message: str, asked_tokens: int, prompt_text: str) -> int:
    """Return the context in a message such as "context length is 1024"; 0 without one.

    Numbers that the message quotes from the request do not count. Several different
    numbers, or a number that does not explain the refusal, mean 0.
    """
    if not _IS_ABOUT_CONTEXT.search(message):
        return 0
    counts = set(_counts_in(_NAMED_CONTEXT.finditer(message), prompt_text))
    likely = [count for count in counts if _MIN_LEARNT <= count < asked_tokens]
    return likely[0] if len(likely) == 1 else 0


def _prompt_in(
    message: str, prompt_text: str, request: CompletionRequest, prompt: Tokens
) -> int:
    """Return the tokens of the prompt that a message names; 0 without them.

    It is the only number that is possible for this prompt and explains the refusal.
    Messages name the context, and sums with max_tokens, as well.
    """
    context_tokens = request.context_tokens
    if context_tokens is None:
        return 0
    reply_tokens = request.max_tokens or 0
    most = most_prompt_tokens(request.messages, request.tools)
    likely = {
        count
        for count in _counts_in(_ANY_COUNT.finditer(message), prompt_text)
        if prompt.low <= count <= most and count + reply_tokens > context_tokens
    }
    likely -= {context_tokens, *(count + reply_tokens for count in likely)}
    return likely.pop() if len(likely) == 1 else 0


def _counts_in(matches: Iterable[re.Match[str]], prompt_text: str) -> Iterator[int]:
    for match in matches:
        if match[0] not in prompt_text:
            digits = next(group for group in match.groups() if group is not None)
            yield int(re.sub(r"\D", "", digits))
