"""A small run displayed while its replies arrive: one card for each reply, streamed.

The final cards are read from the ledger, so they show what was kept. A run with more
trials than a screen can show is not streamed, and its first replies are shown.
"""

import time
from collections.abc import Callable
from itertools import islice
from uuid import uuid4

from svc_notebook.completion import footer, marks
from svc_notebook.display.comparison import Card, cards_bundle, cards_text
from svc_notebook.display.live import Screen
from svc_notebook.display.stream import Mode
from svc_notebook.errors import SvcError
from svc_notebook.ledger.reply_columns import Reply
from svc_notebook.service.chunk import Delta

from .describe import in_a_line
from .dimensions import brief
from .grid import Trial
from .resume import TrialKey
from .run import Run

MAX_CARDS = 24
GAP_S = 0.25
_SHOWN_CHARS = 60


def run_side_by_side(
    run: Run,
    *,
    mode: Mode,
    is_streamed: bool = True,
    screen: Screen | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Run:
    """Send what is missing of a run, and show its replies side by side as they arrive.

    Args:
        run: Planned; most useful with a few trials.
        mode: How the cell shows replies.
        is_streamed: Whether they are shown as they arrive; if not, the service reports
            their usage.
        screen: Where; IPython's display and standard output if None.
        clock: Seconds, monotonic.

    Returns:
        The run.

    Raises:
        KeyboardInterrupt: It was interrupted; the replies so far are shown and kept.
        SvcError: See `Run.run`; or every request failed, for the reasons on the cards.
    """
    cards = _Cards(run, mode=mode, screen=screen or Screen(), clock=clock)
    is_small = len(run) <= MAX_CARDS
    try:
        show = cards.add if is_small and is_streamed else None
        run.start(show=show, is_drawn=not is_small)
        run.wait(tick=cards.draw)
    finally:
        cards.settle()
    if run.n_failed == len(run) > 0:
        raise SvcError(
            f"None of the {len(run)} requests was answered; the reasons are above."
        )
    return run


class _Cards:
    """The cards of a run while replies arrive."""

    def __init__(
        self, run: Run, *, mode: Mode, screen: Screen, clock: Callable[[], float]
    ) -> None:
        self._run = run
        self._mode = mode
        self._screen = screen
        self._clock = clock
        self._display_id = f"svc-{uuid4().hex[:12]}"
        self._drawn_s: float | None = None
        self._texts: dict[TrialKey, list[str]] = {}
        self._shown = tuple(islice(run.grid, MAX_CARDS))

    def add(self, trial: Trial, delta: Delta) -> None:
        """Add a piece of a reply; called on the loop's thread."""
        if delta.text and delta.index == 0:
            self._texts.setdefault(trial.key, []).append(delta.text)

    def draw(self) -> None:
        """Show the replies so far, if the display is live and it is time."""
        now_s = self._clock()
        is_early = self._drawn_s is not None and now_s - self._drawn_s < GAP_S
        if self._mode is not Mode.LIVE or is_early:
            return
        self._publish([self._card(trial) for trial in self._shown], "")
        self._drawn_s = now_s

    def settle(self) -> None:
        """Show the final cards, from the ledger."""
        rows = list(islice(self._run.replies(), MAX_CARDS))
        ended = [_ended(self._run, reply) for reply in rows]
        n_more = len(self._run) - len(self._shown)
        note = f"{n_more} more are in the frame: replies_df()" if n_more > 0 else ""
        if self._mode is Mode.PLAIN:
            self._screen.write(cards_text(ended, note=note) + "\n")
        else:
            self._publish(ended, note)

    def _publish(self, cards: list[Card], note: str) -> None:
        bundle = cards_bundle(cards, note=note)
        if self._drawn_s is not None:
            self._screen.update(bundle, self._display_id)
        elif self._mode is Mode.LIVE:
            self._screen.publish(bundle, self._display_id)
        else:
            self._screen.publish(bundle, None)

    def _card(self, trial: Trial) -> Card:
        text = "".join(self._texts.get(trial.key, ()))
        heading = _heading(self._run, trial.request, trial.repeat)
        return Card(heading=heading, text=text, footer="" if text else "waiting")


def _ended(run: Run, reply: Reply) -> Card:
    exchange = reply.exchange
    text = (reply.choice.text or "") if reply.choice else ""
    found = marks(exchange) if exchange else (reply.status.replace("_", " "),)
    if reply.failure is not None and reply.status == "error":
        found = (*found, reply.failure.type)
        text = text or reply.failure.message
    return Card(
        heading=_heading(run, reply.request, reply.origin.repeat or 0),
        text=text,
        footer=footer(exchange) if exchange and exchange.choices else "",
        marks=found,
        is_ended=True,
    )


def _heading(run: Run, request: object, repeat: int) -> str:
    parts = []
    for name in run.grid.varied or ("model",):
        params = getattr(request, "params", {})
        value = params.get(name, getattr(request, name, None))
        is_sent = value not in (None, ())
        said = brief(in_a_line(name, value), _SHOWN_CHARS) if is_sent else "not sent"
        parts.append(said if name in {"model", "prompt"} else f"{name} {said}")
    if run.grid.repeats > 1:
        parts.append(f"{repeat + 1} of {run.grid.repeats}")
    return " · ".join(parts)
