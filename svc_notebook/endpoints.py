"""Endpoints: an address with its key, its models and their limits.

The service's models are those of its document. Your own servers are described in
`svc_notebook.toml`.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from threading import Event
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from svc_notebook.errors import ServiceError, SettingsError
from svc_notebook.service.catalogue import BUDGET_TOKENS, MODELS, Limit, Model
from svc_notebook.service.checks import has_address_form
from svc_notebook.service.params import PARAM_NAMES
from svc_notebook.service.request import CompletionRequest

ADDRESS_VARIABLE = "SVC_BASE_URL"
KEY_VARIABLE = "SVC_API_KEY"
"""The environment variable with the key of the address in SVC_BASE_URL."""
VERSION = "v1"  # doc: Versioning
OPERATION = "chat/completions"  # doc: POST /v1/chat/completions
_OTHER_VERSION = re.compile(r"v\d+")
_RIGHT_FORM = "the right form is https://HOST/v1"


def to_base_url(text: str, *, allow_http: bool = False) -> str:
    """Return the base address in its one form, such as https://host/v1.

    The text may have a trailing slash, lack /v1, or have the path of the endpoint.

    Raises:
        SettingsError: It is not a plain address, or the key would be sent unencrypted
            to another machine, unless `allow_http` says that it may.
    """
    if not isinstance(text, str):
        raise SettingsError(
            f"The base address is {type(text).__name__}; give a text: {_RIGHT_FORM}."
        )
    cleaned = text.strip().strip("\"'")
    parts = _split(cleaned)
    path = parts.path.rstrip("/").removesuffix("/" + OPERATION).rstrip("/")
    last = path.rsplit("/", 1)[-1]
    if _OTHER_VERSION.fullmatch(last) and last != VERSION:
        raise SettingsError(
            f"The base address ends with /{last}, but only /{VERSION} is documented; "
            f"{_RIGHT_FORM}."
        )
    if last != VERSION:
        path = f"{path}/{VERSION}"
    is_clear = parts.scheme == "http" and not is_loopback(parts.hostname or "")
    if is_clear and not allow_http:
        raise SettingsError(
            f"The base address is http://{parts.netloc}: the API key would be sent "
            f"unencrypted. Use https ({_RIGHT_FORM}); http is for this machine. In a "
            "network that you trust, SVC_ALLOW_HTTP=1 allows it, or allow_http = true "
            "of the endpoint in your ~/.config/svc_notebook/svc_notebook.toml."
        )
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _split(text: str) -> SplitResult:
    if "unix" in text.partition(":")[0].lower() or text.endswith(".sock"):
        raise SettingsError(
            "Unix sockets are not supported. Let the server listen on this machine as "
            "well, for example at http://127.0.0.1:8000/v1, or forward a port to its "
            "socket: socat TCP-LISTEN:8000,bind=127.0.0.1,fork UNIX-CONNECT:FILE."
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if has_address_form(text) and "://" not in text:
        raise SettingsError(
            "The address has no scheme: write https:// in front of it, or http:// for "
            f"a server on this machine; {_RIGHT_FORM}."
        )
    if "@" in parts.netloc:
        raise SettingsError(
            "The address has a user name or a password in it; remove them. A key is "
            f"given with key=, or by an environment variable; {_RIGHT_FORM}."
        )
    is_plain = not (parts.query or parts.fragment)
    is_clean = text.isascii() and not any(c.isspace() or c < " " for c in text)
    has_host = parts.scheme in {"http", "https"} and bool(parts.hostname)
    if not (is_plain and is_clean and has_host) or port == 0:
        raise unusable_address()
    if parts.netloc.partition(":")[0] == "HOST":
        raise SettingsError(
            "HOST in the base address is a placeholder: write the name of your "
            "service's host there. `%svc use emulator` needs no address."
        )
    if "%" in parts.netloc:
        raise SettingsError(
            "The base address has a % in its host. Zone ids of IPv6 addresses are not "
            "supported; set SVC_BASE_URL to a host name, or an address without one."
        )
    return parts


def unusable_address() -> SettingsError:
    """Return the error for what is not an address; a key pasted there is not shown."""
    return SettingsError(
        "The base address cannot be used: it needs https and a host, may have a "
        "port up to 65535, and has no user name, query, fragment or space; "
        f"{_RIGHT_FORM}. Set SVC_BASE_URL to it."
    )


def is_private(host: str) -> bool:
    """Say whether a host name means this machine or one of a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        name = host.lower()
        return "." not in name or name.endswith((".local", ".internal", ".lan"))


