"""Playing an entry of a script: the reply that it describes.

What it is not: which entry answers, and what entries may hold, is `script`'s.

Rules for this file: what an entry leaves out is as the emulator would have sent it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .ask import Ask, Call
from .choice import STOP, Choice
from .completion import Head
from .delivery import EVENTS, JSON, Pace, deliver
from .fault import write_json
from .reply import End, Piece, Reply, whole
from .tokens import split_tokens

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
