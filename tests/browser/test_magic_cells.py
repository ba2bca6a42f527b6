"""`%%svc` in JupyterLab and in Notebook 7: stream, stop, Tab, ask again.

Each front end opens one notebook, of which each test runs cells of its own.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook, Server

SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"contains": "stuck"},
        "text": ["**Partial** ", "answer"],
        "cut_after": 2,
        "end": "silent",
    },
    {
        "when": {"contains": "slowly"},
        "text": [f"word{n} " for n in range(30)],
        "gap_s": 0.05,
    },
    {"when": {"contains": "first"}, "text": "One."},
    {"when": {"contains": "first"}, "text": "Uno."},
    {"text": "Later.", "times": None},
]
CELLS = (
    "%%svc\nSpeak slowly",
    "%%svc\nGet stuck",
    "article = 'a text'",
    "",
    "%%svc -c plan\nWhat comes first?",
    "%%svc -c plan\nWhat comes later?",
)
SLOW, STUCK, VARIABLE, EMPTY, FIRST, LATER = range(1, 7)


@pytest.fixture(scope="module")
def emulator(place: str) -> Iterator[Emulator]:
    """An emulator that answers word by word, gets stuck, or says one word."""
    del place  # each has an emulator of its own
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


@pytest.fixture(scope="module")
def notebook(
    place: str, browser: Browser, lab: Server, emulator: Emulator
) -> Iterator[Notebook]:
    """A notebook in which the extension is loaded."""
    bench = Bench(browser, lab, emulator)
    path = bench.write(f"cells-{place}", *CELLS)
    try:
        opened = bench.open(path, place=place)
        opened.wait_idle()
        opened.run(0)
        expect(opened.cells.nth(0)).to_contain_text("[1]:")
        yield opened
    finally:
        bench.close()


def offered(notebook: Notebook, text: str, item: str) -> Locator:
    """Type a text in place of what the empty cell holds, press Tab, wait for an item.

    The menu opens even for one item: the front end adds words of its own, unseen.
    """
    notebook.enter(EMPTY)
    notebook.page.keyboard.press("Control+A")
    notebook.page.keyboard.press("Delete")
    notebook.page.keyboard.type(text)
    notebook.page.keyboard.press("Tab")
    found = notebook.page.locator(f'.jp-Completer-item[data-value="{item}"]')
    expect(found).to_be_visible()
    return found


def test_a_reply_that_comes_slowly_is_there_once(notebook: Notebook) -> None:
    """The final form takes the place of what was shown before."""
    notebook.run(SLOW)

    expect(notebook.shown(SLOW)).to_contain_text("word3")
    expect(notebook.shown(SLOW)).to_contain_text("svc-v2-8b-instruct")

    assert notebook.output(SLOW).count("word29") == 1


def test_text_shows_before_the_end_and_an_interrupt_keeps_it(
    notebook: Notebook, emulator: Emulator
) -> None:
    """While the service is still writing; then its connection is closed."""
    notebook.run(STUCK)
    expect(notebook.shown(STUCK)).to_contain_text("Partial answer")
    assert emulator.requests[-1].ended == "running"

    notebook.command("notebook:interrupt-kernel")
    notebook.wait_idle()

    assert emulator.wait_idle()
    assert emulator.requests[-1].is_cut_by_client
    expect(notebook.shown(STUCK)).to_contain_text("svc.last()")
    assert "interrupted" in notebook.output(STUCK)
    assert "Traceback" not in notebook.output(STUCK)


def test_tab_offers_models_with_what_is_known_of_them(notebook: Notebook) -> None:
    """The menu behind `--model` shows ids, sizes and limits."""
    item = offered(notebook, "%%svc --model svc-v2-", "svc-v2-70b-instruct")

    expect(item).to_contain_text("70B · 5/s 50/min", ignore_case=True)
    item.click()
    editor = notebook.cells.nth(EMPTY).locator(".cm-content")
    expect(editor).to_have_text("%%svc --model svc-v2-70b-instruct")


def test_tab_completes_a_variable_in_the_prompt(notebook: Notebook) -> None:
    """`{{art` and Tab in the body is `{{article}}`, with its two closing braces."""
    notebook.run(VARIABLE)
    expect(notebook.cells.nth(VARIABLE)).to_contain_text(re.compile(r"\[\d+\]:"))

    offered(notebook, "%%svc\nSum up {{art", "article}}").click()

    editor = notebook.cells.nth(EMPTY).locator(".cm-content")
    expect(editor).to_have_text("%%svcSum up {{article}}")


def test_a_cell_run_again_asks_its_own_turn_again(
    notebook: Notebook, emulator: Emulator
) -> None:
    """Its request holds nothing that came after it, and the footer says so."""
    notebook.run(FIRST)
    expect(notebook.shown(FIRST)).to_contain_text("conversation plan")
    notebook.run(LATER)
    expect(notebook.shown(LATER)).to_contain_text("conversation plan")

    notebook.run(FIRST)
    expect(notebook.shown(FIRST)).to_contain_text("Uno.")

    asked = [message["content"] for message in emulator.requests[-1].json["messages"]]
    assert asked == ["What comes first?"]
    footer = notebook.output(FIRST)
    assert "asked again, the earlier answer is kept as a version" in footer
    assert "1 later turn is now stale" in footer
