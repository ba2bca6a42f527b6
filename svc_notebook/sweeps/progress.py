"""The progress bars of a run: widgets in a notebook, text in a terminal.

At the end, HTML replaces the widgets, which need the kernel that made them. An error
while drawing ends only the drawing, never the run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import Any

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import Bundle, Output, Screen
from svc_notebook.display.terminal_width import padded, width
from svc_notebook.service.catalogue import Limit

from .scheduler import ModelQueue

GAP_S = 0.25  # shortest time between two drawings
BACKGROUND_GAP_S = 0.5  # the same for a run in the background
SHOWN_WAIT_S = 1.5  # shorter waits are not shown: they are usual between two requests
_FORMAT = "{desc} |{bar}| {unit}"  # not tqdm's postfix, which begins with a comma
_LEAST_BAR = "10em"  # least width of a bar in a notebook
_MARGINS = "4px"  # left and right of a widget
_ROW = "display:flex;flex-wrap:wrap;align-items:center;gap:.2em .6em"
_BAR = f"flex:1 1 {_LEAST_BAR};background:rgba(127,127,127,.25)"
_LETTER = 0.9  # mean width of a letter, in widths of a digit (the CSS unit `ch`)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProgress:
    """The progress of one model, with a note at the end of its line."""

    name: str
    n_done: int
    n_total: int
    note: str = ""
    is_bad: bool = False

    @property
    def count(self) -> str:
        """The text before the bar: the name, and how many of all are done."""
        return f"{to_terminal(self.name)} {self.n_done:,}/{self.n_total:,}"


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
        bar.colour = "#ffa500" if progress.is_bad else None  # tqdm warns of names
        if self._where is Screen.NOTEBOOK:
            for text, columns in zip(
                bar.container.children[::2], self._columns, strict=True
            ):
                text.layout.min_width = _least_width(columns)
            _draw_wrapping(bar, bar.refresh)
        else:
            bar.desc, bar.unit = map(padded, (bar.desc, bar.unit), self._columns)
            bar.refresh()

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
    is_full = progress.n_done == progress.n_total
    colour = "#ffa500" if progress.is_bad else "#4caf50" if is_full else "#f44336"
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
    parts = [f"{queue.n_before:,} done before"] if queue.n_before else []
    parts += [f"{queue.n_failed:,} failed{now}"] if queue.n_failed else []
    parts += [*replies.problems, f"{queue.n_tokens:,} tokens{now}", *replies.scores]
    if met_limit := queue.limiter and queue.limiter.met_limit:
        parts.append(f"limit found: {_limit_in_words(met_limit)}")
    if queue.given_up:
        parts.append(f"stopped: {type(queue.given_up).__name__}")
    elif queue.n_ok + queue.n_failed == queue.n_trials:
        return " · ".join(parts)
    elif state:
        parts.append(state)
    else:
        due = queue.waits_for
        if due.wait_s > SHOWN_WAIT_S:
            parts.append(f"waits {due.wait_s:.0f} s: {due.reason}")
        if (left_s := queue.ends_after_s(now_s)) is not None:
            ends_at = now_at + timedelta(seconds=left_s)
            parts.append(f"ends about {ends_at:%H:%M:%S}")
    return " · ".join(parts)


def _limit_in_words(limit: Limit) -> str:
    """Return a limit in words, such as "20 a second, 64 at once"."""
    numbers = (limit.per_second, limit.per_minute, limit.in_flight)
    units = ("a second", "a minute", "at once")
    return ", ".join(
        f"{most} {unit}"
        for most, unit in zip(numbers, units, strict=True)
        if most is not None
    )
