"""What an entry of a script may hold, checked when the script is read.

What it is not: what the keys mean is told in `script`; `play` makes the replies.

Rules for this file: an error names the entry, its field and what may stand there;
what can be checked field by field is, and then the entry is played for once.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from svc_notebook.errors import SettingsError

from .ask import Ask, Message
from .completion import Head
from .history import ROLES
from .play import MAKERS, play
from .reply import End, Reply

Test = Callable[[Any], bool]

# As HTTP has them: a reply's final status, and the letters of a header.
_STATUS_MIN, _STATUS_MAX = 200, 599
_NO_BODY = (204, 304)
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(
    r"[\x21-\x7e\xa1-\xff]([\t\x20-\x7e\xa1-\xff]*[\x21-\x7e\xa1-\xff])?|"
)
# An ask to play every entry for once.
_REHEARSAL = Ask(
    model="svc",
    messages=(Message(role="user"),),
    max_tokens=1,
    temperature=0.0,
    top_p=1.0,
    n=1,
    is_streamed=False,
    stop=(),
    presence_penalty=0.0,
    frequency_penalty=0.0,
    repetition_penalty=1.0,
    user=None,
    tools=(),
    n_prompt_tokens=0,
)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return _is_text(value) or (_is_list(value) and all(map(_is_text, value)))


def _is_bytes(value: object) -> bool:
    return isinstance(value, str | bytes)


def _is_pieces(value: object) -> bool:
    return _is_bytes(value) or (_is_list(value) and all(map(_is_bytes, value)))


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_count(value: object, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def _is_status(value: object) -> bool:
    return value is None or (
        _is_count(value, _STATUS_MIN) and not _is_count(value, _STATUS_MAX + 1)
    )


def _is_arguments(value: object) -> bool:
    return isinstance(value, str | Mapping)


# What each field has to be, and how that is told. A field without a test is JSON.
_Fields = Mapping[str, tuple[Test | None, str]]
_TEXT_OR_NULL = (lambda value: value is None or _is_text(value), "a text or null")
_CALL: _Fields = {
    "name": (_is_text, "a text"),
    "arguments": (_is_arguments, "an object or a text"),
    "id": (_is_text, "a text"),
}
_CHOICE: _Fields = {
    "text": (_is_texts, "a text or a list of texts"),
    "tool_calls": (_is_list, "a list of objects"),
    "finish_reason": _TEXT_OR_NULL,
}
_WHEN: _Fields = {
    "contains": (_is_text, "a text"),
    "model": (_is_text, "a text"),
    "is_streamed": (lambda value: isinstance(value, bool), "true or false"),
    "role": (lambda value: value in ROLES, f"one of {', '.join(ROLES)}"),
}
_ENTRY: _Fields = {
    **_CHOICE,
    "when": (lambda value: isinstance(value, Mapping), "an object"),
    "times": (
        lambda value: value is None or _is_count(value, 1),
        "an integer of 1 or more, or null for always",
    ),
    "choices": (_is_list, "a list of objects"),
    "usage": (lambda value: isinstance(value, Mapping), "an object"),
    "error": (None, "JSON"),
    "json": (None, "JSON"),
    "body": (_is_pieces, "a text or a list of texts"),
    "events": (_is_list, "a list"),
    "raw": (_is_pieces, "a text or a list of texts"),
    "status": (_is_status, f"from {_STATUS_MIN} to {_STATUS_MAX}, or null for none"),
    "headers": (lambda value: isinstance(value, Mapping), "an object"),
    "before_s": (_is_seconds, "seconds, 0 or more"),
    "gap_s": (_is_seconds, "seconds, 0 or more"),
    "cut_after": (_is_count, "an integer of 0 or more"),
    "end": (lambda value: value in list(End), f"one of {', '.join(End)}"),
}


def check_entry(entry: object, at: int) -> None:
    """Find out now whether an entry can be played.

    Args:
        entry: As the docstring of `script` says.
        at: Its number, from 0.

    Raises:
        SettingsError: It cannot; entry and field are named.
    """
    where = f"Entry {at} of the script"
    fields = _checked(entry, _ENTRY, where)
    _checked(fields.get("when", {}), _WHEN, f"{where}, in 'when'")
    _check_choice(fields, where)
    for nth, choice in enumerate(fields.get("choices", ())):
        inside = f"{where}, in 'choices'[{nth}]"
        _check_choice(_checked(choice, _CHOICE, inside), inside)
    _check_headers(fields.get("headers", {}), where)
    contents = [key for key in MAKERS if key in fields]
    if len(contents) > 1 and contents != ["text", "tool_calls"]:
        raise SettingsError(
            f"{where} holds both {contents[0]!r} and {contents[1]!r}; keep one."
        )
    _rehearse(fields, where)


def _checked(value: object, fields: _Fields, where: str) -> Mapping[str, Any]:
    """Check an object field by field."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} is no object; write {{...}}.")
    for key, field in value.items():
        if key not in fields:
            raise SettingsError(
                f"{where} holds {key!r}, which is not known; known are "
                f"{', '.join(sorted(fields))}."
            )
        fits, wanted = fields[key]
        if fits is not None and not fits(field):
            raise SettingsError(
                f"{where} holds a {key!r} that cannot be played; it has to be {wanted}."
            )
    return value


def _check_choice(choice: Mapping[str, Any], where: str) -> None:
    """Check the tool calls of an entry or of one of its choices."""
    for nth, call in enumerate(choice.get("tool_calls", ())):
        inside = f"{where}, in 'tool_calls'[{nth}]"
        if not _checked(call, _CALL, inside).get("name"):
            raise SettingsError(f"{inside} has no 'name'; name the tool to call.")


def _check_headers(headers: Mapping[object, object], where: str) -> None:
    """Check that headers can be sent as HTTP has them."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SettingsError(
                f"{where} holds 'headers' with the name {name!r}, which cannot be "
                "sent; use letters, digits and -."
            )
        is_sendable = isinstance(value, str) and _VALUE.fullmatch(value)
        if value is not None and not is_sendable:
            raise SettingsError(
                f"{where} holds a {name!r} in 'headers' that cannot be sent; it has to "
                "be a text of one line without blanks around it, or null."
            )


def _rehearse(entry: Mapping[str, Any], where: str) -> None:
    """Play an entry, whole and streamed."""
    head = Head(id="cmpl-0", created=0, model="svc")
    names = " and ".join(repr(key) for key in (*MAKERS, "usage") if key in entry)
    for is_streamed in (False, True):
        try:
            reply = play(entry, replace(_REHEARSAL, is_streamed=is_streamed), head)
        except (TypeError, ValueError, LookupError, RecursionError) as error:
            raise SettingsError(
                f"{where} holds {names} that cannot be played "
                f"({type(error).__name__}); it has to be JSON in UTF-8."
            ) from None
        _check_length(reply, where)


def _check_length(reply: Reply, where: str) -> None:
    """Check that HTTP can carry the body; it may be shorter than told, not longer."""
    n_bytes = sum(len(piece.data) for piece in reply.body)
    if reply.status in _NO_BODY and n_bytes:
        raise SettingsError(
            f"{where} holds the 'status' {reply.status}, which carries no body; leave "
            "the body out."
        )
    told = reply.headers.get("content-length")
    if told is not None and not (told.isdecimal() and int(told) >= n_bytes):
        raise SettingsError(
            f"{where} holds a 'content-length' in 'headers' that cannot be sent; its "
            f"body has {n_bytes} bytes."
        )
