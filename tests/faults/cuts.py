"""A. Wire and SSE: streams that end before their end, or hold what is no chunk."""

import gzip
import zlib

from svc_notebook.errors import (
    DocumentError,
    ServerFaultError,
    StreamBrokenError,
    TimedOutError,
)
from tests.faults.answers import (
    DONE,
    END,
    chunk,
    chunked,
    event,
    head,
    refusal,
    slowly,
    stream,
)
from tests.faults.case import Case, Fails, Step
from tests.faults.player import KEY
from tests.faults.wire import LATER, TEXT, WHOLE


def flushed(body: bytes) -> bytes:
    """Return the beginning of a gzip stream, as far as a sender flushes it."""
    member = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return member.compress(body) + member.flush(zlib.Z_SYNC_FLUSH)


def cut(fault: str, *steps: Step, kind: type = StreamBrokenError, **says: str) -> Case:
    """Return a case in which "some" came and the rest did not."""
    return Case(
        section="A",
        fault=fault,
        answers=[stream(chunk("so"), chunk("me"), LATER, *steps)],
        ends=Fails(kind=kind, partial="some", says=tuple(says.values())),
    )


def brief(case: Case, **timeouts: float) -> Case:
    """Return the case with shorter deadlines."""
    values = {name: getattr(case, name) for name in case.__dataclass_fields__}
    return Case(**{**values, "timeouts": timeouts})


CUT = [
    cut("a clean end without finish reason or [DONE]"),
    cut("[DONE] without a finish reason", DONE),
    cut("an end inside an event", chunk(" more")[:-6]),
    cut("an end inside a character", chunk("ก")[:40]),
    cut("a reset in the middle", "reset"),
    brief(cut("silence in the middle", "silence", kind=TimedOutError), idle_s=0.2),
    brief(
        cut(
            "comments and nothing else",
            *slowly(0.03, b": ping\n\n"),
            kind=TimedOutError,
        ),
        idle_s=0.3,
    ),
    brief(
        cut(
            "empty events and nothing else",
            *slowly(0.03, b"data:\n\n"),
            kind=TimedOutError,
        ),
        idle_s=0.3,
    ),
    brief(
        cut(
            "half an event, then silence",
            chunk("x")[:20],
            "silence",
            kind=TimedOutError,
        ),
        idle_s=0.2,
    ),
    brief(
        cut("one byte of an event at a time", *slowly(0.05, b"d"), kind=TimedOutError),
        idle_s=0.3,
    ),
    cut(
        "an error object", event({"error": {"message": "busy"}}), kind=ServerFaultError
    ),
    cut("an error as a text", event({"error": "busy"}), kind=ServerFaultError),
    cut(
        "event: error",
        b'event: error\ndata: {"message": "busy"}\n\n',
        kind=ServerFaultError,
    ),
    cut(
        "event: error, bare words",
        b"event: error\ndata: busy\n\n",
        kind=ServerFaultError,
    ),
    cut("an error without its name", event({"message": "busy"}), kind=ServerFaultError),
    cut("an event of `detail`", event({"detail": "busy"}), kind=ServerFaultError),
    cut(
        "an error beside a whole reply",
        chunk("", "stop") + event({"error": {"message": "busy"}}) + DONE,
        kind=ServerFaultError,
    ),
    *(
        cut(f"an event that is {name}", b"data: " + data + b"\n\n", kind=DocumentError)
        for name, data in {
            "not JSON": b"oops",
            "half JSON": b'{"choices": [',
            "an array": b"[1]",
            "a text": b'"text"',
            "a number": b"1",
            "null": b"null",
            "HTML": b"<html>",
            "nested 100 000 deep": b"[" * 100_000,
            "of choices that are a text": b'{"choices": "x"}',
            "of a delta that is a text": b'{"choices": [{"delta": "x"}]}',
            "of content that is a number": b'{"choices": [{"delta": {"content": 1}}]}',
            "of an index that is a text": b'{"choices": [{"index": "0"}]}',
            "of an index below 0": b'{"choices": [{"index": -1}]}',
            "of an index of 20 digits": b'{"choices": [{"index": 1%020d}]}' % 0,
        }.items()
    ),
    Case(
        section="A",
        fault="a missing last HTTP chunk",
        answers=[[head(Transfer_Encoding="chunked"), chunked(chunk("some")), LATER]],
        ends=Fails(kind=StreamBrokenError, partial="some"),
    ),
    Case(
        section="A",
        fault="a chunk size that is not a number",
        answers=[
            [head(Transfer_Encoding="chunked"), chunked(chunk("some")), b"zz\r\n"]
        ],
        ends=Fails(kind=DocumentError, partial="some", says=["malformed"]),
    ),
    Case(
        section="A",
        fault="a stream in gzip that is cut",
        answers=[
            [
                head(Content_Encoding="gzip"),
                gzip.compress(chunk("some") * 200 + END)[:-30],
            ]
        ],
        ends=Fails(kind=StreamBrokenError, partial=...),
    ),
    Case(
        section="A",
        fault="a stream in gzip that is broken",
        answers=[
            [head(Content_Encoding="gzip"), flushed(chunk("some")), LATER, b"\xff" * 99]
        ],
        ends=Fails(kind=DocumentError, partial="some", says=["decompressed"]),
    ),
    Case(
        section="A",
        fault="one of two choices is missing at a clean end",
        answers=[stream(chunk("some"), chunk(None, "stop"))],
        params={"n": 2},
        ends=Fails(kind=StreamBrokenError, partial="some"),
    ),
    Case(
        section="A",
        fault="one of two choices has no finish reason",
        answers=[stream(chunk("some", "stop"), chunk("other", index=1), DONE)],
        params={"n": 2},
        ends=Fails(kind=StreamBrokenError, partial="some"),
    ),
]


