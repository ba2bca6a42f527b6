"""A conversation as transcript entries, as Markdown and as JSON, which can be read.

Hidden turns are included and marked; texts are not changed.
"""

from typing import Annotated, Any

import msgspec

from svc_notebook.display.reply import Entry, transcript
from svc_notebook.errors import ParameterError
from svc_notebook.service.request import Message

from .history import History, Turn, Version


def to_entries(history: History) -> list[Entry]:
    """Return the entries of a transcript: the system message and chosen versions."""
    system = history.system
    front = [Entry(heading="system", text=system)] if system else []
    turns = enumerate(history.turns, start=1)
    return [*front, *(entry for n, turn in turns for entry in _entries(n, turn))]


def to_transcript(history: History) -> dict[str, str]:
    """Return a static transcript as a MIME bundle."""
    return transcript(history.name, to_entries(history))


def to_markdown(history: History) -> str:
    """Return the chosen versions as a Markdown document."""
    parts = [f"# {history.name}"]
    if history.system:
        parts += ["## system", history.system]
    for entry in to_entries(history)[bool(history.system) :]:
        calls = (_as_code(call) for call in entry.notes)
        parts += [f"## {entry.heading}", *calls, entry.text]
        if entry.footer:
            parts.append(f"*{entry.footer}*")
    return "\n\n".join(part for part in parts if part) + "\n"


def _as_code(text: str) -> str:
    """Indent every line, so that nothing in a text acts as Markdown."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def to_json(history: History) -> str:
    """Return all turns, versions and choices as JSON text."""
    value = {
        "conversation": history.name,
        "system": history.system,
        "turns": [_turn(n, turn) for n, turn in enumerate(history.turns, start=1)],
    }
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


class _JsonVersion(msgspec.Struct, kw_only=True):
    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=2)]
    exchange_id: str = ""
    is_partial: bool = False
    is_cut: bool = False
    is_open: bool = False
    choices: tuple[str, ...] = ()
    picked_choice: int | None = None
    footer: str = ""
    marks: tuple[str, ...] = ()


class _JsonTurn(msgspec.Struct, kw_only=True):
    turn_id: str = ""
    versions: Annotated[tuple[_JsonVersion, ...], msgspec.Meta(min_length=1)]
    chosen_version: int = 1
    is_pinned: bool = False
    is_hidden: bool = False
    is_stale: bool = False


class _JsonHistory(msgspec.Struct, kw_only=True):
    turns: tuple[_JsonTurn, ...]
    conversation: str = ""
    system: str | None = None


def from_json(text: str) -> History:
    """Read what `to_json` wrote.

    Raises:
        ParameterError: It is something else; the message says where it differs.
    """
    try:
        found = msgspec.json.decode(text, type=_JsonHistory)
        turns = tuple(map(_to_turn, found.turns))
    except (ValueError, TypeError) as problem:
        raise ParameterError(
            f"This is not a conversation as to_json() writes it: {problem}.",
            param="text",
        ) from None
    return History(name=found.conversation, system=found.system, turns=turns)


def _to_turn(found: _JsonTurn) -> Turn:
    versions = tuple(map(_to_version, found.versions))
    chosen = range(1, len(versions) + 1).index(found.chosen_version)
    return Turn(
        turn_id=found.turn_id,
        versions=versions,
        chosen=chosen,
        is_pinned=found.is_pinned,
        is_hidden=found.is_hidden,
        is_stale=found.is_stale,
    )


def _to_version(found: _JsonVersion) -> Version:
    prompt, *replies = found.messages
    if [each.role == "user" for each in found.messages] != [
        True,
        *[False] * len(replies),
    ]:
        raise ValueError("the messages of a version begin with its only user message")
    choices = tuple(Message(role="assistant", content=each) for each in found.choices)
    picked = 0
    if choices:
        picked = range(1, len(choices) + 1).index(found.picked_choice or 1)
    return Version(
        exchange_id=found.exchange_id,
        prompt=prompt,
        replies=tuple(replies),
        choices=choices,
        picked=picked,
        is_partial=found.is_partial,
        is_cut=found.is_cut,
        is_open=found.is_open,
        footer=found.footer,
        marks=found.marks,
    )


def _entries(number: int, turn: Turn) -> tuple[Entry, Entry]:
    version, n_versions = turn.version, len(turn.versions)
    heads = ["assistant"]
    if n_versions > 1:
        heads.append(f"version {turn.chosen + 1} of {n_versions}")
    if version.choices:
        heads.append(f"choice {version.picked + 1} of {len(version.choices)}")
    said = [m.content for m in version.replies if m.role == "assistant" and m.content]
    calls = [
        f"{call.function.name}({call.function.arguments}) → {result}"
        for call, result in version.calls
    ]
    return (
        Entry(heading=f"{number} · user", text=turn.prompt.content or ""),
        Entry(
            heading=" · ".join([*heads, *turn.marks]),
            text="\n\n".join(said),
            is_markdown=True,
            footer=version.footer,
            notes=tuple(calls),
        ),
    )


def _turn(number: int, turn: Turn) -> dict[str, Any]:
    return {
        "number": number,
        "turn_id": turn.turn_id,
        "chosen_version": turn.chosen + 1,
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "versions": [_version(version) for version in turn.versions],
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "exchange_id": version.exchange_id,
        "is_partial": version.is_partial,
        "is_cut": version.is_cut,
        "is_open": version.is_open,
        "messages": [version.prompt, *version.replies],
        "choices": [choice.content for choice in version.choices],
        "picked_choice": version.picked + 1 if version.choices else None,
        "footer": version.footer,
        "marks": version.marks,
    }
