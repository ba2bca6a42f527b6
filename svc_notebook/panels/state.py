"""A panel's state, and what all parts of one panel share.

`PanelState` is a value and holds no key, since what is drawn of it is saved with
notebooks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from threading import RLock
from typing import Any

from svc_notebook.conversations.conversation import Conversation
from svc_notebook.session import Session
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Toolbox

from .comm import Comm
from .compare_mode import Comparing
from .live_reply import LiveReply
from .settings_form import PanelSettings
from .static_transcript import StaticTranscript


class Phase(StrEnum):
    """What a panel is doing."""

    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    ASKING = "asking"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """The state of a panel."""

    phase: Phase = Phase.IDLE
    settings: PanelSettings = field(default_factory=PanelSettings)
    comparing: Comparing = field(default_factory=Comparing)
    live: LiveReply | None = None
    notice: str = ""  # a message to the user: turns left out, refused, failed
    is_problem: bool = False  # whether the notice is an error
    question: Mapping[str, Any] | None = None  # a tool call that needs consent
    send_on_enter: bool = True
    main_writes: int = 0  # how often it was shown while `Comm.is_lost`


class PanelContext:
    """What the parts of one panel share: its conversation, its state, its comm.

    Only `change` changes the state, from any thread.
    """

    def __init__(
        self,
        conversation: Conversation,
        session: Session,
        settings: PanelSettings,
        toolbox: Toolbox,
        permit: Permit,
    ) -> None:
        self.conversation = conversation
        self.session = session
        self.use_tools(toolbox, permit)
        notice = conversation.older_note()
        notice = notice[:1].upper() + notice[1:]
        self.state = PanelState(settings=settings, notice=notice)
        self.comm = Comm()
        self.static_transcript = StaticTranscript()
        self.lock = RLock()

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - of the state's fields
        """Change fields of the state."""
        with self.lock:
            self.state = replace(self.state, **changes)

    def use_tools(self, toolbox: Toolbox, permit: Permit) -> None:
        """Offer these tools in each request."""
        self.toolbox, self.permit = toolbox, permit
        self.tool_definitions = toolbox.definitions

    @property
    def tool_params(self) -> dict[str, Any]:
        """The request parameter that offers the panel's tools; empty without tools."""
        return {"tools": self.tool_definitions} if self.tool_definitions else {}

    @property
    def model(self) -> str:
        """The model of the next message."""
        return self.state.settings.model or self.session.settings.model

    @property
    def budget_tokens(self) -> int:
        """The tokens that prompt and reply of the next message share."""
        return self.session.context_of(self.model)

    def models(self) -> tuple[str, ...]:
        """Return the ids of the models that the server lists."""
        return tuple(model.id for model in self.session.models())
