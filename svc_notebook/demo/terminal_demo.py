"""`svc-notebook demo`: runs the quickstart notebook and shows it in the terminal.

Without --service, it never asks the service, and its kernel never gets the key; each
line of a reply is marked `emulator`.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import wrap

from svc_notebook.credentials import find_key
from svc_notebook.errors import SettingsError
from svc_notebook.settings import Settings

from . import quickstart
from .marked_lines import MarkedLines, styled
from .quickstart import EMULATOR
from .run_notebook import Cell, Listener, Notebook, NotebookRun, run_notebook

_BOLD, _DIM, _RED = 1, 2, 31  # ANSI styles


STOPPED = 130  # what a shell reports after Ctrl-C
_MAX_COLUMNS = 132  # longer lines are hard to read
_MIN_TEXT_COLUMNS, _MAX_TEXT_COLUMNS = 20, 72  # of our own sentences


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
    who = _check_service() if is_service else EMULATOR
    notebook = quickstart.read_quickstart()
    if is_service:
        notebook = quickstart.for_service(notebook)
    folder = quickstart.make_folder(out, here=Path.cwd())
    report = Report(who, is_coloured=is_coloured)
    report.begin()
    ended = run_notebook(
        notebook,
        report.listener,
        env=kernel_env(os.environ, folder=folder, is_service=is_service),
        cwd=str(folder),
        columns=report.room,
    )
    _write(ended.notebook, folder / quickstart.NAME, who)
    report.end(ended, folder)
    if ended.is_stopped:
        return STOPPED
    return 1 if ended.reason else 0


def kernel_env(
    environ: Mapping[str, str], *, folder: Path, is_service: bool
) -> dict[str, str]:
    """Return the kernel's environment: with its own ledger, without other settings.

    Args:
        environ: This program's environment.
        folder: The folder for the ledger.
        is_service: Whether the kernel may know the service's address and key.
    """
    allowed = {"SVC_BASE_URL", "SVC_API_KEY", "SVC_MODEL"} if is_service else set()
    env = {
        name: value
        for name, value in environ.items()
        if name in allowed or not name.startswith("SVC_")
    }
    # the debugger's warning about frozen modules does not belong in a demo
    env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    env["SVC_LEDGER"] = str(folder.resolve() / "ledger.sqlite")
    env["SVC_DISPLAY"] = "plain"
    return env


def _check_service() -> str:
    settings = Settings.from_env()
    if settings.base_url is None:
        raise SettingsError(
            "The service's address is not known. Set SVC_BASE_URL, such as "
            "https://HOST/v1. Without --service, the demo needs neither address nor "
            "key."
        )
    find_key(base_url=settings.base_url, endpoint=settings.endpoint)
    return settings.base_url


def _write(notebook: Notebook, path: Path, who: str) -> None:
    noted = quickstart.with_note(notebook, who=who, now=datetime.now(UTC).astimezone())
    try:
        text = json.dumps(noted, indent=1, ensure_ascii=False, sort_keys=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written ({error.strerror}); name another folder with "
            "--out DIR."
        ) from None


class Report:
    """The texts that the demo prints.

    Args:
        who: Who answers: `EMULATOR`, or the service's address.
        is_coloured: Whether to use colours.
    """

    def __init__(self, who: str, *, is_coloured: bool) -> None:
        self._style = partial(styled, is_coloured=is_coloured)
        self._who = who
        self._is_emulated = who == EMULATOR
        columns = min(shutil.get_terminal_size().columns, _MAX_COLUMNS)
        self._lines = MarkedLines(
            "emulator" if self._is_emulated else "service",
            columns=columns,
            bar="│" if _can_show("│") else "|",
            is_coloured=is_coloured,
        )
        self.room = self._lines.room
        self._text_columns = max(min(columns, _MAX_TEXT_COLUMNS) - 3, _MIN_TEXT_COLUMNS)
        self._titles: list[str] = []
        self.listener = Listener(cell=self._cell, text=self._text, done=self._done)

    def begin(self) -> None:
        """Print what will happen, and what it costs."""
        if self._is_emulated:
            text = (
                "The quickstart notebook, run in its own kernel against an emulator of "
                "the service on this machine. Each reply was written by hand, and is "
                "marked `emulator`; nothing is sent to the service or spent."
            )
        else:
            text = (
                f"The quickstart notebook, run in its own kernel against {self._who} "
                "with your key: this spends tokens."
            )
        lines = wrap(text, self._text_columns, break_on_hyphens=False)
        _print_lines("", *(f"  {line}" for line in lines))

    def _cell(self, cell: Cell) -> None:
        lines = cell["source"].splitlines()
        if cell["cell_type"] == "markdown":
            self._titles = [line.lstrip("# ") for line in lines if line[:1] == "#"]
        elif cell["cell_type"] == "code":
            _print_lines(
                *(f"\n  {self._style(title, _BOLD)}" for title in self._titles)
            )
            self._titles = []
            _print_lines(
                "", *(line and f"  {self._style(line, _DIM)}" for line in lines)
            )

    def _text(self, text: str) -> None:
        _write_now(self._lines.feed(text))

    def _done(self) -> None:
        _write_now(self._lines.close())

    def end(self, ended: NotebookRun, folder: Path) -> None:
        """Print which files were written, and what to do next."""
        self._done()
        if ended.reason:
            _print_lines("", f"  {self._style(f'{ended.reason}.', _RED)}")
        path = _relative_path(folder / quickstart.NAME)
        ledger = folder / "ledger.sqlite"
        _print_lines("", f"  {self._style('Written', _BOLD)}")
        if ledger.exists():
            _print_lines(
                f"    {path}  (answered by {self._who}; the notebook says so)",
                f"    {_relative_path(ledger)}  (every exchange of this run)",
            )
        else:
            _print_lines(f"    {path}  (no request was sent)")
        if not ended.reason:
            self._next(path)

    def _next(self, path: str) -> None:
        _print_lines("", f"  {self._style('Next: open it in JupyterLab', _BOLD)}")
        if find_spec("jupyterlab") is None:
            python = shlex.quote(sys.executable)
            _print_lines(f"    {python} -m pip install jupyterlab")
        _print_lines(f"    jupyter lab {shlex.quote(path)}")
        if self._is_emulated:
            title = self._style("Next: ask the real service", _BOLD)
            _print_lines(
                "",
                f"  {title}  (this spends tokens)",
                "    export SVC_BASE_URL=https://HOST/v1",
                "    read -rs SVC_API_KEY && export SVC_API_KEY"
                "   # typed or pasted, not shown",
                "    svc-notebook demo --service",
            )
        _print_lines("")


def _relative_path(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _print_lines(*lines: str) -> None:
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
