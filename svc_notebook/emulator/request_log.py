"""The requests that an emulator received, without keys, for tests to read."""

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .emulated_keys import Keys
from .http_values import Request

MAX_KEPT = 10_000

Ended = Literal["running", "whole", "cut", "client_left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request and how its reply ended; keys are removed everywhere.

    Attributes:
        method, path: As sent, without the query.
        headers: Names in lower case, without the key.
        json: The body as JSON without keys, or None if it is not JSON.
        client_port: The client's port, which distinguishes connections.
        at_s: The emulator's clock when the request was read; nan if the clock failed.
        status: The status of the reply; None until its headers are sent.
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
        """Record a request and return its number, for `note`."""
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
            self._requests.pop(number - MAX_KEPT, None)
        return number

    def note(self, number: int, **changes: Any) -> None:  # noqa: ANN401 - fields of a record
        """Change fields of a request while it is answered."""
        with self._changed:
            if number in self._requests:
                self._requests[number] = replace(self._requests[number], **changes)
                self._changed.notify_all()

    def requests(self) -> tuple[RecordedRequest, ...]:
        """Return the requests, oldest first."""
        with self._changed:
            return tuple(self._requests.values())

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is running; False if one still is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(
                    request.ended != "running" for request in self._requests.values()
                ),
                timeout_s,
            )

    def _at_s(self) -> float:
        """Read the clock; nan if it fails (the reply reports the failure)."""
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
