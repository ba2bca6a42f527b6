"""Scripts: entries that say what the emulator answers instead of writing a text.

All keys of an entry are optional. The first entry that fits and is not used up
answers; if none does, the emulator writes a text. In Python, bytes may replace the
texts of `body`, `events` and `raw`.

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
    status      200 to 599, 200 if left out; null for no status line and no headers
    headers     more headers; null takes one away
    before_s    seconds before the headers
    gap_s       seconds before each later piece
    cut_after   send this many pieces, then close the connection
    end         "whole", "cut" (closed), "reset" or "silent" (left open, nothing sent)

A scripted answer waits only as long as its entry says, and counts against no limit.
A request that the document refuses is refused as ever and uses up no entry.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from svc_notebook.errors import SettingsError

from .chat_request import Call, ChatRequest, JsonObject, split_tokens
from .completion_writer import EVENTS, JSON, STOP, Choice, Head, Pace, deliver
from .http_values import End, Piece, Reply, whole, write_json

# As HTTP has them: the letters of a header's name and of its value.
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(
    r"[\x21-\x7e\xa1-\xff]([\t\x20-\x7e\xa1-\xff]*[\x21-\x7e\xa1-\xff])?|"
)
_NO_BODY = (204, 304)
_HELP = "`python -m pydoc svc_notebook.emulator.script` shows what an entry may hold."

T = TypeVar("T")
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class JsonBytes(bytes):
    """Any JSON value, already written."""


class EventBytes(bytes):
    """The content of an event: a text as it is, anything else as JSON."""


class Pieces(tuple[bytes, ...]):
    """The pieces in which a body is sent; a single text is one piece."""

    __slots__ = ()


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call of an entry."""

    name: str
    arguments: dict[str, Any] | str = msgspec.field(default_factory=dict)
    id: str | None = None


class ScriptedChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """What one choice of a scripted completion holds."""

    text: str | tuple[str, ...] = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | None = STOP


class When(Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests an entry answers."""

    contains: str = ""
    model: str | None = None
    is_streamed: bool | None = None
    role: Literal["system", "user", "assistant", "tool"] | None = None

    def fits(self, chat: ChatRequest) -> bool:
        """Whether a request is one of them."""
        return (
            self.contains in chat.question
            and self.model in (None, chat.model)
            and self.is_streamed in (None, chat.is_streamed)
            and self.role in (None, chat.messages[-1].role)
        )


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a script; the module's docstring explains the fields."""

    when: When = When()
    times: Annotated[int, Meta(ge=1)] | None = 1
    text: str | tuple[str, ...] | UnsetType = UNSET
    tool_calls: tuple[ScriptedCall, ...] | UnsetType = UNSET
    choices: tuple[ScriptedChoice, ...] | UnsetType = UNSET
    finish_reason: str | None = STOP
    usage: dict[str, Any] | None = None
    error: JsonBytes | UnsetType = UNSET
    json: JsonBytes | UnsetType = UNSET
    body: Pieces | UnsetType = UNSET
    events: tuple[EventBytes, ...] | UnsetType = UNSET
    raw: Pieces | UnsetType = UNSET
    status: Annotated[int, Meta(ge=200, le=599)] | UnsetType | None = UNSET
    headers: dict[str, str | None] = msgspec.field(default_factory=dict)
    before_s: Seconds = 0.0
    gap_s: Seconds = 0.0
    cut_after: Annotated[int, Meta(ge=0)] | None = None
    end: End | None = None

    def __post_init__(self) -> None:
        """Check what concerns several fields, and that HTTP can carry the headers."""
        kinds = ("raw", "error", "json", "body", "events", "choices", "text")
        given = [kind for kind in kinds if getattr(self, kind) is not UNSET]
        if self.tool_calls is not UNSET and given != ["text"]:
            given.append("tool_calls")
        if len(given) > 1:
            raise ValueError(f"{given[0]!r} and {given[1]!r} exclude each other")
        if self.status in _NO_BODY and given:
            raise ValueError(f"a reply of status {self.status} has no body")
        for name, value in self.headers.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value or "")):
                raise ValueError(
                    f"the header {name!r} needs a name of letters, digits and -, and a "
                    "value of one line without spaces around it"
                )


def read_script(path: str | Path) -> list[JsonObject]:
    """Read a script from a JSON file: a list of entries."""
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
            f"The script {str(path)!r} is not a JSON array; write [{{...}}, ...]."
        )
    return entries


