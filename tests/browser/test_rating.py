"""`run.rate()` in JupyterLab and in Notebook 7, on a kernel, against the emulator.

Each front end opens one notebook whose 40 replies are rated from test to test, without
the mouse after the panel is open.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook, Server
from tests.browser.panel_page import axe_findings
from tests.browser.test_panel import HOSTILE

N_REPLIES = 40
ANSWER = f"{HOSTILE}\n\nAn answer with **bold** words and $x^2$."
SCRIPT: list[dict[str, Any]] = [{"text": ANSWER, "times": None}]
SETUP = """\
import os
os.environ["SVC_LEDGER"] = os.path.abspath("{ledger}")
import svc_notebook as svc
rows = [{{"word": f"word {{n}}."}} for n in range(40)]
run = svc.sweep("Explain {{{{word}}}}", rows=rows, name="words").run()"""
RATE = "run.rate(scale='1-5', rater='anna')"
KEPT = """\
ratings = run.ratings_df()
print(len(ratings), ratings["rater"].unique().tolist(), ratings["seconds_s"].min() > 0)
print(ratings.loc[ratings["note"] != "", "note"].tolist())"""
BUSY = "import time\nprint('be' + 'gun')\nfor _ in range(20_000):\n    time.sleep(0.05)"
CELLS = (SETUP, RATE, KEPT, BUSY)
PREPARE, OPEN, READ, RUNNING = range(1, 5)


class Rater:
    """A panel in a notebook, as a person with a keyboard sees it.

    Args:
        notebook: Has it below a cell.
    """

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.page = notebook.page
        self.root = notebook.shown(OPEN).locator(".svc-rating")
        self.stage = self.root.locator(".svc-stage")
        self.count = self.root.locator(".svc-count")

    def press(self, key: str, n_done: int) -> None:
        """Press a key, wherever the focus is, and wait until so many are rated."""
        self.page.keyboard.press(key)
        expect(self.count).to_have_text(f"{n_done} of {N_REPLIES}")

    def open(self) -> None:
        """Run the cell with the keyboard, which gives the panel the focus."""
        self.notebook.enter(OPEN)
        self.page.keyboard.press("Control+Enter")
        expect(self.stage).to_be_focused()


@pytest.fixture(scope="module")
def bench(browser: Browser, lab: Server, place: str) -> Iterator[Bench]:
    """Opens notebooks that the emulator answers, one for each front end."""
    del place
    with Emulator(script=SCRIPT, limits=False) as emulator:
        bench = Bench(browser, lab, emulator)
        try:
            yield bench
        finally:
            bench.close()


@pytest.fixture(scope="module")
def rater(bench: Bench, place: str) -> Rater:
    """A panel that is open."""
    name = f"rate-{place}"
    setup, *cells = CELLS
    path = bench.write(name, setup.format(ledger=f"{name}.db"), *cells)
    opened = bench.open(path, place=place)
    _prepare(opened)
    rater = Rater(opened)
    rater.open()
    return rater


def test_a_new_cell_at_the_end_keeps_the_cursor(bench: Bench, place: str) -> None:
    """Shift+Enter makes one, where somebody may be about to type; a click rates."""
    name = f"end-{place}"
    few = SETUP.replace("range(40)", "range(2)").format(ledger=f"{name}.db")
    path = bench.write(name, few, RATE)
    notebook = bench.open(path, place=place)
    _prepare(notebook)
    rater = Rater(notebook)
    notebook.enter(OPEN)
    rater.page.keyboard.press("Shift+Enter")
    expect(rater.root).to_contain_text("Click the reply", use_inner_text=True)
    rater.page.keyboard.type("41")

    expect(notebook.cells.nth(READ).locator(".cm-content")).to_have_text("41")
    rater.stage.click()
    rater.page.keyboard.press("4")
    expect(rater.count).to_have_text("1 of 2")
    rater.page.close()


def _prepare(notebook: Notebook) -> None:
    for cell in (0, PREPARE):
        notebook.wait_idle()
        notebook.run(cell)
    notebook.wait_idle()


def test_shift_enter_gives_the_panel_the_focus(rater: Rater) -> None:
    """The next cell is the selected one then; keys still rate."""
    rater.notebook.enter(OPEN)
    rater.page.keyboard.press("Shift+Enter")
    expect(rater.notebook.cells.nth(READ)).to_contain_class("jp-mod-selected")
    expect(rater.stage).to_be_focused()
    expect(rater.root).not_to_contain_text("Click the reply", use_inner_text=True)

    rater.press("4", 1)
    rater.press("u", 0)


def test_a_focus_outside_of_the_notebook_stays(rater: Rater) -> None:
    """The panel does not take it, and says that a click on the reply is needed."""
    rater.notebook.enter(OPEN)
    rater.page.keyboard.press("Escape")
    rater.page.evaluate(
        """() => {
          const button = document.createElement("button");
          button.id = "outside";
          document.body.append(button);
          button.focus();
        }"""
    )
    shown = rater.stage.element_handle()
    rater.page.evaluate(
        "() => { window.jupyterapp.commands.execute('notebook:run-cell',"
        " { activate: false }) }"
    )
    shown.wait_for_element_state("hidden")
    rater.root.get_by_role("button", name="Skip").evaluate("(skip) => skip.click()")
    expect(rater.count).to_contain_text("1 skipped")  # the kernel has answered

    expect(rater.page.locator("#outside")).to_be_focused()
    expect(rater.root).to_contain_text("Click the reply", use_inner_text=True)
    rater.page.locator("#outside").evaluate("(button) => button.remove()")
    rater.open()


def test_keys_rate_skip_undo_and_note(rater: Rater) -> None:
    """Without the mouse; what is typed into the note is no rating."""
    n_cells = rater.notebook.cells.count()
    rater.press("4", 1)
    rater.press("2", 2)
    rater.press("u", 1)
    expect(rater.root.locator("[aria-pressed=true]")).to_have_text("2")
    rater.page.keyboard.press("n")
    rater.page.keyboard.type("12345 and says u")
    expect(rater.count).to_have_text(f"1 of {N_REPLIES}")
    rater.page.keyboard.press("Enter")
    rater.press("3", 2)
    for key in ("d", "d", "a", "b", "m", "x", "0", "0", "Escape"):
        rater.page.keyboard.press(key)

    expect(rater.stage).to_be_focused()
    expect(rater.count).to_have_text(f"2 of {N_REPLIES}")
    assert rater.notebook.cells.count() == n_cells


def test_two_tabs_follow_each_other(rater: Rater, bench: Bench, place: str) -> None:
    """A key in one tab shows the next reply in both."""
    rater.notebook.save()
    other = Rater(bench.open(rater.notebook.path, place=place))
    expect(other.count).to_have_text(f"2 of {N_REPLIES}")
    other.stage.focus()
    other.press("5", 3)
    expect(rater.count).to_have_text(f"3 of {N_REPLIES}")
    rater.stage.focus()
    rater.press("1", 4)

    expect(other.count).to_have_text(f"4 of {N_REPLIES}")
    assert other.stage.inner_text() == rater.stage.inner_text()
    other.page.close()


def test_it_lives_while_a_cell_runs(rater: Rater) -> None:
    """A rating is kept before the cell has ended."""
    rater.notebook.run(RUNNING)
    expect(rater.notebook.shown(RUNNING)).to_contain_text("begun")
    rater.stage.focus()
    rater.press("2", 5)
    is_running = "[*]" in rater.notebook.cells.nth(RUNNING).inner_text()
    rater.notebook.command("notebook:interrupt-kernel")
    expect(rater.notebook.shown(RUNNING)).to_contain_text("KeyboardInterrupt")
    rater.stage.focus()
    rater.press("u", 4)

    assert is_running


def test_it_survives_a_reload(rater: Rater) -> None:
    """The panel comes back where it was, with the note that is being written."""
    rater.page.keyboard.press("n")
    rater.page.keyboard.type("half a note")
    rater.notebook.save()
    rater.page.on("dialog", lambda dialog: dialog.accept())
    rater.page.reload()
    expect(rater.count).to_have_text(f"4 of {N_REPLIES}")
    expect(rater.root.get_by_role("textbox", name="Note")).to_have_value("half a note")
    rater.stage.focus()

    rater.press("3", 5)


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_axe_finds_nothing(rater: Rater, theme: str) -> None:
    """Among the styles of the front end too names, roles and contrast are right."""
    rater.page.evaluate(
        "(theme) => window.jupyterapp.commands.execute("
        "'apputils:change-theme', { theme })",
        theme,
    )
    is_light = "true" if theme.endswith("Light") else "false"
    expect(rater.page.locator(f"body[data-jp-theme-light={is_light}]")).to_be_attached()
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    root = ".jp-OutputArea .svc-rating"

    assert axe_findings(rater.page, axe, root, is_strict=True) == []


def test_a_restarted_kernel_is_said_and_the_cell_goes_on(rater: Rater) -> None:
    """Nothing is rated meanwhile; run again, the cell goes on where it ended."""
    rater.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext"
        ".session.kernel.restart()"
    )
    expect(rater.root).to_contain_text(
        "The kernel was restarted or shut down; run the cell again."
    )
    rater.stage.focus()
    rater.page.keyboard.press("4")
    expect(rater.count).to_have_text(f"5 of {N_REPLIES}")
    _prepare(rater.notebook)
    rater.open()
    expect(rater.count).to_have_text(f"5 of {N_REPLIES}")

    rater.press("4", 6)


def test_all_replies_are_rated_with_the_keyboard(rater: Rater) -> None:
    """To the end; the replies are hostile, and nothing of them runs or loads."""
    requested: list[str] = []
    rater.page.on("request", lambda request: requested.append(request.url))
    shown = rater.root.locator(".svc-stage")
    for n_done in range(7, N_REPLIES + 1):
        expect(shown.locator("mjx-container")).to_have_count(1)
        assert shown.locator("script, img, iframe, [onerror]").count() == 0
        rater.press(str(n_done % 5 + 1), n_done)

    expect(rater.root.locator(".svc-summary")).to_be_focused()
    assert rater.page.evaluate("() => window.ran ?? null") is None
    assert [url for url in requested if "/x-" in url] == []


def test_the_ledger_has_each_rating(rater: Rater) -> None:
    """With the rater, the note and a time; the notebook's file has the table."""
    rater.notebook.run(READ)
    output = rater.notebook.shown(READ)
    expect(output).to_contain_text(f"{N_REPLIES} ['anna'] True")
    expect(output).to_contain_text("12345 and says u")
    rater.notebook.save()

    cells = json.loads(rater.notebook.path.read_text())["cells"]
    saved = [output["data"] for output in cells[OPEN]["outputs"]]
    assert any("rated_good" in json.dumps(data.get("text/html", "")) for data in saved)


def test_without_a_kernel_the_file_shows_the_ratings(
    rater: Rater, bench: Bench, place: str
) -> None:
    """There is a table, and no error of a widget that cannot be drawn."""
    rater.page.close()
    bench.server.end_kernels()
    page: Page = bench.page()
    notebook = bench.open(rater.notebook.path, page, place=place)

    shown = notebook.shown(OPEN)
    expect(shown.locator(".svc-static")).to_contain_text("anna")
    expect(shown).not_to_contain_text("Error displaying widget")
