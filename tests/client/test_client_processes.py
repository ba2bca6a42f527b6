"""The plain client in programs of their own: forks, and ends without noise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, *options, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


START = """
from svc_notebook.client.gates import Gates
from svc_notebook.client.sync import Client
from svc_notebook.emulator.server import Emulator
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

    ended = _run(program)

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
