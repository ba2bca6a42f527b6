"""The panel's list of conversations: search, open, begin, delete and export.

Search results are sent in messages, not in the view, which is saved with notebooks.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.conversation_list import read_list
from svc_notebook.conversations.history import system_words
from svc_notebook.conversations.newer_turns import newer_note, older_turns_note
from svc_notebook.conversations.restore import (
    joined,
    n_turns,
    pick_saved,
    read_saved,
)
from svc_notebook.errors import LedgerError, ParameterError, SvcError
from svc_notebook.service.catalogue import UNKNOWN
from svc_notebook.service.params import must_be
from svc_notebook.service.request import CompletionRequest
from svc_notebook.session import Session

from .panels_of_cells import PANELS
from .settings_form import PanelSettings, label_of, restored_settings, words_of
from .view import PanelContext, Phase

LIST_WAIT_S = 1.0  # for the server's list, to know whether the last model is in it
NEW_NAME = "chat"  # until the first message gives a conversation its name
MAX_LISTED = 50  # conversations; a search finds the others
DELETED = (
    "The conversation {name} was deleted in another panel of this notebook. This is a "
    "new one."
)
_EXPORTS: dict[str, tuple[Callable[[Conversation], str], str]] = {
    "md": (Conversation.to_markdown, "text/markdown"),
    "json": (Conversation.to_json, "application/json"),
}
_NOT_IN_FILE_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')  # in the name of a file
_MOST_CHARS = 80  # 240 bytes in Thai; file systems take 255


def find(context: PanelContext, text: str) -> None:
    """Send the conversations of the ledger that have a text, the newest first."""
    listed, n = read_list(context.session.ledger, text, n=MAX_LISTED)
    rows = [
        {
            "name": row.name,
            "n_turns": row.n_turns,
            "models": [*row.models],
            "asked_at": row.asked_at.isoformat(),
            "prompt": row.passage or row.prompt,
            "is_elsewhere": bool(other_panels(context, row.name)),
        }
        for row in listed
    ]
    context.comm.send(
        {"t": "found", "search": text, "rows": rows, "n_more": n - len(rows)}
    )


def other_panels(context: PanelContext, name: str) -> list[Any]:
    """Return the other panels of this kernel that have a conversation open."""
    return [
        panel
        for conversation in context.session.conversations
        if conversation.name == name
        for panel in PANELS.open_on(conversation)
        if panel.context is not context
    ]


def open_saved(session: Session, name: str) -> Conversation:
    """Return a conversation with its turns, from here or the ledger."""
    open_here = {
        conversation.name: conversation for conversation in session.conversations
    }
    conversation = open_here.get(name)
    if conversation is None or not conversation.turns:
        saved = read_saved(session.ledger, name).get(name, ())
        picked = pick_saved(saved, name, None)
        conversation = session.conversations.named(name)
        conversation.add(picked)
    return conversation


def restore_turns(context: PanelContext) -> bool:
    """Restore turns from the ledger, unless there have been turns here.

    Returns:
        Whether turns were restored.
    """
    conversation = context.conversation
    if conversation.turns or conversation.can_undo:
        return False
    name = conversation.name
    try:
        if not (saved := conversation.saved()):
            return False
        conversation.add(pick_saved(saved, name, None))
    except SvcError as problem:  # the panel works without them
        context.change(notice=str(problem), is_problem=True)
        return False
    notice = f"{n_turns(len(conversation.turns))} of {name} restored from the ledger."
    context.change(notice=notice, is_restored=True)
    return True


def find_newer(context: PanelContext) -> bool:
    """Note what other kernels have asked, and is not here.

    Returns:
        Whether the note changes.
    """
    conversation, history = context.conversation, context.conversation.history
    newer, older = conversation.newer(), conversation.older()
    notes: list[str] = []
    if newer and not newer.exchange_ids <= context.state.dismissed:
        note = newer_note(newer, history)
        notes.append(f"{note[0].upper()}{note[1:]}.")
    if older and not older.exchange_ids <= context.state.dismissed:
        notes.append(older_turns_note(older, history))
    notes.append(_earlier_system_note(context))
    note = " ".join(filter(None, notes))
    is_changed = note != context.state.newer
    context.change(newer=note)
    return is_changed


def _earlier_system_note(context: PanelContext) -> str:
    """Return a note on the system message that a panel used last, if not now."""
    conversation, earlier = context.conversation, context.state.earlier_system
    now = conversation.system or ""
    if conversation.is_kept_empty or earlier is None or earlier == now:
        return ""
    words = system_words(earlier, [now])
    if not earlier:
        return f"Before, the panel used {words}; Add here removes this one."
    return f"Before, the panel used the {words}; Add here brings it back."


def take_newer(context: PanelContext, *, is_wanted: bool) -> None:
    """Add what other kernels have asked to the turns here, or dismiss the note.

    With it goes the system message that a panel used last.
    """
    conversation = context.conversation
    dismissed = context.state.dismissed
    found = filter(None, (conversation.newer(), conversation.older()))
    if is_wanted:
        noted = [turns for turns in found if not turns.exchange_ids <= dismissed]
        if noted:
            conversation.add(joined(noted[0], noted[1:]))
        if (system := context.state.earlier_system) is not None:
            conversation.system = system or None
    else:
        ids = (turns.exchange_ids for turns in found)
        context.change(dismissed=dismissed.union(*ids))
    context.change(earlier_system=None)
    find_newer(context)


def restore_settings(context: PanelContext) -> None:
    """Use the settings of the last turn that a panel asked."""
    before = context.state.settings
    request, is_earlier = _last_in_panel(context.conversation)
    if request:
        problems = _restore_settings(context, request, is_earlier=is_earlier)
        is_changed = context.state.settings != before
        context.add_notice("The settings are those of its last turn." * is_changed)
        context.add_notice(problems)
        find_newer(context)


def keep_settings(context: PanelContext, cells_system: str | None) -> bool:
    """Use the settings of the last turn that a panel asked; offer those of the cell.

    Its system message stays as well, unless cells have begun the conversation again
    since: what they set is used then, and sent by the cells that follow.

    Returns:
        Whether a panel has asked a turn.
    """
    turns = context.conversation.turns
    request, is_earlier = _last_in_panel(context.conversation)
    groups = (group for turn in turns for group in turn.comparisons)
    if request is None and not any(group.is_side_by_side for group in groups):
        return False
    problems = ""
    if request:
        problems = _restore_settings(context, request, is_earlier=is_earlier)
    if is_earlier and cells_system is not None:
        context.conversation.system = cells_system
    cells = context.cells_settings(cells_system)
    if cells:
        names = ", ".join(map(label_of, cells))
        values = ", ".join(words_of(name, value) for name, value in cells.items())
        kept = f"Kept from the last turn: {names}. The cell sets {values}."
        context.add_notice(kept)
    context.add_notice(problems)
    context.change(cells=cells)
    return True


def _last_in_panel(conversation: Conversation) -> tuple[CompletionRequest | None, bool]:
    with suppress(LedgerError):
        return conversation.last_in_panel()
    return None, False


def _restore_settings(
    context: PanelContext, request: CompletionRequest, *, is_earlier: bool
) -> str:
    """Use the settings of a request; where one cannot be used now, that of the cell.

    The system message of an earlier run is noted only.

    Returns:
        A note on those that cannot be used now and that the cell does not set.
    """
    session, code_settings = context.session, context.opened_with
    is_listed = session.settings.endpoint.lists_models
    models = session.models(wait_s=LIST_WAIT_S) if is_listed else ()
    settings, unusable = restored_settings(
        request,
        model=session.settings.model,
        models=[model.id for model in models],
        info_of=session.info_of,
        has_tools=bool(context.tool_definitions),
    )
    for name in [*unusable]:
        if (value := code_settings.value(name)) != PanelSettings().value(name):
            settings = settings.setting(name, value, UNKNOWN)
            del unusable[name]
    earlier_system = (request.system or "") if is_earlier else None
    context.change(
        settings=settings,
        unusable=unusable,
        refused={},
        earlier_system=earlier_system,
    )
    names = ", ".join(map(label_of, unusable))
    return f"Not as in its last turn: {names}; the field says why." if names else ""


def begin(context: PanelContext) -> Conversation:
    """Return a new conversation, with the system message of this one.

    In an empty panel it is its own.
    """
    conversation = context.conversation
    is_used = conversation.turns or conversation.can_undo
    return _new(context) if is_used else conversation


def _new(context: PanelContext) -> Conversation:
    all_of_session = context.session.conversations
    conversation = all_of_session.named(all_of_session.free_name(NEW_NAME))
    conversation.is_untitled = True
    conversation.system = context.conversation.system
    return conversation


def delete(context: PanelContext, name: str) -> Conversation:
    """Delete a conversation; return the one to show, a new one if it was open.

    The other panels that have it open show a new one, too.
    """
    others = other_panels(context, name)
    if any(panel.context.state.phase is not Phase.IDLE for panel in others):
        raise ParameterError(
            f"Another panel is writing a reply in {name}. Stop it there, or wait until "
            "it ends, and delete it then.",
            param="panel",
        )
    context.session.conversations.delete(name)
    for panel in others:
        panel.leave(_new(panel.context), DELETED.format(name=name))
    is_open = name == context.conversation.name
    return _new(context) if is_open else context.conversation


def export(context: PanelContext, ending: str, question_id: str) -> None:
    """Send the conversation of this panel as a file with this ending."""
    if ending not in _EXPORTS:
        raise must_be("export", f"one of {', '.join(_EXPORTS)}", ending)
    to_text, kind = _EXPORTS[ending]
    conversation = context.conversation
    file = f"{_NOT_IN_FILE_NAMES.sub('_', conversation.name)[:_MOST_CHARS]}.{ending}"
    content = {"name": file, "kind": kind, "text": to_text(conversation)}
    context.comm.send({"t": "file", "id": question_id, **content})
