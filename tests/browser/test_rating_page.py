"""A rating's browser side, without a kernel: what it draws, its keys, what it sends."""

import os
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from svc_notebook.panels.widget import script, style
from tests.browser.panel_page import RICH, UNTIDY, axe_findings, indent_px, seen_as
from tests.browser.rating_page import KEEP, SIDES, YES_NO, RatingPage, card, view
from tests.browser.test_panel_page import HOSTILE

SUMMARY = (
    "<p>All 40 replies are rated.</p><table><thead><tr><th>rating</th><th>replies</th>"
    "</tr></thead><tbody><tr><td>1</td><td>12</td></tr></tbody></table>"
    "<pre>run.contrast('model', on='rated_good')</pre>"
)


def without_time(message: dict[str, Any]) -> dict[str, Any]:
    """Leave out the seconds of a rating."""
    return {name: message[name] for name in message if name != "seconds_s"}


def test_a_digit_rates_and_says_the_next(page: Page) -> None:
    """The key sends the place on the scale; a screen reader hears the next reply."""
    panel = RatingPage(page, view(card(1)))
    panel.stage.press("4")
    panel.show(card(2))

    assert [without_time(message) for message in panel.sent] == [
        {"t": "rate", "card": "card-1", "choice": 3, "text": ""}
    ]
    expect(panel.said).to_have_text("Reply 2 of 40. Reply **2**.")
    expect(panel.root).to_contain_text("1 of 40")
    expect(panel.stage).to_be_focused()


def test_a_key_rates_only_what_is_in_sight(page: Page) -> None:
    """Until the next card has come, further keys do nothing; nor does a held key."""
    panel = RatingPage(page, view(card(1)))
    panel.stage.press("4")
    panel.stage.press("5")
    panel.stage.press("s")
    panel.show(card(2))
    held = "new KeyboardEvent('keydown', {key: '4', repeat: true, bubbles: true})"
    panel.stage.evaluate(f"(stage) => stage.dispatchEvent({held})")
    panel.stage.press("s")

    assert [message["t"] for message in panel.sent] == ["rate", "skip"]


def test_a_pair_is_rated_with_arrows_or_letters(page: Page) -> None:
    """Left, right and tie; the arrows up and down scroll."""
    panel = RatingPage(page, view(card(1, "One", "Two"), scale=SIDES))
    expect(panel.root.get_by_role("group", name="Left")).to_contain_text("One")
    for number, key in enumerate(["ArrowLeft", "ArrowDown", "t", "ArrowRight", "L"]):
        panel.stage.press(key)
        panel.show(card(number + 2, "One", "Two"), scale=SIDES)

    chosen = [message["choice"] for message in panel.sent]
    assert chosen == [0, 1, 2, 0]


def test_the_next_card_is_in_sight(page: Page) -> None:
    """Its beginning too, where the page had scrolled on to the next cell."""
    panel = RatingPage(page, view(card(1)))
    panel.root.evaluate("(root) => { root.style.marginBottom = '2000px' }")
    panel.stage.evaluate("(stage) => stage.focus({ preventScroll: true })")
    page.evaluate("() => scrollTo(0, 90)")
    expect(panel.root.locator(".svc-top")).not_to_be_in_viewport()
    page.keyboard.press("4")
    panel.show(card(2))

    expect(panel.root.locator(".svc-top")).to_be_in_viewport(ratio=1)
    page.evaluate("() => scrollTo(0, 1000)")
    panel.show(None, summary=SUMMARY, n_done=40)
    expect(panel.root.locator(".svc-summary")).to_be_in_viewport()


def test_keys_of_a_thai_keyboard_rate(page: Page) -> None:
    """A key counts as what is printed on it in Latin letters and digits."""
    panel = RatingPage(page, view(card(1)))
    for key, code in (("ภ", "Digit4"), ("ห", "KeyS")):
        init = f"{{key: '{key}', code: '{code}', bubbles: true}}"
        panel.stage.evaluate(
            f"(stage) => stage.dispatchEvent(new KeyboardEvent('keydown', {init}))"
        )
        panel.show(card(2))

    assert [message["t"] for message in panel.sent] == ["rate", "skip"]
    assert panel.sent[0]["choice"] == 3


