"""Whatever dies, no finished reply is lost, and nothing is left behind."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ConfigError
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.session import Session
from svc_notebook.sweeps import ray_cluster
from svc_notebook.sweeps.ray_cluster import Cluster
from svc_notebook.sweeps.run import plan_run
from tests.cluster.conftest import Nodes, OpenSession

MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits
IN_FLIGHT = 8
N_TRIALS = 600
N_KILLS = 20
N_DRIVER_KILLS = 5
_DRIVER = """
import json, os, sys
given = json.loads(sys.argv[1])
import ray
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
ray.init(address=given["address"], log_to_driver=False, logging_level="ERROR")
rows = [str(n) for n in range(given["n_trials"])]
run = plan_run(Session(), "Say {{text}}", rows=rows, model="svc-instruct", name="n")
run.in_flight = 8
run.start(on="auto", workers=1)
print("started", flush=True)
print(str(run.wait()).splitlines()[0])
"""
_INTERRUPTED = """
import signal, sys, threading
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

rows = ["a", "b"]
run = plan_run(Session(), "Say {{text}}", rows=rows, model="svc-instruct", name="n")
pause, main = threading.Event(), threading.get_ident()

def interrupt():
    while "ray" not in sys.modules:
        pause.wait(0.01)
    signal.pthread_kill(main, signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    run.run(on="ray", workers=1)
except KeyboardInterrupt as stop:
    print(stop)
print(run.run(on="ray", workers=1).n_todo)
"""


_LOSES_ITS_HEAD = """
import os, signal, threading
from pathlib import Path
from svc_notebook.errors import ConfigError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

rows = [str(number) for number in range(int(os.environ["N_TRIALS"]))]
run = plan_run(Session(), "Say {{text}}", rows=rows, model="svc-instruct", name="n")
run.in_flight = 4
run.start(on="ray", workers=2)
pause = threading.Event()
while run.n_todo > len(rows) - 20:
    pause.wait(0.01)
for path in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        command = path.read_bytes()
    except OSError:
        continue
    if b"gcs_server" in command and os.environ["RAY_TMPDIR"].encode() in command:
        os.kill(int(path.parent.name), signal.SIGKILL)
try:
    run.wait()
except ConfigError as problem:
    print(str(problem).partition(".")[0])
left = run.n_todo
print(0 < left < len(rows))
run.run()
print(run.n_todo, run.retry().replies_df()["status"].eq("ok").all())
print(Path("~/.ray").expanduser().exists())
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without rate limits that takes some milliseconds for a reply."""
    with Emulator(tokens_per_s=None, first_token_s=0.05, limits=False) as running:
        yield running


def _actors() -> list[int]:
    """Return the processes of our actors."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:  # it has ended
            continue
        if command.startswith((b"ray::SvcWorker", b"ray::_QuotaActor")):
            found.append(int(path.parent.name))
    return found


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")


def _wait_until_gone() -> list[int]:
    """Wait until no actor is left; return those that stay."""
    pause = threading.Event()
    for _ in range(600):
        if not (left := _actors()):
            return []
        pause.wait(0.1)
    return left


def _asked(emulator: Emulator) -> Counter[str]:
    return Counter(each.json["messages"][-1]["content"] for each in emulator.requests)


def _kept(ledger: str) -> list[str]:
    with Ledger(ledger) as opened:
        found = opened.read(scope="all", run="n", status="ok")
        return [exchange.request.prompt for exchange in found]


def _kill_some(n: int, ledger: Ledger, is_over: threading.Event) -> list[int]:
    """Kill workers, each after some more replies; return the processes."""
    chance = random.Random(7)  # noqa: S311 - no secret
    killed: list[int] = []
    pause = threading.Event()
    while len(killed) < n and not is_over.is_set():
        n_enough = ledger.count() + chance.randrange(1, 20)
        while ledger.count() < n_enough and not is_over.is_set():
            pause.wait(0.02)
        if pids := sorted(set(_actors()) - set(killed)):
            killed.append(chance.choice(pids))
            os.kill(killed[-1], signal.SIGKILL)
    return killed


@pytest.mark.usefixtures("ray")
def test_kills_of_workers_lose_no_finished_reply(
    session: Session, emulator: Emulator
) -> None:
    """Each trial has one reply; only what a worker had in flight is sent again."""
    rows = [str(number) for number in range(N_TRIALS)]
    run = plan_run(session, "Say {{text}}", rows=rows, model=MODEL, name="n")
    run.in_flight = IN_FLIGHT
    is_over, killed = threading.Event(), list[int]()

    run.start(on="auto", workers=2)
    killer = threading.Thread(
        target=lambda: killed.extend(_kill_some(N_KILLS, session.ledger, is_over))
    )
    killer.start()
    run.wait()
    is_over.set()
    killer.join()

    assert len(killed) == N_KILLS
    assert sorted(_kept(session.settings.ledger)) == sorted(f"Say {n}" for n in rows)
    assert run.replies_df()["status"].tolist() == ["ok"] * N_TRIALS
    assert sum(_asked(emulator).values()) <= N_TRIALS + N_KILLS * IN_FLIGHT
    assert _wait_until_gone() == []


@pytest.mark.usefixtures("ray")
def test_a_node_may_take_all_workers_with_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are, others are started, and the run goes on."""
    monkeypatch.setattr("svc_notebook.sweeps.ray_cluster.MOST_LOST_IN_A_ROW", 2)
    run = plan_run(session, "Say {{text}}", rows=[*"abcdefghij" * 10], model=MODEL)
    run.in_flight = IN_FLIGHT

    run.start(on="auto", workers=3).pause()
    for pid in _actors():
        os.kill(pid, signal.SIGKILL)
    run.resume().wait()

    assert run.replies_df()["status"].tolist() == ["ok"] * 100
    assert _wait_until_gone() == []


def test_a_run_that_is_disconnected_ends(
    ray: Any,  # noqa: ANN401 - the package
    address: str,
    session: Session,
) -> None:
    """No other cluster is started or joined for it; what came is kept."""
    rows = [str(number) for number in range(N_TRIALS)]
    run = plan_run(session, "Say {{text}}", rows=rows, model=MODEL, name="n")
    run.in_flight = IN_FLIGHT
    pause = threading.Event()

    run.start(on="auto", workers=2)
    while not session.ledger.count():
        pause.wait(0.01)
    ray.shutdown()
    with pytest.raises(ConfigError, match=r"was disconnected.*retry\(on=...\) also"):
        run.wait()
    is_connected, left = ray.is_initialized(), _wait_until_gone()
    n_ok, n_todo = len(_kept(session.settings.ledger)), run.n_todo
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    run.retry(on="auto", workers=1)

    assert not is_connected
    assert left == []
    assert 0 < n_ok < N_TRIALS - n_todo <= n_ok + 2 * IN_FLIGHT
    assert run.replies_df()["status"].tolist() == ["ok"] * N_TRIALS


def test_kills_of_the_driver_lose_no_finished_reply(
    address: str, emulator: Emulator, tmp_path: Path
) -> None:
    """Started again by name, the run sends only what is missing; no actor stays."""
    ledger = tmp_path / "ledger.sqlite"
    chance = random.Random(7)  # noqa: S311 - no secret
    pause = threading.Event()
    n_trials, first_lines = 300, list[str]()
    for n_left in reversed(range(N_DRIVER_KILLS + 1)):
        before, kept = _asked(emulator), _kept(str(ledger))
        arguments = json.dumps({"address": address, "n_trials": n_trials})
        env = {
            **os.environ,
            "SVC_BASE_URL": emulator.base_url,
            "SVC_API_KEY": emulator.api_key,
            "SVC_LEDGER": str(ledger),
        }
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _DRIVER, arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=Path(__file__).parents[2],
        ) as driver:
            assert driver.stdout is not None
            first_lines.append(driver.stdout.readline())
            if n_left:
                n_enough = len(kept) + chance.randrange(1, 30)
                while len(_kept(str(ledger))) < n_enough:
                    pause.wait(0.05)
                driver.kill()
            last = driver.stdout.read()
        assert _wait_until_gone() == []
        again = _asked(emulator) - before
        assert set(again).isdisjoint(kept), "a reply that was kept was asked again"

    assert first_lines == ["started\n"] * (N_DRIVER_KILLS + 1)
    assert last == f"Run n: {n_trials} requests: {n_trials} ok.\n"
    assert len(_kept(str(ledger))) == n_trials


@pytest.mark.usefixtures("ray")
def test_an_interrupt_leaves_no_actor_behind(open_session: OpenSession) -> None:
    """What came is kept, what was in flight is cancelled, and the run goes on later."""
    silent = {"end": "silent", "body": ["{"], "when": {"contains": "slow"}}
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=[silent]
    ) as stuck:
        session = open_session(stuck)
        run = plan_run(session, ["quick", "slow"])
        main, pause = threading.get_ident(), threading.Event()

        def interrupt() -> None:
            while not session.ledger.count():
                pause.wait(0.01)
            signal.pthread_kill(main, signal.SIGINT)

        stopper = threading.Thread(target=interrupt)
        stopper.start()
        with pytest.raises(KeyboardInterrupt):
            run.run(on="auto", workers=2)
        stopper.join()
        left = _wait_until_gone()
        stopped = sorted(each.status for each in session.ledger.read())
        resumed = run.run(on="auto", workers=1).replies_df()

    assert left == []
    assert stopped == ["cancelled", "ok"]
    assert resumed["status"].tolist() == ["ok", "ok"]


def test_a_run_goes_on_after_an_interrupt_of_the_start(
    nodes: Nodes, emulator: Emulator, tmp_path: Path
) -> None:
    """Ray is usable, although the interrupt came while it was being imported."""
    env = {
        **os.environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": str(tmp_path / "ledger.sqlite"),
        "RAY_TMPDIR": str(nodes.folder),
    }

    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _INTERRUPTED],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
        env=env,
        cwd=Path(__file__).parents[2],
    )

    said = "(interrupted while the workers were starting; nothing more was sent)"
    assert ended.stdout.splitlines() == [said, "0"]
    assert len(emulator.requests) == 2
    assert _wait_until_gone() == []


@pytest.mark.usefixtures("nodes")
def test_a_kernel_outlives_the_head_of_its_cluster(
    emulator: Emulator, tmp_path: Path
) -> None:
    """Its run ends with an error, and the next `run` sends what was never sent.

    Nothing that Ray says of it gets into the cell, and no token stays in the home.
    """
    folder = mkdtemp(prefix="ray")  # short: Ray makes sockets below it
    env = {
        name: value for name, value in os.environ.items() if "RAY_AUTH" not in name
    } | {
        "HOME": str(tmp_path),
        "N_TRIALS": "4000",
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": str(tmp_path / "ledger.sqlite"),
        "RAY_TMPDIR": folder,
        "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # for the minute of Ray's own
    }

    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _LOSES_ITS_HEAD],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=env,
        cwd=Path(__file__).parents[2],
    )
    shutil.rmtree(folder, ignore_errors=True)

    said = "This kernel was disconnected from the Ray cluster"
    assert ended.stdout.splitlines() == [said, "True", "0 True", "False"]
    assert ended.returncode == 0
    assert re.findall("(?i)gcs|raylet|log channel", ended.stderr) == []
    assert _wait_until_gone() == []


@pytest.mark.usefixtures("ray")
def test_an_interrupt_right_after_a_worker_began_leaves_none(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker ends, although nobody had noted it yet."""
    begin = Cluster._new_link  # noqa: SLF001 - the moment after it is meant

    def interrupted(cluster: Cluster) -> Any:  # noqa: ANN401 - a link
        link = begin(cluster)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return link

    monkeypatch.setattr(Cluster, "_new_link", interrupted)

    with pytest.raises(KeyboardInterrupt):
        plan_run(session, "Hi", model=MODEL).run(on="auto", workers=1)

    assert _wait_until_gone() == []


@pytest.mark.usefixtures("ray")
def test_a_run_whose_quota_is_gone_says_so(
    ray: Any,  # noqa: ANN401 - the package
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends instead of waiting in silence."""
    monkeypatch.setattr(ray_cluster, "GONE_S", 1.0)
    rows = [str(number) for number in range(60)]
    run = plan_run(session, "Say {{text}}", rows=rows, model="svc-v2-8b-instruct")

    run.start(on="auto", workers=1)
    (quota,) = ray_cluster._quotas.values()  # noqa: SLF001 - Ray knows no name of it
    ray.kill(quota.actor)

    with pytest.raises(ConfigError, match=r"keeps the rate limits .* is gone"):
        run.wait()
    assert _wait_until_gone() == []


@pytest.mark.usefixtures("ray")
def test_a_quota_that_is_started_again_knows_what_was_sent(
    open_session: OpenSession,
) -> None:
    """The run goes on after some seconds, not after a minute, and keeps the limit."""
    limited = "svc-v1.5-instruct"  # 20 a second, 150 a minute
    rows = [str(number) for number in range(100)]
    pause = threading.Event()
    with Emulator(tokens_per_s=None, first_token_s=0) as emulator:
        session = open_session(emulator)
        run = plan_run(session, "Say {{text}}", rows=rows, model=limited)

        run.start(on="auto", workers=2)
        while session.ledger.count() < 30:
            pause.wait(0.01)
        (quota,) = (pid for pid in _actors() if "_QuotaActor" in _command(pid))
        os.kill(quota, signal.SIGKILL)
        frame = run.wait().replies_df()

    assert frame["status"].tolist() == ["ok"] * 100
    assert frame["queue_s"].max() < 60
    assert [request.status for request in emulator.requests] == [200] * 100
