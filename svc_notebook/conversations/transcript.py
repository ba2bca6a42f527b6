"""A conversation as a static transcript, in HTML and as text."""

from collections.abc import Iterator
from dataclasses import replace

from svc_notebook.display.final_reply import MessageEntry, transcript
from svc_notebook.display.footer import titled_reasonings

from .history import History, Turn, Version
from .picks import to_columns


def to_entries(history: History) -> list[MessageEntry]:
    """Return the entries of a transcript: the system message and chosen versions."""
    system = history.system
    front = [MessageEntry(heading="system", text=system)] if system else []
    turns = enumerate(history.turns, start=1)
    return [*front, *(entry for n, turn in turns for entry in _entries(n, turn))]


def to_transcript(
    history: History, start: int = 0, stop: int | None = None
) -> dict[str, str]:
    """Return a static transcript, or of these turns only, as a MIME bundle."""
    if not start:
        shown = replace(history, turns=history.turns[:stop])
        return transcript(history.name, to_entries(shown))
    turns = enumerate(history.turns[start:stop], start=start + 1)
    entries = [entry for n, turn in turns for entry in _entries(n, turn)]
    return transcript(f"{history.name}, from turn {start + 1}", entries)


def _entries(number: int, turn: Turn) -> tuple[MessageEntry, ...]:
    prompt = _prompt(number, turn.version)
    return (prompt, *(_compared(turn) if turn.comparison else (_answer(turn),)))


def _compared(turn: Turn) -> Iterator[MessageEntry]:
    """Return an entry for each reply that was compared."""
    of_turn = [mark for mark in turn.marks if mark not in turn.version.marks]
    for column in to_columns(turn):
        state = "picked" if column.is_picked else "used" if column.is_used else ""
        marks = {*(of_turn if column.is_used else ()), *column.marks}
        heads = ["assistant", column.label, state, *sorted(marks)]
        yield MessageEntry(
            heading=" · ".join(filter(None, heads)),
            text="\n\n".join(filter(None, [column.text, column.problem])),
            is_markdown=True,
            footer=column.footer,
        )


def _answer(turn: Turn) -> MessageEntry:
    version, n_versions = turn.version, len(turn.versions)
    heads = ["assistant"]
    if n_versions > 1:
        heads.append(f"version {turn.chosen + 1} of {n_versions}")
    if version.choices:
        heads.append(f"choice {version.picked + 1} of {len(version.choices)}")
    texts = [m.content for m in version.replies if m.role == "assistant" and m.content]
    calls = [
        f"{call.function.name}({call.function.arguments}) → {result}"
        for call, result in version.calls
    ]
    return MessageEntry(
        heading=" · ".join([*heads, *turn.marks]),
        text="\n\n".join(texts),
        is_markdown=True,
        footer=version.footer,
        notes=tuple(calls),
        folded=titled_reasonings(version.reasonings),
    )


def _prompt(number: int, version: Version) -> MessageEntry:
    heading, text = f"{number} · user", version.prompt.content or ""
    if not version.attached:
        return MessageEntry(heading=heading, text=text)
    folded = tuple((item.note, item.text) for item in version.items)
    return MessageEntry(heading=heading, text=text, typed=version.typed, folded=folded)
