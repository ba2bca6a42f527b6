"""The edge of the notebook: how a failure looks in a cell.

Rules: the only place that shortens; a `SvcError` becomes one short box and stays
an error, so that the cell fails and Run All stops; an interrupt stays a
KeyboardInterrupt for the same reason; nothing is swallowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size

from svc_notebook.completion import Completion
from svc_notebook.display.reply import LINE_CHARS, error_lines
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
