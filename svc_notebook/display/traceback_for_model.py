"""Write the traceback of a user's error as text for a model.

Paths are shortened, and inner frames of libraries are left out.
"""

import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from linecache import getlines
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, extract_tb
from typing import Any, NamedTuple

_STDLIB = sysconfig.get_path("stdlib")
_INSTALLED = {"site-packages", "dist-packages", "svc_notebook"}
_SHELLS = {"IPython", "ipykernel"}
_N_LIBRARY = 3  # of more library frames in a row, only the first and last are kept
_MARK = "svc-notebook "  # the beginning of the frame that replaces left-out frames
_N_ENDS = 2  # of more of the user's frames, `user_lines` shows only the first and last
_N_CAUSES = 3
_FILE = re.compile(
    rf'File "(?:{_MARK}(?P<mark>[^"]*)", line 0, in |(?P<path>[^"\n]*)")'
)


class ErrorReport(NamedTuple):
    """A traceback without paths of this machine, with its cells and modules."""

    text: str
    cells: tuple[int, ...]  # the cell that failed, and the one that raised the error
    modules: frozenset[str]  # the top-level packages and modules of its files


def to_report(error: BaseException) -> ErrorReport:
    """Return the traceback of an error as text, with the cells and modules in it."""
    report = TracebackException.from_exception(error)
    files = [frame.filename for frame in report.stack]
    files += [getattr(report, "filename", None) or ""]  # of a SyntaxError
    cells = [number for file in files if (number := _cell_number(file))]
    modules: set[str] = set()
    chain = [report]
    for level in chain:
        more = level.__cause__, level.__context__, *(level.exceptions or ())
        chain += [error for error in more if error is not None]
        frames = _of_user(level.stack)
        paths = (_short_path(frame.filename) for frame in frames)
        modules |= {path.split("/")[0].removesuffix(".py") for path in paths}
        # with None, "Traceback (most recent call last)" is not written
        level.stack = StackSummary.from_list(_shortened(frames)) or None  # type: ignore[assignment]
    text = _FILE.sub(_replaced_place, "".join(report.format()))
    return ErrorReport(
        text=_without_folders(text).rstrip(),
        cells=tuple(dict.fromkeys([*cells[:1], *cells[-1:]])),
        modules=frozenset(modules),
    )


def user_lines(error: BaseException) -> list[str]:
    """Return the first and the last line of the user's code in an error's traceback.

    The line of a cell that has no other is left out: it is right above the error.
    """
    frames = [
        frame
        for frame in _of_user(list(extract_tb(error.__traceback__)))
        if not _is_library(frame.filename)
    ]
    if frames and _is_only_line(frames[0]):
        del frames[0]
    ends = frames if len(frames) <= _N_ENDS else [frames[0], frames[-1]]
    return [
        f"{_place_of(frame.filename)}, line {frame.lineno}: {frame.line}"
        for frame in ends
    ]


def _is_only_line(frame: FrameSummary) -> bool:
    """Whether a frame is in a cell that has one line."""
    lines = getlines(frame.filename) if _cell_number(frame.filename) else []
    return sum(bool(line.strip()) for line in lines) == 1


