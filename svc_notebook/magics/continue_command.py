"""`%svc continue`: asks for the rest of a reply, and adds it to the reply's output."""

from dataclasses import replace
from functools import partial
from typing import Any

from svc_notebook import Completion, Conversation
from svc_notebook.conversations.continuation import OverlapRemover
from svc_notebook.conversations.turn_request import (
    TurnSettings,
    request_continuation,
    request_rest,
)
from svc_notebook.display.escape import in_a_line
from svc_notebook.display.reply_display import Final, Mode
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import CUT_REASONS, Exchange, Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.session import Session
from svc_notebook.tokens import MaxTokens

from .cell_context import CellContext, Place
from .cell_reply import CellReply, CellView
from .cell_request import CellRequest
from .conversation_commands import restore_hint
from .dry_run import dry_run
from .options import SvcOptions

_ALLOWED_OPTIONS = (
    *("model", "params", "max_tokens", "conversation", "output", "is_streamed"),
    *("is_dry", "is_strict", "text"),
)
_OF_SWEEP = "The newest reply belongs to a sweep; run the sweep again."
_OF_SEVERAL = (
    "The newest reply is one of several that a cell asked for, so it cannot be "
    "continued. Run the cell again: it pays for all of them again, but with --reuse "
    "only for those that are not complete. If the cell has -o NAME, `NAME.run()` sends "
    "only these."
)


def continue_reply(context: CellContext, options: SvcOptions, turn: str = "") -> object:
    """Ask for the rest of a reply that was cut or interrupted: the newest, or a turn's.

    A complete reply is no error: Run All goes on below a cell that was needed once.
    """
    context.check_output(options.output)
    max_tokens = options.max_tokens or context.traits.defaults().get("max_tokens")
    try:
        cell_request = rest_request(context.session, options, max_tokens, turn)
    except _CompleteError as error:
        context.put(options.output, error.reply)
        return str(error)
    place = context.memory.places.find(cell_request.origin.continues or "")
    if options.is_dry:
        return dry_run(context, options, cell_request)
    output = place.output if place else None
    # the variable gets the whole reply, if it still holds the beginning
    if output and context.shell.user_ns.get(output) == cell_request.rest_of:
        options = replace(options, output=options.output or output)
    to_view = partial(RestView, context, cell_request)
    return CellReply(context, options, cell_request, to_view=to_view).complete()


def rest_request(
    session: Session, options: SvcOptions, max_tokens: MaxTokens, turn: str = ""
) -> CellRequest:
    """Build the request for the rest of a reply, or refuse it.

    It is the newest reply, or the one of this turn of the conversation.
    """
    allowed: dict[str, Any] = {
        name: getattr(options, name) for name in _ALLOWED_OPTIONS
    }
    if options != SvcOptions(**allowed) or options.is_several or "n" in options.params:
        raise _cannot_continue(
            "%svc continue sends the same prompt again. Only -c, -o, -m, --max-tokens, "
            "--dry-run, --strict and parameters other than -n are allowed; leave the "
            "other options out."
        )
    if turn:
        beginning = _reply_to_turn(session, options.conversation, turn)
    else:
        beginning = _newest_reply(session, options.conversation)
    reply, name = session.context().joined(beginning), beginning.origin.conversation
    owner = session.conversations.named(name) if name else None
    _check_continuable(reply, owner)
    before = {**reply.request.params, "extra": reply.request.extra}
    settings = TurnSettings(
        model=options.model or reply.model,
        params={**before, **options.params, "max_tokens": None},
        max_tokens=max_tokens,
        info=session.info_of(options.model or reply.model),
    )
    origin = Origin(kind="magic", conversation=name, turn_id=beginning.origin.turn_id)
    if owner is None:
        rest = request_rest(reply, origin, settings)
        return CellRequest(request=rest.request, origin=rest.origin, rest_of=reply)
    rest = request_continuation(owner.history, origin, settings)
    return CellRequest(
        request=rest.request,
        origin=rest.origin,
        notes=(f"conversation {name}", rest.fitted.note),
        keep=lambda completion: owner.record(rest, completion),
        asking=partial(owner.watched.asking, rest),
        rest_of=reply,
    )


def _reply_to_turn(session: Session, name: str | None, turn: str) -> Exchange:
    """Return the chosen answer to a turn."""
    if not name:
        raise _cannot_continue(
            "A turn is one of a conversation: write "
            f"`%svc -c NAME continue {turn}`, or `%svc continue` for the newest reply."
        )
    version = session.conversations.known(name).history.turn(int(turn)).version
    reply = session.ledger.last(
        scope="all", exchange_id=version.exchange_id, is_reply=True
    )
    if reply is None:
        raise _cannot_continue(
            f"The reply to turn {turn} of {name} is not in the ledger; it cannot be "
            "continued."
        )
    return reply


def _newest_reply(session: Session, name: str | None) -> Exchange:
    """Return the newest answer of a conversation, or of this kernel, or refuse it."""
    turns = session.conversations.known(name).turns if name else ()
    # the newest answer, even if later turns are to be asked again
    newest_id = max((turn.version.exchange_id for turn in turns), default="")
    beginning = session.ledger.last(
        scope="all" if name else "session", exchange_id=newest_id, is_reply=True
    )
    if beginning is None or (name and not turns):
        subject = f"The conversation {name}" if name else "This kernel"
        hint = "" if name else restore_hint(session)
        raise _cannot_continue(f"{subject} has no recorded reply yet; ask first.{hint}")
    unrecorded = None if name else session.unrecorded.last()
    asked = filter(None, (session.ledger.last(), unrecorded, beginning))
    newest = max(asked, key=lambda exchange: exchange.exchange_id)  # sorts by time
    if newest.exchange_id > beginning.exchange_id:
        _check_newest(newest, beginning, name)
    if newest is unrecorded:
        raise _cannot_continue(
            "The last reply is not in the ledger (--no-record); it cannot be continued."
        )
    return beginning


