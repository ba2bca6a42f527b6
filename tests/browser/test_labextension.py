"""The extension of JupyterLab and Notebook 7: colours of prompts, code into cells.

Each front end opens one notebook, of which each test uses cells of its own.
"""

import os
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook, Server

PROMPT = "open is in {{article}}"
PARAGRAPH = "สรุปบทความเรื่องชาเย็นนี้เป็นภาษาไทยให้นักเรียนอ่านเข้าใจง่าย" * 12
CELLS = (
    f"%%svc -o x\n# Do\n{PROMPT} of **all**, {{{{name}}}}",
    "%%svc --raw\n{{article}}",
    "%%svc\n{{df.text[0]}} {{ cfg['city'] }} \\{{no}} {{1 + n}} {{f(x)}} {no} {{{a}}}",
    "a = open",
    "b = open",
    f"%%svc\n{PROMPT}",
    "c = open",
    "d = open",
    "print('shown')",
    "e = open",
    f"%%svc\n{PARAGRAPH}",
    f"a = '{PARAGRAPH}'",
)
RICH, RAW, PARTS, TYPED, PASTED, OTHER, COMMENTED, REPLACED, SHOWN, _, LONG, CODE = (
    range(1, 13)
)
DISPATCH = """(element, source) => {
  const options = { cancelable: true, detail: { source, element } };
  return document.dispatchEvent(new CustomEvent("svc-notebook:insert-below", options));
}"""
MODEL = "window.jupyterapp.shell.currentWidget.content.model"


@pytest.fixture(scope="module")
def notebook(place: str, browser: Browser, lab: Server) -> Iterator[Notebook]:
    """A notebook whose kernel runs; the extension of the kernel is not needed."""
    with Emulator() as emulator:
        bench = Bench(browser, lab, emulator)
        try:
            opened = bench.open(bench.write(f"ext-{place}", *CELLS), place=place)
            opened.wait_idle()
            yield opened
        finally:
            bench.close()


def coloured(notebook: Notebook, cell: int) -> Locator:
    """Find the words of a cell that have a colour, as they follow one another."""
    return notebook.cells.nth(cell).locator(".cm-line span:not(:has(span))")


def marked(notebook: Notebook, cell: int) -> Locator:
    """Find the marks of a cell that a prompt fills in."""
    return notebook.cells.nth(cell).locator(".svc-mark")


def source(notebook: Notebook, cell: int) -> str:
    """Return the text of a cell."""
    text: str = notebook.page.evaluate(
        f"(cell) => {MODEL}.cells.get(cell).sharedModel.getSource()", cell
    )
    return text


def replace_by(notebook: Notebook, cell: int, text: str) -> None:
    """Type a text in place of what a cell holds."""
    notebook.enter(cell)
    notebook.page.keyboard.press("Control+A")
    notebook.page.keyboard.type(text)


def test_a_prompt_has_the_colours_of_markdown(notebook: Notebook) -> None:
    """`open`, `is` and `in` are plain; headings and bold text are not."""
    expect(coloured(notebook, RICH)).to_have_text(
        ["%%svc -o x", "#", " Do", "{{article}}", "**", "all", "**", "{{name}}"]
    )


def test_what_a_prompt_fills_in_is_marked(notebook: Notebook) -> None:
    """Names and parts of them are; what stays as typed is not, nor is it in --raw."""
    expect(marked(notebook, PARTS)).to_have_text(
        ["{{df.text[0]}}", "{{ cfg['city'] }}", "{{a}}"]
    )
    expect(coloured(notebook, RAW).first).to_have_text("%%svc --raw")
    expect(marked(notebook, RAW)).to_have_count(0)


def test_a_mark_does_not_look_like_a_known_variable(
    notebook: Notebook, place: str
) -> None:
    """The page does not know the kernel's names: a mark has the colour of its text."""
    colours = """(mark) => [mark, mark.closest(".cm-line")].map(
      (element) => getComputedStyle(element).color)"""
    mark, line = marked(notebook, RICH).first.evaluate(colours)
    if folder := os.environ.get("LOOKS_FOLDER"):
        notebook.page.screenshot(path=f"{folder}/marks-{place}.png")

    assert mark == line


def test_colours_follow_what_is_typed_and_undone(notebook: Notebook) -> None:
    """A cell becomes a prompt with `%%svc`, and Python again without it."""
    expect(coloured(notebook, TYPED)).to_have_text(["=", "open"])

    replace_by(notebook, TYPED, "%%svc\nopen {{b}} is")
    expect(coloured(notebook, TYPED)).to_have_text(["%%svc", "{{b}}"])

    notebook.page.keyboard.press("Control+Z")
    expect(coloured(notebook, TYPED)).to_have_text(["=", "open"])

    notebook.page.keyboard.press("Control+Shift+Z")
    expect(coloured(notebook, TYPED)).to_have_text(["%%svc", "{{b}}"])

    notebook.page.keyboard.press("Control+Home")
    notebook.page.keyboard.type("x")
    expect(marked(notebook, TYPED)).to_have_count(0)


