"""Turns come back from the ledger, whichever kernel asked them."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from tests.conversations.conftest import kernel, prompts

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture
def script() -> list[dict[str, Any]]:
    """What the emulator answers."""
    fail = {"when": {"contains": "Fail"}, "error": {"message": "no"}, "status": 400}
    return [fail]


def weather(city: str) -> str:
    """Say the weather.

    Args:
        city: Where.
    """
    return f"rain in {city}"


def stale(plan: svc.Conversation) -> list[bool]:
    """Return which turns are marked stale."""
    return [turn.is_stale for turn in plan.turns]


def act(plan: svc.Conversation, kind: str, place: int, number: int) -> None:
    """Change a conversation in one way; without turns, ask one."""
    if kind == "ask" or not plan.turns:
        plan.ask(f"Question {number}")
        return
    turn = 1 + place % len(plan.turns)
    n_versions = len(plan.turns[turn - 1].versions)
    acts: dict[str, Callable[[], object]] = {
        "again": lambda: plan.ask_again(turn),
        "edit": lambda: plan.ask_again(turn, f"Edited {number}"),
        "choose": lambda: plan.choose(turn, 1 + number % n_versions),
        "hide": lambda: plan.hide(turn),
        "unhide": lambda: plan.unhide(turn),
        "pin": lambda: plan.pin(turn),
        "unpin": lambda: plan.unpin(turn),
        "delete": lambda: plan.delete(turn),
        "undo": plan.undo,
    }
    acts[kind]()


@pytest.fixture
def two_kernels(emulator: Emulator) -> None:  # noqa: ARG001 - it must run
    """One kernel asked "one" and "two", a later one asked "three" without them."""
    with kernel() as plan:
        plan.ask("one")
        plan.ask("two")
    with kernel() as plan:
        plan.ask("three")


@pytest.mark.usefixtures("two_kernels")
def test_the_newest_turns_are_restored_and_older_ones_can_be_added() -> None:
    """Each kernel's turns have a number; what is added comes in the order of asking."""
    with kernel() as plan:
        newest = prompts(plan.restore())
        both = prompts(plan.restore(1))
        marks = stale(plan)

    assert newest == ["three"]
    assert both == ["one", "two", "three"]
    assert marks == [False, False, True]


def test_looking_at_an_older_version_changes_no_mark() -> None:
    """A turn is stale while something else is chosen than it was answered on."""
    with kernel() as plan:
        plan.ask("A")
        plan.ask("B")
        plan.ask_again(1, "A2")
        plan.ask("C")
        marks = [stale(plan)]
        for version in (1, 2):
            plan.choose(1, version)
            marks.append(stale(plan))
        in_frame = plan.to_df()["is_stale"].tolist()[::2]
    with kernel() as plan:
        marks.append(stale(plan.restore()))

    a, b = [False, True, False], [False, False, True]
    assert marks == [a, b, a, a]
    assert in_frame == a


def test_turns_that_were_not_sent_make_nothing_stale() -> None:
    """Hidden turns may change; a turn that was sent and is then hidden may not."""
    with kernel() as plan:
        plan.ask("A")
        plan.hide(1)
        plan.ask("B")
        plan.ask_again(1, "A2")
        hidden = stale(plan)
        plan.hide(2)
        plan.ask_again(2, "B2")
        plan.unhide(1)
        plan.ask("C")
        plan.hide(1)
        sent = stale(plan)
        plan.ask_again(1, "A3")
        changed = stale(plan)

    assert hidden == [False, False]
    assert sent == [False, False, False]
    assert changed == [False, False, True]


def test_a_copy_begins_without_stale_turns() -> None:
    """Its turns count as answered on one another, also after a restart."""
    with kernel() as plan:
        plan.ask("A")
        plan.ask("B")
        plan.ask_again(1, "A2")
        copy = plan.copy("copy")
        copied = stale(copy)
        copy.ask("C")
        copy.ask_again(1, "A3")
        live = stale(copy)
    with kernel("copy") as copy:
        restored = stale(copy.restore())

    assert copied == [False, False]
    assert live == restored == [False, True, True]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("ask", "ask", "again", "edit", "choose", "delete", "undo"),
                *("hide", "unhide", "pin", "unpin"),
            ]
        ),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    min_size=3,
    max_size=10,
)


@pytest.mark.slow
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(STEPS)
def test_stale_is_the_same_after_a_restart(steps: list[tuple[str, int, int]]) -> None:
    """It is also the same after each version was chosen and the first one again.

    A version has the mark that its turn has while it is chosen.
    """
    name = uuid4().hex
    with kernel(name) as plan:
        for step in steps:
            act(plan, *step)
        before = stale(plan)
        for turn in plan.turns:
            chosen = turn.chosen + 1
            for version in (*range(1, len(turn.versions) + 1), chosen):
                plan.choose(turn.turn_id, version)
                shown = plan.history.turn(turn.turn_id)
                assert shown.is_stale == turn.versions[version - 1].is_stale
        again, ids = stale(plan), [turn.turn_id for turn in plan.turns]
    with kernel(name) as plan:
        restored = stale(plan.restore()) if ids else []

    assert before == again == restored


