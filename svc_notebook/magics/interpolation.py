"""`{{name}}` in a cell: variables and parts of them, put into the prompt."""

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from svc_notebook.conversations.attachments import Item, to_item
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import did_you_mean
from svc_notebook.template import fill_marks, is_path, nested_marks, to_expression

from .cell_context import NO_VALUE


def with_value(name: str, names: Mapping[str, Any]) -> object:
    """Return a variable's value; refuse a name that its function has not assigned."""
    if names[name] is NO_VALUE:
        raise ParameterError(
            f"{name}: the function's own {name} has no value here. Assign it in this "
            "function, above this line.",
            param="messages",
        )
    return names[name]


class Filled(NamedTuple):
    """A template with values put in."""

    text: str
    items: tuple[Item, ...] = ()
    as_typed: tuple[str, ...] = ()  # marks that are not variables or parts of them


def interpolate(
    template: str, names: Mapping[str, object], *, hide: Callable[[str], str] = str
) -> Filled:
    """Replace marks such as `{{name}}` and `{{df.text[0]}}` by values without keys.

    Attributes and items are read, and nothing is called: a call is refused.
    """
    items: dict[str, Item] = {}
    as_typed: dict[str, None] = {}

    def text_of(inner: str) -> str | None:
        mark, name = f"{{{{{inner}}}}}", inner.strip()
        expression = to_expression(inner)
        kinds = set(map(type, ast.walk(expression or ast.Pass())))
        is_value = expression is not None and is_path(expression)
        if not is_value and ast.Call not in kinds:
            as_typed.update({mark: None} if name else {})
            return None
        if name not in items:
            value = _value(expression, mark, names) if is_value else None
            is_method = inspect.ismethod(value) or inspect.isbuiltin(value)
            if is_method or not is_value:
                way = f"`value = {name}{'()' * is_method}`, then {{{{value}}}}"
                why = f"a prompt makes no calls. Assign it first ({way})"
                raise _refusal(mark, why)
            item = to_item(name, value)
            items[name] = replace(item, text=hide(item.text))
        return items[name].text

    refused: dict[str, ParameterError] = {}

    def try_text_of(inner: str) -> str | None:
        try:
            return text_of(inner)
        except ParameterError as error:
            refused.setdefault(f"{{{{{inner}}}}}", error)
            return None

    text = fill_marks(template, try_text_of)
    _check_marks(refused)
    return Filled(text, tuple(items.values()), (*as_typed, *nested_marks(template)))


def _check_marks(refused: Mapping[str, ParameterError]) -> None:
    if refused:
        first, *others = refused
        if others:
            refused[first].add_note(f"Refused as well: {', '.join(others)}.")
        raise refused[first]


def _value(expression: Any, mark: str, names: Mapping[str, object]) -> object:  # noqa: ANN401 - a path
    """Look up a name, then its attributes and items."""
    if isinstance(expression, ast.Name):
        if expression.id in names:
            return with_value(expression.id, names)
        is_alone = mark[2:-2].strip().isidentifier()
        which = "such variable" if is_alone else f"variable {expression.id}"
        near = near_name(expression.id, names)
        raise _refusal(mark, f"this notebook has no {which}.{near} Define it first")
    whole: Any = _value(expression.value, mark, names)
    part: Any
    is_attribute = isinstance(expression, ast.Attribute)
    if is_attribute:
        part = expression.attr
    elif isinstance(expression.slice, ast.Name):
        part = _value(expression.slice, mark, names)
    else:
        part = ast.literal_eval(expression.slice)
    try:
        return getattr(whole, part) if is_attribute else whole[part]
    except Exception as error:
        near = ""
        with suppress(Exception):  # `__dir__` of a value may raise
            known = dir(whole) if is_attribute else whole.keys()
            near = near_name(part, (other for other in known if other != part))
        why = (
            f"{ast.unparse(expression)} raised {type(error).__name__}.{near} Correct it"
        )
        raise _refusal(mark, why) from error


def _refusal(mark: str, why: str) -> ParameterError:
    return ParameterError(
        f"{mark}: {why}, write \\{mark} for the plain text, or use --raw.",
        param="messages",
    )


def near_name(name: str, names: Iterable[str]) -> str:
    """Return a hint at the public name that may be meant, or ""."""
    return did_you_mean(name, (known for known in names if not known.startswith("_")))
