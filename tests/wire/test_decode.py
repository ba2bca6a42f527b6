"""Answers: as the document shows them, and as services really send them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import DocumentError
from svc_notebook.service.chunk import (
    CallPiece,
    Choice,
    Chunk,
    CompletionBody,
    Delta,
    Usage,
)
from svc_notebook.service.error_messages import Fault
from svc_notebook.service.request import FunctionCall, ToolCall
from svc_notebook.wire.decode import (
    ChunkDecoder,
    ServerSentEvent,
    SseDecoder,
    decode_completion,
    decode_fault,
    mend,
)

DOCUMENT = Path(__file__).parents[1] / "document"


def body(**fields: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a reply with these fields beside one choice."""
    choice = {"message": {"content": "x"}}
    return json.dumps({"choices": [choice], **fields}).encode()


ONE = (Choice(text="x"),)


def test_completion_of_the_document() -> None:
    """The document's completion is read whole."""
    message = {"role": "assistant", "content": "สวัสดี"}
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    got = decode_completion(
        json.dumps(
            {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "usage": {
                    "prompt_tokens": 1,
                    "completion_tokens": 2,
                    "total_tokens": 3,
                },
                "choices": [
                    {"index": 1, "message": asks, "finish_reason": "tool_calls"},
                    {"index": 0, "message": message, "finish_reason": "stop"},
                ],
            }
        ).encode()
    )

    assert got == CompletionBody(
        id="c",
        created=1,
        model="m",
        choices=(
            Choice(index=0, text="สวัสดี", finish_reason="stop"),
            Choice(
                index=1,
                tool_calls=(
                    ToolCall(id="t", function=FunctionCall(name="f", arguments="{}")),
                ),
                finish_reason="tool_calls",
            ),
        ),
        usage=Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3),
    )


def test_transcribed_completions() -> None:
    """Every completion that was transcribed from the document can be read."""
    bodies = json.loads((DOCUMENT / "completion.json").read_text("utf-8"))["bodies"]

    got = [decode_completion(json.dumps(each).encode()) for each in bodies.values()]

    texts = [each.choices[0].text for each in got if isinstance(each, CompletionBody)]
    assert texts == [
        each["choices"][0]["message"]["content"] for each in bodies.values()
    ]


def test_transcribed_stream() -> None:
    """The document's stream is read chunk by chunk."""
    events = list(SseDecoder().feed((DOCUMENT / "stream.sse").read_bytes()))

    got = [ChunkDecoder().decode(event) for event in events[:-1]]

    texts = [
        delta.text for each in got if isinstance(each, Chunk) for delta in each.deltas
    ]
    assert events[-1].data == "[DONE]"
    assert "".join(text or "" for text in texts)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 5, "created": "now", "model": None, "usage": "none", "object": 1},
        {"usage": {"prompt_tokens": "many"}},
        {"extra": 1e308, "nan": float("nan"), "huge": 10**400},
    ],
)
def test_wrong_labels_do_no_harm(fields: dict[str, Any]) -> None:
    """What only labels the answer is left out when its type is wrong."""
    assert decode_completion(body(**fields)) == CompletionBody(choices=ONE)


def test_halves_of_surrogates() -> None:
    """A whole reply's escapes are joined or shown; a delta's wait for their half."""
    text = b'"\\ud83d\\ude00 \\ud83d"'
    whole = decode_completion(b'{"choices":[{"message":{"content":' + text + b"}}]}")
    decoder = ChunkDecoder()
    delta = decoder.decode(
        ServerSentEvent('{"id":"\\ud800","choices":[{"delta":{"content":"\\ud83d"}}]}')
    )

    assert whole == CompletionBody(choices=(Choice(text="😀 \ufffd"),))
    assert delta == Chunk(id="\ufffd", deltas=(Delta(text=""),))
    assert decoder.flush() == Chunk(deltas=(Delta(text="\ufffd"),))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_text_beside_the_content(name: str) -> None:
    """Both names are read, and halves are joined; what is not a text is left out."""
    whole = {"choices": [{"message": {"content": "a", name: "b", "other": {}}}]}
    decoder = ChunkDecoder()
    halves = [f'{{"choices":[{{"delta":{{"{name}":"\\ud83{n}"}}}}]}}' for n in "dd"]
    odd = {"choices": [{"delta": {"content": "a", name: {"effort": "high"}}}]}
    marked = {name: True} if name == "reasoning_content" else {}

    assert decode_completion(json.dumps(whole).encode()) == CompletionBody(
        choices=(Choice(text="a", reasoning="b", other=marked),)
    )
    assert [decoder.decode(ServerSentEvent(each)) for each in halves] == [
        Chunk(deltas=(Delta(other=marked),)),
        Chunk(deltas=(Delta(reasoning="\ufffd", other=marked),)),
    ]
    assert decoder.flush() == Chunk(deltas=(Delta(reasoning="\ufffd"),))
    assert decoder.decode(ServerSentEvent(json.dumps(odd))) == Chunk(
        deltas=(Delta(text="a"),)
    )


