"""Wrong use of a cluster gets an error with the next step, and nothing is sent."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ConfigError, ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.ray_cluster import connected, in_words
from svc_notebook.sweeps.run import plan_run
from tests.cluster.conftest import WHY_SKIPPED

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
    run = plan_run(session, "Hi")

    for send in (run.run, run.retry, run.start):
        with pytest.raises(ParameterError, match=said):
            send(**given)

    assert len(emulator.requests) == 0


def test_pieces_of_replies_do_not_come_from_a_cluster(session: Session) -> None:
    """`show` is for one process, and says so."""
    with pytest.raises(ParameterError, match="Leave out show or on"):
        plan_run(session, "Hi").start(on="ray", show=lambda *_: None)


def test_without_ray_the_command_that_installs_it_is_named(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without the extra sends nothing, and can be sent from this process."""
    monkeypatch.setitem(sys.modules, "ray", None)
    run = plan_run(session, "Hi", name="n")

    with pytest.raises(ConfigError, match=re.escape("install 'ray[client]'")):
        run.run(on="ray")

    assert len(emulator.requests) == 0
    assert run.run().n_todo == 0


class _Ray:
    """Ray as far as it is used to connect; each problem fails one try."""

    def __init__(self, *problems: str) -> None:
        self.problems = [*problems]
        self.n_tries = 0
        self.is_up = False

    def is_initialized(self) -> bool:
        return self.is_up

    def init(self, **_: object) -> None:
        self.n_tries += 1
        if self.problems:
            raise RuntimeError(self.problems.pop(0))
        self.is_up = True

    def get_runtime_context(self) -> "_Ray":
        return self

    def get_job_id(self) -> str:
        return f"job of {id(self)}"


@pytest.fixture
def place() -> Iterator[str]:
    """Return an address where something speaks the protocol of Ray."""
    grpc = pytest.importorskip("grpc", reason=WHY_SKIPPED)
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"ray://127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_start_that_took_too_long_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Ray gives itself 30 s, which a busy machine exceeds; three tries are made."""
    slow = "The node timed out during startup."
    once, never = _Ray(slow, slow), _Ray(slow, slow, slow)

    monkeypatch.setitem(sys.modules, "ray", once)
    assert connected(place) is once
    monkeypatch.setitem(sys.modules, "ray", never)
    with pytest.raises(ConfigError, match=r": The node timed out during startup\. No"):
        connected(place)

    assert (once.n_tries, never.n_tries) == (3, 3)


def test_other_versions_of_ray_and_python_are_named(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Ray lists them over several lines, and would say so again."""
    found = _Ray(
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n"
        "    Python: 3.12.1\nThis process on node 10.0.0.1 was started with:\n"
        "    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    monkeypatch.setitem(sys.modules, "ray", found)

    with pytest.raises(ConfigError) as caught:
        connected(place)

    said = str(caught.value)
    assert "started with: Ray: 2.9.0 Python: 3.12.1 This process" in said
    assert (
        "Ray: 2.60.0 Python: 3.11.7. Nothing was sent. Check the address, the" in said
    )
    assert found.n_tries == 1


def test_a_reason_of_the_server_is_named() -> None:
    """Ray puts it below a first line that says nothing, sometimes in a traceback."""
    began = "Initialization failure from server:\n"

    said = in_words(Exception(f"{began}Starting the server failed.\nSee x.err.\n"))
    traced = in_words(Exception(f"{began}Traceback (most recent):\n  x\nKeyError: 1"))

    assert said.endswith("server: Starting the server failed. See x.err")
    assert traced.endswith("server: KeyError: 1")


def test_a_kernel_is_in_one_cluster(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Another address would be ignored, so it is refused with the next step."""
    found = _Ray()
    monkeypatch.setitem(sys.modules, "ray", found)
    connected(place)

    assert [connected(on) for on in (place, "auto", "ray")] == [found] * 3
    with pytest.raises(ConfigError, match=r"another Ray cluster .*ray.shutdown\(\)"):
        connected("ray://127.0.0.1:10001")


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
    assert "so does on='ray' on this machine" in said.stdout


_LACKS = """
import importlib.metadata, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "svc_notebook":
            raise ModuleNotFoundError(name)

def version(name):
    raise importlib.metadata.PackageNotFoundError(name)

if "ray" in " ".join(sys.orig_argv):
    sys.meta_path.insert(0, Without())
    importlib.metadata.version = version
"""
_ON_NODES_WITHOUT = """
import sys
import ray
from svc_notebook.errors import SvcError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

address, folder = sys.argv[1:]
env = {"PYTHONPATH": folder}
ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": env})
for model in ("svc-instruct", "svc-v2-8b-instruct"):  # the second has a quota
    try:
        plan_run(Session(), "Hi", model=model).run(on="auto", workers=1)
    except SvcError as problem:
        print(problem)
"""


def test_nodes_without_the_package_are_refused(
    address: str, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install there."""
    (tmp_path / "sitecustomize.py").write_text(_LACKS)
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))

    said = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _ON_NODES_WITHOUT, address, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
    )

    assert said.stdout.count("The workers of the Ray cluster have no svc-notebook") == 2
    assert "python -m pip install 'ray[client]' pyarrow" in said.stdout
    assert emulator.requests == ()