def test_colours_come_with_a_text_that_is_set(notebook: Notebook) -> None:
    """A cell that a program fills, as `%svc insert` does, is coloured as well."""
    set_source = f"""([cell, text]) =>
      {MODEL}.cells.get(cell).sharedModel.setSource(text)"""

    notebook.page.evaluate(set_source, [PASTED, f"\n%%svc\n{PROMPT}"])
    expect(coloured(notebook, PASTED)).to_have_text(["%%svc", "{{article}}"])

    notebook.page.evaluate(set_source, [PASTED, "b = open"])
    expect(coloured(notebook, PASTED)).to_have_text(["=", "open"])


def is_wider(notebook: Notebook, cell: int) -> bool:
    """Whether a line of a cell is wider than the cell, which then scrolls."""
    scroller = notebook.cells.nth(cell).locator(".cm-scroller")
    wider: bool = scroller.evaluate("box => box.scrollWidth > box.clientWidth + 1")
    return wider


def test_the_lines_of_a_prompt_are_wrapped(notebook: Notebook, place: str) -> None:
    """A paragraph without blanks shows whole; a line of code scrolls, as it did."""
    wrapping = re.compile("cm-lineWrapping")
    content = notebook.cells.locator(".cm-content")
    expect(content.nth(LONG)).to_have_class(wrapping)
    expect(content.nth(CODE)).not_to_have_class(wrapping)
    assert not is_wider(notebook, LONG)
    assert is_wider(notebook, CODE)

    notebook.enter(LONG)
    notebook.page.keyboard.type(" {{a}}")
    assert not is_wider(notebook, LONG)
    expect(marked(notebook, LONG).last).to_be_in_viewport()
    if folder := os.environ.get("LOOKS_FOLDER"):
        notebook.page.screenshot(path=f"{folder}/wrapped-prompt-{place}.png")

    notebook.page.keyboard.press("Control+Home")
    notebook.page.keyboard.type("# ")
    expect(content.nth(LONG)).not_to_have_class(wrapping)
    assert is_wider(notebook, LONG)

    notebook.page.keyboard.press("Backspace")
    notebook.page.keyboard.press("Backspace")
    expect(content.nth(LONG)).to_have_class(wrapping)
    assert not is_wider(notebook, LONG)


def test_cells_of_another_language_are_left_alone(notebook: Notebook) -> None:
    """`%%svc` means something to IPython only; the colours come back with it."""
    expect(marked(notebook, OTHER)).to_have_text(["{{article}}"])
    info = notebook.page.evaluate(f"() => {MODEL}.getMetadata('language_info')")
    assert info["name"] == "python"
    set_language = f"(info) => {MODEL}.setMetadata('language_info', info)"

    notebook.page.evaluate(set_language, {"name": "R", "codemirror_mode": "r"})
    expect(marked(notebook, OTHER)).to_have_count(0)

    notebook.page.evaluate(set_language, info)
    expect(marked(notebook, OTHER)).to_have_text(["{{article}}"])


def test_the_key_for_comments_switches_a_prompt_off(notebook: Notebook) -> None:
    """As in any code cell it puts `#` before each line, and not Markdown's marks."""
    replace_by(notebook, COMMENTED, "%%svc\nopen")
    expect(coloured(notebook, COMMENTED)).to_have_text(["%%svc"])

    notebook.page.keyboard.press("Control+A")
    notebook.page.keyboard.press("Control+/")

    assert source(notebook, COMMENTED) == "# %%svc\n# open"
    expect(coloured(notebook, COMMENTED)).to_have_text(["# %%svc", "# open"])


def test_the_command_replaces_a_text_and_can_be_undone(notebook: Notebook) -> None:
    """`svc-notebook:replace-cell` says true; Ctrl+Z in the cell takes it back."""
    notebook.enter(REPLACED)

    is_done = notebook.page.evaluate(
        """() => window.jupyterapp.commands.execute(
          "svc-notebook:replace-cell", { source: "%%svc\\nNew" })"""
    )

    assert is_done
    assert source(notebook, REPLACED) == "%%svc\nNew"
    notebook.page.keyboard.press("Control+Z")
    assert source(notebook, REPLACED) == "d = open"


