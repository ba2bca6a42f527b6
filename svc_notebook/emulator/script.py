"""Scripts: entries that say what the emulator answers instead of writing a text.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from svc_notebook.errors import SettingsError

from .ask import Ask, JsonObject
from .entry import check_entry


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
