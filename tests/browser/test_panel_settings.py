"""The panel's settings and editors in the page: what is sent, refused, given back."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.panel_page import PanelPage, turn, view


def test_settings_are_sent_and_drawn_as_the_kernel_has_them(page: Page) -> None:
    """A field shows what the kernel told, also where that is what it was before."""
    panel = PanelPage(page, view())
    panel.root.get_by_text("Settings").click()
    temperature = panel.root.get_by_label("temperature")
    expect(temperature).to_have_attribute("placeholder", "0.7")
    temperature.fill("7")
    temperature.blur()
    panel.tell(t="heard", kind="set")
    expect(temperature).to_have_value("")
    panel.root.get_by_label("max_tokens").fill("service")
    panel.root.get_by_label("max_tokens").blur()
    panel.root.get_by_label("model").select_option("svc-v2-70b-instruct")
    panel.root.get_by_label("model").select_option("another …")
    panel.root.get_by_label("model").fill("svc-v9")
    panel.root.get_by_label("model").blur()

    assert [(each["name"], each["value"]) for each in panel.sent] == [
        ("temperature", 7),
        ("max_tokens", "service"),
        ("model", "svc-v2-70b-instruct"),
        ("model", "svc-v9"),
    ]


def test_enter_takes_a_setting(page: Page) -> None:
    """The field keeps the focus, for another value; leaving it sends nothing more."""
    panel = PanelPage(page, view())
    panel.root.get_by_text("Settings").click()
    temperature = panel.root.get_by_label("temperature")
    temperature.press_sequentially("0.5")
    temperature.press("Enter")
    expect(temperature).to_be_focused()
    temperature.blur()

    assert panel.sent == [{"t": "set", "name": "temperature", "value": 0.5}]


NOT_ALLOWED = "temperature=7 is not allowed"


def refused(page: Page) -> tuple[PanelPage, Locator]:
    """Open a panel that has refused a temperature; return it and the field."""
    panel = PanelPage(page, view())
    panel.root.get_by_text("Settings").click()
    temperature = panel.root.get_by_label("temperature")
    temperature.fill("7")
    temperature.blur()
    refused = {"temperature": {"text": NOT_ALLOWED, "value": 7}}
    panel.show(notice=NOT_ALLOWED, is_problem=True, refused=refused)
    panel.tell(t="heard", kind="set")
    return panel, temperature


def test_a_refused_setting_is_said_at_its_field(page: Page) -> None:
    """There, and not again above; a value that is taken ends it."""
    panel, temperature = refused(page)
    refusal = panel.root.locator(".svc-refusal:visible")
    expect(refusal).to_have_text(NOT_ALLOWED)
    expect(temperature).to_have_attribute("aria-invalid", "true")
    expect(panel.root.locator(".svc-notice")).to_have_count(0)
    expect(panel.said).to_have_text(NOT_ALLOWED)
    panel.root.get_by_text("Settings").click()
    expect(panel.root.locator(".svc-notice.svc-failed")).to_have_count(1)

    panel.root.get_by_text("Settings").click()
    temperature.fill("1")
    temperature.blur()
    panel.show(notice="", is_problem=False, refused={})
    panel.tell(t="heard", kind="set")
    expect(refusal).to_have_count(0)
    expect(temperature).not_to_have_attribute("aria-invalid", "true")


def test_a_setting_of_the_last_turn_that_is_not_used_says_why(page: Page) -> None:
    """At its field; that of the model is in sight. Dismissed, both go."""
    why = {"model": "No model svc-v1.", "temperature": "3 is not allowed."}
    panel = PanelPage(page, view(unusable=why))
    refusals = panel.root.locator(".svc-refusal:visible")
    expect(refusals).to_have_text(["No model svc-v1."])
    panel.root.get_by_text("Settings").click()
    expect(refusals).to_have_text(["No model svc-v1.", "3 is not allowed."])
    temperature = panel.root.get_by_label("temperature")
    expect(temperature).to_have_attribute("aria-invalid", "true")
    panel.button("Dismiss", refusals.last).click()
    panel.show(unusable={})
    expect(refusals).to_have_count(0)

    assert panel.sent == [{"t": "dismiss", "name": "temperature"}]


def test_the_list_of_models_comes_back(page: Page) -> None:
    """After a name was typed, or not, the list shows the kernel's value."""
    panel = PanelPage(page, view())
    panel.root.get_by_text("Settings").click()
    model = panel.root.get_by_label("model")
    model.select_option("another …")
    assert model.evaluate("(field) => field.offsetWidth") > 150
    model.fill("half a na")
    model.press("Escape")
    expect(model).to_have_value("svc-v2-8b-instruct")
    expect(model).to_be_focused()
    model.select_option("another …")
    model.fill("svc-v9")
    model.press("Enter")
    panel.show(settings={"model": "svc-v9", "system": "", "temperature": None})
    panel.tell(t="heard", kind="set")

    expect(model).to_have_value("svc-v9")
    assert model.evaluate("(element) => element.localName") == "select"
    assert not model.evaluate("(list) => list.matches(':open')")
    assert [(each["name"], each["value"]) for each in panel.sent] == [
        ("model", "svc-v9")
    ]


