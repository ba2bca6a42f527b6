"""One reply in a cell: sends the request, runs tools in rounds, shows and keeps it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar

from svc_notebook import Completion, CompletionStream, Toolbox
from svc_notebook.client.request_pipeline import SendRequest
from svc_notebook.completion import advice_on_reply
from svc_notebook.display.escape import in_a_line
from svc_notebook.display.reply_display import Final, Mode, ReplyDisplay, Wait, follow
from svc_notebook.display.reply_footer import REASONING, WAITING_FOR_ANSWER, cut_mark
from svc_notebook.display.tool_runs import CALL_CHARS, call_line
from svc_notebook.errors import (
    BadRequestError,
    CutError,
    Interrupted,
    SvcError,
)
from svc_notebook.exchange import Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.service.params import shorten
from svc_notebook.service.request import CompletionRequest, ToolCall
from svc_notebook.tokens import check_budget
from svc_notebook.tools.call import ToolRun
from svc_notebook.tools.consent import Consent, ConsentDecision, Proposal, to_consent
from svc_notebook.tools.rounds import MAX_ROUNDS, RoundLimits, ToolRecord, run_rounds

from .cell_context import CellContext, HiddenResult, Place
from .cell_request import CellRequest
from .format_option import lay_out
from .next_cell import next_cell
from .options import SvcOptions

if TYPE_CHECKING:  # it loads with the first conversation
    from svc_notebook.conversations.watched_turn import TurnWatcher

Result = TypeVar("Result")
Start = Callable[..., CompletionStream]  # takes a request and its `origin`
UNASKED = (
    "denied: you could not be asked; allow it with --confirm-tools none, or with "
    "%config SvcMagics.confirm_tools"
)
_ASKS_IN_CELL = "Waiting for an answer in the cell"
_CALL_CHARS = 200  # of arguments kept while they arrive; the status line shows fewer


class CellView:
    """Shows one reply: while it streams, then in its final form."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._display = place.display

    def show(self, delta: Delta) -> None:
        """Show a piece of the reply, or that the model reasons."""
        self._display.add(delta.text or "", delta.index)
        if delta.reasoning and not delta.text:
            self._display.status(REASONING)

    def wait(self, wait: Wait) -> None:
        """Show a wait."""
        self._display.wait(wait)

    def flush(self) -> float | None:
        """Show new text if it is due; otherwise return the seconds until then."""
        return self._display.flush()

    def end(self, completion: object | None) -> None:
        """Show the final form of what arrived; remove the output if nothing did."""
        has_reply = isinstance(completion, Completion) and completion.choices
        self._display.finish(self.place.draw(completion) if has_reply else None)  # type: ignore[arg-type]  # just tested


