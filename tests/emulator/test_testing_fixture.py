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
    assert ask().startswith("Emulated reply.")
    assert svc_emulator.requests[0].json["model"] == "svc-instruct"

@pytest.mark.svc_emulator(script=[{"text": "positive"}])
def test_follows_a_script(svc_emulator):
    assert ask() == "positive"
    assert len(svc_emulator.requests) == 1

def test_leaves_nothing():
    assert "SVC_BASE_URL" not in os.environ
"""


@pytest.mark.slow
def test_the_fixture_serves_a_users_tests(tmp_path: Path) -> None:
    """One line in conftest.py is enough, with strict marks and strict warnings."""
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(TESTS, encoding="utf-8")
    arguments = ["-q", "-W", "error", "--strict-markers", "-p", "no:cacheprovider"]

    ended = subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, "-m", "pytest", *arguments, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )

    assert "3 passed" in ended.stdout, ended.stdout
    assert not list(tmp_path.rglob("*.sqlite*"))
