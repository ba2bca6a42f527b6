"""Where things are in the panel, and what they are called: nothing moves or clashes."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.live_reply import ReplyRenderer
from svc_notebook.panels.widget import script
from tests.browser.conftest import Bench, Server
from tests.browser.panel_page import MODEL, UNTIDY, PanelPage, live, turn, view
from tests.browser.test_panel_compare import settings
from tests.browser.test_panel_conversations import LISTED


def test_the_panel_is_as_tall_as_what_it_shows(page: Page) -> None:
    """It grows with a reply up to a limit; what is used stays in sight meanwhile."""
    page.set_viewport_size({"width": 900, "height": 800})
    panel = PanelPage(page, view([turn(1)]))
    page.locator("main").evaluate("(main) => { main.style.paddingTop = '300px' }")
    panel.composer.fill("Question")
    panel.composer.press("Enter")
    panel.begin()
    heights = [_height(panel.root)]
    for n in range(24):
        panel.tell(t="delta", choice=0, html=f"<p>{f'word{n} ' * 60}</p>", tail="")
        heights.append(_height(panel.root))
        expect(panel.button("Stop (Esc)")).to_be_in_viewport(ratio=1)

    assert heights == sorted(heights)
    assert heights[0] < 450
    assert heights[-1] == heights[-2] < 800


@pytest.mark.parametrize("n_turns", [0, 1, 3, 20])
@pytest.mark.parametrize("width", [400, 525, 900])
def test_what_opens_in_the_panel_moves_nothing_below_it(
    page: Page, width: int, n_turns: int
) -> None:
    """Compare and the list take their room from the transcript."""
    page.set_viewport_size({"width": width, "height": 800})
    turns = [turn(n) for n in range(1, n_turns + 1)]
    panel = PanelPage(page, view(turns, compare=settings(by="", values=[])))
    heights = [_height(panel.root)]
    panel.show(turns=turns, compare=settings())
    heights.append(_height(panel.root))
    panel.button("Conversations").click()
    panel.tell(t="found", search="", rows=LISTED, n_more=0)
    heights.append(_height(panel.root))
    expect(panel.root.get_by_role("listitem").first).to_be_in_viewport()
    panel.button("Close the list").click()
    heights.append(_height(panel.root))
    panel.show(turns=turns, compare=settings(by="", values=[]))
    heights.append(_height(panel.root))

    assert heights == [heights[0]] * 5


def test_what_opens_at_the_windows_lower_edge_comes_into_sight(page: Page) -> None:
    """The settings and the list scroll as far as needed; what is in sight stays."""
    page.set_viewport_size({"width": 900, "height": 600})
    panel = PanelPage(page, view([turn(n) for n in range(1, 9)]))
    page.locator("main").evaluate("(main) => { main.style.padding = '800px 0' }")
    summary = panel.root.get_by_text("Settings", exact=True)
    summary.evaluate("(line) => line.scrollIntoView({ block: 'end' })")
    summary.click()
    expect(panel.root.locator(".svc-settings")).to_be_in_viewport(ratio=1)
    top = page.evaluate("scrollY")
    summary.click()
    summary.click()
    expect(panel.root.get_by_label("temperature")).to_be_in_viewport(ratio=1)
    assert page.evaluate("scrollY") == top
    summary.click()
    panel.button("Conversations").evaluate("(b) => b.scrollIntoView({ block: 'end' })")
    panel.button("Conversations").click()

    expect(panel.root.get_by_role("dialog")).to_be_in_viewport(ratio=1)


def test_the_badge_of_a_stale_turn_says_why(page: Page) -> None:
    """It names the button that answers the turn on what is above it now."""
    panel = PanelPage(page, view([turn(1), turn(2, is_stale=True, badges=["cut"])]))

    title = (
        "The turns above have changed since this was answered. Ask again sends them "
        "as they are now"
    )
    expect(panel.root.get_by_text("stale", exact=True)).to_have_attribute(
        "title", title
    )
    expect(panel.root.get_by_text("cut", exact=True)).not_to_have_attribute(
        "title", re.compile("")
    )
    expect(
        panel.turns.last.get_by_role("button", name="Ask again", exact=True)
    ).to_be_visible()


def test_nothing_jumps_while_the_arguments_of_a_call_are_edited(page: Page) -> None:
    """What the card needs more comes from the transcript; its buttons stay in sight."""
    page.set_viewport_size({"width": 525, "height": 800})
    text = json.dumps({f"name_{n}": n for n in range(2)}, indent=2)
    ask = {"id": "q", "name": "pay", "about": "Pay.", "arguments": text}
    turns = [turn(n) for n in range(1, 9)]
    panel = PanelPage(page, view(turns))
    page.locator("main").evaluate("(main) => { main.style.padding = '300px 0' }")
    panel.composer.focus()
    panel.begin("Words")
    panel.show(state="asking", can=["stop", "decide"], ask=ask)
    panel.root.get_by_text("Edit the arguments").click()
    area = panel.root.get_by_role("textbox", name="Arguments")
    area.click()
    approve = panel.button("Approve")
    # in the page, which the browser itself may scroll to the cursor
    place = "(button) => Math.round(button.getBoundingClientRect().top + scrollY)"
    before = approve.evaluate(place)
    for key in ("End", "Shift+Enter", "1", "2", "Backspace", "Backspace", "Backspace"):
        area.press(key)
        panel.tell(t="live", live=live("Words"))
        assert approve.evaluate(place) == before

    expect(approve).to_be_in_viewport(ratio=1)


def test_code_uses_the_width_and_text_does_not(page: Page) -> None:
    """Lines of text stay short enough to read, also in a list that has code."""
    page.set_viewport_size({"width": 1400, "height": 800})
    words, code = "word " * 100, "x = 1  # " + "y" * 200
    text = f"{words}\n\n```py\n{code}\n```\n\n1. {words}\n\n   ```py\n   {code}\n   ```"
    text += f"\n\n> {words}\n\n| a |\n|---|\n| {words} |"
    panel = PanelPage(page, view([turn(1, text)]))
    width = "(element) => element.getBoundingClientRect().width"

    for block in panel.log.locator("pre, table").all():
        assert block.evaluate(width) > 1200
    for paragraph in panel.log.locator(".svc-blocks p").all():
        assert 600 < paragraph.evaluate(width) < 750


def test_the_pencil_is_next_to_its_prompt(page: Page) -> None:
    """Not below the reply, which may be out of sight; a long prompt leaves it room."""
    for width in (900, 280):
        page.set_viewport_size({"width": width, "height": 800})
        prompts = ("Short?", "A prompt of many words. " * 20)
        turns = [turn(n, "word " * 300, prompt=text) for n, text in enumerate(prompts)]
        panel = PanelPage(page, view(turns))
        for shown in panel.turns.all():
            pencil = panel.button("Edit the prompt and ask again", shown).bounding_box()
            prompt = shown.locator(".svc-prompt").bounding_box()
            assert pencil
            assert prompt
            gap = pencil["x"] - prompt["x"] - prompt["width"]
            assert 0 <= gap < 10
            assert abs(pencil["y"] - prompt["y"]) < 10
            assert pencil["x"] + pencil["width"] <= width

    panel.button("Edit the prompt and ask again", panel.turns.last).click()
    expect(panel.root.get_by_role("textbox", name="Edit the prompt")).to_be_focused()
    expect(panel.turns.last.locator(".svc-prompt")).to_be_hidden()


def test_code_in_pieces_has_no_seam(page: Page) -> None:
    """While it is written the pieces touch; when it ends, one block replaces them."""
    page.set_viewport_size({"width": 900, "height": 800})
    panel = PanelPage(page, view([turn(1)]))
    panel.begin()
    renderer, n_lines = ReplyRenderer(), 430
    code = "```py\n" + "x = 'a line of code'\n" * n_lines
    for at in range(0, len(code), 300):
        renderer.feed(0, code[at : at + 300])
        panel.tell(**renderer.take(at)[0])
    boxes = [each.bounding_box() for each in panel.log.locator("pre").all()]
    bounds = [(box["y"], box["y"] + box["height"]) for box in boxes if box]
    assert len(bounds) > 2
    gaps = [top - end for (_, end), (top, _) in pairwise(bounds)]
    assert max(map(abs, gaps)) < 1
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/seam.png")
    renderer.feed(0, "```\n\nDone.")
    panel.tell(**renderer.take(0, is_last=True)[0])

    expect(panel.log.locator("pre")).to_have_count(1)
    expect(panel.log.locator("pre span").first).to_be_attached()
    assert panel.log.locator("pre").inner_text().count("line of code") == n_lines


def test_a_second_click_where_stop_was_deletes_nothing(page: Page) -> None:
    """There is no button of a turn; to delete one is in a menu."""
    panel = PanelPage(page, view([turn(1)]))
    panel.begin("\n\n".join(f"Paragraph {n}." for n in range(60)))
    box = panel.button("Stop (Esc)").bounding_box()
    assert box
    at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(*at)
    panel.show(state="idle", live=None, can=["send"], turns=[turn(1), turn(2)])
    page.mouse.click(*at)

    assert panel.sent == [{"t": "stop"}]


def test_the_menu_of_a_turn_closes(page: Page) -> None:
    """With Escape, a click elsewhere, or when what it belongs to is scrolled."""
    panel = PanelPage(page, view([turn(n, is_pinned=True) for n in range(1, 20)]))
    menu = panel.root.get_by_role("menu")
    for close in ("Escape", "click", "wheel"):
        panel.turns.last.hover()
        panel.button("More", panel.turns.last).click()
        pin = menu.get_by_role("menuitemcheckbox", name="Pin", checked=True)
        expect(pin).to_be_focused()
        if close == "Escape":
            page.keyboard.press("Escape")
        elif close == "click":
            panel.composer.click()
        else:
            panel.log.hover()
            page.mouse.wheel(0, -200)
        expect(menu).to_be_hidden()

    assert panel.sent == []


def test_two_panels_share_no_id(page: Page) -> None:
    """Each has its own script, as every widget in a notebook does; nor do two views."""
    shown = view([turn(1)])
    PanelPage(page, shown)
    page.evaluate(MODEL, [shown, script(), True])
    page.evaluate("() => open_view()")

    found = page.evaluate("() => [...document.querySelectorAll('[id]')].map(e => e.id)")
    ids = [each for each in found if each.startswith("svc-")]
    expect(page.locator(".svc-panel")).to_have_count(3)
    assert len(ids) > 10
    assert len(set(ids)) == len(ids)


def test_who_wrote_what_can_be_heard(page: Page) -> None:
    """A prompt is yours, a reply has its model's name, also while it is written."""
    panel = PanelPage(page, view([turn(1)]))
    panel.begin("Words", model="svc-v2-70b-instruct")

    names = [each.locator(".svc-who").all_inner_texts() for each in panel.turns.all()]
    assert names == [
        ["1 · You", "svc-v2-8b-instruct"],
        ["2 · You", "svc-v2-70b-instruct"],
    ]


