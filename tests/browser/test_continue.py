"""A reply that goes on, in JupyterLab and Notebook 7: the rest joins it above."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from svc_notebook.display.reply_footer import UNFINISHED
from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench

WORDS = "The tide comes in twice a day, and the moon decides how far. "
BEGIN = f"## Tides\n\n{WORDS * 4}\n\n```python\nfor tide in range(3):\n    pri"
REST = f"```python\n    print(tide)\n```\n\n## Moon\n\n{WORDS * 30}"
OFFER = "asks for the rest"
MOVED_PX = 24
# Notes in every frame where the heading is that is being read.
WATCH = """
() => {
  window.frames_ = [];
  const look = () => {
    const found = document.querySelector('.jp-OutputArea h2');
    window.frames_.push(found ? found.getBoundingClientRect().y : null);
    requestAnimationFrame(look);
  };
  look();
}
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose reply is cut within code, and whose rest takes a while."""
    size = 20
    script: list[dict[str, Any]] = [
        {"when": {"contains": "tide"}, "text": BEGIN, "finish_reason": "length"},
        {
            "when": {"contains": "Go on"},
            "text": [REST[at : at + size] for at in range(0, len(REST), size)],
            "gap_s": 0.02,
        },
    ]
    with Emulator(script=script, limits=False) as running:
        yield running


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_the_rest_joins_the_reply_above(bench: Bench, place: str) -> None:
    """One code block, nothing moves, and a line below the cell that asked."""
    path = bench.write("rest", "%%svc\nOn the tide", "%svc continue")
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    expect(notebook.shown(1)).to_contain_text(OFFER)
    notebook.enter(2)
    notebook.page.evaluate(WATCH)

    notebook.command("notebook:run-cell")
    expect(notebook.shown(1)).to_contain_text(UNFINISHED)
    expect(notebook.shown(2)).to_contain_text("is added to the reply of [2]")
    expect(notebook.shown(1).locator("h2")).to_have_count(2)
    expect(notebook.shown(1)).not_to_contain_text(UNFINISHED)
    notebook.page.wait_for_timeout(500)  # what moves late, moves by then

    expect(notebook.shown(2)).to_contain_text("%svc last")
    expect(notebook.shown(2).locator(".jp-OutputArea-child")).to_have_count(1)
    expect(notebook.shown(1)).not_to_contain_text(OFFER)
    expect(notebook.shown(1).locator("pre")).to_have_count(1)
    expect(notebook.shown(1).locator("pre")).to_contain_text("print(tide)")
    places = notebook.page.evaluate("() => window.frames_")
    assert None not in places
    assert max(places) - min(places) <= MOVED_PX


def test_the_rest_that_the_panel_asks_for_joins_the_reply_of_the_cell(
    bench: Bench,
) -> None:
    """Also in the output of the cell, which says no longer how to go on."""
    panel = "import svc_notebook as svc\nsvc.panel('plan')"
    notebook = bench.open(bench.write("other", "%%svc -c plan\nOn the tide", panel))
    notebook.wait_idle()
    for cell in range(3):
        notebook.run(cell)
    expect(notebook.shown(1)).to_contain_text(OFFER)

    notebook.page.get_by_role("button", name="Continue the reply").click()

    expect(notebook.shown(1).locator("h2")).to_have_count(2)
    expect(notebook.shown(1)).not_to_contain_text(OFFER)
    expect(notebook.shown(1).locator("pre")).to_contain_text("print(tide)")
    expect(notebook.shown(1)).to_contain_text("2 requests")
