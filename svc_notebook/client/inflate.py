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
_START_BYTES = 64 * 1024  # by then a body has shown what it is


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
        self._start: bytes | None = b""  # what came while nothing was opened yet

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
        if self._start is not None:
            self._start += rest
        try:
            opened = self._member.decompress(rest, PIECE_BYTES)
        except zlib.error:
            opened = self._open_headless()
        if opened or self._start is None or len(self._start) > _START_BYTES:
            self._start = None
        return opened

    def _open_headless(self) -> bytes:
        """Begin anew: some servers send deflate without its header."""
        start, self._start = self._start, None
        if start is None:
            raise InflateError
        self._member = zlib.decompressobj(_NO_HEADER)
        with suppress(zlib.error):
            return self._member.decompress(start, PIECE_BYTES)
        raise InflateError


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
