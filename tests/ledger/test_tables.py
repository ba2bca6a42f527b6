"""The version of a ledger's tables: an earlier form is refused, a next one is made."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger import ledger_file
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ratings import read_ratings
from tests.ledger.conftest import Stops

MakeExchange = Callable[..., Exchange]
_NEXT = (
    "ALTER TABLE exchanges ADD COLUMN note TEXT; "
    "CREATE INDEX exchanges_note ON exchanges (note)"
)


def _write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("version", [1, 8])
def test_a_ledger_of_an_earlier_form_is_refused(tmp_path: Path, version: int) -> None:
    """The message says how to start a new one; nothing is changed, and that works."""
    path = tmp_path / "ledger.sqlite"
    _write(
        path,
        "CREATE TABLE exchanges (seq INTEGER PRIMARY KEY, door, record)",
        "INSERT INTO exchanges VALUES (1, 'magic', '{}')",
        "PRAGMA application_id = 0x53564C31",
        f"PRAGMA user_version = {version}",
    )
    before = path.read_bytes()

    with pytest.raises(LedgerError, match="To start a new one, rename the file, or"):
        Ledger(path).check()

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    path.rename(tmp_path / "old.sqlite")
    with Ledger(path) as ledger:
        ledger.check()
        assert ledger.count() == 0
    assert (tmp_path / "old.sqlite").read_bytes() == before


@pytest.mark.slow
def test_a_stop_while_tables_change_loses_nothing(
    tmp_path: Path, make: MakeExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after any statement, a file is as it was, and is then read whole."""
    exchanges = [make(0), make(1, body=None, status="cancelled")]
    changes = ledger_file.CHANGES
    is_done, n_stops = False, 0
    while not is_done:
        path = tmp_path / f"{n_stops}.sqlite"
        monkeypatch.setattr(ledger_file, "CHANGES", changes)
        with Ledger(path) as ledger:
            for exchange in exchanges:
                ledger.add(exchange)
        monkeypatch.setattr(ledger_file, "CHANGES", (*changes, _NEXT))
        with closing(
            sqlite3.connect(path, isolation_level=None, factory=Stops)
        ) as connection:
            connection.n_left = n_stops
            try:
                ledger_file.migrate(connection)
                is_done = True
            except KeyboardInterrupt:
                n_stops += 1
        with Ledger(path) as ledger:
            assert list(ledger.read(scope="all")) == exchanges
            with ledger.opened() as connection:
                notes = connection.execute("SELECT note FROM exchanges").fetchall()
            assert notes == [(None,), (None,)]

    assert n_stops > len(_NEXT.split(";"))


def test_a_ledger_without_ratings_gets_their_table(
    tmp_path: Path, make: MakeExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the first version is read as ever, and takes ratings."""
    path = tmp_path / "ledger.sqlite"
    with monkeypatch.context() as earlier:
        earlier.setattr(ledger_file, "CHANGES", ())
        with Ledger(path) as ledger:
            ledger.add(make(0))

    with Ledger(path) as ledger:
        assert list(ledger.read(scope="all")) == [make(0)]
        assert read_ratings(ledger) == []


def test_earlier_tool_calls_keep_what_ran_and_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the second version had other names for these columns."""
    path = tmp_path / "ledger.sqlite"
    with monkeypatch.context() as earlier:
        earlier.setattr(ledger_file, "CHANGES", ledger_file.CHANGES[:1])
        with Ledger(path) as ledger:
            ledger.check()
    _write(
        path,
        "INSERT INTO tool_runs (exchange_id, session_id, origin, model, started_at, "
        "call_id, name, arguments, sent_arguments, result, n_cut_tokens, seconds_s, "
        "created_at) VALUES ('e', 's', 'magic', 'm', '', 'c', 'pay', "
        """'{"baht": 250}', '{"baht": 100}', 'paid', 0, 0.0, """
        "'2026-01-01T12:00:00.000000+00:00')",
    )

    with Ledger(path) as ledger:
        (run,) = ledger.tool_runs(scope="all")

    assert run.asked_arguments == '{"baht": 250}'
    assert run.arguments == {"baht": 100}
