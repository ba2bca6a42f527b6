"""What a reply's code and tables can become: a cell, a DataFrame."""

import os
from importlib.resources import files

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Bench
from tests.browser.panel_page import RICH, UNTIDY, PanelPage, axe_findings, turn, view

CODE = "```{}\nx = 1\nprint(x)\n```"
LISTEN = """(isTaken) => {
  document.addEventListener("svc-notebook:insert-below", (event) => {
    window.inserted = [event.detail.source, event.detail.element.localName];
    if (isTaken) event.preventDefault();
  });
}"""
COPIED = "Copied: paste it into a new cell"


@pytest.mark.parametrize("language", ["", "python", "Py", "python3 title=x", "ipython"])
def test_python_code_can_become_a_cell(page: Page, language: str) -> None:
    """So can code without a language; the cell has no empty line at its end."""
    panel = PanelPage(page, view([turn(1, CODE.format(language))]))
    page.evaluate(LISTEN, 1)
    panel.button("Insert as cell below").press("Enter")

    expect(panel.said).to_have_text("Inserted as a cell")
    assert page.evaluate("() => inserted") == ["x = 1\nprint(x)", "pre"]
    assert panel.sent == []


@pytest.mark.parametrize("language", ["sql", "svc", "json", "text", "<b>"])
def test_other_code_is_only_copied(page: Page, language: str) -> None:
    """A cell of it would not run."""
    panel = PanelPage(page, view([turn(1, CODE.format(language))]))

    expect(panel.button("Copy code")).to_be_attached()
    expect(panel.button("Insert as cell below")).to_have_count(0)


def test_code_that_a_magic_runs_can_become_a_cell(page: Page) -> None:
    """The cell begins with the magic, which the panel names."""
    inner = 'class="highlight" data-magic="bash"'
    html = f"<div {inner}><pre><code>ls\n</code></pre></div>"
    shown = turn(1, "") | {"choices": [{"html": html, "text": "", "tail": ""}]}
    panel = PanelPage(page, view([shown]))
    page.evaluate(LISTEN, 1)
    panel.button("Insert as cell below").press("Enter")

    expect(panel.said).to_have_text("Inserted as a %%bash cell")
    assert page.evaluate("() => inserted") == ["%%bash\nls", "pre"]


def test_a_long_line_ends_at_the_buttons(page: Page) -> None:
    """Nothing of the code shows above them, or between them and the edge."""
    text = f"```python\nx = {list(range(200))}\n```\n"
    panel = PanelPage(page, view([turn(1, text)]))
    edges = "(at) => { const { top, right } = at.getBoundingClientRect(); "
    edges += "return [top, right] }"
    row = panel.root.locator(".svc-code-row").evaluate(edges)

    assert row == panel.root.locator(".svc-code pre").evaluate(edges)


def test_without_an_extension_code_is_copied(page: Page) -> None:
    """It is said next to the code, and aloud."""
    panel = PanelPage(page, view([turn(1, CODE.format("python"))]))
    page.evaluate(LISTEN, 0)
    page.evaluate(
        "() => document.addEventListener('copy', () => { window.isCopied = true })"
    )
    panel.button("Insert as cell below").click()

    expect(panel.said).to_have_text(COPIED)
    expect(panel.log.get_by_text(COPIED)).to_be_visible()
    assert page.evaluate("() => isCopied")


def test_tool_calls_and_growing_replies_offer_nothing(page: Page) -> None:
    """What is not a whole reply becomes neither a cell nor a DataFrame."""
    run = {
        "name": "f",
        "line": "f()",
        "html": "<div class=highlight><pre>{}</pre></div>",
    }
    panel = PanelPage(
        page, view([turn(1, "Done.", tool_runs=[run | {"is_error": False}])])
    )
    panel.begin(RICH)

    expect(panel.turns.last.locator("table")).to_be_visible()
    for name in ("Insert as cell below", "As DataFrame"):
        for button in panel.button(name).all():
            expect(button).to_be_hidden()