@pytest.mark.parametrize("is_begun", [True, False])
def test_an_edited_prompt_without_an_answer_comes_back(
    page: Page, is_begun: bool
) -> None:
    """Refused at once, or failed later: it is open again as it was edited."""
    panel = PanelPage(page, view([turn(1)]))
    edited = panel.edit_last("Much work")
    expect(edited).to_have_count(0)
    if is_begun:
        panel.begin(turn="turn-1", prompt="Much work")
    panel.tell(t="heard", kind="edit")
    panel.show(state="idle", live=None, notice="It failed", is_problem=True)

    expect(edited).to_have_value("Much work")


def test_an_edited_prompt_that_comes_back_takes_no_focus(page: Page) -> None:
    """Whoever has begun to write something else goes on writing it."""
    panel = PanelPage(page, view([turn(1)]))
    edited = panel.edit_last("Much work")
    expect(panel.composer).to_be_focused()
    panel.composer.fill("Something else")
    panel.tell(t="heard", kind="edit")

    expect(edited).to_have_value("Much work")
    expect(panel.composer).to_be_focused()


def test_an_edit_of_a_turn_that_is_deleted_becomes_the_draft(page: Page) -> None:
    """A cell may delete a turn that the user edits; during a reply nothing is sent."""
    panel = PanelPage(page, view([turn(1), turn(2)]))
    panel.composer.press("ArrowUp")
    edited = panel.root.get_by_role("textbox", name="Edit the prompt")
    edited.fill("Much work")
    panel.show(state="busy", turns=[turn(1, can=[]), turn(2, can=[])], can=["stop"])
    expect(panel.button("Ask again").last).to_have_attribute("aria-disabled", "true")
    edited.press("Enter")
    assert panel.sent == []
    panel.show(state="idle", turns=[turn(1)], can=["send"])

    expect(panel.composer).to_have_value("Much work")
    expect(panel.turns).to_have_count(1)


def test_a_refused_value_stays_until_it_is_changed(page: Page) -> None:
    """Whatever is sent or said meanwhile; the header leads to it, too."""
    panel, temperature = refused(page)
    panel.composer.fill("Question")
    panel.composer.press("Enter")
    panel.show(notice="Nothing was sent.", is_problem=True)
    panel.tell(t="heard", kind="send")

    refusal = panel.root.locator(".svc-refusal:visible")
    expect(panel.composer).to_have_value("Question")
    expect(temperature).to_have_value("7")
    expect(refusal).to_have_text(NOT_ALLOWED)
    expect(panel.root.locator(".svc-notice")).to_have_text("Nothing was sent.")
    panel.root.get_by_text("Settings").click()
    panel.button("temperature refused").click()
    expect(temperature).to_be_focused()
    expect(refusal).to_be_visible()


