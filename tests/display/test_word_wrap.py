"""Words that a terminal would break are moved to the next line while they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.display.front_end import Output, write_warning
from svc_notebook.display.reply_display import Final, Mode, ReplyDisplay
from svc_notebook.display.terminal_width import width, wrapped

N_COLUMNS = 20


def rows_of(printed: str) -> list[str]:
    """Return what a terminal shows, which goes back and breaks at its edge."""
    rows, column = [[""] * N_COLUMNS], 0
    for letter in printed:
        if letter == "\n":
            rows.append([""] * N_COLUMNS)
            column = 0
        elif letter == "\b":
            column = min(column, N_COLUMNS - 1) - 1
        elif not width(letter):
            rows[-1][max(column - 1, 0)] += letter
        else:
            if column + width(letter) > N_COLUMNS:
                rows.append([""] * N_COLUMNS)
                column = 0
            rows[-1][column] = letter
            column += width(letter)
    return ["".join(row).rstrip() for row in rows]


def shown(*pieces: str, is_verbatim: bool = False) -> list[str]:
    """Return the rows of a reply that came in pieces; each piece is printed at once."""
    printed: list[str] = []
    display = ReplyDisplay.open(
        Mode.PLAIN,
        is_verbatim=is_verbatim,
        output=Output(write=printed.append, columns=lambda: N_COLUMNS),
    )
    for n_pieces, piece in enumerate(pieces, start=1):
        display.add(piece)
        assert len(printed) == n_pieces
    display.finish(Final(texts=("".join(pieces),), is_verbatim=is_verbatim))
    return rows_of("".join(printed).removesuffix("\n"))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("The tide comes in twice a day.", ["The tide comes in", "twice a day."]),
        ("one two three four  \nfive", ["one two three four", "five"]),
        ("exactly nineteen ab cd", ["exactly nineteen ab", "cd"]),
        ("น้ำขึ้น น้ำลง น้ำตาย น้ำเกิด", ["น้ำขึ้น น้ำลง น้ำตาย", "น้ำเกิด"]),
        ("see http://a.test/a/long/way", ["see http://a.test/a/", "long/way"]),
        (
            "```\nx = one + two + three + four\n```\nAnd this is prose again",
            [
                *("```", "x = one + two + thre", "e + four", "```"),
                *("And this is prose", "again"),
            ],
        ),
    ],
)
@pytest.mark.parametrize("n_letters", [1, 3, 100])
def test_a_line_ends_between_words(text: str, rows: list[str], n_letters: int) -> None:
    """However it comes; what is long or code goes to the edge of the terminal."""
    pieces = [text[at : at + n_letters] for at in range(0, len(text), n_letters)]

    assert shown(*pieces) == rows


def test_a_text_shown_as_written_has_no_other_lines() -> None:
    """JSON and the like can be copied: the terminal itself breaks it."""
    assert shown("one two three four five", is_verbatim=True) == [
        "one two three four f",
        "ive",
    ]


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b ", " ", "ก่", "日", "\n"]), min_size=1).map(
            "".join
        )
    )
)
def test_no_letter_is_lost(pieces: list[str]) -> None:
    """Erased words come again, whole, below."""
    rows = shown(*pieces)

    assert "".join("".join(rows).split()) == "".join("".join(pieces).split())


@given(
    st.lists(
        st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    ),
    st.integers(4, 40),
)
def test_no_line_begins_with_a_dot(parts: list[list[str]], n_columns: int) -> None:
    """The dot between two parts is at the end of a line, behind a word."""
    line = " · ".join(map(" ".join, parts))

    lines = wrapped(line, n_columns).split("\n")

    assert " ".join(lines) == line
    assert not any(row.startswith("·") for row in lines)
    for row in lines:
        assert width(row) <= n_columns or " " not in row.removesuffix(" ·")


def test_an_indented_line_goes_on_below_itself() -> None:
    """A list in a note stays a list."""
    assert wrapped("  one two three four", 12) == "  one two\n  three four"


def test_a_remark_in_a_terminal_breaks_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as the note below a run."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(N_COLUMNS))

    write_warning("8 of 16 replies were cut.")

    assert capsys.readouterr().err == "8 of 16 replies\nwere cut.\n"


def test_a_footer_has_no_line_with_only_a_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its parts are, a dot ends the line of its words."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(N_COLUMNS))
    rows: list[str] = []
    for n_letters in range(1, N_COLUMNS - 1):
        printed: list[str] = []
        output = Output(write=printed.append, columns=lambda: N_COLUMNS)
        display = ReplyDisplay.open(Mode.PLAIN, output=output)
        display.finish(Final(texts=(), footer=f"{'a' * n_letters} · b c · d e f"))
        rows += rows_of("".join(printed))

    assert not any(row.startswith("·") for row in rows)
