"""The panel's browser side, without a kernel: what it draws and what it sends."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from svc_notebook.panels.widget import script, style
from tests.browser.panel_page import (
    RICH,
    PanelPage,
    live,
    turn,
    view,
)

LONG = "\n\n".join(f"Paragraph {n} of a text that is long." for n in range(60))
HOSTILE = """<p onclick="window.ran='click'" style="position:fixed">Before
<script>window.ran='script'</script><img src="/x-img" onerror="window.ran='img'">
<iframe src="/x-frame" srcdoc="<script>parent.ran='frame'</script>"></iframe>
<svg onload="window.ran='svg'"><a href="javascript:window.ran='svg'">s</a></svg>
<math><mtext><img src=x onerror="window.ran='math'"></mtext></math>
<a id=bad href="javascript:window.ran='link'">l</a>
<a id=worse href=" java&#10;script:window.ran='link'">l</a>
<form action="/x-form"><button>b</button><input autofocus></form>
<template><img src=/x-t></template><noscript><img src=/x-n></noscript>
<video src="/x-video"></video><object data="/x-object"></object>
<style>body{background:url(/x-style)}</style><link rel=stylesheet href="/x-link">
<span class="svc-panel jp-Cell lm-Widget k">after</span></p>"""
NONE: dict[str, Any] = {"attached": []}


def test_a_finished_block_is_drawn_once(page: Page) -> None:
    """It is the same element to the end, and what is selected in it stays selected."""
    panel = PanelPage(page, view())
    panel.begin()
    panel.tell(t="delta", choice=0, html="<p>First block.</p>", tail="<p>Sec</p>")
    block = panel.root.locator(".svc-blocks p").first.element_handle()
    page.evaluate("(block) => getSelection().selectAllChildren(block)", block)
    panel.tell(t="delta", choice=0, html="<p>Second.</p>", tail="<p>Third</p>")
    panel.tell(t="ended", text="The reply has ended.")
    panel.show(
        state="idle", live=None, turns=[turn(1, "First block.\n\nSecond.\n\nThird.")]
    )

    expect(panel.turns).to_have_count(1)
    expect(panel.turns.locator("p")).to_have_text(["First block.", "Second.", "Third."])
    assert page.evaluate("(block) => block.isConnected", block)
    assert page.evaluate("() => String(getSelection())") == "First block."
    expect(panel.said).to_have_text("The reply has ended.")


def test_nothing_scrolls_but_for_who_is_at_the_end(page: Page) -> None:
    """The end is followed until one scrolls up; a button leads back to it."""
    panel = PanelPage(page, view())
    panel.begin(LONG)
    bottom = "(log) => log.scrollHeight - log.scrollTop - log.clientHeight"

    panel.tell(t="delta", choice=0, html=f"<p>{'more ' * 400}</p>", tail="")
    assert panel.log.evaluate(bottom) < 2
    panel.scroll_up()
    before = panel.log.evaluate("(log) => log.scrollTop")
    panel.tell(t="delta", choice=0, html=f"<p>{'more ' * 400}</p>", tail="")
    assert panel.log.evaluate("(log) => log.scrollTop") == before

    panel.button("Jump to the latest").click()
    assert panel.log.evaluate(bottom) < 2
    expect(panel.button("Jump to the latest")).to_be_hidden()


def test_the_end_is_left_by_the_focus_too(page: Page) -> None:
    """A screen reader moves it without a key; what opens there stays in sight."""
    panel = PanelPage(page, view([turn(n) for n in range(1, 30)]))
    first = panel.turns.first.get_by_role("button", name="Copy the reply")
    first.focus()
    expect(panel.button("Jump to the latest")).to_be_visible()
    panel.show(turns=[turn(1), *(turn(n) for n in range(2, 31))])

    expect(first).to_be_in_viewport()


def test_the_end_is_followed_whatever_grows(page: Page) -> None:
    """A scroll without wheel, key, touch or drag, as typeset math causes, is ours."""
    panel = PanelPage(page, view())
    panel.begin(LONG)
    at_end = "() => { const log = document.querySelector('.svc-log');"
    at_end += " return log.scrollHeight - log.scrollTop - log.clientHeight < 2 }"

    panel.log.evaluate("(log) => { log.scrollTop -= 300 }")
    block = panel.root.locator(".svc-blocks p").last
    block.evaluate("(block) => { block.style.height = '2000px' }")

    page.wait_for_function(at_end)
    expect(panel.button("Jump to the latest")).to_be_hidden()


def test_hostile_html_is_inert(page: Page) -> None:
    """Whatever were to come as HTML, nothing runs, loads or leaves its place."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    tool_runs = [{"name": "tool", "html": HOSTILE, "is_error": False}]
    hostile = turn(1, tool_runs=tool_runs, choices=[{"html": HOSTILE, "text": HOSTILE}])
    panel = PanelPage(page, view([hostile]))
    asked.clear()
    panel.begin(turn="turn-1", tool_runs=tool_runs)
    panel.tell(t="delta", choice=0, html=HOSTILE, tail=HOSTILE)
    panel.root.locator("summary").first.click()

    inside = panel.root.locator(".svc-blocks")
    assert inside.count() == 3
    for name in ("script", "img", "iframe", "form", "input", "style", "link", "svg a"):
        assert inside.locator(name).count() == 0, name
    assert inside.locator("[onclick], [onerror], [onload], [style], [id]").count() == 0
    assert inside.locator("a[href]").count() == 0
    assert inside.locator(".svc-panel, .jp-Cell, .lm-Widget").count() == 0
    assert page.evaluate("() => window.ran ?? null") is None
    assert [url for url in asked if "/x-" in url] == []


