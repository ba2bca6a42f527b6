"""A panel in JupyterLab's side area, and what is said where there is none."""

import os
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Locator, Response, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook
from tests.browser.panel_page import axe_findings

pytest.importorskip("sidecar", reason="needs the extra `dock`")
OPEN = "import svc_notebook as svc\nsvc.panel({!r}, place='right')"
LINE = "The panel is in the side area."
NOT_THERE = "The panel is in this cell: the side area needs JupyterLab"
PLAN = OPEN.format("plan")
FRONT = "window.jupyterapp.shell.currentWidget"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that writes code where it is asked for code."""
    script: list[dict[str, Any]] = [
        {"when": {"contains": "code"}, "text": "```python\ncups = 3\n```\n"},
        {"text": "Green, black and iced.", "times": None},
    ]
    with Emulator(script=script, limits=False) as running:
        yield running


def docked(notebook: Notebook) -> Locator:
    """Find the panels in the side area."""
    return notebook.page.locator("#jp-right-stack .svc-panel")


def tabs(notebook: Notebook, title: str = "plan") -> Locator:
    """Find the tabs of sidecars with this title."""
    sides = notebook.page.locator(".jp-SideBar.jp-mod-right li")
    return sides.filter(has_text=title)


def look(notebook: Notebook, name: str) -> None:
    """Keep a picture, where a folder for them is named."""
    if folder := os.environ.get("LOOKS_FOLDER"):
        notebook.page.screenshot(path=f"{folder}/{name}.png")


def open_docked(bench: Bench, name: str, *cells: str) -> Notebook:
    """Open a notebook whose first panel is docked; the cell shows one line."""
    notebook = bench.open(bench.write(name, PLAN, *cells))
    notebook.page.set_viewport_size({"width": 1400, "height": 900})
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    is_docked_once(notebook)
    expect(notebook.shown(1).get_by_role("textbox")).to_be_hidden()
    return notebook


def is_docked_once(notebook: Notebook) -> None:
    """Wait until the first panel has one tab, and its cell one line."""
    expect(notebook.shown(1).get_by_text(LINE)).to_be_visible()
    expect(tabs(notebook)).to_have_count(1)


def ask(notebook: Notebook) -> None:
    """Ask from the line in the cell, and wait for the reply."""
    notebook.shown(1).get_by_role("button", name="Go to the panel").click()
    composer = docked(notebook).get_by_role("textbox", name="Message")
    expect(composer).to_be_focused()
    composer.fill("Name three teas")
    composer.press("Enter")
    expect(docked(notebook).locator(".svc-foot")).to_be_visible()


def test_keys_go_from_the_side_area_to_the_notebook_and_back(bench: Bench) -> None:
    """Control+M to the active cell, where its keys work; Tab and Escape back."""
    notebook = open_docked(bench, "leave", "1 + 1")
    ask(notebook)
    n_cells = notebook.cells.count()

    composer = docked(notebook).get_by_role("textbox", name="Message")
    composer.press("Control+m")
    notebook.page.keyboard.press("b")
    expect(notebook.cells).to_have_count(n_cells + 1)

    for key in ("Enter", "Escape", "Tab", "Tab", "Tab", "Escape"):
        notebook.page.keyboard.press(key)
    expect(composer).to_be_focused()


def test_a_docked_panel_chats_and_comes_to_the_front(bench: Bench) -> None:
    """Running the cell again opens no second one, also where another is in front."""
    notebook = open_docked(bench, "docked", OPEN.format("shop"))
    panel = docked(notebook)
    expect(panel.get_by_role("button", name="Explain")).to_be_visible()
    ask(notebook)
    look(notebook, "docked")
    axe = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    assert axe_findings(notebook.page, axe, "#jp-right-stack .svc-panel") == []

    notebook.run(1)
    notebook.wait_idle()
    is_docked_once(notebook)

    notebook.run(2)
    expect(panel).to_have_count(2)
    expect(panel.first).to_be_hidden()
    notebook.run(1)
    expect(panel.last.get_by_text("Name three teas")).to_be_visible()
    is_docked_once(notebook)
    look(notebook, "docked-two")
    notebook.page.evaluate(
        "() => { window.jupyterapp.commands.execute('apputils:change-theme',"
        " { theme: 'JupyterLab Dark' }) }"
    )
    expect(notebook.page.locator("body")).to_have_attribute(
        "data-jp-theme-name", "JupyterLab Dark"
    )
    look(notebook, "docked-dark")


def has_width(notebook: Notebook, least_px: int, most_px: int) -> None:
    """Wait until the panel in front is so wide."""
    is_so_wide = f"""() => [...document.querySelectorAll("#jp-right-stack .svc-panel")]
      .some(({{ offsetWidth: px }}) => px >= {least_px} && px <= {most_px})"""
    notebook.page.wait_for_function(is_so_wide)


def drag_edge(notebook: Notebook, right_px: int) -> None:
    """Drag the edge of the side area to the right."""
    edges = notebook.page.locator("#jp-main-split-panel > .lm-SplitPanel-handle")
    box = edges.nth(1).bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + 400
    notebook.page.mouse.move(x, y)
    notebook.page.mouse.down()
    notebook.page.mouse.move(x + right_px, y, steps=4)
    notebook.page.mouse.up()


def test_a_panel_opens_wide_enough_and_keeps_a_width_that_was_dragged(
    bench: Bench,
) -> None:
    """About 400 px; what the user drags stays, for other panels and after a reload."""
    notebook = open_docked(bench, "wide", OPEN.format("shop"))
    has_width(notebook, 380, 400)
    look(notebook, "docked-wide")

    def is_saved(response: Response) -> bool:
        body = response.request.post_data or ""
        return response.request.method == "PUT" and "isWidthChosen" in body

    with notebook.page.expect_response(is_saved):
        drag_edge(notebook, 130)
    has_width(notebook, 240, 280)
    notebook.run(2)
    expect(tabs(notebook, "shop")).to_have_count(1)
    expect(docked(notebook).last).to_be_visible()
    has_width(notebook, 240, 280)

    notebook.save()
    notebook.page.reload()
    is_docked_once(notebook)
    notebook.wait_idle()
    notebook.run(1)
    expect(docked(notebook).filter(visible=True)).to_have_attribute(
        "aria-label", "Conversation plan"
    )
    has_width(notebook, 200, 280)


def test_a_panel_leaves_most_of_a_small_window_to_the_notebook(bench: Bench) -> None:
    """It takes at most 40 % of it, and no more than the notebook has."""
    notebook = bench.open(bench.write("small", PLAN))
    notebook.page.set_viewport_size({"width": 800, "height": 700})
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    is_docked_once(notebook)
    has_width(notebook, 220, 250)  # the file browser is open, too
    look(notebook, "docked-small")

    notebook.command("application:toggle-left-area")
    expect(notebook.page.locator("#jp-left-stack")).to_be_hidden()
    tabs(notebook).locator(".lm-TabBar-tabCloseIcon").click(force=True)
    expect(tabs(notebook)).to_have_count(0)
    notebook.run(1)
    is_docked_once(notebook)
    has_width(notebook, 310, 320)

    notebook.page.set_viewport_size({"width": 1300, "height": 700})
    has_width(notebook, 380, 400)
    notebook.page.set_viewport_size({"width": 800, "height": 700})
    has_width(notebook, 310, 320)


def has_tab(notebook: Notebook, title: str) -> None:
    """Wait until the one tab of a panel has this title."""
    tab = notebook.page.locator(
        ".jp-SideBar.jp-mod-right li:has(.lm-TabBar-tabCloseIcon:visible)"
    )
    expect(tab.locator(".lm-TabBar-tabLabel")).to_have_text([title])


def test_the_tab_follows_the_header_and_names_the_notebook(bench: Bench) -> None:
    """With a new name, a new conversation or another, and a renamed file."""
    notebook = open_docked(bench, "day3")
    panel = docked(notebook)
    has_tab(notebook, "plan - day3")
    ask(notebook)
    panel.get_by_role("button", name="Conversations").click()
    name = panel.get_by_role("textbox", name="Name of this conversation")
    name.fill("<b>my</b> trip")
    name.press("Enter")
    has_tab(notebook, "<b>my</b> trip - day3")

    panel.get_by_role("button", name="New conversation").click()
    has_tab(notebook, "New conversation - day3")
    composer = panel.get_by_role("textbox", name="Message")
    composer.fill("Write code")
    composer.press("Enter")
    has_tab(notebook, "Write code - day3")
    expect(panel.locator(".svc-foot")).to_be_visible()

    panel.get_by_role("button", name="Conversations").click()
    panel.get_by_role("listitem").filter(has_text="my").get_by_text("three").click()
    has_tab(notebook, "<b>my</b> trip - day3")
    look(notebook, "docked-tab")

    notebook.page.evaluate(
        f"async () => {{ await {FRONT}.context.rename('day3b.ipynb') }}"
    )
    has_tab(notebook, "<b>my</b> trip - day3b")
    notebook.save()
    saved = notebook.path.with_stem("day3b")
    assert "day3" not in saved.read_text()
    notebook.page.reload()
    has_tab(notebook, "<b>my</b> trip - day3b")


def open_next(notebook: Notebook, name: str, mode: str = "tab-after") -> Locator:
    """Open another notebook in front, and return its cells."""
    notebook.page.evaluate(
        """async ([path, mode]) => {
          const how = { path, options: { mode } };
          await jupyterapp.commands.execute("docmanager:open", how);
        }""",
        [f"{name}.ipynb", mode],
    )
    notebook.wait_idle()
    cells = notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")
    cells.last.locator(".cm-content").click()
    return cells


def test_code_goes_to_the_notebook_of_the_panel_only(bench: Bench) -> None:
    """With another one in front it is copied, and the panel says what to do."""
    notebook = open_docked(bench, "day3")
    composer = docked(notebook).get_by_role("textbox", name="Message")
    composer.fill("Write code")
    composer.press("Enter")
    insert = docked(notebook).get_by_role("button", name="Insert as cell below")
    n_cells = f"() => {FRONT}.content.widgets.length"
    bench.write("day4", "1 + 1")
    open_next(notebook, "day4")
    insert.click()
    said = docked(notebook).locator(".svc-code .svc-words")
    expect(said).to_have_text(
        "Copied, not inserted: this panel belongs to day3. Go there, or paste it here."
    )
    look(notebook, "docked-not-inserted")
    assert notebook.page.evaluate(n_cells) == 2

    open_next(notebook, "day3")
    insert.click()
    expect(said).to_have_text("Inserted as a cell")
    assert notebook.page.evaluate(n_cells) == 3


def test_code_goes_to_the_notebook_of_the_panel_next_to_another(bench: Bench) -> None:
    """Where both are in sight, the one in use does not matter."""
    notebook = open_docked(bench, "day3")
    composer = docked(notebook).get_by_role("textbox", name="Message")
    composer.fill("Write code")
    composer.press("Enter")
    bench.write("day4", "1 + 1")
    cells = open_next(notebook, "day4", "split-bottom")
    expect(cells).to_have_count(4)
    docked(notebook).get_by_role("button", name="Insert as cell below").click()
    said = docked(notebook).locator(".svc-code .svc-words")

    expect(said).to_have_text("Inserted as a cell")
    expect(cells).to_have_count(5)
    assert notebook.page.evaluate(f"() => {FRONT}.content.widgets.length") == 2


def test_a_closed_panel_is_in_its_cell(bench: Bench) -> None:
    """The cell docks it again; a reload of the page keeps it where it is."""
    notebook = open_docked(bench, "closed")
    icon = tabs(notebook).locator(".lm-TabBar-tabCloseIcon")
    icon.click(force=True)  # it is turned, with its tab
    expect(tabs(notebook)).to_have_count(0)
    expect(notebook.shown(1).get_by_role("textbox", name="Message")).to_be_visible()
    notebook.save()
    notebook.page.reload()
    expect(notebook.shown(1).get_by_role("textbox", name="Message")).to_be_visible()
    expect(tabs(notebook)).to_have_count(0)

    notebook.wait_idle()
    notebook.run(1)
    is_docked_once(notebook)
    notebook.save()
    notebook.page.reload()
    is_docked_once(notebook)


def tabs_of_panels(notebook: Notebook) -> list[str]:
    """Return the titles of the docked panels, with a star at the one in front."""
    found = notebook.page.locator(
        ".jp-SideBar.jp-mod-right li:has(.lm-TabBar-tabCloseIcon:visible)"
    )
    script = """(tabs) => tabs.map((tab) => tab.innerText.trim().split(" - ")[0]
      + (tab.matches(".lm-mod-current") ? "*" : ""))"""
    titles: list[str] = found.evaluate_all(script)
    return titles


def reload(notebook: Notebook, n_panels: int) -> None:
    """Save, reload the page, and wait until its docked panels are all there."""
    notebook.save()
    notebook.page.reload()
    expect(docked(notebook)).to_have_count(n_panels)
    for number in range(n_panels):
        expect(docked(notebook).nth(number)).to_have_attribute(
            "aria-label", re.compile("Conversation ")
        )
    notebook.wait_idle()
    lines = notebook.page.locator(".jp-Cell .svc-away")
    expect(lines).to_have_count(n_panels)


def open_three(bench: Bench, name: str) -> Notebook:
    """Open a notebook with three docked panels, the last one in front."""
    names = ("english", "thai", "lao")
    notebook = bench.open(bench.write(name, *map(OPEN.format, names)))
    notebook.page.set_viewport_size({"width": 1400, "height": 900})
    for number in range(4):
        notebook.wait_idle()
        notebook.run(number)
    for title in names:
        expect(tabs(notebook, title)).to_have_count(1)
    assert tabs_of_panels(notebook) == ["english", "thai", "lao*"]
    return notebook


@pytest.mark.parametrize("front", ["english", "thai", "lao"])
def test_a_reload_keeps_the_tabs_and_the_one_in_front(bench: Bench, front: str) -> None:
    """In their order, as often as the page is reloaded."""
    notebook = open_three(bench, f"order-{front[:2]}")
    if front != "lao":
        tabs(notebook, front).click()
    before = tabs_of_panels(notebook)
    assert f"{front}*" in before

    for _ in range(2):
        reload(notebook, 3)
        assert tabs_of_panels(notebook) == before
        expect(docked(notebook).filter(visible=True)).to_have_attribute(
            "aria-label", f"Conversation {front}"
        )


def test_a_closed_side_area_stays_closed_after_a_reload(bench: Bench) -> None:
    """Its tabs are there, in their order."""
    notebook = open_three(bench, "closed-area")
    tabs(notebook, "lao").click()
    assert tabs_of_panels(notebook) == ["english", "thai", "lao"]

    reload(notebook, 3)

    assert tabs_of_panels(notebook) == ["english", "thai", "lao"]
    expect(docked(notebook).filter(visible=True)).to_have_count(0)


def test_a_reload_brings_no_other_tab_to_the_front(bench: Bench) -> None:
    """Where another tool of JupyterLab is in front, it stays there."""
    notebook = open_three(bench, "inspected")
    inspector = notebook.page.locator("li[data-id='jp-property-inspector']")
    inspector.click()
    expect(notebook.page.locator("#jp-property-inspector")).to_be_visible()

    reload(notebook, 3)

    assert tabs_of_panels(notebook) == ["english", "thai", "lao"]
    expect(notebook.page.locator("#jp-property-inspector")).to_be_visible()


def test_a_reload_keeps_the_tabs_of_several_notebooks(bench: Bench) -> None:
    """Also where the notebook that loads first, in front, has docked its panel last."""
    notebook = open_docked(bench, "one")
    bench.write("other", OPEN.format("shop"))
    cells = open_next(notebook, "other")
    for cell in range(2):
        cells.nth(cell).locator(".cm-content").click()
        notebook.command("notebook:run-cell")
        notebook.wait_idle()
    expect(tabs(notebook, "shop")).to_have_count(1)
    notebook.save()
    tabs(notebook).click()
    assert tabs_of_panels(notebook) == ["plan*", "shop"]

    for _ in range(2):
        notebook.save()
        notebook.page.reload()
        for title in ("plan - one", "shop - other"):  # given once they are in place
            expect(tabs(notebook, title)).to_have_count(1)
        expect(docked(notebook).filter(visible=True)).to_have_attribute(
            "aria-label", "Conversation plan"
        )
        assert tabs_of_panels(notebook) == ["plan*", "shop"]
    look(notebook, "docked-reloaded")


def test_a_message_after_a_reload_moves_nothing(bench: Bench) -> None:
    """Of two docked panels on one conversation, the same one stays in front."""
    in_cell = "import svc_notebook as svc\nsvc.panel('plan')"
    lines = "\n".join("1 + 1" for _ in range(30))
    cells = (in_cell, PLAN, lines, lines, in_cell, lines, PLAN, lines)
    notebook = bench.open(bench.write("two-docked", *cells))
    for number in (0, 1, 2, 5, 7):
        notebook.wait_idle()
        notebook.run(number)
    expect(docked(notebook)).to_have_count(2)
    tabs(notebook).first.click()
    notebook.enter(0)
    before = tabs_of_panels(notebook)
    assert before == ["plan*", "plan"]

    for n in range(2):
        notebook.save()
        notebook.page.reload()
        expect(docked(notebook)).to_have_count(2)
        notebook.wait_idle()
        panel = docked(notebook).filter(visible=True)
        composer = panel.get_by_role("textbox", name="Message")
        composer.fill("Name three teas")
        composer.press("Enter")
        expect(panel.locator(".svc-foot")).to_have_count(n + 1)
        notebook.wait_idle()
        expect(composer).to_be_focused()
        assert tabs_of_panels(notebook) == before


def test_a_draft_comes_back_in_the_panel_where_it_was_typed(bench: Bench) -> None:
    """Not in the panel of a cell on the same conversation."""
    in_cell = "import svc_notebook as svc\nsvc.panel('plan')"
    notebook = bench.open(bench.write("typed", in_cell, PLAN))
    for number in range(3):
        notebook.wait_idle()
        notebook.run(number)
    typed = docked(notebook).get_by_role("textbox", name="Message")
    cell = notebook.shown(1).get_by_role("textbox", name="Message")
    typed.fill("A draft")
    expect(cell).to_have_value("")

    for _ in range(2):
        reload(notebook, 1)
        expect(typed).to_have_value("A draft")
        expect(cell).to_have_value("")


def test_a_panel_of_the_kernel_before_gives_way(bench: Bench) -> None:
    """It says that the kernel has ended, until the cell has run again."""
    notebook = open_docked(bench, "restarted")
    kernel = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
    notebook.page.evaluate(f"() => {kernel}.restart()")
    notebook.wait_idle()
    said = docked(notebook).locator(".svc-notices")
    expect(said).to_have_text(
        "The kernel was restarted or shut down. To go on, run the cell with "
        'svc.panel("plan", …) again.'
    )
    expect(said.locator("code")).to_have_text('svc.panel("plan", …)')
    look(notebook, "docked-restarted")
    notebook.run(0)
    notebook.run(1)

    expect(
        docked(notebook).locator(".svc-notices").get_by_text("The kernel was restarted")
    ).to_have_count(0)
    is_docked_once(notebook)
    ask(notebook)


def test_without_a_kernel_the_cell_shows_the_transcript(bench: Bench) -> None:
    """Nothing opens in the side area for a notebook that is only read."""
    notebook = bench.open(bench.write("read", PLAN + ".conversation", PLAN))
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(2)
    composer = docked(notebook).get_by_role("textbox", name="Message")
    composer.fill("Name three teas")
    composer.press("Enter")
    expect(docked(notebook).locator(".svc-foot")).to_be_visible()
    notebook.save()
    bench.server.end_kernels()
    notebook.page.goto("about:blank")
    text = notebook.path.read_text().replace('"name": "python3"', '"name": "gone"')
    notebook.path.write_text(text)
    read = bench.open(notebook.path, notebook.page)

    expect(read.shown(2).get_by_text("Name three teas")).to_be_attached()
    expect(docked(read)).to_have_count(0)


def test_notebook_7_says_what_the_side_area_needs(bench: Bench) -> None:
    """The panel is in the cell and works; the line can be dismissed."""
    notebook = bench.open(bench.write("seven", PLAN), place="notebook")
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    panel = notebook.shown(1).locator(".svc-panel")
    expect(panel.get_by_text(NOT_THERE)).to_be_visible()
    look(notebook, "docked-notebook-7")
    panel.get_by_role("button", name="Dismiss").click()
    expect(panel.get_by_text(NOT_THERE)).to_be_hidden()
    panel.get_by_role("textbox", name="Message").fill("Name three teas")
    panel.get_by_role("textbox", name="Message").press("Enter")

    expect(panel.locator(".svc-foot")).to_be_visible()