def test_a_table_asks_for_a_name(page: Page) -> None:
    """The kernel's refusal is at the field; a taken name can be replaced."""
    panel = PanelPage(page, view([turn(1, "One."), turn(2, RICH, f"{RICH}\n{RICH}")]))
    panel.button("As DataFrame").nth(2).press("Enter")
    name = panel.root.get_by_role("textbox", name="Name of the DataFrame")
    expect(name).to_be_focused()
    name.fill("teas")
    name.press("Enter")
    sent = panel.sent[-1]
    problem = "teas is taken: it is a int."
    answer = {"t": "framed", "id": sent["id"], "name": "teas"}
    panel.tell(**answer, text="", problem=problem, is_taken=True)
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(panel.said).to_have_text(problem)
    panel.button("Replace").press("Enter")
    assert panel.sent == [sent, sent | {"on": True}]
    name.fill("teas2")
    expect(panel.button("Make")).to_be_visible()
    name.press("Enter")
    panel.tell(**answer, text="teas2 = 1 row × 2 columns", problem="", is_taken=False)  # noqa: RUF001

    expect(panel.said).to_have_text("teas2 = 1 row × 2 columns")  # noqa: RUF001
    expect(panel.log.get_by_text("teas2 = 1 row")).to_be_visible()
    expect(panel.button("As DataFrame").nth(2)).to_be_focused()
    where = {"turn": "turn-2", "choice": 1, "table": 1, "name": "teas", "on": False}
    assert sent == {"t": "frame", "id": sent["id"], **where}


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_frame_offers_a_cell_that_makes_it_again(page: Page, is_taken: bool) -> None:
    """It is inserted or copied as code is, and the frame's size stays in sight."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = PanelPage(page, view([turn(1, RICH)]))
    page.evaluate(LISTEN, is_taken)
    row = panel.log.locator(".svc-table-row").first
    panel.button("As DataFrame").first.click()
    panel.root.get_by_role("textbox", name="Name of the DataFrame").press("Enter")
    size, code = "table = 1 row × 2 columns", "table = 1"  # noqa: RUF001
    answer = {"t": "framed", "id": panel.sent[-1]["id"], "name": "table"}
    panel.tell(**answer, text=size, problem="", is_taken=False, code=code)
    row.get_by_role("button", name="Insert as cell below").press("Enter")

    said = "Inserted as a cell" if is_taken else COPIED
    expect(panel.said).to_have_text(said)
    expect(row).to_contain_text(size)
    expect(row).to_contain_text(said)
    assert page.evaluate("() => inserted") == [code, "div"]


def test_escape_gives_the_name_up(page: Page) -> None:
    """The focus goes back to the button, and another form closes the first."""
    panel = PanelPage(page, view([turn(1, f"{RICH}\n{RICH}")]))
    panel.button("As DataFrame").first.click()
    panel.button("As DataFrame").first.click()
    name = panel.root.get_by_role("textbox", name="Name of the DataFrame")
    expect(name).to_have_count(1)
    name.press("Escape")

    expect(panel.button("As DataFrame").nth(1)).to_be_focused()
    assert panel.sent == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [900, 280])
def test_the_buttons_and_the_form_are_tidy(page: Page, theme: str, width: int) -> None:
    """Nothing overlaps or is cut, and axe has nothing to say."""
    page.set_viewport_size({"width": width, "height": 700})
    panel = PanelPage(page, view([turn(1, f"{RICH}\n{RICH}")]), theme=theme)
    page.evaluate("() => { Object.assign(document.body.style, { margin: 0 }) }")
    panel.button("Insert as cell below").last.click()
    panel.button("As DataFrame").last.click()
    panel.root.get_by_role("textbox", name="Name of the DataFrame").press("Enter")
    answer = {"t": "framed", "id": panel.sent[-1]["id"], "name": "table", "text": ""}
    problem = "table is taken: it is a DataFrame. Replace it, or type another name."
    panel.tell(**answer, problem=problem, is_taken=True)
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/use-{theme}-{width}.png")
    axe = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")

    assert page.evaluate(UNTIDY) == []
    assert axe_findings(page, axe) == []


def test_one_of_several_empty_panels_has_suggestions(page: Page) -> None:
    """The others say what they are; one opened after its first message has them."""
    panel = PanelPage(page, view())
    page.evaluate("() => open_view()")
    roots = page.locator(".svc-panel")
    examples = page.get_by_role("group", name="Examples")
    expect(panel.root.locator("dd.svc-first")).to_be_visible()
    expect(roots.last.locator("dd.svc-first")).to_be_hidden()
    expect(roots).to_have_count(2)
    expect(roots.last.get_by_text("System prompt").first).to_be_visible()
    expect(examples).to_have_count(1)
    page.evaluate("() => close_view()")
    page.evaluate("() => open_view()")

    expect(roots).to_have_count(2)
    expect(examples).to_have_count(1)


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_cell_uses_a_table_of_a_reply(bench: Bench, place: str) -> None:
    """The name is there for the next cell; code becomes a cell and never runs."""
    reply = "| tea | cups |\n|--|--:|\n| Oolong | 3 |\n\n```python\nran = 1\n```"
    notebook = bench.open(
        bench.write(
            f"use-{place}",
            "import svc_notebook as svc\n"
            f"svc.use(endpoint=svc.Emulator(script=[{{'text': {reply!r}}}]))\n"
            "svc.panel('plan')",
            "teas.cups.sum(), 'ran' in globals()",
        ),
        place=place,
    )
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    panel = notebook.shown(1).locator(".svc-panel")
    panel.get_by_role("textbox", name="Message").fill("Which teas?")
    panel.get_by_role("textbox", name="Message").press("Enter")
    panel.get_by_role("button", name="As DataFrame").click()
    name = panel.get_by_role("textbox", name="Name of the DataFrame")
    name.fill("teas")
    name.press("Enter")
    expect(panel.get_by_role("log").get_by_text("teas = 1 row")).to_be_visible()
    insert = panel.get_by_role("button", name="Insert as cell below")
    code_cells = panel.page.locator(".jp-Notebook .jp-CodeCell")
    insert.first.click()
    expect(code_cells.nth(2)).to_contain_text("teas = pd.DataFrame(")
    panel.locator("pre").hover()
    insert.last.click()
    expect(panel.get_by_role("status")).to_have_text("Inserted as a cell")
    expect(code_cells.nth(3)).to_contain_text("ran = 1")
    notebook.run(2)
    notebook.run(4)

    expect(notebook.shown(4)).to_contain_text("3")
    expect(notebook.shown(4)).to_contain_text("False")


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_an_empty_cell_below_takes_the_code(bench: Bench, place: str) -> None:
    """Shift+Enter has made it. The next goes below; each is selected and in sight."""
    reply = "```python\nran = 1\n```\n\n```bash\nls\n```" + "\n\nMore." * 40
    notebook = bench.open(
        bench.write(
            f"empty-{place}",
            "import svc_notebook as svc\n"
            f"svc.use(endpoint=svc.Emulator(script=[{{'text': {reply!r}}}]))\n"
            "svc.panel('plan')",
        ),
        place=place,
    )
    notebook.wait_idle()
    notebook.run(0)
    notebook.enter(1)
    notebook.page.keyboard.press("Shift+Enter")
    expect(notebook.cells).to_have_count(3)
    panel = notebook.shown(1).locator(".svc-panel")
    panel.get_by_role("textbox", name="Message").fill("How?")
    panel.get_by_role("textbox", name="Message").press("Enter")
    insert = panel.get_by_role("button", name="Insert as cell below")
    for number, code in enumerate(["ran = 1", "%%bash"]):
        panel.locator("pre").nth(number).hover()
        insert.nth(number).click()
        cell = notebook.cells.nth(2 + number)

        expect(notebook.cells).to_have_count(3 + number)
        expect(cell).to_contain_text(code)
        expect(cell).to_contain_class("jp-mod-active")
        expect(cell).to_be_in_viewport()
        expect(cell).to_contain_text("[ ]:")
