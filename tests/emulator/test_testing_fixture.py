"""`svc_notebook.testing`: the emulator in the tests of a package's users."""

import subprocess
import sys
from pathlib import Path

import pytest

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
