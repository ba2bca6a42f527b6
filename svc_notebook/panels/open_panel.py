"""Opens chat panels (`svc.panel`) and rating panels.

A cell that runs again gets its panel back, or closes the old one. ipywidgets loads at
the first panel.
"""

import json
from typing import TYPE_CHECKING, Any, Unpack

from svc_notebook.display.front_end import (
    Output,
    Screen,
    find_screen,
)
from svc_notebook.service.params import with_params
from svc_notebook.session import current
from svc_notebook.tokens import MaxTokens
from svc_notebook.tools.rounds import ToolParams, take_permit
from svc_notebook.tools.toolbox import to_toolbox

from .panels_of_cells import PANELS
from .settings_form import PanelSettings
from .side_area import PanelPlace, check_place

if TYPE_CHECKING:  # widgets load when a panel is opened; no schema is made of this
    from svc_notebook.sweeps.rating import Rating

    from .widget import Panel


@with_params
def panel(
    name: str | None = None,
    *,
    system: str | None = None,
    model: str | None = None,
    max_tokens: MaxTokens = "fit",
    restore: bool = True,
    place: PanelPlace = "cell",
    **params: Unpack[ToolParams],
) -> "Panel":
    """Open a chat panel on a conversation, which `%%svc -c NAME` can continue.

    A conversation with a name continues where it ended, even in an earlier kernel: the
    ledger has its turns, which are sent again, and the settings of the last one. These
    stay: others in its cell are offered, and used once you change them there.

    Make it the last line of a cell, or put it into other ipywidgets. Prompts and
    replies are saved with the notebook; keys are not.

    Args:
        name: The conversation's name, up to 100 printable characters. If None, the
            first message gives it one; `chat` finds it in this kernel.
        system: A system message for the conversation; None keeps the current one.
        model: Id of the model; the session's model if None.
        max_tokens: A number, `fit`, or `service` or None to send none.
        restore: Whether to restore the turns of `name` from the ledger.
        place: `cell`, or `right` for JupyterLab's side area, where it stays while
            cells scroll. If that is impossible, it opens in the cell and says why.
        **params: As for `svc.complete`. Tools with `confirm=True` ask in the panel.

    Returns:
        The panel: a widget, with `conversation` and `freeze()`.

    Raises:
        ParameterError: The name, the place or a parameter is not allowed.
        ToolSchemaError: A tool cannot be described.

    Example:
        >>> panel = svc.panel("plan", system="You plan trips.")
    """
    # these imports load ipywidgets
    from .conversations_dialog import (  # noqa: PLC0415
        NEW_NAME,
        find_newer,
        keep_settings,
        restore_turns,
    )
    from .view import PanelContext  # noqa: PLC0415
    from .widget import Panel  # noqa: PLC0415

    check_place(place)
    session = current()
    values: dict[str, Any] = dict(params)
    permit = take_permit(values)
    toolbox = to_toolbox(values.pop("tools", None))
    settings = PanelSettings().setting("model", model)
    values["max_tokens"] = "service" if max_tokens is None else max_tokens
    info = session.info_of(settings.model or session.settings.model)
    for param, value in values.items():
        settings = settings.setting(param, value, info)
    conversation = session.conversations.named(NEW_NAME if name is None else name)
    if name is None and not (conversation.turns or conversation.can_undo):
        conversation.is_untitled = True
    opened: Panel | None = PANELS.take(conversation)
    newest: Panel | None = next(iter(PANELS.open_on(conversation)), None)
    context = (
        opened.context
        if opened
        else PanelContext(conversation, session, settings, toolbox, permit)
    )
    if opened is None and newest:
        context.take_settings(newest.context.state)
    conversation.is_kept_empty = not restore
    before = (opened.opened_with, context.opened_with) if opened else (None, None)
    if context.state.cells and before != (system, settings):
        context.change(notice="")  # it offers what the cell has set before
    is_restored = restore and name is not None and restore_turns(context)
    if not restore and opened and opened.is_restoring:
        conversation.reset()
    is_continued = restore and not (opened or newest) and bool(conversation.turns)
    is_kept = (is_restored or is_continued) and keep_settings(context, system)
    if not is_kept and system is not None and before[0] != system:
        conversation.system = system
    find_newer(context)
    context.call = _call(name)
    if opened is None:
        opened = Panel(context)
    else:
        opened.reopen(settings, toolbox, permit)
    opened.opened_with, opened.is_restoring, opened.place = system, restore, place
    PANELS.keep(opened)
    return opened


def _call(name: str | None) -> str:
    """Return the cell's call, shortened: it may also have tools or other settings."""
    written = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}, "
    return f"svc.panel({written}…)"


def show_rating(rating: "Rating") -> None:
    """Show a rating as a panel; as text if no user can rate here.

    A cell that runs again makes a new rating, so its old panel is closed.
    """
    if find_screen(current().settings.display) is not Screen.NOTEBOOK:
        Output().publish({"text/plain": str(rating)}, None)
        return
    from .rating_panel import RatingPanel  # noqa: PLC0415 - loads ipywidgets

    opened = PANELS.take(rating) or RatingPanel(rating)
    PANELS.keep(opened)
    opened.display()
