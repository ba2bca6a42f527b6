"""The browser's longest task while a long reply streams into the panel; not a test.

    python -m pytest -o "python_functions=measure_*" tests/browser/panel_bench.py

Prints what three turns took in JupyterLab: the panel, the same text drawn by
`display(Markdown(...))` 25 times a second in the same page, and the median of their
ratios. A task of less than 50 ms counts as 50: the browser does not report it.
"""

from statistics import median

import pytest
from playwright.sync_api import Browser, Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Server
from tests.browser.test_panel import LONG, Chat

PANEL = "import svc_notebook as svc\nsvc.panel('plan')"
PLAIN = f"""\
import time
from IPython.display import Markdown, display
text, shown = {LONG!r}, display(Markdown(''), display_id=True)
for end in range(0, len(text), 8 * 24):
    shown.update(Markdown(text[:end]))
    time.sleep(0.04)
shown.update(Markdown('---'))"""
WATCH = """() => { window.long_ms = []; new PerformanceObserver((list) =>
    list.getEntries().forEach((entry) => long_ms.push(entry.duration))
).observe({ type: "longtask" }) }"""
LONGEST = "() => Math.max(50, ...long_ms.splice(0))"
# looking at the page as `expect` does takes long itself
HAS_MORE = "([place, n]) => document.querySelectorAll(place).length > n"
PIECES = [LONG[at : at + 24] for at in range(0, len(LONG), 24)]
SCRIPT = [{"text": PIECES, "gap_s": 0.005, "times": None}]


def measure_longest_task(
    browser: Browser, lab: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Print the longest tasks and their ratio."""
    with Emulator(script=SCRIPT, limits=False) as emulator:
        bench, took = Bench(browser, lab, emulator), []
        notebook = bench.open(bench.write("long", PANEL, PLAIN, PLAIN, PLAIN))
        for cell in (0, 1):
            notebook.wait_idle()
            notebook.run(cell)
        page, chat = notebook.page, Chat(notebook, emulator)
        expect(chat.composer).to_be_visible()
        page.evaluate(WATCH)
        for n in range(3):
            chat.say("Be long")
            ours_ms = _longest_ms(page, ".svc-foot:not([hidden])", 0)
            chat.button("Clear").click()
            expect(chat.turns).to_have_count(0)
            notebook.run(2 + n)
            took.append((ours_ms, _longest_ms(page, ".jp-RenderedMarkdown hr", n)))
        bench.close()
    with capsys.disabled():
        ratio = median(ours / plain for ours, plain in took)
        print(f"\n(panel, Markdown) in ms: {took}; {ratio:.2f} x")  # noqa: T201 - a report


def _longest_ms(page: Page, place: str, n_before: int) -> float:
    """Return the longest task until there is one more of these elements."""
    page.evaluate(LONGEST)  # what was before does not count
    page.wait_for_function(HAS_MORE, arg=[place, n_before], polling=250)
    return float(page.evaluate(LONGEST))
