"""Requests and replies as values: what goes in and out of the emulated service.

What it is not: sockets and waiting; `asgi` carries these values.

Rules for this file: timing is part of the value; whether to really wait is the
server's business.

Refusals as the document writes them: a status and an error body.

What it is not: it decides nothing; `rules`, `keys` and `app` decide.

Rules for this file:
- only the two error types that the document shows are written, whatever the
  status, since the full list is not shown (doc: Errors);
- `param` is always null, as in the document's typical bodies (doc: Errors);
- a message names the parameter and what is allowed, and repeats nothing that
  the caller sent, so that a key sent in the wrong place is never repeated.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# On every response, so that a client can mark what it received as emulated.
MARK = ("x-svc-emulator", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What came in.

    Attributes:
        method: As sent.
        path: Without the query.
        headers: Names in lower case.
        body: The whole body, or None when it was too long to keep.
        client_port: Tells the connections of a client apart; 0 if unknown.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""
    client_port: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Some body bytes, and how long after the previous piece they come."""

    after_s: float
    data: bytes


class End(StrEnum):
    """How a reply ends once its pieces are sent."""

    WHOLE = "whole"
    """As HTTP ends a body."""
    CUT = "cut"
    """The connection is closed, the body unfinished."""
    RESET = "reset"
    """The connection is reset."""
    SILENT = "silent"
    """Nothing more comes, and the connection stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the emulated service sends.

    Attributes:
        status: HTTP status; None sends neither status line nor headers, and the
            body goes to the socket as it is.
        headers: Without the mark, which the server adds.
        body: What comes after the headers.
        end: How it ends.
        before_s: How long the headers take.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: tuple[Piece, ...] = ()
    end: End = End.WHOLE
    before_s: float = 0.0


def whole(
    status: int, data: bytes, *, content_type: str, before_s: float = 0.0
) -> Reply:
    """Make a reply of one piece whose length is told."""
    headers = {"content-type": content_type, "content-length": str(len(data))}
    return Reply(
        status=status, headers=headers, body=(Piece(0.0, data),), before_s=before_s
    )


INVALID_REQUEST = "invalid_request_error"
AUTHENTICATION = "authentication_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A refusal (doc: Error body).

    Attributes:
        status: HTTP status, 400 to 429.
        message: What was wrong and what is allowed.
        type: `error.type`.
        code: `error.code`, null but for an invalid key.
    """

    status: int
    message: str
    type: str = INVALID_REQUEST
    code: str | None = None

    def to_bytes(self) -> bytes:
        """Write the error body."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": None,
            "code": self.code,
        }
        return write_json({"error": error})


class RuleError(Exception):
    """A rule of the document is broken; carried to where the fault is made."""


def write_json(value: object) -> bytes:
    """Write JSON as UTF-8 without needless blanks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
