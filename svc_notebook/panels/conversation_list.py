"""What the panel's list of conversations does: find, open, begin, rename and export.

What it finds is sent in messages, not in the view, which is saved with notebooks.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.saved_turns import n_turns, pick_saved, read_saved
from svc_notebook.errors import LedgerError
from svc_notebook.ledger.conversation_list import read_list
from svc_notebook.service.checks import must_be

from .actions import Controls, Event
from .open_panel import NAME

MAX_LISTED = 50
_EXPORTS: dict[str, tuple[Callable[[Conversation], str], str]] = {
    "md": (Conversation.to_markdown, "text/markdown"),
    "json": (Conversation.to_json, "application/json"),
}
_UNFIT = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')  # in the name of a file
_MOST_CHARS = 80  # 240 bytes in Thai; file systems take 255


def find(panel: Controls, event: Event) -> None:
    """Send the conversations of the ledger that have a text, the newest first."""
    found, n = read_list(panel.session.ledger, event.text, n=MAX_LISTED)
    rows = [
        {
            "name": each.name,
            "n_turns": each.n_turns,
            "models": [*each.models],
            "asked_at": each.asked_at.isoformat(),
            "prompt": each.prompt,
        }
        for each in found
    ]
    n_more = n - len(rows)
    panel.send({"t": "found", "search": event.text, "rows": rows, "n_more": n_more})


def open_saved(panel: Controls, event: Event) -> None:
    """Show a conversation in this panel, with its turns here or of the ledger."""
    name, session = event.name, panel.session
    found = next((each for each in session.conversations if each.name == name), None)
    if found is None or not found.turns:
        saved = read_saved(session.ledger, name).get(name, ())
        picked = pick_saved(saved, name, None)
        found = session.conversations.named(name)
        found.add(picked)
    panel.switch(found, notice=_others(found))


def _others(found: Conversation) -> str:
    """Say how many turns of this name only the ledger has."""
    with suppress(LedgerError):
        others = [each for each in found.saved() if not each.is_in(found.history)]
        if n := sum(len(each.history.turns) for each in others):
            return (
                f"The ledger has {n_turns(n, 'more ')} of {found.name}, asked apart "
                f"from these: see `%svc restore {found.name}`."
            )
    return ""


def begin(panel: Controls, _: Event) -> None:
    """Show a new conversation; an empty panel has one already."""
    session, found = panel.session, panel.conversation
    if found.turns or found.can_undo:
        here = {each.name for each in session.conversations}
        names = (NAME if n == 1 else f"{NAME}-{n}" for n in count(1))
        is_taken = session.ledger.has_conversation
        name = next(each for each in names if each not in here and not is_taken(each))
        found = session.conversations.named(name)
    panel.switch(found)


def rename(panel: Controls, event: Event) -> None:
    """Give the conversation of this panel another name."""
    panel.change(notice="", is_problem=False)
    if event.name == panel.conversation.name:
        panel.show()
    panel.conversation.rename(event.name)


def export(panel: Controls, event: Event) -> None:
    """Send the conversation of this panel as a file."""
    if event.name not in _EXPORTS:
        raise must_be("export", f"one of {', '.join(_EXPORTS)}", event.name)
    to_text, kind = _EXPORTS[event.name]
    found = panel.conversation
    file = f"{_UNFIT.sub('_', found.name)[:_MOST_CHARS]}.{event.name}"
    content = {"name": file, "kind": kind, "text": to_text(found)}
    panel.send({"t": "file", "id": event.question_id, **content})
