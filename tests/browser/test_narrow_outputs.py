"""What outputs show in a cell beside a panel, or on the page of a phone."""

import os

import pytest
from playwright.sync_api import Page

from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.reply_footer import marks_html

MODELS = "svc-v2-8b-instruct - svc-instruct"
CHART = IntervalChart(
    intervals=[
        Interval(name=MODELS, value=0.4, low=0.16, high=0.64, numbers="40 (16 to 64)"),
        Interval(name="b", value=1, low=0.5, high=1, numbers="80 points (58 to 100)"),
    ],
    origin=0.0,
    scale=100,
    unit="points",
)


def show(page: Page, html: str, width_px: int) -> None:
    """Show an output so wide; keep a picture where a folder for them is named."""
    style = f"width:{width_px}px;font:14px sans-serif"
    page.set_content(f'<main style="{style}">{html}</main>')
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/narrow-output-{width_px}.png")


@pytest.mark.parametrize("width_px", [320, 480, 900])
def test_the_numbers_of_a_chart_are_in_sight(page: Page, width_px: int) -> None:
    """An interval is never cut, and breaks in no line of its own."""
    show(page, CHART.html(), width_px)
    numbers = page.get_by_text("(58 to 100)")
    box = numbers.bounding_box()
    assert box
    main = page.locator("main").bounding_box()
    assert main

    assert box["x"] + box["width"] <= main["x"] + width_px
    assert len(numbers.evaluate("(span) => [...span.getClientRects()]")) == 1
    assert "80 points (58 to 100)" in " ".join(page.inner_text("main").split())


def test_a_badge_has_one_border(page: Page) -> None:
    """It is whole where the line is too short for its words."""
    show(page, marks_html(("emulator: written by hand",), "svc-instruct"), 120)
    badge = page.get_by_text("written by hand")

    assert len(badge.evaluate("(span) => [...span.getClientRects()]")) == 1
