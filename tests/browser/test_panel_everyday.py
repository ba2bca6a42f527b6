"""What the panel offers every day, in the page: redo, Continue, header, tools."""

import os
import re
from contextlib import closing
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from svc_notebook.panels.live_reply import ReplyRenderer
from tests.browser.hosts import VSCODE
from tests.browser.panel_page import (
    RICH,
    UNTIDY,
    PanelPage,
    axe_findings,
    field,
    live,
    seen_as,
    turn,
    view,
)
from tests.browser.test_panel_attach import NOTE, TABLE, attach
from tests.browser.test_panel_compare import STATES as COMPARED
from tests.browser.test_panel_conversations import BUSY, LISTED

LINE = 'cups_sold(city="Phuket", year=2026) → 216 · 0.1 s'
CALL = {
    "name": "cups_sold",
    "line": LINE,
    "html": "<p>arguments</p><pre>{}</pre>",
    "is_error": False,
}
DENIED = CALL | {
    "line": 'pay(to="Nok") → denied · Error: the user denied this call',
    "is_error": True,
}
CUT = turn(2, can=["continue", "edit"], ended="Cut at 150 tokens (max_tokens)")
PINNED = turn(1, is_pinned=True)
ASK = {
    "id": "q",
    "name": "cups_sold",
    "about": "Count the cups of tea sold in a city.",
    "arguments": '{"city": "Phuket", "years": [2025, 2026], "note": "ชาไทย"}',
}
STATES: dict[str, dict[str, Any]] = {
    "empty": {},
    "streaming": {
        "state": "busy",
        "can": ["stop", "set"],
        "turns": [turn(1, RICH)],
        "live": live("First words of a reply."),
    },
    "cut": {
        "state": "idle",
        "can": ["send", "undo"],
        "live": None,
        "turns": [turn(1), CUT],
    },
    "tools": {"turns": [turn(1, tool_runs=[CALL, DENIED]), CUT]},
    "consent": {"state": "asking", "can": ["stop", "decide"], "ask": ASK},
    "menu": {"state": "idle", "can": ["send"], "ask": None, "turns": [PINNED]},
    "settings": {"state": "idle", "can": ["send"], "turns": [turn(1)]},
    "attach": {"turns": [turn(1, attached=[TABLE, NOTE])]},
    "list": {"notice": BUSY, "is_problem": True},
    "long names": {
        "settings": {"model": f"org/{'a-long-model-name-' * 4}"},
        "label": "A label of a conversation that is longer than its panel " * 3,
        "turns": [
            turn(1, model=f"org/{'a-long-model-name-' * 4}", version="1/2", next=2)
        ],
    },
    **{
        f"compare {name}": {"state": "idle", "can": ["send"], "live": None, **changed}
        for name, changed in COMPARED.items()
    },
    "all at once": COMPARED["streaming"] | {"state": "asking", "ask": ASK},
}


def test_a_cut_reply_offers_to_go_on_in_words(page: Page) -> None:
    """It says which limit cut it; while a reply is written, the button waits."""
    ended, can = "Cut at 150 tokens (max_tokens)", ["continue", "edit"]
    panel = PanelPage(page, view([turn(1), turn(2, can=can, ended=ended)]))
    rest = panel.turns.last.locator(".svc-rest")
    expect(rest).to_have_text(f"{ended}.Continue")
    expect(panel.turns.first.locator(".svc-rest")).to_be_hidden()
    panel.button("Continue the reply").press("Enter")
    panel.begin("Answer", turn="turn-2", prompt=None)
    expect(rest).to_be_hidden()

    assert panel.sent == [{"t": "continue", "turn": "turn-2"}]


