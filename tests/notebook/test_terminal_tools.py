"""`%%svc --tools` in plain IPython in a terminal: calls as lines, consent typed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fcntl", reason="a terminal needs Unix")

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.test_terminal import CTRL_C, END, Terminal

TOOLS = '''
import time
import svc_notebook as svc

@svc.tool(confirm=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"

@svc.tool(confirm=True)
def write(to: str, subject: str) -> str:
    """Write a letter that is sent by post, to people who have
    no electronic mail and no telephone, and keep a copy."""
    return "written"

@svc.tool
def sleep(n: int) -> str:
    """Sleep."""
    time.sleep(n)
    return "awake"

@svc.tool
def hostile(n: int) -> str:
    """Attack."""
    return "\\x1b]0;owned\\x07\\x1b[35;7Hmoved"
'''


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """IPython with tools, whose service is an emulator."""
    (tmp_path / "my_tools.py").write_text(TOOLS, encoding="utf-8")
    with Emulator(limits=False, tokens_per_s=None, first_token_s=0) as emulator:
        opened = Terminal(
            {
                "SVC_BASE_URL": emulator.base_url,
                "SVC_API_KEY": emulator.api_key,
                "SVC_LEDGER": ":memory:",
                "PYTHONPATH": str(tmp_path),
            }
        )
        try:
            opened.run("from my_tools import *", prompt=2)
            yield opened
        finally:
            opened.close()


def test_consent_is_typed(terminal: Terminal) -> None:
    """The question names the call; `y` runs it, and its line follows."""
    terminal.type("%%svc --tools send\rUse send to 'Bob'" + END)
    asked = terminal.until("[a]lways:")
    terminal.type("y\r")
    shown = terminal.until("In [3]:")

    assert 'Run send(to="Bob")?' in asked
    assert 'send(to="Bob") → approved · sent to Bob' in shown


def test_a_long_question_breaks_at_blanks(terminal: Terminal) -> None:
    """Its lines fit into the terminal."""
    words = "very considerable news " * 5
    terminal.type(f"%%svc --tools write\rUse write to 'Bob' with '{words}'" + END)
    asked = terminal.until("[a]lways:")
    terminal.type("n\r")
    terminal.until("In [3]:")

    question = asked[asked.index("The model calls write") :]
    assert "no telephone, and\n  keep a copy.)\nRun write(" in question
    assert max(map(len, question.splitlines())) < 100


def test_an_interrupt_leaves_a_tool_behind(terminal: Terminal) -> None:
    """Ctrl-C ends the cell at once with one line, and the next cell works."""
    terminal.type("%%svc --tools sleep -c plan\rUse sleep for 60" + END)
    terminal.until("calling sleep")
    terminal.type(CTRL_C)
    shown = terminal.until("In [3]:")
    after = terminal.run("%%svc -c plan\nNever mind", prompt=4)

    assert "[interrupted]" in shown
    assert "Traceback" not in shown
    assert "[emulator: no answer]" in after


def test_a_result_cannot_steer_the_terminal(terminal: Terminal) -> None:
    """What a tool gives is shown as escapes."""
    terminal.type("%%svc --tools hostile\rUse hostile for 1" + END)
    terminal.until("In [3]:")

    assert "\x1b]0;owned" not in terminal.raw
    assert "\x1b[35;7H" not in terminal.raw
    assert "\\x1b]0;owned" in terminal.shown
