"""What the panel offers every day, in the page: redo, Continue, header, tools."""

from playwright.sync_api import Page, expect

from tests.browser.panel_page import PanelPage, turn, view


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
