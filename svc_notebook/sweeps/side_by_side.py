"""Shows a small run while it streams: its replies as cards, side by side.

The final cards show what the ledger has. A run with too many trials for a screen is not
streamed, and only its first replies are shown.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from queue import Empty, SimpleQueue
from uuid import uuid4

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import Output, as_streamed, fitted_to_terminal
from svc_notebook.display.html_styles import (
    BODY,
    card_html,
    grid_html,
    message_html,
    quiet_html,
)
from svc_notebook.display.markdown import reply_html
from svc_notebook.display.reply_display import Mode, Wait, follow
from svc_notebook.display.reply_footer import (
    UNFINISHED,
    footer,
    live_html,
    marks,
    marks_html,
    marks_text,
)
from svc_notebook.display.terminal_width import fitted, padded, width
from svc_notebook.errors import Interrupted, SvcError
from svc_notebook.ledger.reply_columns import ReplyRow
from svc_notebook.service.chunk import Delta
from svc_notebook.service.params import shorten
from svc_notebook.service.request import CompletionRequest

from .execution import KEPT
from .grid import Trial, value_of
from .plan_description import in_a_line
from .run import Run

MAX_CARDS = 24  # more do not fit on a screen
GAP_S = 0.25  # shortest time between two drawings
MAX_BYTES_PER_S = 60_000  # sent to the page, for all cards together
_SHOWN_CHARS = 60
_STOPPED = ("cancelled", "not_run")


def run_side_by_side(
    run: Run,
    *,
    mode: Mode,
    is_streamed: bool = True,
    note: str = "",
    output: Output | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Run:
    """Send what is missing of a run, and show its replies side by side as they stream.

    With `is_streamed=False` replies are not streamed, and the service reports their
    usage. `note` is shown below all of them.
    """
    output = output or Output()
    cards = _Cards(run, mode=mode, note=note, output=output, clock=clock)
    try:
        follow(_RunStream(run, is_streamed=is_streamed), cards)
    except Interrupted:
        raise Interrupted(message=f"(interrupted - {KEPT})") from None
    if run.n_failed == len(run) > 0:
        raise SvcError(
            f"None of the {len(run):,} requests was answered; the reasons are above."
        )
    return run


class _RunStream:
    """A run as one stream: the index of a delta is the position of its trial."""

    def __init__(self, run: Run, *, is_streamed: bool) -> None:
        is_small = len(run) <= MAX_CARDS
        self._run = run
        self._positions = {
            trial.key: at for at, trial in enumerate(islice(run.grid, MAX_CARDS))
        }
        self._queue: SimpleQueue[Delta] = SimpleQueue()
        run.start(
            show=self._put if is_small and is_streamed else None, is_drawn=not is_small
        )

    @property
    def is_done(self) -> bool:
        return not self._run.is_running and self._queue.empty()

    @property
    def completion(self) -> Run:
        return self._run.wait()

    def poll(self, timeout_s: float) -> Sequence[Delta | Wait]:
        deltas: list[Delta] = []
        with suppress(Empty):
            deltas.append(self._queue.get(timeout=timeout_s))
            while True:
                deltas.append(self._queue.get_nowait())
        return deltas

    def cancel(self) -> Run:
        return self._run.cancel()

    def _put(self, trial: Trial, delta: Delta) -> None:
        """Queue a piece of a reply; called on the thread of the event loop."""
        if delta.text and delta.index == 0:
            at = self._positions[trial.key]
            self._queue.put(Delta(index=at, text=delta.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCard:
    """What is shown of one reply."""

    heading: str  # what differs from the other requests in its row
    row: str = ""  # the heading of its row: the model
    text: str = ""  # Markdown, as far as it has arrived
    footer: str = ""  # a line in small print: tokens, seconds
    marks: tuple[str, ...] = ()  # warnings, such as "cut"


def _cards_bundle(
    cards: Sequence[ReplyCard], *, note: str, is_live: bool
) -> dict[str, str]:
    """Draw rows of cards above a note, as `text/html` and as `text/plain`."""
    line = quiet_html(message_html(note)) if note else ""
    if is_live:
        line = live_html(note, is_waiting=not any(card.text for card in cards))
        note = UNFINISHED
    body = "".join(
        f"{quiet_html(f'<strong>{to_text(row)}</strong>') if row else ''}"
        f"{grid_html(map(_card_as_html, row_cards))}"
        for row, row_cards in _rows(cards).items()
    )
    return {
        "text/html": f"{BODY}{body}{line}</div>",
        "text/plain": _cards_as_text(cards, note=note),
    }


def _cards_as_text(cards: Sequence[ReplyCard], *, note: str) -> str:
    """Return cards as plain text, one below the other, safe to print."""
    blocks = []
    for row, row_cards in _rows(cards).items():
        blocks += [to_terminal(row)] * bool(row)
        blocks += map(_card_as_text, row_cards)
    return "\n\n".join([*blocks, _line_as_text(note)]).strip("\n")


def _card_as_text(card: ReplyCard) -> str:
    heading = _line_as_text(f"--- {card.heading}" if card.heading else "")
    closing = _line_as_text(marks_text(card.marks, card.footer))
    text = as_streamed(to_terminal(card.text))
    return "\n".join(filter(None, (heading, text, closing)))


def _line_as_text(line: str) -> str:
    return fitted_to_terminal(to_terminal(line))


def _rows(cards: Sequence[ReplyCard]) -> dict[str, list[ReplyCard]]:
    rows: dict[str, list[ReplyCard]] = {}
    for card in cards:
        rows.setdefault(card.row, []).append(card)
    return rows


def _card_as_html(card: ReplyCard) -> str:
    closing = quiet_html(marks_html(card.marks, card.footer))
    return card_html(card.heading, reply_html(card.text), closing)


class _Cards:
    """Draws the cards of a run from its stream."""

    def __init__(
        self,
        run: Run,
        *,
        mode: Mode,
        note: str,
        output: Output,
        clock: Callable[[], float],
    ) -> None:
        self._run = run
        self._mode = mode
        self._note = note
        self._output = output
        self._clock = clock
        self._display_id = f"svc-{uuid4().hex[:12]}"
        self._is_drawn = False
        self._line = ""  # the progress that a terminal shows
        self._has_news = True
        self._due_s = 0.0
        self._shown = tuple(islice(run.grid, MAX_CARDS))
        self._texts: list[list[str]] = [[] for _ in self._shown]

    def show(self, delta: Delta) -> None:
        self._texts[delta.index].append(delta.text or "")
        self._has_news = True

    def wait(self, wait: Wait) -> None:
        """Do nothing: cards show no waits."""

    def flush(self) -> None:
        now_s = self._clock()
        if self._mode is Mode.PLAIN and now_s >= self._due_s:
            self._show_progress()
            self._due_s = now_s + GAP_S
        is_early = self._is_drawn and now_s < self._due_s
        if self._mode is not Mode.LIVE or is_early or not self._has_news:
            return
        cards = [
            replace(
                _empty_card(self._run, trial.request, trial.repeat), text="".join(texts)
            )
            for trial, texts in zip(self._shown, self._texts, strict=True)
        ]
        self._has_news = False
        n_bytes = self._publish(cards, "", is_live=True)
        self._due_s = now_s + max(GAP_S, n_bytes / MAX_BYTES_PER_S)

    def _show_progress(self) -> None:
        """Replace the line of progress, if this is a terminal."""
        n_columns = self._output.columns()
        if not n_columns:
            return
        n_all, n_chars = len(self._run), sum(map(len, chain(*self._texts)))
        line = f"{n_all - self._run.n_todo:,} of {n_all:,} replies"
        line += f" · {n_chars:,} characters so far" if n_chars else ""
        line = fitted(line, n_columns - 1)
        self._output.write(f"\r{padded(line, width(self._line))}")
        self._line = line

    def _end_progress(self, *, is_stopped: bool) -> None:
        """Remove the line of progress; after an interrupt, go below the `^C`."""
        blank = "\n" if is_stopped else f"\r{' ' * width(self._line)}\r"
        if self._line:
            self._output.write(blank)

    def end(self, completion: object | None) -> None:
        """Show the final cards: what the ledger has."""
        del completion
        rows = list(islice(self._run.replies(), MAX_CARDS))
        ended = [_final_card(self._run, reply) for reply in rows]
        n_more = len(self._run) - len(self._shown)
        more = f"{n_more:,} more are in the frame: replies_df()" if n_more > 0 else ""
        n_failed = self._run.n_failed
        failed = (
            f"{n_failed:,} of {len(self._run):,} requests failed" if n_failed else ""
        )
        note = " · ".join(filter(None, (self._note, failed, more)))
        if self._mode is Mode.PLAIN:
            is_stopped = any(reply.status in _STOPPED for reply in rows)
            self._end_progress(is_stopped=is_stopped)
            self._output.write(_cards_as_text(ended, note=note) + "\n")
        else:
            self._publish(ended, note)

    def _publish(
        self, cards: list[ReplyCard], note: str, *, is_live: bool = False
    ) -> int:
        """Show the cards; return how many bytes were sent to the page."""
        bundle = _cards_bundle(cards, note=note, is_live=is_live)
        if self._is_drawn:
            self._output.update(bundle, self._display_id)
        else:
            is_live = self._mode is Mode.LIVE
            self._output.publish(bundle, self._display_id if is_live else None)
        self._is_drawn = True
        return sum(len(text.encode()) for text in bundle.values())


def _final_card(run: Run, reply: ReplyRow) -> ReplyCard:
    exchange = reply.exchange
    text = (reply.choice.text or "") if reply.choice else ""
    shown = marks(exchange) if exchange else (reply.status.replace("_", " "),)
    if reply.failure is not None and reply.status == "error":
        shown = (*shown, reply.failure.type)
        text = text or reply.failure.message
    return replace(
        _empty_card(run, reply.request, reply.origin.repeat or 0),
        text=text,
        footer=footer(exchange, has_model=False)
        if exchange and exchange.choices
        else "",
        marks=shown,
    )


def _empty_card(run: Run, request: CompletionRequest, repeat: int) -> ReplyCard:
    """Return the card of a trial without its reply.

    Its heading says what varies, and it is in the row of its model. If only the model
    varies, the model is the heading.
    """
    parts = []
    names = [name for name in run.grid.varied if name != "model"]
    is_by_model = not names and run.grid.repeats == 1
    for name in names:
        value = value_of(request, name)
        text = "not sent"
        if value not in (None, ()):
            text = shorten(in_a_line(name, value), _SHOWN_CHARS)
        parts.append(text if name == "prompt" else f"{name} {text}")
    if run.grid.repeats > 1:
        parts.append(f"{repeat + 1} of {run.grid.repeats}")
    model = shorten(in_a_line("model", request.model), _SHOWN_CHARS)
    heading = model if is_by_model else " · ".join(parts)
    return ReplyCard(heading=heading, row="" if is_by_model else model)