def test_text_has_its_own_direction(page: Page) -> None:
    """Each block runs as its first letters do, also in prompts and drafts; not code."""
    reply = turn(1, "שלם *world*\n\nHello שלם\n\n```\nשלם\n```", prompt="مرحبا")
    panel = PanelPage(page, view([reply]))
    panel.composer.fill("שלם")
    way = "(element) => getComputedStyle(element).direction"

    blocks = panel.turns.locator(".svc-blocks p, .svc-blocks pre, .svc-prompt").all()
    assert [each.evaluate(way) for each in blocks] == ["rtl", "rtl", "ltr", "ltr"]
    assert panel.composer.evaluate(way) == "rtl"


def test_a_panel_in_the_side_area_can_be_read(page: Page) -> None:
    """It shows its name and all of its keys, and breaks no words of a button."""
    page.set_viewport_size({"width": 238, "height": 900})
    cut = "(element) => [element.scrollWidth - element.clientWidth,"
    cut += " element.scrollHeight - element.clientHeight]"
    empty = PanelPage(
        page, view(name="border cases", label="Conversation border cases")
    )
    keys = empty.root.get_by_text("attaches a value")
    assert keys.evaluate(cut) == [0, 0]
    name = empty.root.locator(".svc-label")
    expect(name).to_have_attribute("title", "Conversation border cases")
    assert name.evaluate(cut)[0] == 0

    restored = {"notice": "1 turn of border cases restored from the ledger."}
    panel = PanelPage(page, view([turn(1)], **restored, is_restored=True))
    assert _height(panel.button("Start empty")) < 40


