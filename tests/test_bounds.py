"""The versions that the package allows, and those that the tests are run with."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


@pytest.mark.parametrize("name", ["lower_bounds.txt", "colab_like.txt"])
def test_the_versions_that_are_tested_are_allowed(name: str) -> None:
    """Each dependency takes the version that a list of tested versions has."""
    lines = (ROOT / "tests" / name).read_text("utf-8").splitlines()
    pins = map(Requirement, filter(lambda line: "==" in line, lines))
    tested = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}

    for dependency in map(Requirement, PROJECT["dependencies"]):
        version = tested[canonicalize_name(dependency.name)]
        assert dependency.specifier.contains(version), dependency


def test_every_dependency_has_a_lower_bound() -> None:
    """Without a bound nobody could say what the oldest version is."""
    extras = PROJECT["optional-dependencies"]
    users = [extras[name] for name in extras.keys() - {"test", "docs"}]

    for dependency in map(Requirement, chain(PROJECT["dependencies"], *users)):
        assert ">=" in str(dependency.specifier), dependency


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
