"""`%svc fix` and `%svc explain`: a question about the user's last error."""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from svc_notebook.conversations.attachments import PromptItem, add_items, capped
from svc_notebook.display.front_end import can_answer, cell_ids
from svc_notebook.display.traceback_for_model import to_report, versions
from svc_notebook.errors import ParameterError, last_error
from svc_notebook.service.catalogue import BUDGET_TOKENS

from .cell_context import CellContext
from .cell_reply import CellReply
from .cell_request import to_request
from .dry_run import dry_run
from .options import EXPLAIN, FIX, SvcOptions
from .tools_command import offered_tools

TASKS = {
    FIX: "A notebook cell fails. Write the corrected cell as a whole, in one Python "
    "code block. Then say in one or two sentences what was wrong.",
    EXPLAIN: "A notebook cell fails. Explain the error: what it means, what causes it "
    "here, and how to correct it.",
}
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)


def ask_about_error(context: CellContext, options: SvcOptions, *, task: str) -> object:
    """Show what would be sent about the last error; send it once it was shown."""
    options = _for_error(context, options, task)
    session, memory = context.session, context.memory
    info = session.info_of(options.model or session.settings.model)
    prompt, note, failed_code = error_prompt(
        task, context.names(), context_tokens=info.context_tokens
    )
    if not prompt:
        return note
    toolbox = offered_tools(context, options)
    cell_request = to_request(context, options, context.hide(prompt), toolbox)
    notes = (note, *cell_request.notes)
    cell_request = replace(cell_request, notes=notes, failed_code=failed_code)
    execution = (*cell_ids(context.shell), context.shell.execution_count)
    shown, shown_in = memory.shown_fix or (None, None)
    is_known = shown == cell_request.request and shown_in != execution
    if options.is_dry or not (options.is_sent or is_known):
        memory.shown_fix = cell_request.request, execution
        way = f"`%svc {task} --send`, or the same line again, sends it."
        return dry_run(context, options, cell_request, way)
    return CellReply(context, options, cell_request, toolbox).complete()


def _for_error(context: CellContext, options: SvcOptions, task: str) -> SvcOptions:
    """Return the options for `fix` or `explain`, or refuse them."""
    context.check_output(options.output)
    if not can_answer(context.shell):
        raise ParameterError(
            f"%svc {task}: this notebook runs without a user, so nobody would see what "
            "is sent. Nothing was sent. Run this line by hand, or remove it.",
            param="line",
        )
    if options.is_several or options.type_name:
        raise ParameterError(
            f"%svc {task} asks for one reply as text: leave --as out, and give only "
            "one model and one value per option.",
            param="model",
        )
    layout = options.layout or ("code" if task == FIX else None)
    # raw, as a traceback may contain {{marks}}; tools only if this very line names them
    return replace(options, is_raw=True, layout=layout, tools=options.tools or ())


def error_prompt(
    task: str, names: Mapping[str, Any], *, context_tokens: int | None = BUDGET_TOKENS
) -> tuple[str, str, str]:
    """Return a question about the user's last error, a note, and the failing cell.

    The note is for the footer. The question is "" if no cell has failed. It contains
    the failing cells, the traceback and the versions of packages. The failing cell is
    never shortened; if it does not fit into the model's context, an error says so.
    """
    error = last_error()
    if error is None:
        return "", f"No cell of this kernel has failed; nothing to {task}.", ""
    report = to_report(error)
    cells = [number for number in report.cells if number < len(names["In"])]
    sources = [names["In"][number].strip("\n") for number in cells]
    titles = [f"Cell In[{number}]" for number in cells]
    titles[:1] = [f"{title} (failed)" for title in titles[:1]]
    items = [
        PromptItem(name=name, text=source, kind="cell")
        for name, source in zip(titles, sources, strict=True)
    ]
    items.append(PromptItem(name="Traceback", text=report.text, kind="error"))
    items[bool(cells) :] = map(capped, items[bool(cells) :])
    n_tokens = sum(item.n_tokens for item in items)
    n_reply = items[0].n_tokens if cells and task == FIX else 0
    if context_tokens is not None and n_tokens + n_reply > context_tokens:
        doubled = " twice (the correction is as long)" if n_reply else ""
        raise ParameterError(
            f"%svc {task}: the failing cell has about {items[0].n_tokens:,} tokens, "
            f"and with the error it does not fit{doubled} into {context_tokens:,}. Run "
            f"the part that fails in a separate cell, then `%svc {task}`; or ask about "
            "the error alone: `%svc --with Err QUESTION`.",
            param="messages",
        )
    code = "\n".join(sources)
    values = (names.get(word) for word in set(re.findall(r"\w+", code)))
    used_modules = {value.__name__ for value in values if isinstance(value, ModuleType)}
    modules = report.modules.union(_IMPORT.findall(code), used_modules)
    where = f" of In[{cells[0]}]" if cells else ""
    note = f"the last error{where}: {type(error).__name__}"
    prompt, _ = add_items(TASKS[task], items)
    question = f"{prompt}\n\nVersions: {versions(modules)}"
    return question, note, sources[0] if sources else ""
