"""A failure in a run is a row, or ends the run with nothing lost."""

import io
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.client.rate_windows import Waiting
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.endpoints import SERVICE
from svc_notebook.errors import (
    AuthError,
    Interrupted,
    LedgerError,
    MissingKeyError,
    SettingsError,
    UnknownModelError,
)
from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.svc_use import use_service
from svc_notebook.sweeps.run import plan_run

pytestmark = pytest.mark.slow

OpenSession = Callable[[Emulator], Session]


@pytest.fixture
def unlimited() -> Iterator[Emulator]:
    """An emulator without rate limits."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


def _scripted(*entries: dict[str, Any]) -> Emulator:
    return Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=list(entries)
    )


def test_failures_are_rows_in_place(open_session: OpenSession) -> None:
    """A request that fails has its error in its row; the others go on."""
    refusal = {
        "when": {"contains": "b"},
        "status": 400,
        "error": {"message": "No b.", "type": "t", "param": "messages", "code": "c"},
    }
    with _scripted(refusal) as emulator:
        run = plan_run(open_session(emulator), ["a", "b", "c"])

        frame = run.run().replies_df()

    row = frame.loc[1]
    assert frame["status"].tolist() == ["ok", "error", "ok"]
    assert (row["error_type"], row["http_status"]) == ("BadRequestError", 400)
    assert (row["error_code"], row["error_param"]) == ("c", "messages")
    assert "No b." in row["error_message"]


def test_what_failed_is_asked_again_on_demand_only(open_session: OpenSession) -> None:
    """Running again leaves a failed row as it is; `retry` sends it, and only it."""
    refusal = {"when": {"contains": "b"}, "status": 403, "error": {"message": "No."}}
    with _scripted(refusal) as emulator:
        run = plan_run(open_session(emulator), ["a", "b", "c"]).run()
        assert (run.n_todo, run.n_failed) == (0, 1)

        left = run.run().replies_df()
        retried = run.retry().replies_df()
        n_requests = len(emulator.requests)

    assert left["status"].tolist() == ["ok", "error", "ok"]
    assert retried["status"].tolist() == ["ok"] * 3
    assert n_requests == 4


def test_what_was_refused_as_invalid_is_left_out(open_session: OpenSession) -> None:
    """`retry` does not send again what gave a 400, unless it is asked to."""
    refusal = {"when": {"contains": "b"}, "status": 400, "error": {"message": "No."}}
    with _scripted({**refusal, "times": 8}) as emulator:
        session = open_session(emulator)
        prompts = ["a", *(f"b{number}" for number in range(8))]
        run = plan_run(session, prompts, model="svc-instruct", name="n").run()
        assert (run.n_failed, len(emulator.requests)) == (8, 9)

        plan_run(session, prompts, model="svc-instruct", name="n").retry()
        left = repr(run.retry())
        n_before = len(emulator.requests)
        run.retry(include_refused=True)

        assert (n_before, len(emulator.requests)) == (9, 17)
    assert "8 would be refused again, .retry(include_refused=True) sends" in left
    assert run.replies_df()["status"].tolist() == ["ok"] * 9


def test_a_request_that_cannot_be_sent_is_a_row(session: Session) -> None:
    """A prompt far over the budget fails by itself, without being sent."""
    frame = plan_run(session, ["a", "b " * 30_000]).run().replies_df()

    assert frame["status"].tolist() == ["ok", "error"]
    assert frame["error_type"].tolist()[1] == "OverBudgetError"


def test_a_refused_key_stops_the_run(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid key (401) is raised, and not tried for every row."""
    monkeypatch.setenv("SVC_API_KEY", "wrong")
    run = plan_run(session, [str(number) for number in range(50)])
    run.in_flight = 4

    with pytest.raises(AuthError):
        run.run()

    statuses = run.replies_df()["status"].value_counts().to_dict()
    assert statuses["not_run"] >= 50 - run.in_flight
    assert len(emulator.requests) <= run.in_flight


