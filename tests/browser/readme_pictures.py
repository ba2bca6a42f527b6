"""Draws the pictures of the README, and its movie, from the README's own cells.

    python -m pytest -o "python_functions=draw_*" tests/browser/readme_pictures.py

They are written into `notebooks/images/`. Look at them before you keep them. The movie
is JupyterLab as it runs, answered by the emulator; only waits without any change are
shortened.
"""

import base64
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import CDPSession, Locator, Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook
from tests.browser.pictures import (
    IMAGES,
    NOTEBOOKS,
    QUESTION,
    THEMES,
    UNSELECTED,
    _open,
    _theme,
)
from tests.notebook.readme import cells

WIDTH = 900
SCALE = 1.5
GAP_S = 0.06  # between the pieces of a reply: a pace that one can read
STEP_MS = 40  # between the frames, and as long as it takes to draw them
FRAME_MS = 110  # a frame is shown no longer, also if the machine was busy
STILL_MS = 400  # a wait in which nothing changes is no longer than this
LIMIT_S = 300  # a scene is no longer than this
READ_MS = 1800  # the end of a scene is shown for so long
COMPARE = """\
%%svc -m svc-v2-8b-instruct,svc-v2-70b-instruct -t 0,1.2
Name a tea shop by the sea. Give the name and one reason."""
CALM = """
* { caret-color: transparent !important; animation: none !important }
.jp-cell-toolbar, .jp-Notebook-footer { display: none !important }
"""
SHORT = ".svc-panel .svc-log { max-height: 400px !important }"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with the answers of the lessons, at a pace that one can read."""
    script = json.loads((NOTEBOOKS / "answers.json").read_text("utf-8"))
    script["defaults"]["gap_s"] = GAP_S
    with Emulator(script=script, limits=False) as running:
        yield running


@dataclass
class Film:
    """What a page shows, frame by frame.

    Attributes:
        page: What is filmed.
        frames: A PNG, and when it was taken in seconds.
        pauses: The frames that are shown for READ_MS.
    """

    page: Page
    frames: list[tuple[bytes, float]] = field(default_factory=list)
    pauses: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._devtools: CDPSession = self.page.context.new_cdp_session(self.page)
        box = self.page.locator("#jp-main-dock-panel").bounding_box()
        assert box is not None
        self._clip = {**box, "scale": SCALE}

    def shoot(self) -> None:
        """Take a frame."""
        shot = self._devtools.send(
            "Page.captureScreenshot", {"format": "png", "clip": self._clip}
        )
        self.frames.append((base64.b64decode(shot["data"]), time.monotonic()))
        self.page.wait_for_timeout(STEP_MS)

    def until(self, is_over: Callable[[], bool]) -> None:
        """Take frames until something is over, and pause there."""
        deadline = time.monotonic() + LIMIT_S
        while not is_over():
            assert time.monotonic() < deadline, "the scene does not end"
            self.shoot()
        self.page.wait_for_timeout(1000)  # the fonts of a formula
        self.shoot()
        self.pauses.add(len(self.frames) - 1)

    def write(self, path: Path) -> None:
        """Write an animated WebP; what is the same in two frames is kept once."""
        images: list[Image.Image] = []
        spans: list[float] = []
        last = b""
        ends = [at for _, at in self.frames[1:]] + [self.frames[-1][1]]
        for number, ((shot, at), end) in enumerate(zip(self.frames, ends, strict=True)):
            image = Image.open(BytesIO(shot)).convert("RGB")
            if image.tobytes() != last:
                last = image.tobytes()
                images.append(image)
                spans.append(0)
            span = min(1000 * (end - at), FRAME_MS)
            spans[-1] = min(spans[-1] + span, STILL_MS)
            if number in self.pauses:
                spans[-1] = READ_MS
        first, *others = images
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=[round(span) for span in spans],
            loop=0,
            lossless=True,
            method=2,  # a quarter of the bytes of 0; 6 takes many minutes
            quality=50,
        )


def _ready(bench: Bench, theme: str, name: str, *code: str, height: int) -> Notebook:
    """Open a notebook in a page without what moves or distracts."""
    page = bench.browser.new_page(
        viewport={"width": WIDTH, "height": height}, device_scale_factor=SCALE
    )
    page.set_default_timeout(30_000)
    notebook = _open(bench, page, f"{name}-{theme.lower()}", *code)
    notebook.command("application:toggle-left-area")
    _theme(page, f"JupyterLab {theme}")
    page.add_style_tag(content=CALM)
    page.wait_for_timeout(2000)  # the theme settles without saying so
    return notebook


def _type(film: Film, text: str) -> None:
    """Type at the cursor, four letters a frame; the editor closes no brackets."""
    for at in range(0, len(text), 4):
        film.page.keyboard.insert_text(text[at : at + 4])
        film.shoot()


def _scene(film: Film, notebook: Notebook, code: str) -> Locator:
    """Type a cell at the top of the page and run it; return what it shows."""
    last = notebook.cells.last
    last.evaluate("(cell) => cell.scrollIntoView({ behavior: 'smooth' })")
    last.locator(".cm-content").click()
    for _ in range(5):
        film.shoot()
    _type(film, code)
    notebook.command("notebook:run-cell")
    return last.locator(".jp-Cell-outputArea")


@THEMES
def draw_movie(bench: Bench, theme: str) -> None:
    """A cell streams, models are compared, and the panel answers."""
    notebook = _ready(bench, theme, "tea", "", height=560)
    page = notebook.page
    film = Film(page)

    shown = _scene(film, notebook, cells("One cell")[-1])
    film.until(lambda: "tokens" in shown.inner_text())
    notebook.command("notebook:insert-cell-below")
    shown = _scene(film, notebook, COMPARE)
    film.until(lambda: shown.inner_text().count("tokens") == 4)
    notebook.command("notebook:insert-cell-below")
    shown = _scene(film, notebook, "%svc panel sales")
    film.until(shown.get_by_role("textbox", name="Message").is_visible)
    shown.get_by_role("textbox", name="Message").click()
    _type(film, QUESTION)
    page.keyboard.press("Enter")
    film.until(shown.locator(".svc-foot:visible").is_visible)

    film.write(IMAGES / f"readme-movie-{theme.lower()}.webp")
    page.close()


def _done(notebook: Notebook, cell: int, said: str) -> None:
    """Run a cell, and wait until it shows a text and the kernel is idle."""
    notebook.run(cell)
    expect(notebook.shown(cell)).to_contain_text(said)
    notebook.wait_idle()


def _still(page: Page, first: Locator, last: Locator, name: str) -> None:
    """Write a picture of what lies between two parts of a page."""
    page.mouse.move(5, 5)
    first.scroll_into_view_if_needed()
    page.wait_for_timeout(1000)  # fonts, math, and the end of a spinner
    boxes = [each.bounding_box() for each in (first, last)]
    top, bottom = (box for box in boxes if box is not None)
    height = bottom["y"] + bottom["height"] - top["y"] + 6
    page.screenshot(
        path=IMAGES / f"readme-{name}.png",
        clip={
            "x": bottom["x"],
            "y": top["y"],
            "width": bottom["width"],
            "height": height,
        },
    )


@THEMES
def draw_cells(bench: Bench, theme: str) -> None:
    """The cell, the panel, the sweep and the key of the README."""
    for path in (*NOTEBOOKS.glob("*.json"), *NOTEBOOKS.glob("*.csv")):
        shutil.copy(path, bench.server.root)
    code = [*cells("One cell"), *cells("One panel"), *cells("One sweep, one decision")]
    name = theme.lower()
    code += ["%svc use service", *cells("Your key")]
    notebook = _ready(bench, theme, "readme", *code, height=2600)
    page = notebook.page
    page.add_style_tag(content=UNSELECTED + SHORT)
    notebook.run(0)
    _done(notebook, 1, "tokens")
    notebook.run(2)
    panel = notebook.shown(2).locator(".svc-panel")
    composer = panel.get_by_role("textbox", name="Message")
    composer.fill(QUESTION)
    composer.press("Enter")
    expect(panel.locator(".svc-foot:visible").last).to_be_visible()
    _done(notebook, 3, "96 requests")
    _done(notebook, 4, "large is right")
    _done(notebook, 5, "Replies now come from")
    notebook.run(6)
    asked = notebook.shown(6).locator("input")
    asked.fill("x" * 24)
    _still(page, notebook.cells.nth(1), notebook.cells.nth(1), f"cell-{name}")
    _still(page, notebook.cells.nth(2), notebook.cells.nth(2), f"panel-{name}")
    _still(page, notebook.shown(3), notebook.cells.nth(4), f"sweep-{name}")
    _still(page, notebook.cells.nth(6), notebook.cells.nth(6), f"key-{name}")
    asked.press("Enter")
    page.close()
