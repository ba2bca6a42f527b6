"""Compressed bodies, in any pieces, and none that grows without end."""

import gzip
import zlib

import pytest

from svc_notebook.client.response import PIECE_BYTES, InflateError, Inflater

BODY = b"data: hello\n\n" * 5000
ENCODED = {
    "": BODY,
    "identity": BODY,
    "gzip": gzip.compress(BODY),
    "x-gzip": gzip.compress(BODY[:100]) + gzip.compress(BODY[100:]),
    "deflate": zlib.compress(BODY),
    "Deflate": zlib.compress(BODY),
}


def opened(inflater: Inflater, body: bytes, size: int) -> bytes:
    """Open a body in pieces of this size."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(part for piece in pieces for part in inflater.feed(piece))


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("size", [7, 1000, 10**6])
def test_bodies_are_opened(encoding: str, size: int) -> None:
    """Every encoding we know comes back whole, in pieces of any size."""
    inflater = Inflater(encoding)

    got = opened(inflater, ENCODED[encoding], size)

    assert got == BODY
    assert inflater.is_whole


def test_a_flushed_event_is_out_at_once() -> None:
    """What the sender flushed does not wait for the rest."""
    sender = zlib.compressobj(wbits=31)
    piece = sender.compress(b"data: a\n\n") + sender.flush(zlib.Z_SYNC_FLUSH)
    inflater = Inflater("gzip")

    got = b"".join(inflater.feed(piece))

    assert (got, inflater.is_whole) == (b"data: a\n\n", False)


@pytest.mark.slow
def test_a_bomb_comes_in_bounded_pieces() -> None:
    """A small body that holds a huge one comes out piece by piece."""
    bomb = gzip.compress(b"\0" * 20_000_000)

    sizes = [len(part) for part in Inflater("gzip").feed(bomb)]

    assert sum(sizes) == 20_000_000
    assert max(sizes) <= PIECE_BYTES


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "zstd"])
def test_unknown_encodings_are_refused(encoding: str) -> None:
    """An encoding that we did not ask for is refused."""
    with pytest.raises(InflateError):
        Inflater(encoding)


@pytest.mark.parametrize(
    "body", [b"not zipped at all", ENCODED["gzip"][:-8] + b"x" * 8]
)
def test_garbage_is_refused(body: bytes) -> None:
    """A body that is not what it says is refused."""
    with pytest.raises(InflateError):
        opened(Inflater("gzip"), body, 10)


@pytest.mark.parametrize("padding", [b"\0" * 9, b"garbage"])
@pytest.mark.parametrize("size", [1, 10**6])
def test_padding_behind_a_body_is_dropped(padding: bytes, size: int) -> None:
    """Bytes behind the end of a compressed body are no part of it."""
    inflater = Inflater("gzip")

    got = opened(inflater, gzip.compress(BODY) + padding, size)

    assert (got, inflater.is_whole) == (BODY, True)
