"""The sliding windows, alone and shared by kernels, against a service that counts."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from svc_notebook.client.rate_limit import shared_limits
from svc_notebook.client.rate_windows import (
    SharedQuota,
    Slot,
    Waiting,
    Window,
    Windows,
)
from svc_notebook.credentials import Key
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.service.catalogue import Limit

ROOT = Path(__file__).parents[2]
SMALL = (5, 50)
LARGE = (20, 150)
WINDOWS = (Window(50, 60.08, "per-minute limit"), Window(5, 1.08, "per-second limit"))
KEY = "sk-secret-of-the-test"


class Now:
    """A clock that is set by hand."""

    def __init__(self, s: float = 1000.0) -> None:
        self.s = s

    def __call__(self) -> float:
        """Return the present."""
        return self.s


@pytest.fixture
def now() -> Now:
    """A clock that is set by hand."""
    return Now()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the count is kept; the folder is not there yet."""
    return tmp_path / "folder" / "limits.sqlite"


def kernels(path: Path, clock: Callable[[], float], n: int = 2) -> list[Windows]:
    """Return the windows of several kernels that share a count."""
    return [
        Windows(
            Limit(per_second=5, per_minute=50),
            clock=clock,
            others=SharedQuota(path, "a", clock=clock),
        )
        for _ in range(n)
    ]


def let_out(windows: Windows) -> Waiting:
    """Try to let one request out."""
    slot = windows.reserve()
    due = windows.try_pass(slot)
    if due.wait_s > 0:
        windows.give_back(slot)
    else:
        windows.sent(slot)
    return due


def let_all_out(windows: Windows, slots: list[Slot], now: Now) -> list[float]:
    """Let every slot out as soon as it may, and return the times."""
    waiting, gone = list(slots), []
    while waiting:
        dues = {id(slot): windows.try_pass(slot).wait_s for slot in waiting}
        for slot in (each for each in waiting if not dues[id(each)]):
            gone.append(now.s)
            windows.sent(slot)
        waiting = [slot for slot in waiting if dues[id(slot)]]
        now.s += min((dues[id(slot)] for slot in waiting), default=0.0)
    return gone


def most_in(window_s: float, times: list[float]) -> int:
    """Return the most requests that a sliding window holds."""
    return max(sum(at <= each < at + window_s for each in times) for at in times)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [SMALL, LARGE])
def test_no_window_overflows_and_no_time_is_lost(
    limit: tuple[int, int], now: Now
) -> None:
    """Twice a minute's requests keep both windows and end near the optimum."""
    per_second, per_minute = limit
    windows = Windows(Limit(per_second=per_second, per_minute=per_minute), clock=now)
    slots = [windows.reserve() for _ in range(2 * per_minute)]

    times = let_all_out(windows, slots, now)

    optimum_s = 60 + (per_minute / per_second - 1)
    assert most_in(1.0, times) <= per_second
    assert most_in(60.0, times) <= per_minute
    assert times[-1] - times[0] <= optimum_s * 1.03


@pytest.mark.slow
def test_threads_never_share_a_slot(now: Now) -> None:
    """Sixteen threads at once get as many slots as they may, and no more."""
    windows = Windows(Limit(per_second=20, per_minute=150), clock=now)

    def ask(_: int) -> bool:
        return windows.try_pass(windows.reserve()).wait_s == 0.0

    with ThreadPoolExecutor(16) as pool:
        passed = list(pool.map(ask, range(400)))

    assert sum(passed) == 20


@pytest.mark.slow
def test_no_window_overflows_over_two_minutes(path: Path, now: Now) -> None:
    """Three kernels that always have more to send end near the optimum, together."""
    each = kernels(path, now, 3)
    times: list[float] = []
    while len(times) < 100:
        dues = [let_out(windows) for windows in each]
        times += [now.s for due in dues if not due.wait_s]
        if all(due.wait_s for due in dues):
            now.s += min(due.wait_s for due in dues)

    for window_s, most in ((1.0, 5), (60.0, 50)):
        counts = [sum(at <= other < at + window_s for other in times) for at in times]
        assert max(counts) <= most
    assert times[99] - times[0] <= (60 + 9) * 1.03


def test_a_slot_that_is_given_back_is_free_for_all(path: Path, now: Now) -> None:
    """A request that was refused, or not sent, counts in no kernel."""
    one, two = kernels(path, now)
    slots = [one.reserve() for _ in range(5)]
    for slot in slots:
        one.try_pass(slot)
    one.give_back(slots[0])

    got = [let_out(two).wait_s > 0 for _ in range(2)]

    assert got == [False, True]


@pytest.mark.parametrize("ahead_s", [-900.0, 900.0])
def test_a_machine_leaves_the_rows_of_others_alone(
    ahead_s: float, path: Path, now: Now
) -> None:
    """The clocks of two machines that share a folder say nothing about each other."""
    one = SharedQuota(path, "a", clock=now)
    other = SharedQuota(path, "of another machine", clock=Now(now.s + ahead_s))
    for _ in range(5):
        one.take(now.s, WINDOWS)

    other.take(now.s + ahead_s, WINDOWS)

    assert isinstance(one.take(now.s, WINDOWS), Waiting)


def test_a_late_request_counts_from_when_it_was_sent(path: Path, now: Now) -> None:
    """Other kernels hear when a request that had to connect first was written."""
    one, two = kernels(path, now)
    slots = [one.reserve() for _ in range(5)]
    for slot in slots:
        one.try_pass(slot)
    now.s += 0.5
    for slot in slots:
        one.sent(slot)

    due = let_out(two)

    assert round(due.wait_s, 2) == 1.08


