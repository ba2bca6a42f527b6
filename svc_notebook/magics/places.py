"""Which turn a cell is: the same cell run again asks the same turn again.

A front end that names its cells sends the name with each request (JupyterLab and
Notebook 7 do; a terminal and a headless run do not). Rules: two asks in one
execution are two turns, in their order.
"""

from typing import Any

from IPython.core.interactiveshell import InteractiveShell


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
