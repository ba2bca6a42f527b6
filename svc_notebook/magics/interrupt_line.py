"""An interrupted cell: one line in its output, and no traceback."""

from IPython.core.interactiveshell import InteractiveShell

from svc_notebook import Completion
from svc_notebook.display.reply_display import Final, Mode, ReplyDisplay
from svc_notebook.errors import Interrupted

from .cell_context import CellContext


def show_interrupt(context: CellContext, stopped: KeyboardInterrupt) -> Interrupted:
    """Show an interrupt as one line instead of a traceback; return the error to raise.

    If a reply was streaming, its output shows the interrupt already. The cell must
    fail, so that the cells queued after it do not run.
    """
    if (
        context.mode is not Mode.SETTLED
    ):  # in a saved notebook the failure must be visible
        _hide_traceback(context.shell)
    if isinstance(stopped, Interrupted):
        return stopped
    footer = "" if context.is_sending else "nothing was sent"
    final = Final(texts=(), marks=("interrupted",), footer=footer)
    ReplyDisplay.open(context.mode, own_output=False).finish(final)
    return Interrupted()


def _hide_traceback(shell: InteractiveShell) -> None:
    """Stop IPython from showing the interrupt until this cell has ended."""
    show = type(shell)._showtraceback  # noqa: SLF001 - IPython calls it to show errors

    def show_others(kind: type, error: BaseException, lines: list[str]) -> None:
        if isinstance(error, Interrupted):
            vars(shell)["_last_traceback"] = lines  # the kernel sends it in its reply
        else:
            show(shell, kind, error, lines)

    def end(*_: object) -> None:
        vars(shell).pop("_showtraceback", None)
        shell.events.unregister("post_run_cell", end)

    vars(shell)["_showtraceback"] = show_others
    shell.events.register("post_run_cell", end)


def interrupted(partial: object) -> Final:
    """Return what is shown if the interrupt came before any text."""
    if isinstance(partial, Completion):
        return partial.final()
    return Final(texts=(), marks=("interrupted",), footer="nothing was sent")
