"""Echoes of the key: kept out of what is sent, said and recorded.

What it is not: it does not know how a key is found in a text (see `credentials`).
Rules: looked for in what was decoded, never in raw bytes; what an error says is
blotted wherever it holds a part of the key, a reply only where it holds all of it.
"""

from msgspec.structs import replace

from svc_notebook.credentials import Key
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.completion import Choice, CompletionBody
from svc_notebook.service.tool import FunctionCall, ToolCall


def refuse_key(body: bytes, key: Key) -> None:
    """See to it that a request does not hold the key that it is sent with.

    Args:
        body: The request as JSON.
        key: The key at hand.

    Raises:
        ParameterError: The key stands in it.
    """
    if not key.is_in(body.decode()):
        return
    raise ParameterError(
        "The API key stands in the request: in the prompt, an earlier message or a "
        "parameter. It was not sent, since a key is sent in a header only and is kept "
        "in no record. Take it out and ask again (doc: Authentication)."
    )


def hide_in_error(error: SvcError, key: Key) -> None:
    """Blot the key out of everything an error says, should the service echo it."""
    error.args = tuple(
        key.hide(each) if isinstance(each, str) else each for each in error.args
    )
    for name, value in vars(error).items():
        if isinstance(value, str):
            setattr(error, name, key.hide(value))


def without_key(
    body: CompletionBody | None, key: Key, *, model: str
) -> CompletionBody | None:
    """Return what came back without the key, should the service echo it.

    Args:
        body: What came back, if anything.
        key: The key it was asked with.
        model: The model asked, whose id is no echo.
    """
    if body is None:
        return None
    return replace(
        body,
        id=_hidden(body.id, key),
        model=body.model if body.model == model else _hidden(body.model, key),
        choices=tuple(_choice(each, key) for each in body.choices),
    )


def _choice(choice: Choice, key: Key) -> Choice:
    return replace(
        choice,
        text=None if choice.text is None else key.hide_whole(choice.text),
        tool_calls=tuple(_call(each, key) for each in choice.tool_calls),
        finish_reason=_hidden(choice.finish_reason, key),
    )


def _call(call: ToolCall, key: Key) -> ToolCall:
    """Return a call; its name and id are told back, so a part of a key may stay."""
    function = FunctionCall(
        name=key.hide_whole(call.function.name),
        arguments=key.hide_whole(call.function.arguments),
    )
    return replace(call, id=key.hide_whole(call.id), function=function)


def _hidden(text: str | None, key: Key) -> str | None:
    return None if text is None else key.hide(text)
