"""Docstrings: what a function or class says of itself and its parameters.

Rules: Google, NumPy and reST styles are read by a library; what it cannot read is
taken as it stands; a docstring that Python wrote by itself says nothing.
"""

import dataclasses
import inspect
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Texts:
    """What a docstring says.

    Attributes:
        description: All but the sections.
        params: The texts of the parameters by name, a line each.
    """

    description: str = ""
    params: dict[str, str] = field(default_factory=dict)


def texts_of(thing: object) -> Texts:
    """Read the docstring of a function or a class; empty texts if it has none."""
    written = inspect.cleandoc(_written(thing))
    if not written:
        return Texts()
    import docstring_parser as parser  # noqa: PLC0415 - when the first tool is made

    try:
        read = parser.parse(written)
    except (parser.ParseError, ValueError, IndexError, AttributeError):
        return Texts(_sendable(written))
    return Texts(
        _sendable((read.description or "").strip()),
        {
            param.arg_name.lstrip("*"): _sendable(_one_line(param.description))
            for param in read.params
            if param.description
        },
    )


def _written(thing: object) -> str:
    own = vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__
    if not isinstance(own, str):
        return ""
    if isinstance(thing, type) and dataclasses.is_dataclass(thing):
        by_python = f"{thing.__name__}("
        return "" if own.startswith(by_python) else own
    return own


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