def test_a_missing_key_is_raised(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key nothing is sent."""
    monkeypatch.delenv("SVC_API_KEY")

    with pytest.raises(MissingKeyError, match="SVC_API_KEY"):
        plan_run(session, "p").run()

    assert len(emulator.requests) == 0


def test_a_missing_address_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a base address the error says how to set one, and it can be set."""
    session = Session(Settings(ledger=str(tmp_path / "ledger.sqlite")))
    monkeypatch.setenv("SVC_API_KEY", "key")
    run = plan_run(session, "p")

    with pytest.raises(SettingsError, match="SVC_BASE_URL"):
        run.run()

    assert run.replies_df()["status"].tolist() == ["planned"]
    session.close()


def test_never_mixes_two_addresses(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has a reply of one address is not continued at another."""
    run = plan_run(session, ["a", "b " * 30_000]).run()
    with _scripted() as other:
        monkeypatch.setenv("SVC_BASE_URL", other.base_url)
        use_service(session)

        with pytest.raises(SettingsError, match=r"1 of its requests are missing.* mix"):
            run.retry()

    assert (len(emulator.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize("is_recheck", [False, True])
def test_a_run_of_an_emulator_says_how_to_start_one(
    session: Session, monkeypatch: pytest.MonkeyPatch, *, is_recheck: bool
) -> None:
    """After a restart there is no address, or another one than the emulator's."""
    run = plan_run(session, ["a", "b"]).run(first=1)
    monkeypatch.delenv("SVC_BASE_URL")
    session.change(replace(session.settings, base_url=None, endpoint=SERVICE))

    with pytest.raises(SettingsError) as caught:
        run.recheck() if is_recheck else run.run()

    said = str(caught.value)
    assert "no address is set now" in said
    assert "an emulator" in said
    assert "None" not in said
    assert "svc.use(endpoint=svc.Emulator(...))" in said


def _interrupt_when(is_time: Callable[[], bool]) -> threading.Thread:
    """Send Ctrl-C to the main thread as soon as something is so."""
    main = threading.get_ident()
    pause = threading.Event()

    def look() -> None:
        while not is_time():
            pause.wait(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=look)
    thread.start()
    return thread


@pytest.mark.slow
def test_an_interrupt_keeps_the_replies_so_far(open_session: OpenSession) -> None:
    """An interrupted run keeps its rows, and continues with what is missing."""
    slow = {"when": {"contains": "slow"}, "end": "silent", "body": ["{"]}
    with _scripted(slow) as emulator:
        session = open_session(emulator)
        run = plan_run(session, ["quick", "slow", "late"])
        stopper = _interrupt_when(lambda: session.ledger.count() == 2)

        with pytest.raises(KeyboardInterrupt):
            run.run()

        stopper.join()
        frame = run.replies_df()
        resumed = run.run().replies_df()
        n_requests = len(emulator.requests)

    assert frame["status"].tolist() == ["ok", "cancelled", "ok"]
    assert resumed["status"].tolist() == ["ok"] * 3
    assert n_requests == 4


@pytest.mark.slow
def test_an_interrupt_with_nothing_left_says_so(session: Session) -> None:
    """All replies are there and only their scores are missing."""
    is_scoring, is_over = threading.Event(), threading.Event()

    def slow(_: Any) -> bool:  # noqa: ANN401 - a row
        is_scoring.set()
        return is_over.wait()

    run = plan_run(session, "a", scores={"slow": slow})
    stopper = _interrupt_when(is_scoring.is_set)

    with pytest.raises(Interrupted) as caught:
        run.run()

    is_over.set()
    stopper.join()
    assert "nothing is left to send" in str(caught.value)
    assert run.n_todo == 0
    assert run.run().replies_df()["score_slow"].tolist() == [1]


def test_a_ledger_that_fails_half_way_stops_the_run(
    session: Session, emulator: Emulator, tmp_path: Path
) -> None:
    """When replies can no longer be kept, nothing more is sent."""
    run = plan_run(session, [str(number) for number in range(40)], model="svc-instruct")
    run.in_flight = 2
    session.ledger.check()
    spoiler = sqlite3.connect(tmp_path / "ledger.sqlite")
    spoiler.execute(
        "CREATE TRIGGER spoil BEFORE INSERT ON exchanges "
        "BEGIN SELECT RAISE(ABORT, 'spoilt'); END"
    )
    spoiler.close()

    with pytest.raises(LedgerError, match="spoilt"):
        run.run()

    n_asked = len(emulator.requests)
    assert n_asked <= 2 * run.in_flight
    mended = sqlite3.connect(tmp_path / "ledger.sqlite")
    mended.execute("DROP TRIGGER spoil")
    mended.close()
    assert run.run().replies_df()["status"].tolist() == ["ok"] * 40
    assert len(emulator.requests) == 40


def test_announces_a_long_wait(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait of minutes is printed, and can be interrupted."""
    refusal: dict[str, Any] = {"status": 429, "error": {"message": "Later."}}
    refusal["headers"] = {"retry-after": "3600"}
    with _scripted(refusal) as emulator:
        run = plan_run(open_session(emulator), "p")
        printed = io.StringIO()
        monkeypatch.setattr(sys, "stderr", printed)
        stopper = _interrupt_when(lambda: "The run waits 3600 s" in printed.getvalue())

        with pytest.raises(KeyboardInterrupt):
            run.run()

        stopper.join()

    assert run.replies_df()["error_type"].tolist() == ["RateLimitError"]


def test_a_run_can_be_looked_at_while_failures_come(open_session: OpenSession) -> None:
    """Its counts and reasons are read on one thread while another adds to them."""
    refusals: list[dict[str, Any]] = [
        {"status": 400, "error": {"message": f"No {number}."}} for number in range(150)
    ]
    interval_s = sys.getswitchinterval()
    with _scripted(*refusals) as emulator:
        run = plan_run(
            open_session(emulator), [*map(str, range(150))], model="svc-instruct"
        )
        sys.setswitchinterval(1e-6)  # so that threads take turns all the time
        try:
            run.start(is_drawn=False)
            while run.is_running:
                repr(run)
                _ = run.n_failed, run.reasons
        finally:
            sys.setswitchinterval(interval_s)

    assert run.n_failed == 150


def test_an_error_of_watch_ends_no_run(open_session: OpenSession) -> None:
    """A watching function that fails is warned about, and the run goes on."""

    def watch(_: Waiting) -> None:
        raise ZeroDivisionError

    refusal: dict[str, Any] = {"status": 500, "error": {"message": "Oh."}}
    with _scripted(refusal) as emulator:
        run = plan_run(open_session(emulator), "p")

        with pytest.warns(RuntimeWarning, match="watch= raised ZeroDivisionError"):
            run.run(watch=watch)

    assert run.replies_df()["status"].tolist() == ["ok"]


def test_a_dead_service_ends_the_run(open_session: OpenSession) -> None:
    """After failures in a row the rest is not run, and the error says why."""
    fault: dict[str, Any] = {
        "status": 403,
        "error": {"message": "Oh."},
        "times": None,
    }
    with _scripted(fault) as dead:
        run = plan_run(
            open_session(dead), [str(n) for n in range(60)], model="svc-instruct"
        )

        with pytest.raises(AuthError, match="Oh"):
            run.run()

        n_asked = len(dead.requests)

    counts = run.replies_df()["status"].value_counts().to_dict()
    assert counts == {"error": n_asked, "not_run": 60 - n_asked}
    assert n_asked <= 10 + 8
    assert ": AuthError" in run._repr_mimebundle_()["text/plain"]


def test_an_unknown_model_stops_its_own_requests_only(
    open_session: OpenSession, unlimited: Emulator
) -> None:
    """The other models are asked; box, frame and manifest count the same failures."""
    session = open_session(unlimited)

    run = plan_run(session, list("abc"), model=["svc-instruct", "typo"])
    run.in_flight = 3
    run.run()

    shown = repr(run)
    assert "6 requests: 3 ok, 3 failed." in shown
    assert ".run() sends 3 of those that failed again · stopped" in shown
    assert run.n_failed == run.summary_df()["n_failed"].sum() == 3
    assert run.manifest["counts"] == {"ok": 3, "error": 3, "not_run": 0}
    assert run.replies_df()["status"].value_counts().to_dict() == {"ok": 3, "error": 3}
    assert "x UnknownModelError (404): The service answered with status 404" in shown
    assert "stopped sending to typo: UnknownModelError" in shown


def test_a_misspelt_model_is_named_with_a_near_one(open_session: OpenSession) -> None:
    """The error of a run says what was asked for, and what may have been meant."""
    with Emulator(first_token_s=0, tokens_per_s=None) as emulator:
        run = plan_run(open_session(emulator), "a", model="svc-instrct")
        with pytest.raises(UnknownModelError) as caught:
            run.run()

    hint = "The model asked for is 'svc-instrct'. Did you mean svc-instruct?"
    assert hint in str(caught.value)
    assert hint in run.replies_df()["error_message"][0]


@pytest.mark.parametrize("is_closed", [False, True])
def test_runs_without_a_standard_error(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """Without a console, or with a closed standard error, a run is sent as usual."""
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream if is_closed else None)

    run = plan_run(session, "a", model="svc-instruct").run()

    assert run.replies_df()["status"].tolist() == ["ok"]
