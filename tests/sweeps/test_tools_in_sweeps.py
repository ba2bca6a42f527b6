"""Sweeps run tools: the last reply is the row, and each round is an exchange."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.ledger.reply_frames import tool_calls_df
from svc_notebook.session import Session
from svc_notebook.sweeps.run import Run, plan_run
from svc_notebook.sweeps.stored_runs import stored_run
from svc_notebook.tools.consent import Proposal

from .conftest import OpenSession

MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits
CALLING = {"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}
Opened = Callable[..., tuple[Session, Emulator]]


def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 31}


@pytest.fixture
def opened(open_session: OpenSession) -> Iterator[Opened]:
    """Return a function that opens a session of an emulator with a script."""
    running: list[Emulator] = []

    def start(*script: dict[str, Any]) -> tuple[Session, Emulator]:
        emulator = Emulator(script=list(script), tokens_per_s=None, first_token_s=0)
        running.append(emulator.start())
        return open_session(emulator), emulator

    yield start
    for each in running:
        each.close()


def sweep(
    session: Session,
    prompt: object = "Use weather for Oslo.",
    **more: Any,  # noqa: ANN401 - of a sweep
) -> Run:
    """Plan a sweep that runs tools."""
    own = {
        key: more.pop(key)
        for key in (
            "name",
            "repeats",
            "limits",
            "answer",
            "rows",
            "in_flight",
            "conditions",
            "reuse",
            "run_tools",
        )
        if key in more
    }
    varied = {"tools": [weather], "max_tokens": 200, **more}
    return plan_run(session, prompt, model=MODEL, **varied, **own)


@pytest.mark.slow
def test_the_last_reply_is_the_row(opened: Opened) -> None:
    """It says after how many requests and calls it came; the ledger has every round."""
    session, emulator = opened()
    cities = ["Oslo", "Rome", "Lima"]

    run = sweep(
        session,
        "Use weather for {{city}}.",
        rows=[{"city": each} for each in cities],
        repeats=2,
    ).run()

    found = run.replies_df()
    assert found["status"].tolist() == ["ok"] * 6
    assert all('weather answered: {"city":' in text for text in found["text"])
    assert found["n_rounds"].tolist() == [2] * 6
    assert found["n_tool_runs"].tolist() == [1] * 6
    assert found["prompt"][0] == "Use weather for Oslo."
    assert len(emulator.requests) == 12
    assert run.usage_df(include_emulated=True)["n_requests"].tolist() == [12]


@pytest.mark.slow
def test_tools_can_vary(opened: Opened) -> None:
    """Where none are offered, the first reply is the row."""
    session, _ = opened()

    def rain(city: str) -> str:
        """Tell the rain of a city."""
        return f"{city} is wet"

    run = sweep(
        session,
        ["Use weather for Oslo. Use rain for Oslo."],
        tools={"none": None, "one": [weather], "other": [rain]},
    ).run()

    found = run.replies_df().set_index("tools_label")
    assert found["n_rounds"].to_dict() == {"none": 1, "one": 2, "other": 2}
    assert "31" in found["text"]["one"]
    assert "wet" in found["text"]["other"]


@pytest.mark.slow
def test_answers_are_read_from_the_last_reply(opened: Opened) -> None:
    """`answer=` takes what needs no tool of its own, and refuses what does."""
    session, _ = opened(CALLING, {"text": "It has 31 degrees."})

    run = sweep(session, answer=int).run()

    assert run.replies_df()["answer"].tolist() == [31]

    class Weather(TypedDict):
        """The weather."""

        celsius: int

    with pytest.raises(
        svc.errors.ParameterError, match="other tools cannot be offered"
    ):
        sweep(session, answer=Weather)


@pytest.mark.slow
def test_rounds_that_are_used_up_are_a_failed_row(
    opened: Opened, open_session: OpenSession
) -> None:
    """It has what came, is not asked again by itself, also after a restart."""
    session, emulator = opened({**CALLING, "times": None})

    run = sweep(session, name="r", max_rounds=3).run()
    again = sweep(open_session(emulator), name="r", max_rounds=3).run()

    for each in (run, again):
        row = each.replies_df().iloc[0]
        assert (row["status"], row["error_type"]) == ("error", "ToolLoopError")
        assert "max_rounds" in row["error_message"]
        assert (row["n_rounds"], row["n_tool_calls"]) == (3, 1)
        assert each.n_failed == 1
    assert len(emulator.requests) == 3


@pytest.mark.slow
def test_time_that_is_used_up_is_a_failed_row(opened: Opened) -> None:
    """`total_s` holds for the rounds of one reply; `retry` asks it again."""
    session, emulator = opened({**CALLING, "times": None})

    run = sweep(session, total_s=1e-9).run()

    assert run.replies_df()["error_type"].tolist() == ["ToolLoopError"]
    assert (run.n_failed, len(emulator.requests)) == (1, 1)
    assert "total_s" in run.reasons[0]
    assert len(run.run().replies_df()) == len(emulator.requests)
    run.retry()
    assert len(emulator.requests) == 2


def test_a_call_that_was_cut_is_a_failed_row(
    opened: Opened, open_session: OpenSession
) -> None:
    """The ledger says so after a restart, and it is not asked again."""
    cut = {"name": "weather", "arguments": '{"city": "Os'}
    session, emulator = opened({"tool_calls": [cut], "finish_reason": "length"})

    sweep(session, name="r").run()
    run = sweep(open_session(emulator), name="r").run()

    assert run.replies_df()["error_type"].tolist() == ["CutError"]
    assert len(emulator.requests) == 1


@pytest.mark.slow
def test_a_round_that_fails_is_a_failed_row(opened: Opened) -> None:
    """Retried, it begins with its first round, and both are counted."""
    fault = {"status": 400, "error": {"message": "no", "type": "invalid_request_error"}}
    session, emulator = opened(CALLING, fault, CALLING, {"text": "31"})

    run = sweep(session, name="r").run()
    row = run.replies_df().iloc[0]
    assert (row["error_type"], row["n_rounds"]) == ("BadRequestError", 2)
    run.retry(include_refused=True)

    assert run.replies_df()["text"].tolist() == ["31"]
    assert len(emulator.requests) == 4
    assert run.usage_df(include_emulated=True)["n_requests"].tolist() == [4]


@pytest.mark.slow
def test_a_refused_round_is_sent_again_not_its_trial(opened: Opened) -> None:
    """What was paid for before a 429 is not asked again."""
    refusal = {
        "status": 429,
        "headers": {"retry-after": "0"},
        "error": {"message": "slow", "type": "rate_limit_error"},
    }
    session, emulator = opened(CALLING, refusal, {"text": "31"})

    run = sweep(session).run()

    assert run.replies_df()["n_tool_runs"].tolist() == [1]
    assert len(emulator.requests) == 3


@pytest.mark.slow
def test_rounds_that_were_stopped_begin_again(
    opened: Opened, open_session: OpenSession
) -> None:
    """A stop is between two rounds; the ledger keeps and counts what was paid for."""
    session, emulator = opened()
    is_called, may_end = threading.Event(), threading.Event()

    def weather(city: str) -> str:
        """Tell the weather of a city."""
        is_called.set()
        may_end.wait(60)
        return f"{city} is warm"

    run = sweep(session, name="r", tools=[weather]).start(is_drawn=False)
    assert is_called.wait(60)
    run.cancel()
    assert run.replies_df()["status"].tolist() == ["cancelled"]
    n_before = len(emulator.requests)

    may_end.set()
    session.ledger.flush()
    again = sweep(open_session(emulator), name="r", tools=[weather])
    assert again.n_todo == 1

    again.run()

    assert "Oslo is warm" in again.replies_df()["text"][0]
    assert again.replies_df()["n_rounds"].tolist() == [2]
    again.run()
    assert (n_before, len(emulator.requests)) == (1, 3)
    assert again.usage_df(include_emulated=True)["n_requests"].tolist() == [3]


def test_rounds_count_in_your_own_limits(opened: Opened) -> None:
    """Each request takes a place in the windows of the run."""
    session, _ = opened()
    run = sweep(session, limits={"per_second": 100, "per_minute": 1000}).run()

    task = run._executor.execution  # noqa: SLF001 - no other way to see the windows
    assert task is not None
    (queue,) = task.scheduler.queues
    assert queue.own is not None
    assert len(queue.own.sent_s()) == 2


@pytest.mark.slow
def test_a_function_decides_one_call_at_a_time(opened: Opened) -> None:
    """`confirm` is never called from two threads at once."""
    session, _ = opened()
    asked: list[int] = []
    lock = threading.Lock()

    def decide(proposal: Proposal) -> bool:
        assert lock.acquire(blocking=False)
        asked.append(len(proposal.arguments))
        lock.release()
        return False

    run = sweep(session, repeats=8, confirm=decide).run()

    assert len(asked) == 8
    assert run.replies_df()["status"].tolist() == ["ok"] * 8
    calls = tool_calls_df(session.ledger)
    assert calls["is_approved"].tolist() == [False] * 8


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            {"tools": [svc.tool(weather, confirm=True)]},
            "cannot ask you about calls of weather",
        ),
        ({"confirm": True}, "confirm=False"),
        ({"n": 2}, "one choice only"),
        ({"max_rounds": 1}, "max_rounds"),
    ],
)
def test_what_a_sweep_cannot_run_is_refused_in_the_plan(
    opened: Opened, given: dict[str, Any], match: str
) -> None:
    """The message says what to give instead."""
    session, emulator = opened()

    with pytest.raises(svc.errors.ParameterError, match=match):
        sweep(session, **given)

    assert emulator.requests == ()


def test_limits_of_rounds_need_run_tools() -> None:
    """Alone they would do nothing."""
    with pytest.raises(svc.errors.ParameterError, match="run_tools=False"):
        svc.sweep("Go.", tools=[weather], max_rounds=3, run_tools=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [{"run_tools": False}, {"tools": [svc.tool(weather).definition], "n": 2}],
    ids=["not run", "definition"],
)
def test_calls_that_are_not_run_are_in_the_row(
    opened: Opened, given: dict[str, Any]
) -> None:
    """With run_tools=False, and for definitions, the calls are the caller's."""
    session, emulator = opened()

    replies = sweep(session, **given).run().replies_df()

    assert '"weather"' in replies["tool_calls"][0]
    assert replies["n_tool_runs"].isna().all()
    assert len(emulator.requests) == 1


@pytest.mark.slow
def test_conditions_have_functions_too(opened: Opened) -> None:
    """A frame of conditions may have a column of tools."""
    session, _ = opened()
    conditions = pd.DataFrame({"tools": [[weather], None]})

    replies = sweep(session, tools=None, conditions=conditions).run().replies_df()

    assert sorted(replies["n_tool_runs"].fillna(0)) == [0, 1]


@pytest.mark.slow
def test_a_rebuilt_run_has_no_functions(
    opened: Opened, open_session: OpenSession
) -> None:
    """It can be read; to continue, the same sweep is given again."""
    session, emulator = opened({"text": "ok"}, {**CALLING, "times": None})
    sweep(session, ["a"], name="r").run()
    sweep(session, ["a", "b"], name="r", max_rounds=2).run()
    found = stored_run(open_session(emulator), "r")

    assert found.replies_df()["status"].tolist() == ["ok", "error"]
    assert "up to 2 requests for each reply" in str(found)
    with pytest.raises(
        svc.errors.ParameterError, match=r"call the same svc\.sweep again"
    ):
        found.retry()
    assert len(emulator.requests) == 3
    found.run()
