"""`--tools` and `%svc tools`: finds the tools that a cell offers to the model.

The command lists tools, shows the definition of a tool as it is sent, offers a tool in
every cell, and makes calls ask again.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from svc_notebook import Toolbox
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.params import did_you_mean, shorten
from svc_notebook.tokens import estimate_prompt_tokens
from svc_notebook.tools.consent import Remembered
from svc_notebook.tools.toolbox import Tool, to_toolbox

from .cell_context import CellContext
from .column_list import columns_of, indexed_frame
from .options import SvcOptions, to_names

if TYPE_CHECKING:
    import pandas as pd


NOTE_CHARS = 60  # of the note next to a name that Tab offers


def offered_tools(context: CellContext, options: SvcOptions) -> Toolbox | None:
    """Find the tools that a line names, else those that every cell offers."""
    of_every_cell = context.traits.tools
    if options.tools:
        return to_tools(options.tools, context.names())
    if options.tools is None and of_every_cell:
        return tools_of_every_cell(to_names(of_every_cell), context.shell.user_ns)
    return None


def to_tools(names: Sequence[str], variables: Mapping[str, object]) -> Toolbox:
    """Find tools by the names of their variables."""
    toolbox = Toolbox()
    for name in names:
        toolbox += to_toolbox(find_tool(name, variables))
    return toolbox


def tools_of_every_cell(
    names: Sequence[str], variables: Mapping[str, object]
) -> Toolbox:
    """Find the tools that are offered in every cell."""
    try:
        return to_tools(names, variables)
    except SvcError as error:
        error.add_note(
            f"Every cell offers {', '.join(names)} (%config SvcMagics.tools). "
            "`%svc tools remove NAME` changes that; --tools none does so for one cell."
        )
        raise


def known_tools(variables: Mapping[str, object]) -> dict[str, Toolbox]:
    """Return the variables that hold tools, by name."""
    return {
        name: to_toolbox(value)
        for name, value in variables.items()
        if isinstance(value, (Tool, Toolbox)) and not name.startswith("_")
    }


def find_tool(name: str, variables: Mapping[str, object]) -> object:
    """Return the value of the variable that `--tools` names; refuse what is no tool."""
    if name in variables:
        value = variables[name]
        is_made = isinstance(value, (Tool, Toolbox, Mapping, list, tuple))
        if is_made or inspect.isroutine(value):
            return value
        kind = "a type" if isinstance(value, type) else type(value).__name__
        raise ParameterError(
            f"{name} is {kind}, not a tool. Give a function (with or "
            "without @svc.tool) or a svc.Toolbox.",
            param="tools",
        )
    tools = list(known_tools(variables))
    functions = [
        variable
        for variable, value in variables.items()
        if inspect.isfunction(value) and not variable.startswith("_")
    ]
    hint = did_you_mean(name, [*tools, *functions])
    known = f" The tools here are {', '.join(tools)}." if tools else ""
    raise ParameterError(
        f"There is no variable {name!r} to offer as a tool.{hint}{known} Define it "
        "first, with @svc.tool above the function; `%svc tools` lists them.",
        param="tools",
    )


def first_line(tool: Tool) -> str:
    """Return the first line of a tool's description."""
    return tool.description.strip().split("\n", 1)[0]


def tools_df(
    variables: Mapping[str, object], offered: Sequence[str], consent: Remembered
) -> "pd.DataFrame":
    """List the tools of the notebook's variables, one row per tool.

    `offered` are the variables that every cell offers; `consent` knows the calls that
    are always allowed.
    """
    from .summary_table import listing  # noqa: PLC0415 - pandas

    rows = [
        (
            variable,
            tool.name,
            ", ".join(tool.parameter_names),
            first_line(tool),
            tool.confirm and not consent.allows(tool.name, tool.function),
            variable in offered,
            estimate_prompt_tokens((), [tool.definition]).best,
        )
        for variable, toolbox in known_tools(variables).items()
        for tool in toolbox
    ]
    sentence = (
        f"{count_in_words(len(rows), 'tools')}. `--tools VARIABLE` offers one to the "
        "model."
        if rows
        else "No variable holds a tool. `@svc.tool` above a function makes one of it; "
        "`--tools NAME` takes plain functions, too."
    )
    heads = ("variable", "tool", "what it does", "", "tokens")
    return listing(
        indexed_frame(TOOL_LIST, rows), sentence, heads, [*map(_cells, rows)]
    )


