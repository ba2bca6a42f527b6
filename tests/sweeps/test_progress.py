"""Progress bars in a notebook and in a terminal."""

import io
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from threading import Thread
from typing import Any

import pytest

from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.rate_windows import Waiting
from svc_notebook.display.front_end import Screen, find_screen
from svc_notebook.display.terminal_width import width
from svc_notebook.errors import BadRequestError, ServerFaultError
from svc_notebook.sweeps.grid import Trial
from svc_notebook.sweeps.plan import build_grid
from svc_notebook.sweeps.progress import Bars, ModelProgress, RepliesSoFar, progress_of
from svc_notebook.sweeps.scheduler import (
    FAILURES_IN_A_ROW,
    Answered,
    Failed,
    ModelQueue,
    Outcome,
    PendingTrials,
)

SMALL = "svc-v2-8b-instruct"
PARTS = [
    ModelProgress(
        name="m", n_done=3, n_total=10, note="1 failed · 20 tokens", is_bad=True
    ),
    ModelProgress(name="o", n_done=0, n_total=5, note="waits 12 s: minute limit"),
]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """Put a terminal in the place of standard error."""
    stream = _Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_terminal_gets_a_line_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Done, total and the note stand in a part's line."""
    terminal = _terminal(monkeypatch)
    bars = Bars(Screen.TERMINAL, clock=lambda: 0.0)

    bars.show(PARTS)
    bars.show(PARTS, is_last=True)

    text = terminal.getvalue()
    assert "m 3/10" in text
    assert "1 failed · 20 tokens" in text
    assert "waits 12 s: minute limit" in text


