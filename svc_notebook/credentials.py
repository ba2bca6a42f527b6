"""The API key: find it, hold it, keep it out of everything (doc: Authentication).

The value leaves a `Key` only through `authorization()`, where headers are written. A
key belongs to one address. No frame that raises may hold the value in a local
variable, because tracebacks can show those.
"""

import json
import os
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib import import_module
from itertools import islice
from threading import current_thread, main_thread
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from svc_notebook.endpoint_file import FILE, origin, read_endpoints, user_file
from svc_notebook.endpoints import SERVICE, Endpoint, to_base_url
from svc_notebook.errors import MissingKeyError, ParameterError, SettingsError, SvcError
from svc_notebook.settings import (
    ENV_NAMES,
    IN_FILE,
    WAYS_ON,
    endpoint_at,
    read_env_file,
    ways_on,
)

ENV_NAME = "SVC_API_KEY"
NO_KEY_YET = f"No API key: {ENV_NAME} is not set."
KEYRING_NAME = "svc-notebook"
"""The service's name in the keyring; the entry's name is the base address."""
_COLAB = "google.colab"
_IN_COLAB = " in Colab's secrets"
ANY_NAME = "API_KEY"  # of a key that no variable is known for; never the service's
_MARK = "[key]"
_PUBLIC = "Bearer svc-emulator"  # the emulator's, which may run at any address
_MIN_CHARS = 8  # a shorter key may be an ordinary word, so it is not replaced
_JSON = msgspec.json.Encoder()
Value = TypeVar("Value")


class Key:
    """An API key that does not show its value, and says where it was found.

    Blanks and quotes around it and a leading "Bearer " are removed. What hides this key
    hides `others`, too: those that this kernel has for other addresses.

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
        # A function holds it, so that it is not shown among the attributes.
        self._reveal: Callable[[], str] = lambda: cleaned
        as_json = json.dumps(cleaned)[1:-1].encode()
        self._reveal_json: Callable[[], bytes] = lambda: as_json

    @classmethod
    def none(cls) -> "Key":
        """Return what stands for a key where none is needed: no header is sent."""
        key = cls("none", source="nowhere: none is needed")
        key._reveal, key._reveal_json = str, bytes
        return key

    def authorization(self) -> str:
        """Return the Authorization header's value; "" if no key is needed."""
        secret = self._reveal()
        return f"Bearer {secret}" if secret else ""

    def redact(self, value: Value) -> Value:
        """Return texts, also in lists and structs, with `[key]` in place of the key."""
        if isinstance(value, msgspec.Struct) and not self._is_in(_JSON.encode(value)):
            return value  # as nearly always, and found at once
        for each in (self, *self.others):
            secret = each._reveal()  # noqa: SLF001 - a key, too
            value = _redacted(value, secret) if len(secret) >= _MIN_CHARS else value
        return value

    def redact_error(self, error: SvcError) -> None:
        """Replace the key in the message and the attributes of an error."""
        error.args = self.redact(error.args)
        for name, value in vars(error).items():
            setattr(error, name, self.redact(value))

    def refuse_in(self, body: bytes) -> None:
        """Refuse a request, as JSON, that contains the key, by a ParameterError."""
        is_found = self._is_in(body)
        body = b""
        if is_found:
            raise ParameterError(
                "The request contains the API key (in the prompt, an earlier message "
                "or a parameter). It was not sent, because every request is recorded. "
                "Remove the key and ask again."
            )

    def _is_in(self, body: bytes) -> bool:
        keys = (self, *self.others)
        secrets = [each._reveal_json() for each in keys]  # noqa: SLF001 - keys, too
        return any(len(each) >= _MIN_CHARS and each in body for each in secrets)

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
            f"{ENV_NAME} there."
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self.__getstate__()


