"""Endpoints: an address with its key, its models and their limits.

The document lists the service's models. Your own servers are described in your file
`~/.config/svc_notebook/svc_notebook.toml`. SVC_CONFIG names another file instead, such
as your team's. A file in a notebook's folder is not read.

    [lab]                                   # svc.use(endpoint="lab")
    base_url = "http://127.0.0.1:8000/v1"
    key = false                             # or key_env = "LAB_API_KEY"

    headers = { X-Team = "tides" }          # more settings: endpoint_settings.py

    [lab.models."qwen-32b"]
    context = 32768                         # tokens of prompt and reply
    max_reply = 8192                        # tokens of a reply
    per_second = 50
    per_minute = false                      # no such limit
    in_flight = 200

    [service.models.svc-v2-8b-instruct]     # corrects the service's document
    per_minute = 500
"""

import ipaddress
import os
import re
import ssl
import tomllib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from svc_notebook.endpoint_settings import (
    SETTINGS,
    NamesAndTexts,
    check_settings,
    is_secret_name,
    variable_of,
)
from svc_notebook.errors import SettingsError
from svc_notebook.service.catalogue import (
    BUDGET_TOKENS,
    DEFAULT_MAX_TOKENS,
    DOCUMENTED,
    MAX_TOKENS,
    MODELS,
    Limit,
    Model,
    ModelInfo,
)
from svc_notebook.service.params import did_you_mean, has_address_form, shown

ADDRESS_VARIABLE = "SVC_BASE_URL"
KEY_VARIABLE = "SVC_API_KEY"
"""The environment variable with the key of the address in SVC_BASE_URL."""
VERSION = "v1"  # doc: Versioning
OPERATION = "chat/completions"  # doc: POST /v1/chat/completions
_OTHER_VERSION = re.compile(r"v\d+")
_RIGHT_FORM = "the right form is https://HOST/v1"


def to_base_url(text: str, *, allow_http: bool = False) -> str:
    """Return the service's base address in standard form, such as https://host/v1.

    The text may have a trailing slash, lack /v1, or have the path of the operation. In
    the result, the host is in lower case, and a default port is left out.

    Raises:
        SettingsError: The text is not a plain address, or the key would be sent
            unencrypted to another machine and `allow_http` is False.
    """
    parts = _split_address(_strip_quotes(text))
    path = parts.path.rstrip("/").removesuffix("/" + OPERATION).rstrip("/")
    last = path.rsplit("/", 1)[-1]
    if _OTHER_VERSION.fullmatch(last) and last != VERSION:
        raise SettingsError(
            f"The base address ends with /{last}, but only /{VERSION} is documented; "
            f"{_RIGHT_FORM}."
        )
    if last != VERSION:
        path = f"{path}/{VERSION}"
    return _encrypted_url(parts, path, allow_http=allow_http)


_VERSION_PART = re.compile(r"v\d+((alpha|beta)\d*)?")


def to_server_url(
    text: str, *, allow_http: bool = False, path: str | None = None
) -> tuple[str, NamesAndTexts]:
    """Return the base address of any other server, and its query.

    An address with a version or the operation in its path is not changed, such as
    https://host/v1beta/openai; /v1 is added to others. `path` replaces the path of the
    address.

    Raises:
        SettingsError: As for `to_base_url`, or the query contains a secret.
    """
    text, question_mark, query_text = _strip_quotes(text).partition("?")
    parts = _split_address(text)
    query = tuple(parse_qsl(query_text, keep_blank_values=True))
    if any(is_secret_name(name) for name, _ in query) or (question_mark and not query):
        raise SettingsError(
            "The query of the address is not name=value, or contains a key. Give a key "
            "with key=, or in a variable. Parameters such as api-version are allowed."
        )
    given_path = parts.path.rstrip("/")
    base_path = given_path.removesuffix("/" + OPERATION).rstrip("/")
    has_version = base_path != given_path or any(
        map(_VERSION_PART.fullmatch, base_path.split("/"))
    )
    if path is None:
        path = base_path if has_version else f"{base_path}/{VERSION}"
    return _encrypted_url(parts, path, allow_http=allow_http), query