def is_loopback(host: str) -> bool:
    """Say whether a host name means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address with its key, its models and their limits.

    Attributes:
        name: As it is chosen with `svc.use(endpoint=...)`.
        base_url: Its address; None while the service's is not known.
        key_env: The environment variable with its key; None if no file names one.
        needs_key: Whether requests carry a key.
        models: What is known of its models.
        limit: The limit of models that have none; None if it is not known.
        default_model: The model of requests that name none; None for the usual one.
        prices: The file with its price table.
        allow_http: Whether the key may be sent unencrypted to another machine.
        lists_models: Whether it is asked for its models; the service's document does
            not show how.
        stream_usage: Whether a stream is asked to report its tokens.
        ca_file: A file with the certificates to trust; None for the usual ones.
        proxy: The proxy's address; None for the one that the environment names.
    """

    name: str = "service"
    base_url: str | None = None
    key_env: str | None = None
    needs_key: bool = True
    models: tuple[Model, ...] = MODELS
    limit: Limit | None = None
    default_model: str | None = None
    prices: str | None = None
    allow_http: bool = False
    lists_models: bool = False
    stream_usage: bool = False
    ca_file: str | None = None
    proxy: str | None = None

    def known_models(self) -> tuple[Model, ...]:
        """Return the models that are described, then others that it has spoken of."""
        facts = _facts_of(self.base_url)
        refused = (Model(model_id) for model_id in facts.contexts)
        return _without_repeats((*self.models, *facts.listed, *refused))

    def model(self, model_id: str) -> Model:
        """Return what is known of a model; a `Model` with its id only if nothing is."""
        known = (*self.models, *_facts_of(self.base_url).listed)
        named = (model for model in known if model.id == model_id)
        model = next(named, Model(model_id))
        return replace(model, context_tokens=self._known_context(model_id))

    def _known_context(self, model_id: str) -> int | None:
        """Return the context that the file states, or that the server spoke of."""
        facts = _facts_of(self.base_url)
        stated = self.stated_context(model_id) or facts.contexts.get(model_id)
        if stated or not facts.listed:
            return stated
        listed = (
            model.context_tokens for model in facts.listed if model.id == model_id
        )
        return next(filter(None, listed), None)

    def stated_context(self, model_id: str) -> int | None:
        """Return the context that the file states of a model; None for none."""
        for model in self.models:
            if model.id == model_id:
                return model.context_tokens
        return None

    def limit_of(self, model_id: str) -> Limit | None:
        """Return the limit of a model; None if it is not known and has to be found."""
        limit = self.model(model_id).limit
        return self.limit if limit is None else limit

    def context_of(self, model_id: str) -> int:
        """Return the tokens that prompt and reply share; the document's if unknown."""
        return self._known_context(model_id) or BUDGET_TOKENS


SERVICE = Endpoint()
"""The service, with what its document says."""


def own_endpoint(base_url: str) -> Endpoint:
    """Return the endpoint of an address that no file describes.

    Of a server on this machine or in a private network nothing is assumed; at another
    address the service's models have the limits of its document.
    """
    host = urlsplit(base_url).hostname or ""
    models = () if is_private(host) else MODELS
    return Endpoint(name=host, base_url=base_url, models=models, lists_models=True)


@dataclass(slots=True)
class Facts:
    """What a server has said of its models, in this process.

    Attributes:
        listed: The models that it lists.
        asked_s: When it was asked for them, by the monotonic clock.
        pending: Is set when the newest asking has ended.
        problem: Why the list could not be read; "" if it could, or is not known yet.
        contexts: Tokens that prompt and reply share, by model, from its refusals.
    """

    listed: tuple[Model, ...] = ()
    asked_s: float = -inf
    pending: Event | None = None
    problem: str = ""
    contexts: dict[str, int] = field(default_factory=dict)


_facts: dict[str, Facts] = {}


def _facts_of(base_url: str | None) -> Facts:
    return _facts.get(base_url or "", _NOTHING)


_NOTHING = Facts()


def facts_of(base_url: str) -> Facts:
    """Return what the server at an address has said of its models, to add to it."""
    return _facts.setdefault(base_url, Facts())


_CONTEXT_FIELDS = (
    *("max_model_len", "context_length", "context_window", "max_context_length"),
    *("max_context_tokens", "n_ctx", "n_ctx_train", "max_input_tokens"),
)
_LEAST_CONTEXT, _MOST_CONTEXT = 16, 100_000_000
_MOST_MODELS = 1000
_MOST_CHARS = 200


