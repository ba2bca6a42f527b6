"""The code on the site's pages: what a reader copies from there runs."""

import re
from pathlib import Path

import pytest

from svc_notebook.demo.lab import copy_tour
from tests.magics.conftest import Shell

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {
    path.name: blocks
    for path in sorted(NOTEBOOKS.glob("*.md"))
    if (blocks := BLOCK.findall(path.read_text("utf-8")))
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs(
    name: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks marked `python` run against the emulator, in a copy of the lessons."""
    copy_tour(tmp_path)
    monkeypatch.chdir(tmp_path)
    shell.run("import svc_notebook as svc")

    failed = [
        (block, ran.error)
        for block in PAGES[name]
        if (ran := shell.run(block)).error is not None
    ]

    assert failed == []