def test_a_refused_value_can_be_taken_back(page: Page) -> None:
    """By the cross at its field; the field has the value before."""
    panel, temperature = refused(page)
    panel.button("Go back to the value before").click()
    panel.show(notice="", is_problem=False, refused={})
    panel.tell(t="heard", kind="dismiss")

    assert panel.sent[-1] == {"t": "dismiss", "name": "temperature"}
    expect(temperature).to_have_value("")
    expect(panel.root.locator(".svc-refusal:visible")).to_have_count(0)
    expect(temperature).not_to_have_attribute("aria-invalid", "true")
    expect(panel.root.locator(".svc-notice")).to_have_count(0)


def test_a_refused_text_with_a_key_stays_where_it_was_typed(page: Page) -> None:
    """The kernel does not keep it; the rest of the text is not lost."""
    panel = PanelPage(page, view())
    panel.root.get_by_text("Settings").click()
    system = panel.root.get_by_label("system")
    system.fill("Be brief. secret")
    system.blur()
    panel.show(
        notice="It has a key",
        is_problem=True,
        refused={"system": {"text": "It has a key"}},
    )
    panel.tell(t="heard", kind="set")
    expect(system).to_have_value("Be brief. secret")
    panel.button("Go back to the value before").click()
    panel.show(notice="", is_problem=False, refused={})
    panel.tell(t="heard", kind="dismiss")

    expect(system).to_have_value("")


def test_enter_during_a_reply_keeps_the_draft_and_says_so(page: Page) -> None:
    """In the status line, and aloud."""
    panel = PanelPage(page, view())
    panel.begin("Words")
    panel.composer.fill("Next question")
    panel.composer.press("Enter")
    panel.tell(t="delta", choice=0, html="<p>More words</p>", tail="")

    words = "A reply is running: wait, or stop it (Esc). Your draft is kept."
    expect(panel.root.locator(".svc-status")).to_have_text(words)
    expect(panel.said).to_have_text(words)
    expect(panel.composer).to_have_value("Next question")
    assert panel.sent == []
    panel.show(state="idle", live=None, turns=[turn(1)], can=["send"])
    expect(panel.root.locator(".svc-status")).to_have_text("")


def test_enter_in_an_edited_prompt_during_a_reply_says_so_too(page: Page) -> None:
    """It does not name Escape, which would throw the edit away."""
    panel = PanelPage(page, view([turn(1)]))
    panel.button("Edit the prompt and ask again").click()
    edited = panel.root.get_by_role("textbox", name="Edit the prompt")
    edited.fill("Better question")
    panel.begin("Words")
    edited.press("Enter")

    words = "A reply is running: wait, or stop it. Your draft is kept."
    expect(panel.root.locator(".svc-status")).to_have_text(words)
    expect(panel.said).to_have_text(words)
    expect(edited).to_have_value("Better question")
    assert panel.sent == []


def test_the_editor_of_a_long_prompt_opens_in_sight(page: Page) -> None:
    """With its cursor and its buttons, wherever the transcript was scrolled to."""
    long = turn(1, prompt="\n".join(f"Line {n}" for n in range(200)))
    panel = PanelPage(page, view([long, *(turn(n) for n in range(2, 9))]))
    panel.log.evaluate("(log) => { log.scrollTop = 0 }")
    panel.turns.first.hover()
    panel.turns.first.get_by_role("button", name="Edit the prompt and").focus()
    page.keyboard.press("Enter")

    edited = panel.root.get_by_role("textbox", name="Edit the prompt")
    expect(edited).to_be_focused()
    expect(panel.button("Cancel")).to_be_in_viewport(ratio=1)
    expect(edited).to_be_in_viewport(ratio=1)
