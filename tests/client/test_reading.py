"""Bodies as they are read: every split, every way they can end."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.response import ReplyReader, ResponseHead
from svc_notebook.errors import StreamBrokenError
from svc_notebook.service.chunk import Choice, CompletionBody, Delta


def event(text: str | None, finish: str | None = None, index: int = 0) -> bytes:
    """Return one event; its text may be escaped JSON with halves of surrogates."""
    delta = "{}" if text is None else f'{{"content":"{text}"}}'
    choice = f'"index":{index},"delta":{delta},"finish_reason":{json.dumps(finish)}'
    return f'data: {{"choices":[{{{choice}}}]}}\n\n'.encode()


STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\n"
    + event("ที่")
    + event("👩‍👩‍👧\\ud83d")
    + event("x", index=1)
    + event("\\ude00!")
    + event(None, "stop")
    + event("y", "length", index=1)
    + b"data: [DONE]\n\n"
    + event("never shown")
)
READ = CompletionBody(
    choices=(
        Choice(text="ที่👩‍👩‍👧😀!", finish_reason="stop"),
        Choice(index=1, text="xy", finish_reason="length"),
    )
)


def reading(*, is_streamed: bool = True, **given_: Any) -> ReplyReader:  # noqa: ANN401
    """Return a reading of a body."""
    n_choices = given_.pop("n_choices", 1)
    head = ResponseHead(**{"status": 200, **given_})
    return ReplyReader(head, is_streamed=is_streamed, n_choices=n_choices)


def shown(found: ReplyReader, pieces: list[bytes]) -> dict[int, str]:
    """Feed pieces as the request path does, and join what is shown."""
    texts: dict[int, str] = {}
    deltas: list[Delta] = []
    for piece in pieces:
        if not found.is_done:
            deltas += found.feed(piece)
    if not found.is_done:
        deltas += found.end()
    for delta in deltas:
        texts[delta.index] = texts.get(delta.index, "") + (delta.text or "")
    return texts


@pytest.mark.slow
def test_a_stream_does_not_depend_on_its_split() -> None:
    """Cut at any byte, a stream shows the same texts and gives the same whole."""
    ways = [[STREAM[:at], STREAM[at:]] for at in range(len(STREAM) + 1)]
    ways.append([bytes([each]) for each in STREAM])

    for pieces in ways:
        found = reading(n_choices=2)
        texts = shown(found, pieces)

        assert texts == {0: "ที่👩‍👩‍👧😀!", 1: "xy"}
        assert (found.body(), found.error, found.n_chunks) == (READ, None, 6)


@pytest.mark.slow
@given(st.integers(0, len(STREAM) - len(event("never shown")) - 1))
def test_a_cut_stream_is_never_a_success(at: int) -> None:
    """Cut anywhere before both finish reasons, a stream is an error, and a prefix."""
    found = reading(n_choices=2)

    texts = shown(found, [STREAM[:at]])

    is_whole = at >= STREAM.index(b"data: [DONE]")
    assert (found.error is None) == is_whole
    assert is_whole or isinstance(found.error, StreamBrokenError)
    assert "ที่👩‍👩‍👧😀!".startswith(texts.get(0, "").removesuffix("\ufffd"))


def test_a_choice_that_never_came_keeps_the_stream_open() -> None:
    """With two choices asked for, one finish reason does not end the stream."""
    found = reading(n_choices=2)
    found.feed(event("a", "stop"))

    before = found.is_finished
    found.feed(event("b", "stop", index=1))

    assert (before, found.is_finished) == (False, True)


def test_comments_are_not_events() -> None:
    """Comments do not count as a sign of life; chunks do."""
    found = reading()
    found.feed(b": ping\n\n: ping\n\n")
    silent = found.n_events

    found.feed(event("a"))

    assert (silent, found.n_events) == (0, 1)
