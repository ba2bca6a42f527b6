"""The API key: finds it, stores it, and redacts it everywhere (doc: Authentication).

A key is sent to its own address and to no other. It is looked for in this order:

1. The argument: `key=` or `api_key=` of a client, for that client's address.
2. A key that was typed (`%svc login`), or given to `svc.use`, for this address.
3. The environment variable that the user's own file names for this address (`key_env`).
   If the file names none: SVC_API_KEY, if this address is SVC_BASE_URL.
4. The keyring's entry for this address.

If `key=False` or the file says that no key is needed, a key is sent only if it is an
argument of the client. The kernel's emulator has a random key, which is used for
nothing else. The workers of a Ray cluster look for no key: the driver sends them its
own.

The value leaves a `Key` only through `authorization()`, where headers are written. A
function that raises must not have the value in a local variable, because tracebacks can
show local variables.
"""

import json
import os
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib import import_module
from itertools import islice
from typing import Any, Literal, NoReturn, TypeVar, cast

import msgspec

from svc_notebook.endpoint_settings import variable_of
from svc_notebook.endpoints import (
    ADDRESS_VARIABLE,
    FILE,
    KEY_VARIABLE,
    SERVICE,
    Endpoint,
    read_endpoints,
)
from svc_notebook.errors import (
    AuthError,
    MissingKeyError,
    ParameterError,
    SettingsError,
    SvcError,
)
from svc_notebook.service.chunk import CallPiece, Delta
from svc_notebook.service.error_messages import UNAUTHORIZED
from svc_notebook.settings import (
    WAYS_ON,
    WAYS_TO_A_KEY,
    endpoint_at,
    service_address,
)

NO_KEY_YET = f"No API key: {KEY_VARIABLE} is not set."
KEYRING_NAME = "svc-notebook"
"""The service's name in the keyring; the entry's name is the base address."""
ANY_VARIABLE = "API_KEY"  # in exported code, if no variable of the key is known
_MARK = "[key]"
_MIN_CHARS = 8  # a shorter key may be an ordinary word, so it is not replaced
_JSON = msgspec.json.Encoder()
Redactable = TypeVar("Redactable")


