"""What a refusal teaches of a server: a context, the limit of a reply, a field's name.

Servers word them differently. What one names is kept for this process, as long as the
endpoint is in use, so that the same request fits when it is asked again.
"""

import re
from collections.abc import Iterable, Iterator
from math import inf

from svc_notebook.endpoints import Endpoint, facts_of
from svc_notebook.errors import ServiceError, UnknownModelError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.params import PARAM_NAMES, shorten
from svc_notebook.service.request import CompletionRequest

_COUNT = (
    r"[`'\"]?(\d{1,3}(?:[,_ ]\d{3})+|\d+)[`'\"]?"
    r"(?!\w|\s?[km]\b|[^\w)]\d|\\)"  # 32k, a decimal, a date: not surely a count
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
_OF_USAGE = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_OTHER_PARAMS = frozenset(PARAM_NAMES) - {"max_tokens"}
_TOO_LONG = frozenset({400, 413})
_REFUSED = frozenset({400, 413, 422})
_MOST_SAID = 2000
_LEAST_LEARNT = 256


def refuses_stream_usage(error: ServiceError) -> bool:
    """Say whether a refusal is of the option that asks a stream for its tokens."""
    return error.status in _REFUSED and bool(_OF_USAGE.search(str(error)[:_MOST_SAID]))


_SHOWN_MODELS = 12


def name_unknown_model(
    error: UnknownModelError, endpoint: Endpoint, model: str
) -> None:
    """Say which models the server lists, where it is not the service."""
    if endpoint.is_documented:
        return
    listed = [known.id for known in endpoint.known_models() if known.id != model]
    facts = facts_of(endpoint.base_url or "")
    if any(known.id == model for known in facts.listed):
        # it was started again with other models: the list is an old one
        facts.asked_s, listed = -inf, []
    shown = ", ".join(listed[:_SHOWN_MODELS])
    has = f"it lists {shown}" if shown else "`%svc models` asks for its list"
    error.remedy = (
        f"Either {endpoint.base_url} has no model {shorten(model, 80)!r} ({has}), or "
        "chat completions are at another address there. Check both."
    )


def learn(
    endpoint: Endpoint,
    error: ServiceError,
    *,
    request: CompletionRequest,
    prompt_tokens: int,
) -> str:
    """Remember what a refusal teaches; return what to say, "" for nothing.

    Args:
        endpoint: It refused.
        error: Its refusal.
        request: What was refused.
        prompt_tokens: The most tokens that its prompt may have.
    """
    if error.status not in _REFUSED or error.param in _OTHER_PARAMS:
        return ""
    sent = "\n".join(message.content or "" for message in request.messages)
    said = f"{str(error)[:_MOST_SAID]} {error.code or ''}"
    if endpoint.is_documented:
        return _learn_context(endpoint, error, said, sent, request, prompt_tokens)
    return (
        _learn_field(endpoint, said, request)
        or _learn_reply(endpoint, said, sent, request)
        or _learn_context(endpoint, error, said, sent, request, prompt_tokens)
    )


def _learn_field(endpoint: Endpoint, said: str, request: CompletionRequest) -> str:
    other = _OTHER_FIELD.search(said)
    if not other or "max_tokens" not in request.params:
        return ""
    facts_of(endpoint.base_url or "").fields[request.model] = other[1].lower()
    return (
        f"{request.model} takes max_tokens by the name {other[1].lower()}. This is "
        "known now: ask again. For other kernels, write max_tokens_field = "
        f'"{other[1].lower()}" in svc_notebook.toml.'
    )


def _learn_reply(
    endpoint: Endpoint, said: str, sent: str, request: CompletionRequest
) -> str:
    """Learn the most tokens of a reply, if that explains the refusal."""
    asked_tokens = request.max_tokens
    if asked_tokens is None:
        return ""
    likely = {
        count
        for count in _counts(_NAMED_REPLY.finditer(said), sent)
        if count < asked_tokens
    }
    likely |= {
        int(match[1]) - 1
        for match in _BELOW.finditer(said)
        if match[0] not in sent and int(match[1]) <= asked_tokens
    }
    if len(likely) != 1:
        return ""
    (n_tokens,) = likely
    facts_of(endpoint.base_url or "").max_replies[request.model] = n_tokens
    return (
        f"{request.model} gives at most {n_tokens} tokens in a reply. This is known "
        f"now: ask again{_less(request)}. For other kernels, write max_reply = "
        f"{n_tokens} in svc_notebook.toml."
    )


def _learn_context(
    endpoint: Endpoint,
    error: ServiceError,
    said: str,
    sent: str,
    request: CompletionRequest,
    prompt_tokens: int,
) -> str:
    model = request.model
    # where no number was sent, the server's own default may be large
    asked_tokens = prompt_tokens + (request.max_tokens or BUDGET_TOKENS)
    is_new_form = "max_new_tokens" in said  # 422 in one server's words
    if error.status not in _TOO_LONG and not is_new_form:
        return ""
    n_tokens = _context_in(said, asked_tokens, sent)
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
        f"again{_less(request)}."
    )


def _less(request: CompletionRequest) -> str:
    """Say that a number has to be smaller, where one was asked for."""
    is_number = not request.is_fitted
    return ", with max_tokens='fit' or a smaller number" if is_number else ""


def _context_in(said: str, asked_tokens: int, sent: str) -> int:
    """Return the context that words name, as in "context length is 1024", else 0.

    What they quote of the request says nothing, nor do several numbers, nor one that
    does not explain the refusal.
    """
    if not _IS_ABOUT_CONTEXT.search(said):
        return 0
    counts = set(_counts(_NAMED_CONTEXT.finditer(said), sent))
    likely = [count for count in counts if _LEAST_LEARNT <= count < asked_tokens]
    return likely[0] if len(likely) == 1 else 0


def _counts(matches: Iterable[re.Match[str]], sent: str) -> Iterator[int]:
    for match in matches:
        if match[0] not in sent:
            digits = next(group for group in match.groups() if group is not None)
            yield int(re.sub(r"\D", "", digits))
