"""`%%svc` in plain IPython in a terminal: the same cells, as text."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.magics.use_and_login import EMULATOR_NOTE

fcntl = pytest.importorskip("fcntl", reason="a terminal needs Unix")
termios = pytest.importorskip("termios", reason="a terminal needs Unix")

TIMEOUT_S = 120.0
CTRL_C, TAB, ENTER = "\x03", "\t", "\r"
END = ENTER * 3  # a cell of several lines ends with two that are empty
# What a child does to own the terminal that it is given; then it is IPython.
TAKE = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
IPYTHON = ("-m", "IPython", "--no-banner", "--no-confirm-exit", "--ext=svc_notebook")
ESCAPES = re.compile(r"\x1b\][^\x07]*\x07|\x1b[\[(][0-9;?]*[A-Za-z]|\x1b[=>]")
HOSTILE = "\x1b]0;owned\x07\x1b[35;7Hmoved\x9b8mhidden\x08\x08 and back\r!"
CODE = "total = " + " + ".join(f"part_{n}" for n in range(20))
SENTENCE = "Considerable paragraphs necessitate " * 5
PROSE = f"{SENTENCE}\n\n```\n{CODE}\n```\n\n{SENTENCE}"
SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"contains": "stuck"},
        "text": ["Partial ", "answer"],
        "cut_after": 2,
        "end": "silent",
    },
    {
        "when": {"contains": "halt"},
        "text": ["Partial ", "answer"],
        "cut_after": 2,
        "end": "silent",
        "times": None,
    },
    {
        "when": {"contains": "slowly"},
        "text": [f"word{n} " for n in range(30)],
        "gap_s": 0.05,
    },
    {"when": {"contains": "hostile"}, "text": HOSTILE},
    {"when": {"contains": "short"}, "text": "one, tw", "finish_reason": "length"},
    {"when": {"contains": "Go on"}, "text": "two, three."},
    {
        "when": {"contains": "A notebook cell fails"},
        "times": None,
        "text": "So:\n```python\nratio = 1 / 4\n```",
    },
    {"when": {"contains": "long words"}, "times": None, "text": PROSE},
    {"text": "A reply.", "times": None},
]


class Terminal:
    """IPython in a terminal of 40 lines and 100 columns.

    Args:
        env: What its environment holds besides this one's.
        flags: More of its options.
    """

    def __init__(self, env: dict[str, str], *flags: str) -> None:
        self._fd, child = os.openpty()
        termios.tcsetwinsize(child, (40, 100))
        left_out = ("NO_COLOR", "COLUMNS", "LINES")  # pytest-xdist sets the size
        kept = {name: each for name, each in os.environ.items() if name not in left_out}
        self._ipython = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-c", TAKE, *IPYTHON, *flags],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**kept, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **env},
            start_new_session=True,
        )
        os.close(child)
        self.raw = ""
        self.until("In [1]:")

    @property
    def shown(self) -> str:
        """What came since the last `type`, without what steers the terminal."""
        return ESCAPES.sub("", self.raw).replace("\r", "")

    def until(self, text: str) -> str:
        """Read until a text shows; return what was shown."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.shown:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._fd], [], [], max(left_s, 0))
            assert ready, f"{text!r} does not show; so far: {self.raw!r}"
            self.raw += os.read(self._fd, 65536).decode("utf-8", "replace")
        return self.shown

    def type(self, keys: str) -> None:
        """Type keys; what was shown before is forgotten."""
        self.raw = ""
        os.write(self._fd, keys.encode())

    def run(self, cell: str, *, prompt: int) -> str:
        """Run a cell; return what is shown up to the prompt of that number."""
        self.type(cell.replace("\n", ENTER) + (END if "\n" in cell else ENTER))
        return self.until(f"In [{prompt}]:")

    def close(self) -> None:
        """End IPython."""
        with suppress(ProcessLookupError):
            os.killpg(self._ipython.pid, signal.SIGKILL)
        self._ipython.wait()
        os.close(self._fd)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """An emulator that answers word by word, gets stuck, or attacks."""
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


