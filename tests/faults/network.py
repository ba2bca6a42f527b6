"""C. Network, and D. limits and retries: what connections and refusals do."""

from svc_notebook.errors import (
    DocumentError,
    NoConnectionError,
    RateLimitError,
    StreamBrokenError,
    TimedOutError,
)
from tests.faults.answers import (
    DONE,
    END,
    GOOD,
    chunk,
    chunked,
    head,
    http,
    reply,
    slowly,
    stream,
)
from tests.faults.case import Case, Fails

BOTH = ("complete", "stream")
CHUNKED_HEAD = head("application/json", Transfer_Encoding="chunked")
CHUNKED = CHUNKED_HEAD + chunked(reply())  # without its last chunk
LENGTH = next(line for line in GOOD.splitlines(keepends=True) if b"-Length:" in line)
TWICE = LENGTH[:-2] + b"," + LENGTH.split(b":")[1] + LENGTH  # and once more
INTERIM = b"HTTP/1.1 102 Wait\r\n\r\n"
STREAM = http(chunk("Hello.") + END, kind="text/event-stream")

NETWORK = [
    Case(
        section="C",
        fault="closed with no answer, once",
        answers=[[], [GOOD]],
        verbs=BOTH,
        n_requests=2,
    ),
    Case(
        section="C",
        fault="reset with no answer, once",
        answers=[["reset"], [GOOD]],
        verbs=BOTH,
        n_requests=2,
    ),
    Case(
        section="C",
        fault="closed with no answer, again and again",
        answers=[[]],
        verbs=BOTH,
        ends=Fails(kind=NoConnectionError, says=["127.0.0.1:"]),
        n_requests=3,
    ),
    Case(
        section="C",
        fault="an answer cut inside its headers",
        answers=[[b"HTTP/1.1 200 OK\r\nContent-Ty"]],
        verbs=BOTH,
        ends=Fails(kind=NoConnectionError),
        n_requests=3,
    ),
    Case(
        section="C",
        fault="a half-open connection: no answer and no end",
        answers=[["silence"]],
        verbs=BOTH,
        timeouts={"first_byte_s": 0.6, "whole_s": 0.6},
        ends=Fails(kind=TimedOutError, has={"n_attempts": 1}),
    ),
    Case(
        section="C",
        fault="nothing within the total deadline",
        answers=[["silence"]],
        verbs=BOTH,
        timeouts={"total_s": 0.6},
        ends=Fails(kind=TimedOutError, has={"deadline": "total", "deadline_s": 0.6}),
    ),
    Case(
        section="C",
        fault="a header of 1 MB",
        answers=[[b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["headers"]),
    ),
    Case(
        section="C",
        fault="the banner of an SSH server",
        answers=[[b"SSH-2.0-OpenSSH_9.6\r\n", "silence"]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["not HTTP"]),
    ),
    Case(
        section="C",
        fault="interim answers for ever",
        answers=[[*slowly(0.05, b"HTTP/1.1 102 Processing\r\n\r\n")]],
        verbs=BOTH,
        timeouts={"first_byte_s": 0.6, "whole_s": 0.6},
        ends=Fails(kind=TimedOutError),
    ),
    Case(
        section="C",
        fault="an interim answer with headers, then the answer",
        answers=[[b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n", 0.05, GOOD]],
        verbs=BOTH,
    ),
    Case(
        section="C",
        fault="two lengths that contradict each other",
        answers=[[GOOD.replace(b"\r\n", b"\r\nContent-Length: 5\r\n", 1)]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["not HTTP"]),
    ),
    *(
        Case(
            section="C",
            fault=fault,
            answers=[[before + GOOD.replace(b"\r\n", extra, 1), "keep"]],
            verbs=BOTH,
        )
        for fault, before, extra in (
            ("the same length twice", b"", b"\r\n" + LENGTH),
            ("the same length twice in a line", b"", b"\r\n" + TWICE),
            (
                "the same length twice after an interim answer",
                INTERIM,
                b"\r\n" + LENGTH,
            ),
            ("a header over two lines", b"", b"\r\nX-Y: one\r\n\ttwo\r\n"),
            ("headers whose lines end without CR", b"", b"\nX-Y: z\n"),
            ("a control character in a header", b"", b"\r\nX-Y: a\x1b[0mb\r\n"),
        )
    ),
    *(
        Case(
            section="C",
            fault=f"a body in the transfer coding {coding}",
            answers=[
                [head("application/json", Transfer_Encoding=coding), chunked(reply())]
            ],
            verbs=BOTH,
            ends=Fails(kind=DocumentError, says=["transfer coding"]),
        )
        for coding in ("gzip, chunked", "gzip", "identity", "chunked, chunked")
    ),
    Case(
        section="C",
        fault="a length in chunked coding",
        answers=[
            [CHUNKED.replace(b"\r\n", b"\r\nContent-Length: 9\r\n", 1) + b"0\r\n\r\n"]
        ],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["not HTTP"]),
    ),
    Case(
        section="C",
        fault="a body without a length that ends with a reset",
        answers=[[b"HTTP/1.1 200 OK\r\n\r\n" + reply()[:-9], 0.05, "reset"]],
        verbs=("complete",),
        ends=Fails(kind=StreamBrokenError),
        n_requests=3,
    ),
    Case(
        section="C",
        fault="a switch to another protocol",
        answers=[[b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "silence"]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError),
    ),
    Case(
        section="C",
        fault="a success without a body (204)",
        answers=[[b"HTTP/1.1 204 No Content\r\n\r\n", "keep"]],
        verbs=("complete",),
        ends=Fails(kind=DocumentError, has={"status": 204}),
    ),
    Case(
        section="C",
        fault="a body shorter than its length, once",
        answers=[[GOOD[:-3]], [GOOD]],
        verbs=BOTH,
        n_requests=2,
    ),
    Case(
        section="C",
        fault="a body shorter than its length, again and again",
        answers=[[GOOD[:-3]]],
        verbs=BOTH,
        ends=Fails(kind=StreamBrokenError),
        n_requests=3,
    ),
    Case(
        section="C",
        fault="a stream shorter than its length",
        answers=[[http(chunk("some") + END, kind="text/event-stream")[:-60]]],
        ends=Fails(kind=StreamBrokenError, partial="some"),
    ),
    Case(
        section="C",
        fault="the next answer in one packet with this one",
        answers=[[GOOD + http(reply("stale")), "keep"]],
        verbs=BOTH,
    ),
    *(
        Case(
            section="C",
            fault=f"a trailer that says {trailer.decode()}",
            answers=[[CHUNKED + b"0\r\n" + trailer + b"\r\n\r\n", "keep"]],
            verbs=BOTH,
        )
        for trailer in (
            b"Content-Type: text/html",
            b"Content-Encoding: gzip",
            b"Content-Length: 9",
        )
    ),
    *(
        Case(
            section="C",
            fault=f"{what} without an end",
            answers=[[start, *[again * 20_000] * 9]],
            verbs=("complete",),
            ends=Fails(kind=DocumentError, says=["too long"]),
        )
        for what, start, again in (
            ("trailers", CHUNKED + b"0\r\n", b"X: yz\r\n"),
            ("a trailer", CHUNKED + b"0\r\nX: ", b"yz"),
            ("an extension of a chunk", CHUNKED_HEAD + b"5;", b"xyz"),
        )
    ),
    Case(
        section="C",
        fault="a malformed chunk before any of a reply",
        answers=[[CHUNKED_HEAD, b"zz\r\n"]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["malformed"]),
    ),
    Case(
        section="C",
        fault="a kept connection that closes after a while",
        answers=[[http(b"", status=500), "keep"], [0.5], [GOOD, "keep"]],
        verbs=BOTH,
        n_requests=3,  # the service may have worked on it
    ),
    Case(
        section="C",
        fault="the next answer in one packet with a stream",
        answers=[[STREAM + http(reply("stale")), "keep"]],
    ),
    Case(
        section="C",
        fault="an error after a kept connection",
        answers=[[http(b"", status=500), "keep"], ["reset"], [GOOD, "keep"]],
        verbs=BOTH,
        n_requests=3,
        n_attempts=2,  # a kept connection that was closed meanwhile goes unnoticed
    ),
    Case(
        section="C",
        fault="words that are not HTTP",
        answers=[[b"Go away.\r\n\r\n"]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["not HTTP"]),
    ),
    Case(
        section="C",
        fault="nothing listens there",
        to="http://127.0.0.1:1/v1",
        verbs=BOTH,
        ends=Fails(kind=NoConnectionError, says=["127.0.0.1:1", "refused"]),
        n_requests=0,
        n_attempts=3,
    ),
    Case(
        section="C",
        fault="no such host",
        to="https://nowhere.invalid/v1",
        verbs=BOTH,
        ends=Fails(kind=NoConnectionError, says=["nowhere.invalid:443", "no such"]),
        n_requests=0,
        n_attempts=1,
    ),
    Case(
        section="C",
        fault="a stream that goes on after [DONE], on a kept connection",
        answers=[
            [STREAM.replace(b"Content-Length: ", b"Content-Length: 9"), "silence"],
        ],
    ),
]


def refused(
    fault: str, *headers: str, waits_s: float = 0.1, then: bytes = GOOD, n: int = 2
) -> Case:
    """Return a case of a 429 that is waited out."""
    named = dict(header.split(": ", 1) for header in headers)
    refusal = http(b'{"error": {"message": "slow"}}', status=429, **named)
    return Case(
        section="D",
        fault=fault,
        answers=[*[[refusal]] * (n - 1), [then]],
        verbs=BOTH,
        n_requests=n,
        waits_s=waits_s,
    )


def given_up(fault: str, after: str, wait_s: float) -> Case:
    """Return a case of a 429 that asks for too long a wait."""
    return Case(
        section="D",
        fault=fault,
        answers=[[http(b"", status=429, Retry_After=after)]],
        verbs=BOTH,
        ends=Fails(
            kind=RateLimitError,
            says=[f"wait {wait_s:.0f} s"],
            has={"retry_after_s": wait_s, "n_attempts": 1},
        ),
        check=lambda error: error.partial is None,
    )


LIMITS = [
    refused("429 bare"),
    refused("429 bare, twice", n=3),
    refused("429 with Retry-After: 7", "Retry-After: 7", waits_s=7),
    refused("429 with Retry-After: 0.5", "Retry-After: 0.5", waits_s=0.5),
    refused("429 with Retry-After: 0", "Retry-After: 0"),
    refused("429 with Retry-After-Ms: 1500", "Retry-After-Ms: 1500", waits_s=1.5),
    refused("429 with a past date", "Retry-After: Wed, 01 Jan 2020 00:00:00 GMT"),
    refused("429 with Retry-After: -5", "Retry-After: -5"),
    refused("429 with Retry-After: nan", "Retry-After: nan"),
    refused("429 with Retry-After: 1e999", "Retry-After: 1e999"),
    refused("429 with Retry-After: soon", "Retry-After: soon"),
    refused("429, then a stream", then=STREAM),
    given_up("429 with Retry-After: 3600", "3600", 3600.0),
    given_up("429 with Retry-After: 1e300", "1e300", 1e300),
    Case(
        section="D",
        fault="429 for ever",
        answers=[[http(b"", status=429)]],
        verbs=BOTH,
        ends=Fails(kind=RateLimitError, has={"status": 429, "n_attempts": 3}),
        n_requests=3,
        waits_s=0.2,
    ),
    Case(
        section="D",
        fault="429 with a wait beyond the total deadline",
        answers=[[http(b"", status=429, Retry_After="30")]],
        verbs=BOTH,
        timeouts={"total_s": 30.3},
        ends=Fails(kind=RateLimitError, has={"retry_after_s": 30.0}),
        check=lambda error: error.n_attempts == 1,
    ),
    Case(
        section="D",
        fault="503 with Retry-After: 7",
        answers=[[http(b"", status=503, Retry_After="7")], [GOOD]],
        verbs=BOTH,
        n_requests=2,
        waits_s=7,
    ),
    Case(
        section="D",
        fault="a lost reply after text was shown",
        answers=[stream(chunk("some"), 0.02, "reset"), stream(chunk("other"), DONE)],
        ends=Fails(kind=StreamBrokenError, partial="some"),
    ),
]
