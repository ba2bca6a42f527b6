"""The API key: find it, hold it, never show it (doc: Authentication).

Rules: the value leaves a `Key` only through `authorization()`, which the request
path calls where it writes headers; nothing here prints, logs or raises a value, and
no frame that raises holds one; what is said of a key is where it came from.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from typing import NoReturn

from svc_notebook.errors import MissingKeyError
from svc_notebook.settings import WAYS_ON

ENV_NAME = "SVC_API_KEY"
KEYRING_NAME = "svc-notebook"
"""Its service there; the entry's name is `SVC_API_KEY`."""
_SHOWN = "API key (hidden)"
_BLOT = "[key]"
_PART_CHARS = 8  # fewer are an ordinary word, and give nothing away
# How a text may carry a letter: as itself, %-quoted, or escaped as in JSON.
_QUOTED = re.compile(
    r"%(?:25)*(?P<percent>[0-9a-f]{2})|\\+u00(?P<json>[0-9a-f]{2})|\\+(?P<bare>.)",
    re.IGNORECASE | re.DOTALL,
)
_UNENDED = re.compile(
    r"(?:%(?:25)*[0-9a-f]?|\\+(?:u(?:0(?:0[0-9a-f]?)?)?)?)\Z", re.IGNORECASE
)
_MAX_HELD_CHARS = 4096  # of a key and its quoting; more is no key
_UNENDED_CHARS = 64
_LOWER = {ord(each): each.lower() for each in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}

Span = tuple[int, int]


class Key:
    """An API key that shows itself nowhere.

    Args:
        value: The key as pasted; surrounding blanks, quotes and a leading "Bearer "
            are taken off.
        source: Where it was found, in words.

    Raises:
        MissingKeyError: Nothing is left, or what is left cannot be sent in a header.
    """

    __slots__ = ("_reveal", "source")

    def __init__(self, value: str, *, source: str) -> None:
        self.source = source
        cleaned = _clean(value, source)
        value = ""  # a traceback may show what is here
        if isinstance(cleaned, MissingKeyError):
            raise cleaned
        # Held by a function, so that nothing that lists attributes shows it.
        self._reveal: Callable[[], str] = lambda: cleaned

    def authorization(self) -> str:
        """Return the Authorization header's value (doc: Authentication)."""
        return f"Bearer {self._reveal()}"

    def is_in(self, text: str) -> bool:
        """Say whether a text shows the whole key, so that it can be kept back.

        A key of fewer than 8 characters is taken for an ordinary word.
        """
        is_word = len(self._reveal()) < _PART_CHARS
        return not is_word and any(_whole(_Plain(text), self._reveal()))

    def hide(self, text: str) -> str:
        """Return the text with the key blotted out, should a service echo it.

        Every part of 8 characters or more is blotted out too, in upper or lower case,
        %-quoted or escaped as in JSON. Takes time linear in the text's length.
        """
        plain, value = _Plain(text), self._reveal()
        is_word = len(value) < _PART_CHARS
        return plain.without(_whole(plain, value) if is_word else _parts(plain, value))

    def hide_whole(self, text: str) -> str:
        """Return the text with the key blotted out where all of it stands.

        For texts that must stay as they came but for a key; a key of fewer than 8
        characters is taken for an ordinary word and stays.
        """
        if len(self._reveal()) < _PART_CHARS:
            return text
        plain = _Plain(text)
        return plain.without(_whole(plain, self._reveal()))

    def hide_so_far(self, text: str) -> tuple[str, str]:
        """Return a text that goes on without the key, and its end that is held back.

        Args:
            text: What was held back before, and what came after it.

        Returns:
            What can be shown, as `hide_whole` shows it; and the end that may become
            the key with what comes next, "" for nearly every text.
        """
        value = self._reveal()
        if len(value) < _PART_CHARS or not _may_hold(text, value):
            return text, ""
        at = _begun_at(text, value)
        if len(text) - at > _MAX_HELD_CHARS:
            at = len(text)
        return self.hide_whole(text[:at]), text[at:]

    def digest(self, salt: str) -> str:
        """Return a short one-way mark of the key, to share its limits by."""
        return blake2b(self._reveal().encode(), key=salt.encode()[:64]).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<{_SHOWN} from {self.source}>"

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


