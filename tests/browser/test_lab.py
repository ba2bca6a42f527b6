"""`%%svc` in JupyterLab, as somebody at the screen sees it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench

WORDS = [f"word{n} " for n in range(60)]
HOSTILE = """\
Before.

<script>window.ran = "script"</script>
<img src="x-img" onerror="window.ran='onerror'">
<iframe src="/x-frame"></iframe>
<svg onload="window.ran='svg'"></svg>

![a picture](http://127.0.0.1:9/x-picture.png) and
[a link](javascript:window.ran='link') and [another](java&#10;script:alert(1)).

After.
"""
SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"contains": "stuck"},
        "text": ["**Partial** ", "answer"],
        "cut_after": 2,
        "end": "silent",
        "times": None,
    },
    {"when": {"contains": "hostile"}, "text": HOSTILE, "times": None},
    {"text": WORDS, "gap_s": 0.05, "times": None},
]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that answers word by word, gets stuck, or attacks."""
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


def test_a_hostile_reply_neither_runs_nor_loads(bench: Bench) -> None:
    """Script, handlers, frames, remote pictures and script links are inert."""
    page = bench.page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[-1]))
    path = bench.write("hostile", "%%svc\nBe hostile", "%%svc --no-stream\nBe hostile")
    notebook = bench.open(path, page)
    notebook.run_all()

    for cell in (1, 2):
        output = notebook.cells.nth(cell).locator(".jp-Cell-outputArea")
        expect(output).to_contain_text("After.")
        expect(output).to_contain_text("svc-v2-8b-instruct")
        inside = "script, iframe, img, svg, object, embed, form, [onerror], [onload]"
        reply = output.locator(".jp-RenderedHTMLCommon")
        assert reply.count() > 0
        assert reply.locator(inside).count() == 0
        hrefs = reply.locator("a").evaluate_all(
            "links => links.map(link => link.getAttribute('href'))"
        )
        assert [href for href in hrefs if not href.startswith("http")] == []
    notebook.wait_idle()

    assert page.evaluate("() => window.ran ?? null") is None
    assert [name for name in asked if name.startswith("x-")] == []


def test_a_saved_reply_needs_no_kernel(bench: Bench) -> None:
    """The file holds the reply in its final form and shows it with no kernel."""
    path = bench.write("saved", "%%svc -o answer\nTell me something")
    notebook = bench.open(path)
    notebook.run_all()
    output = notebook.cells.nth(1).locator(".jp-Cell-outputArea")
    expect(output).to_contain_text("svc-v2-8b-instruct")
    notebook.wait_idle()
    notebook.save()
    notebook.page.close()
    bench.server.end_kernels()
    page = bench.page()
    page.route("**/api/sessions*", _refuse_to_start)

    reopened = bench.open(path, page)

    output = reopened.cells.nth(1).locator(".jp-Cell-outputArea")
    expect(output).to_contain_text("word59")
    expect(output).to_contain_text("emulator")
    assert bench.server.n_kernels == 0
    assert len(json.loads(path.read_text())["cells"][1]["outputs"]) == 1


def _refuse_to_start(route: Route) -> None:
    """Let a page see the kernels, and start none."""
    if route.request.method == "POST":
        route.abort()
    else:
        route.continue_()
