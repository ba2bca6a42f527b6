"""Receiving one answer: its body is read against the clock, delta by delta.

Rules: silence is counted in events; an answer whose choices are all finished is not
spoilt by what its connection does afterwards; what had come is kept, whatever went
wrong.
"""

from collections.abc import Callable

from svc_notebook.service.chunk import Delta
from svc_notebook.service.completion import CompletionBody
from svc_notebook.service.fault import to_error
from svc_notebook.wire.faults import decode_fault

from .clocks import Clocks, Left, timed_out
from .reading import BodyReading
from .redirect import is_redirect, redirected
from .transport import Answer, Lost

DRAIN_S = 0.05  # for the end after [DONE], so that the connection can be used again
AFTER_FINISH_S = 2.0  # for usage and [DONE] after the last finish reason
MAX_FAULT_BYTES = 2 * 1024 * 1024
_FAULT_S = 5.0  # the status says what matters; its words are not waited for longer
_END_OF_SUCCESS = 300


class Receiving:
    """One answer being received.

    Args:
        answer: Its headers are in.
        is_streamed: Whether a stream was asked for.
        n_choices: Choices that were asked for.
        clocks: The exchange's deadlines.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        is_streamed: bool,
        n_choices: int,
        clocks: Clocks,
        clock: Callable[[], float],
    ) -> None:
        self._answer = answer
        self._clocks = clocks
        self._clock = clock
        self._event_s = clock()
        self._finished_s: float | None = None
        self._reading = BodyReading(
            is_streamed=is_streamed,
            status=answer.head.status,
            content_type=answer.head.content_type,
            n_choices=n_choices,
        )

    async def receive(
        self, show: Callable[[Delta], None], *, sent_s: float
    ) -> Lost | None:
        """Read the body to its end, and show what comes.

        Args:
            show: Told each delta.
            sent_s: When the request was sent, by the clock.

        Returns:
            What went wrong, if anything did.
        """
        reading = self._reading
        while not reading.is_done:
            left = self._left(sent_s)
            piece = await self._answer.read(within_s=max(left.left_s, 0.0))
            if piece is None or isinstance(piece, Lost):
                if not reading.is_finished:
                    return piece or Lost(error=timed_out(left))
                piece = b""
            n_events = reading.n_events
            for delta in reading.feed(piece) if piece else reading.end():
                show(delta)
            if reading.n_events > n_events:
                self._event_s = self._clock()
        if reading.error is not None:
            return Lost(error=reading.error, is_lasting=True)
        return None

    async def refusal(self, *, sent_s: float) -> Lost | None:
        """Read the error that a status stands for; None if it is a success.

        Args:
            sent_s: When the request was sent, by the clock.
        """
        head = self._answer.head
        if head.status < _END_OF_SUCCESS:
            return None
        if is_redirect(head.status):
            return Lost(error=redirected(head), is_lasting=True)
        within_s = min(self._left(sent_s).left_s, _FAULT_S)
        fault = decode_fault(await self._fault_body(within_s))
        error = to_error(fault, status=head.status, retry_after_s=head.retry_after_s)
        return Lost(error=error)

    async def close(self) -> None:
        """Let go of the answer."""
        is_whole = self._reading.is_done or self._answer.head.status >= _END_OF_SUCCESS
        await self._answer.close(within_s=DRAIN_S if is_whole else 0.0)

    @property
    def n_chunks(self) -> int:
        """Chunks so far."""
        return self._reading.n_chunks

    def body(self) -> CompletionBody | None:
        """Return what has come so far; None if no choice has begun."""
        return self._reading.body()

    def _left(self, sent_s: float) -> Left:
        now_s = self._clock()
        left = self._clocks.for_body(now_s, sent_s=sent_s, event_s=self._event_s)
        if not self._reading.is_finished:
            return left
        if self._finished_s is None:
            self._finished_s = now_s
        left_s = self._finished_s + AFTER_FINISH_S - now_s
        return Left(min(left_s, left.left_s), left.name, AFTER_FINISH_S)

    async def _fault_body(self, within_s: float) -> bytes:
        """Read an error body as far as it can be read in a short time."""
        pieces: list[bytes] = []
        n_bytes = 0
        until_s = self._clock() + within_s
        while n_bytes < MAX_FAULT_BYTES:
            piece = await self._answer.read(within_s=until_s - self._clock())
            if not isinstance(piece, bytes) or not piece:
                break
            pieces.append(piece)
            n_bytes += len(piece)
        return b"".join(pieces)
