"""The API key: find it, hold it, keep it out of everything (doc: Authentication).

The value leaves a `Key` only through `authorization()`, which the request path calls
where it writes headers. No frame that raises may hold a value in a local variable,
because tracebacks can show locals.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from svc_notebook.errors import MissingKeyError, ParameterError, SvcError
from svc_notebook.settings import WAYS_ON

ENV_NAME = "SVC_API_KEY"
KEYRING_NAME = "svc-notebook"
"""The service's name in the keyring; the entry's name is `SVC_API_KEY`."""
_MARK = "[key]"
_MIN_CHARS = 8  # a shorter key is an ordinary word, which texts may contain
Value = TypeVar("Value")


class Key:
    """An API key that does not show its value.

    Args:
        value: The key as pasted; surrounding blanks, quotes and a leading "Bearer "
            are removed.
        source: Where it was found, in words.

    Raises:
        MissingKeyError: The value is empty, or cannot be sent in a header.
    """

    __slots__ = ("_reveal", "source")

    def __init__(self, value: str, *, source: str) -> None:
        self.source = source
        cleaned = _clean(value, source)
        value = ""  # a traceback may show the locals of this frame
        if isinstance(cleaned, MissingKeyError):
            raise cleaned
        # A function holds it, so that nothing that lists attributes shows it.
        self._reveal: Callable[[], str] = lambda: cleaned

    def authorization(self) -> str:
        """Return the Authorization header's value (doc: Authentication)."""
        return f"Bearer {self._reveal()}"

    def redact(self, value: Value) -> Value:
        """Return the value with `[key]` in place of the key.

        The match is exact. A key of fewer than 8 characters is not replaced, because
        it could be an ordinary word.

        Args:
            value: A text, or lists, tuples, mappings and structs of texts; anything
                else is returned as it is.
        """
        secret = self._reveal()
        return _redacted(value, secret) if len(secret) >= _MIN_CHARS else value

    def redact_error(self, error: SvcError) -> None:
        """Replace the key in the message and the attributes of an error."""
        error.args = self.redact(error.args)
        for name, value in vars(error).items():
            setattr(error, name, self.redact(value))

    def refuse_in(self, body: bytes) -> None:
        """Refuse a request, as JSON, that contains the key.

        Raises:
            ParameterError: The key is in it.
        """
        escaped = json.dumps(self._reveal())[1:-1].encode()
        is_found = len(escaped) >= _MIN_CHARS and escaped in body
        escaped = body = b""
        if is_found:
            raise ParameterError(
                "The request contains the API key: in the prompt, an earlier message "
                "or a parameter. It was not sent, because every request is recorded. "
                "Remove the key and ask again (doc: Authentication)."
            )

    def digest(self, salt: str) -> str:
        """Return a short one-way hash of the key, to share its limits by."""
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
        raise _not_stored()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise _not_stored()


def _not_stored() -> MissingKeyError:
    return MissingKeyError(
        f"An API key is not stored or sent to another process. Set {ENV_NAME} there."
    )


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


def to_key(value: Key | str | None) -> Key | MissingKeyError | None:
    """Return the key that an argument gives, or the error if it cannot be used.

    The caller raises the error after it has cleared its own variables.
    """
    if value is None or isinstance(value, Key):
        return value
    return _key_or_error(value, "an argument")


def _key_or_error(value: str, source: str) -> Key | MissingKeyError:
    try:
        return Key(value, source=source)
    except MissingKeyError as found:
        return found.with_traceback(None)


def key_mark(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return a one-way hash of the key typed or set, to see when it changes."""
    value = _typed[0].digest("mark") if _typed else environ.get(ENV_NAME, "")
    return blake2b(value.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def find_key(environ: Mapping[str, str] = os.environ) -> Key:
    """Find the API key: the one typed here, else the environment's or keyring's.

    Raises:
        MissingKeyError: None is set, or the one set cannot be sent; the message
            names the ways to set one.
    """
    found = _typed[0] if _typed else _find(environ)
    environ = {}  # a traceback may show the locals of this frame
    if isinstance(found, MissingKeyError):
        raise found
    return found


def _find(environ: Mapping[str, str]) -> Key | MissingKeyError:
    value, source = environ.get(ENV_NAME), ENV_NAME
    if value is None:
        value, source = _from_keyring(), "the keyring"
    if value is None:
        return MissingKeyError(f"No API key: {ENV_NAME} is not set. {WAYS_ON}")
    return _key_or_error(value, source)


_typed: list[Key] = []


def remember(key: Key) -> str | None:
    """Use a key from now on in this process, and keep it in the system's keyring.

    Returns:
        The keyring's name; None if the key is kept in memory only, because there is
        no keyring or it does not accept the key.
    """
    _typed[:] = [key]
    return _to_keyring(key.authorization().partition(" ")[2])


def forget() -> None:
    """Forget the key that was typed; one in a keyring stays there."""
    _typed.clear()


def _from_keyring() -> str | None:
    """Ask the system's keyring; one that is absent or locked has no key for us."""
    with suppress(Exception):
        keyring = import_module("keyring")  # an extra
        value: str | None = keyring.get_password(KEYRING_NAME, ENV_NAME)
        return value
    return None


def _to_keyring(value: str) -> str | None:
    with suppress(Exception):
        keyring = import_module("keyring")
        keyring.set_password(KEYRING_NAME, ENV_NAME, value)
        # Some keyrings store nothing and raise nothing.
        is_kept = keyring.get_password(KEYRING_NAME, ENV_NAME) == value
        name = str(keyring.get_keyring().name)
        return name if is_kept else None
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
        return MissingKeyError(f"The API key from {source} is empty. {WAYS_ON}")
    if not all("!" <= letter <= "~" for letter in cleaned):
        return MissingKeyError(
            f"The API key from {source} contains a blank, a control character or a "
            "letter that keys do not have; it was not sent. Copy it again from the "
            f"key section of the service's dashboard and set {ENV_NAME}."
        )
    return cleaned


_logged: dict[str, Key] = {}


def keep_out_of_logs(key: Key) -> None:
    """Redact this key in the logs of the HTTP library, which may show headers."""
    _logged.setdefault(key.digest("logs"), key)  # many clients may share a key
    for name in ("httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpx"):
        logging.getLogger(name).addFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    """Let every record pass, without keys."""
    message = shown = record.getMessage()
    for key in tuple(_logged.values()):
        shown = key.redact(shown)
    if shown != message:
        record.msg, record.args = shown, ()
    return True
