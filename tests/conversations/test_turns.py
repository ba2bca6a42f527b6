"""A history is a value: changing it gives another one that can be sent."""

import pytest

from svc_notebook.conversations.history import History, Version
from svc_notebook.service.message import assistant, user


def answer(name: str, prompt: str) -> Version:
    """Return a version named after its exchange."""
    return Version(exchange_id=name, prompt=user(prompt), replies=(assistant(name),))


def three_turns() -> History:
    """Return a history of the turns a, b and c."""
    history = History()
    for name in "abc":
        history = history.answered(name, answer(name + "1", name))
    return history


def test_a_new_turn_comes_last() -> None:
    """Turns stand in the order in which they were asked."""
    assert [turn.turn_id for turn in three_turns().turns] == ["a", "b", "c"]


def test_asking_again_keeps_the_place_and_the_old_version() -> None:
    """A turn asked again keeps its place; its answer is a version more."""
    history = three_turns().answered("b", answer("b2", "b!"))

    turn = history.turns[1]
    assert [turn.turn_id for turn in history.turns] == ["a", "b", "c"]
    assert turn.messages == (user("b!"), assistant("b2"))
    assert [version.exchange_id for version in turn.versions] == ["b1", "b2"]
    assert [turn.is_stale for turn in history.turns] == [False, False, True]


def test_a_turn_builds_on_what_came_before_it() -> None:
    """A turn asked again sees the turns before it, a new one sees all."""
    history = three_turns()

    assert [turn.turn_id for turn in history.before("b")] == ["a"]
    assert [turn.turn_id for turn in history.before("new")] == ["a", "b", "c"]


def test_choosing_an_older_version_makes_later_turns_stale() -> None:
    """The version chosen feeds later turns, which were answered without it."""
    history = three_turns().answered("b", answer("b2", "b")).choosing(2, 1)

    assert history.turns[1].version == answer("b1", "b")
    assert history.turns[2].is_stale


def test_turns_can_be_pinned_and_hidden() -> None:
    """Pinning and hiding touch one turn and can be undone."""
    history = three_turns().toggled(1, pin=True).toggled(2, hide=True)

    assert [turn.is_pinned for turn in history.turns] == [True, False, False]
    assert [turn.is_hidden for turn in history.turns] == [False, True, False]
    assert history.toggled(1, pin=True).toggled(2, hide=True) == three_turns()


@pytest.mark.parametrize(("turn", "version"), [(0, 1), (4, 1), (1, 2), (1, 0), (-1, 1)])
def test_there_is_no_other_turn_or_version(turn: int, version: int) -> None:
    """A turn or version that is not there is refused."""
    with pytest.raises(IndexError):
        three_turns().choosing(turn, version)
