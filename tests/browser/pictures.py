"""Draws the pictures of the lessons into `notebooks/images/`; not tests.

    python -m pytest -o "python_functions=draw_*" tests/browser/pictures.py

Each is drawn in both themes; the site shows NAME-dark.png to readers of dark pages.
Look at the pictures before you keep them.
"""

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from nbconvert import HTMLExporter
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
IMAGES = NOTEBOOKS / "images"
SCRIPT = NOTEBOOKS / "answers.json"
CELL = "import svc_notebook as svc\n\nsvc.panel('sales')"
QUESTION = "How do I add up the cups by month? The file is sales.csv."
SLOW = {
    "when": {"contains": "What stands out?"},
    "note": "written by hand",
    "text": ["June sold ", "387 cups, ", "9 more ", "than May, ", "and more "],
    "gap_s": 0.4,
}
VERSIONS = (
    "import svc_notebook as svc\n%load_ext svc_notebook",
    """\
%%svc -c plan --system "You advise the owner of a tea shop."
We open in May. What comes first? Answer in 20 words.""",
    """\
%%svc -c plan
And what can wait until June? Answer in 20 words.""",
    "%svc history plan",
)

RATED = (
    """\
import svc_notebook as svc

rows = [{"months": "May and June"}, {"months": "June and July"}]
run = svc.sweep(
    "How do I add up the cups for {{months}}?",
    rows=rows,
    model=["svc-v2-8b-instruct", "svc-v2-70b-instruct"],
    seed=1,
).run()""",
    "run.rate(pairs='model', rater='anna')",
)
PAIR = {
    "svc-v2-8b-instruct": """\
Filter the months, then add:

```python
months = ["May", "June"]
df[df["month"].isin(months)]["cups"].sum()
```""",
    "svc-v2-70b-instruct": """\
Add them by month first:

| month | cups |
|:--|--:|
| May | 378 |
| June | 387 |

Then `cups["May"] + cups["June"]` is **765**.""",
}

THEMES = pytest.mark.parametrize("theme", ["Light", "Dark"])
"""Both themes of JupyterLab."""
UNSELECTED = """
.jp-Collapser, .jp-cell-toolbar { visibility: hidden !important }
.jp-Cell { border-color: transparent !important }
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with the answers of the lessons, one of them slow."""
    script = json.loads(SCRIPT.read_text("utf-8"))
    script["entries"].insert(0, SLOW)
    for model, text in PAIR.items():
        when = {"contains": "the cups for", "model": model}
        pair = {"when": when, "text": text, "times": None, "note": "written by hand"}
        script["entries"].insert(0, pair)
    with Emulator(script=script, limits=False) as running:
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


def _keep(name: str, theme: str, picture: bytes) -> None:
    """Write a picture with 256 colours, which is enough for text and much smaller."""
    path = IMAGES / (f"{name}.png" if theme == "Light" else f"{name}-dark.png")
    small = (
        Image.open(BytesIO(picture))
        .convert("RGB")
        .quantize(256, dither=Image.Dither.NONE)
    )
    small.save(path, optimize=True)


