"""An independent client of the interface that the service follows works here."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slow

openai = pytest.importorskip("openai")

from svc_notebook.emulator.emulator import Emulator  # noqa: E402 - after the skip

MODEL = "svc-v2-8b-instruct"
MESSAGES: Any = [{"role": "user", "content": "Tell me about rain."}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Where."}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


@pytest.fixture
def client(emulator: Emulator) -> Iterator[Any]:
    """The other client, pointed here."""
    with openai.OpenAI(
        base_url=emulator.base_url, api_key=emulator.api_key, max_retries=0
    ) as made:
        yield made


def test_goes_through_a_tool_flow(client: Any) -> None:  # noqa: ANN401 - another's type
    """Its own messages are sent back unchanged, and the results are answered."""
    messages = [{"role": "user", "content": "Use get_weather for Phuket."}]
    asked = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    message = asked.choices[0].message
    (call,) = message.tool_calls

    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            *messages,
            message,
            {"role": "tool", "tool_call_id": call.id, "content": "31 degrees"},
        ],
    )

    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Phuket"},
    )
    assert "31 degrees" in answer.choices[0].message.content


@pytest.mark.parametrize(
    ("key", "change", "error"),
    [
        ("wrong", {}, "AuthenticationError"),
        ("svc-emulator-revoked", {}, "AuthenticationError"),
        ("svc-emulator-forbidden", {}, "PermissionDeniedError"),
        ("svc-emulator", {"temperature": 3}, "BadRequestError"),
        ("svc-emulator", {"model": "svc-v9"}, "NotFoundError"),
    ],
)
def test_raises_the_right_error(
    emulator: Emulator, key: str, change: dict[str, Any], error: str
) -> None:
    """Statuses and bodies are what its error types are made from."""
    wanted = {"model": MODEL, "messages": MESSAGES} | change
    with (
        openai.OpenAI(base_url=emulator.base_url, api_key=key, max_retries=0) as client,
        pytest.raises(openai.APIStatusError) as caught,
    ):
        client.chat.completions.create(**wanted)

    assert type(caught.value).__name__ == error
    assert caught.value.param is None
    assert key not in str(caught.value)


def test_meets_the_rate_limit() -> None:
    """The sixth request of a second, here one that does not pass, is too many."""
    with (
        Emulator(tokens_per_s=None, first_token_s=0, clock=lambda: 0.0) as emulator,
        openai.OpenAI(
            base_url=emulator.base_url, api_key=emulator.api_key, max_retries=0
        ) as client,
    ):
        for _ in range(5):
            client.chat.completions.create(model=MODEL, messages=MESSAGES)

        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model=MODEL, messages=MESSAGES)
