"""The plain client in programs of their own: forks, and ends without noise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def _run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, *options, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


# Since 3.12 Python warns of a fork with threads, which is what is tested.
FORKS = ("-W", "ignore::DeprecationWarning")
START = """
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.sync_client import Client
from svc_notebook.emulator.emulator import Emulator
emulator = Emulator(tokens_per_s=200, first_token_s=0).start()
client = Client(base_url=emulator.base_url, api_key=emulator.api_key)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_works_after_a_fork() -> None:
    """Parent and child go on asking after a fork, each over its own connections."""
    program = f"""{START}
import os
client.complete("Hello")
child = os.fork()
if child == 0:
    os._exit(0 if client.complete("Hello", model="svc-instruct").text else 1)
_, status = os.waitpid(child, 0)
print(status, bool(client.complete("Hello", model="svc-instruct").text))
client.close()
emulator.close()
"""

    ended = _run(program, *FORKS)

    assert (ended.stdout, ended.stderr) == ("0 True\n", "")


@pytest.mark.parametrize("end", ["", "client.close()", "del client, stream"])
def test_exit_makes_no_noise(end: str) -> None:
    """A program may end without closing anything, even in the middle of a stream."""
    program = f"""{START}
client.complete("Hello")
stream = client.stream("Hello", max_tokens=4000)
next(iter(stream))
{end}
print("end")
"""

    ended = _run(program, "-X", "dev", "-W", "error")

    # On a busy machine asyncio's debug mode tells of steps that took long.
    noise = [line for line in ended.stderr.splitlines() if "Executing <" not in line]
    assert (ended.stdout, noise, ended.returncode) == ("end\n", [], 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_stream_stays_where_it_was_begun() -> None:
    """A forked child cannot read its parent's stream, but can send requests."""
    program = f"""{START}
import os
from svc_notebook.errors import SvcError
stream = client.stream("Hello", max_tokens=40, model="svc-instruct")
next(iter(stream))
child = os.fork()
if child == 0:
    try:
        list(stream)
    except SvcError as problem:
        is_told = "belongs to the process" in str(problem)
    stream.cancel()
    again = client.complete("Hello", model="svc-instruct").text
    os._exit(0 if is_told and again else 1)
_, status = os.waitpid(child, 0)
print(status, bool("".join(stream)))
client.close()
emulator.close()
"""

    ended = _run(program, *FORKS)

    assert (ended.stdout, ended.stderr) == ("0 True\n", "")


def test_exit_in_a_stream_ends_it_before_its_ledger() -> None:
    """What an exit stops is recorded before the ledger is closed, each time."""
    program = f"""{START}
import sys, weakref
class Sink:
    def __init__(self):
        self.kept = []
        weakref.finalize(self, lambda kept: print(len(kept)), self.kept)
    def add(self, exchange):
        self.kept.append(exchange.status)
client = Client(base_url=emulator.base_url, api_key=emulator.api_key, sinks=[Sink()])
for text in client.stream("Hello", max_tokens=4000):
    sys.exit(3)
"""

    ended = _run(program)

    assert (ended.stdout, ended.stderr, ended.returncode) == ("1\n", "", 3)
