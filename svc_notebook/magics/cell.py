"""The edge of the notebook: how a failure looks in a cell.

Rules: the only place that shortens; a `SvcError` becomes one short box and stays
an error, so that the cell fails and Run All stops; an interrupt stays a
KeyboardInterrupt for the same reason; nothing is swallowed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from svc_notebook.completion import Completion
from svc_notebook.display.reply import LINE_CHARS, error_lines
from svc_notebook.display.stream import Mode
from svc_notebook.errors import SvcError

_MIN_CHARS = 20


class Interrupted(KeyboardInterrupt):
    """An interrupt that was dealt with: one line instead of a traceback.

    Attributes:
        partial: What had come; None if nothing had.
    """

    def __init__(self, partial: Completion | None = None) -> None:
        super().__init__()
        self.partial = partial

    def _render_traceback_(self) -> list[str]:
        has_text = self.partial is not None and self.partial.choices
        kept = " - what had come is kept: svc.last()" if has_text else ""
        return [f"(interrupted{kept})"]


@contextmanager
def short_errors(*, is_on: bool = True, is_terminal: bool = False) -> Iterator[None]:
    """Show our own errors as one box; everything else keeps its traceback.

    Args:
        is_on: Whether to; else our own errors keep theirs too.
        is_terminal: Whether its lines are as short as the terminal is narrow.
    """
    try:
        yield
    except SvcError as error:
        if not is_on:
            raise
        said = [str(error), *getattr(error, "__notes__", ())]
        n_chars = LINE_CHARS
        if is_terminal:
            n_chars = max(_MIN_CHARS, min(n_chars, get_terminal_size().columns - 3))
        lines = error_lines(type(error).__name__, said, n_chars=n_chars)
        # IPython asks the instance; the class stays free of any notebook.
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
        raise


def mode_of(display: str, shell: Any) -> Mode:  # noqa: ANN401 - any IPython shell
    """Choose how to show replies.

    Args:
        display: The setting: auto, live, settled or plain.
        shell: The IPython shell that runs the cell.
    """
    if display != "auto":
        return Mode(display)
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return Mode.PLAIN
    content = (shell.get_parent() or {}).get("content", {})
    return Mode.LIVE if content.get("allow_stdin", True) else Mode.SETTLED


class DrawnOnce:
    """Passes over the value of this execution when IPython draws it.

    Args:
        shell: The shell that runs the cell.
        completion: What the cell has shown already.
    """

    def __init__(self, shell: InteractiveShell, completion: Completion) -> None:
        self._shell = shell
        self._completion = completion
        self._printers()[Completion] = self._draw
        if getattr(shell, "kernel", None) is None:
            # A terminal writes "Out[3]:" before it asks how to draw a value.
            vars(shell.displayhook)["write_output_prompt"] = lambda: None
        shell.events.register("post_run_cell", self._end)

    def _draw(self, completion: Completion) -> None:
        self._end()
        if completion is not self._completion:
            display(completion)

    def _end(self, *_: object) -> None:
        self._printers().pop(Completion, None)
        vars(self._shell.displayhook).pop("write_output_prompt", None)
        with suppress(ValueError):  # the other way here was first
            self._shell.events.unregister("post_run_cell", self._end)

    def _printers(self) -> dict[type, Callable[[Completion], None]]:
        """IPython asks these first; where one draws, nothing else does."""
        formatter = self._shell.display_formatter
        if formatter is None:
            return {}
        printers: dict[type, Callable[[Completion], None]] = (
            formatter.ipython_display_formatter.type_printers
        )
        return printers


class Places:
    """Counts the asks of each execution.

    Args:
        shell: The shell that runs the cells.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._execution = ""
        self._n_asks = 0

    def next(self) -> str | None:
        """Name the turn of the next ask; None where cells have no names."""
        parent: dict[str, Any] = getattr(self._shell, "get_parent", dict)() or {}
        cell_id = parent.get("metadata", {}).get("cellId")
        if not cell_id:
            return None
        execution = parent.get("header", {}).get("msg_id", "")
        if execution != self._execution:
            self._execution, self._n_asks = execution, 0
        self._n_asks += 1
        return f"{cell_id}.{self._n_asks}"
