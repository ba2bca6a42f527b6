"""A turn whose tools were stopped keeps the results that there are, and is marked."""

from collections.abc import Iterator
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import Interrupted
from svc_notebook.tools.consent import ConsentDecision

SCHEMA = {"type": "object", "properties": {}}


def call(name: str, n: int) -> dict[str, Any]:
    """Return a tool call, as a script has it."""
    return {"id": f"c{n}", "name": name, "arguments": {}}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that calls two tools, and later answers."""
    script: list[dict[str, Any]] = [
        {
            "when": {"contains": "Use"},
            "tool_calls": [call("first", 1), call("second", 2)],
            "times": 2,
        },
        {
            "when": {"contains": "Cut", "role": "user"},
            "tool_calls": [call("first", 4)],
        },
        {
            "when": {"contains": "Cut", "role": "tool"},
            "text": "one, tw",
            "finish_reason": "length",
        },
        {"when": {"contains": "Go on"}, "text": "o, three."},
        {"when": {"contains": "Loop"}, "tool_calls": [call("first", 3)], "times": None},
    ]
    with Emulator(script=script, tokens_per_s=None, first_token_s=0) as running:
        yield running


def first() -> str:
    """Give a result."""
    return "one"


def second() -> str:
    """Is interrupted, as by a key."""
    raise KeyboardInterrupt


def sent(emulator: Emulator) -> list[tuple[str, str]]:
    """Return role and text, or "calls", of the newest request's messages."""
    messages: list[dict[str, Any]] = emulator.requests[-1].json["messages"]
    return [
        (each["role"], "calls" if each.get("tool_calls") else each["content"])
        for each in messages
    ]


def test_an_interrupted_tool_leaves_the_results_of_the_others(
    plan: svc.Conversation, emulator: Emulator
) -> None:
    """The turn is marked, and the next one sends calls and results, no empty reply."""
    with pytest.raises(Interrupted) as stopped:
        plan.ask("Use both", tools=[first, second])
    [turn] = plan.turns

    plan.ask("Thank you")

    assert turn.messages == stopped.value.messages
    assert "stopped after tool calls" in turn.marks
    assert sent(emulator) == [
        ("user", "Use both"),
        ("assistant", "calls"),
        ("tool", "one"),
        ("tool", "Error: The user interrupted this call; it gave no result."),
        ("user", "Thank you"),
    ]


def test_a_stopped_turn_is_restored_with_its_results(plan: svc.Conversation) -> None:
    """The ledger has the results too."""
    with pytest.raises(Interrupted):
        plan.ask("Use both", tools=[first, second])
    live = plan.turns[0].messages
    plan.reset()

    [turn] = plan.restore().turns

    assert turn.messages == live
    assert [run.name for run in turn.version.tool_runs] == ["first", "second"]


def test_endless_rounds_leave_their_results(
    plan: svc.Conversation, emulator: Emulator
) -> None:
    """The calls of the last reply have no results, so they are not sent."""
    with pytest.raises(svc.errors.ToolLoopError):
        plan.ask("Loop", tools=[first], max_rounds=2)
    [turn] = plan.turns

    plan.ask("Thank you")

    assert [each.role for each in turn.messages] == ["user", "assistant", "tool"]
    assert "stopped after tool calls" in turn.marks
    assert ("assistant", "") not in sent(emulator)


def test_calls_without_results_are_not_sent(
    plan: svc.Conversation, emulator: Emulator
) -> None:
    """A turn that only has the calls for the caller is marked and left out.

    The calls are shown, also when the turn is read from JSON or from the ledger.
    """
    definition = {
        "type": "function",
        "function": {"name": "first", "parameters": SCHEMA},
    }
    plan.ask("Use it", tools=[definition])

    plan.ask("Thank you")

    assert "tool results missing, not sent" in plan.turns[0].marks
    assert sent(emulator) == [("user", "Thank you")]
    texts = [plan.to_markdown(), *plan._repr_mimebundle_().values()]
    read = svc.conversation("read").from_json(plan.to_json())
    assert [read.to_markdown().replace("# read", "# plan", 1)] == texts[:1]
    assert plan.restore().to_markdown() == texts[0]
    for text in texts:
        assert "first() → not answered" in text
        assert "second() → not answered" in text


def test_a_stopped_turn_shows_its_calls_and_results(plan: svc.Conversation) -> None:
    """Transcript, Markdown and frame have them, and no empty reply."""
    with pytest.raises(Interrupted):
        plan.ask("Use both", tools=[first, second])

    roles = plan.to_df()["role"].tolist()

    assert roles == ["user", "assistant", "tool", "tool"]
    assert "first() → one" in plan.to_markdown()
    assert "stopped after tool calls" in plan._repr_mimebundle_()["text/plain"]


def test_a_continued_turn_still_shows_what_the_user_decided(
    plan: svc.Conversation,
) -> None:
    """The rest of a reply changes nothing about its calls, here and restored."""
    plan.ask("Cut", tools=[first], confirm=lambda _: ConsentDecision(verdict="approve"))
    plan.go_on(1)

    assert plan.turns[0].version.text == "one, two, three."
    assert "first() → approved · one" in plan.to_markdown()
    assert "first() → approved · one" in plan.restore().to_markdown()
