"""The panel's list of conversations: keys, looks, and the files that it saves."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench
from tests.browser.panel_page import RICH, PanelPage, turn, view

HOSTILE = "<img src=x onerror=alert(1)>"
PROMPT = "ไปภูเก็ตวันไหนดี ถ้าอยากเลี่ยงฝน และควรพักย่านไหน " * 2
MODELS = ["svc-v2-8b-instruct", "svc-v2-70b-instruct"]
BUSY = "A reply is being written; stop it, or wait until it ends."
CELL = """\
import svc_notebook as svc
svc.conversation("sea").ask("Is it blue?")
svc.panel("plan")"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with a slow answer, and another one to all else."""
    words = [f"word{n} " for n in range(60)]
    script: list[dict[str, Any]] = [
        {"when": {"contains": "slow"}, "text": words, "gap_s": 0.1, "times": None},
        {"text": "An **answer**.", "times": None},
    ]
    with Emulator(script=script, limits=False) as running:
        yield running


def listed(
    name: str,
    prompt: str = "A question",
    n_turns: int = 1,
    *,
    is_elsewhere: bool = False,
) -> dict[str, Any]:
    """Describe a conversation of the ledger; `is_elsewhere` in another panel."""
    return {
        "is_elsewhere": is_elsewhere,
        "name": name,
        "n_turns": n_turns,
        "models": MODELS[:n_turns],
        "asked_at": "2026-11-22T09:05:00+00:00",
        "prompt": prompt,
    }


LISTED = [listed("plan"), listed("ทริป-" * 40, PROMPT, 2), listed("שלום", "שלום")]
LISTED += [listed(f"chat-{n}", PROMPT) for n in range(2, 20)]


def test_sending_closes_the_list(page: Page) -> None:
    """The message is in sight, and the cursor stays where it is written."""
    panel = PanelPage(page, view([turn(1)]))
    panel.button("Conversations").click()
    panel.composer.fill("Question")
    panel.composer.press("Enter")

    expect(panel.root.get_by_role("dialog")).to_be_hidden()
    expect(panel.root.get_by_text("Question", exact=True)).to_be_in_viewport()
    expect(panel.composer).to_be_focused()


def test_a_conversation_is_deleted_only_after_a_question(page: Page) -> None:
    """It says how much would go; Cancel has the focus, Escape does the same."""
    panel = PanelPage(page, view([turn(1)]))
    panel.button("Conversations").click()
    rows = [listed("plan"), listed("sea", n_turns=2)]
    panel.tell(t="found", search="", rows=rows, n_more=0)
    items = panel.root.get_by_role("listitem")
    for way in ("Escape", "Enter"):
        items.nth(1).locator(".svc-row").press("Delete")
        question = items.nth(1).get_by_role("alertdialog")
        expect(question).to_contain_text("Delete sea (2 turns) for good?")
        expect(panel.button("Cancel")).to_be_focused()
        page.keyboard.press(way)
        expect(items.nth(1).locator(".svc-row")).to_be_focused()
    panel.button("Delete the conversation sea").click()
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/delete.png")
    panel.button("Delete").click()

    sent = [message for message in panel.sent if message["t"] != "find"]
    assert sent == [{"t": "remove", "name": "sea"}]


def test_the_list_says_what_another_panel_has_open(page: Page) -> None:
    """Also in the question before that conversation is deleted."""
    panel = PanelPage(page, view([turn(1)]))
    panel.button("Conversations").click()
    rows = [listed("plan", is_elsewhere=True), listed("sea", is_elsewhere=True)]
    panel.tell(t="found", search="", rows=[*rows, listed("sky")], n_more=0)
    items = panel.root.get_by_role("listitem")
    words = "open in another panel"
    expect(items.filter(has_text=words)).to_have_count(2)
    expect(items.filter(has_text="sky")).not_to_contain_text(words)
    panel.button("Delete the conversation sea").click()

    expect(items.nth(1).get_by_role("alertdialog")).to_contain_text(
        "Delete sea (1 turn) for good? Another panel of this notebook has it open."
    )
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/elsewhere.png")


