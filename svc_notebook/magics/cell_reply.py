"""One reply in a cell: sent, shown while it streams, kept."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from svc_notebook import Completion, Toolbox
from svc_notebook.completion import cut_mark, on_reply
from svc_notebook.display.final_reply import Final
from svc_notebook.display.reply_display import Mode, ReplyDisplay, follow
from svc_notebook.errors import CutError, Interrupted, SvcError, UnknownModelError
from svc_notebook.service.catalogue import Model
from svc_notebook.service.params import did_you_mean
from svc_notebook.tokens import check_budget
from svc_notebook.tools.rounds import MAX_ROUNDS, RoundLimits

from .cell_context import CellContext
from .cell_request import CellRequest
from .cell_tools import RoundsCell, Start
from .cell_view import CellView, HiddenResult, Place
from .format_option import lay_out
from .next_cell import next_cell
from .options import SvcOptions


class CellReply:
    """The reply to one request of a cell.

    `to_view` makes what shows the reply while it streams, from its place in the cell.
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

    def complete(self, *, own_output: bool = False) -> Completion:
        """Send the request, show the reply, and keep it where it belongs.

        `own_output` allows clearing the cell's output, which is the reply's alone.
        """
        options, context = self._options, self._context
        try:
            sent = self._send(own_output=own_output)
        except (SvcError, Interrupted) as stopped:
            stopped.partial = self._keep(stopped.partial)
            self._explain(stopped)
            raise
        completion: Completion = self._keep(sent)
        if options.layout == "code":
            next_cell(completion, context.mode).put(context.shell)
        HiddenResult(context.shell, completion)
        if options.is_strict and completion.is_cut:
            raise _cut_error(completion)
        return completion

    def _send(self, *, own_output: bool) -> Completion:
        """Send the request, in rounds where tools can run, and show the reply."""
        context, cell_request = self._context, self._cell_request
        layout = self._options.layout
        start = to_start(context, self._options)
        if self._toolbox:
            check_budget(cell_request.request)
        has_rounds = any(tool.function is not None for tool in self._toolbox or ())
        stream = (
            None
            if has_rounds
            else start(cell_request.request, origin=cell_request.origin)
        )
        display = ReplyDisplay.open(
            context.mode,
            # what tools print, and what was asked, is not the reply's to clear
            own_output=own_output and not has_rounds,
            is_verbatim=layout in {"text", "json", "html"},
            is_late=layout == "json",
            n_texts=cell_request.request.params.get("n") or 1,
        )
        draw = partial(final_form, self._options, cell_request, context.mode)
        places = context.memory.places
        self._place = places.here(display, draw, self._options.output)
        if stream is None:
            return self._send_rounds(start, self._place)
        view = self._to_view(self._place)
        self._place = view.place
        return follow(stream, view)

    def _send_rounds(self, start: Start, place: Place) -> Completion:
        session, options = self._context.session, self._options
        confirm_tools = options.confirm_tools or self._context.traits.confirm_tools
        keep = session.tool_record if options.is_recorded else session.unrecorded_tools
        return RoundsCell(self._context, start, place).run(
            self._cell_request.request,
            self._cell_request.origin,
            self._toolbox or Toolbox(),
            confirm_tools=confirm_tools,
            rounds=RoundLimits(max_rounds=options.max_rounds or MAX_ROUNDS),
            keep=keep,
        )

    def _keep(self, completion: Any) -> Any:  # noqa: ANN401 - whatever arrived
        """Keep a reply, whole or partial; return it with what it continues."""
        if not isinstance(completion, Completion):
            return completion
        context = self._context
        self._cell_request.keep(completion)
        if self._cell_request.rest_of:
            completion = context.session.context().joined(completion.exchange)
        if self._place:
            context.memory.places.put(completion.exchange.exchange_id, self._place)
        context.put(self._options.output, completion)
        return completion

    def _explain(self, stopped: SvcError | Interrupted) -> None:
        """Say what neither the error nor what arrived says."""
        if isinstance(stopped, UnknownModelError):
            models = self._context.session.models()
            _hint_at_model(stopped, self._cell_request.request.model, models)
        if isinstance(stopped, Interrupted) and not getattr(
            stopped.partial, "choices", ()
        ):
            from .interrupt import interrupted  # noqa: PLC0415 - rare

            display = ReplyDisplay.open(self._context.mode)
            display.finish(interrupted(stopped.partial))


def to_start(context: CellContext, options: SvcOptions) -> Start:
    """Return what starts a request; from then on it may have left."""
    kernel = context.session.context()
    client = kernel.client if options.is_recorded else kernel.unrecorded_client
    context.is_sending = True
    return partial(
        client.stream,
        watch=None,  # the cell shows its waits
        is_streamed=options.is_streamed,
        answers=kernel.reused if kernel.is_reusing(options.is_reused) else None,
    )


def _hint_at_model(
    error: UnknownModelError, model: str, models: Iterable[Model]
) -> None:
    """Name the known model that a misspelt one may have meant."""
    names = [known.id for known in models]
    hint = did_you_mean(model.lower(), names, n=1)
    if hint and model not in names:
        error.add_note(f"The model asked for is {model!r}.{hint}")


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
    options: SvcOptions, cell_request: CellRequest, mode: Mode, completion: Completion
) -> Final:
    """Make the final form: the footer with its notes, drawn as `--format` says."""
    advice = on_reply(completion.text, completion.request.params) or ""
    code = next_cell(completion, mode).note if options.layout == "code" else ""
    of = f" -c {options.conversation}" if options.conversation else ""
    can_go_on = completion.can_go_on and options.is_recorded
    rest = f"`%svc{of} continue` asks for the rest" if can_go_on else ""
    has_part = completion.exchange.status == "cancelled" and completion.exchange.choices
    partial_note = "svc.last() has what arrived" if has_part else ""
    final = completion.final().with_notes(
        *cell_request.notes, rest, partial_note, advice, code
    )
    return lay_out(final, options.layout, mode) if options.layout else final
