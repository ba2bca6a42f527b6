"""A conversation: a history with a name, shared by whoever asks for that name.

What it is not: a store. Every answer is an exchange in the ledger, and `restore`
reads a conversation out of them. Rules: the history changes in one step, when an
answer is in; a turn that failed without text leaves it as it was, an interrupted
one keeps what had come, marked; whatever happened, the history can be sent; whoever
listens is told after each change, and what goes wrong there stays there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack
from uuid import uuid4

from svc_notebook.budget import MaxTokens
from svc_notebook.completion import Completion
from svc_notebook.display.reply import transcript
from svc_notebook.errors import Interrupted, ParameterError, SvcError
from svc_notebook.exchange import Exchange, Origin, OriginKind
from svc_notebook.service.params import Params, with_params
from svc_notebook.service.request import CompletionRequest, check_model
from svc_notebook.tokens import estimate_prompt_tokens
from svc_notebook.tools.tool_options import Permit, ToolParams, take_permit, to_offer
from svc_notebook.tools.toolbox import Toolbox

from .export import to_entries, to_json, to_markdown
from .from_exchange import answered, rebuilt, series_of
from .history import Change, History, Holding, Turn, said_of
from .next_turn import NextTurn, Wanted, to_go_on, to_step

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd

Ask = Callable[[CompletionRequest, Origin], Completion]
Run = Callable[[CompletionRequest, Origin, Toolbox, Permit], Completion]


class Conversation:
    """A named history: each ask sends it along, and it grows.

    Args:
        name: As `svc.conversation(NAME)` and `%%svc -c NAME` spell it.
        ask: Sends a request and returns the reply.
        run: The same in rounds, the tools being run; None hands their calls back.
        model: Gives the model where an ask names none.
        system: A system message in front of every request.
    """

    def __init__(
        self,
        name: str,
        *,
        ask: Ask,
        run: Run | None = None,
        model: Callable[[], str],
        system: str | None = None,
    ) -> None:
        self.name = name
        self._ask = ask
        self._run = run
        self._model = model
        self._holding = Holding(name, system)

    @property
    def history(self) -> History:
        """The turns so far; a value that does not change."""
        return self._holding.state.history

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns so far, oldest first."""
        return self.history.turns

    @property
    def system(self) -> str | None:
        """The system message in front of every request."""
        return self.history.system

    @system.setter
    def system(self, text: str | None) -> None:
        self._holding.say_system(text)

    @property
    def est_tokens(self) -> int:
        """Estimated tokens of all turns that are sent."""
        shown = (turn for turn in self.turns if not turn.is_hidden)
        return estimate_prompt_tokens([m for turn in shown for m in turn.messages])

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return self._holding.can_undo

    @with_params
    def ask(
        self, text: str, *, model: str | None = None, **params: Unpack[ToolParams]
    ) -> Completion:
        """Say something and return the reply, in one piece; the history grows.

        Args:
            text: The next message of the user.
            model: Id of the model; the session's model if None.
            **params: As for `svc.complete`, with `confirm` and its limits of rounds;
                functions in `tools` are run in rounds, and the history holds their
                calls and results.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            SvcError: It failed; the history is as before, or holds the partial reply.
        """
        return self._asked(params, text=text, model=model)

    @with_params
    def ask_again(
        self,
        turn: int | str,
        text: str | None = None,
        *,
        model: str | None = None,
        **params: Unpack[ToolParams],
    ) -> Completion:
        """Ask a turn again, with its own prompt or another; the answer is a version.

        Args:
            turn: Its number, from 1, or its id.
            text: The prompt instead of the one it has.
            model: Id of the model; the session's model if None.
            **params: As for `svc.complete`.

        Raises:
            AskError: There is no such turn, or something is not allowed.
            SvcError: It failed; the history is as before, or holds the partial reply.
        """
        return self._asked(params, text=text, turn=turn, model=model)

    @with_params
    def go_on(
        self,
        turn: int | str | None = None,
        *,
        model: str | None = None,
        **params: Unpack[Params],
    ) -> Completion:
        """Have a reply that was cut or interrupted continued in its place.

        Args:
            turn: Its number, from 1, or its id; the newest turn if None.
            model: Id of the model; the session's model if None.
            **params: As for `svc.complete`; `n` and `tools` do not apply.

        Returns:
            The completion of the continuation alone; the history has the joined text.

        Raises:
            AskError: There is nothing to go on with, or something is not allowed.
            SvcError: It failed; the reply is as before, or has grown by what came.
        """
        step = self.next_part(turn, model=model, params=dict(params))
        return self._answer(step, self._ask)

    def next_turn(  # noqa: PLR0913 - one for each option of a cell
        self,
        text: str | None,
        *,
        turn: int | str | None = None,
        model: str | None = None,
        params: Mapping[str, Any] | None = None,
        max_tokens: MaxTokens = None,
        origin_kind: OriginKind = "python",
        place: str | None = None,
        system: str | None = None,
    ) -> NextTurn:
        """Prepare the next turn, or one that is asked again; nothing is sent.

        Args:
            text: The message of the user; the turn's own if None.
            turn: The turn to ask again, by number or id; a new one if None.
            model: Id of the model; the session's model if None.
            params: Parameters by the document's names.
            max_tokens: A number, `fit`, or `service` or None to send none.
            origin_kind: Who asks.
            place: Names a new turn; the same name asks the same turn again.
            system: Sent in place of the conversation's; "" for none.

        Raises:
            AskError: Something is not allowed.
        """
        history, series = self._holding.state
        turn_id = f"{series}/{place or uuid4().hex[:12]}"
        if turn is not None:
            found = self._turn(history, turn)
            turn_id = found.turn_id
            text = found.prompt.content if text is None else text
        wanted = self._wanted(model, params, max_tokens, system)
        origin = Origin(kind=origin_kind, conversation=self.name, turn_id=turn_id)
        return to_step(history, text or "", origin, wanted)

    def next_part(
        self,
        turn: int | str | None = None,
        *,
        model: str | None = None,
        params: Mapping[str, Any] | None = None,
        max_tokens: MaxTokens = None,
        origin_kind: OriginKind = "python",
    ) -> NextTurn:
        """Prepare to go on with a reply that stopped before its end.

        Args:
            turn: Its number or id; the newest if None.
            model: Id of the model; the session's model if None.
            params: Parameters by the document's names.
            max_tokens: As for `next_turn`.
            origin_kind: Who asks.

        Raises:
            AskError: There is no such turn, it is whole, or something is not allowed.
        """
        history = self.history
        found = self._turn(history, len(history.turns) if turn is None else turn)
        origin = Origin(kind=origin_kind, conversation=self.name, turn_id=found.turn_id)
        return to_go_on(history, origin, self._wanted(model, params, max_tokens))

    def record(self, step: NextTurn, completion: Completion) -> None:
        """Take an answer into the history.

        One without any content changes nothing, nor does one to a turn of a history
        that was reset since; it is in the ledger.
        """
        exchange, tool_runs = completion.exchange, completion.tool_runs
        self._holding.change(
            lambda old: answered(old, exchange, step.origin, tool_runs),
            series=series_of(step.origin),
        )

    def choose(self, turn: int | str, version: int) -> None:
        """Let another version of a turn feed later turns; both count from 1.

        Raises:
            ParameterError: There is no such turn or version.
        """
        self._change(lambda history: history.choosing(turn, version))

    def pick(self, turn: int | str, choice: int) -> None:
        """Let another choice of a turn's answer feed later turns; both count from 1.

        Raises:
            ParameterError: There is no such turn or choice.
        """
        self._change(lambda history: history.picking(turn, choice))

    def delete(self, turn: int | str) -> None:
        """Take a turn, by number or id, out of the history; `undo` brings it back.

        Raises:
            ParameterError: There is no such turn.
        """
        self._change(lambda history: history.deleting(turn))

    def toggle_pin(self, turn: int | str) -> bool:
        """Pin a turn, by number or id, or undo that; say whether it is pinned now.

        Raises:
            ParameterError: There is no such turn.
        """
        self._change(lambda history: history.toggled(turn, pin=True))
        return self._turn(self.history, turn).is_pinned

    def toggle_hidden(self, turn: int | str) -> bool:
        """Hide a turn, by number or id, or undo that; say whether it is hidden now.

        Raises:
            ParameterError: There is no such turn.
        """
        self._change(lambda history: history.toggled(turn, hide=True))
        return self._turn(self.history, turn).is_hidden

    def reset(self) -> None:
        """Forget all turns; the system message stays, and so does the ledger."""
        self._holding.begin_anew()

    def undo(self) -> bool:
        """Take the last change of the turns back; say whether there was one.

        Answers, versions, picks, pins, deletions and resets are changes; the system
        message is none. What was asked stays in the ledger.
        """
        return self._holding.undo()

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have a function called after each change, wherever it was made.

        Args:
            callback: Called without arguments, on the thread that made the change; it
                must return soon. What it raises is logged and goes no further.

        Returns:
            A function that ends this.
        """
        return self._holding.listen(callback)

    def restore(self, exchanges: Iterable[Exchange]) -> Self:
        """Rebuild the turns since the last reset from the ledger's exchanges.

        Args:
            exchanges: Those of this conversation, oldest first.
        """
        state = rebuilt(exchanges)
        if state:
            self._holding.put(state)
        return self

    def to_df(self, *, versions: Literal["chosen", "all"] = "chosen") -> "pd.DataFrame":
        """List the messages.

        Args:
            versions: `chosen` for what feeds later turns, `all` for every version and
                choice.

        Returns:
            One row a message, in order; dtypes are fixed, also for no turns.

        Raises:
            ParameterError: `versions` is neither.
        """
        from .frames import to_df  # noqa: PLC0415 - loads pandas

        return to_df(self.history, versions=versions)

    def to_markdown(self) -> str:
        """Return the chosen versions as a Markdown document."""
        return to_markdown(self.name, self.history)

    def to_json(self) -> str:
        """Return everything, all versions and choices included, as JSON text."""
        return to_json(self.name, self.history)

    def _asked(self, params: ToolParams, **said: Any) -> Completion:  # noqa: ANN401 - of next_turn
        given = dict(params)
        permit = take_permit(given)
        offer = to_offer(given.pop("tools", None))
        step = self.next_turn(**said, params={**given, "tools": offer.definitions})
        run, toolbox = self._run, offer.toolbox
        if run is None or toolbox is None:
            return self._answer(step, self._ask)
        return self._answer(
            step, lambda request, origin: run(request, origin, toolbox, permit)
        )

    def _answer(self, step: NextTurn, ask: Ask) -> Completion:
        try:
            completion = ask(step.request, step.origin)
        except (SvcError, Interrupted) as error:
            if isinstance(error.partial, Completion):
                self.record(step, error.partial)
            raise
        self.record(step, completion)
        return completion

    def _wanted(
        self,
        model: str | None,
        params: Mapping[str, Any] | None,
        max_tokens: MaxTokens,
        system: str | None = None,
    ) -> Wanted:
        return Wanted(
            model=self._model() if model is None else check_model(model),
            params=params or {},
            max_tokens=max_tokens,
            system=system,
        )

    def _turn(self, history: History, turn: int | str) -> Turn:
        with said_of(self.name):
            return history.turn(turn)

    def _change(self, change: Change) -> None:
        with said_of(self.name):
            self._holding.change(change)

    def __repr__(self) -> str:
        n_turns = len(self.turns)
        return f"<Conversation {self.name!r}: {n_turns} turn{'s'[: n_turns != 1]}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return transcript(self.name, to_entries(self.history))


class Conversations:
    """Makes and finds conversations.

    Args:
        ask: Sends a request and returns the reply.
        model: Gives the model where an ask names none.
        run: Sends a request and runs the tools that the reply calls, in rounds.
    """

    def __init__(
        self, ask: Ask, model: Callable[[], str], run: Run | None = None
    ) -> None:
        self._ask = ask
        self._run = run
        self._model = model
        self._lock = RLock()
        self._by_name: dict[str, Conversation] = {}

    def named(self, name: str) -> Conversation:
        """Return the conversation of this name, made at the first call.

        Raises:
            ParameterError: The name is empty or has blanks.
        """
        is_text = isinstance(name, str)
        if not is_text or not name or any(letter.isspace() for letter in name):
            raise ParameterError(
                f"{name!r} is not a conversation's name; use a word without blanks, "
                "such as plan.",
                param="conversation",
            )
        with self._lock:
            if name not in self._by_name:
                self._by_name[name] = Conversation(
                    name, ask=self._ask, run=self._run, model=self._model
                )
            return self._by_name[name]

    def known(self, name: str) -> Conversation:
        """Return a conversation that was begun here.

        Raises:
            ParameterError: There is none of this name; the known ones are named.
        """
        found = self._by_name.get(name)
        if found is not None:
            return found
        known = ", ".join(self._by_name) or "none yet"
        raise ParameterError(
            f"There is no conversation {name!r} in this kernel; there are: {known}. "
            f"`%svc restore {name}` looks for it in the ledger.",
            param="conversation",
        )

    def restore(self, exchanges: Iterable[Exchange]) -> list[Conversation]:
        """Rebuild conversations that have no turns here.

        Args:
            exchanges: From the ledger, oldest first; others than those of
                conversations are passed over.
        """
        found: dict[str, list[Exchange]] = {}
        for exchange in exchanges:
            if exchange.origin.conversation:
                found.setdefault(exchange.origin.conversation, []).append(exchange)
        empty = {name: each for name, each in found.items() if not self._turns(name)}
        restored = [self.named(name).restore(each) for name, each in empty.items()]
        return [conversation for conversation in restored if conversation.turns]

    def _turns(self, name: str) -> int:
        return len(self._by_name[name].turns) if name in self._by_name else 0

    def __iter__(self) -> Iterator[Conversation]:
        return iter(tuple(self._by_name.values()))
