import pytest

from svc_notebook.display.markup import to_terminal, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2Jx", r"\x1b[2Jx"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\a"),
        ("\x9b31m", r"\x9b31m"),
        ("a\bb\rc\x7f\x00", r"a\bb\rc\x7f\x00"),
        ("\u202eabc\u2069", r"\u202eabc\u2069"),
        ("\ud800", r"\ud800"),
    ],
    ids=["csi", "osc", "c1", "controls", "bidi", "surrogate"],
)
def test_terminal_controls_become_escapes(text: str, expected: str) -> None:
    """What a terminal would obey is shown as an escape."""
    got = to_terminal(text)

    assert got == expected


@pytest.mark.parametrize(
    "text",
    [
        "สวัสดีครับ ก็ได้",
        "👩‍👩‍👧 🇹🇭",
        "a < b & c\n\tด",
        "שלום\u200f!",
        "x\u200by",
        "e\u0301",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    """Thai, joined emoji, marks and right-to-left letters stay as they are."""
    got = (to_terminal(text), visible(text))

    assert got == (text, text)


def test_html_shows_controls_as_pictures() -> None:
    """In HTML a control is a picture, a bidi override a name, a surrogate U+FFFD."""
    got = visible("\x1b\x7f\u202e\x85\ud83d")

    assert got == "\u241b\u2421⟨U+202E⟩⟨U+0085⟩\ufffd"
