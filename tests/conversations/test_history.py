"""A history is a value: changing it gives another one that can be sent."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.conversations.history import History, Turn, UndoableHistory, Version
from svc_notebook.errors import ParameterError
from svc_notebook.service.request import (
    FunctionCall,
    Message,
    ToolCall,
    assistant,
    user,
)


def answer(name: str, prompt: str) -> Version:
    """Return a version named after its exchange."""
    return Version(exchange_id=name, prompt=user(prompt), replies=(assistant(name),))


def version(name: str, *, n_choices: int = 1, has_tools: bool = False) -> Version:
    """Return a version named after its exchange."""
    call = ToolCall(id=name, function=FunctionCall(name="f", arguments="{}"))
    rounds = (
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="result", tool_call_id=name),
    )
    choices = tuple(assistant(f"{name}/{n}") for n in range(n_choices))
    return Version(
        exchange_id=name,
        prompt=user(f"ask {name}"),
        replies=(*(rounds if has_tools else ()), choices[0]),
        choices=choices if n_choices > 1 else (),
        is_partial=n_choices == 2,
    )


@dataclass
class Names:
    """Gives each answer another name."""

    n: int = 0

    def next(self) -> str:
        """Return the next one."""
        self.n += 1
        return f"e{self.n}"


def changed(  # noqa: PLR0911 - one line per kind of step
    history: History, step: tuple[Any, ...], names: Names
) -> History:
    """Do one thing to a history; what cannot be done is left."""
    kind, place, number, has_tools = step
    n_turns = len(history.turns)
    turn = history.turns[place % n_turns] if n_turns else None
    answer = version(names.next(), n_choices=number, has_tools=has_tools)
    if kind == "say" or turn is None:
        return history.with_answer(answer.exchange_id, answer)
    match kind:
        case "again":
            return history.with_answer(turn.turn_id, answer)
        case "grow":
            old = turn.version
            reply = assistant(f"{old.text}+")
            grown = Version(
                exchange_id=answer.exchange_id,
                prompt=old.prompt,
                replies=(*old.replies[:-1], reply),
                choices=old.choices,
                picked=old.picked,
            )
            return history.with_version(turn.turn_id, turn.chosen, grown)
        case "choose":
            return history.with_chosen(turn.turn_id, 1 + number % len(turn.versions))
        case "pick" if turn.version.choices:
            choice = 1 + number % len(turn.version.choices)
            return history.with_picked(turn.turn_id, choice)
        case "delete":
            return history.without(turn.turn_id)
        case "pin" | "hide":
            pinned = history.with_pin(turn.turn_id)
            return pinned if kind == "pin" else history.with_hidden(turn.turn_id)
    return history


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["say", "again", "grow", "choose", "pick", "delete", "pin", "hide"]
        ),
        st.integers(0, 5),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(STEPS)
def test_no_version_and_no_choice_is_lost(steps: list[tuple[Any, ...]]) -> None:
    """Of a turn that is still there every version keeps its prompt and choices."""
    history, names = History(), Names()

    for step in steps:
        before, history = history, changed(history, step, names)
        for old in before.turns:
            place = history.find(old.turn_id)
            if place is None:
                assert step[0] == "delete"
                continue
            new = history.turns[place]
            assert len(new.versions) >= len(old.versions)
            for was, now in zip(old.versions, new.versions, strict=False):
                assert was.prompt == now.prompt
                assert len(was.choices) == len(now.choices)
                assert now.replies[-1].content is not None
                assert step[0] == "grow" or was.choices == now.choices


@pytest.mark.slow
@given(STEPS)
def test_only_what_comes_after_a_change_is_stale(steps: list[tuple[Any, ...]]) -> None:
    """A stale turn is fresh again when it is asked again, and in no other way."""
    history, names = History(), Names()

    for step in steps:
        before, history = history, changed(history, step, names)
        stale_before = {t.turn_id for t in before.turns if t.is_stale}
        stale_after = {t.turn_id for t in history.turns if t.is_stale}
        gone = {t.turn_id for t in before.turns} - {t.turn_id for t in history.turns}
        fresh = stale_before - stale_after - gone
        assert len(fresh) <= (step[0] == "again")


@pytest.mark.slow
@given(STEPS)
def test_every_step_can_be_undone(steps: list[tuple[Any, ...]]) -> None:
    """Undone one by one, a history is each of what it was, down to the first."""
    shared, names = UndoableHistory("plan"), Names()
    shared.set_system("Be brief")
    seen = [shared.state]
    for step in steps:
        shared.change(partial(changed, step=step, names=names))
        if shared.state != seen[-1]:
            seen.append(shared.state)

    undone = [shared.state]
    while shared.undo():
        undone.append(shared.state)

    assert undone == list(reversed(seen))


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
    name="plan",
    turns=(
        Turn(turn_id="a", versions=(_version("one"), _version("two"))),
        Turn(turn_id="b", versions=(_version("A", "B", "C"),)),
    ),
)


def _said(history: History, how: str, *numbers: object) -> str:
    with pytest.raises(ParameterError) as caught:
        getattr(history, how)(*numbers)
    assert f" no {caught.value.param}" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("how", "numbers", "said"),
    [
        ("turn", (9,), "The conversation 'plan' has 2 turns and no turn 9; "),
        ("turn", (0,), "The conversation 'plan' has 2 turns and no turn 0; "),
        ("turn", ("zz",), "The conversation 'plan' has 2 turns and no turn 'zz'; "),
        ("turn", (1.5,), "The conversation 'plan' has 2 turns and no turn 1.5; "),
        ("with_chosen", (9, 1), "The conversation 'plan' has 2 turns and no turn 9; "),
        ("with_chosen", (1, 9), "Turn 1 of 'plan' has 2 versions and no version 9; "),
        ("with_chosen", ("a", 9), "Turn 1 of 'plan' has 2 versions and no version 9; "),
        (
            "with_chosen",
            (True, 1),
            "The conversation 'plan' has 2 turns and no turn True; ",
        ),
        (
            "with_chosen",
            (1, 1.0),
            "Turn 1 of 'plan' has 2 versions and no version 1.0; ",
        ),
        ("with_chosen", (2, 2), "Turn 2 of 'plan' has 1 version and no version 2; "),
        (
            "with_chosen",
            (1, "2"),
            "Turn 1 of 'plan' has 2 versions and no version '2'; ",
        ),
        ("with_picked", (2, 4), "Turn 2 of 'plan' has 3 choices and no choice 4; "),
        ("with_picked", (1, 2), "Turn 1 of 'plan' has 1 choice and no choice 2; "),
        ("without", (3,), "The conversation 'plan' has 2 turns and no turn 3; "),
        ("with_pin", (3,), "The conversation 'plan' has 2 turns and no turn 3; "),
    ],
)
def test_what_is_not_there_is_named_with_how_many_there_are(
    how: str, numbers: tuple[object, ...], said: str
) -> None:
    """The message says whether a turn, a version or a choice is missing."""
    assert _said(HISTORY, how, *numbers) == said + LIST


def test_a_conversation_without_turns_has_nothing_to_list() -> None:
    """It says so, and no more."""
    said = _said(History(name="plan"), "turn", 1)

    assert said == "The conversation 'plan' has no turns yet."
