"""A conversation: a history with a name, shared by whoever asks for that name.

What it is not: a store. Every answer is an exchange in the ledger, and `restore`
reads a conversation out of them. Rules: the history changes in one step, when an
answer is in; a turn that failed without text leaves it as it was, an interrupted
one keeps what had come, marked; whatever happened, the history can be sent.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, Self, Unpack
from uuid import uuid4

from svc_notebook.client.signature import with_params
from svc_notebook.completion import Completion
from svc_notebook.display.transcript import Entry, transcript
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.exchange import Door, Exchange, Origin
from svc_notebook.service.message import Message
from svc_notebook.service.params import Params
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.tokens import estimate_prompt_tokens

from .budget import Fitted, MaxTokens, fit, in_force, room_for_reply
from .turns import History, Turn, Version

Ask = Callable[[CompletionRequest, Origin], Completion]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """A turn about to be asked.

    Attributes:
        request: What is sent.
        origin: Who asks, with the conversation and the turn.
        fitted: What of the history goes along, and what is left out.
        is_again: Whether the turn was answered before.
        n_later: How many turns come after it, which become stale.
    """

    request: CompletionRequest
    origin: Origin
    fitted: Fitted
    is_again: bool = False
    n_later: int = 0


class Conversation:
    """A named history: each ask sends it along, and it grows.

    Args:
        name: As `svc.conversation(NAME)` and `%%svc -c NAME` spell it.
        ask: Sends a request and returns the reply.
        model: Gives the model where an ask names none.
        system: A system message in front of every request.
    """

    def __init__(
        self,
        name: str,
        *,
        ask: Ask,
        model: Callable[[], str],
        system: str | None = None,
    ) -> None:
        self.name = name
        self._ask = ask
        self._model = model
        self._lock = RLock()
        self._history = History(system=system)
        self._series = uuid4().hex[:12]  # what `reset` ends and `restore` looks for

    @property
    def history(self) -> History:
        """The turns so far; a value that does not change."""
        return self._history

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns so far, oldest first."""
        return self._history.turns

    @property
    def system(self) -> str | None:
        """The system message in front of every request."""
        return self._history.system

    @system.setter
    def system(self, text: str | None) -> None:
        with self._lock:
            self._history = replace(self._history, system=text)

    @property
    def est_tokens(self) -> int:
        """Estimated tokens of all turns that are sent."""
        shown = (turn for turn in self.turns if not turn.is_hidden)
        return estimate_prompt_tokens([m for turn in shown for m in turn.messages])

    @with_params
    def ask(
        self, text: str, *, model: str | None = None, **params: Unpack[Params]
    ) -> Completion:
        """Say something and return the reply, in one piece; the history grows.

        Args:
            text: The next message of the user.
            model: Id of the model; the session's model if None.
            **params: As for `svc.complete`.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            SvcError: It failed; the history is as before, or holds the partial reply.
        """
        step = self.next_turn(text, model=model, params=dict(params))
        try:
            completion = self._ask(step.request, step.origin)
        except SvcError as error:
            if isinstance(error.partial, Completion):
                self.record(step, error.partial)
            raise
        self.record(step, completion)
        return completion

    def next_turn(
        self,
        text: str,
        *,
        model: str | None = None,
        params: Mapping[str, Any] | None = None,
        max_tokens: MaxTokens = None,
        door: Door = "python",
        place: str | None = None,
    ) -> NextTurn:
        """Prepare the next turn, or one that is asked again; nothing is sent.

        Args:
            text: The message of the user.
            model: Id of the model; the session's model if None.
            params: Parameters by the document's names.
            max_tokens: A number, `fit`, or `service` or None to send none.
            door: Who asks.
            place: Names the turn; the same name asks the same turn again.

        Raises:
            AskError: Something is not allowed.
        """
        given = dict(params or {})
        max_tokens = given.pop("max_tokens", None) or max_tokens
        extra = given.pop("extra", None)
        prompt = Message(role="user", content=text)
        with self._lock:
            history = self._history
            turn_id = f"{self._series}/{place or uuid4().hex[:12]}"
        fitted = fit(
            history.system,
            history.before(turn_id),
            prompt,
            reply_tokens=room_for_reply(max_tokens),
        )
        number = history.place_of(turn_id)
        return NextTurn(
            request=build_request(
                fitted.messages,
                model=model or self._model(),
                params={
                    **given,
                    "max_tokens": in_force(max_tokens, fitted.prompt_tokens),
                },
                extra=extra,
            ),
            origin=Origin(door=door, conversation=self.name, turn_id=turn_id),
            fitted=fitted,
            is_again=number is not None,
            n_later=0 if number is None else len(history.turns) - number - 1,
        )

    def record(self, step: NextTurn, completion: Completion) -> None:
        """Take an answer into the history; one without any content changes nothing."""
        with self._lock:
            self._history = _answered(self._history, completion.exchange, step.origin)

    def choose(self, number: int, version: int) -> None:
        """Let another version of a turn feed later turns; both count from 1.

        Raises:
            ParameterError: There is no such turn or version.
        """
        self._change(lambda history: history.choosing(number, version))

    def toggle_pin(self, number: int) -> bool:
        """Pin a turn, counted from 1, or undo that; say whether it is pinned now.

        Raises:
            ParameterError: There is no such turn.
        """
        self._change(lambda history: history.toggled(number, pin=True))
        return self.turns[number - 1].is_pinned

    def toggle_hidden(self, number: int) -> bool:
        """Hide a turn, counted from 1, or undo that; say whether it is hidden now.

        Raises:
            ParameterError: There is no such turn.
        """
        self._change(lambda history: history.toggled(number, hide=True))
        return self.turns[number - 1].is_hidden

    def reset(self) -> None:
        """Forget all turns; the system message stays, and so does the ledger."""
        with self._lock:
            self._history = History(system=self._history.system)
            self._series = uuid4().hex[:12]

    def restore(self, exchanges: Iterable[Exchange]) -> Self:
        """Rebuild the turns since the last reset from the ledger's exchanges.

        Args:
            exchanges: Those of this conversation, oldest first.
        """
        kept = [each for each in exchanges if each.origin.turn_id]
        if kept:
            newest = kept[-1]
            series = _series_of(newest)
            history = History(system=newest.request.system)
            for exchange in kept:
                if _series_of(exchange) == series:
                    history = _answered(history, exchange, exchange.origin)
            with self._lock:
                self._history, self._series = history, series
        return self

    def _change(self, change: Callable[[History], History]) -> None:
        with self._lock:
            try:
                self._history = change(self._history)
            except IndexError:
                found = len(self.turns)
            else:
                return
        raise ParameterError(
            f"The conversation {self.name!r} has {found} turns and no such turn or "
            f"version; `%svc history {self.name}` lists them with their versions.",
            param="turn",
        )

    def __repr__(self) -> str:
        n_turns = len(self.turns)
        return f"<Conversation {self.name!r}: {n_turns} turn{'s'[: n_turns != 1]}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return transcript(
            self.name,
            [
                entry
                for number, turn in enumerate(self.turns, start=1)
                for entry in _entries(number, turn)
            ],
        )


