"""How an error is shown: a box in the cell, and a report for a model.

The box has what happened, in bold, and the message. The report is the traceback with
short paths, without inner frames of libraries.
"""

import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from traceback import FrameSummary, StackSummary, TracebackException
from typing import NamedTuple

from svc_notebook.errors import ServiceError, SvcError

from .markup import to_terminal

_STDLIB = sysconfig.get_path("stdlib")
_INSTALLED = {"site-packages", "dist-packages", "svc_notebook"}
_SHELLS = {"IPython", "ipykernel"}
_N_LIBRARY = 3  # frames of libraries in a row; of more, the first and last stay
_MARK = "svc-notebook "  # begins a frame that stands for others
_FILE = re.compile(
    rf'File "(?:{_MARK}(?P<mark>[^"]*)", line 0, in |(?P<path>[^"\n]*)")'
)


LINE_CHARS = 70
_MIN_CHARS = 20
_REFUSED_STATUS = 400  # else it came within a stream
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


def error_box(error: SvcError, *, is_terminal: bool = False) -> str:
    """Draw one of our own errors, with its notes, as a box of the screen's width."""
    said = [str(error), *getattr(error, "__notes__", ())]
    n_chars = get_terminal_size().columns - 3 if is_terminal else LINE_CHARS
    n_chars = max(_MIN_CHARS, min(n_chars, LINE_CHARS))
    return "\n".join(error_lines(headline(error), said, n_chars))


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


class ErrorReport(NamedTuple):
    """A traceback without paths of this machine, and what it passes through."""

    text: str
    cells: tuple[int, ...]  # the one that failed, and the one where the error arose
    modules: frozenset[str]  # the outermost packages and modules of its files


def to_report(error: BaseException) -> ErrorReport:
    """Read an error."""
    report = TracebackException.from_exception(error)
    files = [frame.filename for frame in report.stack]
    files += [getattr(report, "filename", None) or ""]  # of a SyntaxError
    cells = [number for each in files if (number := _cell_number(each))]
    modules: set[str] = set()
    chain = [report]
    for each in chain:
        more = each.__cause__, each.__context__, *(each.exceptions or ())
        chain += [found for found in more if found is not None]
        frames = _of_user(each.stack)
        paths = (_short_path(frame.filename) for frame in frames)
        modules |= {path.split("/")[0].removesuffix(".py") for path in paths}
        # without frames it has no headline
        each.stack = StackSummary.from_list(_shortened(frames)) or None  # type: ignore[assignment]
    text = _FILE.sub(_place, "".join(report.format()))
    return ErrorReport(
        text=_without_folders(text).rstrip(),
        cells=tuple(dict.fromkeys([*cells[:1], *cells[-1:]])),
        modules=frozenset(modules),
    )


def _cell_number(file: str) -> int:
    """Return the number of the cell that IPython compiled so; 0 for a real file."""
    from IPython import get_ipython  # noqa: PLC0415 - optional at import

    shell = get_ipython()
    named = shell.compile.format_code_name(file) if shell else None
    found = re.search(r"\d+", named[1]) if named else None
    return int(found[0]) if found else 0


def _of_user(frames: list[FrameSummary]) -> list[FrameSummary]:
    """Leave out IPython's frames above the cell."""
    cells = (n for n, each in enumerate(frames) if _cell_number(each.filename))
    first = next(cells, None)
    if first is not None:
        return frames[first:]
    return [each for each in frames if not _SHELLS & set(Path(each.filename).parts)]


def _shortened(frames: list[FrameSummary]) -> list[FrameSummary]:
    """Put a mark in place of the inner ones of many frames of libraries."""
    kept: list[FrameSummary] = []
    for is_library, group in groupby(frames, lambda each: _is_library(each.filename)):
        run = list(group)
        if is_library and len(run) > _N_LIBRARY:
            mark = f"{_MARK}[{len(run) - 2} frames left out]"
            run[1:-1] = [FrameSummary(mark, 0, "", lookup_line=False, line="")]
        kept += run
    return kept


def _is_library(file: str) -> bool:
    """Whether it is installed, Python's own, or compiled code without a file."""
    path = Path(file)
    is_foreign = not path.is_absolute() or file.startswith(_STDLIB)
    return (is_foreign or bool(_INSTALLED & set(path.parts))) and not _cell_number(file)


def _place(found: re.Match[str]) -> str:
    mark, path = found.groups()
    if mark:
        return str(mark)
    number = _cell_number(path)
    return f"Cell In[{number}]" if number else f'File "{_short_path(path)}"'


def _short_path(file: str) -> str:
    """Begin a path at a package or at the project's folder."""
    path = Path(_without_folders(file))
    is_elsewhere = path.is_absolute() or path.parts[:1] == ("~",)
    return path.name if is_elsewhere else path.as_posix()


def _without_folders(text: str) -> str:
    """Leave out the folders of packages and of the project; the home is `~`."""
    roots = {_STDLIB, *sys.path, str(Path.cwd())}
    names = sorted((each for each in roots if Path(each).name), key=len, reverse=True)
    folders = "|".join(re.escape(name + os.sep) for name in names)
    text = re.sub(rf"(?<![\w./-])(?:{folders})", "", text)
    with suppress(RuntimeError):  # there may be no home
        if Path.home().name:
            text = text.replace(str(Path.home()), "~")
    return text


def versions(modules: Iterable[str]) -> str:
    """Write the versions of Python and of the packages that own these modules."""
    from importlib.metadata import (  # noqa: PLC0415 - rare, and slow to load
        PackageNotFoundError,
        distribution,
        packages_distributions,
    )

    packages, others = set(), []
    for name in set(modules) - sys.stdlib_module_names:
        try:
            packages.add(distribution(name))
        except (PackageNotFoundError, ValueError):  # it may have another name
            others.append(name)
    if any(map(_is_installed, others)):  # half a second: it reads all lists of files
        owners = packages_distributions()
        for owner in {each for name in others for each in owners.get(name, ())[:1]}:
            with suppress(PackageNotFoundError):
                packages.add(distribution(owner))
    found = sorted({f"{each.name} {each.version}" for each in packages})
    return ", ".join([f"Python {platform.python_version()}", *found])


def _is_installed(module: str) -> bool:
    """Whether a loaded module is of a package, rather than of the user's folder."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not _INSTALLED.isdisjoint(Path(file).parts)
