"""The history in force: one value behind a lock, its past, and who is told.

What it is not: it decides no change; whoever changes gives a function of histories.
Rules: a change is one step; steps can be undone, the newest first, and the oldest are
forgotten (what was undone is still in the ledger); listeners are told outside the
lock, on the thread that made the change, and what they raise is logged only.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import NamedTuple
from uuid import uuid4

from svc_notebook.service.message import Message

from .turns import History

MAX_STEPS = 100
_log = logging.getLogger(__name__)

Change = Callable[[History], History]


class State(NamedTuple):
    """What can be undone.

    Attributes:
        history: The turns; histories share them, so that many cost little.
        series: What the ids of new turns begin with; a reset begins another.
    """

    history: History
    series: str


class Holding:
    """A history that several threads change.

    Args:
        name: Of the conversation, for the log.
        system: The system message.
    """

    def __init__(self, name: str, system: str | None) -> None:
        self._name = name
        self._lock = RLock()
        self._state = State(History(system=system), new_series())
        self._past: deque[State] = deque(maxlen=MAX_STEPS)
        self._listeners: list[Callable[[], object]] = []

    @property
    def state(self) -> State:
        """The history in force, with its series."""
        return self._state

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to undo."""
        return bool(self._past)

    def change(self, change: Change, *, series: str | None = None) -> None:
        """Change the history in a step that can be undone; no change is no step.

        Args:
            change: Gives the new history.
            series: What it is meant for; another series is left as it is. Any if None.

        Raises:
            NotThereError: As `change` does; then nothing is changed.
        """
        with self._lock:
            before = self._state
            if series not in (None, before.series):
                return
            after = before._replace(history=change(before.history))
            if after == before:
                return
            self._past.append(before)
            self._state = after
        self.tell()

    def say_system(self, text: str | None) -> None:
        """Put another system message in front; that is no step.

        Raises:
            ParameterError: It is no text.
        """
        if text is not None:
            Message(role="system", content=text)  # it checks what it is given
        with self._lock:
            before = self._state
            history = replace(before.history, system=text)
            self._state = before._replace(history=history)
        if history != before.history:
            self.tell()

    def begin_anew(self) -> None:
        """Forget all turns; a step."""
        with self._lock:
            self._past.append(self._state)
            system = self._state.history.system
            self._state = State(History(system=system), new_series())
        self.tell()

    def put(self, state: State) -> None:
        """Put a history that was read somewhere in place; no step."""
        with self._lock:
            self._state = state
        self.tell()

    def undo(self) -> bool:
        """Take the newest step back, but for the system message; say if there was."""
        with self._lock:
            if not self._past:
                return False
            was, system = self._past.pop(), self._state.history.system
            self._state = was._replace(history=replace(was.history, system=system))
        self.tell()
        return True

    def listen(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have a function called after each change; return what ends this."""
        self._listeners.append(callback)

        def stop() -> None:
            with suppress(ValueError):  # it was ended before
                self._listeners.remove(callback)

        return stop

    def tell(self) -> None:
        """Call every listener."""
        for callback in tuple(self._listeners):
            try:
                callback()
            except Exception:  # noqa: BLE001 - whatever listens, asking goes on
                _log.exception("A listener of the conversation %r failed.", self._name)


def new_series() -> str:
    """Return what the ids of a new series of turns begin with."""
    return uuid4().hex[:12]