def _check_newest(newest: Exchange, beginning: Exchange, name: str | None) -> None:
    """Refuse if the newest question got no text: an older reply is not meant."""
    is_asked_here = name in {None, newest.origin.conversation}
    is_rest = newest.origin.continues == beginning.exchange_id
    if newest.usage_source == "missing" and is_asked_here and not is_rest:
        ending = "was interrupted" if newest.status == "cancelled" else "failed"
        raise _cannot_continue(
            f"The newest question got no text (it {ending}), so nothing can be "
            "continued. Run its cell to ask it again."
        )


def _check_continuable(reply: Completion, owner: Conversation | None) -> None:
    """Refuse a reply that cannot be continued, with the reason."""
    exchange, choices, can_go_on = reply.exchange, reply.choices, reply.can_go_on
    if owner is not None:
        at = owner.history.find(exchange.origin.turn_id or "")
        version = None if at is None else owner.turns[at].version
        reply_ids = exchange.exchange_id, exchange.origin.continues
        if version is None or version.exchange_id not in reply_ids:
            raise _cannot_continue(
                f"The conversation {owner.name} has moved on; `%svc -c "
                f"{in_a_line(owner.name)} continue` continues its last reply."
            )
        ended = [choice.finish_reason not in {None, *CUT_REASONS} for choice in choices]
        has_ended = len(choices) > 1 and ended[version.picked]
        can_go_on = version.can_go_on and not has_ended
    if exchange.origin.run:
        is_of_cell = exchange.origin.kind == "magic"
        raise _cannot_continue(_OF_SEVERAL if is_of_cell else _OF_SWEEP)
    if can_go_on:
        return
    if reply.tool_calls:
        raise _cannot_continue(
            "The last reply ends with tool calls, so it cannot be continued."
        )
    if len(choices) > 1:
        raise _cannot_continue(
            f"The last reply has {len(choices)} choices, so it cannot be continued. In "
            "a conversation (`-c NAME`), pick a choice that was cut with "
            "`svc.conversation(NAME).pick(TURN, CHOICE)`, and continue it."
        )
    if not reply.text:
        raise _cannot_continue("The last reply has no text yet; ask again.")
    raise _CompleteError(reply, owner)


def _way_on(owner: Conversation) -> str:
    """Name the newest turn whose reply can be continued."""
    numbers = enumerate(owner.turns, start=1)
    partial_ones = [number for number, turn in numbers if turn.version.can_go_on]
    if not partial_ones:
        return ""
    turn = partial_ones[-1]
    line = f"`%svc -c {in_a_line(owner.name)} continue {turn}`"
    return f" The reply to turn {turn} is not complete: {line} asks for the rest."


class _CompleteError(ParameterError):
    """The reply has ended by itself, so there is no rest to ask for."""

    def __init__(self, reply: Completion, owner: Conversation | None) -> None:
        turn = way_on = ""
        if owner:
            at = owner.history.index_of(reply.exchange.origin.turn_id or "") + 1
            turn, way_on = f"to turn {at} of {owner.name} ", _way_on(owner)
        reason = f" (finish reason {reply.finish_reason})" * bool(reply.finish_reason)
        super().__init__(
            f"Nothing was sent: the last reply {turn}ended by itself{reason}, so it is "
            f"complete.{way_on}",
            param="line",
        )
        self.reply = reply


def _cannot_continue(reason: str) -> ParameterError:
    return ParameterError(reason, param="line")


class RestView(CellView):
    """Shows the rest of a reply.

    If the reply's output is still there, the rest is added to it. Otherwise this cell
    shows the whole reply; in a terminal it prints only the rest. `place` is where the
    reply is shown from now on.
    """

    def __init__(
        self, context: CellContext, cell_request: CellRequest, here: Place
    ) -> None:
        self._session, self._before = context.session, cell_request.rest_of
        so_far = cell_request.request.messages[-2].content or ""
        self._overlap, place, old = OverlapRemover(so_far), here, None
        self._here, self._line = here.display, ""  # the line says where the rest goes
        if context.mode is Mode.LIVE:
            old = context.memory.places.find(cell_request.origin.continues or "")
        if old and not old.run_again and old.display.reopen(so_far):
            self._line = f"the rest is added to the reply of [{old.number}]"
            self._here.finish(self._final_line())
            place = old
        elif not here.display.reopen(so_far):
            here.display.add(so_far)
        super().__init__(place)

    def show(self, delta: Delta) -> None:
        """Show a piece of the rest."""
        if delta.index == 0:
            self._display.add(self._overlap.feed(delta.text or ""))

    def end(self, completion: object | None) -> None:
        """Show the final form of the whole reply, or the old reply if no rest came."""
        self._display.add(self._overlap.end())
        if isinstance(completion, Completion):
            joined = self._session.context().joined(completion.exchange)
            completion = joined.with_notes(self._overlap.note)
        shown = completion or self._before
        super().end(shown)
        is_cut = isinstance(shown, Completion) and shown.can_go_on
        if self._line and is_cut and self._here.reopen(""):
            self._line += ", which is still not complete"
            self._here.finish(self._final_line())

    def _final_line(self) -> Final:
        """Return what the cell of the command shows."""
        return Final(texts=(), footer=f"{self._line}; `%svc last` shows all of it here")
