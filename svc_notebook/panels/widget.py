"""`Panel`: a chat on a conversation as one widget, which `static/panel.js` draws."""

from pathlib import Path
from typing import Any

import traitlets
from anywidget import AnyWidget

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.session import Session
from svc_notebook.tools.permissions import Permit
from svc_notebook.tools.toolbox import Toolbox

from .controller import Controller
from .frontend import VIEW, Comm
from .state import Settings

_STATIC = Path(__file__).parent / "static"


class Panel(AnyWidget):
    """A chat on a named conversation, which the magic and Python share.

    Make it the last line of a cell, or put it into other ipywidgets. Prompts and
    replies are saved with the notebook where widget state is saved; keys are not.

    Args:
        conversation: The conversation that is shown.
        session: Sends the requests.
        settings: The panel's settings at first.
        toolbox: The tools that replies may call.
        permit: Consent and limits for tool calls.
    """

    _esm = _STATIC / "panel.js"
    _css = _STATIC / "panel.css"
    view = traitlets.Dict().tag(sync=True)
    turns = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        conversation: Conversation,
        *,
        session: Session,
        settings: Settings | None = None,
        toolbox: Toolbox | None = None,
        permit: Permit | None = None,
    ) -> None:
        self._controller = Controller(
            conversation,
            session,
            settings or Settings(),
            toolbox or Toolbox(),
            permit or Permit(),
        )
        super().__init__(view=self._controller.to_view(is_whole=True))
        self._controller.open(Comm(self))
        self.on_msg(lambda _, content, __: self._controller.hear(content))

    @property
    def conversation(self) -> Conversation:
        """The conversation that is shown."""
        return self._controller.conversation

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - ipywidgets'
        """Return what a page needs to open the panel: all turns.

        Later, `view` has only the turns that have changed.
        """
        state = super().get_state(key, drop_defaults=drop_defaults)
        if "turns" in state:
            state["turns"] = self._controller.turns
        return state

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
        super().close()

    def __repr__(self) -> str:
        return f"<Panel on the conversation {self.conversation.name!r}>"

    def _repr_mimebundle_(self, **_: Any) -> Any:  # noqa: ANN401 - ipywidgets'
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": f"{self!r}: run the cell to chat"}

    def _ipython_display_(self) -> None:
        is_closed = self.comm is None
        self._controller.display(None if is_closed else self._repr_mimebundle_())
