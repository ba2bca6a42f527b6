"""The texts of a failed tool call: one line for the model, a traceback for the user.

The model never gets the traceback: it may show files and values of this machine.
"""

import traceback
from pathlib import Path

_HERE = str(Path(__file__).parent)


class FailedError(Exception):
    """A call failed; the error is for the model, the traceback for the user."""

    def __init__(self, error: str, traceback: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.traceback = traceback


def one_line_of(problem: BaseException) -> str:
    """Return an exception as one line."""
    name = type(problem).__name__
    try:
        text = str(problem)
    except Exception:  # noqa: BLE001 - an error's own text may raise anything
        text = ""
    return f"{name}: {text}" if text.strip() else name


def traceback_of(problem: BaseException) -> str:
    """Return the traceback of an error, beginning with the user's code."""
    trace = problem.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(problem), problem, trace))
    except Exception:  # noqa: BLE001 - the error's own text may raise anything
        return f"{type(problem).__name__}, whose text cannot be read\n"


def is_ours(filename: str) -> bool:
    """Say whether code is this package's own, which tracebacks leave out."""
    return str(Path(filename).parent) == _HERE
