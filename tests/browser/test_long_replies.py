"""Long replies in JupyterLab and Notebook 7: what is being read stays where it is."""

from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import pytest
from playwright.sync_api import expect

from svc_notebook.display.reply_footer import UNFINISHED
from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook

MARK = "WATCHED"
WORDS = "The tide comes in twice a day, and the moon decides how far. "
MOVED_PX = 24

# Notes in every frame where the watched text is.
WATCH = """
([mark]) => {
  const found = () => {
    const area = document.querySelectorAll('.jp-CodeCell')[1];
    const walker = document.createTreeWalker(
      area.querySelector('.jp-Cell-outputArea'), NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());)
      if (node.data.includes(mark)) {
        const range = document.createRange();
        const at = node.data.indexOf(mark);
        range.setStart(node, at); range.setEnd(node, at + mark.length);
        return range.getBoundingClientRect().y;
      }
    return null;
  };
  window.frames_ = [];
  const look = () => {
    window.frames_.push(found());
    requestAnimationFrame(look);
  };
  look();
}
"""
SCROLL = """
([mark]) => {
  const area = document.querySelectorAll('.jp-CodeCell')[1];
  const walker = document.createTreeWalker(
    area.querySelector('.jp-Cell-outputArea'), NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());)
    if (node.data.includes(mark)) {
      const range = document.createRange();
      range.setStart(node, node.data.indexOf(mark)); range.collapse(true);
      let outer = area;
      while (outer && !(outer.scrollHeight > outer.clientHeight + 5 &&
                        /auto|scroll/.test(getComputedStyle(outer).overflowY)))
        outer = outer.parentElement;
      outer = outer || document.scrollingElement;
      outer.scrollTop += range.getBoundingClientRect().y - 150;
    }
}
"""


def _marked(parts: list[str]) -> str:
    """Put the watched word into the part in the middle."""
    middle = len(parts) // 2
    parts[middle] = parts[middle].replace("tide", MARK, 1)
    return "".join(parts)


