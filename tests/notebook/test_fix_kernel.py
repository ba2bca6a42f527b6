"""`%svc fix`, `%svc insert` and `--as` in a real kernel."""

from collections.abc import Iterator
from typing import Any

import pytest

from svc_notebook.emulator.server import Emulator
from tests.notebook.conftest import Kernel

CODE = "Divide by one.\n\n```python\nx = 1 / 1\n```\n\n```bash\nls\n```\n"
SCRIPT: list[dict[str, Any]] = [
    {"when": {"contains": "A notebook cell fails"}, "text": CODE, "times": None},
]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that corrects cells."""
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


def test_a_cell_is_corrected(kernel: Kernel, emulator: Emulator) -> None:
    """Shown first, sent when asked again; the code is put below and not run."""
    kernel.run("import json\nx = 1 / 0")
    kernel.run("y = 2")

    first = kernel.run("%svc fix")
    n_sent = len(emulator.requests)
    second = kernel.run("%svc fix")
    kernel.run("%svc insert 2")

    assert n_sent == 0
    assert "Dry run: nothing was sent" in first.shown
    prompt = emulator.requests[-1].json["messages"][-1]["content"]
    assert "Cell In[2] (failed):\n```\nimport json\nx = 1 / 0\n```" in prompt
    assert "  Cell In[2], line 2, in <module>\n" in prompt
    assert "ipykernel" not in prompt
    assert "code block 1 of 2 is in the next cell, and was not run" in second.shown
    assert kernel.next_inputs == ["x = 1 / 1", "ls"]
    assert kernel.value("'x' in globals()") == "False"


def test_nothing_is_sent_where_nobody_watches(
    kernel: Kernel, emulator: Emulator
) -> None:
    """As in nbconvert, where stdin is forbidden: refused with the reason."""
    kernel.run("1 / 0", is_watched=False)

    for line in ("%svc fix", "%svc fix --send", "%svc explain"):
        ran = kernel.run(line, is_watched=False)

        assert ran.status == "error"
        assert "nobody watches" in ran.all("error")[0]["evalue"]
    assert emulator.requests == ()


def test_a_cell_that_cannot_be_compiled(kernel: Kernel, emulator: Emulator) -> None:
    """A SyntaxError has no frames; an error of ours after it changes nothing."""
    kernel.run("def f(:\n    pass")
    kernel.run("%%svc --nonsense\nHello")

    ran = kernel.run("%svc explain --send")

    assert ran.status == "ok"
    prompt = emulator.requests[-1].json["messages"][-1]["content"]
    assert "Cell In[2] (failed):\n```\ndef f(:\n    pass\n```" in prompt
    assert "SyntaxError" in prompt
