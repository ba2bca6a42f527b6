"""A page that is loaded again while its kernel goes on: what is saved then."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook

OPEN = "import svc_notebook as svc\npanel = svc.panel('plan')\npanel"
MANY = "for n in range(2, 13): panel.conversation.ask(f'Question {n}')"
CLEAR = "panel.conversation.reset()"
CELLS = ("print('other')", OPEN, MANY, "panel", CLEAR, "panel.freeze()")
OTHER, PANEL, ASK, COPY, RESET, FREEZE = range(1, 7)
RATE = """\
import svc_notebook as svc
rows = [{"n": n} for n in range(3)]
svc.sweep("Say {{n}}", rows=rows, name="tones").run().rate(scale="1-5")"""
WORDS = "The tide comes in twice a day, and the moon decides how far.\n\n"
IS_DIRTY = "window.jupyterapp.shell.currentWidget.context.model.dirty"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with one answer to all, and one that does not end."""
    endless = {"when": {"contains": "tide"}, "text": [WORDS * 20, "x"], "gap_s": 600}
    answer = {"text": "An **answer**.", "times": None}
    with Emulator(script=[endless, answer], limits=False) as running:
        yield running


def opened(bench: Bench, name: str, place: str, *cells: str) -> Notebook:
    """Open a notebook and run its first cells, up to the one that opens a panel."""
    notebook = bench.open(bench.write(f"{name}-{place}", *cells), place=place)
    notebook.page.on("dialog", lambda dialog: dialog.accept())
    notebook.wait_idle()
    for cell in range(PANEL + 1):
        notebook.run(cell)
    return notebook


def composer(notebook: Notebook, cell: int = PANEL) -> Locator:
    """Find where prompts are written."""
    return notebook.shown(cell).get_by_role("textbox", name="Message")


def ask(notebook: Notebook, text: str) -> None:
    """Ask in the panel, and wait until the transcript has it, too."""
    composer(notebook).fill(text)
    composer(notebook).press("Enter")
    panel = notebook.shown(PANEL).locator(".svc-panel")
    expect(panel.locator(".svc-prompt").last).to_have_text(text)
    expect(panel.locator(".svc-foot").last).to_be_visible()
    expect(static(notebook).filter(has_text=text)).to_have_count(1)


def static(notebook: Notebook, cell: int = PANEL) -> Locator:
    """Find the parts of the transcript."""
    return notebook.shown(cell).locator(".svc-static")


def ask_many(notebook: Notebook) -> None:
    """Ask so much from a cell that the transcript has three parts."""
    notebook.run(ASK)
    expect(static(notebook)).to_have_count(3)
    expect(static(notebook).last).to_contain_text("Question 12")
    notebook.wait_idle()


def reload(notebook: Notebook) -> None:
    """Load the page again, and wait until it has the panel and what it has missed."""
    notebook.page.reload()
    expect(composer(notebook)).to_be_enabled()
    notebook.wait_idle()


def saved(notebook: Notebook) -> dict[str, Any]:
    """Save, and return what the file has."""
    notebook.save()
    content: dict[str, Any] = json.loads(notebook.path.read_text())
    return content


def outputs(content: dict[str, Any], cell: int = PANEL) -> list[dict[str, Any]]:
    """Return the outputs of a cell."""
    found: list[dict[str, Any]] = content["cells"][cell]["outputs"]
    return found


def texts(content: dict[str, Any], cell: int = PANEL) -> list[str]:
    """Return the text of each part of the transcript of a cell."""
    return ["".join(each["data"]["text/plain"]) for each in outputs(content, cell)[1:]]