def test_the_header_names_the_whole_model(page: Page) -> None:
    """The name of the conversation gives way first."""
    page.set_viewport_size({"width": 690, "height": 800})
    label = "Conversation of the whole winter on late orders"
    panel = PanelPage(page, view([turn(1)], name="orders", label=label))
    models = panel.root.locator(".svc-model select")
    whole = models.evaluate(
        """(select) => {
          const free = select.cloneNode(true);
          free.style.cssText = "position: absolute; max-width: none; width: auto";
          free.value = select.value;
          select.after(free);
          const px = free.offsetWidth;
          free.remove();
          return px;
        }"""
    )

    assert models.bounding_box()["width"] >= whole - 1  # type: ignore[index]


@pytest.mark.parametrize("width", [232, 250, 290])
def test_in_a_narrow_panel_the_icons_are_in_one_line(page: Page, width: int) -> None:
    """Also while models are compared, when no model is named in the header."""
    page.set_viewport_size({"width": width, "height": 800})
    panel = PanelPage(page, view([turn(1)], compare=settings()))
    icons = panel.root.locator(".svc-top .svc-icon:not(.svc-list)")
    tops = icons.evaluate_all("(all) => all.map((each) => each.offsetTop)")

    assert len(set(tops)) == 1


@pytest.mark.parametrize("width", [750, 640, 560, 400])
def test_the_words_below_the_message_cover_nothing(page: Page, width: int) -> None:
    """Also where a reply runs while a mark is typed."""
    page.set_viewport_size({"width": width, "height": 800})
    panel = PanelPage(page, view())
    panel.begin("A reply", asker="another panel")
    panel.composer.fill("{{a_name_of_20_letters}}")

    assert page.evaluate(UNTIDY) == []


