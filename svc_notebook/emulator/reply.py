"""Requests and replies as values: what goes in and out of the emulated service.

What it is not: sockets and waiting; `asgi` carries these values.

Rules for this file: timing is part of the value; whether to really wait is the
server's business.
"""

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
