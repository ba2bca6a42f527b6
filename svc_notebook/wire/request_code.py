"""A request as code to keep: Python, or a curl command.

It is made from the body that is sent, and contains no key: the client of this package
finds it, and curl reads it from the environment.
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
    first, *others = messages
    if first["role"] == "system" and others:
        arguments["system"], messages = first["content"], others
    arguments |= {"max_tokens": "service"} | body  # `fit` is what the verbs do
    if request.is_fitted:
        del arguments["max_tokens"]
    is_text = [message["role"] for message in messages] == ["user"]
    text = messages[0]["content"]
    prompt = text if is_text and text.strip() else messages
    if extra:
        arguments["extra"] = extra
    lines = [_argument("", prompt)]
    lines += [_argument(f"{name}=", value) for name, value in arguments.items()]
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
    headers: Sequence[str],
    notes: Sequence[str],
) -> str:
    """Return the command for a POSIX shell that sends a request.

    `headers` are lines in which a shell puts in variables, such as `$API_KEY`.
    """
    body = encode(request, is_streamed=is_streamed).decode()
    # what a terminal does not show is escaped; in JSON it means the same
    shown = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in body)
    lines = "".join(f'  -H "{header}" \\\n' for header in headers)
    return (
        f"{_comments(notes)}curl {'-N ' * is_streamed}{shlex.quote(url)} \\\n"
        f"{lines}"
        "  -H 'Content-Type: application/json' \\\n"
        f"  --data-raw {shlex.quote(shown)}\n"
    )
