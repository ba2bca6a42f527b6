"""Several programs use one ledger, and any of them may die."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger

MakeExchange = Callable[..., Exchange]
pytestmark = pytest.mark.slow

_WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import _exchange
from svc_notebook.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1], session_id=sys.argv[3])
first, n_exchanges = int(sys.argv[4]), int(sys.argv[5])
for number in range(first, first + n_exchanges):
    ledger.add(_exchange(number)).result()
    print(f"x{number:04}", flush=True)
"""


def _start(path: Path, first: int, n_exchanges: int) -> "subprocess.Popen[str]":
    here = Path(__file__).parent
    arguments = [str(path), str(here), f"writer{first}", str(first), str(n_exchanges)]
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-W", "error", "-c", _WRITER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=here.parents[1],
    )


def test_two_programs_write_at_once(path: Path) -> None:
    """Two programs that make and fill one ledger at once lose nothing."""
    with _start(path, 1000, 200) as one, _start(path, 5000, 200) as two:
        one.communicate()
        two.communicate()

    with Ledger(path) as ledger:
        kept = [each.exchange_id for each in ledger.read(scope="all")]
    assert sorted(kept) == [
        f"x{n:04}" for n in (*range(1000, 1200), *range(5000, 5200))
    ]


@pytest.mark.parametrize("n_before", [1, 7, 60])
def test_a_kill_loses_nothing(path: Path, n_before: int) -> None:
    """After kill -9 every exchange that was added is there, and adding goes on."""
    with _start(path, 0, 100_000) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline().strip() for _ in range(n_before)]
        writer.kill()
        told += writer.stdout.read().split()
    # a line that was cut by the kill names an exchange that was added all the same
    told = [line for line in told if len(line) >= len("x0000")]

    with Ledger(path) as ledger:
        kept = {each.exchange_id for each in ledger.read(scope="all")}
    assert set(told) <= kept
    assert len(kept) <= len(told) + 2


def test_many_kills_lose_nothing(path: Path) -> None:
    """Writers killed at random moments, two at once, lose no finished exchange."""
    chance = Random(6)  # noqa: S311 - moments to kill at
    told: set[str] = set()
    for kill in range(6):
        first = 100_000 * (2 * kill + 1)
        with (
            _start(path, first, 9999) as one,
            _start(path, first + 10_000, 9999) as two,
        ):
            for writer, n_before in ((one, chance.randint(0, 80)), (two, 3)):
                assert writer.stdout is not None
                told.update(writer.stdout.readline() for _ in range(n_before))
            for writer in (two, one):
                writer.kill()
                told.update(writer.communicate()[0].splitlines(keepends=True))

    with Ledger(path) as ledger:
        kept = {each.exchange_id for each in ledger.read(scope="all")}
    # a line without its end was cut by the kill
    finished = {line.strip() for line in told if line.endswith("\n")}
    assert len(finished) > 100
    assert finished <= kept


_ENDS = """
import sys, threading
sys.path.insert(0, sys.argv[2])
from conftest import _exchange
from svc_notebook.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1])
under_way = threading.Event()
def add():
    for number in range(100_000):
        ledger.add(_exchange(number)).result()
        if number == 20:
            under_way.set()
threading.Thread(target=add, daemon=True).start()
under_way.wait()
"""


def test_python_may_end_while_a_thread_adds(path: Path) -> None:
    """A thread that adds when the program ends makes it neither crash nor complain."""
    here = Path(__file__).parent
    command = [sys.executable, "-W", "error", "-c", _ENDS, str(path), str(here)]

    ended = [
        subprocess.run(  # noqa: S603 - our own program
            command, capture_output=True, text=True, check=False, cwd=here.parents[1]
        )
        for _ in range(4)
    ]

    assert [(each.returncode, each.stderr) for each in ended] == [(0, "")] * 4


_FORKS = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from conftest import _exchange
from svc_notebook.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1])
ledger.add(_exchange(0)).result()
is_over = threading.Event()
def add(first):
    for number in range(first, first + 100_000):
        if is_over.is_set():
            return
        ledger.add(_exchange(number)).result()
for first in (1, 200_000, 400_000):
    threading.Thread(target=add, args=(first,), daemon=True).start()
for number in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        ledger.add(_exchange(900_000 + number)).result()
        os._exit(0 if ledger.count() else 1)
    assert os.waitpid(child, 0)[1] == 0
is_over.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_child_forked_in_the_middle_can_go_on(path: Path, kind: str) -> None:
    """A ledger is whole in a child that is forked while threads add."""
    here = Path(__file__).parent
    place, n_forks = {"memory": (":memory:", 60), "file": (str(path), 20)}[kind]

    # Since 3.12 Python warns of a fork with threads, which is what is tested.
    quiet = ("-W", "ignore::DeprecationWarning")
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *quiet, "-c", _FORKS, place, str(here), str(n_forks)],
        capture_output=True,
        text=True,
        check=False,
        cwd=here.parents[1],
        timeout=300,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
