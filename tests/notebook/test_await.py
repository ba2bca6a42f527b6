"""A request that is awaited in a real kernel, and interrupted."""

from collections.abc import Iterator

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import Kernel, Ran, wait_for_request


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that begins to answer after half a minute."""
    key = "svc-key-of-this-test-5f2d"
    slow = {"text": "Late", "before_s": 30, "times": None}
    with Emulator(script=[slow], keys=[key], limits=False) as running:
        yield running


CELLS = [
    "await client.complete('Hi')",
    "async with client.stream('Hi') as stream:\n    [text async for text in stream]",
]


@pytest.mark.parametrize("asking", CELLS)
def test_an_interrupt_ends_an_awaited_request(
    asking: str, kernel: Kernel, emulator: Emulator
) -> None:
    """Interrupted, the cell ends and the connection is closed."""
    ran = Ran()
    code = f"client = svc.AsyncClient()\nprint('begun', flush=True)\n{asking}"
    cell = kernel.begin(code, is_watched=False)
    kernel.read(cell, ran, until="begun")
    wait_for_request(emulator)

    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    assert ran.status == "error"
    assert emulator.wait_idle()
    assert [each.ended for each in emulator.requests] == ["client_left"]
