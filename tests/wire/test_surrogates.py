"""Halves of surrogate pairs, wherever a stream cuts them."""

from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.wire.text import Joiner, mend


def test_pairs_are_joined_and_single_halves_shown() -> None:
    """A pair becomes its character; a half alone becomes U+FFFD."""
    got = [mend(text) for text in ("a\ud83d\ude00b", "\ud83d", "\ude00x", "ก้")]

    assert got == ["a😀b", "\ufffd", "\ufffdx", "ก้"]


def test_halves_meet_over_pieces_of_one_place_only() -> None:
    """Halves of different choices never meet; what is left comes out at the end."""
    joiner = Joiner()

    got = [
        joiner.join((0, "text"), "a\ud83d"),
        joiner.join((1, "text"), "\ude00"),
        joiner.join((1, "text"), "\ud83d"),
        joiner.join((0, "text"), "\ude00b"),
        joiner.flush(),
        joiner.flush(),
    ]

    assert got == ["a", "\ufffd", "", "😀b", {(1, "text"): "\ufffd"}, {}]


@given(st.text(), st.integers(0, 40))
def test_any_text_cut_between_any_halves(text: str, at: int) -> None:
    """Text that is cut in two between any UTF-16 units comes back exactly."""
    units = text.encode("utf-16-le", "surrogatepass")
    pieces = [
        half.decode("utf-16-le", "surrogatepass")
        for half in (units[: 2 * at], units[2 * at :])
    ]
    joiner = Joiner()

    got = "".join(joiner.join((0, None), piece) for piece in pieces)

    assert got + "".join(joiner.flush().values()) == mend(text)