class RoundsCell(CellView):
    """The rounds of one cell; each reply has its own view.

    Tool calls are shown while they arrive, and run only when the reply is complete.
    Text before a call stays. At the end, the cell shows one final form: the text of all
    rounds, and the tool runs.
    """

    def __init__(
        self,
        context: CellContext,
        start: Start,
        place: Place,
        watchers: "tuple[TurnWatcher, ...]" = (),
    ) -> None:
        super().__init__(place)
        self._watchers = watchers
        self._session = context.session
        self._hide = context.hide
        self._start = start
        self._is_plain = context.mode is Mode.PLAIN
        self._texts: list[str] = []  # of earlier rounds
        self._tool_runs: tuple[ToolRun, ...] = ()
        self._newest: Completion | None = None  # of this round
        self._before: Completion | None = None  # the newest one of earlier rounds
        self._calls: dict[int | None, tuple[str, str]] = {}
        self._printed = StringIO()  # what the running tool prints
        self._running = ""
        self._is_gap_due = False
        self._has_asked = False  # since the last text of the reply

    def run(
        self,
        request: CompletionRequest,
        origin: Origin,
        toolbox: Toolbox,
        *,
        confirm_tools: str,
        rounds: RoundLimits,
        keep: ToolRecord,
    ) -> Completion:
        """Run the rounds, starting with this request, and draw what arrived."""
        session = self._session
        confirm = {"marked": None, "all": True, "none": False}[confirm_tools]
        consent, ask_for = to_consent(confirm, session.consent)
        n_unasked = session.at_prompt.n_unasked
        completion = self.attempt(
            lambda send: run_rounds(
                request,
                origin,
                toolbox=toolbox,
                send=send,
                consent=self._flush_before(consent),
                rounds=replace(rounds, ask_for=ask_for),
                watch=self._show_call,
                check_stop=self._show_printed,
                printed=None if self._is_plain else self._printed,
                keep=keep,
                hide=self._hide,
            )
        )
        n_denied = session.at_prompt.n_unasked - n_unasked
        notes = _notes(completion, n_denied)
        self._finish(completion, *notes)
        return completion

    def attempt(self, ask: Callable[[SendRequest], Result]) -> Result:
        """Run the rounds; if they fail or are interrupted, draw what arrived."""
        try:
            return ask(self._send)
        except KeyboardInterrupt as stopped:
            partial = getattr(stopped, "partial", None)
            if partial is None and self._newest is not None:
                partial = self._newest.with_tool_runs(self._tool_runs)
            self._finish(partial, mark="interrupted")
            raise Interrupted(partial) from None
        except SvcError as error:
            mark = "does not fit" if getattr(error, "type_name", "") else "incomplete"
            self._finish(error.partial, mark=mark)
            raise

    def show(self, delta: Delta) -> None:
        """Show a piece of a reply: text, or a tool call while it arrives."""
        if delta.index != 0:
            return
        if delta.text:
            if self._is_gap_due:
                self._display.add("\n\n")
                self._is_gap_due = False
            self._display.add(delta.text)
        elif delta.reasoning:
            self._display.status(REASONING)
        for piece in delta.calls:
            name, arguments = self._calls.get(piece.index, ("", ""))
            # servers send a name in pieces, or the whole name in each piece
            name += piece.name if piece.name and piece.name != name else ""
            arguments = (arguments + piece.arguments)[:_CALL_CHARS]
            self._calls[piece.index] = name, arguments
            # a printed line cannot be updated, so it shows no arguments
            line = name if self._is_plain else call_line(name, arguments)
            self._display.status(f"calling {line} ...")

    def end(self, completion: object | None) -> None:
        """Keep the reply of this round."""
        self._newest = None
        if isinstance(completion, Completion):
            self._newest = completion.following(self._before)

    def _flush_before(self, consent: Consent) -> Consent:
        """Return a consent function that first shows the text and what waits."""

        def ask(proposal: Proposal) -> ConsentDecision:
            name, function = proposal.name, proposal.function
            is_known = self._session.consent.allows(name, function)
            if not (self._is_plain or is_known):
                self._has_asked = True
                line = f"{call_line(name, proposal.arguments)} ..."
                self._display.status(f"{WAITING_FOR_ANSWER}{line}", is_now=True)
                for watcher in self._watchers:
                    watcher.show_status(_ASKS_IN_CELL)
            self._display.flush()
            return consent(proposal)

        return ask

    def _send(self, request: CompletionRequest, origin: Origin) -> Completion:
        if self._newest is not None:
            self._texts.append(self._newest.text)
            self._before = self._newest
        if self._has_asked:
            self._display.go_below()  # of the answered questions
            self._has_asked = False
        self._newest = None
        self._is_gap_due = any(self._texts)
        self._calls = {}
        for watcher in self._watchers:
            watcher.begin_round()
        stream = self._start(request, origin=origin)
        return follow(stream, self, *self._watchers)

    def _show_call(self, call: ToolCall | ToolRun) -> None:
        for watcher in self._watchers:
            watcher.show_call(call)
        if isinstance(call, ToolRun):
            self._tool_runs = (*self._tool_runs, call)
            self._display.tool_run(call)
        elif not self._is_plain:
            line = call_line(call.function.name, call.function.arguments)
            self._running = f"running {line} ..."
            self._display.status(self._running, is_now=True)

    def _show_printed(self) -> None:
        """Show the newest line that the running tool printed."""
        if lines := self._printed.getvalue().rstrip().splitlines():
            line = shorten(lines[-1], CALL_CHARS)
            self._display.status(f"{self._running} {line}")
        for watcher in self._watchers:
            watcher.flush()

    def _finish(self, completion: object, *notes: str, mark: str = "") -> None:
        """Draw the final form: the text of all rounds, and the tool runs."""
        shown = completion if isinstance(completion, Completion) else self._newest
        if shown and shown == self._newest:
            shown = self._newest  # with the charge of all rounds
        if shown is None and not self._tool_runs:
            self._display.finish(None)
            return
        tool_runs = self._tool_runs
        final = (
            self.place.draw(shown.with_tool_runs(tool_runs))
            if shown
            else Final(
                texts=(), footer=self._before.final().footer if self._before else ""
            )
        )
        final = final.with_notes(*notes)
        texts = [text for text in (*self._texts, *final.texts) if text]
        is_marked = mark in {"", *final.marks}
        self._display.finish(
            replace(
                final,
                texts=("\n\n".join(texts),) if texts else (),
                marks=final.marks if is_marked else (*final.marks, mark),
                tool_runs=final.tool_runs or tool_runs,
            )
        )


