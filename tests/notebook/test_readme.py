"""The README: every code block runs, as a stranger would run it."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from svc_notebook.cli import main
from svc_notebook.demo.lab import copy_tour
from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import TIMEOUT_S, Kernel, Ran
from tests.notebook.readme import PATH, blocks, cells

MAX_LINES = 120
ADDRESS = "https://HOST/v1"
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"")


@pytest.fixture
def lessons(tmp_path: Path) -> Iterator[Kernel]:
    """A kernel of a notebook among the lessons, without an address or a key."""
    copy_tour(tmp_path)
    kernel = Kernel({"SVC_LEDGER": ":memory:"})
    assert kernel.run(f"%cd {tmp_path}").status == "ok"
    yield kernel
    kernel.close()


def commands() -> list[str]:
    """Return each command of the blocks for a shell, without its comment."""
    lines = [
        line.split("  #")[0]
        for block in blocks()
        if block.language == "bash"
        for line in block.code.splitlines()
    ]
    return [each for line in lines for each in line.split(" && ")]


def test_it_is_short() -> None:
    """A stranger reads it to its end."""
    assert len(PATH.read_text("utf-8").splitlines()) <= MAX_LINES


def test_each_block_is_of_a_kind_that_is_run() -> None:
    """There are commands, Python, and cells of the magic; the tests below run them."""
    assert {block.language for block in blocks()} == {"bash", "python", ""}


def test_its_links_lead_somewhere() -> None:
    """Every link and picture is a file of this repository."""
    text = PATH.read_text("utf-8")
    links = [one or other for one, other in LINK.findall(text)]

    wrong = [link for link in links if not (PATH.parent / link).exists()]

    assert wrong == []


def told(kernel: Kernel, code: str, key: str) -> str:
    """Run a cell that asks for a key, and give it one; return all that it shows."""
    cell = kernel.begin(code)
    request = kernel.client.get_stdin_msg(timeout=TIMEOUT_S)
    assert request["content"]["password"] is True
    kernel.client.input(key)
    return kernel.read(cell, Ran()).shown


def test_its_cells_run(lessons: Kernel) -> None:
    """Copied into a notebook among the lessons, they run from top to bottom."""
    copied = [code for code in cells() if code not in cells("Your key")]

    failed = {
        code: ran.shown for code in copied if (ran := lessons.run(code)).status != "ok"
    }

    assert failed == {}


def test_its_decision_is_what_the_cells_return(lessons: Kernel) -> None:
    """The sentence below the sweep is the first one that its last cell shows."""
    for code in (*cells("One cell")[:1], *cells("One sweep, one decision")):
        ran = lessons.run(code)

    (returned,) = ran.all("execute_result")
    said = " ".join(returned["data"]["text/plain"].split("\n\n")[0].split())
    assert f'alt="{said}"' in PATH.read_text("utf-8")


def test_its_key_is_asked_for_and_used(lessons: Kernel) -> None:
    """With the address set outside, a login is all that a question needs."""
    with Emulator() as service:
        lessons.run(f"import os\nos.environ['SVC_BASE_URL'] = '{service.base_url}'")
        lessons.run("%load_ext svc_notebook")
        (code,) = cells("Your key")

        shown = told(lessons, code, service.api_key)
        answered = lessons.run("%%svc\nHello?")

        assert service.api_key not in shown
        assert answered.status == "ok"
        assert len(service.requests) == 1


def test_its_address_is_set_by_a_shell() -> None:
    """The command for the address is one that a shell takes."""
    (command,) = [line for line in commands() if "SVC_BASE_URL" in line]

    ran = subprocess.run(  # noqa: S603 - the README's own command
        ["/bin/sh", "-c", f"{command}\nprintenv SVC_BASE_URL"],
        capture_output=True,
        check=True,
        text=True,
    )

    assert ran.stdout == f"{ADDRESS}\n"


@pytest.mark.parametrize("command", [each for each in commands() if "pip" in each])
def test_its_extras_exist(command: str) -> None:
    """What is installed is this folder with extras that pyproject.toml names."""
    match = re.fullmatch(r"python -m pip install '?\.(?:\[([\w,]+)\])?'?", command)
    project = tomllib.loads((PATH.parent / "pyproject.toml").read_text("utf-8"))

    assert match
    wanted = set(filter(None, (match[1] or "").split(",")))
    assert wanted <= set(project["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    "command", [each for each in commands() if each.startswith("svc-notebook")]
)
def test_its_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command answers --help; tests of their own run them."""
    with pytest.raises(SystemExit) as ended:
        main([*command.split()[1:], "--help"])

    assert ended.value.code == 0
    assert command in capsys.readouterr().out
