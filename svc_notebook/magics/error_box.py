"""The box that a cell shows for one of our errors, in place of a traceback."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import wrap

from svc_notebook.display.markup import to_terminal
from svc_notebook.errors import SvcError

LINE_CHARS = 70
_MIN_CHARS = 20
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


@contextmanager
def short_errors(*, is_on: bool = True, is_terminal: bool = False) -> Iterator[None]:
    """Show our own errors as one box; everything else keeps its traceback."""
    try:
        yield
    except SvcError as error:
        if not is_on:
            raise
        said = [str(error), *getattr(error, "__notes__", ())]
        n_chars = get_terminal_size().columns - 3 if is_terminal else LINE_CHARS
        n_chars = max(_MIN_CHARS, min(n_chars, LINE_CHARS))
        lines = error_lines(type(error).__name__, said, n_chars)
        # IPython asks the instance; the class stays free of any notebook.
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
        raise


def error_lines(title: str, lines: Sequence[str], n_chars: int) -> list[str]:
    """Draw an expected failure as lines; the title is bold, unless NO_COLOR is set."""
    plain = [
        part
        for line in lines
        for paragraph in line.split("\n")
        # hosts break a long line anywhere, in the middle of a word
        for part in wrap(to_terminal(paragraph), n_chars) or [""]
    ]
    head = to_terminal(title.replace("\n", " "))
    if not os.environ.get("NO_COLOR"):
        head = f"{_BOLD}{head}{_RESET}"
    return [head, *(f"  {line}" for line in plain)]
