"""A request as code to keep: Python, or a curl command.

It is made from the body that is sent. It contains no key: this package's client finds
the key by itself, and curl reads it from the environment.
"""

import json
import shlex
from collections.abc import Sequence
from pprint import pformat
from typing import Any

from svc_notebook.service.request import CompletionRequest

from .encode import encode

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
    arguments: dict[str, Any] = {"model": body.pop("model")}
    first, *other_messages = messages
    if first["role"] == "system" and other_messages:
        arguments["system"], messages = first["content"], other_messages
    arguments |= {
        "max_tokens": "service"
    } | body  # the verbs use `fit` by default; `service` sends what the body has
    if request.is_fitted:
        del arguments["max_tokens"]
    is_text = [message["role"] for message in messages] == ["user"]
    text = messages[0]["content"]
    prompt = text if is_text and text.strip() else messages
    if extra:
        arguments["extra"] = extra
    lines = [_argument_lines("", prompt)]
    lines += [_argument_lines(f"{name}=", value) for name, value in arguments.items()]
    call = f"svc.{'stream' if is_streamed else 'complete'}(\n{''.join(lines)})"
    head = f"import svc_notebook as svc\n\n{_comment_lines(notes)}"
    if not is_streamed:
        return f"{head}reply = {call}\nprint(reply)\n"
    reading_lines = (
        'for text in stream:\n    print(text, end="")\nreply = stream.completion\n'
    )
    return f"{head}stream = {call}\n{reading_lines}"


def _argument_lines(name: str, value: object) -> str:
    """Return the lines of an argument; `repr` escapes line breaks in texts."""
    lines = pformat(value, width=_WIDTH, sort_dicts=False).splitlines()
    return f"    {name}" + f"\n    {' ' * len(name)}".join(lines) + ",\n"


def _comment_lines(notes: Sequence[str]) -> str:
    return "".join(f"# {note}\n" for note in notes)


def to_curl(
    request: CompletionRequest,
    *,
    is_streamed: bool,
    url: str,
    headers: Sequence[str],
    notes: Sequence[str],
) -> str:
    """Return the command for a POSIX shell that sends a request.

    `headers` are header lines; the shell fills in variables such as `$API_KEY`.
    """
    body = encode(request, is_streamed=is_streamed).decode()
    # JSON escapes for invisible characters: the same text, but visible in a terminal
    visible_body = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in body)
    lines = "".join(f'  -H "{header}" \\\n' for header in headers)
    return (
        f"{_comment_lines(notes)}curl {'-N ' * is_streamed}{shlex.quote(url)} \\\n"
        f"{lines}"
        "  -H 'Content-Type: application/json' \\\n"
        f"  --data-raw {shlex.quote(visible_body)}\n"
    )
