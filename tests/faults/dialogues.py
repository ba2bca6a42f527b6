"""Random dialogues with a hostile server, for which httpx is the second opinion.

A dialogue is a case whose answers are put together from odd parts. What it ends with
is not known beforehand: httpx's own transport says so.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.faults.answers import END, chunk, http, refusal, reply
from tests.faults.case import Case, Step

LATER = 0.01  # until a packet has been read
STATUSES = [b"HTTP/1.1 200 OK"] * 40 + [
    b"HTTP/1.1 200",
    b"HTTP/1.1 200 ",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1  200 OK",
    b"HTTP/1.1 2000 OK",
    b"HTTP/1.1 20 OK",
    b"HTTP/1.1 -20 OK",
    b"HTTP/2.0 200 OK",
    b"HTTP/1 200 OK",
    b"http/1.1 200 OK",
    b"HTTP/1.1 200 \xc3\xa9t\xe9",
    b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 200 OK",
    b"HTTP/1.1 103 Hints\r\nContent-Length: 3\r\n\r\nHTTP/1.1 200 OK",
    b"HTTP/1.1 204 Nothing",
    b"HTTP/1.1 304 Same",
    b"\r\nHTTP/1.1 200 OK",
    b"ICY 200 OK",
    b"",
]
HEADERS = [
    b"X-Y: z",
    b"x-y:z",
    b"X-Y:",
    b"X-Y: a\r\n b",
    b"X-Y: a\r\n\tb\r\n  c",
    b"X-Y: \xe0\xb8\x81 \xff",
    b"X-Y: a\tb",
    b"X-Y: a\x01b",
    b"X-Y: a\x00b",
    b"X-Y: a\rb",
    b"X-Y : z",
    b"X Y: z",
    b"X(Y): z",
    b" X-Y: z",
    b": z",
    b"X-Y",
    b"X-Y: " + b"z" * 9_000,
    b"Set-Cookie: a=b",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Connection: upgrade",
    b"Upgrade: h2c",
    b"Content-Encoding: identity",
    b"Content-Encoding: br",
    b"Content-Type: text/html",
    b"Retry-After: soon",
    b"Content-Length: 3",
    b"Content-Length: -1",
    b"Content-Length: 1e3",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: Chunked",
    b"Trailer: X-Y",
]
LENGTHS = [b"Content-Length: %d"] * 20 + [
    b"content-length:%d",
    b"Content-Length: %d\r\nContent-Length: %d",
    b"Content-Length: %d, %d",
    b"Content-Length: %d\r\nContent-Length: 4",
    b"Content-Length: 0%d",
    b"Content-Length: +%d",
    b"Content-Length: %d ",
    b"Content-Length: 9%d",
    b"Content-Length:\r\n %d",
]
SIZES = [b"%x\r\n"] * 30 + [
    b"%X\r\n",
    b"00%x\r\n",
    b"%x;a=b\r\n",
    b'%x;a="b;c"\r\n',
    b"%x;\r\n",
    b"%x; a = b\r\n",
    b"%x \r\n",
    b"%x\n",
    b" %x\r\n",
    b"0x%x\r\n",
    b"-%x\r\n",
    b"%xg\r\n",
    b"f%x\r\n",
    b"zz\r\n",
    b"\r\n",
    b"fffffffffffffffff%x\r\n",
]
TRAILERS = [b""] * 20 + [
    b"X-Y: z\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Type: text/html\r\n",
    b"Content-Encoding: gzip\r\n",
    b"X-Y: a\r\n b\r\n",
    b"X-Y\r\n",
    b"\x00\r\n",
    b"HTTP/1.1 200 OK\r\n",
]
LASTS = [b"0\r\n"] * 20 + [b"000\r\n", b"0;a=b\r\n", b"0\n", b"", b"-0\r\n"]
STREAM = chunk("Hel") + chunk("lo.") + END
ENDS: list[list[Step]] = [
    [],
    [],
    ["keep"],
    ["keep"],
    [LATER, "reset"],
    [http(reply("stale"))],
    [http(reply("stale")), "keep"],
    [b"junk", "keep"],
]
CUTS: list[list[Step]] = [[], [LATER, "reset"]]
KEPT: list[Step] = ["keep"]
FAULTS = [
    http(b"", status=500),
    http(refusal("busy"), status=503),
    http(refusal("no"), status=400),
    http(b"", status=408),
]


def _of_bytes(shape: bytes, number: int) -> bytes:
    """Return a line with its number, wherever it has a place for one."""
    for place in (b"%d", b"%x", b"%X"):
        shape = shape.replace(place, place % number)
    return shape


@st.composite
def _chunks(draw: st.DrawFn, body: bytes) -> bytes:
    """Return a body in chunks, one of which may be odd."""
    at = draw(st.integers(1, len(body) - 1))
    sizes = [b"%x\r\n", draw(st.sampled_from(SIZES))]
    pieces = [body[:at], body[at:]]
    coded = [
        _of_bytes(size, len(piece))
        + piece
        + draw(st.sampled_from([b"\r\n"] * 30 + [b"", b"\n", b"xx"]))
        for size, piece in zip(sizes, pieces, strict=True)
    ]
    last, trailers = (draw(st.sampled_from(part)) for part in (LASTS, TRAILERS))
    return b"".join(
        [*coded, last, trailers, draw(st.sampled_from([b"\r\n"] * 30 + [b"", b"\n"]))]
    )


@st.composite
def _answers(draw: st.DrawFn, *, is_streamed: bool) -> list[Step]:
    """Return the steps of an answer of odd parts, in packets of any size."""
    if draw(st.integers(0, 5)) == 0:
        return [draw(st.sampled_from(FAULTS)), *draw(st.sampled_from([*CUTS, KEPT]))]
    body = STREAM if is_streamed else reply()
    kind = draw(st.sampled_from("lllccccn"))
    lines = [draw(st.sampled_from(STATUSES))]
    if lines[0].startswith((b"HTTP/1.1 204", b"HTTP/1.1 304")):
        body, kind = b"", "n"  # when more came would be chance
    lines += draw(st.lists(st.sampled_from(HEADERS), max_size=draw(st.integers(0, 1))))
    if kind == "l":
        lines.append(_of_bytes(draw(st.sampled_from(LENGTHS)), len(body)))
    elif kind == "c":
        lines.append(b"Transfer-Encoding: chunked")
        body = draw(_chunks(body))
    newline = b"\r\n" if draw(st.integers(0, 19)) else b"\n"
    return draw(_packets(newline.join([*lines, b"", b""]) + body))


@st.composite
def _packets(draw: st.DrawFn, whole: bytes) -> list[Step]:
    """Return an answer in one packet or two, perhaps cut, and what comes after it."""
    end = draw(st.sampled_from(ENDS))
    cut = draw(st.integers(0, len(whole) - 1))
    if draw(st.integers(0, 7)) == 0:
        return [whole[:cut], *draw(st.sampled_from(CUTS))]
    if end and isinstance(end[0], bytes):  # in one packet, so that chance has no say
        whole, end = whole + end[0], end[1:]
    if draw(st.booleans()):
        return [whole[:cut], LATER, whole[cut:], *end]
    return [whole, *end]


@st.composite
def dialogues(draw: st.DrawFn) -> tuple[Case, bool]:
    """Return a case of up to three such answers, and whether they come too early."""
    verb = draw(st.sampled_from(["complete", "stream"]))
    answers = _answers(is_streamed=verb == "stream")
    case = Case(
        section="C",
        fault="a random dialogue",
        answers=draw(st.lists(answers, min_size=1, max_size=3)),
        verbs=[verb],
        prompt="x" * draw(st.sampled_from([1, 9_000])),
    )
    return case, draw(st.integers(0, 9)) == 0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a dialogue ended.

    Attributes:
        how: The text of the reply, or the name of the error.
        shown: What was streamed.
        n_requests: Requests that reached the server.
        n_silent: Those of them that do not count as tries.
    """

    how: str
    shown: str
    n_requests: int
    n_silent: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Where our connections end a dialogue in another way than httpx's transport.

    Attributes:
        fault, ours, httpx: What comes, and what becomes of it, for the page.
        answers: What shows it, as long as nothing else is wrong.
        is_it: Whether this is why a dialogue of these bytes ended in two ways.
    """

    fault: str
    ours: str
    httpx: str
    answers: Sequence[Sequence[Step]]
    is_it: Callable[[bytes, Ended, Ended], bool]


REFUSED = "DocumentError"
_LOST = {"NoConnectionError", "StreamBrokenError"}


def _has(pattern: bytes, refused_by: str) -> Callable[[bytes, Ended, Ended], bool]:
    """Return whether such bytes are there, and one side alone refuses them."""

    def is_it(came: bytes, ours: Ended, httpx: Ended) -> bool:
        refusing = ours if refused_by == "ours" else httpx
        return refusing.how == REFUSED and re.search(pattern, came) is not None

    return is_it


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
_ONE_CHUNK = b"%x\r\n" % len(reply()) + reply() + b"\r\n0\r\n\r\n"
DIFFERENCES = [
    Difference(
        fault="an empty line, then the answer",
        ours="the reply",
        httpx="`DocumentError`",
        answers=[[b"\r\n" + http(reply())]],
        is_it=_has(rb"^\r\nHTTP", "httpx"),
    ),
    Difference(
        fault="an empty line, then the end",
        ours="asked again",
        httpx="`DocumentError`",
        answers=[[b"\r\n"]],
        is_it=_has(rb"(^|\n\n)\r\n(\n\n|$)", "httpx"),
    ),
    Difference(
        fault="a blank before the first header",
        ours="the reply",
        httpx="`DocumentError`",
        answers=[[http(reply()).replace(b"\r\n", b"\r\n X-Y: z\r\n", 1)]],
        is_it=_has(rb"HTTP/1[^\n]*\n[ \t]", "httpx"),
    ),
    Difference(
        fault="a header with NUL in its value",
        ours="the reply",
        httpx="`DocumentError`",
        answers=[[http(reply()).replace(b"\r\n", b"\r\nX-Y: a\x00b\r\n", 1)]],
        is_it=_has(rb"X-Y: a\x00b", "httpx"),
    ),
    Difference(
        fault="a length and chunked coding: one of them is wrong",
        ours="`DocumentError`",
        httpx="the reply, in chunks",
        answers=[[_CHUNKED + b"Content-Length: 9\r\n\r\n" + _ONE_CHUNK]],
        is_it=_has(
            rb"(?is)\ntransfer-encoding:.*\ncontent-length:"
            rb"|\ncontent-length:.*\ntransfer-encoding:",
            "ours",
        ),
    ),
    Difference(
        fault="an extension of a chunk with blanks, or without a name",
        ours="`DocumentError`",
        httpx="the reply",
        answers=[[_CHUNKED + b"\r\n" + _ONE_CHUNK.replace(b"\r\n", b"; a = b\r\n", 1)]],
        is_it=_has(rb"; a = b|;\r\n", "ours"),
    ),
    Difference(
        fault="a chunk that ends without CR",
        ours="the reply",
        httpx="`DocumentError`",
        answers=[[_CHUNKED + b"\r\n" + _ONE_CHUNK.replace(b"\r\n0", b"\n0")]],
        is_it=lambda came, *_: re.search(rb"[^\r\n]\n-?[0-9a-fg]", came) is not None,
    ),
    Difference(
        fault="a length of more than 64 bits",
        ours="`DocumentError`",
        httpx="takes all that follows for it; a stream ends with `[DONE]`",
        answers=[
            [b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 20 + b"\r\n\r\n" + reply()]
        ],
        is_it=_has(rb"(?i)\ncontent-length: *9{20}", "ours"),
    ),
    Difference(
        fault="a chunk of more than 64 bits of bytes",
        ours="`DocumentError`",
        httpx="takes all that follows for it",
        answers=[[_CHUNKED + b"\r\nfffffffffffffffff" + _ONE_CHUNK]],
        is_it=_has(rb"f{17}", "ours"),
    ),
    Difference(
        fault="bytes that cannot be HTTP, then the end",
        ours="`DocumentError`, at once",
        httpx="waits for the end of the line, and is asked again",
        answers=[[b"http/1."]],
        is_it=lambda _, ours, httpx: (
            ours.how == REFUSED
            and (httpx.n_requests > ours.n_requests or httpx.how in _LOST)
        ),
    ),
    Difference(
        fault="a kept connection that closes at once, unread",
        ours="asked again in silence",
        httpx="asked again, as a try (none is kept here)",
        answers=[[FAULTS[0], "keep"], [], [http(reply())]],
        is_it=lambda _, ours, httpx: ours.n_silent > httpx.n_silent,
    ),
]