def test_keys_in_the_note_are_text(page: Page) -> None:
    """They rate, skip and undo nothing; Enter keeps the note, and the rating has it."""
    panel = RatingPage(page, view(card(1)))
    panel.stage.press("n")
    expect(panel.note).to_be_focused()
    page.keyboard.type("1 is unsure")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("yes")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(panel.stage).to_be_focused()
    page.keyboard.press("2")

    text = "1 is unsure\nyes"
    assert [without_time(message) for message in panel.sent] == [
        {"t": "note", "card": "card-1", "text": text},
        {"t": "rate", "card": "card-1", "choice": 1, "text": text},
    ]
    panel.show(card(2))
    expect(panel.note).to_be_hidden()


def test_keys_of_the_browser_are_left_alone(page: Page) -> None:
    """Ctrl+1 and the like rate nothing, and neither do keys outside of the panel."""
    panel = RatingPage(page, view(card(1)))
    for key in ("Control+1", "Alt+2", "Meta+3", "Tab"):
        panel.stage.press(key)
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("4")

    assert panel.sent == []


def test_what_is_answered_is_in_sight_once(page: Page) -> None:
    """P shows the prompt instead of what fills it; the next card does the same."""
    others = [{"name": "language", "html": "<pre>th</pre>"}]
    panel = RatingPage(page, view(card(1, others=others)))
    filled = panel.root.get_by_text("Row 1", exact=True)
    prompt = panel.root.get_by_text("Explain Row")
    expect(filled).to_be_visible()
    expect(prompt).to_be_hidden()
    panel.stage.press("p")
    expect(prompt).to_be_visible()
    expect(filled).to_be_hidden()
    panel.show(card(2, others=others))
    expect(prompt).to_have_text("Explain Row 2")

    expect(prompt).to_be_visible()
    expect(panel.root.get_by_text("language")).to_be_visible()


def test_keys_work_after_the_focus_is_folded_away(page: Page) -> None:
    """A button that copies a text is hidden with it; the reply has the focus then."""
    panel = RatingPage(page, view(card(1)))
    panel.stage.focus()
    page.keyboard.press("Shift+Tab")
    expect(panel.root.locator(".svc-asked button:focus")).to_be_visible()
    page.keyboard.press("p")
    expect(panel.stage).to_be_focused()
    page.keyboard.press("4")

    assert [message["choice"] for message in panel.sent] == [3]


def test_a_short_prompt_is_open_until_it_is_folded(page: Page) -> None:
    """The kernel says which is short; once folded by hand, it stays folded."""
    panel = RatingPage(page, view(card(1, is_open=True)))
    prompt = panel.root.get_by_text("Explain Row")
    expect(prompt).to_be_visible()
    panel.show(card(2))
    expect(prompt).to_be_hidden()
    panel.show(card(3, is_open=True))
    expect(prompt).to_be_visible()
    panel.root.get_by_text("Prompt", exact=True).click()
    panel.show(card(4, is_open=True))

    expect(prompt).to_be_hidden()
    expect(panel.root.get_by_text("Row 4", exact=True)).to_be_visible()


@pytest.mark.parametrize("width", [600, 900])
def test_a_long_letter_leaves_the_reply_and_the_buttons_in_sight(
    page: Page, width: int
) -> None:
    """Both scroll, each from its beginning at the next card."""
    page.set_viewport_size({"width": width, "height": 900})
    long = f"<pre>{'My almonds were eaten on the ninth floor. ' * 200}</pre>"
    filled = [{"name": "letter", "html": long}]
    panel = RatingPage(page, view(card(1, LONG, filled=filled)))
    asked = panel.root.locator(".svc-asked")
    asked.evaluate("(asked) => asked.scrollTo(0, 500)")
    panel.show(card(2, LONG, filled=filled))

    expect(panel.root.get_by_text("letter")).to_be_in_viewport()
    lab_px = 130  # of JupyterLab's menu, tabs and tools
    root, stage = panel.root.bounding_box(), panel.stage.bounding_box()
    assert root is not None
    assert stage is not None
    assert root["height"] < 900 - lab_px
    assert stage["height"] > 200


# Words of a text that go on in another line.
BROKEN = r"""(pre) => {
  const text = pre.firstChild;
  const top = (at) => {
    const range = document.createRange();
    range.setStart(text, at);
    range.setEnd(text, at + 1);
    return range.getBoundingClientRect().top;
  };
  return [...text.data.matchAll(/\S+/g)].map((word) => [word[0], word.index])
    .filter(([word, at]) => top(at) !== top(at + word.length - 1))
    .map(([word]) => word);
}"""


