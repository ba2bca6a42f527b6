import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Protocol

import pytest

from svc_notebook.display.live import Screen
from svc_notebook.display.reply import Final
from svc_notebook.display.stream import Growing, Mode

_FINAL = Final(texts=("One.\n\nTwo.",), footer="3 tokens", marks=("cut",))


class Recorder(Protocol):
    """The fixture's face."""

    acts: list[tuple[str, Mapping[str, str] | str | None, str | None]]
    now_s: float
    clock: Callable[[], float]

    def screen(self) -> Screen:
        """Make the screen that is recorded."""

    def kinds(self) -> list[str]:
        """List what was done."""

    def printed(self) -> str:
        """Join what was written."""

    def cell(self) -> list[Mapping[str, str]]:
        """Give the outputs of the cell."""


def _open(recorder: Recorder, mode: Mode, *, own_output: bool = True) -> Growing:
    return Growing.open(
        mode,
        own_output=own_output,
        screen=recorder.screen(),
        clock=recorder.clock,
        display_id="d",
    )


def test_live_shows_the_first_text_at_once(recorder: Recorder) -> None:
    """The first piece is one display, HTML only, without waiting for a flush."""
    growing = _open(recorder, Mode.LIVE)

    growing.add("On")

    assert recorder.acts == [
        ("publish", {"text/html": "<div><p>On</p>\n</div>"}, "d-1")
    ]


def test_live_gathers_what_comes_within_50_ms(recorder: Recorder) -> None:
    """Pieces between two updates are shown together, also if no more come."""
    growing = _open(recorder, Mode.LIVE)
    growing.add("O")
    recorder.now_s = 0.02
    growing.add("n")
    growing.add("e")
    recorder.now_s = 0.05

    growing.flush()

    assert recorder.acts[1:] == [
        ("update", {"text/html": "<div><p>One</p>\n</div>"}, "d-1")
    ]


def test_live_sends_nothing_when_nothing_is_new(recorder: Recorder) -> None:
    """A flush without news costs no message."""
    growing = _open(recorder, Mode.LIVE)
    growing.add("One")
    recorder.now_s = 1.0

    growing.flush()

    assert recorder.kinds() == ["publish"]


def test_live_shows_finished_blocks_once(recorder: Recorder) -> None:
    """A finished block takes the tail's place, with its source; a new tail opens."""
    growing = _open(recorder, Mode.LIVE)
    growing.add("One.\n")
    recorder.now_s = 1.0

    growing.add("\nTwo")

    assert recorder.acts[1:] == [
        (
            "update",
            {"text/html": "<div><p>One.</p>\n</div>", "text/plain": "One.\n\n"},
            "d-1",
        ),
        ("publish", {"text/html": "<div><p>Two</p>\n</div>"}, "d-2"),
    ]


def test_live_ends_with_one_output(recorder: Recorder) -> None:
    """At the end the cell is cleared and holds the final form alone."""
    growing = _open(recorder, Mode.LIVE)
    growing.add("One.\n\nTwo.")

    growing.settle(_FINAL)

    assert (recorder.cell(), recorder.kinds()[-2:]) == (
        [_FINAL.bundle()],
        ["clear", "publish"],
    )


def test_live_clears_nothing_when_nothing_grew(recorder: Recorder) -> None:
    """A reply that came whole is one display."""
    growing = _open(recorder, Mode.LIVE)

    growing.settle(_FINAL)

    assert recorder.acts == [("publish", _FINAL.bundle(), None)]


def test_live_takes_everything_away_if_nothing_stays(recorder: Recorder) -> None:
    """Settled without a reply, the cell is empty."""
    growing = _open(recorder, Mode.LIVE)
    growing.note("waiting 12 s for the minute limit")

    growing.settle(None)

    assert recorder.cell() == []


def test_notes_stand_below_the_text_until_more_comes(recorder: Recorder) -> None:
    """A note replaces the one before, and text replaces the note."""
    growing = _open(recorder, Mode.LIVE)
    shown = []
    for show, text in (
        (growing.note, "waiting 2 s"),
        (growing.note, "waiting 1 s"),
        (growing.add, "On"),
    ):
        recorder.now_s += 1.0
        show(text)
        shown.append(recorder.cell()[0]["text/html"])

    is_shown = [("waiting 2 s" in html, "waiting 1 s" in html) for html in shown]
    assert is_shown == [(True, False), (False, True), (False, False)]