def read_models(answer: object) -> tuple[Model, ...]:
    """Read the answer of `GET /models`, as servers of the same interface write it.

    What is not a model with an id is left out.
    """
    items = answer
    if isinstance(answer, Mapping):
        items = answer.get("data", answer.get("models"))
    if not isinstance(items, list):
        return ()
    models = []
    for item in items[:_MOST_MODELS]:
        fields = {"id": item} if isinstance(item, str) else item
        model_id = fields.get("id") if isinstance(fields, Mapping) else None
        if isinstance(model_id, str) and _is_model_id(model_id):
            models.append(Model(model_id, context_tokens=_context_in(fields)))
    return _without_repeats(models)


def _without_repeats(models: Iterable[Model]) -> tuple[Model, ...]:
    """Keep the first model of each id, with the first context that is stated of it."""
    by_id: dict[str, Model] = {}
    for model in models:
        first = by_id.setdefault(model.id, model)
        if first.context_tokens is None and model.context_tokens is not None:
            by_id[model.id] = replace(first, context_tokens=model.context_tokens)
    return tuple(by_id.values())


def _is_model_id(text: str) -> bool:
    is_word = bool(text.strip()) and text.isprintable() and len(text) <= _MOST_CHARS
    return is_word and not has_address_form(text)


def _context_in(fields: Mapping[str, object]) -> int | None:
    """Return the context that a server states of a model, perhaps among its `meta`."""
    inner = [value for value in fields.values() if isinstance(value, Mapping)]
    for mapping in (fields, *inner):
        for name in _CONTEXT_FIELDS:
            value: Any = mapping.get(name)
            is_count = isinstance(value, int) and not isinstance(value, bool)
            if is_count and _LEAST_CONTEXT <= value <= _MOST_CONTEXT:
                return int(value)
    return None


_SUBJECT = (
    r"(?:context[ _](?:length|size|window|limit)|model[ _]length|max_model_len|n_ctx)"
    r"(?:\s+limit)?"
)
_IS_ABOUT_CONTEXT = re.compile(_SUBJECT, re.IGNORECASE)
_NAMED_CONTEXT = re.compile(
    rf"(?:{_SUBJECT}(?:[\"']?\s*[:=(]|\s+(?:is|of|with))"
    rf"|\bmax(?:imum)?(?:\s+{_SUBJECT})?(?:\s+(?:is|of))?)"
    r"\s*(\d{1,3}(?:[,_ ]\d{3})+|\d+)"
    r"(?!\w|\s?[km]\b|[^\w)]\d|\\)",  # 32k, a decimal, a date: not surely a count
    re.IGNORECASE,
)
_OTHER_PARAMS = frozenset(PARAM_NAMES) - {"max_tokens"}
_TOO_LONG = frozenset({400, 413})
_MOST_SAID = 2000
_LEAST_LEARNT = 256


def _context_in_refusal(error: ServiceError, asked_tokens: int, sent: str) -> int:
    """Return the context that a refusal names, as in "context length is 1024", else 0.

    What it quotes of the request says nothing, nor do several numbers, nor one that
    does not explain the refusal.
    """
    said = f"{str(error)[:_MOST_SAID]} {error.code or ''}"
    is_other = error.status not in _TOO_LONG or error.param in _OTHER_PARAMS
    if is_other or not _IS_ABOUT_CONTEXT.search(said):
        return 0
    counts = {
        int(re.sub(r"\D", "", match[1]))
        for match in _NAMED_CONTEXT.finditer(said)
        if match[0] not in sent
    }
    likely = [count for count in counts if _LEAST_LEARNT <= count < asked_tokens]
    return likely[0] if len(likely) == 1 else 0


def learn_context(
    endpoint: Endpoint,
    error: ServiceError,
    *,
    request: CompletionRequest,
    asked_tokens: int,
) -> str:
    """Remember the context that a refusal names; return what to say, "" for nothing.

    Args:
        endpoint: It refused.
        error: Its refusal.
        request: What was refused.
        asked_tokens: Most tokens that its prompt and its reply may have.
    """
    model = request.model
    sent = "\n".join(message.content or "" for message in request.messages)
    n_tokens = _context_in_refusal(error, asked_tokens, sent)
    if not n_tokens or n_tokens == request.context_tokens:
        return ""
    if stated := endpoint.stated_context(model):
        return (
            f"The server takes {n_tokens} tokens of prompt and reply for {model}, but "
            f"svc_notebook.toml says context = {stated}: correct it there."
        )
    facts_of(endpoint.base_url or "").contexts[model] = n_tokens
    less = "" if request.is_fitted else ", with max_tokens='fit' or a smaller number"
    return (
        f"{model} takes {n_tokens} tokens of prompt and reply. This is known now: ask "
        f"again{less}."
    )


def forget_contexts(base_url: str | None) -> None:
    """Forget what was learnt from the refusals of a server."""
    _facts_of(base_url).contexts.clear()
