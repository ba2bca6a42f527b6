"""Small numbers kept by hash, in arrays: a million entries take 25 MB, not 200.

Only the hash of a key is kept, of 64 bits: that two of a million keys share one has a
chance of one in 30 million.
"""

from array import array
from collections.abc import Hashable

_LEAST_SLOTS = 64
_MASK = 2**64 - 1


class HashedNumbers:
    """A number from 0 for each key; a key without one has None."""

    def __init__(self) -> None:
        self._n = 0
        self._make(_LEAST_SLOTS)

    def __len__(self) -> int:
        return self._n

    def get(self, key: Hashable) -> int | None:
        """Return the number of a key."""
        found = self._numbers[self._slot(hash(key) & _MASK)]
        return found - 1 if found else None

    def put(self, key: Hashable, number: int) -> None:
        """Keep the number of a key."""
        mark = hash(key) & _MASK
        slot = self._slot(mark)
        if not self._numbers[slot]:
            self._n += 1
            if self._n * 3 > len(self._numbers) * 2:
                self._grow()
                slot = self._slot(mark)
        self._marks[slot] = mark
        self._numbers[slot] = number + 1

    def copy(self) -> "HashedNumbers":
        """Return a copy."""
        found = HashedNumbers()
        found._n, found._marks = self._n, self._marks[:]
        found._numbers = self._numbers[:]
        return found

    def _make(self, n_slots: int) -> None:
        self._marks = array("Q", bytes(8 * n_slots))
        self._numbers = array("I", bytes(4 * n_slots))  # 0 is a free slot

    def _slot(self, mark: int) -> int:
        """Return where a hash is, or the free slot where it goes."""
        marks, numbers = self._marks, self._numbers
        last = len(numbers) - 1
        slot = (mark ^ (mark >> 32)) & last  # hashes of integers are these themselves
        while numbers[slot] and marks[slot] != mark:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        marks, numbers = self._marks, self._numbers
        self._make(2 * len(numbers))
        for mark, number in zip(marks, numbers, strict=True):
            if number:
                slot = self._slot(mark)
                self._marks[slot], self._numbers[slot] = mark, number
