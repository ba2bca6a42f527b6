"""The versions that the package allows, and those that the tests are run with."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.oldest import oldest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """The command prints every dependency of users, at its lower bound."""
    printed = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, ROOT / "tests" / "oldest.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    users = [*PROJECT["dependencies"]]
    for extra, dependencies in PROJECT["optional-dependencies"].items():
        users += dependencies if extra not in ("test", "docs") else []
    assert len(printed) == len(users)
    for line, dependency in zip(printed, users, strict=True):
        plain = re.sub(r"\[.*\]", "", dependency)  # constraints name no extras
        assert plain.startswith(line.replace("==", ">="))


def test_a_dependency_without_a_lower_bound_is_named() -> None:
    """Without a bound nobody could say what the oldest version is."""
    project = {"dependencies": ["pandas<4"], "optional-dependencies": {}}

    with pytest.raises(ValueError, match="'pandas<4' in pyproject"):
        list(oldest(project))


def test_the_oldest_python_is_stated_once() -> None:
    """`requires-python`, the classifiers and the workflow name the same Pythons."""
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert set(re.findall(r'"(3\.\d+)"', WORKFLOW)) == {PYTHONS[0], PYTHONS[-1]}


def test_the_workflow_runs_the_commands_of_the_readme() -> None:
    """They differ by `-c constraints.txt` alone, which holds the oldest versions."""
    installing = re.findall(r"run: (python -m pip install .+)", WORKFLOW)
    commands = [each.replace(" -c constraints.txt", "") for each in installing]

    assert len(commands) == 2
    assert [each for each in commands if each not in README] == []
