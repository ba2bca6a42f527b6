"""A plain IPython shell with the extension loaded, whose service is the emulator."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import isolated


@dataclass(frozen=True)
class Cell:
    """A cell that was run.

    Attributes:
        value: What it returned.
        error: What it raised; None if it did not fail.
        shown: What it printed; after a failure with its lines joined.
    """

    value: object
    error: BaseException | None
    shown: str


class Shell:
    """Runs cells as a user would type them."""

    def __init__(
        self, ipython: InteractiveShell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.ipython = ipython
        self._capsys = capsys

    def run(self, code: str) -> Cell:
        """Run a cell."""
        self._capsys.readouterr()
        result = self.ipython.run_cell(  # type: ignore[no-untyped-call]  # IPython's
            code, store_history=True
        )
        error = result.error_before_exec or result.error_in_exec
        shown = self._capsys.readouterr().out
        # A box breaks its lines at blanks; what it says is one text.
        said = shown if error is None else " ".join(shown.split())
        return Cell(result.result, error, said)

    @property
    def names(self) -> dict[str, object]:
        """The notebook's variables."""
        names: dict[str, object] = self.ipython.user_ns
        return names


def contents(emulator: Emulator) -> list[str]:
    """Return the texts of the newest request's messages."""
    messages: list[dict[str, Any]] = emulator.requests[-1].json["messages"]
    return [message["content"] for message in messages]


@pytest.fixture(scope="module")
def ipython() -> Iterator[InteractiveShell]:
    """The one shell that a process can have; other files are without it.

    A run would leave it what to show below a cell, and the next cell is another test's.
    """
    yield InteractiveShell.instance(colors="nocolor")
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(
    ipython: InteractiveShell,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Shell]:
    """A shell whose session and variables are this test's own."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    gc.freeze()  # it collects garbage: 0.1 s with all modules loaded
    ipython.reset(new_session=True)  # type: ignore[no-untyped-call]  # IPython's
    ipython.config.pop("SvcMagics", None)  # what another test's `%config` left
    with isolated():
        ipython.run_line_magic("load_ext", "svc_notebook")
        yield Shell(ipython, capsys)
        ipython.run_line_magic("unload_ext", "svc_notebook")
