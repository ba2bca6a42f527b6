"""A. Wire and SSE: streams that are odd, and are read all the same."""

import gzip

from tests.faults.answers import (
    DONE,
    END,
    GOOD,
    chunk,
    chunked,
    event,
    head,
    http,
    reply,
    stream,
)
from tests.faults.case import Case, Step

TEXT = "สวัสดี 👩‍👩‍👧 ok"
WHOLE = chunk("สวัส") + chunk("ดี 👩‍👩") + chunk("‍👧 ok") + END
LATER = 0.02


def split(body: bytes, size: int) -> list[Step]:
    """Return a body in pieces, each in a packet of its own if the network lets it."""
    steps: list[Step] = []
    for at in range(0, len(body), size):
        steps += [body[at : at + size], 0.0005]
    return steps


def read(
    fault: str, *steps: Step, text: str = TEXT, answer: list[Step] | None = None
) -> Case:
    """Return a case in which the whole text is read."""
    return Case(section="A", fault=fault, answers=[answer or stream(*steps)], ends=text)


LF, CRLF, CR = WHOLE, WHOLE.replace(b"\n", b"\r\n"), WHOLE.replace(b"\n", b"\r")
ENDS = (b"\r\r", b"\n\n", b"\r\n\n", b"\n\r\n", b"\r\n\r\n")
MIXED = b"".join(map(bytes.__add__, WHOLE.split(b"\n\n"), ENDS))
ODD = "a\u2028b\u2029c\x85d\x0be\x0cf"
BIG = "ก" * 700_000
MANY = "".join(f"{at} " for at in range(20_000))
NO_SPACE = WHOLE.replace(b"data: ", b"data:")
IN_LINES = event({"choices": [{"index": 0, "delta": {"content": TEXT}}]}).replace(
    b', "delta"', b',\ndata: "delta"'
)
FIELDS = b"id: 7\nevent: message\nretry: 10\nunknown: x\nnothing\n"

SPLITS = [
    read(f"{name}, bytes in pieces of {size}", *split(body, size))
    for name, body in {"LF": LF, "CRLF": CRLF, "CR": CR}.items()
    for size in (1, 7)
]

READ = [
    *SPLITS,
    read("LF, CR and CRLF mixed", MIXED),
    read("a BOM first", b"\xef\xbb\xbf" + WHOLE),
    read("a BOM first, cut in three", b"\xef", LATER, b"\xbb", LATER, b"\xbf" + WHOLE),
    read("comments between events", WHOLE.replace(b"data", b": ping\n\ndata")),
    read("comments inside an event", WHOLE.replace(b"\n\n", b"\n: ping\n\n")),
    read("no space after data:", NO_SPACE),
    read("an event in several data lines", IN_LINES + END),
    read("fields beyond the document", *(FIELDS + each for each in [WHOLE])),
    read("U+2028, U+2029, U+0085, VT and FF in text", chunk(ODD) + END, text=ODD),
    read("2 MB in one event", chunk(BIG) + END, text=BIG),
    read(
        "20 000 deltas",
        b"".join(chunk(f"{at} ") for at in range(20_000)) + END,
        text=MANY,
    ),
    read(
        "a stream in gzip",
        answer=[head(Content_Encoding="gzip"), gzip.compress(WHOLE)],
    ),
    read(
        "a stream in gzip, byte for byte",
        answer=[head(Content_Encoding="gzip"), *split(gzip.compress(WHOLE), 1)],
    ),
    read(
        "labelled latin-1", answer=[head("text/event-stream; charset=latin-1"), WHOLE]
    ),
    read("labelled text/plain", answer=[head("text/plain"), WHOLE]),
    read("without a content type", answer=[b"HTTP/1.1 200 OK\r\n\r\n", WHOLE]),
    read(
        "in chunked coding",
        answer=[head(Transfer_Encoding="chunked"), chunked(WHOLE) + b"0\r\n\r\n"],
    ),
    read("[DONE] and no end of the body", WHOLE, "silence"),
    read("a reset after [DONE]", WHOLE, "reset"),
    read("data after [DONE]", WHOLE + chunk(" never") + END),
    read("data after [DONE], later", WHOLE, LATER, chunk(" never") + END),
    read("a finish reason and no [DONE]", WHOLE.removesuffix(DONE)),
    read("a finish reason, then a reset", WHOLE.removesuffix(DONE), "reset"),
    read("a whole answer instead of a stream", answer=[GOOD], text="Hello."),
    read(
        "a whole answer labelled as a stream",
        answer=[http(reply(), kind="text/event-stream")],
        text="Hello.",
    ),
]


def odd(fault: str, *events: object, text: str = "ab", params: int = 1) -> Case:
    """Return a case of chunks that differ from the document and can be read."""
    body = b"".join(event(each) for each in events)
    asked = {"n": params} if params > 1 else {}
    return Case(
        section="A", fault=fault, answers=[stream(body + DONE)], ends=text, params=asked
    )


def delta(finish: str | None = None, **content: object) -> dict[str, object]:
    """Return a chunk with this delta."""
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


A, B, STOP = delta(content="a"), delta(content="b"), delta("stop")
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
ODDITIES = [
    odd("choices []", A, {"choices": []}, B, STOP),
    odd("no delta", A, {"choices": [{"index": 0, "finish_reason": None}]}, B, STOP),
    odd("null delta", A, {"choices": [{"index": 0, "delta": None}]}, B, STOP),
    odd("null content", delta(content=None), A, B, STOP),
    odd("a role each time", *(delta(role="assistant", content=x) for x in "ab"), STOP),
    odd("usage last", A, B, STOP, {"choices": [], "usage": USAGE}),
    odd("two finish reasons", A, B, STOP, STOP),
    odd("text in the finishing chunk", A, delta("stop", content="b")),
    odd("an unknown finish reason", A, B, delta("because")),
    odd("labels of wrong types", {**A, "id": 5, "created": "x"}, B, STOP),
    odd("an object of an unknown type", A, {"type": "ping"}, B, STOP),
    odd("an empty error beside choices", {**A, "error": {}}, B, STOP),
    odd("choices without an index", {"choices": [{"delta": {"content": "ab"}}]}, STOP),
]
CHOICES = Case(
    section="A",
    fault="two choices interleaved",
    answers=[
        stream(
            chunk("a") + chunk("x", index=1) + chunk("b") + chunk("y", index=1),
            chunk(None, "stop", index=1) + END,
        )
    ],
    params={"n": 2},
    ends="ab",
    check=lambda completion: completion.texts == ("ab", "xy"),
)
WIRE = [*READ, *ODDITIES, CHOICES]
