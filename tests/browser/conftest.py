"""JupyterLab and Notebook 7 in a headless Chromium, with nobody's settings.

Where there is no Chromium the tests are skipped; SVC_REQUIRE_BROWSER=1 makes
that a failure. SVC_CHROMIUM names one that has none of the usual names. SVC_LAB_PYTHON
names the Python of another environment, whose JupyterLab and Notebook are shown; the
kernels are of this one.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from svc_notebook.emulator.emulator import Emulator

START_S = 180.0
SEEN_MS = 120_000
EXTENSION = Path(__file__).parents[2] / "svc_notebook" / "labextension"
NAMES = (
    *("chromium-headless-shell", "chromium"),
    *("chromium-browser", "google-chrome", "google-chrome-stable"),
)
QUIET: dict[str, dict[str, object]] = {
    "apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
    "docmanager-extension/plugin": {"autosave": False},
}
LAB_PYTHON = os.environ.get("SVC_LAB_PYTHON", sys.executable)


def _lab_version() -> tuple[int, ...]:
    """Return the version of JupyterLab, without starting it where it is our own."""
    if sys.executable == LAB_PYTHON:
        text = version("jupyterlab")
    else:
        text = subprocess.run(  # noqa: S603 - a Python that the user names
            [LAB_PYTHON, "-m", "jupyterlab", "--version"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return tuple(map(int, text.split(".")[:2]))


if _lab_version() < (4, 5):
    # These take cells that are out of sight from the page, where no test finds them.
    QUIET["notebook-extension/tracker"] = {"windowingMode": "defer"}


@pytest.fixture(scope="module", params=["lab", "notebook"])
def place(request: pytest.FixtureRequest) -> str:
    """A front end."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is, or the reason why these tests are skipped."""
    named = os.environ.get("SVC_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    reason = "no Chromium found (install chromium, or set SVC_CHROMIUM)"
    if os.environ.get("SVC_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


# Playwright keeps an event loop running in this thread for as long as it lives: it
# must have gone when tests of other folders run loops of their own.
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A headless Chromium."""
    expect.set_options(timeout=SEEN_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
            ],
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """An empty page that the tests of a file use one after the other."""
    opened = browser.new_page(viewport={"width": 900, "height": 800})
    opened.set_default_timeout(SEEN_MS)
    yield opened
    opened.close()


@dataclass(frozen=True)
class Server:
    """A server of JupyterLab and Notebook 7.

    Attributes:
        url: Its address, ending with a slash.
        token: Lets a page in.
        root: The folder it serves.
    """

    url: str
    token: str
    root: Path

    @property
    def n_kernels(self) -> int:
        """How many kernels run."""
        return len(json.loads(self._ask("GET", "api/kernels")))

    def end_kernels(self) -> None:
        """Shut every kernel down."""
        for session in json.loads(self._ask("GET", "api/sessions")):
            self._ask("DELETE", f"api/sessions/{session['id']}")

    def _ask(self, method: str, path: str) -> bytes:
        headers = {"Authorization": f"token {self.token}"}
        request = Request(self.url + path, method=method, headers=headers)  # noqa: S310 - loopback
        with urlopen(request, timeout=START_S) as answer:  # noqa: S310 - loopback
            body: bytes = answer.read()
        return body


@pytest.fixture(scope="session")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of JupyterLab and Notebook 7 with folders and our extension."""
    del chromium  # asked for first: without it there is nothing to serve
    home = tmp_path_factory.mktemp("lab")
    folders = {
        name: str(home / name.lower())
        for name in (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "JUPYTERLAB_SETTINGS_DIR",
            "JUPYTERLAB_WORKSPACES_DIR",
        )
    }
    for name, settings in QUIET.items():
        path = Path(folders["JUPYTERLAB_SETTINGS_DIR"], "@jupyterlab", name)
        path.parent.mkdir(parents=True)
        path.with_suffix(".jupyterlab-settings").write_text(json.dumps(settings))
    # before what is installed: this checkout's extension is the one that is tested
    folders["JUPYTER_PATH"] = str(home / "path")
    extensions = home / "path" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "svc-notebook").symlink_to(EXTENSION)
    if sys.executable != LAB_PYTHON:
        folders["JUPYTER_PREFER_ENV_PATH"] = "0"
        kernel = Path(folders["JUPYTER_DATA_DIR"], "kernels", "python3", "kernel.json")
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel.parent.mkdir(parents=True)
        kernel.write_text(json.dumps({"argv": argv, "display_name": "Python 3"}))
    installed = Path(sys.prefix, "share", "jupyter", "labextensions")
    root = home / "root"
    root.mkdir()
    token = secrets.token_hex()
    command = [
        *(LAB_PYTHON, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", "--port=0", "--expose-app-in-browser"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"),
        "--LabApp.extension_manager=readonly",
        f"--LabApp.extra_labextensions_path={[str(installed)]}",
        "--JupyterNotebookApp.expose_app_in_browser=True",
    ]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(  # noqa: S603 - our own command
            command, env={**os.environ, **folders}, stdout=log, stderr=log
        )
    try:
        yield Server(
            _url(server, folders["JUPYTER_RUNTIME_DIR"], log.name), token, root
        )
    finally:
        server.kill()  # asked politely it waits for its extensions
        server.wait()


def _url(server: "subprocess.Popen[bytes]", runtime: str, log: str) -> str:
    """Wait until the server has written where it listens."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        for path in Path(runtime).glob(f"jpserver-{server.pid}.json"):
            if text := path.read_text():
                url: str = json.loads(text)["url"]
                return url
        time.sleep(0.05)  # there is nothing to wait on but the file
    raise AssertionError(f"JupyterLab did not start: {Path(log).read_text()[-2000:]}")


class Notebook:
    """A notebook open in JupyterLab or Notebook 7.

    Args:
        page: The page it is open in.
        path: Its file.
    """

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.path = path
        self.cells = page.locator(".jp-Notebook .jp-CodeCell")

    def command(self, name: str) -> None:
        """Run one of the front end's commands, without waiting for its end."""
        self.page.evaluate(f"() => {{ window.jupyterapp.commands.execute('{name}') }}")

    def wait_idle(self, timeout_s: float = START_S) -> None:
        """Wait until the kernel says that it has nothing to do."""
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext"
            "?.session?.kernel?.status === 'idle'",
            timeout=timeout_s * 1000,
        )

    def run_all(self) -> None:
        """Run every cell, without waiting."""
        self.wait_idle()
        self.command("notebook:run-all-cells")

    def enter(self, cell: int) -> None:
        """Put the cursor at the end of a cell."""
        self.cells.nth(cell).locator(".cm-content").click()
        self.page.keyboard.press("Control+End")

    def run(self, cell: int) -> None:
        """Run one cell, without waiting for its end."""
        self.enter(cell)
        self.command("notebook:run-cell")

    def save(self) -> None:
        """Save the file, and wait until it is written."""
        self.page.evaluate(
            "() => window.jupyterapp.commands.execute('docmanager:save')"
        )

    def shown(self, cell: int) -> Locator:
        """Find what a cell shows below it."""
        return self.cells.nth(cell).locator(".jp-Cell-outputArea")

    def output(self, cell: int) -> str:
        """Return what a cell shows below it."""
        return self.shown(cell).inner_text()


