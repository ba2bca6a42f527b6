"""A Ray cluster of two nodes for all tests of a process, and sessions to sweep with."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir, mkdtemp
from typing import Any, NamedTuple

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import Session
from svc_notebook.settings import Settings

WHY_SKIPPED = "needs Ray: python -m pip install 'ray[client]' pyarrow"
OpenSession = Callable[[Emulator], Session]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the cluster as slow."""
    for item in items:
        if item.path.parent.name == "cluster" and "nodes" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.slow)


class Nodes(NamedTuple):
    """A cluster: its address, and where Ray keeps its files."""

    address: str
    folder: Path


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Return a cluster of two nodes, or that of RAY_ADDRESS."""
    if find_spec("ray") is None:
        pytest.skip(WHY_SKIPPED)
    if running := os.environ.get("RAY_ADDRESS"):
        yield Nodes(running, Path(gettempdir(), "ray"))
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray makes a token when it starts a cluster, and from then on a driver that finds
    # a cluster by itself insists on one: these nodes and all drivers have the same.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token_hex(16))
    folder = mkdtemp(prefix="ray")  # short: Ray makes sockets below it
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, str(Path(__file__).with_name("nodes.py")), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        said = ""
        while not said.startswith("at "):  # Ray writes lines, too
            said = process.stdout.readline()
            assert said, "the cluster did not start"
        yield Nodes(said.removeprefix("at ").strip(), Path(folder))
        if "ray" in sys.modules:  # it would look for its nodes at the exit
            sys.modules["ray"].shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def address(nodes: Nodes) -> str:
    """Return the address of the cluster."""
    return nodes.address


@pytest.fixture
def ray(address: str) -> Any:  # noqa: ANN401 - the package, where it is installed
    """Return the package, connected to the cluster."""
    import ray  # noqa: PLC0415 - it may be missing

    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    return ray


@pytest.fixture
def open_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenSession]:
    """Return a function that opens a session, each with a ledger of its own."""
    with ExitStack() as stack:
        opened: list[Session] = []

        def open_one(emulator: Emulator) -> Session:
            monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
            monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
            ledger = tmp_path / f"ledger-{len(opened)}.sqlite"
            session = Session(Settings(base_url=emulator.base_url, ledger=str(ledger)))
            opened.append(session)
            stack.callback(session.close)
            return session

        yield open_one


@pytest.fixture
def session(emulator: Emulator, open_session: OpenSession) -> Session:
    """Return a session that asks the emulator."""
    return open_session(emulator)
