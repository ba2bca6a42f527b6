"""Sessions to sweep with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import Session
from svc_notebook.settings import Settings


@pytest.fixture(autouse=True)
def _short_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a moment for requests in flight when a run is stopped."""
    monkeypatch.setattr("svc_notebook.sweeps.execution.DRAIN_S", 0.2)


OpenSession = Callable[[Emulator], Session]


@pytest.fixture
def open_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenSession]:
    """Return a function that opens a session which asks an emulator."""
    with ExitStack() as stack:

        def opened(emulator: Emulator) -> Session:
            monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
            monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
            settings = Settings(
                base_url=emulator.base_url, ledger=str(tmp_path / "ledger.sqlite")
            )
            session = Session(settings)
            stack.callback(session.close)
            return session

        yield opened


@pytest.fixture
def session(emulator: Emulator, open_session: OpenSession) -> Session:
    """Return a session that asks the emulator."""
    return open_session(emulator)
