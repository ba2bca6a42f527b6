"""The browser side of a rating on a page without Jupyter; a test plays the kernel."""

from typing import Any

from playwright.sync_api import Locator, Page

from svc_notebook.display.markdown import to_html
from tests.browser.panel_page import open_widget
from tests.panels.protocol import of_kind

SCALE = [{"key": str(n), "label": str(n)} for n in range(1, 6)]
SIDES = [
    {"key": "l", "label": "Left"},
    {"key": "t", "label": "Tie"},
    {"key": "r", "label": "Right"},
]
YES_NO = [{"key": "y", "label": "Yes"}, {"key": "n", "label": "No"}]
KEEP = {"key": "k", "label": "Keep note"}


def card(number: int, *texts: str, **more: object) -> dict[str, Any]:
    """Describe a card with one reply, or two."""
    replies = [
        {"html": to_html(text), "spoken": text, "label": ""}
        for text in texts or (f"Reply **{number}**.",)
    ]
    return {
        "id": f"card-{number}",
        "number": number,
        "others": [],
        "prompts": [{"name": "", "html": f"<pre>Explain Row {number}</pre>"}],
        "filled": [{"name": "text", "html": f"<pre>Row {number}</pre>"}],
        "is_open": False,
        "replies": replies,
        "chosen": -1,
        "note": "",
        **more,
    }


def view(shown: dict[str, Any] | None, **more: object) -> dict[str, Any]:
    """Describe a rating; without a card all is rated."""
    return {
        "title": "Rate good",
        "about": "anna · blind",
        "scale": SCALE,
        "has_notes": False,
        "n_done": 0 if shown is None else shown["number"] - 1,
        "n_total": 40,
        "n_skipped": 0,
        "card": shown,
        "summary": "",
        "can": ["undo"],
        "notice": "",
        "is_problem": False,
        "is_fresh": False,
        "main_writes": 0,
        "is_whole": True,
        **more,
    }


class RatingPage:
    """A page with one rating.

    Args:
        page: An empty page.
        shown: What the panel shows at first.
        theme: The notebook's colours, as for `PanelPage`.
        is_heard: Whether the kernel hears the panel while a cell runs.
    """

    def __init__(
        self,
        page: Page,
        shown: dict[str, Any],
        *,
        theme: str = "light",
        is_heard: bool = True,
    ) -> None:
        self.page = page
        open_widget(page, shown, "rating", theme=theme, is_heard=is_heard)
        self.root = page.locator(".svc-rating").first
        self.stage = self.root.locator(".svc-stage")
        self.note = self.root.get_by_role("textbox", name="Note")
        self.said = self.root.get_by_role("status")

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What the panel has sent, without its greetings; its fields are typed."""
        messages: list[dict[str, Any]] = self.page.evaluate("() => sent")
        types = of_kind("Action", "rating")
        assert [set(message) for message in messages] == [
            set(types[message["t"]]) for message in messages
        ]
        return [message for message in messages if message["t"] != "hello"]

    def tell(self, **message: object) -> None:
        """Say something as the kernel does."""
        self.page.evaluate("(message) => tell(message)", message)

    def show(self, shown: dict[str, Any] | None, **more: object) -> None:
        """Show another card as the kernel does, and say that the action was heard."""
        self.page.evaluate("(changed) => show(changed)", view(shown, **more))
        self.tell(t="heard", kind="rate")

    def button(self, name: str) -> Locator:
        """Find a button by what it is called."""
        return self.root.get_by_role("button", name=name, exact=True)
