"""What a cell or another panel asks is shown in the panels on its conversation."""

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.panel_actions import BUSY
from tests.panels.conftest import OpenPage, Page

CALL = {"name": "weather", "arguments": {"city": "Oslo"}}
SILENT = {"cut_after": 1, "end": "silent"}
SCRIPT: list[dict[str, Any]] = [
    {"when": {"contains": "silent"}, "text": ["Half ", "done"], **SILENT},
    {"when": {"contains": "Count"}, "text": "one, tw", "finish_reason": "length"},
    {"when": {"contains": "Go on"}, "text": ["o, three,", " x"], **SILENT},
    {"when": {"contains": "Fail"}, "error": {"message": "No way."}, "status": 400},
    {
        "when": {"contains": "How is", "role": "user"},
        "text": "Let me look.",
        "tool_calls": [CALL],
    },
    {"when": {"role": "tool"}, "text": ["It is ", "sunny."], **SILENT},
]
Ask = Callable[[str], Thread]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose replies become silent, so that they can be looked at."""
    with Emulator(
        script=SCRIPT, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


@pytest.fixture
def ask(shell: InteractiveShell) -> Ask:
    """Runs a cell on another thread, as the panel's messages come in a subshell."""
    shell.run_line_magic("load_ext", "svc_notebook")

    def run(code: str) -> Thread:
        thread = Thread(target=shell.run_cell, args=(code,), daemon=True)
        thread.start()
        return thread

    return run


def stop(page: Page, cell: Thread) -> None:
    """Stop a reply in the panel, and wait for its cell."""
    page.say("stop")
    cell.join()


def live_with(page: Page, text: str) -> dict[str, Any]:
    """Wait until the end of the growing reply has a text; return the reply."""
    page.wait(lambda: any(text in tail for tail in page.tails()))
    page.say("hello")
    live: dict[str, Any] = page.view["live"]
    return live


def test_a_cells_turn_is_shown_while_it_is_answered(
    open_page: OpenPage, ask: Ask, emulator: Emulator
) -> None:
    """No message is sent without it; Stop stops the cell, and the part is a turn."""
    page = open_page("plan")
    cell = ask("%%svc -c plan\nsilent, please")
    live = live_with(page, "Half")
    page.say("send", text="meanwhile")
    notice = page.view["notice"]
    stop(page, cell)

    assert (live["turn"], live["asker"], live["prompt"]) == (
        "new",
        "a cell",
        "silent, please",
    )
    assert notice == BUSY
    assert len(emulator.requests) == 1
    [turn] = page.view["turns"]
    assert turn["choices"][0]["text"] == "Half "
    assert "interrupted" in turn["badges"]
    assert (page.view["state"], page.view["live"]) == ("idle", None)


def test_the_turn_comes_in_the_view_in_which_the_live_reply_goes(
    open_page: OpenPage, ask: Ask
) -> None:
    """So that nothing is shown twice, and nothing vanishes for a moment."""
    page = open_page("plan")
    ask("%%svc -c plan\nHello").join()

    [busy, idle] = page.views[-2:]
    assert (busy["state"], busy["live"]["prompt"], busy["turns"]) == (
        "busy",
        "Hello",
        [],
    )
    assert (idle["state"], idle["live"]) == ("idle", None)
    assert [turn["prompt"] for turn in idle["turns"]] == ["Hello"]
    assert page.all("ended") == [{"t": "ended", "text": "Reply ended"}]


def test_a_turn_that_is_asked_again_grows_in_its_place(
    open_page: OpenPage, ask: Ask
) -> None:
    """With the values that are attached to it, folded as in any turn."""
    page = open_page("plan")
    [first] = page.do("send", text="Count")["turns"]
    cell = ask("%svc -c plan continue")
    live = live_with(page, "three")
    stop(page, cell)

    assert (live["turn"], live["prompt"]) == (first["id"], None)
    assert "one, two, three," in live["choices"][0]["tail"]
    assert page.view["turns"][0]["choices"][0]["text"] == "one, two, three,"


def test_attached_values_of_a_cell_are_folded(
    open_page: OpenPage, ask: Ask, shell: InteractiveShell
) -> None:
    """As they are in the turn."""
    page = open_page("plan")
    shell.user_ns["rows"] = "a,b\n1,2"
    cell = ask("%%svc -c plan --with rows\nsilent")
    live = live_with(page, "Half")
    stop(page, cell)

    assert live["prompt"] == "silent"
    assert [item["name"] for item in live["attached"]] == ["rows"]


