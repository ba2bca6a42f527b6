"""The panel's list of conversations: search, open, begin, delete and export.

Search results are sent in messages, not in the view, which is saved with notebooks.
"""

import re
from collections.abc import Callable
from contextlib import suppress

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.conversation_list import read_list
from svc_notebook.conversations.newer_turns import newer_note
from svc_notebook.conversations.restore import (
    n_turns,
    pick_saved,
    read_saved,
)
from svc_notebook.display.escape import in_a_line
from svc_notebook.errors import LedgerError, SvcError
from svc_notebook.service.params import must_be
from svc_notebook.service.request import CompletionRequest
from svc_notebook.session import Session

from .settings_form import PanelSettings, restored_settings
from .view import PanelContext

LIST_WAIT_S = 1.0  # for the server's list, to know whether the last model is in it
NEW_NAME = "chat"  # until the first message gives a conversation its name
MAX_LISTED = 50  # conversations; a search finds the others
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
        }
        for row in listed
    ]
    context.comm.send(
        {"t": "found", "search": text, "rows": rows, "n_more": n - len(rows)}
    )


def open_saved(session: Session, name: str) -> tuple[Conversation, str]:
    """Return a conversation with its turns, from here or the ledger, and a notice."""
    open_here = {
        conversation.name: conversation for conversation in session.conversations
    }
    conversation = open_here.get(name)
    if conversation is None or not conversation.turns:
        saved = read_saved(session.ledger, name).get(name, ())
        picked = pick_saved(saved, name, None)
        conversation = session.conversations.named(name)
        conversation.add(picked)
    return conversation, _unrestored_note(conversation)


def restore_turns(context: PanelContext) -> None:
    """Restore turns and settings from the ledger, unless it has had turns here."""
    conversation = context.conversation
    if conversation.turns or conversation.can_undo:
        return
    name = conversation.name
    try:
        if not (saved := conversation.saved()):
            return
        newest = conversation.newest_of(saved)
        conversation.add(newest)
    except SvcError as problem:  # the panel works without them
        context.change(notice=str(problem), is_problem=True)
        return
    n = len(conversation.turns)
    notes = [f"{n_turns(n)} of {name} restored from the ledger."]
    if newest.panel_request:
        notes.append(_restore_settings(context, newest.panel_request))
    notes.append(_unrestored_note(conversation))
    context.change(notice=" ".join(filter(None, notes)), is_restored=True)


def find_newer(context: PanelContext) -> bool:
    """Note what other kernels have asked meanwhile; return whether the note changes."""
    newer, note = context.conversation.newer(), ""
    if newer and not newer.exchange_ids <= context.state.dismissed:
        note = newer_note(newer, context.conversation.history)
        note = f"{note[0].upper()}{note[1:]}."
    is_changed = note != context.state.newer
    context.change(newer=note)
    return is_changed


def take_newer(context: PanelContext, *, is_wanted: bool) -> None:
    """Add what other kernels have asked to the turns here, or dismiss the note."""
    conversation = context.conversation
    if is_wanted:
        conversation.restore()
    elif newer := conversation.newer():
        context.change(dismissed=context.state.dismissed | newer.exchange_ids)
    find_newer(context)


def restore_settings(context: PanelContext) -> None:
    """Use the settings of the last turn that a panel asked, where code has set none."""
    conversation, before = context.conversation, context.state.settings
    with suppress(LedgerError):
        saved = conversation.saved()
        newest = pick_saved(saved, conversation.name, None) if saved else None
        if newest and newest.panel_request:
            notes = [context.state.notice]
            problems = _restore_settings(context, newest.panel_request)
            if context.state.settings != before:
                notes.append("The settings are those of its last turn.")
            notes.append(problems)
            context.change(notice=" ".join(filter(None, notes)))


def _restore_settings(context: PanelContext, request: CompletionRequest) -> str:
    """Use the settings of the last turn where code has set nothing else.

    Returns:
        A note on those that cannot be used now.
    """
    session, code_settings = context.session, context.opened_with
    is_listed = session.settings.endpoint.lists_models
    models = session.models(wait_s=LIST_WAIT_S) if is_listed else ()
    restored, unusable = restored_settings(
        request,
        model=session.settings.model,
        models=[model.id for model in models],
        info_of=session.info_of,
        has_tools=bool(context.tool_definitions),
    )
    for name in [*unusable]:
        if code_settings.value(name) != PanelSettings().value(name):
            del unusable[name]
    settings = restored.reopened(PanelSettings(), code_settings)
    context.change(settings=settings, unusable=unusable)
    names = ", ".join(name.replace("_", " ") for name in unusable)
    return f"Not as in its last turn: {names}; the field says why." if names else ""


def _unrestored_note(conversation: Conversation) -> str:
    """Return a note on turns of this name that only the ledger has."""
    name, history = conversation.name, conversation.history
    with suppress(LedgerError):
        others = [saved for saved in conversation.saved() if not saved.is_in(history)]
        if n := sum(len(saved.history.turns) for saved in others):
            return (
                f"The ledger has {n_turns(n, 'more ')} of {name}, asked separately: "
                f"see `%svc restore {in_a_line(name)}`."
            )
    return ""


def begin(context: PanelContext) -> Conversation:
    """Return a new conversation; in an empty panel, its own."""
    conversation, all_of_session = context.conversation, context.session.conversations
    if conversation.turns or conversation.can_undo:
        conversation = all_of_session.named(all_of_session.free_name(NEW_NAME))
        conversation.is_untitled = True
    return conversation


def delete(context: PanelContext, name: str) -> Conversation:
    """Delete a conversation; return the one to show, a new one if it was open."""
    context.session.conversations.delete(name)
    is_open = name == context.conversation.name
    return begin(context) if is_open else context.conversation


def export(context: PanelContext, ending: str, question_id: str) -> None:
    """Send the conversation of this panel as a file with this ending."""
    if ending not in _EXPORTS:
        raise must_be("export", f"one of {', '.join(_EXPORTS)}", ending)
    to_text, kind = _EXPORTS[ending]
    conversation = context.conversation
    file = f"{_NOT_IN_FILE_NAMES.sub('_', conversation.name)[:_MOST_CHARS]}.{ending}"
    content = {"name": file, "kind": kind, "text": to_text(conversation)}
    context.comm.send({"t": "file", "id": question_id, **content})