def test_undo_and_redo_by_button_and_by_key(page: Page) -> None:
    """The keys are for the conversation where no text has the focus."""
    panel = PanelPage(page, view([turn(1)]))
    panel.button("Undo the last change").click()
    panel.button("Redo what was undone").click()
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+Shift+Z")
    panel.composer.focus()
    page.keyboard.type("a")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+Shift+Z")
    expect(panel.composer).to_have_value("a")
    page.keyboard.press("Backspace")
    page.keyboard.press("Meta+Shift+Z")
    panel.show(can=["send", "undo"])
    expect(panel.button("Redo what was undone")).to_be_disabled()
    panel.button("Redo what was undone").focus()
    page.keyboard.press("Control+Shift+Z")

    kinds = [each["t"] for each in panel.sent]
    assert kinds == ["undo", "redo", "undo", "redo", "redo"]


def test_undo_of_a_change_of_the_conversation_is_said(page: Page) -> None:
    """For a moment, to a screen reader too; undo in a draft says nothing."""
    page.clock.install()
    panel = PanelPage(page, view([turn(1)]))
    status = panel.root.locator(".svc-status")
    panel.composer.press_sequentially("word")
    panel.composer.press("Control+z")
    panel.composer.press("Control+z")
    panel.show(turns=[])
    words = "Undone: turn 1 added (<b>Question</b>). Redo brings it back."
    panel.tell(t="stepped", text=words)

    assert panel.sent == [{"t": "undo"}]
    expect(status).to_have_text(words)
    expect(panel.said).to_have_text(words)
    panel.begin()
    expect(status).to_have_text("Replying … Esc stops it")
    panel.show(state="idle", live=None, can=["send"], turns=[])
    page.clock.run_for(10_000)
    expect(status).to_have_text("")


def test_undo_in_a_text_takes_a_word_back_and_stops_at_its_beginning(
    page: Page,
) -> None:
    """A text that came from elsewhere is its beginning; the conversation stays."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.press_sequentially("two words")
    panel.composer.press("Control+z")
    expect(panel.composer).to_have_value("two")
    panel.composer.press("Control+z")
    expect(panel.composer).to_have_value("")
    panel.composer.press("Control+y")
    panel.composer.press("Control+y")
    expect(panel.composer).to_have_value("two words")
    panel.composer.press("Control+a")
    panel.composer.press("Delete")
    panel.composer.press("Control+z")
    expect(panel.composer).to_have_value("two words")
    panel.composer.press("Enter")
    panel.tell(t="heard", kind="send")  # it is refused, and comes back
    panel.composer.press("Control+z")

    expect(panel.composer).to_have_value("two words")
    assert [message["t"] for message in panel.sent] == ["send"]


def test_undo_in_the_empty_box_takes_one_change_for_each_press(page: Page) -> None:
    """A key that is held undoes no more; keys of a Thai keyboard do it, too."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.focus()
    page.keyboard.down("Control")
    for _ in range(3):
        page.keyboard.down("z")
    page.keyboard.up("Control")
    panel.composer.dispatch_event(
        "keydown", {"key": "ผ", "code": "KeyZ", "ctrlKey": True}
    )

    assert [message["t"] for message in panel.sent] == ["undo", "undo"]


def test_undo_in_a_setting_is_sent_when_the_field_is_left(page: Page) -> None:
    """The browser itself says nothing of a text that a script has changed."""
    panel = PanelPage(page, view([turn(1)]))
    panel.root.get_by_text("Settings", exact=True).click()
    field = panel.root.get_by_label("temperature", exact=True)
    field.press_sequentially("1")
    field.press("Enter")
    field.press("Control+z")
    expect(field).to_have_value("")
    field.press("Tab")

    values = [message["value"] for message in panel.sent]
    assert values == [1, None]


FIELDS = [
    field("model", "choice", options=["a", "b"], default="a"),
    field("system", "longtext", default="", label="system prompt"),
    field("temperature", minimum=0, maximum=2, step=0.1, default="0.7"),
    field("repetition_penalty", minimum=1, maximum=2, step=0.01, default="1"),
    field("max_tokens", "integer", options=["fit", "service"], default="fit"),
    field("stop", "longtext", default=""),
]
CHANGED = {
    "model": "a",
    "system": "Be brief.",
    "temperature": 1.9,
    "repetition_penalty": None,
    "max_tokens": "fit",
    "stop": "END",
}


