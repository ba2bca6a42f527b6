"""`%svc fix`, `%svc insert` and `--as` in a real kernel."""

from collections.abc import Iterator
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import TIMEOUT_S, Kernel

CODE = "Divide by one.\n\n```python\nx = 1 / 1\n```\n\n```bash\nls\n```\n"
SCRIPT: list[dict[str, Any]] = [
    {"when": {"contains": "A notebook cell fails"}, "text": CODE, "times": None},
    {"text": "I cannot say."},
    {"tool_calls": [{"id": "c", "name": "Invoice", "arguments": {"total": 120}}]},
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
    assert kernel.next_inputs == ["x = 1 / 1", "%%bash\nls"]
    assert kernel.value("'x' in globals()") == "False"


def test_a_cell_that_runs_again_puts_its_code_below_once(
    kernel: Kernel, emulator: Emulator
) -> None:
    """Without the extension of the page; another cell, or a changed one, puts it."""
    del emulator
    kernel.run("1 / 0")
    kernel.run("%svc fix --send", cell_id="fix")

    first = kernel.run("%svc insert 2", cell_id="one")
    again = kernel.run("%svc insert 2", cell_id="one")
    kernel.run("%svc insert 2", cell_id="two")
    kernel.run("%svc  insert 2", cell_id="one")

    assert "is in the next cell, and was not run" in first.shown
    assert "was put into the next cell before; %svc insert in a new cell" in again.shown
    assert kernel.next_inputs == ["x = 1 / 1", *["%%bash\nls"] * 3]


def test_nothing_is_sent_where_nobody_watches(
    kernel: Kernel, emulator: Emulator
) -> None:
    """As in nbconvert, where stdin is forbidden: refused with the reason."""
    kernel.run("1 / 0", is_watched=False)

    for line in ("%svc fix", "%svc fix --send", "%svc explain"):
        ran = kernel.run(line, is_watched=False)

        assert ran.status == "error"
        assert "without a user" in ran.all("error")[0]["evalue"]
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


INVOICE = """\
from dataclasses import dataclass
@dataclass
class Invoice:
    total: float"""


def test_a_cell_gives_a_value_of_a_type(kernel: Kernel) -> None:
    """Tab knows the type; one output has the value, its footer and the tries."""
    kernel.run(INVOICE)
    line = "%%svc --as Inv"
    kernel.client.complete(line, len(line))
    matches = kernel.client.get_shell_msg(timeout=TIMEOUT_S)["content"]["matches"]

    ran = kernel.run("%%svc --as Invoice -o x\nThe total is 120.")

    assert matches == ["Invoice"]
    assert not ran.all("execute_result")
    assert not ran.all("clear_output")
    last = ran.all("update_display_data")[-1]["data"]
    assert last["text/plain"].startswith("Invoice(total=120.0)\n")
    assert "1 reply before it did not fit" in last["text/html"]
    assert "I cannot say" not in last["text/html"]
    assert kernel.value("(x.total, _)") == "(120.0, Invoice(total=120.0))"


def test_a_value_is_drawn_once_where_nobody_watches(kernel: Kernel) -> None:
    """As in nbconvert: one output."""
    kernel.run(INVOICE)

    ran = kernel.run("%%svc --as Invoice\nThe total is 120.", is_watched=False)

    assert [kind for kind, _ in ran.messages] == ["display_data"]
    assert "Invoice(total=120.0)" in ran.shown
