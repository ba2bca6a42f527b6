"""Whatever is done to a history, it can be sent, and no version is lost."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.conversations.history import History, SharedHistory, Turn, Version
from svc_notebook.service.message import Message, assistant, user
from svc_notebook.service.tool import FunctionCall, ToolCall


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
    """Gives each answer a name of its own."""

    n: int = 0

    def next(self) -> str:
        """Return the next one."""
        self.n += 1
        return f"e{self.n}"


def changed(  # noqa: PLR0911 - a line a kind of step
    history: History, step: tuple[Any, ...], names: Names
) -> History:
    """Do one thing to a history; what cannot be done is left."""
    kind, place, number, has_tools = step
    n_turns = len(history.turns)
    turn = history.turns[place % n_turns] if n_turns else None
    answer = version(names.next(), n_choices=number, has_tools=has_tools)
    if kind == "say" or turn is None:
        return history.answered(answer.exchange_id, answer)
    match kind:
        case "again":
            return history.answered(turn.turn_id, answer)
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
            return history.replacing(turn.turn_id, turn.chosen, grown)
        case "choose":
            return history.choosing(turn.turn_id, 1 + number % len(turn.versions))
        case "pick" if turn.version.choices:
            choice = 1 + number % len(turn.version.choices)
            return history.picking(turn.turn_id, choice)
        case "delete":
            return history.deleting(turn.turn_id)
        case "pin" | "hide":
            flags = {"pin": kind == "pin", "hide": kind == "hide"}
            return history.toggled(turn.turn_id, **flags)
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


def check_sendable(history: History) -> None:
    """Check the order of roles, and that each call has its result."""
    for turn in history.turns:
        first, *rest, last = turn.messages
        assert first.role == "user"
        assert (last.role, last.tool_calls) == ("assistant", ())
        calls = [call.id for each in rest for call in each.tool_calls]
        results = [each.tool_call_id for each in rest if each.role == "tool"]
        assert calls == results


def told(turn: Turn) -> list[set[str]]:
    """Return what was said in each version of a turn."""
    return [
        {each.content or "" for each in (v.prompt, *v.replies, *v.choices)}
        for v in turn.versions
    ]


@given(STEPS)
def test_whatever_happens_it_can_be_sent(steps: list[tuple[Any, ...]]) -> None:
    """After any steps each turn is a prompt, whole tool rounds and a reply."""
    history, names = History(), Names()

    for step in steps:
        history = changed(history, step, names)
        check_sendable(history)


@given(STEPS)
def test_no_version_and_no_choice_is_lost(steps: list[tuple[Any, ...]]) -> None:
    """Of a turn that is still there every version keeps its prompt and choices."""
    history, names = History(), Names()

    for step in steps:
        before, history = history, changed(history, step, names)
        for old in before.turns:
            place = history.place_of(old.turn_id)
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


@given(STEPS)
def test_every_step_can_be_undone(steps: list[tuple[Any, ...]]) -> None:
    """Undone one by one, a history is each of what it was, down to the first."""
    holding, names = SharedHistory("plan", "Be brief"), Names()
    seen = [holding.state]
    for step in steps:
        holding.change(partial(changed, step=step, names=names))
        if holding.state != seen[-1]:
            seen.append(holding.state)

    undone = [holding.state]
    while holding.undo():
        undone.append(holding.state)

    assert undone == list(reversed(seen))


def test_an_edited_turn_shows_the_prompt_of_its_version() -> None:
    """Versions of different prompts each bring their own prompt along."""
    first, second = version("a"), version("b")
    history = History().answered("t", first).answered("t", second)

    got = history.choosing("t", 1)

    assert history.turns[0].messages == (user("ask b"), assistant("b/0"))
    assert got.turns[0].messages == (user("ask a"), assistant("a/0"))
    assert told(got.turns[0]) == [{"ask a", "a/0"}, {"ask b", "b/0"}]


def test_every_choice_can_be_picked_later() -> None:
    """A pick changes what is sent, and the others can still be picked."""
    history = History().answered("t", version("a", n_choices=3))

    third = history.picking("t", 3)
    back = third.picking("t", 1)

    assert third.turns[0].messages[-1] == assistant("a/2")
    assert back == history


def test_deleting_makes_later_turns_stale() -> None:
    """A turn that was answered with another before it says so when that is gone."""
    history = History().answered("a", version("a")).answered("b", version("b"))

    [left] = history.deleting("a").turns

    assert (left.turn_id, left.is_stale) == ("b", True)


@pytest.mark.parametrize("turn", ["x", 0, 2])
def test_what_is_not_there_cannot_be_changed(turn: int | str) -> None:
    """A turn that is not there is refused, by number and by id."""
    history = History().answered("a", version("a"))

    with pytest.raises(IndexError):
        history.deleting(turn)
