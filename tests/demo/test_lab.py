"""`svc-notebook lab`: the tour is copied, the emulator answers, nothing is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from svc_notebook.cli import main
from svc_notebook.demo.lab import copy_tour, lab_env
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import SettingsError


def test_the_tour_is_copied_once(tmp_path: Path) -> None:
    """A copy that a user changed is not written over."""
    first = copy_tour(tmp_path / "tour")
    first.write_text("mine")

    second = copy_tour(tmp_path / "tour")

    assert first == second == tmp_path / "tour" / "quickstart.ipynb"
    assert second.read_text() == "mine"


def test_what_a_notebook_reads_is_copied_with_it(tmp_path: Path) -> None:
    """The replies that one of them plays lie beside it."""
    copy_tour(tmp_path)

    assert (tmp_path / "compare.ipynb").is_file()
    for name in ("answers.json", "messages.csv", "sales.csv", "prices.toml"):
        assert (tmp_path / name).is_file()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the folder's place is an error that says what to do."""
    (tmp_path / "taken").write_text("")

    with pytest.raises(SettingsError, match="--dir"):
        copy_tour(tmp_path / "taken")


def test_the_emulator_stands_in_the_services_place(emulator: Emulator) -> None:
    """Notebooks ask the emulator, whatever the environment named."""
    environ = {"SVC_BASE_URL": "https://host/v1", "SVC_API_KEY": "mine", "HOME": "h"}
    environ["SVC_LEDGER"] = ":memory:"

    got = lab_env(environ, emulator)

    assert got == {
        "HOME": "h",
        "SVC_LEDGER": ":memory:",
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
    }


def test_without_jupyterlab_the_command_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing package is one sentence with the command that installs it."""
    monkeypatch.setattr("svc_notebook.demo.lab.find_spec", lambda _: None)

    status = main(["lab"])

    assert status == 2
    assert "`python -m pip install jupyterlab`" in capsys.readouterr().err


def test_jupyterlab_is_started_on_the_tour(tmp_path: Path) -> None:
    """The command hands its options on, and ends as JupyterLab ends."""
    ran = subprocess.run(
        [sys.executable, "-m", "svc_notebook", "lab", "--", "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0
    assert ran.stdout.splitlines()[-1].startswith("4.")
    assert (tmp_path / "svc-notebook-tour" / "quickstart.ipynb").is_file()
