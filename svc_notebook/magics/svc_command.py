"""`%%svc` and `%svc`: reads the line, then runs the command or sends the prompt.

Modules that a plain cell does not need are imported when an option needs them, so that
the first reply of a kernel starts sooner.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell

from svc_notebook.display.reply_display import Final, ReplyDisplay
from svc_notebook.errors import AskError, Interrupted, ParameterError, SvcError

from .cell_context import (
    CellContext,
    CellRequestIds,
    KernelMemory,
    Places,
    names_of_functions,
)
from .cell_reply import CellReply
from .cell_request import to_request
from .config_traits import SvcTraits
from .options import (
    ASK,
    COMMANDS_WITH_OPTIONS,
    HELP,
    SvcOptions,
    check_question,
    check_record,
    parse_options,
    to_number,
)
from .short_errors import hide_interrupt

if TYPE_CHECKING:
    from .subcommands import Command


class SvcCommand:
    """Runs `%svc` and `%%svc`; `traits` holds the defaults that `%config` sets."""

    def __init__(self, shell: InteractiveShell, traits: SvcTraits) -> None:
        self.shell = shell
        self._traits = traits
        self._memory = KernelMemory(CellRequestIds(shell), Places(shell))

    def close(self) -> None:
        """Stop watching the shell."""
        self._memory.places.close()

    def help(self) -> str:
        """Return the whole help page, with the defaults in force."""
        from .subcommands import help_page  # noqa: PLC0415 - not for a plain cell

        context = CellContext(self.shell, self._traits, self._memory)
        return str(help_page(context, "all"))

    def run(
        self, line: str, cell: str | None, local_ns: Mapping[str, object] | None
    ) -> object:
        """Run a line of `%svc`, or a line of `%%svc` with its cell."""
        local_names = {**names_of_functions(), **(local_ns or {})}
        context = CellContext(self.shell, self._traits, self._memory, local_names)
        with _short_errors(context):
            try:
                return _run(context, line, cell)
            except KeyboardInterrupt as stopped:
                raise _show_interrupt(context, stopped) from None


def _show_interrupt(context: CellContext, stopped: KeyboardInterrupt) -> Interrupted:
    """Show an interrupt as one line instead of a traceback; return the error to raise.

    If a reply was streaming, its output shows the interrupt already. The cell must
    fail, so that the cells queued after it do not run.
    """
    hide_interrupt(context.shell)
    if isinstance(stopped, Interrupted):
        return stopped
    footer = "" if context.is_sending else "nothing was sent"
    final = Final(texts=(), marks=("interrupted",), footer=footer)
    ReplyDisplay.open(context.mode, own_output=False).finish(final)
    return Interrupted()


@contextmanager
def _short_errors(context: CellContext) -> Iterator[None]:
    """Show our own errors as a box; other errors keep their traceback."""
    try:
        yield
    except SvcError as error:
        if context.traits.show_traceback:
            raise
        from svc_notebook.display.error_box import ErrorBox  # noqa: PLC0415 - rare

        box = ErrorBox.of(error).text(is_terminal=context.is_terminal)
        # Set on the instance, so that the class does not depend on notebooks. One item:
        # a Markdown page made of the notebook has a blank line after each item.
        error._render_traceback_ = lambda: [box]  # type: ignore[attr-defined]
        raise


def _run(context: CellContext, line: str, cell: str | None) -> object:
    options = parse_options(line)
    if cell is not None and options.text != HELP:
        if not cell.strip():
            raise _no_prompt(options.text)
        if options.text:
            raise _text_among_options(options.text)
        return _ask(context, options, cell, own_output=context.owns_output)
    from .conversation_commands import is_conversation  # noqa: PLC0415 - not for a plain cell
    from .subcommands import BY_NAME, parse_command  # noqa: PLC0415 - not for a plain cell

    # the end of a line is there if others are below it
    has_more = options.text != line.strip() or line.endswith("\n")
    is_name = partial(is_conversation, context.session)
    command_line = parse_command(
        options.text,
        has_more=has_more,
        is_name=is_name,
        conversation=options.conversation,
    )
    if command_line.name == ASK:
        check_question(options.text, line.strip())
        return _ask(context, options, command_line.text, own_output=False)
    command = BY_NAME[command_line.name]
    if command.name in COMMANDS_WITH_OPTIONS:
        answer = command.run(context, options, *command_line.arguments)
    else:
        answer = _run_quiet(command, context, command_line.arguments)
    if not isinstance(answer, str):
        return answer
    context.say(answer)
    return None


def _run_quiet(
    command: "Command", context: CellContext, arguments: tuple[str, ...]
) -> object:
    """Run a command that sends nothing; if it fails, the headline names it."""
    try:
        return command.run(context, *arguments)
    except AskError as error:
        error.verb = f"%svc {command.name}"
        raise


def _no_prompt(text: str) -> ParameterError:
    remedy = (
        f" If that line is the question or a command, write `%svc {text}`."
        if text
        else ""
    )
    return ParameterError(
        f"The cell has no prompt: write it below the first line.{remedy}", param="line"
    )


def _text_among_options(text: str) -> ParameterError:
    remedy = (
        "Put the prompt below that line, ask in one line with %svc, or put quotes "
        "around an option's value that has blanks."
    )
    if to_number(text.split(maxsplit=1)[0]) is not None:
        remedy = "Several values have a comma and no blank between them: `-t 0,0.7`."
    return ParameterError(
        f"{text!r} is on the line of options and would not be sent. {remedy}",
        param="line",
    )


def _ask(
    context: CellContext, options: SvcOptions, text: str, *, own_output: bool
) -> object:
    """Send a prompt: the options ask for a value, several replies, or one reply."""
    context.check_output(options.output)
    check_record(options)
    if options.type_name:
        from .as_option import ask_for_value  # noqa: PLC0415 - with --as

        return ask_for_value(context, options, text)
    if options.is_several:
        from .grid_cell import ask_several  # noqa: PLC0415 - with several values

        return ask_several(context, options, text)
    toolbox = None
    if options.tools or context.traits.tools:
        from .tools_command import offered_tools  # noqa: PLC0415 - with --tools

        toolbox = offered_tools(context, options)
    request = to_request(context, options, text, toolbox)
    if options.is_dry:
        from .dry_run import dry_run  # noqa: PLC0415 - with --dry-run

        return dry_run(context, options, request)
    return CellReply(context, options, request, toolbox).complete(own_output=own_output)
