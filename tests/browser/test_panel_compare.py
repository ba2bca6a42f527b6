"""Replies side by side in the page: what is compared, the columns, and the pick."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench
from tests.browser.panel_page import (
    RICH,
    PanelPage,
    choice,
    live,
    turn,
    view,
)

A, B, C = "svc-v2-8b-instruct", "svc-v2-70b-instruct", "svc-v2.5-30b-a3b-instruct"
WORDS = {"text": [f"word{n} " for n in range(60)], "gap_s": 0.1, "times": None}
OPEN = "import svc_notebook as svc\nsvc.panel('compare')"
FRAME = """\
replies = svc.replies_df()
print("winner:", *replies.loc[replies["score_picked"] == 1, "model"])"""
LEFT = "columns => columns.map(column => column.getBoundingClientRect().left)"
LONG = "The short answer is that it depends on the target. " * 4
DECIDE = (
    "Pick the reply to continue with; without a pick it is {}, the first that finished."
)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that is slow to answer, and keeps to its limits."""
    with Emulator(script=[WORDS]) as running:
        yield running


def column(label: str, version: int = 0, **more: object) -> dict[str, Any]:
    """Describe a column."""
    return {
        "label": label,
        "version": version,
        "problem": "",
        "footer": "12 → ~40 tokens · 1.2 s" if version else "",
        "first_text_s": 0.34 if version else None,
        "marks": ["emulator"] if version else [],
        "is_picked": False,
        "is_used": False,
        "status": "",
        "until_ms": None,
        **more,
    }


def compared(*columns: dict[str, Any], **more: object) -> dict[str, Any]:
    """Describe a turn whose replies stand side by side."""
    texts = [RICH if each["version"] == 1 else LONG for each in columns]
    shown = [
        text if each["version"] else ""
        for text, each in zip(texts, columns, strict=False)
    ]
    return turn(1, *shown) | {
        "model": "Replies compared",
        "columns": list(columns),
        "can": ["prefer", "regenerate", "edit", "delete", "pin", "hide"],
        "footer": "",
        **more,
    }


def settings(**more: object) -> dict[str, Any]:
    """Describe what is compared."""
    return {
        "by": "model",
        "values": [A, B],
        "is_blind": False,
        "options": [A, B, C],
        "max_values": 4,
        "cost": "Each message asks 2 times.",
        **more,
    }


THREE = settings(values=[A, B, C], cost="Each message asks 3 times.")
GROWING = live(LONG, "", "") | {
    "model": "Replies compared",
    "columns": [
        column(A),
        column(B, status=f"Waiting: the limit of 1 second of {B}"),
        column(C),
    ],
}
FAILED = column(
    C, problem=f"The model {C} is not known to this service (404).\nChoose another one."
)
STATES: dict[str, dict[str, Any]] = {
    "off": {"compare": settings(by="", values=[])},
    "streaming": {
        "state": "busy",
        "can": ["stop", "set"],
        "compare": THREE,
        "live": GROWING,
    },
    "unpicked": {
        "compare": THREE,
        "turns": [
            compared(
                column(A, 1),
                column(B, 2, is_used=True),
                FAILED,
                footer=DECIDE.format(B),
            )
        ],
    },
    "picked": {
        "compare": settings(
            by="temperature", values=[0, 0.7], cost="Each message asks 2 times."
        ),
        "turns": [compared(column(A, 1), column(B, 2, is_used=True, is_picked=True))],
    },
    "blind": {
        "compare": THREE | {"is_blind": True},
        "turns": [
            compared(
                *(
                    column(name, at, footer="", marks=[], is_used=at == 2)
                    for at, name in enumerate("ABC", start=1)
                ),
                footer=DECIDE.format("B"),
            )
        ],
    },
}


