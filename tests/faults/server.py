"""A server of raw bytes: it answers each request with the steps of a case.

After the last step it ends its half of a connection and waits for the other side to
leave, so that a connection that is left open is seen. Connections without HTTP are not
counted: other programs of a machine may connect to any port.
"""

import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.faults.case import Step

WAIT_S = 60.0
LEFT_S = 60.0
_LOOK_S = 0.5
_RESET = struct.pack("ii", 1, 0)
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(eq=False)
class Call:
    """One connection, as its server sees it.

    Attributes:
        socket: It.
        state: What its server did last.
        n_requests: Requests that came on it.
        is_stranger: Whether what came first was no HTTP.
    """

    socket: socket.socket
    state: str = "made"
    n_requests: int = 0
    is_stranger: bool = False

    def receive(self, state: str, *, within_s: float = WAIT_S) -> bytes:
        """Return the next bytes, b"" when the other side has left.

        Raises:
            OSError: The connection is lost, or nothing came in time.
        """
        self.state = state
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            with suppress(TimeoutError):
                return self.socket.recv(65536)
        raise TimeoutError

    def __repr__(self) -> str:
        return f"<after {self.n_requests} requests: {self.state}>"


class RawServer:
    """Answers requests, one after another, with steps; the last again and again.

    With `is_early` it answers once it has read a head, and ends the connection. One
    that is kept is closed when no request comes for `keep_s`.

    Attributes:
        requests: What came, head and body.
        calls: Connections that were made.
    """

    def __init__(
        self,
        answers: Sequence[Sequence[Step]],
        *,
        is_early: bool = False,
        keep_s: float = WAIT_S,
    ) -> None:
        self._is_early, self._keep_s = is_early, keep_s
        self.requests: list[bytes] = []
        self.calls: list[Call] = []
        self._answers = list(answers) or [[]]
        self._changed = threading.Condition()
        self._open: set[Call] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._start(self._accept)

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    @property
    def n_connections(self) -> int:
        """Connections that sent HTTP."""
        return sum(not call.is_stranger for call in self.calls)

    def then(self, answer: Sequence[Step]) -> None:
        """Answer from now on with these steps."""
        with self._changed:
            self._answers = [answer]

    def answer_in_turn(self, answers: Sequence[Sequence[Step]]) -> None:
        """Answer the next requests with these, the last one again and again."""
        with self._changed:
            self._answers = list(answers)

    def wait_until_left(self) -> list[Call]:
        """Wait until the other side has left; return the connections that remain."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, LEFT_S)
            return sorted(self._open, key=self.calls.index)

    def close(self) -> None:
        """Close everything and wait for the threads."""
        with self._changed:
            sockets = [self._listener, *(call.socket for call in self._open)]
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]  # functions of this class
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(_LOOK_S)
                call = Call(connection)
                with self._changed:
                    self.calls.append(call)
                    self._open.add(call)
                self._start(self._serve, call)

    def _serve(self, call: Call) -> None:
        try:
            with suppress(OSError):
                goes_on, within_s = True, WAIT_S
                while goes_on and (request := self._read(call, within_s)):
                    goes_on = self._answer(call, request) and not self._is_early
                    within_s = self._keep_s
                if not call.is_stranger:
                    _see_off(call)
        finally:
            with self._changed:
                call.socket.close()
                self._open.discard(call)
                self._changed.notify_all()

    def _read(self, call: Call, within_s: float) -> bytes:
        """Read one request; nothing if the other side has left or speaks no HTTP."""
        request = b""
        while b"\r\n\r\n" not in request:
            piece = call.receive("waiting for a request", within_s=within_s)
            request += piece
            call.is_stranger = bool(request) and request[:1] not in _LETTERS
            if not piece or call.is_stranger:
                return b""
        return request if self._is_early else _with_body(call, request)

    def _answer(self, call: Call, request: bytes) -> bool:
        with self._changed:
            self.requests.append(request)
            call.n_requests += 1
            steps = self._answers.pop(0) if self._answers[1:] else self._answers[0]
        return any([_do(call, step) for step in steps])  # noqa: C419 - every one


def _do(call: Call, step: Step) -> bool:
    """Take one step; say whether the connection goes on after the last one."""
    call.state = f"at {step[:40] if isinstance(step, bytes) else step!r}"
    if isinstance(step, bytes):
        _send(call.socket, step)
    elif isinstance(step, float):
        threading.Event().wait(step)
    elif callable(step):
        step()
    elif step == "reset":
        call.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        call.socket.close()
    elif step == "silence":
        while call.receive("silent"):
            pass
    return step == "keep"


def _send(connection: socket.socket, body: bytes) -> None:
    connection.settimeout(WAIT_S)
    connection.sendall(body)
    connection.settimeout(_LOOK_S)


def _see_off(call: Call) -> None:
    """End our half, and wait for the other side to leave."""
    call.socket.shutdown(socket.SHUT_WR)
    while call.receive("waiting for the other side to leave"):
        pass


def _with_body(call: Call, request: bytes) -> bytes:
    """Return a request with its whole body; nothing if the other side has left."""
    head, _, body = request.partition(b"\r\n\r\n")
    length_line = head.lower().partition(b"content-length:")[2].split()
    length = int(length_line[0]) if length_line else 0  # a CONNECT has none
    while len(body) < length:
        piece = call.receive(f"inside a body, {len(body)} of {length} bytes in")
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body
