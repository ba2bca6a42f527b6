"""`Panel`: the chat on a conversation, as one widget; `static/panel.js` draws it."""

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
    """A chat on a named conversation, which magic and Python share.

    Show it by leaving it as the last line of a cell, or put it among other ipywidgets.
    What is said in it, prompts included, is saved with the notebook where widget state
    is; keys are not.

    Args:
        conversation: The one to show.
        session: Asks.
        settings: How it asks at first.
        toolbox: What its replies may call.
        permit: What is allowed to these calls.
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
        super().__init__(view=self._controller.take_picture(is_whole=True))
        self._controller.open(Comm(self))
        self.on_msg(lambda _, content, __: self._controller.hear(content))

    @property
    def conversation(self) -> Conversation:
        """The conversation that is shown."""
        return self._controller.conversation

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - ipywidgets'
        """Return what a page needs that begins to show the panel.

        After that, `view` carries only the turns that have changed.
        """
        state = super().get_state(key, drop_defaults=drop_defaults)
        if "turns" in state:
            state["turns"] = self._controller.turns
        return state

    def freeze(self) -> None:
        """Replace the widget by the static transcript, and close it.

        A reply that is being written is stopped; its text so far is in the transcript.
        """
        self._controller.static_view.freeze(self._controller.transcript())
        self.close()

    def close(self) -> None:
        """Close the panel; a reply is stopped, the conversation stays."""
        if hasattr(self, "_controller"):  # False where __init__ failed
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
