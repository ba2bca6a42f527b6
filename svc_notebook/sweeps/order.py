"""The order of asking: randomised complete blocks, a queue for each model.

A block is one repeat of every combination; the next begins when it is through, so
that a run which is stopped early is balanced. Within a block the order is shuffled,
so that drift of the service does not look like an effect of a parameter. Rules: pure;
the same seed gives the same order, today and tomorrow; a queue is not a list of
cells, which are made when they are asked.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from random import Random

from .grid import Grid

Combinations = Sequence[int]


def seed_of(name: str) -> int:
    """Return the seed of a run of this name, so that it is the same after a restart."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


def by_model(grid: Grid) -> Mapping[str, Combinations]:
    """Return the combinations of each model, in the order of the plan."""
    found: dict[str, array[int]] = {}
    for combination in range(grid.n_combinations):
        model = grid.model_of(combination)
        if model not in found:
            found[model] = array("Q")
        found[model].append(combination)
    return found


def blocks(
    combinations: Combinations, *, repeats: int, seed: int, model: str
) -> Iterator[tuple[int, int]]:
    """Return combination and repeat of each cell of a model, in the order of asking.

    Args:
        combinations: Those of the model.
        repeats: How many blocks.
        seed: Of the run.
        model: Its id, so that two models are not asked in one order.
    """
    for repeat in range(repeats):
        block = array("Q", combinations)
        # text seeds are hashed by their content, so the order outlives this process
        Random(f"{seed}/{repeat}/{model}").shuffle(block)  # noqa: S311 - no secret
        for combination in block:
            yield combination, repeat
