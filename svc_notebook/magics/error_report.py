"""The user's last error as a prompt: traceback, cell and versions, without paths."""

import os
import platform
import re
import sys
import sysconfig
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.tokens import estimate_tokens

from .options import SvcOptions
from .prompt import Item, add_items
from .subcommands import EXPLAIN, FIX

TASKS = {
    FIX: "A notebook cell fails. Write the corrected cell as a whole, in one Python "
    "code block. Then say in one or two sentences what was wrong.",
    EXPLAIN: "A notebook cell fails. Explain the error: what it means, what causes it "
    "here, and how to correct it.",
}
# Together they leave a corrected cell its room in 8192 (doc: Limits).
CELL_TOKENS = 3000
TRACEBACK_TOKENS = 1500

# The name of a cell for its file's name, as IPython's compiler has it.
CellLabel = Callable[[str], tuple[str, str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """A prompt about an error, and what the footer says of it."""

    prompt: str
    note: str


def for_error(options: SvcOptions, task: str, *, is_watched: bool) -> SvcOptions:
    """Return the options for a question about an error, or refuse them."""
    if not is_watched:
        raise ParameterError(
            f"%svc {task}: nobody watches this notebook run, and it would send your "
            "code unseen. Nothing was sent; run this line by hand, or remove it.",
            param="line",
        )
    if options.is_several or options.type_name:
        raise ParameterError(
            f"%svc {task} asks for one reply in words; leave --as out, and give "
            "one model and one value each.",
            param="model",
        )
    layout = options.layout or ("code" if task == FIX else None)
    # a traceback may have {{marks}}; tools are offered only if this line names them
    return replace(options, is_raw=True, layout=layout, tools=options.tools or ())


def to_report(
    error: BaseException,
    task: str,
    *,
    names: Mapping[str, Any],
    label: CellLabel,
    hide: Callable[[str], str] = str,
) -> ErrorReport:
    """Write a prompt about an error; the API key is hidden in it.

    Besides the cells, nothing of this machine is sent but versions: paths begin at a
    package or a project's folder.
    """
    report = traceback.TracebackException.from_exception(error)
    places = _Places(label)
    cells = places.cells_of(report)
    items = []
    for number, role in zip(cells, (" (failed)", " (called by it)"), strict=False):
        source = _source(names, number)
        if source.strip():
            text = _cut(source.rstrip(), CELL_TOKENS // len(cells))
            items.append(Item(name=f"Cell In[{number}]{role}", text=text, kind="cell"))
    said = _cut(places.text_of(report), TRACEBACK_TOKENS)
    items.append(Item(name="Traceback", text=said, kind="error"))
    sources = "\n".join(_source(names, number) for number in cells)
    modules = {*places.modules, *_modules(sources, names)}
    prompt = f"{add_items(TASKS[task], items)}\n\nVersions: {_versions(modules)}"
    where = f" of In[{cells[0]}]" if cells else ""
    return ErrorReport(
        prompt=hide(prompt), note=f"the last error{where}: {type(error).__name__}"
    )


def _source(names: Mapping[str, Any], number: int) -> str:
    cells = names.get("In", ())
    return str(cells[number]) if number < len(cells) else ""


_MARK = "svc-notebook-left-out "  # a frame that stands for others; no file is so named
_N_LIBRARY = 3  # frames of libraries in a row; of more, the first and last stay
_N_FIRST, _N_LAST = 4, 8  # frames, of a stack that is still longer


class _Places:
    """Names the places of tracebacks: cells, and files by short paths."""

    def __init__(self, label: CellLabel) -> None:
        self._label = label
        self._raw: dict[str, str] = {}  # by the names that are shown
        self.modules: set[str] = set()

    def cells_of(self, report: traceback.TracebackException) -> list[int]:
        """Return the cell that failed, and the one where the error arose if another."""
        files = [frame.filename for frame in report.stack]
        files += [getattr(report, "filename", None) or ""]  # of a SyntaxError
        numbers = [number for each in files if (number := self._number(each))]
        return list(dict.fromkeys([*numbers[:1], *numbers[-1:]]))

    def text_of(self, report: traceback.TracebackException) -> str:
        """Format a traceback without the frames that tell nothing about the cells."""
        chain = [report]
        while chain:
            each = chain.pop()
            self._shorten(each)
            more = (each.__cause__, each.__context__, *(each.exceptions or ()))
            chain += [found for found in more if found is not None]
        text = "".join(report.format())
        text = re.sub(rf'File "{_MARK}(.*)", line 0, in .*', r"[\1]", text)
        for raw, shown in self._raw.items():
            is_cell = shown.startswith("In[")
            text = text.replace(
                f'File "{raw}"', f"Cell {shown}" if is_cell else f'File "{shown}"'
            ).replace(raw, shown)
        return _without_folders(text).rstrip()

    def _number(self, file: str) -> int | None:
        found = re.fullmatch(r"In\[(\d+)\]", (self._label(file) or ("", ""))[1])
        return int(found[1]) if found else None

    def _shorten(self, report: traceback.TracebackException) -> None:
        """Leave out IPython's frames and the inner ones of libraries."""
        frames = list(report.stack)
        cells = (n for n, each in enumerate(frames) if self._number(each.filename))
        first = next(cells, None)
        frames = frames[first:] if first is not None else _without_shell(frames)
        for name in [each.filename for each in frames]:
            self._show(name)
        kept = list(self._left_in(frames))
        if len(kept) > _N_FIRST + _N_LAST:
            mark = _mark(f"{len(kept) - _N_FIRST - _N_LAST} frames left out")
            kept = [*kept[:_N_FIRST], mark, *kept[-_N_LAST:]]
        report.stack = traceback.StackSummary.from_list(kept)
        file = getattr(report, "filename", None)
        if file:
            self._show(file)
        if not kept:
            report.stack = None  # type: ignore[assignment]  # no header is written then

    def _left_in(
        self, frames: Sequence[traceback.FrameSummary]
    ) -> Iterator[traceback.FrameSummary]:
        """Return the frames, of each run in libraries only the first and last."""
        run: list[traceback.FrameSummary] = []
        for frame in (*frames, None):
            if frame is not None and self._is_library(frame.filename):
                run.append(frame)
                continue
            if len(run) > _N_LIBRARY:
                package = self._raw[run[1].filename].split("/")[0]
                mark = f"{len(run) - 2} frames left out, the first in {package}"
                run = [run[0], _mark(mark), run[-1]]
            yield from run
            run = []
            if frame is not None:
                yield frame

    def _is_library(self, file: str) -> bool:
        if self._number(file):
            return False
        parts = set(Path(file).parts)
        is_installed = parts & {"site-packages", "dist-packages", "svc_notebook"}
        is_source = Path(file).is_absolute()  # not "<string>" or of compiled code
        return not is_source or bool(is_installed) or file.startswith(_STDLIB)

    def _show(self, file: str) -> None:
        number = self._number(file)
        shown = f"In[{number}]" if number else _short_path(file)
        self._raw[file] = shown
        if not number:
            self.modules.add(shown.split("/")[0].removesuffix(".py"))


_STDLIB = sysconfig.get_path("stdlib")


def _mark(text: str) -> traceback.FrameSummary:
    return traceback.FrameSummary(f"{_MARK}{text}", 0, "", lookup_line=False, line="")


def _without_shell(
    frames: Sequence[traceback.FrameSummary],
) -> list[traceback.FrameSummary]:
    shells = {"IPython", "ipykernel"}
    return [each for each in frames if not shells & set(Path(each.filename).parts)]


def _roots() -> list[str]:
    """Return the folders of packages and the project's, inner ones first."""
    roots = {_STDLIB, *sys.path, str(Path.cwd())}
    return sorted((each for each in roots if Path(each).name), key=len, reverse=True)


def _short_path(file: str) -> str:
    """Begin a path at a package or at the project's folder."""
    for root in _roots():
        if Path(file).is_relative_to(root):
            return Path(file).relative_to(root).as_posix()
    return Path(file).name if Path(file).is_absolute() else file


def _without_folders(text: str) -> str:
    """Shorten the paths that an error's message has."""
    short = {f"{root}{os.sep}": "" for root in _roots()}
    with suppress(RuntimeError):  # there may be no home
        home = Path.home()
        short |= {str(home): "~"} if home.name else {}
    for path, shown in short.items():
        text = text.replace(path, shown).replace(repr(path)[1:-1], shown)
    return text


def _cut(text: str, cap_tokens: int) -> str:
    """Leave out the middle of a text that is longer than so many tokens."""
    if estimate_tokens(text).best <= cap_tokens:
        return text
    n_chars = len(text)
    n = bisect_right(
        range(1, n_chars // 2),
        cap_tokens,
        key=lambda n: estimate_tokens(text[:n] + text[n_chars - n :]).best,
    )
    mark = f"[... {n_chars - 2 * n} of {n_chars} characters left out ...]"
    return f"{text[:n]}\n{mark}\n{text[n_chars - n :]}"


_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)


def _modules(source: str, names: Mapping[str, Any]) -> Iterator[str]:
    """Return the modules that code imports, or whose names and objects it uses."""
    yield from _IMPORT.findall(source)
    for word in set(re.findall(r"\w+", source)):
        value = names.get(word)
        if isinstance(value, ModuleType):
            owner = value.__name__
        else:
            is_own = isinstance(value, (type, FunctionType))
            owner = (value if is_own else type(value)).__module__
        yield str(owner).split(".")[0]


def _versions(modules: Iterable[str]) -> str:
    """Write the versions of Python and of the packages that own these modules."""
    owners = packages_distributions()
    packages = {owner for each in modules for owner in owners.get(each, ())[:1]}
    found = [f"Python {platform.python_version()}"]
    for package in sorted(packages):
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)
