"""`svc-notebook demo`, from the wheel, in an empty folder."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import psutil
import pytest

from svc_notebook import __version__
from svc_notebook.emulator.emulator import Emulator

ROOT = Path(__file__).parents[2]
MARK = "  emulator │"
TIMEOUT_S = 120


@dataclass(frozen=True)
class Ran:
    """A demo that has ended.

    Attributes:
        folder: Where it was started.
        pieces: What it wrote, as it came, and the seconds since it began.
        complaints: What it wrote to stderr.
        status: Its exit status.
    """

    folder: Path
    pieces: tuple[tuple[float, str], ...]
    complaints: str
    status: int

    @property
    def text(self) -> str:
        """Everything that it wrote."""
        return "".join(text for _, text in self.pieces)

    @property
    def answers(self) -> list[str]:
        """The lines behind the mark, without it."""
        lines = self.text.splitlines()
        return [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]


def _start(
    folder: Path, *command: str, env: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own command
        command,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _watch(folder: Path, running: "subprocess.Popen[bytes]") -> Ran:
    assert running.stdout is not None
    assert running.stderr is not None
    began_at = time.monotonic()
    pieces = []
    while piece := os.read(running.stdout.fileno(), 65536):
        pieces.append((time.monotonic() - began_at, piece.decode()))
    complaints = running.stderr.read().decode()
    status = running.wait(TIMEOUT_S)
    running.stdout.close()
    running.stderr.close()
    return Ran(folder, tuple(pieces), complaints, status)


def _left_behind(folder: Path) -> list[str]:
    """Name the programs that still run below a folder."""
    found = psutil.process_iter(["cwd", "name"])
    return [
        each.info["name"]
        for each in found
        if (each.info["cwd"] or "").startswith(str(folder))
    ]


def _cells(path: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Read each cell's source and outputs."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [("".join(cell["source"]), cell.get("outputs", [])) for cell in cells]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`svc-notebook`, installed from the wheel beside what is already here."""
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(  # noqa: S603 - installed with the tests
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    EnvBuilder(symlinks=True).create(place / "venv")
    python = place / "venv" / "bin" / "python"
    [wheel] = place.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install")
    subprocess.run(  # noqa: S603 - installed with the tests
        [*pip, "--no-deps", "--no-index", "--quiet", str(wheel)], check=True
    )
    [site] = (place / "venv" / "lib").glob("python*/site-packages")
    # Paths in a .pth file are not searched for .pth files: an editable install of
    # the package is not seen from here.
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "beside.pth").write_text("\n".join(sorted(here)))
    return str(place / "venv" / "bin" / "svc-notebook")


@pytest.fixture(scope="module")
def canary() -> Iterator[Emulator]:
    """Stands for the real service, which a demo without the flag never asks."""
    with Emulator(tokens_per_s=None, first_token_s=0) as running:
        yield running