def test_the_header_has_model_meter_and_changed_settings(page: Page) -> None:
    """The model is a list there; chips lead to their fields, folded or not."""
    text = "about 1,490 of 8,192 tokens"
    meter = {"used_tokens": 1490, "budget_tokens": 8192, "text": text}
    shown = view([turn(1)], fields=FIELDS, settings=CHANGED, meter=meter)
    panel = PanelPage(page, shown)
    top = panel.root.locator(".svc-top")
    top.get_by_label("Model").select_option("b")
    expect(top.get_by_text("~1.5k of 8.2k")).to_have_attribute("title", text)
    chips = panel.root.get_by_role("group", name="Changed settings")
    expect(chips.get_by_role("button")).to_have_text(
        ["system prompt", "temperature 1.9", "stop"]
    )
    panel.button("stop").press("Enter")
    expect(panel.root.get_by_role("textbox", name="stop")).to_be_focused()
    panel.show(settings={"model": "b", "temperature": 0.7, "max_tokens": "fit"})
    expect(chips).to_be_hidden()

    assert panel.sent == [{"t": "set", "name": "model", "value": "b"}]


def test_the_meter_has_the_draft(browser: Browser) -> None:
    """It is measured in a pause, not at each key, and once; an empty one at once."""
    with browser.new_page() as page:
        page.clock.install()
        shown = view([turn(1)])
        panel = PanelPage(page, shown)
        words = panel.root.locator(".svc-budget")
        page.clock.pause_at("2030-01-01")
        panel.composer.press_sequentially("a draft of 24 characters", delay=0)
        assert panel.drafts == []
        page.clock.run_for(2000)
        (sent,) = panel.drafts
        assert (sent["text"], sent["n_attached"]) == ("a draft of 24 characters", 0)
        text = "about 900 of 8,192 tokens (estimated): conversation 512, message 388"
        meter = {"used_tokens": 900, "budget_tokens": 8192, "text": text}
        panel.tell(t="meter", id="of another page", meter=meter)
        expect(words).to_have_text("~512 of 8.2k")
        panel.tell(t="meter", id=sent["id"], meter=meter)
        panel.tell(t="heard", kind="draft")
        expect(words).to_have_text("~900 of 8.2k")
        expect(words).to_have_attribute("title", text)
        page.clock.run_for(2000)
        assert panel.drafts == [sent]
        panel.show(meter=shown["meter"] | {"used_tokens": 600})
        page.clock.run_for(2000)
        assert panel.drafts == [sent, sent]

        panel.composer.fill("")
        expect(words).to_have_text("~600 of 8.2k")
        page.clock.run_for(2000)
        assert panel.drafts == [sent, sent]


def test_settings_begin_with_the_system_prompt(page: Page) -> None:
    """Rare ones are folded; a range has a slider; help comes when it is asked for."""
    panel = PanelPage(page, view(fields=FIELDS, settings=CHANGED))
    panel.root.get_by_text("Settings", exact=True).click()
    labels = panel.root.locator(".svc-field label:visible")
    expect(labels).to_have_text(["system prompt", "temperature", "max_tokens"])
    slider = panel.root.locator("input[type=range]").first
    expect(slider).to_have_value("1.9")
    slider.fill("0.5")
    expect(panel.root.get_by_label("temperature")).to_have_value("0.5")
    help_text = panel.root.get_by_text("what it does")
    expect(help_text.first).to_be_hidden()
    panel.button("Explain").press("Enter")
    expect(help_text.locator("visible=true")).to_have_count(3)
    panel.root.get_by_text("Rarely needed").press("Enter")
    expect(labels).to_have_count(5)

    assert panel.sent == [{"t": "set", "name": "temperature", "value": 0.5}]


