"""Calls: which ones are run, and what the model gets for them."""

import _thread
import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import pytest

from svc_notebook.service.request import FunctionCall, ToolCall
from svc_notebook.tools.call import CheckedCall, ToolRun, check_call, run_call
from svc_notebook.tools.toolbox import Toolbox, tool

SHORT_S = 0.05
LONG_S = 20.0


@dataclass
class Place:
    """A place."""

    name: str
    height: float = 0.0

    def __post_init__(self) -> None:
        if self.height < 0:
            raise ValueError("a place is not below the ground")


class Log:
    """Tools that keep what they were called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def weather(
        self,
        city: str,
        n_days: int = 1,
        *,
        unit: Literal["c", "f"] = "c",
        is_short: bool = False,
    ) -> dict[str, object]:
        """Tell the weather."""
        given = {"city": city, "n_days": n_days, "unit": unit, "is_short": is_short}
        self.calls.append(given)
        return given

    def now(self) -> str:
        """Tell the time."""
        self.calls.append({})
        return "noon"

    def go(self, to: Place, on: date, stops: list[Place] | None = None) -> str:
        """Go somewhere."""
        self.calls.append({"to": to, "on": on, "stops": stops})
        return "gone"

    def heat(self, degrees: float) -> float:
        """Heat."""
        self.calls.append({"degrees": degrees})
        return degrees


@pytest.fixture
def log() -> Log:
    """Return tools that keep what they were called with."""
    return Log()


@pytest.fixture
def box(log: Log) -> Toolbox:
    """Return a toolbox of them."""
    return Toolbox([log.weather, log.now, log.go, log.heat])


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Return something that a tool can hang on; it opens when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def _call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id="call_7", function=FunctionCall(name=name, arguments=arguments))


def _run(box: Toolbox, name: str, arguments: str = "{}", **limits: Any) -> ToolRun:  # noqa: ANN401 - limits
    checked = check_call(box, _call(name, arguments))
    if isinstance(checked, ToolRun):
        return checked
    return run_call(checked.tool, checked.call, checked.arguments, **limits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"city": "Nan"} x', "not JSON"),
        ("[1]", "are not an object"),
        ("null", "are not an object"),
        ('{"city": "Nan", "city": "Pai"}', "given twice"),
        ('{"city": NaN}', "NaN is not a number"),
        ('{"city": -Infinity}', "-Infinity is not a number"),
        ('{"city": 1e999}', "1e999 is too large"),
        ('{"city": ' + "9" * 5000 + "}", "not JSON"),
        ("[" * 200 + "]" * 200, "nested too deep"),
        ("[" * 100_000, "not JSON"),
        ('{"city": "\\ud800"}', "half of a surrogate pair"),
        ("\ud800", "not JSON"),
    ],
    ids=range(14),
)
def test_arguments_that_are_no_object_are_answered(
    box: Toolbox, log: Log, text: str, expected: str
) -> None:
    """The model reads what is wrong with the text; the tool is not run."""
    run = _run(box, "weather", text)

    assert expected in run.result
    assert run.result.startswith("Error: The arguments are ")
    assert (run.arguments, log.calls) == (None, [])


def test_edited_arguments_are_checked_again(box: Toolbox, log: Log) -> None:
    """What a user made of the arguments is checked like what the model wrote."""
    checked = check_call(box, _call("weather", '{"city": "Nan"}'))
    assert isinstance(checked, CheckedCall)

    run = run_call(checked.tool, checked.call, {"city": 3})

    assert run.error == "city: input should be a valid string; got 3."
    assert log.calls == []


class _SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _silent() -> None:
    """Fail without a text."""
    raise _SilentError


def _loud() -> None:
    """Fail with a long text."""
    raise ValueError("x" * 100_000)


def _half() -> None:
    """Fail with half of a character."""
    raise ValueError("\ud800")


def _exit() -> None:
    """Try to end Python."""
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_silent, "Error: _SilentError"),
        (_loud, "characters left out"),
        (_half, "Error: ValueError: \ufffd"),
        (_exit, "Error: SystemExit: 3"),
    ],
)
def test_whatever_a_tool_raises_becomes_a_short_text(
    function: Callable[[], None], expected: str
) -> None:
    """Errors without a text, too long, or not valid UTF-8 become a text too."""
    run = _run(Toolbox([function]), function.__name__)

    assert expected in run.result
    assert len(run.result.encode()) < 2000


def test_a_keyboard_interrupt_in_a_tool_passes_through() -> None:
    """A KeyboardInterrupt is raised in the caller, not sent to the model."""

    def stop() -> None:
        """Stop."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run(Toolbox([stop]), "stop")


