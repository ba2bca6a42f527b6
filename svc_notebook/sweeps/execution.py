"""One go at a run: on the loop of the background thread, waited for or not.

Rules: whoever waits can be interrupted; the first interrupt sends nothing more and
keeps what comes within seconds, the second cancels; nothing is left running.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Event

from svc_notebook.client.portal import Job, portal
from svc_notebook.errors import Interrupted, SvcError

from .scheduler import Lanes
from .trial_runner import Asker

DRAIN_S = 2.5
TICK_S = 0.1
BEAT_S = 0.5

INTERRUPTED = "(interrupted - what arrived is kept)"

Tick = Callable[[], None]


class Going:
    """One go at a run, begun at once.

    Args:
        lanes: What is asked.
        asker: Asks; its client is closed at the end.
        tick: Called now and then on the loop's thread, if nobody waits.
        on_over: Called when it has ended, once or more.

    Attributes:
        error: What ended it early; None if nothing did.
        is_over: Whether it has ended.
    """

    def __init__(
        self,
        lanes: Lanes,
        asker: Asker,
        *,
        tick: Tick | None = None,
        on_over: Tick = lambda: None,
    ) -> None:
        self.lanes = lanes
        self.error: BaseException | None = None
        self._asker = asker
        self._tick = tick
        self._on_over = on_over
        self._ended = Event()
        self._job: Job[None] = portal().submit(self._go())

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def wait(self, tick: Tick) -> None:
        """Wait for the end.

        Args:
            tick: Called again and again, on this thread.

        Raises:
            Interrupted: The user stopped it; what had come is kept.
            SvcError: It ended early; see `Run.run`.
        """
        try:
            self._wait(tick)
        except KeyboardInterrupt:
            self.stop(tick)
            self.error = Interrupted(message=INTERRUPTED)
        if self.error is not None:
            raise self.error

    def stop(self, tick: Tick = lambda: None) -> None:
        """Send nothing more, give what is in flight some seconds, then cancel it."""
        self.lanes.stop()
        with suppress(KeyboardInterrupt):  # again: that is enough patience
            self._wait(tick, within_s=DRAIN_S)
        self.cancel()

    def cancel(self) -> None:
        """Stop everything now; replies under way are kept as far as they came."""
        self.lanes.stop()
        self._job.cancel()
        self._end()  # also if it was stopped before it could begin

    async def until_over(self, tick: Tick) -> None:
        """Wait for the end where a loop is running; it stays free meanwhile.

        Raises:
            SvcError: As `wait`.
        """
        try:
            while not self.is_over:
                tick()
                # a wait without an end could not be interrupted in a notebook
                await asyncio.sleep(TICK_S)
        except asyncio.CancelledError as stopped:
            self.stop()
            # no class of our own: `asyncio.timeout` takes this very class only
            setattr(stopped, "_render_traceback_", lambda: [INTERRUPTED])  # noqa: B010 - it has no such field
            raise
        except BaseException:
            self.stop()
            raise
        tick()
        if self.error is not None:
            raise self.error

    def _wait(self, tick: Tick, *, within_s: float = float("inf")) -> None:
        left_s = within_s
        while left_s > 0 and not self._ended.wait(TICK_S):
            left_s -= TICK_S
            tick()
        tick()

    async def _run(self) -> SvcError | None:
        if self._tick is None:
            return await self.lanes.run()
        beat = asyncio.create_task(_beat(self._tick))
        try:
            return await self.lanes.run()
        finally:
            beat.cancel()

    async def _go(self) -> None:
        try:
            async with self._asker.client:
                self.error = await self._run()
        except asyncio.CancelledError:
            self.error = self.error or SvcError("The run was stopped before its end.")
            raise
        except Exception as problem:  # noqa: BLE001 - raised where it is waited for
            self.error = problem
        finally:
            self._end()
            if self._tick is not None:
                self._tick()

    def _end(self) -> None:
        self._on_over()
        self._ended.set()


async def _beat(tick: Tick) -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        tick()
