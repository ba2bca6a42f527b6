"""Values that cannot be told apart: which sets of them are tied."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Alike = Mapping[int, set[int]]
"""For each value, those that it cannot be told apart from."""


class Tie(NamedTuple):
    """Values of a factor of which no two can be told apart.

    Attributes:
        factor: The column.
        on: The score.
        group: The subgroup in words; empty without subgroups.
        names: What the values are called, in the order of their means.
    """

    factor: str
    on: str
    group: str
    names: tuple[str, ...]


def tied_sets(pairs: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Return the largest sets of values in which each two are one of the pairs."""
    alike: dict[int, set[int]] = {}
    for one, other in pairs:
        alike.setdefault(one, set()).add(other)
        alike.setdefault(other, set()).add(one)
    return list(_cliques(set(), set(alike), set(), alike)) if alike else []


def _cliques(
    chosen: set[int], left: set[int], done: set[int], alike: Alike
) -> Iterable[set[int]]:
    """Return the maximal cliques of a graph (Bron and Kerbosch 1973)."""
    if not left and not done:
        yield chosen
    while left:
        one = min(left)
        near = alike[one]
        yield from _cliques(chosen | {one}, left & near, done & near, alike)
        left, done = left - {one}, done | {one}
