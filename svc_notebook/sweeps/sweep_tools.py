"""The functions that a sweep runs as tools, and the check that it can run them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError
from svc_notebook.tools.results import is_pandas
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Tool, Toolbox

from .grid import Dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTools:
    """The functions of a sweep by their definitions, and what their calls may do."""

    tools: Mapping[bytes, Tool]
    permit: Permit

    @property
    def limits(self) -> dict[str, float]:
        """The limits of rounds, as a manifest has them."""
        rounds = self.permit.rounds
        names = ("max_rounds", "tool_timeout_s", "total_s")
        return {name: getattr(rounds, name) for name in names}

    def toolbox(self, definitions: Iterable[Mapping[str, Any]]) -> Toolbox:
        """Return the tools with these definitions."""
        return Toolbox(
            [self.tools.get(_key(definition), definition) for definition in definitions]
        )


def sweep_tools(
    tools: object, permit: Permit, dimensions: Iterable[Dimension]
) -> SweepTools | None:
    """Find the functions that are offered, and check that they can run.

    None if none is offered: calls of definitions are left to the caller.
    """
    functions = {_key(tool.definition): tool for tool in _with_functions(tools)}
    points = [point for dimension in dimensions for point in dimension.points]
    definitions = [tool for point in points for tool in point.get("tools") or ()]
    offered = [functions[key] for key in map(_key, definitions) if key in functions]
    if not offered:
        return None
    if any(point.get("n", 1) not in (None, 1) for point in points):
        raise _refused(
            "Tools can be run for one choice only; leave n out, or give "
            "run_tools=False to get the calls.",
            "n",
        )
    for tool in offered:
        if permit.confirm is True or (permit.confirm is None and tool.confirm):
            raise _refused(
                "A sweep asks for many replies at once, so it cannot ask you about "
                f"calls of {tool.name}. Give confirm=False to run them all, a function "
                "that decides (it is called for one call at a time), or "
                "run_tools=False to get the calls.",
                "confirm",
            )
    return SweepTools(tools=functions, permit=permit)


def _with_functions(tools: Any) -> Iterator[Tool]:  # noqa: ANN401 - any form of tools
    """Return the functions in lists, labelled lists, toolboxes and frames."""
    if isinstance(tools, Mapping):
        tools = [*tools.values()]
    if is_pandas(tools, "DataFrame"):
        tools = [tools.get("tools", ())]
    if is_pandas(tools, "Series"):
        tools = tools.tolist()
    if isinstance(tools, Tool):
        tools = tools if tools.function is not None else ()
    if callable(tools):
        yield from Toolbox([tools])
    elif isinstance(tools, (list, tuple, Toolbox)):
        for several in tools:
            yield from _with_functions(several)


_key = msgspec.json.Encoder(order="sorted").encode


def _refused(text: str, param: str) -> ParameterError:
    return ParameterError(f"{text} Nothing was sent.", param=param)