def test_as_many_replies_are_side_by_side_as_have_room(page: Page) -> None:
    """Of three: one below the other on a telephone, two beside each other, or all."""
    found = []
    for width in (320, 700, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        panel = PanelPage(page, view(**STATES["unpicked"]))
        lefts = panel.root.locator(".svc-column").evaluate_all(LEFT)
        found.append(len(set(lefts)))

    assert found == [1, 2, 3]
    first = panel.root.locator(".svc-column").first
    expect(first).to_contain_text("1.2 s · first words after 0.3\u00a0s")


def test_a_table_wider_than_its_column_scrolls_and_shows_it(page: Page) -> None:
    """Its last column is reached by keys; a shadow says that there is more."""
    page.set_viewport_size({"width": 525, "height": 900})
    wide = f"| {'a column | ' * 5}\n|{'--|' * 5}\n| {'one value | ' * 5}\n"
    turns = [compared(column(A, 1), column(B, 2)) | {"choices": [choice(wide)] * 2}]
    panel = PanelPage(page, view(turns, compare=settings()))
    table = panel.log.locator(".svc-column div:has(> table)").first
    shown, whole = table.evaluate("(box) => [box.clientWidth, box.scrollWidth]")
    assert 150 < shown < whole
    assert "gradient" in table.evaluate(
        "(box) => getComputedStyle(box).backgroundImage"
    )
    table.evaluate("(box) => { box.scrollLeft = box.scrollWidth }")

    expect(table.locator("th").last).to_be_in_viewport(ratio=0.9)


def test_names_are_whole_in_the_side_area(page: Page) -> None:
    """A narrow panel breaks them at hyphens only; nothing is wider than it."""
    turns = [compared(column(A, 1), column(C, 2))]
    for width in (190, 300):
        page.set_viewport_size({"width": width, "height": 900})
        panel = PanelPage(page, view(turns, compare=settings()))
        lines = panel.log.locator(".svc-bar .svc-words").evaluate_all(
            """(names) => names.map((name) => {
              const range = document.createRange();
              range.selectNodeContents(name);
              return range.getClientRects().length;
            })"""
        )
        assert max(lines) <= 3
        fits = "(root) => root.scrollWidth <= root.clientWidth"
        assert panel.log.evaluate(fits)
        for chosen in panel.root.get_by_role("combobox").all():
            box = chosen.bounding_box()
            assert box is None or box["x"] + box["width"] <= width


def test_what_is_compared_is_chosen_in_a_row(page: Page) -> None:
    """Two to four; a model that is chosen is not offered twice; the cost is said."""
    panel = PanelPage(page, view(compare=settings(by="", values=[])))
    switch = panel.button("Compare replies side by side")
    row = panel.root.get_by_role("group", name="Compare", exact=True)
    expect(row).to_be_hidden()
    switch.press("Enter")
    panel.show(compare=settings())
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(row).to_contain_text("Each message asks 2 times.")
    panel.composer.fill("Hi")
    expect(panel.button("Ask 2 models (Enter)")).to_be_enabled()
    expect(panel.root.locator(".svc-composer")).to_contain_text("2 models")
    second = row.get_by_label("Model 2")
    second.focus()
    second.press("ArrowUp")  # the other model is passed by
    expect(second).to_have_value(B)
    second.press("ArrowDown")
    expect(second.locator("option:disabled")).to_have_text([A])
    panel.button("Compare one more").click()
    panel.show(compare=THREE | {"max_values": 3})
    expect(panel.button("Compare one more")).to_be_disabled()
    panel.button("Leave out 2").click()
    row.get_by_label("Blind").check()
    row.get_by_label("What to compare").select_option("Temperatures")
    panel.show(compare=settings(by="temperature", values=[0, 0.7]))
    expect(panel.root.locator(".svc-composer")).to_contain_text("2 temperatures")
    row.get_by_label("Temperature 2").fill("1.5")
    row.get_by_label("Temperature 2").press("Enter")
    switch.click()

    asked = [(each["name"], each["value"], each["on"]) for each in panel.sent]
    assert asked == [
        ("model", None, False),
        ("model", [A, C], False),
        ("model", [A, B, None], False),
        ("model", [A, C], False),
        ("model", None, True),  # the kernel has the values
        ("temperature", None, True),
        ("temperature", [0, 1.5], False),
        ("", None, False),
    ]


def test_columns_grow_wait_fail_and_are_picked_by_key(page: Page) -> None:
    """Each by itself; what has no reply cannot be picked, and all is text."""
    panel = PanelPage(page, view(compare=THREE))
    panel.begin(**GROWING | {"choices": [{"html": "", "tail": ""}] * 3})
    columns = panel.root.locator(".svc-column")
    expect(columns).to_have_count(3)
    panel.tell(t="delta", choice=1, html="<p>Grown.</p>", tail="<p>More</p>")
    panel.tell(t="column", choice=1, column=column(B))
    waits = column(A, status="Waiting: refused", until_ms=4102444800000)
    panel.tell(t="column", choice=0, column=waits)
    hostile = column(C, problem="<img src=x onerror=window.ran=1>")
    panel.tell(t="column", choice=2, column=hostile)
    expect(columns.nth(0)).to_contain_text(re.compile(r"Waiting: refused \(\d+ s\)"))
    expect(columns.nth(1)).to_contain_text("Grown.More")
    expect(columns.nth(2)).to_contain_text("<img src=x")
    used = column(B, 1, is_used=True)
    turns = [compared(column(A, 2), used, FAILED, footer=DECIDE.format(B))]
    panel.show(state="idle", live=None, can=["send"], turns=turns)

    expect(panel.turns).to_contain_text("Pick the reply to continue with")
    expect(panel.button(f"Pick: {C}")).to_have_count(0)
    panel.button(f"Pick: {A}").press("Enter")
    assert panel.sent == [{"t": "prefer", "turn": "turn-1", "version": 2}]
    panel.show(turns=[compared(column(A, 2, is_picked=True, is_used=True), used)])
    expect(panel.button(f"Picked: {A}")).to_be_focused()


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_models_are_compared_blind_in_a_notebook(bench: Bench, place: str) -> None:
    """They stream together; nothing in the notebook names one before the pick wins."""
    path = bench.write(f"compare-{place}", OPEN, FRAME)
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0)).to_contain_text("[1]:")
    notebook.run(1)
    panel = notebook.shown(1).locator(".svc-panel")
    panel.get_by_role("button", name="Compare replies side by side").click()
    panel.get_by_label("Model 2").select_option(B)
    blind = panel.get_by_label("Blind")
    blind.click()
    expect(blind).to_be_checked()
    composer = panel.get_by_role("textbox", name="Message")
    composer.fill("Which is better?")
    expect(panel.get_by_role("button", name="Ask 2 models (Enter)")).to_be_visible()
    composer.press("Enter")
    columns = panel.locator(".svc-column")
    for each in (columns.nth(0), columns.nth(1)):
        expect(each).to_contain_text("word3")
        expect(each).not_to_contain_text("word59")
    expect(panel.get_by_role("button", name="Pick: A")).to_be_visible()
    html = "found => found.map(each => each.outerHTML).join()"
    drawn = panel.locator(".svc-turn").evaluate_all(html)
    drawn += notebook.shown(1).locator(".svc-static").evaluate_all(html)
    assert A not in drawn
    assert B not in drawn
    panel.get_by_role("button", name="Pick: B").click()
    expect(panel.locator(".svc-column", has_text=A)).to_have_count(1)
    name = columns.filter(has_text="Picked").locator(".svc-bar .svc-words").inner_text()
    notebook.run(2)

    expect(notebook.shown(2)).to_contain_text(f"winner: {name}")
    assert name in {A, B}


def test_a_panel_with_tools_says_which_and_does_not_compare(page: Page) -> None:
    """An empty panel names them, and its Compare button says why it is off."""
    why = "A panel with tools cannot compare."
    panel = PanelPage(page, view(tools=["weather", "pay"], compare={"refusal": why}))
    switch = panel.button("Compare replies side by side")

    expect(panel.root.locator(".svc-empty")).to_contain_text("Toolsweather, pay")
    expect(switch).to_have_attribute("title", why)
    expect(switch).to_have_attribute("aria-disabled", "true")
    switch.press("Enter")
    assert panel.sent == []
