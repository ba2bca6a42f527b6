"""The box that shows an error in a cell: a bold headline and the message."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from textwrap import wrap
from traceback import walk_tb

from svc_notebook.errors import AskError, ServiceError, SvcError

from .escape import to_terminal
from .front_end import Bundle
from .html_styles import verbatim_message_html

# fits a cell of 620 pixels, or a terminal; a kernel does not know the width of a cell
LINE_CHARS = 72
_MIN_CHARS = 20  # even if a terminal reports fewer columns
_REFUSED_STATUS = 400  # with a lower status, the error came within a stream
_PACKAGE = __name__.split(".", maxsplit=1)[0]
_INDENT = "style=padding-left:.5em"  # about as a host indents the headline
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"
# verbs that send nothing, so it is no news that nothing was sent; so are all `*_df`
QUIET_VERBS = frozenset(
    {
        *("agreement", "as_replies", "categories", "choose", "compare", "contrast"),
        *("delete", "describe", "hide", "pick", "pin", "prefer", "unhide", "unpin"),
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
    "SpendingLimitError": "The spending limit leaves too little",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBox:
    """What is shown of one of our errors: a headline, and lines of text below it."""

    title: str
    lines: Sequence[str]

    @classmethod
    def of(cls, error: SvcError, *, more: Sequence[str] = ()) -> "ErrorBox":
        """Return the box of an error: its message, its notes, and further lines."""
        title = headline(error)
        # the headline says it already
        lines = [line.removesuffix(f" {title}.") for line in error.lines]
        return cls(title=title, lines=(*lines, *more))

    @property
    def head(self) -> str:
        """The headline, safe to print; it is bold if colours are allowed."""
        head = to_terminal(self.title.replace("\n", " "))
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return head
        return f"{_BOLD}{head}{_RESET}"

    def text(self, *, is_terminal: bool = False) -> str:
        """Return the box as text whose lines fit a terminal, or a notebook's cell."""
        n_chars = get_terminal_size().columns - 3 if is_terminal else LINE_CHARS
        return "\n".join(
            (self.head, *self._wrapped(max(_MIN_CHARS, min(n_chars, LINE_CHARS))))
        )

    def _wrapped(self, n_chars: int) -> list[str]:
        return [
            f"  {part}"
            for line in self.lines
            for paragraph in line.split("\n")
            # hosts would break a long line anywhere, even within a word; at a hyphen it
            # could be an option or a command
            for part in wrap(to_terminal(paragraph), n_chars, break_on_hyphens=False)
            or [""]
        ]

    @property
    def bundle(self) -> Bundle:
        """The lines without the headline; a host breaks them at blanks."""
        html = verbatim_message_html("\n".join(self.lines))
        return {
            "text/html": f"<div {_INDENT}>{html}</div>",
            "text/plain": "\n".join(self._wrapped(LINE_CHARS)),
        }


def headline(error: SvcError) -> str:
    """Return the headline for this kind of error, with the status of a refusal."""
    if type_name := getattr(error, "type_name", ""):
        return f"The reply does not fit {type_name}"
    names = (class_.__name__ for class_ in type(error).__mro__)
    text = next(_HEADLINES[name] for name in names if name in _HEADLINES)
    if isinstance(error, AskError) and (verb := error.verb or _verb(error)):
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
