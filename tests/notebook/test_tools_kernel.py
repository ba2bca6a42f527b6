"""`%%svc --tools` in a real kernel: live, asked for consent, interrupted, settled."""

from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import TIMEOUT_S, Kernel, Ran

TOOLS = '''
import time
import svc_notebook as svc

@svc.tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return "<b>rain</b>"

@svc.tool(confirm=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"

@svc.tool
def sleep(n: int) -> str:
    """Sleep."""
    print("asleep")
    time.sleep(n)
    return "awake"
'''


def _piece(arguments: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    calls = [{"index": 0, "function": {"arguments": arguments, **more}}]
    return {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}


FORMING: list[dict[str, Any]] = [
    {
        "when": {"contains": "slowly", "role": "user"},
        "events": [
            {
                "choices": [
                    {"index": 0, "delta": {"role": "assistant", "content": "Let me "}}
                ]
            },
            {"choices": [{"index": 0, "delta": {"content": "see."}}]},
            _piece("", name="weather"),
            *(_piece(each) for each in ['{"ci', 'ty": "Ph', 'uket"}']),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            "[DONE]",
        ],
        "gap_s": 0.3,
    },
]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that calls tools, one call in slow pieces."""
    with Emulator(
        script=FORMING, limits=False, tokens_per_s=None, first_token_s=0
    ) as running:
        yield running


@pytest.fixture
def tools(kernel: Kernel) -> Kernel:
    """A kernel with three tools."""
    assert kernel.run(TOOLS).status == "ok"
    return kernel


def test_a_call_is_shown_as_it_forms_and_runs_whole(tools: Kernel) -> None:
    """Pieces show in the status line; then the result, and one final form."""
    ran = Ran()
    cell = tools.begin("%%svc --tools weather -o answer\nSlowly or slowly: go")

    tools.read(cell, ran, until='weather({"ci')
    had_run = "rain" in ran.shown
    tools.read(cell, ran)

    final = ran.all("update_display_data")[-1]["data"]
    assert not had_run
    assert ran.status == "ok"
    assert "<details><summary" in final["text/html"]
    assert "&lt;b&gt;rain&lt;/b&gt;" in final["text/html"]
    assert "<b>rain" not in final["text/html"]
    assert "Let me see." in final["text/plain"]
    assert tools.value("answer.tool_runs[0].arguments['city']") == "Phuket"


def test_a_call_is_shown_in_a_shared_cell_too(tools: Kernel) -> None:
    """`%svc` among other output keeps one display, the tool_runs in it."""
    ran = tools.run("x = 1\n%svc --tools weather Use weather for Rome")

    shown = [
        each["data"]["text/html"]
        for each in ran.all("update_display_data")
        if "text/html" in each["data"]
    ]
    assert ran.status == "ok"
    assert "<details>" in shown[-1]
    assert "2 requests, " in shown[-1]


WAITS = 'waiting for your answer: send(to="Bob")'


def _answer(kernel: Kernel, *answers: str) -> list[str]:
    """Answer what the kernel asks; return the questions."""
    asked = []
    for each in answers:
        message = kernel.client.get_stdin_msg(timeout=TIMEOUT_S)
        asked.append(message["content"]["prompt"])
        kernel.client.input(each)
    return asked


def test_a_long_call_is_written_out_until_the_answer(tools: Kernel) -> None:
    """What is left of the question is its line, which the front end keeps."""
    name = "Bob " * 30
    cell = tools.begin(f"%%svc --tools send\nUse send to '{name.strip()}'")
    [question] = _answer(tools, "y")
    ran = tools.read(cell, Ran())

    details = next(
        each
        for each in ran.all("display_data")
        if "The model calls send" in each["data"]["text/plain"]
    )
    updates = [
        each["data"]
        for each in ran.all("update_display_data")
        if each["transient"] == details["transient"]
    ]
    assert name.strip() in details["data"]["text/html"]
    assert updates == [{"text/html": "", "text/plain": ""}]
    assert len(question) < 80


def test_consent_is_asked_for_in_the_cell(tools: Kernel) -> None:
    """Edited and approved, then always: the second cell does not ask."""
    cell = tools.begin("%%svc --tools send -o answer\nUse send to 'Bob'")
    asked = _answer(tools, "e", '{"to": "Al"}')
    ran = tools.read(cell, Ran())
    again = tools.begin("%%svc --tools send -o later\nUse send to 'Cy'")
    _answer(tools, "a")
    tools.read(again, Ran())
    last = tools.run("%%svc --tools send -o last\nUse send to 'Di'")

    assert asked[0].startswith('Run send(to="Bob")? [y]es, ')
    assert ran.status == last.status == "ok"
    lines = [line for line in unescape(str(ran.messages)).split("<") if WAITS in line]
    assert lines
    assert not [line for line in lines if "still being written" in line]
    assert "waiting for your answer" not in str(last.messages)
    assert "sent to Al" in tools.value("answer.tool_runs[0].result")
    assert tools.value("later.tool_runs[0].result") == "sent to Cy"
    assert tools.value("last.tool_runs[0].result") == "sent to Di"


def test_an_unwatched_cell_denies_and_says_so(tools: Kernel) -> None:
    """Headless, what wants consent is denied unless told otherwise; one output."""
    cell = "%%svc --tools send{}\nUse send to 'Bob'"
    denied = tools.run(cell.format(""), is_watched=False)
    allowed = tools.run(cell.format(" --confirm-tools none"), is_watched=False)
    tools.run("%config SvcMagics.confirm_tools = 'none'")
    configured = tools.run(cell.format(""), is_watched=False)

    assert [kind for kind, _ in denied.messages] == ["display_data"]
    assert "denied: you could not be asked" in denied.shown
    assert "sent to Bob" in allowed.shown
    assert "sent to Bob" in configured.shown


def test_an_interrupt_in_a_tool_ends_the_cell(tools: Kernel) -> None:
    """The tool is left behind at once; the conversation can go on."""
    ran = Ran()
    cell = tools.begin("%%svc -c plan --tools sleep -o answer\nUse sleep for 999")
    tools.read(cell, ran, until="asleep")
    tools.manager.interrupt_kernel()
    tools.read(cell, ran)  # fails if the cell waits for the tool
    after = tools.run("%%svc -c plan\nNever mind")

    assert ran.status == "error"
    assert ran.all("error") == []
    assert "[interrupted]" in ran.shown
    assert ran.all("clear_output") == []
    assert "The user interrupted this call" in ran.shown
    assert after.status == "ok"
