"""Scripts: entries with answers that the emulator gives instead of its own.

A script is a list of entries, or {"entries": [...], "defaults": {...}}, where
`defaults` has values for keys that an entry leaves out. A JSON file has the same form.
All keys of an entry are optional. The first entry that fits a request and is not used
up answers it; if there is none, the emulator answers by itself. In Python, `body`,
`events` and `raw` may be bytes instead of texts.

    when        which requests the entry answers; see below
    times       how often it answers: 1 if left out, null for always
    every       it answers only every n-th request that fits: with 5 the 5th, the 10th
                and so on
    share       it answers only this share of the requests that fit, drawn by chance:
                with 0.2 about one in five. The emulator's `seed` decides which, in any
                order of the requests; a request that is sent again is drawn again
    note        a note shown with the reply, such as "written by hand"; without it, the
                reply is only marked as the emulator's
    text        the reply: a text, or a list of the pieces in which it is streamed
    tool_calls  [{"name": ..., "arguments": object or text, "id": optional}]
    judge       the verdict of a judge for `run.judge`: "fair" judges by `good` words,
                "order" prefers the reply shown first, "style" prefers Markdown,
                "length" prefers many words; in a tie by the `good` words
    good        with judge: the words that make a reply good, such as ["refund"];
                without them, the quality is random, but always the same for the same
                words
    choices     a list of {"text", "tool_calls", "finish_reason"}, for n > 1
    finish_reason   with it, text and tool calls are sent whole; null for none. Without
                it, they are cut at `max_tokens` and `stop` as any reply is, and the
                reason is "stop" or "length"
    usage       replaces the counted usage, which is that of what is sent; {} for none
    error       the fields of an error body, sent with `status` (500 if left out)
    json        any body, as JSON
    body        any body: a text, or a list of the pieces in which it is sent
    events      a list of event contents, each sent as `data: ...`
    raw         text written to the socket without any HTTP
    status      200 to 599, 200 if left out; null for no status line and no headers
    headers     more headers; null removes one
    before_s    seconds before the headers
    gap_s       seconds before each later piece
    cut_after   send this many pieces, then close the connection
    end         "whole", "cut" (closed), "reset" or "silent" (left open, nothing sent)

All conditions of `when` must hold; an entry without `when` answers every request:

    contains    a text in the newest user message, or a list of texts that are all in it
    is          the whole newest user message, or a list of possible ones; capitals,
                blanks and marks at its end make no difference
    system      like `contains`, for the system message; null if there is none
    model       an id, or a list of ids
    tools       names of tools that are all offered; [] if none is
    role        role of the last message
    is_streamed, user
    temperature, top_p, max_tokens, n, presence_penalty, frequency_penalty,
    repetition_penalty
                a number, or a range with any of "above", "below", "at_least" and
                "at_most". A parameter that is not sent has the service's default.

    {"entries": [{"when": {"system": "ภาษาไทย", "model": "svc-v2-70b-instruct",
                           "temperature": {"above": 1}}, "text": "ชาเขียวหอมกว่า"}],
     "defaults": {"note": "written by hand", "times": null, "gap_s": 0.02}}

Where a `text` was cut, a request to go on with it ("Go on", "continue", as `%svc
continue` sends) gets the rest, unless another entry answers that request.

A scripted answer waits only as long as its entry says, and does not count for the rate
limits. A request that the document does not allow is refused, and uses up no entry.
"""

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from svc_notebook.errors import SettingsError

from .completion_writer import EVENTS, JSON, Choice, Head, Pace, cut_reply, deliver
from .emulated_judge import Bias, judge_reply
from .http_values import MARK, End, Piece, Reply, whole, write_json
from .request_checks import Call, ChatRequest