def test_the_list_is_used_by_keys(page: Page) -> None:
    """Arrows go through it, Enter opens, Escape goes back to where one was."""
    panel = PanelPage(page, view([turn(n, RICH) for n in range(1, 9)]))
    panel.scroll_up()
    before = panel.log.evaluate("(log) => log.scrollTop")
    panel.button("Conversations").press("Enter")
    search = panel.root.get_by_role("searchbox")
    expect(search).to_be_focused()
    expect(panel.log).to_be_hidden()
    rows = [listed(HOSTILE, HOSTILE), listed("plan"), listed("sea", n_turns=2)]
    panel.tell(t="found", search="", rows=rows, n_more=9997)
    items = panel.root.locator("li > .svc-row")
    expect(items.first).to_contain_text(HOSTILE)
    expect(items.nth(1)).to_have_attribute("aria-current", "true")
    expect(panel.root).to_contain_text("The newest 3 of 10,000 conversations")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    expect(items.nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel.button("Conversations")).to_be_focused()
    assert panel.log.evaluate("(log) => log.scrollTop") == before
    page.keyboard.press("Enter")
    page.keyboard.type("s")
    search.press("End")
    page.wait_for_function("() => sent.some((each) => each.text === 's')")
    panel.tell(t="found", search="", rows=[], n_more=0)  # late: of the last search
    expect(items).to_have_count(3)
    panel.tell(t="found", search="s", rows=rows[2:], n_more=0)
    expect(items).to_have_count(1)
    items.first.press("Enter")
    panel.show(notice=BUSY, is_problem=True)
    panel.tell(t="heard", kind="open")
    expect(items.first).to_be_focused()
    items.first.press("Enter")
    panel.show(name="sea", turns=[turn(1)], notice="", is_problem=False)
    panel.tell(t="heard", kind="open")
    expect(panel.composer).to_be_focused()
    expect(panel.log).to_be_visible()
    expect(panel.turns).to_have_count(1)

    assert [each["t"] for each in panel.sent if each["t"] != "find"] == ["open"] * 2
    assert [each["text"] for each in panel.sent if each["t"] == "find"] == ["", "", "s"]