def _mixed(n_bytes: int) -> str:
    parts = [
        f"## Part {number}\n\n{WORDS * 3}\n\n- {WORDS}\n- the tide\n\n"
        "```python\nfor tide in range(3):\n    print(tide)\n```\n\n"
        for number in range(n_bytes // 320 + 1)
    ]
    return _marked(parts)


def _code(n_bytes: int) -> str:
    lines = [f"tide_{n} = {n}  # as measured\n" for n in range(n_bytes // 27)]
    return f"```python\n{_marked(lines)}```\n"


def _nested(n_bytes: int) -> str:
    items = [
        f"- Item {n}: the tide\n  - below it: {WORDS}\n    - and below that\n"
        for n in range(n_bytes // 110)
    ]
    return _marked(items)


def _numbered(n_parts: int) -> str:
    """Write paragraphs, lists and code whose words are numbered.

    Three parts are as long as Notebook 7 lets an output grow before it scrolls in it.
    """
    numbers = count()

    def words(n_words: int) -> str:
        return " ".join(f"word{next(numbers)}" for _ in range(n_words))

    return "".join(
        f"{words(40)}\n\n- {words(8)}\n- {words(4)}\n\n"
        f"```python\n{words(3)}\n{words(5)}\n```\n\n{words(25)}\n\n"
        for _ in range(n_parts)
    )


REPLIES = {
    "short": _mixed(1_000),
    "mixed": _mixed(6_000),
    "long": _mixed(40_000),
    "code": _code(12_000),
    "nested": _nested(12_000),
    "paragraph": _marked([WORDS] * 100),
}


N_PIECES = 300
STREAM_S = 4.0


def _pieces(text: str) -> list[str]:
    size = len(text) // N_PIECES + 1
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that writes the replies above, quickly."""
    script: list[dict[str, Any]] = [
        {
            "when": {"contains": f"kind {kind}."},
            "text": _pieces(text),
            "gap_s": STREAM_S / N_PIECES,
        }
        for kind, text in REPLIES.items()
    ]
    script.append(
        {
            "when": {"contains": "kind numbered."},
            "text": _pieces(_numbered(3)),
            "gap_s": STREAM_S / N_PIECES,
        }
    )
    for kind, text in {"slow": _mixed(40_000), "one block": _code(40_000)}.items():
        pieces = [text[at : at + 20] for at in range(0, len(text), 20)]
        script.append(
            {"when": {"contains": f"kind {kind}."}, "text": pieces, "gap_s": 0.01}
        )
    several = {"times": None, "gap_s": STREAM_S / N_PIECES}
    beside: dict[str, Any] = {"text": _pieces(_mixed(3_000))}
    script += [
        {"when": {"contains": "kind grid."}, **beside, **several},
        {"when": {"contains": "kind choices."}, "choices": [beside] * 2, **several},
    ]
    with Emulator(script=script, limits=False) as running:
        yield running


# Notes after every change of the page what could be painted: the numbered words that
# can be read, and where the cell below is.
WATCH_CHANGES = """
() => {
  const cells = document.querySelectorAll('.jp-CodeCell');
  const area = cells[1].querySelector('.jp-Cell-outputArea');
  window.frames_ = [];
  const look = () => {
    const words = new Set(area.innerText.match(/word[0-9]+/g) || []);
    const y = cells[2].getBoundingClientRect().y - cells[1].getBoundingClientRect().y;
    window.frames_.push([words.size, y]);
  };
  const channel = new MessageChannel();
  channel.port1.onmessage = look;
  new MutationObserver(() => channel.port2.postMessage(0)).observe(
    area, {subtree: true, childList: true, characterData: true});
}
"""


CASES = [
    *(
        (kind, "lab", n_below)
        for kind, n_below in zip(REPLIES, [0, 3] * 3, strict=True)
    ),
    ("mixed", "notebook", 0),
    ("code", "notebook", 3),
]


def _watch(notebook: Notebook) -> list[float | None]:
    """Scroll to the watched text, and note where it is until the reply has settled."""
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    notebook.run(1)
    expect(notebook.shown(1)).to_contain_text(MARK)
    notebook.page.evaluate(SCROLL, [MARK])
    notebook.page.evaluate(WATCH, [MARK])
    expect(notebook.shown(1)).not_to_contain_text(UNFINISHED)
    notebook.page.wait_for_timeout(500)  # what moves late, moves by then
    frames: list[float | None] = notebook.page.evaluate("() => window.frames_")
    return frames


def _is_still(places: list[float | None]) -> bool:
    found = [y for y in places if y is not None]
    return max(found) - min(found) <= MOVED_PX


@pytest.mark.parametrize(("kind", "place", "n_below"), CASES)
def test_what_is_read_stays(bench: Bench, kind: str, place: str, n_below: int) -> None:
    """Text moves by at most 24 px while a reply streams below it, and settles."""
    path = bench.write("long", f"%%svc\nkind {kind}.", *["1 + 1"] * n_below)
    notebook = bench.open(path, place=place)

    places = _watch(notebook)

    assert None not in places
    assert _is_still(places)
    n_outputs = notebook.shown(1).locator(".jp-OutputArea-child").count()
    assert n_outputs <= 10


@pytest.mark.parametrize(
    "cell", ["%%svc -n 2\nkind choices.", "%%svc -t 0.1,0.9\nkind grid."]
)
def test_replies_side_by_side_stay(bench: Bench, cell: str) -> None:
    """Side by side, replies are drawn as Markdown while they stream."""
    notebook = bench.open(bench.write("grid", cell))

    places = _watch(notebook)

    assert None not in places
    assert _is_still(places)


@pytest.mark.parametrize("kind", ["slow", "one block"])
def test_a_long_reply_leaves_the_page_time(bench: Bench, kind: str) -> None:
    """40 kB in 20 s take at most 3 s of the page's main thread; `pytest -s` prints it.

    That is its CPU time: 1.5 s on a quiet machine. A third of it is JupyterLab's table
    of contents, which reads all outputs again every second.
    """
    notebook = bench.open(bench.write("cost", f"%%svc\nkind {kind}."))
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    page = notebook.page
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used_s() -> float:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in found if m["name"] == "TaskDuration"))

    notebook.enter(1)
    before_s = used_s()
    notebook.command("notebook:run-cell")
    # Looking at the text as `expect` does would take most of the time.
    page.wait_for_function(
        "() => document.querySelectorAll('.jp-CodeCell')[1].querySelector("
        "'.jp-InputPrompt').textContent === '[2]:'",
        polling=500,
    )
    page.wait_for_timeout(1000)  # what is drawn late
    taken_s = used_s() - before_s

    print(f"{kind}: {taken_s:.2f} s of the main thread")  # noqa: T201 - with `pytest -s`
    assert taken_s < 3


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_nothing_flickers(bench: Bench, place: str) -> None:
    """No change takes words away, and the cell below never moves up.

    `pytest -s` prints the figures.
    """
    path = bench.write(f"frames-{place}", "%%svc\nkind numbered.", "1 + 1")
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    notebook.page.evaluate(WATCH_CHANGES)
    notebook.run(1)
    expect(notebook.shown(1)).to_contain_text("word1")
    expect(notebook.shown(1)).not_to_contain_text(UNFINISHED)
    notebook.page.wait_for_timeout(500)  # what moves late, moves by then

    frames = notebook.page.evaluate("() => window.frames_")
    begin = next(at for at, (n_words, _) in enumerate(frames) if n_words)
    steps = list(pairwise(frames[begin:]))
    n_fewer = sum(after[0] < before[0] for before, after in steps)
    jumps_px = [before[1] - after[1] for before, after in steps if after[1] < before[1]]
    print(f"{place}: {len(steps)} changes, {n_fewer} to fewer words, up {jumps_px} px")  # noqa: T201 - with `pytest -s`
    assert (n_fewer, jumps_px) == (0, [])