def causes(error: BaseException) -> list[BaseException]:
    """Return the errors that caused an error, the nearest first."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and len(chain) <= _N_CAUSES:
        chain.append(following)
        hidden = following.__suppress_context__
        context = None if hidden else following.__context__
        following = following.__cause__ or context
    return chain[1:]


def _cell_number(file: str) -> int:
    """Return the number of the cell that has this file name; 0 for a real file."""
    from IPython import get_ipython  # noqa: PLC0415 - optional at import

    shell = get_ipython()
    if shell is None:
        return 0
    if not hasattr(shell.compile, "format_code_name"):
        return _cell_number_in_history(shell, file)
    named = shell.compile.format_code_name(file)
    number = re.search(r"\d+", named[1]) if named else None
    return int(number[0]) if number else 0


def _cell_number_in_history(shell: Any, file: str) -> int:  # noqa: ANN401 - IPython's
    """Return the number of the newest cell with that name; IPython 7 lists no names."""
    history, name_of = shell.history_manager, shell.compile.get_code_name
    sources = zip(history.input_hist_raw, history.input_hist_parsed, strict=False)
    names = [
        name_of(raw, parsed, number) for number, (raw, parsed) in enumerate(sources)
    ]
    newest = (
        number for number in range(len(names) - 1, 0, -1) if names[number] == file
    )
    return next(newest, 0)


def _of_user(frames: list[FrameSummary]) -> list[FrameSummary]:
    """Return the frames without those of IPython above the cell."""
    cells = (n for n, frame in enumerate(frames) if _cell_number(frame.filename))
    first = next(cells, None)
    if first is not None:
        return frames[first:]
    return [frame for frame in frames if not _SHELLS & set(Path(frame.filename).parts)]


def _shortened(frames: list[FrameSummary]) -> list[FrameSummary]:
    """Replace the inner frames of a long run of library frames by a mark."""
    shown: list[FrameSummary] = []
    for is_library, group in groupby(frames, lambda frame: _is_library(frame.filename)):
        run = list(group)
        if is_library and len(run) > _N_LIBRARY:
            mark = f"{_MARK}[{len(run) - 2} frames left out]"
            run[1:-1] = [FrameSummary(mark, 0, "", lookup_line=False, line="")]
        shown += run
    return shown


def _is_library(file: str) -> bool:
    """Whether a file is of an installed package, of Python, or code without a file."""
    path = Path(file)
    is_foreign = not path.is_absolute() or file.startswith(_STDLIB)
    return (is_foreign or bool(_INSTALLED & set(path.parts))) and not _cell_number(file)


def _replaced_place(match: re.Match[str]) -> str:
    """Return the text that replaces a file in a traceback: a mark, a cell or a path."""
    mark, path = match.groups()
    if mark:
        return str(mark)
    return _place_of(path)


def _place_of(path: str) -> str:
    number = _cell_number(path)
    return f"Cell In[{number}]" if number else f'File "{_short_path(path)}"'


def _short_path(file: str) -> str:
    """Return a path that begins at its package or at the project's folder."""
    path = Path(_without_folders(file))
    is_elsewhere = path.is_absolute() or path.parts[:1] == ("~",)
    return path.name if is_elsewhere else path.as_posix()


def _without_folders(text: str) -> str:
    """Remove the folders of packages and of the project; write the home as `~`."""
    roots = {_STDLIB, *sys.path, str(Path.cwd())}
    names = sorted((root for root in roots if Path(root).name), key=len, reverse=True)
    folders = "|".join(re.escape(name + os.sep) for name in names)
    text = re.sub(rf"(?<![\w./-])(?:{folders})", "", text)
    with suppress(RuntimeError):  # there may be no home folder
        if Path.home().name:
            text = text.replace(str(Path.home()), "~")
    return text


def versions(modules: Iterable[str]) -> str:
    """Return the versions of Python and of the packages of these modules, as text."""
    from importlib.metadata import (  # noqa: PLC0415 - rare, and slow to load
        PackageNotFoundError,
        distribution,
        packages_distributions,
    )

    packages, others = set(), []
    for name in set(modules) - sys.stdlib_module_names:
        try:
            packages.add(distribution(name))
        except (PackageNotFoundError, ValueError):  # its package may have another name
            others.append(name)
    if any(map(_is_installed, others)):
        # takes half a second, since it reads the file lists of all packages
        owners = packages_distributions()
        for owner in {
            owner_name for name in others for owner_name in owners.get(name, ())[:1]
        }:
            with suppress(PackageNotFoundError):
                packages.add(distribution(owner))
    listed = sorted({f"{package.name} {package.version}" for package in packages})
    return ", ".join([f"Python {platform.python_version()}", *listed])


def _is_installed(module: str) -> bool:
    """Whether a loaded module is of an installed package, not of the user's folder."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not _INSTALLED.isdisjoint(Path(file).parts)
