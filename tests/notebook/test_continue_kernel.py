"""`%svc continue` in a real kernel: the rest shows in the output of the reply."""

from collections.abc import Iterator
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import Kernel, Ran

CODE = "Here it is:\n\n```python\nfor n in range(3):\n    pri"
SCRIPT: list[dict[str, Any]] = [
    {"when": {"contains": "code"}, "text": CODE, "finish_reason": "length"},
    {
        "when": {"contains": "long"},
        "text": [f"Paragraph {n} of many.\n\n" * 10 for n in range(30)],
        "gap_s": 0.05,  # so that it is drawn while it comes
        "finish_reason": "length",
        "times": None,
    },
    {
        "when": {"contains": "Go on"},
        "text": ["```python\n", "    print(n)\n"],
        "cut_after": 2,
        "end": "silent",
    },
    {
        "when": {"contains": "Go on"},
        "text": ["```\n\n", *["Done. "] * 10],
        "gap_s": 0.03,
    },
]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose replies are cut, and whose rest gets stuck once."""
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


def ids(ran: Ran, kind: str) -> list[str]:
    """Return the display ids of messages."""
    return [each.get("transient", {}).get("display_id", "") for each in ran.all(kind)]


def test_the_rest_shows_in_the_output_of_the_reply(kernel: Kernel) -> None:
    """Interrupted and continued again, it is one code block in the first output."""
    first = kernel.run("%%svc -o answer\nWrite code", cell_id="a")
    stuck = Ran()
    cell = kernel.begin("%svc continue", cell_id="b")
    kernel.read(cell, stuck, until="print(n)")
    kernel.manager.interrupt_kernel()
    kernel.read(cell, stuck)
    rest = kernel.run("%svc continue", cell_id="b")

    shown = set(ids(first, "display_data"))
    assert stuck.status == "error"
    assert rest.status == "ok"
    for ran in (stuck, rest):
        own = ids(ran, "display_data")
        assert len(own) == 1  # one line, which is updated
        assert set(ids(ran, "update_display_data")) == shown | {*own}
        assert not ran.all("clear_output")
        assert "reply of [2]" in ran.all("update_display_data")[0]["data"]["text/plain"]
    lines = [
        [each for each in ran.all("update_display_data") if each["transient"] == own][
            -1
        ]
        for ran in (stuck, rest)
        for own in [ran.all("display_data")[0]["transient"]]
    ]
    notes = [line["data"]["text/plain"] for line in lines]
    assert ["still not complete" in note for note in notes] == [True, False]
    outputs = {
        each["transient"]["display_id"]: each["data"]
        for ran in (first, stuck, rest)
        for each in (*ran.all("display_data"), *ran.all("update_display_data"))
    }
    [reply] = [outputs[each] for each in shown]
    text = CODE + "nt(n)\n```\n\n" + "Done. " * 10
    assert reply["text/plain"].startswith(text.rstrip())
    assert reply["text/html"].count("<pre") == 1
    assert "still being written" not in reply["text/html"]
    assert "continue" not in reply["text/plain"]
    assert kernel.value("repr((answer.text, answer == svc.last()))") == repr(
        (text, True)
    )


def test_a_rest_adds_no_outputs(kernel: Kernel) -> None:
    """A long reply keeps the outputs it has, and only the last two are sent again."""
    first = kernel.run("%%svc\nBe long")
    stuck = Ran()
    cell = kernel.begin("%svc continue")
    kernel.read(cell, stuck, until="print(n)")
    kernel.manager.interrupt_kernel()
    kernel.read(cell, stuck)

    shown = ids(first, "display_data")
    assert len(shown) > 1
    assert len(stuck.all("display_data")) == 1
    updated = {*ids(stuck, "update_display_data")} - {*ids(stuck, "display_data")}
    assert updated <= {*shown[-2:]}  # finished blocks move up by one


def test_a_cell_that_was_run_again_is_not_continued(kernel: Kernel) -> None:
    """The reply is not in its output any more."""
    kernel.run("%%svc\nWrite code", cell_id="a")
    kernel.run("1 + 1", cell_id="a")

    refused = kernel.run("%svc continue", cell_id="b")

    assert refused.status == "error"
    [error] = refused.all("error")
    assert "[2], was run again since" in error["evalue"]


def test_where_nothing_is_updated_the_cell_shows_the_whole(kernel: Kernel) -> None:
    """A notebook that is run by a program has one output a cell."""
    kernel.run("%%svc\nWrite code", is_watched=False)
    stuck = kernel.begin("%svc continue", cell_id="b")
    kernel.read(stuck, Ran(), until="print(n)")
    kernel.manager.interrupt_kernel()
    kernel.read(stuck, Ran())

    rest = kernel.run("%svc continue", is_watched=False)

    [shown] = rest.all("display_data")
    assert shown["data"]["text/plain"].startswith(CODE + "nt(n)\n```\n\nDone.")
    assert not rest.all("update_display_data")