def test_an_event_puts_code_below_the_cell_that_shows_the_element(
    notebook: Notebook,
) -> None:
    """The answer cancels the event. The code is not run, and can be undone."""
    notebook.run(SHOWN)
    expect(notebook.shown(SHOWN)).to_contain_text("shown")
    notebook.enter(REPLACED)
    shown = notebook.shown(SHOWN).locator("pre")

    is_unanswered = shown.evaluate(DISPATCH, "1 / 0")

    assert not is_unanswered
    assert source(notebook, SHOWN + 1) == "1 / 0"
    expect(notebook.cells.nth(SHOWN + 1)).to_contain_class("jp-mod-active")
    expect(notebook.cells.nth(SHOWN + 1)).to_contain_text("[ ]:")
    notebook.command("notebook:undo-cell-action")
    expect(notebook.cells).to_have_count(len(CELLS) + 1)


def test_what_one_cell_shows_is_put_below_it_in_order(notebook: Notebook) -> None:
    """Below what it has put there, as long as that stands directly below the cell."""
    shown = notebook.shown(SHOWN).locator("pre")
    below = range(SHOWN + 1, SHOWN + 4)
    for code in ("step = 1", "step = 2"):
        notebook.enter(REPLACED)
        assert not shown.evaluate(DISPATCH, code)
    found = [source(notebook, cell) for cell in below]

    notebook.enter(SHOWN + 1)
    notebook.command("notebook:move-cell-down")
    notebook.command("notebook:move-cell-down")  # below a cell of the user's
    assert not shown.evaluate(DISPATCH, "step = 3")

    assert found == ["step = 1", "step = 2", "e = open"]
    expect(notebook.cells.nth(SHOWN + 2)).to_contain_class("jp-mod-active")
    moved = [source(notebook, cell) for cell in below]
    assert moved == ["step = 2", "step = 3", "e = open"]
    for cell in (SHOWN + 4, SHOWN + 2, SHOWN + 1):
        notebook.enter(cell)
        notebook.command("notebook:delete-cell")
    expect(notebook.cells).to_have_count(len(CELLS) + 1)


def test_an_element_elsewhere_means_the_cell_in_use(notebook: Notebook) -> None:
    """So does the command without an element."""
    notebook.enter(SHOWN)
    assert not notebook.page.locator("body").evaluate(DISPATCH, "f = 1")
    assert source(notebook, SHOWN + 1) == "f = 1"

    is_done = notebook.page.evaluate(
        """() => window.jupyterapp.commands.execute(
          "svc-notebook:insert-below", { source: "g = 1" })"""
    )

    assert is_done
    assert source(notebook, SHOWN + 2) == "g = 1"


def test_an_empty_cell_in_use_takes_the_code(notebook: Notebook) -> None:
    """So that none is left above what a panel in the side area inserts."""
    notebook.enter(SHOWN)
    notebook.page.evaluate(
        "() => window.jupyterapp.commands.execute('notebook:insert-cell-below')"
    )
    n_cells = notebook.cells.count()

    assert not notebook.page.locator("body").evaluate(DISPATCH, "h = 1")

    assert source(notebook, SHOWN + 1) == "h = 1"
    assert notebook.cells.count() == n_cells
    expect(notebook.cells.nth(SHOWN + 1)).to_contain_class("jp-mod-active")


def test_nobody_answers_where_nothing_can_be_inserted(notebook: Notebook) -> None:
    """A notebook that only can be read keeps its cells; the event is not cancelled."""
    page = notebook.page
    n_cells = notebook.cells.count()
    page.evaluate(f"() => {{ {MODEL}.readOnly = true }}")

    try:
        assert page.locator("body").evaluate(DISPATCH, "f = 1")
    finally:
        page.evaluate(f"() => {{ {MODEL}.readOnly = false }}")
    assert page.locator("body").evaluate(DISPATCH, 1)  # not a text
    assert notebook.cells.count() == n_cells


def test_a_notebook_opened_later_has_the_colours(
    notebook: Notebook, place: str, bench: Bench
) -> None:
    """In JupyterLab, where one page opens several; a cell is added to it."""
    if place == "notebook":
        pytest.skip("a page of Notebook 7 shows one notebook")
    bench.write("later", f"%%svc\n{PROMPT}")
    page = notebook.page
    page.evaluate(
        """() => window.jupyterapp.commands.execute(
          "docmanager:open", { path: "later.ipynb" })"""
    )
    later = Notebook(page, notebook.path)
    later.cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")
    expect(marked(later, 1)).to_have_text(["{{article}}"])

    later.enter(1)
    later.command("notebook:insert-cell-below")
    expect(later.cells).to_have_count(3)
    later.enter(2)
    page.keyboard.type("%%svc\nopen {{b}} is")

    expect(coloured(later, 2)).to_have_text(["%%svc", "{{b}}"])
