"""RoundLimits end: by number, by time, by the budget, by the user."""

from typing import Any, Literal

import pytest

from svc_notebook.completion import Completion
from svc_notebook.errors import (
    CutError,
    Interrupted,
    OverBudgetError,
    ParameterError,
    SvcError,
    ToolLoopError,
)
from svc_notebook.service.request import build_request, user
from svc_notebook.tokens import most_tokens
from svc_notebook.tools.rounds import RoundLimits
from svc_notebook.tools.toolbox import tool
from tests.tools.conftest import MODEL, MakeCaller

DONE: dict[str, Any] = {"text": "Done."}


def calling(*names: str, times: int | None = 1) -> dict[str, Any]:
    """Return a scripted reply with a call of each name, without arguments."""
    calls = [{"id": f"c{i}", "name": n, "arguments": {}} for i, n in enumerate(names)]
    return {"tool_calls": calls, "times": times}


def ping() -> str:
    """Answer."""
    return "pong"


def stop() -> str:
    """Stop."""
    raise KeyboardInterrupt


def test_endless_calls_stop_at_the_limit(make_caller: MakeCaller) -> None:
    """The last round offers no tools; if it calls all the same, that is an error."""
    caller = make_caller(calling("ping", times=None))

    with pytest.raises(ToolLoopError, match="max_rounds") as caught:
        caller.run([ping], rounds=RoundLimits(max_rounds=3))

    error = caught.value
    assert [len(each.tools) for each in caller.sent] == [1, 1, 0]
    assert len(error.tool_runs) == 2
    assert [each.role for each in error.messages] == [  # type: ignore[attr-defined]  # Messages
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert error.partial is not None


def test_a_follow_up_that_breaks_off_keeps_its_text_and_the_trail(
    make_caller: MakeCaller,
) -> None:
    """What had come of the answer is the error's partial, the calls with it."""
    cut = {"text": ["So ", "far"], "cut_after": 1, "end": "cut"}
    caller = make_caller(calling("ping"), cut, is_streamed=True)

    with pytest.raises(SvcError) as caught:
        caller.run([ping])

    partial = caught.value.partial
    assert isinstance(partial, Completion)
    assert [step.result for step in partial.tool_runs] == ["pong"]


def test_the_history_of_a_limit_can_be_sent(make_caller: MakeCaller) -> None:
    """What the error holds goes on without running anything again."""
    caller = make_caller(calling("ping"), calling("ping"), DONE)
    with pytest.raises(ToolLoopError) as caught:
        caller.run([ping], rounds=RoundLimits(max_rounds=2))

    messages: Any = caught.value.messages
    got = caller.client.complete([*messages, user("And now?")], model=MODEL)

    assert got.text == "Done."


@pytest.mark.parametrize(
    "limits",
    [
        {"max_rounds": 1},
        {"max_rounds": 2.5},
        {"max_rounds": True},
        {"tool_timeout_s": 0},
        {"total_s": float("nan")},
        {"total_s": "1"},
    ],
)
def test_limits_that_cannot_be_meant_are_refused(limits: dict[str, Any]) -> None:
    """They are named, with what is allowed."""
    with pytest.raises(ParameterError, match=next(iter(limits))):
        RoundLimits(**limits)


def test_the_time_of_all_rounds_ends_them(make_caller: MakeCaller) -> None:
    """After it no call begins; those left over are answered, and it is an error."""
    now = [0.0]

    def slow() -> str:
        """Take long."""
        now[0] += 20
        return "late"

    caller = make_caller(calling("slow", "slow"))

    with pytest.raises(ToolLoopError, match="10 s") as caught:
        caller.run([slow], rounds=RoundLimits(total_s=10), clock=lambda: now[0])

    results = [run.result for run in caught.value.tool_runs]  # type: ignore[attr-defined]  # ToolRuns
    assert results == [
        "late",
        "Error: The time limit for all calls was reached; this call was not run.",
    ]


def test_a_hanging_tool_is_answered_at_its_limit(make_caller: MakeCaller) -> None:
    """The model learns that a tool ran out of time, and the rounds go on."""
    import threading  # noqa: PLC0415 - here alone

    gate = threading.Event()
    hang = tool(gate.wait, name="hang", definition=_bare("hang"))
    caller = make_caller(calling("hang"), DONE)

    completion = caller.run([hang], rounds=RoundLimits(tool_timeout_s=0.05))
    gate.set()

    assert completion.tool_runs[0].result.startswith(
        "Error: hang gave no result within 0.05"
    )
    assert completion.text == "Done."


def test_an_interrupt_passes_and_leaves_a_history_to_send(
    make_caller: MakeCaller,
) -> None:
    """Calls answered keep their results; the others say that they were interrupted."""
    caller = make_caller(calling("ping", "stop", "ping"), DONE)

    with pytest.raises(KeyboardInterrupt) as caught:
        caller.run([ping, stop])

    stopped = caught.value
    assert isinstance(stopped, Interrupted)
    messages: Any = stopped.messages
    got = caller.client.complete(messages, model=MODEL)
    assert got.text == "Done."
    assert [run.result for _, run in caller.kept] == [
        "pong",
        "Error: The user interrupted this call; it gave no result.",
        "Error: The user interrupted this call; it gave no result.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "without running a tool again"), (400, "must be changed")],
)
def test_a_failing_follow_up_keeps_what_the_tools_gave(
    make_caller: MakeCaller, status: int, said: str
) -> None:
    """The error of a later request holds the history until then, and says so."""
    caller = make_caller(
        calling("ping"), {"error": {"message": "No."}, "status": status}
    )

    with pytest.raises(Exception, match="No") as caught:
        caller.run([ping])

    messages: Any = caught.value.messages  # type: ignore[attr-defined]  # put there
    assert [each.role for each in messages] == ["user", "assistant", "tool"]
    assert said in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize("max_tokens", [100, "fit"])
def test_calls_too_large_to_be_answered_are_not_run(
    make_caller: MakeCaller, max_tokens: Literal["fit"] | int
) -> None:
    """A tool does nothing whose result could not be sent; the calls are named."""
    done: list[str] = []

    def take(text: str) -> str:
        """Take a text."""
        done.append(text)
        return "taken"

    large = {"id": "c", "name": "take", "arguments": {"text": "word " * 20_000}}
    caller = make_caller({"tool_calls": [large], "finish_reason": "stop"}, DONE)

    with pytest.raises(OverBudgetError, match="the model's tool calls") as caught:
        caller.run([take], params={"max_tokens": max_tokens})

    assert done == []
    assert "were not run" in caught.value.__notes__[0]
    assert caught.value.partial is not None


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("arguments", ['{"text": "all of', ""])
def test_a_call_that_was_cut_is_not_run(
    make_caller: MakeCaller, arguments: str, is_streamed: bool
) -> None:
    """Nor is the model told; the error has the history, and says what to pass."""
    done: list[str] = []

    def take(text: str = "all") -> str:
        """Take a text."""
        done.append(text)
        return "taken"

    whole = {"id": "a", "name": "take", "arguments": {"text": "some"}}
    cut = {"id": "b", "name": "take", "arguments": arguments}
    caller = make_caller(
        {"tool_calls": [whole], "finish_reason": "stop"},
        {"tool_calls": [whole, cut], "finish_reason": "length"},
        is_streamed=is_streamed,
    )

    with pytest.raises(CutError, match="in the middle of a call of take") as caught:
        caller.run([take], params={"max_tokens": 9})

    messages: Any = caught.value.messages  # type: ignore[attr-defined]  # put there
    assert done == ["some"]
    assert [each.role for each in messages] == ["user", "assistant", "tool"]
    assert "Pass a larger max_tokens, such as max_tokens='fit'" in str(caught.value)
    assert len(caller.sent) == 2


def test_whole_calls_of_a_reply_that_was_cut_are_run(make_caller: MakeCaller) -> None:
    """A call is cut where its arguments are."""
    caller = make_caller({**calling("ping"), "finish_reason": "length"}, DONE)

    assert caller.run([ping]).text == "Done."


@pytest.mark.slow
def test_results_are_fitted_to_what_is_left(make_caller: MakeCaller) -> None:
    """A result of 100 kB keeps its head and tail, and the cut is stated."""

    def read() -> str:
        """Read."""
        return "begin " + "word " * 20_000 + "end"

    free = tool(read, max_result_tokens=100_000)
    caller = make_caller(calling("read", "read"), DONE)

    caller.run([free], params={"max_tokens": 1000})

    whole = caller.sent[1]
    results = [each.content or "" for each in whole.messages if each.role == "tool"]
    assert all("characters left out" in each for each in results)
    assert all(each.startswith("begin") and each.endswith("end") for each in results)
    assert sum(map(most_tokens, results)) < 8192 - 1000
    assert caller.kept[0][1].n_cut_tokens > 10_000


@pytest.mark.slow
def test_fitted_replies_are_fitted_in_each_round(make_caller: MakeCaller) -> None:
    """`fit` is computed again, so that results never push a request over the budget."""

    def read() -> str:
        """Read."""
        return "word " * 20_000

    free = tool(read, max_result_tokens=100_000)
    caller = make_caller(calling("read"), calling("read"), calling("read"), DONE)

    caller.run([free], params={"max_tokens": "fit"})

    sizes = [each.params["max_tokens"] for each in caller.sent]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] >= 256


@pytest.mark.parametrize(
    ("prompt", "about", "max_tokens", "named"),
    [
        ("word " * 12_000, "Short.", 100, "Shorten the prompt"),
        ("Go.", "word " * 12_000, 100, "Offer fewer tools"),
        ("word " * 3000, "Short.", 8000, "Ask for at most"),
        ("word " * 6000, "word " * 4000, 8192, "Shorten the prompt"),
    ],
)
def test_the_part_that_is_too_large_is_named(
    make_caller: MakeCaller, prompt: str, about: str, max_tokens: int, named: str
) -> None:
    """A request that cannot fit is not sent, and the largest part is named."""
    caller = make_caller(DONE)
    definition = _bare("ping")
    definition["function"]["description"] = about

    with pytest.raises(OverBudgetError, match=named) as caught:
        caller.run(
            [tool(ping, definition=definition)],
            prompt,
            params={"max_tokens": max_tokens},
        )

    assert caller.sent == []
    assert "8,192" in str(caught.value)
    assert build_request("x", model=MODEL).params == {}


def _bare(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    function = {"name": name, "description": name, "parameters": parameters}
    return {"type": "function", "function": function}
