"""Answers as bytes: what the document shows, to be spoilt by a case."""

import json
from typing import Any

from tests.faults.case import Step

DONE = b"data: [DONE]\n\n"


def event(body: object, *, is_ascii: bool = False) -> bytes:
    """Return one event of a stream."""
    return b"data: " + json.dumps(body, ensure_ascii=is_ascii).encode() + b"\n\n"


def chunk(
    text: str | None = None, finish: str | None = None, *, index: int = 0
) -> bytes:
    """Return one chunk of a stream (doc: Stream chunk)."""
    delta = {} if text is None else {"content": text}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})


END = chunk(None, "stop") + DONE


def head(kind: str = "text/event-stream", **headers: str) -> bytes:
    """Return the headers of an answer that ends with its connection."""
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def chunked(*pieces: bytes) -> bytes:
    """Return pieces in chunked transfer coding, without the last chunk."""
    return b"".join(f"{len(each):x}\r\n".encode() + each + b"\r\n" for each in pieces)


def stream(*steps: Step) -> list[Step]:
    """Return a stream that ends with its connection."""
    return [head(), *steps]


def http(
    body: bytes, status: int = 200, kind: str = "application/json", **headers: str
) -> bytes:
    """Return a whole answer with its length."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def reply(text: str | None = "Hello.", **fields: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a reply in one piece (doc: Completion)."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    body = {"id": "c", "model": "m", "choices": [choice], "usage": usage, **fields}
    return json.dumps(body).encode()


def refusal(message: object, **fields: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return an error body (doc: Error body)."""
    return json.dumps({"error": {"message": message, **fields}}).encode()


def slowly(gap_s: float, piece: bytes, n_times: int = 40) -> list[Step]:
    """Return the same bytes again and again, with a gap before each."""
    steps: list[Step] = []
    for _ in range(n_times):
        steps += [gap_s, piece]
    return steps


GOOD = http(reply())