# the characters that HTTP allows in the name and the value of a header
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(
    r"[\x21-\x7e\xa1-\xff]([\t\x20-\x7e\xa1-\xff]*[\x21-\x7e\xa1-\xff])?|"
)
_NO_BODY = (204, 304)
_FORM = 'a list of entries, or {"entries": [...], "defaults": {...}}'
# msgspec's message: the unknown field, and the last name of the path to it
_UNKNOWN = re.compile(
    r"unknown field `(?P<name>[^`]*)`(?: - at `[^`]*?(?P<part>\w+)(?:\[[^\]`]*\])*`)?"
)
_HELP = "`python -m pydoc svc_notebook.emulator.script` shows the keys of an entry."

T = TypeVar("T")
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class JsonBytes(bytes):
    """Any JSON value, already encoded."""


class EventBytes(bytes):
    """The content of an event: a text unchanged, any other value as JSON."""


class Pieces(tuple[bytes, ...]):
    """The pieces in which a body is sent; a single text is one piece."""

    __slots__ = ()


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call of an entry."""

    name: str
    arguments: dict[str, Any] | str = msgspec.field(default_factory=dict)
    id: str | None = None


class ScriptedChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """One choice of a scripted completion."""

    text: str | tuple[str, ...] = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | UnsetType | None = UNSET


class Range(Struct, frozen=True, forbid_unknown_fields=True):
    """The values of a parameter for which an entry answers."""

    above: float | None = None
    below: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    def fits(self, value: float) -> bool:
        """Whether a value is in the range."""
        return not (
            (self.above is not None and value <= self.above)
            or (self.below is not None and value >= self.below)
            or (self.at_least is not None and value < self.at_least)
            or (self.at_most is not None and value > self.at_most)
        )


TextOrTexts = str | tuple[str, ...]
Number = float | Range | None
_NUMBERS = (
    "temperature",
    "top_p",
    "max_tokens",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


class When(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"is_": "is"}
):
    """Which requests an entry answers; the module's docstring explains the fields."""

    contains: TextOrTexts = ()
    is_: TextOrTexts = ()
    system: TextOrTexts | UnsetType | None = UNSET
    model: TextOrTexts | None = None
    tools: tuple[str, ...] | UnsetType = UNSET
    role: Literal["system", "user", "assistant", "tool"] | None = None
    is_streamed: bool | None = None
    user: str | None = None
    temperature: Number = None
    top_p: Number = None
    max_tokens: Number = None
    n: Number = None
    presence_penalty: Number = None
    frequency_penalty: Number = None
    repetition_penalty: Number = None

    def fits(self, chat: ChatRequest) -> bool:
        """Whether the entry answers a request."""
        return (
            _contains_all(chat.question, self.contains)
            and (
                not self.is_
                or _normalised(chat.question) in map(_normalised, _to_tuple(self.is_))
            )
            and (self.model is None or chat.model in _to_tuple(self.model))
            and self.is_streamed in (None, chat.is_streamed)
            and self.user in (None, chat.user)
            and self.role in (None, chat.messages[-1].role)
            and self._fits_system(chat)
            and self._fits_tools(chat)
            and all(
                _is_in(getattr(chat, name), getattr(self, name)) for name in _NUMBERS
            )
        )

    def _fits_system(self, chat: ChatRequest) -> bool:
        if self.system is UNSET or self.system is None:
            return self.system is UNSET or chat.system is None
        return chat.system is not None and _contains_all(chat.system, self.system)

    def _fits_tools(self, chat: ChatRequest) -> bool:
        if self.tools is UNSET:
            return True
        offered = {tool.name for tool in chat.tools}
        return offered >= set(self.tools) if self.tools else not offered


