"""The parameters of a function: their annotations, and their docstring texts."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from inspect import cleandoc
from typing import Annotated, Any, get_args, get_origin

from svc_notebook.errors import ToolSchemaError
from svc_notebook.service.params import one_line


def without_partials(function: Any) -> Any:  # noqa: ANN401 - any callable
    """Return the callable that is wrapped in partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def written_function(function: Any) -> Any:  # noqa: ANN401 - any callable
    """Return the function that a partial, or an object with `__call__`, runs."""
    function = without_partials(function)
    is_plain = inspect.isroutine(function) or isinstance(function, type)
    return function if is_plain else type(function).__call__


def settable_parameters(
    function: Callable[..., object], name: str
) -> dict[str, inspect.Parameter]:
    """Return the parameters that a call can set, except those set by a partial."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ToolSchemaError(
            f"{name} has no readable signature; write a function with annotations that "
            "calls it."
        ) from None
    set_names: set[str] = set()
    layer: Any = function
    while isinstance(layer, functools.partial):
        set_names |= layer.keywords.keys()
        layer = layer.func
    settable = {
        key: parameter for key, parameter in parameters.items() if key not in set_names
    }
    for parameter in settable.values():
        _check_parameter(parameter, f"{name}: the parameter {parameter.name!r}")
    return settable


def _check_parameter(parameter: inspect.Parameter, where: str) -> None:
    """Refuse a parameter that a call cannot set by name, or that has no type."""
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolSchemaError(
            f"{where} takes any number of values ({stars}{name}); name each one, or "
            "take a list or a dict[str, ...]."
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolSchemaError(
            f"{where} can only be given by position, but calls give values by name; "
            "remove the / from the signature."
        )
    if parameter.annotation is parameter.empty:
        raise ToolSchemaError(
            f"{where} has no annotation; give its type, as in {name}: str."
        )


def hints_of(function: object, names: list[str], name: str) -> dict[str, Any]:
    """Evaluate the annotations of the parameters.

    The annotation of the result is not needed, and may be anything.
    """
    written = inspect.unwrap(written_function(function))
    annotations = getattr(written, "__annotations__", {})

    def stand_in() -> None: ...

    stand_in.__annotations__ = {key: annotations[key] for key in names}
    globals_ = getattr(written, "__globals__", {})
    try:
        return typing.get_type_hints(stand_in, globals_, include_extras=True)
    except Exception as problem:  # noqa: BLE001 - annotations are any expression
        reason = one_line(f"{type(problem).__name__}: {problem}", 200)
        raise ToolSchemaError(
            f"{name} has annotations that cannot be read ({reason}); define their "
            "types before it, outside functions and TYPE_CHECKING."
        ) from None


@dataclasses.dataclass(frozen=True, slots=True)
class DocTexts:
    """The texts of a docstring: its description, and those of the parameters."""

    description: str = ""
    params: dict[str, str] = dataclasses.field(default_factory=dict)


def texts_of(thing: object) -> DocTexts:
    """Read the docstring of a function or class (Google, NumPy or reST style)."""
    docstring = vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__
    written = cleandoc(docstring) if isinstance(docstring, str) else ""
    if isinstance(thing, type) and written.startswith(f"{thing.__name__}("):
        return (
            DocTexts()
        )  # a dataclass without a docstring: dataclasses put its signature there
    import docstring_parser as parser  # noqa: PLC0415 - when the first tool is made

    try:
        read = parser.parse(written)
    except (parser.ParseError, ValueError, IndexError, AttributeError):
        return DocTexts(_to_utf8(written))
    return DocTexts(
        _to_utf8((read.description or "").strip()),
        {
            parameter.arg_name.lstrip("*"): _to_utf8(
                " ".join(parameter.description.split())
            )
            for parameter in read.params
            if parameter.description
        },
    )


def _to_utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def text_of_annotation(annotation: Any) -> str:  # noqa: ANN401 - any type
    """Return the text of `Annotated[..., "text"]`, or of its `Field`; else ""."""
    while get_origin(annotation) in (Annotated, typing.Required, typing.NotRequired):
        for note in getattr(annotation, "__metadata__", ()):
            text = note if isinstance(note, str) else getattr(note, "description", None)
            if isinstance(text, str):
                return text
        annotation = get_args(annotation)[0]
    return ""
