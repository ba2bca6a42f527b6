"""`svc-notebook demo` in the terminal: before, between and after the cells.

Without --service it never asks the service and its kernel never gets the key; every
line from the emulator is marked with the word.
"""

import os
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from svc_notebook.credentials import find_key
from svc_notebook.errors import SettingsError
from svc_notebook.settings import Settings, read_env_file

from . import notebook as book
from .notebook import EMULATOR, Listener, RunResult, run_notebook

_HELD_BACK = 16
"""A word of so many letters may still grow; a longer one, or one of a script that
puts no blanks between words, is shown without waiting for its end."""
_MIN_COLUMNS = 20
_NEVER_FIRST = "ะาำๅๆฯ"  # Thai vowels and signs that belong to the letter before,
_NEVER_LAST = "เแโใไ"  # and those that belong to the next letter


_BOLD, _DIM, _RED, _CYAN = 1, 2, 31, 36


def _styled(text: str, style: int, *, is_coloured: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if is_coloured else text


class MarkedLines:
    """Streamed text with a mark before every line, broken between words.

    Args:
        mark: The word before each line, such as `emulator`.
        columns: The width of the terminal, the mark included.
        bar: The sign between mark and text.
        is_coloured: Whether the mark has a colour.
    """

    def __init__(
        self, mark: str, *, columns: int, bar: str = "│", is_coloured: bool = False
    ) -> None:
        front = _styled(f"{mark} {bar}", _CYAN, is_coloured=is_coloured)
        self._front = f"  {front} "
        self.room = max(columns - len(f"  {mark} {bar} ") - 1, _MIN_COLUMNS)
        self._column: int | None = None
        self._blanks = 0
        self._indent = 0
        self._word = ""

    def feed(self, text: str) -> str:
        """Add text; return what can be shown now."""
        shown = "".join(self._pieces(text))
        may_grow = self._word.isascii() and len(self._word) < _HELD_BACK
        return shown if may_grow else shown + self._flush()

    def close(self) -> str:
        """Return what was held back, and the end of the line if one is open."""
        shown = self._flush()
        self._blanks = 0
        if self._column is not None:
            shown += "\n"
            self._column = None
        return shown

    def _pieces(self, text: str) -> Iterator[str]:
        for letter in text:
            if letter == "\n":
                yield self._flush() + self._break()
            elif letter.isspace():
                yield self._flush()
                self._blanks += 1
            else:
                self._word += letter

    def _break(self) -> str:
        shown = "\n" if self._column is not None else f"{self._front.rstrip()}\n"
        self._column = None
        self._blanks = 0
        return shown

    def _flush(self) -> str:
        if not self._word:
            return ""
        word, self._word = self._word, ""
        wide = self._blanks + width(word)
        shown = ""
        if self._column is None:
            self._indent = self._blanks
        elif self._column and self._column + wide > self.room >= width(word):
            shown = self._break()
            # The rest of a line is indented like its beginning, if there is room.
            is_roomy = self._indent + width(word) <= self.room
            self._blanks = self._indent if is_roomy else 0
        # Blanks wait for the next word, so that no line ends with one.
        word = " " * self._blanks + word
        self._blanks = 0
        return shown + "".join(map(self._unbroken, _clusters(word)))

    def _unbroken(self, letters: str) -> str:
        wide = width(letters)
        shown = ""
        if self._column is not None and self._column + wide > self.room:
            shown = self._break()
        if self._column is None:
            shown += self._front
            self._column = 0
        self._column += wide
        return shown + letters


def _clusters(word: str) -> list[str]:
    """Split a word into letters, each with the signs that belong to it."""
    found: list[str] = []
    for letter in word:
        is_tied = letter in _NEVER_FIRST or _letter_width(letter) == 0
        if found and (is_tied or found[-1][-1] in _NEVER_LAST):
            found[-1] += letter
        else:
            found.append(letter)
    return found


def width(text: str) -> int:
    """Return the columns of a text in a terminal; marks on letters have none."""
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1


STOPPED = 130  # what a shell reports after Ctrl-C
_NEVER_WIDER = 132


def run_demo(*, is_service: bool, out: Path | None, is_coloured: bool) -> int:
    """Run the quickstart and show it; return the exit status.

    Args:
        is_service: Whether to ask the real service.
        out: The folder for the executed notebook; None for a new one.
        is_coloured: Whether colours may be used.

    Raises:
        SettingsError: The folder, the notebook or the service's address is wrong.
        MissingKeyError: `is_service` without a key that can be sent.
    """
    who = _service() if is_service else EMULATOR
    environ = read_env_file().completed(os.environ)
    notebook = book.read_quickstart()
    if is_service:
        notebook = book.for_service(notebook)
    folder = book.make_folder(out, here=Path.cwd())
    report = Report(who, is_coloured=is_coloured)
    report.begin()
    ended = run_notebook(
        notebook,
        report.listener,
        env=kernel_env(environ, folder=folder, is_service=is_service),
        cwd=str(folder),
        columns=report.room,
    )
    _write(ended.notebook, folder / book.NAME, who)
    report.end(ended, folder)
    if ended.is_stopped:
        return STOPPED
    return 1 if ended.reason else 0


def kernel_env(
    environ: Mapping[str, str], *, folder: Path, is_service: bool
) -> dict[str, str]:
    """Return the kernel's environment: its own ledger, and none of our settings.

    Args:
        environ: This program's environment.
        folder: Where the ledger is kept.
        is_service: Whether the kernel may know the service's address and key.
    """
    kept = {"SVC_BASE_URL", "SVC_API_KEY", "SVC_MODEL"} if is_service else set()
    env = {
        name: value
        for name, value in environ.items()
        if name in kept or not name.startswith("SVC_")
    }
    # A breakpoint's warning about frozen modules does not belong in a demo.
    env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    env["SVC_LEDGER"] = str(folder.resolve() / "ledger.sqlite")
    env["SVC_DISPLAY"] = "plain"
    return env


def _service() -> str:
    found = Settings.from_env()
    if found.base_url is None:
        raise SettingsError(
            "The service's address is not known: set SVC_BASE_URL, such as "
            "https://HOST/v1. Without --service the demo needs neither address nor "
            "key."
        )
    find_key(base_url=found.base_url, endpoint=found.endpoint)
    return found.base_url


def _write(notebook: NotebookNode, path: Path, who: str) -> None:
    noted = book.with_note(notebook, who=who, now=datetime.now(UTC).astimezone())
    try:
        path.write_text(nbformat.writes(noted), encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written ({error.strerror}); name another folder with "
            "--out DIR."
        ) from None


class Report:
    """What the demo says.

    Args:
        who: Who answers: `EMULATOR`, or the service's address.
        is_coloured: Whether to use colours.
    """

    def __init__(self, who: str, *, is_coloured: bool) -> None:
        self._style = partial(_styled, is_coloured=is_coloured)
        self._who = who
        self._is_emulated = who == EMULATOR
        columns = min(shutil.get_terminal_size().columns, _NEVER_WIDER)
        self._lines = MarkedLines(
            "emulator" if self._is_emulated else "service",
            columns=columns,
            bar="│" if _can_show("│") else "|",
            is_coloured=is_coloured,
        )
        self.room = self._lines.room
        self._titles: list[str] = []
        self.listener = Listener(cell=self._cell, text=self._text, done=self._done)

    def begin(self) -> None:
        """Say what will happen, and what it costs."""
        if self._is_emulated:
            _say(
                "",
                "  The quickstart notebook, run in its own kernel against an emulator",
                "  of the service on this machine. Each reply was written by hand, and",
                "  is marked `emulator`; nothing is sent to the service or spent.",
            )
        else:
            _say(
                "",
                "  The quickstart notebook, run in its own kernel against",
                f"  {self._who} with your key: this spends tokens.",
            )

    def _cell(self, cell: NotebookNode) -> None:
        lines = cell.source.splitlines()
        if cell.cell_type == "markdown":
            self._titles = [line.lstrip("# ") for line in lines if line[:1] == "#"]
        elif cell.cell_type == "code":
            _say(*(f"\n  {self._style(title, _BOLD)}" for title in self._titles))
            self._titles = []
            _say("", *(line and f"  {self._style(line, _DIM)}" for line in lines))

    def _text(self, text: str) -> None:
        _write_now(self._lines.feed(text))

    def _done(self) -> None:
        _write_now(self._lines.close())

    def end(self, ended: RunResult, folder: Path) -> None:
        """Say what was written, and what to do next."""
        self._done()
        if ended.reason:
            _say("", f"  {self._style(f'{ended.reason}.', _RED)}")
        path = _shown(folder / book.NAME)
        ledger = folder / "ledger.sqlite"
        _say("", f"  {self._style('Written', _BOLD)}")
        if ledger.exists():
            _say(
                f"    {path}  (answered by {self._who}; the notebook says so)",
                f"    {_shown(ledger)}  (every exchange of this run)",
            )
        else:
            _say(f"    {path}  (no request was sent)")
        if not ended.reason:
            self._next(path)

    def _next(self, path: str) -> None:
        _say("", f"  {self._style('Next: open it in JupyterLab', _BOLD)}")
        if find_spec("jupyterlab") is None:
            python = shlex.quote(sys.executable)
            _say(f"    {python} -m pip install 'svc-notebook[lab]'")
        _say(f"    jupyter lab {shlex.quote(path)}")
        if self._is_emulated:
            title = self._style("Next: ask the real service", _BOLD)
            _say(
                "",
                f"  {title}  (this spends tokens)",
                "    export SVC_BASE_URL=https://HOST/v1",
                "    read -rs SVC_API_KEY && export SVC_API_KEY"
                "   # typed or pasted, not shown",
                "    svc-notebook demo --service",
            )
        _say("")


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _say(*lines: str) -> None:
    _write_now("".join(f"{line}\n" for line in lines))


def _write_now(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