def _answered(history: History, exchange: Exchange, origin: Origin) -> History:
    choice = exchange.choices[0] if exchange.choices else None
    if choice is None or not (choice.text or choice.tool_calls) or not origin.turn_id:
        return history
    is_partial = exchange.status != "ok"
    reply = Message(
        role="assistant",
        content=choice.text or "",
        # calls of a reply that broke off have no results and could not be sent
        tool_calls=() if is_partial else choice.tool_calls,
    )
    version = Version(
        exchange_id=exchange.exchange_id, replies=(reply,), is_partial=is_partial
    )
    return history.answered(origin.turn_id, exchange.request.messages[-1], version)


def _series_of(exchange: Exchange) -> str:
    return (exchange.origin.turn_id or "").partition("/")[0]


def _entries(number: int, turn: Turn) -> tuple[Entry, Entry]:
    marks = [
        word
        for word, is_so in (
            ("pinned", turn.is_pinned),
            ("hidden", turn.is_hidden),
            ("stale: an earlier turn has changed", turn.is_stale),
            ("interrupted", turn.version.is_partial),
        )
        if is_so
    ]
    if len(turn.versions) > 1:
        marks.insert(0, f"version {turn.chosen + 1} of {len(turn.versions)}")
    reply = "\n\n".join(each.content or "" for each in turn.version.replies)
    return (
        Entry(heading=f"{number} · user", text=turn.prompt.content or ""),
        Entry(heading=" · ".join(["assistant", *marks]), text=reply, is_markdown=True),
    )
