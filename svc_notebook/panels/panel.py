"""`svc.panel`: opens a chat panel on a conversation. Widgets load at the first one."""

from typing import TYPE_CHECKING, Unpack

from svc_notebook.service.params import with_params
from svc_notebook.session import current
from svc_notebook.tools.permissions import ToolParams, take_permit
from svc_notebook.tools.toolbox import to_toolbox

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
    **params: Unpack[ToolParams],
) -> "Panel":
    """Open a chat panel on a conversation, the one that `%%svc -c NAME` continues.

    Leave it as the last line of a cell, or put it among other ipywidgets. Settings can
    be changed in the panel. Prompts and replies are saved with the notebook: as a
    transcript beside the panel, and in the widget state where that is saved; no key is.

    Args:
        name: Of the conversation, a word without blanks; `chat` if None.
        system: Becomes the system message in front of every request; None leaves it.
        model: Id of the model; the session's model if None.
        **params: Parameters by the document's names, as for `svc.complete`;
            `max_tokens` takes `fit` (what is left of the budget, the default) and
            `service` (none is sent) too. `tools` are what replies may call: a
            `Toolbox` or a list of functions; one made with `confirm=True` is asked
            for in the panel. `confirm`, `max_rounds`, `tool_timeout_s` and `total_s`
            are those of `svc.complete`.

    Returns:
        The panel: a widget, with `conversation` and `freeze()`.

    Raises:
        ParameterError: The name or a parameter is not allowed.
        ToolSchemaError: A tool cannot be described.

    Example:
        >>> svc.panel("plan", system="You plan trips.")  # doctest: +SKIP
    """
    from .widget import Panel  # noqa: PLC0415 - loads ipywidgets

    session = current()
    given = dict(params)
    permit = take_permit(given)
    toolbox = to_toolbox(given.pop("tools", None))
    settings = Settings().setting("model", model)
    for param, value in given.items():
        settings = settings.setting(param, value)
    conversation = session.conversations.named(NAME if name is None else name)
    if system is not None:
        conversation.system = system
    return Panel(
        conversation,
        session=session,
        settings=settings,
        toolbox=toolbox,
        permit=permit,
    )
