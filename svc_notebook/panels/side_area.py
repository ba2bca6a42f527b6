"""A panel in JupyterLab's side area, where it stays visible while cells scroll.

The package `sidecar` opens it: a widget whose outputs JupyterLab shows there. The page
reports when it is closed or has to come to the front (`static/chat/side_area.js`).
"""

from typing import Any, Literal

from svc_notebook.errors import ParameterError, import_extra

PanelPlace = Literal["cell", "right"]
PLACES = ("cell", "right")
_NEEDS = "The panel is in this cell: in JupyterLab's side area it needs"


def check_place(place: str) -> None:
    """Refuse a place that does not exist."""
    if place not in PLACES:
        raise ParameterError(
            f"place must be 'cell', or 'right' for the side area of JupyterLab; got "
            f"{place!r}.",
            param="place",
        )


class SideArea:
    """Shows a panel in the side area, in one `Sidecar` at a time."""

    def __init__(self) -> None:
        self._sidecar: Any = None

    @property
    def sidecar_id(self) -> str:
        """The id of the open sidecar; empty if the panel is in its cell."""
        is_open = self._sidecar is not None and self._sidecar.comm is not None
        return str(self._sidecar.model_id) if is_open else ""

    def open(self, title: str) -> None:
        """Open an empty sidecar in front; close the one that is open.

        Raises:
            ConfigError: `sidecar` is not installed.
        """
        sidecar = import_extra("sidecar", _NEEDS)
        self.close()
        self._sidecar = sidecar.Sidecar(title=title, anchor="right")

    def fill(self, widget: dict[str, Any]) -> None:
        """Show a widget in the sidecar; the page must know the sidecar's id by now."""
        output = {"output_type": "display_data", "data": widget, "metadata": {}}
        self._sidecar.outputs = (output,)

    def close(self) -> None:
        """Close the sidecar."""
        if self._sidecar is not None:
            self._sidecar.close()
            self._sidecar = None
