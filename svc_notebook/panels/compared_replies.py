"""Compare mode: each message gets several replies, from several models or temperatures.

`Comparing` is what the user has chosen to compare; `SideBySide` asks for the replies
and shows them.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from random import SystemRandom
from threading import RLock, Thread
from typing import Any

from svc_notebook.conversations.history import Turn
from svc_notebook.conversations.picks import (
    ReplyColumn,
    blind_labels,
    decision,
    to_columns,
    without_names,
)
from svc_notebook.conversations.turn_request import NextTurn
from svc_notebook.display.reply_footer import footer
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.exchange_rows import Compared, Comparison
from svc_notebook.service.params import check
from svc_notebook.service.request import check_model

from .live_reply import LiveReply, LiveView, ReplyEnd, ReplyWorker
from .settings_form import PanelSettings, typed_value

COMPARED = "Replies compared"  # shown instead of the model
MIN_COMPARED, MAX_COMPARED = 2, 4
TEMPERATURES = (0.0, 0.7, 1.2, 0.4)  # compared unless others are typed
_N_COMPARED = (
    "n must be 1 while replies are compared, since each reply has its own request. Set "
    "n to 1, or switch Compare off."
)
NO_TOOLS = (
    "A panel with tools cannot compare replies, since tools can be run for only one. "
    "To compare, open a panel without tools."
)
_WAITING = "Waiting …"
_NOTHING = "Stopped before any text arrived."


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """What a panel compares: each message is sent once for each value."""

    by: str = ""  # `model` or `temperature`; "" while it is off
    models: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = ()
    is_blind: bool = False

    @property
    def values(self) -> tuple[str | float, ...]:
        """The models or the temperatures."""
        return self.temperatures if self.by == "temperature" else self.models

    def changed(
        self, by: str, values: object, *, is_blind: bool, models: Iterable[str]
    ) -> "Comparing":
        """Return the comparison that the browser has chosen.

        A None in `values` becomes an unused value. `models` are the models that can be
        compared, the panel's own first.
        """
        changed = replace(self, by=by if by in {"model", "temperature"} else "")
        if not changed.by:
            return changed
        before: list[Any] = [*changed.values] or [None] * MIN_COMPARED
        new_values = values if isinstance(values, list) else before
        if not MIN_COMPARED <= len(new_values) <= MAX_COMPARED:
            raise ParameterError(
                f"Choose {MIN_COMPARED} to {MAX_COMPARED} to compare, not "
                f"{len(new_values)}.",
                param="compare",
            )
        if changed.by == "model":
            names = tuple(check_model(name) for name in _fill_in(new_values, models))
            changed = replace(changed, models=names)
        else:
            typed_numbers = (
                typed_value("temperature", n)
                for n in _fill_in(new_values, TEMPERATURES)
            )
            numbers: tuple[Any, ...] = tuple(
                check("temperature", n) for n in typed_numbers
            )
            changed = replace(changed, temperatures=numbers)
        if len({*changed.values}) < len(changed.values):
            raise ParameterError(
                "Two of them are the same; choose another one.", param="compare"
            )
        return replace(changed, is_blind=is_blind)

    def refuse(self, settings: PanelSettings, *, has_tools: bool) -> None:
        """Refuse settings with which replies cannot be compared."""
        if self.by and has_tools:
            raise ParameterError(NO_TOOLS, param="compare")
        if self.by and settings.params.get("n", 1) != 1:
            raise ParameterError(_N_COMPARED, param="n")

    def labels(self) -> tuple[str, ...]:
        """Return the label of each reply."""
        is_by_temperature = self.by == "temperature"
        return tuple(
            f"temperature {n:g}" if is_by_temperature else str(n) for n in self.values
        )

    def settings(self, settings: PanelSettings) -> tuple[PanelSettings, ...]:
        """Return the settings for the request of each reply."""
        return tuple(settings.setting(self.by, value) for value in self.values)

    def view(
        self, *, model: str, models: Iterable[str], has_tools: bool
    ) -> dict[str, Any]:
        """Return the comparison for the browser, with the models that can be chosen."""
        n = len(self.values)
        options = dict.fromkeys((*models, model, *self.models))
        return {
            "by": self.by,
            "values": [*self.values],
            "is_blind": self.is_blind,
            "options": [*options],
            "max_values": MAX_COMPARED,
            "cost": f"Each message asks {n} times.",
            "refusal": NO_TOOLS if has_tools else "",
        }


def _fill_in(values: list[Any], usual: Iterable[Any]) -> list[Any]:
    """Replace each None by a usual value that is not used yet."""
    unused = iter([value for value in dict.fromkeys(usual) if value not in values])
    return [next(unused, "") if value is None else value for value in values]


Shuffle = Callable[[list[Any]], None]
_shuffle: Shuffle = SystemRandom().shuffle


def to_group(
    comparing: Comparing, settings: PanelSettings, shuffle: Shuffle = _shuffle
) -> tuple[Comparison, tuple[PanelSettings, ...]]:
    """Return the columns and their settings, in random order if blind."""
    pairs = list(zip(comparing.labels(), comparing.settings(settings), strict=True))
    if comparing.is_blind:
        shuffle(pairs)
    replies = tuple(Compared(label=label) for label, _ in pairs)
    group = Comparison(replies=replies, is_blind=comparing.is_blind)
    return group, tuple(column_settings for _, column_settings in pairs)


def draw_compared(turn: Turn) -> tuple[dict[str, Any], list[str]]:
    """Return the changed fields of a turn with compared replies, and the texts."""
    columns = to_columns(turn)
    fields = {
        "columns": [draw_column(_with_number(column)) for column in columns],
        "model": COMPARED,
        "footer": decision(turn),
        "badges": [],
    }
    return fields, [column.text for column in columns]


def _with_number(column: ReplyColumn) -> ReplyColumn:
    """Say the number of the version below the reply: commands are given it."""
    number = f"version {column.version}" if column.version else ""
    footer_text = " · ".join(filter(None, [number, column.footer]))
    return replace(column, footer=footer_text)


def draw_column(column: ReplyColumn) -> dict[str, Any]:
    """Return a column for the browser, without its text."""
    return {key: value for key, value in asdict(column).items() if key != "text"}


MakeWorker = Callable[[NextTurn, LiveReply, LiveView], ReplyWorker]


class _ColumnView:
    """Shows a worker's reply in its column."""

    def __init__(self, replies: "SideBySide", index: int) -> None:
        self._replies, self._index = replies, index

    def show_live(self, live: LiveReply, *messages: dict[str, Any]) -> None:
        """Change the column, and send its new content."""
        self._replies.show(self._index, live, messages)

    def show_question(self, question: dict[str, Any] | None) -> None:
        """Do nothing: compared replies cannot call tools."""


