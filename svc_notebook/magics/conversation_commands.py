"""`%svc reset`, `pin`, `hide`, `version`, `restore`, `conversations` and others."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from svc_notebook import Conversation
from svc_notebook.conversations.history_changes import prompt_words, version_words
from svc_notebook.conversations.restore import (
    SavedTurns,
    lost_marks,
    marks_words,
    n_turns,
    pick_saved,
    read_saved,
)
from svc_notebook.display.escape import in_a_line
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import LedgerError, ParameterError
from svc_notebook.service.params import did_you_mean, shorten
from svc_notebook.session import Session

from .column_list import columns_of, indexed_frame

if TYPE_CHECKING:
    import pandas as pd

_SYSTEM_CHARS = 60  # of a system message, in the list of conversations


def is_conversation(session: Session, name: str) -> bool:
    """Whether this kernel or the ledger has a conversation of this name."""
    if any(conversation.name == name for conversation in session.conversations):
        return True
    with suppress(LedgerError):
        return session.ledger.has_conversation(name)
    return False


def reset(session: Session, name: str) -> str:
    """Forget the turns of a conversation, also if only the ledger has it."""
    with suppress(LedgerError):  # without a readable ledger, those of this kernel
        if session.ledger.has_conversation(name):
            session.conversations.named(name)
    conversation = session.conversations.known(name)
    conversation.reset()
    said = f"The conversation {name} is empty now; the ledger keeps its turns."
    if conversation.system:
        said += f' Its system prompt stays: `-c {in_a_line(name)} -s ""` removes it.'
    return said


def pin(session: Session, name: str, turn: str) -> str:
    """Pin a turn."""
    words = _mark(session, name, turn, Conversation.pin)
    return f"{words} is pinned: it is always sent. {_undone_by('unpin', name, turn)}"


def unpin(session: Session, name: str, turn: str) -> str:
    """Undo `pin`."""
    return f"{_mark(session, name, turn, Conversation.unpin)} is not pinned."


def hide(session: Session, name: str, turn: str) -> str:
    """Hide a turn."""
    words = _mark(session, name, turn, Conversation.hide)
    return f"{words} is hidden: it is not sent. {_undone_by('unhide', name, turn)}"


def unhide(session: Session, name: str, turn: str) -> str:
    """Undo `hide`."""
    words = _mark(session, name, turn, Conversation.unhide)
    return f"{words} is sent, as it is not hidden."


def choose(session: Session, name: str, turn: str, version: str) -> str:
    """Choose the version of a turn that feeds later turns."""
    conversation = session.conversations.known(name)
    conversation.choose(_to_number(turn), _to_number(version))
    chosen = version_words(conversation.history.turn(_to_number(turn)))
    return f"{chosen} of turn {turn} now feeds later turns of {name}."


def _mark(
    session: Session, name: str, turn: str, mark: Callable[[Conversation, int], object]
) -> str:
    """Mark a turn; return its words for a sentence."""
    conversation = session.conversations.known(name)
    mark(conversation, _to_number(turn))
    return f"Turn {turn}{prompt_words(conversation.history.turn(_to_number(turn)))}"


def _undone_by(command: str, name: str, turn: str) -> str:
    return f"`%svc {command} {in_a_line(name)} {turn}` undoes it."


def restore(
    session: Session, name: str | None = None, number: str | None = None
) -> str:
    """Restore turns from the ledger: of one conversation, or of all without turns.

    If the one named has turns already, others are added to them: the newest series
    that was asked elsewhere, or the series with this number.
    """
    saved = read_saved(session.ledger, name)
    if name is not None and name not in saved:
        hint = did_you_mean(name, read_saved(session.ledger))
        return f"The ledger {session.settings.ledger} holds no turns of {name}.{hint}"
    if name is not None and number is not None:
        selection = int(number) if number.isdecimal() else number
        picked = pick_saved(saved[name], name, selection)
        return _add(session.conversations.named(name), picked)
    lines = [
        _restore(session, saved_name, turns, is_named=name is not None)
        for saved_name, turns in saved.items()
    ]
    if not lines:
        return f"The ledger {session.settings.ledger} holds no turns of conversations."
    return "\n".join(lines)


def restore_hint(session: Session) -> str:
    """Say how the newest reply of another kernel goes on, if a restore has it."""
    newest = session.ledger.last(scope="all", is_reply=True)
    name = newest.origin.conversation if newest else None
    if not name or name not in read_saved(session.ledger, name):
        return ""
    shown = in_a_line(name)
    return (
        f" The newest reply in the ledger is of the conversation {shown}: `%svc "
        f"restore {shown}` brings it back, then `%svc -c {shown} continue`."
    )


def _add(conversation: Conversation, saved: SavedTurns) -> str:
    """Add a series of turns to a conversation; say how many, and where."""
    name, before = conversation.name, conversation.history
    here = before.turns
    if here and saved.is_in(conversation.history):
        return (
            f"{name} has these turns already ({n_turns(len(here))}); nothing was "
            "restored."
        )
    conversation.add(saved)
    n_now = len(conversation.turns)
    if not here:
        return f"Restored: {name} ({n_turns(n_now)})."
    n_added = n_now - len(here)
    now = {turn.turn_id: turn for turn in conversation.turns}
    n_again = sum(now[turn.turn_id].versions != turn.versions for turn in here)
    history = conversation.history
    marked = marks_words(lost_marks(before, history), history, ("is", "are"))
    marks = f" {marked[0].upper()}{marked[1:]}." if marked else ""
    if not n_added:
        return f"Restored: other answers to {n_turns(n_again)} of {name}.{marks}"
    added_ids = [turn_id for turn_id in now if before.find(turn_id) is None]
    is_before = [*now][:n_added] == added_ids
    place = f"before the {n_turns(len(here))} here"
    answers = f", and other answers to {n_turns(n_again)}" * bool(n_again)
    return (
        f"Restored: {n_turns(n_added)} of {name}, "
        f"{place if is_before else 'in the order of asking'}{answers}. It now has "
        f"{n_turns(n_now)}.{marks}"
    )


def _restore(
    session: Session, name: str, saved: tuple[SavedTurns, ...], *, is_named: bool
) -> str:
    """Restore the newest series of turns; list the others.

    If the conversation was not named, and has turns already, nothing is restored.
    """
    conversation = session.conversations.named(name)
    if is_named or not conversation.turns:
        note = _add(conversation, conversation.newest_of(saved))
    else:
        n_here = n_turns(len(conversation.turns))
        note = f"{name} has turns already ({n_here}); nothing was restored."
    other_series = [turns for turns in saved if not turns.is_in(conversation.history)]
    if not other_series:
        return note
    lines = [f"  {turns}" for turns in other_series]
    command_hint = (
        f"`%svc restore {in_a_line(name)} NUMBER` adds the turns of one line."
    )
    return "\n".join((f"{note} The ledger also has:", *lines, f"  {command_hint}"))


def _to_number(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise ParameterError(
        f"{text!r} is not the number of a turn or version. They count from 1; "
        "`%svc history NAME` shows them.",
        param="line",
    )


CONVERSATION_LIST = (
    *columns_of("string", conversation="its name"),
    *columns_of(
        "Int64",
        n_turns="its turns",
        est_tokens="estimated tokens of its turns, without hidden ones",
    ),
    *columns_of("string", system="its system message; missing without one"),
)


def conversations_df(session: Session) -> "pd.DataFrame":
    """List the conversations of this kernel, oldest first; count those of the ledger.

    A ledger that cannot be read counts as empty.
    """
    from .summary_table import listing  # noqa: PLC0415 - loads pandas

    rows = [
        (
            conversation.name,
            len(conversation.turns),
            conversation.est_tokens,
            conversation.system,
        )
        for conversation in session.conversations
    ]
    names = set[str]()
    with suppress(LedgerError):
        names = session.ledger.conversations() - {name for name, *_ in rows}
    return listing(
        indexed_frame(CONVERSATION_LIST, rows),
        f"{count_in_words(len(rows), 'conversations')} in this kernel."
        if rows
        else "This kernel has no conversation yet.",
        ("conversation", "turns", "tokens", "system"),
        [
            (name, str(n), f"~{n_tokens}", shorten(system or "", _SYSTEM_CHARS))
            for name, n, n_tokens, system in rows
        ],
        note=_note_on_ledger(len(names), is_more=bool(rows)),
    )


def _note_on_ledger(n: int, *, is_more: bool) -> str:
    if not n:
        return ""
    return (
        f"The ledger has {n}{' more' * is_more}: `svc.conversations_df()` lists "
        f"{'it' if n == 1 else 'them'}, `%svc restore NAME` brings "
        f"{'it' if n == 1 else 'one'} back."
    )