def test_the_sources_load_nothing_and_assign_no_html() -> None:
    """The module has no import, no fetch and no sink of HTML; it is small."""
    js, css = script(), style()

    sinks = r"innerHTML|outerHTML\s*=|insertAdjacent|document\.write|eval\("
    loads = r"fetch\(|XMLHttp|WebSocket|\bimport\b"
    assert re.findall(f"{sinks}|{loads}", js) == []
    assert set(re.findall(r"https?://[\w./]+", js)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xhtml",
    }
    assert re.findall(r"url\(|@import", css) == []
    # It is in every comm_open and in saved widget state.
    assert len(js) < 105_500


def test_keys(page: Page) -> None:
    """Enter sends, Shift+Enter breaks the line, Escape stops; Up edits the last."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.press("ArrowUp")
    edited = panel.root.get_by_role("textbox", name="Edit the prompt")
    expect(edited).to_be_focused()
    edited.fill("Question one")
    edited.press("Enter")
    expect(panel.composer).to_be_focused()
    page.keyboard.type("a")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("b")
    page.keyboard.press("Enter")
    expect(panel.composer).to_have_value("")
    expect(panel.composer).to_be_focused()
    panel.begin()
    page.keyboard.press("Escape")

    assert panel.sent == [
        {"t": "edit", "turn": "turn-1", "text": "Question one", **NONE, "kept": []},
        {"t": "send", "text": "a\nb", **NONE},
        {"t": "stop"},
    ]


def test_enter_can_break_the_line(page: Page) -> None:
    """Switched over, Shift+Enter sends; Control+Enter always does."""
    panel = PanelPage(page, view(send_on_enter=False))
    panel.composer.fill("a")
    panel.composer.press("Enter")
    panel.composer.press("Shift+Enter")
    panel.tell(t="heard", kind="send")
    expect(panel.composer).to_have_value("a\n")
    panel.composer.press("Control+Enter")
    panel.root.get_by_text("Settings").click()
    panel.root.get_by_role("checkbox", name="Enter sends").check()

    assert panel.sent == [
        {"t": "send", "text": "a\n", **NONE},
        {"t": "send", "text": "a\n", **NONE},
        {"t": "enter", "on": True},
    ]


def test_an_input_method_keeps_its_enter(page: Page) -> None:
    """Enter and Escape that belong to a composition neither send nor stop."""
    panel = PanelPage(page, view())
    panel.composer.focus()
    session = page.context.new_cdp_session(page)
    session.send(
        "Input.imeSetComposition",
        {"text": "にほん", "selectionStart": 3, "selectionEnd": 3},
    )
    press = """(area, [key, isComposing, keyCode]) => area.dispatchEvent(
        new KeyboardEvent("keydown", { key, isComposing, keyCode, bubbles: true }))"""
    panel.composer.evaluate(press, ["Enter", True, 13])
    panel.composer.evaluate(press, ["Enter", False, 229])
    panel.composer.evaluate(press, ["Escape", True, 27])
    session.send("Input.insertText", {"text": "日本"})
    expect(panel.composer).to_have_value("日本")
    assert panel.sent == []

    panel.composer.press("Enter")
    assert panel.sent == [{"t": "send", "text": "日本", **NONE}]


def test_a_message_that_was_not_taken_comes_back(page: Page) -> None:
    """It is shown as being sent; refused, it is in the composer again, and told."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.fill("precious")
    panel.button("Send (Enter)").click()
    expect(panel.turns.last).to_contain_text("precious")
    expect(panel.composer).to_have_value("")
    page.keyboard.type("and more")
    panel.tell(t="heard", kind="set")
    expect(panel.turns).to_have_count(2)
    panel.tell(t="problem", text="No key is set.")
    panel.tell(t="heard", kind="send")

    expect(panel.turns).to_have_count(1)
    expect(panel.composer).to_have_value("precious\nand more")
    expect(panel.root.locator(".svc-notice")).to_contain_text("No key is set.")
    expect(panel.said).to_have_text("No key is set.")
    panel.button("Dismiss").click()
    expect(panel.root.locator(".svc-notice")).to_have_count(0)


