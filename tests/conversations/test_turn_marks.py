"""What was picked, pinned, hidden, deleted or undone comes back with the turns."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.session import current, isolated

CUT = {
    "when": {"contains": "Count"},
    "text": "one, tw",
    "finish_reason": "length",
    "times": None,
}
SLOW = {"when": {"contains": "slow"}, "text": ["a", "b"], "gap_s": 30}
REST = {"when": {"contains": "Go on"}, "text": "o, three.", "times": None}


pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture
def script() -> list[dict[str, Any]]:
    """What the emulator answers."""
    return [CUT, REST, SLOW]


@contextmanager
def kernel(*, restored: bool = False) -> Iterator[svc.Conversation]:
    """Begin a kernel, and use a conversation in it."""
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = svc.conversation("plan")
        yield plan.restore() if restored else plan


def seen(plan: svc.Conversation) -> list[object]:
    """Return what a user sees of each turn, and what is sent of it."""
    return [
        (
            turn.messages,
            len(turn.versions),
            turn.chosen,
            turn.version.picked,
            turn.is_pinned,
            turn.is_hidden,
        )
        for turn in plan.turns
    ]


def test_what_was_asked_at_the_same_time_was_asked_without_the_turn_above() -> None:
    """So it is stale, in the next kernel as well; asked again, it is not."""
    with kernel() as plan:
        with plan.stream("slow") as stream:
            next(iter(stream))
            plan.ask("quick")
        plan.ask("after both")
        marks = [turn.is_stale for turn in plan.turns]
        current().ledger.flush()
    with kernel(restored=True) as plan:
        restored = [turn.is_stale for turn in plan.turns]
        plan.ask_again(2, "again")
        again = [turn.is_stale for turn in plan.turns]

        assert [turn.prompt.content for turn in plan.turns][::2] == [
            "quick",
            "after both",
        ]
    assert marks == restored == [False, True, False]
    assert again == [False, False, True]


@pytest.mark.slow
def test_marks_are_restored_in_another_kernel() -> None:
    """The other kernel sends what this one would send."""
    with kernel() as plan:
        plan.ask("one", n=3)
        plan.ask("two")
        plan.ask("three")
        plan.ask("four")
        plan.pick(1, 3)
        plan.ask_again(2)
        plan.choose(2, 1)
        plan.pin(2)
        plan.hide(3)
        plan.delete(4)
        live = seen(plan)
    with kernel(restored=True) as plan:
        assert seen(plan) == live
        assert [turn.is_pinned for turn in plan.turns] == [False, True, False]


@pytest.mark.slow
def test_what_was_redone_is_back() -> None:
    """An answer, a deletion and a pin, each undone and redone; a reset changes none."""
    with kernel() as plan:
        plan.ask("one")
        plan.ask("two")
        plan.ask_again(1)
        plan.undo()
        plan.redo()
        plan.delete(2)
        plan.pin(1)
        plan.undo()
        plan.undo()
        plan.redo()
        plan.redo()
        live = seen(plan)
        plan.reset()
        plan.undo()
        plan.redo()
        plan.undo()
    with kernel(restored=True) as plan:
        assert seen(plan) == live
        assert [(t.is_pinned, len(t.versions)) for t in plan.turns] == [(True, 2)]


def test_an_undone_continuation_leaves_the_text_before_it() -> None:
    """The first part of a reply is not lost with its continuation."""
    with kernel() as plan:
        plan.ask("Count")
        plan.go_on()
        plan.undo()
        plan.ask("next")
    with kernel(restored=True) as plan:
        assert plan.turns[0].version.text == "one, tw"


@pytest.mark.slow
def test_a_continued_reply_stays_deleted_in_every_later_kernel() -> None:
    """Also where the kernel that deleted it never saw its first part."""
    with kernel() as plan:
        plan.ask("Count")
        plan.go_on()
        plan.ask("next")
    with kernel(restored=True) as plan:
        assert plan.turns[0].version.text == "one, two, three."
        plan.delete(1)
    with kernel(restored=True) as plan:
        plan.pin(1)
        assert [turn.prompt.content for turn in plan.turns] == ["next"]
    with kernel(restored=True) as plan:
        assert [turn.prompt.content for turn in plan.turns] == ["next"]
        assert plan.turns[0].is_pinned


def test_a_reset_deletes_nothing() -> None:
    """The turns from before it come back, with their marks."""
    with kernel() as plan:
        plan.ask("one")
        plan.ask("two")
        plan.delete(1)
        plan.reset()
        plan.undo()
        plan.reset()
        plan.restore()
        assert [turn.prompt.content for turn in plan.turns] == ["two"]


@pytest.mark.slow
def test_a_deleted_turn_of_a_copy_stays_deleted() -> None:
    """Turns that were copied are known by their place alone."""
    with kernel() as plan:
        plan.ask("one")
        plan.ask("two")
        other = plan.copy("other")
        other.delete(1)
        other.pin(1)
        other.ask("three")
    with kernel():
        other = svc.conversation("other").restore()
        assert [turn.prompt.content for turn in other.turns] == ["two", "three"]
        assert other.turns[0].is_pinned
