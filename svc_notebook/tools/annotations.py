"""Annotations as kinds: what a Python type says of a value.

What it is not: no functions here (`schema` reads their parameters), and no pydantic
(`models`).

Rules: what JSON cannot carry, or what the schema could not say exactly, is refused
with the reason and a remedy; nothing is guessed from a bare `list` or `dict`.
"""

import dataclasses
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from datetime import date, datetime
from enum import Enum
from math import isfinite
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from svc_notebook.errors import ToolSchemaError

from .docs import texts_of
from .faults import short
from .kinds import Choice, Flag, Kind, Many, Moment, Named, Null, Number, Text, Whole
from .models import Model, is_model
from .records import NO_DEFAULT, Field, Record
from .unions import OneOf

_SIMPLE: Mapping[object, Kind] = {
    str: Text(),
    bool: Flag(),
    int: Whole(),
    float: Number(),
    None: Null(),
    type(None): Null(),
    date: Moment(date),
    datetime: Moment(datetime),
}
_LISTS = (list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_SETS: Mapping[object, Callable[[Any], object]] = {
    set: set,
    abc.Set: frozenset,
    abc.MutableSet: set,
    frozenset: frozenset,
}
_TABLES = (dict, abc.Mapping, abc.MutableMapping)
_BARE: Mapping[object, str] = {
    **dict.fromkeys(_LISTS, "list[str]"),
    **dict.fromkeys(_SETS, "set[str]"),
    **dict.fromkeys(_TABLES, "dict[str, float]"),
    tuple: "tuple[int, ...]",
}
MAX_BITS = 1000  # Python writes no integer of more than 4300 digits
_HASHABLE = (Text, Flag, Whole, Number, Moment, Choice, Null)
_MARKS = (typing.Required, typing.NotRequired)
_ALLOWED = (
    "str, int, float, bool, Literal, Enum, date, datetime, lists, tuples, sets and "
    "dict[str, ...] of these, Optional, dataclasses, TypedDict or pydantic models"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where an annotation stands.

    Attributes:
        name: In words: "weather: the parameter 'city'".
        within: The classes around it; none may hold itself.
    """

    name: str
    within: tuple[object, ...] = ()

    def refusal(self, reason: str, remedy: str) -> ToolSchemaError:
        """Build the error that says why it cannot be offered, and what to do."""
        return ToolSchemaError(f"{self.name} {reason}; {remedy}.")

    def inside(self, cls: type, field: str) -> "Place":
        """Return the place of a field of a class."""
        return Place(f"{self.name}, field {field!r},", (*self.within, cls))


def kind_of(annotation: Any, place: Place) -> Kind:  # noqa: ANN401 - any type
    """Turn an annotation into a kind.

    Raises:
        ToolSchemaError: It cannot be described.
    """
    plain, _ = split_annotated(annotation, place)
    if isinstance(plain, abc.Hashable) and plain in _SIMPLE:
        return _SIMPLE[plain]
    if is_model(plain):
        return Model.of(plain, place.name)
    if get_origin(plain) is not None:
        return _generic(plain, get_origin(plain), place)
    return _class(plain, place) if isinstance(plain, type) else _other(plain, place)


def split_annotated(annotation: Any, place: Place) -> tuple[Any, str]:  # noqa: ANN401
    """Take `Annotated[..., "text"]`, `Required` and `NotRequired` off a type.

    Returns:
        The type, and its description or an empty text.
    """
    text = ""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            text = _described(annotation.__metadata__, place) or text
            annotation = annotation.__origin__
        elif origin in _MARKS:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # `type X = ...`, 3.12
            annotation = annotation.__value__
        else:
            return annotation, text


def _described(metadata: tuple[object, ...], place: Place) -> str:
    for each in metadata:
        if type(each).__module__.split(".")[0] in ("pydantic", "annotated_types"):
            raise place.refusal(
                f"is annotated with {short(repr(each))}, which only a pydantic model "
                "checks",
                "use a pydantic model, or say the bound in a text and check it in "
                "the function",
            )
    return next((each for each in metadata if isinstance(each, str)), "")


def _literal(annotation: object, place: Place) -> Kind:
    values = get_args(annotation)
    members = [each.value if isinstance(each, Enum) else each for each in values]
    return _choice(members, values, place)


def _choice(
    values: abc.Sequence[object], objects: abc.Sequence[object], place: Place
) -> Kind:
    for value in values:
        if not is_plain(value) or isinstance(value, Enum):
            raise place.refusal(
                f"allows the value {short(repr(value))}, which is not JSON",
                "use texts, numbers or booleans as values",
            )
    if not values:
        raise place.refusal("allows no value", "give the Enum at least one member")
    return Choice(tuple(values), tuple(objects))


def is_plain(value: object) -> bool:
    """Say whether a value is a text, number, boolean or None that JSON can carry."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, str):
        return not any("\ud800" <= each <= "\udfff" for each in value)
    if isinstance(value, int):
        return value.bit_length() <= MAX_BITS
    return value is None


def _union(annotation: object, place: Place) -> Kind:
    members = [kind_of(each, place) for each in get_args(annotation)]
    return OneOf(tuple(dict.fromkeys(members)))


def _generic(annotation: Any, origin: Any, place: Place) -> Kind:  # noqa: ANN401
    args = get_args(annotation)
    if not args and origin in _BARE:
        return _other(annotation, place)
    if origin is Literal:
        return _literal(annotation, place)
    if origin in (Union, types.UnionType):
        return _union(annotation, place)
    if origin in _LISTS:
        return Many(kind_of(args[0], place))
    return _fixed(args, origin, place) or _other(annotation, place)


def _fixed(args: tuple[Any, ...], origin: object, place: Place) -> Kind | None:
    if origin in _SETS:
        return _set(kind_of(args[0], place), _SETS[origin], place)
    if origin is tuple:
        return _tuple(args, place)
    return _table(args, place) if origin in _TABLES else None


def _set(item: Kind, make: Callable[[Any], object], place: Place) -> Kind:
    if not isinstance(item, _HASHABLE):
        raise place.refusal(
            f"is a set of {item.wanted}", "a set takes simple values; use a list"
        )
    return Many(item, make, is_unique=True)


def _tuple(args: tuple[Any, ...], place: Place) -> Kind:
    if len(args) == 2 and args[1] is Ellipsis:  # noqa: PLR2004 - tuple[T, ...]
        return Many(kind_of(args[0], place), tuple)
    if not args or any(each != args[0] for each in args):
        raise place.refusal(
            "is a tuple of different types, and the document shows one type of items",
            "use a dataclass with a name for each",
        )
    return Many(kind_of(args[0], place), tuple, n_items=len(args))


def _table(args: tuple[Any, ...], place: Place) -> Kind:
    if args[0] is not str:
        raise place.refusal(
            f"has keys of type {_named(args[0])}, and JSON names are texts",
            "use dict[str, ...]",
        )
    return Named(kind_of(args[1], place))


def _class(cls: type, place: Place) -> Kind:
    if cls in place.within:
        raise place.refusal(
            f"holds {cls.__name__} in itself, which has no end as a schema",
            "give it a depth, or pass JSON as a text",
        )
    if issubclass(cls, Enum):
        return _choice([each.value for each in cls], list(cls), place)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls, place)
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
        return _typed_dict(cls, place)
    return _other(cls, place)


def _dataclass(cls: type, place: Place) -> Kind:
    if any(_is_init_var(each) for each in cls.__dataclass_fields__.values()):  # type: ignore[attr-defined]  # a dataclass
        raise place.refusal(
            f"is {cls.__name__}, which has an InitVar", "use plain fields"
        )
    hints = hints_of(cls, place)
    texts = texts_of(cls)
    fields = []
    for field in dataclasses.fields(cls):
        if field.init:
            here = place.inside(cls, field.name)
            annotation, text = split_annotated(hints[field.name], here)
            made = field.default_factory is not dataclasses.MISSING
            is_open = made or field.default is not dataclasses.MISSING
            fields.append(
                Field(
                    name=field.name,
                    kind=kind_of(annotation, here),
                    is_required=not is_open,
                    description=text or texts.params.get(field.name, ""),
                    default=NO_DEFAULT if made else default_of(field.default),
                )
            )
    return Record(
        fields=tuple(fields),
        make=lambda found: cls(**found),
        description=texts.description,
    )


def _is_init_var(field: Any) -> bool:  # noqa: ANN401 - a dataclass's own record
    return isinstance(field.type, dataclasses.InitVar) or (
        getattr(field, "_field_type", None) is getattr(dataclasses, "_FIELD_INITVAR", 0)
    )


def _typed_dict(cls: type, place: Place) -> Kind:
    texts = texts_of(cls)
    fields = []
    for name, hint in hints_of(cls, place).items():
        here = place.inside(cls, name)
        annotation, text = split_annotated(hint, here)
        fields.append(
            Field(
                name=name,
                kind=kind_of(annotation, here),
                is_required=_is_required(cls, name, hint),
                description=text or texts.params.get(name, ""),
            )
        )
    return Record(fields=tuple(fields), description=texts.description)


def _is_required(cls: Any, name: str, hint: object) -> bool:  # noqa: ANN401 - TypedDict
    """Look at the resolved mark first: as text, Python 3.11 overlooks it."""
    while get_origin(hint) is Annotated:
        hint = hint.__origin__  # type: ignore[attr-defined]  # Annotated
    origin = get_origin(hint)
    return (
        name in cls.__required_keys__ if origin not in _MARKS else origin is _MARKS[0]
    )


def default_of(value: object) -> object:
    """Return a default as JSON, or `NO_DEFAULT` where the model need not know it."""
    plain = value.value if isinstance(value, Enum) else value
    if plain is None or isinstance(plain, Enum) or not is_plain(plain):
        return NO_DEFAULT
    return plain


def hints_of(
    thing: Any,  # noqa: ANN401 - a class or a function
    place: Place,
    names: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Read annotations, those that are written as texts too.

    Args:
        thing: What has them.
        place: Where it stands.
        names: What texts may name; None for what the thing's own module holds.

    Raises:
        ToolSchemaError: One of them names what is not there.
    """
    try:
        return typing.get_type_hints(thing, names, include_extras=True)
    except Exception as problem:  # noqa: BLE001 - annotations are any expression
        reason = short(f"{type(problem).__name__}: {problem}", 200)
    raise place.refusal(
        f"has annotations that cannot be read ({reason})",
        "define their types before it, outside functions and TYPE_CHECKING",
    )


def _other(annotation: object, place: Place) -> Kind:
    """Refuse what cannot be described."""
    bare = get_origin(annotation) or annotation  # `typing.List` is bare too
    if isinstance(bare, type) and bare in _BARE:
        raise place.refusal(
            f"is a {bare.__name__} of unsaid contents",
            f"say what it holds, as in {_BARE[bare]}",
        )
    raise place.refusal(
        f"is of type {_named(annotation)}, which JSON cannot carry",
        f"use {_ALLOWED}",
    )


def _named(annotation: object) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__
    return short(str(annotation).replace("typing.", ""))
