"""The emulator's HTTP requests and replies as values, its errors, and model ids."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# A header of every response, so that a client can mark replies as emulated. A note on
# the answer replaces the 1: one of the texts below, or the note in a script.
MARK = ("x-svc-emulator", "1")
BY_HAND = "written by hand"
NO_ANSWER = "no answer"
MADE_UP = "made up"
UNAUTHORIZED = 401
FORBIDDEN = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as received; `client_port` distinguishes a client's connections."""

    method: str
    path: str  # without the query
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes | None = b""  # None if it was too long to keep
    client_port: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a body, and how long after the previous piece they are sent."""

    after_s: float
    data: bytes


class End(StrEnum):
    """How a reply ends after its pieces are sent."""

    WHOLE = "whole"  # as HTTP ends a body
    CUT = "cut"  # the connection is closed, the body unfinished
    RESET = "reset"  # the connection is reset
    SILENT = "silent"  # nothing more is sent, and the connection stays open


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the emulated service sends, and when; the server adds the mark.

    If the status is None, there are no status line and no headers: the body is written
    to the socket as it is.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: tuple[Piece, ...] = ()
    end: End = End.WHOLE
    before_s: float = 0.0  # seconds before the headers


def whole(
    status: int, data: bytes, *, content_type: str, before_s: float = 0.0
) -> Reply:
    """Make a reply of one piece, with its length in the headers."""
    headers = {"content-type": content_type, "content-length": str(len(data))}
    return Reply(
        status=status, headers=headers, body=(Piece(0.0, data),), before_s=before_s
    )


class RuleError(Exception):
    """A request breaks a rule of the document; the message says which.

    The message repeats nothing that was sent, since it might be a key.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def error_body(status: int, message: str) -> bytes:
    """Write an error body; it holds only types and codes that the document shows."""
    is_about_key = status in (UNAUTHORIZED, FORBIDDEN)
    error = {
        "message": message,
        "type": "authentication_error" if is_about_key else "invalid_request_error",
        "param": None,
        "code": "invalid_api_key" if status == UNAUTHORIZED else None,
    }
    return write_json({"error": error})


def write_json(value: object) -> bytes:
    """Write JSON as UTF-8 without blanks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


# doc: Model ids, "Ids that appear".
DOCUMENTED = (
    "svc-instruct",
    "svc-v1.5-instruct",
    "svc-v1.5x-70b-instruct",
    "svc-v2-8b-instruct",
    "svc-v2-70b-instruct",
    "svc-v2.1-12b-instruct",
    "svc-v2.5-30b-a3b-instruct",
)
