"""Draw a reply once: the cell that streamed it does not show its value again.

IPython draws the value of a cell; the reply is there already. Rules: only the
value of the execution that streamed it is passed over, once; `_`, `Out` and the
variable hold it all the same, and shown later it is drawn.
"""

from collections.abc import Callable
from contextlib import suppress

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from svc_notebook.completion import Completion


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