def empty(fault: str, *steps: Step, kind: type = StreamBrokenError) -> Case:
    """Return a case in which no text came."""
    return Case(
        section="A", fault=fault, answers=[stream(*steps)], ends=Fails(kind=kind)
    )


EMPTY = [
    empty("zero bytes"),
    empty("[DONE] alone", DONE),
    empty("comments alone", b": ping\n\n"),
    empty("a page of HTML as a stream", b"<html>Log in</html>", kind=DocumentError),
    empty("an error object alone", event({"error": "busy"}), kind=ServerFaultError),
    Case(
        section="A",
        fault="a page of HTML that begins with words",
        answers=[[head("text/html"), b"Log in <a href=x>here</a>"]],
        ends=Fails(
            kind=DocumentError, has={"content_type": "text/html", "status": 200}
        ),
    ),
    Case(
        section="A",
        fault="plain words instead of a stream",
        answers=[[head("text/plain"), b"Please log in."]],
        ends=Fails(kind=DocumentError, says=["Please log in."]),
    ),
    Case(
        section="A",
        fault="a reset before the first event",
        answers=[stream("reset"), stream(WHOLE)],
        ends=TEXT,
        n_requests=2,
    ),
    Case(
        section="A",
        fault="resets before the first event, again and again",
        answers=[stream("reset")],
        ends=Fails(kind=StreamBrokenError),
        n_requests=3,
    ),
    Case(
        section="A",
        fault="headers, then nothing",
        answers=[stream("silence")],
        timeouts={"idle_s": 0.6},
        ends=Fails(kind=TimedOutError, has={"deadline": "idle"}),
    ),
    Case(
        section="A",
        fault="no headers at all",
        answers=[["silence"]],
        timeouts={"first_byte_s": 0.6, "whole_s": 0.6},
        verbs=("stream", "complete"),
        ends=Fails(kind=TimedOutError),
    ),
    Case(
        section="A",
        fault="headers, a byte at a time",
        answers=[[b"HTTP/1.1 200 OK\r\n", *slowly(0.1, b"X-Y: z\r\n")]],
        timeouts={"first_byte_s": 0.6, "whole_s": 0.6},
        verbs=("stream", "complete"),
        ends=Fails(kind=TimedOutError),
    ),
    Case(
        section="A",
        fault="empty chunks for ever after the finish reason",
        answers=[stream(chunk("some", "stop"), *slowly(0.1, event({"choices": []})))],
        ends="some",
    ),
    Case(
        section="A",
        fault="a stream that never ends",
        answers=[stream(*slowly(0.02, chunk("x"), 100))],
        timeouts={"total_s": 0.6},
        ends=Fails(kind=TimedOutError, has={"deadline": "total"}, partial=...),
    ),
]
PAID = Case(
    section="A",
    fault="an error object, the key in it",
    answers=[stream(chunk("some"), b"data: " + refusal(f"no {KEY}") + b"\n\n")],
    ends=Fails(kind=ServerFaultError, partial="some", says=["no [key]"]),
)

CUTS = [*CUT, *EMPTY, PAID]
