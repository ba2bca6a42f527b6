"""`svc_notebook.testing`: the fixtures in the tests of a package's users."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.sweeps.run import plan_run

ROOT = Path(__file__).parents[2]

CONFTEST = 'pytest_plugins = ["svc_notebook.testing"]\n'
TESTS = """
import os
import pytest
import svc_notebook as svc

def ask():
    return svc.complete("Hi", model="svc-instruct").text

def test_asks(svc_emulator):
    assert ask().endswith(".")
    assert svc_emulator.requests[0].json["model"] == "svc-instruct"

@pytest.mark.svc_emulator(script=[{"text": "positive"}])
def test_follows_a_script(svc_emulator):
    assert ask() == "positive"
    assert len(svc_emulator.requests) == 1

def test_leaves_nothing():
    assert "SVC_BASE_URL" not in os.environ
    assert os.environ["SVC_MODEL"] == "svc-of-the-developer"

def test_uses_the_default_model(svc_emulator):
    assert svc.Client().settings.model == "svc-v2-8b-instruct"

@pytest.mark.svc_emulator([{"text": "positive"}])
def test_names_its_arguments(svc_emulator):
    raise AssertionError("not run")

@pytest.mark.svc_emulator(scrpt=[{"text": "positive"}])
def test_knows_its_arguments(svc_emulator):
    raise AssertionError("not run")
"""


@pytest.mark.slow
def test_the_fixture_serves_a_users_tests(tmp_path: Path) -> None:
    """One line in conftest.py is enough; the developer's own settings do not apply."""
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(TESTS, encoding="utf-8")
    arguments = ["-q", "-W", "error", "--strict-markers", "-p", "no:cacheprovider"]

    ended = subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, "-m", "pytest", *arguments, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "",
            "HOME": str(tmp_path),
            "SVC_ANSWERS": str(tmp_path / "answers.jsonl"),
            "SVC_MODEL": "svc-of-the-developer",
            "SVC_PRICES": str(tmp_path / "prices.toml"),
        },
        timeout=120,
        check=False,
    )

    assert "4 passed, 2 errors" in ended.stdout, ended.stdout
    assert "write @pytest.mark.svc_emulator(script=[...])" in ended.stdout
    assert "no argument 'scrpt'" in ended.stdout
    assert "Did you mean script?" in ended.stdout
    assert not list(tmp_path.rglob("*.sqlite*"))


RECHECK_TEST = """
def test_the_model_is_no_worse(svc_run):
    checked = svc_run("tea-shop").recheck(n=60)

    assert not checked.is_worse, checked.says
"""


def _checked(folder: Path, emulator: Emulator) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, "-m", "pytest", "-q", "-W", "error", str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "",
            "HOME": str(folder),
            "SVC_BASE_URL": emulator.base_url,
            "SVC_API_KEY": emulator.api_key,
            "SVC_LEDGER": str(folder / "ledger.sqlite"),
        },
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_users_test_fails_only_when_something_got_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is in the ledger; the model behind its address is replaced."""
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_model.py").write_text(RECHECK_TEST, encoding="utf-8")
    quick: dict[str, Any] = {"tokens_per_s": None, "first_token_s": 0, "limits": False}
    yes, no = ({"text": text, "times": None} for text in ("yes", "no"))
    with Emulator(**quick, script=[yes]) as emulator:
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        port = int(emulator.base_url.split(":")[2].split("/")[0])
        ledger = str(tmp_path / "ledger.sqlite")
        session = Session(Settings(base_url=emulator.base_url, ledger=ledger))
        rows = [{"text": f"message {n}", "label": "yes"} for n in range(80)]
        how: dict[str, Any] = {
            "name": "tea-shop",
            "model": "svc-instruct",  # no limit is shown for it, so nothing waits
            "scores": {"right": svc.scores.exact("label")},
        }
        plan_run(session, "Is it? {{text}}", rows=rows, **how).run()
        session.close()
        same = _checked(tmp_path, emulator)
    with Emulator(**quick, script=[no], port=port) as emulator:
        worse = _checked(tmp_path, emulator)

    assert "1 passed" in same.stdout, same.stdout
    assert "1 failed" in worse.stdout, worse.stdout
    assert "AssertionError: Changed by -" in worse.stdout