def test_a_restored_turn_counts_all_its_requests() -> None:
    """Tool rounds and continued parts are added up as when they were asked."""
    with kernel() as plan:
        plan.ask("weather", tools=[weather])
        plan.ask("Count", max_tokens=2)
        plan.go_on()
        asked = [turn.version.footer for turn in plan.turns]
    with kernel() as plan:
        plan.restore()
        restored = [turn.version.footer for turn in plan.turns]

    assert restored == asked
    assert all("2 requests, " in footer for footer in restored)


@pytest.mark.slow
def test_numbers_are_by_the_begin_and_stay() -> None:
    """What another kernel asks or fails to ask meanwhile changes no number."""
    with kernel() as first:
        first.ask("one")
        with kernel() as failed, pytest.raises(svc.SvcError):
            failed.ask("Fail")
        with kernel() as second, kernel() as third:
            second.ask("two")
            third.ask("three")
            listed = [each.series for each in third.saved()]
            first.ask("one again")
            failed.ask("four")

            saved = third.saved()
        with kernel() as plan:
            newest = prompts(plan.restore())
        with kernel() as plan:
            picked = prompts(plan.restore(1))

    assert [each.series for each in saved][:3] == listed
    assert [each.number for each in saved] == [1, 2, 3, 4]
    assert [each.is_newest for each in saved] == [False, False, False, True]
    assert (newest, picked) == (["four"], ["one", "one again"])


@pytest.mark.slow
@pytest.mark.usefixtures("two_kernels")
def test_added_turns_are_sent_and_can_be_asked_again(emulator: Emulator) -> None:
    """A turn of another kernel is a turn like others; undo takes them away again."""
    with kernel() as plan:
        plan.ask("four")
        plan.restore(1)
        plan.ask("five")
        sent: list[dict[str, Any]] = emulator.requests[-1].json["messages"]
        plan.ask_again(1)
        n_versions = [len(turn.versions) for turn in plan.turns]
        plan.undo()
        plan.undo()
        plan.undo()

        assert prompts(plan) == ["four"]
    asked = [each["content"] for each in sent if each["role"] == "user"]
    assert asked == ["one", "two", "four", "five"]
    assert n_versions == [2, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("two_kernels")
def test_turns_that_were_added_and_sent_come_back() -> None:
    """Another restart brings the newest series with those that its requests sent."""
    with kernel() as plan:
        plan.ask("four")
        plan.restore(1)
        plan.ask("five")
        live = [(turn.turn_id, turn.is_stale) for turn in plan.turns]
    with kernel() as plan:
        plan.restore()
        again = [(turn.turn_id, turn.is_stale) for turn in plan.turns]
        plan.ask("six")
    with kernel() as plan:
        last = prompts(plan.restore())

    assert again == live
    assert [is_stale for _, is_stale in live] == [False, False, True, False]
    assert last == ["one", "two", "four", "five", "six"]


def test_equal_turns_of_another_kernel_are_not_taken_for_those_sent() -> None:
    """Two kernels that asked the same and got the same have a series each."""
    for _ in range(2):
        with kernel() as plan:
            plan.ask("one", temperature=0)
            plan.ask("two", temperature=0)
    with kernel() as plan:
        assert prompts(plan.restore()) == ["one", "two"]


@pytest.mark.usefixtures("two_kernels")
def test_a_reply_that_ends_after_a_restore_is_a_turn() -> None:
    """What was asked before the restore comes after the restored turns."""
    with kernel() as plan:
        step = plan.next_turn("late")
        late = svc.complete("late")
        plan.restore(1)
        plan.record(step, late)

        assert prompts(plan) == ["one", "two", "late"]


@pytest.mark.usefixtures("two_kernels")
@pytest.mark.parametrize("number", [0, 3, "one"])
def test_a_number_that_is_not_listed_is_refused(number: object) -> None:
    """The message says which numbers there are."""
    with (
        kernel() as plan,
        pytest.raises(svc.errors.ParameterError, match="from 1 to 2"),
    ):
        plan.restore(number)  # type: ignore[arg-type]  # what is refused


def test_a_name_without_turns_is_refused() -> None:
    """Nothing is restored, and the conversation stays empty."""
    with (
        kernel() as plan,
        pytest.raises(svc.errors.ParameterError, match="no turns of 'plan'"),
    ):
        plan.restore()


def test_a_copy_is_restored_with_the_turns_it_was_copied_with() -> None:
    """The ledger has them under the other name, so they are read from the request."""
    with kernel() as plan:
        plan.ask("one")
        plan.ask("two")
        other = plan.copy("other", until=1)
        other.ask("three")
        live = [turn.messages for turn in other.turns]
        assert all(saved.is_in(other.history) for saved in other.saved())
    with kernel("other") as other:
        other.restore()

        assert [turn.messages for turn in other.turns] == live


@pytest.mark.slow
@pytest.mark.usefixtures("two_kernels")
def test_what_the_ledger_has_is_listed() -> None:
    """A line a series: its number, the kernel, how many turns, the first prompt."""
    with kernel() as plan:
        plan.ask("four")
        lines = [str(each).split(", ", 1) for each in plan.saved()]

    assert [rest for _, rest in lines] == [
        "another kernel, 2 turns: one",
        "another kernel, 1 turn: three",
        "this kernel, 1 turn: four",
    ]
    assert [begin.split()[0] for begin, _ in lines] == ["1", "2", "3"]