def _notes(completion: Completion, n_denied: int) -> list[str]:
    n_calls = len(completion.tool_runs)
    notes = []
    if n_calls:
        notes.append("1 tool call" if n_calls == 1 else f"{n_calls} tool calls")
    if n_denied:
        notes.append(f"{n_denied} {UNASKED}")
    return notes


class CellReply:
    """The reply to one request of a cell.

    `to_view` makes the view that shows the streamed reply at a place in the cell.
    """

    def __init__(
        self,
        context: CellContext,
        options: SvcOptions,
        cell_request: CellRequest,
        toolbox: Toolbox | None = None,
        to_view: Callable[[Place], CellView] = CellView,
    ) -> None:
        self._context = context
        self._options = options
        self._cell_request = cell_request
        self._toolbox = toolbox
        self._to_view = to_view
        self._place: Place | None = None  # known once the request is sent
        self._watchers: tuple[TurnWatcher, ...] = ()

    def complete(self, *, own_output: bool = False) -> Completion:
        """Send the request, show the reply, and keep it.

        It is kept in the conversation, the `-o` variable and the kernel's memory.
        `own_output` says that the cell outputs nothing else, so it may be cleared.
        """
        options, context = self._options, self._context
        with self._cell_request.asking() as self._watchers:
            try:
                received = self._send_or_shorten(own_output=own_output)
            except (SvcError, Interrupted) as stopped:
                stopped.partial = self._keep(stopped.partial)
                self._explain(stopped)
                raise
            completion: Completion = self._keep(received)
        if options.layout == "code":
            failed_code = self._cell_request.failed_code
            next_cell(completion, context, failed_code).put(context)
        HiddenResult(context.shell, completion)
        if options.is_strict and completion.is_cut:
            raise _cut_error(completion)
        return completion

    def _send_or_shorten(self, *, own_output: bool) -> Completion:
        """Send the request; if it is refused as too long, send a shorter one once."""
        try:
            return self._send(own_output=own_output)
        except BadRequestError as error:
            if (shorter := self._cell_request.shorter(error)) is None:
                raise
        self._cell_request = shorter
        return self._send(own_output=own_output)

    def _send(self, *, own_output: bool) -> Completion:
        """Send the request, in rounds if tools can run, and show the reply."""
        cell_request = self._cell_request
        start = to_start(self._context, self._options)
        if self._toolbox:
            check_budget(cell_request.request)
        if any(tool.function is not None for tool in self._toolbox or ()):
            # the output also has questions to the user and prints of tools: never clear
            # it
            return self._send_rounds(start, self._open_place(own_output=False))
        stream = start(cell_request.request, origin=cell_request.origin)
        try:
            view = self._to_view(self._open_place(own_output=own_output))
        except KeyboardInterrupt:
            raise Interrupted(stream.cancel()) from None
        self._place = view.place
        return follow(stream, view, *self._watchers)

    def _open_place(self, *, own_output: bool) -> Place:
        """Open a display in the running cell, and return it as the reply's place."""
        context, cell_request = self._context, self._cell_request
        context.say_above()
        layout = self._options.layout
        display = ReplyDisplay.open(
            context.mode,
            own_output=own_output,
            is_verbatim=layout in {"text", "json", "html"},
            is_late=layout == "json",
            n_texts=cell_request.request.params.get("n") or 1,
        )
        draw = partial(final_form, self._options, cell_request, context)
        places = context.memory.places
        self._place = places.here(display, draw, self._options.output)
        return self._place

    def _send_rounds(self, start: Start, place: Place) -> Completion:
        session, options = self._context.session, self._options
        confirm_tools = options.confirm_tools or self._context.traits.confirm_tools
        keep = session.tool_record if options.is_recorded else session.unrecorded_tools
        return RoundsCell(self._context, start, place, self._watchers).run(
            self._cell_request.request,
            self._cell_request.origin,
            self._toolbox or Toolbox(),
            confirm_tools=confirm_tools,
            rounds=RoundLimits(max_rounds=options.max_rounds or MAX_ROUNDS),
            keep=keep,
        )

    def _keep(self, completion: Any) -> Any:  # noqa: ANN401 - whatever arrived
        """Keep a reply, even a partial one; join it to the reply that it continues."""
        if not isinstance(completion, Completion):
            return completion
        context = self._context
        self._cell_request.keep(completion)
        if self._cell_request.rest_of:
            completion = context.session_context.joined(completion.exchange)
        exchange, places = completion.exchange, context.memory.places
        if self._place:
            places.put(exchange.exchange_id, self._place)
        if context.mode is Mode.LIVE and (name := exchange.origin.conversation):
            places.watch(context.session, context.session.conversations.named(name))
        context.put(self._options.output, completion)
        return completion

    def _explain(self, stopped: SvcError | Interrupted) -> None:
        """Show an interrupt before any text."""
        if isinstance(stopped, Interrupted) and not getattr(
            stopped.partial, "choices", ()
        ):
            display = ReplyDisplay.open(self._context.mode)
            display.finish(_interrupted(stopped.partial))


