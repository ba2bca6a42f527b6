"""`Panel`: the widget of a chat on a conversation, which `static/` draws."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import traitlets
from anywidget import AnyWidget
from ipywidgets import Widget, widget_serialization

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Toolbox

from .browser_messages import Comm
from .panel_actions import PanelController, perform
from .settings_form import PanelSettings
from .side_area import PanelPlace
from .view import PanelContext

_STATIC = Path(__file__).parent / "static"
_ROOTS = {"chat": ".svc-panel", "rating": ".svc-rating"}
_VIEW = "application/vnd.jupyter.widget-view+json"


def _join_files(kind: str, ending: str) -> str:
    paths = [*sorted(_STATIC.glob(f"*.{ending}"))]
    paths += sorted((_STATIC / kind).glob(f"*.{ending}"))
    return "\n".join(path.read_text("utf-8") for path in paths)


def script(kind: str = "chat") -> str:
    """Join the scripts of a panel to one module, without comments and indentation.

    The scripts are sent with every panel and saved in widget state. So a panel gets
    only the shared files of `static/` and those of its own folder.
    """
    lines = re.compile(r"^ *(?://[^\n]*|/\*.*?\*/)?\n", re.DOTALL | re.MULTILINE)
    # a quote after the slashes may mean that they are in a string
    ends = re.compile(r"(?<=[;{},)]) // [^\"'`\n]*$", re.MULTILINE)
    indents = re.compile(r"^ +", re.MULTILINE)  # no string has several lines
    return indents.sub("", ends.sub("", lines.sub("", _join_files(kind, "js"))))


def style(kind: str = "chat") -> str:
    """Join the style sheets of a panel, as `script` does.

    The files use the root class of the chat, `svc-panel`. For another panel it is
    replaced, so that rules do not clash on a page with both panels.
    """
    return _join_files(kind, "css").replace(".svc-panel", _ROOTS[kind])


class Panel(AnyWidget):
    """A chat on a named conversation, which the magic and Python share.

    Make it the last line of a cell, or put it into other ipywidgets. Prompts and
    replies are saved with the notebook where widget state is saved; keys are not.
    """

    _esm = script()
    _css = style()
    view = traitlets.Dict().tag(sync=True)  # changed fields; the page merges them

    def __init__(self, context: PanelContext) -> None:
        self._controller = controller = PanelController(context)
        self.opened_with: str | None = None  # the system message that code gave
        self.place: PanelPlace = "cell"
        self.is_restoring = True  # the argument `restore` of `svc.panel`
        super().__init__()
        controller.open(Comm(self))
        self._unwatch = _watch_containers(self, controller.show_static)
        self.on_msg(lambda _, content, __: self.hear(content))

    @property
    def context(self) -> PanelContext:
        """What the parts of the panel share."""
        return self._controller.context

    @property
    def conversation(self) -> Conversation:
        """The conversation that the panel shows."""
        return self.context.conversation

    @property
    def subject(self) -> Conversation:
        """The conversation, by which a cell finds its panel again."""
        return self.conversation

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - ipywidgets'
        """Return the state; if a page asks for all of it, with the whole view.

        It has missed what was written to the transcript while it was not there.
        """
        state = super().get_state(key, drop_defaults=drop_defaults)
        if key:
            return state
        self._controller.repeat_static()
        is_new = self.comm is None
        return {**state, "view": self._controller.view.whole() | {"is_new": is_new}}

    def hear(self, content: object) -> None:
        """Carry out a message from the browser."""
        perform(self._controller, content)

    def reopen(self, settings: PanelSettings, toolbox: Toolbox, permit: Permit) -> None:
        """Continue in a cell that runs again."""
        self._controller.reopen(settings, toolbox, permit)

    def leave(self, conversation: Conversation, notice: str) -> None:
        """Show another conversation, and say why."""
        self._controller.leave(conversation, notice)

    def freeze(self) -> None:
        """Replace the widget by the static transcript, and close it.

        A reply that is being written is stopped; its text so far is in the transcript.
        """
        self._controller.freeze()
        self.close()

    def close(self) -> None:
        """Close the panel; a reply is stopped, the conversation stays."""
        if hasattr(self, "_controller"):  # __init__ may have failed
            self._controller.close()
            self._unwatch()
        super().close()

    def __repr__(self) -> str:
        return f"<Panel on the conversation {self.conversation.name!r}>"

    def _repr_mimebundle_(self, **_: Any) -> Any:  # noqa: ANN401 - ipywidgets'
        # exports show the text above the transcript, which says all
        return {**widget_view(self.model_id), "text/plain": ""}

    def _ipython_display_(self) -> None:
        is_closed = self.comm is None
        widget = None if is_closed else self._repr_mimebundle_()
        self._controller.display(widget, is_docked=self.place == "right")


def widget_view(model_id: str | None) -> dict[str, Any]:
    """Return the bundle that shows a widget."""
    return {_VIEW: {"version_major": 2, "version_minor": 0, "model_id": model_id}}


def _watch_containers(widget: Widget, act: Callable[[], object]) -> Callable[[], None]:
    """Call a function after each cell that shows a widget inside another widget.

    Returns:
        A function that stops the calls.
    """
    from IPython import get_ipython  # noqa: PLC0415 - only where there is a kernel

    shell: Any = get_ipython()
    publisher: Any = getattr(shell, "display_pub", None)
    shown: list[object] = []

    def note(message: dict[str, Any]) -> dict[str, Any]:
        view = message["content"].get("data", {}).get(_VIEW, {})
        container = _widget_of(view.get("model_id"))
        shown.extend([container] * _contains(container, widget))
        return message

    def after(ran: Any) -> None:  # noqa: ANN401 - IPython's
        if shown or _contains(ran.result, widget):
            shown.clear()
            act()

    def unwatch() -> None:
        publisher.unregister_hook(note)
        with suppress(AttributeError, ValueError):
            shell.events.unregister("post_run_cell", after)

    if not hasattr(publisher, "register_hook"):  # a terminal
        return lambda: None
    publisher.register_hook(note)
    shell.events.register("post_run_cell", after)
    return unwatch


def _widget_of(model_id: str | None) -> object:
    """Return the widget with an id; for any other id, a value that is not a widget."""
    return widget_serialization["from_json"](f"IPY_MODEL_{model_id}", None)


def _contains(container: object, widget: Widget) -> bool:
    if not isinstance(container, Widget):
        return False
    children = getattr(container, "children", ())
    return any(child is widget or _contains(child, widget) for child in children)
