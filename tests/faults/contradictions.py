"""A and B: replies that say two things, count oddly, or do not say they ended."""

from typing import Any

from svc_notebook.errors import DocumentError, ServerFaultError, TimedOutError
from tests.faults.answers import (
    DONE,
    END,
    chunk,
    event,
    http,
    refusal,
    reply,
    slowly,
    stream,
)
from tests.faults.case import Case, Fails, Step
from tests.faults.wire import LATER, TEXT, WHOLE

BOTH = ("complete", "stream")


def two(
    fault: str, *steps: Step, partial: str | None = "some", says: str = "", n: int = 1
) -> Case:
    """Return a case of a stream that is refused since it says two things."""
    return Case(
        section="A",
        fault=fault,
        answers=[stream(*steps)],
        params={"n": n} if n > 1 else {},
        ends=Fails(kind=DocumentError, partial=partial, says=[says]),
    )


def one(fault: str, *steps: Step, text: str = "Hello.", n: int = 1) -> Case:
    """Return a case of a stream that is odd and can be read."""
    return Case(
        section="A",
        fault=fault,
        answers=[stream(*steps)],
        params={"n": n} if n > 1 else {},
        ends=text,
    )


SOME = chunk("so") + chunk("me")
CALL = {"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}
CALLED = event({"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]})
TEXT_ELSEWHERE = {"index": 0, "text": "lost", "finish_reason": None}
MESSAGE = {"role": "assistant", "content": "Hello."}
SAID_WHOLE = {"index": 0, "message": MESSAGE, "finish_reason": "stop"}
TWO_SAID = [
    two(
        "text where another interface has it",
        SOME + event({"choices": [TEXT_ELSEWHERE]}) + END,
    ),
    two(
        "NUL bytes before an event",
        SOME,
        b"\0\0" + chunk(" more") + END,
        says="damaged line",
    ),
    two(
        "a blank before a field's name",
        SOME,
        b" " + chunk(" more") + END,
        says="damaged line",
    ),
    two(
        "a BOM in the middle",
        SOME,
        b"\xef\xbb\xbf" + chunk(" more") + END,
        says="damaged line",
    ),
    two("text after the finish reason", SOME + chunk("", "stop") + chunk(" more")),
    two(
        "text after the finish reason, later",
        SOME + chunk("", "stop"),
        LATER,
        chunk(" more") + END,
    ),
    two(
        "a tool call after the finish reason",
        SOME + chunk("", "stop") + CALLED + DONE,
    ),
    two(
        "text behind one choice's finish reason, while the other goes on",
        chunk("some", "stop") + chunk("x", index=1) + chunk(" more"),
        chunk("y", "stop", index=1) + DONE,
        n=2,
    ),
    two(
        "a whole message behind its deltas",
        SOME + event({"choices": [SAID_WHOLE]}) + DONE,
        says="outside of a delta",
    ),
    two(
        "one of two choices, then [DONE]",
        chunk("some", "stop") + DONE,
        n=2,
        says="1 of the 2 choices",
    ),
]
ONE_SAID = [
    one(
        "empty events that keep the connection alive",
        chunk("Hel") + b"data:\n\ndata: \n\n" + chunk("lo.") + END,
    ),
    one(
        "events of another name, in words",
        chunk("Hel") + b"event: ping\ndata: ping\n\n" + chunk("lo.") + END,
    ),
    one(
        "chunks under another name",
        chunk("Hel") + b"event: chunk\n" + chunk("lo.") + END,
    ),
    one(
        "a whole message beside each delta",
        event({"choices": [{**SAID_WHOLE, "delta": {"content": "Hello."}}]}) + DONE,
    ),
    Case(
        section="A",
        fault="a stream that gives more choices than were asked for",
        answers=[stream(chunk("x", "stop", index=1) + chunk("y", "stop"), DONE)],
        ends="y",
        check=lambda completion: completion.texts == ("y", "x"),
    ),
    one("2 kB of blanks, then a reply in one piece", b"\n " * 1000, LATER, reply()),
    one("blanks, slowly, then a stream", *slowly(0.01, b"\n\n", 9), WHOLE, text=TEXT),
]


def unfinished(fault: str, *choices: dict[str, Any], n: int = 1) -> Case:
    """Return a case of a reply in one piece that does not say that it ended."""
    return Case(
        section="B",
        fault=fault,
        answers=[[http(reply(choices=choices))]],
        verbs=BOTH,
        params={"n": n} if n > 1 else {},
        ends=Fails(kind=DocumentError, partial="some", has={"status": 200}),
    )


SAID = {"index": 0, "message": {"content": "some"}, "finish_reason": "stop"}
OLD_CALL = {
    "message": {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
    "finish_reason": "function_call",
}
UNFINISHED = [
    unfinished("a reply without a finish reason", {**SAID, "finish_reason": None}),
    unfinished("a reply whose finish reason is empty", {**SAID, "finish_reason": ""}),
    unfinished("one of two choices", SAID, n=2),
    unfinished(
        "one of two choices without a finish reason",
        SAID,
        {**SAID, "index": 1, "finish_reason": None},
        n=2,
    ),
    Case(
        section="B",
        fault="a call of another interface (function_call)",
        answers=[[http(reply(choices=[OLD_CALL]))]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["function_call"]),
    ),
]

HTTP_REST = [
    Case(
        section="B",
        fault="status 304, as for a stored copy",
        answers=[[b"HTTP/1.1 304 Not Modified\r\n\r\n"]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["304 (not modified)"]),
        check=lambda error: "nowhere" not in str(error),
    ),
    Case(
        section="B",
        fault="status 511: the network requires a login",
        answers=[[http(b"<html>Log in</html>", status=511, kind="text/html")]],
        verbs=BOTH,
        ends=Fails(
            kind=ServerFaultError, says=["login", "browser"], has={"status": 511}
        ),
    ),
    Case(
        section="C",
        fault="a failure, then silence until the total deadline",
        answers=[[http(refusal("busy"), status=503)], ["silence"]],
        verbs=BOTH,
        timeouts={"total_s": 1.0},
        ends=Fails(
            kind=TimedOutError,
            says=["ServerFaultError (status 503)"],
            has={"deadline": "total"},
        ),
        n_requests=2,
    ),
]

CONTRADICTIONS = [*TWO_SAID, *ONE_SAID, *UNFINISHED, *HTTP_REST]
