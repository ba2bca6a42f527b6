"""Asks for a panel's replies on threads, one or several side by side, and shows them.

A worker does not change the conversation: the controller records the reply at the end.
It checks 20 times a second whether the user has stopped it. Replies that are compared
have a worker and an exchange each; all wait for the same limits.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from random import SystemRandom
from threading import Event as Flag
from threading import RLock, Thread
from typing import Any, Literal, Protocol

from msgspec import to_builtins

from svc_notebook.completion import Completion, is_empty
from svc_notebook.conversations.compare import (
    Column,
    blind_labels,
    without_names,
)
from svc_notebook.conversations.seam import Seam
from svc_notebook.conversations.turn_requests import NextTurn
from svc_notebook.display.live import GAP_S
from svc_notebook.display.markdown import Blocks
from svc_notebook.display.markup import block_html, tail_html
from svc_notebook.display.output import POLL_S, Wait, follow
from svc_notebook.display.reply import REASONING, footer
from svc_notebook.errors import Interrupted, ParameterError, SvcError
from svc_notebook.exchange import Origin
from svc_notebook.ledger.row import Compared, Comparison
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest, ToolCall
from svc_notebook.session import Session
from svc_notebook.tools.call import ToolRun
from svc_notebook.tools.permissions import (
    Consent,
    Decision,
    Proposal,
    Rounds,
    to_arguments,
)
from svc_notebook.tools.rounds import run_rounds
from svc_notebook.tools.toolbox import Toolbox

from .actions import ANSWERED, Event
from .state import Comparing, Live, Phase, Settings, draw_call, draw_column, draw_run

MAX_TAIL_BYTES = 448
MAX_BYTES_PER_S = 12_000
ENVELOPE_BYTES = 600  # of each message, besides its content
EndStatus = Literal["finished", "cut", "compared", "stopped", "failed"]
_END_TEXTS: dict[EndStatus, str] = {
    "finished": "Reply finished",
    "cut": "Reply cut: there was no room for more",
    "compared": "Replies finished: pick one",
    "stopped": "Reply stopped",
    "failed": "Reply failed",
}
_EMPTY = (
    "The reply is empty{why}, so nothing was added to the conversation. Send the "
    "prompt again, or change it."
)
_STOPPED = "Stopped before any text arrived; nothing was added to the conversation."
_log = logging.getLogger(__name__)


class _ChoiceRenderer:
    """Renders one choice while it grows: finished blocks once, and the open tail."""

    def __init__(self, so_far: str = "") -> None:
        self._blocks = Blocks(max_tail_bytes=MAX_TAIL_BYTES)
        self.has_news = False  # whether it has grown since the last `take`
        self.drawn = {"html": "", "tail": ""}  # all that was taken so far
        self.feed(so_far)

    def feed(self, text: str) -> None:
        """Add a piece of the choice."""
        self._blocks.feed(text)
        self.has_news |= bool(text)

    def take(self) -> dict[str, str]:
        """Return the HTML of newly finished blocks, and of the tail."""
        self.has_news = False
        html = "".join(map(block_html, self._blocks.take()))
        tail = tail_html(self._blocks.tail)
        self.drawn = {"html": self.drawn["html"] + html, "tail": tail}
        return {"html": html, "tail": tail}


class ReplyRenderer:
    """Renders the choices of a reply, and limits how much is sent per second."""

    def __init__(self, so_far: str = "") -> None:
        self._choices = [_ChoiceRenderer(so_far)]
        self._due_at_s = 0.0

    def feed(self, choice: int, text: str) -> None:
        """Add a piece of a choice."""
        while len(self._choices) <= choice:
            self._choices.append(_ChoiceRenderer())
        self._choices[choice].feed(text)

    def take(self, now_s: float, *, is_last: bool = False) -> list[dict[str, Any]]:
        """Return the messages to send now; none if the last ones were just sent."""
        if now_s < self._due_at_s and not is_last:
            return []
        messages: list[dict[str, Any]] = [
            {"t": "delta", "choice": index, **choice.take()}
            for index, choice in enumerate(self._choices)
            if choice.has_news
        ]
        n_bytes = sum(
            ENVELOPE_BYTES + len(each["html"].encode()) + len(each["tail"].encode())
            for each in messages
        )
        self._due_at_s = now_s + max(GAP_S * len(messages), n_bytes / MAX_BYTES_PER_S)
        return messages

    @property
    def drawn(self) -> tuple[dict[str, str], ...]:
        """All choices as sent so far, in order."""
        return tuple(each.drawn for each in self._choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """How a reply ended."""

    status: EndStatus
    completion: Completion | None = None  # the last one with any content
    problem: str = ""  # why nothing, or not all, was added
    others: tuple[Completion, ...] = ()  # beside it, in the order in which they ended
    comparison: Comparison | None = None  # if there are others

    @property
    def completions(self) -> tuple[Completion, ...]:
        """The completion, and those beside it."""
        return (self.completion, *self.others) if self.completion else ()

    @property
    def text(self) -> str:
        """What the status line says."""
        return _END_TEXTS[self.status]


class ReplyView(Protocol):
    """Shows a worker's reply; the controller is one."""

    def show_live(self, live: Live, phase: Phase, *messages: dict[str, Any]) -> None:
        """Change the live reply and send messages, in one step."""

    def show_question(self, question: dict[str, Any] | None) -> None:
        """Show a question to the user, or remove it."""


