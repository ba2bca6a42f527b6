"""A reply whose kernel stops while it streams: its output says so, also when saved."""

import json
import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from svc_notebook.display.reply_footer import UNFINISHED
from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook

RESTART = (
    "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
)
STOPPED = "cut off: the kernel stopped"
ELSEWHERE = "the rest is not shown: the page was opened or reloaded meanwhile"
RECORDED = 'svc.replies_df(scope="all")'
WORDS = "The tide comes in twice a day, and the moon decides how far.\n\n"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that begins a reply, and writes no more."""
    stuck = {"text": [WORDS * 20, "x"], "gap_s": 600}
    whole = {"when": {"contains": "moon"}, "text": f"{UNFINISHED}?"}
    with Emulator(script=[whole, stuck], limits=False) as running:
        yield running


def streaming(bench: Bench, place: str) -> tuple[Notebook, int]:
    """Open a notebook with a whole reply, and one that streams; return the kernel."""
    cells = "import os; print('pid', os.getpid())", "%%svc\nmoon", "%%svc\ntide"
    notebook = bench.open(bench.write("stopped", *cells), place=place)
    notebook.wait_idle()
    notebook.run_all()
    expect(notebook.shown(3)).to_contain_text("The tide comes")
    expect(notebook.shown(3)).to_contain_text(UNFINISHED)
    return notebook, int(notebook.output(1).split()[-1])


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_restart_cuts_the_reply_off(bench: Bench, place: str) -> None:
    """What arrived stays; the line below says what happened and what to do."""
    notebook, _ = streaming(bench, place)

    notebook.page.evaluate(f"() => {RESTART}")

    expect(notebook.shown(3)).to_contain_text(STOPPED)
    expect(notebook.shown(3)).to_contain_text(RECORDED)
    expect(notebook.shown(3)).to_contain_text("The tide comes")
    expect(notebook.shown(3)).not_to_contain_text(UNFINISHED)
    expect(notebook.shown(2)).to_contain_text(f"{UNFINISHED}?")
    notebook.save()
    saved = json.loads(notebook.path.read_text())["cells"][3]["outputs"]
    assert STOPPED in str(saved)
    assert UNFINISHED not in str(saved)
    assert "svc-dot" not in str(saved)


def test_a_kernel_that_dies_cuts_the_reply_off(bench: Bench) -> None:
    """So it is when the kernel is killed, as where memory runs out."""
    notebook, kernel = streaming(bench, "lab")

    os.kill(kernel, signal.SIGKILL)

    expect(notebook.shown(3)).to_contain_text(STOPPED)
    expect(notebook.shown(3)).not_to_contain_text(UNFINISHED)


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_after_a_reload_the_reply_says_where_its_rest_is(
    bench: Bench, place: str
) -> None:
    """While the kernel still asks, it is being written; then it never ends here."""
    notebook, kernel = streaming(bench, place)
    notebook.save()

    again = bench.open(notebook.path, place=place)
    expect(again.shown(3)).to_contain_text(UNFINISHED)
    os.kill(kernel, signal.SIGINT)

    expect(again.shown(3)).to_contain_text(ELSEWHERE)
    expect(again.shown(3)).to_contain_text("svc.last()")
    expect(again.shown(3)).not_to_contain_text(UNFINISHED)
    expect(again.shown(2)).to_contain_text(f"{UNFINISHED}?")


@pytest.mark.parametrize("is_streaming", [False, True])
def test_a_panel_says_that_its_kernel_has_died(
    bench: Bench, *, is_streaming: bool
) -> None:
    """Jupyter restarts it by itself; until its cell runs again, nothing can be sent."""
    opened = "import svc_notebook as svc; svc.panel('plan')"
    cells = "import os; print('pid', os.getpid())", opened
    notebook = bench.open(bench.write("died", *cells))
    notebook.wait_idle()
    for cell in range(3):
        notebook.run(cell)
    panel = notebook.shown(2).locator(".svc-panel")
    composer = panel.get_by_role("textbox", name="Message")
    expect(composer).to_be_enabled()
    notebook.wait_idle()
    if is_streaming:
        composer.fill("tide")
        composer.press("Enter")
        expect(panel).to_contain_text("The tide comes")

    os.kill(int(notebook.output(1).split()[-1]), signal.SIGKILL)

    expect(panel).to_contain_text(
        "The kernel was restarted or shut down; run the cell again."
    )
    expect(composer).to_be_disabled()
    expect(panel.get_by_role("button", name="Stop")).to_be_hidden()
