"""The panel's browser side on a page without Jupyter, with the kernel's part played.

A test says what the kernel would say, which is quicker than a notebook.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from svc_notebook.display.markdown import to_html
from svc_notebook.panels.widget import script, style
from tests.browser.hosts import THEMES as HOST_THEMES
from tests.browser.hosts import page_html
from tests.panels.protocol import of_kind

THEMES = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab")
SETTINGS = ("model", "system", "temperature", "stop")
PAGE = """<!doctype html><html lang="en"><head><title>A panel</title>
<style>{theme}</style><style>{css}</style></head>
<body data-jp-theme-light="{is_light}" style="background:var(--jp-layout-color0)">
<main id="at"></main></body></html>"""
RICH = """Some **bold** text, `code` and a [link](https://example.org).

```python
def f(x: int) -> str:  # says x
    return "x" * 10
```

| a | b |
|:--|--:|
| 1 | 2 |

> A quote.
"""
# What anywidget gives to `initialize` and `render`, as far as it is used.
MODEL = """
async ([view, js, isHeard]) => {
  const callbacks = {};
  const fire = (name, value) => (callbacks[name] ?? []).forEach((call) => call(value));
  const answer = (message) => {
    if (message.t === "hello") fire("msg:custom", { t: "ack", subshell: isHeard });
  };
  const model = {
    view,
    get: (name) => model[name],
    set: (name, value) => (model[name] = value),
    on: (name, call) => (callbacks[name] ??= []).push(call),
    send: (message) => {
      if (window.isGone) throw new Error("Cannot send");
      window.sent.push(message);
      answer(message);
    },
  };
  window.sent = [];
  window.saved = () => model;
  window.tell = (message) => fire("msg:custom", message);
  window.show = (changed) => {
    const { n_turns: now } = model.view;
    model.view = { turns: [], n_turns: changed.turns?.length ?? now, ...changed };
    fire("change:view");
  };
  window.restart = () => {
    window.isGone = true;
    fire("comm_live_update");
  };
  const source = URL.createObjectURL(new Blob([js], { type: "text/javascript" }));
  const widget = (await import(source)).default();
  await widget.initialize({ model });
  window.open_view = async () => {
    const el = document.createElement("div");
    document.getElementById("at").append(el);
    return widget.render({ model, el });
  };
  window.close_view = await window.open_view();
}
"""

# What overlaps, is cut off without a title that says it, or stands out of the panel.
UNTIDY = """() => {
  const panel = document.querySelector(".svc-panel, .svc-rating");
  const all = [...panel.querySelectorAll("*")].filter((each) =>
    each.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })
    && !each.closest("svg, option, .svc-unseen"));
  const box = (each) => each.getBoundingClientRect();
  const name = ({ localName, className, textContent }) =>
    `${localName}.${className} ${textContent}`.slice(0, 60);
  const isOut = (each) => {
    const popover = each.closest("[popover]");
    const { left, right } = popover ? { left: 0, right: innerWidth } : box(panel);
    const isScrolled = each.closest("pre, .svc-blocks :has(> table)");
    return !isScrolled && (box(each).left < left - 1 || box(each).right > right + 1);
  };
  const isCut = (each) => {
    const { overflowX, overflowY } = getComputedStyle(each);
    const isWide = overflowX === "hidden" && each.scrollWidth > each.clientWidth + 1;
    const isHigh = overflowY === "hidden" && each.scrollHeight > each.clientHeight + 2;
    return !each.title && (isWide || isHigh);
  };
  const layer = (each) =>
    each.closest(".svc-log, .svc-card, .svc-notices, ul, [popover]");
  const parts = all.filter((each) => each.matches(
    "button, input, select, textarea, summary, small, .svc-words, .svc-under > *,"
    + ".svc-label, .svc-meter, .svc-budget, .svc-badge, .svc-card, .svc-notice,"
    + ".svc-log"));
  const isOver = (one, other) => {
    const isWithin = one.contains(other) || other.contains(one);
    if (isWithin || layer(one) !== layer(other)) return false;
    const isMet = (a, b) =>
      Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5;
    const lines = [...other.getClientRects()];
    return [...one.getClientRects()].some((a) => lines.some((b) => isMet(a, b)));
  };
  const over = parts.flatMap((one, at) => parts.slice(at + 1)
    .filter((other) => isOver(one, other))
    .map((other) => `${name(one)} overlaps ${name(other)}`));
  const [log] = panel.getElementsByClassName("svc-log");
  const isFlat = log?.checkVisibility() && box(log).height < 100;
  return [
    ...over,
    ...all.filter(isOut).map((each) => `${name(each)} stands out`),
    ...all.filter(isCut).map((each) => `${name(each)} is cut off`),
    ...(isFlat ? ["the transcript has no room"] : []),
  ];
}"""


# Text with less contrast than people can read (WCAG 1.4.3), as a browser mixes its
# colours: axe cannot judge colours made by color-mix, and passes them.
FAINT = """(at) => {
  const UNREAD = ":disabled, [aria-disabled=true], option, script, style, .svc-unseen";
  const canvas = new OffscreenCanvas(1, 1).getContext("2d");
  const light = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const [colour, alpha] of colours) {
      canvas.globalAlpha = alpha;
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((byte) =>
      byte <= 10 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const found = new Set();
  const root = document.querySelector(at);
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim();
    const element = texts.currentNode.parentElement;
    const isShown = element.checkVisibility({ opacityProperty: true });
    const isExempt = element.closest(UNREAD);
    if (!text || !isShown || isExempt) continue;
    const grounds = [];
    let alpha = 1;
    for (let box = element; box; box = box.parentElement) {
      const { backgroundColor, opacity } = getComputedStyle(box);
      grounds.unshift([backgroundColor, 1]);
      alpha *= opacity;
    }
    const page = ["white", 1];
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const ground = light([page, ...grounds]);
    const ink = light([page, ...grounds, [color, alpha]]);
    const ratio = Math.max(ground, ink) / Math.min(ground, ink);
    const size = parseFloat(fontSize);
    const isLarge = size >= 24 || (size >= 18.6 && fontWeight >= 700);
    if (ratio < (isLarge ? 3 : 4.5))
      found.add(`${text.slice(0, 60)}: ${ratio.toFixed(2)}, ${color}`);
  }
  return [...found];
}"""


def choice(markdown: str) -> dict[str, str]:
    """Draw a reply's text."""
    return {"html": to_html(markdown), "text": markdown}


