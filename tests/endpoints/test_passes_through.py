"""What the document does not show goes to other servers, and comes back, as it is."""

from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.magics.use_and_login import use
from svc_notebook.session import current
from tests.magics.conftest import Shell, ipython, shell  # noqa: F401 - fixtures

from .stub_server import Serve, reply, written

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PARTS = [{"type": "text", "text": "What is this?"}, PICTURE]
SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
DETAILS = [{"type": "reasoning.text", "text": "The tide.", "signature": "s"}]


def tide(day: str) -> str:
    """Return the tide of a day."""
    return f"high on {day}"


def _calls(**more: Any) -> list[bytes]:  # noqa: ANN401 - JSON
    function = {"name": "tide", "arguments": '{"day": "Monday"}'}
    call = {"id": "c1", "type": "function", "function": function}
    said = {"role": "assistant", "content": None, "tool_calls": [call | more]}
    said |= {"reasoning_content": "Ask the tide.", "reasoning_details": DETAILS}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": said}
    return written({"id": "1", "model": "m", "choices": [choice]})


@pytest.fixture
def server(serve: Serve) -> Any:  # noqa: ANN401 - a stub
    """A server of somebody's, in use."""
    server = serve(reply())
    svc.use(base_url=server.base_url, key=False, model="m")
    return server


def test_messages_go_as_they_are(server: Any) -> None:  # noqa: ANN401 - a stub
    """Other roles, contents in parts and other fields; a note says so."""
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": PARTS, "name": "me"},
        {"role": "assistant", "content": None, "audio": {"id": "a1"}},
    ]

    completion = svc.complete(messages)

    assert server.bodies[0]["messages"] == messages
    assert completion.request.prompt == "What is this?"
    assert completion.notes == (
        "sent as it is: the role developer, name, content, audio",
    )
    assert completion.exchange == svc.reply(completion.exchange.exchange_id).exchange


def test_values_go_as_they_are(
    server: Any,  # noqa: ANN401 - a stub
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """Ranges of the document are the service's; a cell's footer has the note."""
    svc.use(base_url=server.base_url, key=False, model="m")
    completion = svc.complete(
        "Hi", temperature=2.5, max_tokens=-1, stop=list("abcde"), n=1
    )
    cell = shell.run("%%svc -t 3 --max-tokens 5\nHi")

    sent = server.bodies[0]
    assert (sent["temperature"], sent["max_tokens"]) == (2.5, -1)
    assert sent["stop"] == list("abcde")
    assert completion.notes[0].startswith("sent as it is: temperature=2.5, stop")
    assert not completion.is_cut
    assert "sent as it is: temperature=3" in cell.shown
    with pytest.raises(svc.errors.ParameterError, match="must be a number"):
        svc.complete("Hi", temperature="hot")  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(
    "asked",
    [
        {"temperature": 2.5},
        {"max_tokens": -1},
        {"stop": list("abcde")},
        {"prompt": [{"role": "developer", "content": "Hi"}]},
        {"prompt": [{"role": "user", "content": PARTS}]},
        {"prompt": [{"role": "user", "content": "Hi", "name": "me"}]},
    ],
)
def test_the_service_gets_what_its_document_shows(asked: dict[str, Any]) -> None:
    """Anything else is refused before it is sent."""
    svc.use(endpoint=svc.Emulator())

    with pytest.raises(svc.errors.ParameterError):
        svc.complete(**{"prompt": "Hi", **asked})


def test_rounds_give_back_what_a_server_wants(serve: Serve) -> None:
    """Signatures and reasoning go with the calls; `tool_choice` leaves with `tools`."""
    server = serve(_calls(extra_content=SIGNED), reply("High."))
    svc.use(base_url=server.base_url, key=False, model="m")

    completion = svc.complete(
        "Tide?",
        tools=[tide],
        max_rounds=2,
        extra={"tool_choice": "auto", "parallel_tool_calls": False, "seed": 1},
    )

    first, last = server.bodies
    _, said, _ = last["messages"]
    assert completion.text == "High."
    assert said["tool_calls"][0]["extra_content"] == SIGNED
    assert said["reasoning_content"] == "Ask the tide."
    assert said["reasoning_details"] == DETAILS
    assert first["tool_choice"] == "auto"
    assert last.keys() == {"model", "messages", "seed"}
    assert completion.notes == ()


def test_streamed_pieces_are_given_back(serve: Serve) -> None:
    """They are joined: lists piece by piece, the reasoning as its text."""
    pieces = [
        '{"reasoning_content":"Ask ","reasoning_details":[{"text":"Ask "}]}',
        '{"reasoning_content":"it.","reasoning_details":[{"text":"it."}]}',
        (
            '{"tool_calls":[{"index":0,"id":"c1","function":{"name":"tide","arguments":'
            '"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]}'
        ),
    ]
    events = [f'data: {{"choices":[{{"delta":{piece}}}]}}\n\n' for piece in pieces]
    end = 'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    body = "".join([*events, end, "data: [DONE]\n\n"]).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: "
    server = serve([head + b"%d\r\n\r\n" % len(body) + body])
    svc.use(base_url=server.base_url, key=False, model="m")

    stream = svc.stream("Tide?", tools=[svc.tool(tide).definition])
    with pytest.warns(UserWarning, match="called tide"):
        "".join(stream)
    said = stream.completion.reply

    assert said.other == {
        "reasoning_details": [{"text": "Ask "}, {"text": "it."}],
        "reasoning_content": "Ask it.",
    }
    assert said.tool_calls[0].other == {
        "extra_content": {"google": {"thought_signature": "s"}}
    }


def test_a_content_in_parts_is_read(serve: Serve) -> None:
    """The text is the reply; thoughts are its reasoning."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Moon."}]}
    parts = [thought, {"type": "text", "text": "A "}, {"type": "text", "text": "tide."}]
    server = serve(reply(content=parts))
    svc.use(base_url=server.base_url, key=False, model="m")

    completion = svc.complete("Hi")

    assert (completion.text, completion.reasoning) == ("A tide.", "Moon.")


def test_a_refusal_of_the_model_is_its_reply(serve: Serve) -> None:
    """A badge says that it declined."""
    server = serve(reply(content=None, refusal="I cannot help with that."))
    svc.use(base_url=server.base_url, key=False, model="m")

    completion = svc.complete("Hi")

    assert completion.text == "I cannot help with that."
    assert "declined" in completion.final().marks


def test_reasoning_has_a_column_and_is_folded(
    serve: Serve,
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """Frames have it apart from the reply, and a cell shows it folded."""
    server = serve(reply("A tide.", reasoning_content="The <moon> pulls."))
    use(current(), server.base_url, "no-key")

    shell.run("%%svc -m m\nHi")
    frame = svc.replies_df()
    html = svc.last().final().bundle()["text/html"]  # type: ignore[union-attr]  # it was asked

    assert frame["text"].tolist() == ["A tide."]
    assert frame["reasoning"].tolist() == ["The <moon> pulls."]
    assert "<details" in html
    assert "The &lt;moon&gt; pulls." in html
