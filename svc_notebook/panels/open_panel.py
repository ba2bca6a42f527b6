"""`svc.panel` opens a chat panel on a conversation, the panel's list on another one.

ipywidgets loads at first use. What the list finds is sent in messages, not in the view,
which is saved with notebooks.
"""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.saved_turns import (
    n_turns,
    pick_saved,
    read_list,
    read_saved,
)
from svc_notebook.display.output import parent_message
from svc_notebook.errors import LedgerError
from svc_notebook.service.checks import must_be
from svc_notebook.service.params import with_params
from svc_notebook.session import current
from svc_notebook.tokens import MaxTokens
from svc_notebook.tools.permissions import ToolParams, take_permit
from svc_notebook.tools.toolbox import to_toolbox

from .actions import Controls, Event
from .state import Settings

if TYPE_CHECKING:  # widgets load when a panel is opened; no schema is made of this
    from .widget import Panel


NAME = "chat"


@with_params
def panel(
    name: str | None = None,
    *,
    system: str | None = None,
    model: str | None = None,
    max_tokens: MaxTokens = "fit",
    **params: Unpack[ToolParams],
) -> "Panel":
    """Open a chat panel on a conversation, which `%%svc -c NAME` can continue.

    Make it the last line of a cell, or put it into other ipywidgets. What you set in
    the panel stays when the cell runs again, unless the cell asks for another value.
    Prompts and replies are saved with the notebook; keys are not.

    Args:
        name: The conversation's name, without spaces; `chat` if None.
        system: A new system message for the conversation; None keeps the present one.
        model: Id of the model; the session's model if None.
        max_tokens: A number, `fit`, or `service` or None to send none.
        **params: Parameters as for `svc.complete`. Tools made with `confirm=True` ask
            for consent in the panel.

    Returns:
        The panel: a widget, with `conversation` and `freeze()`.

    Raises:
        ParameterError: The name or a parameter is not allowed.
        ToolSchemaError: A tool cannot be described.

    Example:
        >>> panel = svc.panel("plan", system="You plan trips.")
    """
    from .widget import Controller, Panel  # noqa: PLC0415 - loads ipywidgets

    session = current()
    given: dict[str, Any] = dict(params)
    permit = take_permit(given)
    toolbox = to_toolbox(given.pop("tools", None))
    settings = Settings().setting("model", model)
    given["max_tokens"] = "service" if max_tokens is None else max_tokens
    most_tokens = session.context_of(settings.model or session.settings.model)
    for param, value in given.items():
        settings = settings.setting(param, value, most_tokens=most_tokens)
    conversation = session.conversations.named(NAME if name is None else name)
    found = _CELLS.take(conversation)
    if system is not None and not (found and found.opened_with == system):
        conversation.system = system
    if found is None:
        found = Panel(Controller(conversation, session, settings, toolbox, permit))
    else:
        found.reopen(settings, toolbox, permit)
    found.opened_with = system
    _CELLS.keep(found)
    return found


class _Cells:
    """The panels of each cell, so that a cell that runs again has the same panel."""

    def __init__(self) -> None:
        self._panels: dict[str, list[Panel]] = {}
        self._runs: dict[str, str] = {}
        self._earlier: list[Panel] = []  # of the running cell, from its last run
        self._cell = ""

    def take(self, conversation: Conversation) -> "Panel | None":
        """Return the panel that the running cell had before; close its others."""
        message = parent_message(_shell())
        self._cell = str(message.get("metadata", {}).get("cellId", ""))
        run = str(message.get("header", {}).get("msg_id", ""))
        if self._cell and self._runs.get(self._cell) != run:
            self._runs[self._cell] = run
            self._earlier = self._panels.pop(self._cell, [])
        alive = [each for each in self._earlier if each.comm is not None]
        found = [each for each in alive if each.conversation is conversation]
        if found:
            self._earlier.remove(found[0])
            return found[0]
        for each in alive:
            each.close()
        return None

    def keep(self, panel: "Panel") -> None:
        """Note a panel of the running cell; a program has no cells."""
        if self._cell:
            self._panels.setdefault(self._cell, []).append(panel)


def _shell() -> object:
    module = sys.modules.get("IPython")
    return module.get_ipython() if module else None


_CELLS = _Cells()


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
