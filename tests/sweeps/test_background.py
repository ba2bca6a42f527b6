"""A run that is begun and left to itself."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import AuthError
from svc_notebook.service.chunk import Delta
from svc_notebook.session import Session
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.plan import plan

OpenSession = Callable[[Emulator], Session]

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
    end_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end_s, "it never came to be"
        pause.wait(0.01)


def test_start_leaves_the_caller_free(session: Session) -> None:
    """A run that was started goes on by itself, and can be waited for."""
    run = plan(session, ["a", "b"]).start()

    frame = run.wait().replies_df()

    assert frame["status"].tolist() == ["ok", "ok"]
    assert not run.is_running


def test_the_frame_can_be_read_meanwhile(session: Session) -> None:
    """While it runs, what has come is in the frame, and the rest says not_run."""
    run = plan(session, ["quick", "slow"]).start()
    _until(lambda: run.n_todo == 1)

    frame = run.replies_df()
    step = run._repr_mimebundle_()["text/plain"]
    run.cancel()

    assert frame["status"].tolist() == ["ok", "not_run"]
    assert "running" in step
    assert not run.is_running


def test_cancel_keeps_what_had_come(session: Session, emulator: Emulator) -> None:
    """Cancelled, it has its rows, and running again asks the rest."""
    run = plan(session, ["quick", "slow", "late"]).start()
    _until(lambda: run.n_todo == 1)

    run.cancel()

    assert run.replies_df()["status"].tolist() == ["ok", "cancelled", "ok"]
    assert run.run().replies_df()["status"].tolist() == ["ok"] * 3
    assert len(emulator.requests) == 4


def test_start_twice_is_one_run(session: Session, emulator: Emulator) -> None:
    """What is running is not begun again."""
    run = plan(session, ["a", "b"])

    run.start().start().wait()

    assert len(emulator.requests) == 2


def test_what_ended_it_is_raised_where_it_is_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid key ends a background run, and `wait` says so."""
    monkeypatch.setenv("SVC_API_KEY", "wrong")
    run = plan(session, ["a", "b"]).start()

    with pytest.raises(AuthError):
        run.wait()

    assert isinstance(run.error, AuthError)


def test_pause_and_resume(session: Session, emulator: Emulator) -> None:
    """Paused, nothing is sent; resumed, the rest is."""
    prompts = [str(number) for number in range(400)]
    run = plan(session, prompts, model="svc-instruct")  # no limit is shown for it
    run.in_flight = 1
    run.start()
    _until(lambda: len(emulator.requests) > 2)

    run.pause()
    _until(emulator.wait_idle)
    n_paused = len(emulator.requests)
    run.resume().wait()

    assert n_paused < 400
    assert len(emulator.requests) == 400


def test_can_be_awaited(session: Session) -> None:
    """`await run` asks, and leaves the loop free for others."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    async def trial() -> list[str]:
        other = asyncio.create_task(beat())
        run = await plan(session, ["a", "b"])
        other.cancel()
        return run.replies_df()["status"].tolist()

    assert asyncio.run(trial()) == ["ok", "ok"]
    assert beats > 1


def test_an_await_that_is_cancelled_stops_the_run(session: Session) -> None:
    """Whoever gives up waiting gives up the run; what arrived is kept."""
    run = plan(session, ["quick", "slow"])

    async def trial() -> None:
        async with asyncio.timeout(0.5):
            await run

    with pytest.raises(TimeoutError):
        asyncio.run(trial())

    assert run.replies_df()["status"].tolist() == ["ok", "cancelled"]


def test_streams_to_who_watches(session: Session) -> None:
    """With a function to show pieces, replies are streamed, each to its trial."""
    shown: dict[str, str] = {}

    def show(trial: Trial, delta: Delta) -> None:
        prompt = trial.request.prompt
        shown[prompt] = shown.get(prompt, "") + (delta.text or "")

    frame = plan(session, ["a", "b"]).start(show=show).wait().replies_df()

    assert frame["text"].tolist() == [shown["a"], shown["b"]]
    assert frame["is_streamed"].tolist() == [True, True]


def test_a_second_interrupt_cancels_at_once(session: Session) -> None:
    """The first interrupt waits for what is in flight, the second does not."""
    run = plan(session, ["quick", "slow"])
    main = threading.get_ident()
    pause = threading.Event()

    def interrupt_twice() -> None:
        _until(lambda: session.ledger.count() == 1)
        signal.pthread_kill(main, signal.SIGINT)
        pause.wait(0.3)
        signal.pthread_kill(main, signal.SIGINT)

    stopper = threading.Thread(target=interrupt_twice)
    stopper.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        run.run()
    began_s = time.monotonic()
    stopper.join()

    assert time.monotonic() - began_s < 1
    assert "what arrived is kept" in str(caught.value)
    assert run.replies_df()["status"].tolist() == ["ok", "cancelled"]
