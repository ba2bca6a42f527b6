"""What the demo says in the terminal, and the mark before every line of a reply."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.demo import quickstart
from svc_notebook.demo.marked_lines import MarkedLines
from svc_notebook.demo.run_notebook import NotebookRun
from svc_notebook.demo.terminal_demo import Report
from svc_notebook.display.terminal_width import width

PROSE = st.text(alphabet="ab cdeé กำ\n", max_size=200)


def _shown(pieces: list[str], columns: int = 40) -> str:
    lines = MarkedLines("emulator", columns=columns)
    return "".join(lines.feed(piece) for piece in pieces) + lines.close()


def test_breaks_between_words() -> None:
    """A line that is too long is broken where a word ends."""
    got = _shown(["a line that is longer than the room"], columns=34)

    assert got == ("  emulator │ a line that is\n  emulator │ longer than the room\n")


def test_a_line_does_not_part_a_thai_vowel_from_its_letter() -> None:
    """No line begins with a vowel that stands behind, or ends with one in front."""
    got = _shown(["ทำนำเกาะ" * 9], columns=34)

    lines = [line.removeprefix("  emulator │ ") for line in got.splitlines()]
    assert "".join(lines) == "ทำนำเกาะ" * 9
    assert not any(line[0] in "ะาำ" or line[-1] == "เ" for line in lines)


def test_shows_a_script_without_blanks_at_once() -> None:
    """Thai text does not wait for a blank."""
    got = MarkedLines("emulator", columns=40).feed("สวัสดี")

    assert got == "  emulator │ สวัสดี"


@given(PROSE, st.integers(24, 60))
def test_loses_no_letter_and_fills_no_line(text: str, columns: int) -> None:
    """Without blanks and marks, what is shown is what came, and no line is too long."""
    got = _shown([text], columns=columns)

    lines = got.splitlines()
    letters = "".join(line.removeprefix("  emulator │") for line in lines)
    assert "".join(letters.split()) == "".join(text.split())
    assert max(map(width, lines), default=0) <= max(columns, 33)


@given(st.lists(PROSE, max_size=8))
def test_letters_do_not_depend_on_the_pieces(pieces: list[str]) -> None:
    """However a text is cut, the same letters stand on marked lines."""
    got = _shown(pieces)

    marked = [line.removeprefix("  emulator │") for line in got.splitlines()]
    assert all(line.startswith("  emulator │") for line in got.splitlines())
    assert "".join("".join(marked).split()) == "".join("".join(pieces).split())


def test_a_demo_that_asked_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped before its first request it names no ledger and nobody who answered."""
    ended = NotebookRun(quickstart.read_quickstart(), "Stopped", is_stopped=True)

    Report("the emulator", is_coloured=False).end(ended, tmp_path)

    assert capsys.readouterr().out == (
        "\n  Stopped.\n\n"
        f"  Written\n    {tmp_path / quickstart.NAME}  (no request was sent)\n"
    )


@pytest.mark.parametrize("who", [quickstart.EMULATOR, "https://service.example/v1"])
@pytest.mark.parametrize("columns", [40, 60, 200])
def test_the_first_lines_fit_the_terminal(
    who: str,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They say who answers, in lines that are easy to read."""
    monkeypatch.setenv("COLUMNS", str(columns))

    Report(who, is_coloured=False).begin()

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= min(columns, 72)
    assert ("emulator" if who == quickstart.EMULATOR else who) in "".join(lines)
