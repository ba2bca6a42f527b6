"""The open panels of this kernel, and the cells that have opened them."""

from typing import Any

from svc_notebook.display.front_end import parent_message, running_shell


class PanelsOfCells:
    """The panels of each cell, so that a cell that runs again gets its panel back."""

    def __init__(self) -> None:
        self._panels: dict[str, list[Any]] = {}
        self._runs: dict[str, str] = {}
        self._earlier: list[Any] = []  # of the running cell, from its last run
        self._open: list[Any] = []  # in all cells, the newest last
        self._cell = ""

    def take(self, subject: object) -> Any:  # noqa: ANN401 - a panel of this subject
        """Return the running cell's old panel on this subject; close its others."""
        message = parent_message(running_shell())
        self._cell = str(message.get("metadata", {}).get("cellId", ""))
        run = str(message.get("header", {}).get("msg_id", ""))
        if self._cell and self._runs.get(self._cell) != run:
            self._runs[self._cell] = run
            self._earlier = self._panels.pop(self._cell, [])
        alive = [panel for panel in self._earlier if panel.comm is not None]
        for panel in alive:
            if panel.subject is subject:
                self._earlier.remove(panel)
                return panel
        for panel in alive:
            panel.close()
        return None

    def open_on(self, subject: object) -> list[Any]:
        """Return the open panels on this subject, the newest first."""
        self._open = [panel for panel in self._open if panel.comm is not None]
        return [panel for panel in reversed(self._open) if panel.subject is subject]

    def keep(self, panel: Any) -> None:  # noqa: ANN401 - of either kind
        """Remember a panel; in a notebook, also which cell has opened it."""
        self._open = [*(other for other in self._open if other is not panel), panel]
        if self._cell:
            self._panels.setdefault(self._cell, []).append(panel)


PANELS = PanelsOfCells()
