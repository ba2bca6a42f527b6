"""`%%svc -f code` and `-f html` in JupyterLab; a reply that is saved or asks."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from svc_notebook.display.html_styles import card_html, grid_html
from svc_notebook.display.markdown import to_html
from svc_notebook.display.reply_footer import UNFINISHED
from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench

PAGE = """\
<html><head><meta http-equiv="refresh" content="0;url=ADDRESS/x-refresh">
<link rel="stylesheet" href="ADDRESS/x-style">
<link rel="preconnect" href="ADDRESS/x-preconnect">
<style>h1 { color: rgb(1, 2, 3); background: url(ADDRESS/x-css) }</style>
<script>parent.ran = "script"; top.ran = "script"</script></head>
<body onload="top.ran='onload'"><h1>A page</h1>
<img src="ADDRESS/x-img" onerror="top.ran='onerror'">
<iframe src="ADDRESS/x-frame"></iframe>
<form action="ADDRESS/x-form"><button>Send</button></form>
<a href="javascript:top.ran='link'">link</a>
<svg><a id="own" href="/api"><text y="20">own</text></a></svg></body></html>
"""
TOOL = '''
import svc_notebook as svc

@svc.tool(confirm=True)
def pay(n: int) -> str:
    """Pay."""
    print("paid", n)
    return "done"
'''
N_CALLS = 5
SUM = " + ".join(f"a_{{{n}}}" for n in range(40))
# the words of an element that are drawn on more than one line
BROKEN_WORDS = """(element) => {
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const broken = [];
  while (texts.nextNode()) {
    const text = texts.currentNode;
    for (const word of text.data.matchAll(/\\w+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const tops = [...range.getClientRects()].map((line) => Math.round(line.top));
      if (new Set(tops).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


class Listener:
    """Counts who connects to it, and answers nobody."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._socket.settimeout(0)

    @property
    def is_asked(self) -> bool:
        """Whether anybody has connected."""
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Listen no longer."""
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """The place to which the page would like to tell something."""
    opened = Listener()
    yield opened
    opened.close()


@pytest.fixture
def emulator(listener: Listener) -> Iterator[Emulator]:
    """An emulator that writes code, or a page that attacks."""
    page = PAGE.replace("ADDRESS", listener.address)
    script: list[dict[str, Any]] = [
        {
            "when": {"contains": "A notebook cell fails"},
            "text": "Divide by four:\n\n```python\nratio = 1 / 4\n```\n",
        },
        {
            "when": {"contains": "invoice"},
            "tool_calls": [{"id": "c", "name": "Invoice", "arguments": {"total": 7}}],
        },
        {
            "when": {"contains": "code"},
            "text": "Sure:\n\n```python\nprint('from' + ' the cell')\n```\n",
        },
        {
            "when": {"contains": "stuck"},
            "text": ["**Partial** ", "answer"],
            "cut_after": 2,
            "end": "silent",
        },
        {
            "when": {"contains": "pay", "role": "user"},
            "tool_calls": [
                {"name": "pay", "arguments": {"n": n}} for n in range(N_CALLS)
            ],
        },
        {"when": {"role": "tool"}, "text": "All are paid."},
        {
            "when": {"contains": "sum"},
            "text": f"$${SUM}$$\n\nor ${SUM}$\n\n- $${SUM}$$",
        },
        {"when": {"contains": "plan"}, "text": "# Reply's heading\n\nSteps."},
        {"when": {"contains": "page"}, "text": f"Sure:\n\n```html\n{page}```\n"},
    ]
    with Emulator(script=script, limits=False) as running:
        yield running


def test_code_is_put_into_the_next_cell_and_not_run(bench: Bench) -> None:
    """A new cell below holds the code; the reply says so."""
    notebook = bench.open(bench.write("code", "%%svc -f code\nWrite code", "'last'"))
    notebook.run_all()
    expect(notebook.shown(1)).to_contain_text("is in the next cell, and was not run")
    expect(notebook.cells).to_have_count(4)

    sources = notebook.cells.locator(".cm-content").all_inner_texts()
    assert sources[2] == "print('from' + ' the cell')"
    assert notebook.output(2) == ""


def test_the_outline_is_without_the_headings_of_replies(bench: Bench) -> None:
    """Headings of other outputs are in JupyterLab's; a reply's are only below its cell.

    A reply comes first, so its heading would be there by then.
    """
    other = "from IPython.display import HTML\nHTML('<h1>Other heading</h1>')"
    notebook = bench.open(bench.write("outline", "%%svc\nMake a plan", other))
    notebook.run_all()
    expect(notebook.shown(1).locator("h1")).to_have_text("Reply's heading")
    expect(notebook.shown(2).locator("h1")).to_have_text("Other heading")

    notebook.command("toc:show-panel")

    outline = notebook.page.locator(".jp-TableOfContents")
    expect(outline).to_contain_text("Other heading")
    expect(outline).not_to_contain_text("Reply's heading")


def test_html_stays_in_its_frame(bench: Bench, listener: Listener) -> None:
    """The page is drawn; nothing in it runs, is fetched, or leaves the frame."""
    page = bench.page()
    notebook = bench.open(bench.write("page", "%%svc -f html\nWrite a page"), page)
    notebook.run_all()
    expect(notebook.shown(1)).to_contain_text("svc-v2-8b-instruct")
    frame = notebook.shown(1).frame_locator("iframe").last
    expect(frame.locator("h1")).to_have_css("color", "rgb(1, 2, 3)")
    height = "element => element.offsetHeight"
    within = frame.locator("html").evaluate(height)
    assert notebook.shown(1).locator("iframe").last.evaluate(height) == within + 2
    frame.locator("button").click()
    frame.locator("a").first.click()
    frame.locator("#own").click()

    expect(frame.locator("h1")).to_have_text("A page")
    assert page.evaluate("() => window.ran ?? null") is None
    assert not listener.is_asked


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_reply_saved_in_mid_stream_says_so(bench: Bench, place: str) -> None:
    """Opened again, the file shows half a reply that ends with the mark."""
    path = bench.write(f"half-{place}", "%%svc\nGet stuck")
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    expect(notebook.shown(1)).to_contain_text("Partial answer")
    notebook.save()

    again = bench.open(path, place=place)

    expect(again.shown(1)).to_contain_text("Partial answer")
    assert again.output(1).strip().endswith(UNFINISHED)


def test_answered_questions_are_one_output(bench: Bench) -> None:
    """Each is one line below the calls, and the rest of the reply is below them."""
    notebook = bench.open(bench.write("pay", TOOL, "%%svc --tools pay\nPlease pay"))
    notebook.wait_idle()
    for cell in range(3):
        notebook.run(cell)
    for number in range(N_CALLS):
        question = notebook.shown(2).locator("input.jp-Stdin-input").last
        expect(notebook.shown(2).locator(".jp-Stdin-prompt").last).to_contain_text(
            f"Run pay(n={number})?"
        )
        question.fill("y")
        question.press("Enter")
    expect(notebook.shown(2)).to_contain_text("All are paid.")
    notebook.wait_idle()

    hidden = ".jp-OutputArea-stdin-item"  # a field that is done with
    outputs = notebook.shown(2).locator(f".jp-OutputArea-child:not({hidden})")
    assert outputs.count() == 3
    expect(outputs.first).to_contain_text("approved")
    questions = outputs.nth(1).inner_text().strip().splitlines()
    assert [line.split("?")[0] for line in questions] == [
        f"Run pay(n={number})" for number in range(N_CALLS)
    ]
    expect(outputs.last).to_contain_text("All are paid.")
    notebook.save()
    saved = json.loads(notebook.path.read_text())["cells"][2]["outputs"]
    assert [output.get("name", "reply") for output in saved] == [
        *("reply", "stdin", "reply"),
    ]
    call = notebook.shown(2).locator("details").first
    call.locator("summary").click()
    expect(call.locator("pre").last).to_have_text("paid 0\n")


def test_a_wide_formula_scrolls_within_the_cell(bench: Bench) -> None:
    """In a line of its own, within a line, and in a list; the cell does not scroll."""
    notebook = bench.open(bench.write("sum", "%%svc\nWrite a sum"))
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    expect(notebook.shown(1).locator("mjx-container")).to_have_count(3)
    notebook.page.wait_for_timeout(500)  # fonts

    scrolled = "(element) => element.scrollWidth > element.clientWidth"
    html = notebook.shown(1).locator(".jp-RenderedHTMLCommon")
    assert not html.evaluate(scrolled)
    parents = notebook.shown(1).locator(":has(> mjx-container)")
    assert [parent.evaluate(scrolled) for parent in parents.all()] == [True] * 3


def test_an_error_breaks_no_words(bench: Bench) -> None:
    """Neither in a cell of 620 pixels nor in a docked one of 400."""
    notebook = bench.open(bench.write("error", "%%svc -t 3\nHello", "%svc list models"))
    notebook.command("application:toggle-left-area")
    notebook.wait_idle()
    notebook.run(0)
    for cell in (1, 2):  # a failure stops the cells that wait
        notebook.run(cell)
        expect(notebook.shown(cell)).to_contain_text("Nothing was sent")
        notebook.wait_idle()

    for width_px in (620, 400):
        notebook.page.set_viewport_size({"width": width_px + 80, "height": 900})
        for cell in (1, 2):
            assert notebook.shown(cell).evaluate(BROKEN_WORDS) == []


@pytest.mark.parametrize(
    ("n_cards", "width_px", "rows"),
    [
        (2, 700, [2]),
        (3, 700, [3]),
        (4, 700, [2, 2]),
        (4, 900, [4]),
        (4, 440, [2, 2]),
        (4, 300, [1] * 4),
        (5, 900, [3, 2]),
        (6, 900, [3, 3]),
        (8, 900, [4, 4]),
        (12, 900, [4, 4, 4]),
    ],
)
def test_rows_of_cards_are_of_one_length(
    page: Page, n_cards: int, width_px: int, rows: list[int]
) -> None:
    """Cards that do not fit side by side make two rows, not one and a rest."""
    cards = (card_html(f"{n} of {n_cards}", "A reply.") for n in range(n_cards))
    grid = grid_html(cards)
    page.set_content(
        f'<div style="font:14px sans-serif;width:{width_px}px">{grid}</div>'
    )

    tops = page.evaluate(
        "() => [...document.querySelector('div > div').children].map("
        "card => card.getBoundingClientRect().y)"
    )

    assert [tops.count(top) for top in sorted(set(tops))] == rows


def test_a_table_in_a_card_breaks_no_words(page: Page) -> None:
    """It scrolls if it is wider than its card; a long word of the text does break."""
    reply = f"{'m' * 90}\n\n| id | why |\n| - | - |\n| 1007 | annoyance {'word ' * 9}|"
    cards = grid_html(card_html(f"{n} of 2", to_html(reply)) for n in range(2))
    page.set_content(f'<div style="font:14px sans-serif;width:150px">{cards}</div>')

    lines = "(cell) => { const range = document.createRange();"
    lines += " range.selectNodeContents(cell); return range.getClientRects().length }"
    assert page.locator("td").first.evaluate(lines) == 1
    scrolled = "(text) => text.scrollWidth > text.clientWidth"
    assert not page.locator("p").first.evaluate(scrolled)
