"""The progress bars of a run: widgets in a notebook, text in a terminal.

At the end, HTML replaces the widgets, which need the kernel that made them. An error
while drawing ends only the drawing, never the run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from shutil import get_terminal_size
from threading import Lock
from typing import Any

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import Bundle, Output, Screen
from svc_notebook.display.number_words import count_in_words
from svc_notebook.display.terminal_width import fitted, padded, width
from svc_notebook.service.catalogue import Limit

from .scheduler import ModelQueue

GAP_S = 0.25  # shortest time between two drawings
BACKGROUND_GAP_S = 0.5  # the same for a run in the background
SHOWN_WAIT_S = 1.5  # shorter waits are not shown: they are usual between two requests
_FORMAT = "{desc} |{bar}| {unit}"  # not tqdm's postfix, which begins with a comma
_FORMAT_WITHOUT_BAR = "{desc} {unit}"  # a shorter bar says nothing
_LEAST_CELLS = 8  # least width of a bar in a terminal
_AROUND_BAR = width(_FORMAT.format(desc="", bar="", unit=""))
_BETWEEN = " · "
# A terminal writes this at the end of a line that Ctrl-C interrupts. If it went on in
# the next line, the bars would be drawn below; the last drawing covers it.
_INTERRUPT_ECHO = len("^C")
_INCOMPLETE = "#ffa500"  # the colour of a bar with failures, or that ended early
_LEAST_BAR = "10em"  # least width of a bar in a notebook
_MARGINS = "4px"  # left and right of a widget
_ROW = "display:flex;flex-wrap:wrap;align-items:center;gap:.2em .6em"
_BAR = f"flex:1 1 {_LEAST_BAR};background:rgba(127,127,127,.25)"
_LETTER = 0.9  # mean width of a letter, in widths of a digit (the CSS unit `ch`)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProgress:
    """The progress of one model, with a note at the end of its line.

    The parts of the note are separated by middle dots. A narrow terminal shows the
    first ones.
    """

    name: str
    n_done: int
    n_total: int
    note: str = ""
    is_bad: bool = False

    @property
    def count(self) -> str:
        """The text before the bar: the name, and how many of all are done."""
        return f"{to_terminal(self.name)} {self.n_done:,}/{self.n_total:,}"

    @property
    def is_full(self) -> bool:
        """Whether all is done."""
        return self.n_done == self.n_total


@dataclass(frozen=True, slots=True)
class RepliesSoFar:
    """The mean scores of a model's replies, and what could not be read or scored."""

    scores: Sequence[str] = ()
    problems: Sequence[str] = ()


