"""A run against the emulator, waited for or in the background."""

import asyncio
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import AuthError, ParameterError
from svc_notebook.service.chunk import Delta
from svc_notebook.session import Session
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.run import plan_run

OpenSession = Callable[[Emulator], Session]

SMALL = "svc-v2-8b-instruct"
LARGE = "svc-v2-70b-instruct"


def _scripted(*entries: dict[str, Any]) -> Emulator:
    return Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=list(entries)
    )


@pytest.mark.slow
def test_two_models_at_two_temperatures(session: Session) -> None:
    """A grid of two by two gives four good rows in the order of the plan."""
    run = plan_run(
        session,
        "Describe rain.",
        model=[SMALL, LARGE],
        temperature=[0, 1.2],
        max_tokens=20,
    )

    frame = run.run().replies_df()

    assert frame[["model", "temperature", "status"]].to_dict("split")["data"] == [
        [SMALL, 0.0, "ok"],
        [SMALL, 1.2, "ok"],
        [LARGE, 0.0, "ok"],
        [LARGE, 1.2, "ok"],
    ]
    assert frame["text"].str.len().min() > 0
    assert frame["usage_source"].tolist() == ["reported"] * 4
    assert frame["run"].tolist() == [run.run_id] * 4
    assert frame["origin"].tolist() == ["sweep"] * 4


def test_plans_without_asking(session: Session, emulator: Emulator) -> None:
    """Planning sends nothing and opens no ledger."""
    run = plan_run(session, "p", model=[SMALL, LARGE])
    run.plan_df()
    repr(run)

    assert len(emulator.requests) == 0
    assert not Path(session.settings.ledger).exists()


def test_running_again_asks_nothing_twice(session: Session, emulator: Emulator) -> None:
    """A complete run is never sent again."""
    run = plan_run(session, ["a", "b"])
    before = run.run().replies_df()

    shown = repr(run)
    after = run.run().replies_df()

    assert len(emulator.requests) == 2
    assert after.equals(before)
    assert f"{before['prompt_tokens'].sum()} in prompts and " in shown
    assert repr(run) == shown


