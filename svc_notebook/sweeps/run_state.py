"""Beginning a go at a run: what is missing, where it is asked, and by whom.

What it is not: waiting for it (see `run`). Rules: what has all its replies is not
begun, wherever requests would go now; a run mixes no places; nobody is paid twice
because two kernels have one run; nothing is sent before it is agreed to.
"""

import sys
import time
from collections.abc import Callable, Mapping
from threading import RLock
from typing import cast

from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.attempts import Waiting, Watch
from svc_notebook.errors import SvcError
from svc_notebook.exchange import OriginKind
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.store import Ledger
from svc_notebook.session import Session

from .describe import duration
from .execution import Going
from .forecast import forecast
from .grid import Grid
from .resume import Place, TrialKey, check_place, check_same_grid, standing_of
from .run_lock import Claim, claim, held_here
from .run_view import Readings
from .scheduler import Lanes, by_model, todo_of
from .trial_runner import Asker, Show, confirmed

SAID_S = 60.0


class Beginning(Readings):
    """A run that can be begun.

    Attributes:
        in_flight: Most requests in flight for one model; by its limit if None.
        confirm_above: Ask before sending more requests than this; never if None.
        is_reusing: Whether the ledger may answer identical requests.
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
        origin: OriginKind = "sweep",
        prices: Prices | None = None,
    ) -> None:
        super().__init__(
            grid,
            name=name,
            run_id=run_id,
            seed=seed,
            origin=origin,
            prices=prices,
        )
        self.in_flight: int | None = None
        self.confirm_above: int | None = None
        self.is_reusing = False
        self._session = session
        self._place: Place | None = None
        self._going: Going | None = None
        self._is_own = True
        self._lock = RLock()

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

    def _begin(
        self,
        *,
        watch: Watch | None,
        show: Show | None = None,
        is_retried: bool = False,
        tick: Callable[[], None] | None = None,
    ) -> Going | None:
        """Begin a go, or join the one of this run; None if there is nothing to ask."""
        if self._ledger is not None:
            self._ledger.flush()
            if self._ledger.problem is not None:
                raise self._ledger.problem
        if (n_todo := len(self.grid) - len(self._settled(is_retried))) == 0:
            return None
        is_new = self._ledger is None
        ledger = self._settle(n_todo)
        held = held_here(ledger, self.run_id)
        self._is_own = held is None or held.going is None or held.going.is_over
        if held is not None and not self._is_own:
            return cast("Going", held.going)
        claimed = claim(ledger, self.run_id, is_named=self.name is not None)
        try:
            if is_new and self.name is not None:
                self._bind_again(n_todo)
            return self._claimed(
                claimed,
                ledger,
                is_retried=is_retried,
                tick=tick,
                watch=watch,
                show=show,
            )
        except BaseException:
            claimed.release()
            raise

    def _bind_again(self, n_todo: int) -> None:
        """See what another kernel asked under this name since it was planned."""
        try:
            self.bind()
            if self._session.settings.answers is None:
                check_place(self._place, self._session.settings, n_todo=n_todo)
        except SvcError:
            self._ledger = self._place = None  # nor is it taken for this one's
            raise

    def _claimed(
        self,
        claimed: Claim,
        ledger: Ledger,
        *,
        is_retried: bool,
        tick: Callable[[], None] | None,
        watch: Watch | None,
        show: Show | None,
    ) -> Going | None:
        """Begin a go at what is still missing, now that nobody else asks it."""
        settled = self._settled(is_retried)
        n_todo = len(self.grid) - len(settled)
        if n_todo == 0 or not self._is_agreed(n_todo):
            claimed.release()
            return None
        for key in [key for key in self.notes if key not in settled]:
            del self.notes[key]
        asker = self._asker(ledger, watch=watch, show=show)
        lanes = Lanes(
            todo_of(self.grid, settled, seed=self.seed),
            asker,
            in_flight=self.in_flight,
            clock=time.monotonic,
            watch=watch or _say,
        )
        going = Going(lanes, asker, tick=tick, on_over=claimed.release)
        claimed.going = going
        return going

    def _asker(
        self, ledger: Ledger, *, watch: Watch | None, show: Show | None
    ) -> Asker:
        session = self._session
        recorded = session.answers
        return Asker(
            run_id=self.run_id,
            origin=self.origin,
            client=AsyncClient(
                session.settings,
                key=session.key() if recorded is None else None,
                sinks=(ledger,),
                answers=session.reused if self._is_from_ledger else recorded,
            ),
            ledger=ledger,
            notes=self.notes,
            watch=watch,
            show=show,
            is_reusing=self._is_from_ledger,
            is_paced=recorded is None,
        )

    @property
    def _is_from_ledger(self) -> bool:
        # a file that answers everything comes first: it needs no key and no address
        return self.is_reusing and self._session.settings.answers is None

    def _settled(self, is_retried: bool) -> Mapping[TrialKey, str]:  # noqa: FBT001 - handed on
        return self._standing().settled(is_retried=is_retried)

    def _settle(self, n_todo: int) -> Ledger:
        """Bind the run to where it is first asked, so that it mixes no places.

        Raises:
            SettingsError: It was asked somewhere else before, or there is no address.
        """
        settings = self._session.settings
        is_answered = settings.answers is not None
        if not is_answered:
            check_place(self._place, settings, n_todo=n_todo)
        _ = self._session.client  # settings that cannot be used are told here
        ledger = self._ledger or self._session.ledger
        if settings.base_url is not None or is_answered:
            ledger.check()
            self._ledger = ledger
        if settings.base_url is not None and not is_answered:
            self._place = self._place or Place(
                endpoint=settings.base_url, is_emulated=settings.is_emulated
            )
        return ledger

    def _is_agreed(self, n_todo: int) -> bool:
        if self.confirm_above is None or n_todo <= self.confirm_above:
            return True
        n_by = {model: len(each) for model, each in by_model(self.grid).items()}
        share = n_todo / self.grid.n_combinations
        longest = forecast({model: round(n * share) for model, n in n_by.items()})[0]
        lasts = longest.last_sent_s
        how_long = f", about {duration(lasts)}" if lasts else ""
        return confirmed(f"This sends {n_todo} requests{how_long}. Go on?")


def _say(waiting: Waiting) -> None:
    """Say that the run waits, when it does for long."""
    if waiting.wait_s >= SAID_S:
        sys.stderr.write(
            f"The run waits {waiting.wait_s:.0f} s: {waiting.reason}. Interrupt "
            "to stop; run again to go on.\n"
        )
