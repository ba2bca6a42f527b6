"""What the demo says in the terminal, and the mark before every line of a reply."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.demo import quickstart
from svc_notebook.demo.marked_lines import MarkedLines, width
from svc_notebook.demo.run_notebook import NotebookRun
from svc_notebook.demo.terminal_demo import Report

PROSE = st.text(alphabet="ab cdeé กำ\n", max_size=200)


def _shown(pieces: list[str], columns: int = 40) -> str:
    lines = MarkedLines("emulator", columns=columns)
    return "".join(lines.feed(piece) for piece in pieces) + lines.close()


def test_every_line_is_marked() -> None:
    """A text of three lines, one of them empty, is shown with three marks."""
    got = _shown(["one\n\nthree"])

    assert got == "  emulator │ one\n  emulator │\n  emulator │ three\n"


def test_breaks_between_words() -> None:
    """A line that is too long is broken where a word ends."""
    got = _shown(["a line that is longer than the room"], columns=34)

    assert got == ("  emulator │ a line that is\n  emulator │ longer than the room\n")


def test_what_goes_on_stands_as_far_in_as_its_line() -> None:
    """The indent of a line is that of all its parts, and not of the next line."""
    got = _shown(["    a line that is long\nand another that is too"], columns=34)

    assert got.splitlines() == [
        "  emulator │     a line that is",
        "  emulator │     long",
        "  emulator │ and another that is",
        "  emulator │ too",
    ]


def test_breaks_a_word_that_fits_on_no_line() -> None:
    """A word wider than the terminal is broken where the line is full."""
    got = _shown(["a" * 45], columns=34)

    assert got.splitlines() == [
        "  emulator │ " + "a" * 20,
        "  emulator │ " + "a" * 20,
        "  emulator │ " + "a" * 5,
    ]


def test_a_line_does_not_part_a_thai_vowel_from_its_letter() -> None:
    """No line begins with a vowel that stands behind, or ends with one in front."""
    got = _shown(["ทำนำเกาะ" * 9], columns=34)

    lines = [line.removeprefix("  emulator │ ") for line in got.splitlines()]
    assert "".join(lines) == "ทำนำเกาะ" * 9
    assert not any(line[0] in "ะาำ" or line[-1] == "เ" for line in lines)


def test_shows_a_word_as_soon_as_it_has_ended() -> None:
    """A short word waits for its end; the blank behind it lets it out."""
    lines = MarkedLines("emulator", columns=40)

    got = [lines.feed(piece) for piece in ("Hel", "lo ", "wor")]

    assert got == ["", "  emulator │ Hello", ""]


def test_shows_a_script_without_blanks_at_once() -> None:
    """Thai text does not wait for a blank."""
    got = MarkedLines("emulator", columns=40).feed("สวัสดี")

    assert got == "  emulator │ สวัสดี"


def test_colours_the_mark_and_not_the_text() -> None:
    """With colours the mark is coloured and the text is not."""
    lines = MarkedLines("service", columns=60, is_coloured=True)

    got = lines.feed("text ") + lines.close()

    assert got == "  \x1b[36mservice │\x1b[0m text\n"


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("กำลัง", 4), ("漢字", 4), ("é", 1), ("", 0)]
)
def test_width_counts_columns(text: str, columns: int) -> None:
    """Marks on letters take no column, wide letters two."""
    assert width(text) == columns


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
