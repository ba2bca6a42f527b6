"""Tools by name: the notebook's variables as what a cell offers.

What it is not: a registry; a tool is offered while a variable holds it. Rules: names
are typed, checked and given near misses before anything is sent; what is listed is
what is sent.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.tokens import estimate_prompt_tokens
from svc_notebook.tools.consent import Remembered
from svc_notebook.tools.tool import Tool
from svc_notebook.tools.toolbox import Toolbox, to_toolbox

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd

_NOTE_CHARS = 60


def to_tools(names: Sequence[str], variables: Mapping[str, object]) -> Toolbox:
    """Find the tools that a line names.

    Args:
        names: Of variables that hold a tool, a toolbox, a function or a definition.
        variables: The notebook's.

    Raises:
        ParameterError: One is not there, or is no tool; near names are given.
        ToolSchemaError: One cannot be offered.
    """
    found = Toolbox()
    for name in names:
        found += to_toolbox(_found(name, variables))
    return found


def tools_of_every_cell(
    names: Sequence[str], variables: Mapping[str, object]
) -> Toolbox:
    """Find the tools that are offered in every cell.

    Raises:
        ParameterError: One is gone; it says how to offer it no longer.
        ToolSchemaError: One cannot be offered.
    """
    try:
        return to_tools(names, variables)
    except SvcError as error:
        error.add_note(
            f"Every cell offers {', '.join(names)} (%config SvcMagics.tools); "
            "`%svc tools remove NAME` ends that, --tools none does for one cell."
        )
        raise


def known_tools(variables: Mapping[str, object]) -> dict[str, Toolbox]:
    """Return the variables that hold tools, by name."""
    return {
        name: to_toolbox(value)
        for name, value in variables.items()
        if isinstance(value, (Tool, Toolbox)) and not name.startswith("_")
    }


def tools_df(
    variables: Mapping[str, object], offered: Sequence[str], always: Sequence[str]
) -> "pd.DataFrame":
    """List the tools that the notebook's variables hold.

    Args:
        variables: The notebook's.
        offered: Names of variables that are offered in every cell.
        always: Names of tools whose calls are always allowed.

    Returns:
        One row a tool, in the order of the variables, indexed by `variable`.
    """
    import pandas as pd  # noqa: PLC0415 - loads when a frame is asked for

    rows = [
        (variable, tool)
        for variable, toolbox in known_tools(variables).items()
        for tool in toolbox
    ]
    frame = pd.DataFrame(
        {
            "variable": [variable for variable, _ in rows],
            "tool": [tool.name for _, tool in rows],
            "parameters": [", ".join(tool.parameter_names) for _, tool in rows],
            "description": [_first_line(tool) for _, tool in rows],
            "asks_first": [
                tool.confirm and tool.name not in always for _, tool in rows
            ],
            "in_every_cell": [variable in offered for variable, _ in rows],
            "est_tokens": [
                estimate_prompt_tokens((), [tool.definition]) for _, tool in rows
            ],
        }
    )
    texts = ("variable", "tool", "parameters", "description")
    return frame.astype(
        {
            **dict.fromkeys(texts, "string"),
            "asks_first": "boolean",
            "in_every_cell": "boolean",
            "est_tokens": "Int64",
        }
    ).set_index("variable")


def definitions_text(name: str, variables: Mapping[str, object]) -> str:
    """Write out what is sent of a tool, and its size.

    Raises:
        ParameterError: There is none of this name.
    """
    toolbox = to_tools([name], variables)
    texts = [
        json.dumps(each, ensure_ascii=False, indent=2) for each in toolbox.definitions
    ]
    size = f"about {toolbox.n_tokens} tokens in every request that offers it"
    return "\n".join([*texts, f"({size})"])


def tools_command(
    words: Sequence[str],
    variables: Mapping[str, object],
    *,
    offered: Sequence[str],
    offer: Callable[[Sequence[str]], None],
    consent: Remembered,
) -> object:
    """Do what `%svc tools …` says.

    Args:
        words: Behind `tools`.
        variables: The notebook's.
        offered: Names of variables that are offered in every cell.
        offer: Sets these.
        consent: Knows which tools are always allowed.

    Raises:
        ParameterError: There is no such tool, or the words mean nothing.
    """
    if not words:
        return tools_df(variables, offered, consent.always)
    if words[0] == "ask":
        return _ask_again(words[1:], variables, consent)
    if len(words) == 1 and words[0] in ("add", "remove"):
        raise ParameterError(
            f"%svc tools {words[0]} needs a name, as in `%svc tools {words[0]} "
            "weather`; `%svc tools` lists them.",
            param="tools",
        )
    if len(words) == 1:
        return definitions_text(words[0], variables)
    verb, name = words
    if verb == "add":
        to_tools([*offered, name], variables)
        offer(tuple(dict.fromkeys([*offered, name])))
        return f"{name} is now offered in every %%svc cell; `%svc tools remove {name}`."
    if verb == "remove" and name in offered:
        offer([each for each in offered if each != name])
        return f"{name} is no longer offered where a cell does not name it."
    if verb == "remove":
        there = ", ".join(offered) or "no tools"
        raise ParameterError(
            f"{name} is not offered in every cell; {there} are. A cell's own tools are "
            "those that its --tools names.",
            param="tools",
        )
    raise ParameterError(
        f"%svc tools {verb} {name}: a command or a question? Nothing was sent. The "
        "command is `%svc tools [[add|remove|ask] NAME]`; to ask, write "
        f"`%svc ask tools {verb} {name}`.",
        param="line",
    )


def _ask_again(
    names: Sequence[str], variables: Mapping[str, object], consent: Remembered
) -> str:
    """Forget that calls are always allowed: of one tool, of those a variable holds."""
    held = known_tools(variables).get(names[0]) if names else None
    wanted = {*names, *(held.names if held else ())}
    forgotten = [each for each in consent.always if each in wanted or not names]
    if names and held is None and not forgotten:
        to_tools(names, variables)  # says that there is none, and which are near
    for each in forgotten:
        consent.forget(each)
    if not forgotten:
        said = f"{names[0]} is not" if names else "No tool is"
        return f"{said} always allowed; nothing changed."
    return f"Asks again before calls that want it: {', '.join(forgotten)}."


def tool_notes(variables: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the names of tools with a word on each, for Tab."""
    return tuple(
        (name, ", ".join(map(_first_line, toolbox))[:_NOTE_CHARS])
        for name, toolbox in known_tools(variables).items()
    )


def _found(name: str, variables: Mapping[str, object]) -> object:
    if name in variables:
        value = variables[name]
        if _can_be_offered(value):
            return value
        raise ParameterError(
            f"{name} is {type(value).__name__}, not a tool; give a function, made a "
            "tool with @svc.tool if you like, or a svc.Toolbox.",
            param="tools",
        )
    tools = list(known_tools(variables))
    near = get_close_matches(name, [*tools, *_functions(variables)], n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    there = f" The tools here are {', '.join(tools)}." if tools else ""
    raise ParameterError(
        f"There is no variable {name!r} to offer as a tool.{hint}{there} Define it "
        "first, with @svc.tool above the function; `%svc tools` lists them.",
        param="tools",
    )


def _can_be_offered(value: object) -> bool:
    is_made = isinstance(value, (Tool, Toolbox, Mapping, list, tuple))
    return is_made or inspect.isroutine(value)


def _functions(variables: Mapping[str, object]) -> list[str]:
    return [
        name
        for name, value in variables.items()
        if inspect.isfunction(value) and not name.startswith("_")
    ]


def _first_line(tool: Tool) -> str:
    return tool.description.strip().split("\n", 1)[0]
