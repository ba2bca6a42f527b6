"""What docstrings and annotations say about tools, classes and their parameters."""

import dataclasses
import typing
from inspect import cleandoc
from typing import Annotated, Any, get_args, get_origin


@dataclasses.dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a docstring: all but the sections, and those of the parameters."""

    description: str = ""
    params: dict[str, str] = dataclasses.field(default_factory=dict)


def texts_of(thing: object) -> Texts:
    """Read the docstring of a function or class (Google, NumPy or reST style)."""
    own = vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__
    written = cleandoc(own) if isinstance(own, str) else ""
    if isinstance(thing, type) and written.startswith(f"{thing.__name__}("):
        return Texts()  # a dataclass without a docstring has its signature there
    import docstring_parser as parser  # noqa: PLC0415 - when the first tool is made

    try:
        read = parser.parse(written)
    except (parser.ParseError, ValueError, IndexError, AttributeError):
        return Texts(_sendable(written))
    return Texts(
        _sendable((read.description or "").strip()),
        {
            each.arg_name.lstrip("*"): _sendable(" ".join(each.description.split()))
            for each in read.params
            if each.description
        },
    )


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def described(annotation: Any) -> str:  # noqa: ANN401 - any type
    """Return the text of `Annotated[..., "text"]`, or of its Field; else ""."""
    while get_origin(annotation) in (Annotated, typing.Required, typing.NotRequired):
        for each in getattr(annotation, "__metadata__", ()):
            text = each if isinstance(each, str) else getattr(each, "description", None)
            if isinstance(text, str):
                return text
        annotation = get_args(annotation)[0]
    return ""
