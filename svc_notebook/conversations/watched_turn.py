"""A turn that is being asked, shown meanwhile where its conversation is open.

A panel shows what a cell asks in its conversation, and takes no message until the
answer is there; else that message would go without this turn.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from svc_notebook.display.reply_display import View
from svc_notebook.display.tool_runs import Step
from svc_notebook.service.request import ToolCall

from .turn_request import NextTurn

_log = logging.getLogger(__name__)


class TurnWatcher(View, Protocol):
    """Shows a turn that something else asks; raising KeyboardInterrupt stops it."""

    def begin_round(self) -> None:
        """Accept that another request is sent, with results of tools."""

    def show_call(self, call: ToolCall | Step) -> None:
        """Accept a tool call that begins or that was answered."""

    def show_status(self, text: str) -> None:
        """Accept what the reply waits for; "" if for nothing."""

    def close(self) -> None:
        """Accept that nothing more comes; the answer, if any, is in the history.

        It is called again if an interrupt ends it.
        """


OpenWatcher = Callable[[NextTurn], TurnWatcher | None]


class WatchedTurns:
    """The turns of a conversation that are being asked, and who watches them."""

    def __init__(self) -> None:
        self._openers: list[OpenWatcher] = []
        self._asked: list[NextTurn] = []

    @property
    def asked(self) -> tuple[NextTurn, ...]:
        """The turns that are being asked now, by cells and panels."""
        return tuple(self._asked)

    def listen(self, open_watcher: OpenWatcher) -> Callable[[], None]:
        """Call a function with each turn that is asked, for a watcher or None.

        Its exceptions are logged. The function that is returned stops the calls.
        """
        self._openers.append(open_watcher)

        def stop() -> None:
            with suppress(ValueError):  # stopped already
                self._openers.remove(open_watcher)

        return stop

    @contextmanager
    def asking(self, next_turn: NextTurn) -> Iterator[tuple[TurnWatcher, ...]]:
        """Show a turn in all watchers, until its answer is recorded or has failed."""
        watchers: list[TurnWatcher | None] = []
        self._asked.append(next_turn)
        try:
            for open_watcher in tuple(self._openers):
                with _logged():
                    watchers.append(open_watcher(next_turn))
            yield tuple(filter(None, watchers))
        finally:
            try:
                self._end(next_turn, watchers)
            except KeyboardInterrupt:  # another one; no panel may wait for ever
                self._end(next_turn, watchers)
                raise

    def _end(self, next_turn: NextTurn, watchers: Iterable[TurnWatcher | None]) -> None:
        self._asked = [turn for turn in self._asked if turn is not next_turn]
        for watcher in filter(None, watchers):
            with _logged():
                watcher.close()


@contextmanager
def _logged() -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001 - a watcher must not stop a request
        _log.exception("A turn that is being asked could not be shown.")