def _redacted(value: Value, secret: str) -> Value:
    found: Any = value
    if isinstance(value, str):
        found = value.replace(secret, _MARK) if secret in value else value
    elif isinstance(value, (list, tuple)):
        found = type(value)([_redacted(each, secret) for each in value])
    elif isinstance(value, dict):
        found = {
            _redacted(name, secret): _redacted(each, secret)
            for name, each in value.items()
        }
    elif isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        found = msgspec.structs.replace(value, **_redacted(fields, secret))
    return cast(Value, found)


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
    except MissingKeyError as found:
        return found.with_traceback(None)


_not_inherited: dict[str, str] = {}
_environ = ChainMap(os.environ, _not_inherited)


@contextmanager
def without_keys() -> Iterator[None]:
    """Let programs that start inside the block inherit no key; it is found here."""
    keys, names = known_keys(), {variable_of(name) for name in _key_names()}
    found = {
        name: value
        for name, value in os.environ.items()
        if name in names or any(key.redact(value) != value for key in keys)
    }
    _not_inherited.update(found)
    try:
        for name in found:
            del os.environ[name]
        yield
    finally:
        os.environ.update(found)
        _not_inherited.clear()


def known_keys(environ: Mapping[str, str] = _environ) -> tuple[Key, ...]:
    """Return the keys of this kernel: those typed, set, and in a file or in Colab."""
    found = (key for name in _key_names() for _, key in _set_keys(environ, name))
    keys = (each for each in found if isinstance(each, Key))
    return (*_typed.values(), *keys, *_of_colab.values())


def refuse_keys(values: Iterable[object], *, of: str, param: str = "prompt") -> None:
    """Refuse values that contain a key: plans, frames and lists would show it."""
    keys, texts = known_keys(), map(str, values)
    while joined := "\n".join(islice(texts, 1000)):
        if any(key.redact(joined) != joined for key in keys):
            raise ParameterError(
                f"{of} contains the API key. Remove it there; nothing was sent.",
                param=param,
            )


def refuse_key_form(text: object, *, param: str) -> None:
    """Refuse, without quoting it, a name that is a key or looks like one."""
    found = text.strip() if isinstance(text, str) else ""
    is_known = any(key.redact(found) != found for key in known_keys())
    if is_known or _KEY_FORM.search(found):
        raise ParameterError(
            "This looks like an API key, so it is not shown, and nothing was changed. "
            "Type a key after `%svc login`, where nobody sees it, or name its "
            "variable as key_env in svc_notebook.toml.",
            param=param,
        )


_KEY_FORM = re.compile(
    r"(?:^|\s)(Bearer |(sk|pk|gsk|hf|key)[-_]\w{6})"
    r"|(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{24,}"
)


def _key_names() -> tuple[str, ...]:
    """Return the variables that have keys: the service's, and those of endpoints."""
    with suppress(SettingsError):
        named = (each.key_env for each in read_endpoints().values())
        return tuple(dict.fromkeys((ENV_NAME, *(each for each in named if each))))
    return (ENV_NAME,)


