"""The run: a grid asked once, and what came of it.

What it is not: it keeps no replies; they are read from the ledger (see `readings`),
so that a run that was killed or interrupted has lost nothing. Rules: nothing is sent
before it is run; a failure is a row, and only what makes all further asking vain ends
a run; running again asks what is missing, never what is there, and what failed only
when that is asked for.
"""

import sys
import time
from collections import Counter
from collections.abc import Generator
from datetime import datetime
from typing import Any, Self

from svc_notebook.client.attempts import Watch
from svc_notebook.display.markup import to_terminal
from svc_notebook.display.progress import Bars, watched
from svc_notebook.errors import LedgerError

from .describe import Told, n_by_model, parts, tell
from .execution import Going, Tick
from .resume import Standing
from .run_state import Beginning
from .trial_runner import Show

READ = ".replies_df(), .summary_df(), .compare()"


class Run(Beginning):
    """A sweep: its plan, and after `run()` its replies.

    Shown in a trial it says what will be asked and what became of it. `await run` asks
    like `run()` and leaves the kernel's loop free.

    Attributes:
        in_flight: Most requests in flight for one model; by its limit if None.
        confirm_above: Ask before sending more requests than this; never if None.
        is_reusing: Whether the ledger may answer identical requests.
        others: As in `Readings`.
    """

    _said_in: int | None = None
    """The trial that said why nothing was answered, which need not show it again."""

    def run(self, *, watch: Watch | None = None) -> Self:
        """Ask what is missing, and wait for the end.

        Models are asked side by side, each within its limits (doc: Rate limits per
        model). The first interrupt sends nothing more and keeps what comes within
        seconds, the second cancels; running again goes on with what is missing. What
        failed is left as it is: see `retry`.

        Args:
            watch: Told about each wait, for a limit or for another try. If None, a
                model that refuses requests for a minute or more is told on stderr.

        Returns:
            The run itself; a request that failed is a row of `replies_df`.

        Raises:
            ConfigError: The API key or the base address is missing.
            ParameterError: Another kernel is asking the run of this name.
            SettingsError: Something is missing, and it was begun at another address.
            LedgerError: Replies cannot be kept; what was kept before is safe, and
                what came is in hand and kept when it is run again.
            AuthError: The key is invalid (401), so no request can succeed.
            SvcError: Every model was given up after failures in a row; this is one.
        """
        return self._wait(watch=watch)

    def retry(self, *, watch: Watch | None = None) -> Self:
        """Ask what failed, and what is missing, and wait for the end.

        Args:
            watch: As for `run`.

        Returns:
            The run itself.

        Raises:
            SvcError: As for `run`.
        """
        return self._wait(watch=watch, is_retried=True)

    def start(
        self,
        *,
        watch: Watch | None = None,
        show: Show | None = None,
        is_retried: bool = False,
        is_drawn: bool = True,
    ) -> Self:
        """Begin to ask what is missing, and return at once; the kernel stays free.

        Args:
            watch: As for `run`.
            show: Told each piece of a reply as it comes; replies are streamed then,
                and their usage is estimated.
            is_retried: Whether to ask what failed, too.
            is_drawn: Whether to show progress, where that is possible.

        Returns:
            The run itself: look at it, or at `replies_df`, at any time; `wait` for
            its end.

        Raises:
            ConfigError: The API key or the base address is missing.
            ParameterError: Another kernel is asking the run of this name.
            LedgerError: Replies cannot be kept.
            SettingsError: Something is missing, and it was begun at another address.
        """
        with self._lock:
            if not self.is_running:
                bars = Bars(watched(self._session.settings.display))
                # a terminal's line is the user's while they type
                is_drawn = is_drawn and not sys.stderr.isatty()
                self._going = self._begin(
                    watch=watch,
                    show=show,
                    is_retried=is_retried,
                    tick=(lambda: self._draw(bars)) if is_drawn else None,
                )
                if is_drawn:
                    self._draw(bars)
        return self

    def wait(self, *, tick: Tick = lambda: None) -> Self:
        """Wait for the end of what `start` began; it is raised if it ended early.

        Args:
            tick: Called again and again, on this thread.

        Raises:
            SvcError: As for `run`.
        """
        if self._going is not None:
            self._going.wait(tick)
        return self

    def pause(self) -> Self:
        """Send nothing more until `resume`; what is in flight comes to its end."""
        if self._going is not None:
            self._going.scheduler.pause()
        return self

    def resume(self) -> Self:
        """Go on after `pause`."""
        if self._going is not None:
            self._going.scheduler.resume()
        return self

    def cancel(self) -> Self:
        """Stop what is running; replies that had come are kept."""
        if self._going is not None and not self._going.is_over:
            self._going.stop()
        return self

    @property
    def is_running(self) -> bool:
        """Whether it is being asked now."""
        return self._going is not None and not self._going.is_over

    @property
    def error(self) -> BaseException | None:
        """What ended the last go early; None if nothing did."""
        return self._going.error if self._going is not None else None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._until_over().__await__()

    def __repr__(self) -> str:
        return self._told().text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        is_said = self._said_in is not None and self._said_in == _trial_number()
        return self._told(is_said=is_said).bundle()

    def _wait(self, *, watch: Watch | None, is_retried: bool = False) -> Self:
        while going := self._gone(watch=watch, is_retried=is_retried):
            going.scheduler.resume()
            self._wait_for(going)
            if self._is_own:
                self._say_if_vain(going)
                break
        return self

    def _wait_for(self, going: Going) -> None:
        bars = Bars(watched(self._session.settings.display))
        try:
            going.wait(lambda: self._draw(bars))
        finally:
            self._draw(bars, is_last=True)

    async def _until_over(self) -> Self:
        while going := self._gone():
            await self._until_over_of(going)
            if self._is_own:
                self._say_if_vain(going)
                break
        return self

    async def _until_over_of(self, going: Going) -> None:
        bars = Bars(watched(self._session.settings.display))
        try:
            await going.until_over(lambda: self._draw(bars))
        finally:
            self._draw(bars, is_last=True)

    def _gone(
        self, *, watch: Watch | None = None, is_retried: bool = False
    ) -> Going | None:
        """Return the go that is on, or begin one; None if there is nothing to ask."""
        with self._lock:
            if not self.is_running:
                self._going = self._begin(watch=watch, is_retried=is_retried)
            return self._going

    def _draw(self, bars: Bars, *, is_last: bool = False) -> None:
        going = self._going
        if going is None:
            return
        scheduler = going.scheduler
        shown = parts(
            scheduler.queues,
            now_s=time.monotonic(),
            now_at=datetime.now().astimezone(),
            is_paused=scheduler.is_paused,
            is_stopped=scheduler.is_over,
        )
        bars.show(shown, is_last=is_last or going.is_over)

    def _told(self, *, is_said: bool = False) -> Told:
        try:
            standing = self._standing()
            is_told = standing.counts["error"] and not is_said
            reasons = self.reasons if is_told else []
        except LedgerError as problem:
            return Told(name=self.name, head=f"its ledger cannot be read. {problem}")
        return tell(
            self.grid,
            standing.counts,
            name=self.name,
            size=self.size,
            is_begun=self._ledger is not None,
            n_left=self._n_left(standing),
            reasons=reasons,
            is_running=self.is_running,
            steps=self._next_steps(standing),
        )

    def _n_left(self, standing: Standing) -> dict[str, int]:
        n_settled = Counter(standing.settled().values())
        return {
            model: n - n_settled[model] for model, n in n_by_model(self.grid).items()
        }

    def _next_steps(self, standing: Standing) -> list[str]:
        if self._going is not None and self.is_running:
            if self._going.scheduler.is_paused:
                return ["paused; .resume() goes on, .cancel() stops it"]
            return ["running; .pause(), .cancel(), .replies_df() at any time"]
        n_todo = len(self.grid) - len(standing.settled())
        steps = [".run() asks what is missing"] if n_todo else [READ]
        if n_failed := standing.counts["error"]:
            steps.append(f".retry() asks the {n_failed} that failed again")
        queues = self._going.scheduler.queues if self._going is not None else ()
        given_up = [
            f"{queue.model} was given up: {type(queue.given_up).__name__}"
            for queue in queues
            if queue.given_up
        ]
        return [*steps, *given_up]

    def _say_if_vain(self, going: Going) -> None:
        """Say why, if a go has ended and nothing of it was answered."""
        n_ok = sum(queue.n_ok for queue in going.scheduler.queues)
        n_failed = sum(queue.n_failed for queue in going.scheduler.queues)
        if n_ok or not n_failed or self.origin != "sweep":
            return
        self._said_in = _trial_number()
        reasons = "".join(f"\n  {each}" for each in self.reasons)
        sys.stderr.write(
            to_terminal(
                f"Nothing was answered; requests that failed: {n_failed}{reasons}\n"
                "When that is mended, retry() asks them again.\n"
            )
        )


def _trial_number() -> int | None:
    """Return the number of the trial or line that runs; None outside of IPython."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    return None if shell is None else int(shell.execution_count)
