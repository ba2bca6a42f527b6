"""What a reply of another server says of itself, and what is found by trying once."""

import json

import pytest

import svc_notebook as svc
from svc_notebook.display.reply_footer import other_model
from tests.magics.conftest import Shell, ipython, shell  # noqa: F401 - fixtures
from tests.panels.conftest import OpenPage, open_page  # noqa: F401 - a fixture

from .stub_server import Serve, reply, written

REFUSED = written(
    {"error": {"message": "Unrecognized request argument supplied: stream_options"}},
    400,
)
CONTEXT = written(
    {"error": {"message": "This model's maximum context length is 1000 tokens."}}, 400
)


def _streamed(*chunks: object) -> list[bytes]:
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    text = f"{body}data: [DONE]\n\n".encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: "
    return [head + b"%d\r\n\r\n" % len(text) + text]


TEXT = {"choices": [{"index": 0, "delta": {"content": "Yes."}}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}


def test_streams_are_asked_for_their_tokens(serve: Serve) -> None:
    """A server that takes the option reports them."""
    server = serve(_streamed(TEXT, END, USAGE))
    svc.use(base_url=server.base_url, key=False, model="m")

    stream = svc.stream("Hi")
    "".join(stream)

    assert server.bodies[0]["stream_options"] == {"include_usage": True}
    assert stream.completion.usage_source == "reported"


def test_a_server_that_refuses_the_option_is_asked_without_it(serve: Serve) -> None:
    """It is found once; the reply comes all the same, and its footer has estimates."""
    server = serve(REFUSED, _streamed(TEXT, END))
    svc.use(base_url=server.base_url, key=False, model="m")

    for _ in range(2):
        stream = svc.stream("Hi")
        assert "".join(stream) == "Yes."

    asked = ["stream_options" in body for body in server.bodies]
    assert asked == [True, False, False]
    assert "~5 → ~2 tokens" in repr(stream.completion)


def test_a_setting_decides_it(serve: Serve) -> None:
    """Then nothing is tried."""
    server = serve(_streamed(TEXT, END))
    svc.use(base_url=server.base_url, key=False, model="m", stream_usage=False)

    "".join(svc.stream("Hi"))

    assert "stream_options" not in server.bodies[0]


@pytest.mark.parametrize(
    ("asked", "answered", "is_other"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", False),
        ("gpt-4o", "gpt-4o-mini", True),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", True),
        ("openai/gpt-4o", "gpt-4o-2024-08-06", False),
        ("qwen3", "qwen3:latest", False),
        ("claude-sonnet-4", "claude-sonnet-4-20250514", False),
        ("a", "b", True),
        ("a", None, False),
    ],
)
def test_a_snapshot_is_not_another_model(
    asked: str, answered: str | None, is_other: bool
) -> None:
    """A date or a version behind the name is the same model."""
    assert bool(other_model(asked, answered)) is is_other


def test_another_model_is_named_in_the_repr(serve: Serve) -> None:
    """As it is below a cell."""
    server = serve(reply())
    svc.use(base_url=server.base_url, key=False, model="tide")

    assert "answered by m" in repr(svc.complete("Hi"))


@pytest.mark.parametrize(("tokens", "mark"), [(11, ""), (12, "probably cut"), (20, "")])
def test_tokens_above_the_limit_are_no_sign_of_a_cut(
    serve: Serve, tokens: int, mark: str
) -> None:
    """A server that reports more than it was allowed counts something else."""
    server = serve(reply(tokens=tokens))
    svc.use(base_url=server.base_url, key=False, model="m")

    completion = svc.complete("Hi", max_tokens=12)

    assert completion.is_cut is bool(mark)
    assert completion.final().marks == ((mark,) if mark else ())
    assert svc.replies_df()["is_cut"].tolist() == [bool(mark)]


def test_a_conversation_shortens_itself_once(serve: Serve) -> None:
    """A refusal that names the context is followed by a request that fits."""
    server = serve(reply(), CONTEXT, reply("Short."))
    svc.use(base_url=server.base_url, key=False, model="m")
    talk = svc.conversation("long")
    talk.ask("word " * 900)

    with pytest.warns(RuntimeWarning, match="left out to fit"):
        completion = talk.ask("And now? " * 20)

    assert completion.text == "Short."
    assert [len(body["messages"]) for body in server.bodies] == [1, 3, 1]
    assert len(talk.turns) == 2


def test_a_cell_shortens_its_conversation_once(
    serve: Serve,
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """The cell has one reply, whose footer says what was left out."""
    server = serve(reply(), CONTEXT, reply("Short."))
    svc.use(base_url=server.base_url, key=False, model="m")
    shell.run("%%svc -c long\n" + "word " * 900)

    cell = shell.run("%%svc -c long\n" + "And now? " * 20)

    assert cell.error is None
    assert cell.shown.count("Short.") == 1
    assert "left out to fit the limit: the oldest turn" in cell.shown
    assert [len(body["messages"]) for body in server.bodies] == [1, 3, 1]
    assert len(svc.conversation("long").turns) == 2


def test_a_panel_shortens_its_conversation_once(
    serve: Serve,
    open_page: OpenPage,  # noqa: F811 - the fixture
) -> None:
    """The turn has the reply, and the notice says what was left out."""
    server = serve(reply(), CONTEXT, reply("Short."))
    svc.use(base_url=server.base_url, key=False, model="m")
    page = open_page("long")
    page.ask("word " * 900)

    view = page.do("send", text="And now? " * 20)

    assert [len(body["messages"]) for body in server.bodies] == [1, 3, 1]
    assert len(svc.conversation("long").turns) == 2
    assert svc.conversation("long").turns[1].version.replies[0].content == "Short."
    assert "Left out to fit the limit" in view["notice"]


def test_a_conversation_is_not_asked_again_in_vain(serve: Serve) -> None:
    """Where nothing can be left out, the refusal is raised."""
    server = serve(CONTEXT)
    svc.use(base_url=server.base_url, key=False, model="m")

    with pytest.raises(svc.errors.BadRequestError, match="takes 1000 tokens"):
        svc.conversation("one").ask("word " * 900)

    assert len(server.bodies) == 1
