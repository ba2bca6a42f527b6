"""Turns, versions and choices that are not there: what is said."""

import pytest

from svc_notebook.conversations.history import History, Turn, Version, place_of, said_of
from svc_notebook.errors import ParameterError
from svc_notebook.service.message import Message, assistant, user

LIST = "`%svc history plan` lists them with their versions."


def _version(*choices: str) -> Version:
    several = tuple(map(assistant, choices)) if len(choices) > 1 else ()
    return Version(
        exchange_id="x",
        prompt=user("Hello"),
        replies=(Message(role="assistant", content=choices[0]),),
        choices=several,
    )


HISTORY = History(
    turns=(
        Turn(turn_id="a", versions=(_version("one"), _version("two"))),
        Turn(turn_id="b", versions=(_version("A", "B", "C"),)),
    )
)
ONE = History(turns=HISTORY.turns[:1])


def _said(history: History, how: str, *numbers: object) -> str:
    with pytest.raises(ParameterError) as caught, said_of("plan"):
        getattr(history, how)(*numbers)
    assert caught.value.param == "turn"
    return str(caught.value)


@pytest.mark.parametrize(
    ("how", "numbers", "said"),
    [
        ("turn", (9,), "The conversation 'plan' has 2 turns and no turn 9; "),
        ("turn", (0,), "The conversation 'plan' has 2 turns and no turn 0; "),
        ("turn", ("zz",), "The conversation 'plan' has 2 turns and no turn 'zz'; "),
        ("turn", (1.5,), "The conversation 'plan' has 2 turns and no turn 1.5; "),
        ("choosing", (9, 1), "The conversation 'plan' has 2 turns and no turn 9; "),
        ("choosing", (1, 9), "Turn 1 of 'plan' has 2 versions and no version 9; "),
        ("choosing", ("a", 9), "Turn 1 of 'plan' has 2 versions and no version 9; "),
        ("choosing", (2, 2), "Turn 2 of 'plan' has 1 version and no version 2; "),
        ("choosing", (1, "2"), "Turn 1 of 'plan' has 2 versions and no version '2'; "),
        ("picking", (2, 4), "Turn 2 of 'plan' has 3 choices and no choice 4; "),
        ("picking", (1, 2), "Turn 1 of 'plan' has 1 choice and no choice 2; "),
        ("deleting", (3,), "The conversation 'plan' has 2 turns and no turn 3; "),
        ("toggled", (3,), "The conversation 'plan' has 2 turns and no turn 3; "),
    ],
)
def test_what_is_not_there_is_named_with_how_many_there_are(
    how: str, numbers: tuple[object, ...], said: str
) -> None:
    """Turn, version and choice are told apart."""
    assert _said(HISTORY, how, *numbers) == said + LIST


def test_one_turn_is_no_turns() -> None:
    """The number agrees with its word."""
    assert "has 1 turn and no turn 2;" in _said(ONE, "turn", 2)


def test_a_conversation_without_turns_has_nothing_to_list() -> None:
    """It says so, and no more."""
    said = _said(History(), "turn", 1)

    assert said == "The conversation 'plan' has no turns yet."


def test_the_only_choice_can_be_picked() -> None:
    """A reply that came alone is choice 1 of 1: nothing changes."""
    assert HISTORY.picking(1, 1) == HISTORY


def test_a_place_counts_from_nought() -> None:
    """A number from 1 becomes an index."""
    assert [place_of(n, 3, "turn") for n in (1, 2, 3)] == [0, 1, 2]
