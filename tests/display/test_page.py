"""HTML of a reply in a frame that it cannot leave."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.display.reply import page_html


class _Seen(HTMLParser):
    """The elements that a host finds, with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.frame: dict[str, str | None] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        if tag == "iframe":
            self.frame = dict(attrs)


@given(st.text() | st.text(alphabet="<>\"'&/=aif"))
def test_no_text_gets_out_of_the_frame(source: str) -> None:
    """Whatever a reply says, the host finds a sandboxed frame and its source."""
    seen = _Seen(page_html(source))

    assert set(seen.tags) <= {"iframe", "details", "summary", "pre", "span"}
    assert seen.tags.count("iframe") == 1
    assert seen.frame["sandbox"] == ""


def test_the_policy_comes_first() -> None:
    """Nothing of the reply stands before the policy that lets nothing be fetched."""
    seen = _Seen(page_html("<html><head></head><img src=https://e.example/x></html>"))

    page = str(seen.frame["srcdoc"])
    assert page.startswith(
        '<!doctype html><meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none';"
    )


@pytest.mark.parametrize("tag", ["link", "META", "base", "iframe", "object"])
def test_hints_to_connect_are_no_elements(tag: str) -> None:
    """What a policy does not hold back has another name; other text stays."""
    page = _Seen(page_html(f"<{tag} href=//e.example><linked>a < b")).frame["srcdoc"]

    assert not re.search(rf"<{tag}[\s/>]", str(page)[100:])
    assert str(page).endswith(f"<x-{tag} href=//e.example><linked>a < b")
