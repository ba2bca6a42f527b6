"""A toolbox: the tools of a request, each with its own name; it does not change."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from svc_notebook.errors import ToolCallError, ToolSchemaError
from svc_notebook.service.checks import did_you_mean
from svc_notebook.tokens import estimate_prompt_tokens

from .schema import short
from .tool import Tool, from_definition, tool

Offer = Tool | Callable[..., Any] | Mapping[str, Any]
"""A tool, a function, or a ready-made definition."""

_QUIET = "opacity:.7;font-size:90%"
_LINE_END = "\n"


class Toolbox:
    """Functions that the model may call.

    Args:
        offers: Functions, tools made with `svc.tool`, and ready-made definitions
            (whose calls are not run, since they have no function).

    Raises:
        ToolSchemaError: A tool cannot be described, or two have the same name.

    Example:
        >>> box = svc.Toolbox([weather, lookup])
        >>> box.names
        ('weather', 'lookup')
    """

    def __init__(self, offers: Iterable[Offer] = ()) -> None:
        if isinstance(offers, str | bytes | Mapping | Tool) or not isinstance(
            offers, Iterable
        ):
            raise ToolSchemaError(
                f"A toolbox takes a list of functions; got {type(offers).__name__}. "
                "Write svc.Toolbox([...])."
            )
        self._tools: dict[str, Tool] = {}
        for each in offers:
            made = _to_tool(each)
            if made.is_method:
                raise ToolSchemaError(
                    f"{made.name} is a method and its object is missing; offer the "
                    f"method of an object: thing.{made.name}."
                )
            if made.name in self._tools:
                raise ToolSchemaError(
                    f"Two tools are called {made.name!r}; rename one, as in "
                    'svc.tool(function, name="another").'
                )
            self._tools[made.name] = made

    @property
    def definitions(self) -> tuple[dict[str, Any], ...]:
        """Copies of what is sent as `tools`, in order (doc: Tool definition)."""
        return tuple(copy.deepcopy(each.definition) for each in self)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in order."""
        return tuple(self._tools)

    @property
    def n_tokens(self) -> int:
        """Estimated tokens of the definitions in every request."""
        return estimate_prompt_tokens((), [each.definition for each in self]).best

    def tool(self, name: str) -> Tool:
        """Return the tool with a name.

        Raises:
            ToolCallError: There is no such tool; the message lists the tools.
        """
        if name in self._tools:
            return self._tools[name]
        hint = did_you_mean(name, self._tools, n=1)
        known = ", ".join(self._tools) or "none"
        raise ToolCallError(
            f"There is no tool '{short(name)}'; the tools are: {known}.{hint}"
        )

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __add__(self, other: object) -> "Toolbox":
        """Return a toolbox with the tools of both, each of them once."""
        others = to_toolbox(other)
        mine = list(self)
        return Toolbox([*mine, *(each for each in others if each not in mine)])

    def __repr__(self) -> str:
        return f"Toolbox([{', '.join(self.names)}])"

    def _repr_html_(self) -> str:
        from svc_notebook.display.markup import to_text  # noqa: PLC0415 - where it is shown

        rows = "".join(
            "<tr>"
            f"<td><code>{to_text(each.signature)}</code></td>"
            "<td style=text-align:left>"
            f"{to_text(each.description.strip().partition(_LINE_END)[0])}</td>"
            f"<td>{to_text(_notes(each))}</td></tr>"
            for each in self
        )
        n = len(self)
        tools = "1 tool" if n == 1 else f"{n} tools"
        return (
            "<div><table><thead><tr><th>tool</th><th>description</th><th>notes</th>"
            f'</tr></thead><tbody>{rows}</tbody></table><div style="{_QUIET}">'
            f"{tools}, about {self.n_tokens} tokens in every request</div></div>"
        )


def to_toolbox(given: object) -> Toolbox:
    """Make a toolbox of a toolbox, a tool in any form, a list of these, or None."""
    if isinstance(given, Toolbox):
        return given
    if given is None:
        return Toolbox()
    if isinstance(given, Mapping) or callable(given):
        return Toolbox([given])
    return Toolbox(given)  # type: ignore[arg-type]  # checked there


def _to_tool(given: object) -> Tool:
    if isinstance(given, Tool):
        return given
    if isinstance(given, Mapping):
        return from_definition(given)
    if callable(given):
        return tool(given)
    raise ToolSchemaError(
        "A tool is a function, a svc.tool or a definition; got "
        f"{type(given).__name__}: {short(repr(given))}."
    )


def _notes(each: Tool) -> str:
    notes = [
        "asks first" if each.confirm else "",
        "async" if each.is_async else "",
        "definition only" if each.function is None else "",
    ]
    return ", ".join(note for note in notes if note)
