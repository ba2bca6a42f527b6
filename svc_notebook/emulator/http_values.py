"""HTTP requests and replies of the emulator as plain values, and who may send them.

Keys, models and rate limits are typed out of the document. The log of requests can be
read back by tests and people; it repeats no key.
"""

import json
import math
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

# On every response, so that a client can mark what it received as emulated. What is
# said of an answer replaces the 1: that it is made up, or the note of a script.
MARK = ("x-svc-emulator", "1")
MADE_UP = (MARK[0], "made up")
UNAUTHORIZED = 401
FORBIDDEN = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came in; `client_port` tells a client's connections apart."""

    method: str
    path: str  # without the query
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes | None = b""  # None if it was too long to keep
    client_port: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Some body bytes, and how long after the previous piece they come."""

    after_s: float
    data: bytes


class End(StrEnum):
    """How a reply ends once its pieces are sent."""

    WHOLE = "whole"  # as HTTP ends a body
    CUT = "cut"  # the connection is closed, the body unfinished
    RESET = "reset"  # the connection is reset
    SILENT = "silent"  # nothing more comes, and the connection stays open


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the emulated service sends, and when; the server adds the mark.

    With the status None there are neither status line nor headers, and the body goes to
    the socket as it is.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: tuple[Piece, ...] = ()
    end: End = End.WHOLE
    before_s: float = 0.0  # how long the headers take


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

# doc: Rate limits per model. Requests in one second, requests in one minute.
LIMITS: Mapping[str, tuple[int, int]] = {
    "svc-v1.5-instruct": (20, 150),
    "svc-v1.5x-70b-instruct": (5, 50),
    "svc-v2-8b-instruct": (5, 50),
    "svc-v2-70b-instruct": (5, 50),
}

KEY = "svc-emulator"
REVOKED_KEY = "svc-emulator-revoked"
FORBIDDEN_KEY = "svc-emulator-forbidden"
HIDDEN = "[key]"
SECOND_S = 1.0
MINUTE_S = 60.0
# A key of so many letters is not an ordinary word.
_LONG_ENOUGH = 8


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one emulator; no message and no record repeats one.

    A revoked key is answered with 401, as one never created, a forbidden one with 403.
    """

    valid: tuple[str, ...] = field(default=(KEY,), repr=False)
    revoked: tuple[str, ...] = field(default=(REVOKED_KEY,), repr=False)
    forbidden: tuple[str, ...] = field(default=(FORBIDDEN_KEY,), repr=False)

    def hide(self, text: str, headers: Mapping[str, str]) -> str:
        """Replace every key in a text: the known ones and the one sent.

        A short key, as people choose for tests, is replaced only as a whole word; it
        may be a part of ordinary words.
        """
        keys = {sent_key(headers), *self.valid, *self.revoked, *self.forbidden} - {""}
        for key in sorted(keys, key=len, reverse=True):  # one may begin with another
            if len(key) >= _LONG_ENOUGH:
                text = text.replace(key, HIDDEN)
            else:
                text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", HIDDEN, text)
        return text


def sent_key(headers: Mapping[str, str]) -> str:
    """Read the key of a request; empty if it has none in the bearer scheme."""
    scheme, _, key = headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


class Quota:
    """Limits the requests per second and per minute, for each model.

    `limits` maps model ids to requests in any 1 s and in any 60 s. It never waits, and
    a refused request uses up nothing.
    """

    def __init__(
        self, limits: Mapping[str, tuple[int, int]], clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._taken_at: dict[str, deque[float]] = {}

    def take(self, model: str) -> str | None:
        """Admit a request, or name the full window: `per second`, `per minute`."""
        if model not in self._limits:
            return None
        per_second, per_minute = self._limits[model]
        now = self._clock()
        taken = self._taken_at.setdefault(model, deque())
        while taken and now - taken[0] >= MINUTE_S:
            taken.popleft()
        if sum(1 for at in taken if now - at < SECOND_S) >= per_second:
            return "per second"
        if len(taken) >= per_minute:
            return "per minute"
        taken.append(now)
        return None


KEPT_AT_MOST = 10_000

Ended = Literal["running", "whole", "cut", "client_left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request and how it went; no key is kept, wherever it was sent.

    Attributes:
        method, path: As sent, without the query.
        headers: Names in lower case, without the key.
        json: The body as JSON without keys, or None if it is not JSON.
        client_port: Tells connections apart.
        at_s: The emulator's clock when the request was read; nan if the clock failed.
        status: Of the reply; None until its headers are sent.
        n_pieces: Body pieces sent so far.
        ended: `running`; `whole`; `cut` by a script; `client_left`: the connection
            was closed before the end, by the client or with the emulator.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    json: Any
    client_port: int
    at_s: float
    status: int | None = None
    n_pieces: int = 0
    ended: Ended = "running"

    @property
    def is_cut_by_client(self) -> bool:
        """Whether the client left before the reply was whole."""
        return self.ended == "client_left"


class RequestLog:
    """The newest requests of one emulator; safe to use from any thread."""

    def __init__(self, keys: Keys, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._clock = clock
        self._requests: dict[int, RecordedRequest] = {}
        self._n_requests = 0
        self._changed = threading.Condition()

    def begin(self, request: Request) -> int:
        """Note a request and return its number, for `note`."""
        recorded = RecordedRequest(
            method=request.method,
            path=self._keys.hide(request.path, request.headers),
            headers={
                name: self._keys.hide(value, request.headers)
                for name, value in request.headers.items()
                if name != "authorization"
            },
            json=self._json(request),
            client_port=request.client_port,
            at_s=self._at_s(),
        )
        with self._changed:
            number = self._n_requests
            self._n_requests += 1
            self._requests[number] = recorded
            self._requests.pop(number - KEPT_AT_MOST, None)
        return number

    def note(self, number: int, **changes: Any) -> None:  # noqa: ANN401 - fields of a record
        """Change fields of a request while it is answered."""
        with self._changed:
            if number in self._requests:
                self._requests[number] = replace(self._requests[number], **changes)
                self._changed.notify_all()

    def requests(self) -> tuple[RecordedRequest, ...]:
        """List them, oldest first."""
        with self._changed:
            return tuple(self._requests.values())

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is running; False if one still is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(
                    each.ended != "running" for each in self._requests.values()
                ),
                timeout_s,
            )

    def _at_s(self) -> float:
        """Read the clock; if it fails, the reply says so."""
        try:
            return float(self._clock())
        except Exception:  # noqa: BLE001 - the user's clock
            return math.nan

    def _json(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        if not request.body:
            return None
        try:
            text = request.body.decode("utf-8")
            return json.loads(self._keys.hide(text, request.headers))
        except (ValueError, RecursionError):
            return None
