"""What the saved notebooks look like elsewhere: without styles, and as Markdown."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from nbconvert.exporters import HTMLExporter, MarkdownExporter, SlidesExporter

from svc_notebook import errors

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
# Where one of these begins or ends, nothing separates the words on both sides.
_INLINE = {"a", "b", "button", "code", "i", "small", "span", "sub", "sup"}
_GLUED = re.compile(r"\w\0+\w")


class _Text(HTMLParser):
    """The text of HTML, with a NUL where an inline element begins or ends.

    GitHub drops `style` and `class`, and the content of `<style>`. Colours in code and
    the emphasis of Markdown may begin within a word.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self._open += [tag] * (tag in {"pre", "style"})
        self._mark(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._open.remove(tag)
        self._mark(tag)

    def _mark(self, tag: str) -> None:
        if tag not in {"strong", "em", "del", "ins", "s"} and "pre" not in self._open:
            self.text += "\0" if tag in _INLINE else "\n"

    def handle_data(self, data: str) -> None:
        self.text += "" if "style" in self._open else data


def _cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text("utf-8"))["cells"])


def _html(path: Path) -> Iterator[tuple[int, str]]:
    """Give the HTML in the outputs of a notebook, with the number of its cell."""
    for at, cell in enumerate(_cells(path)):
        for output in cell.get("outputs", ()):
            if html := output.get("data", {}).get("text/html"):
                yield at, "".join(html)


def test_the_text_of_glued_badges_is_found() -> None:
    """The test can fail: two badges without a text between them are one word."""
    glued = _Text("<div><span>cut</span><span>emulator</span>svc</div>").text
    apart = _Text("<div><span>cut</span> · <b>ok</b></div><div>next</div>").text

    assert len(_GLUED.findall(glued)) == 2
    assert not _GLUED.search(apart)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_words_are_apart_where_styles_are_dropped(path: Path) -> None:
    """Read without styles, as on GitHub, no word runs into the next one."""
    texts = [(at, _Text(html).text) for at, html in _html(path)]

    glued = {at: _GLUED.findall(text) for at, text in texts if _GLUED.search(text)}

    assert glued == {}


# What GitHub shows of a notebook's HTML; other tags go, and attributes with them.
_SHOWN = frozenset(
    (
        *("a", "b", "blockquote", "br", "code", "del", "details", "div", "em", "h1"),
        *("h2", "h3", "h4", "h5", "h6", "hr", "i", "li", "ol", "p", "pre", "s"),
        *("small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td"),
        *("th", "thead", "tr", "ul"),
    )
)
_DROPPED = re.compile(r"(?is)<(iframe|script|style|svg)\b.*?</\1>")
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)[^>]*>")


def _as_github(html: str) -> str:
    """Leave the tags that GitHub shows, without attributes."""
    return _TAG.sub(
        lambda tag: f"<{tag[1]}{tag[2]}>" if tag[2].lower() in _SHOWN else "",
        _DROPPED.sub("", html),
    )


def _replies(path: Path) -> Iterator[tuple[str, str, str]]:
    """Give source, HTML and plain text of the cells that ask for one reply."""
    for cell in _cells(path):
        source = "".join(cell["source"])
        for output in cell.get("outputs", ()):
            shown = output.get("data", {})
            if source.startswith("%%svc") and "tokens ·" in "".join(
                shown.get("text/plain", "")
            ):
                yield source, "".join(shown["text/html"]), "".join(shown["text/plain"])


def _words(html: str) -> list[str]:
    return _Text(html).text.replace("\0", " ").split()


REPLIES = [
    pytest.param(*reply, id=f"{path.stem}-{at}")
    for path in NOTEBOOKS
    for at, reply in enumerate(_replies(path))
]


@pytest.mark.parametrize(("source", "html", "plain"), REPLIES)
def test_a_saved_reply_reads_well_alone(source: str, html: str, plain: str) -> None:
    """As plain text, and as GitHub shows HTML, it has all words of its own HTML.

    What is folded in HTML has its line alone in the plain text.
    """
    del source
    unfolded = re.sub(r"(?s)</summary>.*?</details>", "</details>", html)

    missing = {word for word in _words(unfolded) if word.strip(",.·") not in plain}
    assert missing <= {"HTML", "source"}
    assert set(_words(html)) <= set(_words(_as_github(html)))


@pytest.mark.parametrize("exporter", [HTMLExporter, SlidesExporter, MarkdownExporter])
def test_exports_have_prompt_settings_and_reply(exporter: Any) -> None:  # noqa: ANN401 - nbconvert has no types
    """The line of options, the prompt and the reply of each cell are in the page."""
    path = next(path for path in NOTEBOOKS if path.stem == "magic")

    page, _ = exporter().from_filename(str(path))

    text = " ".join(page.split())
    if exporter is not MarkdownExporter:
        text = " ".join(_words(page))
    for source, html, _ in _replies(path):
        assert " ".join(source.split()) in text
        assert " ".join(_words(html)) in " ".join(_words(page))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_stay_html_in_a_markdown_page(path: Path) -> None:
    """A blank line would end the HTML; then a fence in it takes the rest of the page.

    Errors have no blank lines either: they would be double-spaced.
    """
    cells = _cells(path)
    tracebacks = [
        output["traceback"]
        for cell in cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "error" and hasattr(errors, output["ename"])
    ]
    headings = [
        line
        for cell in cells
        if cell["cell_type"] == "markdown"
        for line in "".join(cell["source"]).splitlines()
        if re.match("#+ ", line)
    ]

    exporter = MarkdownExporter()  # type: ignore[no-untyped-call]  # as it ships
    page, _ = exporter.from_filename(str(path))
    shown = MarkdownIt().enable("table").parse(page)

    ours = [html for _, html in _html(path) if "dataframe" not in html]
    assert [html for html in ours if re.search(r"\n[ \t]*\n", html)] == []
    assert len([each for each in shown if each.type == "heading_open"]) >= len(headings)
    assert [each for each in tracebacks if len(each) > 1] == []