@pytest.mark.slow
def test_usage_counts_what_the_service_reported(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage sums reported tokens by group; the emulator's count when asked for."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    with _scripted({"text": "Hi", "usage": usage, "times": None}) as emulator:
        run = plan_run(
            open_session(emulator), "p", model=[SMALL, LARGE], repeats=2
        ).run()

    counted = run.usage_df(include_emulated=True)
    left_out = run.usage_df()
    assert counted["total_tokens"].tolist() == [14, 14]
    assert left_out.empty
    assert capsys.readouterr().err.startswith("4 exchanges left out: emulated")
    assert plan_run(Session(), "p").usage_df().empty


@pytest.mark.slow
def test_shows_its_plan_and_what_became_of_it(session: Session) -> None:
    """In a cell a run shows its plan, and later its outcome."""
    run = plan_run(session, "p", name="tone", temperature=[0, 1])
    before = run._repr_mimebundle_()
    after = run.run()._repr_mimebundle_()

    assert len(run) == 2
    assert before["text/plain"].startswith(
        "Run tone: 2 requests planned, nothing sent yet.\n"
    )
    assert before["text/plain"].endswith(".run() sends them")
    assert "<strong>Run tone</strong>" in before["text/html"]
    assert after["text/plain"].startswith("Run tone: 2 requests: 2 ok.\n")
    assert repr(run) == after["text/plain"]


@pytest.mark.slow
def test_is_shown_when_its_ledger_cannot_be_read(
    session: Session, tmp_path: Path
) -> None:
    """Displaying a run never raises, even if its ledger is broken."""
    run = plan_run(session, "p").run()
    session.ledger.close()
    (tmp_path / "ledger.sqlite").write_bytes(b"garbage " * 100)

    assert repr(run).startswith("Run: its ledger cannot be read.")
    assert "SVC_LEDGER" in run._repr_mimebundle_()["text/plain"]


SILENT: dict[str, Any] = {"when": {"contains": "slow"}, "end": "silent", "body": ["{"]}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without rate limits, which once does not answer what is slow."""
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=[SILENT]
    ) as running:
        yield running


def _until(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    end_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end_s, "it never came to be"
        pause.wait(0.01)


@pytest.mark.slow
def test_the_frame_can_be_read_meanwhile(session: Session) -> None:
    """While it runs, what has come is in the frame, and the rest says not_run."""
    run = plan_run(session, ["quick", "slow"]).start()
    _until(lambda: run.n_todo == 1)

    frame = run.replies_df()
    step = run._repr_mimebundle_()["text/plain"]
    run.cancel()

    assert frame["status"].tolist() == ["ok", "not_run"]
    assert "running" in step
    assert not run.is_running


@pytest.mark.slow
def test_cancel_keeps_the_replies_so_far(session: Session, emulator: Emulator) -> None:
    """A cancelled run keeps its rows, and running it again sends the rest."""
    run = plan_run(session, ["quick", "slow", "late"]).start()
    _until(lambda: run.n_todo == 1)

    run.cancel()

    assert run.replies_df()["status"].tolist() == ["ok", "cancelled", "ok"]
    assert run.run().replies_df()["status"].tolist() == ["ok"] * 3
    assert len(emulator.requests) == 4


def test_start_twice_is_one_run(session: Session, emulator: Emulator) -> None:
    """What is running is not begun again."""
    run = plan_run(session, ["a", "b"])

    run.start().start().wait()

    assert len(emulator.requests) == 2


@pytest.mark.slow
def test_what_ended_it_is_raised_where_it_is_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid key ends a background run, and `wait` says so."""
    monkeypatch.setenv("SVC_API_KEY", "wrong")
    run = plan_run(session, ["a", "b"]).start()

    with pytest.raises(AuthError):
        run.wait()

    assert isinstance(run.error, AuthError)


@pytest.mark.slow
def test_pause_and_resume(session: Session, emulator: Emulator) -> None:
    """Paused, nothing is sent; resumed, the rest is."""
    prompts = [str(number) for number in range(100)]
    run = plan_run(session, prompts, model="svc-instruct")  # no limit is shown for it
    run.in_flight = 1
    run.start()
    _until(lambda: len(emulator.requests) > 2)

    run.pause()
    _until(emulator.wait_idle)
    n_paused = len(emulator.requests)
    run.resume().wait()

    assert n_paused < 100
    assert len(emulator.requests) == 100


@pytest.mark.slow
def test_a_start_resumes_a_paused_run(session: Session, emulator: Emulator) -> None:
    """`start` of a run that is paused sends the rest, as `run()` does."""
    prompts = [str(number) for number in range(100)]
    run = plan_run(session, prompts, model="svc-instruct")

    run.start().pause()
    run.start().wait()

    assert len(emulator.requests) == 100


@pytest.mark.slow
def test_a_wait_for_a_paused_run_says_so(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else would tell why the cell does not end."""
    prompts = [str(number) for number in range(100)]
    run = plan_run(session, prompts, model="svc-instruct")

    def resume() -> None:
        run.resume()

    run.start().pause()
    run.wait(tick=resume)

    assert "The run is paused" in capsys.readouterr().err
    assert run.n_todo == 0


@pytest.mark.slow
def test_an_await_resumes_a_paused_run(session: Session, emulator: Emulator) -> None:
    """`await run` of a run that is paused sends the rest, as `run()` does."""
    prompts = [str(number) for number in range(100)]
    run = plan_run(session, prompts, model="svc-instruct")
    run.in_flight = 1
    run.start()
    _until(lambda: len(emulator.requests) > 2)
    run.pause()

    async def wait() -> None:
        await run

    asyncio.run(asyncio.wait_for(wait(), 60))

    assert len(emulator.requests) == 100


@pytest.mark.slow
def test_can_be_awaited(session: Session) -> None:
    """`await run` sends without blocking the event loop."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    async def trial() -> list[str]:
        other = asyncio.create_task(beat())
        run = await plan_run(session, ["a", "b"])
        other.cancel()
        return run.replies_df()["status"].tolist()

    assert asyncio.run(trial()) == ["ok", "ok"]
    assert beats > 1


@pytest.mark.slow
def test_an_await_that_is_cancelled_stops_the_run(
    session: Session, emulator: Emulator
) -> None:
    """Cancelling the wait stops the run; the replies so far are kept."""
    run = plan_run(session, ["quick", "slow"])

    def is_in_flight() -> bool:
        return session.ledger.count() == 1 and len(emulator.requests) == 2

    async def wait() -> None:
        await run

    async def trial() -> None:
        waiting = asyncio.create_task(wait())
        await asyncio.to_thread(_until, is_in_flight)
        waiting.cancel()
        await waiting

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(trial())

    assert run.replies_df()["status"].tolist() == ["ok", "cancelled"]


def test_streams_to_who_watches(session: Session) -> None:
    """With a function to show pieces, replies are streamed, each to its trial."""
    shown: dict[str, str] = {}

    def show(trial: Trial, delta: Delta) -> None:
        prompt = trial.request.prompt
        shown[prompt] = shown.get(prompt, "") + (delta.text or "")

    frame = plan_run(session, ["a", "b"]).start(show=show).wait().replies_df()

    assert frame["text"].tolist() == [shown["a"], shown["b"]]
    assert frame["is_streamed"].tolist() == [True, True]


@pytest.mark.slow
def test_a_second_interrupt_cancels_at_once(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first interrupt waits for what is in flight, the second does not."""
    monkeypatch.setattr("svc_notebook.sweeps.execution.DRAIN_S", 60.0)
    run = plan_run(session, ["quick", "slow"])
    main = threading.get_ident()
    pause = threading.Event()

    def interrupt_twice() -> None:
        _until(lambda: session.ledger.count() == 1 and len(emulator.requests) == 2)
        signal.pthread_kill(main, signal.SIGINT)
        pause.wait(0.3)
        signal.pthread_kill(main, signal.SIGINT)

    stopper = threading.Thread(target=interrupt_twice)
    stopper.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        run.run()
    stopper.join()

    assert "what arrived is kept" in str(caught.value)
    assert run.replies_df()["status"].tolist() == ["ok", "cancelled"]


def test_a_run_is_not_iterated_over_but_says_where_its_replies_are(
    session: Session,
) -> None:
    """`for x in run` would not say whether it means rows, trials or replies."""
    run: Any = plan_run(session, ["quick", "slow"])

    with pytest.raises(ParameterError, match="not a list of replies") as refused:
        next(iter(run))

    assert "`run.replies_df()" in str(refused.value)
    assert "`run.reply(" in str(refused.value)


def test_a_run_is_not_pickled_but_says_how_to_get_it_back(session: Session) -> None:
    """Pickling a run names the call that rebuilds it."""
    run = plan_run(session, "Hi", model=SMALL, name="n").run()

    with pytest.raises(ParameterError, match=r"svc\.run\('n'\) rebuilds it"):
        pickle.dumps(run)