@dataclass(eq=False, repr=False, kw_only=True)
class SideBySide:
    """The replies of a comparison, while they are written.

    Each reply has a worker and an exchange; all wait for the same rate limits. `group`
    has only labels; `steps` are in the same order.
    """

    group: Comparison
    steps: Sequence[NextTurn]
    live: LiveReply
    view: LiveView
    make_worker: MakeWorker

    def __post_init__(self) -> None:
        labels = blind_labels(self.group)
        columns = tuple(draw_column(ReplyColumn(label=label)) for label in labels)
        choices = ({"html": "", "tail": ""},) * len(labels)
        self.live = replace(self.live, choices=choices, columns=columns)
        self._lock = RLock()
        self._ends: dict[int, ReplyEnd] = {}  # by column
        self._workers = [
            self.make_worker(step, replace(self.live, columns=()), view)
            for step, view in zip(self.steps, self._column_views(), strict=True)
        ]

    def _column_views(self) -> list[_ColumnView]:
        return [_ColumnView(self, index) for index in range(len(self.steps))]

    def stop(self) -> None:
        """Make all replies end soon; any thread may call this."""
        for worker in self._workers:
            worker.stop()

    def run(self) -> ReplyEnd:
        """Ask for the replies and return how they ended; never raises."""
        threads = [
            Thread(target=copy_context().run, args=(self._run, index), daemon=True)
            for index in range(len(self._workers))
        ]
        for index, thread in enumerate(threads):
            try:
                thread.start()
            except RuntimeError as problem:  # too many threads, or Python is ending
                self._end(index, ReplyEnd(status="failed", problem=str(problem)))
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        return self._to_end()

    def _run(self, index: int) -> None:
        self._end(index, self._workers[index].run())

    def _to_end(self) -> ReplyEnd:
        ends = [self._ends[index] for index in sorted(self._ends)]
        if answers := [end.completion for end in ends if end.completion]:
            is_stopped = any(end.status == "stopped" for end in ends)
            return ReplyEnd(
                status="stopped" if is_stopped else "compared",
                completion=answers[0],
                others=tuple(answers[1:]),
                comparison=self._comparison(ends),
            )
        pairs = zip(self.group.replies, ends, strict=True)
        problem = "\n".join(f"{reply.label}: {end.problem}" for reply, end in pairs)
        return ReplyEnd(status=ends[0].status, problem=problem)

    def _comparison(self, ends: Sequence[ReplyEnd]) -> Comparison:
        """Return the replies to pick from."""
        replies = tuple(
            Compared(
                label=reply.label,
                exchange_id=end.completion.exchange.exchange_id
                if end.completion
                else "",
                problem=self._problem(end),
            )
            for reply, end in zip(self.group.replies, ends, strict=True)
        )
        return Comparison(replies=replies, is_blind=self.group.is_blind)

    def _problem(self, end: ReplyEnd) -> str:
        is_empty = end.status == "stopped" and not end.completion
        return _NOTHING if is_empty else end.problem

    def _end(self, index: int, end: ReplyEnd) -> None:
        with self._lock:
            self._ends[index] = end
            problem, footer_text, first_text_s = self._problem(end), "", None
            if self.group.is_blind:  # the footer would reveal the model
                problem = without_names(problem, self.group)
            elif end.completion:
                reply = end.completion
                footer_text = footer(reply.exchange, reply.charge, has_model=False)
                first_text_s = end.completion.first_text_s
            self._change(
                index,
                status="",
                until_ms=None,
                problem=problem,
                footer=footer_text,
                first_text_s=first_text_s,
            )

    def show(
        self, index: int, live: LiveReply, messages: Sequence[dict[str, Any]]
    ) -> None:
        """Show the state of a worker in its column."""
        with self._lock:
            choices = [*self.live.choices]
            choices[index] = live.choices[0] if live.choices else choices[index]
            self.live = replace(self.live, choices=tuple(choices))
            for message in messages:
                if message["t"] == "status":
                    status, until_ms = message["text"], message["until_ms"]
                    # the wait would reveal the model
                    if status and self.group.is_blind:
                        status, until_ms = _WAITING, None
                    self._change(index, status=status, until_ms=until_ms)
                else:
                    self.view.show_live(self.live, {**message, "choice": index})

    def _change(self, index: int, **changes: object) -> None:
        columns = [*self.live.columns]
        columns[index] = {**columns[index], **changes}
        self.live = replace(self.live, columns=tuple(columns))
        message = {"t": "column", "choice": index, "column": columns[index]}
        self.view.show_live(self.live, message)
