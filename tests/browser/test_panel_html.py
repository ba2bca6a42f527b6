"""HTML in the panel: rebuilt from allowed parts, whatever came."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.panel_page import PanelPage, turn, view

ODD = """<p>Before <x-thing onload="window.ran=1">in a tag nobody knows</x-thing></p>
<dialog open>in a dialog</dialog><marquee onstart="window.ran=1">that moves</marquee>
<svg><a href="https://example.org">drawn</a><text>words</text></svg>
<math><a href="https://example.org">formula</a></math>
<script>window.ran = "never shown"</script><style>p { color: red }</style>
<textarea>never shown</textarea><button>never shown</button><p>After</p>"""
LEADS_NOWHERE = [
    "javascript:window.ran=1",
    "JavaScript:window.ran=1//https://example.org",
    "x:https://example.org",
    "data:text/html,<script>parent.ran=1</script>",
    "vbscript:x",
    "blob:https://example.org/x",
    "file:///etc/passwd",
    "//example.org",
    "/api/kernels",
    "tree?token=x",
    "https:///example.org",
    "https:\\\\example.org",
]


def shown(page: Page, html: str) -> PanelPage:
    """Open a panel with one reply of this HTML."""
    reply = turn(1, choices=[{"html": html, "text": ""}])
    return PanelPage(page, view([reply]))


def test_only_allowed_elements_are_built(page: Page) -> None:
    """Unknown elements leave their text, foreign and active ones nothing."""
    panel = shown(page, ODD)

    inside = panel.root.locator(".svc-blocks").first
    names = inside.evaluate(
        "(at) => [...at.querySelectorAll('*')].map((each) => each.localName)"
    )
    assert set(names) == {"div", "p"}
    expect(inside).to_have_text(
        "Before in a tag nobody knowsin a dialogthat movesAfter"
    )


@pytest.mark.parametrize("href", LEADS_NOWHERE)
def test_a_link_to_elsewhere_is_text(page: Page, href: str) -> None:
    """Only whole addresses of the web, mail and places in the page are led to."""
    quoted = href.replace("<", "&lt;")

    panel = shown(page, f'<p><a href="{quoted}">words</a></p>')

    link = panel.root.locator(".svc-blocks a")
    assert link.evaluate("(a) => a.attributes.length") == 0
    expect(link).to_have_text("words")


@pytest.mark.parametrize(
    ("href", "target"),
    [("https://example.org/a?b#c", "_blank"), ("mailto:a@b.c", "_blank"), ("#a", None)],
)
def test_a_link_sends_no_referrer(page: Page, href: str, target: str | None) -> None:
    """It opens beside the notebook, which the other page neither knows nor reaches."""
    panel = shown(page, f'<p><a href="{href}" target="_top" ping="/x">words</a></p>')

    link = panel.root.locator(".svc-blocks a")
    found = link.evaluate(
        "(a) => Object.fromEntries([...a.attributes].map((at) => [at.name, at.value]))"
    )
    expected = {"href": href, "rel": "noopener noreferrer", "tabindex": "-1"}
    beside = {} if target is None else {"target": target}
    assert found == expected | beside


def test_layout_that_replies_need_is_kept(page: Page) -> None:
    """A list's first number, the sides of columns, colours of code; nothing else."""
    html = (
        '<ol start="7"><li>seven</li></ol><ol start="x1"><li>one</li></ol>'
        '<table><tr><td style="text-align:right;position:fixed" class="jp-Cell">1</td>'
        '</tr></table><p><span class="k svc-panel">def</span></p>'
    )

    panel = shown(page, html)

    inside = panel.root.locator(".svc-blocks")
    expect(inside.locator("ol").first).to_have_attribute("start", "7")
    assert inside.locator("ol").last.get_attribute("start") is None
    assert inside.locator("td").get_attribute("class") == "svc-right"
    assert inside.locator("td").get_attribute("style") is None
    assert inside.locator("span").get_attribute("class") == "k"


def test_math_is_given_to_the_host_once(page: Page) -> None:
    """Finished blocks with math are typeset; a host that fails leaves the source."""
    panel = PanelPage(page, view())
    page.evaluate(
        """() => { window.typeset = []; saved().widget_manager = { rendermime: {
            latexTypesetter: { typeset: (block) => {
              typeset.push(block.textContent);
              throw new Error("no such macro");
            } } } } }"""
    )
    panel.begin()
    panel.tell(t="delta", choice=0, html="<p>$a^2$</p><p>words</p>", tail="<p>$b$</p>")
    align = "\\begin{align}d\\end{align}"
    html = f"<p>\\[c\\]</p><p>{align}</p>"
    panel.tell(t="delta", choice=0, html=html, tail="")

    expect(panel.turns.locator("p")).to_have_text(["$a^2$", "words", "\\[c\\]", align])
    assert page.evaluate("() => typeset") == ["$a^2$", "\\[c\\]", align]


def test_a_failed_call_says_so(page: Page) -> None:
    """In words, not by its colour alone."""
    line = "weather() → Error: no such city"
    call = {"name": "weather", "line": line, "html": "<pre></pre>", "is_error": True}

    panel = PanelPage(page, view([turn(1, tool_runs=[call])]))

    panel.root.locator(".svc-tool-runs summary").click()
    expect(panel.root.locator(".svc-call")).to_contain_text("Error: no such city")
