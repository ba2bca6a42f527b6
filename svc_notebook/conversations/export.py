"""A conversation as transcript entries, as Markdown and as JSON.

Hidden turns are included and marked; texts are not changed.
"""

from typing import Any

import msgspec

from svc_notebook.display.reply import Entry, transcript

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
        parts += [f"## {entry.heading}", entry.text]
        if entry.footer:
            parts.append(f"*{entry.footer}*")
    return "\n\n".join(part for part in parts if part) + "\n"


def to_json(history: History) -> str:
    """Return all turns, versions and choices as JSON text."""
    value = {
        "conversation": history.name,
        "system": history.system,
        "turns": [_turn(n, turn) for n, turn in enumerate(history.turns, start=1)],
    }
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


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
        "messages": [version.prompt, *version.replies],
        "choices": [choice.content for choice in version.choices],
        "picked_choice": version.picked + 1 if version.choices else None,
        "footer": version.footer,
    }