def _cells(row: tuple[str, str, str, str, bool, bool, int]) -> tuple[str, ...]:
    """Return what the list shows of a tool."""
    variable, name, parameters, description, asks_first, in_every_cell, n_tokens = row
    remarks = ["asks first"] * asks_first + ["in every cell"] * in_every_cell
    what = shorten(description, NOTE_CHARS)
    return variable, f"{name}({parameters})", what, ", ".join(remarks), f"~{n_tokens}"


TOOL_LIST = (
    *columns_of(
        "string",
        variable="that holds the tool, alone or in a toolbox",
        tool="its name, as the model knows it",
        parameters="their names",
        description="its first line",
    ),
    *columns_of(
        "boolean",
        asks_first="whether a call asks you before it runs",
        in_every_cell="whether every cell offers it",
    ),
    *columns_of("Int64", est_tokens="estimated tokens in every request that offers it"),
)


def _definitions_text(name: str, variables: Mapping[str, object]) -> str:
    """Return the definitions of a variable's tools as they are sent, and their size."""
    toolbox = to_tools([name], variables)
    texts = [
        json.dumps(definition, ensure_ascii=False, indent=2)
        for definition in toolbox.definitions
    ]
    size = f"about {toolbox.n_tokens:,} tokens in every request that offers it"
    return "\n".join([*texts, f"({size})"])


VERBS = ("add", "remove", "ask")


def fits(words: Sequence[str]) -> bool:
    """Whether these words can follow `%svc tools`; else it may be a question."""
    return len(words) < 2 or words[0] in VERBS  # noqa: PLR2004 - a verb and a name


def tools_command(context: CellContext, verb: str = "", *names: str) -> object:
    """List the tools, show one, or do what the verb says."""
    variables, consent = context.shell.user_ns, context.session.consent
    offered = to_names(context.traits.tools)
    if not verb:
        return tools_df(variables, offered, consent)
    if verb == "ask":
        return _ask_again(names, variables, consent)
    if verb not in VERBS:
        return _definitions_text(verb, variables)
    if not names:
        raise ParameterError(
            f"%svc tools {verb} needs a name, as in `%svc tools {verb} weather`; "
            "`%svc tools` lists them.",
            param="tools",
        )
    if verb == "add":
        return _add(context, names[0], offered)
    return _remove(context, names[0], offered)


def _add(context: CellContext, name: str, offered: Sequence[str]) -> str:
    """Offer a variable's tools in every cell."""
    to_tools([*offered, name], context.shell.user_ns)  # raises if one cannot be offered
    context.traits.tools = ",".join(dict.fromkeys([*offered, name]))
    return (
        f"{name} is now offered in every %%svc cell; `%svc tools remove {name}` "
        "stops this."
    )


def _remove(context: CellContext, name: str, offered: Sequence[str]) -> str:
    """Stop offering a variable's tools in every cell."""
    if name not in offered:
        raise ParameterError(
            f"{name} is not offered in every cell; {', '.join(offered) or 'no tools'} "
            "are. To change the tools of one cell, use --tools.",
            param="tools",
        )
    context.traits.tools = ",".join(other for other in offered if other != name)
    return f"{name} is no longer offered in every cell."


def _ask_again(
    names: Sequence[str], variables: Mapping[str, object], consent: Remembered
) -> str:
    """Make calls ask again: of all tools, of one, or of the tools of a variable."""
    toolbox = known_tools(variables).get(names[0]) if names else None
    tool_names = {*names, *(toolbox.names if toolbox else ())}
    forgotten = [name for name in consent.always if name in tool_names or not names]
    if names and toolbox is None and not forgotten:
        to_tools(names, variables)  # its error names similar tools
    for name in forgotten:
        consent.forget(name)
    if not forgotten:
        subject = f"{names[0]} is not" if names else "No tool is"
        return f"{subject} always allowed; nothing changed."
    return f"You will be asked again before calls of: {', '.join(forgotten)}."


def tool_notes(variables: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the names of tools with a note on each, for Tab."""
    return tuple(
        (name, shorten(", ".join(map(first_line, toolbox)), NOTE_CHARS))
        for name, toolbox in known_tools(variables).items()
    )
