"""Files of earlier versions become those of this one, whole."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.answers import find_answer
from svc_notebook.ledger.connect import APPLICATION_ID, MIGRATIONS, migrate
from svc_notebook.ledger.frames import replies_df
from svc_notebook.ledger.row import KeptPlan, to_row, tool_row_of
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.chunk import Choice, CompletionBody

MakeExchange = Callable[..., Exchange]

# what version 1 wrote, typed out: its columns must not follow those of today
_KEYS_1 = (
    "exchange_id",
    "session_id",
    "door",
    "conversation",
    "run",
    "cell_id",
    "repeat",
    "model",
    "endpoint",
    "status",
    "is_emulated",
    "is_reused",
    "started_at",
    "record",
    "record_crc32",
)
_TABLES_1 = """
    CREATE TABLE exchanges (
        seq INTEGER PRIMARY KEY,
        exchange_id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL,
        door TEXT NOT NULL,
        conversation TEXT,
        run TEXT,
        cell_id TEXT,
        repeat INTEGER,
        model TEXT NOT NULL,
        endpoint TEXT NOT NULL,
        status TEXT NOT NULL,
        is_emulated INTEGER NOT NULL,
        is_reused INTEGER NOT NULL,
        started_at TEXT NOT NULL,
        record TEXT NOT NULL,
        record_crc32 INTEGER NOT NULL
    );
    CREATE INDEX exchanges_time ON exchanges (started_at);
    CREATE INDEX exchanges_session ON exchanges (session_id, started_at);
    CREATE INDEX exchanges_run ON exchanges (run) WHERE run IS NOT NULL;
    CREATE INDEX exchanges_cell ON exchanges (cell_id) WHERE cell_id IS NOT NULL;
    CREATE INDEX exchanges_conversation ON exchanges (conversation)
        WHERE conversation IS NOT NULL;
    CREATE TABLE scores (
        exchange_id TEXT NOT NULL REFERENCES exchanges (exchange_id),
        choice_index INTEGER NOT NULL,
        name TEXT NOT NULL,
        value,
        scored_at TEXT NOT NULL,
        PRIMARY KEY (exchange_id, choice_index, name)
    );
