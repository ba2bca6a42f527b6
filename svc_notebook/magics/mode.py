"""How a cell shows replies: live, settled or plain.

Rules: pure but for one look at the shell; a setting other than `auto` wins; a
request that forbids stdin has nobody watching (nbclient, nbval, papermill).
"""

from typing import Any

from svc_notebook.display.stream import Mode


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
