"""Whatever happens to a kernel, its disk or its ledger, no paid reply is lost."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import LedgerError
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ledger_file import current_version
from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.sweeps.run import plan_run

OpenSession = Callable[[Emulator], Session]

N_CELLS = 120
IN_FLIGHT = 8
MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits
_SWEEPER = """
import json, os, resource, sys
given = json.loads(sys.argv[1])
if limit := given.get("max_bytes"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
from svc_notebook.errors import SvcError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
# while they are readable
import svc_notebook.client.connections, svc_notebook.ledger.ledger_file
if given.get("is_nobody") and os.geteuid() == 0:
    os.setuid(65534)
try:
    run = plan_run(
        Session(), "Say {{text}}", rows=[str(n) for n in range(given["n_trials"])],
        model="svc-instruct", name="n", max_tokens=200,
    )
    run.in_flight = 8
    print("planned", flush=True)
    print(str(run.run()).splitlines()[0])
except SvcError as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(3)
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without rate limits that takes some milliseconds for a reply."""
    with Emulator(tokens_per_s=None, first_token_s=0.01, limits=False) as running:
        yield running


def _sweep(
    emulator: Emulator, ledger: Path, **given: object
) -> "subprocess.Popen[str]":
    env = {
        **os.environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": str(ledger),
    }
    arguments = json.dumps({"n_trials": N_CELLS, **given})
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-W", "error", "-c", _SWEEPER, arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd=Path(__file__).parents[2],
    )


def _ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    with process:
        said, _ = process.communicate(timeout=120)
    return process.returncode, said


def _asked(emulator: Emulator) -> Counter[str]:
    return Counter(each.json["messages"][-1]["content"] for each in emulator.requests)


def _kept(ledger: Path) -> set[str]:
    if not ledger.exists():
        return set()
    with Ledger(ledger) as opened:
        found = opened.read(scope="all", run="n", status="ok")
        return {exchange.request.prompt for exchange in found}


@pytest.mark.slow
def test_kills_lose_no_finished_reply(emulator: Emulator, tmp_path: Path) -> None:
    """Killed at any moment, again and again: only what was in flight is asked again."""
    path = tmp_path / "ledger.sqlite"
    chance = random.Random(7)  # noqa: S311 - no secret
    pause = threading.Event()
    n_kills = 0
    while len(_kept(path)) < N_CELLS and n_kills < 6:
        before, kept = _asked(emulator), _kept(path)
        process = _sweep(emulator, path)
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            pause.wait(chance.uniform(0.05, 0.4))
            process.kill()
        n_kills += 1
        again = _asked(emulator) - before
        assert set(again).isdisjoint(kept), "a reply that was kept was asked again"
        emulator.wait_idle()

    code, said = _ended(_sweep(emulator, path))

    assert (code, said.splitlines()[-1]) == (0, f"Run n: {N_CELLS} requests: 120 ok.")
    assert len(_kept(path)) == N_CELLS
    assert sum(_asked(emulator).values()) <= N_CELLS + n_kills * IN_FLIGHT


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_a_silent_service(
    open_session: OpenSession,
) -> None:
    """Interrupted while the service is silent, a run cancels, keeps and resumes."""
    silent = {"end": "silent", "body": ["{"], "when": {"contains": "slow"}}
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=[silent]
    ) as stuck:
        session = open_session(stuck)
        run = plan_run(session, ["quick", "slow"])
        main = threading.get_ident()
        pause = threading.Event()

        def interrupt() -> None:
            while not session.ledger.count() or len(stuck.requests) < 2:
                pause.wait(0.01)
            signal.pthread_kill(main, signal.SIGINT)

        stopper = threading.Thread(target=interrupt)
        stopper.start()
        with pytest.raises(KeyboardInterrupt):
            run.run()
        stopper.join()
        stopped = sorted(each.status for each in session.ledger.read())
        resumed = run.run().replies_df()

    assert stopped == ["cancelled", "ok"]  # not a time-out
    assert resumed["status"].tolist() == ["ok", "ok"]


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_run_resumes_whole(
    emulator: Emulator, tmp_path: Path
) -> None:
    """On a full disk the run stops with a clear error, and later goes on."""
    path = tmp_path / "ledger.sqlite"

    code, said = _ended(_sweep(emulator, path, max_bytes=150_000))
    kept = _kept(path)
    n_before = sum(_asked(emulator).values())
    again, whole = _ended(_sweep(emulator, path))

    assert (code, again) == (3, 0), (said, whole)
    assert "LedgerError" in said
    assert "disk" in said
    assert 0 < len(kept) < N_CELLS
    assert n_before <= len(kept) + 2 * IN_FLIGHT
    assert f"{N_CELLS} ok" in whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"garbage " * 999),
        lambda path: path.write_bytes(path.read_bytes()[: 3 * 4096]),
        lambda path: path.write_bytes(
            path.read_bytes().replace(
                b'"finish_reason":"stop"', b'"finish_reason":"stoP"', 1
            )
        ),
    ],
    ids=["garbage", "truncated", "flipped"],
)
def test_a_damaged_ledger_is_refused_and_left_as_it_is(
    open_session: OpenSession,
    emulator: Emulator,
    tmp_path: Path,
    spoil: Callable[[Path], None],
) -> None:
    """A store that is damaged is named, not overwritten, and nothing is sent."""
    path = tmp_path / "ledger.sqlite"
    first = open_session(emulator)
    prompts = [str(number) for number in range(30)]
    plan_run(first, prompts, model=MODEL, name="n").run()
    first.close()
    spoil(path)
    before, n_before = path.read_bytes(), len(emulator.requests)

    with pytest.raises(LedgerError) as caught:
        plan_run(open_session(emulator), prompts, model=MODEL, name="n").run()

    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert len(emulator.requests) == n_before


def test_an_empty_ledger_is_begun(
    open_session: OpenSession, emulator: Emulator, tmp_path: Path
) -> None:
    """A store without a byte in it is a new one."""
    (tmp_path / "ledger.sqlite").touch()

    frame = plan_run(open_session(emulator), ["a"], name="n").run().replies_df()

    assert frame["status"].tolist() == ["ok"]


def test_a_newer_ledger_is_refused_by_name(
    open_session: OpenSession, emulator: Emulator, tmp_path: Path
) -> None:
    """A store of a newer version is left alone, and nothing is sent."""
    session = open_session(emulator)
    session.ledger.check()
    session.close()
    path = tmp_path / "ledger.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {current_version() + 1}")
    connection.close()

    with pytest.raises(LedgerError, match="newer version"):
        plan_run(open_session(emulator), ["a"]).run()

    assert len(emulator.requests) == 0


@pytest.mark.slow
def test_a_read_only_folder_is_refused_at_the_start(emulator: Emulator) -> None:
    """Where nothing can be kept, nothing is sent."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)

        code, said = _ended(_sweep(emulator, folder / "l.sqlite", is_nobody=True))

        folder.chmod(0o755)
    assert code == 3
    assert said.startswith("LedgerError")
    assert len(emulator.requests) == 0


def test_a_ledger_that_is_no_file_is_refused_at_the_start(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store whose place is a folder is refused before anything is sent."""
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    session = Session(Settings(base_url=emulator.base_url, ledger=str(tmp_path)))

    with pytest.raises(LedgerError, match="SVC_LEDGER"):
        plan_run(session, ["a"], name="n").run()

    session.close()
    assert len(emulator.requests) == 0


@pytest.mark.slow
def test_replies_that_could_not_be_kept_are_kept_later(
    open_session: OpenSession, emulator: Emulator, tmp_path: Path
) -> None:
    """What came while the store could not be written is kept when the run goes on."""
    session = open_session(emulator)
    run = plan_run(session, [str(number) for number in range(20)], model=MODEL)
    run.in_flight = 4
    session.ledger.check()
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as spoiler:
        spoiler.execute(
            "CREATE TRIGGER spoil BEFORE INSERT ON exchanges "
            "BEGIN SELECT RAISE(ABORT, 'spoilt'); END"
        )
    with pytest.raises(LedgerError, match="spoilt"):
        run.run()
    emulator.wait_idle()
    spoiler.execute("DROP TRIGGER spoil")
    spoiler.close()

    frame = run.run().replies_df()

    assert frame["status"].tolist() == ["ok"] * 20
    assert len(emulator.requests) == 20