"""
_INSERT_1 = (
    f"INSERT INTO exchanges ({', '.join(_KEYS_1)}) "  # noqa: S608 - names above
    f"VALUES ({', '.join(':' + key for key in _KEYS_1)})"
)


def _row(exchange: Exchange) -> dict[str, Any]:
    """Return a row under the names that its columns had at first."""
    row = to_row(exchange, "before")
    return {**row, "door": row["origin"], "cell_id": row["request_key"]}


def _exchanges(make: MakeExchange) -> list[Exchange]:
    streamed = CompletionBody(choices=(Choice(text="สวัสดี", finish_reason="stop"),))
    return [
        make(0, origin=Origin(conversation="plan")),
        make(1, body=streamed, is_streamed=True),
        make(2, body=None, status="cancelled"),
    ]


def _write_version_1(path: Path, exchanges: list[Exchange]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(_TABLES_1)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    for exchange in exchanges:
        connection.execute(_INSERT_1, _row(exchange))
    connection.execute("INSERT INTO scores VALUES ('x0000', 0, 'good', 1, '2026')")
    connection.close()


# what version 2 wrote besides, typed out likewise
_KEYS_2 = (*_KEYS_1[:-3], "usage_source", *_KEYS_1[-3:])
_INSERT_2 = (
    f"INSERT INTO exchanges ({', '.join(_KEYS_2)}) "  # noqa: S608 - names above
    f"VALUES ({', '.join(':' + key for key in _KEYS_2)})"
)


def _write_version_2(path: Path, exchanges: list[Exchange]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for script in MIGRATIONS[:2]:
        connection.executescript(script)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 2")
    for exchange in exchanges:
        connection.execute(_INSERT_2, _row(exchange))
    connection.execute(
        "INSERT INTO sessions VALUES ('before', '2026-01-01T00:00:00.000000Z')"
    )
    connection.execute("INSERT INTO scores VALUES ('x0000', 0, 'good', 1, '2026')")
    connection.execute("INSERT INTO requests VALUES (1, 'hash')")
    connection.close()


def _write_version_3(path: Path, exchanges: list[Exchange]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for script in MIGRATIONS[:3]:
        connection.executescript(script)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 3")
    for exchange in exchanges:
        connection.execute(_INSERT_2, _row(exchange))
    begun_at = "2026-01-01T00:00:00.000000Z"
    connection.execute("INSERT INTO sessions VALUES ('before', ?)", (begun_at,))
    connection.execute("INSERT INTO runs VALUES ('r', ?)", (begun_at,))
    connection.execute("INSERT INTO requests VALUES (1, 'hash of that version')")
    connection.execute("INSERT INTO scores VALUES ('x0000', 0, 'good', 1, '2026')")
    connection.execute(
        "INSERT INTO tool_runs (exchange_id, session_id, door, run, model, started_at, "
        "call_id, name, arguments, result, n_cut_tokens, seconds_s, created_at) VALUES "
        "('x0000', 'before', 'sweep', 'r', 'm', ?, 'c', 'weather', '{}', 'rain', 0, "
        "0.5, ?)",
        (begun_at, begun_at),
    )
    connection.close()


@pytest.mark.parametrize("write", [_write_version_2, _write_version_3])
def test_an_older_file_takes_plans_of_runs(
    tmp_path: Path, make: MakeExchange, write: Callable[[Path, list[Exchange]], None]
) -> None:
    """A plan of a part replaces the one before, and other parts stay."""
    path = tmp_path / "ledger.sqlite"
    write(path, _exchanges(make))
    old, new, next_ = (
        KeptPlan(
            run="r", part=part, name=None, n_trials=n, digest="d", manifest=b"\x00"
        )
        for part, n in ((0, 1), (0, 2), (1, 3))
    )

    with Ledger(path, session_id="before") as ledger:
        for plan in (old, new, next_):
            ledger.add_plan(plan)
        got = ledger.plans("r")
        exchanges = list(ledger.read(scope="all"))

    assert got == [new, next_]
    assert exchanges == _exchanges(make)


@pytest.mark.slow
def test_a_file_of_version_3_is_read_whole(tmp_path: Path, make: MakeExchange) -> None:
    """Exchanges, calls and scores are in today's columns, and more can be added."""
    path = tmp_path / "ledger.sqlite"
    origin = Origin(kind="sweep", run="r", request_key="k", repeat=1)
    _write_version_3(path, [make(0, origin=origin), make(1)])

    with Ledger(path, session_id="before") as ledger:
        ledger.add(make(2, origin=origin))
        swept = list(ledger.read(run="r", origin="sweep", request_key="k"))
        calls = ledger.tool_runs(run="r", origin="sweep")
        frame = replies_df(ledger)

    assert swept == [make(0, origin=origin), make(2, origin=origin)]
    assert [(call.exchange_id, call.origin, call.result) for call in calls] == [
        ("x0000", "sweep", "rain")
    ]
    assert frame["origin"].tolist() == ["sweep", "python", "sweep"]
    assert frame["request_key"].fillna("").tolist() == ["k", "", "k"]
    assert frame["score_good"].fillna(0).tolist() == [1, 0, 0]


def test_requests_of_version_3_are_used_again(
    tmp_path: Path, make: MakeExchange
) -> None:
    """Hashes are made again, since today's leave out what `fit` computed."""
    asked = make(0)
    _write_version_3(tmp_path / "ledger.sqlite", [asked])

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        found = find_answer(
            ledger, asked.request, endpoint=asked.endpoint, origin=Origin()
        )

    assert found == asked


_WRITERS = [_write_version_1, _write_version_2, _write_version_3]


