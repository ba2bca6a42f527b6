"""A request as the bytes of its JSON body (doc: Request body).

Only requested fields are sent, and texts are sent unchanged. A value that JSON cannot
represent is refused, and the error names its location; the encoder alone would silently
turn NaN into null.
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
_WHERE_CHARS = 80  # of a location in `extra`, in a message
_ENCODER = msgspec.json.Encoder()


def encode(
    request: CompletionRequest, *, is_streamed: bool, wants_usage: bool = False
) -> bytes:
    """Return the body of a request; a value that has no JSON form is refused.

    `wants_usage` asks a server to report the usage of a stream; some servers do so.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [
            _to_json_message(message, is_documented=request.info.is_documented)
            for message in request.messages
        ],
        **request.params,
    }
    if (name := request.info.max_tokens_field) != MAX_TOKENS:
        body = {name if key == MAX_TOKENS else key: body[key] for key in body}
    if request.tools:
        body["tools"] = [
            _check_value(dict(tool), f"tools[{at}]")
            for at, tool in enumerate(request.tools)
        ]
    body |= encodable(request.extra)
    if is_streamed:
        body["stream"] = True
    options = body.get("stream_options", {})
    if is_streamed and wants_usage and isinstance(options, dict):
        body["stream_options"] = {"include_usage": True, **options}
    return _ENCODER.encode(body)


def _to_json_message(
    message: Message, *, is_documented: bool
) -> Message | dict[str, Any]:
    """Return a message as it is sent; only other servers get undocumented fields."""
    has_other = message.other or any(call.other for call in message.tool_calls)
    if not has_other and message.content is not None:
        return message
    # A null content next to tool calls is sent back as null: unchanged (doc: Message).
    fields = {"role": message.role, "content": None, **msgspec.to_builtins(message)}
    other = encodable(fields.pop("other", {}), "messages")
    for call in fields.get("tool_calls", ()):
        call_fields = encodable(call.pop("other", {}), "tool_calls")
        call.update({} if is_documented else call_fields)
    return fields if is_documented else fields | other


def encodable(extra: Mapping[str, Any], where: str = "extra") -> dict[str, Any]:
    """Return the fields of `extra`; refuse values that JSON cannot represent."""
    return {
        _check_name(name, where): _check_value(value, f"{where}[{name!r}]")
        for name, value in extra.items()
    }


def _check_value(value: Any, where: str, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Return a value if JSON represents it exactly; otherwise refuse it."""
    is_finite = isinstance(value, float) and math.isfinite(value)
    if value is None or isinstance(value, int) or is_finite:
        return value
    if isinstance(value, str):
        return _check_text(value, where)
    if depth > MAX_DEPTH:
        raise _not_json(where, f"is nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        return {
            _check_name(name, where): _check_value(
                item, f"{where}[{name!r}]", depth + 1
            )
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _check_value(item, f"{where}[{at}]", depth + 1)
            for at, item in enumerate(value)
        ]
    shown = repr(value) if isinstance(value, float) else type(value).__name__
    raise _not_json(where, f"is {shown}, which JSON cannot represent")


def _check_name(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise _not_json(where, f"has the name {name!r}, which is not a text")
    return _check_text(name, where)


def _check_text(text: str, where: str) -> str:
    return check_text(text, name=shorten(where, _WHERE_CHARS), param=_param_name(where))


def _not_json(where: str, reason: str) -> ParameterError:
    return ParameterError(
        f"{shorten(where, _WHERE_CHARS)} {reason}. Give texts, numbers, booleans, "
        "None, lists and mappings with text names.",
        param=_param_name(where),
    )


def _param_name(where: str) -> str:
    return re.match(r"\w+", where)[0]  # type: ignore[index]  # it begins with a name
