"""One reply under way: asks on a thread of its own and says what comes.

What it is not: it changes no conversation; who began it takes what it ends with.
Rules: nothing is said in the middle of something else; a stop is looked for at least
20 times a second and closes the connection; whatever happens, it ends with words.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event as Flag
from typing import Any, Literal, Protocol

from svc_notebook.chat.steps import NextTurn
from svc_notebook.client.sync import CompletionStream
from svc_notebook.client.waiting import Waiting
from svc_notebook.completion import Completion
from svc_notebook.errors import SvcError
from svc_notebook.exchange import Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest

from .growing import Growths
from .state import Live, Phase

POLL_S = 0.05
How = Literal["finished", "cut", "stopped", "failed"]
Start = Callable[[CompletionRequest, Origin], CompletionStream]
Clock = Callable[[], float]
_log = logging.getLogger(__name__)

_SAID: dict[How, str] = {
    "finished": "Reply finished",
    "cut": "Reply cut: there was no room for more",
    "stopped": "Reply stopped",
    "failed": "Reply failed",
}


class Stopped(KeyboardInterrupt):
    """The user stopped a reply; passes through everything, as an interrupt does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a reply ended.

    Attributes:
        how: In a word.
        completion: The newest one with any content; None if nothing came.
        problem: What went wrong, in words.
    """

    how: How
    completion: Completion | None = None
    problem: str = ""

    @property
    def said(self) -> str:
        """What the status line says."""
        return _SAID[self.how]


class Stage(Protocol):
    """What a worker plays on: the panel's own."""

    def play(self, live: Live, phase: Phase, *messages: dict[str, Any]) -> None:
        """Take what is drawn now, and send messages, in one step."""

    def question(self, question: dict[str, Any] | None) -> None:
        """Ask the user something, or no longer."""


class Worker:
    """Asks once.

    Args:
        step: What is asked.
        live: How it begins.
        start: Begins a request.
        stage: Where it is shown.
        so_far: Text that the reply goes on with.
        clock: Seconds that only grow.
        now_s: Seconds since 1970, for countdowns.
    """

    def __init__(  # noqa: PLR0913 - its seams
        self,
        step: NextTurn,
        live: Live,
        *,
        start: Start,
        stage: Stage,
        so_far: str = "",
        clock: Clock = time.monotonic,
        now_s: Clock = time.time,
    ) -> None:
        self._step = step
        self._live = live
        self._start = start
        self._stage = stage
        self._so_far = so_far
        self._clock = clock
        self._now_s = now_s
        self._is_stopped = Flag()
        self._newest: Completion | None = None

    def stop(self) -> None:
        """Have it end soon; from any thread."""
        self._is_stopped.set()

    def run(self) -> Ended:
        """Ask, and return how it ended; raises nothing."""
        try:
            completion = self.ask()
        except Stopped:
            return Ended(how="stopped", completion=self._newest)
        except SvcError as error:
            self.take(error.partial)
            words = "\n".join([str(error), *getattr(error, "__notes__", ())])
            return Ended(how="failed", completion=self._newest, problem=words)
        except BaseException as problem:  # noqa: BLE001 - said in the panel
            _log.exception("A reply of the panel failed.")
            words = f"{type(problem).__name__}: {problem}"
            return Ended(how="failed", completion=self._newest, problem=words)
        how: How = "cut" if completion.is_cut else "finished"
        return Ended(how=how, completion=completion)

    def ask(self) -> Completion:
        """Ask and return the whole reply.

        Raises:
            Stopped: The user stopped it.
            SvcError: It failed.
        """
        return self.send(self._step.request, self._step.origin)

    def send(self, request: CompletionRequest, origin: Origin) -> Completion:
        """Send one request and show its reply as it comes.

        Raises:
            Stopped: The user stopped it; what had come is kept.
            SvcError: It failed.
        """
        self.check_stop()
        growths = Growths(self._so_far)
        stream = self._start(request, origin)
        try:
            while not stream.is_done:
                for item in stream.poll(POLL_S):
                    self._show(item, growths)
                self._flush(growths)
                self.check_stop()
            completion = stream.completion
        except Stopped:
            self.take(stream.cancel())
            self._flush(growths, is_last=True)
            raise
        self._flush(growths, is_last=True)
        self.take(completion)
        return completion

    def check_stop(self) -> None:
        """Go no further if the user has stopped it.

        Raises:
            Stopped: They have.
        """
        if self._is_stopped.is_set():
            raise Stopped

    def _show(self, item: Delta | Waiting, growths: Growths) -> None:
        if isinstance(item, Waiting):
            until_ms = round((self._now_s() + item.wait_s) * 1000)
            self.say_status(f"Waiting: {item.reason}", until_ms=until_ms)
        elif item.text:
            growths.feed(item.index, item.text)
            if self._live.status:
                self.say_status("")

    def show_round(self) -> None:
        """Begin to show another reply of the same turn, below the calls so far."""
        self._live = replace(self._live, choices=(), status="")
        message = {"t": "live", "live": self._live.drawn()}
        self._stage.play(self._live, Phase.BUSY, message)

    def say_status(self, text: str, *, until_ms: int | None = None) -> None:
        """Say what is waited for; "" for nothing."""
        self._live = replace(self._live, status=text)
        phase = Phase.WAITING if text else Phase.BUSY
        message = {"t": "status", "text": text, "until_ms": until_ms}
        self._stage.play(self._live, phase, message)

    def _flush(self, growths: Growths, *, is_last: bool = False) -> None:
        messages = growths.take(self._clock(), is_last=is_last)
        if messages:
            self._live = replace(self._live, choices=tuple(growths.drawn))
            phase = Phase.WAITING if self._live.status else Phase.BUSY
            self._stage.play(self._live, phase, *messages)

    def take(self, completion: object) -> None:
        """Keep what came, if there is anything in it."""
        if isinstance(completion, Completion) and any(
            each.text or each.tool_calls for each in completion.choices
        ):
            self._newest = completion
