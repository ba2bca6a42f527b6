"""A to D: faults that a stranger played after the other tables were written."""

import zlib
from collections.abc import Sequence
from typing import Any

from svc_notebook.errors import DocumentError, ServerFaultError
from tests.faults.answers import DONE, END, chunk, event, head, http, reply, stream
from tests.faults.asked import calls, piece
from tests.faults.case import Case, Fails

BOTH = ("complete", "stream")
ONE, TWO = ("1", "get_time", '{"a":1}'), ("2", "g", "{}")
CALLS = [
    calls(
        "a name in pieces",
        [piece("", 0, "1", "get")],
        [piece("", 0, None, "_ti")],
        [piece('{"a":1}', 0, None, "me")],
        want=[ONE],
    ),
    calls(
        "a name in each piece",
        [piece("", 0, "1", "get_time")],
        [piece('{"a"', 0, "1", "get_time")],
        [piece(":1}", 0, "1", "get_time")],
        want=[ONE],
    ),
    calls(
        "a name of one letter in each piece",
        [piece("", 0, "2", "g")],
        [piece("{", 0, "2", "g")],
        [piece("}", 0, "2", "g")],
        want=[TWO],
    ),
    calls(
        "one index and no ids, one after another",
        [piece('{"a":1}', 0, None, "get_time")],
        [piece('{"a":2}', 0, None, "get_time")],
        [piece("{}", 0, None, "g")],
        want=[
            ("", *ONE[1:]),
            ("call-2", "get_time", '{"a":2}'),
            ("call-3", "g", "{}"),
        ],
    ),
]


def declined(
    fault: str, answer: bytes, *, ends: str, verbs: Sequence[str] = ("stream",)
) -> Case:
    """Return a case of a reply whose refusal, in another field, is read as its text."""
    return Case(section="A", fault=fault, answers=[[answer]], verbs=verbs, ends=ends)


def refusing(text: str, **fields: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a chunk with a piece of a refusal."""
    return event({"choices": [{"index": 0, "delta": {"refusal": text, **fields}}]})


SAYS_NO = {"role": "assistant", "content": None, "refusal": "I cannot."}
NO = {"index": 0, "message": SAYS_NO, "finish_reason": "stop"}
PARTS = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}]
REFUSALS = [
    declined(
        "a refusal in a field of its own, in pieces",
        head() + refusing("I can", content=None) + refusing("not.") + END,
        ends="I cannot.",
    ),
    declined(
        "a refusal behind text",
        head() + chunk("some") + refusing("I cannot.") + chunk(None, "stop") + DONE,
        ends="someI cannot.",
    ),
    declined(
        "a reply that only refuses",
        http(reply(choices=[NO])),
        ends="I cannot.",
        verbs=BOTH,
    ),
    declined(
        "a reply that only refuses, with empty text",
        http(reply(choices=[{**NO, "message": {**SAYS_NO, "content": ""}}])),
        ends="I cannot.",
        verbs=BOTH,
    ),
    declined(
        "a content in parts",
        http(
            reply(choices=[{**NO, "message": {"role": "assistant", "content": PARTS}}])
        ),
        ends="Hello.",
        verbs=BOTH,
    ),
    Case(
        section="A",
        fault="a refusal that is null or empty",
        answers=[stream(refusing("", content="Hel") + chunk("lo.", "stop") + DONE)],
        ends="Hello.",
    ),
]

JUNK = zlib.compress(reply())[:2] + b"junk" * 20
REST = [
    Case(
        section="B",
        fault="junk behind a good header of deflate",
        answers=[[http(JUNK, Content_Encoding="deflate")]],
        verbs=BOTH,
        ends=Fails(kind=DocumentError, says=["decompressed"]),
    ),
]


def failed(fault: str, *bodies: dict[str, Any], says: str = "died") -> Case:
    """Return a case of a stream that tells of a failure, and ends as if whole."""
    steps = [chunk("some"), *(event(each) for each in bodies), chunk("", "stop"), DONE]
    return Case(
        section="A",
        fault=fault,
        answers=[stream(*steps)],
        ends=Fails(kind=ServerFaultError, partial="some", says=[says]),
    )


DIED = {"message": "died"}
OLD_CALL = {"function_call": {"name": "f", "arguments": "{}"}}
SAID = {"index": 0, "message": {"content": "some"}, "finish_reason": "error"}
HIDDEN = [
    failed("an error inside a choice", {"choices": [{"index": 0, "error": DIED}]}),
    failed("an error inside a delta", {"choices": [{"delta": {"error": DIED}}]}),
    failed("an event of `errors`", {"errors": [DIED]}),
    failed("an event of type error", {"type": "error", "data": 5}, says="status 200"),
    Case(
        section="A",
        fault="a finish reason that is an error",
        answers=[stream(chunk("some") + chunk(None, "error") + DONE)],
        ends=Fails(kind=ServerFaultError, partial="some", says=["'error'"]),
    ),
    Case(
        section="B",
        fault="a reply whose finish reason is an error",
        answers=[[http(reply(choices=[SAID]))]],
        verbs=BOTH,
        ends=Fails(kind=ServerFaultError, partial="some", says=["'error'"]),
    ),
    Case(
        section="B",
        fault="a choice that is an error",
        answers=[[http(reply(choices=[{**SAID, "error": DIED}]))]],
        verbs=BOTH,
        ends=Fails(kind=ServerFaultError, says=["died"]),
    ),
    Case(
        section="A",
        fault="text, and a call of another interface (function_call)",
        answers=[
            stream(chunk("some"), event({"choices": [{"delta": OLD_CALL}]}), END),
        ],
        ends=Fails(kind=DocumentError, partial="some", says=["function_call"]),
    ),
    Case(
        section="F",
        fault="half a surrogate pair as a name",
        answers=[
            stream(chunk("Hello.", "stop").replace(b'"id"', b'"\\ud800"') + DONE),
        ],
    ),
]

STRANGERS = [*CALLS, *REFUSALS, *REST, *HIDDEN]
