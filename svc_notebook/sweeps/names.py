"""Names that were given: is it a parameter, a column, or a slip of the pen?

Rules: pure; what is near a parameter and is none is refused with the near one, since
it would be taken for a label and the parameter not be sent; any other name in a list
of cells is a label, kept beside the reply.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from svc_notebook.errors import ParameterError
from svc_notebook.service.check import unknown_param

from .dimension import ASKED

_CUTOFF = 0.8
_OWN = (
    *("rows", "cells", "tied", "where", "repeats", "name", "seed", "confirm_above"),
    "raw",
)
"""What a sweep takes beside the parameters of a request."""

_PROMPT_FIRST = (
    "The prompt goes first, without a name: a text, messages, or a list of such."
)
_ELSEWHERE = {
    "stream": "A sweep asks for whole replies, since only they report their usage; "
    "leave stream out. A `%%svc` cell with several values shows them as they come, "
    "and svc.stream(prompt) streams one.",
    "messages": _PROMPT_FIRST,
    "prompt": _PROMPT_FIRST,
}
_SHOWN_NAMES = 4
_LEAST_CHARS = 4  # shorter beginnings may be words of their own


def check_params(names: Iterable[str]) -> None:
    """Refuse a name that is no parameter of the service.

    Raises:
        ParameterError: The nearest name is named, be it a sweep's own.
    """
    for name in names:
        if name in _ELSEWHERE:
            raise ParameterError(f"{_ELSEWHERE[name]} Nothing was sent.", param=name)
        if name in _OWN:  # asked through a door that does not take it
            raise ParameterError(
                f"{name} belongs to svc.sweep and is not taken here. Nothing was sent.",
                param=name,
            )
        if name not in ASKED:
            if near := get_close_matches(name, _OWN, n=1, cutoff=_CUTOFF):
                raise ParameterError(
                    f"{name!r} is no parameter. Did you mean {near[0]}? Nothing was "
                    "sent.",
                    param=name,
                )
            raise unknown_param(name)


def check_label(name: str) -> None:
    """Refuse a label in a list of cells that was meant as a parameter.

    Args:
        name: Of no parameter, and of no column that a prompt names.

    Raises:
        ParameterError: It is near a parameter, which is named.
    """
    plain = name.strip().casefold().replace("-", "_").replace(" ", "_")
    near = get_close_matches(plain, ASKED, n=1, cutoff=_CUTOFF) or [
        each for each in ASKED if _is_beginning(plain, each)
    ]
    if near:
        raise ParameterError(
            f"{name!r} in cells is no parameter, and no prompt names it. Did you mean "
            f"{near[0]}? If it is a label of your own, give it another name, such as "
            f"'label_{plain}'. Nothing was sent.",
            param="cells",
        )


def _is_beginning(plain: str, name: str) -> bool:
    return len(plain) >= _LEAST_CHARS and name.startswith(plain)


def marks_of(columns: Iterable[str]) -> str:
    """Say how a prompt names one of these columns; the way on, if none can be named.

    Args:
        columns: Of the rows, as text.
    """
    names = list(columns)
    plain = [name for name in names if name.isidentifier()]
    if plain:
        return f"Write {{{{{plain[0]}}}}} where the column goes"
    new = ["text", *(f"column_{at}" for at in range(1, len(names)))]
    way = f"rows.set_axis({new}, axis='columns')"
    if len(names) > _SHOWN_NAMES:
        way = "rows.rename(columns=...)"
    return (
        "A prompt names a column as {{name}}, with a plain name that is no number and "
        f"has no blanks; give {names[0]!r} such a name, as with {way}"
    )
