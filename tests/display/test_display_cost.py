import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
_BENCH = Path(__file__).parents[1] / "benchmarks" / "display_bench.py"
KINDS = ("mixed", "code", "thai", "paragraph", "list", "nested", "table", "line")


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    """Load the benchmark, whose counts are exact."""
    return runpy.run_path(str(_BENCH))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_bytes", [6_000, 24_000])
def test_growing_costs_little(bench: dict[str, Any], kind: str, n_bytes: int) -> None:
    """A reply costs at most 26 messages a second and 35 bytes a byte, all counted."""
    cost = bench["replay"](bench["replies"](n_bytes)[kind])

    assert (cost.messages_per_s <= 26, cost.bytes_per_byte <= 35) == (True, True), cost


@pytest.mark.parametrize("kind", KINDS)
def test_small_pieces_cost_little(bench: dict[str, Any], kind: str) -> None:
    """In pieces of 1 or 2 characters a reply costs at most 40 bytes a byte."""
    cost = bench["replay"](bench["replies"](6_000)[kind], n_chars=(1, 2))

    assert cost.bytes_per_byte <= 40, cost


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "line"])
def test_cost_grows_with_the_reply_only(bench: dict[str, Any], kind: str) -> None:
    """Four times the reply costs at most 1.2 times as many bytes a byte."""
    small, large = (
        bench["replay"](bench["replies"](n_bytes)[kind]).bytes_per_byte
        for n_bytes in (6_000, 24_000)
    )

    assert large <= 1.2 * small


def test_messages_are_few_among_other_output(bench: dict[str, Any]) -> None:
    """One display among others is updated at most 20 times a second."""
    cost = bench["replay"](bench["replies"](6_000)["mixed"], own_output=False)

    assert cost.messages_per_s <= 20
