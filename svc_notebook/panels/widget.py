"""`Panel`: the chat on a conversation, as one widget.

What it is not: it does nothing by itself (see `chatting`) and draws nothing (see
`static/panel.js`). Rules: one comm, one synced picture with its turns, which hold no
key and no header, since widget state is saved with notebooks.
"""

from pathlib import Path
from typing import Any

import traitlets
from anywidget import AnyWidget

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.session import Session
from svc_notebook.tools.tool_options import Permit
from svc_notebook.tools.toolbox import Toolbox

from .comm import Outlet
from .controller import Chat
from .messages import Settings
from .static_view import VIEW

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
        self._chat = Chat(
            conversation,
            session,
            settings or Settings(),
            toolbox or Toolbox(),
            permit or Permit(),
        )
        super().__init__(view=self._chat.take_picture(is_whole=True))
        self._chat.open(Outlet(self))
        self.on_msg(lambda _, content, __: self._chat.hear(content))

    @property
    def conversation(self) -> Conversation:
        """The conversation that is shown."""
        return self._chat.conversation

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - ipywidgets'
        """Return what a page needs that begins to show the panel.

        Afterwards turns travel with `view`, and only those that have changed.
        """
        state = super().get_state(key, drop_defaults=drop_defaults)
        if "turns" in state:
            state["turns"] = self._chat.turns
        return state

    def freeze(self) -> None:
        """Put the static transcript in the place of the widget, and end the panel.

        A reply under way is stopped; what had come of it is in the transcript.
        """
        self._chat.beside.freeze(self._chat.transcript())
        self.close()

    def close(self) -> None:
        """End the panel; a reply under way is stopped, the conversation stays."""
        if hasattr(self, "_chat"):  # else it was never made, and Python forgets it
            self._chat.close()
        super().close()

    def __repr__(self) -> str:
        return f"<Panel on the conversation {self.conversation.name!r}>"

    def _repr_mimebundle_(self, **_: Any) -> Any:  # noqa: ANN401 - ipywidgets'
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {VIEW: view, "text/plain": f"{self!r}: run the cell to chat"}

    def _ipython_display_(self) -> None:
        is_closed = self.comm is None
        self._chat.display(None if is_closed else self._repr_mimebundle_())