def test_the_keys_in_the_message_box_are_one_line(page: Page) -> None:
    """In a narrow panel they are shortened beside the number of models."""
    page.set_viewport_size({"width": 320, "height": 900})
    panel = PanelPage(page, view([turn(1)], compare=settings()))
    panel.composer.focus()
    page.keyboard.press("Shift+Tab")
    expect(panel.root.get_by_placeholder("turns")).to_be_visible()
    expect(panel.root.get_by_text("2 models", exact=True)).to_be_visible()
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/keys-narrow.png")
    height = "({ clientHeight, scrollHeight }) => scrollHeight - clientHeight"

    assert panel.composer.evaluate(height) == 0


@pytest.mark.parametrize("width", [238, 380, 700])
def test_the_name_of_an_argument_breaks_only_if_it_is_very_long(
    page: Page, width: int
) -> None:
    """Long values wrap beside it; everything stays within the card."""
    page.set_viewport_size({"width": width, "height": 900})
    ask = {"id": "q", "name": "pay", "about": ""}
    panel = PanelPage(page, view(state="asking", can=["stop", "decide"]))
    names = panel.root.get_by_role("rowheader")
    for name, is_long in (("amount", False), ("x" * 90, True)):
        values = {name: 12, "note": "many words " * 9, "id": "y" * 90}
        panel.show(ask={**ask, "id": name, "arguments": json.dumps(values)})
        if folder := os.environ.get("LOOKS_FOLDER"):
            page.screenshot(path=f"{folder}/arguments-{width}-{name[0]}.png")
        box = names.first.evaluate(
            "({ firstChild }) => {"
            " const range = document.createRange(); range.selectNode(firstChild);"
            " return range.getClientRects().length }"
        )
        assert (box > 1) == is_long
        assert page.evaluate(UNTIDY) == []


