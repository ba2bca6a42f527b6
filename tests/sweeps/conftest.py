"""Sessions to sweep with, and models that answer at once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import Session
from svc_notebook.settings import Settings

# No limit is shown for these two, so nothing waits.
SMALL, LARGE = "svc-instruct", "svc-v2.1-12b-instruct"


def answering(*entries: Mapping[str, Any]) -> Emulator:
    """Return an emulator that plays these entries of a script as often as asked."""
    script = [{"times": None, **entry} for entry in entries]
    return Emulator(tokens_per_s=None, first_token_s=0, limits=False, script=script)


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
