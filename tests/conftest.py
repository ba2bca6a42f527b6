"""What holds for every test: this machine only, nobody's settings, no chance.

No test connects beyond this machine or reads the settings, key or ledger of the person
who runs it; hypothesis repeats itself. A folder's fixtures are in its own conftest.
"""

import atexit
import gc
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import pandas as pd
import pytest
from xdist.scheduler import LoadFileScheduling

from svc_notebook.credentials import forget
from svc_notebook.emulator.emulator import Emulator

hypothesis.settings.register_profile(
    "repeatable", deadline=None, derandomize=True, database=None
)
hypothesis.settings.load_profile("repeatable")

if pd.__version__.startswith("2."):
    # Texts made from a list are stored as the package stores them, as in pandas 3.
    pd.set_option("mode.string_storage", "pyarrow")

_OF_TESTS = {"SVC_CHROMIUM", "SVC_LAB_PYTHON", "SVC_REQUIRE_BROWSER", "SVC_SITE"}
_HOME = TemporaryDirectory(prefix="svc-notebook-tests-", ignore_cleanup_errors=True)
atexit.register(_HOME.cleanup)  # left to the collector, it is a warning


class BeyondThisMachineError(Exception):
    """A test tried to reach the network; it may use loopback only."""


def _is_here(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else str(host or "")
    try:
        return ipaddress.ip_address(name.split("%")[0]).is_loopback
    except ValueError:
        return name in {"", "localhost", socket.gethostname()}


def _is_address(host: object) -> bool:
    try:
        ipaddress.ip_address(str(host).split("%", maxsplit=1)[0])
    except ValueError:
        return False
    return True


def _guard(event: str, args: tuple[Any, ...]) -> None:
    """Refuse connections beyond loopback, and names that only a network knows."""
    if event == "socket.connect":
        _, address = args
        if isinstance(address, tuple) and not _is_here(address[0]):
            raise BeyondThisMachineError(
                f"A test connects to {address[0]}; tests may use this machine only."
            )
    elif event == "socket.getaddrinfo":
        host = args[0]
        if not (_is_here(host) or _is_address(host)):
            raise socket.gaierror(
                socket.EAI_NONAME, f"tests look up no names beyond this machine: {host}"
            )


def pytest_configure() -> None:
    """Set the environment that tests, and the kernels they start, are given."""
    for name in [name for name in os.environ if name.startswith("SVC_")]:
        if name not in _OF_TESTS:
            del os.environ[name]
    os.environ.update(
        XDG_CONFIG_HOME=str(Path(_HOME.name) / "config"),
        XDG_DATA_HOME=str(Path(_HOME.name) / "data"),
        IPYTHONDIR=str(Path(_HOME.name) / "ipython"),
        JUPYTER_CONFIG_DIR=str(Path(_HOME.name) / "jupyter"),
        PIP_NO_INDEX="1",
        PYTHON_KEYRING_BACKEND="keyring.backends.null.Keyring",
    )
    # A shell's background jobs ignore it, and tests interrupt themselves.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A patched socket class could be walked around; an audit hook cannot.
    sys.addaudithook(_guard)


_TOGETHER = {
    "tests/browser/test_panel": "panel",
    "tests/browser/": "browser",
    "tests/cluster/": "cluster",
    "notebooks/cluster.ipynb": "cluster",
}
_SLOW_FOLDERS = ("browser", "demo", "notebook", "notebooks")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark kernels, browsers and notebooks; `-m "not slow"` leaves them out."""
    for item in items:
        if item.path.parent.name in _SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)


class FewBrowsers(LoadFileScheduling):  # type: ignore[misc]  # xdist's has no types
    """A file stays in one process; so do panels in a browser, other pages, clusters.

    More browsers at once would slow each other down.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return what stays together."""
        file = nodeid.split("::", 1)[0]
        groups = (group for part, group in _TOGETHER.items() if part in file)
        return next(groups, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewBrowsers:  # noqa: ANN401 - xdist's
    """Distribute tests over the processes of `-n 3`."""
    return FewBrowsers(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while modules are loaded, nor ever any of what they hold.

    A shell that is reset collects garbage: 0.2 s a test, with all modules loaded.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a ledger's place of its own, and keys without an address."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    forget()


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """The service on this machine, answering without waiting."""
    with Emulator(tokens_per_s=None, first_token_s=0) as running:
        yield running
