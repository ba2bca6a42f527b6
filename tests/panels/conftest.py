"""A panel whose messages are recorded, as a page would get them."""

from collections.abc import Callable, Iterator
from threading import Condition
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm
from IPython.core.interactiveshell import InteractiveShell

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.widget import Panel
from svc_notebook.session import isolated

TIMEOUT_S = 120.0


class PageComm(BaseComm):
    """A comm whose other end is this test."""

    news = Condition()
    n_published = 0  # by all

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - BaseComm's
        self.published: list[dict[str, Any]] = []
        self.n_left: int | None = None  # messages before an interrupt
        super().__init__(*args, **kwargs)

    def publish_msg(  # type: ignore[override]  # the rest is not looked at
        self, msg_type: str, data: object = None, **_: object
    ) -> None:
        """Take what the kernel says."""
        if self.n_left is not None:
            self.n_left -= 1
            if self.n_left == -1:
                raise KeyboardInterrupt
        with PageComm.news:
            self.published.append({"type": msg_type, **_mapping(data)})
            PageComm.n_published += 1
            PageComm.news.notify_all()

    def interrupt_in(self, n_messages: int | None) -> bool:
        """Interrupt the kernel at the message after so many; return if it was."""
        was_interrupted = self.n_left is not None and self.n_left < 0
        self.n_left = n_messages
        return was_interrupted


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Page:
    """What a page with the panel's view says and hears.

    Args:
        panel: The widget.
    """

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        found = panel.comm
        assert isinstance(found, PageComm)
        self.comm = found

    def say(self, kind: str, **content: object) -> None:
        """Send a message, as the browser does."""
        data = {"method": "custom", "content": {"t": kind, **content}}
        message = {"content": {"comm_id": self.comm.comm_id, "data": data}}
        self.comm.handle_msg({**message, "buffers": []})

    @property
    def heard(self) -> list[dict[str, Any]]:
        """The custom messages so far, without their numbers."""
        said = [each["content"] for each in self.comm.published if "content" in each]
        return [{name: each[name] for name in each if name != "seq"} for each in said]

    @property
    def updates(self) -> list[dict[str, Any]]:
        """What was said of the widget's state since it was opened."""
        said = [each for each in self.comm.published if "state" in each]
        return [each for each in said if each["type"] == "comm_msg"]

    @property
    def views(self) -> list[dict[str, Any]]:
        """The views so far, each with the turns that came with it."""
        states = [each["state"] for each in self.updates]
        return [state["view"] for state in states if "view" in state]

    @property
    def numbers(self) -> list[int]:
        """The numbers of messages and views, as they were published."""
        return [
            (each.get("content") or each["state"]["view"])["seq"]
            for each in self.comm.published
            if "content" in each or "view" in each.get("state", {})
            if each["type"] == "comm_msg"
        ]

    @property
    def view(self) -> dict[str, Any]:
        """The whole view, as a page has joined it by now."""
        found: dict[str, Any] = self.panel.get_state()["view"]
        return found

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return the messages of a kind."""
        return [each for each in self.heard if each["t"] == kind]

    def tails(self) -> list[str]:
        """Return the growing end of a reply as it was after each message."""
        tails = [""]
        for delta in self.all("delta"):
            tails.append(tails[-1][: delta["n_same"]] + delta["tail"])
        return tails[1:]

    def wait(self, is_there: Callable[[], object]) -> None:
        """Wait until what the panels have published makes this true."""
        n_known = PageComm.n_published
        while not is_there():  # asked without the lock: what publishes has its own
            with PageComm.news:
                found = PageComm.news.wait_for(
                    lambda: PageComm.n_published > n_known,  # noqa: B023 - it is waited for here
                    TIMEOUT_S,
                )
                n_known = PageComm.n_published
            assert found, (self.view, self.heard)

    def wait_idle(self) -> None:
        """Wait until a reply has ended."""
        self.wait(lambda: self.view["state"] == "idle" and self.all("ended"))

    def ask(self, text: str) -> dict[str, Any]:
        """Send a prompt, wait for the end, and return its turn."""
        turn: dict[str, Any] = self.do("send", text=text)["turns"][-1]
        return turn

    def do(self, kind: str, **content: object) -> dict[str, Any]:
        """Say something that brings a reply, and return the view at its end."""
        n_ended = len(self.all("ended"))
        self.say(kind, **content)
        self.wait(
            lambda: len(self.all("ended")) > n_ended and self.view["state"] == "idle"
        )
        return self.view


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenPage]:
    """Opens panels on a session of this test's own."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    monkeypatch.setattr(comm, "create_comm", PageComm)
    opened: list[Page] = []

    def open_one(name: str | None = "plan", **given: Any) -> Page:  # noqa: ANN401 - as panel
        panel = svc.panel(name, **given)
        opened.append(Page(panel))
        return opened[-1]

    with isolated():
        yield open_one
        for page in opened:
            page.panel.close()


@pytest.fixture
def shell(
    open_page: OpenPage, capsys: pytest.CaptureFixture[str]
) -> Iterator[InteractiveShell]:
    """A notebook's shell."""
    del open_page  # its session comes first
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(colors="nocolor")
    shell.reset(new_session=True)  # type: ignore[no-untyped-call]  # IPython's
    yield shell
    capsys.readouterr()
    InteractiveShell.clear_instance()
