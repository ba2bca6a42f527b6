"""RoundLimits: what is run, and what goes back to the model."""

from typing import Any

import pytest

from svc_notebook.errors import ParameterError, ToolLoopError
from svc_notebook.tools.consent import Proposal, deny_all
from svc_notebook.tools.rounds import take_permit
from tests.tools.conftest import Caller, MakeCaller


class Log:
    """Tools that keep what they were called with."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.calls.append((a, b))
        return a + b

    def name(self, text: str) -> str:
        """Write a name."""
        self.calls.append(text)
        return f"<{text}>"

    def fail(self, text: str) -> str:
        """Fail."""
        self.calls.append(text)
        raise ValueError(f"no {text}")

    async def wait(self, text: str) -> str:
        """Wait."""
        self.calls.append(text)
        return f"awaited {text}"

    @property
    def all(self) -> list[Any]:
        """Every tool."""
        return [self.add, self.name, self.fail, self.wait]


@pytest.fixture
def log() -> Log:
    """Return tools that were not called yet."""
    return Log()


def call(name: str, arguments: object, *, id_: str = "c1") -> dict[str, Any]:
    """Return a call as a script has it."""
    return {"id": id_, "name": name, "arguments": arguments}


def calling(*calls: dict[str, Any], **more: object) -> dict[str, Any]:
    """Return a scripted reply with calls."""
    return {"tool_calls": list(calls), **more}


DONE: dict[str, Any] = {"text": "Done."}


def results(caller: Caller) -> list[str | None]:
    """Return the contents of the tool messages of the last request."""
    return [each.content for each in caller.sent[-1].messages if each.role == "tool"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_is_run_and_answered(
    make_caller: MakeCaller, log: Log, *, is_streamed: bool
) -> None:
    """The function runs with the model's arguments, and its result goes back."""
    caller = make_caller(
        calling(call("add", {"a": 2, "b": 3})), DONE, is_streamed=is_streamed
    )

    completion = caller.run(log.all)

    assert log.calls == [(2, 3)]
    assert [each.role for each in completion.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert results(caller) == ["5"]
    assert completion.text == "Done."
    assert [run.result for run in completion.tool_runs] == ["5"]


def test_the_assistants_message_goes_back_as_it_came(
    make_caller: MakeCaller, log: Log
) -> None:
    """Order, ids and arguments of calls are sent back byte for byte."""
    odd = '{ "text" :  "\\u0e44\\u0e17\\u0e22" }'
    caller = make_caller(
        {
            "json": {
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [
                                {
                                    "id": "z",
                                    "type": "function",
                                    "function": {"name": "name", "arguments": odd},
                                },
                                {
                                    "id": "a",
                                    "type": "function",
                                    "function": {"name": "add", "arguments": "[]"},
                                },
                            ],
                        },
                        "finish_reason": "stop",
                    }
                ]
            },
        },
        DONE,
    )

    caller.run(log.all)

    sent = caller.sent[1].messages[1]
    assert sent.content is None
    assert [(each.id, each.function.arguments) for each in sent.tool_calls] == [
        ("z", odd),
        ("a", "[]"),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("add", "{", "not JSON"),
        ("add", "[1, 2]", "not an object"),
        ("add", {"a": 1}, "b"),
        ("add", {"a": 1, "b": 2, "c": 3}, "c"),
        ("add", {"a": True, "b": 2}, "got true"),
        ("add", {"a": "1", "b": 2}, 'got "1"'),
        ("sum", {"a": 1, "b": 2}, "There is no tool"),
    ],
)
def test_a_call_that_does_not_fit_is_answered_not_run(
    make_caller: MakeCaller, log: Log, name: str, arguments: object, expected: str
) -> None:
    """Wrong JSON, wrong arguments and unknown tools become words for the model."""
    caller = make_caller(calling(call(name, arguments)), DONE)

    completion = caller.run(log.all)

    assert log.calls == []
    (result,) = results(caller)
    assert result is not None
    assert result.startswith("Error: ")
    assert expected in result
    assert caller.kept[0][1].arguments is None
    assert completion.text == "Done."


def test_what_a_tool_raises_is_told_and_shown(
    make_caller: MakeCaller, log: Log
) -> None:
    """The model gets the message; the traceback is the user's."""
    caller = make_caller(calling(call("fail", {"text": "way"})), DONE)

    (run,) = caller.run(log.all).tool_runs

    assert results(caller) == ["Error: ValueError: no way"]
    assert run.error == "ValueError: no way"
    assert "raise ValueError" in (run.traceback or "")


