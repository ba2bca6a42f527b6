"""Playing an entry of a script: the reply that it describes.

What it is not: which entry answers, and what entries may hold, is `script`'s.

Rules for this file: what an entry leaves out is as the emulator would have sent it.

What an entry of a script may hold, checked when the script is read.

What it is not: what the keys mean is told in `script`; `play` makes the replies.

Rules for this file: an error names the entry, its field and what may stand there;
what can be checked field by field is, and then the entry is played for once.

Scripts: entries that say what the emulator answers instead of writing a text.

What it is not: `entry` checks entries, `play` makes the replies. A script changes
no rule: a request that the document refuses is refused, and uses no entry up.

Rules for this file: an entry is plain JSON, so that a script can be a file (bytes
may stand for texts in Python); a wrong entry is found when the script is read, not
when it is played; a scripted answer waits only as long as it says, and counts
against no limit.

All keys of an entry are optional; the first entry that fits and is not used up
answers; where none does, the emulator answers as ever:

    when        {"contains": text in the newest user message, "model": id,
                 "is_streamed": boolean, "role": role of the last message}
    times       how often it answers: 1 if left out, null for always
    text        the reply: a text, or a list of the pieces it is streamed in
    tool_calls  [{"name": ..., "arguments": object or text, "id": optional}]
    choices     a list of {"text", "tool_calls", "finish_reason"}, for n > 1
    finish_reason   "stop" if left out; null for none
    usage       instead of the counted one; {} for none
    error       the error body's fields, sent with `status`, 500 if left out
    json        any body, as JSON
    body        any body: a text, or a list of the pieces in which it is sent
    events      a list of event contents, each sent as `data: ...`
    raw         text written to the socket with no HTTP around it
    status      200 if left out; null for no status line and no headers
    headers     more headers; null takes one away
    before_s    seconds before the headers
    gap_s       seconds before each later piece
    cut_after   so many pieces are sent, then the connection is closed
    end         "whole", "cut" (closed), "reset" or "silent" (left open, nothing sent)
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from svc_notebook.errors import SettingsError

from .chat_request import Ask, Call, JsonObject, Message, split_tokens
from .completion_writer import EVENTS, JSON, STOP, Choice, Head, Pace, deliver
from .http_values import End, Piece, Reply, whole, write_json
from .rules import ROLES

Entry = Mapping[str, Any]
Maker = Callable[[Entry, Ask, Head], Reply]


def play(entry: Entry, ask: Ask, head: Head) -> Reply:
    """Make the reply that an entry describes.

    Args:
        entry: As `script` has checked it.
        ask: What was asked.
        head: What names the reply where the entry leaves it to the emulator.
    """
    make = next((MAKERS[key] for key in MAKERS if key in entry), _empty)
    reply = make(entry, ask, head)
    gap_s = float(entry.get("gap_s", 0.0))
    body = tuple(
        Piece(gap_s if at else 0.0, piece.data) for at, piece in enumerate(reply.body)
    )
    is_cut = "cut_after" in entry
    status = entry.get("status", reply.status)
    end = End(entry.get("end", End.CUT if is_cut else reply.end))
    return replace(
        reply,
        status=status,
        headers=_headers(reply.headers, entry.get("headers", {})),
        body=body[: entry["cut_after"]] if is_cut else body,
        # Where no HTTP was sent, closing is the only end there is.
        end=End.CUT if status is None and end is End.WHOLE else end,
        before_s=float(entry.get("before_s", 0.0)),
    )


def _empty(_entry: Entry, _ask: Ask, _head: Head) -> Reply:
    """Send no body."""
    return Reply(status=200, headers={"content-type": JSON})


def _raw(entry: Entry, _ask: Ask, _head: Head) -> Reply:
    """Write to the socket as it is, then hang up."""
    return Reply(status=None, body=_pieces(entry["raw"]), end=End.CUT)


def _error(entry: Entry, _ask: Ask, _head: Head) -> Reply:
    """Send an error body; a status given with it is put in by `play`."""
    return whole(500, write_json({"error": entry["error"]}), content_type=JSON)


def _json(entry: Entry, _ask: Ask, _head: Head) -> Reply:
    """Send any JSON."""
    return whole(200, write_json(entry["json"]), content_type=JSON)


def _body(entry: Entry, ask: Ask, _head: Head) -> Reply:
    """Send any body, piece by piece."""
    headers = {"content-type": EVENTS if ask.is_streamed else JSON}
    return Reply(status=200, headers=headers, body=_pieces(entry["body"]))


def _events(entry: Entry, _ask: Ask, _head: Head) -> Reply:
    """Send event contents: texts as they are, all else as JSON."""
    contents = [
        _bytes(each) if isinstance(each, str | bytes) else write_json(each)
        for each in entry["events"]
    ]
    body = tuple(Piece(0.0, b"data: %s\n\n" % content) for content in contents)
    return Reply(status=200, headers={"content-type": EVENTS}, body=body)


def _completion(entry: Entry, ask: Ask, head: Head) -> Reply:
    """Send a completion, whole or streamed as asked; one choice stands for all."""
    if "choices" in entry:
        choices = [_choice(each) for each in entry["choices"]]
    else:
        choices = [_choice(entry)] * ask.n
    return deliver(ask, head, choices, pace=Pace(), usage=entry.get("usage"))


# What an entry can send; it holds one of these, or text and calls together.
MAKERS: Mapping[str, Maker] = {
    "raw": _raw,
    "error": _error,
    "json": _json,
    "body": _body,
    "events": _events,
    "choices": _completion,
    "text": _completion,
    "tool_calls": _completion,
}


def _pieces(value: str | bytes | Sequence[str | bytes]) -> tuple[Piece, ...]:
    """Read one body piece or several."""
    parts = [value] if isinstance(value, str | bytes) else value
    return tuple(Piece(0.0, _bytes(part)) for part in parts)


def _bytes(part: str | bytes) -> bytes:
    """Write a text as UTF-8; bytes stay as they are."""
    return part if isinstance(part, bytes) else part.encode("utf-8", "replace")


def _headers(
    headers: Mapping[str, str], more: Mapping[str, str | None]
) -> dict[str, str]:
    """Add headers, and take away those that are null."""
    merged = {**headers, **{name.lower(): value for name, value in more.items()}}
    return {name: value for name, value in merged.items() if value is not None}


def _choice(given: Entry) -> Choice:
    """Make one choice of an entry."""
    text = given.get("text", "")
    pieces = tuple(split_tokens(text)) if isinstance(text, str) else tuple(text)
    calls = given.get("tool_calls", ())
    return Choice(
        pieces=pieces,
        finish_reason=given.get("finish_reason", STOP),
        n_tokens=len(pieces),
        tool_calls=tuple(_call(call, at) for at, call in enumerate(calls)),
    )


def _call(given: Entry, at: int) -> Call:
    """Make one tool call of an entry."""
    arguments = given.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return Call(
        id=given.get("id", f"call_{at}"), name=given["name"], arguments=arguments
    )


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


def read_script(path: str | Path) -> list[JsonObject]:
    """Read a script from a JSON file: a list of entries.

    Raises:
        SettingsError: The file cannot be read, or is not a JSON array.
    """
    try:
        # Some editors open a file with a byte order mark.
        entries = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"The script {str(path)!r} cannot be read: {error}. "
            "Give a file that holds a JSON array of entries."
        ) from None
    if not isinstance(entries, list):
        raise SettingsError(
            f"The script {str(path)!r} is no JSON array; write [{{...}}, ...]."
        )
    return entries


class Script:
    """Entries, and how often each was used; not safe without a lock around it.

    Args:
        entries: As the docstring of this module says.

    Raises:
        SettingsError: An entry cannot be played; entry and field are named.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]] = ()) -> None:
        given: object = entries
        if not isinstance(given, list | tuple):
            raise SettingsError("A script has to be a list of entries, or a path.")
        for at, entry in enumerate(entries):
            check_entry(entry, at)
        self._entries = [dict(entry) for entry in entries]
        self._left = [entry.get("times", 1) for entry in self._entries]

    def next_entry(self, ask: Ask) -> JsonObject | None:
        """Find the entry that answers, and use it up once; None if none fits."""
        for at, entry in enumerate(self._entries):
            left = self._left[at]
            if left != 0 and _fits(entry.get("when", {}), ask):
                self._left[at] = None if left is None else left - 1
                return entry
        return None


def _fits(when: Mapping[str, Any], ask: Ask) -> bool:
    """Tell whether an entry is meant for this ask."""
    return (
        when.get("contains", "") in ask.question
        and when.get("model", ask.model) == ask.model
        and when.get("is_streamed", ask.is_streamed) == ask.is_streamed
        and when.get("role", ask.messages[-1].role) == ask.messages[-1].role
    )