def test_it_greets_until_it_is_heard(page: Page) -> None:
    """Eight times at most, with a hint; again when the way was lost."""
    page.clock.install()
    panel = PanelPage(page, view(), is_heard=False)
    page.clock.run_for(10_000)
    assert panel.n_greetings == 8
    expect(panel.root).to_contain_text("Stop works after the running cell.")

    heard = PanelPage(page, view())
    page.clock.run_for(10_000)
    assert heard.n_greetings == 1
    expect(heard.root).not_to_contain_text("Stop works after")
    heard.show(main_writes=1)
    assert heard.n_greetings == 2


def test_a_countdown_ticks(page: Page) -> None:
    """A wait shows its seconds; the status that is read out does not repeat them."""
    page.clock.install(time=0)
    panel = PanelPage(page, view())
    panel.begin()
    expect(panel.said).to_have_text("Reply started")
    panel.tell(t="status", text="Waiting for the minute limit", until_ms=20_000)
    status = panel.root.locator(".svc-status")
    before = status.inner_text()
    page.clock.run_for(3000)

    assert before.startswith("Waiting for the minute limit (")
    seconds = [int(text.split()[-2][1:]) for text in (before, status.inner_text())]
    assert seconds[0] - seconds[1] == 3
    expect(panel.said).to_have_text("Reply started")


def test_turns_are_steered(page: Page) -> None:
    """Versions, continue, pin, hide, delete and ask again name their turn."""
    can = ["continue", "regenerate", "delete", "pin", "hide", "choose"]
    steps = {"version": "3\N{EN DASH}4/5", "previous": 1, "next": 5}
    first = turn(1, **steps, can=can, badges=["probably cut"])
    panel = PanelPage(page, view([first, turn(2)]))
    one = panel.turns.first
    expect(one).to_contain_text("3\N{EN DASH}4/5")
    expect(one.locator(".svc-badge")).to_have_text("probably cut")
    expect(panel.button("Edit the prompt and ask again", one)).to_be_hidden()
    one.hover()
    for name in ("Previous version", "Next version", "Continue the reply", "Ask again"):
        panel.button(name, one).click()
    for name in ("Pin", "Hide", "Delete"):
        panel.choose(name, one)

    assert [(each["t"], each["turn"]) for each in panel.sent] == [
        (kind, "turn-1")
        for kind in (
            *("choose", "choose", "continue", "regenerate"),
            *("pin", "hide", "delete"),
        )
    ]
    assert [each["version"] for each in panel.sent[:2]] == [1, 5]


@pytest.mark.parametrize(
    "ended", ["Interrupted", "Cut at max_tokens 20", "Probably cut at max_tokens 20"]
)
def test_how_a_reply_ended_is_said_once(page: Page, ended: str) -> None:
    """Beside the button that continues it; else as a badge."""
    word = ended.partition(" at ")[0].lower()
    can = {"can": ["continue"], "ended": ended}
    panel = PanelPage(page, view([turn(1, badges=[word], **can)]))
    badge = panel.turns.first.locator(".svc-badge")
    line = panel.root.get_by_text(f"{ended}.", exact=True)
    expect(line).to_be_visible()
    expect(badge).to_have_count(0)

    panel.show(turns=[turn(1, badges=[word])])
    expect(line).to_be_hidden()
    expect(badge).to_have_text(word)


def test_the_focus_stays_in_the_panel(page: Page) -> None:
    """Where a focused button goes away, the composer has the focus."""
    panel = PanelPage(page, view([turn(1), turn(2)]))
    panel.button("More", panel.turns.last).focus()
    panel.show(turns=[turn(1)])
    expect(panel.composer).to_be_focused()

    panel.button("Ask again", panel.turns.first).focus()
    panel.begin(turn="turn-1")
    expect(panel.composer).to_be_focused()


