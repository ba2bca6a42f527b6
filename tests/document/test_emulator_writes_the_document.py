"""What the emulator reads and writes is what was typed out of the document."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.emulator.emulated_rate_limits import LIMITS
from svc_notebook.emulator.emulated_service import Service, Setup
from svc_notebook.emulator.http_values import DOCUMENTED, Reply, Request
from svc_notebook.emulator.request_checks import read_chat_request
from svc_notebook.emulator.script import Script

HERE = Path(__file__).parent


def _read(name: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads((HERE / name).read_text(encoding="utf-8"))


PARAMETERS = _read("parameters.json")
MODELS = _read("models.json")
REQUESTS = _read("requests.json")
COMPLETIONS = _read("completion.json")
STREAM = _read("stream.json")
ERRORS = _read("errors.json")
FLOW = _read("tool_flow.json")

Send = Callable[..., Reply]


@pytest.fixture
def send() -> Send:
    """Send a body to an emulated service that follows a script, if any."""

    def answer(
        body: dict[str, Any], *script: dict[str, Any], key: str = "svc-emulator"
    ) -> Reply:
        setup = Setup(clock=lambda: 0.0, now=lambda: 1734600000.0)
        headers = {
            name.lower(): value.replace("API_KEY", key)
            for name, value in REQUESTS["headers"].items()
        }
        request = Request(
            method="POST",
            path=REQUESTS["path"],
            headers=headers,
            body=json.dumps(body).encode(),
        )
        return Service(setup, Script(script)).reply(request)

    return answer


def _bytes(reply: Reply) -> bytes:
    return b"".join(piece.data for piece in reply.body)


def _shape(value: object) -> object:
    """Keep names, order and types of a JSON value, and drop what it says."""
    if isinstance(value, dict):
        return [(name, _shape(inner)) for name, inner in value.items()]
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return type(value).__name__


@pytest.mark.parametrize("name", REQUESTS["bodies"])
def test_reads_every_request(send: Send, name: str) -> None:
    """Each body of the document is answered (doc: Request body)."""
    assert send(REQUESTS["bodies"][name]).status == 200


@pytest.mark.parametrize(
    "row",
    [row for row in PARAMETERS["parameters"] if "default" in row],
    ids=lambda row: row["name"],
)
def test_defaults_are_the_documents(row: dict[str, Any]) -> None:
    """A parameter that is not sent has the document's default (doc: Request body)."""
    names = {"stream": "is_streamed"}

    chat = read_chat_request(json.dumps(REQUESTS["bodies"]["least"]).encode())

    assert getattr(chat, names.get(row["name"], row["name"])) == row["default"]


@pytest.mark.parametrize(
    "row",
    [row for row in PARAMETERS["parameters"] if "maximum" in row],
    ids=lambda row: row["name"],
)
def test_ranges_are_the_documents(send: Send, row: dict[str, Any]) -> None:
    """Just outside is refused (doc: Request body, Limits)."""
    least = REQUESTS["bodies"]["least"]
    step = 1 if row["type"] == "integer" else 0.01
    outside = [row["maximum"] + step]
    outside += [row["minimum"] - step] if "minimum" in row else []

    statuses = {send(least | {row["name"]: value}).status for value in outside}

    assert statuses == {400}


def test_models_and_limits_are_the_documents() -> None:
    """Ids in their order, limits where shown (doc: Model ids, Limits)."""
    limits = {
        row["id"]: (row["per_second"], row["per_minute"]) for row in MODELS["limits"]
    }

    assert (list(DOCUMENTED), dict(LIMITS)) == (MODELS["ids"], limits)


def test_a_whole_reply_has_the_documents_shape(send: Send) -> None:
    """Names, types and order are those of the Completion table."""
    body = json.loads(_bytes(send(REQUESTS["bodies"]["least"])))

    assert _shape(body) == _shape(COMPLETIONS["bodies"]["one choice"])
    assert body["object"] == "chat.completion"


@pytest.mark.parametrize("name", COMPLETIONS["bodies"])
def test_writes_every_completion(send: Send, name: str) -> None:
    """From the same content come the same fields, byte for byte but for the id."""
    wanted = COMPLETIONS["bodies"][name]
    script = {
        "usage": wanted["usage"],
        "choices": [
            {
                "text": choice["message"]["content"],
                "finish_reason": choice["finish_reason"],
                "tool_calls": [
                    {"id": call["id"], **call["function"]}
                    for call in choice["message"].get("tool_calls", [])
                ],
            }
            for choice in wanted["choices"]
        ],
    }

    written = json.loads(
        _bytes(send(REQUESTS["bodies"]["least"] | {"model": wanted["model"]}, script))
    )

    assert written == wanted | {"id": written["id"], "created": 1734600000}
    assert list(written) == list(wanted)


def test_writes_the_stream(send: Send) -> None:
    """From the same pieces come the same events, byte for byte but for the id."""
    pieces = [delta["content"] for delta in STREAM["deltas"][:-1]]

    reply = send(REQUESTS["bodies"]["streamed"], {"text": pieces})

    written = _bytes(reply)
    name = json.loads(written.split(b"\n")[0][6:])["id"]
    wanted = (HERE / STREAM["file"]).read_bytes()
    wanted = wanted.replace(b"cmpl-9d10", name.encode())
    assert written == wanted.replace(b"1734600003", b"1734600000")
    assert reply.headers["content-type"].startswith(STREAM["content_type"])


@pytest.mark.parametrize("row", ERRORS["bodies"], ids=lambda row: str(row["status"]))
def test_faults_have_the_documents_body(send: Send, row: dict[str, Any]) -> None:
    """Status, type, param and code are the typical ones (doc: Errors)."""
    least = REQUESTS["bodies"]["least"]
    replies = {400: send(least | {"temperature": 3}), 401: send(least, key="wrong")}

    reply = replies[row["status"]]

    error = json.loads(_bytes(reply))["error"]
    assert reply.status == row["status"]
    assert {"error": error | {"message": row["body"]["error"]["message"]}} == row[
        "body"
    ]
    assert list(error) == list(row["body"]["error"])


def test_goes_through_the_tool_flow(send: Send) -> None:
    """An offer draws a call, its result the answer (doc: Tool-calling flow)."""
    first = json.loads(_bytes(send(FLOW["request"])))["choices"][0]["message"]
    answer = json.loads(_bytes(send(FLOW["follow_up"])))["choices"][0]["message"]

    assert _shape(first) == _shape(FLOW["assistant_message"])
    assert first["tool_calls"][0]["function"]["name"] == "get_weather"
    assert FLOW["tool_message"]["content"] in answer["content"]
    assert "tool_calls" not in answer


def test_a_history_with_missing_messages_fails(send: Send) -> None:
    """Without the result the follow-up is refused (doc: Tool-calling flow, 6)."""
    follow_up = FLOW["follow_up"]

    reply = send(follow_up | {"messages": follow_up["messages"][:-1]})

    assert reply.status == 400
