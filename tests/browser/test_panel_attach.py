"""Attaching values of the notebook to a message: the list at `@`, chips, turns."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench
from tests.browser.panel_page import PanelPage, live, turn, view

START = "sales = pd.read_csv('<b>sales.csv</b>') sales = sales[sal..."
OFFERS = [
    {"name": "Err", "kind": "the last error, ZeroDivisionError", "size": ""},
    {"name": "df", "kind": "DataFrame", "size": "12,000 rows x 14 columns"},
    {"name": "Offer", "kind": "<b>bold</b>", "size": ""},
    {"name": "notes_on_the_interviews_in_march", "kind": "text", "size": "~310 tokens"},
    {"name": "In[3]", "kind": "cell", "size": "~20 tokens", "start": START},
    {"name": "ราคา", "kind": "list", "size": "3 items"},
]
KIND = "DataFrame 12,000 rows x 14 columns, cut to the first 61 rows"
TABLE = {
    "name": "df",
    "kind": KIND,
    "n_tokens": 1490,
    "html": "<pre>,city,n\n0,Trang,&lt;b&gt;3</pre>",
}
NOTE = {"name": "note", "kind": "text", "n_tokens": 12, "html": "<pre>A note.</pre>"}
CODE = (
    "import time, pandas as pd\nimport svc_notebook as svc\n"
    "df = pd.DataFrame({'city': ['Trang', 'Krabi'], 'n': [3, 4]})\nsvc.panel('plan')"
)


def names(panel: PanelPage) -> None:
    """Offer names as the kernel does."""
    panel.tell(t="names", text="", offers=OFFERS, is_all=True)


def listed(panel: PanelPage) -> Locator:
    """Find what the list offers."""
    return panel.root.locator(".svc-names [role=option]")


def test_the_list_at_an_at_sign(page: Page) -> None:
    """It is asked for once; keys choose; an address and what is left stay text."""
    panel = PanelPage(page, view())
    panel.composer.press_sequentially("Mail me@example.org: (@")
    names(panel)
    expect(listed(panel)).to_have_count(6)
    expect(panel.said).to_have_text("6 names to attach")
    cell = listed(panel).filter(has_text="In[3]")
    expect(cell).to_have_text(f"In[3]{START}cell · ~20 tokens")
    line = listed(panel).nth(1).bounding_box()
    box = cell.bounding_box()
    assert line
    assert box
    assert box["height"] == line["height"]  # cut, in one line
    page.keyboard.type("f")
    expect(listed(panel)).to_have_text(
        ["dfDataFrame · 12,000 rows x 14 columns", "Offer<b>bold</b>"]
    )
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(listed(panel).first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    page.keyboard.type("ine")
    expect(listed(panel)).to_have_count(0)
    page.keyboard.type(") @")
    names(panel)
    page.keyboard.type("d")
    page.keyboard.press("Enter")
    expect(panel.composer).to_have_value("Mail me@example.org: (@fine) df")
    page.keyboard.type("? of ราคา@")
    names(panel)
    page.keyboard.press("Tab")
    expect(panel.composer).to_be_focused()
    panel.tell(t="size", name="df", kind=KIND, n_tokens=1490, problem="")
    chips = panel.root.locator(".svc-item")
    expect(chips).to_have_text(
        [f"df {KIND} · ~1,490 tokens", f"Err {OFFERS[0]['kind']}"]
    )
    panel.button("Remove Err").click()
    page.keyboard.press("Enter")
    expect(chips).to_have_count(0)

    text = "Mail me@example.org: (@fine) df? of ราคาErr"
    assert panel.sent == [
        {"t": "names", "text": ""},
        {"t": "names", "text": ""},
        {"t": "size", "name": "df"},
        {"t": "names", "text": ""},
        {"t": "size", "name": "Err"},
        {"t": "send", "text": text, "attached": ["df"]},
    ]


def test_a_name_typed_in_full_is_the_one_chosen(page: Page) -> None:
    """It comes first, then names that begin with it, newest first, then others."""
    panel = PanelPage(page, view())
    found = [
        {"name": name, "kind": "int", "size": ""}
        for name in ("big_run", "X2", "x1", "max", "X", "x", "big")
    ]
    panel.composer.press_sequentially("@")
    panel.tell(t="names", text="", offers=found, is_all=True)

    page.keyboard.type("x")
    expect(listed(panel).locator("b")).to_have_text(["x", "X", "X2", "x1", "max"])
    page.keyboard.press("Backspace")
    page.keyboard.type("big")
    page.keyboard.press("Enter")

    expect(panel.composer).to_have_value("big")
    expect(panel.root.locator(".svc-item")).to_have_text(["big int"])


@pytest.mark.parametrize(
    ("typed", "text"), [("in", "df in"), (", in", "df, in"), (" in", "df in")]
)
def test_a_word_behind_a_chosen_name_is_kept_apart(
    page: Page, typed: str, text: str
) -> None:
    """A comma follows the name at once, and one typed blank stays one."""
    panel = PanelPage(page, view())
    panel.composer.press_sequentially("@d")
    names(panel)
    page.keyboard.press("Enter")
    page.keyboard.type(typed)

    expect(panel.composer).to_have_value(text)


def test_nothing_that_was_chosen_is_lost(page: Page) -> None:
    """Refused or failed, the chips come back; an edit keeps what it is not told."""
    panel = PanelPage(page, view([turn(1, attached=[TABLE, NOTE])]))
    chips = panel.root.locator(".svc-item")
    panel.composer.press_sequentially("Why @")
    names(panel)
    page.keyboard.type("d")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(chips).to_have_count(0)
    panel.tell(t="problem", text="df cannot be attached.")
    panel.tell(t="heard", kind="send")
    expect(panel.composer).to_have_value("Why df")
    expect(chips).to_have_text(["df DataFrame"])
    panel.button("Remove df").click()
    panel.show(state="busy", live=live(attached=[TABLE]))
    expect(panel.turns.last.locator("summary")).to_contain_text("df")
    panel.show(state="idle", live=None, can=["send"], notice="No connection.")
    expect(chips).to_have_text([f"df {KIND} · ~1,490 tokens"])
    panel.button("Remove df").click()

    first = panel.turns.first
    first.locator("summary").first.click()
    expect(first.locator("details").first).to_contain_text("Trang,<b>3")
    panel.button("Edit the prompt and ask again", first).click()
    panel.button("Remove df", first).click()
    page.keyboard.press("Enter")
    panel.tell(t="heard", kind="edit")
    expect(chips).to_have_text(["note text · ~12 tokens"])
    panel.button("Cancel", first).click()
    expect(first.locator("summary")).to_have_count(2)

    edit = {"t": "edit", "turn": "turn-1", "text": "Question 1"}
    [sent] = [each for each in panel.sent if each["t"] == "edit"]
    assert sent == {**edit, "attached": [], "kept": ["note"]}


def test_an_edited_prompt_shows_what_its_values_are_now(page: Page) -> None:
    """A cell stays as it was; other values, and the same one, are attached at `@`."""
    cell = {"name": "In[3]", "kind": "cell", "n_tokens": 20, "html": ""}
    panel = PanelPage(page, view([turn(1, attached=[TABLE, NOTE, cell])]))
    panel.button("Edit the prompt and ask again", panel.turns.first).click()
    small = "DataFrame 5 rows x 14 columns"
    panel.tell(t="size", name="df", kind=small, n_tokens=90, problem="")
    panel.tell(t="size", name="note", kind="", n_tokens=0, problem="It has gone.")
    panel.tell(t="size", name="In[3]", kind="text", n_tokens=1, problem="")
    chips = panel.turns.first.locator(".svc-item")
    now = f"df {small} now, {KIND} before · ~90 tokens"
    expect(chips).to_have_text(
        [now, "note text · ~12 tokens", "In[3] cell · ~20 tokens"]
    )
    page.keyboard.type(" @")
    names(panel)
    page.keyboard.type("รา")
    expect(listed(panel)).to_have_text(["ราคาlist · 3 items"])
    page.keyboard.press("Enter")
    page.keyboard.type(" @")
    names(panel)
    page.keyboard.type("df")
    expect(listed(panel)).to_have_count(1)
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")

    sizes = [each["name"] for each in panel.sent if each["t"] == "size"]
    assert sizes == ["df", "note", "ราคา", "df"]
    edit = {"t": "edit", "turn": "turn-1", "text": "Question 1 ราคา df"}
    assert panel.sent[-1] == {
        **edit,
        "attached": ["ราคา", "df"],
        "kept": ["note", "In[3]"],
    }


def test_the_list_is_not_wider_than_the_panel(page: Page) -> None:
    """In a narrow side area it covers nothing that is beside it."""
    page.set_viewport_size({"width": 1200, "height": 800})
    panel = PanelPage(page, view())
    page.locator("main").evaluate(
        "(main) => { main.style.width = '390px'; main.style.marginLeft = '700px' }"
    )
    panel.composer.press_sequentially("@")
    names(panel)
    expect(listed(panel)).to_have_count(6)
    boxes = [
        each.bounding_box() for each in (panel.root, panel.root.locator(".svc-names"))
    ]

    outer, inner = [(box["x"], box["x"] + box["width"]) for box in boxes if box]
    assert outer[0] <= inner[0] < inner[1] <= outer[1]


def attach(panel: PanelPage) -> None:
    """Attach several values, one of which is gone, and ask for more."""
    for name in ("df", "notes_on_the_interviews_in_march", "In[3]", "gone"):
        panel.composer.press_sequentially(" @")
        offer = {"name": name, "kind": "text", "size": ""}
        panel.tell(t="names", text="", offers=[offer], is_all=True)
        listed(panel).click()
    panel.tell(t="size", name="df", kind=KIND, n_tokens=1490, problem="")
    said = "gone cannot be attached: this notebook no longer has this variable."
    panel.tell(t="size", name="gone", kind="", n_tokens=0, problem=said)
    panel.composer.press_sequentially(" @")
    names(panel)
    expect(listed(panel)).to_have_count(3)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that knows one answer."""
    script: list[dict[str, Any]] = [{"text": "Krabi.", "times": None}]
    with Emulator(script=script, limits=False) as running:
        yield running


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_table_is_attached_while_a_cell_runs(bench: Bench, place: str) -> None:
    """By keys alone; the next day's transcript has it folded."""
    busy = "for _ in range(20_000):\n    time.sleep(0.05)"
    path = bench.write(f"attach-{place}", CODE, busy, "print('after')")
    notebook = bench.open(path, place=place)
    notebook.run_all()
    panel = notebook.shown(1).locator(".svc-panel")
    composer = panel.get_by_role("textbox", name="Message")
    expect(composer).to_be_visible()
    composer.press_sequentially("Which is larger in @d")
    expect(panel.locator(".svc-names [role=option]")).to_have_text(
        ["dfDataFrame · 2 rows x 2 columns"]
    )
    composer.press("Tab")
    expect(panel.locator(".svc-item")).to_contain_text("~27 tokens")
    if folder := os.environ.get("LOOKS_FOLDER"):
        notebook.page.screenshot(path=f"{folder}/attach-{place}.png")
    composer.press("Enter")
    expect(panel.locator(".svc-turn")).to_contain_text("Krabi.")
    expect(panel.locator(".svc-turn summary")).to_contain_text("df")
    notebook.command("notebook:interrupt-kernel")
    notebook.wait_idle()
    expect(notebook.shown(1).locator(".svc-static")).to_contain_text("27 tokens)")
    notebook.save()

    [sent] = bench.emulator.requests[-1].json["messages"]
    assert sent["content"].startswith("Which is larger in df\n\ndf:\n```\nDataFrame df")
    assert "27 tokens)</summary>" in notebook.path.read_text()
