"""B. HTTP bodies and statuses: answers in one piece that are wrong, or only odd."""

import gzip
import zlib
from typing import Any

from svc_notebook.errors import (
    AuthError,
    BadRequestError,
    DocumentError,
    RateLimitError,
    ServerFaultError,
    SvcError,
    TimedOutError,
    UnknownModelError,
)
from tests.faults.answers import GOOD, http, refusal, reply, slowly
from tests.faults.case import Case, Fails
from tests.faults.player import KEY

BOTH = ("complete", "stream")


def bad(fault: str, body: bytes, kind: str = "application/json") -> Case:
    """Return a case of a wrong answer with a status of success."""
    return Case(
        section="B",
        fault=f"status 200 with {fault}",
        answers=[[http(body, kind=kind)]],
        verbs=("complete",),
        ends=Fails(
            kind=DocumentError,
            says=["status 200", kind],
            has={"status": 200, "content_type": kind},
        ),
        check=lambda error: error.head.isprintable() and len(error.head) <= 800,
    )


def message(**fields: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a reply whose message has these fields."""
    return reply(choices=[{"index": 0, "message": fields, "finish_reason": "stop"}])


HTML = b"<!DOCTYPE html><html><script>alert(1)</script>"
BAD = [
    bad("broken JSON", b'{"choices": ['),
    bad("an empty body", b""),
    bad("an array", b"[]"),
    bad("null", b"null"),
    bad("a page of HTML", HTML, kind="text/html"),
    bad("a page of HTML labelled as JSON", HTML),
    bad("no choices", b'{"id": "c"}'),
    bad("empty choices", b'{"choices": []}'),
    bad("null choices", b'{"choices": null}'),
    bad("a choice without a message", b'{"choices": [{"index": 0}]}'),
    bad("a null message", b'{"choices": [{"message": null}]}'),
    bad("a choice that is null", b'{"choices": [null]}'),
    bad("choices that are a text", b'{"choices": "text"}'),
    bad("a choice that is a text", b'{"choices": ["text"]}'),
    bad("content that is a number", message(content=5)),
    bad("tool calls that are a text", message(tool_calls="x")),
    bad("a tool call that is null", message(tool_calls=[None])),
    bad("a finish reason that is a number", reply().replace(b'"stop"', b"5")),
    bad("an index that is a text", reply().replace(b'"index": 0', b'"index": "0"')),
    bad("JSON nested 100 000 deep", b"[" * 100_000),
    bad("a number of 5000 digits", b"1" * 5000),
    bad("control characters", b"\x1b[31m\x00\x07"),
    bad("two replies glued together", reply() + reply()),
    bad("only complaints", b'{"detail": "no such thing"}'),
]


def refused(
    fault: str,
    body: bytes,
    status: int = 400,
    kind: type[SvcError] = BadRequestError,
    *says: str,
    **has: object,
) -> Case:
    """Return a case of a status that is asked once."""
    return Case(
        section="B",
        fault=fault,
        answers=[[http(body, status=status)]],
        verbs=BOTH,
        ends=Fails(kind=kind, says=says, has={"status": status, **has}),
    )


FIELDS = {"type": "t", "param": "p", "code": "c"}
STATUSES = [
    refused(
        f"status {status}", refusal("Why.", **FIELDS), status, kind, *says, **FIELDS
    )
    for status, kind, says in (
        (400, BadRequestError, ("Why.",)),
        (401, AuthError, ("Why.", "%svc login")),
        (403, AuthError, ("Why.", "permission")),
        (404, UnknownModelError, ("Why.", "model", "/v1")),
        (405, BadRequestError, ("Why.",)),
        (409, BadRequestError, ("Why.",)),
        (413, BadRequestError, ("Why.",)),
        (418, BadRequestError, ("Why.",)),
        (422, BadRequestError, ("Why.",)),
        (999, ServerFaultError, ("Why.",)),
    )
]
BODIES = [
    refused(f"an error body that is {name}", body, 400, BadRequestError, "busy")
    for name, body in {
        "a text": b'{"error": "busy"}',
        "`detail`": b'{"detail": "busy"}',
        "a list of `detail`": b'{"detail": [{"loc": ["body", "n"], "msg": "busy"}]}',
        "an array": b'[{"error": {"message": "busy"}}]',
        "not JSON": b"busy",
        "of null fields": b'{"error": {"message": "busy", "type": null}}',
        "of numeric fields": b'{"error": {"message": "busy", "code": 5, "param": []}}',
        "of another shape": b'{"message": "busy"}',
        "bad UTF-8": b"busy \xff\xfe",
        "half a surrogate pair": b'{"error": {"message": "busy \\ud800"}}',
        "with a BOM": b'\xef\xbb\xbf{"error": "busy"}',
    }.items()
]
SILENT_BODIES = [
    refused(f"an error body that is {name}", body, 400, BadRequestError, "status 400")
    for name, body in {
        "empty": b"",
        "null": b"null",
        "an empty array": b"[]",
        "an empty object": b"{}",
        "a number": b"5",
        "without fields": b'{"error": {}}',
        "a page of HTML": HTML,
        "a page of HTML inside JSON": refusal(HTML.decode()),
    }.items()
]
LOUD = "\x1b[31m\x07\u202egnp.exe\u2066 \x9b31m\r\b"
WORDS = [
    refused(
        "an error message of 1 MB", refusal("x" * 1_000_000, param="y" * 1_000_000)
    ),
    refused(
        "an error message of 1 MB of emoji", refusal("👩" * 250_000, param="ก" * 999)
    ),
    refused("an error message of control and bidi characters", refusal(LOUD), 400),
    refused(
        "an error message that repeats the key",
        refusal(f"Bad {KEY}", code=KEY),
        401,
        AuthError,
        "Bad [key]",
        code="[key]",
    ),
    refused("an error in words that repeats the key", f"No {KEY}".encode(), 400),
]
FAULTS = [
    Case(
        section="B",
        fault=f"status {status}, again and again, with {name}",
        answers=[[http(body, status=status)]],
        verbs=BOTH,
        ends=Fails(kind=ServerFaultError, has={"status": status, "n_attempts": 3}),
        n_requests=3,
        check=lambda error: "<" not in str(error),
    )
    for status in (408, 500, 502, 503, 504, 529)
    for name, body in {"HTML": HTML * 50, "JSON": refusal("busy")}.items()
]
MENDED = [
    Case(
        section="B",
        fault=f"status {status}, then a reply",
        answers=[[http(b"", status=status)], [GOOD]],
        verbs=BOTH,
        n_requests=2,
    )
    for status in (408, 500, 503)
]


def read(
    fault: str, body: bytes, *, text: str = "Hello.", kind: str = "application/json"
) -> Case:
    """Return a case of a reply that can be read."""
    return Case(
        section="B",
        fault=fault,
        answers=[[http(body, kind=kind)]],
        verbs=BOTH,
        ends=text,
    )


def zipped(fault: str, body: bytes, encoding: str = "gzip") -> Case:
    """Return a case of a compressed reply."""
    answer = http(body, Content_Encoding=encoding)
    return Case(section="B", fault=fault, answers=[[answer]], verbs=("complete",))


CHOICE = {"message": {"content": "later"}, "finish_reason": "stop", "index": 1}
FIRST = {**CHOICE, "index": 0, "message": {"content": "Hello."}}
ODD = [
    read("good JSON as text/plain", reply(), kind="text/plain"),
    read("good JSON with no type", reply(), kind=""),
    read("good JSON with a BOM", b"\xef\xbb\xbf" + reply()),
    read("good JSON after blank lines", b"\r\n\n  " + reply()),
    read(
        "good JSON labelled latin-1",
        reply("ก"),
        text="ก",
        kind="text/plain; charset=latin-1",
    ),
    read("choices out of order", reply(choices=[CHOICE, FIRST])),
    read("two choices of one index", reply(choices=[FIRST, {**CHOICE, "index": 0}])),
    read("labels of wrong types", reply(id=5, created="x", usage="none", model=[])),
    read("a creation time that no clock shows", reply(created=10**30)),
    read("token counts that cannot be", reply(usage={"prompt_tokens": -(10**30)})),
    read("an empty error beside choices", reply(error={})),
    read("a reply of 20 MB", reply("x" * 20_000_000), text="x" * 20_000_000),
    zipped("a reply in gzip", gzip.compress(reply())),
    zipped("a reply in deflate", zlib.compress(reply()), "deflate"),
    zipped(
        "a reply in gzip of two members", gzip.compress(b"  ") + gzip.compress(reply())
    ),
    zipped("a reply in gzip with padding behind it", gzip.compress(reply()) + b"\0\0"),
    zipped("a reply whose encoding is `identity`", reply(), "identity"),
]


def unopened(fault: str, body: bytes, encoding: str, *says: str) -> Case:
    """Return a case of a compressed reply that is refused."""
    return Case(
        section="B",
        fault=fault,
        answers=[[http(body, Content_Encoding=encoding)]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=says),
    )


def redirect(status: int, to: str, name: str) -> Case:
    """Return a case of a redirect, to where nothing may be sent."""
    return Case(
        section="B",
        fault=f"a redirect ({status}) to {name}",
        answers=[[http(b"", status=status, Location=to)]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["redirect", "SVC_BASE_URL"]),
    )


ENDLESS = slowly(0.05, b" ")
REST = [
    Case(
        section="B",
        fault="an error body with status 200",
        answers=[[http(refusal("no", code="c1"))]],
        verbs=BOTH,
        ends=Fails(kind=ServerFaultError, has={"status": 200, "code": "c1"}),
    ),
    unopened("a reply that is not gzip but says so", reply(), "gzip", "decompressed"),
    unopened("a reply in an unrequested encoding", reply(), "br", "decompressed"),
    unopened(
        "a body of 70 kB that opens to 70 MB",
        gzip.compress(b" " * 7_000_000) * 10,
        "gzip",
        "more than 67108864 bytes",
    ),
    redirect(301, "/v1/other", "the same place"),
    redirect(302, "http://127.0.0.1:1/v1", "another origin"),
    redirect(303, "", "nowhere"),
    redirect(307, "/v1/chat/completions", "itself"),
    redirect(308, "file:///etc/passwd", "a file"),
    redirect(302, f"/?key={KEY}", "an address with the key in it"),
    redirect(302, "http://[", "what is not an address"),
    Case(
        section="B",
        fault="a trickle that never ends",
        answers=[[http(reply() + b" " * 99)[:-99], *ENDLESS]],
        verbs=("complete",),
        timeouts={"whole_s": 0.6},
        ends=Fails(kind=TimedOutError, has={"deadline": "whole"}),
    ),
    Case(
        section="B",
        fault="an error body that trickles",
        answers=[[http(b" " * 9999, status=503)[:-9990], *ENDLESS]],
        verbs=("complete",),
        timeouts={"whole_s": 0.6},
        ends=Fails(kind=ServerFaultError, has={"status": 503}),
        n_requests=3,
    ),
    Case(
        section="B",
        fault="a refusal whose body never comes",
        answers=[[http(b" " * 9999, status=429)[:-9999], "silence"]],
        verbs=("complete",),
        timeouts={"whole_s": 0.6},
        ends=Fails(kind=RateLimitError, has={"status": 429}),
        n_requests=3,
    ),
    Case(
        section="B",
        fault="an error body of which 3 MB come, and then nothing",
        answers=[[http(b" " * 9_000_000, status=400)[:-6_000_000], "silence"]],
        verbs=("complete",),
        timeouts={"whole_s": 9.0},
        ends=Fails(kind=BadRequestError, has={"status": 400}),
    ),
    Case(
        section="B",
        fault="words of a proxy in the place of a stream",
        answers=[[http(b"Service is up.", kind="text/plain")]],
        ends=Fails(kind=DocumentError, says=["not a stream", "Service is up."]),
    ),
]

BODIES_TABLE = [
    *BAD,
    *STATUSES,
    *BODIES,
    *SILENT_BODIES,
    *WORDS,
    *FAULTS,
    *MENDED,
    *ODD,
    *REST,
]
