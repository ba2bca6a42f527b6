"""The panel in Firefox, live and on the next day.

Firefox speaks WebDriver BiDi itself, so that Debian's package needs no driver.
Without Firefox these tests are skipped; SVC_REQUIRE_BROWSER=1 makes that a failure.
"""

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websocket import WebSocket, create_connection

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import SEEN_MS, START_S, Server, write_notebook

NAMES = ("firefox-esr", "firefox")
LISTENS = "WebDriver BiDi listening on "
# Nothing but this machine can be reached.
PREFERENCES = """\
user_pref("network.proxy.type", 1);
user_pref("network.proxy.socks", "127.0.0.1");
user_pref("network.proxy.socks_port", 9);
"""
WAYS = ("Down", "Up")
ENTER = "\ue007"  # as WebDriver calls the key
OPEN = "import svc_notebook as svc\nsvc.panel('plan')"
CELL = "document.querySelectorAll('.jp-Notebook .jp-CodeCell')[1]"
STATIC = f"{CELL}.querySelector('.svc-static')"
KERNEL = "jupyterapp.shell.currentWidget?.sessionContext.session?.kernel"
UNTIL = """\
new Promise((resolve, reject) => {
  const end = performance.now() + %d;
  const look = () => {
    if (%s) resolve(true);
    else if (performance.now() > end) reject(new Error(document.body.innerText));
    else setTimeout(look, 50);
  };
  look();
})"""


class Firefox:
    """A page of a headless Firefox.

    Args:
        socket: Its connection for WebDriver BiDi.
    """

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._n_sent = 0
        self._ask("session.new", capabilities={})
        # A tab of its own has the focus, which the first one never gets.
        self._page = self._ask("browsingContext.create", type="tab")["context"]

    def go(self, url: str) -> None:
        """Open an address."""
        self._ask(
            "browsingContext.navigate", context=self._page, url=url, wait="complete"
        )

    def value(self, script: str) -> object:
        """Return a text, a number or a truth value that a script ends with."""
        answer = self._ask(
            "script.evaluate",
            expression=script,
            target={"context": self._page},
            awaitPromise=True,
            userActivation=True,
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        self.value(UNTIL % (SEEN_MS, expression))

    def command(self, name: str) -> None:
        """Run one of JupyterLab's commands to its end."""
        self.value(f"jupyterapp.commands.execute('{name}').then(() => true)")

    def click(self, css: str) -> None:
        """Wait until an element can be seen, and click on its middle."""
        found = f"document.querySelector({css!r})"
        self.until(f"{found}?.checkVisibility()")
        self.value(f"{found}.scrollIntoView({{ block: 'center' }})")
        [node] = self._ask(
            "browsingContext.locateNodes",
            context=self._page,
            locator={"type": "css", "value": css},
            maxNodeCount=1,
        )["nodes"]
        at = {"type": "element", "element": {"sharedId": node["sharedId"]}}
        press = [{"type": f"pointer{way}", "button": 0} for way in WAYS]
        self._act(
            "pointer", {"type": "pointerMove", "x": 0, "y": 0, "origin": at}, *press
        )

    def type(self, text: str) -> None:
        """Press the keys of a text."""
        keys = [{"type": f"key{way}", "value": key} for key in text for way in WAYS]
        self._act("key", *keys)

    def _act(self, kind: str, *actions: dict[str, Any]) -> None:
        device = {"type": kind, "id": kind, "actions": actions}
        self._ask("input.performActions", context=self._page, actions=[device])

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": params}
        self._socket.send(json.dumps(message))
        while True:  # until the answer comes, past what happens meanwhile
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._n_sent:
                assert answer["type"] == "success", answer["message"]
                result: dict[str, Any] = answer["result"]
                return result


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """A headless Firefox, or the reason why these tests are skipped."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        reason = "no Firefox found (install firefox-esr)"
        if os.environ.get("SVC_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("firefox")
    (home / "user.js").write_text(PREFERENCES)
    command = [found, "--headless", "--no-remote", "--remote-debugging-port=0"]
    with (home / "log").open("w") as log:
        running = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--profile", str(home)],
            env={**os.environ, "HOME": str(home)},
            stdout=log,
            stderr=log,
        )
    try:
        url = _url(running, home / "log")
        # Firefox refuses pages, which are known by their origin.
        address = f"{url}/session"
        with closing(
            create_connection(address, suppress_origin=True, timeout=START_S)
        ) as socket:
            yield Firefox(socket)
    finally:
        running.kill()
        running.wait()


def _url(running: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait until Firefox has said where it listens."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and running.poll() is None:
        _, said, url = log.read_text().partition(LISTENS)
        if said and "\n" in url:
            return url.split()[0]
        time.sleep(0.05)  # there is nothing to wait on but the file
    raise AssertionError(f"Firefox did not start: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def chatted(firefox: Firefox, lab: Server) -> Iterator[Path]:
    """A notebook, open in JupyterLab, in whose panel one thing is asked."""
    script = [{"text": "An **answer**.", "times": None}]
    with Emulator(script=script, limits=False) as emulator:
        path = write_notebook(lab, emulator, "firefox", OPEN)
        _open(firefox, lab, path)
        firefox.click(".jp-Notebook .cm-content")
        firefox.until(f"{KERNEL}?.status === 'idle'")
        firefox.command("notebook:run-all-cells")
        firefox.click(".svc-panel textarea[aria-label=Message]")
        firefox.type(f"Hello{ENTER}")
        firefox.until(f"{CELL}.querySelector('.svc-foot')?.checkVisibility()")
        yield path
        lab.end_kernels()


def _open(firefox: Firefox, lab: Server, path: Path) -> None:
    workspace = f"lab/workspaces/{secrets.token_hex(4)}/tree"
    firefox.go(f"{lab.url}{workspace}/{path.name}?token={lab.token}")
    firefox.until(f"window.jupyterapp && {CELL}?.checkVisibility()")


@pytest.mark.usefixtures("chatted")
def test_a_panel_answers_in_firefox(firefox: Firefox) -> None:
    """A message typed into it gets a reply; the static transcript is hidden."""
    shown = f"{CELL}.querySelector('.svc-panel .svc-turn').innerText"
    text = str(firefox.value(shown))

    assert text.startswith("1 · You\nHello\n")
    assert "An answer." in text
    firefox.until(f"{STATIC} && !{STATIC}.checkVisibility()")


def test_the_next_day_in_firefox(firefox: Firefox, lab: Server, chatted: Path) -> None:
    """Saved, and opened again without its kernel, it shows what was said."""
    firefox.command("docmanager:save")
    lab.end_kernels()
    _open(firefox, lab, chatted)
    firefox.until(f"{STATIC}?.checkVisibility()")

    text = str(firefox.value(f"{STATIC}.innerText"))
    assert "Hello" in text
    assert "An answer." in text
