"""HTTP requests, replies and error bodies of the emulator, as plain values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# On every response, so that a client can mark what it received as emulated.
MARK = ("x-svc-emulator", "1")
# The types that the document shows (doc: Errors).
INVALID_REQUEST = "invalid_request_error"
AUTHENTICATION = "authentication_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came in.

    Attributes:
        method: As sent.
        path: Without the query.
        headers: Names in lower case.
        body: The whole body, or None if it was too long to keep.
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
    """What the emulated service sends, and when.

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
    """Make a reply of one piece, with its length in the headers."""
    headers = {"content-type": content_type, "content-length": str(len(data))}
    return Reply(
        status=status, headers=headers, body=(Piece(0.0, data),), before_s=before_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A refusal (doc: Error body).

    Only the two types that the document shows are written, and `param` is null.
    The message repeats nothing that was sent, since it might be a key.

    Attributes:
        status: HTTP status, 400 to 429.
        message: Which parameter is wrong, and what is allowed.
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
    """A request breaks a rule of the document; the message says which."""


def write_json(value: object) -> bytes:
    """Write JSON as UTF-8 without blanks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
