"""Halves of surrogate pairs, wherever a stream cuts them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.service.chunk import Chunk
from svc_notebook.wire.decode import ChunkDecoder, ServerSentEvent, mend


def texts_of(chunk: object) -> dict[int, str]:
    """Return the text of each delta by its choice."""
    assert isinstance(chunk, Chunk)
    return {each.index: each.text or "" for each in chunk.deltas}


def event(text: str, index: int = 0) -> ServerSentEvent:
    """Return an event with a piece of text, its surrogates as escapes."""
    choice = {"index": index, "delta": {"content": text}}
    return ServerSentEvent(json.dumps({"choices": [choice]}))


def test_pairs_are_joined_and_single_halves_shown() -> None:
    """A pair becomes its character; a half alone becomes U+FFFD."""
    got = [mend(text) for text in ("a\ud83d\ude00b", "\ud83d", "\ude00x", "ก้")]

    assert got == ["a😀b", "\ufffd", "\ufffdx", "ก้"]


def test_halves_meet_over_pieces_of_one_choice_only() -> None:
    """Halves of different choices never meet; what is left comes out at the end."""
    decoder = ChunkDecoder()
    events = [
        event("a\ud83d"),
        event("\ude00", index=1),
        event("\ud83d", index=1),
        event("\ude00b"),
    ]

    got = [texts_of(decoder.decode(each)) for each in events]
    got += [texts_of(decoder.flush()), texts_of(decoder.flush())]

    assert got == [{0: "a"}, {1: "\ufffd"}, {1: ""}, {0: "😀b"}, {1: "\ufffd"}, {}]


@pytest.mark.slow
@given(st.text(), st.integers(0, 40))
def test_any_text_cut_between_any_halves(text: str, at: int) -> None:
    """Text that is cut in two between any UTF-16 units comes back exactly."""
    units = text.encode("utf-16-le", "surrogatepass")
    pieces = [
        half.decode("utf-16-le", "surrogatepass")
        for half in (units[: 2 * at], units[2 * at :])
    ]
    decoder = ChunkDecoder()

    chunks = [decoder.decode(event(piece)) for piece in pieces] + [decoder.flush()]

    assert "".join(texts_of(chunk).get(0, "") for chunk in chunks) == mend(text)
