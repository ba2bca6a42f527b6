"""Wrong use of a cluster gets an error with the next step, and nothing is sent."""

import re
import subprocess
import sys
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import ConfigError, ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import plan
from svc_notebook.sweeps.ray_cluster import check_version

_CONNECTS = """
import sys
from svc_notebook.errors import SvcError
from svc_notebook.sweeps.ray_cluster import connected
try:
    connected(sys.argv[1])
except SvcError as problem:
    print(problem)
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on": "spark"}, "on must be 'ray' .* or an address such as 'ray://HOST:1"),
        ({"on": 3}, "got 3. None sends from this process"),
        ({"on": "ray", "workers": 0}, "workers must be an integer >= 1"),
        ({"workers": 2}, "give on='ray', too"),
    ],
)
def test_refuses_what_is_no_cluster(
    session: Session, emulator: Emulator, given: dict[str, Any], said: str
) -> None:
    """The message says what is allowed."""
    run = plan(session, "Hi")

    for send in (run.run, run.retry, run.start):
        with pytest.raises(ParameterError, match=said):
            send(**given)

    assert len(emulator.requests) == 0


def test_pieces_of_replies_do_not_come_from_a_cluster(session: Session) -> None:
    """`show` is for one process, and says so."""
    with pytest.raises(ParameterError, match="Leave out show or on"):
        plan(session, "Hi").start(on="ray", show=lambda *_: None)


def test_without_ray_the_command_that_installs_it_is_named(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without the extra sends nothing, and can be sent from this process."""
    monkeypatch.setitem(sys.modules, "ray", None)
    run = plan(session, "Hi", name="n")

    with pytest.raises(ConfigError, match=re.escape("install 'svc-notebook[cluster]'")):
        run.run(on="ray")

    assert len(emulator.requests) == 0
    assert run.run().n_todo == 0


@pytest.mark.parametrize("is_silent", [False, True], ids=["nobody", "silent"])
@pytest.mark.usefixtures("address")
def test_an_address_without_a_cluster_is_named(*, is_silent: bool) -> None:
    """It is named after a moment, also where something listens that never answers."""
    with create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not is_silent:
            server.close()
        said = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", _CONNECTS, f"ray://127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
            cwd=Path(__file__).parents[2],
        )

    assert f"There is no Ray cluster at 'ray://127.0.0.1:{port}'" in said.stdout
    assert ("no answer within 10 s" in said.stdout) == is_silent
    assert "on='ray' for a cluster on this machine" in said.stdout


def test_nodes_without_the_package_are_refused() -> None:
    """The message says what to install there."""
    with pytest.raises(ConfigError, match=r"have no svc-notebook.*pip install"):
        check_version("")
