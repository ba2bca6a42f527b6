"""What a caller allows rounds: checked before anything is sent, in every caller."""

import inspect
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.tools.permissions import Permit, Proposal, take_permit
from tests.tools.conftest import Serve

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"confirm": 5}, "confirm=5 is not allowed"),
    ({"confirm": "yes"}, "confirm='yes' is not allowed"),
    ({"confirm": lambda: True}, "takes one Proposal"),
    ({"confirm": lambda _name, _given: True}, "takes one Proposal"),
    ({"max_rounds": "x"}, "max_rounds='x' is not allowed"),
    ({"max_rounds": 1}, "max_rounds=1 is not allowed"),
    ({"tool_timeout_s": -1}, "tool_timeout_s=-1 is not allowed"),
    ({"total_s": "x"}, "total_s='x' is not allowed"),
]
FLAGS: list[tuple[dict[str, Any], str]] = [
    ({"run_tools": "no"}, "run_tools must be True or False; got 'no'"),
    ({"reuse": "x"}, "reuse must be True or False; got 'x'"),
]


@svc.tool(confirm=True)
def pay(amount: int) -> str:
    """Pay a sum."""
    return f"paid {amount}"


def _asking(times: int | None = 1) -> dict[str, Any]:
    return {
        "tool_calls": [{"name": "pay", "arguments": {"amount": 5}}],
        "times": times,
    }


@pytest.mark.parametrize(("given", "said"), [*WRONG, *FLAGS])
@pytest.mark.parametrize("tools", [None, [], [pay]])
def test_complete_refuses_what_it_would_not_even_need(
    serve: Serve, given: dict[str, Any], said: str, tools: object
) -> None:
    """A wrong value is refused with tools and without; nothing is sent."""
    emulator = serve()

    with pytest.raises(svc.ParameterError) as caught:
        svc.complete("Hello", tools=tools, **given)

    assert said in str(caught.value)
    assert not emulator.requests


def test_stream_refuses_what_is_no_flag(serve: Serve) -> None:
    """Any text would count as True."""
    emulator = serve()
    reuse: Any = "x"

    with pytest.raises(
        svc.ParameterError, match="reuse must be True or False; got 'x'"
    ):
        svc.stream("Hello", reuse=reuse)

    assert not emulator.requests


@pytest.mark.parametrize(("given", "said"), WRONG)
@pytest.mark.parametrize("tools", [None, [pay]])
def test_a_conversation_refuses_the_same(
    serve: Serve, given: dict[str, Any], said: str, tools: object
) -> None:
    """Asking and asking again take what `complete` takes."""
    emulator = serve()
    plan = svc.conversation("plan")
    plan.ask("Hello")

    with pytest.raises(svc.ParameterError) as asked:
        plan.ask("Hello", tools=tools, **given)
    with pytest.raises(svc.ParameterError) as again:
        plan.ask_again(1, tools=tools, **given)

    assert (said in str(asked.value), said in str(again.value)) == (True, True)
    assert len(emulator.requests) == 1


def test_a_conversation_can_allow_calls_without_a_prompt(serve: Serve) -> None:
    """False asks nobody; a function decides, knowing name and arguments."""
    serve(_asking(times=None))
    plan = svc.conversation("plan")
    seen: list[tuple[str, object]] = []

    def decide(call: Proposal) -> bool:
        seen.append((call.name, call.arguments))
        return len(seen) > 1

    with pytest.raises(svc.ToolLoopError) as free:
        plan.ask("Pay", tools=[pay], confirm=False, max_rounds=2)
    with pytest.raises(svc.ToolLoopError) as decided:
        plan.ask("Pay", tools=[pay], confirm=decide, max_rounds=3)

    runs: list[Any] = [*free.value.tool_runs, *decided.value.tool_runs]
    assert [run.result for run in runs[:1]] == ["paid 5"]
    assert [run.is_approved for run in runs] == [None, False, True]
    assert seen == [("pay", {"amount": 5})] * 2


def test_a_denied_call_of_a_conversation_is_said(serve: Serve) -> None:
    """Where nobody can be asked, a warning names the caller's line and the way on."""
    serve(_asking())

    with pytest.warns(RuntimeWarning, match="confirm=False") as warned:
        svc.conversation("plan").ask("Pay", tools=[pay])

    assert [each.filename for each in warned] == [__file__]


def test_the_limits_are_listed_where_they_are_taken() -> None:
    """`?` and Tab show them beside the service's parameters."""
    of_ask = inspect.signature(svc.Conversation.ask).parameters
    of_panel = inspect.signature(svc.panel).parameters
    of_go_on = inspect.signature(svc.Conversation.go_on).parameters
    names = ("temperature", "confirm", "max_rounds", "tool_timeout_s", "total_s")

    assert [name for name in names if name not in of_ask] == []
    assert [name for name in names if name not in of_panel] == []
    assert [name for name in names if name in of_go_on] == ["temperature"]


def test_what_is_not_said_is_as_usual() -> None:
    """None is the usual limit; the parameters keep the rest."""
    params: dict[str, Any] = {"max_rounds": None, "temperature": 0.2}

    assert take_permit(params) == Permit()
    assert params == {"temperature": 0.2}
