"""`as_python` and `as_curl`: the request that made a reply, as code that sends it."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated
from svc_notebook.wire.encode import encode

NASTY = "It's \"5\" o'clock\\n\n\t$HOME `id` $(id) !x ภาษาไทย 🙂 ''' \"\"\" {{x}} \\"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'Say the weather.\nIt\'s "fine".',
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "O\'Rome"}'},
            }
        ],
    },
    {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
]
ASKED: list[tuple[Any, dict[str, Any]]] = [
    ("Hello", {}),
    (NASTY, {"system": NASTY}),
    ("Hello", {"max_tokens": "service"}),
    ("word " * 900, {"max_tokens": 7}),
    ("Hello", {"temperature": 0, "n": 2, "stop": ["a'b", "\n"], "user": "ä"}),
    ("Hello", {"top_p": 0.30000000000000004, "repetition_penalty": 1, "stop": "x"}),
    ("Hello", {"extra": {"system": "s", "extra": [None, True, {"a b": 1.5}]}}),
    (CALLED, {"tools": [TOOL]}),
    ([{"role": "system", "content": "Be brief."}, *CALLED], {"system": "Twice."}),
    ([{"role": "user", "content": " "}], {"model": "svc-v2-70b-instruct"}),
    ([{"role": "system", "content": "Alone."}], {}),
]


@pytest.fixture(autouse=True)
def kernel(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A new session whose service is the emulator."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    with isolated():
        yield


def _streamed(prompt: Any, given: dict[str, Any]) -> svc.Completion:  # noqa: ANN401 - a prompt
    return svc.stream(prompt, **given).completion


def _whole(prompt: Any, given: dict[str, Any]) -> svc.Completion:  # noqa: ANN401 - a prompt
    return svc.complete(prompt, **given)


Ask = Callable[[Any, dict[str, Any]], svc.Completion]
each_request = pytest.mark.parametrize(("prompt", "given"), ASKED)
each_way = pytest.mark.parametrize("ask", [_whole, _streamed])


def bodies(emulator: Emulator) -> list[str]:
    """Return the two newest bodies, in which the order of names shows."""
    return [json.dumps(each.json) for each in emulator.requests[-2:]]


@each_way
@each_request
def test_the_python_sends_the_same(
    ask: Ask, prompt: object, given: dict[str, Any], emulator: Emulator
) -> None:
    """It runs as it stands, and sends the same bytes, streamed or in one piece."""
    first = ask(prompt, given)

    names: dict[str, Any] = {}
    exec(first.as_python(), names)  # noqa: S102 - what is tested

    again = names["reply"]
    is_streamed = first.exchange.is_streamed
    before, after = bodies(emulator)
    assert before == after
    assert again.exchange.is_streamed is is_streamed
    sent = [encode(each.request, is_streamed=is_streamed) for each in (first, again)]
    assert sent[0] == sent[1]
    assert first.request.is_fitted is again.request.is_fitted


@pytest.mark.slow
@each_way
@each_request
def test_the_shell_command_sends_the_same(
    ask: Ask, prompt: object, given: dict[str, Any], emulator: Emulator
) -> None:
    """/bin/sh sends the same body, with the key of its environment."""
    first = ask(prompt, given)

    done = subprocess.run(  # noqa: S603 - what is tested
        ["/bin/sh", "-c", first.as_curl()],
        capture_output=True,
        env={"PATH": os.environ["PATH"], "SVC_API_KEY": emulator.api_key},
        check=True,
        timeout=120,
    )

    before, after = bodies(emulator)
    assert before == after
    assert emulator.requests[-1].status == 200
    assert (b"data: [DONE]" in done.stdout) is first.exchange.is_streamed


def test_the_key_is_in_neither(emulator: Emulator) -> None:
    """The command names the variable; Python takes the key as every request does."""
    reply = svc.complete("Hello")

    both = reply.as_python() + reply.as_curl()

    assert emulator.api_key not in both
    assert '"Authorization: Bearer $SVC_API_KEY"' in reply.as_curl()


def test_nothing_reaches_a_terminal_that_it_obeys() -> None:
    """Control characters and invisible ones are escaped, and mean the same."""
    reply = svc.complete("\x1b[2J\x9b2J\x7f\u202etxt\u200b\u2028\U000e0041'")

    for code in (reply.as_python(), reply.as_curl()):
        assert all(each.isprintable() or each == "\n" for each in code)
    body = reply.as_curl().partition("--data-raw ")[2]
    shown = json.loads(body.strip()[1:-1].replace("'\"'\"'", "'"))
    assert shown["messages"][0]["content"] == reply.request.prompt


def test_a_reply_of_the_ledger_has_its_request() -> None:
    """A reply that is read back gives the same code as the one in hand."""
    reply = svc.complete(CALLED, tools=[TOOL], stop=["a", "b"])

    (found,) = current().ledger.read()

    kept = svc.Completion(found)
    assert kept.as_python() == reply.as_python()
    assert kept.as_curl() == reply.as_curl()
