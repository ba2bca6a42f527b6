"""`svc.complete` and conversations with tools: rounds, calls handed back, records."""

import asyncio
import io
import os
import pickle
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

import svc_notebook as svc
from tests.tools.conftest import Serve


@svc.tool
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 31}


CALLING = {"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}


@svc.tool
def stop(n: int) -> str:
    """Stop."""
    raise KeyboardInterrupt(n)


def test_calls_are_handed_back_where_nothing_is_to_run(serve: Serve) -> None:
    """run_tools=False, definitions alone, and streams: the calls are the caller's."""
    emulator = serve()
    prompt = "Use weather for Phuket."

    asked = svc.complete(prompt, tools=[weather], run_tools=False)
    bare = svc.complete(prompt, tools=[weather.definition])
    with svc.stream(prompt, tools=[weather]) as stream:
        streamed = stream.completion

    assert len(emulator.requests) == 3
    assert {
        each.tool_calls[0].function.arguments for each in (asked, bare, streamed)
    } == {'{"city": "Phuket"}'}


def test_a_stream_without_text_says_that_tools_were_called(serve: Serve) -> None:
    """Iterating it gives nothing, and a warning says where the calls are."""
    serve()
    prompt = "Use weather for Phuket."

    with pytest.warns(
        UserWarning, match=r"called weather .*stream\.completion\.tool_c"
    ):
        texts = list(svc.stream(prompt, tools=[weather]))

    assert texts == []


def test_a_caller_can_run_the_rounds_by_hand(serve: Serve) -> None:
    """`messages` and a tool message make the next request."""
    serve()
    asked = svc.complete("Use weather for Phuket.", tools=[weather], run_tools=False)
    (call,) = asked.tool_calls

    result = svc.Message(role="tool", content="rain", tool_call_id=call.id)
    got = svc.complete([*asked.messages, result])

    assert "weather answered: rain." in got.text


def test_what_cannot_be_offered_is_refused(serve: Serve) -> None:
    """With the reason, and nothing is sent."""
    emulator = serve()

    def untold(city) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the point
        return str(city)

    with pytest.raises(svc.errors.ToolSchemaError, match="city"):
        svc.complete("Go.", tools=[untold])
    with pytest.raises(svc.errors.ParameterError, match=r"tools must be .* got int"):
        svc.complete("Go.", tools=7)

    assert emulator.requests == ()


def test_a_completion_with_a_trail_travels(serve: Serve) -> None:
    """Pickled, the calls are there, without what the tools returned."""
    serve()

    def lock(n: int) -> object:
        """Lock."""
        return {"n": n}

    got = svc.complete("Use lock for 3.", tools=[lock])
    again: Any = pickle.loads(pickle.dumps(got))  # noqa: S301 - our own

    assert again == got
    assert again.tool_runs[0].result == '{"n":3}'
    assert again.tool_runs[0].value is None


def test_a_conversation_keeps_calls_and_results(serve: Serve) -> None:
    """The turn holds the whole round, and the next one builds on it."""
    serve()
    talk = svc.conversation("trip")

    first = talk.ask("Use weather for Phuket.", tools=[weather])
    talk.ask("Thank you.")

    (turn, _) = talk.turns
    assert [each.role for each in turn.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert len(first.tool_runs) == 1
    assert set(svc.tool_calls_df()["conversation"]) == {"trip"}


def test_an_interrupted_history_can_be_sent(serve: Serve) -> None:
    """The newest completion has the results that there are, also of a stopped tool."""

    def count(n: int) -> int:
        """Count."""
        return n

    calls = [{"name": each, "arguments": {"n": 3}} for each in ("count", "stop")]
    emulator = serve({"tool_calls": calls}, {"text": "Well."})

    with pytest.raises(KeyboardInterrupt):
        svc.complete("Count.", tools=[count, stop])
    newest = svc.last()
    assert newest is not None
    got = svc.complete([*newest.messages, svc.Message(role="user", content="Go on.")])

    assert got.text == "Well."
    assert [m["content"] for m in emulator.requests[-1].json["messages"][2:]] == [
        "3",
        "Error: The user interrupted this call; it gave no result.",
        "Go on.",
    ]


def test_without_a_prompt_calls_are_denied(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script without a terminal runs nothing that wants consent, and says so."""
    serve()

    def no_prompt(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", no_prompt)
    asking = svc.tool(weather.function, confirm=True)

    with pytest.warns(RuntimeWarning, match="no prompt to ask for consent") as warned:
        got = svc.complete("Use weather for Phuket.", tools=[asking])

    assert warned[0].filename == __file__
    assert (
        got.tool_runs[0].result == "Error: This call was not allowed. Go on without it."
    )


def test_a_warning_that_is_an_error_loses_no_reply(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where warnings are errors the reply is returned, and stderr says the rest."""
    serve()
    monkeypatch.setattr("sys.stdin", io.StringIO())
    asking = svc.tool(weather.function, confirm=True)

    got = svc.complete("Use weather for Phuket.", tools=[asking])

    assert got.text
    assert "no prompt to ask for consent" in capsys.readouterr().err


@pytest.mark.parametrize("fails", [False, True])
def test_a_tool_that_gives_the_key_away_is_hidden(serve: Serve, *, fails: bool) -> None:
    """Neither the model, nor the tool runs, nor the ledger has it; rounds go on."""

    def read_settings() -> str:
        """Read the settings."""
        text = f"key={os.environ['SVC_API_KEY']}"
        if fails:
            raise ValueError(text)
        return text

    call = {"id": "c", "name": "read_settings", "arguments": {}}
    emulator = serve({"tool_calls": [call]}, {"text": "Done."})

    got = svc.complete("Go.", tools=[read_settings])

    (run,) = got.tool_runs
    kept = svc.tool_calls_df().to_csv()
    assert got.text == "Done."
    assert "key=[key]" in run.result
    texts = [getattr(run, name) for name in ("value", "traceback")]
    said = f"{run} {texts} {kept} {emulator.requests[-1].json}"
    assert emulator.api_key not in said


def test_the_newest_completion_of_the_kernel_has_its_trail(serve: Serve) -> None:
    """`svc.last()` knows the calls too: of an answer, and of rounds that broke off."""
    serve(*[{**CALLING, "times": 1}, {"text": "Done."}, {**CALLING, "times": None}])
    got = svc.complete("Go.", tools=[weather])
    runs: tuple[Any, ...] = got.tool_runs
    first = svc.last()
    with pytest.raises(svc.errors.ToolLoopError) as broken:
        svc.complete("Go.", tools=[weather], max_rounds=2)
    second = svc.last()
    svc.complete("Plain.", run_tools=False)

    assert first is not None
    assert second is not None
    assert first.tool_runs == tuple(replace(each, value=None) for each in runs)
    assert len(broken.value.tool_runs) == len(second.tool_runs) == 1


def test_clients_run_functions(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clients run functions, unless run_tools=False; streams run none."""
    monkeypatch.setenv("SVC_MODEL", "svc-instruct")  # no limit, so nothing waits
    emulator = serve()
    settings: Any = {"base_url": emulator.base_url, "api_key": emulator.api_key}
    running: Any = {"run_tools": True}
    prompt = "Use weather for Phuket."

    async def ask() -> svc.Completion:
        async with svc.AsyncClient(**settings) as client:
            return await client.complete(prompt, tools=[weather])

    awaited = asyncio.run(ask())
    with svc.Client(**settings) as client:
        waited = client.complete(prompt, tools=[weather])
        called = client.complete(prompt, tools=[weather], run_tools=False)
        defined = client.complete(prompt, tools=[weather.definition])
        with pytest.raises(svc.errors.ParameterError, match="streams do not"):
            client.stream(prompt, tools=[weather], **running)

    for got in (awaited, waited):
        assert "weather answered" in got.text
        assert [step.name for step in got.tool_runs] == ["weather"]
    for got in (called, defined):
        assert [call.function.name for call in got.tool_calls] == ["weather"]
        assert got.tool_runs == ()
    assert len(emulator.requests) == 6


def test_a_client_takes_consent_and_limits(serve: Serve) -> None:
    """What `svc.complete` takes for tools, clients take."""
    emulator = serve()
    limits: Any = {"confirm": lambda _: False, "max_rounds": 2}

    with svc.Client(base_url=emulator.base_url, api_key=emulator.api_key) as client:
        got = client.complete("Use weather for Rome.", tools=[weather], **limits)

    assert got.tool_runs[0].is_approved is False


def test_cancelling_an_async_client_stops_its_tool(serve: Serve) -> None:
    """The tool is cancelled, and nothing more is sent."""
    emulator = serve({"tool_calls": [{"name": "wait", "arguments": {}}]})
    has_begun, is_cancelled = Event(), Event()

    async def wait() -> None:
        """Wait."""
        has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    async def ask() -> None:
        settings: Any = {"base_url": emulator.base_url, "api_key": emulator.api_key}
        async with svc.AsyncClient(**settings) as client:
            asked = client.complete("Go.", tools=[wait])
            task = asyncio.create_task(asked)
            await asyncio.to_thread(has_begun.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())

    assert is_cancelled.wait(60)
    assert len(emulator.requests) == 1