class Script:
    """Entries, and how often each was used; not safe without a lock around it."""

    def __init__(self, entries: Sequence[Mapping[str, Any]] = ()) -> None:
        given: object = entries
        if not isinstance(given, list | tuple):
            raise SettingsError("A script must be a list of entries, or a path.")
        self._entries = [_entry(each, at) for at, each in enumerate(entries)]
        self._left = [entry.times for entry in self._entries]

    def next_entry(self, chat: ChatRequest) -> Entry | None:
        """Return the entry that answers, and count its use; None if none fits."""
        for at, entry in enumerate(self._entries):
            left = self._left[at]
            if left != 0 and entry.when.fits(chat):
                self._left[at] = None if left is None else left - 1
                return entry
        return None


def _entry(given: object, at: int) -> Entry:
    try:
        return msgspec.convert(given, Entry, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"Entry {at} of the script cannot be used: {error}. {_HELP}"
        ) from None


def _read(type_: type[T], value: object) -> T:
    """Read a value of one of the types that msgspec does not know."""
    if type_ is Pieces:
        parts = value if isinstance(value, list | tuple) else (value,)
        return type_(map(_to_bytes, parts))  # type: ignore[call-arg]  # it is Pieces
    is_text = type_ is EventBytes and isinstance(value, str | bytes)
    try:
        return type_(_to_bytes(value) if is_text else write_json(value))  # type: ignore[call-arg]  # they are bytes
    except (TypeError, RecursionError):
        raise ValueError("Expected JSON") from None


def _to_bytes(part: object) -> bytes:
    """Write a text as UTF-8; bytes stay as they are."""
    if not isinstance(part, str | bytes):
        raise ValueError("Expected a text or a list of texts")  # noqa: TRY004 - msgspec adds the path to a ValueError
    return part if isinstance(part, bytes) else part.encode("utf-8", "replace")


def play(entry: Entry, chat: ChatRequest, head: Head) -> Reply:
    """Make the reply that an entry describes."""
    if entry.raw is UNSET:
        reply = _content(entry, chat, head)
    else:
        reply = Reply(status=None, body=_pieces(entry.raw), end=End.CUT)
    status = reply.status if entry.status is UNSET else entry.status
    is_cut = entry.cut_after is not None
    end = entry.end or (End.CUT if is_cut else reply.end)
    changed = {name.lower(): value for name, value in entry.headers.items()}
    headers = {**reply.headers, **changed}
    return replace(
        reply,
        status=status,
        headers={name: value for name, value in headers.items() if value is not None},
        body=tuple(
            Piece(entry.gap_s if at else 0.0, piece.data)
            for at, piece in enumerate(reply.body[: entry.cut_after])
        ),
        # Without HTTP, closing is the only end there is.
        end=End.CUT if status is None and end is End.WHOLE else end,
        before_s=entry.before_s,
    )


def _content(entry: Entry, chat: ChatRequest, head: Head) -> Reply:
    if entry.error is not UNSET:
        return whole(500, b'{"error":%s}' % entry.error, content_type=JSON)
    if entry.json is not UNSET:
        return whole(200, bytes(entry.json), content_type=JSON)
    kind = {"content-type": EVENTS if chat.is_streamed else JSON}
    if entry.body is not UNSET:
        return Reply(status=200, headers=kind, body=_pieces(entry.body))
    if entry.events is not UNSET:
        body = _pieces(b"data: %s\n\n" % each for each in entry.events)
        return Reply(status=200, headers={"content-type": EVENTS}, body=body)
    if entry.choices is not UNSET:
        choices = [_choice(each) for each in entry.choices]
    elif entry.text is UNSET and entry.tool_calls is UNSET:
        return Reply(status=200, headers={"content-type": JSON})
    else:
        only = ScriptedChoice(
            text="" if entry.text is UNSET else entry.text,
            tool_calls=() if entry.tool_calls is UNSET else entry.tool_calls,
            finish_reason=entry.finish_reason,
        )
        choices = [_choice(only)] * chat.n
    return deliver(chat, head, choices, pace=Pace(), usage=entry.usage)


def _pieces(parts: Iterable[bytes]) -> tuple[Piece, ...]:
    return tuple(Piece(0.0, part) for part in parts)


def _choice(given: ScriptedChoice) -> Choice:
    text = given.text
    pieces = tuple(split_tokens(text)) if isinstance(text, str) else text
    return Choice(
        pieces=pieces,
        finish_reason=given.finish_reason,
        n_tokens=len(pieces),
        tool_calls=tuple(_call(call, at) for at, call in enumerate(given.tool_calls)),
    )


def _call(given: ScriptedCall, at: int) -> Call:
    arguments = given.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    id_ = f"call_{at}" if given.id is None else given.id
    return Call(id=id_, name=given.name, arguments=arguments)
