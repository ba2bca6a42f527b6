"""`{{name}}` in a cell: fills variables and parts of them into the prompt."""

import ast
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from svc_notebook.conversations.attachments import PromptItem, to_item
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import did_you_mean
from svc_notebook.template import (
    as_variable,
    fill_marks,
    is_path,
    nested_marks,
    to_expression,
)

from .cell_context import NO_VALUE


def with_value(name: str, names: Mapping[str, Any]) -> object:
    """Return a variable's value; refuse a name that its function has not assigned."""
    if names[name] is NO_VALUE:
        raise ParameterError(
            f"{name}: this function's variable {name} has no value yet. Assign it in "
            "the function, above this line.",
            param="messages",
        )
    return names[name]


class Filled(NamedTuple):
    """A template with its marks filled in."""

    text: str
    items: tuple[PromptItem, ...] = ()
    as_typed: tuple[str, ...] = ()  # marks that were not filled in


def interpolate(
    template: str,
    names: Mapping[str, object],
    *,
    hide: Callable[[str], str] = str,
    own_names: Collection[str] | None = None,
) -> Filled:
    """Replace marks such as `{{name}}` and `{{df.text[0]}}` by their values.

    Attributes and items are read, but calls are refused.

    Args:
        template: The prompt.
        names: The variables that marks can name.
        hide: Removes API keys from the values.
        own_names: Those that an error may suggest; all if None.
    """
    suggested = names if own_names is None else own_names
    items: dict[str, PromptItem] = {}
    as_typed: dict[str, None] = {}

    def value_text(inner: str) -> str | None:
        mark, name = f"{{{{{inner}}}}}", inner.strip()
        expression = to_expression(inner)
        kinds = set(map(type, ast.walk(expression or ast.Pass())))
        is_value = expression is not None and is_path(expression)
        if not is_value and ast.Call not in kinds:
            as_typed.update({mark: None} if name else {})
            return None
        if name not in items:
            value = _look_up(expression, mark, names, suggested) if is_value else None
            is_method = inspect.ismethod(value) or inspect.isbuiltin(value)
            if is_method or not is_value:
                way = f"`value = {name}{'()' * is_method}`, then {{{{value}}}}"
                reason = (
                    f"a prompt cannot call functions. Assign the value first ({way})"
                )
                raise _refusal(mark, reason)
            item = to_item(name, value)
            items[name] = replace(item, text=hide(item.text))
        return items[name].text

    refused: dict[str, ParameterError] = {}

    def try_value_text(inner: str) -> str | None:
        try:
            return value_text(inner)
        except ParameterError as error:
            refused.setdefault(f"{{{{{inner}}}}}", error)
            return None

    text = fill_marks(template, try_value_text)
    _check_marks(refused)
    return Filled(text, tuple(items.values()), (*as_typed, *nested_marks(template)))


def _check_marks(refused: Mapping[str, ParameterError]) -> None:
    if refused:
        first, *other_marks = refused
        if other_marks:
            refused[first].add_note(f"Refused as well: {', '.join(other_marks)}.")
        raise refused[first]


def _look_up(
    expression: Any,  # noqa: ANN401 - a path
    mark: str,
    names: Mapping[str, object],
    suggested: Collection[str],
) -> object:
    """Look up a name, then its attributes and items."""
    if isinstance(expression, ast.Name):
        if expression.id in names:
            return with_value(expression.id, names)
        is_alone = mark[2:-2].strip().isidentifier()
        noun = "such variable" if is_alone else f"variable {expression.id}"
        hint = near_name(expression.id, suggested)
        raise _refusal(mark, f"this notebook has no {noun}.{hint} Define it first")
    whole: Any = _look_up(expression.value, mark, names, suggested)
    part: Any
    is_attribute = isinstance(expression, ast.Attribute)
    if is_attribute:
        part = expression.attr
    elif isinstance(expression.slice, ast.Name):
        part = _look_up(expression.slice, mark, names, suggested)
    else:
        part = ast.literal_eval(expression.slice)
    try:
        if is_attribute and not (part.isascii() or hasattr(whole, part)):
            # a column may have the vowel ำ as it was typed, which Python replaces
            part = next(
                (name for name in dir(whole) if as_variable(name) == part), part
            )
        return getattr(whole, part) if is_attribute else whole[part]
    except Exception as error:
        hint = ""
        with suppress(Exception):  # `__dir__` of a value may raise
            known = dir(whole) if is_attribute else whole.keys()
            hint = near_name(part, (other for other in known if other != part))
        reason = (
            f"{ast.unparse(expression)} raised {type(error).__name__}.{hint} Correct it"
        )
        raise _refusal(mark, reason) from error


def _refusal(mark: str, reason: str) -> ParameterError:
    return ParameterError(
        f"{mark}: {reason}, write \\{mark} for the plain text, or use --raw.",
        param="messages",
    )


def near_name(name: str, names: Iterable[str]) -> str:
    """Return a hint at a similar public name, or ""."""
    return did_you_mean(name, (known for known in names if not known.startswith("_")))
