"""A notebook with a panel that is opened again when its kernel has ended."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Locator, expect

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.static_transcript import go_on_html
from tests.browser.conftest import Bench, Notebook

OPEN = "import svc_notebook as svc\npanel = svc.panel('plan')\npanel"
BOX = "import ipywidgets as w, svc_notebook as svc\nw.Tab([svc.panel('plan')])"
STATE = """\
import json, pathlib
from ipywidgets import Widget
state = Widget.get_manager_state()
pathlib.Path('state.json').write_text(json.dumps(state));"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with one answer to all."""
    with Emulator(
        script=[{"text": "An **answer**.", "times": None}], limits=False
    ) as running:
        yield running


def chatted(bench: Bench, place: str, path: Path) -> Notebook:
    """Open a notebook and ask one thing in its panel."""
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    expect(notebook.cells.nth(0)).to_contain_text("[1]:")
    notebook.run(1)
    ask(notebook, "Hello")
    return notebook


def ask(notebook: Notebook, text: str) -> None:
    """Ask something in the panel."""
    panel = notebook.shown(1).locator(".svc-panel")
    panel.get_by_role("textbox", name="Message").fill(text)
    panel.get_by_role("textbox", name="Message").press("Enter")
    expect(panel.locator(".svc-prompt").last).to_have_text(text)
    expect(panel.locator(".svc-foot").last).to_be_visible()
    notebook.wait_idle()


def static(notebook: Notebook) -> Locator:
    """Find the static transcript."""
    return notebook.shown(1).locator(".svc-static")


def has_one_font(transcript: Locator) -> bool:
    """Return whether a prompt has the font of a reply."""
    font = (
        "(text) => getComputedStyle(text).fontFamily + getComputedStyle(text).fontSize"
    )
    prompt, reply = transcript.locator("pre"), transcript.locator("p")
    return bool(prompt.first.evaluate(font) == reply.first.evaluate(font))


@pytest.mark.parametrize("place", ["lab", "notebook"])
@pytest.mark.parametrize("cell", [OPEN, BOX], ids=["alone", "in a tab"])
def test_the_transcript_is_there_without_a_kernel(
    bench: Bench, place: str, cell: str
) -> None:
    """Hidden while the panel lives, it is all that a new kernel's notebook shows."""
    name = f"next-{place}-{len(cell)}"
    notebook = chatted(bench, place, bench.write(name, cell))
    expect(static(notebook)).to_have_count(1)
    expect(static(notebook)).to_be_hidden()
    notebook.save()
    notebook.page.close()
    bench.server.end_kernels()

    again = bench.open(notebook.path, place=place)

    expect(static(again)).to_be_visible()
    expect(static(again)).to_contain_text("Hello")
    expect(static(again).locator("strong").last).to_have_text("answer")
    assert has_one_font(static(again))
    if cell == OPEN:  # another widget is the user's
        first_line = re.compile(r"^Run this cell to go on chatting\.\n")
        expect(static(again)).to_have_text(first_line, use_inner_text=True)
        errors = re.compile("model not found|Loading widget")
        shown = again.shown(1).get_by_text(errors).locator("visible=true")
        expect(shown).to_have_count(0)


def test_a_notebook_that_is_not_trusted_says_how_to_go_on(bench: Bench) -> None:
    """JupyterLab then drops styles, but the words for VS Code stay hidden."""
    path = bench.write("untrusted", OPEN)
    notebook = json.loads(path.read_text())
    notebook["cells"][1]["outputs"] = [
        {
            "output_type": "display_data",
            "data": {"text/html": go_on_html("chatting")},
            "metadata": {},
        }
    ]
    path.write_text(json.dumps(notebook))

    line = bench.open(path).shown(1).locator(".svc-go-on")

    expect(line).to_have_text("Run this cell to go on chatting.", use_inner_text=True)