@pytest.mark.parametrize("width", [320, 600, 900])
def test_a_prompt_breaks_at_blanks(page: Page, width: int) -> None:
    """Although JupyterLab breaks its outputs anywhere; only an address is broken."""
    page.set_viewport_size({"width": width, "height": 900})
    address = "https://example.org/" + "almonds" * 30
    text = "On the ninth floor your staff ate my grandmother's almonds. " * 9 + address
    prompts = [{"name": "Prompt", "html": f"<pre>{text}</pre>"}]
    panel = RatingPage(page, view(card(1, prompts=prompts, is_open=True)))
    page.add_style_tag(content="main pre { word-break: break-all }")

    pre = panel.root.locator(".svc-asked details pre")
    assert pre.evaluate(BROKEN) == [address]


def test_undo_shows_the_rating_that_was_taken_back(page: Page) -> None:
    """The card is there again, with its note, and the old value is marked."""
    panel = RatingPage(page, view(card(2)))
    panel.stage.press("u")
    panel.show(card(1, chosen=3, note="unsure"))

    assert panel.sent == [{"t": "undo"}]
    expect(panel.button("4")).to_have_attribute("aria-pressed", "true")
    expect(panel.note).to_have_value("unsure")


def test_seconds_leave_out_a_hidden_page(page: Page) -> None:
    """The time counts from when a card is shown, while the page is in sight."""
    panel = RatingPage(page, view(card(1)))
    page.evaluate(
        """() => {
          window.now_ms = 0;
          window.isHidden = false;
          performance.now = () => window.now_ms;
          Object.defineProperty(document, "hidden", { get: () => window.isHidden });
          window.look = (isHidden, now_ms) => {
            window.now_ms = now_ms;
            window.isHidden = isHidden;
            document.dispatchEvent(new Event("visibilitychange"));
          };
        }"""
    )
    panel.show(card(2))
    page.evaluate("() => look(true, 4000)")
    page.evaluate("() => look(false, 900000)")
    page.evaluate("() => { window.now_ms = 902000 }")
    panel.stage.press("1")

    assert panel.sent[-1]["seconds_s"] == 6


NOTES: dict[str, Any] = {"has_notes": True, "scale": [KEEP]}


def test_notes_first(page: Page) -> None:
    """Where notes are wanted, the note has the focus at each card; Enter goes on."""
    panel = RatingPage(page, view(card(1), **NOTES))
    panel.stage.focus()
    panel.show(card(2), **NOTES)
    expect(panel.note).to_be_focused()
    page.keyboard.type("too long")
    page.keyboard.press("Enter")
    panel.show(card(3), **NOTES)
    expect(panel.note).to_be_focused()
    expect(panel.note).to_have_value("")
    page.keyboard.press("Escape")
    page.keyboard.press("s")

    assert [without_time(message) for message in panel.sent] == [
        {"t": "rate", "card": "card-2", "choice": 0, "text": "too long"},
        {"t": "skip", "card": "card-3"},
    ]


def test_n_is_no_where_that_can_be_said(page: Page) -> None:
    """The note has another key then, which the line of keys and the button show."""
    panel = RatingPage(page, view(card(1), scale=YES_NO))
    expect(panel.root).to_contain_text("c\xa0note")
    expect(panel.button("c Note")).to_be_visible()
    panel.stage.press("c")
    expect(panel.note).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("n")

    assert [message["choice"] for message in panel.sent] == [1]


def test_the_end_says_what_is_next(page: Page) -> None:
    """The controls give way to a summary, which has the focus then."""
    panel = RatingPage(page, view(card(40)))
    panel.stage.press("1")
    panel.show(None, summary=SUMMARY, n_done=40)

    expect(panel.stage).to_be_hidden()
    expect(panel.button("4")).to_be_hidden()
    expect(panel.root.locator(".svc-summary")).to_be_focused()
    expect(panel.said).to_have_text("Rate good: done")
    page.keyboard.press("u")
    assert panel.sent[-1] == {"t": "undo"}


def test_a_kernel_that_ended_is_said(page: Page) -> None:
    """Keys do nothing then; the reply stays in sight."""
    panel = RatingPage(page, view(card(1)))
    page.evaluate("() => restart()")
    panel.stage.press("1")

    expect(panel.root).to_contain_text(
        "The kernel was restarted or shut down; run the cell again."
    )
    assert indent_px(panel.root.locator(".svc-notice")) < 20
    expect(panel.button("4")).to_be_disabled()
    expect(panel.stage).to_contain_text("Reply 1.")
    assert panel.sent == []


