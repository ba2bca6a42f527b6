"""Exchanges and ledgers to test with."""

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import build_request

MakeExchange = Callable[..., Exchange]


def _exchange(number: int = 0, **changes: Any) -> Exchange:  # noqa: ANN401 - fields
    """Make a good exchange that started so many seconds into 2026."""
    started_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    fields: dict[str, Any] = {
        "exchange_id": f"x{number:04}",
        "origin": Origin(),
        "endpoint": "https://service.test/v1",
        "request": build_request("Say hello.", model="svc-v2-8b-instruct"),
        "body": CompletionBody(
            id=f"c{number}",
            created=1767225600 + number,
            model="svc-v2-8b-instruct",
            choices=(Choice(text="Hello.", finish_reason="stop"),),
            usage=Usage(prompt_tokens=10, completion_tokens=2, total_tokens=12),
        ),
        "latency_s": 0.5,
        "started_at": started_at,
        "ended_at": started_at + timedelta(seconds=0.5),
        "est_prompt_tokens": 8,
        "est_completion_tokens": 3,
    }
    return Exchange(**(fields | changes))


@pytest.fixture
def make() -> MakeExchange:
    """Return the function that makes exchanges."""
    return _exchange


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a place for a ledger, in a folder that is not there yet."""
    return tmp_path / "folder" / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """Return an empty ledger in a file."""
    with Ledger(path, session_id="here") as opened:
        yield opened


class Stops(sqlite3.Connection):
    """A connection that dies after so many statements."""

    n_left = 0

    def execute(self, *args: object) -> sqlite3.Cursor:
        """Run a statement, or die as an interrupt in its place would have it."""
        if self.n_left == 0:
            raise KeyboardInterrupt
        self.n_left -= 1
        return super().execute(*args)  # type: ignore[arg-type]  # passed on