def _encrypted_url(parts: SplitResult, path: str, *, allow_http: bool) -> str:
    is_clear = parts.scheme == "http" and not is_loopback(parts.hostname or "")
    if is_clear and not allow_http:
        raise SettingsError(
            f"The base address is http://{parts.netloc}: the API key would be sent "
            f"unencrypted. Use https ({_RIGHT_FORM}); http is for this machine. In a "
            "network that you trust, SVC_ALLOW_HTTP=1 allows it, or allow_http = true "
            "for the endpoint in your ~/.config/svc_notebook/svc_notebook.toml."
        )
    return urlunsplit((parts.scheme, _host_and_port(parts), path, "", ""))


_DEFAULT_PORTS = {"http": 80, "https": 443}


def _host_and_port(parts: SplitResult) -> str:
    """Return host and port in standard form, as keys and limits are stored by them."""
    host = parts.hostname or ""  # `hostname` is in lower case
    if "[" in parts.netloc:
        with suppress(ValueError):
            host = ipaddress.ip_address(host).compressed
        host = f"[{host}]"
    is_default = parts.port in {None, _DEFAULT_PORTS[parts.scheme]}
    return host if is_default else f"{host}:{parts.port}"


def _strip_quotes(text: object) -> str:
    if not isinstance(text, str):
        raise SettingsError(
            f"The base address is {type(text).__name__}; give a text: {_RIGHT_FORM}."
        )
    return text.strip().strip("\"'")


def _split_address(text: str) -> SplitResult:
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
            f"given with key=, or in an environment variable; {_RIGHT_FORM}."
        )
    is_plain = not (parts.query or parts.fragment)
    is_clean = text.isascii() and not any(c.isspace() or c < " " for c in text)
    has_host = parts.scheme in {"http", "https"} and bool(parts.hostname)
    if not (is_plain and is_clean and has_host) or port == 0:
        raise unusable_address()
    if parts.netloc.partition(":")[0] == "HOST":
        raise SettingsError(
            "HOST in the base address is a placeholder; replace it by the host name of "
            "your service. `%svc use emulator` needs no address."
        )
    if "%" in parts.netloc:
        raise SettingsError(
            "The base address has a % in its host. Zone ids of IPv6 addresses are not "
            "supported; set SVC_BASE_URL to a host name, or to an address without a "
            "zone id."
        )
    return parts


def unusable_address() -> SettingsError:
    """Return the error for an unusable address; it does not show the text."""
    return SettingsError(
        "The base address cannot be used. It needs https and a host, may have a port "
        "up to 65535, and must not have a user name, query, fragment or space; "
        f"{_RIGHT_FORM}. Set SVC_BASE_URL to it."
    )


