"""What is kept, in real kernels: re-use after a restart, no record, forget, code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import Kernel

SHOTS = "[{'role': 'user', 'content': 'hot'}, {'role': 'assistant', 'content': 'cold'}]"
NOTEBOOK = (
    "%load_ext svc_notebook\nimport svc_notebook as svc",
    "%config SvcMagics.reuse = True",
    f"svc.conversation('shots', messages={SHOTS});",
    "%%svc -c shots\nwet",
    "%%svc -c shots\ndry",
    "%%svc -t 0\nA question",
    "svc.complete('Another')",
)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that answers at once, at one address for all kernels."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


@contextmanager
def started(emulator: Emulator, place: Path) -> Iterator[Kernel]:
    """Start a kernel; its ledger is a file."""
    kernel = Kernel(
        {
            "SVC_BASE_URL": emulator.base_url,
            "SVC_API_KEY": emulator.api_key,
            "SVC_LEDGER": str(place),
        }
    )
    try:
        yield kernel
    finally:
        kernel.close()


def test_run_all_after_a_restart(emulator: Emulator, tmp_path: Path) -> None:
    """A new kernel sends only the changed cell; the footers of the others say so."""
    place = tmp_path / "ledger.sqlite"
    with started(emulator, place) as kernel:
        assert all(kernel.run(code).status == "ok" for code in NOTEBOOK)
    n_sent = len(emulator.requests)

    with started(emulator, place) as kernel:
        ran = [kernel.run(code) for code in NOTEBOOK]
        changed = kernel.run("%%svc -c shots\nhigh")
        fresh = kernel.run("%%svc -t 0 --fresh\nA question")

    assert [each.status for each in ran] == ["ok"] * len(NOTEBOOK)
    assert all("re-used 2" in each.shown for each in ran[3:])
    assert "re-used" not in changed.shown + fresh.shown
    assert len(emulator.requests) == n_sent + 2
    prompts = [each["content"] for each in emulator.requests[-2].json["messages"]]
    assert prompts[::2] == ["hot", "wet", "dry", "high"]


def test_a_conversation_goes_on_in_a_new_kernel(
    emulator: Emulator, tmp_path: Path
) -> None:
    """A new cell continues it; Run All, and a kernel that nobody watches, begin again.

    In the latter, `%svc restore` puts the older turns before the new one.
    """
    place = tmp_path / "ledger.sqlite"
    notebook = (("a", "%%svc -c plan\none"), ("b", "%%svc -c plan\ntwo"))

    def sent() -> list[str]:
        messages = emulator.requests[-1].json["messages"]
        return [message["content"] for message in messages[::2]]

    with started(emulator, place) as kernel:
        kernel.run(NOTEBOOK[0])
        for cell_id, code in notebook:
            kernel.run(code, cell_id=cell_id)
    with started(emulator, place) as kernel:
        kernel.run(NOTEBOOK[0])
        new_cell = kernel.run("%svc -c plan three", cell_id="c")
        went_on = sent()
    with started(emulator, place) as kernel:
        kernel.run(NOTEBOOK[0])
        top, _ = (kernel.run(code, cell_id=cell_id) for cell_id, code in notebook)
        all_again = sent()
    with started(emulator, place) as kernel:
        kernel.run(NOTEBOOK[0], is_watched=False)
        unwatched = kernel.run("%%svc -c plan\nfour", is_watched=False)
        alone = sent()
        restored = kernel.run("%svc restore plan", is_watched=False)
        kernel.run("%%svc -c plan\nfive", is_watched=False)

    assert (went_on, all_again, alone) == (
        ["one", "two", "three"],
        ["one", "two"],
        ["four"],
    )
    assert "went on with 2 turns of plan" in new_cell.shown
    assert "begins plan again" in top.shown
    assert "3 older turns of plan, not sent here; `%svc restore plan`" in (
        unwatched.shown
    )
    assert "Restored: 3 turns of plan, before the 1 turn here." in restored.shown
    assert sent() == ["one", "two", "three", "four", "five"]


def test_what_is_not_recorded_or_forgotten_is_gone(
    emulator: Emulator, tmp_path: Path
) -> None:
    """A private cell is in hand only; a forgotten one leaves the file."""
    place = tmp_path / "ledger.sqlite"
    forget = "!{sys.executable} -m svc_notebook ledger forget --conversation plan"
    with started(emulator, place) as kernel:
        kernel.run(f"{NOTEBOOK[0]}\nimport sys")
        private = kernel.run("%%svc --no-record -o reply\nprivate-words")
        in_hand = kernel.run("reply == svc.last(), len(svc.replies_df())")
        kernel.run("%%svc -c plan\nregretted-words")
        kernel.run("%%svc\nother-words")
        asked = kernel.run(forget)
        forgotten = kernel.run(f"{forget} --yes")
        left = kernel.run("list(svc.replies_df()['prompt'])")

    assert "not in the ledger" in private.shown
    assert "(True, 0)" in in_hand.shown
    assert "1 exchange of the conversation 'plan'" in asked.shown
    assert "Confirm with --yes" in asked.shown
    assert "1 exchange deleted" in forgotten.shown
    assert "['other-words']" in left.shown
    kept = b"".join(each.read_bytes() for each in place.parent.glob("ledger*"))
    assert b"other-words" in kept
    assert b"private-words" not in kept
    assert b"regretted-words" not in kept


def test_the_code_of_a_cell_runs_in_the_next(
    emulator: Emulator, tmp_path: Path
) -> None:
    """`as_python()` of a cell's reply sends what the cell has sent."""
    script = tmp_path / "ask.sh"
    with started(emulator, tmp_path / "ledger.sqlite") as kernel:
        kernel.run(NOTEBOOK[0])
        kernel.run("%%svc -t 0.2 -s 'Be \"brief\".' -o reply\nIt's ไทย\n{{2}}")
        ran = kernel.run("exec(reply.as_python())")
        kernel.run(f"open({str(script)!r}, 'w').write(reply.as_curl())")
        shell = kernel.run(f"!sh {script} | tail -3")

    assert ran.status == shell.status == "ok"
    assert "[DONE]" in shell.shown
    first, *others = (each.json for each in emulator.requests)
    assert others == [first, first]