def test_a_refusal_lets_one_rate_again(page: Page) -> None:
    """What the kernel could not keep is said, and the card stays."""
    panel = RatingPage(page, view(card(1)))
    panel.stage.press("1")
    notice = "The ledger is locked."
    panel.show(card(1), notice=notice, is_problem=True)
    expect(panel.root).to_contain_text(notice)
    panel.stage.press("2")

    assert [message["choice"] for message in panel.sent] == [0, 1]


def test_two_views_follow_each_other(page: Page) -> None:
    """Each shows the card that is next, whichever of them rated."""
    panel = RatingPage(page, view(card(1)))
    page.evaluate("() => open_view()")
    stages = page.locator(".svc-stage")
    stages.nth(1).press("2")
    panel.show(card(2))

    expect(stages).to_contain_text(["Reply 2.", "Reply 2."])
    assert len(panel.sent) == 1


def test_a_hostile_reply_is_inert(page: Page) -> None:
    """Whatever comes as HTML, in a reply or its prompt, nothing runs or loads."""
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    reply = {"html": HOSTILE, "spoken": HOSTILE, "label": ""}
    parts = [{"name": "<b>text</b>", "html": HOSTILE}]
    shown = card(1, replies=[reply], filled=parts, prompts=parts)
    panel = RatingPage(page, view(shown))
    panel.stage.press("p")

    inside = panel.root.locator(".svc-blocks")
    for name in ("script", "img", "iframe", "form", "input", "style", "link", "svg a"):
        assert inside.locator(name).count() == 0, name
    assert inside.locator("[onclick], [onerror], [onload], [style], [id]").count() == 0
    assert inside.locator("a[href]").count() == 0
    assert page.evaluate("() => window.ran ?? null") is None
    assert [url for url in requested if "/x-" in url] == []


def test_the_scripts_of_a_rating_are_its_own() -> None:
    """They have nothing of the chat, which is three times as long, nor the reverse."""
    rating, chat = script("rating"), script()

    assert "class Composer" not in rating
    assert "class RatingCard" not in chat
    assert ".svc-composer" not in style("rating")
    assert ".svc-stage" not in style()
    assert len(rating) < 36_000


LONG = RICH + "\n\n".join(f"Paragraph {n}: {'some words ' * 20}" for n in range(9))
STATES: dict[str, dict[str, Any]] = {
    "reply": view(card(13, RICH), n_skipped=2),
    "notes": view(card(13, LONG), **NOTES),
    "yes": view(card(13, LONG), scale=YES_NO),
    "pair": view(card(13, RICH, LONG), scale=SIDES, title="Rate pairs"),
    "open": view(
        card(
            13,
            RICH,
            replies=[
                {"html": "<p>One</p>", "spoken": "One", "label": "svc-v2-8b-instruct"},
                {"html": "<p>Two</p>", "spoken": "Two", "label": "svc-v2-70b-instruct"},
            ],
            chosen=1,
            note="Two is shorter, and says when.",
        ),
        scale=SIDES,
        about="anna",
    ),
    "labels": view(
        card(3),
        scale=[
            {"key": str(n + 1), "label": label}
            for n, label in enumerate(
                ["helps", "helps in part", "refuses", "invents facts", "off topic"]
            )
        ],
        notice="The ledger is locked by another program.",
        is_problem=True,
    ),
    "end": view(None, summary=SUMMARY, n_done=40),
}


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 320),
        ("light", 800),
        ("dark", 480),
        ("dark-high-contrast", 800),
        ("forced", 800),
        ("none", 800),
        ("none-dark", 800),
        ("Light Modern", 800),
        ("Dark High Contrast", 800),
    ],
)
def test_axe_finds_nothing_in_any_state(page: Page, theme: str, width: int) -> None:
    """Nothing overlaps, overflows or is cut off; axe has no complaint at all."""
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    with seen_as(page, theme, width) as seen:
        for name, shown in STATES.items():
            panel = RatingPage(page, shown, theme=seen)
            if name in {"reply", "open"}:
                panel.stage.press("p")
            if folder := os.environ.get("LOOKS_FOLDER"):
                page.screenshot(path=f"{folder}/rating-{name}-{theme}-{width}.png")
            assert axe_findings(page, axe, ".svc-rating", is_strict=True) == [], name
            assert page.evaluate(UNTIDY) == [], name
            widest = "() => document.documentElement.scrollWidth - innerWidth"
            assert page.evaluate(widest) <= 0, name
