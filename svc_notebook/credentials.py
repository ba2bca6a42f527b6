"""The API key: find it, hold it, never show it (doc: Authentication).

Rules: the value leaves a `Key` only through `authorization()`, which the request
path calls where it writes headers; nothing here prints, logs or raises a value;
what is said of a key is where it came from.
"""

import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NoReturn

from svc_notebook.errors import MissingKeyError
from svc_notebook.settings import WAYS_ON

ENV_NAME = "SVC_API_KEY"
_SHOWN = "API key (hidden)"
_BLOT = "[key]"
_PART_CHARS = 8


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
        # Held by a function, so that nothing that lists attributes shows it.
        self._reveal: Callable[[], str] = lambda: cleaned

    def authorization(self) -> str:
        """Return the Authorization header's value (doc: Authentication)."""
        return f"Bearer {self._reveal()}"

    def is_in(self, text: str) -> bool:
        """Say whether a text shows the key, so that it can be kept back."""
        return self._reveal() in text

    def hide(self, text: str) -> str:
        """Return the text with the key blotted out, should a service echo it.

        The beginning of a key is blotted out too, where the text was cut.
        """
        value = self._reveal()
        text = text.replace(value, _BLOT)
        start = value[:_PART_CHARS]
        while len(start) == _PART_CHARS and (at := text.find(start)) >= 0:
            pairs = enumerate(zip(text[at:] + "\0", value + "\n", strict=False))
            n_same = next(n for n, (left, right) in pairs if left != right)
            text = text[:at] + _BLOT + text[at + n_same :]
        return text

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
    """Return a one-way mark of the environment's key, to see when it changes."""
    value = environ.get(ENV_NAME, "")
    return blake2b(value.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def find_key(environ: Mapping[str, str] = os.environ) -> Key:
    """Find the API key.

    Raises:
        MissingKeyError: None is set, or the one set cannot be sent; the message
            names the two ways on.
    """
    value = environ.get(ENV_NAME)
    if value is None:
        raise MissingKeyError(f"No API key: {ENV_NAME} is not set. {WAYS_ON}")
    return Key(value, source=ENV_NAME)


def _clean(value: str, source: str) -> str:
    cleaned = value.strip().strip("\"'").strip()
    scheme, _, rest = cleaned.partition(" ")
    if scheme.lower() == "bearer":
        cleaned = rest.strip()
    if not cleaned:
        raise MissingKeyError(f"The API key from {source} is empty. {WAYS_ON}")
    if not all("!" <= letter <= "~" for letter in cleaned):
        raise MissingKeyError(
            f"The API key from {source} holds a blank, a control character or a "
            "letter that no key has; it was not sent. Copy it again from the key "
            f"section of the service's dashboard and set {ENV_NAME}."
        )
    return cleaned
