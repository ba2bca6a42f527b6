"""Progress bars in a notebook and in a terminal."""

import io
import sys
import warnings
from dataclasses import replace
from itertools import count
from threading import Thread
from typing import Any

import pytest

from svc_notebook.display.output import Screen, find_screen
from svc_notebook.sweeps.progress import Bars, Part

PARTS = [
    Part(name="m", n_done=3, n_total=10, note="1 failed · 20 tokens", is_bad=True),
    Part(name="o", n_done=0, n_total=5, note="waits 12 s: minute limit"),
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


def test_what_was_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last time nothing more is drawn, also if it is shown again."""
    terminal = _terminal(monkeypatch)
    bars = Bars(Screen.TERMINAL, clock=lambda: 0.0)
    bars.show(PARTS, is_last=True)
    n_before = len(terminal.getvalue())

    bars.show(PARTS, is_last=True)
    bars.show(PARTS)

    assert len(terminal.getvalue()) == n_before


def test_nothing_is_drawn_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two updates lies a gap, except before the last."""
    now_s = 0.0
    terminal = _terminal(monkeypatch)
    bars = Bars(Screen.TERMINAL, clock=lambda: now_s)
    bars.show(PARTS)
    n_before = len(terminal.getvalue())

    bars.show(PARTS)
    n_at_once = len(terminal.getvalue())
    now_s = 1.0
    bars.show(PARTS)

    assert n_at_once == n_before
    assert len(terminal.getvalue()) > n_before
    bars.close()


def test_no_screen_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a screen nothing is written."""
    Bars(Screen.NONE).show(PARTS, is_last=True)

    assert capsys.readouterr() == ("", "")


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


def test_a_bar_of_failures_is_orange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is coloured without a warning of tqdm, each time it is drawn."""
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    bars = Bars(Screen.NOTEBOOK)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            bars.show([replace(PARTS[0], n_done=10)], is_last=False)
        bars.show(PARTS, is_last=True)

    assert caught == []


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
