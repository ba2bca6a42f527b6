"""What cells and the panel show in VS Code's and Colab's pages, in all their themes."""

import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.hosts import (
    COLAB,
    FALLBACKS,
    VSCODE,
    HostNotebook,
    page_html,
    throttled,
)
from tests.browser.panel_page import FAINT, axe_findings
from tests.notebook.conftest import Kernel

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
AXE = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
THAI, MATH = "ชาเย็นอร่อยกว่าชาร้อน", "$E = mc^2$"
# Long enough for several outputs, so that updates go back and forth between them.
LONG = "".join(f"## Cup {n}\n\n{THAI}, and {'tea ' * 40}\n\n" for n in range(12))
RICH = f"""{LONG}Energy is {MATH}, see [a page](https://example.org) or `tea.pour()`.

```python
def pour(cups: int) -> str:  # says how
    return "slowly" * cups
```

| tea | cups |
|:--|--:|
| Oolong | 3 |

> A quote, and the last words.
"""
TOOL = '''
@svc.tool
def cups_sold(city: str) -> int:
    """Count the cups of tea sold in a city."""
    print("counting")
    return 216
'''
SWEEP = """
rows = [{"text": f"tea {n}", "label": n % 2} for n in range(8)]
run = svc.sweep("Say {{text}}", rows=rows, temperature=[0, 1.0], max_tokens=40)
run.run()
run.score(short=lambda reply: len(reply.text) < 130)
"""
CELLS = (
    "%%svc -o answer\nTell me about tea",
    "%%svc --temperature 3\nTell me about tea",
    "%%svc --model other\nTell me about tea",
    f"{TOOL}\nNone",
    "%%svc --tools cups_sold\nHow many cups?",
    "%%svc -n 2\nTwo choices",
    "%%svc -m svc-v2-8b-instruct,svc-v2-70b-instruct -t 0,1\nA grid of teas",
    "%%svc --dry-run\nTell me about tea",
    "%%svc -f html\nWrite a page",
    SWEEP,
    "run",
    "run.summary_df(by='temperature')",
    "run.contrast('temperature', on='short')",
    "run.compare(columns='temperature')",
    "run.plot('short', by='temperature')",
    "run.replies_df().head(3)",
    "answer",
    *("%svc use", "%svc help", "%svc usage", "%svc models", "%svc settings"),
    *("%svc replies", "%svc tools cups_sold", "%svc conversations", "%svc nonsense"),
    "panel = svc.panel('plan')\npanel",
    # what it says is in the transcript, an output of the cell above
    "panel.conversation.ask('Two choices'); None",
)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """An emulator with a long reply that streams, one that calls a tool, and others."""
    pieces = [RICH[at : at + 12] for at in range(0, len(RICH), 12)]
    page = "```html\n<h1>A page</h1>\n```\n"
    script: list[dict[str, Any]] = [
        {"when": {"is": "Tell me about tea"}, "text": pieces, "gap_s": 0.003},
        {
            "when": {"contains": "How many", "role": "user"},
            "tool_calls": [{"name": "cups_sold", "arguments": {"city": "Phuket"}}],
        },
        {"when": {"is": "Write a page"}, "text": page},
        {"text": f"{THAI} and {MATH}.", "times": None},
    ]
    with Emulator(script=script, limits=False) as running:
        yield running


@pytest.fixture(scope="module")
def messages(emulator: Emulator) -> list[list[tuple[str, dict[str, Any]]]]:
    """What a kernel published for each of the cells, watched as in a front end."""
    env = {
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": ":memory:",
    }
    kernel = Kernel(env)
    try:
        kernel.run("%load_ext svc_notebook\nimport svc_notebook as svc")
        return [
            kernel.run(code, cell_id=f"{at}").messages for at, code in enumerate(CELLS)
        ]
    finally:
        kernel.close()


@pytest.fixture(scope="module")
def shown(messages: list[list[tuple[str, dict[str, Any]]]]) -> HostNotebook:
    """The notebook as the host has it after all messages."""
    notebook = HostNotebook()
    for published in messages:
        notebook.add_cell(published)
    return notebook