WIDE = " + ".join(rf"\frac{{x_{{{n}}}}}{{{n}!}}" for n in range(2, 60))
WIDE_FORMULAS = f"""Here:

$${WIDE}$$

With $y$, **${WIDE}$** is a sum.

1. $${WIDE}$$

- tight **${WIDE}$**
- two
"""
HIGH_FORMULAS = r"""Two:

$$\text{Precision}=\frac{TP}{TP+FP}$$

$$F_1 = 2\cdot\frac{P\cdot R}{P+R}$$

$\dfrac{Q_j}{\sqrt{P}}$ in a line, **or $\dfrac{P}{Q_j}$**, and $$\frac{T}{F}$$ within.

| a | b |
|---|---|
| $\dfrac{P}{Q}$ | $$\frac{TP}{FP}$$ |

- $$\frac{TP}{TP+FP}$$
- item $\dfrac{P}{Q}$

1. loose

   $$\frac{TP}{FP}$$

> quoted $$\frac{TP}{FP}$$
"""
# how far a formula is drawn out of the boxes that cut it, at the top and the bottom
CUT = """(root) => [...root.querySelectorAll("p, ul, ol, span, mjx-container")].filter(
  (box) =>
  getComputedStyle(box).overflowY === "hidden" && box.querySelector("mjx-math")
).flatMap((box) => {
  const top = box.getBoundingClientRect().top;
  const parts = [...box.querySelectorAll("mjx-math *")].map((part) =>
    part.getBoundingClientRect()).filter(({ height }) => height);
  return [
    box.scrollHeight - box.clientHeight,
    top - Math.min(...parts.map((part) => part.top)),
    Math.max(...parts.map((part) => part.bottom)) - top - box.clientHeight,
  ];
})"""


APART = """(root) => {
  const [one, two] = root.querySelectorAll("mjx-container[display]");
  return two.getBoundingClientRect().top - one.getBoundingClientRect().top;
}"""


@contextmanager
def _typeset(
    browser: Browser, lab: Server, text: str, n_formulas: int
) -> Iterator[tuple[Locator, Locator]]:
    """Show a reply with formulas in a panel, and the same in a cell."""
    cell = "import svc_notebook as svc\npanel = svc.panel('plan')\npanel"
    with (
        Emulator(script=[{"text": text}] * 2, limits=False) as emulator,
        closing(Bench(browser, lab, emulator)) as bench,
    ):
        notebook = bench.open(bench.write("formulas", cell, "%%svc\nSum it"))
        notebook.run_all()
        panel = notebook.shown(1).locator(".svc-panel")
        panel.get_by_role("textbox", name="Message").fill("Sum it")
        panel.get_by_role("textbox", name="Message").press("Enter")
        expect(panel.locator("mjx-container")).to_have_count(n_formulas)
        expect(notebook.shown(2).locator("mjx-container")).to_have_count(n_formulas)
        yield panel, notebook.shown(2)


def test_a_wide_formula_scrolls_and_the_transcript_does_not(
    browser: Browser, lab: Server
) -> None:
    """What scrolls is the formula, its paragraph or its list."""
    with _typeset(browser, lab, WIDE_FORMULAS, n_formulas=5) as (panel, _):
        log = panel.get_by_role("log")
        n_scrolling = log.evaluate(
            """(log) => [...log.querySelectorAll(".svc-blocks *")].filter((box) =>
              getComputedStyle(box).overflowX === "auto" &&
              box.scrollWidth > box.clientWidth + 1).length"""
        )
        if folder := os.environ.get("LOOKS_FOLDER"):
            panel.screenshot(path=f"{folder}/wide-formulas.png")

        assert log.evaluate("(log) => log.scrollWidth <= log.clientWidth + 1")
        assert n_scrolling == 4
        # the arrows go to it
        assert log.locator("p:has(strong)").get_attribute("tabindex") == "-1"


def test_a_formula_is_drawn_whole(browser: Browser, lab: Server) -> None:
    """No box that may scroll cuts a numerator, at any width, nor in a cell.

    Formulas below each other are about as far apart as in a cell.
    """
    with _typeset(browser, lab, HIGH_FORMULAS, n_formulas=11) as (panel, cell):
        for width in (240, 400, 550, 760):
            panel.evaluate("(panel, px) => panel.style.width = `${px}px`", width)
            if folder := os.environ.get("LOOKS_FOLDER"):
                panel.screenshot(path=f"{folder}/high-formulas-{width}.png")
            cut_px: list[float] = panel.get_by_role("log").evaluate(CUT)

            assert len(cut_px) >= 3 * 7
            assert max(cut_px) <= 0.01, width
        assert max(cell.evaluate(CUT)) <= 0.01
        in_panel, in_cell = panel.evaluate(APART), cell.evaluate(APART)
        assert abs(in_panel - in_cell) < 12


