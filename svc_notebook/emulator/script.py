"""Scripts: entries that say what the emulator answers instead of writing a text.

What it is not: `play` makes the replies. A script changes no rule: a request that
the document refuses is refused, and uses no entry up.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from svc_notebook.errors import SettingsError

from .ask import Ask, JsonObject, Message
from .completion import Head
from .play import MAKERS, play
from .reply import End

_TEXT = (str, bytes)
_NUMBER = (int, float)
_NONE = type(None)
# What each key may hold.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "when": (Mapping,),
    "times": (int, _NONE),
    "text": (str, Sequence),
    "tool_calls": (Sequence,),
    "choices": (Sequence,),
    "finish_reason": (str, _NONE),
    "usage": (Mapping,),
    "error": (object,),
    "json": (object,),
    "body": (*_TEXT, Sequence),
    "events": (Sequence,),
    "raw": (*_TEXT, Sequence),
    "status": (int, _NONE),
    "headers": (Mapping,),
    "before_s": _NUMBER,
    "gap_s": _NUMBER,
    "cut_after": (int,),
    "end": (str,),
}
# An ask to play every entry for once, when the script is read.
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
_WHEN_KEYS = frozenset(("contains", "model", "is_streamed", "role"))


def read_script(path: str | Path) -> list[JsonObject]:
    """Read a script from a JSON file: a list of entries.

    Raises:
        SettingsError: The file cannot be read, or is not a JSON array.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
        SettingsError: An entry cannot be played; its number is named.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]] = ()) -> None:
        for at, entry in enumerate(entries):
            _check(entry, at)
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


def _check(entry: object, at: int) -> None:
    """Find out now whether an entry can be played."""
    where = f"Entry {at} of the script"
    if not isinstance(entry, Mapping):
        raise SettingsError(f"{where} is no object; write {{...}}.")
    for key, value in entry.items():
        if key not in _KINDS:
            raise SettingsError(
                f"{where} holds {key!r}, which is not known; known are "
                f"{', '.join(sorted(_KINDS))}."
            )
        if not isinstance(value, _KINDS[key]):
            raise SettingsError(f"{where} holds a {key!r} that cannot be played.")
    unknown = sorted(set(entry.get("when", {})) - _WHEN_KEYS)
    if unknown:
        raise SettingsError(
            f"{where} asks in 'when' for {unknown[0]!r}, which is not known; known "
            f"are {', '.join(sorted(_WHEN_KEYS))}."
        )
    _check_content(entry, where)


def _check_content(entry: Mapping[str, Any], where: str) -> None:
    """Check that an entry says one thing, and that it can be played."""
    contents = [key for key in MAKERS if key in entry]
    if len(contents) > 1 and contents != ["text", "tool_calls"]:
        raise SettingsError(
            f"{where} holds both {contents[0]!r} and {contents[1]!r}; keep one."
        )
    if entry.get("end", End.WHOLE) not in list(End):
        raise SettingsError(
            f"{where} ends in {entry['end']!r}; known are {', '.join(End)}."
        )
    try:
        reply = play(entry, _REHEARSAL, Head(id="cmpl-0", created=0, model="svc"))
        "".join([*reply.headers, *reply.headers.values()]).encode("latin-1")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SettingsError(
            f"{where} cannot be played ({error!r}); see the keys in this module."
        ) from None


def _fits(when: Mapping[str, Any], ask: Ask) -> bool:
    """Tell whether an entry is meant for this ask."""
    return (
        when.get("contains", "") in ask.question
        and when.get("model", ask.model) == ask.model
        and when.get("is_streamed", ask.is_streamed) == ask.is_streamed
        and when.get("role", ask.messages[-1].role) == ask.messages[-1].role
    )