class Bars:
    """One bar for each model, in the order in which they first appear."""

    def __init__(
        self, where: Screen, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._where = where
        self._clock = clock
        self._drawn_s = float("-inf")
        self._is_over = False
        self._lock = Lock()  # a run draws on its thread, and `start` on the user's
        self._bars: dict[str, Any] = {}
        self._columns = (0, 0)  # widths of the longest texts before and after a bar
        self._n_terminal = 0  # columns of the terminal, as far as they are used
        self._has_bar = True  # in a terminal

    def show(self, models: Sequence[ModelProgress], *, is_last: bool = False) -> None:
        """Draw all bars, at most a few times a second, and always at the end."""
        with self._lock:
            self._show(models, is_last=is_last)

    def _show(self, models: Sequence[ModelProgress], *, is_last: bool) -> None:
        now_s = self._clock()
        is_early = now_s - self._drawn_s < GAP_S and not is_last
        if self._is_over or is_early:
            return
        self._drawn_s = now_s
        self._is_over = is_last
        try:
            self._columns = self._widest(models)
            # some terminals break a full line
            self._n_terminal = get_terminal_size().columns - 1
            if not is_last:
                self._n_terminal -= _INTERRUPT_ECHO
            # bars that were left out stay away, so that lines do not move
            self._has_bar &= all(
                width(to_terminal(model.note).split(_BETWEEN)[0])
                <= self._room(has_bar=True)
                for model in models
            )
            for at, progress in enumerate(models):
                self._draw(progress, at)
            if is_last:
                self._end(models)
        except Exception:  # noqa: BLE001 - a bar must not stop a run that is paid for
            self._is_over = True

    def _end(self, models: Sequence[ModelProgress]) -> None:
        """Draw no more; the bars stay as they are."""
        bars, self._bars = self._bars, {}
        for progress in models:
            bar = bars[progress.name]
            if self._where is not Screen.NOTEBOOK:
                bar.close()
                continue
            # The widget stays, too: a page that was loaded again during the run shows
            # it, and has no output that can be replaced.
            _draw_wrapping(bar, bar.close)
            Output().update(_ended_bar(progress, self._columns), bar.container.model_id)

    def _draw(self, progress: ModelProgress, at: int) -> None:
        bar = self._bars.get(progress.name)
        if bar is None:
            bar = self._bars[progress.name] = self._new_bar(progress, at)
        bar.n = progress.n_done
        bar.total = progress.n_total
        bar.desc, bar.unit = progress.count, to_terminal(progress.note)
        is_incomplete = progress.is_bad or (self._is_over and not progress.is_full)
        bar.colour = _INCOMPLETE if is_incomplete else None  # tqdm warns of names
        if self._where is Screen.NOTEBOOK:
            for text, columns in zip(
                bar.container.children[::2], self._columns, strict=True
            ):
                text.layout.min_width = _least_width(columns)
            _draw_wrapping(bar, bar.refresh)
        else:
            bar.ncols = self._n_terminal
            bar.bar_format = _FORMAT if self._has_bar else _FORMAT_WITHOUT_BAR
            before, after = self._columns
            room = self._room(has_bar=self._has_bar)
            if self._is_over:
                after += _INTERRUPT_ECHO
            bar.desc = padded(bar.desc, before)
            bar.unit = padded(_first_parts(bar.unit, room), min(after, room))
            bar.refresh()

    def _room(self, *, has_bar: bool) -> int:
        """Return how many columns of a terminal's line are left for a note."""
        taken = _AROUND_BAR + _LEAST_CELLS if has_bar else 1
        return self._n_terminal - self._columns[0] - taken

    def _widest(self, models: Sequence[ModelProgress]) -> tuple[int, int]:
        """Return the width of the texts before and after the bars, in columns.

        It is the same for all bars and never shrinks, so that bars do not move.
        """
        before, after = self._columns
        counts = [
            f"{to_terminal(model.name)} {model.n_total:,}/{model.n_total:,}"
            for model in models
        ]
        notes = [to_terminal(model.note) for model in models]
        return max([before, *map(width, counts)]), max([after, *map(width, notes)])

    def _new_bar(self, progress: ModelProgress, at: int) -> Any:  # noqa: ANN401 - tqdm's two kinds
        # loading tqdm takes time, so it is loaded only when a bar is drawn
        make: Callable[..., Any]
        if self._where is Screen.NOTEBOOK:
            from tqdm.notebook import tqdm_notebook  # noqa: PLC0415

            make = partial(tqdm_notebook, display=False)
        else:
            from tqdm.std import tqdm as make  # noqa: PLC0415
        bar: Any = make(
            initial=progress.n_done,
            total=progress.n_total,
            desc=progress.count,
            position=at,
            bar_format=_FORMAT,
            unit="",
            leave=True,
        )
        if self._where is Screen.NOTEBOOK:
            # where space is short, the words after a bar go below it
            bar.container.layout.flex_flow = "row wrap"
            bar.container.children[1].layout.flex = f"1 1 {_LEAST_BAR}"
            for text in bar.container.children[::2]:
                text.layout.flex = "0 1 auto"
            # without a count, which a notebook saved during the run would keep
            plain = {"text/plain": f"Progress of {to_terminal(progress.name)}"}
            bundle = bar.container._repr_mimebundle_() | plain
            Output().publish(bundle, bar.container.model_id)
        return bar


def _first_parts(note: str, n_columns: int) -> str:
    """Return the first parts of a note that fit into a line."""
    first, *others = note.split(_BETWEEN)
    shown = fitted(first, n_columns)
    for part in others:
        longer = f"{shown}{_BETWEEN}{part}"
        if width(longer) > n_columns:
            break
        shown = longer
    return shown


def _least_width(columns: int) -> str:
    """Return the least width of a text in a notebook, so that all bars are aligned."""
    return f"min({_LETTER * columns:.0f}ch, 100% - {_MARGINS})"


def _ended_bar(progress: ModelProgress, columns: tuple[int, int]) -> Bundle:
    """Return a bar that needs no kernel; `columns` are the widths of its texts."""
    count, note = (
        f'<span style="min-width:{_least_width(n_columns)}">{to_text(text)}</span>'
        for n_columns, text in zip(
            columns, (progress.count, progress.note), strict=True
        )
    )
    is_green = progress.is_full and not progress.is_bad
    colour = "#4caf50" if is_green else _INCOMPLETE
    percent = 100 * progress.n_done / max(progress.n_total, 1)
    done = f'<div style="height:1.3em;width:{percent:.4g}%;background:{colour}"></div>'
    return {
        "text/html": f'<div style="{_ROW}">{count}<div style="{_BAR}">{done}</div>'
        f"{note}</div>",
        "text/plain": " · ".join(
            filter(None, (progress.count, to_terminal(progress.note)))
        ),
    }


def _draw_wrapping(bar: Any, draw: Callable[[], object]) -> None:  # noqa: ANN401 - tqdm's own
    """Draw a bar of a notebook; its words may go on in the next line."""
    texts = bar.container.children[::2]
    with texts[0].hold_sync(), texts[1].hold_sync():
        draw()
        for text in texts:  # tqdm writes blanks at which no line ends
            text.value = text.value.replace("\N{FIGURE SPACE}", " ")


def progress_of(
    queues: Iterable[ModelQueue],
    *,
    now_s: float,
    now_at: datetime,
    state: str = "",
    labels: Mapping[str, str] | None = None,
    replies: Callable[[str], RepliesSoFar] = lambda _: RepliesSoFar(),
) -> tuple[ModelProgress, ...]:
    """Return the progress of each model that has anything to send.

    `now_s` is the time on the clock of the run, `now_at` the time in the user's zone,
    and `state` is a word for a run that is paused or stopped. `labels` are those of the
    models, and `replies` says what is known about the replies of a model so far.
    """
    labels = labels or {}
    return tuple(
        ModelProgress(
            name=(
                f"{labels[queue.model]} ({queue.model})"
                if queue.model in labels
                else queue.model
            ),
            n_done=queue.n_before + queue.n_ok + queue.n_failed,
            n_total=queue.n_before + queue.n_trials,
            note=_note(
                queue,
                now_s=now_s,
                now_at=now_at,
                state=state,
                replies=so_far,
            ),
            is_bad=bool(queue.n_failed or queue.given_up or so_far.problems),
        )
        for queue in queues
        for so_far in (replies(queue.model),)
        if queue.n_trials
    )


def _note(
    queue: ModelQueue,
    *,
    now_s: float,
    now_at: datetime,
    state: str,
    replies: RepliesSoFar,
) -> str:
    # the counts are about the requests that are sent now, the scores about all replies
    now = " now" if queue.n_before else ""
    counts = [f"{queue.n_failed:,} failed{now}"] if queue.n_failed else []
    counts += replies.problems
    others = [f"{queue.n_tokens:,} tokens{now}", *replies.scores]
    if met_limit := queue.limiter and queue.limiter.met_limit:
        others.append(f"the service takes {_limit_in_words(met_limit)}")
    others += [f"{queue.n_before:,} done before"] if queue.n_before else []
    first: list[str] = []
    ends: list[str] = []
    if queue.given_up:
        first = [f"stopped: {type(queue.given_up).__name__}"]
    elif queue.n_ok + queue.n_failed < queue.n_trials:
        first = [state] if state else _wait_in_words(queue, now_at)
        if not state and (left_s := queue.ends_after_s(now_s)) is not None:
            ends = [f"ends about {now_at + timedelta(seconds=left_s):%H:%M:%S}"]
    return _BETWEEN.join([*first, *counts, *ends, *others])


def _wait_in_words(queue: ModelQueue, now_at: datetime) -> list[str]:
    """Return what a model waits for; nothing if the wait is short."""
    if queue.behind is not None:
        return [f"waits for {queue.behind}"]
    due = queue.waits_for
    if due.wait_s <= SHOWN_WAIT_S:
        return []
    # the line begins with the name of the model
    reason = due.reason.removesuffix(f" of {queue.model}")
    reason = reason.removeprefix(f"{queue.model} ")
    return [f"waits until {now_at + timedelta(seconds=due.wait_s):%H:%M:%S}: {reason}"]


def _limit_in_words(limit: Limit) -> str:
    """Return a limit in words, such as "20 requests a second, 64 at once"."""
    numbers = (limit.per_second, limit.per_minute, limit.in_flight)
    units = ("a second", "a minute", "at once")
    first, *others = (
        (most, unit)
        for most, unit in zip(numbers, units, strict=True)
        if most is not None
    )
    start = f"{count_in_words(first[0], 'requests')} {first[1]}"
    return ", ".join([start, *(f"{most} {unit}" for most, unit in others)])
