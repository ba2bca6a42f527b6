"""The box that shows an error in a cell: a bold headline and the message."""

import os
from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import wrap
from traceback import walk_tb

from svc_notebook.errors import AskError, ServiceError, SvcError

from .escape import to_terminal

# fits a notebook of 1280 pixels with an open side bar; a kernel does not know the width
LINE_CHARS = 96
_MIN_CHARS = 20  # even if a terminal reports fewer columns
_REFUSED_STATUS = 400  # with a lower status, the error came within a stream
_PACKAGE = __name__.split(".", maxsplit=1)[0]
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"
# verbs that send nothing, so it is no news that nothing was sent; so are all `*_df`
QUIET_VERBS = frozenset(
    {
        *("agreement", "as_replies", "categories", "compare", "contrast", "describe"),
        *("estimate_tokens", "export", "export_answers", "flips", "how_many", "plot"),
        *("ranking", "rate", "read", "read_answers", "read_eval", "read_parquet"),
        *("reply", "report", "score", "take_ratings", "to_arrow", "to_eval"),
        *("to_polars", "to_rate", "trend", "write_parquet"),
    }
)
_HEADLINES = {
    "AuthError": "The key was refused",
    "BadRequestError": "The request was refused",
    "UnknownModelError": "The model or the address is unknown",
    "RateLimitError": "Too many requests",
    "ServerFaultError": "The service failed",
    "MissingKeyError": "There is no usable key",
    "SpendingLimitError": "The spending limit is reached",
    "ConfigError": "A setting cannot be used",
    "OverBudgetError": "Too long, so it was not sent",
    "AskError": "Nothing was sent",
    "NoConnectionError": "No connection",
    "TimedOutError": "The service took too long",
    "TransportError": "The reply broke off",
    "DocumentError": "The answer cannot be used",
    "CutError": "The reply was cut",
    "ToolLoopError": "The tool calls did not come to an end",
    "ToolSchemaError": "A type or a tool cannot be used",
    "ToolError": "A tool cannot be used",
    "LedgerError": "The ledger cannot be used",
    "SvcError": "This did not work",
}


def error_box(
    error: SvcError, *, is_terminal: bool = False, more: Sequence[str] = ()
) -> str:
    """Return one of our errors, with its notes, as a box of the screen's width.

    Args:
        error: The error.
        is_terminal: Whether it is shown in a terminal instead of a notebook.
        more: Further lines below the notes.
    """
    n_chars = get_terminal_size().columns - 3 if is_terminal else LINE_CHARS
    n_chars = max(_MIN_CHARS, min(n_chars, LINE_CHARS))
    title = headline(error)
    # the headline says it already
    lines = [line.removesuffix(f" {title}.") for line in error.lines]
    return "\n".join(error_lines(title, [*lines, *more], n_chars))


def headline(error: SvcError) -> str:
    """Return the headline for this kind of error, with the status of a refusal."""
    if type_name := getattr(error, "type_name", ""):
        return f"The reply does not fit {type_name}"
    names = (class_.__name__ for class_ in type(error).__mro__)
    text = next(_HEADLINES[name] for name in names if name in _HEADLINES)
    if isinstance(error, AskError) and (verb := _verb(error)):
        return f"{verb} did not work"
    status = error.status if isinstance(error, ServiceError) else 0
    return f"{text} ({status})" if status >= _REFUSED_STATUS else text


def _verb(error: SvcError) -> str:
    """Return the verb that the user called, if it sends nothing; "" if it may send."""
    names = (
        frame.f_code.co_name
        for frame, _ in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").split(".")[0] == _PACKAGE
    )
    verb = next(names, "")
    return verb if verb in QUIET_VERBS or verb.endswith("_df") else ""


def error_lines(title: str, lines: Sequence[str], n_chars: int) -> list[str]:
    """Return an expected failure as lines; the title is bold if colours are allowed."""
    plain = [
        part
        for line in lines
        for paragraph in line.split("\n")
        # hosts would break a long line anywhere, even within a word
        for part in wrap(to_terminal(paragraph), n_chars) or [""]
    ]
    head = to_terminal(title.replace("\n", " "))
    if not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        head = f"{_BOLD}{head}{_RESET}"
    return [head, *(f"  {line}" for line in plain)]
