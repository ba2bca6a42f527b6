"""Messages and requests, checked when they are made."""

from typing import Any

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.service.request import (
    FunctionCall,
    Message,
    ToolCall,
    assistant,
    build_request,
    system,
    to_messages,
    user,
)

MADE = ToolCall(id="c", function=FunctionCall(name="f", arguments="{ }"))


def test_a_text_is_one_user_message() -> None:
    """A text becomes a user message, behind the system message if there is one."""
    got = [to_messages("Hi"), to_messages("Hi", system="S")]

    assert got == [(user("Hi"),), (system("S"), user("Hi"))]


WRONG: list[Any] = [
    *([], None, 5, b"text", {"role": "user", "content": "x"}, iter(())),
    [5],
    [None],
    [{}],
    [{"role": "user"}],
    [{"content": "x"}],
    [{"role": "robot", "content": "x"}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    [{"role": "user", "content": "x", "nmae": "y"}],
    [{"role": "user", "content": "\ud800"}],
    [{"role": "assistant", "content": None, "tool_calls": [5]}],
    [{"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}],
    [{"role": "assistant", "content": None, "tool_calls": []}],
]


@pytest.mark.parametrize("value", WRONG)
def test_what_are_no_messages(value: Any) -> None:  # noqa: ANN401 - anything
    """What the document does not allow is refused before anything is sent."""
    with pytest.raises(ParameterError) as caught:
        to_messages(value)

    assert caught.value.param == "messages"


def test_a_request_tells_system_and_prompt() -> None:
    """The first system message and the newest user message are at hand."""
    request = build_request(
        [user("one"), assistant("a"), user("two")], model=" m ", system="S"
    )

    assert (request.model, request.system, request.prompt) == ("m", "S", "two")
    assert build_request([assistant("a")], model="m").prompt == ""
    assert build_request("x", model="m").system is None


@pytest.mark.parametrize(
    "name", ["temperature", "model", "messages", "stream", "tools"]
)
def test_extra_hides_no_parameter(name: str) -> None:
    """A documented field is given by its own name, so that it is checked."""
    with pytest.raises(ParameterError, match=name):
        build_request("Hi", model="m", params={"extra": {name: 1}})


def test_a_call_that_was_read_is_kept() -> None:
    """A call out of a completion goes back as it is."""
    (message,) = to_messages(
        [{"role": "assistant", "content": "", "tool_calls": [MADE]}]
    )

    assert message == Message(role="assistant", content="", tool_calls=(MADE,))


@pytest.mark.parametrize("given", [print, [print]])
def test_a_function_is_no_definition(given: object) -> None:
    """The error for a function says how it becomes a definition."""
    with pytest.raises(ParameterError) as caught:
        build_request("Hello", model="svc-instruct", params={"tools": given})

    assert "svc.tool(...).definition" in str(caught.value)
    assert "use `complete`, which runs functions" in str(caught.value)


@pytest.mark.parametrize("model", ["", "  ", None, 5, "\ud800"], ids=repr)
def test_what_is_no_model(model: Any) -> None:  # noqa: ANN401 - anything
    """A model is a text; an id that is not listed is sent."""
    with pytest.raises(ParameterError) as caught:
        build_request("Hi", model=model)

    assert caught.value.param == "model"


@pytest.mark.parametrize("function", [None, {}, {"name": 5}, "f"], ids=repr)
def test_what_is_no_tool_definition(function: Any) -> None:  # noqa: ANN401 - anything
    """A definition needs a function with a name."""
    tool = {"type": "function", "function": function}

    with pytest.raises(ParameterError, match="name") as caught:
        build_request("Hi", model="m", params={"tools": [tool]})

    assert caught.value.param == "tools"