@dataclass(eq=False, repr=False, kw_only=True)
class Worker:
    """Asks for one reply, in rounds if tools are offered."""

    step: NextTurn
    live: Live
    session: Session
    view: ReplyView
    so_far: str  # text that the reply continues
    toolbox: Toolbox
    consent: Consent  # decides on calls that need consent
    rounds: Rounds

    def __post_init__(self) -> None:
        self._renderer = ReplyRenderer(self.so_far)
        self._seam: Seam | None = None  # holds back what the reply may repeat
        self._is_stopped = Flag()
        self._newest: Completion | None = None
        self._n_rounds = 0
        self._calls: dict[str, dict[str, Any]] = {}
        self._question: dict[str, Any] | None = None
        self._decisions: SimpleQueue[Decision] = SimpleQueue()

    def stop(self) -> None:
        """Make the reply end soon; from any thread."""
        self._is_stopped.set()

    def run(self) -> ReplyEnd:
        """Ask for the reply and return how it ended; raises nothing."""
        try:
            completion = self._reply()
        except Interrupted:
            words = "" if self._newest else _STOPPED
            return ReplyEnd(status="stopped", completion=self._newest, problem=words)
        except SvcError as error:
            self._keep(error.partial)
            words = "\n".join([str(error), *getattr(error, "__notes__", ())])
        except BaseException as problem:  # noqa: BLE001 - shown in the panel
            _log.exception("A reply of the panel failed.")
            words = f"{type(problem).__name__}: {problem}"
        else:
            if is_empty(completion.exchange):
                words = _EMPTY.format(why=_why_empty(completion))
                return ReplyEnd(status="failed", problem=words)
            status: EndStatus = "cut" if completion.is_cut else "finished"
            return ReplyEnd(status=status, completion=completion)
        return ReplyEnd(status="failed", completion=self._newest, problem=words)

    def decide(self, event: Event) -> None:
        """Take the user's answer to the open question, or refuse it."""
        question = self._question
        if question is None or question["id"] != event.question_id:
            raise ParameterError(ANSWERED, param="id")
        verdict: Any = event.verdict
        arguments = _edited_arguments(event.arguments, str(question["arguments"]))
        self._decisions.put(Decision(verdict=verdict, arguments=arguments))

    def ask(self, proposal: Proposal) -> Decision:
        """Ask the user about a tool call, and wait for the answer or for a stop."""
        self._question = {
            "id": f"{self._n_rounds}/{proposal.call_id}",
            "name": proposal.name,
            "arguments": json.dumps(proposal.arguments, ensure_ascii=False, indent=2),
            "about": proposal.about,
        }
        self.view.show_question(self._question)
        try:
            while True:
                self._check_stop()
                try:
                    return self._decisions.get(timeout=POLL_S)
                except Empty:
                    continue
        finally:
            self._question = None
            self.view.show_question(None)

    def _reply(self) -> Completion:
        step = self.step
        if not step.request.tools:
            return self._send(step.request, step.origin)
        try:
            return run_rounds(
                step.request,
                step.origin,
                toolbox=self.toolbox,
                send=self._send_round,
                consent=self.consent,
                rounds=self.rounds,
                watch=self._show_call,
                keep=self.session.tool_record,
                hide=self.session.key_hider(),
                check_stop=self._check_stop,
            )
        except Interrupted as stopped:
            self._keep(stopped.partial)
            raise

    def _send_round(self, request: CompletionRequest, origin: Origin) -> Completion:
        self._n_rounds += 1
        if self._n_rounds > 1:  # below the calls of the rounds before
            self.live = replace(self.live, choices=(), status="")
            self._show_live()
        return self._send(request, origin)

    def _send(self, request: CompletionRequest, origin: Origin) -> Completion:
        """Send one request, and show its reply while it arrives."""
        self._check_stop()
        self._renderer = ReplyRenderer(self.so_far)
        self._seam = Seam(self.so_far) if self.so_far else None
        return follow(self.session.client.stream(request, origin=origin), self)

    def show(self, delta: Delta) -> None:
        """Take a piece of the reply."""
        if delta.text:
            seam = self._seam if delta.index == 0 else None
            shown = seam.feed(delta.text) if seam else delta.text
            self._renderer.feed(delta.index, shown)
            if self.live.status:
                self._show_status("")
        elif delta.reasoning and self.live.status != REASONING:
            self._show_status(REASONING)

    def wait(self, wait: Wait) -> None:
        """Show a wait as a countdown."""
        until_ms = round((time.time() + wait.wait_s) * 1000)
        self._show_status(f"Waiting: {wait.reason}", until_ms=until_ms)

    def flush(self) -> None:
        """Send what is new, if it is time; stop if the user has asked for it."""
        self._send_rendered()
        self._check_stop()

    def end(self, completion: object | None) -> None:
        """Send the rest of a reply and remember it."""
        if self._seam:
            self._renderer.feed(0, self._seam.end())
        self._send_rendered(is_last=True)
        self._keep(completion)

    def _check_stop(self) -> None:
        if self._is_stopped.is_set():
            raise Interrupted

    def _keep(self, completion: object) -> None:
        """Remember a completion if it has any content."""
        if isinstance(completion, Completion) and not is_empty(completion.exchange):
            self._newest = completion

    def _show_status(self, text: str, *, until_ms: int | None = None) -> None:
        self.live = replace(self.live, status=text)
        message = {"t": "status", "text": text, "until_ms": until_ms}
        self.view.show_live(self.live, self._phase, message)

    def _send_rendered(self, *, is_last: bool = False) -> None:
        messages = self._renderer.take(time.monotonic(), is_last=is_last)
        if messages:
            self.live = replace(self.live, choices=self._renderer.drawn)
            self.view.show_live(self.live, self._phase, *messages)

    @property
    def _phase(self) -> Phase:
        return Phase.WAITING if self.live.status else Phase.BUSY

    def _show_call(self, call: ToolCall | ToolRun) -> None:
        if isinstance(call, ToolCall):
            name, arguments = call.function.name, call.function.arguments
            self._calls[call.id] = draw_call(name, arguments, None)
        else:
            self._calls[call.call_id] = draw_run(call)
        self.live = replace(self.live, tool_runs=tuple(self._calls.values()))
        self._show_live()

    def _show_live(self) -> None:
        message = {"t": "live", "live": to_builtins(self.live)}
        self.view.show_live(self.live, Phase.BUSY, message)


def _why_empty(completion: Completion) -> str:
    if completion.is_cut:
        return f" (cut at {completion.exchange.max_tokens:,} tokens, max_tokens)"
    reason = completion.finish_reason
    return f" (finish reason {reason})" if reason not in {None, "stop"} else ""


def _edited_arguments(text: str | None, proposed: str) -> dict[str, Any] | None:
    """Read the arguments if the user has changed them; else None."""
    if text is None or text == proposed:
        return None
    arguments = to_arguments(text)
    if arguments is not None:
        return arguments
    raise ParameterError(
        "The arguments are not a JSON object; correct them, and decide again.",
        param="arguments",
    )


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