def test_a_search_marks_what_it_found(page: Page) -> None:
    """In names and passages; next to the search it says if it found nothing."""
    panel = PanelPage(page, view([turn(1)]))
    panel.button("Conversations").click()
    search = panel.root.get_by_role("searchbox")
    search.fill("sea")
    rows = [listed("Seaside"), listed("plan", "İ by the SEA (sea*), <b>sea</b>")]
    panel.tell(t="found", search="sea", rows=rows, n_more=0)
    items = panel.root.get_by_role("listitem")
    expect(items.first.locator("mark")).to_have_text(["Sea"])
    expect(items.last.locator("mark")).to_have_text(["SEA", "sea", "sea"])
    expect(items.last).to_contain_text("İ by the SEA (sea*), <b>sea</b>")
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/marked.png")
    search.fill("zzz")
    panel.tell(t="found", search="zzz", rows=[], n_more=0)
    words = panel.root.get_by_text("No conversation has “zzz”.")
    field, line = search.bounding_box(), words.bounding_box()

    assert field
    assert line
    assert 0 < line["y"] - field["y"] < 100


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_conversations_of_the_ledger(bench: Bench, place: str) -> None:
    """Found, opened, renamed and saved as a file, with a kernel behind the panel."""
    notebook = bench.open(bench.write(f"list-{place}", CELL), place=place)
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0)).to_contain_text("[1]:")
    notebook.run(1)
    panel = notebook.shown(1).locator(".svc-panel")
    panel.get_by_role("button", name="Conversations").click()
    panel.get_by_role("searchbox").fill("BLUE")
    panel.get_by_role("listitem").get_by_text("Is it blue?").click()
    expect(panel.get_by_text("Conversation sea")).to_be_visible()
    expect(panel.locator(".svc-prompt")).to_have_text("Is it blue?")
    panel.get_by_role("button", name="Conversations").click()
    name = panel.get_by_role("textbox", name="Name of this conversation")
    name.fill("ทะเล")
    name.press("Enter")
    expect(panel.get_by_text("Conversation ทะเล")).to_be_visible()
    expect(panel.get_by_role("listitem").first).to_contain_text("ทะเล")
    with notebook.page.expect_download() as markdown:
        panel.get_by_role("button", name="Export Markdown").click()
    with notebook.page.expect_download() as json:
        panel.get_by_role("button", name="Export JSON").press("Enter")
    if folder := os.environ.get("LOOKS_FOLDER"):
        notebook.page.screenshot(path=f"{folder}/conversations-{place}.png")
    panel.get_by_role("button", name="Delete the conversation ทะเล").click()
    panel.get_by_role("button", name="Delete", exact=True).click()
    expect(panel.get_by_role("listitem").filter(has_text="ทะเล")).to_have_count(0)
    expect(panel.locator(".svc-turn")).to_have_count(0)
    panel.get_by_role("textbox", name="Message").fill("Out of sight?")
    panel.get_by_role("textbox", name="Message").press("Enter")
    expect(panel.locator(".svc-prompt")).to_have_text("Out of sight?")
    expect(panel.locator(".svc-prompt")).to_be_in_viewport()

    assert markdown.value.suggested_filename == "ทะเล.md"
    assert json.value.suggested_filename == "ทะเล.json"
    assert "An **answer**." in Path(markdown.value.path()).read_text("utf-8")
    expect(notebook.shown(1).locator(".svc-static")).to_contain_text("Out of sight?")


FILL = """\
plan = svc.conversation('plan')
for n in range(200):
    plan.ask(f'Question {n}', model='svc-instruct')
print('fil' + 'led')"""


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_long_conversation_is_cheap(
    bench: Bench, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """After 200 turns a short one costs less than 60 kB, and a pin less than 5."""
    sizes: list[int] = []
    page = bench.page()
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))),
    )
    path = bench.write(
        f"long-{place}", f"import svc_notebook as svc\n{FILL}", LONG_CELL
    )
    notebook = bench.open(path, page, place=place)
    notebook.run_all()
    panel = notebook.shown(2).locator(".svc-panel")
    expect(panel.locator(".svc-turn")).to_have_count(200)
    notebook.wait_idle()
    page.evaluate(WATCH)

    def cost(act: Callable[[], object], ended: Locator) -> int:
        sizes.clear()
        act()
        expect(ended).to_be_visible()
        notebook.wait_idle()
        return sum(sizes)

    panel.get_by_role("textbox", name="Message").fill("One more")
    last = panel.locator(".svc-turn").nth(200)
    turn_bytes = cost(lambda: page.keyboard.press("Enter"), last.locator(".svc-foot"))
    toggles = []
    for is_pinned in (True, False, True):  # the least: a late message may come between
        last.get_by_role("button", name="More").click()
        badge = last.locator(".svc-foot").filter(has_text="pinned", visible=True)
        unpinned = last.locator(".svc-foot").filter(has_not_text="pinned", visible=True)
        pin = page.get_by_role("menuitemcheckbox", name="Pin")
        toggles.append(cost(pin.click, badge if is_pinned else unpinned))
    pin_bytes = min(toggles)
    longest_ms = page.evaluate("() => Math.max(0, ...long_ms)")

    with capsys.disabled():
        print(f"\n{place}: turn {turn_bytes}, pin {pin_bytes} bytes, {longest_ms} ms")  # noqa: T201 - figures
    assert turn_bytes < 60_000
    assert pin_bytes < 5_000


