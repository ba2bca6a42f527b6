"""Tools and toolboxes: Python functions, and the definitions that are sent for them.

A function that cannot be described is refused when its tool is made. A tool can be
called like its function. A toolbox is immutable, and its tools have different names.
"""

import copy
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from inspect import isfunction
from types import MethodType
from typing import Any, NamedTuple, Protocol, overload

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import (
    ParameterError,
    ToolCallError,
    ToolSchemaError,
    import_extra,
)
from svc_notebook.service.params import (
    check_definition,
    check_flag,
    check_int,
    check_positive,
    check_text,
    did_you_mean,
    one_line,
)
from svc_notebook.tokens import estimate_prompt_tokens

from .signature import texts_of, without_partials, written_function

_COPIED = ("__module__", "__name__", "__qualname__", "__doc__")


class ArgumentCheck(Protocol):
    """Checks the arguments of a call."""

    def read(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the values for the function, or raise a ToolCallError."""


@dataclass(frozen=True, eq=False, repr=False)
class Tool:
    """A function that the model may call, or only the definition of one.

    Attributes:
        name: The name that the model uses.
        definition: The definition, exactly as it is sent (doc: Tool definition).
        parameters: Checks the arguments of a call.
        function: The function to run; None for a definition without a function.
        is_async: Whether the function's result is awaited.
        confirm: Whether the user is asked before each call.
        timeout_s: Seconds that a call may take; None for the caller's limit.
        max_result_tokens: Estimated tokens of a result; None for the default.
        is_method: Whether it is a method without its object; `thing.method` has one.
    """

    name: str
    definition: dict[str, Any]
    parameters: ArgumentCheck
    _: KW_ONLY
    function: Callable[..., Any] | None = None
    is_async: bool = False
    confirm: bool = False
    timeout_s: float | None = None
    max_result_tokens: int | None = None
    is_method: bool = False

    def __post_init__(self) -> None:
        if self.function is None:
            return
        source = written_function(self.function)
        for name in _COPIED:  # as functools.update_wrapper, but for a frozen object
            if hasattr(source, name):
                object.__setattr__(self, name, getattr(source, name))
        object.__setattr__(self, "__wrapped__", self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's
        """Call the function directly."""
        if self.function is None:
            raise ToolCallError(
                f"{self.name} is a definition without a function; run its calls "
                "yourself, or make it with svc.tool(function, definition=...)."
            )
        return self.function(*args, **kwargs)

    def __get__(self, thing: object, owner: type | None = None) -> "Tool":
        """Bind a tool that was made of a method to an object of its class."""
        if thing is None or self.function is None or not self.is_method:
            return self
        method = MethodType(self.function, thing)
        return replace(self, function=method, is_method=False)

    def __repr__(self) -> str:
        definition_note = "" if self.function is not None else ", definition only"
        asks = ", asks first" if self.confirm else ""
        return f"Tool({self.signature}{definition_note}{asks})"

    @property
    def description(self) -> str:
        """The description that the model reads."""
        return str(self.definition["function"].get("description") or "")

    @property
    def parameter_schema(self) -> dict[str, Any]:
        """The JSON schema of the parameters; {} without one."""
        return dict(self.definition["function"].get("parameters") or {})

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(self.parameter_schema.get("properties") or {})

    @property
    def signature(self) -> str:
        """The name, with the names of the parameters."""
        return f"{self.name}({', '.join(self.parameter_names)})"


@overload
def tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    confirm: bool = False,
    timeout_s: float | None = None,
    max_result_tokens: int | None = None,
    definition: Mapping[str, Any] | None = None,
) -> Tool: ...
@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    confirm: bool = False,
    timeout_s: float | None = None,
    max_result_tokens: int | None = None,
    definition: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    confirm: bool = False,
    timeout_s: float | None = None,
    max_result_tokens: int | None = None,
    definition: Mapping[str, Any] | None = None,
) -> "Tool | Callable[[Callable[..., Any]], Tool]":
    """Make a tool of a function, plain or async, that the model may call.

    Name, description and the parameters' texts come from the function and its
    docstring, the schema from the annotations (doc: Tool definition): str, int, float,
    bool, Decimal, Literal, Enum, dates, UUID, Path, lists, tuples, sets and
    dict[str, ...] of these, Optional, dataclasses, TypedDict, pydantic models.
    `Annotated[int, "text"]` describes a parameter, `Annotated[int, Field(ge=1)]` limits
    its values. To offer a method, use `thing.method`.

    Args:
        function: The function; left out in the form `@svc.tool(...)`.
        name: The name that the model uses; the function's name if None.
        confirm: Whether you are asked before each call.
        timeout_s: Seconds that a call may take, above 0; the default limit if None.
        max_result_tokens: Estimated tokens of a result, 1500 if None; a longer one is
            cut in the middle.
        definition: A ready-made definition to send instead, which checks the calls.

    Returns:
        A `Tool`, which can be called like the function.

    Raises:
        ToolSchemaError: The function cannot be described; the message says what to do.

    Example:
        >>> @svc.tool
        ... def area(width: float, height: float) -> float:
        ...     '''Compute the area of a rectangle, in square metres.'''
        ...     return width * height
        >>> completion = svc.complete("How large is 2 m by 3 m?", tools=[area])
    """
    _check_settings(confirm, timeout_s, max_result_tokens)

    def make(function: Callable[..., Any]) -> Tool:
        _check_function(function)
        is_method = _takes_self(function)
        offered = partial(function, None) if is_method else function
        described = (
            _describe_function(offered, name)
            if definition is None
            else _describe_definition(definition, name)
        )
        called = getattr(function, "__call__", None)  # noqa: B004 - may be async itself
        is_async = any(inspect.iscoroutinefunction(code) for code in (function, called))
        return Tool(
            *described,
            function=function,
            is_async=is_async,
            confirm=confirm,
            timeout_s=timeout_s,
            max_result_tokens=max_result_tokens,
            is_method=is_method,
        )

    return make if function is None else make(function)


def from_definition(definition: Mapping[str, Any]) -> Tool:
    """Make a tool of a ready-made definition, without a function."""
    return Tool(*_describe_definition(definition, None))


def _describe_function(
    function: Callable[..., Any], name: str | None
) -> tuple[str, dict[str, Any], ArgumentCheck]:
    from .schema import Parameters  # noqa: PLC0415 - pydantic loads with the first tool

    source = written_function(function)
    own_name = getattr(source, "__name__", "")
    if source is not function and own_name == "__call__":  # an object with __call__
        own_name = type(without_partials(function)).__name__
    name = _check_name(own_name if name is None else name)
    texts = texts_of(source)
    parameters = Parameters(function, name, texts)
    # Every definition in the document has a description, so it is never empty.
    description = texts.description or name.replace("_", " ").strip() or name
    definition = {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": parameters.schema,
        },
    }
    return name, _copy_as_sent(definition), parameters


def _describe_definition(
    definition: Mapping[str, Any], name: str | None
) -> tuple[str, dict[str, Any], ArgumentCheck]:
    import_extra("jsonschema", "Ready-made tool definitions need")
    from .json_definition import DefinedParameters  # noqa: PLC0415 - needs jsonschema

    try:
        copied = _copy_as_sent(dict(check_definition(definition)))
    except ParameterError as problem:
        raise ToolSchemaError(str(problem)) from None
    own_name = _check_name(copied["function"]["name"])
    if name not in (None, own_name):
        raise ToolSchemaError(
            f"name={name!r} differs from the name {own_name!r} in the definition; "
            "remove one of them."
        )
    parameters = DefinedParameters(copied["function"].get("parameters"), own_name)
    return own_name, copied, parameters


def _copy_as_sent(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a definition as it is sent."""
    try:
        text = json.dumps(definition, allow_nan=False, ensure_ascii=False)
        text.encode()
        copied: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as problem:
        reason = one_line(f"{type(problem).__name__}: {problem}", 200)
        raise ToolSchemaError(
            f"A tool definition cannot be sent as JSON ({reason}); use texts, numbers, "
            "lists and dicts."
        ) from None
    return copied


def _check_function(function: object) -> None:
    if isinstance(function, Tool):
        raise ToolSchemaError(
            f"{function.name} is a tool already; pass its function: "
            f"svc.tool({function.name}.function, ...)."
        )
    if isinstance(function, type) or not callable(function):
        description = f"of type {type(function).__name__}"
        if isinstance(function, type):
            description = f"the class {function.__name__}"
        raise ToolSchemaError(
            f"A tool must be a function, but this is {description}; write a function "
            "that uses it."
        )
    source = written_function(function)
    if inspect.isgeneratorfunction(source) or inspect.isasyncgenfunction(source):
        raise ToolSchemaError(
            f"{source.__name__} yields several results, but a call has only one; "
            "return a list."
        )


def _takes_self(function: Callable[..., Any]) -> bool:
    """Return whether a function is a method that is not bound to an object."""
    names = function.__code__.co_varnames[:1] if isfunction(function) else ()
    is_method = bool(names) and names[0] in ("self", "cls")
    return is_method and names[0] not in function.__annotations__


def _check_name(name: object) -> str:
    if (
        not isinstance(name, str)
        or not name
        or any(letter.isspace() for letter in name)
    ):
        raise ToolSchemaError(
            f"A tool cannot be called {name!r}; give a name without spaces, as in "
            'svc.tool(function, name="weather").'
        )
    if name == "<lambda>":
        raise ToolSchemaError(
            "A lambda has neither a name nor annotations; write it with def."
        )
    try:
        return check_text(name, param="tools")
    except ParameterError as problem:
        raise ToolSchemaError(str(problem)) from None


def _check_settings(
    confirm: object, timeout_s: object, max_result_tokens: object
) -> None:
    try:
        check_flag("confirm", confirm)
        if timeout_s is not None:
            check_positive("timeout_s", timeout_s)
        if max_result_tokens is not None:
            check_int("max_result_tokens", max_result_tokens, minimum=1)
    except ParameterError as problem:
        raise ToolSchemaError(str(problem)) from None


ToolLike = Tool | Callable[..., Any] | Mapping[str, Any]
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

    def __init__(self, offers: Iterable[ToolLike] = ()) -> None:
        if isinstance(offers, str | bytes | Mapping | Tool) or not isinstance(
            offers, Iterable
        ):
            raise ToolSchemaError(
                f"A toolbox takes a list of functions; got {type(offers).__name__}. "
                "Write svc.Toolbox([...])."
            )
        self._tools: dict[str, Tool] = {}
        for offer in offers:
            tool_ = _to_tool(offer)
            if tool_.is_method:
                raise ToolSchemaError(
                    f"{tool_.name} is a method and its object is missing; offer the "
                    f"method of an object: thing.{tool_.name}."
                )
            if tool_.name in self._tools:
                raise ToolSchemaError(
                    f"Two tools are called {tool_.name!r}; rename one, as in "
                    'svc.tool(function, name="another").'
                )
            self._tools[tool_.name] = tool_

    @property
    def definitions(self) -> tuple[dict[str, Any], ...]:
        """Copies of what is sent as `tools`, in order (doc: Tool definition)."""
        return tuple(copy.deepcopy(tool.definition) for tool in self)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in order."""
        return tuple(self._tools)

    @property
    def n_tokens(self) -> int:
        """Estimated tokens of the definitions in every request."""
        return estimate_prompt_tokens((), [tool.definition for tool in self]).best

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
            f"There is no tool '{one_line(name)}'; the tools are: {known}.{hint}"
        )

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __add__(self, other: object) -> "Toolbox":
        """Return a toolbox with the tools of both, each of them once."""
        added_tools = to_toolbox(other)
        own_tools = list(self)
        return Toolbox(
            [*own_tools, *(tool for tool in added_tools if tool not in own_tools)]
        )

    def __repr__(self) -> str:
        return f"Toolbox([{', '.join(self.names)}])"

    def _repr_html_(self) -> str:
        from svc_notebook.display.escape import to_text  # noqa: PLC0415 - where it is shown

        rows = "".join(
            "<tr>"
            f"<td><code>{to_text(tool.signature)}</code></td>"
            "<td style=text-align:left>"
            f"{to_text(tool.description.strip().partition(_LINE_END)[0])}</td>"
            f"<td>{to_text(_notes(tool))}</td></tr>"
            for tool in self
        )
        tools = count_in_words(len(self), "tools")
        return (
            "<div><table><thead><tr><th>tool</th><th>description</th><th>notes</th>"
            f'</tr></thead><tbody>{rows}</tbody></table><div style="{_QUIET}">'
            f"{tools}, about {self.n_tokens:,} tokens in every request</div></div>"
        )


def to_toolbox(offers: object) -> Toolbox:
    """Make a toolbox from a tool in any form, a list of tools, a toolbox, or None."""
    if isinstance(offers, Toolbox):
        return offers
    if offers is None:
        return Toolbox()
    if isinstance(offers, Mapping) or callable(offers):
        return Toolbox([offers])
    return Toolbox(offers)  # type: ignore[arg-type]  # checked there


class OfferedTools(NamedTuple):
    """The definitions to send in a request, and the tools to run."""

    definitions: Any
    toolbox: Toolbox | None = None


def to_offer(tools: object, *, run_tools: bool = True) -> OfferedTools:
    """Read the `tools` of a request: a tool in any form, a toolbox, or a list."""
    if tools is None or (
        isinstance(tools, list | tuple)
        and all(isinstance(offer, Mapping) for offer in tools)
    ):
        return OfferedTools(tools)
    if isinstance(tools, (str, bytes)) or not (
        callable(tools) or isinstance(tools, Iterable)
    ):
        raise ParameterError(
            f"tools must be a list of functions, or of tool definitions; got "
            f"{type(tools).__name__}.",
            param="tools",
        )
    toolbox = to_toolbox(tools)
    can_run = any(tool.function is not None for tool in toolbox)
    return OfferedTools(
        list(toolbox.definitions) or None, toolbox if run_tools and can_run else None
    )


def _to_tool(offer: object) -> Tool:
    if isinstance(offer, Tool):
        return offer
    if isinstance(offer, Mapping):
        return from_definition(offer)
    if callable(offer):
        return tool(offer)
    raise ToolSchemaError(
        "A tool is a function, a svc.tool or a definition; got "
        f"{type(offer).__name__}: {one_line(repr(offer))}."
    )


def _notes(tool: Tool) -> str:
    notes = [
        "asks first" if tool.confirm else "",
        "async" if tool.is_async else "",
        "definition only" if tool.function is None else "",
    ]
    return ", ".join(note for note in notes if note)
