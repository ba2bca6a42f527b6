"""Final forms, tool calls, pages and errors: as HTML and as plain text."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.display.reply_display import Final
from svc_notebook.display.sandboxed_frame import page_html
from svc_notebook.display.tool_runs import (
    CHANGED_NOTE,
    tool_runs_html,
    tool_runs_text,
)
from svc_notebook.tools.call import ToolRun


def test_several_choices_are_numbered() -> None:
    """Each choice is told apart in plain text as in HTML."""
    got = Final(texts=("One", "Two")).bundle()

    assert (got["text/plain"], re.findall(r"\d of \d", got["text/html"])) == (
        "[1 of 2]\nOne\n\n[2 of 2]\nTwo",
        ["1 of 2", "2 of 2"],
    )


def test_code_in_a_footer_is_marked_up_in_html_alone() -> None:
    """A pair of backticks in one line is code; it is escaped first, and others stay."""
    footer = "`%svc <i>restore` brings it back · 5` or ``` or `a\nb` stay"
    got = Final(texts=("A",), footer=footer, marks=("a `b`",)).bundle()

    html = got["text/html"]
    assert "%svc &lt;i&gt;restore</code> brings it back" in html
    assert html.count("<code") == 1
    assert "5` or ``` or `a\nb` stay" in html
    assert got["text/plain"].endswith(
        "`%svc <i>restore` brings it back · 5` or ``` or `a b` stay"
    )


def test_reasoning_is_folded_below_the_text() -> None:
    """It is escaped and closed; plain text has its size alone."""
    got = Final(texts=("A", "B"), reasonings=("<b>" * 2000, ""), footer="f").bundle()

    html = got["text/html"]
    assert got["text/plain"].endswith("f · reasoning of 1: 6,000 characters")
    assert "<b>" not in html
    assert html.count("&lt;b&gt;") == 2000
    assert html.count("<details><summary") == 1


def test_html_brings_its_own_styles() -> None:
    """Layout needs no style sheet: every colour has a fallback, nothing is fetched."""
    html = Final(texts=("a", "b"), footer="f", marks=("cut",)).bundle()["text/html"]

    bare = re.findall(r"var\(--[\w-]+\)|url\(|<style|<script", html)
    assert (bare, "display:grid" in html) == ([], True)


def run(**changes: object) -> ToolRun:
    """Return an answered call."""
    fields = {
        "call_id": "c",
        "name": "weather",
        "asked_arguments": '{"city": "Rome"}',
        "result": "rain",
        "seconds_s": 0.25,
        **changes,
    }
    return ToolRun(**fields)  # type: ignore[arg-type]  # its fields


HOSTILE = "<img src=x onerror=alert(1)></pre></details><script>x</script>\x1b[2J$x$"


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ({"city": "Oslo"}, 'changed city from "Rome" to "Oslo"'),
        ({"city": "Rome", "year": 2026}, "added year=2026"),
        ({}, "removed city"),
        ({"year": [1, 2]}, "added year=[1, 2], removed city"),
        ({"city": "x" * 99}, f'changed city from "Rome" to "{"x" * 26}...'),
    ],
)
def test_a_line_says_what_the_user_changed(
    arguments: dict[str, Any], changes: str
) -> None:
    """Arguments that were changed, added or removed, with short values."""
    note = CHANGED_NOTE.format(arguments=arguments)
    changed = run(arguments=arguments, is_approved=True, result=f"{note}snow")

    line = f"→ approved, you {changes} · snow · 0.2"
    assert line in tool_runs_text((changed,))
    assert "arguments that the model asked for" in tool_runs_html((changed,))


def test_an_unchanged_call_shows_its_arguments_once() -> None:
    """Numbers may be written in another way."""
    ran = run(asked_arguments='{"n": 3.0}', arguments={"n": 3}, is_approved=True)

    assert tool_runs_text((ran,)).startswith("weather(n=3) → approved · rain")
    assert tool_runs_html((ran,)).count("<div>arguments") == 1


def test_the_line_of_a_long_call_has_every_argument() -> None:
    """Long values are shortened; dozens of arguments are cut at the end."""
    arguments = {"city": "Rome " * 30, "street": "Via " * 30, "number": 112}
    many = {f"argument{n}": n for n in range(99)}

    line = tool_runs_text((run(arguments=arguments),))
    cut = tool_runs_text((run(arguments=many),))

    assert line.startswith(
        'weather(city="Rome Rome Rome Rome...", street="Via Via Via Via Via...", '
        "number=112) → "
    )
    assert len(cut) < 500
    assert "..." in cut


def test_what_a_tool_printed_is_folded_and_escaped() -> None:
    """It is shortened too, and a progress bar keeps its newest state."""
    printed = f"1 %\r50 %\r100 %\n{HOSTILE}\n" + "x" * 5_000

    shown = tool_runs_html((run(printed=printed),))

    assert "<div>printed</div><pre" in shown
    assert ">100 %\n&lt;img" in shown
    assert "<script" not in shown
    assert "x" * 4_000 not in shown


def test_what_a_model_or_a_tool_wrote_is_inert() -> None:
    """Names, arguments, results and tracebacks are text, whatever is in them."""
    hostile = run(
        name=HOSTILE,
        arguments={HOSTILE: HOSTILE},
        is_approved=True,
        result=HOSTILE,
        error="x",
        traceback=HOSTILE,
    )

    html = tool_runs_html((hostile,))
    plain = tool_runs_text((hostile,))

    assert html.count("</pre>") == 4
    for word in ("<img", "<script", "\x1b", "$x$"):
        assert word not in html
    assert html.count("<details") == html.count("</details>") == 1
    assert "\x1b" not in plain


def test_many_calls_are_behind_one_line() -> None:
    """Seven calls fold away together."""
    assert tool_runs_html(()) == ""
    assert tool_runs_html((run(),) * 6).count("<details") == 6
    assert "7 tool calls" in tool_runs_html((run(),) * 7)
    assert tool_runs_html((run(),) * 7).count("<details") == 8


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


@pytest.mark.slow
@given(st.text() | st.text(alphabet="<>\"'&/=aif"))
def test_no_text_gets_out_of_the_frame(source: str) -> None:
    """Whatever a reply says, the host finds a sandboxed frame and its source."""
    seen = _Seen(page_html(source))

    assert set(seen.tags) <= {"iframe", "details", "summary", "pre", "code", "span"}
    assert seen.tags.count("iframe") == 1
    assert seen.frame["sandbox"] == "allow-same-origin"


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
