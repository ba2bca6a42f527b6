"""Checks of arguments, and the wording of their messages.

A value that may be a key or a prompt is never repeated: see `shown`.
"""

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches

from svc_notebook.errors import ParameterError

_SHOWN_CHARS = 24  # a longer text may be a key or a prompt
_SHOWN_BITS = 64
_BOOLEANS = frozenset({"bool", "bool_"})  # numpy's too, without importing it


def check_int(
    name: str,
    value: object,
    *,
    minimum: int | None = None,
    otherwise: str = "",
) -> int:
    """Return an argument if it is an integer, at least `minimum`.

    `otherwise` is what else the message allows, such as "or None to never ask".
    """
    number = as_int(value)
    if number is None or not is_within(number, minimum, None):
        allowed = range_text("an integer", minimum, None)
        raise must_be(name, allowed, value, otherwise=otherwise)
    return number


def check_number(
    name: str, value: object, *, above: float, kind: str = "a number"
) -> int | float:
    """Return an argument if it is finite and greater than `above`.

    `kind` is what it is, such as "a number of seconds".
    """
    number = as_number(value)
    if number is None or not is_within(number, None, None) or number <= above:
        raise must_be(name, f"{kind} > {above:g}", value)
    return number


def check_flag(name: str, value: object) -> None:
    """Refuse a value that is neither True nor False: any text would count as True."""
    if type(value).__name__ not in _BOOLEANS:
        raise must_be(name, "True or False", value)


def must_be(
    name: str, allowed: str, value: object, *, otherwise: str = "", hint: str = ""
) -> ParameterError:
    """Build the error for an argument; `allowed` is such as "an integer >= 1".

    `otherwise` is what else is allowed, `hint` a further sentence.
    """
    also = f", {otherwise}" if otherwise else ""
    more = f" {hint}" if hint else ""
    return ParameterError(
        f"{name} must be {allowed}{also}; got {shown(value)}.{more}", param=name
    )


def as_int(value: object) -> int | None:
    """Return an integer, numpy's as a plain one; None for anything else."""
    number = as_number(value)
    return number if isinstance(number, int) else None


def as_number(value: object) -> int | float | None:
    """Return a number, numpy's as a plain one; None for anything else.

    True and False are not numbers here; nan and infinity are.
    """
    if type(value).__name__ in _BOOLEANS:
        return None
    if type(value) in {int, float}:
        return value  # type: ignore[return-value]  # just tested, exactly
    item = getattr(value, "item", None)  # a numpy scalar, without importing numpy
    plain = item() if callable(item) and getattr(value, "ndim", None) == 0 else None
    is_number = isinstance(plain, (int, float)) and not isinstance(plain, bool)
    return plain if is_number else None


def is_within(number: float, minimum: float | None, maximum: float | None) -> bool:
    """Say whether a number is finite and within its bounds, both allowed."""
    if type(number) is float and not math.isfinite(number):
        return False
    is_large_enough = minimum is None or number >= minimum
    return is_large_enough and (maximum is None or number <= maximum)


def range_text(kind: str, minimum: float | None, maximum: float | None) -> str:
    """Return the allowed numbers in words, such as "a number from 0 to 2"."""
    if minimum is not None and maximum is not None:
        return f"{kind} from {minimum:g} to {maximum:g}"
    if minimum is not None:
        return f"{kind} >= {minimum:g}"
    return kind if maximum is None else f"{kind} <= {maximum:g}"


def shown(value: object) -> str:
    """Return a number or a short word as it is, anything else by its kind."""
    if isinstance(value, str):
        is_number = value.lstrip("+-").replace(".", "", 1).isdigit()
        is_word = value.isalpha() or is_number or not value
        is_shown = is_word and len(value) <= _SHOWN_CHARS
        return repr(value) if is_shown else f"a text of {len(value)} characters"
    number = as_number(value)
    if isinstance(number, int) and number.bit_length() > _SHOWN_BITS:
        return f"an integer of {number.bit_length()} bits"
    is_plain = number is not None or isinstance(value, bool) or value is None
    return repr(value) if is_plain else f"a value of type {type(value).__name__}"


def near_names(
    name: str,
    known: Iterable[str],
    *,
    n: int = 3,
    cutoff: float = 0.6,
    least_chars: int | None = 2,
) -> list[str]:
    """Return the known names that begin with a name, else those most similar to it.

    A name is taken as a beginning from `least_chars` on, never with None. `cutoff` says
    how similar names must be, from 0 to 1 (see `difflib`).
    """
    names = list(known)
    is_long = least_chars is not None and len(name) >= least_chars
    begun = [
        known_name for known_name in names if is_long and known_name.startswith(name)
    ]
    return (begun or get_close_matches(name, names, n=n, cutoff=cutoff))[:n]


def did_you_mean(
    name: str, known: Iterable[str], *, n: int = 3, cutoff: float = 0.6
) -> str:
    """Return " Did you mean a, b?" with similar known names; "" without any."""
    near = near_names(name, known, n=n, cutoff=cutoff)
    return f" Did you mean {', '.join(near)}?" if near else ""


def shorten(text: str, n_chars: int) -> str:
    """Shorten a text to at most this many characters; "..." marks what is left out."""
    return text if len(text) <= n_chars else text[: n_chars - 3] + "..."


def check_text(text: str, *, param: str, name: str = "") -> str:
    """Return the text unchanged if UTF-8 can carry it; `name` is for the message."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        where = problem.start
    else:
        return text
    raise ParameterError(
        f"{name or param} contains half of a surrogate pair at position {where}, which "
        "UTF-8 cannot encode; remove it, for example with "
        "text.encode('utf-8', 'replace').decode().",
        param=param,
    )


_HOST = r"(localhost|\[[0-9a-f:]+\]|(\d+\.){3}\d+)"
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*:/|\S*/v1/?$"  # a scheme; a path as the service's
    rf"|{_HOST}(:\d+)?(/|$)"
    r"|[\w-]+(\.[\w-]+)*:\d{2,5}(/|$)",  # a port; `gemma:2` may be a model
    re.IGNORECASE,
)


def has_address_form(text: str) -> bool:
    """Say whether a text looks like an address, perhaps one without its scheme."""
    return _ADDRESS.match(text.strip()) is not None


def printable(text: str) -> str:
    """Return the text with escapes for control and other invisible characters."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text.encode("utf-8", "replace").decode()
    )


def one_line(text: str, n_chars: int = 60) -> str:
    """Return a text as one printable line, cut if it is long."""
    return printable(shorten(text, n_chars))


HEAD_CHARS = 200  # of a body that cannot be read, in a message


def head_of(body: bytes) -> str:
    """Return the first characters of a body, made printable."""
    return printable(body[: 4 * HEAD_CHARS].decode("utf-8", "replace")[:HEAD_CHARS])
