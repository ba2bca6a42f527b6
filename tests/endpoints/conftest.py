"""Servers of one's own: emulators with other models, limits, contexts and keys."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import isolated
from tests.faults.server import RawServer

from .stub_server import NO_LIST, Serve, Server

MODEL = "tide-8b"
Start = Callable[..., Emulator]
Describe = Callable[[str], Path]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers of the test's own."""
    with ExitStack() as stack:

        def start_one(**given: Any) -> Emulator:  # noqa: ANN401 - as Emulator
            given = {"models": [MODEL], "limits": False, **given}
            server = Emulator(tokens_per_s=None, first_token_s=0, **given)
            return stack.enter_context(server)

        yield start_one


@pytest.fixture
def describe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator: Emulator
) -> Iterator[Describe]:
    """Writes the user's file of endpoints; the service is the emulator."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")

    def write(text: str) -> Path:
        path = tmp_path / "config" / "svc_notebook" / "svc_notebook.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    with isolated():
        yield write


@pytest.fixture
def serve(describe: Describe) -> Iterator[Serve]:
    """Starts servers with their answers, beginning with the list of their models."""
    describe("")
    with ExitStack() as stack:

        def play(*answers: list[bytes], models: list[bytes] = NO_LIST) -> Server:
            raw = RawServer([models, *answers])
            stack.callback(raw.close)
            return Server(raw)

        yield play
