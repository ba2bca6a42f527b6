"""What is asked while the ledger cannot be written is kept, and is written later."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread, current_thread

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger import ledger_file, writer
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_frames import replies_df, tool_calls_df
from svc_notebook.ledger.tool_calls import tool_row_of
from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.sweeps.run import plan_run

MakeExchange = Callable[..., Exchange]
MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits


class Holder:
    """Another program that holds the ledger's file until it is released."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("BEGIN EXCLUSIVE")

    def release(self) -> None:
        """Let the others write."""
        self._connection.execute("ROLLBACK")
        self._connection.close()


@pytest.fixture
def session(
    emulator: Emulator, path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """Return a session that has opened its ledger, and does not wait for it long."""
    monkeypatch.setattr(writer, "HELD_S", 0.0)
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    opened = Session(
        Settings(base_url=emulator.base_url, ledger=str(path), model=MODEL)
    )
    _ = opened.client  # looks whether the ledger can be written
    yield opened
    opened.close()


def _written(path: Path) -> list[str]:
    """Return the exchanges of a file in the order in which they were written."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT exchange_id FROM exchanges ORDER BY seq")
    found = [row[0] for row in rows]
    connection.close()
    return found


@pytest.fixture
def holder(session: Session, path: Path) -> Holder:
    """Return a program that holds the session's ledger."""
    assert session.ledger.count() == 0
    return Holder(path)


@pytest.mark.slow
def test_a_verb_returns_after_its_commit(session: Session, path: Path) -> None:
    """When a reply, a stream or a run has ended, its exchanges are in the file."""
    completion = session.client.complete("Hello")
    after_reply = _written(path)
    stream = session.client.stream("Hello")
    list(stream)
    after_stream = _written(path)
    run = plan_run(session, ["a", "b"], model=MODEL).run()
    after_run = _written(path)

    asked = [each.exchange.exchange_id for each in (completion, stream.completion)]
    assert (after_reply, after_stream) == (asked[:1], asked)
    assert set(after_run) == {*asked, *run.replies_df()["exchange_id"]}


@pytest.mark.slow
def test_a_verb_returns_its_reply(session: Session, holder: Holder, path: Path) -> None:
    """The reply is returned and found by reads; it is written when the file is free."""
    with pytest.warns(RuntimeWarning, match="Another program holds the ledger"):
        completion = session.client.complete("Hello")
    last, frame = session.context().last(), replies_df(session.ledger)
    before = _written(path)
    holder.release()
    is_written = session.ledger.flush()

    assert last is not None
    assert last.exchange == completion.exchange
    assert frame["text"].tolist() == [completion.text]
    assert (before, is_written) == ([], True)
    assert _written(path) == [completion.exchange.exchange_id]


@pytest.mark.slow
def test_a_run_stops_if_the_file_is_held_for_long(
    session: Session, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pays for no more replies that only memory holds, and continues later."""
    monkeypatch.setattr(writer, "GIVEN_UP_S", 0.0)
    run = plan_run(session, [f"Say {n}" for n in range(40)], model=MODEL)

    with (
        pytest.warns(RuntimeWarning, match="holds the ledger"),
        pytest.raises(LedgerError, match="another program"),
    ):
        run.run()
    n_kept = int((run.replies_df()["status"] == "ok").sum())
    holder.release()
    run.run()

    assert n_kept > 0
    assert run.replies_df()["status"].tolist() == ["ok"] * 40
    assert session.ledger.count() == 40


@pytest.mark.slow
def test_it_is_said_once(session: Session, holder: Holder) -> None:
    """Of several verbs only the first warns, until the file was free again."""
    with pytest.warns(RuntimeWarning, match="holds the ledger") as caught:
        texts = [session.client.complete("Hello").text for _ in range(3)]
    holder.release()

    assert len(caught) == 1
    assert session.ledger.count() == len(texts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Another program holds")
def test_the_first_verb_goes_on(
    emulator: Emulator, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that begins while the file is held asks, and keeps the reply."""
    monkeypatch.setattr(writer, "HELD_S", 0.0)
    monkeypatch.setattr(ledger_file, "PROBE_S", 0.0)
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    Ledger(path).check()
    holder = Holder(path)
    session = Session(
        Settings(base_url=emulator.base_url, ledger=str(path), model=MODEL)
    )
    completion = session.client.complete("Hello")
    holder.release()
    session.close()

    assert _written(path) == [completion.exchange.exchange_id]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Another program holds")
def test_a_stream_flows(session: Session, holder: Holder, path: Path) -> None:
    """A stream goes on while replies wait for the file; nothing is missing after."""
    with session.client.stream("Tell a story.") as stream:
        pieces = iter(stream)
        text = next(pieces)
        asked = [session.client.complete("Hello") for _ in range(3)]
        text += "".join(pieces)
    asked.append(stream.completion)
    holder.release()
    session.ledger.flush()

    assert text == stream.completion.text
    assert sorted(_written(path)) == sorted(
        completion.exchange.exchange_id for completion in asked
    )


@pytest.mark.slow
def test_the_event_loop_never_waits_for_the_file(session: Session) -> None:
    """Replies, streams, sweeps and look-ups use the file on other threads."""
    threads = set[str]()
    with session.ledger.opened() as connection:
        connection.set_trace_callback(lambda _: threads.add(current_thread().name))
    session.client.complete("Hello", answers=session.context().reused)
    list(session.client.stream("Hello"))
    plan_run(session, ["a", "b"], model=MODEL).run()
    plan_run(session, ["a", "b"], model=MODEL, reuse=True).run()
    with session.ledger.opened() as connection:
        connection.set_trace_callback(None)

    assert "svc_notebook ledger" in threads
    assert "svc_notebook" not in threads


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Another program holds")
def test_two_threads_and_a_sweep_are_written_in_order(
    session: Session, holder: Holder, path: Path
) -> None:
    """A sweep goes on and is done; each one's exchanges are written in its order."""
    asked: dict[str, list[str]] = {"one": [], "two": []}

    def work(name: str) -> None:
        for _ in range(5):
            completion = session.client.complete(name)
            asked[name].append(completion.exchange.exchange_id)

    threads = [Thread(target=work, args=(name,)) for name in asked]
    for thread in threads:
        thread.start()
    run = plan_run(session, [str(number) for number in range(10)], model=MODEL)
    run.in_flight = 1
    swept = run.run().replies_df()
    for thread in threads:
        thread.join()
    asked["sweep"] = swept.sort_values("started_at")["exchange_id"].tolist()
    in_hand = session.ledger.count()
    holder.release()
    session.ledger.flush()

    assert swept["status"].tolist() == ["ok"] * 10
    assert in_hand == 20
    written = _written(path)
    for exchange_ids in asked.values():
        assert [each for each in written if each in exchange_ids] == exchange_ids
    assert len(written) == 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Another program holds")
def test_what_is_not_written_yet_is_found_by_the_cache(
    session: Session, holder: Holder
) -> None:
    """An answer is found although neither it nor its hash can be written."""
    first = session.client.complete("Count.")
    again = session.client.complete("Count.", answers=session.context().reused)
    holder.release()

    assert again.text == first.text
    assert again.exchange.is_reused


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Another program holds")
def test_tool_calls_that_wait_are_listed(
    ledger: Ledger, path: Path, make: MakeExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that cannot be written yet comes after those that were."""
    monkeypatch.setattr(writer, "HELD_S", 0.0)

    def add(number: int) -> None:
        exchange = make(number)
        row = tool_row_of(
            exchange,
            call_id=f"c{number}",
            name="weather",
            arguments="{}",
            asked_arguments="{}",
            result="rain",
            created_at=exchange.ended_at,
        )
        ledger.add_tool_run(row, started_at=exchange.started_at)

    ledger.add(make(0)).result()
    add(0)
    ledger.flush()
    holder = Holder(path)
    ledger.add(make(1))
    add(1)
    held = tool_calls_df(ledger)["call_id"].tolist()
    holder.release()

    assert held == ["c0", "c1"]
    assert tool_calls_df(ledger)["call_id"].tolist() == ["c0", "c1"]


@pytest.mark.slow
def test_what_cannot_be_written_is_tried_again(session: Session, path: Path) -> None:
    """A reply that the file refuses is returned, said, and written with the next."""
    with sqlite3.connect(path) as spoiler:
        spoiler.execute(
            "CREATE TRIGGER spoil BEFORE INSERT ON exchanges "
            "BEGIN SELECT RAISE(ABORT, 'spoilt'); END"
        )
    with pytest.warns(RuntimeWarning, match="1 exchange could not be written.*spoilt"):
        first = session.client.complete("Hello")
    problem, frame = session.ledger.problem, replies_df(session.ledger)
    spoiler.execute("DROP TRIGGER spoil")
    spoiler.close()
    second = session.client.complete("Hello")

    assert isinstance(problem, LedgerError)
    assert frame["text"].tolist() == [first.text]
    assert _written(path) == [each.exchange.exchange_id for each in (first, second)]
    assert session.ledger.problem is None


def test_a_reply_that_cannot_be_written_is_returned_under_strict_warnings(
    session: Session, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where warnings are errors a paid reply is returned, and stderr says the rest."""
    with sqlite3.connect(path) as spoiler:
        spoiler.execute("DROP TABLE exchanges")
    spoiler.close()

    text = session.client.complete("Hello").text

    assert text
    assert "1 exchange could not be written" in capsys.readouterr().err
    session.close()


def test_a_row_that_no_file_can_hold_stops_nobody(
    ledger: Ledger, make: MakeExchange
) -> None:
    """An exchange that SQLite cannot hold is refused by itself; others are written."""
    odd = make(1, origin=Origin(repeat=2**70))
    with pytest.warns(RuntimeWarning, match="1 exchange cannot be written"):
        problem = ledger.add(odd).exception()
    ledger.add(make(0))
    ledger.add(make(2))

    assert isinstance(problem, LedgerError)
    assert list(ledger.read()) == [make(0), make(2)]


_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import _exchange
from svc_notebook.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1])
ledger.check()
"""
_ENDS = """
print("ready", flush=True)
sys.stdin.readline()
ledger.add(_exchange(1))
"""
_FORKS = """
import os
print("ready", flush=True)
sys.stdin.readline()
ledger.add(_exchange(1))
ledger.add(_exchange(2))
child = os.fork()
if child == 0:
    n_here = ledger.count()
    ledger.add(_exchange(3))
    print("child", n_here, flush=True)
    ledger.close()
    os._exit(0)
print("parent", ledger.count(), flush=True)
ledger.close()
assert os.waitpid(child, 0)[1] == 0
"""


def _start(program: str, path: Path) -> "subprocess.Popen[str]":
    here = Path(__file__).parent
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", _PROGRAM + program, str(path), str(here)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=here.parents[1],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_the_end_says_what_could_not_be_written(path: Path) -> None:
    """A program that ends while the file is held tries once more, and says so."""
    process = _start(_ENDS, path)
    holder = Holder(path)
    with process:
        said = process.communicate("go\n", timeout=120)[1]
    holder.release()

    assert process.returncode == 0
    assert f"1 exchange could not be written to the ledger {path}" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_leaves_the_queue_to_its_parent(path: Path) -> None:
    """A forked child has an empty queue; its parent writes what was in hand, once."""
    process = _start(_FORKS, path)
    holder = Holder(path)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("go\n")
        process.stdin.flush()
        said = {process.stdout.readline() for _ in range(2)}
        holder.release()
        _, complaint = process.communicate(timeout=120)

    assert said == {"child 0\n", "parent 2\n"}
    assert process.returncode == 0
    assert "Traceback" not in complaint
    assert sorted(_written(path)) == ["x0001", "x0002", "x0003"]