def _to_tuple(texts: TextOrTexts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts


def _contains_all(text: str, parts: TextOrTexts) -> bool:
    return all(part in text for part in _to_tuple(parts))


def _normalised(text: str) -> str:
    """Return a question in lower case, without extra blanks and final marks."""
    return " ".join(text.casefold().split()).rstrip(" .?!…")


def _is_in(value: float, condition: Number) -> bool:
    if isinstance(condition, Range):
        return condition.fits(value)
    return condition is None or value == condition


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a script; the module's docstring explains the fields."""

    when: When = When()
    times: Annotated[int, Meta(ge=1)] | None = 1
    every: Annotated[int, Meta(ge=1)] = 1
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    note: Annotated[str, Meta(max_length=60)] = ""
    text: str | tuple[str, ...] | UnsetType = UNSET
    tool_calls: tuple[ScriptedCall, ...] | UnsetType = UNSET
    choices: tuple[ScriptedChoice, ...] | UnsetType = UNSET
    judge: Bias | UnsetType = UNSET
    good: tuple[str, ...] = ()
    finish_reason: str | UnsetType | None = UNSET
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
        """Check several fields together, and that HTTP allows the headers."""
        kinds = ("raw", "error", "json", "body", "events", "choices", "text", "judge")
        kinds_set = [kind for kind in kinds if getattr(self, kind) is not UNSET]
        if self.tool_calls is not UNSET and kinds_set != ["text"]:
            kinds_set.append("tool_calls")
        if len(kinds_set) > 1:
            raise ValueError(
                f"{kinds_set[0]!r} and {kinds_set[1]!r} exclude each other"
            )
        if self.every > 1 and self.share < 1:
            raise ValueError("'every' and 'share' exclude each other")
        if self.good and self.judge is UNSET:
            raise ValueError("'good' says what a judge finds good; add 'judge'")
        if self.status in _NO_BODY and kinds_set:
            raise ValueError(f"a reply of status {self.status} has no body")
        for name, value in self.headers.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value or "")):
                raise ValueError(
                    f"the header {name!r} needs a name of letters, digits and -, and a "
                    "value of one line without spaces around it"
                )


def read_script(path: str | Path) -> object:
    """Read a script from a JSON file."""
    try:
        # Some editors open a file with a byte order mark.
        script = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingsError(
            f"There is no script {str(Path(path).absolute())!r}. Give the right path, "
            "or open the notebook next to the script. `svc-notebook lab` opens a "
            "folder with the lessons and their answers.json."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"The script {str(path)!r} cannot be read: {error}. "
            f"Give a file that holds {_FORM}."
        ) from None
    _parts(script, f"The script {str(path)!r}")
    return script


class Script:
    """Entries, and how often each was used; not safe without a lock around it.

    `seed` decides which requests an entry with a `share` answers.
    """

    def __init__(self, script: object = (), *, seed: int = 0) -> None:
        entries, defaults = _parts(script)
        self._entries = [
            _entry(entry, at, defaults) for at, entry in enumerate(entries)
        ]
        self._left = [entry.times for entry in self._entries]
        self._n_fitted = [0] * len(self._entries)
        self._n_drawn: Counter[tuple[int, str]] = Counter()
        self._seed = seed

    def next_entry(self, chat: ChatRequest) -> Entry | None:
        """Return the entry that answers a request, and count its use; or None."""
        for at, entry in enumerate(self._entries):
            left = self._left[at]
            if left == 0 or not entry.when.fits(chat):
                continue
            self._n_fitted[at] += 1
            is_next = self._n_fitted[at] % entry.every == 0
            if is_next and self._is_drawn(at, entry.share, chat):
                self._left[at] = None if left is None else left - 1
                return entry
        return None

    def entry_for(self, chat: ChatRequest) -> Entry | None:
        """Return the next entry, or what a text that was cut and shall go on lacks.

        The entry with that text may be used up.
        """
        entry = self.next_entry(chat)
        return next(_rests(chat, [entry] if entry else self._entries), entry)

    def _is_drawn(self, at: int, share: float, chat: ChatRequest) -> bool:
        """Return whether the entry's share of requests includes this one.

        The draw depends on the request and on how often it came, not on the order of
        the requests, so that two runs with several requests at once fail alike.
        """
        if share == 1:
            return True
        identity = chat.identity()
        nth = self._n_drawn[at, identity]
        self._n_drawn[at, identity] += 1
        name = f"{self._seed}/{at}/{nth}/{identity}"
        drawn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
        return drawn < share * 2**64