class Bench:
    """Opens notebooks in pages of their own.

    Args:
        browser: Shows them.
        server: Serves them.
        emulator: Answers their cells.
    """

    def __init__(self, browser: Browser, server: Server, emulator: Emulator) -> None:
        self.server = server
        self.browser = browser
        self.emulator = emulator
        self._pages: list[Page] = []

    def write(self, name: str, *cells: str) -> Path:
        """Write a notebook whose first cell points at the emulator."""
        return write_notebook(self.server, self.emulator, name, *cells)

    def open(
        self, path: Path, page: Page | None = None, *, place: str = "lab"
    ) -> Notebook:
        """Open a notebook in a workspace that nobody has used.

        Args:
            path: Its file.
            page: An empty page; a new one if None.
            place: The front end: lab or notebook.
        """
        page = page or self.page()
        workspace = f"lab/workspaces/{secrets.token_hex(4)}/tree"
        at = {"lab": workspace, "notebook": "notebooks"}[place]
        page.goto(f"{self.server.url}{at}/{path.name}?token={self.server.token}")
        expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(
            timeout=SEEN_MS
        )
        return Notebook(page, path)

    def page(self) -> Page:
        """Make an empty page."""
        page = self.browser.new_page(viewport={"width": 1100, "height": 900})
        page.set_default_timeout(SEEN_MS)
        self._pages.append(page)
        return page

    def close(self) -> None:
        """Close the pages and end the kernels."""
        for page in self._pages:
            page.close()
        self.server.end_kernels()


def write_notebook(server: Server, emulator: Emulator, name: str, *cells: str) -> Path:
    """Write a notebook whose first cell points at the emulator."""
    first = (
        "import os\n"
        f"os.environ.update(SVC_BASE_URL={emulator.base_url!r}, "
        f"SVC_API_KEY={emulator.api_key!r}, SVC_LEDGER=':memory:')\n"
        "%load_ext svc_notebook"
    )
    notebook = {
        "cells": [_cell(at, each) for at, each in enumerate((first, *cells))],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = server.root / f"{name}.ipynb"
    path.write_text(json.dumps(notebook))
    return path


def _cell(number: int, source: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "id": f"cell-{number}",
        "source": source,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }


@pytest.fixture
def bench(browser: Browser, lab: Server, emulator: Emulator) -> Iterator[Bench]:
    """Opens notebooks that the emulator answers."""
    bench = Bench(browser, lab, emulator)
    try:
        yield bench
    finally:
        bench.close()