def is_private(host: str) -> bool:
    """Say whether a host is this machine or in a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        name = host.lower()
        return "." not in name or name.endswith((".local", ".internal", ".lan"))


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address with its key, its models and their limits.

    Attributes:
        name: The name for `svc.use(endpoint=...)`.
        base_url: The address; None if the service's is not set.
        key_env: The environment variable with the key; None if no file names one.
        needs_key: Whether requests carry a key.
        models: The models in its description.
        limit: The limit of models without their own; None if unknown.
        default_model: The model of requests that name none; None for the usual one.
        prices: The file with its price table.
        allow_http: Whether the key may be sent unencrypted to another machine.
        lists_models: Whether the server is asked for its models; the service's document
            does not show how.
        stream_usage: Whether streams are asked to report usage; None to try it.
        ca_file: A file with the certificates to trust; None for the usual ones.
        proxy: The proxy's address; None for the environment's proxy. This machine is
            always reached without a proxy.
        is_documented: Whether it is the service, to which the document applies. Nothing
            is assumed about other endpoints.
        headers: More headers; a value with $ names the variable with the value.
        query: The query of the address.
        key_header: The header of the key; None for Authorization.
        path: The exact path of the address; None for the usual one.
        extra: Fields for every request.
        context_tokens, max_reply_tokens, max_tokens_field: For all its models.
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
    stream_usage: bool | None = None
    ca_file: str | None = None
    proxy: str | None = None
    is_documented: bool = True
    headers: NamesAndTexts = ()
    query: NamesAndTexts = ()
    key_header: str | None = None
    path: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    context_tokens: int | None = None
    max_reply_tokens: int | None = None
    max_tokens_field: str | None = None

    def url_of(self, text: str, *, allow_http: bool = False) -> str:
        """Return an address in the standard form for this endpoint."""
        if self.is_documented:
            return to_base_url(text, allow_http=allow_http)
        path = urlsplit(text).path if text == self.base_url else self.path
        return to_server_url(text, allow_http=allow_http, path=path)[0]

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables with its secrets."""
        named = (variable_of(value) for _, value in self.headers)
        return tuple(dict.fromkeys(filter(None, (self.key_env, *named))))

    def known_models(self) -> tuple[Model, ...]:
        """Return the described models, then those that the server has named."""
        facts = _read_facts(self.base_url)
        refused = (Model(model_id) for model_id in facts.contexts)
        return _without_repeats((*self.models, *facts.listed, *refused))

    def model(self, model_id: str) -> Model:
        """Return what is known of a model; at least, a `Model` with its id."""
        known = (*self.models, *_read_facts(self.base_url).listed)
        named = (model for model in known if model.id == model_id)
        model = next(named, Model(model_id))
        context_tokens, source = self._known_context(model_id)
        return replace(model, context_tokens=context_tokens if source else None)

    def info_of(self, model_id: str) -> ModelInfo:
        """Return what requests need to know about a model."""
        facts, stated = _read_facts(self.base_url), _model_in(self.models, model_id)
        listed, extra = _model_in(facts.listed, model_id), dict(self.extra)
        context_tokens, source = self._known_context(model_id)
        max_reply_tokens = (
            stated.max_reply_tokens
            or self.max_reply_tokens
            or facts.max_replies.get(model_id)
            or listed.max_reply_tokens
        )
        # a list would name this limit separately
        if max_reply_tokens is None and source != _LISTED:
            max_reply_tokens = context_tokens
        if max_reply_tokens is not None and context_tokens is not None:
            max_reply_tokens = min(max_reply_tokens, context_tokens)
        sent_by = stated.max_tokens_field or self.max_tokens_field
        info = ModelInfo(
            context_tokens=context_tokens,
            max_reply_tokens=max_reply_tokens,
            default_max_tokens=DEFAULT_MAX_TOKENS if self.is_documented else None,
            max_tokens_field=sent_by or facts.fields.get(model_id, MAX_TOKENS),
            is_documented=self.is_documented,
            source=source,
            prompt_excess=facts.excesses.get(model_id),
            extra=extra,
        )
        return DOCUMENTED if info == DOCUMENTED else info

    def _known_context(self, model_id: str) -> tuple[int | None, str]:
        """Return a model's context and where it is from; "" for the document."""
        facts = _read_facts(self.base_url)
        if stated_tokens := self.stated_context(model_id):
            return stated_tokens, _STATED
        if learnt_tokens := facts.contexts.get(model_id):
            return learnt_tokens, _LEARNT
        if listed_tokens := _model_in(facts.listed, model_id).context_tokens:
            return listed_tokens, _LISTED
        return (BUDGET_TOKENS if self.is_documented else None), ""

    def stated_context(self, model_id: str) -> int | None:
        """Return the context of a model in the settings; None if they have none."""
        return _model_in(self.models, model_id).context_tokens or self.context_tokens

    @property
    def wants_usage(self) -> bool:
        """Whether the next stream is asked to report its usage."""
        if self.stream_usage is not None or self.is_documented:
            return bool(self.stream_usage)
        return _read_facts(self.base_url).takes_stream_usage

    def limit_of(self, model_id: str) -> Limit | None:
        """Return the limit of a model; None if it is unknown and has to be learnt."""
        limit = self.model(model_id).limit
        return self.limit if limit is None else limit


