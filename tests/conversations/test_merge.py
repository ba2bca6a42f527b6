"""Turns of two kernels are merged: none comes twice, and none is lost."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.conversations.history import Turn
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated

pytestmark = pytest.mark.usefixtures("emulator")


@contextmanager
def kernel(name: str = "plan") -> Iterator[svc.Conversation]:
    """Begin a kernel, and use a conversation in it."""
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield svc.conversation(name)
        current().ledger.flush()


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


def prompts(plan: svc.Conversation) -> list[str | None]:
    """Return the prompts of a conversation."""
    return [turn.prompt.content for turn in plan.turns]


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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask", "ask", "again", "choose", "hide", "pin", "delete", "undo", "add"]
        ),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=8,
)


def act(plan: svc.Conversation, kind: str, place: int) -> None:
    """Change a conversation in one way; without turns, ask one."""
    if kind == "ask" or not plan.turns:
        plan.ask(f"Question {place}")
    elif kind == "add":
        plan.restore()
    elif kind == "undo":
        plan.undo()
    else:
        turn = 1 + place % len(plan.turns)
        n_versions = len(plan.turns[turn - 1].versions)
        acts: dict[str, Callable[[], object]] = {
            "again": lambda: plan.ask_again(turn),
            "choose": lambda: plan.choose(turn, 1 + place % n_versions),
            "hide": lambda: plan.toggle_hidden(turn),
            "pin": lambda: plan.toggle_pin(turn),
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
    with (
        # each example has its own limit of requests a minute
        Emulator(tokens_per_s=None, first_token_s=0, limits=False) as emulator,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("SVC_BASE_URL", emulator.base_url)
        environment.setenv("SVC_API_KEY", emulator.api_key)
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