def test_the_bars_of_a_run_are_below_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They begin at one column and have one length, whatever their texts are."""
    terminal = _terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    names = ["small (svc-v1.5-instruct)", "ใหญ่"]
    parts = [
        ModelProgress(name=name, n_done=n, n_total=120, note="9 tokens · ends" * n)
        for n, name in enumerate(names)
    ]

    Bars(Screen.TERMINAL, clock=lambda: 0.0).show(parts, is_last=True)

    lines = re.findall(r"^(.*?)\|(.*?)\|", terminal.getvalue(), re.MULTILINE)
    drawn = [tuple(map(width, line)) for line in lines[-2:]]
    assert drawn[0] == drawn[1]


def _screen(printed: str) -> list[str]:
    """Return the lines of a terminal of 80 columns, which goes on in the next line."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[\d;]*\w|.", printed, re.DOTALL):
        if part == "\r":
            column = 0
        elif part == "\x1b[A":
            row -= 1
        elif part == "\n" or (not part.startswith("\x1b") and column == 80):
            row, column = row + 1, 0
        if part[0] >= " ":
            lines += [""] * (row + 1 - len(lines))
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("note", ["9 tokens", f"waits for {'m' * 60}"])
def test_what_ctrl_c_writes_leaves_no_old_line(
    monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    """A terminal writes "^C" behind a bar, or behind a line without a bar."""
    terminal = _terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    bars = Bars(Screen.TERMINAL, clock=lambda: 0.0)
    parts = [ModelProgress(name=name, n_done=3, n_total=10, note=note) for name in "mo"]

    bars.show(parts)
    terminal.write("^C")
    bars.show(parts, is_last=True)

    drawn = [line for line in _screen(terminal.getvalue()) if line]
    assert [line[:6] for line in drawn] == ["m 3/10", "o 3/10"]
    assert "^" not in "".join(drawn)


def test_a_notebook_gets_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook each part is a bar of widgets."""
    shown: list[Any] = []
    monkeypatch.setattr(
        "IPython.display.display", lambda bundle, **_: shown.append(bundle)
    )

    Bars(Screen.NOTEBOOK).show(PARTS, is_last=True)

    # the text that a notebook keeps if it is saved before the end has no count
    texts = [bundle["text/plain"] for bundle in shown]
    assert texts == ["Progress of m", "Progress of o"]


def test_a_notebook_keeps_bars_without_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end each widget is replaced by HTML, in which texts are no markup."""
    kept: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    monkeypatch.setattr(
        "IPython.display.update_display", lambda bundle, **_: kept.append(bundle)
    )
    part = ModelProgress(name="<b>m</b>", n_done=3, n_total=12, note="20 tokens")

    Bars(Screen.NOTEBOOK).show([part], is_last=True)

    [bundle] = kept
    assert bundle["text/plain"] == "<b>m</b> 3/12 · 20 tokens"
    assert "&lt;b&gt;m&lt;/b&gt; 3/12" in bundle["text/html"]
    assert "width:25%" in bundle["text/html"]


def test_all_bars_of_a_stopped_run_have_one_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With failures or without; a complete one is green."""
    kept: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    monkeypatch.setattr(
        "IPython.display.update_display", lambda bundle, **_: kept.append(bundle)
    )
    whole = ModelProgress(name="w", n_done=5, n_total=5)

    Bars(Screen.NOTEBOOK).show([*PARTS, whole], is_last=True)

    colours = [
        re.findall("width:[^;]*%;background:(#.{6})", bundle["text/html"])
        for bundle in kept
    ]
    assert colours[0] == colours[1] != colours[2]


@pytest.mark.slow
def test_two_threads_make_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """`start` draws on the user's thread while the run draws on its own."""
    shown: list[Any] = []
    seconds = count()
    bars = Bars(Screen.NOTEBOOK, clock=lambda: next(seconds))
    other = Thread(target=bars.show, args=(PARTS[:1],))

    def display(bundle: Any, **_: Any) -> None:  # noqa: ANN401 - IPython's
        shown.append(bundle)
        if len(shown) == 1:
            other.start()
            other.join(0.3)  # it cannot end before this does

    monkeypatch.setattr("IPython.display.display", display)
    bars.show(PARTS[:1])
    other.join()

    assert len(shown) == 1


def test_what_cannot_be_drawn_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that went away is no reason to stop."""
    stream = _Terminal()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)

    bars = Bars(Screen.TERMINAL)
    bars.show(PARTS, is_last=True)

    assert stream.closed


@pytest.mark.parametrize(
    ("display", "is_terminal", "expected"),
    [
        ("auto", True, Screen.TERMINAL),
        ("auto", False, Screen.NONE),
        ("settled", True, Screen.NONE),
        ("plain", True, Screen.TERMINAL),
    ],
)
def test_knows_who_watches_a_program(
    display: str, is_terminal: bool, expected: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside a notebook a terminal watches, unless the user said otherwise."""
    monkeypatch.setattr(sys, "stderr", _Terminal() if is_terminal else io.StringIO())
    monkeypatch.delitem(sys.modules, "IPython", raising=False)

    assert find_screen(display) is expected


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _queue(
    n_trials: int,
    outcomes: list[Outcome],
    *,
    model: str = SMALL,
    took_s: float = 0.0,
) -> ModelQueue:
    grid = build_grid("p", varied={"model": model}, repeats=n_trials)
    pull: Iterator[Trial] = iter(grid)
    queue = ModelQueue(model, PendingTrials(pull=pull, n_trials=n_trials))
    queue.limiter = RateLimits(clock=lambda: 0.0).of(model)
    for outcome in outcomes:
        queue.pull()
        queue.end(queue.take(0.0), outcome, took_s)
    return queue


def test_a_line_has_the_scores_so_far() -> None:
    """Problems come before the tokens, and colour the bar; rates come after them."""
    queue = _queue(2, [])
    [part] = progress_of(
        [queue],
        now_s=0.0,
        now_at=NOON,
        state="paused",
        replies=lambda model: RepliesSoFar(
            scores=[f"right 83 % of 6 by {model}"], problems=["1 answer not read"]
        ),
    )

    right = f"right 83 % of 6 by {SMALL}"
    assert part.note == f"paused · 1 answer not read · 0 tokens · {right}"
    assert part.is_bad


def test_a_line_says_what_was_done_before() -> None:
    """A run that goes on counts all its requests, and says what is of this time."""
    pending = PendingTrials(pull=iter(()), n_trials=26, n_before=1_014)
    [part] = progress_of([ModelQueue(SMALL, pending)], now_s=0.0, now_at=NOON)

    assert part.count == f"{SMALL} 1,014/1,040"
    assert part.note == "0 tokens now · 1,014 done before"


def _note(queue: ModelQueue, *, now_s: float = 0.0, state: str = "") -> str:
    [part] = progress_of([queue], now_s=now_s, now_at=NOON, state=state)
    return part.note


def test_says_which_limits_were_found() -> None:
    """A model without known limits has what its 429s have shown, and nothing before."""
    queue = _queue(20, [], model="svc-instruct")
    limits = RateLimits(clock=lambda: now_s)
    now_s, queue.limiter = 0.0, limits.of("svc-instruct")
    before = _note(queue)
    slots = [queue.limiter.reserve() for _ in range(8)]
    for slot in slots:
        queue.limiter.try_pass(slot)
        queue.limiter.sent(slot)
    now_s = 0.1
    for slot in slots:
        queue.limiter.answered(slot)
    level = _note(queue)
    slot = queue.limiter.reserve()
    queue.limiter.try_pass(slot)
    queue.limiter.sent(slot)
    queue.limiter.refused(slot, retry_after_s=None)
    now_s = 1.5
    queue.limiter.due()

    assert before == "0 tokens"
    assert level == "0 tokens"
    assert _note(queue) == "0 tokens · the service takes 8 requests a second"


def test_says_tokens_failures_and_the_computed_end() -> None:
    """A line has tokens so far, failures, and when the last reply is expected."""
    outcomes: list[Outcome] = [
        Answered(n_tokens=1500),
        Failed(error=BadRequestError("no")),
    ]
    [part] = progress_of([_queue(101, outcomes)], now_s=0.0, now_at=NOON)

    assert (part.n_done, part.n_total, part.is_bad) == (2, 101, True)
    assert part.note == "1 failed · ends about 12:02:00 · 1,500 tokens"


def test_says_what_it_waits_for() -> None:
    """A wait of some length is named with its reason."""
    queue = _queue(60, [Answered()])
    queue.waits_for = Waiting(12.0, f"per-minute limit of {queue.model}")

    assert _note(queue).startswith("waits until 12:00:12: per-minute limit · ")
    queue.behind = "svc-slow"
    assert _note(queue).startswith("waits for svc-slow · ")


@pytest.mark.parametrize("columns", [70, 80, 92, 120])
def test_a_narrow_line_says_first_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """The other parts are left out, and the bar is 8 wide or is left out, too."""
    terminal = _terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    wait = "waits until 14:03:20: per-minute limit"
    note = f"{wait} · ends about 14:05:00 · 1,060 tokens now · right 28 % of 50"
    models = [
        ModelProgress(name=SMALL, n_done=50, n_total=60, note=note),
        ModelProgress(name="m", n_done=60, n_total=60, note="2 tokens"),
    ]

    Bars(Screen.TERMINAL, clock=lambda: 0.0).show(models)

    line = re.split(r"[\r\n]", terminal.getvalue().rstrip("\r\n"))
    [drawn] = [text for text in line if wait in text][-1:]
    assert width(drawn) <= columns
    bar = re.search(r"\|(.*?)\|", drawn)
    assert bar is None or width(bar[1]) >= 8
    assert (bar is None) == (columns == 70)


def test_says_pauses_and_ends() -> None:
    """The note of a model says that it is paused, stopped, complete or given up."""
    failures: list[Outcome] = [
        Failed(error=ServerFaultError("gone"), is_of_service=True)
    ] * FAILURES_IN_A_ROW

    assert _note(_queue(3, []), state="paused") == "paused · 0 tokens"
    assert _note(_queue(3, []), state="stopped") == "stopped · 0 tokens"
    assert _note(_queue(1, [Answered(n_tokens=7)])) == "7 tokens"
    assert _note(_queue(50, failures)) == (
        "stopped: ServerFaultError · 10 failed · 0 tokens"
    )


def test_no_end_is_announced_before_the_first_reply() -> None:
    """How long replies take is not known before."""
    assert _note(_queue(99, [])) == "0 tokens"