@pytest.fixture(scope="module")
def ran(
    command: str, canary: Emulator, tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    """The demo, run once for all tests, where a service could be asked."""
    folder = tmp_path_factory.mktemp("empty")
    env = {
        "SVC_BASE_URL": canary.base_url,
        "SVC_API_KEY": canary.api_key,
        "XDG_DATA_HOME": str(tmp_path_factory.mktemp("home")),
        "COLUMNS": "100",
    }
    return _watch(folder, _start(folder, command, "demo", env=env))


def test_the_wheel_has_every_script_and_style_sheet_of_the_panel(command: str) -> None:
    """The panel's class joins them when it is made, so that none may be missing."""
    [site] = Path(command).parents[1].glob("lib/python*/site-packages")
    static = Path("svc_notebook", "panels", "static")
    installed = sorted(path.name for path in (site / static).iterdir())

    assert installed == sorted(path.name for path in (ROOT / static).iterdir())


def test_the_wheel_has_the_extension_of_jupyterlab(command: str) -> None:
    """JupyterLab finds it, with the package's version, and has it switched on."""
    python = Path(command).with_name("python")
    share = Path(command).parents[1] / "share" / "jupyter" / "labextensions"
    files = (ROOT / "svc_notebook" / "labextension").iterdir()
    expected = {path.name: path.read_bytes() for path in files}

    listed = subprocess.run(  # noqa: S603 - our own command
        [python, "-m", "jupyterlab.labextensions", "list"],
        capture_output=True,
        text=True,
        check=True,
    )

    installed = (share / "svc-notebook").iterdir()
    assert {path.name: path.read_bytes() for path in installed} == expected
    version = re.escape(__version__)
    row = rf"svc-notebook v{version} .*enabled.*OK.*\(python, svc-notebook\)"
    assert re.search(row, listed.stdout + listed.stderr)


def test_the_demo_succeeds_in_silence(ran: Ran) -> None:
    """The demo ends with status 0, says nothing on stderr and uses no colours."""
    assert (ran.status, ran.complaints) == (0, ""), ran.text
    assert "\x1b" not in ran.text


def test_the_reply_streams_into_the_terminal(ran: Ran) -> None:
    """The first reply comes in many pieces, over a time, between its cell and the next.

    A reply shown only when it is complete would come in one.
    """
    began = next(i for i, (_, text) in enumerate(ran.pieces) if "%%svc" in text)
    ended = next(
        i for i, (_, text) in enumerate(ran.pieces) if i > began and "answer." in text
    )
    times = [at for at, text in ran.pieces[began + 1 : ended]]

    assert len(times) > 5
    assert times[-1] - times[0] > 0.5


def test_the_usage_is_shown(ran: Ran) -> None:
    """Below the streamed reply stand the model and its tokens."""
    footers = [line for line in ran.answers if "svc-v2-8b-instruct ·" in line]

    assert "tokens" in footers[0]


def test_the_comparison_is_shown(ran: Ran) -> None:
    """The frame that compares two models at two temperatures is in the terminal."""
    rows = [
        (words[1], words[2])
        for words in map(str.split, ran.answers)
        if len(words) > 3 and words[0].isdecimal() and words[1].startswith("svc-")
    ]

    assert list(dict.fromkeys(rows))[:4] == [
        ("svc-v2-8b-instruct", "0.0"),
        ("svc-v2-8b-instruct", "1.2"),
        ("svc-v2-70b-instruct", "0.0"),
        ("svc-v2-70b-instruct", "1.2"),
    ]


def test_the_service_is_not_asked(ran: Ran, canary: Emulator) -> None:
    """Without the flag the address and key in the environment are not used."""
    assert ran.status == 0
    assert canary.requests == ()


def test_the_demo_names_what_it_wrote(ran: Ran) -> None:
    """The folder has the notebook, its answers and one file of a closed ledger."""
    written = sorted(str(p.relative_to(ran.folder)) for p in ran.folder.rglob("*"))

    notebook = str(Path("svc-notebook-demo", "quickstart.ipynb"))
    assert (
        f"    {notebook}  (answered by the emulator; the notebook says so)\n"
        in ran.text
    )
    assert written == [
        "svc-notebook-demo",
        str(Path("svc-notebook-demo", "answers.json")),
        str(Path("svc-notebook-demo", "ledger.sqlite")),
        notebook,
    ]


def test_the_users_ledger_is_left_alone(ran: Ran) -> None:
    """The exchanges of the demo are in its own ledger."""
    assert (ran.folder / "svc-notebook-demo" / "ledger.sqlite").stat().st_size > 0


def test_the_notebook_is_marked(ran: Ran) -> None:
    """The executed notebook says who answered: at its head and below each reply."""
    path = ran.folder / "svc-notebook-demo" / "quickstart.ipynb"

    cells = _cells(path)

    outputs = [shown for source, shown in cells if source.startswith("%%svc")]
    html = ["".join(each["data"]["text/html"]) for [each] in outputs]
    assert "**Every reply and every number" in cells[0][0]
    assert ["written by hand" in each for each in html] == [True, True, True]


def test_the_demo_ends_with_the_next_steps(ran: Ran) -> None:
    """The last lines open the notebook in JupyterLab and point at the real service."""
    lines = ran.text.splitlines()

    notebook = Path("svc-notebook-demo", "quickstart.ipynb")
    assert f"    jupyter lab {notebook}" in lines[-8:]
    assert lines[-2:] == ["    svc-notebook demo --service", ""]


def test_nothing_is_left_running(ran: Ran) -> None:
    """The kernel and its emulator have gone with the demo."""
    assert _left_behind(ran.folder) == []


def test_ctrl_c_is_calm(command: str, tmp_path: Path) -> None:
    """Ctrl-C in a reply ends with status 130, no traceback, and nothing running."""
    running = _start(tmp_path, command, "demo", env={})
    assert running.stdout is not None
    text = b""
    while text.count(MARK.encode()) < 3:
        text += os.read(running.stdout.fileno(), 65536)

    running.send_signal(signal.SIGINT)
    ended = _watch(tmp_path, running)

    assert (ended.status, ended.complaints) == (130, "")
    assert "Stopped." in ended.text
    assert _left_behind(tmp_path) == []


@pytest.fixture
def service() -> Iterator[Emulator]:
    """A service that refuses nothing, so that nothing is asked twice."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


def test_with_the_flag_the_service_is_asked(tmp_path: Path, service: Emulator) -> None:
    """`demo --service` asks the service that the environment names, and says so."""
    env = {"SVC_BASE_URL": service.base_url, "SVC_API_KEY": service.api_key}
    command = (sys.executable, "-m", "svc_notebook", "demo", "--service")

    ran = _watch(tmp_path, _start(tmp_path, *command, "--out", "here", env=env))

    sources = [source for source, _ in _cells(tmp_path / "here" / "quickstart.ipynb")]
    assert ran.status == 0, ran.text
    assert [each.ended for each in service.requests] == ["whole"] * 18
    assert "%svc use service" in sources
    assert f"come from the service at {service.base_url}." in sources[0]