class Key:
    """An API key that does not show its value, and says where it was found.

    Blanks and quotes around it and a leading "Bearer " are removed. Methods that redact
    this key redact `others`, too: this kernel's keys of other addresses.

    Raises:
        MissingKeyError: The value is empty, or cannot be sent in a header.
    """

    __slots__ = ("_reveal", "_reveal_json", "others", "source")

    def __init__(self, value: str, *, source: str) -> None:
        self.source = source
        self.others: tuple[Key, ...] = ()
        cleaned = _clean(value, source)
        value = ""  # a traceback may show the locals of this frame
        if isinstance(cleaned, MissingKeyError):
            raise cleaned
        # in a closure: attributes could be shown, for example by a debugger
        self._reveal: Callable[[], str] = lambda: cleaned
        as_json = json.dumps(cleaned)[1:-1].encode()
        self._reveal_json: Callable[[], bytes] = lambda: as_json

    @classmethod
    def none(cls) -> "Key":
        """Return the key of a server that needs none: no header is sent."""
        key = cls("none", source="nowhere: none is needed")
        key._reveal, key._reveal_json = str, bytes
        return key

    def authorization(self) -> str:
        """Return the Authorization header's value; "" if no key is needed."""
        secret = self._reveal()
        return f"Bearer {secret}" if secret else ""

    def redact(self, value: Redactable) -> Redactable:
        """Replace the key by `[key]` in texts, also inside lists and structs."""
        if isinstance(value, msgspec.Struct) and not self._is_in(_JSON.encode(value)):
            return value  # the usual case; encoding is the fastest way to search
        return _redact_all(value, self._redact_text)

    def redact_error(self, error: SvcError) -> None:
        """Replace the key in the message and the attributes of an error."""
        error.args = self.redact(error.args)
        for name, value in vars(error).items():
            setattr(error, name, self.redact(value))

    def refuse_in(self, body: bytes) -> None:
        """Raise a ParameterError if the JSON body of a request contains the key."""
        has_key = self._is_in(body)
        body = b""  # a traceback may show the locals of this frame
        if has_key:
            raise ParameterError(
                "The request contains the API key (in the prompt, an earlier message "
                "or a parameter). It was not sent, because every request is recorded. "
                "Remove the key and ask again."
            )

    def _redact_text(self, text: str) -> str:
        return _replace_secrets(text, self._secrets()) if text else text

    def _secrets(self) -> tuple[str, ...]:
        """Return the keys to redact, longest first, as one may begin with another."""
        secrets = {key._reveal() for key in (self, *self.others)}  # noqa: SLF001 - keys, too
        hidden = (secret for secret in secrets if len(secret) >= _MIN_CHARS)
        return tuple(sorted(hidden, key=len, reverse=True))

    def _is_in(self, body: bytes) -> bool:
        keys = (self, *self.others)
        secrets = [key._reveal_json() for key in keys]  # noqa: SLF001 - keys, too
        return any(len(secret) >= _MIN_CHARS and secret in body for secret in secrets)

    def digest(self, salt: str) -> str:
        """Return a short one-way hash, which identifies the key."""
        return blake2b(self._reveal().encode(), key=salt.encode()[:64]).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<API key (hidden) from {self.source}>"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __copy__(self) -> "Key":
        return self

    def __deepcopy__(self, memo: object) -> "Key":
        return self

    def __getstate__(self) -> NoReturn:
        raise MissingKeyError(
            "An API key is not stored or sent to another process. Set "
            f"{KEY_VARIABLE} there."
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self.__getstate__()


def _clean(value: object, source: str) -> str | MissingKeyError:
    """Return the key without blanks, quotes and "Bearer", or why it cannot be sent."""
    if not isinstance(value, str):
        return MissingKeyError(
            f"The API key from {source} is {type(value).__name__}; give it as text."
        )
    cleaned = value.strip().strip("\"'").strip()
    scheme, _, rest = cleaned.partition(" ")
    if scheme.lower() == "bearer":
        cleaned = rest.strip()
    if not cleaned:
        return MissingKeyError(f"The API key from {source} is empty.{WAYS_ON}")
    if not all("!" <= letter <= "~" for letter in cleaned):
        return MissingKeyError(
            f"The API key from {source} contains a space, a control character or a "
            "letter that keys do not have; it was not sent. Copy it again, whole, from "
            "where it was created, and set it again."
        )
    return cleaned


def _redact_all(value: Redactable, redact: Callable[[str], str]) -> Redactable:
    clean: Any = value
    if isinstance(value, str):
        clean = redact(value)
    elif isinstance(value, (list, tuple)):
        clean = type(value)([_redact_all(item, redact) for item in value])
    elif isinstance(value, dict):
        clean = {
            _redact_all(name, redact): _redact_all(item, redact)
            for name, item in value.items()
        }
    elif isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        clean = msgspec.structs.replace(value, **_redact_all(fields, redact))
    return cast(Redactable, clean)


class StreamRedactor:
    """Redacts a text that arrives in pieces; a key may be cut anywhere.

    Text that may be the start of a key is held back until the next piece.
    """

    def __init__(self, key: Key) -> None:
        secrets = key._secrets()  # noqa: SLF001 - in the same file as `Key`
        self._reveal: Callable[[], tuple[str, ...]] = lambda: secrets
        self._first_letters = frozenset(secret[0] for secret in secrets)
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take the next piece, and return the text that can be shown."""
        if not self._held and self._first_letters.isdisjoint(piece):
            return piece  # no key begins in it
        shown, self._held = _split_at_key_start(self._held + piece, self._reveal())
        return shown

    def end(self) -> str:
        """Return what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return _replace_secrets(held, self._reveal())


_Part = Literal["text", "reasoning"] | int | None
"""A text of a choice that arrives in pieces; `int` or None is a tool call's index."""


class DeltaRedactor:
    """Redacts the deltas of a streamed reply; a delta may end with the start of a key.

    A server may echo a key over several chunks, in the text, the reasoning or the
    arguments of a tool call. At the end, the whole completion is redacted once more.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._streams: dict[tuple[int, _Part], StreamRedactor] = {}

    def feed(self, delta: Delta) -> Delta:
        """Return what can be shown of a delta; all of it if its choice ends."""
        if delta.finish_reason and not self._streams:  # a reply in one piece
            return self._key.redact(delta)
        changes: dict[str, object] = {}
        text, reasoning, is_end = delta.text or "", delta.reasoning, delta.finish_reason
        if (text or is_end) and (shown := self._feed(delta, "text", text)) != text:
            changes["text"] = shown
        if reasoning or is_end:
            changes["reasoning"] = self._feed(delta, "reasoning", reasoning)
        if delta.calls:
            changes["calls"] = tuple(self._call(delta, piece) for piece in delta.calls)
        if is_end:
            changes["finish_reason"] = self._key.redact(is_end)
        return msgspec.structs.replace(delta, **changes) if changes else delta

    def end(self) -> Iterator[Delta]:
        """Return what was held back, at the end of the reply."""
        for (index, part), stream in self._streams.items():
            if held := stream.end():
                yield _delta(index, part, held)

    def _call(self, delta: Delta, piece: CallPiece) -> CallPiece:
        arguments = self._feed(delta, piece.index, piece.arguments)
        return msgspec.structs.replace(self._key.redact(piece), arguments=arguments)

    def _feed(self, delta: Delta, part: _Part, piece: str) -> str:
        stream = self._streams.get((delta.index, part))
        if stream is None:
            stream = self._streams[delta.index, part] = StreamRedactor(self._key)
        shown = stream.feed(piece)
        return shown + stream.end() if delta.finish_reason else shown


def _delta(index: int, part: _Part, held: str) -> Delta:
    if part == "text":
        return Delta(index=index, text=held)
    if part == "reasoning":
        return Delta(index=index, reasoning=held)
    return Delta(index=index, calls=(CallPiece(index=part, arguments=held),))


def _key_spans(text: str, secrets: Iterable[str]) -> list[tuple[int, int]]:
    """Return the start and end of each key in a text."""
    if not any(secret in text for secret in secrets):  # the fastest search
        return []
    pattern = "|".join(map(re.escape, secrets))
    return [match.span() for match in re.finditer(pattern, text)]


def _replace_secrets(text: str, secrets: Iterable[str]) -> str:
    shown, at = "", 0
    for start, end in _key_spans(text, secrets):
        shown += text[at:start] + _MARK
        at = end
    return shown + text[at:]


def _split_at_key_start(text: str, secrets: Iterable[str]) -> tuple[str, str]:
    """Return the redacted start of a text, and its end if that may begin a key."""
    shown, at = "", 0
    for start, end in _key_spans(text, secrets):
        start_of_key = _key_start(text, at, secrets)
        if start_of_key <= start:
            return shown + text[at:start_of_key], text[start_of_key:]
        shown += text[at:start] + _MARK
        at = end
    start_of_key = _key_start(text, at, secrets)
    return shown + text[at:start_of_key], text[start_of_key:]


def _key_start(text: str, at: int, secrets: Iterable[str]) -> int:
    """Return where the end of a text may begin a key; the text's length if nowhere."""
    start_of_key = len(text)
    for secret in secrets:
        start = text.find(secret[0], max(at, len(text) - len(secret) + 1), start_of_key)
        while start >= 0 and not secret.startswith(text[start:]):
            start = text.find(secret[0], start + 1, start_of_key)
        start_of_key = start_of_key if start < 0 else start
    return start_of_key


def to_key(
    value: Key | str | None, *, source: str = "an argument"
) -> Key | MissingKeyError | None:
    """Return the key that a text holds, or the error if it cannot be used.

    The caller raises the error after it has cleared its own variables.
    """
    if value is None or isinstance(value, Key):
        return value
    try:
        return Key(value, source=source)
    except MissingKeyError as problem:
        return problem.with_traceback(None)


_typed: dict[str, Key] = {}
"""Keys that were typed, or given to `svc.use`, by address."""
_seen: dict[tuple[str, str], Key] = {}
"""Keys that were found, or given to a client, by hash and source."""
_keyless: set[str] = set()
"""The addresses that are used with `key=False` or `no-key`."""
_not_inherited: dict[str, str] = {}
"""Variables that `without_keys` has taken out of the environment, with their values."""
_environ = ChainMap(os.environ, _not_inherited)


def find_key(
    environ: Mapping[str, str] = _environ,
    *,
    base_url: str | None,
    endpoint: Endpoint = SERVICE,
) -> Key:
    """Return the API key of an address, by steps 2 to 4 of this file's docstring.

    Args:
        environ: The environment variables.
        base_url: The address; None if SVC_BASE_URL is not set.
        endpoint: The endpoint at the address; `key_env` names its variable.

    Raises:
        MissingKeyError: This address has no key, or the key cannot be sent; the
            message says how to set one.
    """
    check_variables(endpoint, environ)
    if not endpoint.needs_key:
        return Key.none()
    if (typed_key := _typed.get(base_url or "")) is not None:
        return typed_key
    variable = endpoint.key_env
    if variable is None and base_url in {None, service_address(environ)}:
        variable = KEY_VARIABLE
    key = _from_variable(variable, environ) if variable else None
    is_set = bool(environ.get(KEY_VARIABLE, "").strip())
    environ = {}  # a traceback may show the locals of this frame
    if key is None and base_url is not None:
        key = to_key(_from_keyring(base_url), source="the keyring")
    if isinstance(key, Key):
        return make_known(key)
    raise key or _no_key(base_url, endpoint, variable, is_set=is_set)


def _from_variable(
    name: str, environ: Mapping[str, str]
) -> Key | MissingKeyError | None:
    """Return a variable's key; None if it is not set, or blank."""
    return to_key(environ.get(name, "").strip() or None, source=name)


def make_known(key: Key) -> Key:
    """Register a key, so that it is redacted and refused everywhere in this kernel.

    The same key is always the same object. Otherwise, `others` would make longer and
    longer chains of new objects.
    """
    if not key.authorization():
        return key
    return _seen.setdefault((key.digest(""), key.source), key)


_used_variables: set[str] = set()
"""The environment variables of headers that have been used."""


def check_variables(endpoint: Endpoint, environ: Mapping[str, str] = _environ) -> None:
    """Refuse headers whose variables are not set; redact the values of the others."""
    for name, value in endpoint.headers:
        if not (variable := variable_of(value)):
            continue
        _used_variables.add(variable)
        secret = _from_variable(variable, environ)
        if not isinstance(secret, Key):
            raise secret or MissingKeyError(
                f"The header {name} of {endpoint.base_url} needs {variable}, which is "
                "not set. Set this environment variable and ask again."
            )


def request_headers(key: Key, endpoint: Endpoint) -> list[tuple[bytes, bytes]]:
    """Return the headers of requests to an endpoint: the key's and the endpoint's own.

    The values may be secrets, so this function must not raise.
    """
    bearer = key.authorization()
    name, value = "Authorization", bearer
    if endpoint.key_header:
        name, value = endpoint.key_header, bearer.partition(" ")[2]
    headers = [(name.encode(), value.encode())] if bearer else []
    for header, text in endpoint.headers:
        variable = variable_of(text)
        header_value = _environ.get(variable, "").strip() if variable else text
        headers.append((header.encode(), header_value.encode()))
    return headers


def _no_key(
    base_url: str | None, endpoint: Endpoint, variable: str | None, *, is_set: bool
) -> MissingKeyError:
    """Return the error for an address without a key; `variable` is the one to set.

    `is_set` says whether SVC_API_KEY is set; it may belong to another address.
    """
    if variable == KEY_VARIABLE:
        remedies = WAYS_ON if base_url is None else WAYS_TO_A_KEY
        return MissingKeyError(NO_KEY_YET + remedies)
    if variable is not None:
        return MissingKeyError(
            f"No API key for {base_url}: {variable} is not set. Set it to the key of "
            f"the endpoint {endpoint.name}, or type the key after `%svc login "
            f"{base_url}`. If the server needs none, write key = false in the file."
        )
    other_key_note = (
        f" {KEY_VARIABLE} is for {ADDRESS_VARIABLE} only, and was not sent."
        if is_set
        else ""
    )
    return MissingKeyError(
        f"No API key for {base_url}.{other_key_note} Type the key of this address "
        f"after `%svc login {base_url}`. Or give it: svc.use(base_url=..., key=...), "
        f"or key_env, the name of its variable, in {FILE}.\nIf the server needs none: "
        "`%svc use ADDRESS no-key`, svc.use(base_url=..., key=False), or key = false "
        f"in {FILE}."
    )


_INVALID_KEY = (
    "The API key is invalid or revoked. Set {variable} to a valid key from the key "
    "section of the service's dashboard, and check that it is complete."
)
_OTHER_INVALID_KEY = (
    "The API key from {source} is invalid or revoked. Type another one after `%svc "
    "login {address}`, and check that it is complete{given}."
)
_OTHER_SERVERS_KEY = (
    "{address} refused the API key. Set {variable} to a valid key of this server, and "
    "check that it is complete."
)
_GIVEN = {
    "svc.use": "; or give it: svc.use(base_url=..., key=...)",
    "an argument": "; or give the client another key=",
}
"""How to replace a key that was given in code, by its source."""


def name_refused_key(
    error: AuthError, *, source: str, address: str, is_sent: bool, is_documented: bool
) -> None:
    """Add to an error which key was refused, and how to use another one.

    Args:
        error: The refusal.
        source: Where the key was found: a variable's name, or a text such as "svc.use".
        address: The base address that the key was sent to.
        is_sent: False if the endpoint is used without a key.
        is_documented: Whether the address is the service's.
    """
    if not is_sent:
        error.remedy = (
            f"No key was sent, because this endpoint is used without one (key = "
            f"false). Type its key after `%svc login {address}`, then `%svc use "
            f"{address}`; or give it: svc.use(base_url=..., key=...)."
        )
    elif error.status != UNAUTHORIZED:
        error.add_note(f"The key that was sent is from {source}.")
    elif source.isidentifier() and not is_documented:
        error.remedy = _OTHER_SERVERS_KEY.format(variable=source, address=address)
    elif source.isidentifier():
        error.remedy = _INVALID_KEY.format(variable=source)
    else:
        given = _GIVEN.get(source, "")
        error.remedy = _OTHER_INVALID_KEY.format(
            source=source, address=address, given=given
        )


def hold(key: Key, base_url: str) -> None:
    """Use a key for an address in this process, and store it nowhere."""
    _typed[base_url] = key


def note_keyless(base_url: str, *, is_keyless: bool) -> None:
    """Note whether an address is used without a key, for exported code."""
    (_keyless.add if is_keyless else _keyless.discard)(base_url)


def remember(key: Key, base_url: str) -> str | None:
    """Use a key for an address from now on, and store it in the system's keyring.

    Returns:
        The keyring's name; None if the key is kept in memory only, because there is
        no keyring or it does not accept the key.
    """
    hold(key, base_url)
    return _to_keyring(base_url, key.authorization().partition(" ")[2])


def forget() -> None:
    """Forget the keys that were typed or given; a keyring keeps its entries."""
    _typed.clear()
    _seen.clear()
    _keyless.clear()
    _used_variables.clear()


def _from_keyring(base_url: str) -> str | None:
    """Return an address's key in the keyring; None without one, or if it is locked."""
    with suppress(Exception):
        keyring = import_module("keyring")  # an extra
        return cast(str | None, keyring.get_password(KEYRING_NAME, base_url))
    return None


def _to_keyring(base_url: str, value: str) -> str | None:
    with suppress(Exception):
        keyring = import_module("keyring")
        keyring.set_password(KEYRING_NAME, base_url, value)
        # Some keyrings do nothing and raise no error, so read the value back.
        if _from_keyring(base_url) == value:
            return str(keyring.get_keyring().name)
    return None


def variable_at(base_url: str) -> str:
    """Return the variable with the key of an address, for exported code.

    It is "" if no key is needed, and ANY_VARIABLE if no variable is known.
    """
    with suppress(SettingsError):
        endpoint = endpoint_at(base_url)
        if base_url in _keyless or not endpoint.needs_key:
            return ""
        if endpoint.key_env:
            return endpoint.key_env
    return KEY_VARIABLE if base_url == service_address(os.environ) else ANY_VARIABLE


def shell_headers(base_url: str) -> list[str]:
    """Return the headers of an address as lines for a shell, for exported code.

    Secrets are the names of variables; `variable_at` names that of the key.
    """
    headers, key_header = list[str](), "Authorization: Bearer"
    with suppress(SettingsError):
        endpoint = endpoint_at(base_url)
        if endpoint.key_header:
            key_header = f"{endpoint.key_header}:"
        for name, value in endpoint.headers:
            plain = (
                value if variable_of(value) else re.sub(r'(["$`\\])', r"\\\1", value)
            )
            headers.append(f"{name}: {plain}")
    variable = variable_at(base_url)
    return [*([f"{key_header} ${variable}"] if variable else []), *headers]


def _key_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables with keys: the service's, and those of all endpoints."""
    named = {KEY_VARIABLE: None, **dict.fromkeys(sorted(_used_variables))}
    with suppress(SettingsError):
        for endpoint in read_endpoints(environ).values():
            named |= dict.fromkeys(endpoint.variables)
    return tuple(named)


def known_keys(environ: Mapping[str, str] = _environ) -> tuple[Key, ...]:
    """Return all keys of this kernel: typed, given, found, and in variables."""
    keys = (_from_variable(name, environ) for name in _key_variables(environ))
    of_variables = (key for key in keys if isinstance(key, Key))
    return (*_typed.values(), *_seen.values(), *of_variables)


def hide_others(key: Key) -> Key:
    """Make a key redact all other keys of this kernel, too, and return it."""
    key.others = tuple(other for other in known_keys() if other is not key)
    return key


@contextmanager
def without_keys() -> Iterator[None]:
    """Hide keys from programs started inside the block, but not from this process."""
    keys, variables = known_keys(), _key_variables(os.environ)
    removed = {
        name: value
        for name, value in os.environ.items()
        if name in variables or any(key.redact(value) != value for key in keys)
    }
    _not_inherited.update(removed)
    try:
        for name in removed:
            del os.environ[name]
        yield
    finally:
        os.environ.update(removed)
        _not_inherited.clear()


def refuse_keys(values: Iterable[object], *, of: str, param: str = "prompt") -> None:
    """Refuse values that contain a key, because plans and frames would show it."""
    keys, texts = known_keys(), map(str, values)
    while joined := "\n".join(islice(texts, 1000)):
        if any(key.redact(joined) != joined for key in keys):
            raise ParameterError(
                f"{of} contains the API key. Remove it there; nothing was sent.",
                param=param,
            )


_KEY_FORM = re.compile(
    r"(?:^|\s)(Bearer |(sk|pk|gsk|hf|key)[-_]\w{6})"
    r"|(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{24,}"
)


def refuse_key_form(text: object, *, param: str) -> None:
    """Refuse a name that is a key or looks like a key, without quoting it."""
    word = text.strip() if isinstance(text, str) else ""
    is_known = any(key.redact(word) != word for key in known_keys())
    if is_known or _KEY_FORM.search(word):
        raise ParameterError(
            "This looks like an API key, so it is not shown, and nothing was changed. "
            "Type a key after `%svc login`, where nobody sees it, or name its "
            f"variable as key_env in {FILE}.",
            param=param,
        )
