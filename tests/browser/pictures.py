"""Draws the pictures of the README: `python -m pytest tests/browser/pictures.py`.

What it is not: a test; pytest does not find it by itself. It writes
`notebooks/images/*.png`; look at them before you keep them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from svc_notebook.emulator.server import Emulator
from tests.browser.conftest import Bench, Notebook

IMAGES = Path(__file__).parents[2] / "notebooks" / "images"
READ = """\
Use `pandas.read_csv` and tell it which column holds the dates:

```python
import pandas as pd

df = pd.read_csv("rain.csv", parse_dates=["day"])
df.groupby(df["day"].dt.month)["mm"].mean()
```

| column | meaning |
|:-------|--------:|
| day | the date |
| mm | rain, in millimetres |

The mean of a month is $\\bar{x} = \\frac{1}{n}\\sum_i x_i$.
"""
TITLES = (
    "**Rain by month** says what is shown, and no more.",
    "**The wet half of the year**: October brings twice the rain of April.",
    "**When to leave the umbrella at home**, for readers in a hurry.",
)
SLOW = "Three things stand out. October is the wettest month by far, "
SCRIPT: list[dict[str, Any]] = [
    {"when": {"contains": "read"}, "text": READ, "times": None},
    {"when": {"contains": "title"}, "choices": [{"text": each} for each in TITLES]},
    {
        "when": {"contains": "stands out"},
        "text": [f"{word} " for word in SLOW.split()],
        "gap_s": 0.4,
    },
    {"text": "Yes.", "times": None},
]
CELL = "import svc_notebook as svc\n\nsvc.panel('rain')"
QUICKSTART = (
    "import svc_notebook as svc\n%load_ext svc_notebook\n%svc use emulator",
    """\
%%svc --temperature 0.2 -o answer
Explain temperature, the parameter, to a beginner.""",
    """\
run = svc.sweep(
    "Describe the sea in one sentence.",
    model=["svc-v2-8b-instruct", "svc-v2-70b-instruct"],
    temperature=[0, 1.2],
    max_tokens=100,
)
run.run()
run.replies_df()[["model", "temperature", "completion_tokens", "text"]]""",
)

UNSELECTED = """
.jp-Collapser, .jp-cell-toolbar { visibility: hidden !important }
.jp-Cell { border-color: transparent !important }
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that speaks of rain."""
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


def _open(bench: Bench, page: Page, name: str, *cells: str) -> Notebook:
    notebook = bench.open(bench.write(name, *cells), page)
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0)).to_contain_text("[1]:")
    notebook.enter(0)
    notebook.command("notebook:delete-cell")  # addresses of this machine
    expect(notebook.cells).to_have_count(len(cells))
    return notebook


def _open_panel(bench: Bench, page: Page, name: str) -> Notebook:
    notebook = _open(bench, page, name, CELL)
    notebook.run(0)
    expect(_panel(notebook)).to_be_visible()
    notebook.command("application:toggle-left-area")
    return notebook


def _panel(notebook: Notebook) -> Locator:
    return notebook.shown(0).locator(".svc-panel")


def _say(panel: Locator, text: str, answer: str) -> None:
    composer = panel.get_by_role("textbox", name="Message")
    composer.fill(text)
    composer.press("Enter")
    last = panel.locator(".svc-turn").last
    expect(last.locator(".svc-answer")).to_contain_text(answer)


def _theme(page: Page, name: str) -> None:
    page.evaluate(
        "(theme) => window.jupyterapp.commands.execute("
        "'apputils:change-theme', { theme })",
        name,
    )
    is_light = "true" if name.endswith("Light") else "false"
    expect(page.locator(f"body[data-jp-theme-light={is_light}]")).to_be_attached()


def _settled(panel: Locator) -> None:
    expect(panel.locator(".svc-foot:visible").last).to_be_visible()
    panel.page.mouse.move(5, 5)
    panel.page.wait_for_timeout(3000)  # math and its fonts settle without saying so
    panel.page.evaluate("() => document.fonts.ready.then(() => true)")


def test_quickstart(bench: Bench) -> None:
    """A reply in a cell, and a DataFrame that compares two models."""
    page = bench.page()
    page.set_viewport_size({"width": 1000, "height": 1000})
    path = bench.write("quickstart", *QUICKSTART)
    source = json.loads(path.read_text())
    path.write_text(json.dumps({**source, "cells": source["cells"][1:]}))
    notebook = bench.open(path, page)
    notebook.wait_idle()
    notebook.command("application:toggle-left-area")
    for cell, shown in enumerate(("made up", "tokens", "1.2")):
        notebook.run(cell)
        expect(notebook.shown(cell)).to_contain_text(shown)
        notebook.wait_idle()
    first, last = notebook.cells.first, notebook.cells.last
    page.mouse.move(5, 5)
    page.add_style_tag(content=UNSELECTED)
    page.wait_for_timeout(500)  # a spinner fades
    boxes = [each.bounding_box() for each in (first, last)]
    top, bottom = (box for box in boxes if box is not None)
    page.screenshot(
        path=IMAGES / "quickstart.png",
        clip={
            "x": top["x"],
            "y": top["y"],
            "width": top["width"],
            "height": bottom["y"] + bottom["height"] - top["y"],
        },
    )


def test_light(bench: Bench) -> None:
    """A notebook in JupyterLab with a panel in it."""
    page = bench.page()
    page.set_viewport_size({"width": 1000, "height": 740})
    notebook = _open_panel(bench, page, "rain")
    panel = _panel(notebook)
    _say(panel, "How do I read rain.csv and average it by month?", "mean of a month")
    _settled(panel)
    page.screenshot(path=IMAGES / "panel-light.png")


def test_dark(bench: Bench) -> None:
    """Choices side by side, and the settings, in the dark theme."""
    page = bench.page()
    page.set_viewport_size({"width": 1000, "height": 1000})
    notebook = _open_panel(bench, page, "rain-dark")
    _theme(page, "JupyterLab Dark")
    panel = _panel(notebook)
    panel.get_by_text("Settings").click()
    n = panel.get_by_label("n", exact=True)
    n.fill("3")
    n.press("Tab")
    _say(panel, "Suggest a title for the chart.", "umbrella")
    panel.get_by_role("button", name="Pick").nth(1).click()
    _settled(panel)
    panel.screenshot(path=IMAGES / "panel-dark.png")
    _theme(page, "JupyterLab Light")


def test_narrow(bench: Bench) -> None:
    """A panel on a narrow screen, while a reply comes."""
    page = bench.page()
    page.set_viewport_size({"width": 560, "height": 900})
    notebook = _open_panel(bench, page, "rain-narrow")
    panel = _panel(notebook)
    _say(panel, "How do I read rain.csv and average it by month?", "mean of a month")
    _settled(panel)
    _say(panel, "What stands out?", "wettest month")
    panel.screenshot(path=IMAGES / "panel-narrow.png")
    panel.get_by_role("button", name="Stop (Esc)").click()