def _rests(chat: ChatRequest, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the rest of each text that the message before begins."""
    if chat.begun:
        fitting = (entry for entry in entries if entry.when.fits(chat.before))
        begun_entries = chain(fitting, _rests(chat.before, entries))
        yield from filter(None, (_rest(entry, chat.begun) for entry in begun_entries))


def _rest(entry: Entry, begun: str) -> Entry | None:
    """Return the entry with what follows the beginning of its text, if it has that."""
    texts = () if entry.text is UNSET else _to_tuple(entry.text)
    whole = "".join(texts)
    if whole == begun or not whole.startswith(begun):
        return None
    rest = (
        whole.removeprefix(begun)
        if isinstance(entry.text, str)
        else _after_letters(texts, len(begun))
    )
    return msgspec.structs.replace(entry, text=rest, cut_after=None, end=None)


def _after_letters(pieces: Iterable[str], n_letters: int) -> tuple[str, ...]:
    """Return the pieces after `n_letters`; the first one may be cut."""
    kept_pieces: list[str] = []
    for piece in pieces:
        if n_letters < len(piece):
            kept_pieces.append(piece[max(n_letters, 0) :])
        n_letters -= len(piece)
    return tuple(kept_pieces)


def _parts(
    script: object, name: str = "The script"
) -> tuple[Sequence[object], Mapping[str, object]]:
    """Return the entries of a script, and their defaults."""
    parts = script if isinstance(script, Mapping) else {"entries": script}
    entries, defaults = parts.get("entries"), parts.get("defaults", {})
    for key in parts.keys() - {"entries", "defaults"}:
        near = _near(str(key), ("entries", "defaults"))
        raise SettingsError(f"{name} has the unknown key {key!r}.{near}")
    if not isinstance(entries, list | tuple) or not isinstance(defaults, Mapping):
        raise SettingsError(f"{name} must be {_FORM}.")
    return entries, defaults


def _entry(entry: object, at: int, defaults: Mapping[str, object]) -> Entry:
    whole = {**defaults, **entry} if isinstance(entry, Mapping) else entry
    try:
        return msgspec.convert(whole, Entry, dec_hook=_decode)
    except msgspec.ValidationError as error:
        reason = f"{error}.{_near_field(str(error))}"
        raise SettingsError(
            f"Entry {at} of the script cannot be used: {reason} {_HELP}"
        ) from None


def _near_field(error: str) -> str:
    """Return a hint at a similar field, if the error is about an unknown field."""
    match = _UNKNOWN.search(error)
    if match is None:
        return ""
    parts = {"when": When, "tool_calls": ScriptedCall, "choices": ScriptedChoice}
    kind = parts.get(match["part"] or "", Range if match["part"] else Entry)
    return _near(match["name"], kind.__struct_encode_fields__)


def _near(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" Did you mean `{near[0]}`?" if near else f" Allowed: {', '.join(known)}."


def _decode(type_: type[T], value: object) -> T:
    """Decode a value to one of our types, for msgspec."""
    if type_ is Pieces:
        parts = value if isinstance(value, list | tuple) else (value,)
        return type_(map(_to_bytes, parts))  # type: ignore[call-arg]  # it is Pieces
    is_text = type_ is EventBytes and isinstance(value, str | bytes)
    try:
        return type_(_to_bytes(value) if is_text else write_json(value))  # type: ignore[call-arg]  # they are bytes
    except (TypeError, RecursionError):
        raise ValueError("Expected JSON") from None


def _to_bytes(part: object) -> bytes:
    """Encode a text as UTF-8; leave bytes unchanged."""
    if not isinstance(part, str | bytes):
        raise ValueError("Expected a text or a list of texts")  # noqa: TRY004 - msgspec adds the path to a ValueError
    return part if isinstance(part, bytes) else part.encode("utf-8", "replace")


def play(entry: Entry, chat: ChatRequest, head: Head) -> Reply:
    """Make the reply that an entry describes."""
    if entry.raw is UNSET:
        reply = _content_reply(entry, chat, head)
    else:
        reply = Reply(status=None, body=_pieces(entry.raw), end=End.CUT)
    status = reply.status if entry.status is UNSET else entry.status
    is_cut = entry.cut_after is not None
    end = entry.end or (End.CUT if is_cut else reply.end)
    changed = {name.lower(): value for name, value in entry.headers.items()}
    note_header = {MARK[0]: quote(entry.note, safe=" ")} if entry.note else {}
    headers = {**reply.headers, **note_header, **changed}
    return replace(
        reply,
        status=status,
        headers={name: value for name, value in headers.items() if value is not None},
        body=tuple(
            Piece(entry.gap_s if at else 0.0, piece.data)
            for at, piece in enumerate(reply.body[: entry.cut_after])
        ),
        # without HTTP, only closing the connection can end a reply
        end=End.CUT if status is None and end is End.WHOLE else end,
        before_s=entry.before_s,
    )


def _content_reply(entry: Entry, chat: ChatRequest, head: Head) -> Reply:
    if entry.error is not UNSET:
        return whole(500, b'{"error":%s}' % entry.error, content_type=JSON)
    if entry.json is not UNSET:
        return whole(200, bytes(entry.json), content_type=JSON)
    kind = {"content-type": EVENTS if chat.is_streamed else JSON}
    if entry.body is not UNSET:
        return Reply(status=200, headers=kind, body=_pieces(entry.body))
    if entry.events is not UNSET:
        body = _pieces(b"data: %s\n\n" % event for event in entry.events)
        return Reply(status=200, headers={"content-type": EVENTS}, body=body)
    if entry.choices is not UNSET:
        choices = [_choice(choice, chat) for choice in entry.choices]
    elif entry.judge is not UNSET:
        good = [word.casefold() for word in entry.good]
        text = (
            judge_reply(chat.question, entry.judge, good)
            or "There is nothing to judge."
        )
        only = ScriptedChoice(text=text)
        choices = [_choice(only, chat)] * chat.n
    elif entry.text is UNSET and entry.tool_calls is UNSET:
        return Reply(status=200, headers={"content-type": JSON})
    else:
        only = ScriptedChoice(
            text="" if entry.text is UNSET else entry.text,
            tool_calls=() if entry.tool_calls is UNSET else entry.tool_calls,
            finish_reason=entry.finish_reason,
        )
        choices = [_choice(only, chat)] * chat.n
    return deliver(chat, head, choices, pace=Pace(), usage=entry.usage)


def _pieces(parts: Iterable[bytes]) -> tuple[Piece, ...]:
    return tuple(Piece(0.0, part) for part in parts)


def _choice(choice: ScriptedChoice, chat: ChatRequest) -> Choice:
    """Make the choice that is sent: cut, unless the script says how it ends."""
    texts = _to_tuple(choice.text)
    calls = tuple(_call(call, at) for at, call in enumerate(choice.tool_calls))
    if choice.finish_reason is not UNSET:
        whole = cut_reply("".join(texts), calls, max_tokens=sys.maxsize, stop=())
        whole = replace(whole, finish_reason=choice.finish_reason)
        return whole if isinstance(choice.text, str) else replace(whole, pieces=texts)
    cut = cut_reply("".join(texts), calls, max_tokens=chat.max_tokens, stop=chat.stop)
    if isinstance(choice.text, str):
        return cut
    return replace(cut, pieces=_first_letters(texts, len(cut.text)))


def _first_letters(pieces: Iterable[str], n_letters: int) -> tuple[str, ...]:
    """Return the pieces up to `n_letters`; the last one may be cut."""
    kept_pieces: list[str] = []
    for piece in pieces:
        if n_letters <= 0 < len(piece):
            break
        kept_pieces.append(piece[:n_letters])
        n_letters -= len(piece)
    return tuple(kept_pieces)


def _call(call: ScriptedCall, at: int) -> Call:
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    id_ = f"call_{at}" if call.id is None else call.id
    return Call(id=id_, name=call.name, arguments=arguments)