@THEMES
def draw_lessons(browser: Browser, tmp_path: Path, theme: str) -> None:
    """The cells of each lesson that are tagged `picture`, as they were saved."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        page = browser.new_page(
            viewport={"width": 820, "height": 600}, device_scale_factor=1.5
        )
        html, _ = HTMLExporter(theme=theme.lower()).from_filename(str(path))  # type: ignore[no-untyped-call]  # nbconvert has no types
        (tmp_path / "lesson.html").write_text(html, encoding="utf-8")
        page.goto((tmp_path / "lesson.html").as_uri())
        page.add_style_tag(content=".jp-Cell:not(.celltag_picture) { display: none }")
        cells = page.locator(".celltag_picture")
        if cells.count():
            page.wait_for_timeout(500)  # fonts
            _keep(path.stem, theme, _clip(page, cells.first, cells.last))
        page.close()


@THEMES
def draw_versions(bench: Bench, theme: str) -> None:
    """A cell of a conversation that was run again, and the history below it."""
    page = bench.page()
    page.set_viewport_size({"width": 900, "height": 1300})
    notebook = _open(bench, page, f"versions-{theme}", *VERSIONS)
    _theme(page, f"JupyterLab {theme}")
    notebook.command("application:toggle-left-area")
    notebook.run(0)
    for cell, shown in ((1, "tokens"), (2, "tokens"), (1, "stale"), (3, "2 of 2")):
        notebook.run(cell)
        expect(notebook.shown(cell)).to_contain_text(shown)
        notebook.wait_idle()
    page.mouse.move(5, 5)
    page.add_style_tag(content=UNSELECTED)
    page.wait_for_timeout(500)  # a spinner fades
    cells = notebook.cells
    _keep("magic-versions", theme, _clip(page, cells.nth(1), cells.nth(3)))
    _theme(page, "JupyterLab Light")


def _clip(page: Page, first: Locator, last: Locator) -> bytes:
    boxes = [each.bounding_box() for each in (first, last)]
    top, bottom = (box for box in boxes if box is not None)
    height = bottom["y"] + bottom["height"] - top["y"]
    return page.screenshot(
        full_page=True,
        clip={"x": top["x"], "y": top["y"], "width": top["width"], "height": height},
    )


@THEMES
def draw_panel(bench: Bench, theme: str) -> None:
    """A notebook in JupyterLab with a panel in it."""
    page = bench.page()
    page.set_viewport_size({"width": 1000, "height": 680})
    notebook = _open_panel(bench, page, "sales" if theme == "Light" else "sales-dark")
    _theme(page, f"JupyterLab {theme}")
    panel = _panel(notebook)
    _say(panel, QUESTION, "total of a month")
    _settled(panel)
    _keep("panel", theme, page.screenshot())
    _theme(page, "JupyterLab Light")


def draw_choices(bench: Bench) -> None:
    """Choices side by side, and the settings; the dark theme is shown to everybody."""
    page = bench.page()
    page.set_viewport_size({"width": 1000, "height": 1300})
    notebook = _open_panel(bench, page, "sales-choices")
    _theme(page, "JupyterLab Dark")
    panel = _panel(notebook)
    panel.get_by_text("Settings").click()
    n = panel.get_by_label("n", exact=True)
    n.fill("3")
    n.press("Tab")
    _say(panel, "Suggest a title for the chart.", "in a hurry")
    panel.get_by_role("button", name="Pick").nth(1).click()
    _settled(panel)
    _keep("panel-choices", "Light", panel.screenshot())
    _theme(page, "JupyterLab Light")


@THEMES
def draw_narrow(bench: Bench, theme: str) -> None:
    """A panel on a narrow screen, while a reply comes."""
    page = bench.page()
    page.set_viewport_size({"width": 560, "height": 900})
    notebook = _open_panel(bench, page, f"sales-narrow-{theme}")
    _theme(page, f"JupyterLab {theme}")
    panel = _panel(notebook)
    _say(panel, QUESTION, "total of a month")
    _settled(panel)
    _say(panel, "What stands out?", "387 cups")
    _keep("panel-narrow", theme, panel.screenshot())
    panel.get_by_role("button", name="Stop (Esc)").click()
    _theme(page, "JupyterLab Light")


@THEMES
def draw_rating(bench: Bench, theme: str) -> None:
    """A panel that shows two replies side by side, to be rated."""
    page = bench.page()
    page.set_viewport_size({"width": 900, "height": 800})
    notebook = _open(bench, page, f"rating-{theme}", *RATED)
    _theme(page, f"JupyterLab {theme}")
    notebook.command("application:toggle-left-area")
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_idle()
    panel = notebook.shown(1).locator(".svc-rating")
    expect(panel.get_by_text("Right", exact=True).first).to_be_visible()
    panel.locator(".svc-stage").focus()
    page.wait_for_timeout(1000)  # math and fonts settle without saying so
    page.mouse.move(5, 5)
    _keep("rating", theme, panel.screenshot())
    _theme(page, "JupyterLab Light")
