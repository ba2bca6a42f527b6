"""A server of raw bytes: it answers each request with the steps of a case.

What it is not: it knows no HTTP beyond where a request ends. Rules: it never waits
longer than a test may take, and it tells how many connections are open.
"""

import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress

from tests.faults.case import Step

WAIT_S = 20.0
_RESET = struct.pack("ii", 1, 0)


class RawServer:
    """Answers requests, one after another, with steps; the last again and again.

    Attributes:
        requests: What came, head and body.
        n_connections: Connections that were made.
    """

    def __init__(self, answers: Sequence[Sequence[Step]]) -> None:
        self.requests: list[bytes] = []
        self.n_connections = 0
        self._answers = list(answers) or [[]]
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._start(self._accept)

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def then(self, answer: Sequence[Step]) -> None:
        """Answer from now on with these steps."""
        with self._changed:
            self._answers = [answer]

    def wait_until_left(self) -> int:
        """Wait until the other side has left; return how many connections remain."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, WAIT_S / 4)
            return len(self._open)

    def close(self) -> None:
        """Close everything and wait for the threads."""
        for each in (self._listener, *self._open):
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
                with self._changed:
                    self.n_connections += 1
                    self._open.add(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT_S)
        with suppress(OSError):
            while (request := _read(connection)) and self._answer(connection, request):
                pass
        with self._changed:
            connection.close()
            self._open.discard(connection)
            self._changed.notify_all()

    def _answer(self, connection: socket.socket, request: bytes) -> bool:
        with self._changed:
            self.requests.append(request)
            steps = self._answers.pop(0) if self._answers[1:] else self._answers[0]
        return any([_do(connection, step) for step in steps])  # noqa: C419 - every one


def _do(connection: socket.socket, step: Step) -> bool:
    """Take one step; say whether the connection goes on after the last one."""
    if isinstance(step, bytes):
        connection.sendall(step)
    elif isinstance(step, float):
        threading.Event().wait(step)
    elif step == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.close()
    elif step == "silence":
        while connection.recv(65536):
            pass
    return step == "keep"


def _read(connection: socket.socket) -> bytes:
    """Read one request; nothing if the other side has left."""
    request = b""
    while b"\r\n\r\n" not in request:
        piece = connection.recv(65536)
        if not piece:
            return b""
        request += piece
    head, _, body = request.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