@pytest.fixture
def begin(emulator: Emulator) -> Iterator[Callable[..., Terminal]]:
    """Begins IPython, whose service is the emulator."""
    begun: list[Terminal] = []

    def begin(*flags: str, **env: str) -> Terminal:
        service = {
            "SVC_BASE_URL": emulator.base_url,
            "SVC_API_KEY": emulator.api_key,
            "SVC_LEDGER": ":memory:",
        }
        begun.append(Terminal({**service, **env}, *flags))
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.close()


def test_a_reply_is_printed_as_it_comes(begin: Callable[..., Terminal]) -> None:
    """Each word is there once; then one footer, and no `Out[1]:`."""
    terminal = begin()
    terminal.type("%%svc\rSpeak slowly" + END)

    terminal.until("word3 ")
    shown = terminal.until("In [2]:")

    assert shown.count("word29") == 1
    assert "\n[emulator] svc-v2-8b-instruct · " in shown
    assert "Out[" not in shown


def test_words_show_while_the_service_writes_and_ctrl_c_is_calm(
    begin: Callable[..., Terminal], emulator: Emulator
) -> None:
    """The prompt comes back, and one line says that the text is kept."""
    terminal = begin()
    terminal.type("%%svc\rGet stuck" + END)
    terminal.until("Partial answer")
    assert emulator.requests[-1].ended == "running"

    terminal.type(CTRL_C)
    shown = terminal.until("In [2]:")

    assert emulator.wait_idle()
    assert emulator.requests[-1].is_cut_by_client
    assert "[interrupted]" in shown
    assert shown.count("interrupted") == 1
    assert "s ·\n`%svc continue` asks for the rest · svc.last() has what" in shown
    assert "Traceback" not in shown
    kept = terminal.run("import svc_notebook; svc_notebook.last().text", prompt=3)
    assert "'Partial answer'" in kept


def test_the_rest_of_a_cut_reply_is_printed(begin: Callable[..., Terminal]) -> None:
    """Only what is new, then the footer; the value is the whole reply."""
    terminal = begin()
    cut = terminal.run("%%svc\nBe short", prompt=2)

    rest = terminal.run("%svc continue", prompt=3)
    whole = terminal.run("print(_)", prompt=4)

    assert "`%svc continue` asks for the rest" in cut
    assert "\no, three.\n[emulator] svc-v2-8b-instruct · " in rest
    assert "Out[" not in rest
    assert "one, two, three." in whole


def test_what_steers_a_terminal_is_not_obeyed(begin: Callable[..., Terminal]) -> None:
    """Escapes, bells and backspaces of a reply do not reach the terminal."""
    terminal = begin()

    terminal.run("%%svc\nBe hostile", prompt=2)

    assert "moved" in terminal.raw
    steering = ("\x1b]0;owned", "\x1b[35;7H", "\x9b", "\x08\x08", "back\r!")
    assert [each for each in steering if each in terminal.raw] == []


def test_a_cell_is_corrected(begin: Callable[..., Terminal]) -> None:
    """It is shown, then sent; the code waits at the next prompt and is not run."""
    terminal = begin()
    terminal.run("ratio = 1 / 0", prompt=2)

    shown = terminal.run("%svc fix", prompt=3)
    terminal.run("%svc fix", prompt=4)
    asked = terminal.until("ratio = 1 / 4")

    assert "Dry run: nothing was sent" in shown
    assert "  Cell In[1], line 1, in <module>\n    ratio = 1 / 0" in shown
    assert "is in the next cell, and was not run" in asked
    assert "Out[3]:" not in asked
    assert asked.rindex("ratio = 1 / 4") > asked.index("In [4]:")


