"""A request as the bytes of its JSON body (doc: Request body).

Only what was asked for is sent, and texts go byte for byte. What JSON cannot represent
is refused by its place, because the encoder would turn NaN into null silently.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import MAX_TOKENS
from svc_notebook.service.params import check_text, shorten
from svc_notebook.service.request import CompletionRequest, Message

MAX_DEPTH = 64  # deeper than any schema of a tool, and far from the recursion limit
_WHERE_CHARS = 80  # of a place in `extra`, in a message
_ENCODER = msgspec.json.Encoder()


def encode(
    request: CompletionRequest, *, is_streamed: bool, wants_usage: bool = False
) -> bytes:
    """Return the body of a request; a value that has no JSON form is refused.

    `wants_usage` asks for the tokens of a stream, which some servers then report.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [
            _message(message, is_documented=request.info.is_documented)
            for message in request.messages
        ],
        **request.params,
    }
    if (name := request.info.max_tokens_field) != MAX_TOKENS:
        body = {name if key == MAX_TOKENS else key: body[key] for key in body}
    if request.tools:
        body["tools"] = [
            _checked(dict(tool), f"tools[{at}]")
            for at, tool in enumerate(request.tools)
        ]
    body |= encodable(request.extra)
    if is_streamed:
        body["stream"] = True
    options = body.get("stream_options", {})
    if is_streamed and wants_usage and isinstance(options, dict):
        body["stream_options"] = {"include_usage": True, **options}
    return _ENCODER.encode(body)


def _message(message: Message, *, is_documented: bool) -> Message | dict[str, Any]:
    """Return a message as it is sent: to the service as documented, else as it is."""
    has_other = message.other or any(call.other for call in message.tool_calls)
    if not has_other and message.content is not None:
        return message
    # Null content with tool calls is sent back as null.
    fields = {"role": message.role, "content": None, **msgspec.to_builtins(message)}
    other = encodable(fields.pop("other", {}), "messages")
    for call in fields.get("tool_calls", ()):
        of_call = encodable(call.pop("other", {}), "tool_calls")
        call.update({} if is_documented else of_call)
    return fields if is_documented else fields | other


def encodable(extra: Mapping[str, Any], where: str = "extra") -> dict[str, Any]:
    """Return the fields of `extra`, or refuse what has no JSON form."""
    return {
        _checked_name(name, where): _checked(value, f"{where}[{name!r}]")
        for name, value in extra.items()
    }


def _checked(value: Any, where: str, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Return the value if JSON can carry it without change."""
    is_finite = isinstance(value, float) and math.isfinite(value)
    if value is None or isinstance(value, int) or is_finite:
        return value
    if isinstance(value, str):
        return _checked_text(value, where)
    if depth > MAX_DEPTH:
        raise _refused(where, f"is nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        return {
            _checked_name(name, where): _checked(item, f"{where}[{name!r}]", depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _checked(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)
        ]
    shown = repr(value) if isinstance(value, float) else type(value).__name__
    raise _refused(where, f"is {shown}, which JSON cannot represent")


def _checked_name(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise _refused(where, f"has the name {name!r}, which is not a text")
    return _checked_text(name, where)


def _checked_text(text: str, where: str) -> str:
    return check_text(text, name=shorten(where, _WHERE_CHARS), param=_param(where))


def _refused(where: str, reason: str) -> ParameterError:
    return ParameterError(
        f"{shorten(where, _WHERE_CHARS)} {reason}. Give texts, numbers, booleans, "
        "None, lists and mappings with text names.",
        param=_param(where),
    )


def _param(where: str) -> str:
    return re.match(r"\w+", where)[0]  # type: ignore[index]  # it begins with a name