def test_every_output_has_a_form_that_hosts_can_draw(shown: HostNotebook) -> None:
    """It has HTML, Markdown or text; VS Code takes HTML where there is any."""
    kinds = {output.kind for output in shown.outputs}

    assert all(shown.cells[at] for at, code in enumerate(CELLS) if "None" not in code)
    assert [o.forms for o in shown.outputs if not FALLBACKS & set(o.forms)] == []
    assert kinds == {
        "application/vnd.jupyter.widget-view+json",
        "application/vnd.vegalite.v5+json",
        "text/html",
        "text/plain",
    }


def test_no_output_uses_a_variable_of_its_host(shown: HostNotebook) -> None:
    """Hosts set them to what does not fit their theme, or not at all."""
    html = [output.forms.get("text/html", "") for output in shown.outputs]

    assert [text for text in html if "var(--" in text] == []


@pytest.mark.parametrize("every", [2, 7, 10_000])
def test_a_host_that_leaves_out_updates_shows_the_same_in_the_end(
    messages: list[list[tuple[str, dict[str, Any]]]], shown: HostNotebook, every: int
) -> None:
    """Each output is right once its last update has come, whatever was left out."""
    notebook = HostNotebook()
    for published in messages:
        notebook.add_cell(throttled(published, every))
    n_left_out = sum(len(m) - len(throttled(m, every)) for m in messages)

    assert n_left_out
    assert notebook.outputs == shown.outputs


def test_a_later_cell_updates_the_transcript_above(
    page: Page, shown: HostNotebook
) -> None:
    """What the conversation says later is in the output of the panel's cell."""
    page.set_content(page_html(shown.cells[-2], theme=VSCODE[0]))

    expect(page.locator("body")).to_contain_text(THAI)


@pytest.mark.parametrize(
    ("theme", "line"),
    [
        (VSCODE[0], "Run this cell while it is in sight to go on chatting."),
        ("bare light", "Run this cell to go on chatting."),
    ],
)
def test_a_panel_that_is_not_drawn_says_how_to_get_it(
    page: Page, shown: HostNotebook, theme: str, line: str
) -> None:
    """Only VS Code needs the cell in sight; nobody reads of a third program."""
    page.set_content(page_html(shown.cells[-2][1:], theme=theme))

    first = page.locator(".svc-go-on")
    expect(first).to_have_text(line, use_inner_text=True)


@pytest.mark.parametrize("theme", [*VSCODE, *COLAB, "bare light", "bare dark"])
def test_all_that_cells_show_can_be_read(
    page: Page, shown: HostNotebook, theme: str
) -> None:
    """No text is too pale, axe finds nothing, and nothing of the reply is missing."""
    _prefer(page, theme)
    page.set_content(page_html(shown.outputs, theme=theme))
    _picture(page, f"cells {theme}")
    text = page.locator("body").inner_text()

    assert axe_findings(page, AXE, "main") == []
    for words in (THAI, MATH, "def pour", "Oolong", "A quote, and the last words."):
        assert words in text


@pytest.mark.parametrize("theme", [*VSCODE, *COLAB, "bare light", "bare dark"])
def test_all_that_lessons_show_can_be_read(page: Page, theme: str) -> None:
    """No text of the saved notebooks is too pale."""
    _prefer(page, theme)
    notebook = HostNotebook()
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            notebook.add_cell(map(_message, cell.get("outputs", ())))
    page.set_content(page_html(notebook.outputs, theme=theme))

    assert page.evaluate(FAINT, "main") == []


def _message(saved: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a saved output as the message that it was."""
    data = {
        kind: "".join(text) if isinstance(text, list) else text
        for kind, text in saved.get("data", {}).items()
    }
    text = "".join(saved.get("text", ()))
    return saved["output_type"], {**saved, "data": data, "text": text}


def _prefer(page: Page, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "bare dark" else "light")


def _picture(page: Page, name: str) -> None:
    if folder := os.environ.get("LOOKS_FOLDER"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)
