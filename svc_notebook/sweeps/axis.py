"""One value or several: what a parameter of a sweep was given.

What it is not: the product (see `grid`). Rules: pure; text is one value, a list is
several; where one value is itself a list (`stop`, `tools`, the messages of a prompt),
a list of lists is several.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svc_notebook.chat.offering import to_offer
from svc_notebook.errors import ParameterError

_ONE_AS_A_LIST: dict[str, Callable[[object], bool]] = {
    "stop": lambda each: isinstance(each, str),
    "tools": lambda each: isinstance(each, Mapping) or callable(each),
}
"""Parameters whose one value is itself a list, and of what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that was given, with the values it takes.

    Attributes:
        name: As given.
        values: In the order as given; one for what does not vary.
        is_varied: Whether it was given as a list.
    """

    name: str
    values: tuple[Any, ...]
    is_varied: bool


def axis_of(name: str, value: object) -> Axis:
    """Tell one value from a list of values.

    Args:
        name: `model`, `system` or a parameter.
        value: As given.

    Raises:
        ParameterError: The list is empty, or has no order.
        ToolSchemaError: A function in `tools` cannot be offered.
    """
    several = _several(name, value)
    if several is None or _is_one(name, several):
        return Axis(name=name, values=(sent(name, value),), is_varied=False)
    if not several:
        raise ParameterError(
            f"{name} is an empty list, so there would be nothing to ask; give at "
            "least one value, or leave it out.",
            param=name,
        )
    values = tuple(sent(name, each) for each in several)
    return Axis(name=name, values=values, is_varied=True)


def sent(name: str, value: object) -> object:
    """Return a value as requests have it: functions as the definitions of tools.

    Raises:
        ParameterError: It is nothing to be offered as tools.
        ToolSchemaError: A function cannot be offered.
    """
    if name != "tools":
        return value
    return to_offer(value, run_tools=False).definitions


def prompts_of(prompt: object) -> tuple[Any, ...]:
    """Tell one prompt, a text or a list of messages, from a list of prompts."""
    if not has_many(prompt):
        return (prompt,)
    return axis_of("prompt", prompt).values


def has_many(prompt: object) -> bool:
    """Say whether these are several prompts: a list of anything but messages."""
    several = _several("prompt", prompt)
    if several is None:
        return False
    return not several or any(_is_prompt(each) for each in several)


def _is_prompt(each: object) -> bool:
    return isinstance(each, str) or _several("prompt", each) is not None


def _several(name: str, value: object) -> tuple[Any, ...] | None:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return None
    if isinstance(value, (set, frozenset)):
        raise ParameterError(
            f"{name} is a set, which has no order; give a list.", param=name
        )
    to_list = getattr(value, "tolist", None)  # numpy and pandas: plain Python values
    if not callable(to_list):
        return tuple(value)
    values = to_list()
    return tuple(values) if isinstance(values, list) else None


def _is_one(name: str, several: Sequence[object]) -> bool:
    kind = _ONE_AS_A_LIST.get(name)
    if kind is None or not several:
        return False
    return all(map(kind, several))
