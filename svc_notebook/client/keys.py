"""Keys from arguments and from the environment, without a trace.

Rules: why a key cannot be used is returned, not raised, so that no traceback keeps
the frame in which its value was.
"""

from svc_notebook.credentials import Key, find_key
from svc_notebook.errors import MissingKeyError


def to_key(value: Key | str | None) -> Key | MissingKeyError | None:
    """Return the key that an argument gives, or why it cannot be used."""
    if value is None or isinstance(value, Key):
        return value
    try:
        return Key(value, source="an argument")
    except MissingKeyError as found:
        return found.with_traceback(None)


def wanted_key() -> Key | MissingKeyError:
    """Return the key that the environment gives, or why there is none."""
    try:
        return find_key()
    except MissingKeyError as found:
        return found.with_traceback(None)
