"""marimo in Chromium: replies, frames, the panel, and no second request."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from socket import socket
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from svc_notebook.emulator.emulator import Emulator

if find_spec("marimo") is None:  # loading it takes a second
    pytest.skip("marimo is not installed", allow_module_level=True)

START_S = 120.0
NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    import svc_notebook as svc
    return mo, svc


@app.cell
def _(mo):
    again = mo.ui.button(value=0, on_click=lambda n: n + 1, label="Again")
    again
    return (again,)


@app.cell
def _(again, mo, svc):
    reply = svc.complete("Say hello", temperature=0)
    mo.vstack([mo.md(f"Run {again.value}"), reply])
    return


@app.cell
def _(again, mo, svc):
    rows = [{"text": text} for text in ("one", "two", "three")]
    run = svc.sweep("Say {{text}}", rows=rows, temperature=[0, 1.0])
    run.run()
    run.score(short=lambda reply: len(reply.text) < 130)
    contrast = run.contrast("temperature", on="short")
    replies = mo.md(f"Sweep {again.value}: {len(run.replies_df())} replies")
    mo.vstack([run, run.compare(), contrast, replies])
    return (run,)


@app.cell
def _(run):
    run.summary_df(by="temperature")
    return


@app.cell
def _(svc):
    panel = svc.panel("plan")
    panel
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """An emulator that refuses nothing for its limits."""
    with Emulator(limits=False) as running:
        yield running


@pytest.fixture(scope="module")
def notebook(
    emulator: Emulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of marimo's editor with the notebook."""
    file = tmp_path_factory.mktemp("marimo") / "notebook.py"
    file.write_text(NOTEBOOK, encoding="utf-8")
    token, port = secrets.token_hex(8), _free_port()
    env = {
        **os.environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": str(file.with_name("ledger.sqlite")),
    }
    command = [
        *(sys.executable, "-m", "marimo", "-y", "run", str(file), "--headless"),
        *(f"--port={port}", f"--token-password={token}"),
    ]
    with file.with_name("log").open("w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)  # noqa: S603 - our own command
    try:
        url = f"http://127.0.0.1:{port}/?access_token={token}"
        _wait(url, server)
        yield url
    finally:
        server.terminate()
        server.wait()


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urlopen(url, timeout=START_S):  # noqa: S310 - loopback
                return
        except URLError:
            time.sleep(0.1)
    raise AssertionError("marimo did not start")


def test_a_notebook_shows_all_and_sends_once(
    page: Page, notebook: str, emulator: Emulator
) -> None:
    """Replies, runs, tables and contrasts show; cells that run again send nothing."""
    page.goto(notebook)
    expect(page.get_by_text("Sweep 0: 6 replies")).to_be_visible()
    expect(page.get_by_text("svc-v2-8b-instruct · 9")).to_be_visible()
    expect(page.get_by_text("Run · 6 requests")).to_be_visible()
    expect(page.get_by_text(".flips() has the rows")).to_be_visible()
    expect(page.get_by_text("n_prompts")).to_be_visible()
    n_sent = len(emulator.requests)

    page.get_by_role("button", name="Again").click()
    expect(page.get_by_text("Run 1")).to_be_visible()
    expect(page.get_by_text("Sweep 1: 6 replies")).to_be_visible()

    assert n_sent == len(emulator.requests) == 7


def test_the_panel_streams_without_a_wrapper(page: Page, notebook: str) -> None:
    """`svc.panel()` at the end of a cell is drawn, and shows a reply as it comes."""
    if page.url == "about:blank":
        page.goto(notebook)
    panel = page.locator(".svc-panel")

    panel.get_by_role("textbox", name="Message").fill("Hello there")
    panel.get_by_role("textbox", name="Message").press("Enter")

    expect(panel.get_by_role("log")).to_contain_text("asks the real service.")
