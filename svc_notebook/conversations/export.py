"""A conversation as transcript entries, as Markdown and as JSON, which can be read.

Hidden turns are included and marked; texts are not changed.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from svc_notebook.display.reply import Entry, transcript
from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import must_be
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


_SAME_IN_VERSION = (
    "exchange_id",
    "is_partial",
    "is_cut",
    "is_open",
    "footer",
    "marks",
)
_SAME_IN_TURN = ("turn_id", "is_pinned", "is_hidden", "is_stale")


class _JsonVersion(msgspec.Struct, kw_only=True):
    exchange_id: str = ""
    is_partial: bool = False
    is_cut: bool = False
    is_open: bool = False
    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=2)]
    choices: tuple[str, ...] = ()
    picked_choice: int | None = None
    footer: str = ""
    marks: tuple[str, ...] = ()


class _JsonTurn(msgspec.Struct, kw_only=True):
    number: int = 0
    turn_id: str = ""
    chosen_version: int = 1
    is_pinned: bool = False
    is_hidden: bool = False
    is_stale: bool = False
    versions: Annotated[tuple[_JsonVersion, ...], msgspec.Meta(min_length=1)]


class _JsonHistory(msgspec.Struct, kw_only=True):
    turns: tuple[_JsonTurn, ...]
    conversation: str = ""
    system: str | None = None


def from_json(text: str) -> History:
    """Read what `to_json` wrote, or say where the text differs from that."""
    given: object = text
    if not isinstance(given, str) or not given.lstrip().startswith("{"):
        raise must_be(
            "text",
            "the text that to_json() returned, not a path",
            text,
            hint="Pass Path(FILE).read_text() to read it from a file.",
        )
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
    return Turn(versions=versions, chosen=chosen, **_fields(found, _SAME_IN_TURN))


def _to_version(found: _JsonVersion) -> Version:
    prompt, *replies = found.messages
    if prompt.role != "user" or any(each.role == "user" for each in replies):
        raise ValueError("the messages of a version begin with its only user message")
    choices = tuple(Message(role="assistant", content=each) for each in found.choices)
    picked = 0
    if choices:
        picked = range(1, len(choices) + 1).index(found.picked_choice or 1)
    return Version(
        prompt=prompt,
        replies=tuple(replies),
        choices=choices,
        picked=picked,
        **_fields(found, _SAME_IN_VERSION),
    )


def _fields(value: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


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


def _turn(number: int, turn: Turn) -> _JsonTurn:
    return _JsonTurn(
        number=number,
        chosen_version=turn.chosen + 1,
        versions=tuple(map(_version, turn.versions)),
        **_fields(turn, _SAME_IN_TURN),
    )


def _version(version: Version) -> _JsonVersion:
    return _JsonVersion(
        messages=(version.prompt, *version.replies),
        choices=tuple(choice.content or "" for choice in version.choices),
        picked_choice=version.picked + 1 if version.choices else None,
        **_fields(version, _SAME_IN_VERSION),
    )