def test_the_header_has_room_for_the_name(page: Page) -> None:
    """Where it has not, the word before the name goes first."""
    named = view(name="border cases", label="Conversation border cases")
    for width, text in ((1000, "Conversation border cases"), (590, "border cases")):
        page.set_viewport_size({"width": width, "height": 900})
        panel = PanelPage(page, named)
        name = panel.root.locator(".svc-label")
        assert name.inner_text() == text
        assert name.evaluate("(name) => name.scrollWidth === name.clientWidth")


BESIDE = """\
from ipywidgets import Output
out = Output()
with out: display(panel)
out"""
# What the sidecar package does: the output area is the view itself, with a row in it.
AS_SIDECAR = """(view) => {
  const area = view.firstElementChild;
  view.classList.remove("jp-LinkedOutputView");
  area.classList.add("jp-LinkedOutputView");
  Object.assign(area.style, { display: "flex", height: "100%" });
}"""


def test_the_log_fills_a_view_of_its_own(bench: Bench) -> None:
    """In an output view or a sidecar the panel is as high as it, at any height."""
    cell = "import svc_notebook as svc\npanel = svc.panel('plan')\npanel"
    notebook = bench.open(bench.write("views", cell, BESIDE))
    notebook.run_all()
    expect(notebook.shown(2).locator(".svc-panel")).to_be_visible()
    notebook.enter(1)
    notebook.command("notebook:create-output-view")
    view = notebook.page.locator(".jp-LinkedOutputView")
    composer = view.get_by_role("textbox", name="Message")
    expect(composer).to_be_visible()
    assert _height(view.locator("dt").nth(1)) < 30  # JupyterLab has a style for terms
    found = []
    for height in (1400, 700):
        notebook.page.set_viewport_size({"width": 1100, "height": height})
        if height == 700:
            view.evaluate(AS_SIDECAR)
            view.get_by_text("Settings", exact=True).click()
            composer.fill("line\n" * 30)
        expect(composer).to_be_in_viewport(ratio=1)
        found.append((_height(view), _height(view.locator(".svc-panel"))))
        found.append((_height(view) / 8, _height(view.get_by_role("log"))))

    assert [shown > 0.9 * needed for needed, shown in found] == [True] * 4, found
    assert [shown <= needed for needed, shown in found[::2]] == [True] * 2, found


def _height(element: Locator) -> float:
    box = element.bounding_box()
    assert box
    return box["height"]


JUMP_COVERS = """([log, jump]) => {
  const covered = [];
  const box = (each) => each.getBoundingClientRect();
  for (let top = 0; top < log.scrollHeight - log.clientHeight - 20; top += 7) {
    log.scrollTop = top;
    const a = box(jump);
    for (const each of log.querySelectorAll(".svc-foot button")) {
      const b = box(each);
      const isOver = a.left < b.right && b.left < a.right && a.top < b.bottom;
      if (isOver && b.top < a.bottom) covered.push(each.ariaLabel ?? each.textContent);
    }
  }
  return covered;
}"""


def test_the_line_below_a_reply_uses_the_width_of_a_narrow_panel(page: Page) -> None:
    """Only its last line leaves room for the buttons, which may be hidden."""
    page.set_viewport_size({"width": 400, "height": 800})
    footer = "svc-v2-8b-instruct · ~1,234 → ~567 tokens · $0.0012 · 2 requests · 12.3 s"
    panel = PanelPage(page, view([turn(n, footer=footer) for n in (1, 2)]))
    lines = """(words) => [...words.getClientRects()].map(({ right }) => right)"""

    for shown in panel.turns.all():
        ends = shown.locator(".svc-foot .svc-words").evaluate(lines)
        assert len(ends) == 2
        assert ends[0] > 340
        assert _height(shown.locator(".svc-foot")) < 52


