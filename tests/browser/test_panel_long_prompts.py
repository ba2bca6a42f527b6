"""Long prompts in the panel: folded, with a line that shows all of one."""

import pytest
from playwright.sync_api import Locator, Page, expect

from svc_notebook.conversations.long_prompt import SHOWN_ROWS, whole_label
from svc_notebook.panels.widget import style
from tests.browser.panel_page import PanelPage, seen_as, turn, view

TABLE = "Which is late?\n\n" + "\n".join(f"{n},Trang,<b>" for n in range(61))
THAI = "ลูกค้าแจ้งว่าสินค้ามาถึงช้าและกล่องบุบ " * 40
HEIGHT = "(prompt) => prompt.getBoundingClientRect().height"


def shown(page: Page, prompt: str, theme: str = "light") -> tuple[PanelPage, Locator]:
    """Show a turn with this prompt below others; return its prompt."""
    asked = turn(4, prompt=prompt, whole=whole_label(prompt))
    panel = PanelPage(page, view([turn(1), turn(2), turn(3), asked]), theme=theme)
    return panel, panel.turns.last.locator(".svc-prompt")


@pytest.mark.parametrize("look", [("light", 400), ("dark", 400), ("light", 1000)])
@pytest.mark.parametrize("prompt", [TABLE, THAI, "x" * 5000])
def test_a_long_prompt_is_folded(
    page: Page, prompt: str, look: tuple[str, int]
) -> None:
    """It is as high as a few lines, whatever it holds; all of it can be copied."""
    with seen_as(page, *look) as theme:
        panel, text = shown(page, prompt, theme)
        assert text.evaluate(HEIGHT) < 200
        assert page.evaluate("() => document.body.scrollWidth <= innerWidth")
        text.evaluate("(text) => getSelection().selectAllChildren(text)")
        assert page.evaluate("() => String(getSelection()).trim()") == prompt.strip()
        line = panel.turns.last.get_by_text(whole_label(prompt))
        expect(line).to_be_visible()
        line.click()
        assert text.evaluate("(text) => text.scrollHeight <= text.clientHeight")
    assert f"{SHOWN_ROWS}lh" in style()


def test_a_prompt_opens_and_closes_by_keys(page: Page) -> None:
    """What opens stays in sight, and so does the line that closes it."""
    panel, text = shown(page, TABLE)
    before = text.bounding_box()
    panel.turns.last.focus()
    page.keyboard.press("ArrowRight")
    line = panel.turns.last.locator("summary")
    expect(line).to_be_focused()
    expect(line).to_have_text("All 63 lines")

    page.keyboard.press("Enter")
    expect(panel.button("Jump to the latest")).to_be_visible()
    assert before
    opened = text.bounding_box()
    assert opened
    assert opened["height"] > 1000
    assert abs(opened["y"] - before["y"]) < 2

    panel.log.evaluate("(log) => { log.scrollTop = log.scrollHeight }")
    page.keyboard.press("Enter")
    expect(line).to_be_in_viewport()
    assert text.evaluate(HEIGHT) < 200


@pytest.mark.parametrize("key", ["", "Enter"])
def test_what_is_unfolded_at_the_end_stays_in_sight(page: Page, key: str) -> None:
    """Long reasoning, and any other part that unfolds, does not move its line away."""
    html = f"<pre>{'A thought.<br>' * 90}</pre>"
    reasoning = {"name": "reasoning", "line": "reasoning: 900 characters"}
    folded = reasoning | {"unanswered": "", "html": html, "is_error": False}
    panel = PanelPage(page, view([turn(1), turn(2), turn(3, tool_runs=[folded])]))
    line = panel.turns.last.get_by_text("reasoning: 900 characters")
    before = line.bounding_box()

    line.press(key) if key else line.click()

    expect(panel.button("Jump to the latest")).to_be_visible()
    assert line.bounding_box() == before


def test_edit_opens_all_of_a_long_prompt(page: Page) -> None:
    """Folded or not; while it is edited, only the editor is there."""
    panel, text = shown(page, TABLE)

    panel.composer.press("ArrowUp")

    edited = panel.root.get_by_role("textbox", name="Edit the prompt")
    expect(edited).to_have_value(TABLE)
    expect(text).to_be_hidden()
    expect(panel.root.get_by_text("All 63 lines")).to_be_hidden()


def test_a_prompt_on_its_way_is_folded(page: Page) -> None:
    """Before the kernel says how long it is; with the reply, the line comes."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.fill(TABLE)
    panel.composer.press("Enter")
    text = panel.turns.last.locator(".svc-prompt")
    expect(text).to_contain_text("Which is late?")
    assert text.evaluate(HEIGHT) < 200
    expect(panel.turns.last.locator("summary")).to_be_hidden()

    panel.begin("A reply.", prompt=TABLE, whole="All 63 lines")

    expect(panel.turns.last.locator("summary")).to_have_text("All 63 lines")
    assert text.evaluate(HEIGHT) < 200