def to_start(context: CellContext, options: SvcOptions) -> Start:
    """Return the function that starts a request; note that one may be sent."""
    session_context = context.session_context
    client = (
        session_context.client
        if options.is_recorded
        else session_context.unrecorded_client
    )
    context.is_sending = True
    return partial(
        client.stream,
        watch=None,  # the cell shows its waits
        is_streamed=options.is_streamed,
        answers=session_context.reused
        if session_context.is_reusing(options.is_reused)
        else None,
    )


def _cut_error(completion: Completion) -> CutError:
    """Return the error of `--strict` for a reply that was cut."""
    error = CutError(
        f"The reply was {cut_mark(completion.exchange)} and --strict asks for a "
        "whole one. Give it more room with --max-tokens, or ask for less; svc.last() "
        "holds what arrived."
    )
    error.partial = completion
    error.exchange_id = completion.exchange.exchange_id
    return error


def final_form(
    options: SvcOptions,
    cell_request: CellRequest,
    context: CellContext,
    completion: Completion,
) -> Final:
    """Make the final form of a reply: footer and notes, laid out as `--format` says."""
    advice = advice_on_reply(completion.text, completion.request.params) or ""
    code = ""
    if options.layout == "code":
        code = next_cell(completion, context, cell_request.failed_code).note
    of = f" -c {in_a_line(options.conversation)}" if options.conversation else ""
    can_go_on = completion.can_go_on and options.is_recorded
    rest_note = f"`%svc{of} continue` asks for the rest" if can_go_on else ""
    has_part = completion.exchange.status == "cancelled" and completion.exchange.choices
    holder = options.output or "svc.last()"  # `-o` keeps a part, too
    partial_note = f"{holder} has what arrived" if has_part else ""
    final = completion.final().with_notes(
        *cell_request.notes,
        cell_request.note_on(completion),
        *(rest_note, partial_note, advice, code),
    )
    return lay_out(final, options.layout, context.mode) if options.layout else final


def _interrupted(partial: object) -> Final:
    """Return what is shown if the interrupt came before any text."""
    if isinstance(partial, Completion):
        return partial.final()
    return Final(texts=(), marks=("interrupted",), footer="nothing was sent")