_STATED = "your settings"
_LEARNT = "an earlier refusal of the server"
_LISTED = "the server's list of models"


def _model_in(models: Iterable[Model], model_id: str) -> Model:
    """Return the model with this id; if there is none, a `Model` with only the id."""
    for model in models:
        if model.id == model_id:
            return model
    return Model(model_id)


SERVICE = Endpoint()
"""The service, with what its document says."""


def own_endpoint(base_url: str, query: NamesAndTexts = ()) -> Endpoint:
    """Return the endpoint of an address that no file describes.

    Nothing is assumed about it; the document's limits apply to the service only.
    """
    return Endpoint(
        name=urlsplit(base_url).hostname or "",
        base_url=base_url,
        query=query,
        models=(),
        lists_models=True,
        is_documented=False,
    )


@dataclass(slots=True)
class ServerFacts:
    """What a server has told this process about its models.

    Attributes:
        listed: The models in its list.
        asked_s: When it was last asked for its list, by the monotonic clock.
        pending: An event that is set when the newest request for the list has ended.
        problem: Why the list could not be read; "" if it could, or was not asked for.
        status: HTTP status of the newest answer; 0 without one.
        contexts: By model, the tokens that prompt and reply share, from its refusals.
        excesses: By model, how it counts prompts, from its refusals: see `ModelInfo`.
        max_replies: By model, the most tokens of a reply, from its refusals.
        fields: By model, its name for max_tokens, from its refusals.
        takes_stream_usage: Whether it accepts the option to report a stream's usage.
    """

    listed: tuple[Model, ...] = ()
    asked_s: float = -inf
    pending: Event | None = None
    problem: str = ""
    status: int = 0
    contexts: dict[str, int] = field(default_factory=dict)
    excesses: dict[str, float] = field(default_factory=dict)
    max_replies: dict[str, int] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    takes_stream_usage: bool = True


NOT_REACHED = "no connection"
"""The `problem` of a server that could not be reached."""

_facts: dict[str, ServerFacts] = {}


def _read_facts(base_url: str | None) -> ServerFacts:
    """Return the facts of the server at an address, for reading only."""
    return _facts.get(base_url or "", _NO_FACTS)


_NO_FACTS = ServerFacts()


def facts_of(base_url: str) -> ServerFacts:
    """Return the facts of the server at an address; the caller may change them."""
    return _facts.setdefault(base_url, ServerFacts())


# names of the context, in different servers; a reply may use all of it
_SERVER_CONTEXT_FIELDS = ("max_model_len", "n_ctx", "loaded_context_length")
# also names of a model's context, where the reply or the used context may be smaller
_CONTEXT_FIELDS = (
    *_SERVER_CONTEXT_FIELDS,
    *("context_length", "context_window", "max_context_length"),
    *("max_context_tokens", "n_ctx_train", "max_input_tokens"),
)
_REPLY_FIELDS = (
    *("max_completion_tokens", "max_output_tokens", "max_output_length"),
    *("output_token_limit", "outputTokenLimit"),
)
_MIN_CONTEXT, _MAX_CONTEXT = 16, 100_000_000
_MAX_MODELS = 1000
_MAX_ID_CHARS = 200


