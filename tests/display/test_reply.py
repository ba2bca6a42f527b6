import re

import pytest

from svc_notebook.display.reply import Final, bundle, error_box, error_lines


def test_plain_text_is_the_source_and_one_line() -> None:
    """Where HTML is not shown, the Markdown source and the footer are."""
    got = bundle(["**One**"], footer="3 tokens", marks=["cut", "emulator"])

    assert got["text/plain"] == "**One**\n\n[cut] [emulator] 3 tokens"


def test_several_choices_are_numbered() -> None:
    """Each choice is told apart in plain text as in HTML."""
    got = bundle(["One", "Two"])

    assert (got["text/plain"], re.findall(r"\d of \d", got["text/html"])) == (
        "[1 of 2]\nOne\n\n[2 of 2]\nTwo",
        ["1 of 2", "2 of 2"],
    )


def test_html_brings_its_own_styles() -> None:
    """Layout needs no style sheet: every colour has a fallback, nothing is fetched."""
    html = bundle(["a", "b"], footer="f", marks=["cut"])["text/html"]

    bare = re.findall(r"var\(--[\w-]+\)|url\(|<style|<script", html)
    assert (bare, "display:grid" in html) == ([], True)


def test_a_reply_without_footer_is_its_text() -> None:
    """No empty line is drawn where there is nothing to say."""
    assert bundle(["One"]) == {
        "text/html": "<div><p>One</p>\n</div>",
        "text/plain": "One",
    }


def test_no_reply_is_its_footer() -> None:
    """A reply without text still says what happened."""
    got = Final(texts=(), footer="0 tokens", marks=("interrupted",)).bundle()

    assert got["text/plain"] == "[interrupted] 0 tokens"


def test_errors_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expected failure is its title in red and indented lines."""
    monkeypatch.delenv("NO_COLOR", raising=False)

    got = error_lines("Refused", ["Wait 12 s,\nthen ask again."])

    assert got == ["\x1b[1mRefused\x1b[0m", "  Wait 12 s,", "  then ask again."]


def test_errors_have_no_colour_where_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NO_COLOR takes the red away."""
    monkeypatch.setenv("NO_COLOR", "1")

    assert error_lines("Refused", []) == ["Refused"]


def test_errors_show_what_was_said_without_obeying_it() -> None:
    """What a server wrote acts neither in a terminal nor in a page."""
    got = error_box("\x1b[2J", ["<script>"])

    assert (got["text/plain"], "<script>" in got["text/html"]) == (
        "\\x1b[2J\n  <script>",
        False,
    )