def test_times_that_cannot_be_are_forgotten(path: Path, now: Now) -> None:
    """Times of the last minute count; older ones, and ones of the future, do not."""
    quota = SharedQuota(path, "a", clock=now)
    for at_s in (now.s - 61, now.s + 500, now.s + 600, now.s - 70, now.s + 700):
        with sqlite3.connect(path) if path.exists() else _made(quota, path) as file:
            file.execute(
                "INSERT INTO sent (quota, at_s) VALUES (?, ?)",
                (quota._quota, at_s),  # noqa: SLF001 - as another kernel
            )
        file.close()

    got = [quota.take(now.s, WINDOWS) for _ in range(6)]

    assert [isinstance(each, int) for each in got] == [True] * 5 + [False]


def _made(quota: SharedQuota, path: Path) -> sqlite3.Connection:
    quota.drop(0)
    return sqlite3.connect(path)


def test_the_file_shows_neither_key_nor_address(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is the user's alone and holds one-way marks and times."""
    monkeypatch.setenv("XDG_DATA_HOME", str(path))
    limits = shared_limits("https://h/v1", Key(KEY, source="x"), clock=time.monotonic)
    limiter = limits.of("svc-v2-8b-instruct")

    limiter.try_pass(limiter.reserve())

    file = path / "svc_notebook" / "limits.sqlite"
    content = file.read_bytes()
    words = (KEY, "https://h", "svc-v2-8b")
    assert not [word for word in words if word.encode() in content]
    assert file.stat().st_mode & 0o077 == 0


def test_garbage_is_replaced(path: Path, now: Now) -> None:
    """A file that is not a database stops no request, and is replaced."""
    path.parent.mkdir()
    path.write_bytes(b"garbage" * 1000)
    quota = SharedQuota(path, "a", clock=now)

    first = quota.take(now.s, WINDOWS)
    now.s += 6

    assert first is None
    assert isinstance(quota.take(now.s, WINDOWS), int)


def test_a_folder_that_cannot_be_written(path: Path, now: Now) -> None:
    """Without the file a kernel goes on with its own count."""
    path.parent.write_text("a file where the folder should be")
    (windows,) = kernels(path, now, 1)

    got = [round(let_out(windows).wait_s, 2) for _ in range(6)]

    assert got == [0.0] * 5 + [1.08]


@pytest.mark.slow
def test_a_file_that_is_held_is_not_waited_for(path: Path, now: Now) -> None:
    """While another program holds the file, a second of it is waited for at most."""
    quota = SharedQuota(path, "a", clock=now)
    quota.take(now.s, WINDOWS)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    got = []
    for _ in range(100):
        got.append(quota.take(now.s, WINDOWS))
        now.s += 0.125

    holder.close()
    assert got[:8] == [Waiting(0.02, "per-second limit")] * 8
    assert got[8:20] == [None] * 12


HOLD = """
import sqlite3, sys, time
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN IMMEDIATE")
file.execute("DELETE FROM sent")
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_kill_leaves_nothing_stuck(path: Path, now: Now) -> None:
    """A kernel killed in the middle of a step neither blocks nor spoils the count."""
    quota = SharedQuota(path, "a", clock=now)
    for _ in range(4):
        quota.take(now.s, WINDOWS)
    with subprocess.Popen(  # noqa: S603 - a Python of our own
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.send_signal(signal.SIGKILL)

    got = [isinstance(quota.take(now.s, WINDOWS), int) for _ in range(2)]

    assert got == [True, False]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.slow
def test_a_fork_carries_nothing_over(path: Path) -> None:
    """Parent and child count together after a fork."""
    program = f"""
import os
from pathlib import Path
from tests.client.test_rate_windows import WINDOWS
from svc_notebook.client.rate_windows import SharedQuota
quota = SharedQuota(Path({str(path)!r}), "a", clock=lambda: 1000.0)
taken = [quota.take(1000.0, WINDOWS)]
child = os.fork()
taken += [quota.take(1000.0, WINDOWS) for _ in range(2)]
if child == 0:
    os._exit(sum(isinstance(each, int) for each in taken))
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), len(taken), quota.take(1000.0, WINDOWS))
"""

    ended = subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=120,
    )

    # The child's own two, and the one it was forked with; five in all, and no more.
    assert ended.stderr == ""
    assert ended.stdout.startswith("3 3 Waiting(wait_s=1.08")


ASK = """
import asyncio, sys
from svc_notebook.client.async_client import AsyncClient
from svc_notebook.settings import Settings

async def main() -> None:
    settings = Settings(base_url=sys.argv[1])
    async with AsyncClient(settings, api_key=sys.argv[2]) as client:
        asked = (client.complete(f"Say {at}", max_tokens=3) for at in range(5))
        print(sum([each.exchange.n_refused for each in await asyncio.gather(*asked)]))

asyncio.run(main())
"""


@pytest.mark.slow
def test_three_kernels_at_once_meet_no_refusal() -> None:
    """Processes with one key keep the model's limit together, in real time."""
    # What they send in three seconds may all arrive in one where a machine is busy, but
    # for one request: each for itself, they would send all of it in the first.
    limits = {"svc-v2-8b-instruct": (14, 999)}
    with Emulator(tokens_per_s=None, first_token_s=0, limits=limits) as emulator:
        others = [
            subprocess.Popen(  # noqa: S603 - a Python of our own
                [sys.executable, "-c", ASK, emulator.base_url, emulator.api_key],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            for _ in range(3)
        ]

        said = [other.communicate(timeout=120)[0] for other in others]

    assert said == ["0\n"] * 3
    assert len(emulator.requests) == 15
