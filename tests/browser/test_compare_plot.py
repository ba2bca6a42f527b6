"""Comparisons and plots of hostile replies in JupyterLab, narrow and offline."""

from playwright.sync_api import Route, expect

from tests.browser.conftest import Bench

MIN_BAR = 80  # CSS pixels
HOSTILE = "<img src=x onerror=alert(1)>"
REPLIES = f"""
import svc_notebook as svc
run = svc.sweep(
    ["a", "b", "c"],
    temperature=[0, 1],
    model=["svc-v2-8b-instruct", "svc-v2-70b-instruct"],
).run()
df = run.replies_df()
df["text"] = {HOSTILE!r} + " and a long reply goes on. " * 60
df["score_right"] = [number % 3 for number in range(len(df))]
"""
LONG_WORDS = """
_ = svc.sweep(
    "d",
    model={"a label of a model that is long": "svc-v2-8b-instruct"},
    scores={"a_score_of_a_long_name": lambda row: len(row.text)},
    repeats=3,
).run()
"""


def test_a_plot_is_drawn_offline_and_shows_replies(bench: Bench) -> None:
    """JupyterLab's own renderer draws it, and the mouse shows a reply as text."""
    page = bench.page()
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route(lambda url: not url.startswith(bench.server.url), refuse)
    cells = (REPLIES, 'svc.plot(df, "right")')
    notebook = bench.open(bench.write("plot", *cells), page)
    notebook.run_all()

    chart = notebook.shown(2).locator("svg.marks")
    expect(chart).to_contain_text("svc-v2-8b-instruct")
    chart.locator(".mark-symbol path").first.hover(force=True)

    expect(page.locator("#vg-tooltip-element")).to_contain_text(HOSTILE)
    assert page.locator("img[src=x]").count() == 0
    assert asked == []


def test_a_narrow_comparison_scrolls_inside(bench: Bench) -> None:
    """In a narrow cell nothing is clipped, and a long reply unfolds by itself."""
    page = bench.page()
    page.set_viewport_size({"width": 430, "height": 900})
    cells = (REPLIES, 'svc.compare(df, columns="model")')
    notebook = bench.open(bench.write("narrow", *cells), page)
    notebook.run_all()
    shown = notebook.shown(2)
    table = shown.locator("table")
    expect(table).to_contain_text("temperature 1")

    is_inside = table.evaluate(
        "table => table.parentElement.scrollWidth > table.parentElement.clientWidth"
    )
    fold = shown.locator("details").first
    fold.locator("summary").click()

    assert is_inside
    assert fold.evaluate("fold => fold.open")
    assert shown.evaluate("area => area.scrollWidth <= area.clientWidth + 1")
    assert page.locator("img[src=x]").count() == 0


def test_a_bar_is_seen_next_to_long_words(bench: Bench) -> None:
    """Words of an ended run that are too long for the line of their bar go below it."""
    page = bench.page()
    page.set_viewport_size({"width": 700, "height": 900})
    cells = (f"{REPLIES}\n{LONG_WORDS}",)
    notebook = bench.open(bench.write("bars", *cells), page)
    notebook.run_all()
    bars = notebook.shown(1).locator("div[style*='flex-wrap']")
    expect(bars.last).to_contain_text("a_score_of_a_long_name")

    for bar in bars.all():
        widths = bar.evaluate(
            "box => [box.scrollWidth - box.clientWidth,"
            " box.querySelector('div').clientWidth]"
        )
        assert widths[0] <= 0
        assert widths[1] > MIN_BAR