def test_among_other_output_notes_show_too(recorder: Recorder) -> None:
    """A note stands below the text in the one display."""
    growing = _open(recorder, Mode.LIVE, own_output=False)

    growing.note("waiting 2 s")

    assert "waiting 2 s" in recorder.cell()[0]["text/html"]


def test_among_other_output_one_display_is_updated(recorder: Recorder) -> None:
    """Without an output of its own, the reply keeps to one display made at once."""
    growing = _open(recorder, Mode.LIVE, own_output=False)
    growing.add("One.\n\nTw")
    recorder.now_s = 1.0
    growing.add("o.")

    growing.settle(_FINAL)

    assert (recorder.kinds(), recorder.cell()) == (
        ["publish", "update", "update", "update"],
        [_FINAL.bundle()],
    )


def test_among_other_output_updates_grow_rare(recorder: Recorder) -> None:
    """The gap grows with the text, to 250 ms and no further."""
    growing = _open(recorder, Mode.LIVE, own_output=False)
    growing.add("word " * 10_000)
    growing.add("more")
    recorder.now_s = 0.24
    growing.flush()
    n_before = len(recorder.acts)
    recorder.now_s = 0.25

    growing.flush()

    assert (n_before, len(recorder.acts)) == (2, 3)


def test_settled_shows_one_display(recorder: Recorder) -> None:
    """Settled, neither text nor notes show before the one final display."""
    growing = _open(recorder, Mode.SETTLED)
    growing.note("waiting 2 s")
    growing.add("One.")
    growing.flush()

    growing.settle(_FINAL)

    assert recorder.acts == [("publish", _FINAL.bundle(), None)]


def test_plain_prints_text_as_it_comes(recorder: Recorder) -> None:
    """Printed text is whole, safe, and followed by the closing line alone."""
    growing = _open(recorder, Mode.PLAIN)
    growing.add("One.\n\n")
    growing.add("Two.")

    growing.settle(_FINAL)

    assert recorder.printed() == "One.\n\nTwo.\n[cut] 3 tokens\n"


def test_plain_prints_the_choices_that_did_not_grow(recorder: Recorder) -> None:
    """Of several choices, those not printed yet follow at the end."""
    growing = _open(recorder, Mode.PLAIN)
    growing.add("One")

    growing.settle(Final(texts=("One", "Two")))

    assert recorder.printed() == "One\n\n[2 of 2]\nTwo\n"


def test_plain_prints_nothing_a_terminal_obeys(recorder: Recorder) -> None:
    """Control characters are printed as escapes, cut anywhere."""
    growing = _open(recorder, Mode.PLAIN)
    for piece in ("\x1b", "]0;x\x07", "\r"):
        growing.add(piece)

    growing.settle(Final(texts=("\x1b]0;x\x07\r",), footer="\x1b[2J"))

    assert recorder.printed() == "\\x1b]0;x\\a\\r\n\\x1b[2J\n"


def test_plain_prints_a_countdown_once(recorder: Recorder) -> None:
    """Notes that differ in figures only are one line."""
    growing = _open(recorder, Mode.PLAIN)
    growing.add("One")
    for note in ("waiting 2 s", "waiting 1 s", "trying again"):
        growing.note(note)

    growing.settle(None)

    assert recorder.printed() == "One\nwaiting 2 s\ntrying again\n"


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_follows_the_end(recorder: Recorder, mode: Mode) -> None:
    """After settling, text, notes, flushes and another end change nothing."""
    growing = _open(recorder, mode)
    growing.settle(_FINAL)
    before = list(recorder.acts)
    recorder.now_s = 9.0

    growing.add("late")
    growing.note("late")
    growing.flush()
    growing.settle(_FINAL)

    assert recorder.acts == before


def test_an_unknown_mode_is_refused() -> None:
    """A mode is one of three words."""
    with pytest.raises(ValueError, match="loud"):
        Growing.open("loud")


def test_import_leaves_the_notebook_alone() -> None:
    """Importing the module loads neither IPython nor widgets."""
    code = (
        "import sys, svc_notebook.display.stream;"
        "print({'IPython', 'ipywidgets', 'httpx'} & set(sys.modules))"
    )

    got = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert got.stdout.strip() == "set()"
