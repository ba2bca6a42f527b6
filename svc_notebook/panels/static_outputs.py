"""The outputs next to a panel that a notebook shows without a kernel."""

from contextvars import Context, copy_context
from threading import RLock

from svc_notebook.display.front_end import Bundle, Output

_AGAIN = "-again"  # no page knows such a display id, so none draws again what it has


def _mark(display_id: str) -> dict[str, str]:
    """Return metadata, in which a display id is saved.

    JupyterLab forgets display ids with the page. By these `keepOutput`, in
    `extension.js`, finds an output in a page that was reloaded.
    """
    return {"svc_notebook": display_id.removesuffix(_AGAIN)}


def _publish(bundle: Bundle, display_id: str | None) -> None:
    from IPython.display import display  # noqa: PLC0415 - optional at import

    metadata = _mark(display_id) if display_id else {}
    display(dict(bundle), raw=True, display_id=display_id, metadata=metadata)


def _update(bundle: Bundle, display_id: str) -> None:
    from IPython.display import update_display  # noqa: PLC0415 - optional at import

    metadata = _mark(display_id)
    update_display(dict(bundle), raw=True, display_id=display_id, metadata=metadata)


class StaticOutputs:
    """A panel's widget and numbered outputs below it, in the cells that show it.

    Attributes:
        name: The display id of the widget; the others begin with it.
    """

    def __init__(self, name: str, output: Output | None = None) -> None:
        self.name = name
        self._output = output or Output(publish=_publish, update=_update)
        self._cell: Context | None = None  # the newest that shows the panel
        self._written: dict[int, Bundle] = {}
        self._lock = RLock()  # so that what is written last is the newest

    @property
    def is_shown(self) -> bool:
        """Whether a cell shows the panel."""
        return self._cell is not None

    def __len__(self) -> int:
        """Return how many outputs there are, without the widget."""
        return len(self._written)

    def show(self, widget: Bundle | None) -> None:
        """Begin in this cell, with the widget if one is given."""
        self._cell, self._written = copy_context(), {}
        if widget is not None:
            self._output.publish(widget, self.name)

    def show_alone(self, bundle: Bundle) -> None:
        """Show something in this cell that will not change."""
        self._output.publish(bundle, None)

    def replace_widget(self, bundle: Bundle) -> None:
        """Show something in the widget's place."""
        self._output.update(bundle, self.name)

    def write(self, at: int, bundle: Bundle) -> None:
        """Write an output; a new one belongs to the cell that shows the panel."""
        with self._lock:
            is_new, name = at not in self._written, f"{self.name}-{at}"
            self._written[at] = bundle
            if not is_new:
                self._output.update(bundle, name)
            elif self._cell is not None:
                self._cell.copy().run(self._output.publish, bundle, name)

    def repeat(self) -> None:
        """Write all again, for a page that has been opened since."""
        with self._lock:
            for at, bundle in self._written.items():
                self._output.update(bundle, f"{self.name}-{at}{_AGAIN}")
