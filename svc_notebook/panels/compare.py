"""Asks for replies side by side, all at the same time, and draws them.

Each reply has a worker and an exchange of its own; all wait for the same limits.
"""

from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from random import SystemRandom
from threading import RLock, Thread
from typing import Any

from svc_notebook.completion import Completion, footer
from svc_notebook.conversations.compare import (
    Column,
    blind_labels,
    without_names,
)
from svc_notebook.conversations.turn_requests import NextTurn
from svc_notebook.ledger.turn_marks import Compared, Comparison

from .state import Comparing, Live, Phase, Settings, draw_column
from .worker import ReplyEnd, ReplyView, Worker

Work = Callable[[NextTurn, Live, ReplyView], Worker]
_WAITING = "Waiting …"
_NOTHING = "Stopped before any text arrived."


Shuffle = Callable[[list[Any]], None]
_shuffle: Shuffle = SystemRandom().shuffle


def to_group(
    comparing: Comparing, settings: Settings, shuffle: Shuffle = _shuffle
) -> tuple[Comparison, tuple[Settings, ...]]:
    """Return the columns, and the settings of each; a blind order tells nothing."""
    pairs = list(zip(comparing.labels(), comparing.settings(settings), strict=True))
    if comparing.is_blind:
        shuffle(pairs)
    replies = tuple(Compared(label=label) for label, _ in pairs)
    group = Comparison(replies=replies, is_blind=comparing.is_blind)
    return group, tuple(each for _, each in pairs)


class _Column:
    """Shows a worker's reply in its column."""

    def __init__(self, replies: "SideBySide", at: int) -> None:
        self._replies, self._at = replies, at

    def show_live(self, live: Live, _: Phase, *messages: dict[str, Any]) -> None:
        """Change the column, and send what is new in it."""
        self._replies.show(self._at, live, messages)

    def show_question(self, question: dict[str, Any] | None) -> None:
        """Never asked: replies that are compared call no tools."""


@dataclass(eq=False, repr=False, kw_only=True)
class SideBySide:
    """The replies of a comparison, while they are written.

    `group` has no replies yet; `steps` are in the order of its labels.
    """

    group: Comparison
    steps: Sequence[NextTurn]
    live: Live
    view: ReplyView
    work: Work

    def __post_init__(self) -> None:
        self._labels = blind_labels(self.group)
        n = len(self._labels)
        columns = tuple(draw_column(Column(label=label)) for label in self._labels)
        choices = ({"html": "", "tail": ""},) * n
        self.live = replace(self.live, choices=choices, columns=columns)
        self._lock = RLock()
        self._ends: dict[int, ReplyEnd] = {}  # in the order in which they came
        self._workers = [
            self.work(step, replace(self.live, columns=()), _Column(self, at))
            for at, step in enumerate(self.steps)
        ]

    def stop(self) -> None:
        """Make all replies end soon; from any thread."""
        for worker in self._workers:
            worker.stop()

    def run(self) -> ReplyEnd:
        """Ask for the replies and return how they ended; raises nothing."""
        threads = [
            Thread(target=copy_context().run, args=(self._run, at), daemon=True)
            for at in range(len(self._workers))
        ]
        for at, thread in enumerate(threads):
            try:
                thread.start()
            except RuntimeError as problem:  # too many threads, or Python is ending
                self._end(at, ReplyEnd(status="failed", problem=str(problem)))
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        return self._whole()

    def _run(self, at: int) -> None:
        self._end(at, self._workers[at].run())

    def _whole(self) -> ReplyEnd:
        ends = [self._ends[at] for at in sorted(self._ends)]
        if answers := self._answers():
            is_stopped = any(each.status == "stopped" for each in ends)
            return ReplyEnd(
                status="stopped" if is_stopped else "compared",
                completion=answers[0],
                others=answers[1:],
                comparison=self._comparison(ends),
            )
        named = zip(self.group.replies, ends, strict=True)
        problem = "\n".join(f"{reply.label}: {end.problem}" for reply, end in named)
        return ReplyEnd(status=ends[0].status, problem=problem)

    def _answers(self) -> tuple[Completion, ...]:
        """Return what came: whole replies first, as they ended."""
        whole = {"finished", "cut"}
        ends = sorted(self._ends.values(), key=lambda each: each.status not in whole)
        return tuple(each.completion for each in ends if each.completion)

    def _comparison(self, ends: Sequence[ReplyEnd]) -> Comparison:
        """Return what is to be picked from."""
        came = [each.completion for each in ends]
        replies = tuple(
            Compared(
                label=reply.label,
                exchange_id=one.exchange.exchange_id if one else "",
                problem=self._problem(end),
            )
            for reply, one, end in zip(self.group.replies, came, ends, strict=True)
        )
        return Comparison(replies=replies, is_blind=self.group.is_blind)

    def _problem(self, end: ReplyEnd) -> str:
        is_empty = end.status == "stopped" and not end.completion
        return _NOTHING if is_empty else end.problem

    def _end(self, at: int, end: ReplyEnd) -> None:
        with self._lock:
            self._ends[at] = end
            problem, words = self._problem(end), ""
            if self.group.is_blind:
                problem = without_names(problem, self.group)
            elif end.completion:
                words = footer(end.completion.exchange, has_model=False)
            self._change(at, status="", until_ms=None, problem=problem, footer=words)

    def show(self, at: int, live: Live, messages: Sequence[dict[str, Any]]) -> None:
        """Take what a worker shows, as its column."""
        with self._lock:
            choices = [*self.live.choices]
            choices[at] = live.choices[0] if live.choices else choices[at]
            self.live = replace(self.live, choices=tuple(choices))
            for each in messages:
                if each["t"] == "status":
                    status, until_ms = each["text"], each["until_ms"]
                    if status and self.group.is_blind:  # limits are a model's
                        status, until_ms = _WAITING, None
                    self._change(at, status=status, until_ms=until_ms)
                else:
                    message = {**each, "choice": at}
                    self.view.show_live(self.live, Phase.BUSY, message)

    def _change(self, at: int, **changes: object) -> None:
        columns = [*self.live.columns]
        columns[at] = {**columns[at], **changes}
        self.live = replace(self.live, columns=tuple(columns))
        message = {"t": "column", "choice": at, "column": columns[at]}
        self.view.show_live(self.live, Phase.BUSY, message)
