"""The box that a cell shows for one of our errors, in place of a traceback."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import wrap

from svc_notebook.display.markup import to_terminal
from svc_notebook.errors import ServiceError, SvcError, UnknownModelError
from svc_notebook.service.catalogue import Model
from svc_notebook.service.checks import did_you_mean

LINE_CHARS = 70
_REFUSED_STATUS = 400  # else it came within a stream
_MIN_CHARS = 20
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"
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
    "ToolError": "A tool cannot be used",
    "LedgerError": "The ledger cannot be used",
    "SvcError": "This did not work",
}


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
        box = "\n".join(error_lines(headline(error), said, n_chars))
        # IPython asks the instance; the class stays free of any notebook. In one piece:
        # a notebook that becomes a Markdown page has a blank line after each.
        error._render_traceback_ = lambda: [box]  # type: ignore[attr-defined]
        raise


def headline(error: SvcError) -> str:
    """Say in words what kind of error it is, with the status of a refusal."""
    names = (each.__name__ for each in type(error).__mro__)
    words = next(_HEADLINES[name] for name in names if name in _HEADLINES)
    status = error.status if isinstance(error, ServiceError) else 0
    return f"{words} ({status})" if status >= _REFUSED_STATUS else words


def error_lines(title: str, lines: Sequence[str], n_chars: int) -> list[str]:
    """Draw an expected failure as lines; the title is bold where that can be shown."""
    plain = [
        part
        for line in lines
        for paragraph in line.split("\n")
        # hosts break a long line anywhere, in the middle of a word
        for part in wrap(to_terminal(paragraph), n_chars) or [""]
    ]
    head = to_terminal(title.replace("\n", " "))
    if not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        head = f"{_BOLD}{head}{_RESET}"
    return [head, *(f"  {line}" for line in plain)]


def hint_at_model(
    error: UnknownModelError, model: str, models: Iterable[Model]
) -> None:
    """Name the known model that a misspelt one may have meant."""
    names = [each.id for each in models]
    hint = did_you_mean(model.lower(), names, n=1)
    if hint and model not in names:
        error.add_note(f"The model asked for is {model!r}.{hint}")