def key_mark(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return a one-way mark of the key typed or set, to see when it changes."""
    value = _typed[0].digest("mark") if _typed else environ.get(ENV_NAME, "")
    return blake2b(value.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def find_key(environ: Mapping[str, str] = os.environ) -> Key:
    """Find the API key: the one typed here, else the environment's or keyring's.

    Raises:
        MissingKeyError: None is set, or the one set cannot be sent; the message
            names the ways on.
    """
    found = _typed[0] if _typed else _find(environ)
    environ = {}  # a traceback may show what is here
    if isinstance(found, MissingKeyError):
        raise found
    return found


def _find(environ: Mapping[str, str]) -> Key | MissingKeyError:
    value, source = environ.get(ENV_NAME), ENV_NAME
    if value is None:
        value, source = _from_keyring(), "the keyring"
    if value is None:
        return MissingKeyError(f"No API key: {ENV_NAME} is not set. {WAYS_ON}")
    cleaned = _clean(value, source)
    if isinstance(cleaned, MissingKeyError):
        return cleaned
    return Key(cleaned, source=source)


_typed: list[Key] = []


def remember(key: Key) -> str | None:
    """Use a key from now on in this process, and keep it in the system's keyring.

    Returns:
        The keyring's name; None where there is none, or none that takes it, so that
        the key is kept in memory only.
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
        # Some keep nothing and say nothing.
        is_kept = keyring.get_password(KEYRING_NAME, ENV_NAME) == value
        name = str(keyring.get_keyring().name)
        return name if is_kept else None
    return None


def _clean(value: object, source: str) -> str | MissingKeyError:
    """Return the key itself, or why it cannot be sent."""
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
            f"The API key from {source} holds a blank, a control character or a "
            "letter that no key has; it was not sent. Copy it again from the key "
            f"section of the service's dashboard and set {ENV_NAME}."
        )
    return cleaned


class _Plain:
    """A text without its quoting, in lower case, and where each letter came from.

    Attributes:
        text: The letters.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        letters: list[str] = []
        starts: list[int] = []
        end = 0
        for found in _QUOTED.finditer(text):
            starts += range(end, found.start() + 1)
            letters += (text[end : found.start()], _unquoted(found))
            end = found.end()
        letters.append(text[end:])
        if end:
            starts += range(end, len(text) + 1)
        self._starts: Sequence[int] = starts if end else range(len(text) + 1)
        # `lower` would change the length of some texts; keys are ASCII.
        self.text = "".join(letters).translate(_LOWER)

    def start_of(self, at: int) -> int:
        """Return where a letter stands in the text as it came."""
        return self._starts[at]

    def without(self, spans: Iterator[Span]) -> str:
        """Return the text as it came, with spans of its letters blotted out."""
        pieces: list[str] = []
        shown_from = blotted_to = 0
        for start, end in spans:
            if start >= blotted_to or not pieces:
                pieces += (self._text[shown_from : self._starts[start]], _BLOT)
            blotted_to = end
            shown_from = self._starts[end]
        return "".join([*pieces, self._text[shown_from:]])


def _unquoted(found: re.Match[str]) -> str:
    code = found["percent"] or found["json"]
    return chr(int(code, 16)) if code else found["bare"]


def _whole(plain: _Plain, value: str) -> Iterator[Span]:
    """Find where all of a key stands; a short one only where it stands alone."""
    pattern = re.escape(_Plain(value).text)
    if len(value) < _PART_CHARS:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return (found.span() for found in re.finditer(pattern, plain.text))


def _may_hold(text: str, value: str) -> bool:
    """Say, quickly, whether a key or its beginning may stand in a text."""
    first = value[0]
    return any(each in text for each in (first.lower(), first.upper(), "%", "\\"))


def _begun_at(text: str, value: str) -> int:
    """Return where the end of a text begins that may become a key; else its length."""
    unended = _UNENDED.search(text, max(0, len(text) - _UNENDED_CHARS))
    end = unended.start() if unended else len(text)
    key, plain = _Plain(value).text, _Plain(text[:end])
    shown_to = max((span[1] for span in _whole(plain, value)), default=0)
    at = plain.text.find(key[0], max(shown_to, len(plain.text) - len(key) + 1))
    while at >= 0:
        if key.startswith(plain.text[at:]):
            return plain.start_of(at)
        at = plain.text.find(key[0], at + 1)
    return end


def _parts(plain: _Plain, value: str) -> Iterator[Span]:
    """Find every stretch of letters that is a part of a key; they may overlap."""
    key, text = _Plain(value).text, plain.text
    n = min(_PART_CHARS, len(key))
    parts = {key[at : at + n] for at in range(len(key) - n + 1)}
    for at in range(len(text) - n + 1):
        if text[at : at + n] in parts:
            yield at, at + n
