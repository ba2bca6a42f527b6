"""A request as the bytes of its JSON body, or as code to keep (doc: Request body).

Only what was asked for is sent, and texts go byte for byte. What JSON cannot represent
is refused by its place, because the encoder would turn NaN into null silently. Code,
Python or a curl command, is made from the same body and reads the key from the
environment.
"""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import check_text, shorten
from svc_notebook.service.request import CompletionRequest

MAX_DEPTH = 64
_WHERE_CHARS = 80
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
            # Null content with tool calls is sent back as null.
            {"role": each.role, "content": None, **msgspec.to_builtins(each)}
            if each.content is None
            else each
            for each in request.messages
        ],
        **request.params,
    }
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


def encodable(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `extra`, or refuse what has no JSON form."""
    return {
        _checked_name(name, "extra"): _checked(value, f"extra[{name!r}]")
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
            _checked_name(name, where): _checked(each, f"{where}[{name!r}]", depth + 1)
            for name, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _checked(each, f"{where}[{at}]", depth + 1) for at, each in enumerate(value)
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
    return "tools" if where.startswith("tools") else "extra"


_WIDTH = 80


def to_python(
    request: CompletionRequest, *, is_streamed: bool, notes: Sequence[str]
) -> str:
    """Return the call of `svc.complete` or `svc.stream` that sends a request.

    `notes` are comments, such as where it was sent.
    """
    body: dict[str, Any] = json.loads(encode(request, is_streamed=False))
    extra = {name: body.pop(name) for name in request.extra}
    messages = body.pop("messages")
    given: dict[str, Any] = {"model": body.pop("model")}
    first, *others = messages
    if first["role"] == "system" and others:
        given["system"], messages = first["content"], others
    given |= {"max_tokens": "service"} | body  # `fit` is what the verbs do
    if request.is_fitted:
        del given["max_tokens"]
    is_text = [each["role"] for each in messages] == ["user"]
    text = messages[0]["content"]
    prompt = text if is_text and text.strip() else messages
    if extra:
        given["extra"] = extra
    lines = [_argument("", prompt)]
    lines += [_argument(f"{name}=", value) for name, value in given.items()]
    call = f"svc.{'stream' if is_streamed else 'complete'}(\n{''.join(lines)})"
    head = f"import svc_notebook as svc\n\n{_comments(notes)}"
    if not is_streamed:
        return f"{head}reply = {call}\nprint(reply)\n"
    shown = 'for text in stream:\n    print(text, end="")\nreply = stream.completion\n'
    return f"{head}stream = {call}\n{shown}"


def _argument(name: str, value: object) -> str:
    """Write an argument; `repr` leaves no line break or control character in a text."""
    lines = pformat(value, width=_WIDTH, sort_dicts=False).splitlines()
    return f"    {name}" + f"\n    {' ' * len(name)}".join(lines) + ",\n"


def _comments(notes: Sequence[str]) -> str:
    return "".join(f"# {note}\n" for note in notes)


def to_curl(
    request: CompletionRequest,
    *,
    is_streamed: bool,
    url: str,
    key_variable: str,
    notes: Sequence[str],
) -> str:
    """Return the command for a POSIX shell that sends a request.

    `key_variable` is the environment variable with the key; "" for no key.
    """
    body = encode(request, is_streamed=is_streamed).decode()
    # what a terminal does not show is escaped; in JSON it means the same
    shown = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in body)
    key = f'  -H "Authorization: Bearer ${key_variable}" \\\n' if key_variable else ""
    return (
        f"{_comments(notes)}curl {'-N ' * is_streamed}{shlex.quote(url)} \\\n"
        f"{key}"
        "  -H 'Content-Type: application/json' \\\n"
        f"  --data-raw {shlex.quote(shown)}\n"
    )
