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

from svc_notebook.client.attempts import Waiting
from svc_notebook.client.sync import CompletionStream
from svc_notebook.completion import Completion
from svc_notebook.conversations.next_turn import NextTurn
from svc_notebook.display.blocks import Blocks
from svc_notebook.display.live import GAP_S, POLL_S, block_html
from svc_notebook.display.markup import to_html
from svc_notebook.errors import Interrupted, SvcError
from svc_notebook.exchange import Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest

from .state import Live, Phase

MAX_TAIL_BYTES = 448
MAX_BYTES_PER_S = 12_000
ENVELOPE_BYTES = 600  # what a message costs besides what it says


class Growth:
    """One choice that grows.

    Args:
        so_far: Text that stood there before.
    """

    def __init__(self, so_far: str = "") -> None:
        self._blocks = Blocks(max_tail_bytes=MAX_TAIL_BYTES)
        self._blocks.feed(so_far)
        self._finished: list[str] = []
        self._tail = ""
        self._is_new = bool(so_far)

    @property
    def is_new(self) -> bool:
        """Whether there is something that was not taken yet."""
        return self._is_new

    def feed(self, text: str) -> None:
        """Add a piece of the reply."""
        self._blocks.feed(text)
        self._is_new |= bool(text)

    def take(self) -> tuple[str, str]:
        """Return the HTML of blocks that became finished, and that of the tail."""
        self._is_new = False
        html = "".join(map(block_html, self._blocks.take()))
        if html:
            self._finished.append(html)
        tail = self._blocks.tail
        self._tail = (
            to_html(tail.markdown, highlight=False) if tail.source.strip() else ""
        )
        return html, self._tail

    @property
    def drawn(self) -> dict[str, str]:
        """What was taken so far, as a whole."""
        return {"html": "".join(self._finished), "tail": self._tail}


class Growths:
    """The choices of a reply, and the pace at which they are sent.

    Args:
        so_far: Text of the first choice that stood there before.
    """

    def __init__(self, so_far: str = "") -> None:
        self._by_choice: dict[int, Growth] = {0: Growth(so_far)}
        self._due_at_s = 0.0

    def feed(self, choice: int, text: str) -> None:
        """Add a piece of a choice."""
        self._by_choice.setdefault(choice, Growth()).feed(text)

    def take(self, now_s: float, *, is_last: bool = False) -> list[dict[str, Any]]:
        """Return the messages to send now, if it is time.

        Args:
            now_s: Seconds that only grow.
            is_last: Whether to take everything, whatever the time.
        """
        if now_s < self._due_at_s and not is_last:
            return []
        messages: list[dict[str, Any]] = []
        for choice, growth in sorted(self._by_choice.items()):
            if growth.is_new:
                html, tail = growth.take()
                messages.append(
                    {"t": "delta", "choice": choice, "html": html, "tail": tail}
                )
        n_bytes = sum(
            ENVELOPE_BYTES + len(each["html"].encode()) + len(each["tail"].encode())
            for each in messages
        )
        self._due_at_s = now_s + max(GAP_S * len(messages), n_bytes / MAX_BYTES_PER_S)
        return messages

    @property
    def drawn(self) -> list[dict[str, str]]:
        """All choices as sent so far, in order."""
        n_choices = max(self._by_choice) + 1
        empty = {"html": "", "tail": ""}
        return [
            self._by_choice[at].drawn if at in self._by_choice else empty
            for at in range(n_choices)
        ]


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
        except Interrupted:
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
            Interrupted: The user stopped it.
            SvcError: It failed.
        """
        return self.send(self._step.request, self._step.origin)

    def send(self, request: CompletionRequest, origin: Origin) -> Completion:
        """Send one request and show its reply as it comes.

        Raises:
            Interrupted: The user stopped it; what had come is kept.
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
        except Interrupted:
            self.take(stream.cancel())
            self._flush(growths, is_last=True)
            raise
        self._flush(growths, is_last=True)
        self.take(completion)
        return completion

    def check_stop(self) -> None:
        """Go no further if the user has stopped it.

        Raises:
            Interrupted: They have.
        """
        if self._is_stopped.is_set():
            raise Interrupted

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
