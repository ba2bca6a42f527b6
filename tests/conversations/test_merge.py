"""Turns of two kernels are merged: none comes twice, and none is lost."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.conversations.history import Turn
from svc_notebook.session import current
from tests.conversations.conftest import answered, kernel, prompts

pytestmark = pytest.mark.usefixtures("emulator")


def asked(*prompts: str) -> None:
    """Ask in a kernel of its own."""
    with kernel() as plan:
        for prompt in prompts:
            plan.ask(prompt)


def seen(plan: svc.Conversation) -> list[object]:
    """Return what a user sees of each turn."""
    return [
        (
            turn.turn_id,
            ids(turn),
            turn.chosen,
            turn.is_stale,
            turn.is_pinned,
            turn.is_hidden,
        )
        for turn in plan.turns
    ]


def ids(turn: Turn) -> list[str]:
    """Return the exchanges of its answers."""
    return [version.exchange_id for version in turn.versions]


def add_all(plan: svc.Conversation) -> list[object]:
    """Add all that the ledger has, and return what is seen then."""
    for saved in plan.saved():
        plan.add(saved)
    return seen(plan)


def test_the_same_prompt_at_the_same_place_is_one_turn() -> None:
    """The fresh answers stay, and are not stale; what is missing is added."""
    asked("one", "two", "three")
    with kernel() as plan:
        plan.ask("one")
        plan.ask("two")
        fresh = [turn.version for turn in plan.turns]
        plan.restore()

        assert prompts(plan) == ["one", "two", "three"]
        assert [turn.version for turn in plan.turns[:2]] == fresh
        assert [len(turn.versions) for turn in plan.turns] == [2, 2, 1]
        assert [turn.chosen for turn in plan.turns] == [1, 1, 0]
        assert [turn.is_stale for turn in plan.turns[:2]] == [False, False]


def test_an_added_turn_is_stale_while_another_answer_is_shown_above_it() -> None:
    """It was answered on the older version; choosing that one makes the fresh stale."""
    asked("one", "two")
    with kernel() as plan:
        plan.ask("one", model="svc-instruct")
        plan.restore()
        marks = [[turn.is_stale for turn in plan.turns]]
        plan.choose(1, 1)
        marks.append([turn.is_stale for turn in plan.turns])

    assert marks == [[False, True], [False, False]]


def test_a_repeated_prompt_in_one_run_stays_two_turns() -> None:
    """Only a turn of another run is the same turn."""
    asked("more", "more", "more")
    with kernel() as plan:
        plan.ask("more")
        plan.ask("more")
        plan.restore()

        assert prompts(plan) == ["more"] * 3
        assert [len(turn.versions) for turn in plan.turns] == [2, 2, 1]


def test_an_undone_addition_can_be_added_again_in_every_kernel() -> None:
    """Undo takes turns away from here; in the ledger, they are not deleted."""
    asked("one", "two")
    with kernel() as plan:
        plan.ask("one")
        plan.restore()
        plan.undo()
        undone = prompts(plan)
    with kernel() as plan:
        plan.restore()

        assert undone == ["one"]
        assert prompts(plan) == ["one", "two"]


def test_a_deleted_turn_does_not_come_back_with_its_older_version() -> None:
    """It has answers of two kernels, and both are deleted; undo brings both back."""
    asked("one", "two")
    with kernel() as plan:
        plan.ask("one")
        plan.restore().delete(1)
    with kernel() as plan:
        plan.restore()
        deleted = prompts(plan)
    with kernel() as plan:
        plan.ask("zero")
        plan.restore()
        plan.ask("one")
        plan.delete(3)
        plan.undo()
        n_versions = len(plan.turns[2].versions)
    with kernel() as plan:
        plan.restore()

        assert deleted == ["two"]
        assert n_versions == 1
        assert prompts(plan) == ["two", "zero", "one"]


def test_what_was_restored_by_hand_is_restored_in_the_next_kernel() -> None:
    """Nothing was asked since: the series that was opened is the one seen last."""
    asked("one", "two")
    asked("three")
    asked("four")
    with kernel() as plan:
        plan.restore(1)
        plan.restore(2)
        live = seen(plan)
    with kernel() as plan:
        plan.restore()

        assert prompts(plan) == ["one", "two", "three"]
        assert seen(plan) == live
        plan.restore(3)
    with kernel() as plan:
        assert prompts(plan.restore()) == ["one", "two", "three", "four"]


def test_a_number_adds_only_its_series() -> None:
    """Also if another one was added to it before; and this is what stays."""
    asked("one")
    asked("two")
    with kernel() as plan:
        plan.restore(2).restore(1)
    with kernel() as plan:
        assert prompts(plan.restore(2)) == ["two"]
    with kernel() as plan:
        assert prompts(plan.restore()) == ["two"]


def test_pins_and_hidden_turns_of_an_earlier_run_come_with_it() -> None:
    """Unless the user has changed them here; the prompts are as the cells asked."""
    with kernel() as plan:
        for key in (1, 2, 3):
            in_a_cell(plan, key)
        plan.ask_again(2, "Edited")
        for turn in (1, 2):
            plan.pin(turn)
        plan.hide(3)
    with kernel() as plan:
        for key in (1, 2, 3):
            in_a_cell(plan, key)
        plan.pin(2)
        plan.unpin(2)
        plan.restore()
        marks = [(turn.is_pinned, turn.is_hidden) for turn in plan.turns]
        plan.unpin(1)
    with kernel() as plan:
        for key in (1, 2, 3):
            in_a_cell(plan, key)
        plan.restore()

        assert marks == [(True, False), (False, False), (False, True)]
        assert prompts(plan) == ["Question 1", "Question 2", "Question 3"]
        assert [len(turn.versions) for turn in plan.turns] == [3, 4, 3]
        assert [turn.is_pinned for turn in plan.turns] == [False] * 3
        assert [turn.is_hidden for turn in plan.turns] == [False, False, True]


def test_the_order_of_three_runs_is_the_same_in_the_next_kernel() -> None:
    """The note beforehand counts what a restore brings back."""
    asked("token", "example", "why", "English")
    asked("token", "example", "shorter", "why")
    with kernel() as plan:
        for prompt in ("token", "example", "why"):
            plan.ask(prompt)
        plan.restore()
        live = seen(plan)
    with kernel() as plan:
        note = plan.older_note()
        plan.restore()

        assert len(plan.turns) == 6
        assert seen(plan) == live
        assert note == (
            "the ledger has 6 older turns of plan, not sent here; `%svc restore plan` "
            "brings them back"
        )
        frame = svc.conversations_df("plan")
        assert frame["n_turns"].to_list() == [6]


def test_runs_that_a_kernel_without_turns_restores_stay_one_turn_each() -> None:
    """In the kernel after it, too, also if that only goes on."""
    asked("one", "two", "three")
    asked("one", "two")
    with kernel() as plan:
        plan.restore()
        plan.hide(1)
        plan.pin(2)
        live = seen(plan)
    with kernel() as plan:
        plan.resume(None, "")

        assert prompts(plan) == ["one", "two", "three"]
        assert seen(plan) == live


def test_turns_that_were_added_to_copied_ones_come_once() -> None:
    """The first request of the series sent both."""
    asked("one", "two")
    examples = [
        {"role": "user", "content": "example"},
        {"role": "assistant", "content": "answer"},
    ]
    with kernel() as plan:
        plan.begin(examples)
        plan.restore().ask("three")
        live = prompts(plan), [turn.is_stale for turn in plan.turns]
    with kernel() as plan:
        plan.restore()

        assert live[0] == ["example", "one", "two", "three"]
        assert (prompts(plan), [turn.is_stale for turn in plan.turns]) == live


def test_turns_of_another_notebook_that_were_undone_are_not_deleted() -> None:
    """They are not here in the next kernel, but the ledger has them."""
    asked("one")
    with kernel() as plan:
        plan.restore()
        with kernel() as other:
            other.restore().ask("two")
        plan.restore()
        plan.undo()
        live = prompts(plan)
    with kernel() as plan:
        plan.restore()

        assert (live, prompts(plan)) == (["one"], ["one"])
        assert prompts(plan.restore(1)) == ["one", "two"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("ask", "ask", "again", "choose", "delete", "undo", "add"),
                *("hide", "unhide", "pin", "unpin"),
            ]
        ),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=8,
)


def act(plan: svc.Conversation, kind: str, place: int) -> None:
    """Change a conversation in one way; without turns, ask one."""
    if kind == "ask" or not (plan.turns or kind in {"add", "number", "cell"}):
        plan.ask(f"Question {place}")
    elif kind in {"add", "number"}:
        if saved := plan.saved():
            plan.restore(None if kind == "add" else 1 + place % len(saved))
    elif kind == "undo":
        plan.undo()
    elif kind == "redo":
        plan.redo()
    elif kind == "cell":
        in_a_cell(plan, place)
    elif kind == "elsewhere":
        elsewhere(plan, place)
    else:
        turn = 1 + place % len(plan.turns)
        n_versions = len(plan.turns[turn - 1].versions)
        acts: dict[str, Callable[[], object]] = {
            "again": lambda: plan.ask_again(turn),
            "edit": lambda: plan.ask_again(turn, f"Edited {place}"),
            "go_on": lambda: (
                plan.go_on(turn) if plan.turns[turn - 1].version.can_go_on else None
            ),
            "choose": lambda: plan.choose(turn, 1 + place % n_versions),
            "hide": lambda: plan.hide(turn),
            "unhide": lambda: plan.unhide(turn),
            "pin": lambda: plan.pin(turn),
            "unpin": lambda: plan.unpin(turn),
            "delete": lambda: plan.delete(turn),
        }
        acts[kind]()


@pytest.mark.slow
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(STEPS, STEPS)
def test_adding_twice_is_adding_once_and_nothing_is_lost(
    first: list[tuple[str, int]], second: list[tuple[str, int]]
) -> None:
    """Also in the next kernel, which shows the same."""
    name = uuid4().hex
    with answered():
        with kernel(name) as plan:
            for step in first:
                act(plan, *step)
        with kernel(name) as plan:
            plan.ask("Question 0")
            for step in second:
                act(plan, *step)
            fresh = {turn.turn_id: turn.version for turn in plan.turns}
            once, twice = add_all(plan), add_all(plan)
            answers = [id_ for turn in plan.turns for id_ in ids(turn)]
            shown = {turn.turn_id: turn.version for turn in plan.turns}
            kept = {
                id_
                for saved in plan.saved()
                for turn in saved.history.turns
                for id_ in ids(turn)
            }
        with kernel(name) as plan:
            next_day = seen(plan.restore()) if plan.saved() else []

    assert twice == once
    assert sorted(answers) == sorted(kept)  # none is lost, none comes twice
    assert fresh.items() <= shown.items()
    assert next_day == once


def in_a_cell(plan: svc.Conversation, key: int) -> None:
    """Ask as a cell does, which asks its turn again when it runs again."""
    turn = plan.next_turn(f"Question {key}", turn_key=f"cell-{key}")
    completion = current().client.complete(turn.request, origin=turn.origin)
    plan.record(turn, completion)


def elsewhere(plan: svc.Conversation, place: int) -> None:
    """Ask in another notebook meanwhile, and add that here."""
    with kernel(plan.name) as other:
        if place % 2:
            other.resume(None, "")
        act(other, ("ask", "cell")[place // 2], place)
    plan.restore()


KERNELS = st.lists(
    st.tuples(
        st.booleans(),  # whether it goes on where the one before ended
        st.lists(
            st.tuples(
                st.sampled_from(
                    [
                        "ask",
                        "cell",
                        "cell",
                        "again",
                        "edit",
                        "choose",
                        "hide",
                        "unhide",
                        "pin",
                        "unpin",
                        "delete",
                        "undo",
                        "redo",
                        "add",
                        "add",
                        "number",
                        "elsewhere",
                        "go_on",
                    ]
                ),
                st.integers(0, 3),
            ),
            min_size=1,
            max_size=6,
        ),
    ),
    min_size=2,
    max_size=4,
)


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(KERNELS)
def test_the_next_kernel_shows_what_was_seen_last(
    kernels: list[tuple[bool, list[tuple[str, int]]]],
) -> None:
    """Order, answers, what is sent of them, and marks; no answer comes twice."""
    name = uuid4().hex
    cut = {"when": {"contains": "Question 3"}, "text": "o", "finish_reason": "length"}
    with answered(cut | {"times": None}):
        for goes_on, steps in kernels:
            with kernel(name) as plan:
                if goes_on:
                    plan.resume(None, "")
                for step in steps:
                    act(plan, *step)
                live = seen(plan)
                answers = [id_ for turn in plan.turns for id_ in ids(turn)]
            with kernel(name) as plan:
                if live:
                    plan.resume(None, "")
                    assert seen(plan) == live
            assert len({*answers}) == len(answers)
        with kernel(name) as plan:
            everything = add_all(plan)
        with kernel(name) as plan:
            assert not everything or seen(plan.restore()) == everything
