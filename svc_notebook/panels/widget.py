"""`Panel`: a chat on a conversation as one widget, which `static/` draws."""

import re
from pathlib import Path
from typing import Any

import traitlets
from anywidget import AnyWidget

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Toolbox

from .actions import allowed_now, allowed_on, perform
from .comm import Comm
from .controller import Controller
from .settings_form import PanelSettings
from .static_transcript import watch_containers, widget_view
from .view import PanelContext, PanelView

_STATIC = Path(__file__).parent / "static"


def _joined(ending: str) -> str:
    paths = sorted(_STATIC.glob(f"*.{ending}"))
    return "\n".join(path.read_text("utf-8") for path in paths)


def script() -> str:
    """Join the scripts of `static/` to one module, without comment lines.

    It is in every message that opens a panel, and in saved widget state.
    """
    needless = re.compile(r"^ *(?://[^\n]*|/\*.*?\*/)?\n", re.DOTALL | re.MULTILINE)
    return needless.sub("", _joined("js"))


def style() -> str:
    """Join the style sheets of `static/`."""
    return _joined("css")


class Panel(AnyWidget):
    """A chat on a named conversation, which the magic and Python share.

    Make it the last line of a cell, or put it into other ipywidgets. Prompts and
    replies are saved with the notebook where widget state is saved; keys are not.
    """

    _esm = script()
    _css = style()
    view = traitlets.Dict().tag(sync=True)  # what has changed; the page joins it

    def __init__(self, context: PanelContext) -> None:
        self._view = PanelView(context, allowed_now, allowed_on)
        self._controller = controller = Controller(context, self._view)
        self.opened_with: str | None = None  # the system message, as code gave it
        super().__init__()
        controller.open(Comm(self))
        self._unwatch = watch_containers(self, controller.show_static)
        self.on_msg(lambda _, content, __: self.hear(content))

    @property
    def conversation(self) -> Conversation:
        """The conversation that is shown."""
        return self._controller.context.conversation

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - ipywidgets'
        """Return the state; asked for all of it, with the whole view."""
        state = super().get_state(key, drop_defaults=drop_defaults)
        return state if key else {**state, "view": self._view.whole()}

    def hear(self, content: object) -> None:
        """Do what a message from the browser asks for."""
        perform(self._controller, content)

    def reopen(self, settings: PanelSettings, toolbox: Toolbox, permit: Permit) -> None:
        """Go on in a cell that runs again."""
        self._controller.reopen(settings, toolbox, permit)

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
        text = f"{self!r}: run the cell to chat"
        return {**widget_view(self.model_id), "text/plain": text}

    def _ipython_display_(self) -> None:
        is_closed = self.comm is None
        self._controller.display(None if is_closed else self._repr_mimebundle_())
