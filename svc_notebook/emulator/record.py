"""What was asked of the emulator, to be read back by tests and people.

What it is not: a log of keys; none is ever kept, wherever it was sent.

Rules for this file: records are frozen and replaced as a request goes on; the
newest 10 000 are kept; reading is safe from any thread.
"""

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .access import Keys
from .http_values import Request

KEPT_AT_MOST = 10_000

Ended = Literal["running", "whole", "cut", "client_left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request and how it went.

    Attributes:
        method, path: As sent, without the query.
        headers: Names in lower case, without the key.
        json: The body as JSON with keys taken out, or None if it is none.
        status: What was answered; None while no headers were sent.
        n_pieces: Body pieces sent so far.
        ended: `running`; `whole`; `cut` by a script; `client_left`: the connection
            was closed before the end, by the client or with the emulator.
        client_port: Tells connections apart.
        at_s: Monotonic seconds at which the request was read; nan if the clock
            could not tell.
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


class Record:
    """The requests of one emulator, oldest first."""

    def __init__(self, keys: Keys, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._clock = clock
        self._asked: dict[int, RecordedRequest] = {}
        self._n_asked = 0
        self._changed = threading.Condition()

    def begin(self, request: Request) -> int:
        """Note a request; the number names it from now on."""
        asked = RecordedRequest(
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
            number = self._n_asked
            self._n_asked += 1
            self._asked[number] = asked
            self._asked.pop(number - KEPT_AT_MOST, None)
        return number

    def note(self, number: int, **changes: Any) -> None:  # noqa: ANN401 - `RecordedRequest` fields
        """Change fields of a request under way."""
        with self._changed:
            if number in self._asked:
                self._asked[number] = replace(self._asked[number], **changes)
                self._changed.notify_all()

    def asked(self) -> tuple[RecordedRequest, ...]:
        """List what was asked."""
        with self._changed:
            return tuple(self._asked.values())

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is running.

        Returns:
            False if one still was when the time was up.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: all(each.ended != "running" for each in self._asked.values()),
                timeout_s,
            )

    def _at_s(self) -> float:
        """Read the clock; one that fails is the service's to complain of."""
        try:
            return float(self._clock())
        except Exception:  # noqa: BLE001 - the user's clock
            return math.nan

    def _json(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        """Read a body back, without keys."""
        if not request.body:
            return None
        try:
            text = request.body.decode("utf-8")
            return json.loads(self._keys.hide(text, request.headers))
        except (ValueError, RecursionError):
            return None