def test_an_empty_panel_teaches_itself(page: Page) -> None:
    """It names keys, model, system prompt and cell; an example fills the draft."""
    panel = PanelPage(page, view(fields=FIELDS, settings=CHANGED))
    for words in ("Enter sends", "Be brief.", "%%svc -c plan"):
        expect(panel.log).to_contain_text(words)
    examples = panel.log.get_by_role("group", name="Examples").get_by_role("button")
    expect(examples).to_have_count(3)
    examples.first.press("Enter")
    expect(panel.composer).to_be_focused()
    expect(panel.composer).to_have_value(examples.first.inner_text())
    assert panel.sent == []
    panel.composer.press("Enter")
    expect(examples.first).to_be_hidden()


@pytest.mark.parametrize(
    ("browsers", "pages"), [("th-TH", "en"), ("en-US", "th-TH"), ("en-US", "en")]
)
def test_the_examples_are_thai_where_the_browser_or_the_page_is(
    browser: Browser, browsers: str, pages: str
) -> None:
    """The page's language is JupyterLab's; there are as many examples."""
    with closing(browser.new_page(locale=browsers)) as page:
        page.set_viewport_size({"width": 420, "height": 800})
        panel = PanelPage(page, view())
        page.evaluate("(code) => { document.documentElement.lang = code }", pages)
        panel.show(settings={"model": "svc-v2-70b-instruct"})
        expect(panel.log).to_contain_text("svc-v2-70b-instruct")
        group = panel.log.get_by_role("group", name="Examples")

        first = "อธิบาย" if "th-TH" in {browsers, pages} else "Explain"
        expect(group.get_by_role("button")).to_have_count(3)
        expect(group.get_by_role("button").first).to_contain_text(first)
        assert page.evaluate(UNTIDY) == []
        if folder := os.environ.get("LOOKS_FOLDER"):
            page.screenshot(path=f"{folder}/examples-{browsers}-{pages}.png")


def test_a_tool_call_is_one_line_that_unfolds(page: Page) -> None:
    """What is open stays open while the next call runs."""
    panel = PanelPage(page, view([turn(1)]))
    panel.begin(tool_runs=[CALL])
    line = panel.turns.last.get_by_text(LINE)
    body = panel.turns.last.get_by_text("arguments").first
    expect(body).to_be_hidden()
    line.press("Enter")
    expect(body).to_be_visible()
    panel.tell(t="live", live=live(tool_runs=[CALL, DENIED]))

    expect(panel.turns.last.locator(".svc-call")).to_have_count(2)
    expect(body).to_be_visible()


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 320),
        ("light", 1400),
        ("dark", 700),
        ("dark-high-contrast", 700),
        ("forced", 700),
        ("none", 700),
        ("none-dark", 700),
        *((theme, 700) for theme in (*VSCODE, "Colab dark")),
    ],
)
def test_axe_finds_nothing_in_any_state(page: Page, theme: str, width: int) -> None:
    """Nothing overlaps, overflows or is cut off, and what has the focus shows it."""
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    with seen_as(page, theme, width) as shown:
        panel = PanelPage(page, view(fields=FIELDS, settings=CHANGED), theme=shown)
        for name, changed in STATES.items():
            panel.show(**changed)
            _open(panel, name)
            if folder := os.environ.get("LOOKS_FOLDER"):
                path = f"{folder}/{name}-{theme}-{width}.png"
                page.screenshot(path=path, full_page=True)
            assert axe_findings(page, axe) == [], name
            assert page.evaluate(UNTIDY) == [], name
            widest = "() => document.documentElement.scrollWidth - innerWidth"
            assert page.evaluate(widest) <= 0, name
            if name in {"menu", "list"}:
                assert _visible_focus(page), name
            if name in {"menu", "attach"}:
                page.keyboard.press("Escape")


def test_more_contrast_is_granted(page: Page) -> None:
    """Where a reader asks for more contrast, no text or line is paler than the text."""
    page.emulate_media(contrast="more")
    panel = PanelPage(page, view([turn(1)]))
    colours = panel.root.evaluate(
        "(root) => ['.svc-who', '.svc-prompt'].map((part) =>"
        " getComputedStyle(root.querySelector(part)).color)"
    )
    page.emulate_media(contrast="no-preference")

    assert colours[0] == colours[1]


