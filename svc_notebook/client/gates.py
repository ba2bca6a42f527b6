"""The gate of each model: its windows, and what a refusal taught.

What it is not: it does not sleep and does not decide about retries. Rules: models
do not hold each other up; a model whose limits the document does not show has none
invented for it, but a 429 makes its gate careful; a refusal closes the gate for
everybody, since the service counts requests by key.
"""

from collections.abc import Callable
from threading import Lock

from svc_notebook.service.catalogue import Limit, limit_of

from .limits import Clock, Due, Others, Room, Slot, Windows

MAX_CLOSED_S = 60.0
_FIRST_GAP_S = 0.2
_MAX_GAP_S = 12.0
_N_CALM = 20


class Gate:
    """What one request of a model has to pass before it is sent.

    Args:
        model: Id of the model.
        limit: Its limit, None where none is shown.
        clock: Seconds that only grow.
        others: The count shared with other kernels, if there is one.
    """

    def __init__(
        self,
        model: str,
        limit: Limit | None,
        *,
        clock: Clock,
        others: Others | None = None,
    ) -> None:
        self._model = model
        self._clock = clock
        self._windows = limit and Windows(
            per_second=limit.per_second,
            per_minute=limit.per_minute,
            clock=clock,
            others=others,
        )
        self._lock = Lock()
        self._closed_until_s = float("-inf")
        self._gap_s = 0.0
        self._free_at_s = float("-inf")
        self._careful_since_s = float("-inf")
        self._n_calm = 0

    def reserve(self) -> Slot:
        """Take a place in the model's queue."""
        if self._windows:
            return self._windows.reserve()
        with self._lock:
            slot = Slot(max(self._clock(), self._free_at_s))
            self._free_at_s = slot.at_s + self._gap_s
            return slot

    def try_pass(self, slot: Slot) -> Due:
        """Let a place's request out now, or say how long it has to wait, for what."""
        closed_s = self._closed_until_s - self._clock()
        if closed_s > 0:
            return Due(closed_s, f"rate limit of {self._model}")
        if self._windows:
            due = self._windows.try_pass(slot)
            return Due(due.wait_s, f"{due.reason} of {self._model}")
        wait_s = self._place_anew(slot) - self._clock()
        if wait_s > 0:
            return Due(wait_s, f"caution after a refusal of {self._model}")
        slot.is_out = True
        return Due(0.0)

    def sent(self, slot: Slot) -> None:
        """Note that a place's request is being written now."""
        if self._windows:
            self._windows.sent(slot)

    def _place_anew(self, slot: Slot) -> float:
        """Return when a place may go; who waited behind a refusal goes one by one."""
        with self._lock:
            if self._gap_s and slot.at_s < self._careful_since_s:
                slot.at_s = max(self._clock(), self._free_at_s)
                self._free_at_s = slot.at_s + self._gap_s
            return slot.at_s

    def due(self) -> Due:
        """Say how long a place taken now would have to wait; none is taken."""
        slot = self.reserve()
        try:
            return self.try_pass(slot)
        finally:
            self.give_back(slot)

    def room(self) -> Room | None:
        """Say how many requests may still be sent now; None where no limit is known."""
        return self._windows.room() if self._windows else None

    def give_back(self, slot: Slot) -> None:
        """Free a place whose request was not sent."""
        if self._windows:
            self._windows.give_back(slot)
            return
        with self._lock:
            if self._free_at_s == slot.at_s + self._gap_s:  # nobody is behind it
                self._free_at_s = slot.at_s

    def refused(self, slot: Slot, *, wait_s: float) -> None:
        """Note a 429: close for a while; an unlisted model becomes careful.

        Args:
            slot: Its place, which is free again.
            wait_s: Seconds to stay closed; above a minute the gate stays open, so
                that the next caller hears the service's own answer at once.
        """
        self.give_back(slot)
        with self._lock:
            now_s = self._clock()
            if wait_s <= MAX_CLOSED_S:
                self._closed_until_s = max(self._closed_until_s, now_s + wait_s)
            self._n_calm = 0
            # Those refused together teach the same thing, once.
            if slot.at_s > self._careful_since_s:
                self._gap_s = min(max(self._gap_s * 2, _FIRST_GAP_S), _MAX_GAP_S)
                self._careful_since_s = now_s

    def passed(self) -> None:
        """Note an answer that was no refusal; care wears off."""
        with self._lock:
            self._n_calm += 1
            if self._n_calm >= _N_CALM:
                self._n_calm = 0
                self._gap_s = self._gap_s / 2 if self._gap_s > _FIRST_GAP_S else 0.0


class Gates:
    """The gates of one key at one address, by model.

    Args:
        clock: Seconds that only grow.
        limit_of: The limit of a model, None where none is known.
        others_of: The count of a model shared with other kernels, if there is one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limit_of: Callable[[str], Limit | None] = limit_of,
        others_of: Callable[[str], Others | None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._limit_of = limit_of
        self._others_of = others_of
        self._lock = Lock()
        self._gates: dict[str, Gate] = {}

    def of(self, model: str) -> Gate:
        """Return the gate of a model."""
        with self._lock:
            gate = self._gates.get(model)
            if gate is None:
                gate = self._gates[model] = Gate(
                    model,
                    self._limit_of(model),
                    clock=self._clock,
                    others=self._others_of(model),
                )
            return gate