def test_parallel_calls_are_answered_in_order_by_id(
    make_caller: MakeCaller, log: Log
) -> None:
    """Each call has a tool message with its id, in the order of the calls."""
    caller = make_caller(
        calling(
            call("name", {"text": "x"}, id_="two"),
            call("fail", {"text": "y"}, id_="one"),
            call("wait", {"text": "z"}, id_="three"),
        ),
        DONE,
    )

    caller.run(log.all)

    answers = [each for each in caller.sent[1].messages if each.role == "tool"]
    assert [(each.tool_call_id, each.content) for each in answers] == [
        ("two", "<x>"),
        ("one", "Error: ValueError: no y"),
        ("three", "awaited z"),
    ]


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "length"])
def test_calls_are_known_by_their_presence(
    make_caller: MakeCaller, log: Log, reason: str
) -> None:
    """Whatever the finish reason says, calls that are there are run."""
    entry = calling(call("name", {"text": "x"}), finish_reason=reason)
    caller = make_caller(entry, DONE)

    caller.run(log.all)

    assert log.calls == ["x"]


def test_calls_in_pieces_run_once_whole(make_caller: MakeCaller, log: Log) -> None:
    """Interleaved pieces by index, one whole without an index: never glued."""

    def chunk(*pieces: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        delta = {"tool_calls": list(pieces)} if pieces else {}
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"choices": [choice]}

    def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        function = {"arguments": arguments, **more.pop("function", {})}
        return {"index": index, "function": function, **more}

    caller = make_caller(
        {
            "events": [
                chunk(piece(0, "", id="a", type="function", function={"name": "name"})),
                chunk(piece(1, '{"te', id="b", function={"name": "name"})),
                chunk(piece(0, '{"text"')),
                chunk(piece(1, 'xt": "two"}'), piece(0, ': "one"}')),
                chunk(piece(0, '{"text": "three"}', id="c", function={"name": "name"})),
                chunk(
                    {
                        "id": "d",
                        "type": "function",
                        "function": {"name": "name", "arguments": '{"text": "four"}'},
                    }
                ),
                chunk(reason="stop"),
                "[DONE]",
            ]
        },
        DONE,
        is_streamed=True,
    )

    completion = caller.run(log.all)

    assert log.calls == ["one", "two", "three", "four"]
    assert [run.call_id for run in completion.tool_runs] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (None, "null"),
        (b"raw", "Error: The tool returned bytes"),
        (object(), "Error: The tool returned object"),
        ("half \ud800.", "half \ufffd."),
    ],
)
def test_results_become_texts_or_are_refused_by_name(
    make_caller: MakeCaller, value: object, expected: str
) -> None:
    """A dict, None, bytes, an object and half a surrogate pair are all answered."""

    def give() -> object:
        """Give."""
        return value

    caller = make_caller(calling(call("give", {})), DONE)

    caller.run([give])

    (result,) = results(caller)
    assert result is not None
    assert result.startswith(expected)


@pytest.mark.slow
def test_a_retried_request_runs_no_call_again(
    make_caller: MakeCaller, log: Log
) -> None:
    """The follow-up fails once and is sent again; the tool was run once."""
    caller = make_caller(
        calling(call("name", {"text": "x"})),
        {"error": {"message": "Busy."}, "status": 503},
        DONE,
    )

    completion = caller.run(log.all)

    assert completion.exchange.n_attempts == 2
    assert log.calls == ["x"]


def test_several_choices_are_refused(make_caller: MakeCaller, log: Log) -> None:
    """Tools run for one answer; n is refused before anything is sent."""
    caller = make_caller(DONE)

    with pytest.raises(ParameterError, match="leave n out"):
        caller.run(log.all, params={"n": 2})

    assert caller.sent == []


@pytest.mark.parametrize("is_streamed", [False, True])
def test_calls_with_the_same_id_are_told_apart(
    make_caller: MakeCaller, log: Log, *, is_streamed: bool
) -> None:
    """Two calls of a reply that share an id are both run, and the model answers."""
    caller = make_caller(
        calling(call("add", {"a": 1, "b": 2}), call("name", {"text": "x"})),
        DONE,
        is_streamed=is_streamed,
    )

    completion = caller.run(log.all)

    assert completion.text == "Done."
    assert [each.call_id for each in completion.tool_runs] == ["c1", "c1-2"]
    assert results(caller) == ["3", "<x>"]


def test_a_confirm_that_raises_keeps_the_rounds(
    make_caller: MakeCaller, log: Log
) -> None:
    """The error names what `confirm` raised, and its history can be sent."""
    caller = make_caller(
        calling(call("add", {"a": 1, "b": 2})),
        calling(call("name", {"text": "x"}, id_="c2"), call("name", {}, id_="c3")),
        DONE,
    )

    def decide(proposal: Proposal) -> bool:
        if proposal.name == "name":
            raise ZeroDivisionError("no")
        return True

    permit = take_permit({"confirm": decide})
    with pytest.raises(ToolLoopError) as caught:
        caller.run(log.all, rounds=permit.rounds, consent=permit.consent(deny_all))

    error: Any = caught.value
    assert "confirm raised ZeroDivisionError: no" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert [each.name for each in error.tool_runs] == ["add", "name", "name"]
    assert log.calls == [(1, 2)]
    assert caller.client.complete(error.messages).text == "Done."
