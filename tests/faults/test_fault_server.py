"""The server of raw bytes sees what it is there to see."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.faults import server as served
from tests.faults.answers import GOOD
from tests.faults.server import RawServer

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RawServer]:
    """A server that does not wait long for anybody to leave."""
    monkeypatch.setattr(served, "LEFT_S", 0.2)
    found = RawServer([[GOOD]])
    yield found
    found.close()


def call(server: RawServer) -> socket.socket:
    """Connect to the server."""
    port = int(server.base_url.rpartition(":")[2].partition("/")[0])
    return socket.create_connection(("127.0.0.1", port))


@pytest.mark.slow
def test_a_connection_left_open_is_seen(server: RawServer) -> None:
    """Who has its whole answer and does not leave is named, with what it did last."""
    with closing(call(server)) as left_open:
        left_open.sendall(REQUEST + b"{}")
        while left_open.recv(65536):
            pass
        (found,) = server.wait_until_left()

        assert repr(found) == "<after 1 requests: waiting for the other side to leave>"
    assert server.wait_until_left() == []


@pytest.mark.slow
def test_a_connection_kept_for_later_is_seen(server: RawServer) -> None:
    """Who keeps a connection that may be kept, and never leaves, is named, too."""
    server.then([GOOD, "keep"])
    with closing(call(server)) as kept:
        kept.sendall(REQUEST + b"{}")
        kept.recv(len(GOOD), socket.MSG_WAITALL)
        (found,) = server.wait_until_left()

        assert repr(found) == "<after 1 requests: waiting for a request>"


def test_a_stranger_is_sent_away(server: RawServer) -> None:
    """Who speaks no HTTP is hung up on, and is neither counted nor answered."""
    with closing(call(server)) as stranger:
        stranger.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f")
        hung_up = stranger.recv(65536)

        assert (hung_up, server.wait_until_left()) == (b"", [])
    assert (server.n_connections, server.requests) == (0, [])


def test_a_caller_that_leaves_inside_its_body_is_let_go(server: RawServer) -> None:
    """A request that stops in the middle ends its thread, and is no request."""
    before = threading.active_count()

    with closing(call(server)) as leaving:
        leaving.sendall(REQUEST + b"{")
    is_left = server.wait_until_left() == []

    assert (is_left, server.requests) == (True, [])
    assert threading.active_count() <= before + 1