def key_mark(environ: Mapping[str, str] = _environ) -> bytes:
    """Return a one-way hash of the keys typed and set, to see when they change."""
    typed = sorted(key.digest("mark") for key in _typed.values())
    file = read_env_file()
    named = (f"{environ.get(name, '')} {file.value(name)}" for name in _key_names())
    value = " ".join((*typed, *named))
    return blake2b(value.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def find_key(
    environ: Mapping[str, str] = _environ,
    *,
    base_url: str | None,
    endpoint: Endpoint = SERVICE,
) -> Key:
    """Return the API key of an endpoint's address.

    It is the one typed for this address, or before any address was known; else the
    variable that the endpoint names, or SVC_API_KEY, of the environment, of `.env` in
    this folder, or of Colab's secrets; else the one that the keyring has for this
    address. A variable's key belongs to the address that it was first sent to, before
    that to SVC_BASE_URL of the same place, or to the first address used if that is not
    set. No key is sent where only the file in the notebook's folder wants it, unless it
    was typed for that address. The address is None if it is not known yet.

    Raises:
        MissingKeyError: This address has no key, or the key cannot be sent; the
            message says how to set one.
    """
    if not endpoint.needs_key:
        return _noted(Key.none(), base_url)
    is_waiting = base_url is not None and None in _typed
    if is_waiting and _is_users(environ, endpoint, base_url):
        _typed[base_url] = _typed.pop(None)
    name = endpoint.key_env or ENV_NAME
    others = [(key.source, address) for address, key in _typed.items()]
    is_withheld = _is_withheld(environ, endpoint, name)
    is_set = any(each for _, each in _set_keys(environ, name))
    given, elsewhere = (
        (None, []) if is_withheld else _of_variable(environ, name, base_url)
    )
    environ = {}  # a traceback may show the locals of this frame
    found = _typed.get(base_url) or given
    if found is None:
        found = to_key(_from_keyring(base_url), source="the keyring")
    if isinstance(found, Key):
        return _noted(found, base_url)
    if found is None and is_withheld and (is_set or variable_of(name) != ENV_NAME):
        raise _withheld(base_url, endpoint.name, variable_of(name))
    if found is None and is_waiting and None in _typed:
        raise _withheld(base_url, endpoint.name)
    if found is None and variable_of(name) != ENV_NAME and not elsewhere:
        raise MissingKeyError(
            f"No API key for {base_url}: {name} is not set. Set it to the key of the "
            f"endpoint {endpoint.name}, or type the key after `%svc login {base_url}`. "
            "If the server needs none, write key = false in the file."
        )
    others += elsewhere
    raise found or _no_key(base_url, others, is_service=endpoint.name == SERVICE.name)


def _is_withheld(environ: Mapping[str, str], endpoint: Endpoint, name: str) -> bool:
    """Say whether only the folder's file wants this variable's key for an address.

    SVC_API_KEY goes to SVC_BASE_URL all the same.
    """
    is_bound = variable_of(name) == ENV_NAME and _named_address(environ, name)
    return not (endpoint.takes_env_key or is_bound)


def _is_users(
    environ: Mapping[str, str], endpoint: Endpoint, base_url: str | None
) -> bool:
    """Say whether the user chose an address; a folder's file does not choose."""
    of_file = read_env_file().address(environ) if endpoint.name == SERVICE.name else ""
    is_own = endpoint.is_users and not _is_at(of_file, base_url)
    return is_own or _is_at(_named_address(environ, ENV_NAME), base_url)


def _is_at(text: str, base_url: str | None) -> bool:
    with suppress(SettingsError):
        return bool(text) and to_base_url(text, allow_http=True) == base_url
    return False


def _withheld(base_url: str | None, name: str, variable: str = "") -> MissingKeyError:
    host = origin(base_url)[1] or "the service"
    key, again = "the key that you typed", "getpass.getpass()"
    if variable:
        key, again = f"the key of {variable}", f"os.environ[{variable!r}]"
    return MissingKeyError(
        f"{FILE} in this folder would send {key} to {host}. A folder's file may be "
        "somebody else's, so nothing was sent. If the host is right, give the key for "
        f"this kernel: svc.use(base_url={base_url!r}, key={again}); or move [{name}] "
        f"to {user_file()}."
    )


def _of_variable(
    environ: Mapping[str, str], name: str, base_url: str | None
) -> tuple[Key | MissingKeyError | None, list[tuple[str, str | None]]]:
    """Return a variable's key for an address; then where it has keys for others."""
    found: Key | MissingKeyError | None = None
    elsewhere: list[tuple[str, str | None]] = []
    home_of = _home if variable_of(name) == ENV_NAME else _own_home
    for look in (_set_keys, _colab_key):
        for source, given in look(environ, name):
            if given is None or found is not None:
                continue
            home = home_of(environ, source, given, base_url)
            if home == base_url:
                found = given
            else:
                elsewhere.append((source, home))
        if found is not None or _typed.get(base_url):
            break  # Colab's page is asked only if nothing else has a key
    return found, elsewhere


_Found = tuple[str, Key | MissingKeyError | None]


def _set_keys(environ: Mapping[str, str], name: str) -> list[_Found]:
    """Return where a variable is set to a key: in the environment, in `.env`."""
    name, is_in_file, _ = name.partition(IN_FILE)  # the file's alone, or any
    in_file, value = name + IN_FILE, read_env_file().value(name)
    found: list[_Found] = [(in_file, to_key(value or None, source=in_file))]
    if not (is_in_file or (value and not environ.get(name, "").strip())):
        found = [(name, to_key(environ.get(name), source=name)), *found]
    return found


def variable_of(source: str) -> str:
    """Return the variable that a key is from; "" if it is from none."""
    name = source.removesuffix(IN_FILE).removesuffix(_IN_COLAB)
    return name if name.isidentifier() else ""


def _noted(key: Key, base_url: str | None) -> Key:
    """Note the variable of an address, for `key_variable`, and return the key."""
    if base_url is not None:
        name = variable_of(key.source) or ANY_NAME
        _variables[base_url] = name if key.authorization() else ""
    return key


def key_variable(base_url: str) -> str:
    """Return the variable for the key of an address, in code that is kept.

    It is the one that this kernel uses there, else the one that the files or
    SVC_BASE_URL name for it; "" where no key is needed, ANY_NAME where none is known.
    """
    if (used := _variables.get(base_url)) is not None:
        return used
    with suppress(SettingsError):
        found = endpoint_at(base_url)
        service = _named_address(os.environ, ENV_NAME)
        if not found.needs_key:
            return ""
        name = found.key_env or ENV_NAME
        at = to_base_url(service, allow_http=True) if service else None
        is_described = found.takes_env_key and found.base_url is not None
        is_own = found.takes_env_key or name == ENV_NAME
        if is_described or (at == base_url and is_own):
            return name
    return ANY_NAME


_typed: dict[str | None, Key] = {}
"""The keys typed, by address; None until the first address is used."""
_first_used: dict[tuple[str, str], str] = {}
"""The address that each key of a variable was first sent to, by both."""
_variables: dict[str, str] = {}
"""The variable that the key of each address was found in, as `key_variable` says."""


def _named_address(environ: Mapping[str, str], source: str) -> str:
    """Return SVC_BASE_URL of the place where a key was found; "" if it is not set.

    A file without an address goes with the environment's.
    """
    file, named = read_env_file(), environ.get(ENV_NAMES["base_url"], "").strip()
    if source.endswith(IN_FILE):
        return file.value(ENV_NAMES["base_url"]) or named
    return named


def _home(
    environ: Mapping[str, str],
    source: str,
    key: Key | MissingKeyError | None,
    base_url: str | None,
) -> str | None:
    """Return the address that SVC_API_KEY belongs to."""
    named = _named_address(environ, source)
    if base_url is None or not (named or isinstance(key, Key)):
        return base_url
    if not named:
        bind(cast(Key, key), base_url)
        return _first_address(key) or base_url
    with suppress(SettingsError):
        return _first_address(key) or to_base_url(named, allow_http=True)
    return None


def _own_home(
    _: Mapping[str, str],
    source: str,  # noqa: ARG001 - as of `_home`
    key: Key | MissingKeyError | None,
    base_url: str | None,
) -> str | None:
    """Return the address that the key of an endpoint belongs to: its server's."""
    first = _first_address(key)
    is_there = first is None or origin(first) == origin(base_url)
    return base_url if is_there else first


def _first_address(key: Key | MissingKeyError | None) -> str | None:
    if not isinstance(key, Key):
        return None
    return _first_used.get((key.source, key.digest("home")))


def bind(key: Key, base_url: str) -> None:
    """Note that a variable's key was sent to an address, and is for no other."""
    if variable_of(key.source) and key.authorization() != _PUBLIC:
        _first_used.setdefault((key.source, key.digest("home")), base_url)


def release(endpoint: Endpoint) -> None:
    """Let an endpoint's own key go to the address that it is given now."""
    for source, digest in list(_first_used):
        address = _first_used[source, digest]
        if (
            variable_of(source) == endpoint.key_env != ENV_NAME
            and address == endpoint.base_url
        ):
            del _first_used[source, digest]


@contextmanager
def unbound() -> Iterator[None]:
    """Let the environment's keys belong to no address yet inside the block."""
    before = dict(_first_used)
    _first_used.clear()
    try:
        yield
    finally:
        _first_used.clear()
        _first_used.update(before)


def _no_key(
    base_url: str | None, others: list[tuple[str, str | None]], *, is_service: bool
) -> MissingKeyError:
    if base_url is not None and not others and not is_service:
        return MissingKeyError(
            f"No API key for {base_url}. Type it after `%svc login {base_url}` and "
            "choose the address again. Or give it: svc.use(base_url=..., key=...), or "
            "key_env, the name of its variable, in svc_notebook.toml.\nIf the server "
            "needs none: `%svc use ADDRESS no-key`, svc.use(base_url=..., key=False), "
            "or key = false in svc_notebook.toml."
        )
    if base_url is None or not others:
        return MissingKeyError(NO_KEY_YET + ways_on(has_address=base_url is not None))
    source, address = others[-1]
    return MissingKeyError(
        f"No API key for {base_url}: the key from {source} belongs to "
        f"{address or 'SVC_BASE_URL, which cannot be used'} and was not sent. Type the "
        f"key of this address after `%svc login {base_url}`, or give it with "
        "svc.use(base_url=..., key=...). key=False is for a server that needs no key."
    )


def remember(key: Key, base_url: str | None) -> str | None:
    """Use a key for an address from now on, and store it in the system's keyring.

    Without an address it is for the first one that this process uses.

    Returns:
        The keyring's name; None if the key is kept in memory only, because there is
        no keyring, it does not accept the key, or the address is not known.
    """
    _typed[base_url] = key
    if base_url is None:
        return None
    return _to_keyring(base_url, key.authorization().partition(" ")[2])


def hold(key: Key, base_url: str) -> None:
    """Use a key for an address in this process, and store it nowhere."""
    _typed[base_url] = key


def forget() -> None:
    """Forget the keys typed and the addresses used; a keyring keeps its entries."""
    for each in (_typed, _first_used, _variables, _of_colab):
        each.clear()


def _from_keyring(base_url: str | None) -> str | None:
    """Return the keyring's key of an address; None if that is absent or locked."""
    if base_url is None:
        return None
    with suppress(Exception):
        keyring = import_module("keyring")  # an extra
        return cast(str | None, keyring.get_password(KEYRING_NAME, base_url))
    return None


_of_colab: dict[str, Key] = {}
"""The keys that Colab's secrets had, by source; its page is asked until it has one."""


def _colab_key(_: Mapping[str, str], name: str) -> list[_Found]:
    """Return the key that Colab's secrets have for a variable, if this is Colab.

    The page may ask the user for access, so it is asked from the main thread only.
    """
    source = name + _IN_COLAB
    is_askable = current_thread() is main_thread() and _COLAB in sys.modules
    if is_askable and source not in _of_colab and name.isidentifier():
        with suppress(Exception):  # there is no such secret, or no access to it
            colab = import_module(f"{_COLAB}.userdata")
            if isinstance(secret := to_key(colab.get(name), source=source), Key):
                _of_colab[source] = secret
            return [(source, secret)]
    return [(source, _of_colab.get(source))]


def _to_keyring(base_url: str, value: str) -> str | None:
    with suppress(Exception):
        keyring = import_module("keyring")
        keyring.set_password(KEYRING_NAME, base_url, value)
        # Some keyrings store nothing and raise nothing.
        if _from_keyring(base_url) == value:
            return str(keyring.get_keyring().name)
    return None


def _clean(value: object, source: str) -> str | MissingKeyError:
    """Return the key without what was pasted with it, or why it cannot be sent."""
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
            "letter that keys do not have; it was not sent. Copy it again from the "
            f"key section of the service's dashboard and set {ENV_NAME}."
        )
    return cleaned
