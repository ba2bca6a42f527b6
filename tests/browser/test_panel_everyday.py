"""What the panel offers every day, in the page: redo, Continue, header, tools."""

from playwright.sync_api import Page, expect

from tests.browser.panel_page import PanelPage, turn, view


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