@pytest.mark.slow
@pytest.mark.parametrize("write", _WRITERS[:2])
def test_an_older_file_takes_tool_calls(
    tmp_path: Path, make: MakeExchange, write: Callable[[Path, list[Exchange]], None]
) -> None:
    """Files of both earlier versions are read whole, and keep tool calls from now."""
    path = tmp_path / "ledger.sqlite"
    write(path, _exchanges(make))
    row = tool_row_of(
        make(3),
        call_id="c",
        name="weather",
        arguments="{}",
        result="rain",
        created_at=make(3).ended_at,
    )

    with Ledger(path, session_id="before") as ledger:
        ledger.add(make(3))
        ledger.add_tool_run(row, started_at=make(3).started_at)
        got = list(ledger.read(scope="session"))
        calls = ledger.tool_runs(scope="session")

    assert got == [*_exchanges(make), make(3)]
    assert calls == [row]


def test_a_file_of_version_2_keeps_its_tables(
    tmp_path: Path, make: MakeExchange
) -> None:
    """Scores and sessions are as they were; the index of requests is made again."""
    path = tmp_path / "ledger.sqlite"
    _write_version_2(path, _exchanges(make))
    Ledger(path).check()

    connection = sqlite3.connect(path)
    kept = [
        connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - names here
        for table in ("scores", "sessions", "requests", "tool_runs")
    ]
    connection.close()
    assert kept == [
        [("x0000", 0, "good", 1, "2026")],
        [("before", "2026-01-01T00:00:00.000000Z")],
        [],
        [],
    ]


def test_a_file_of_version_1_is_read_whole(tmp_path: Path, make: MakeExchange) -> None:
    """Every exchange of a first-version file is there, and more can be added."""
    path = tmp_path / "ledger.sqlite"
    _write_version_1(path, _exchanges(make))

    with Ledger(path, session_id="before") as ledger:
        ledger.add(make(3))
        got = list(ledger.read(scope="session"))

    assert got == [*_exchanges(make), make(3)]


def test_a_file_of_version_1_keeps_scores_and_sources(
    tmp_path: Path, make: MakeExchange
) -> None:
    """Scores stay, and where the usage of each exchange came from is filled in."""
    path = tmp_path / "ledger.sqlite"
    _write_version_1(path, _exchanges(make))
    Ledger(path).check()

    connection = sqlite3.connect(path)
    scores = connection.execute("SELECT * FROM scores").fetchall()
    sources = connection.execute("SELECT usage_source FROM exchanges").fetchall()
    version = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    assert scores == [("x0000", 0, "good", 1, "2026")]
    assert sources == [("reported",), ("estimated",), ("missing",)]
    assert version == (len(MIGRATIONS),)


class _Stops(sqlite3.Connection):
    """A connection that dies after so many statements."""

    n_left = 0

    def execute(self, *args: object) -> sqlite3.Cursor:
        if self.n_left == 0:
            raise KeyboardInterrupt
        self.n_left -= 1
        return super().execute(*args)  # type: ignore[arg-type]  # passed on


@pytest.mark.slow
@pytest.mark.parametrize("write", _WRITERS)
def test_a_stop_while_migrating_loses_nothing(
    tmp_path: Path, make: MakeExchange, write: Callable[[Path, list[Exchange]], None]
) -> None:
    """Stopped after any statement, an old file is as it was, and is read whole."""
    n_stops = 0
    is_done = False
    while not is_done:
        path = tmp_path / f"{n_stops}.sqlite"
        write(path, _exchanges(make))
        connection = sqlite3.connect(path, isolation_level=None, factory=_Stops)
        connection.n_left = n_stops
        try:
            migrate(connection)
            is_done = True
        except KeyboardInterrupt:
            n_stops += 1
        finally:
            connection.close()
        with Ledger(path) as ledger:
            assert list(ledger.read(scope="all")) == _exchanges(make)

    assert n_stops > len(MIGRATIONS)


@pytest.mark.slow
def test_an_older_file_that_is_damaged_is_left_as_it_is(
    tmp_path: Path, make: MakeExchange
) -> None:
    """A first-version file that lost its end is refused, not brought up to date."""
    path = tmp_path / "ledger.sqlite"
    _write_version_1(path, [make(number) for number in range(50)])
    path.write_bytes(path.read_bytes()[:-4096])
    before = path.read_bytes()

    with pytest.raises(LedgerError, match="damaged"):
        Ledger(path).check()

    assert path.read_bytes() == before