def test_a_simple_prompt_has_no_next_cell(begin: Callable[..., Terminal]) -> None:
    """It says so, and `%svc insert` prints the code."""
    terminal = begin("--simple-prompt")
    terminal.run("ratio = 1 / 0", prompt=2)

    fixed = terminal.run("%svc fix --send", prompt=3)
    inserted = terminal.run("%svc insert", prompt=4)

    assert "is in the next cell" not in fixed + inserted
    assert "a simple prompt has no next cell" in fixed
    assert "a simple prompt has no next cell" in inserted
    assert "\nratio = 1 / 4\n" in inserted


def test_what_a_command_says_breaks_at_blanks(
    begin: Callable[..., Terminal],
) -> None:
    """The lines fit into the terminal."""
    shown = begin().run("%svc use emulator", prompt=2)

    said = shown[shown.index("Replies now") : shown.index("In [2]:")].strip()
    assert len(said.splitlines()) > 1
    assert max(map(len, said.splitlines())) <= 100  # columns of the terminal
    assert " ".join(said.split()) == EMULATOR_NOTE


def test_a_rating_says_once_how_far_it_is(begin: Callable[..., Terminal]) -> None:
    """What is answered is there, and the end is the cell's value alone."""
    terminal = begin()
    terminal.run("import svc_notebook as svc", prompt=2)
    terminal.run("run = svc.sweep('Please greet').run()", prompt=3)
    terminal.type("run.rate(in_terminal=True)\r")
    card = terminal.until("p prompt > ")

    terminal.type("y\r")
    end = terminal.until("In [4]:")

    assert "Prompt: Please greet" in card
    assert end.count("1 of 1 replies rated as good") == 1
    assert end.count("The score is rated_good") == 1


def test_a_panel_says_where_it_shows(begin: Callable[..., Terminal]) -> None:
    """A terminal has no widgets: the conversation is printed, with the ways on."""
    terminal = begin()
    terminal.run("import svc_notebook as svc", prompt=2)

    shown = terminal.run("svc.panel('plan')", prompt=3)

    assert "(no turns yet)" in shown
    assert "`%%svc -c plan`" in shown
    assert "`%%svc -c plan` or\nsvc.conversation('plan').ask(...)" in shown
    spaced = terminal.run("svc.panel('support prompt')", prompt=4)
    assert "`%%svc -c 'support prompt'`" in " ".join(spaced.split())


def test_a_reply_that_is_shown_again_breaks_at_blanks(
    begin: Callable[..., Terminal],
) -> None:
    """Wherever it is shown, its lines are those of the stream, and code is whole."""
    terminal = begin()
    terminal.run("%%svc -c plan -o one\nUse long words", prompt=2)
    cells = ("one", "%svc last", "%svc history plan")
    opening = "import svc_notebook as svc; svc.panel('plan')"
    several = "%%svc --repeats 2\nUse long words"

    shown = [
        terminal.run(cell, prompt=prompt)
        for prompt, cell in enumerate((*cells, opening, several), start=3)
    ]

    for text in shown:
        lines = [line.strip() for line in text.splitlines()]
        assert lines.count(CODE) == 1 + (text is shown[-1])
        broken = " ".join(SENTENCE.split()[:8])
        assert broken in lines
        said = {line for line in lines if not line.startswith("In [")} - {CODE}
        assert max(map(len, said)) < 100


def test_replies_side_by_side_say_how_far_they_are(
    begin: Callable[..., Terminal],
) -> None:
    """One line counts; after Ctrl-C what arrived is below it."""
    terminal = begin()
    terminal.type("%%svc --repeats 2\rPlease halt" + END)
    terminal.until("0 of 2 replies · 28 characters so far")

    terminal.type(CTRL_C)
    shown = terminal.until("In [2]:")

    # As it handles Ctrl-C, a terminal may drop a line end that is being written.
    assert re.match(r"\n?\^C\n?svc-v2-8b-instruct\n", shown)
    assert shown.count("Partial answer\n[interrupted]") == 2