NAME = """() => { const at = document.activeElement;
  return at.getAttribute("aria-label") ?? at.localName }"""


def test_the_keyboard_reaches_everything(page: Page) -> None:
    """Tab goes from top to bottom, and past the panel; the transcript is one stop."""
    panel = PanelPage(page, view([turn(1, RICH), turn(2, RICH)]))
    names = []
    for _ in range(40):
        page.keyboard.press("Tab")
        names.append(page.evaluate(NAME))
        if names[-1] == "body":
            break

    assert names == [
        *("Conversations", "Model", "Compare replies side by side"),
        *("Undo the last change", "Redo what was undone"),
        *("Clear the conversation", "Transcript"),
        *("Message", "Send (Enter)", "summary", "body"),
    ]
    panel.composer.focus()
    page.keyboard.press("Shift+Tab")
    expect(panel.log).to_be_focused()
    words = "↑ ↓ turns, ← → buttons, Page Up, End, Esc"
    expect(panel.log).to_have_accessible_description(words)
    expect(panel.composer).to_have_attribute("placeholder", words)
    panel.root.get_by_text("Settings", exact=True).click()
    expect(panel.composer).to_have_attribute("placeholder", "Message")
    expect(panel.root.get_by_label("temperature")).to_be_visible()


def test_arrows_go_through_turns_and_their_buttons(page: Page) -> None:
    """Up and Down change the turn, Left and Right the button; Escape goes back."""
    panel = PanelPage(page, view([turn(1, RICH), turn(2, RICH)]))
    panel.log.focus()
    names = []
    for key in ["ArrowUp", "ArrowUp", *["ArrowRight"] * 9, "ArrowLeft", "ArrowDown"]:
        page.keyboard.press(key)
        names.append(page.evaluate(NAME))

    assert names == [
        *("Turn 2", "Turn 1", "Edit the prompt and ask again"),
        *("a", "Insert as cell below", "Copy code", "button"),
        *("Copy the reply", "Ask again", "More", "More", "Ask again", "Turn 2"),
    ]
    page.keyboard.press("Escape")
    expect(panel.composer).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    edited = panel.root.get_by_role("textbox", name="Edit the prompt")
    expect(edited).to_be_focused()
    page.keyboard.press("Tab")
    expect(panel.button("Ask again", panel.turns.last).first).to_be_focused()


def test_left_and_right_go_from_the_transcript_to_the_newest_turn(page: Page) -> None:
    """To its first control or its last one; of the turns in sight, not of all."""
    panel = PanelPage(page, view([turn(n) for n in range(1, 30)]))
    for scroll, key, name in (
        (False, "ArrowRight", "Edit the prompt and ask again"),
        (False, "ArrowLeft", "More"),
        (True, "ArrowRight", "Edit the prompt and ask again"),
    ):
        if scroll:
            panel.scroll_up()
        panel.composer.focus()
        page.keyboard.press("Shift+Tab")
        expect(panel.log).to_be_focused()
        page.keyboard.press(key)
        assert page.evaluate(NAME) == name
        is_last = panel.turns.last.locator(":focus").count() == 1
        assert is_last != scroll

    panel.show(turns=[])
    panel.log.focus()
    page.keyboard.press("ArrowRight")
    expect(panel.log).to_be_focused()


def test_shift_tab_goes_to_the_replies_wherever_they_are_scrolled(page: Page) -> None:
    """The jump button is no stop between; End in the transcript does the same."""
    panel = PanelPage(page, view([turn(n) for n in range(1, 30)]))
    panel.scroll_up()
    panel.composer.focus()
    page.keyboard.press("Shift+Tab")
    expect(panel.log).to_be_focused()
    expect(panel.button("Jump to the latest")).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(panel.turns.and_(page.locator(":focus"))).to_have_count(1)
    page.keyboard.press("End")

    expect(panel.button("Jump to the latest")).to_be_hidden()
    page.keyboard.press("PageUp")
    expect(panel.button("Jump to the latest")).to_be_visible()


def test_escape_returns_to_the_message_from_every_control(page: Page) -> None:
    """While a reply streams it stops it instead."""
    panel = PanelPage(page, view([turn(1, RICH)]))
    panel.root.get_by_text("Settings", exact=True).click()
    controls = [
        panel.button("Conversations"),
        panel.button("Clear the conversation"),
        panel.root.get_by_text("Settings", exact=True),
        panel.root.get_by_label("temperature"),
        panel.log,
    ]
    for control in controls:
        control.focus()
        page.keyboard.press("Escape")
        expect(panel.composer).to_be_focused()

    assert panel.sent == []
    panel.begin("A reply")
    panel.button("Conversations").focus()
    page.keyboard.press("Escape")
    assert panel.sent == [{"t": "stop"}]