CHUNKS: dict[str, Any] = {
    "no choices": ({}, ()),
    "null choices": ({"choices": None}, ()),
    "empty choices": ({"choices": []}, ()),
    "no delta": ({"choices": [{}]}, (Delta(),)),
    "null delta": ({"choices": [{"delta": None}]}, (Delta(),)),
    "null content": ({"choices": [{"delta": {"content": None}}]}, (Delta(),)),
    "no index": (
        {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]},
        (Delta(text="a"), Delta(index=1, text="b")),
    ),
    "call": (
        {
            "choices": [
                {"delta": {"tool_calls": [{"index": 0, "function": {"name": "f"}}, {}]}}
            ]
        },
        (Delta(calls=(CallPiece(index=0, name="f"), CallPiece())),),
    ),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_that_leave_things_out(name: str) -> None:
    """Whatever a chunk leaves out, the rest is read."""
    value, deltas = CHUNKS[name]

    assert ChunkDecoder().decode(ServerSentEvent(json.dumps(value))) == Chunk(
        deltas=deltas
    )


FAULTS = {
    b'{"error":{"message":"m","type":"t","param":"p","code":"c"}}': Fault(
        message="m", type="t", param="p", code="c"
    ),
    b'{"error":{"message":5,"type":null,"code":400}}': Fault(message="5", code="400"),
    b'{"error":"m"}': Fault(message="m"),
    b'{"error":true,"message":"m"}': Fault(message="m"),
    b'{"object":"error","message":"m","code":1}': Fault(message="m", code="1"),
    b'{"detail":"m"}': Fault(message="m"),
    b'{"detail":[{"loc":["body",0],"msg":"m"},"n",{"msg":"o"}]}': Fault(
        message="body.0: m; n; o"
    ),
    b'[{"error":{"message":"m"}}]': Fault(message="m"),
    b"[1]": Fault(message="[1]"),
    b'"m"': Fault(message="m"),
    b"null": Fault(),
    b"{}": Fault(),
    b"": Fault(),
    b"plain\x00": Fault(message="plain\\x00"),
    b"\xef\xbb\xbf{}": Fault(),
    b"<html>": Fault(message="(a page of HTML instead of an error body)"),
}


@pytest.mark.parametrize("raw", FAULTS)
def test_faults_of_every_shape(raw: bytes) -> None:
    """An error body of any shape is read as far as it can be."""
    assert decode_fault(raw) == FAULTS[raw]


_NAMES = [
    *("choices", "message", "delta", "content", "index", "error", "usage", "id"),
    *("tool_calls", "function", "arguments", "finish_reason"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(JSON | st.binary(max_size=30))
def test_nothing_foreign_comes_out(value: Any) -> None:  # noqa: ANN401 - JSON
    """Whatever is sent, it is a reply, a fault, or our own error, and can be shown."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()

    got = [
        _answer(lambda: decode_completion(raw)),
        _answer(
            lambda: ChunkDecoder().decode(
                ServerSentEvent(raw.decode("utf-8", "replace"))
            )
        ),
    ]

    assert all(str(each).encode() for each in got)
    assert str(decode_fault(raw)).encode()


def _answer(read: Callable[[], object]) -> object:
    try:
        return read()
    except DocumentError as error:
        return error, error.head.isprintable() or pytest.fail("the head is not")


@pytest.mark.parametrize("place", [5, True, None, {"a": 1}, ["body", 0], "body"])
def test_a_complaint_may_name_its_place_in_any_way(place: object) -> None:
    """A list of complaints is read whatever stands where the place should."""
    body = json.dumps({"detail": [{"loc": place, "msg": "busy"}]}).encode()

    assert decode_fault(body).message.endswith("busy")


def test_a_number_that_python_does_not_read_is_no_complaint() -> None:
    """An event without choices that only the fast decoder reads adds nothing."""
    found = ChunkDecoder().decode(ServerSentEvent(f'{{"x": {"1" * 5000}}}'))

    assert found == Chunk()


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
