"""Only workers of the same version get the key, and nothing that Ray keeps has it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.credentials import Key, known_keys, without_keys
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import Session
from svc_notebook.sweeps.ray_cluster import unusable
from svc_notebook.sweeps.run import plan_run
from tests.cluster.conftest import Nodes

KEY = "tea-house-key-1234567"
_STARTS = """
import os
from pathlib import Path
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

def of_ray():
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if path.read_text().rpartition(")")[2].split()[1] in parents:
                yield path.parent
        except OSError:
            continue

rows = ["a", "b"]
run = plan_run(Session(), "Say {{text}}", rows=rows, model="svc-instruct", name="n")
run.start(on="ray", workers=1).pause()
parents, found = {str(os.getpid())}, set()
for _ in range(4):  # children, and theirs
    found |= set(of_ray())
    parents |= {path.name for path in found}
kept = []
for path in found:
    try:
        kept.append((path / "environ").read_bytes() + (path / "cmdline").read_bytes())
    except OSError:
        continue
print(any(b"ray::SvcWorker" in each for each in kept), len(kept) > 3)
print(sum(os.environ["SVC_API_KEY"].encode() in each for each in kept))
print(sorted(name for name in os.environ if name in {"SVC_API_KEY", "MY_TEAM_KEY"}))
print(run.resume().wait().n_todo, run.run(on="ray", workers=1).n_todo)
again = plan_run(Session(), "Say {{text}}", rows=["c"], model="svc-instruct", name="m")
print(again.run(on="ray", workers=1).n_todo)
"""
_OTHER_VERSION = """
import sys
import ray
from svc_notebook.errors import SvcError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

address, folder = sys.argv[1:]
env = {"PYTHONPATH": folder}
ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": env})
try:
    plan_run(Session(), "Hi", model="svc-instruct").run(on="auto", workers=1)
except SvcError as problem:
    print(problem)
"""


def _told(script: str, *given: str, emulator: Emulator, folder: Path) -> list[str]:
    """Return the lines that a program of its own prints."""
    env = {
        **os.environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "MY_TEAM_KEY": emulator.api_key,
        "SVC_LEDGER": str(folder / "ledger.sqlite"),
    }
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", script, *given],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
        env=env,
        cwd=Path(__file__).parents[2],
    )
    return ended.stdout.splitlines()


def test_a_cluster_that_is_started_inherits_no_key(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes have no variable with the key; this one keeps them, and goes on."""
    monkeypatch.setenv("RAY_TMPDIR", str(nodes.folder))
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, keys=[KEY]
    ) as emulator:
        told = _told(_STARTS, emulator=emulator, folder=tmp_path)

        assert told == [
            "True True",
            "0",
            "['MY_TEAM_KEY', 'SVC_API_KEY']",
            "0 0",
            "0",
        ]
        assert len(emulator.requests) == 3


def test_keys_are_found_while_nothing_inherits_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other threads may send requests while a cluster starts."""
    monkeypatch.setenv("SVC_API_KEY", KEY)
    monkeypatch.setenv("OTHER", f"Bearer {KEY}")

    with without_keys():
        left = [name for name, value in os.environ.items() if KEY in value]
        n_known = len(known_keys())

    assert left == []
    assert n_known == 1
    assert (os.environ["SVC_API_KEY"], os.environ["OTHER"]) == (KEY, f"Bearer {KEY}")


def test_another_version_never_gets_the_key(
    address: str, emulator: Emulator, tmp_path: Path
) -> None:
    """A worker says its version first; the error names both, and what to install."""
    package = tmp_path / "svc_notebook"
    (package / "sweeps").mkdir(parents=True)
    about = tmp_path / "svc_notebook-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: svc-notebook\nVersion: 0.1\n")
    (package / "__init__.py").touch()
    (package / "sweeps" / "__init__.py").touch()
    given = tmp_path / "given"
    (package / "sweeps" / "ray_cluster.py").write_text(
        "from pathlib import Path\n"
        f"def started(*given): Path({str(given)!r}).write_text(repr(given))\n"
    )

    (said,) = _told(
        _OTHER_VERSION, address, str(tmp_path), emulator=emulator, folder=tmp_path
    )

    assert "workers of the Ray cluster have svc-notebook 0.1, and this kernel" in said
    assert "python -m pip install 'ray[client]' pyarrow" in said
    assert not given.exists()
    assert len(emulator.requests) == 0


def test_an_error_of_ray_is_shown_without_the_key() -> None:
    """What Ray says of a call may quote its arguments."""
    said = str(unusable(TypeError(f"no {KEY!r}"), Key(KEY, source="a test")))

    assert KEY not in said
    assert "ray status" in said


class _Stopped:
    """Ray, interrupted while it is being connected."""

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_of_the_start_shows_no_frame_of_ray(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frames may have the key, and some tools show the error before as well."""
    monkeypatch.setitem(sys.modules, "ray", _Stopped())

    with pytest.raises(KeyboardInterrupt, match="nothing more was sent") as caught:
        plan_run(session, "Hi", model="svc-instruct").run(on="ray")

    assert caught.value.__context__ is None


def test_a_token_of_ray_is_named_where_it_may_be_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray only says that actors died if a driver has a token and its cluster none."""
    died = RuntimeError("The actor died unexpectedly")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with_token = str(unusable(died, Key.none()))
    monkeypatch.delenv("RAY_AUTH_MODE")
    without = str(unusable(died, Key.none()))

    assert "start this kernel with RAY_AUTH_MODE=disabled" in with_token
    assert "RAY_AUTH_MODE" not in without


def test_the_key_is_in_nothing_that_ray_keeps(
    ray: Any,  # noqa: ANN401 - the package
    nodes: Nodes,
    session: Session,
    emulator: Emulator,
) -> None:
    """No log, no command line, no environment and no object's text has it."""
    key = emulator.api_key.encode()
    rows = [str(n) for n in range(100)]
    run = plan_run(session, "Say {{text}}", rows=rows, model="svc-instruct")
    run.in_flight = 1
    run.start(on="auto", workers=1).pause()
    shown = repr(vars(run))

    found: list[Path] = []
    n_workers = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
            if command.startswith(b"ray::"):
                n_workers += command.startswith(b"ray::SvcWorker")
                kept = command + path.with_name("environ").read_bytes()
                found += [path] if key in kept else []
        except OSError:  # it has ended
            continue
    run.resume().wait()
    logs = [*nodes.folder.glob("session_*/logs/**/*")]
    found += [path for path in logs if path.is_file() and key in path.read_bytes()]

    assert ray.is_initialized()
    assert n_workers > 0
    assert len(logs) > 5
    assert found == []
    assert emulator.api_key not in shown