def turn(number: int, *texts: str, **more: object) -> dict[str, Any]:
    """Describe a turn whose reply has ended."""
    return {
        "id": f"turn-{number}",
        "number": number,
        "prompt": f"Question {number}",
        "whole": "",
        "attached": [],
        "choices": [choice(text) for text in texts or (f"Answer **{number}**.",)],
        "picked": 0,
        "model": "svc-v2-8b-instruct",
        "ended": "Interrupted",
        "footer": "12 → 40 tokens · 1.2 s",
        "badges": [],
        "tool_runs": [],
        "version": "",
        "previous": 0,
        "next": 0,
        "n_versions": 1,
        "is_pinned": False,
        "is_hidden": False,
        "is_stale": False,
        "can": ["regenerate", "edit", "delete", "pin", "hide", "pick"],
        **more,
    }


def field(name: str, kind: str = "number", **more: object) -> dict[str, Any]:
    """Describe a setting."""
    return {"name": name, "kind": kind, "label": name, "help": "what it does", **more}


def view(turns: Sequence[dict[str, Any]] = (), **more: object) -> dict[str, Any]:
    """Describe an idle panel."""
    models = ["svc-v2-8b-instruct", "svc-v2-70b-instruct"]
    return {
        "panel_id": "svc-panel-1",
        "name": "plan",
        "label": "Conversation plan",
        "state": "idle",
        "main_writes": 0,
        "turns": list(turns),
        "n_turns": len(turns),
        "n_older": 0,
        "live": None,
        "can": ["send", "undo", "redo", "clear", "set", "enter"],
        "meter": {
            "used_tokens": 512,
            "budget_tokens": 8192,
            "text": "about 512 of 8,192 tokens (estimated)",
        },
        "notice": "",
        "is_restored": False,
        "settings": {"model": models[0], "system": "", "temperature": None},
        "fields": [
            field("model", "choice", options=models, default=models[0]),
            field("system", "longtext", default=""),
            field("temperature", minimum=0, maximum=2, step=0.1, default="0.7"),
            field("max_tokens", "integer", options=["fit", "service"], default="fit"),
        ],
        "send_on_enter": True,
        "ask": None,
        **more,
    }


def live(*texts: str, turn: str = "new", **more: object) -> dict[str, Any]:
    """Describe a live reply; the texts are finished blocks."""
    choices = [{"html": to_html(text), "tail": ""} for text in texts]
    begun = {
        "turn": turn,
        "asker": "",
        "prompt": "New question",
        "whole": "",
        "attached": [],
        "model": "svc-v2-8b-instruct",
        "choices": choices,
        "tool_runs": [],
    }
    return {**begun, "status": "", **more}


def open_widget(
    page: Page,
    shown: dict[str, Any],
    kind: str = "chat",
    *,
    theme: str = "light",
    is_heard: bool = True,
) -> None:
    """Show a panel of a kind on a page; see `PanelPage`."""
    colours = ":root{color-scheme:light dark}"
    if theme not in {"none", *HOST_THEMES}:
        colours = (THEMES / f"theme-{theme}-extension" / "index.css").read_text()
    page.goto("about:blank")
    is_light = "false" if theme.startswith("dark") else "true"
    if theme in HOST_THEMES:
        html = page_html(theme=theme, css=style(kind))
    else:
        html = PAGE.format(theme=colours, css=style(kind), is_light=is_light)
    page.set_content(html)
    page.evaluate(MODEL, [shown, script(kind), is_heard])


