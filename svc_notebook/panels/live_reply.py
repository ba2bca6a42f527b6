"""A reply while it is written: a worker asks for it on a thread and shows it.

A worker does not change the conversation: its reply is recorded at the end. It checks
20 times a second whether the user has stopped it. A reply that a cell asks for is shown
in the same way, but the cell's thread asks.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Literal, Protocol

from msgspec import to_builtins

from svc_notebook.completion import Completion
from svc_notebook.conversations.continuation import OverlapRemover
from svc_notebook.conversations.turn_request import NextTurn
from svc_notebook.conversations.watched_turn import TurnWatcher
from svc_notebook.display.growing_markdown import Blocks, block_html, tail_html
from svc_notebook.display.markdown import to_html
from svc_notebook.display.reply_display import POLL_S, Wait, follow
from svc_notebook.display.reply_footer import REASONING
from svc_notebook.display.tool_runs import (
    CALL_CHARS,
    NOT_ANSWERED,
    Step,
    call_line,
    consent_line,
    result_line,
    run_arguments,
    run_parts,
    shortened_html,
    to_arguments,
)
from svc_notebook.errors import (
    BadRequestError,
    Interrupted,
    ParameterError,
    SvcError,
)
from svc_notebook.exchange import Origin, is_empty
from svc_notebook.ledger.exchange_rows import Comparison
from svc_notebook.service.chunk import Delta
from svc_notebook.service.params import shorten
from svc_notebook.service.request import CompletionRequest, ToolCall
from svc_notebook.session import Session
from svc_notebook.tools.consent import (
    HOW_TO_EDIT,
    Consent,
    ConsentDecision,
    Proposal,
    edited_arguments,
)
from svc_notebook.tools.rounds import RoundLimits, run_rounds
from svc_notebook.tools.toolbox import Toolbox

from .browser_messages import BrowserMessage

GAP_S = 0.05  # average time between messages, at least
# Of what is rendered again for each message. A paragraph that is cut is drawn with a
# break until it ends; in Thai, a letter has three bytes.
MAX_TAIL_BYTES = 4096

MAX_BYTES_PER_S = 12_000  # a long reply need not be sent faster than it is read
MAX_GAP_S = 1.0  # longest pause, after a message that replaces a long block

ENVELOPE_BYTES = 600  # of a message, without its content

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
_RUNNING = "running …"
_WAITING = "waits for your answer"
ANSWERED = "This question was answered already."
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReply:
    """The reply that is being written, as the browser gets it."""

    turn: str  # the turn's id, or `new`
    asker: str = ""  # what asks, if it is not the panel
    model: str = ""  # the model in the request
    prompt: str | None = None  # None for the prompt that the turn has
    whole: str = ""  # the line that opens this prompt if it is long
    attached: tuple[Mapping[str, Any], ...] | None = None  # None for the turn's own
    choices: tuple[Mapping[str, str], ...] = ()  # the HTML of each choice so far
    status: str = ""  # what the reply is waiting for
    tool_runs: tuple[Mapping[str, Any], ...] = ()  # so far
    columns: tuple[Mapping[str, Any], ...] = ()  # one for each compared reply


def draw_call(
    name: str, arguments: str, result: str | None, *, state: str = _RUNNING
) -> dict[str, Any]:
    """Return a tool call for the browser; without a result, with the state it is in.

    If the kernel ends in this state, the page says that the call is not answered.
    """
    shown = [("arguments", shortened_html(arguments))]
    shown += [] if result is None else [("result", shortened_html(result))]
    is_error = bool(result and result.startswith("Error:"))
    end = state if result is None else shorten(result, CALL_CHARS)
    call = call_line(name, arguments)
    return {
        "name": name,
        "line": f"{call} → {end}",
        "unanswered": "" if result is not None else f"{call} → {NOT_ANSWERED}",
        "html": _parts(shown),
        "is_error": is_error,
    }


def draw_run(run: Step) -> dict[str, Any]:
    """Return a tool call that was run, with its traceback, consent and time."""
    took = f"<p>{shortened_html(consent_line(run))}{run.seconds_s:.1f} s</p>"
    html = _parts(run_parts(run)) + took
    is_error = run.error is not None
    line = f"{call_line(run.name, run_arguments(run))} → {result_line(run)}"
    lines = {"line": line, "unanswered": ""}
    return {"name": run.name, **lines, "html": html, "is_error": is_error}


def _parts(parts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<p>{title}</p><pre>{html}</pre>" for title, html in parts)


class _ChoiceRenderer:
    """Renders one choice while it grows: finished blocks once, the open tail each time.

    A long block is rendered in pieces while it grows. When it is finished, the whole
    block replaces the pieces; code then has its colours.
    """

    def __init__(self, so_far: str = "") -> None:
        self._blocks = Blocks(max_tail_bytes=MAX_TAIL_BYTES)
        self.has_news = False  # whether it has grown since the last `take`
        self._htmls: list[str] = []  # of the blocks and pieces sent so far
        self._pieces: list[str] = []  # Markdown of the last block, if it is unfinished
        self.drawn = {"html": "", "tail": ""}  # everything sent so far
        self.feed(so_far)

    def feed(self, text: str) -> None:
        """Add a piece of the choice."""
        self._blocks.feed(text)
        self.has_news |= bool(text)

    def take(self) -> dict[str, Any]:
        """Return the HTML of newly finished blocks, and the end of the tail's.

        The blocks replace the last `n_back` ones sent before, which are their pieces.
        The tail begins with the first `n_same` characters of the one before.
        """
        self.has_news = False
        n_sent = n_same = len(self._htmls)
        for block in self._blocks.take():
            html = block_html(block)
            if self._pieces and not block.is_cut:
                del self._htmls[-len(self._pieces) :]
                html = to_html("".join((*self._pieces, block.source)))
            n_same = min(n_same, len(self._htmls))
            self._htmls.append(html)
            self._pieces = [*self._pieces, block.source] if block.is_cut else []
        tail = tail_html(self._blocks.tail)
        n_tail = _n_same_chars(self.drawn["tail"], tail)
        self.drawn = {"html": "".join(self._htmls), "tail": tail}
        html = "".join(self._htmls[n_same:])
        n_back = n_sent - n_same
        return {"html": html, "tail": tail[n_tail:], "n_back": n_back, "n_same": n_tail}


def _n_same_chars(before: str, after: str) -> int:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return sum(1 for _ in pairs)


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
        """Return the messages to send now; none if it is too early for the next."""
        if now_s < self._due_at_s and not is_last:
            return []
        messages: list[dict[str, Any]] = [
            {"t": "delta", "choice": index, **choice.take()}
            for index, choice in enumerate(self._choices)
            if choice.has_news
        ]
        n_bytes = sum(
            ENVELOPE_BYTES + len((message["html"] + message["tail"]).encode())
            for message in messages
        )
        gap_s = min(n_bytes / MAX_BYTES_PER_S, MAX_GAP_S)
        self._due_at_s = now_s + max(GAP_S * len(messages), gap_s)
        return messages

    @property
    def drawn(self) -> tuple[dict[str, str], ...]:
        """All choices as sent so far, by index."""
        return tuple(choice.drawn for choice in self._choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """How a reply ended."""

    status: EndStatus
    completion: Completion | None = None  # the last one with any content
    problem: str = ""  # why no reply, or only a part of it, was added
    note: str = ""  # turns that were left out after a refusal
    others: tuple[Completion, ...] = ()  # the other compared replies
    comparison: Comparison | None = None  # if there are others

    @property
    def completions(self) -> tuple[Completion, ...]:
        """The completion and the other compared ones."""
        return (self.completion, *self.others) if self.completion else ()

    @property
    def text(self) -> str:
        """The text of the status line."""
        return _END_TEXTS[self.status]


class LiveView(Protocol):
    """Where a worker shows its reply."""

    def show_live(self, live: LiveReply, *messages: dict[str, Any]) -> None:
        """Change the live reply and send messages, in one step."""

    def show_question(self, question: dict[str, Any] | None) -> None:
        """Show a question to the user, or remove it."""


@dataclass(eq=False, repr=False, kw_only=True)
class LiveDisplay:
    """Shows one reply on the page while it is written, until the user stops it."""

    live: LiveReply
    view: LiveView
    so_far: str = ""  # text that the reply continues

    def __post_init__(self) -> None:
        self._renderer = ReplyRenderer(self.so_far)
        # removes what a continued reply repeats
        self._overlap = OverlapRemover(self.so_far) if self.so_far else None
        self._is_stopped = Event()
        self._calls: dict[str, dict[str, Any]] = {}

    def stop(self) -> None:
        """Make the reply end soon; any thread may call this."""
        self._is_stopped.set()

    def show(self, delta: Delta) -> None:
        """Show a piece of the reply."""
        if delta.text:
            text = delta.text
            if self._overlap and delta.index == 0:
                text = self._overlap.feed(text)
            self._renderer.feed(delta.index, text)
            self.show_status("")
        elif delta.reasoning:
            self.show_status(REASONING)

    def begin_round(self) -> None:
        """Show what comes now below the text of earlier rounds."""
        self.show_status("")
        if self.live.choices:
            self._renderer.feed(0, "\n\n")
            self._send_rendered(is_last=True)

    def wait(self, wait: Wait) -> None:
        """Show a wait as a countdown."""
        until_ms = round((time.time() + wait.wait_s) * 1000)
        self.show_status(f"Waiting: {wait.reason}", until_ms=until_ms)

    def flush(self) -> None:
        """Send new content if it is due; stop if the user has asked for it."""
        self._send_rendered()
        self._check_stop()

    def end(self, _: object | None) -> None:
        """Send the end of a reply, or of one of its rounds."""
        if self._overlap:
            self._renderer.feed(0, self._overlap.end())
        self._send_rendered(is_last=True)

    def _check_stop(self) -> None:
        if self._is_stopped.is_set():
            raise Interrupted

    def show_status(self, text: str, *, until_ms: int | None = None) -> None:
        """Show what the reply waits for; "" if for nothing."""
        if text == self.live.status and until_ms is None:
            return
        self.live = replace(self.live, status=text)
        message = {"t": "status", "text": text, "until_ms": until_ms}
        self.view.show_live(self.live, message)

    def _send_rendered(self, *, is_last: bool = False) -> None:
        messages = self._renderer.take(time.monotonic(), is_last=is_last)
        if messages:
            self.live = replace(self.live, choices=self._renderer.drawn)
            self.view.show_live(self.live, *messages)

    def show_call(self, call: ToolCall | Step) -> None:
        """Show a tool call that begins or that was answered."""
        if isinstance(call, ToolCall):
            name, arguments = call.function.name, call.function.arguments
            self._draw_call(call.id, draw_call(name, arguments, None))
        else:
            self._draw_call(call.call_id, draw_run(call))

    def _draw_call(self, call_id: str, call: dict[str, Any]) -> None:
        self._calls[call_id] = call
        self.live = replace(self.live, tool_runs=tuple(self._calls.values()))
        self._show_live()

    def _show_live(self) -> None:
        message = {"t": "live", "live": to_builtins(self.live)}
        self.view.show_live(self.live, message)


@dataclass(eq=False, repr=False, kw_only=True)
class WatchedReply(LiveDisplay):
    """Shows a reply that a cell or another panel asks for, on its thread."""

    step: NextTurn
    on_close: "Callable[[WatchedReply], None]"

    def close(self) -> None:
        """Show the turn as it is now."""
        self.on_close(self)


@dataclass(eq=False, repr=False, kw_only=True)
class ReplyWorker(LiveDisplay):
    """Asks for one reply, in rounds if tools are offered."""

    step: NextTurn
    session: Session
    toolbox: Toolbox
    consent: Consent  # decides on calls that need consent
    rounds: RoundLimits
    watchers: tuple[TurnWatcher, ...] = ()  # in other panels

    def __post_init__(self) -> None:
        super().__post_init__()
        self._newest: Completion | None = None
        self._before: Completion | None = None  # the newest one of earlier rounds
        self._n_rounds = 0
        self._question: dict[str, Any] | None = None
        self._decisions: SimpleQueue[ConsentDecision] = SimpleQueue()
        self._typed = ""  # the arguments as the user changed them last

    def run(self) -> ReplyEnd:
        """Ask for the reply and return how it ended; never raises."""
        try:
            completion = self._reply_or_shorten()
        except Interrupted:
            problem_text = "" if self._newest else _STOPPED
            return ReplyEnd(
                status="stopped", completion=self._newest, problem=problem_text
            )
        except SvcError as error:
            self._keep(error.partial)
            problem_text = "\n".join(error.lines)
        except BaseException as problem:  # noqa: BLE001 - shown in the panel
            _log.exception("A reply of the panel failed.")
            problem_text = f"{type(problem).__name__}: {problem}"
        else:
            if is_empty(completion.exchange):
                problem_text = _EMPTY.format(why=_why_empty(completion))
                return ReplyEnd(status="failed", problem=problem_text)
            status: EndStatus = "cut" if completion.is_cut else "finished"
            note = self.step.fitted.note.capitalize()
            return ReplyEnd(status=status, completion=completion, note=note)
        return ReplyEnd(status="failed", completion=self._newest, problem=problem_text)

    def decide(self, message: BrowserMessage) -> None:
        """Pass on the user's answer to the open question; refuse a late answer."""
        question = self._question
        if question is None or question["id"] != message.question_id:
            raise ParameterError(ANSWERED, param="id")
        verdict: Any = message.verdict  # one of VERDICTS
        self._typed = "" if verdict == "deny" else message.arguments or ""
        arguments = _changed_arguments(self._typed, str(question["arguments"]))
        self._decisions.put(ConsentDecision(verdict=verdict, arguments=arguments))

    def ask(self, proposal: Proposal) -> ConsentDecision:
        """Ask the user about a tool call, and wait for the answer or for a stop."""
        self._question = {
            "id": f"{self._n_rounds}/{proposal.call_id}",
            "name": proposal.name,
            "arguments": json.dumps(proposal.arguments, ensure_ascii=False, indent=2),
            "how_to_edit": HOW_TO_EDIT,
            "about": proposal.about,
            "problem": proposal.problem,
            "typed": self._typed if proposal.problem else "",
        }
        arguments = json.dumps(proposal.arguments, ensure_ascii=False)
        call = draw_call(proposal.name, arguments, None, state=_WAITING)
        self._draw_call(proposal.call_id, call)
        self.view.show_question(self._question)
        try:
            while True:
                self._check_stop()
                with suppress(Empty):
                    return self._decisions.get(timeout=POLL_S)
        finally:
            self._question = None
            self.view.show_question(None)

    def _reply_or_shorten(self) -> Completion:
        """Ask for the reply; if the request is refused as too long, shorten it once."""
        try:
            return self._reply()
        except BadRequestError as error:
            if (shorter := self.step.shorter(error)) is None:
                raise
        self.step = shorter
        return self._reply()

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
                watch=self.show_call,
                keep=self.session.tool_record,
                hide=self.session.key_hider(),
                check_stop=self._check_stop,
            )
        except Interrupted as stopped:
            self._keep(stopped.partial)
            raise

    def _send_round(self, request: CompletionRequest, origin: Origin) -> Completion:
        self._n_rounds += 1
        self._before = self._newest
        self.begin_round()
        return self._send(request, origin)

    def _send(self, request: CompletionRequest, origin: Origin) -> Completion:
        """Send one request, and show its reply while it arrives."""
        self._check_stop()
        stream = self.session.client.stream(request, origin=origin, watch=None)
        return follow(stream, self, *self.watchers)

    def end(self, completion: object | None) -> None:
        """Send the end of a reply, and remember the completion."""
        super().end(completion)
        if isinstance(completion, Completion):
            self._keep(completion.following(self._before))

    def _keep(self, completion: object) -> None:
        """Remember a completion if it has any content."""
        if isinstance(completion, Completion) and not is_empty(completion.exchange):
            self._newest = completion


def _why_empty(completion: Completion) -> str:
    if completion.is_cut:
        limit = completion.exchange.max_tokens
        return f" (cut at {limit:,} tokens, max_tokens)" if limit else " (cut)"
    reason = completion.finish_reason
    return f" (finish reason {reason})" if reason not in {None, "stop"} else ""


def _changed_arguments(typed: str, proposed: str) -> dict[str, Any] | None:
    """Read the arguments if the user has changed them; else None."""
    if typed in ("", proposed):
        return None
    arguments = edited_arguments(to_arguments(proposed) or {}, typed)
    if arguments is not None:
        return arguments
    raise ParameterError(
        f"The changed arguments cannot be read. Type {HOW_TO_EDIT}, and decide again.",
        param="arguments",
    )