POINTS = "".join(
    f"{n}. Point {n}: {'some long words, ' * 12}and more.\n"
    f"   - below it {'a few words ' * 9}\n     - and `below` that\n"
    f"   - next to it, {'more words ' * 40}\n"
    for n in range(1, 10)
)
N_CHARS = 300  # of each piece


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_while_a_nested_list_grows(page: Page, theme: str) -> None:
    """Lists that are drawn in parts have items only, and keep their levels."""
    page.set_viewport_size({"width": 700, "height": 900})
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    panel, renderer = PanelPage(page, view(), theme=theme), ReplyRenderer()
    panel.begin()
    for at in range(0, len(POINTS), N_CHARS):
        renderer.feed(0, POINTS[at : at + N_CHARS])
        for message in renderer.take(0.0, is_last=True):
            panel.tell(**message)
        if folder := os.environ.get("LOOKS_FOLDER"):
            page.screenshot(path=f"{folder}/list-grows-{theme}-{at // N_CHARS:02}.png")
        assert axe_findings(page, axe) == [], at
        n_points = len(re.findall(r"(?m)^ *(?:-|\d\.) \S", POINTS[: at + N_CHARS]))
        expect(panel.log.locator("li:not(.svc-unmarked)")).to_have_count(n_points)


def _open(panel: PanelPage, name: str) -> None:
    """Do what a state begins with."""
    if name == "settings":
        panel.root.get_by_text("Settings", exact=True).click()
        panel.root.get_by_text("Rarely needed").click()
        panel.button("Explain").click()
    if name == "menu":
        panel.button("More").press("Enter")
        panel.page.keyboard.press("ArrowDown")
    if name == "attach":
        panel.root.get_by_text("Settings", exact=True).click()
        attach(panel)
    if name == "list":
        panel.button("Conversations").press("Enter")
        panel.tell(t="found", search="", rows=LISTED, n_more=12)
        panel.page.keyboard.press("ArrowDown")
    if name == "long names":
        panel.page.keyboard.press("Escape")


def _visible_focus(page: Page) -> bool:
    """Return whether what has the focus is marked by more than its colour."""
    style = "getComputedStyle(document.activeElement)"
    width: str = page.evaluate(f"() => {style}.outlineWidth")
    return width == "2px"


def test_a_template_mark_is_said_to_be_sent_as_typed(page: Page) -> None:
    """Quietly, once, and it is sent; @ is how a variable goes along."""
    words = "{{sales}} is sent as typed. To attach a variable, type @."
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.press_sequentially("What is {{sales}}?")
    expect(panel.root.locator(".svc-under")).to_contain_text(words)
    expect(panel.said).to_have_text(words)
    panel.composer.press("Enter")
    expect(panel.root.locator(".svc-under")).not_to_contain_text("as typed")

    assert [message["text"] for message in panel.sent] == ["What is {{sales}}?"]


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("{{ยอดขาย}} คืออะไร", True),
        ("{{df.text[0]}} and {{df['a']}}", True),
        ("Escaped: \\{{sales}}", False),
        ("What does `{{sales}}` do?", False),
        ("Explain:\n```jinja\n{{sales}}\n", False),
        ("Explain:\n    {{sales}}", False),
        ('What prints f"{{sales}}"?', False),
        ("{% if x %}{{sales}}{% endif %}", False),
        ("<b>{{sales}}</b>", False),
        ("$\\frac{{1}}{2}$ and {{ sales }} and {{}}", False),
    ],
)
def test_double_braces_of_code_are_not_a_mark(
    page: Page, text: str, is_said: bool
) -> None:
    """Only what a cell would fill is said, and not in code, f-strings or pages."""
    panel = PanelPage(page, view())
    panel.composer.fill(text)
    under = panel.root.locator(".svc-under")

    if is_said:
        expect(under).to_contain_text("is sent as typed")
    else:
        expect(under).not_to_contain_text("is sent as typed")
