"""What `%%svc` and `%svc` need of IPython: source as typed, and one output."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from svc_notebook.display.live import Mode, ReplyDisplay
from svc_notebook.display.output import can_answer, parent_message
from svc_notebook.display.reply import Final
from svc_notebook.errors import Interrupted


def mode_of(display: str, shell: InteractiveShell) -> Mode:
    """Choose how to show replies, from the setting `display` and the shell."""
    if display != "auto":
        return Mode(display)
    if getattr(shell, "kernel", None) is None:
        return Mode.PLAIN
    return Mode.LIVE if can_answer(shell) else Mode.SETTLED


class HiddenResult:
    """Keeps IPython from drawing the value of this cell, which is shown already."""

    def __init__(self, shell: InteractiveShell, value: object) -> None:
        self._shell = shell
        self._value = value
        self._printers()[type(value)] = self._draw
        if getattr(shell, "kernel", None) is None:
            # A terminal writes "Out[3]:" before it asks how to draw a value.
            hook = vars(shell.displayhook)
            hook["write_output_prompt"] = lambda: None
            hook["compute_format_data"] = self._format
        shell.events.register("post_run_cell", self._end)

    def _draw(self, value: object) -> None:
        self._end()
        if value is not self._value:
            display(value)

    def _format(self, value: object) -> object:
        hook = self._shell.displayhook
        vars(hook).pop("compute_format_data", None)
        vars(hook).pop("write_output_prompt", None)
        if value is not self._value:
            hook.write_output_prompt()
        return hook.compute_format_data(value)

    def _end(self, *_: object) -> None:
        self._printers().pop(type(self._value), None)
        vars(self._shell.displayhook).pop("write_output_prompt", None)
        vars(self._shell.displayhook).pop("compute_format_data", None)
        with suppress(ValueError):  # it was removed before
            self._shell.events.unregister("post_run_cell", self._end)

    def _printers(self) -> dict[type, Callable[[object], None]]:
        """Return the printers that IPython tries first; if one draws, no other does."""
        formatter = self._shell.display_formatter
        if formatter is None:
            return {}
        printers: dict[type, Callable[[object], None]] = (
            formatter.ipython_display_formatter.type_printers
        )
        return printers


def cell_ids(shell: InteractiveShell) -> tuple[str, str]:
    """Return the ids of the cell that runs and of this execution, "" where unknown."""
    parent = parent_message(shell)
    cell_id = parent.get("metadata", {}).get("cellId") or ""
    return cell_id, parent.get("header", {}).get("msg_id", "")


NO_VALUE = object()  # what a function's own name has where it was not assigned


def own_names() -> dict[str, object]:
    """Return the names of the function that a line magic is in, without their values.

    With those of enclosing functions that are running: no global has these names.
    """
    names: dict[str, object] = {}
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - IPython looks so, too
    while frame and frame.f_code.co_name != "run_line_magic":
        frame = frame.f_back
    frame = frame and frame.f_back
    code = frame.f_code if frame else None
    while frame:
        found = frame.f_code
        if found is code or code in found.co_consts:
            own = (*found.co_varnames, *found.co_cellvars, *found.co_freevars)
            names.update(dict.fromkeys(own, NO_VALUE))
            code = found
        frame = frame.f_back
    return names


@contextmanager
def calm_interrupt(
    shell: InteractiveShell, mode: Callable[[], Mode], is_sending: Callable[[], bool]
) -> Iterator[None]:
    """Keep IPython from drawing an interrupt, which the output of the reply says.

    One that came while no stream was followed is said here, in one line.

    The cell fails all the same, so the cells that wait behind it do not run.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        if mode() is not Mode.SETTLED:  # else the file must tell that the cell failed
            _hide_interrupt(shell)
        if isinstance(stopped, Interrupted):
            raise
        footer = "" if is_sending() else "nothing was sent"
        said = Final(texts=(), marks=("interrupted",), footer=footer)
        ReplyDisplay.open(mode(), own_output=False).finish(said)
        raise Interrupted from None


def _hide_interrupt(shell: InteractiveShell) -> None:
    show = type(shell)._showtraceback  # noqa: SLF001 - IPython asks it to draw errors

    def show_others(kind: type, error: BaseException, lines: list[str]) -> None:
        if isinstance(error, Interrupted):
            vars(shell)["_last_traceback"] = lines  # what a kernel replies with
        else:
            show(shell, kind, error, lines)

    def end(*_: object) -> None:
        vars(shell).pop("_showtraceback", None)
        shell.events.unregister("post_run_cell", end)

    vars(shell)["_showtraceback"] = show_others
    shell.events.register("post_run_cell", end)


class CellRequestIds:
    """Numbers the requests of each execution of a cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._execution = ""
        self._n_requests = 0

    def next(self) -> str | None:
        """Return the next request's id; None in a front end without cell ids."""
        cell_id, execution = cell_ids(self._shell)
        if not cell_id:
            return None
        if execution != self._execution:
            self._execution, self._n_requests = execution, 0
        self._n_requests += 1
        return f"{cell_id}.{self._n_requests}"
