"""How many outputs a cell has: JupyterLab draws 50 of them, then a button."""

from collections.abc import Iterator
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import TIMEOUT_S, Kernel, Ran

MAX_OUTPUTS = 39
DRAWN = ("display_data", "execute_result", "error", "stream")
N_CALLS = 60
TOOLS = '''
import svc_notebook as svc

@svc.tool
def look(n: int) -> str:
    """Look."""
    print("looked at", n)
    return "seen " * 50

@svc.tool(confirm=True)
def pay(n: int) -> str:
    """Pay."""
    print("paid", n)
    return "paid"
'''
LONG = "".join(f"## Part {n}\n\nThe tide comes in twice a day.\n\n" for n in range(300))


def _calls(name: str, n_calls: int) -> dict[str, Any]:
    calls = [{"name": name, "arguments": {"n": n}} for n in range(n_calls)]
    return {"when": {"contains": name, "role": "user"}, "tool_calls": calls}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that calls tools many times, then writes 12 kB."""
    script = [
        {
            "when": {"role": "tool"},
            "text": LONG,
            "finish_reason": "stop",  # so that max_tokens does not cut it
            "times": None,
        },
        _calls("look", N_CALLS),
        _calls("pay", N_CALLS),
        {"text": "Short.", "times": None},
    ]
    with Emulator(script=script, limits=False) as running:
        yield running


def _n_outputs(ran: Ran) -> int:
    """Count outputs as JupyterLab makes them: printing goes on in the same one."""
    drawn: list[str] = []
    for kind, content in ran.messages:
        name = content["name"] if kind == "stream" else kind
        if kind == "stream" and drawn[-1:] == [name]:
            continue
        drawn += [name] * (kind in DRAWN)
    return len(drawn)


def test_tool_calls_make_few_outputs(kernel: Kernel) -> None:
    """60 calls that print, and a long reply, are the outputs of one reply."""
    kernel.run(TOOLS)

    ran = kernel.run("%%svc --tools look\nlook")

    assert ran.status == "ok"
    assert "Part 299" in ran.shown
    assert _n_outputs(ran) <= 10
    assert ran.all("stream") == []


def test_questions_make_few_outputs(kernel: Kernel) -> None:
    """60 questions are one output, since what a tool prints is in its call.

    JupyterLab lets answers that follow each other go on in the same output.
    """
    kernel.run(TOOLS)
    cell = kernel.begin("%%svc --tools pay\npay")
    for _ in range(N_CALLS):
        kernel.client.get_stdin_msg(timeout=TIMEOUT_S)
        kernel.client.input("y")

    ran = kernel.read(cell, Ran())

    assert ran.status == "ok"
    assert "Part 299" in ran.shown
    n_gaps = _n_outputs(ran) + 1  # between its outputs, where answers can be
    assert _n_outputs(ran) + n_gaps <= MAX_OUTPUTS
    assert ran.all("stream") == []
    assert f"paid {N_CALLS - 1}" in ran.shown


@pytest.mark.parametrize("n_repeats", [4, 16])
def test_a_grid_makes_few_outputs(kernel: Kernel, n_repeats: int) -> None:
    """24 replies that stream, or 96 behind a progress bar, are a few outputs."""
    models = "svc-v2-8b-instruct,svc-v2-70b-instruct"

    ran = kernel.run(f"%%svc -m {models} -t 0,1,2 --repeats {n_repeats}\nHello")

    assert ran.status == "ok"
    assert _n_outputs(ran) <= 5