@contextmanager
def seen_as(page: Page, theme: str, width: int) -> Iterator[str]:
    """Give a page a width and a browser's colours, and return the notebook's theme.

    `forced` are colours that a reader forces on all pages; with `none-dark` a page
    without a notebook's variables is in the dark.
    """
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(
        forced_colors="active" if theme == "forced" else "none",
        color_scheme="dark" if theme == "none-dark" else "light",
    )
    yield {"forced": "light", "none-dark": "none"}.get(theme, theme)
    page.emulate_media(forced_colors="none", color_scheme="light")


def indent_px(notice: Locator) -> float:
    """Return how far from the left edge of a notice its text begins."""
    distance: float = notice.evaluate(
        """(notice) => {
          const words = document.createRange();
          words.selectNodeContents(notice);
          return words.getClientRects()[0].left - notice.getBoundingClientRect().left;
        }"""
    )
    return distance


class PanelPage:
    """A page with one panel.

    Args:
        page: An empty page.
        shown: What the panel shows at first.
        theme: The notebook's colours, or VS Code's or Colab's; `none` is a host
            without such variables, in the colours that the browser prefers.
        is_heard: Whether the kernel hears the panel while a cell runs.
    """

    def __init__(
        self,
        page: Page,
        shown: dict[str, Any],
        *,
        theme: str = "light",
        is_heard: bool = True,
    ) -> None:
        self.page = page
        open_widget(page, shown, theme=theme, is_heard=is_heard)
        self.root = page.locator(".svc-panel").first
        self.log = self.root.get_by_role("log")
        self.turns = self.root.locator(".svc-turn")
        self.composer = self.root.get_by_role("textbox", name="Message")
        self.said = self.root.get_by_role("status")

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What the user has sent; all fields are typed."""
        unasked = {"hello", "draft"}
        return [message for message in self._all_sent() if message["t"] not in unasked]

    @property
    def drafts(self) -> list[dict[str, Any]]:
        """The drafts whose size the panel has asked for."""
        return [message for message in self._all_sent() if message["t"] == "draft"]

    def _all_sent(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate("() => sent")
        types = of_kind("Action")
        assert [set(each) for each in found] == [
            set(types[each["t"]]) for each in found
        ]
        return found

    @property
    def n_greetings(self) -> int:
        """How often it has said hello."""
        found: int = self.page.evaluate(
            "() => sent.filter((message) => message.t === 'hello').length"
        )
        return found

    def tell(self, **message: object) -> None:
        """Say something as the kernel does."""
        self.page.evaluate("(message) => tell(message)", message)

    def show(self, **changed: object) -> None:
        """Change the picture as the kernel does; turns are all there are."""
        self.page.evaluate("(changed) => show(changed)", changed)

    def begin(self, *texts: str, turn: str = "new", **more: object) -> None:
        """Begin a reply."""
        self.show(state="busy", can=["stop", "set", "enter"])
        self.tell(t="live", live=live(*texts, turn=turn, **more))

    def scroll_up(self) -> None:
        """Scroll with the wheel until the panel has left the end."""
        self.log.hover()
        self.page.mouse.wheel(0, -400)
        expect(self.button("Jump to the latest")).to_be_visible()
        settled = "([log]) => log.top === (log.top = log.scrollTop)"
        self.page.wait_for_function(
            settled, arg=[self.log.element_handle()], polling=200
        )

    def button(self, name: str, within: Locator | None = None) -> Locator:
        """Find a button by what it is called."""
        return (within or self.root).get_by_role("button", name=name, exact=True)

    def edit_last(self, prompt: str) -> Locator:
        """Edit the last prompt and ask again; return where it is edited."""
        self.composer.press("ArrowUp")
        edited = self.root.get_by_role("textbox", name="Edit the prompt")
        edited.fill(prompt)
        edited.press("Enter")
        return edited

    def choose(self, name: str, turn: Locator) -> None:
        """Choose what begins so in the menu of a turn."""
        self.button("More", turn).click()
        self.root.get_by_role("menu").get_by_text(name).click()


def axe_findings(
    page: Page, axe: str, root: str = ".svc-panel", *, is_strict: bool = False
) -> list[str]:
    """Return what is seriously wrong with a part of a page, one line each.

    Text of too little contrast is in it, also where axe cannot judge its colour. With
    `is_strict`, also what is not serious.
    """
    page.evaluate(axe)
    # frames are sandboxed: axe cannot run in them
    options = "{ resultTypes: ['violations'], iframes: false }"
    result = page.evaluate(f"(root) => axe.run(root, {options})", root)
    findings = [
        json.dumps([found["id"], [node["html"][:160] for node in found["nodes"]]])
        for found in result["violations"]
        if is_strict or found["impact"] in {"serious", "critical"}
    ]
    faint: list[str] = page.evaluate(FAINT, root)
    return findings + faint
