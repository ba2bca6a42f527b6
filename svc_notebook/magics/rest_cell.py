"""`%svc continue`: the rest of a reply, in the output that has its beginning."""

from typing import Any

from svc_notebook.completion import CUT_REASONS, Completion
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.seam import Seam
from svc_notebook.conversations.turn_requests import (
    TurnSettings,
    request_continuation,
    request_rest,
)
from svc_notebook.display.live import Mode
from svc_notebook.display.reply import Final
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.row import Scope
from svc_notebook.service.chunk import Delta
from svc_notebook.session import Session
from svc_notebook.tokens import MaxTokens

from .options import SvcOptions
from .prompt import CellRequest
from .reply_cell import Place, Places, ReplyView

_TAKES = (
    *("model", "params", "max_tokens", "conversation", "output", "is_streamed"),
    *("is_dry", "is_strict", "text"),
)


def rest_request(
    session: Session, options: SvcOptions, max_tokens: MaxTokens
) -> CellRequest:
    """Build the request for the rest of the newest reply, or refuse it."""
    taken: dict[str, Any] = {name: getattr(options, name) for name in _TAKES}
    if options != SvcOptions(**taken) or options.is_several or "n" in options.params:
        raise _refused(
            "%svc continue sends the prompt as it was. It takes -c, -o, -m, "
            "--max-tokens, parameters but -n, --dry-run and --strict; leave the other "
            "options out."
        )
    name = options.conversation
    turns = session.conversations.known(name).turns if name else ()
    # the newest answer, also where later turns wait to be asked again
    newest_id = max((each.version.exchange_id for each in turns), default="")
    scope: Scope = "all" if name else "session"
    found = session.ledger.last(scope=scope, exchange_id=newest_id, is_reply=True)
    if found is None or (name and not turns):
        where = f"The conversation {name}" if name else "This kernel"
        raise _refused(f"{where} has no reply yet that the ledger knows.")
    other = None if name else session.newest_unrecorded
    if other and other.exchange_id > found.exchange_id:  # ids sort by time
        raise _refused("The last reply was kept out of the ledger (--no-record).")
    newest = session.ledger.last()
    if newest and newest.exchange_id > found.exchange_id:
        _check_newest(newest, found, name)
    reply, name = session.joined(found), found.origin.conversation
    owner = session.conversations.named(name) if name else None
    _check(reply, owner)
    before = {**reply.request.params, "extra": reply.request.extra}
    settings = TurnSettings(
        model=options.model or reply.model,
        params={**before, **options.params, "max_tokens": None},
        max_tokens=max_tokens,
        context_tokens=session.settings.endpoint.context_of(
            options.model or reply.model
        ),
    )
    origin = Origin(kind="magic", conversation=name, turn_id=found.origin.turn_id)
    if owner is None:
        step = request_rest(reply, origin, settings)
        return CellRequest(request=step.request, origin=step.origin, rest_of=reply)
    step = request_continuation(owner.history, origin, settings)
    return CellRequest(
        request=step.request,
        origin=step.origin,
        notes=(f"conversation {name}", step.fitted.note),
        keep=lambda completion: owner.record(step, completion),
        rest_of=reply,
    )


def _check_newest(newest: Exchange, found: Exchange, name: str | None) -> None:
    """Refuse to extend a reply that is older than a question without one."""
    is_asked_here = name in {None, newest.origin.conversation}
    is_rest = newest.origin.continues == found.exchange_id
    if newest.usage_source == "missing" and is_asked_here and not is_rest:
        how = "was interrupted" if newest.status == "cancelled" else "failed"
        raise _refused(
            f"The newest question brought no text (it {how}), so it has no rest, and "
            "an older reply is not meant. Ask it again: run its cell."
        )


def _check(reply: Completion, owner: Conversation | None) -> None:
    """Refuse what cannot be continued, with the reason."""
    exchange, choices, can_go_on = reply.exchange, reply.choices, reply.can_go_on
    if owner is not None:
        at = owner.history.find(exchange.origin.turn_id or "")
        version = None if at is None else owner.turns[at].version
        of = exchange.exchange_id, exchange.origin.continues
        if version is None or version.exchange_id not in of:
            raise _refused(
                f"The conversation {owner.name} has moved on; `%svc -c {owner.name} "
                "continue` continues its last reply."
            )
        ended = [each.finish_reason not in {None, *CUT_REASONS} for each in choices]
        has_ended = len(choices) > 1 and ended[version.picked]
        can_go_on = version.can_go_on and not has_ended
    if exchange.origin.run:
        raise _refused("The newest reply belongs to a sweep; run that again.")
    if can_go_on:
        return
    if reply.tool_calls:
        raise _refused("The last reply ends with tool calls, which cannot go on.")
    if len(choices) > 1:
        raise _refused(
            f"The last reply has {len(choices)} choices. One that was cut can go on in "
            "a conversation (`-c NAME`), where `svc.conversation(NAME).pick(TURN, "
            "CHOICE)` picks it."
        )
    reason = f" (finish reason {reply.finish_reason})" * bool(reply.finish_reason)
    raise _refused(
        f"The last reply ended by itself{reason}."
        if reply.text
        else "The last reply has no text yet; ask again."
    )


def _refused(why: str) -> ParameterError:
    return ParameterError(why, param="line")


class RestView(ReplyView):
    """Shows the rest of a reply: in the outputs of the reply, else in this cell.

    A terminal prints the rest; elsewhere this cell then shows the whole reply.
    `place` is where the reply is from now on.
    """

    def __init__(
        self,
        session: Session,
        asked: CellRequest,
        places: Places,
        here: Place,
        mode: Mode,
    ) -> None:
        self._session, self._before = session, asked.rest_of
        so_far = asked.request.messages[-2].content or ""
        self._seam, self.place = Seam(so_far), here
        old = places.find(asked.origin.continues or "") if mode is Mode.LIVE else None
        if old and not old.run_again and old.display.reopen(so_far):
            line = (
                f"the rest is added to the reply of [{old.number}]; `%svc last` shows"
            )
            here.display.finish(Final(texts=(), footer=f"{line} all of it here"))
            self.place = old
        elif not here.display.reopen(so_far):
            here.display.add(so_far)
        super().__init__(self.place.display, self.place.draw)

    def show(self, delta: Delta) -> None:
        """Show a piece of the rest."""
        if delta.index == 0:
            self._display.add(self._seam.feed(delta.text or ""))

    def end(self, completion: object | None) -> None:
        """Show the final form of the whole reply; without a rest, what there was."""
        self._display.add(self._seam.end())
        if isinstance(completion, Completion):
            joined = self._session.joined(completion.exchange)
            completion = joined.with_notes(self._seam.note)
        super().end(completion or self._before)
