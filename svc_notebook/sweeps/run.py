"""The run: a grid asked once, and what came of it.

What it is not: it keeps no replies; they are read from the ledger (see `readings`),
so that a run that was killed or interrupted has lost nothing. Rules: nothing is sent
before it is run; a failure is a row, and only what makes all further asking vain ends
a run; running again asks what is missing, never what is there, and what failed only
when that is asked for.
"""

import sys
import time
from collections.abc import Callable, Generator
from datetime import datetime
from threading import RLock
from typing import Any, Self

from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.waiting import Waiting, Watch
from svc_notebook.display.progress import Bars, watched
from svc_notebook.display.reply import Final
from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Door
from svc_notebook.ledger.prices import Prices
from svc_notebook.session import Session

from .asking import Asker, Show
from .confirm import confirmed
from .forecast import forecast
from .going import Going, Tick
from .grid import Grid
from .keeping import Keeper
from .lanes import Lanes
from .order import by_model
from .progress import parts
from .readings import Readings, headline_of
from .standing import Place, Standing, check_place, check_same_grid, standing_of
from .todo import todo_of
from .words import duration, in_words

SAID_S = 60.0


class Run(Readings):
    """A sweep: its plan, and after `run()` its replies.

    Shown in a cell it says what will be asked and what became of it. `await run` asks
    like `run()` and leaves the kernel's loop free.

    Attributes:
        in_flight: Most requests in flight for one model; by its limit if None.
        confirm_above: Ask before sending more requests than this; never if None.
        others: As in `Readings`.
    """

    def __init__(  # noqa: PLR0913 - what a run is
        self,
        grid: Grid,
        *,
        session: Session,
        name: str | None,
        run_id: str,
        seed: int,
        door: Door = "sweep",
        prices: Prices | None = None,
    ) -> None:
        super().__init__(
            grid, name=name, run_id=run_id, seed=seed, door=door, prices=prices
        )
        self.in_flight: int | None = None
        self.confirm_above: int | None = None
        self._session = session
        self._place: Place | None = None
        self._keeper: Keeper | None = None
        self._going: Going | None = None
        self._lock = RLock()

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
            LedgerError: Replies cannot be kept.
            SettingsError: It was begun at another address.
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
            self._going.lanes.pause()
        return self

    def resume(self) -> Self:
        """Go on after `pause`."""
        if self._going is not None:
            self._going.lanes.resume()
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
        return f"<{headline_of(self)}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        name = f"**Run {self.name}** · " if self.name else "**Run** · "
        try:
            standing = self._standing()
        except LedgerError as problem:
            return Final(texts=(f"{name}{problem}",)).bundle()
        text = in_words(
            self.grid,
            standing.counts,
            size=self.size,
            is_begun=self._ledger is not None,
        )
        footer = self._next_step(standing)
        return Final(texts=(name + text,), footer=footer).bundle()

    def bind(self) -> None:
        """Go on with what the ledger has under this run's name.

        Raises:
            ParameterError: It has what this grid has not.
            LedgerError: It cannot be read.
        """
        ledger = self._session.ledger
        asked = ledger.read(scope="all", run=self.run_id)
        check_same_grid(self.grid, self.run_id, asked)
        standing = standing_of(ledger.read(scope="all", run=self.run_id, texts=False))
        if standing.place is not None:
            self._ledger, self._place = ledger, standing.place

    def _wait(self, *, watch: Watch | None, is_retried: bool = False) -> Self:
        with self._lock:
            if not self.is_running:
                self._going = self._begin(watch=watch, is_retried=is_retried)
            going = self._going
        if going is not None:
            going.lanes.resume()
            bars = Bars(watched(self._session.settings.display))
            try:
                going.wait(lambda: self._draw(bars))
            finally:
                self._draw(bars, is_last=True)
        return self

    async def _until_over(self) -> Self:
        with self._lock:
            if not self.is_running:
                self._going = self._begin(watch=None)
            going = self._going
        if going is not None:
            bars = Bars(watched(self._session.settings.display))
            try:
                await going.until_over(lambda: self._draw(bars))
            finally:
                self._draw(bars, is_last=True)
        return self

    def _begin(
        self,
        *,
        watch: Watch | None,
        show: Show | None = None,
        is_retried: bool = False,
        tick: Callable[[], None] | None = None,
    ) -> Going | None:
        """Begin a go; None if there is nothing to ask."""
        keeper = self._settle()
        keeper.ledger.check()
        keeper.flush()
        settled = self._standing().settled(is_retried=is_retried)
        n_todo = len(self.grid) - len(settled)
        if n_todo == 0 or not self._is_agreed(n_todo):
            return None
        for key in [key for key in self.notes if key not in settled]:
            del self.notes[key]
        asker = Asker(
            run_id=self.run_id,
            door=self.door,
            client=AsyncClient(
                self._session.settings, key=self._session.key(), sinks=(keeper,)
            ),
            keeper=keeper,
            notes=self.notes,
            watch=watch,
            show=show,
        )
        lanes = Lanes(
            todo_of(self.grid, settled, seed=self.seed),
            asker,
            in_flight=self.in_flight,
            clock=time.monotonic,
            watch=watch or _say,
        )
        return Going(lanes, asker, tick=tick)

    def _settle(self) -> Keeper:
        """Bind the run to where it is first asked, so that it mixes no places.

        Raises:
            SettingsError: It was asked somewhere else before, or there is no address.
        """
        settings = self._session.settings
        check_place(self._place, settings)
        _ = self._session.client  # settings that cannot be used are told here
        ledger = self._ledger or self._session.ledger
        if self._keeper is None or self._keeper.ledger is not ledger:
            self._keeper = Keeper(ledger)
        if settings.base_url is not None:
            ledger.check()
            self._ledger = ledger
            self._place = self._place or Place(
                endpoint=settings.base_url, is_emulated=settings.is_emulated
            )
        return self._keeper

    def _is_agreed(self, n_todo: int) -> bool:
        if self.confirm_above is None or n_todo <= self.confirm_above:
            return True
        n_by = {model: len(each) for model, each in by_model(self.grid).items()}
        share = n_todo / self.grid.n_combinations
        longest = forecast({model: round(n * share) for model, n in n_by.items()})[0]
        lasts = longest.last_sent_s
        how_long = f", about {duration(lasts)}" if lasts else ""
        return confirmed(f"This sends {n_todo} requests{how_long}. Go on?")

    def _draw(self, bars: Bars, *, is_last: bool = False) -> None:
        going = self._going
        if going is None:
            return
        lanes = going.lanes
        shown = parts(
            lanes.lanes,
            now_s=time.monotonic(),
            now_at=datetime.now().astimezone(),
            is_paused=lanes.is_paused,
        )
        bars.show(shown, is_last=is_last or going.is_over)

    def _next_step(self, standing: Standing) -> str:
        if self.is_running:
            return "running; .pause(), .cancel(), .replies_df() at any time"
        n_todo = len(self.grid) - len(standing.settled())
        steps = [".run() asks what is missing"] if n_todo else []
        if n_failed := standing.counts["error"]:
            steps.append(f".retry() asks the {n_failed} that failed again")
        given_up = self._given_up()
        return " · ".join([*steps, *given_up])

    def _given_up(self) -> list[str]:
        lanes = self._going.lanes.lanes if self._going is not None else ()
        return [
            f"{lane.model} was given up: {type(lane.given_up).__name__}"
            for lane in lanes
            if lane.given_up
        ]


def _say(waiting: Waiting) -> None:
    """Say that the run waits, when it does for long."""
    if waiting.wait_s >= SAID_S:
        sys.stderr.write(
            f"The run waits {waiting.wait_s:.0f} s: {waiting.reason}. Interrupt "
            "to stop; run again to go on.\n"
        )