def test_an_exported_page_tells_nobody_to_run_cells(bench: Bench) -> None:
    """`nbconvert --to html` shows the transcript, and nothing of the panel."""
    notebook = chatted(bench, "lab", bench.write("exported", OPEN))
    notebook.save()
    page = bench.page()

    for template in ("lab", "classic", "reveal"):
        exporter: Any = HTMLExporter(template_name=template)  # type: ignore[no-untyped-call]  # nbconvert has no types
        html, _ = exporter.from_filename(str(notebook.path))
        page.set_content(html, wait_until="domcontentloaded")
        transcript = page.locator(".svc-static")
        expect(transcript).to_contain_text("Hello")
        assert has_one_font(transcript)
        expect(page.locator(".svc-go-on")).to_have_count(1)
        expect(page.locator(".svc-go-on")).to_be_hidden()
        assert "Panel on" not in html


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_the_panel_goes_on_where_it_was(
    bench: Bench, emulator: Emulator, place: str
) -> None:
    """Run again by another kernel, the cell has its turns and settings."""
    path = bench.write(f"go-on-{place}", OPEN)
    ledger = str(path.with_suffix(".sqlite"))
    path.write_text(path.read_text().replace(":memory:", ledger))
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    notebook.wait_idle()
    notebook.run(1)
    panel = notebook.shown(1).locator(".svc-panel")
    panel.get_by_label("Model").select_option("svc-instruct")
    panel.get_by_text("Settings", exact=True).click()
    panel.get_by_label("temperature").fill("0.3")
    panel.get_by_label("temperature").press("Enter")
    expect(panel.get_by_role("button", name="temperature 0.3")).to_be_visible()
    ask(notebook, "Hello")
    notebook.save()
    notebook.page.close()
    bench.server.end_kernels()

    again = bench.open(path, place=place)
    again.wait_idle()
    again.run(0)
    again.wait_idle()
    again.run(1)
    panel = again.shown(1).locator(".svc-panel")
    expect(panel.locator(".svc-prompt")).to_have_text("Hello")
    expect(panel).to_contain_text("1 turn of plan restored from the ledger.")
    expect(static(again)).to_be_hidden()
    ask(again, "And then?")
    sent = [each["content"] for each in emulator.requests[-1].json["messages"]]
    assert sent == ["Hello", "An **answer**.", "And then?"]
    body = emulator.requests[-1].json
    assert (body["model"], body["temperature"]) == ("svc-instruct", 0.3)
    expect(panel.get_by_role("button", name="temperature 0.3")).to_be_visible()
    if folder := os.environ.get("LOOKS_FOLDER"):
        again.page.screenshot(path=f"{folder}/next-day-{place}.png")
    expect(panel.get_by_role("button", name="Start empty")).to_have_count(0)


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_old_widget_state_hides_no_newer_transcript(bench: Bench, place: str) -> None:
    """Saved with the notebook and older than its outputs, it changes nothing."""
    notebook = chatted(bench, place, bench.write(f"stale-{place}", OPEN, STATE))
    notebook.run(2)
    expect(notebook.cells.nth(2)).to_contain_text("[3]:")
    ask(notebook, "Newer")
    notebook.save()
    notebook.page.close()
    bench.server.end_kernels()
    state = json.loads((notebook.path.parent / "state.json").read_text())
    saved: dict[str, Any] = json.loads(notebook.path.read_text())
    widgets = {"application/vnd.jupyter.widget-state+json": state}
    saved["metadata"]["widgets"] = widgets
    notebook.path.write_text(json.dumps(saved))

    again = bench.open(notebook.path, place=place)

    expect(static(again)).to_be_visible()
    expect(static(again)).to_contain_text("Newer")
    expect(again.shown(1).get_by_role("log")).to_be_hidden()


NEW = "import svc_notebook as svc\nsvc.panel()"


def composer(notebook: Notebook, cell: int = 1) -> Locator:
    """Find where a message is typed."""
    return notebook.shown(cell).get_by_role("textbox", name="Message")


@pytest.mark.parametrize("place", ["lab", "notebook"])
@pytest.mark.parametrize("cell", [OPEN, NEW], ids=["named", "untitled"])
def test_a_draft_outlives_the_kernel(bench: Bench, place: str, cell: str) -> None:
    """The panel of the next kernel has it, once; it is not in the notebook's file."""
    path = bench.write(f"draft-{place}-{len(cell)}", cell, cell)
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    for number in (0, 1, 2):
        notebook.run(number)
    expect(composer(notebook, 2)).to_be_enabled()
    composer(notebook).fill("A private draft")
    composer(notebook, 2).fill("Another")
    notebook.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext"
        ".session.kernel.restart()"
    )
    expect(composer(notebook)).to_be_disabled()
    expect(composer(notebook, 2)).to_be_disabled()
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    expect(composer(notebook)).to_be_enabled()
    expect(composer(notebook)).to_have_value(re.compile("A private draft|Another"))
    first = composer(notebook).input_value()
    notebook.run(2)
    expect(composer(notebook, 2)).to_be_enabled()
    expect(composer(notebook, 2)).not_to_have_value("")

    assert {first, composer(notebook, 2).input_value()} == {
        "A private draft",
        "Another",
    }
    expect(composer(notebook)).to_have_value(first)
    notebook.save()
    assert "A private draft" not in notebook.path.read_text()
    if cell == OPEN:
        ask(notebook, "Sent")
        notebook.run(1)
        expect(composer(notebook)).to_have_value("")


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_a_draft_stays_in_its_panel(bench: Bench, place: str) -> None:
    """After a reload no other panel of the conversation has it, also a new one.

    The panel may be so far below that the front end has not drawn it yet.
    """
    lines = "\n".join("1 + 1" for _ in range(40))
    cells = (OPEN, OPEN, lines, lines, lines, OPEN)
    notebook = bench.open(bench.write(f"stays-{place}", *cells), place=place)
    for number in (0, 1, 6):
        notebook.wait_idle()
        notebook.run(number)
    composer(notebook, 6).fill("A draft")
    expect(composer(notebook)).to_have_value("")
    notebook.enter(0)
    notebook.save()

    notebook.page.reload()
    expect(composer(notebook)).to_be_enabled()
    notebook.wait_idle()
    notebook.run(2)
    expect(composer(notebook, 2)).to_be_enabled()
    notebook.enter(6)

    expect(composer(notebook, 6)).to_have_value("A draft")
    expect(composer(notebook)).to_have_value("")
    expect(composer(notebook, 2)).to_have_value("")


@pytest.mark.parametrize("place", ["lab", "notebook"])
def test_the_save_key_saves_the_notebook(bench: Bench, place: str) -> None:
    """Pressed in the panel, Ctrl+S does what it does elsewhere in the notebook."""
    notebook = bench.open(bench.write(f"save-{place}", OPEN), place=place)
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    expect(composer(notebook)).to_be_enabled()
    composer(notebook).click()
    notebook.wait_idle()
    with notebook.page.expect_request(
        lambda request: request.method == "PUT" and notebook.path.name in request.url
    ):
        composer(notebook).press("Control+s")