def read_models(answer: object) -> tuple[Model, ...]:
    """Read the answer to `GET /models`, in the forms that different servers use.

    Items without a model id are left out.
    """
    items = answer
    if isinstance(answer, Mapping):
        items = answer.get("data", answer.get("models"))
    if not isinstance(items, list):
        return ()
    models = []
    for item in items[:_MAX_MODELS]:
        fields = {"id": item} if isinstance(item, str) else item
        model_id = fields.get("id") if isinstance(fields, Mapping) else None
        if isinstance(model_id, str) and _is_model_id(model_id):
            context_tokens = _count_in(fields, _CONTEXT_FIELDS)
            is_all_for_reply = (
                _count_in(fields, _SERVER_CONTEXT_FIELDS) == context_tokens
            )
            max_reply_tokens = _count_in(fields, _REPLY_FIELDS)
            max_reply_tokens = max_reply_tokens or (
                context_tokens if is_all_for_reply else None
            )
            models.append(
                Model(
                    model_id,
                    context_tokens=context_tokens,
                    max_reply_tokens=max_reply_tokens,
                )
            )
    return _without_repeats(models)


def _without_repeats(models: Iterable[Model]) -> tuple[Model, ...]:
    """Keep the first model of each id, with the first context that any of them has."""
    by_id: dict[str, Model] = {}
    for model in models:
        first = by_id.setdefault(model.id, model)
        if first.context_tokens is None and model.context_tokens is not None:
            by_id[model.id] = replace(first, context_tokens=model.context_tokens)
    return tuple(by_id.values())


def _is_model_id(text: str) -> bool:
    is_word = bool(text.strip()) and text.isprintable() and len(text) <= _MAX_ID_CHARS
    return is_word and not has_address_form(text)


def _count_in(fields: Mapping[str, object], names: Iterable[str]) -> int | None:
    """Return a token count of a model, from its fields or from nested ones."""
    inner = [value for value in fields.values() if isinstance(value, Mapping)]
    for mapping in (fields, *inner):
        for name in names:
            value: Any = mapping.get(name)
            is_count = isinstance(value, int) and not isinstance(value, bool)
            if is_count and _MIN_CONTEXT <= value <= _MAX_CONTEXT:
                return int(value)
    return None


def forget_learnt(base_url: str | None) -> None:
    """Forget what was learnt from a server's refusals."""
    facts = _read_facts(base_url)
    for learnt in (facts.contexts, facts.max_replies, facts.fields):
        learnt.clear()
    facts.takes_stream_usage = True


FILE = "svc_notebook.toml"
CONFIG_VARIABLE = "SVC_CONFIG"
_RESERVED = "emulator"
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_NAME = re.compile(r"[A-Za-z][\w-]*")


def config_file(environ: Mapping[str, str]) -> str:
    """Return the path of the file of endpoints, whether or not it exists."""
    if named := environ.get(CONFIG_VARIABLE, "").strip():
        return os.path.expanduser(named)  # noqa: PTH111 - works without a home folder, too
    folder = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - as above
    return os.path.join(folder, "svc_notebook", FILE)  # noqa: PTH118 - as above


def read_endpoints(
    environ: Mapping[str, str] = os.environ,
) -> Mapping[str, Endpoint]:
    """Return the endpoints of the file by name; without a file there are none.

    Raises:
        SettingsError: The file cannot be used; the message names the line.
    """
    path = config_file(environ)
    stamp = _stamp(path)
    if stamp is None and environ.get(CONFIG_VARIABLE, "").strip():
        raise SettingsError(
            f"{CONFIG_VARIABLE} names {path}, which does not exist. Correct the path, "
            "or unset the variable to use your own file."
        )
    return {} if stamp is None else _read_file(path, stamp)


