"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python tests/oldest.py > oldest.txt
    python -m pip install -e ".[test]" -c oldest.txt

They are of the package and its extras for users; the tools for tests are the newest.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
TOOLS = ("test", "docs")
_BOUND = re.compile(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)")


def oldest(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield `name==version` for each dependency of the table `project`."""
    yield from map(_oldest, project["dependencies"])
    for extra, dependencies in project["optional-dependencies"].items():
        if extra not in TOOLS:
            yield from map(_oldest, dependencies)


def _oldest(dependency: str) -> str:
    found = _BOUND.match(dependency)
    if found is None:
        raise ValueError(f"{dependency!r} in pyproject.toml needs a lower bound, >=.")
    return f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    sys.stdout.writelines(f"{line}\n" for line in oldest(project))