def test_the_tool_calls_of_a_cell_are_shown(open_page: OpenPage, ask: Ask) -> None:
    """The text of the next round stands below the first."""
    page = open_page("plan")
    cell = ask(
        "def weather(city: str) -> str:\n"
        '    "Say the weather."\n'
        "    return 'sunny in ' + city\n\n"
        "get_ipython().run_cell_magic('svc', '-c plan --tools weather', 'How is it?')"
    )
    live = live_with(page, "It is")
    stop(page, cell)

    assert "Let me look." in live["choices"][0]["html"]
    [call] = live["tool_runs"]
    assert call["line"].startswith('weather(city="Oslo") → sunny in Oslo')


def test_a_cell_that_fails_leaves_nothing(open_page: OpenPage, ask: Ask) -> None:
    """The cell says why; the panel goes on."""
    page = open_page("plan")
    ask("%%svc -c plan\nFail").join()

    assert page.view["turns"] == []
    assert (page.view["state"], page.view["live"]) == ("idle", None)
    assert page.view["notice"] == ""


def test_a_panel_that_is_closed_does_not_stop_the_cell(
    open_page: OpenPage, ask: Ask
) -> None:
    """Stop does, in the other panel."""
    page, other = open_page("plan"), open_page("elsewhere")
    page.ask("Hello")
    other.say("open", name="plan")
    cell = ask("%%svc -c plan\nsilent")
    live_with(page, "Half")
    live_with(other, "Half")

    page.panel.close()
    was_running = cell.is_alive()
    stop(other, cell)

    assert was_running
    turn = other.view["turns"][-1]
    assert turn["choices"][0]["text"] == "Half "


def test_another_panel_shows_what_a_panel_asks(open_page: OpenPage) -> None:
    """It takes no message meanwhile; both have the turn."""
    page, other = open_page("plan"), open_page("elsewhere")
    page.ask("Hello")
    other.say("open", name="plan")
    page.say("send", text="silent")
    asker = live_with(other, "Half")["asker"]
    other.say("send", text="meanwhile")
    notice = other.view["notice"]
    other.say("stop")
    page.wait_idle()
    other.wait(lambda: other.view["state"] == "idle")

    assert (asker, notice) == ("another panel", BUSY)
    assert [len(each.view["turns"]) for each in (page, other)] == [2, 2]


def test_a_cell_says_what_it_was_sent_without(
    open_page: OpenPage,
    ask: Ask,
    emulator: Emulator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A panel's turn that has no answer yet."""
    page = open_page("plan")
    page.say("send", text="silent")
    live_with(page, "Half")

    ask("%%svc -c plan\nHello").join()
    printed = " ".join(capsys.readouterr().out.split())
    page.say("stop")
    page.wait_idle()

    assert "sent without the turn that a panel is asking" in printed
    stale = [(turn["prompt"], turn["is_stale"]) for turn in page.view["turns"]]
    assert stale == [("Hello", False), ("silent", True)]
    assert len(emulator.requests[-1].json["messages"]) == 1


@pytest.mark.parametrize("n", range(4))
def test_an_interrupt_leaves_no_panel_waiting(
    open_page: OpenPage, shell: InteractiveShell, n: int
) -> None:
    """Whatever is said to the page when it comes; also at the reply's end."""
    page = open_page("plan")
    shell.run_line_magic("load_ext", "svc_notebook")
    page.comm.interrupt_in(n)
    shell.run_cell("%%svc -c plan\nHello")  # type: ignore[no-untyped-call]  # IPython's
    was_interrupted = page.comm.interrupt_in(None)

    page.say("draft", id="a", text="Hi", n_attached=0)

    assert was_interrupted
    assert (page.view["state"], page.view["live"]) == ("idle", None)
    page.ask("Hello")


def test_a_watcher_that_fails_does_not_stop_the_cell(
    ask: Ask, shell: InteractiveShell, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged."""
    del shell

    def fail(_: object) -> None:
        raise ValueError("no place")

    unlisten = svc.conversation("plan").watched.listen(fail)
    ask("%%svc -c plan\nHello").join()
    unlisten()
    unlisten()

    assert len(svc.conversation("plan").turns) == 1
    assert "no place" in caplog.text
