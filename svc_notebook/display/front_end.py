"""The front end that shows replies: the output of a cell, or a terminal."""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from shutil import get_terminal_size
from typing import Any, TypeAlias

from svc_notebook.errors import write_line

from .escape import to_terminal
from .html_styles import message_html, quiet_html, warning_html
from .terminal_width import WordWrap, wrapped

Bundle: TypeAlias = Mapping[str, str]


def _publish(bundle: Bundle, display_id: str | None) -> None:
    from IPython.display import display  # noqa: PLC0415 - optional at import

    display(dict(bundle), raw=True, display_id=display_id)


def _update(bundle: Bundle, display_id: str) -> None:
    from IPython.display import update_display  # noqa: PLC0415 - optional at import

    update_display(dict(bundle), display_id=display_id, raw=True)


def _clear(*, wait: bool) -> None:
    from IPython.display import clear_output  # noqa: PLC0415 - optional at import

    clear_output(wait=wait)


def _write(text: str) -> None:
    # A letter that the terminal cannot encode is written as an escape.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def _columns() -> int:
    try:
        return get_terminal_size().columns if sys.stdout.isatty() else 0
    except (AttributeError, ValueError):  # it is missing or closed
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The output of a cell, or of a terminal.

    Attributes:
        publish: Adds an output to the cell; with a display id it can be updated.
        update: Replaces the output that has this display id, wherever it is.
        clear: Empties the cell when its next output comes.
        erase: Empties the cell now.
        write: Prints text that is already safe for a terminal.
        columns: Returns the width of the terminal that it prints to; 0 if it is none.
    """

    publish: Callable[[Bundle, str | None], None] = _publish
    update: Callable[[Bundle, str], None] = _update
    clear: Callable[[], None] = lambda: _clear(wait=True)
    erase: Callable[[], None] = lambda: _clear(wait=False)
    write: Callable[[str], None] = _write
    columns: Callable[[], int] = _columns


class Screen(StrEnum):
    """Where widgets and progress bars can be shown."""

    NOTEBOOK = "notebook"
    TERMINAL = "terminal"
    NONE = "none"


def is_terminal() -> bool:
    """Whether standard error is a terminal; False if it is missing or closed."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def write_note(line: str) -> None:
    """Write a remark that is not an error: a quiet line in a cell, else on stderr.

    In a cell, stderr would look like an error.
    """
    _write_remark(line, quiet_html(message_html(line)))


def write_warning(line: str) -> None:
    """Write that a number may be wrong, or what to do next; a cell marks it."""
    _write_remark(line, warning_html(line))


def _write_remark(line: str, html: str) -> None:
    text = to_terminal(line)
    if _kernel_shell() is None:
        write_line(fitted_to_terminal(text))
        return
    with suppress(Exception):  # as `write_line`: a remark stops nothing
        _publish({"text/html": html, "text/plain": text}, None)


def is_colab() -> bool:
    """Whether this is a kernel of Colab, which has imported Colab's own package."""
    return "google.colab" in sys.modules


def fitted_to_terminal(text: str) -> str:
    """Break lines at blanks where a terminal ends; elsewhere they stay as they are."""
    n_columns = _columns() - 1  # as `WordWrap`, since some terminals break a full line
    if n_columns < 0:
        return text
    return "\n".join(wrapped(line, n_columns) for line in text.split("\n"))


def as_streamed(text: str) -> str:
    """Break the lines of a message where a terminal has them while it streams."""
    n_columns = _columns()
    return WordWrap().add(text, n_columns) if n_columns else text


def parent_message(shell: object) -> dict[str, Any]:
    """Return the message that a kernel is processing; empty outside of a kernel."""
    return getattr(shell, "get_parent", dict)() or {}


def cell_ids(shell: object) -> tuple[str, str]:
    """Return the ids of the running cell and of this execution; "" if unknown."""
    parent = parent_message(shell)
    cell_id = parent.get("metadata", {}).get("cellId") or ""
    return cell_id, parent.get("header", {}).get("msg_id", "")


def can_answer(shell: object) -> bool:
    """Whether a user sees this cell run and could answer a question."""
    content = parent_message(shell).get("content", {})
    return bool(content.get("allow_stdin", True))


def find_screen(display: str = "auto") -> Screen:
    """Return where this cell or program can show widgets and progress bars.

    Args:
        display: The setting `display`: "auto", "live", "settled" or "plain".
    """
    if display == "settled":
        return Screen.NONE
    terminal = Screen.TERMINAL if is_terminal() else Screen.NONE
    shell = _kernel_shell()
    if shell is None or display == "plain":
        return terminal
    is_live = display == "live" or can_answer(shell)
    return Screen.NOTEBOOK if is_live else Screen.NONE


def running_shell() -> Any:  # noqa: ANN401 - IPython's
    """Return IPython's shell; None outside of IPython, which is then not imported."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module else None


def shows_values() -> bool:
    """Whether what a line returns is shown, as IPython does; a script does not."""
    return running_shell() is not None or hasattr(sys, "ps1")


def _kernel_shell() -> object | None:
    """Return IPython's shell if it runs in a kernel."""
    shell = running_shell()
    return None if getattr(shell, "kernel", None) is None else shell
