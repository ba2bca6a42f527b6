"""How and where a cell shows a reply, and that it is not drawn twice."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from svc_notebook import Completion
from svc_notebook.display.cell_output import cell_ids
from svc_notebook.display.final_reply import Final
from svc_notebook.display.footer import REASONING
from svc_notebook.display.reply_display import ReplyDisplay, Wait
from svc_notebook.errors import ParameterError
from svc_notebook.service.chunk import Delta

MAX_PLACES = 20  # the places of this many replies are remembered


@dataclass(slots=True)
class Place:
    """Where a reply is shown."""

    cell: tuple[str, str]  # ids of the cell and of its execution
    number: int  # of the execution, as in `In [3]`
    display: ReplyDisplay
    draw: Callable[[Completion], Final]
    output: str | None  # name of the variable that has the reply
    run_again: str = ""  # a later execution of the cell


class Places:
    """Where the newest replies are shown, by the ids of their exchanges."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._known: dict[str, Place] = {}
        shell.events.register("pre_run_cell", self.note_run)

    def close(self) -> None:
        """Stop watching which cells run."""
        self._shell.events.unregister("pre_run_cell", self.note_run)

    def here(
        self,
        display: ReplyDisplay,
        draw: Callable[[Completion], Final],
        output: str | None,
    ) -> Place:
        """Return a place in the cell that runs."""
        # IPython counts on before the cell or after it
        number = len(getattr(self._shell.history_manager, "input_hist_raw", ())) - 1
        return Place(cell_ids(self._shell), number, display, draw, output)

    def put(self, exchange_id: str, place: Place) -> None:
        """Note where a reply is shown; the oldest note goes."""
        self._known[exchange_id] = place
        if len(self._known) > MAX_PLACES:
            del self._known[next(iter(self._known))]

    def find(self, exchange_id: str) -> Place | None:
        """Return where a reply is shown; refuse if its cell was run again since."""
        place = self._known.get(exchange_id)
        if place and place.run_again not in {"", cell_ids(self._shell)[1]}:
            raise ParameterError(
                f"The cell of this reply, [{place.number}], was run again since, so "
                "the reply is not there any more. Ask again.",
                param="line",
            )
        return place

    def note_run(self, *_: object) -> None:
        """Note that a cell begins to run."""
        cell_id, execution = cell_ids(self._shell)
        for place in self._known.values():
            if cell_id == place.cell[0] != "" and execution != place.cell[1]:
                place.run_again = execution


class CellView:
    """Shows one reply in its place: while it streams, then in its final form."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._display = place.display

    def show(self, delta: Delta) -> None:
        """Show a piece of the reply, or that the model reasons."""
        self._display.add(delta.text or "", delta.index)
        if delta.reasoning and not delta.text:
            self._display.status(REASONING)

    def wait(self, wait: Wait) -> None:
        """Show a wait."""
        self._display.wait(wait)

    def flush(self) -> float | None:
        """Show what is new, if it is time; else return the seconds until then."""
        return self._display.flush()

    def end(self, completion: object | None) -> None:
        """Show the final form of what arrived; remove the output if nothing did."""
        has_reply = isinstance(completion, Completion) and completion.choices
        self._display.finish(self.place.draw(completion) if has_reply else None)  # type: ignore[arg-type]  # just tested


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
