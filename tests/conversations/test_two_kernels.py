"""One conversation that several kernels ask at the same time, over one ledger."""

import warnings
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from tests.conversations.conftest import answered, kernel, prompts

pytestmark = pytest.mark.usefixtures("emulator")


def stale(plan: svc.Conversation) -> list[str | None]:
    """Return the prompts of the turns that are marked stale."""
    return [turn.prompt.content for turn in plan.turns if turn.is_stale]


def restored(name: str = "plan") -> tuple[list[str | None], list[str | None]]:
    """Return the prompts in a new kernel, and those of stale turns."""
    with kernel(name) as plan:
        plan.restore()
        return prompts(plan), stale(plan)


def test_a_turn_asked_without_those_of_another_kernel_is_stale() -> None:
    """Both kernels go on in one series, and each turn is marked that missed one."""
    with kernel() as a:
        a.ask("a1")
        a.ask("a2")
        with kernel() as b:
            b.restore().ask("b1")
            a.ask("a3")
            b.ask("b2")
    with kernel() as c:
        c.restore().ask("c1")

    assert restored() == (["a1", "a2", "b1", "a3", "b2", "c1"], ["a3", "b2"])


def test_a_turn_is_stale_although_its_kernel_knew_earlier_ones_of_the_other() -> None:
    """What a kernel had when it took the turns over is not all that came later."""
    with kernel() as a:
        a.ask("a1")
        with kernel() as b:
            b.restore()
            a.ask("a2")
            b.ask("b1")
            b.ask("b2")

    assert restored() == (["a1", "a2", "b1", "b2"], ["b1", "b2"])


def test_turns_of_earlier_kernels_that_do_not_fit_make_nothing_stale() -> None:
    """Neither those before the last kernel, nor all of them, nor hidden ones."""
    words = "word " * 2000
    with kernel() as a:
        a.ask(f"a1 {words}")
        a.ask(f"a2 {words}")
    with kernel() as b:
        b.restore().ask(f"b1 {words}")
        live = [stale(b)]
    with kernel() as c:
        c.restore().hide(2)
        c.ask(f"c1 {words}")
        c.pin(1)
        live.append(stale(c))
    with kernel() as d:
        d.restore().ask(f"d1 {words * 3}", max_tokens=9)
        d.ask("d2")
        live.append(stale(d))

    assert live == [[], [], []]
    assert restored()[1] == []


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(
            ["ask", "ask", "again", "hide", "unhide", "delete", "undo", "long"]
        ),
        st.integers(0, 3),
    ),
    min_size=4,
    max_size=10,
)


def act(plan: svc.Conversation, kind: str, place: int) -> None:
    """Change a conversation in one way; without turns, ask one."""
    if kind in {"ask", "long"} or not plan.turns:
        plan.ask(f"Question {place} " + "word " * 1500 * (kind == "long"))
        return
    turn = 1 + place % len(plan.turns)
    acts: dict[str, Any] = {
        "again": lambda: plan.ask_again(turn),
        "hide": lambda: plan.hide(turn),
        "unhide": lambda: plan.unhide(turn),
        "delete": lambda: plan.delete(turn),
        "undo": plan.undo,
    }
    acts[kind]()


@pytest.mark.slow
@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(STEPS)
def test_stale_is_the_same_after_another_restart(
    steps: list[tuple[int, str, int]],
) -> None:
    """Two kernels ask in turn; a third one restores, and asks; a fourth sees the same.

    What the third one asked with all turns is not stale.
    """
    name = uuid4().hex
    with answered():
        with kernel(name) as a:
            a.ask("First")
            with kernel(name) as b:
                b.restore()
                for which, kind, place in steps:
                    act((a, b)[which], kind, place)
        with kernel(name) as c:
            before = stale(c.restore()) if c.saved() else []
            c.ask("Last")
            live = [(turn.turn_id, turn.is_stale) for turn in c.turns]
        with kernel(name) as d:
            d.restore()
            again = [(turn.turn_id, turn.is_stale) for turn in d.turns]

    assert live == again
    assert stale(c) == before


NOTE = "Another session has asked {} meanwhile, not sent here; `%svc restore plan` adds"


def warned(plan: svc.Conversation, prompt: str) -> list[str]:
    """Ask, and return the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan.ask(prompt)
    return [str(warning.message) for warning in caught]


def test_newer_turns_of_another_kernel_are_said_once_and_taken_in() -> None:
    """Each time there are more, and `restore` adds exactly these."""
    with kernel() as a:
        a.ask("old")
    with kernel() as a:
        a.restore().ask("a1")
        with kernel() as b:
            b.restore()
            alone = warned(b, "b1")
            b.ask("b2")
        first, second = warned(a, "a2"), warned(a, "a3")
        with kernel() as c:
            c.ask("c1")
        third = warned(a, "a4")
        a.restore()
        taken, marks = prompts(a), stale(a)
        last = warned(a, "a5")

    assert first == [f"{NOTE.format('2 turns of plan')} them."]
    assert third == [f"{NOTE.format('3 turns of plan')} them."]
    assert (alone, second, last) == ([], [], [])
    assert taken == ["old", "a1", "b1", "b2", "a2", "a3", "c1", "a4"]
    assert marks == ["a2", "a3", "c1", "a4"]


def test_a_turn_that_another_kernel_asked_again_is_said_and_taken_in() -> None:
    """Its new version is chosen, as after a restart; undo takes it away."""
    with kernel() as a:
        a.ask("a1")
        a.ask("a2")
        with kernel() as b:
            b.restore().ask_again(1, "b1")
        note = warned(a, "a3")
        a.restore()
        taken, marks = prompts(a), stale(a)
        a.undo()

        assert note == [f"{NOTE.format('turn 1 (a1) of plan again')} it."]
        assert (taken, marks) == (["b1", "a2", "a3"], ["a2", "a3"])
        assert prompts(a) == ["a1", "a2", "a3"]


def test_what_another_kernel_deleted_or_failed_to_ask_is_not_said() -> None:
    """A ledger that cannot be read counts as empty."""
    with kernel() as a:
        a.ask("a1")
        with kernel() as b:
            b.restore().ask("b1")
            b.delete(2)
            with pytest.raises(svc.SvcError):
                b.ask("b2", model="svc-nope")
        assert warned(a, "a2") == []


def test_older_turns_that_were_said_are_not_said_as_newer_ones() -> None:
    """What another kernel asked before the first turn here is older."""
    with kernel() as a:
        plan = svc.conversation("plan")
        with kernel() as b:
            b.ask("b1")
        assert plan.older_note().startswith("the ledger has 1 older turn of plan")
        assert warned(a, "a1") == []
        assert warned(a, "a2") == []