def is_dirty(notebook: Notebook) -> bool:
    """Whether the page has something to save."""
    found: bool = notebook.page.evaluate(f"() => {IS_DIRTY}")
    return found


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_turn_after_a_reload_is_in_the_file(bench: Bench, place: str) -> None:
    """As is one that nobody saved before it; nothing else of the file changes."""
    notebook = opened(bench, "turn", place, *CELLS)
    ask(notebook, "Question 0")
    before = saved(notebook)
    reload(notebook)
    assert not is_dirty(notebook)

    ask(notebook, "Question 1")
    after = saved(notebook)

    [old], [new] = texts(before), texts(after)
    assert "Question 0" in new
    assert "Question 1" in new
    assert "Question 1" not in old
    for content in (before, after):
        del outputs(content)[1]["data"]
    assert after == before

    ask_many(notebook)
    reload(notebook)  # without what was not saved
    expect(static(notebook)).to_have_count(3)
    first, second, third = texts(saved(notebook))
    assert "Question 4" in first
    assert "Question 9" in second
    assert "Question 12" in third

    notebook.page.close()
    bench.server.end_kernels()
    again = bench.open(notebook.path, place=place)
    expect(static(again).last).to_be_visible()
    expect(static(again).last).to_contain_text("Question 12")


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_panel_ends_in_the_file_after_a_reload(bench: Bench, place: str) -> None:
    """Shown by two cells, cleared, and replaced by its transcript."""
    notebook = opened(bench, "end", place, *CELLS)
    ask(notebook, "Question 1")
    ask_many(notebook)
    notebook.run(COPY)
    expect(static(notebook, COPY)).to_have_count(3)
    notebook.save()
    notebook.run(RESET)
    reload(notebook)  # without what was not saved

    for cell in (PANEL, COPY):
        first, *others = texts(saved(notebook), cell)
        assert "Question" not in first
        assert others == ["", ""]

    ask(notebook, "Question 13")
    notebook.run(FREEZE)
    expect(composer(notebook)).to_have_count(0)
    for cell in (PANEL, COPY):
        content = saved(notebook)
        assert "Question 13" in str(outputs(content, cell)[0]["data"]["text/plain"])
        assert texts(content, cell) == ["", "", ""]


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_reply_that_outlives_a_reload_is_in_the_file(
    bench: Bench, place: str
) -> None:
    """The page that asked for it has gone, so this one has it to save."""
    notebook = opened(bench, "outlives", place, *CELLS)
    ask(notebook, "Question 1")
    notebook.save()
    composer(notebook).fill("When is the tide?")
    composer(notebook).press("Enter")
    panel = notebook.shown(PANEL).locator(".svc-panel")
    expect(panel).to_contain_text("The tide comes")
    reload(notebook)
    assert not is_dirty(notebook)

    panel.get_by_role("button", name="Stop").click()
    expect(static(notebook)).to_contain_text("The tide comes")

    assert is_dirty(notebook)
    assert "The tide comes" in texts(saved(notebook))[0]


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_the_page_that_asks_has_something_to_save(bench: Bench, place: str) -> None:
    """Of two pages of a notebook; the other one has it to show, too."""
    notebook = opened(bench, "twice", place, *CELLS)
    ask(notebook, "Question 1")
    ask_many(notebook)
    before = saved(notebook)
    other = bench.open(notebook.path, place=place)
    expect(composer(other)).to_be_enabled()
    other.wait_idle()
    assert not is_dirty(notebook)
    assert not is_dirty(other)

    ask(notebook, "Question 13")
    expect(static(other).last).to_contain_text("Question 13")
    assert not is_dirty(other)
    after = saved(notebook)
    assert len(texts(before)) == len(texts(after)) == 3
    assert "Question 13" in texts(after)[-1]

    ask(other, "Question 14")
    assert is_dirty(other)


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_rating_after_a_reload_is_in_the_file(bench: Bench, place: str) -> None:
    """As is one that nobody saved before it."""
    notebook = opened(bench, "rated", place, "print('other')", RATE)
    stage = notebook.shown(PANEL).locator(".svc-stage")
    stage.click()
    notebook.save()
    notebook.page.keyboard.press("4")
    expect(static(notebook)).to_contain_text("1 of 3")
    assert is_dirty(notebook)

    notebook.page.reload()  # without what was not saved
    expect(static(notebook)).to_contain_text("1 of 3")
    stage.click()
    notebook.page.keyboard.press("4")
    expect(static(notebook)).to_contain_text("2 of 3")

    assert "2 of 3" in texts(saved(notebook))[-1]