def _stamp(path: str) -> object:
    """Return a value that changes when the file changes; None without the file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - of a text path
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return problem.errno  # reading the file will report the problem
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=4)
def _read_file(name: str, _stamp: object) -> Mapping[str, Endpoint]:
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8-sig")
        tables = tomllib.loads(text)
    except OSError as problem:
        raise _unreadable(path, problem.strerror) from None
    except ValueError as problem:  # of TOML and UTF-8
        is_text = isinstance(problem, tomllib.TOMLDecodeError)
        reason = str(problem) if is_text else "it is not UTF-8"
        raise _unreadable(path, f"it is not TOML: {reason}") from None
    endpoints = {
        name: _Reader(path, text, name).endpoint(tables[name]) for name in tables
    }
    _check_variables(path, endpoints.values())
    return endpoints


def _unreadable(path: Path, reason: str | None) -> SettingsError:
    return SettingsError(
        f"The file {path} cannot be read ({reason}). Correct it, or remove it if you "
        "do not need its endpoints."
    )


def _check_variables(path: Path, endpoints: Iterable[Endpoint]) -> None:
    """Refuse a variable whose key would be sent to several servers."""
    first_with: dict[str, Endpoint] = {}
    used = [
        (variable, used_by) for used_by in endpoints for variable in used_by.variables
    ]
    for variable, endpoint in used:
        first = first_with.setdefault(variable, endpoint)
        if _server(first) != _server(endpoint):
            raise SettingsError(
                f"{path}: [{first.name}] and [{endpoint.name}] both use {variable}, "
                "but are on different hosts or ports, or one has http. A key is for "
                "one server only; give each endpoint its own variable."
            )


def _server(endpoint: Endpoint) -> tuple[str, str]:
    """Return scheme, host and port: the key in a variable is for one such server."""
    parts = urlsplit(endpoint.base_url or "")
    return parts.scheme, parts.netloc


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the table of one endpoint; errors name the line in the file."""

    path: Path
    text: str
    name: str

    def endpoint(self, table: object) -> Endpoint:
        """Return the endpoint that a table describes."""
        if not isinstance(table, Mapping):
            raise self._error("", f"{self.name} must be a table: write [{self.name}]")
        if not _NAME.fullmatch(self.name) or self.name == _RESERVED:
            raise self._error(
                "",
                "the name of an endpoint has letters, digits, - and _, and is not "
                f"{_RESERVED}",
            )
        self._check_names(table, ENDPOINT_KEYS)
        fields: dict[str, Any] = {
            name: self._value(name, table[name]) for name in _KINDS if name in table
        }
        if "model" in fields:
            fields["default_model"] = fields.pop("model")
        fields |= self._key(table)
        fields |= self._connection(table)
        limit = self._limit(table, SERVICE.limit)
        models = self._models(table.get("models", {}), limit)
        if self.name == SERVICE.name:
            for name in table.keys() & OF_SERVICE.keys():
                raise self._error(name, f"the service's is set by {OF_SERVICE[name]}")
            return replace(SERVICE, **fields, limit=limit, models=_merged(models))
        only_model = models[0].id if len(models) == 1 else None
        base_url, query = self._address(table, fields)
        fields["query"] = (*query, *fields.get("query", ()))
        return Endpoint(
            **{"default_model": only_model, "lists_models": True, **fields},
            name=self.name,
            base_url=base_url,
            models=models,
            limit=limit,
            is_documented=False,
        )

    def _connection(
        self, table: Mapping[str, Any], model_id: str = ""
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name in (name for name in SETTINGS if name in table):
            try:
                fields |= check_settings({name: table[name]})
            except SettingsError as problem:
                reason = str(problem).removesuffix(".").removeprefix(f"{name}: ")
                raise self._error(name, reason, model_id) from None
        return fields

    def _address(
        self, table: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> tuple[str, NamesAndTexts]:
        if not isinstance(table.get("base_url"), str):
            raise self._error("base_url", 'write base_url = "https://HOST/v1"')
        is_keyless = not fields.get("needs_key", True)
        allow_http = fields.get("allow_http", False) or is_keyless
        try:
            path = fields.get("path")
            return to_server_url(table["base_url"], allow_http=allow_http, path=path)
        except SettingsError as problem:
            reason = str(problem).removesuffix(".")
        raise self._error("base_url", reason)

    def _key(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Read which variable has the key; refuse a key itself without showing it."""
        key, key_env = table.get("key", True), table.get("key_env")
        is_name = isinstance(key_env, str) and _ENV_NAME.fullmatch(key_env)
        if not isinstance(key, bool) or not (key_env is None or is_name):
            raise self._key_refused("key_env" if isinstance(key, bool) else "key")
        if key_env is not None and not key:
            raise self._error("key", "remove either key = false or key_env")
        if key_env == KEY_VARIABLE:
            raise self._error(
                "key_env",
                f"{KEY_VARIABLE} is for {ADDRESS_VARIABLE} only. Give this endpoint "
                "its own variable, or leave key_env out if it has that address",
            )
        return {"needs_key": key, "key_env": key_env}

    def _key_refused(self, setting: str) -> SettingsError:
        variable = re.sub(r"\W", "_", self.name).upper() + "_API_KEY"
        return self._error(
            setting,
            "a key does not belong in a file. Set the environment variable "
            f'{variable} to it and write key_env = "{variable}" here; or key = false '
            "for a server that needs none",
        )

    def _value(self, name: str, value: object) -> object:
        kind, description = _KINDS[name]
        if not isinstance(value, kind) or value == "":
            raise self._error(name, f"must be {description}; got {shown(value)}")
        if name in _PATHS:
            value = self._full_path(value)
        if name == "ca_file" and not _has_certificates(str(value)):
            raise self._error(name, "must be a readable file with certificates (PEM)")
        if name == "proxy" and not _is_proxy(str(value)):
            raise self._error(name, "must be http://HOST:PORT, or the same with https")
        return value

    def _full_path(self, path: object) -> str:
        """Return a path in full; it is relative to the folder of the file."""
        return str(self.path.parent / Path(str(path)).expanduser())

    def _models(self, tables: object, limit: Limit | None) -> tuple[Model, ...]:
        if not isinstance(tables, Mapping):
            raise self._error("models", f'write [{self.name}.models."MODEL"]')
        return tuple(self._model(name, tables[name], limit) for name in tables)

    def _model(self, model_id: str, table: object, limit: Limit | None) -> Model:
        if not isinstance(table, Mapping) or has_address_form(model_id):
            raise self._error("models", f'write [{self.name}.models."MODEL"]')
        self._check_names(table, MODEL_KEYS, model_id)
        is_service = self.name == SERVICE.name
        known = SERVICE.model(model_id) if is_service else Model(model_id)
        own = {name: table[name] for name in _MODEL_SETTINGS if name in table}
        return replace(
            known,
            **{"context_tokens": None, **self._connection(own, model_id)},
            limit=self._limit(table, known.limit or limit, model_id),
        )

    def _limit(
        self, table: Mapping[str, Any], known: Limit | None, model_id: str = ""
    ) -> Limit | None:
        """Return the limit in a table; `known` has the values that it leaves out."""
        stated = {name: self._count(table, name, model_id) for name in _LIMITS}
        if not any(count is not None for count in stated.values()):
            return known
        counts = {
            # `_count` returns 0 for `false`, which means no such limit
            name: (count or None) if count is not None else getattr(known, name, None)
            for name, count in stated.items()
        }
        return Limit(**counts)

    def _count(self, table: Mapping[str, Any], name: str, model_id: str) -> int | None:
        """Return a setting: its number, 0 for false, None if it is not set."""
        value = table.get(name)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value is None or is_count:
            return value
        if value is False and name in _LIMITS:
            return 0
        other = ", or false for no such limit" if name in _LIMITS else ""
        requirement = f"must be an integer >= 1{other}; got {shown(value)}"
        raise self._error(name, requirement, model_id)

    def _check_names(
        self, table: Mapping[str, Any], known: Collection[str], model_id: str = ""
    ) -> None:
        for name in table:
            if name not in known and is_secret_name(name):
                raise self._key_refused(name)
            if name not in known:
                near = did_you_mean(name, known, n=1)
                raise self._error(
                    name,
                    f"there is no such setting.{near} The settings are "
                    f"{', '.join(known)}",
                    model_id,
                )

    def _error(self, setting: str, reason: str, model_id: str = "") -> SettingsError:
        where = f'[{self.name}.models."{model_id}"]' if model_id else f"[{self.name}]"
        line = self._line_number(setting, model_id)
        setting_name = f"{where} {setting}" if setting else where
        return SettingsError(f"{self.path}, line {line}: {setting_name}: {reason}.")

    def _line_number(self, setting: str, model_id: str) -> int:
        """Return the line of a setting; without it, the line where its table begins."""
        table_line, inside = 1, False
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := _HEADER.match(line):
                names = re.sub(r"[\"'\s]", "", header[1])
                wanted = f"{self.name}.models.{model_id}" if model_id else self.name
                inside = names == re.sub(r"\s", "", wanted)
                table_line = number if inside else table_line
            elif inside and re.match(rf"\s*[\"']?{re.escape(setting)}[\"']?\s*=", line):
                return number if setting else table_line
        return table_line


_KINDS: Mapping[str, tuple[type, str]] = {
    "model": (str, "the id of a model"),
    "prices": (str, "the path of a price table"),
    "allow_http": (bool, "true or false"),
    "ca_file": (str, "the path of a file with certificates"),
    "proxy": (str, "the address of a proxy"),
}
"""The settings whose value is used unchanged, with their types."""
_PATHS = ("prices", "ca_file")
OF_SERVICE = {
    "base_url": ADDRESS_VARIABLE,
    "key_env": KEY_VARIABLE,
    **dict.fromkeys(
        ("headers", "query", "key_header", "path", "max_tokens_field"), "its document"
    ),
}
"""The settings that `[service]` cannot have, and what sets them instead."""
_MODEL_SETTINGS = ("context", "max_reply", "max_tokens_field")
_LIMITS = {
    "per_second": "most requests to a model within a second; false for no such limit",
    "per_minute": "most requests to a model within a minute; false for no such limit",
    "in_flight": "most requests to a model at a time; false for no such limit",
}
ENDPOINT_KEYS = {
    "base_url": "the address, ending with /v1; not for `service` (SVC_BASE_URL)",
    "key": "false if the server needs no key; a key itself does not belong in a file",
    "key_env": "the environment variable that has the key; not for `service`",
    "model": "the model of requests that name none; if left out, its only model",
    "prices": "a price table for this endpoint, as a path relative to the file",
    "allow_http": "true lets a key be sent unencrypted",
    "ca_file": "certificates (PEM), as a path relative to the file",
    "proxy": "http://HOST:PORT, instead of the environment's; not for this machine",
    **SETTINGS,
    **_LIMITS,
    "models": "a table for each model, such as [lab.models.qwen-32b]",
}
"""The settings in the table of an endpoint, and what they mean."""
MODEL_KEYS = {
    "context": "most tokens of prompt and reply together",
    "max_reply": "most tokens of a reply",
    "max_tokens_field": SETTINGS["max_tokens_field"],
    **_LIMITS,
}
"""The settings in the table of a model, and what they mean."""
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")


def _has_certificates(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError):  # SSLError is an OSError
        return False
    return True


def _is_proxy(text: str) -> bool:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        return parts.scheme in {"http", "https"} and bool(parts.hostname and parts.port)
    except ValueError:
        return False


def _merged(models: tuple[Model, ...]) -> tuple[Model, ...]:
    """Return the service's models; those in the file replace those of the document."""
    known = {model.id: model for model in SERVICE.models}
    return tuple((known | {model.id: model for model in models}).values())