LONG_CELL = "svc.panel('plan', model='svc-instruct')"
WATCH = """() => { window.long_ms = []; new PerformanceObserver((list) =>
    list.getEntries().forEach((entry) => long_ms.push(entry.duration))
).observe({ type: "longtask" }) }"""


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_renamed_panel_outlives_a_reload(bench: Bench, place: str) -> None:
    """Shown by two cells, run again, saved, and reloaded while it replies."""
    open_it = "import svc_notebook as svc\nsvc.panel('plan')"
    path = bench.write(f"renamed-{place}", open_it, "p1 = svc.panel('plan')\np1")
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0)).to_contain_text("[1]:")
    notebook.run(1)
    first = notebook.shown(1).locator(".svc-panel")
    first.get_by_role("button", name="Conversations").click()
    first.get_by_role("textbox", name="Name of this conversation").fill("my trip")
    first.get_by_role("button", name="Rename").click()
    expect(first.get_by_text("Conversation my trip")).to_be_visible()
    notebook.run(2)
    second = notebook.shown(2).locator(".svc-panel")
    expect(second.get_by_text("Conversation my trip")).to_be_visible()
    notebook.run(1)
    expect(notebook.cells.nth(1)).to_contain_text("[4]:")
    notebook.save()
    first.get_by_role("textbox", name="Message").fill("slow")
    first.get_by_role("textbox", name="Message").press("Enter")
    expect(first.locator(".svc-answer")).to_contain_text("word3")
    notebook.page.on("dialog", lambda dialog: dialog.accept())
    notebook.page.reload()

    for panel in (first, second):
        expect(panel.locator(".svc-answer")).to_contain_text("word59")
        expect(panel.locator(".svc-foot")).to_be_visible()
    expect(notebook.page.get_by_text("model not found")).to_have_count(0)


SHARED = """\
import os, svc_notebook as svc
os.environ['SVC_LEDGER'] = os.path.abspath('two-{place}.sqlite')
svc.panel('sales')"""
ELSEWHERE = "%%svc -c sales\nAnd in the north?"


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_turns_of_another_notebook_are_added_by_one_click(
    bench: Bench, place: str
) -> None:
    """While one types, the panel says what another kernel has asked meanwhile."""
    opened = SHARED.format(place=place)
    here = bench.open(bench.write(f"here-{place}", opened), place=place)
    here.wait_idle()
    here.run(0)
    here.run(1)
    panel = here.shown(1).locator(".svc-panel")
    message = panel.get_by_role("textbox", name="Message")
    message.fill("How were sales?")
    message.press("Enter")
    expect(panel.locator(".svc-foot").last).to_be_visible()
    there = bench.open(
        bench.write(f"there-{place}", opened, ELSEWHERE, ELSEWHERE), place=place
    )
    there.wait_idle()
    for cell in range(4):
        there.run(cell)
    expect(there.shown(3)).to_contain_text("conversation sales")
    here.page.bring_to_front()
    message.fill("And in the south?")
    note = panel.locator(".svc-notice")
    expect(note).to_contain_text("Another session has asked 2 turns of sales")
    if folder := os.environ.get("LOOKS_FOLDER"):
        here.page.screenshot(path=f"{folder}/newer-{place}.png")
    panel.get_by_role("button", name="Add here").click()
    expect(panel.locator(".svc-prompt")).to_have_count(3)
    expect(note).to_have_count(0)
    expect(message).to_have_value("And in the south?")
    message.press("Enter")
    expect(panel.locator(".svc-prompt")).to_have_count(4)
    expect(panel.locator(".svc-foot")).to_have_count(4)
    expect(panel.get_by_text("stale")).to_have_count(0)
    if folder := os.environ.get("LOOKS_FOLDER"):
        here.page.screenshot(path=f"{folder}/newer-taken-{place}.png")
        there.page.screenshot(path=f"{folder}/newer-there-{place}.png")
