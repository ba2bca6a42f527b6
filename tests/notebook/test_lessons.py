"""The notebooks as lessons: what a reader finds in each, wherever it is shown.

Their outputs are compared by nbval; here they are read as they were saved.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
MAX_CODE_CHARS = 65  # a phone and a printed page show no more
MAX_COLUMNS = 5
SLIDES = {"slide", "subslide", "fragment", "-", "skip", "notes"}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
MADE_UP = "Emulated reply."

pytestmark = pytest.mark.parametrize("name", LESSONS)


def _cells(name: str, kind: str = "") -> list[dict[str, Any]]:
    cells = json.loads((NOTEBOOKS / name).read_text("utf-8"))["cells"]
    return [cell for cell in cells if kind in ("", cell["cell_type"])]


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def _shown(name: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yield each code cell with one kind of what it shows."""
    for cell in _cells(name, "code"):
        for output in cell["outputs"]:
            if kind in output.get("data", {}):
                yield _source(cell), "".join(output["data"][kind])


def test_begins_with_what_it_needs(name: str) -> None:
    """The first cell has the run time and what it needs, the second the result."""
    first, second = map(_source, _cells(name)[:2])

    assert first.startswith("# ")
    assert re.match(r"!\[[^\]]{20,}\]\(images/", second)
    assert re.search(r"\*\*Run time:\*\* about \d+ seconds", first)
    assert "**Needs:**" in first


def test_ends_with_what_we_see_and_where_to_go(name: str) -> None:
    """There is a conclusion, and the last cell leads on."""
    texts = [_source(cell) for cell in _cells(name, "markdown")]

    assert any(text.startswith("## What we see\n") for text in texts)
    assert texts[-1].startswith("**Next:** [")
    assert "\n**Related:** [" in texts[-1]
    assert _source(_cells(name)[-1]) == texts[-1]


def test_its_links_lead_somewhere(name: str) -> None:
    """Every link is to a file beside it, or to one of its own headings."""
    texts = [_source(cell) for cell in _cells(name, "markdown")]
    headings = re.findall(r"^#+ (.*)$", "\n".join(texts), re.MULTILINE)
    anchors = {"#" + heading.replace(" ", "-") for heading in headings}
    links = [link for text in texts for link in LINK.findall(text)]

    wrong = [
        link
        for link in links
        if link not in anchors and not (NOTEBOOKS / link).is_file()
    ]

    assert wrong == []


def test_its_code_is_narrow(name: str) -> None:
    """No line of code is lost at the edge of a phone or a page."""
    lines = [
        line for cell in _cells(name, "code") for line in _source(cell).splitlines()
    ]

    assert [line for line in lines if len(line) > MAX_CODE_CHARS] == []


def test_its_tables_are_narrow(name: str) -> None:
    """A DataFrame that is shown has at most five columns beside its index."""
    widths = [
        (
            source,
            max(row.count("<th>") + row.count("<td>") for row in ROW.findall(html)),
        )
        for source, html in _shown(name, "text/html")
        if 'class="dataframe"' in html
    ]

    assert [each for each in widths if each[1] > MAX_COLUMNS + 1] == []


def test_each_cell_has_a_slide_type(name: str) -> None:
    """`nbconvert --to slides` begins a slide with each section."""
    cells = _cells(name)

    kinds = [cell["metadata"]["slideshow"]["slide_type"] for cell in cells]

    assert set(kinds) <= SLIDES
    sections = [
        kind
        for cell, kind in zip(cells, kinds, strict=True)
        if _source(cell).startswith(("# ", "## "))
    ]
    assert set(sections) == {"slide"}


def test_its_replies_are_signed(name: str) -> None:
    """Each reply says who wrote it, and the header says it or leads to where it is."""
    replies = [
        shown
        for source, shown in _shown(name, "text/plain")
        if source.startswith(("%%svc", "%svc")) and "[emulator" in shown
    ]
    header = _source(_cells(name)[0])

    assert "written by hand" in header or "](quickstart.ipynb)" in header
    badge = "[emulator: written by hand]"
    assert [each for each in replies if badge not in each] == []
    assert MADE_UP not in (NOTEBOOKS / name).read_text("utf-8")


def test_a_plot_has_a_static_picture(name: str) -> None:
    """A chart is saved with a picture, for what draws no charts."""
    plots = [
        output["data"]
        for cell in _cells(name, "code")
        for output in cell["outputs"]
        if any("vega" in kind for kind in output.get("data", {}))
    ]

    assert all("image/png" in data for data in plots)
