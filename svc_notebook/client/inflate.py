"""Compressed bodies, opened in bounded pieces.

Rules: pure; a small body cannot become a huge one unseen, because every piece that
comes out is bounded and the reader counts what came out; a stream's bytes are out
as soon as the sender flushed them.
"""

import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

PIECE_BYTES = 256 * 1024
_ANY_HEADER = zlib.MAX_WBITS | 32  # gzip or zlib, told by the first bytes
_GZIP = b"\x1f\x8b"
_NO_HEADER = -zlib.MAX_WBITS


class InflateError(Exception):
    """The body is not what its Content-Encoding says; stays in this folder."""


class Inflater(Protocol):
    """Opens one body."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take the next bytes and return what they hold."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing at the end."""


class Plain:
    """A body that is not compressed."""

    is_whole = True

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return the bytes as they are."""
        yield piece


class Zipped:
    """A body in gzip or deflate, of one or several members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_ANY_HEADER)
        self._n_in_bytes = 0
        self._is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether the end of the compressed body was seen."""
        return self._member.eof or self._n_in_bytes == 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return what the next bytes hold, in bounded pieces.

        Raises:
            InflateError: They are not compressed as they should be.
        """
        rest = piece
        while rest and not self._is_over:
            if self._member.eof:
                if not _GZIP.startswith(rest[: len(_GZIP)]):
                    self._is_over = True  # padding: what came is whole
                    return
                self._member = zlib.decompressobj(_ANY_HEADER)
            before = self._member.copy()
            try:
                opened = self._open(rest)
            except InflateError:
                rescued = b"".join(_rescued(before, rest))
                if rescued:
                    yield rescued
                raise
            self._n_in_bytes += len(rest)
            if opened:
                yield opened
            rest = self._member.unconsumed_tail or self._member.unused_data

    def _open(self, rest: bytes) -> bytes:
        try:
            return self._member.decompress(rest, PIECE_BYTES)
        except zlib.error:
            if self._n_in_bytes:
                raise InflateError from None
        # Some servers send deflate without its header.
        self._member = zlib.decompressobj(_NO_HEADER)
        try:
            return self._member.decompress(rest, PIECE_BYTES)
        except zlib.error:
            raise InflateError from None


def _rescued(member: "zlib._Decompress", rest: bytes) -> Iterator[bytes]:
    """Return what came before the place where a body is broken."""
    with suppress(zlib.error):
        for at in range(len(rest)):
            yield member.decompress(rest[at : at + 1], PIECE_BYTES)


def inflater_of(encoding: str) -> Inflater:
    """Return what opens a body with this Content-Encoding.

    Raises:
        InflateError: We did not ask for that encoding and cannot open it.
    """
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return Plain()
    if name in {"gzip", "x-gzip", "deflate"}:
        return Zipped()
    raise InflateError
