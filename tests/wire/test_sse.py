"""Server-sent events, fed in every way they can be split."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import DocumentError
from svc_notebook.wire.decode import ServerSentEvent, SseDecoder

EXAMPLES = {
    "one": (b"data: a\n\n", [ServerSentEvent("a")]),
    "no space": (b"data:a\n\n", [ServerSentEvent("a")]),
    "two spaces": (b"data:  a\n\n", [ServerSentEvent(" a")]),
    "several lines": (b"data: a\ndata:\ndata: b\n\n", [ServerSentEvent("a\n\nb")]),
    "cr": (b"data: a\rdata: b\r\r", [ServerSentEvent("a\nb")]),
    "crlf": (
        b"data: a\r\n\r\ndata: b\r\n\r\n",
        [ServerSentEvent("a"), ServerSentEvent("b")],
    ),
    "crlf within": (
        b"event: e\r\ndata: a\r\ndata: b\r\n\r\n",
        [ServerSentEvent("a\nb", "e")],
    ),
    "mixed": (b"data: a\r\rdata: b\n\ndata: c\r\n\n", [*map(ServerSentEvent, "abc")]),
    "bom": (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent("a")]),
    "bom later": (b"data: \xef\xbb\xbfa\n\n", [ServerSentEvent("\ufeffa")]),
    "comments": (
        b": hi\n\n:\ndata: a\n: in between\ndata: b\n\n",
        [ServerSentEvent("a\nb")],
    ),
    "other fields": (b"id: 1\nretry: 5\nx: y\nz\ndata: a\n\n", [ServerSentEvent("a")]),
    "type": (
        b"event: error\ndata: a\n\ndata: b\n\n",
        [ServerSentEvent("a", "error"), ServerSentEvent("b")],
    ),
    "no data": (b"event: error\n\nid: 1\n\n\n\ndata: a\n\n", [ServerSentEvent("a")]),
    "data alone": (b"data\n\n", [ServerSentEvent("")]),
    "not line ends": (
        "data: a\u2028\u2029\x85\v\fb\n\n".encode(),
        [ServerSentEvent("a\u2028\u2029\x85\v\fb")],
    ),
    "thai and emoji": ("data: ที่👩‍👩‍👧🇹🇭\n\n".encode(), [ServerSentEvent("ที่👩‍👩‍👧🇹🇭")]),
    "bad utf-8": (b"data: a\xffb\n\n", [ServerSentEvent("a\ufffdb")]),
    "half event": (b"data: a\n\ndata: b\n", [ServerSentEvent("a")]),
    "half line": (b"data: a\n\ndata: b", [ServerSentEvent("a")]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_events_do_not_depend_on_the_split(name: str) -> None:
    """Cut at any byte, in two, or in single bytes, the events are the same."""
    body, events = EXAMPLES[name]
    ways = [[body[:at], body[at:]] for at in range(len(body) + 1)]
    ways.append([bytes([each]) for each in body])

    got = []
    for pieces in ways:
        decoder = SseDecoder()
        got.append([event for piece in pieces for event in decoder.feed(piece)])

    assert got == [events] * len(ways)


@pytest.mark.slow
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
    ),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(1, 7)),
)
def test_any_text_comes_back(texts: list[str], end: str, sizes: list[int]) -> None:
    """Any texts, with any line ends, in pieces of any sizes, come back exactly."""
    body = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    pieces = []
    for size in sizes:
        pieces.append(body[:size])
        body = body[size:]
    decoder = SseDecoder()

    got = [event.data for piece in [*pieces, body] for event in decoder.feed(piece)]

    assert got == texts


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r"])
def test_an_event_is_out_with_its_last_byte(end: bytes) -> None:
    """An event does not wait for the byte after the one that ends it."""
    decoder = SseDecoder()

    before = list(decoder.feed(b"data: a" + end[:-1]))

    assert before == []
    assert list(decoder.feed(end[-1:])) == [ServerSentEvent("a")]


@pytest.mark.slow
def test_large_events_take_linear_time() -> None:
    """2 MB in one event, in small pieces, and 20 000 events take little CPU time."""
    began_s = time.process_time()
    decoder = SseDecoder()
    pieces = [b"data: ", *[b"x" * 100] * 20_000, b"\n\n"]
    (event,) = (event for piece in pieces for event in decoder.feed(piece))
    n_events = sum(len(list(decoder.feed(b"data: {}\n\n"))) for _ in range(20_000))

    assert (len(event.data), n_events) == (2_000_000, 20_000)
    assert time.process_time() - began_s < 10


@pytest.mark.parametrize("piece", [b"x" * 60, b"data: " + b"x" * 30 + b"\n"])
def test_an_event_is_bounded(piece: bytes) -> None:
    """An event that does not end is refused, in one line or in many."""
    decoder = SseDecoder(max_event_bytes=100)
    list(decoder.feed(piece))

    with pytest.raises(DocumentError, match="100 bytes"):
        list(decoder.feed(piece * 3))


def every_event(decoder: SseDecoder, *pieces: bytes) -> Iterator[ServerSentEvent]:
    """Feed pieces, and give the events one by one."""
    for piece in pieces:
        yield from decoder.feed(piece)


@pytest.mark.parametrize(
    "line", [b"\0data: b", b" data: b", b"\xef\xbb\xbfdata: b", b"!"]
)
def test_a_damaged_line_is_no_unknown_field(line: bytes) -> None:
    """What cannot be a field's name is refused, behind the events before it."""
    body = b"data: a\n\n" + line + b"\n\n"
    for at in range(len(body) + 1):
        decoder = SseDecoder()
        events: list[ServerSentEvent] = []

        with pytest.raises(DocumentError, match="damaged line"):
            events.extend(every_event(decoder, body[:at], body[at:]))

        assert events == [ServerSentEvent("a")]
