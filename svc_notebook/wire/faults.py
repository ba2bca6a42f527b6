"""Error bodies of every shape, read as the document's (doc: Error body).

What it is not: it does not decide what a status means (see `service.fault`).
Rules: pure; never fails, since an error that cannot be read is still an error;
the service's words stay verbatim; a page of HTML is named, not shown.
"""

import json
from typing import Any

from svc_notebook.service.fault import Fault
from svc_notebook.service.message import printable

from .text import HEAD_CHARS, mend

_PAGE = "(a page of HTML instead of an error body)"


def decode_fault(body: bytes) -> Fault:
    """Read what can be read of an error body."""
    text = body.decode("utf-8-sig", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Fault(message=_as_plain(text))
    return fault_of(value)


def is_complaint(body: bytes) -> bool:
    """Say whether an event without choices is an error body in all but name."""
    try:
        value = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    return value.get("type") == "error" or any(map(value.get, ("errors", *_MESSAGES)))


def fault_of(value: object) -> Fault:
    """Read an error body that is JSON, documented or not."""
    if isinstance(value, list):
        value = next((each for each in value if isinstance(each, dict)), str(value))
    if not isinstance(value, dict):
        return Fault(message=_text(value) or "")
    error = value.get("error") or value.get("errors")
    if error is None or isinstance(error, bool):
        error = value
    if isinstance(error, list):
        error = next((each for each in error if isinstance(each, dict)), str(error))
    if not isinstance(error, dict):
        error = {"message": error}
    said = next((error[name] for name in _MESSAGES if error.get(name)), None)
    return Fault(
        message=_words(said),
        type=_text(error.get("type")),
        param=_text(error.get("param")),
        code=_text(error.get("code")),
    )


def _words(said: object) -> str:
    text = _details(said) if isinstance(said, list) else _text(said) or ""
    return _PAGE if text[:HEAD_CHARS].lstrip()[:1] == "<" else text


_MESSAGES = ("message", "detail", "error_description", "msg")


def _details(each_said: list[Any]) -> str:
    """Put a list of complaints, each perhaps with its place, into one line."""
    lines = []
    for said in each_said:
        if isinstance(said, dict) and "msg" in said:
            where = said.get("loc")
            parts = where if isinstance(where, list) else [where]
            place = ".".join(str(part) for part in parts if part is not None)
            lines.append(f"{place}: {said['msg']}" if place else str(said["msg"]))
        else:
            lines.append(_text(said) or "")
    return mend("; ".join(lines))


def _text(value: object) -> str | None:
    if value is None:
        return None
    return mend(value if isinstance(value, str) else json.dumps(value))


def _as_plain(text: str) -> str:
    start = text[:HEAD_CHARS].strip()
    if start.startswith("<"):
        return _PAGE
    return printable(start)
