"""`%svc reset`, `pin`, `hide`, `version`, `restore` and `conversations`."""

from typing import TYPE_CHECKING

from svc_notebook.conversations.restore import (
    SavedTurns,
    n_turns,
    pick_saved,
    read_saved,
)
from svc_notebook.display.escape import in_a_line
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import did_you_mean
from svc_notebook.session import Session

from .column_list import columns_of, indexed_frame

if TYPE_CHECKING:
    import pandas as pd


def reset(session: Session, name: str) -> str:
    """Forget the turns of a conversation."""
    session.conversations.known(name).reset()
    return f"The conversation {name} is empty now; the ledger keeps its turns."


def pin(session: Session, name: str, turn: str) -> str:
    """Pin a turn, or undo that."""
    is_pinned = session.conversations.known(name).toggle_pin(_to_number(turn))
    return f"Turn {turn} is {'pinned' if is_pinned else 'no longer pinned'}."


def hide(session: Session, name: str, turn: str) -> str:
    """Hide a turn, or undo that."""
    is_hidden = session.conversations.known(name).toggle_hidden(_to_number(turn))
    return f"Turn {turn} is {'hidden' if is_hidden else 'sent again'}."


def choose(session: Session, name: str, turn: str, version: str) -> str:
    """Choose the version of a turn that feeds later turns."""
    session.conversations.known(name).choose(_to_number(turn), _to_number(version))
    return f"Version {version} of turn {turn} now feeds later turns of {name}."


def restore(
    session: Session, name: str | None = None, number: str | None = None
) -> str:
    """Restore turns from the ledger: of one conversation, or of all without turns.

    A conversation that has turns already is changed only if `number` names the series
    of turns to add.
    """
    saved = read_saved(session.ledger, name)
    if name is not None and name not in saved:
        hint = did_you_mean(name, read_saved(session.ledger))
        return f"The ledger {session.settings.ledger} holds no turns of {name}.{hint}"
    if name is not None and number is not None:
        selection = int(number) if number.isdecimal() else number
        picked = pick_saved(saved[name], name, selection)
        conversation = session.conversations.named(name)
        if picked.is_in(conversation.history):
            return f"{name} has these turns already; nothing was restored."
        n_before = len(conversation.turns)
        conversation.add(picked)
        n_now = len(conversation.turns)
        added = n_turns(n_now - n_before)
        return f"Restored: {added} of {name}, which now has {n_turns(n_now)}."
    lines = [
        _restore(session, saved_name, turns) for saved_name, turns in saved.items()
    ]
    if not lines:
        return f"The ledger {session.settings.ledger} holds no turns of conversations."
    return "\n".join(lines)


def _restore(session: Session, name: str, saved: tuple[SavedTurns, ...]) -> str:
    """Restore the newest series of turns if there are none; list the other series."""
    conversation = session.conversations.named(name)
    has_turns = bool(conversation.turns)
    if not has_turns:
        conversation.add(pick_saved(saved, name, None))
    other_series = [turns for turns in saved if not turns.is_in(conversation.history)]
    n_here = n_turns(len(conversation.turns))
    note = f"Restored: {name} ({n_here})."
    if has_turns:
        note = f"{name} has turns already ({n_here}); nothing was restored."
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
    """List the conversations of this kernel, oldest first."""
    rows = (
        (
            conversation.name,
            len(conversation.turns),
            conversation.est_tokens,
            conversation.system,
        )
        for conversation in session.conversations
    )
    return indexed_frame(CONVERSATION_LIST, rows)