def test_an_interrupt_while_a_tool_runs_acts_at_once(gate: threading.Event) -> None:
    """The user's interrupt ends the waiting; that the tool goes on is said."""

    def hang() -> None:
        """Hang."""
        _thread.interrupt_main()
        gate.wait()

    with pytest.raises(KeyboardInterrupt) as stopped:
        _run(Toolbox([hang]), "hang")

    assert "hang is still running" in stopped.value.__notes__[0]


def test_with_no_time_left_nothing_is_run(box: Toolbox, log: Log) -> None:
    """A call that could not end in time is answered without being run."""
    run = _run(box, "now", within_s=0.0)

    assert run.error == "No time is left; now was not run."
    assert (run.arguments, log.calls) == (None, [])


def test_context_variables_are_the_callers() -> None:
    """What a tool reads from its context is what the caller has set."""
    where = ContextVar("where", default="nowhere")
    where.set("here")

    def look() -> str:
        """Look."""
        return where.get()

    assert _run(Toolbox([look]), "look").result == "here"


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_async_tools_are_awaited(is_wrapped: bool) -> None:
    """A coroutine, also of a plain function, runs on the loop of the tools."""

    async def later(city: str) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return f"{city} {threading.current_thread().name}"

    def soon(city: str) -> Awaitable[str]:
        """Give a promise."""
        return later(city)

    made = tool(soon if is_wrapped else later, name="x")
    run = _run(Toolbox([made]), "x", '{"city": "Nan"}')

    assert run.result == "Nan svc_notebook"


def test_a_hanging_async_tool_is_cancelled() -> None:
    """At the limit the coroutine is cancelled and can clean up."""
    was_cancelled = threading.Event()

    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    run = _run(Toolbox([tool(hang, timeout_s=SHORT_S)]), "hang")

    assert run.result == "Error: hang gave no result within 0.05 s."
    assert run.traceback == "hang gave no result within 0.05 s."
    assert was_cancelled.is_set()


def test_an_interrupt_cancels_an_async_tool() -> None:
    """The user's interrupt cancels the coroutine and passes through."""
    was_cancelled = threading.Event()

    async def hang() -> None:
        """Hang."""
        _thread.interrupt_main()
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        _run(Toolbox([hang]), "hang")

    assert was_cancelled.wait(LONG_S)


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_an_async_tool_raises_leaves_the_loop_alive(
    problem: type[BaseException],
) -> None:
    """A KeyboardInterrupt is raised, other errors are texts; the loop goes on."""

    async def fail() -> None:
        """Fail."""
        raise problem

    async def well() -> str:
        """Succeed."""
        return "well"

    box = Toolbox([fail, well])
    if problem is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            _run(box, "fail")
    else:
        assert _run(box, "fail").error == problem.__name__

    assert _run(box, "well").result == "well"


def test_what_a_tool_does_to_its_arguments_stays_with_it() -> None:
    """The record says what it was called with, also where it changed that."""

    def fill(**given: dict[str, int]) -> str:
        given["found"]["more"] = 1
        return "filled"

    parameters = {"type": "object", "properties": {"found": {"type": "object"}}}
    about = {"name": "fill", "description": "Fill.", "parameters": parameters}
    made = tool(fill, definition={"type": "function", "function": about})

    run = run_call(made, _call("fill"), {"found": {}})

    assert run.arguments == {"found": {}}