def test_the_ring_around_the_message_is_whole(page: Page) -> None:
    """It is drawn within the box, since what is around it cuts off the rest."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.focus()
    box = panel.root.locator(".svc-composer")

    shadow = box.evaluate("(box) => getComputedStyle(box).boxShadow")
    body = panel.root.locator(".svc-body").bounding_box()
    ring = box.bounding_box()
    assert ring
    assert body
    assert "inset" in shadow
    assert ring["y"] + ring["height"] <= body["y"] + body["height"] + 0.5


@pytest.mark.parametrize("width", [300, 700])
def test_the_jump_to_the_end_covers_no_foot(page: Page, width: int) -> None:
    """Wherever the transcript is scrolled to, the buttons below replies are free."""
    page.set_viewport_size({"width": width, "height": 500})
    steps = ["again", "edit", "copy", "choose", "delete", "pin", "hide"]
    turns = [
        turn(n, "An answer\n\n" * 4, can=steps, version="1/2", next=2)
        for n in range(1, 9)
    ]
    panel = PanelPage(page, view(turns))
    panel.scroll_up()
    places = [panel.log.element_handle()]
    places.append(panel.button("Jump to the latest").element_handle())

    assert page.evaluate(JUMP_COVERS, places) == []


@pytest.mark.parametrize("is_edited", [False, True])
def test_what_is_asked_again_is_in_sight(page: Page, is_edited: bool) -> None:
    """The old reply may have been long: its place is that of later turns then."""
    page.set_viewport_size({"width": 700, "height": 500})
    texts = {2: "A line of it.\n\n" * 60}
    turns = [turn(n, texts.get(n, "An answer.\n\n" * 9)) for n in range(1, 7)]
    panel = PanelPage(page, view(turns))
    panel.scroll_up()
    asked = panel.turns.nth(1)
    asked.evaluate("(turn) => turn.scrollIntoView({ block: 'end' })")
    asked.hover()
    if is_edited:
        panel.button("Edit the prompt and ask again", asked).click()
        asked.get_by_role("textbox").fill("Shorter, please")
        asked.get_by_role("textbox").press("Enter")
    else:
        panel.button("Ask again", asked).click()
    panel.begin("It begins here.", turn="turn-2", prompt="Shorter, please")
    expect(asked.get_by_text("It begins here.")).to_be_in_viewport()
    panel.tell(t="delta", choice=0, html="<p>More.</p>" * 60, tail="", n_back=0)
    expect(asked.get_by_text("More.")).to_have_count(60)

    expect(asked.get_by_text("Shorter, please")).to_be_in_viewport()
    expect(asked.get_by_text("It begins here.")).to_be_in_viewport()


def test_a_notice_over_a_long_transcript_needs_no_scrollbar(page: Page) -> None:
    """Only the transcript shrinks, not the notices by a part of a pixel."""
    turns = [turn(number, "A line.\n\n" * 20) for number in range(1, 20)]
    panel = PanelPage(page, view(turns, notice="5 turns of plan restored."))
    notices = panel.root.locator(".svc-notices")
    expect(notices).to_be_visible()

    needed, height = notices.evaluate(
        "(each) => [each.scrollHeight, each.getBoundingClientRect().height]"
    )

    assert height >= needed > 0


def test_the_buttons_of_a_notice_stay_together(page: Page) -> None:
    """In one row below its text, where they do not fit next to it."""
    page.set_viewport_size({"width": 420, "height": 700})
    more = {"notice": "2 turns of plan restored. " * 3, "is_restored": True}
    panel = PanelPage(page, view([turn(1)], **more, cells={"temperature": 0.5}))
    names = ("Start empty", "Use the cell's", "Dismiss")
    boxes = [panel.button(name).bounding_box() for name in names]
    text = panel.root.locator(".svc-notice > span").bounding_box()

    assert text
    middles = {round(box["y"] + box["height"] / 2) for box in boxes if box}
    assert len(middles) == 1
    assert min(middles) > text["y"] + text["height"]
    assert text["width"] > 340


def test_a_notice_is_readable_in_a_narrow_panel(page: Page) -> None:
    """Its text has most of the width; a long button is below it."""
    page.set_viewport_size({"width": 300, "height": 700})
    notice = "12 turns of photosynthesis restored from the ledger."
    more = {"notice": notice, "is_restored": True, "can": ["send", "clear"]}
    panel = PanelPage(page, view([turn(1)], **more))
    text = panel.root.locator(".svc-notice span").first.bounding_box()
    button = panel.button("Start empty").bounding_box()

    assert text
    assert button
    assert text["width"] > 180
    assert button["y"] >= text["y"] + text["height"]


@pytest.mark.parametrize(("width", "is_wrapped"), [(300, True), (700, False)])
def test_code_wraps_in_a_narrow_panel(page: Page, width: int, is_wrapped: bool) -> None:
    """Nothing of it is out of sight there; a wide panel scrolls it, as a cell does."""
    page.set_viewport_size({"width": width, "height": 900})
    line = "monthly = sales.groupby(['month', 'drink'])['cups'].sum().unstack()" * 2
    panel = PanelPage(page, view([turn(1, f"```python\n{line}\n```")]))
    overflow_px = panel.turns.locator("pre").evaluate(
        "(pre) => pre.scrollWidth - pre.clientWidth"
    )

    assert (overflow_px == 0) == is_wrapped


@pytest.mark.parametrize("width", [266, 300, 700])
def test_the_jump_button_covers_nothing_of_the_transcript(
    page: Page, width: int
) -> None:
    """The transcript ends above it, and the panel is as high as without it."""
    page.set_viewport_size({"width": width, "height": 900})
    panel = PanelPage(page, view([turn(n, "A line.\n\n" * 9) for n in range(1, 5)]))
    height = "(element) => element.getBoundingClientRect().height"
    full_px = panel.root.evaluate(height)
    panel.scroll_up()
    jump = panel.button("Jump to the latest").bounding_box()
    log = panel.log.bounding_box()
    assert jump is not None
    assert log is not None

    assert log["y"] + log["height"] <= jump["y"]
    assert panel.root.evaluate(height) == full_px
    panel.button("Jump to the latest").click()
    expect(panel.button("Jump to the latest")).to_be_hidden()


LETTER = (
    "เรียนลูกค้าที่เคารพ เราได้ตรวจสอบแล้วว่าคำสั่งซื้อของท่านถูกส่งออกจากคลังสินค้าตั้งแต่วันจันทร์"
    "แต่บริษัทขนส่งแจ้งว่าพัสดุตกค้างอยู่ที่ศูนย์กระจายสินค้าเพราะน้ำท่วม "
)
# Notes the text of the reply and its paragraphs at every change.
WATCH = """(log) => {
  window.looks = [];
  const look = () => {
    const all = [...log.querySelectorAll(".svc-answer p")];
    window.looks.push([all.length, all.map((each) => each.textContent).join("\\n")]);
  };
  new MutationObserver(look).observe(log, {
    childList: true, characterData: true, subtree: true });
}"""


@pytest.mark.parametrize("letter", [LETTER * 4, "It is 😀. " * 60])
def test_a_paragraph_only_grows(page: Page, letter: str) -> None:
    """It is one from its first letter to its end, and what is selected stays so."""
    panel, renderer = PanelPage(page, view()), ReplyRenderer()
    panel.begin("")
    panel.log.evaluate(WATCH)
    for at in range(0, len(letter), 7):
        renderer.feed(0, letter[at : at + 7])
        panel.tell(**renderer.take(at, is_last=True)[0])
        if at == 7:
            first = panel.turns.last.locator(".svc-answer p")
            first.evaluate("(p) => getSelection().setBaseAndExtent(p, 0, p, 1)")
    chosen = page.evaluate("() => String(getSelection())")
    renderer.feed(0, "\n\n")
    panel.tell(**renderer.take(0, is_last=True)[0])

    looks = page.evaluate("() => looks")
    assert len(looks) > len(letter) / 7
    assert {n for n, _ in looks} == {1}
    assert all(text.startswith(before) for (_, before), (_, text) in pairwise(looks))
    assert looks[-1][1] == letter.rstrip()
    assert chosen.startswith(letter[:14])
