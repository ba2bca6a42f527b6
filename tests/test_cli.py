"""The command line: what it answers, and how it fails."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import svc_notebook as svc
from svc_notebook.cli import main
from svc_notebook.demo.terminal_demo import kernel_env


def _run(
    *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "svc_notebook", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **(env or {})},
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_without_a_command_it_says_which_there_are() -> None:
    """No command is a mistake of usage, answered by the whole help."""
    got = _run()

    assert got.returncode == 2
    assert "Start with: svc-notebook demo" in got.stderr


def test_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` is what a report of a fault begins with."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"svc-notebook {svc.__version__}\n"


def test_an_option_of_jupyterlab_is_shown_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`lab --no-browser` is refused with the line that works."""
    with pytest.raises(SystemExit) as ended:
        main(["lab", "--no-browser"])

    assert ended.value.code == 2
    assert "svc-notebook lab -- --no-browser" in capsys.readouterr().err


@pytest.mark.slow
def test_help_names_the_commands() -> None:
    """The help lists the commands and where to start."""
    got = _run("--help")

    assert got.returncode == 0
    assert "Start with: svc-notebook demo" in got.stdout


@pytest.mark.parametrize(
    "words",
    [
        "",
        *("demo", "emulate", "lab"),
        *("ledger", "ledger path", "ledger size", "ledger forget", "ledger export"),
    ],
)
def test_each_help_fits_a_screen(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal of 24 lines and 80 columns shows all of it, and what it does."""
    monkeypatch.setenv("COLUMNS", "80")

    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert any(line.endswith(".") for line in lines)


@pytest.mark.parametrize("command", ["demo", "lab"])
def test_help_breaks_no_name_at_its_hyphen(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands and folders can be copied from a narrow terminal."""
    monkeypatch.setenv("COLUMNS", "60")

    with pytest.raises(SystemExit):
        main([command, "--help"])

    lines = capsys.readouterr().out.splitlines()
    assert not any(re.search(r"\w-$", line) for line in lines)
    assert max(map(len, lines)) <= 60


def test_the_service_is_not_asked_without_an_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`demo --service` with no address is one message that names both ways on."""
    status = main(["demo", "--service"])

    assert status == 2
    assert capsys.readouterr().err == (
        "svc-notebook: The service's address is not known. Set SVC_BASE_URL, such as "
        "https://HOST/v1. Without --service, the demo needs neither address nor key.\n"
    )


def test_the_service_is_not_asked_without_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`demo --service` with an address and no key says where keys are made."""
    monkeypatch.setenv("SVC_BASE_URL", "https://svc.example/v1")

    status = main(["demo", "--service"])

    assert status == 2
    assert "SVC_API_KEY is not set" in capsys.readouterr().err


def test_a_folder_that_cannot_be_used_is_one_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`demo --out` below a file fails before anything runs."""
    (tmp_path / "file").write_text("")

    status = main(["demo", "--out", str(tmp_path / "file" / "x")])

    assert status == 2
    assert capsys.readouterr().err.startswith("svc-notebook: The folder")


@pytest.mark.parametrize(
    "words", [["--port", "x"], ["--port", "99999"], ["--tokens-per-s", "-1"]]
)
def test_refuses_a_wrong_number(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A port or a speed outside its range is refused, naming what was typed."""
    with pytest.raises(SystemExit) as ended:
        main(["emulate", *words])

    assert ended.value.code == 2
    assert repr(words[1]) in capsys.readouterr().err


@pytest.mark.slow
def test_the_emulator_serves_until_ctrl_c() -> None:
    """`emulate` says its address and key; Ctrl-C ends it with status 0, silently."""
    with subprocess.Popen(
        [sys.executable, "-m", "svc_notebook", "emulate"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(6)]
        running.send_signal(signal.SIGINT)
        _, complaints = running.communicate(timeout=120)

    assert lines[0].startswith("An emulator of the service")
    assert lines[2].startswith("  export SVC_BASE_URL=http://127.0.0.1:")
    assert (running.returncode, complaints) == (0, "")


@pytest.mark.slow
def test_a_terminal_without_utf_8_is_no_reason_to_fail(tmp_path: Path) -> None:
    """A script in Thai is refused in ASCII, with the letters' numbers."""
    path = tmp_path / "ไทย.json"
    path.write_text(json.dumps({"not": "a list"}))

    got = _run("emulate", "--script", str(path), env={"PYTHONIOENCODING": "ascii"})

    assert got.returncode == 2
    assert "\\u0e44\\u0e17\\u0e22.json" in got.stderr
    assert "Traceback" not in got.stderr


def test_a_demo_kernel_knows_nothing_of_the_service(tmp_path: Path) -> None:
    """Without the flag the kernel is given neither address nor key nor ledger."""
    mine = {"SVC_API_KEY": "k", "SVC_BASE_URL": "u", "SVC_LEDGER": "l", "PATH": "p"}

    got = kernel_env(mine, folder=tmp_path, is_service=False)

    assert got == {
        "PATH": "p",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "SVC_DISPLAY": "plain",
        "SVC_LEDGER": str(tmp_path / "ledger.sqlite"),
    }


def test_a_demo_kernel_is_given_the_service_with_the_flag(tmp_path: Path) -> None:
    """With the flag the kernel gets address, key and model, and a ledger of its own."""
    mine = {"SVC_API_KEY": "k", "SVC_BASE_URL": "u", "SVC_LEDGER": "l"}

    got = kernel_env(mine, folder=tmp_path, is_service=True)

    assert got == {
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "SVC_API_KEY": "k",
        "SVC_BASE_URL": "u",
        "SVC_DISPLAY": "plain",
        "SVC_LEDGER": str(tmp_path / "ledger.sqlite"),
    }