def test_arrows_scroll_a_long_turn_before_they_leave_it(page: Page) -> None:
    """What is out of sight comes first; so it is with a wide table."""
    wide = "| a | b |\n|--|--|\n| " + "1234567890" * 30 + " | x |\n"
    long = "A line.\n\n" * 60
    panel = PanelPage(page, view([turn(1), turn(2, long), turn(3, wide)]))
    panel.log.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(panel.turns.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(panel.turns.nth(1)).to_be_focused()
    is_there = "(turn) => turn === document.activeElement"
    while not panel.turns.last.evaluate(is_there):
        page.keyboard.press("ArrowDown")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    table = panel.turns.last.locator("div:has(> table)").last
    expect(table).to_be_focused()
    table.evaluate("(table) => (table.scrollLeft = table.scrollWidth)")
    page.keyboard.press("ArrowRight")

    expect(panel.button("As DataFrame")).to_be_focused()


def test_the_menu_of_a_turn_has_keys(page: Page) -> None:
    """Arrows go round in it, Enter acts, and the focus is at its button again."""
    panel = PanelPage(page, view([turn(1)]))
    panel.button("More").press("Enter")
    items = panel.root.get_by_role("menu").locator("button")
    page.keyboard.press("End")
    expect(items.last).to_be_focused()
    page.keyboard.press("Home")
    expect(items.first).to_be_focused()
    for key in ("ArrowDown", "ArrowUp", "ArrowUp", "Enter"):
        page.keyboard.press(key)

    expect(panel.button("More")).to_be_focused()
    assert panel.sent == [{"t": "delete", "turn": "turn-1"}]


def test_several_choices_stand_side_by_side(page: Page) -> None:
    """Each can be picked; the one that is picked says so."""
    panel = PanelPage(page, view([turn(1, "One.", "Two.", "Three.", picked=1)]))
    expect(panel.button("Picked")).to_have_count(1)
    panel.button("Pick").last.click()

    assert panel.sent == [{"t": "pick", "turn": "turn-1", "choice": 2}]


def test_consent_is_asked(page: Page) -> None:
    """A card shows what is to be called; arguments can be edited."""
    question = {"id": "q1", "name": "weather", "about": "Says what the weather is."}
    ask = {**question, "arguments": '{"city": "Oslo"}'}
    panel = PanelPage(page, view(state="asking", can=["stop", "decide"], ask=ask))
    card = panel.root.get_by_role("group", name="The model wants to call weather")
    expect(card).to_contain_text("Says what the weather is.")
    expect(card.get_by_role("row", name="city Oslo")).to_be_visible()
    card.get_by_text("Edit the arguments").press("Enter")
    card.get_by_role("textbox", name="Arguments").fill('{"city": "Rome"}')
    panel.button("Approve").click()
    panel.show(ask=ask | {"id": "q2"})
    panel.button("Deny").click()
    panel.show(ask=None)

    expect(card).to_be_hidden()
    decided = {"t": "decide", "id": "q1", "verdict": "approve"}
    assert panel.sent == [
        {**decided, "arguments": '{"city": "Rome"}'},
        {**decided, "id": "q2", "verdict": "deny", "arguments": None},
    ]


def test_enter_goes_from_the_edited_arguments_to_approve(page: Page) -> None:
    """A second Enter approves, one that is held down does not; Shift+Enter breaks."""
    panel = PanelPage(page, view(state="asking", can=["stop", "decide"]))
    ask = {"id": "q1", "name": "pay", "about": "Pays.", "arguments": '{"baht": 500}'}
    panel.show(ask=ask)
    panel.root.get_by_text("Edit the arguments").press("Enter")
    editor = panel.root.get_by_role("textbox", name="Arguments")
    editor.fill("baht=50,")
    editor.press("Shift+Enter")
    editor.press_sequentially("to=7")
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")

    expect(panel.button("Approve")).to_be_focused()
    assert panel.sent == []
    page.keyboard.up("Enter")
    page.keyboard.press("Enter")
    decided = {"t": "decide", "id": "q1", "verdict": "approve"}
    assert panel.sent == [{**decided, "arguments": "baht=50,\nto=7"}]


def test_arguments_that_do_not_fit_stay_in_their_editor(page: Page) -> None:
    """Open, with the reason and the focus; as they are they are sent again."""
    panel = PanelPage(page, view())
    ask = {"id": "q1", "name": "pay", "about": "Pays.", "arguments": '{"baht": 500}'}
    shown = {"state": "asking", "can": ["stop", "decide"]}
    panel.show(**shown, ask={**ask, "problem": "", "typed": ""})
    editor = panel.root.get_by_role("textbox", name="Arguments")
    expect(editor).to_be_hidden()
    panel.root.get_by_text("Edit the arguments").press("Enter")
    editor.fill("baht=50 บาท")
    panel.button("Approve").click()
    panel.show(ask=None)
    problem = "The changed arguments do not fit. baht: input should be an integer."
    again = {**ask, "id": "q2", "problem": problem, "typed": "baht=50 บาท"}
    panel.show(**shown, ask=again)

    expect(editor).to_have_value("baht=50 บาท")
    expect(editor).to_be_focused()
    expect(editor).to_have_accessible_description(problem)
    expect(panel.root.locator(".svc-card .svc-problem")).to_have_text(problem)
    expect(panel.said).to_have_text(problem)
    panel.button("Approve").click()
    decided = {"t": "decide", "verdict": "approve", "arguments": "baht=50 บาท"}
    assert panel.sent == [{**decided, "id": "q1"}, {**decided, "id": "q2"}]


def test_two_views_of_one_panel_agree(page: Page) -> None:
    """Draft, transcript and live reply are the same; each view closes alone."""
    panel = PanelPage(page, view([turn(1)]))
    panel.begin("So far.")
    panel.tell(t="delta", choice=0, html="<p>More.</p>", tail="<p>ta</p>")
    panel.composer.fill("draft")
    page.evaluate("async () => { window.close_second = await open_view() }")
    second = page.locator(".svc-panel").nth(1)
    grown = second.locator(".svc-turn").last.locator("p")
    expect(grown).to_have_text(["So far.", "More.", "ta"])
    expect(second.get_by_role("textbox", name="Message")).to_have_value("draft")
    panel.tell(t="delta", choice=0, html="<p>End.</p>", tail="")
    expect(grown).to_have_text(["So far.", "More.", "End."])

    page.evaluate("() => close_view()")
    panel.tell(t="delta", choice=0, html="<p>Ended.</p>", tail="")
    expect(page.locator(".svc-panel")).to_have_count(1)
    expect(panel.turns.last).to_contain_text("Ended.")


def test_a_reply_under_way_is_drawn_from_the_view(page: Page) -> None:
    """After a reload it is in its place, and keeps growing."""
    panel = PanelPage(page, view(state="busy", can=["stop"], live=live("So far.")))
    panel.tell(t="delta", choice=0, html="<p>More.</p>", tail="<p>ta</p>")

    expect(panel.turns).to_have_count(1)
    expect(panel.turns.locator("p")).to_have_text(["So far.", "More.", "ta"])
    expect(panel.button("Stop (Esc)")).to_be_visible()


def test_text_and_code_are_copied(page: Page) -> None:
    """The message as its Markdown source, code without what surrounds it."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = PanelPage(page, view([turn(1, RICH)]))
    page.evaluate(
        """() => Object.defineProperty(navigator, "clipboard", { value:
            { writeText: async (text) => { window.copied = text } } })"""
    )
    panel.button("Copy the reply").click()
    expect(panel.button("Copied")).to_be_visible()
    assert page.evaluate("() => copied") == RICH
    panel.button("Copy code").click()
    assert page.evaluate("() => copied") == (
        'def f(x: int) -> str:  # says x\n    return "x" * 10\n'
    )


def test_forced_colours_and_reduced_motion(page: Page) -> None:
    """Nothing moves for who asks for it; what is off has another forced colour."""
    page.set_viewport_size({"width": 900, "height": 800})
    page.emulate_media(reduced_motion="reduce", forced_colors="active")
    panel = PanelPage(page, view([turn(1)]))
    colour = "button => getComputedStyle(button).color"
    buttons = [panel.button(name) for name in ("Send (Enter)", "Ask again")]
    off, on = (button.evaluate(colour) for button in buttons)
    panel.begin()
    moving = panel.root.locator(".svc-dots i").first.evaluate(
        "dot => getComputedStyle(dot).animationName"
    )
    page.emulate_media(reduced_motion="no-preference", forced_colors="none")

    assert moving == "none"
    assert off != on
