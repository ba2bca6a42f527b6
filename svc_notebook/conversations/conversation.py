"""Named conversations: each request sends the turns so far, and the answer is added.

The history changes in one step, when an answer arrives. A turn that fails without any
text changes nothing; the text of an interrupted turn is kept and marked. After any
change the history can be sent. The ledger keeps every answer; `restore` reads them
back.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeVar, Unpack
from uuid import uuid4

from svc_notebook.client.request_pipeline import SendRequest
from svc_notebook.client.sync_client import CompletionStream
from svc_notebook.completion import Completion
from svc_notebook.credentials import known_keys
from svc_notebook.display.escape import in_a_line
from svc_notebook.errors import BadRequestError, ParameterError, SvcError, warn
from svc_notebook.exchange import Attached, Origin, OriginKind
from svc_notebook.ledger.exchange_rows import Comparison, TurnMarks
from svc_notebook.ledger.ledger import Ledger, name_taken
from svc_notebook.service.catalogue import ModelInfo
from svc_notebook.service.params import (
    OtherParams,
    check_text,
    shorten,
    with_params,
)
from svc_notebook.service.request import CompletionRequest, check_model
from svc_notebook.tokens import MaxTokens, estimate_prompt_tokens
from svc_notebook.tools.rounds import Permit, ToolParams, take_permit
from svc_notebook.tools.toolbox import Toolbox, to_offer

from . import import_turns
from .continuation import charge_of, join_exchange
from .export import to_json, to_markdown
from .history import (
    History,
    HistoryState,
    Turn,
    UndoableHistory,
    new_series,
    series_of,
)
from .merge import merge
from .newer_turns import NewerExchanges, n_news, newer_note, newer_turns, older_turns
from .picks import changed_picks, with_preferred
from .restore import (
    SavedTurns,
    changed_marks,
    joined,
    last_in_panel,
    mark_id,
    n_turns,
    older_note,
    pick_saved,
    read_saved,
    related,
    same_turns,
    to_copied,
    to_marks,
)
from .transcript import to_transcript
from .turn_request import (
    NextTurn,
    TurnSettings,
    add_answers,
    request_continuation,
    request_turn,
)
from .watched_turn import WatchedTurns

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd

AskWithTools = Callable[[CompletionRequest, Origin, Toolbox, Permit], Completion]
StartStream = Callable[[CompletionRequest, Origin], CompletionStream]
_Result = TypeVar("_Result")


class Conversation:
    """A named history: each request sends it, and the answer is added to it.

    Methods take a turn by its number, from 1, or by its id, and raise a
    ParameterError if there is no such turn.

    Example:
        >>> svc.conversation("plan").ask("Where to begin?").text
        'With the map.'
    """

    def __init__(self, name: str, registry: "Conversations") -> None:
        self._registry = registry
        self._shared = UndoableHistory(name)
        self.watched = WatchedTurns()  # those that are being asked
        self._exchange_ids: dict[str, set[str]] = {}  # ids of exchanges, by turn_id
        self._has_warned_of_older = False
        self._resumed: HistoryState | None = None  # as `resume` has left it
        self._resume_note = ""
        self._newer = NewerExchanges()
        self._read: tuple[object, tuple[SavedTurns, ...]] = None, ()
        self._older: tuple[object, SavedTurns | None] = None, None
        self._newest_id = ""  # of the exchanges in the ledger when turns were added
        self._is_marked = False  # the ledger has a note of what is seen here
        self._is_reset = False  # its earlier turns are not offered
        self._told: tuple[frozenset[str], str | None] = frozenset(), None
        self.is_kept_empty = False  # True: a panel was opened with restore=False
        self.is_untitled = False  # True: a panel names it after its first message

    @property
    def name(self) -> str:
        """The name of the conversation."""
        return self.history.name

    @property
    def history(self) -> History:
        """The turns so far, as a value that does not change."""
        return self._shared.state.history

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns so far, oldest first."""
        return self.history.turns

    @property
    def system(self) -> str | None:
        """The system message that every request begins with."""
        return self.history.system

    @system.setter
    def system(self, text: str | None) -> None:
        self._shared.set_system(text)

    @property
    def est_tokens(self) -> int:
        """Estimated tokens of all turns that are not hidden."""
        shown = (turn for turn in self.turns if not turn.is_hidden)
        messages = [m for turn in shown for m in turn.messages]
        return estimate_prompt_tokens(messages).best

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return self._shared.can_undo

    @property
    def can_redo(self) -> bool:
        """Whether there is an undone change to redo."""
        return self._shared.can_redo

    @with_params
    def ask(
        self,
        text: str,
        *,
        model: str | None = None,
        max_tokens: MaxTokens = "fit",
        **params: Unpack[ToolParams],
    ) -> Completion:
        """Send a message and return the whole reply; both are added to the history.

        Args:
            text: The user's message.
            model: Id of the model; the session's model if None.
            max_tokens: A number, `fit`, or `service` or None to send none.
            **params: Parameters of `svc.complete`, with `confirm` and limits of rounds.
                Functions in `tools` are run in rounds, and the history keeps their
                calls and results.

        Raises:
            AskError: Something is not allowed; nothing was sent.
            SvcError: The request failed; a partial reply is in the history.
        """
        return self._ask_turn(params, text=text, model=model, max_tokens=max_tokens)

    @with_params
    def ask_again(
        self,
        turn: int | str,
        text: str | None = None,
        *,
        model: str | None = None,
        max_tokens: MaxTokens = "fit",
        **params: Unpack[ToolParams],
    ) -> Completion:
        """Ask a turn again, with its prompt or a new one; adds a version to it.

        Args:
            turn: Its number, from 1, or its id.
            text: The new prompt; the turn's prompt if None.
            model: Its id; the session's model if None.
            max_tokens: A number, `fit`, or `service` or None to send none.
            **params: The parameters of `ask`.

        Raises:
            AskError: There is no such turn, or something is not allowed.
            SvcError: The request failed; a partial reply is in the history.
        """
        return self._ask_turn(
            params, text=text, turn=turn, model=model, max_tokens=max_tokens
        )

    @with_params
    def go_on(
        self,
        turn: int | str | None = None,
        *,
        model: str | None = None,
        max_tokens: MaxTokens = "fit",
        **params: Unpack[OtherParams],
    ) -> Completion:
        """Continue a reply that was cut or interrupted; the new text is added to it.

        Args:
            turn: Its number, from 1, or its id; the newest turn if None.
            model: Its id; the session's model if None.
            max_tokens: A number, `fit`, or `service` or None to send none.
            **params: Parameters of `svc.complete`; `n` and `tools` are ignored.

        Returns:
            The completion with the whole text, and the tokens of all its parts.

        Raises:
            AskError: There is nothing to continue, or something is not allowed.
            SvcError: The request failed; partial text is in the history.
        """
        next_turn = self.next_part(
            turn, model=model, params=dict(params), max_tokens=max_tokens
        )
        completion = self._answer(next_turn, self._registry.ask)
        ledger = self._registry.ledger()
        whole = join_exchange(completion.exchange, ledger)
        charge = charge_of(completion.exchange, ledger)
        return Completion(whole, (), completion.notes, completion.request, charge)

    @with_params
    def stream(
        self,
        text: str,
        *,
        model: str | None = None,
        max_tokens: MaxTokens = "fit",
        **params: Unpack[OtherParams],
    ) -> CompletionStream:
        """Send a message and return the reply as a stream (doc: Response, streamed).

        Message and reply are added to the history when the reply has ended, even if you
        do not read it to its end. If it is stopped (by an interrupt, by the end of
        `with`, or because the stream is deleted), its text so far is kept and marked.

        Args:
            text: The user's message.
            model: Id of the model; the session's model if None.
            max_tokens: A number, `fit`, or `service` or None to send none.
            **params: Parameters of `svc.stream`; calls of `tools` are not run.

        Raises:
            AskError: Something is not allowed; nothing was sent.
        """
        self._warn_of_newer()
        settings = dict(params)
        offer = to_offer(settings.pop("tools", None), run_tools=False)
        settings["tools"] = offer.definitions
        next_turn = self.next_turn(
            text, model=model, params=settings, max_tokens=max_tokens
        )
        notes, record = next_turn.notes(), partial(self.record, next_turn)
        reply = self._registry.stream(next_turn.request, next_turn.origin)
        reply.on_end(record, notes=notes)
        return reply

    def next_turn(  # noqa: PLR0913 - one argument for each option of a cell
        self,
        text: str | None,
        *,
        attached: tuple[Attached, ...] = (),
        turn: int | str | None = None,
        model: str | None = None,
        params: Mapping[str, Any] | None = None,
        max_tokens: MaxTokens = "fit",
        origin_kind: OriginKind = "python",
        turn_key: str | None = None,
        system: str | None = None,
    ) -> NextTurn:
        """Build the request of a new turn, or of one that is asked again.

        The arguments are those of `ask` and `ask_again`. `attached` says where the
        text contains values of the notebook. `turn_key` identifies a new turn: the same
        key asks the same turn again. `system` replaces the conversation's system
        message; "" sends none.
        """
        history, series, *_ = self._shared.state
        turn_id = history.id_of_key(series, turn_key or uuid4().hex[:12])
        if turn is not None:
            old_turn = history.turn(turn)
            turn_id = old_turn.turn_id
            if text is None:
                text, attached = old_turn.prompt.content, old_turn.version.attached
        origin = Origin(
            kind=origin_kind,
            conversation=self.name,
            turn_id=turn_id,
            attached=attached,
        )

        def build() -> NextTurn:
            settings = self._settings(
                model, params=params or {}, max_tokens=max_tokens, system=system
            )
            return request_turn(history, text or "", origin, settings)

        return replace(build(), rebuild=build)

    def next_part(
        self,
        turn: int | str | None = None,
        *,
        model: str | None = None,
        params: Mapping[str, Any] | None = None,
        max_tokens: MaxTokens = "fit",
        origin_kind: OriginKind = "python",
    ) -> NextTurn:
        """Build the request that continues a reply: see `go_on`."""
        history = self.history
        continued = history.turn(len(history.turns) if turn is None else turn)
        origin = Origin(
            kind=origin_kind, conversation=self.name, turn_id=continued.turn_id
        )
        settings = self._settings(model, params=params or {}, max_tokens=max_tokens)
        return request_continuation(history, origin, settings)

    def record(
        self,
        next_turn: NextTurn,
        *completions: Completion,
        comparison: Comparison | None = None,
    ) -> None:
        """Add an answer to the history, or several that were compared.

        Nothing changes if the answer is empty, or if its turn was removed by a reset.
        Of several answers, later requests send the first that finished.
        """
        turn_id = next_turn.origin.turn_id or ""
        ids = (completion.exchange.exchange_id for completion in completions)
        self._exchange_ids.setdefault(turn_id, set()).update(ids)
        add = partial(
            add_answers,
            next_turn.origin,
            completions,
            comparison,
            session_id=self._registry.ledger().session_id,
        )
        change = partial(self._shared.change, add, turn_id=turn_id)
        self._with_marks(change) if comparison else change()
        state = self._shared.state
        is_added = series_of(turn_id) != state.series and state.takes(turn_id)
        if is_added:  # so that these turns are the ones seen last, not its own series
            self._mark_series()

    def n_stale_after(self, next_turn: NextTurn, completion: Completion) -> int:
        """Count the later turns that are stale once this answer is recorded."""
        history = add_answers(
            next_turn.origin,
            (completion,),
            None,
            self.history,
            session_id=self._registry.ledger().session_id,
        )
        index = history.find(next_turn.origin.turn_id or "")
        if index is None:  # the answer is empty
            return 0
        later_turns = history.with_stale_marks().turns[index + 1 :]
        return sum(turn.is_stale for turn in later_turns)

    def prefer(self, turn: int | str, version: int) -> None:
        """Choose a version of a turn, from 1, because it is better than the others.

        The ledger gets the score `picked`: 1 for this version and 0 for the others. The
        others are those it was compared with in a panel, else all versions that answer
        the same prompt.
        """
        self._edit(lambda history: with_preferred(history, turn, version), turn)

    def choose(self, turn: int | str, version: int) -> None:
        """Choose the version of a turn, from 1, that later requests send."""
        self._edit(lambda history: history.with_chosen(turn, version), turn)

    def pick(self, turn: int | str, choice: int) -> None:
        """Pick the choice of a turn's answer, from 1, and score it as `prefer` does."""
        self._edit(lambda history: history.with_picked(turn, choice))

    def delete(self, turn: int | str) -> None:
        """Delete a turn; `undo` brings it back."""
        self._edit(lambda history: history.without(turn))

    def pin(self, turn: int | str) -> None:
        """Pin a turn: it is sent even when older turns are left out to fit."""
        self._edit(lambda history: history.with_pin(turn))

    def unpin(self, turn: int | str) -> None:
        """Undo `pin`: the turn is left out again when it does not fit."""
        self._edit(lambda history: history.with_pin(turn, is_pinned=False))

    def hide(self, turn: int | str) -> None:
        """Hide a turn: it is not sent any more."""
        self._edit(lambda history: history.with_hidden(turn))

    def unhide(self, turn: int | str) -> None:
        """Undo `hide`: the turn is sent again."""
        self._edit(lambda history: history.with_hidden(turn, is_hidden=False))

    def reset(self) -> None:
        """Remove all turns; the system message and the ledger stay."""
        self._is_reset = True
        self._shared.reset()

    def undo(self) -> bool:
        """Undo the last change of the turns; return whether there was one.

        Answers, versions, picks, pins, deletions and resets can be undone; a change
        of the system message cannot. The ledger keeps every request.
        """
        return self._with_marks(self._shared.undo)

    def redo(self) -> bool:
        """Redo the last undo, unless something changed since; return whether it did."""
        return self._with_marks(self._shared.redo)

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each change; return a function that stops the calls.

        It is called without arguments, on the thread that made the change, and must
        return soon. Its exceptions are logged.
        """
        return self._shared.listen(callback)

    def saved(self) -> tuple[SavedTurns, ...]:
        """Return the series of turns that the ledger has under this name, oldest first.

        A series begins with each reset, and with each kernel that did not restore the
        conversation. Print an item for its number and its first prompt.
        """
        return read_saved(self._registry.ledger(), self.name).get(self.name, ())

    def restore(self, number: int | None = None) -> Self:
        """Restore turns from the ledger, after a restart or from another kernel.

        They are merged into the turns here. A turn that is here, because its cell or
        its prompt was asked again, gets the earlier replies as older versions, and
        stays as it is shown and sent, but is pinned or hidden as it was before, unless
        that was changed here; the others come after the turn that they followed, in the
        order of asking. What was picked, pinned, hidden, deleted or undone is restored,
        too. The next kernel begins with what was added here, as it was seen last.

        Args:
            number: The number of a series of turns, as `saved` counts them, from 1. If
                None and there are turns here, what other kernels have asked meanwhile,
                and earlier runs of the turns here. Without any of these, what was seen
                last, with earlier runs of the same cells or prompts.

        Raises:
            ParameterError: The ledger has no such turns.
            LedgerError: The ledger cannot be read.
        """
        saved = self.saved()
        self.add(
            self.newest_of(saved)
            if number is None
            else pick_saved(saved, self.name, number)
        )
        return self

    def newest_of(self, saved: tuple[SavedTurns, ...]) -> SavedTurns:
        """Return what `restore` adds without a number."""
        newer = self.newer() if self._has_begun else None
        state = self._shared.state
        if newer or self.turns:
            history = merge(self.history, newer.history) if newer else self.history
            names = state.all_series.union(newer.all_series if newer else ())
            found = related(history, names, saved)
            if newer or found:
                return joined(newer or found[-1], found if newer else found[:-1])
        others = tuple(turns for turns in saved if turns.series != state.series)
        is_own = bool(self.turns) and state.all_series == {state.series}
        last = pick_saved(others if is_own and others else saved, self.name, None)
        return joined(last, related(last.history, last.all_series, saved))

    def resume(self, turn_key: str | None, prompt: str) -> str:
        """Restore what was seen last before the first turn here; return a note on it.

        A cell that asked the first turn of a series begins the conversation again: it
        is the first of a notebook that runs from its top, and the cells after it ask
        the other turns. The note stays the same until there is a new turn. A ledger
        that cannot be read counts as empty.
        """
        if self._resumed is not self._shared.state:
            self._resume_note = self._resume(turn_key, prompt)
            self._resumed = self._shared.state
        return self._resume_note

    def _resume(self, turn_key: str | None, prompt: str) -> str:
        saved = self._earlier()
        if not saved or self.is_kept_empty:
            return self._older_note(saved)
        command = in_a_line(self.name)
        with suppress(SvcError):
            if any(turns.begins_with(turn_key, prompt) for turns in saved):
                return (
                    f"begins {self.name} again, since it asked the first turn before; "
                    f"`%svc restore {command}` brings its turns back"
                )
            newest = pick_saved(saved, self.name, None)
            self.add(newest)
            return (
                f"went on with {n_turns(len(newest.history.turns))} of {self.name}, "
                f"the last from {newest.ended_at.astimezone():%Y-%m-%d %H:%M}; "
                f"`%svc reset {command}` begins again"
            )
        return ""

    def add(self, saved: SavedTurns) -> None:
        """Add turns from the ledger; without turns here, their series is continued."""
        with suppress(SvcError):
            self._newer.find(self._registry.ledger(), self.name, ())
        for turn_id, exchange_ids in saved.asked.items():
            self._exchange_ids.setdefault(turn_id, set()).update(exchange_ids)
        self._newest_id = max(self._newest_id, saved.newest_id)
        here = self.history
        if not (here.is_given and saved.history.begins_with(here)):
            self._with_marks(
                lambda: self._shared.change(
                    lambda history: merge(history, saved.history),
                    added={*saved.asked, *(t.turn_id for t in saved.history.turns)},
                )
            )
            return
        system = saved.history.system if self.system is None else self.system
        history = replace(saved.history, name=self.name, system=system)
        before, others = self._shared.state.series, saved.all_series - {saved.series}
        added = frozenset(saved.asked) if others else frozenset()
        self._shared.put(HistoryState(history, saved.series, before, added))
        if not saved.is_as_seen:
            self._mark_series()

    def _mark_series(self) -> None:
        """Note in the ledger what is seen here: it is seen in the next kernel, too."""
        ledger, known = self._registry.ledger(), self._exchange_ids
        self._is_marked = True
        rows = []
        for turn in self.turns:
            same = same_turns(turn, known)
            rows.append((turn.turn_id, *same))
            if same:
                marks = to_marks(turn, known.get(turn.turn_id, set()))
                ledger.add_marks(self.name, turn.turn_id, marks)
        newest = max(set[str]().union(*known.values()) | {self._newest_id})
        gone = known.keys() - chain.from_iterable(rows)
        marks = TurnMarks(seen=tuple(rows), gone=frozenset(gone), newest=newest)
        ledger.add_marks(self.name, mark_id(self._shared.state.series), marks)

    def older_note(self) -> str:
        """Return a note on earlier turns in the ledger; "" if there are turns here.

        It never fails: a ledger that cannot be read counts as empty.
        """
        return self._older_note(self._earlier())

    def _older_note(self, saved: tuple[SavedTurns, ...]) -> str:
        n = len(self.newest_of(saved).history.turns) if saved else 0
        return older_note(self.name, n)

    def _earlier(self) -> tuple[SavedTurns, ...]:
        """Return what the ledger had before the first turn here."""
        if self._has_begun:
            return ()
        with suppress(SvcError):
            self._newer.begin(self._registry.ledger())
            return self.saved()
        return ()

    @property
    def _has_begun(self) -> bool:
        return bool(self.turns) or self.can_undo

    def newer(self) -> SavedTurns | None:
        """Return what other kernels have asked since this one has the conversation.

        None if there is nothing, or if the ledger cannot be read.
        """
        with suppress(SvcError):
            ids, saved = self._elsewhere()
            return newer_turns(saved, self.history, ids) if ids else None
        return None

    def older(self) -> SavedTurns | None:
        """Return the turns of earlier kernels that are not here.

        None if there are none, if this conversation was begun without them, or if the
        ledger cannot be read.
        """
        if self.is_kept_empty or self.is_untitled or self._is_reset:
            return None
        with suppress(SvcError):
            ids, saved = self._elsewhere(is_read=True)
            state = self._shared.state
            if self._older[0] != (self._read[0], state):
                newer = newer_turns(saved, state.history, ids)
                known = state.all_series.union(newer.all_series if newer else ())
                older = older_turns(saved, state.history, known)
                self._older = (self._read[0], state), older
            return self._older[1]
        return None

    def last_in_panel(self) -> tuple[CompletionRequest | None, bool]:
        """Return what a panel asked last, and whether that was in an earlier run.

        It is a request for one of the turns here, or of earlier runs of them.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        saved, state = self.saved(), self._shared.state
        here = [turns for turns in saved if turns.series in state.all_series]
        runs = related(state.history, state.all_series, saved)
        if (last := last_in_panel((*here, *runs))) is None:
            return None, False
        return last.request, series_of(last.origin.turn_id) != state.series

    def _elsewhere(
        self, *, is_read: bool = False
    ) -> tuple[frozenset[str], tuple[SavedTurns, ...]]:
        """Return what other kernels have asked meanwhile, and the series that it is in.

        The series are read once for the same exchanges; without any, if `is_read`.
        """
        ledger = self._registry.ledger()
        known = set[str]().union(*self._exchange_ids.values())
        ids = self._newer.find(ledger, self.name, known)
        read = ids, ledger.path, self.name
        if (ids or is_read) and read != self._read[0]:
            self._read = read, self.saved()
        return ids, self._read[1]

    def newer_note(self, turn_key: str | None = None) -> str:
        """Return a note on turns that other kernels have asked; "" without new ones.

        A note on the same turns is returned again only for the same key of a cell.
        """
        newer = self.newer() if self._has_begun else None
        if newer is None:
            return ""
        told, key = self._told
        if newer.exchange_ids <= told and (turn_key is None or turn_key != key):
            return ""
        self._told = newer.exchange_ids, turn_key
        it = "it" if n_news(newer, self.history) == 1 else "them"
        return (
            f"{newer_note(newer, self.history)}; `%svc restore {in_a_line(self.name)}` "
            f"adds {it}"
        )

    def warn_of_older(self) -> None:
        """Warn once if the ledger has earlier turns and there are none here."""
        if not self._has_warned_of_older and (note := self.older_note()):
            warn(f"{note[0].upper()}{note[1:]}.")
        self._has_warned_of_older = True

    def _warn_of_newer(self) -> None:
        if note := self.newer_note():
            warn(f"{note[0].upper()}{note[1:]}.")

    def copy(self, name: str, *, until: int | str | None = None) -> "Conversation":
        """Copy the turns and the system message to another conversation; return it.

        Afterwards the two are independent. Pins, hidden turns and chosen versions are
        copied, too; no turn of the copy is stale at first.

        Args:
            name: The name of the other conversation, which must have no turns.
            until: The last turn to copy, by number or id; all turns if None.

        Raises:
            ParameterError: The other conversation has turns, or there is no such turn.
        """
        turns = self.turns
        if until is not None:
            turns = turns[: self.history.index_of(until) + 1]
        return self._registry.named(name).fill(replace(self.history, turns=turns))

    def rename(self, name: str) -> Self:
        """Give the conversation another free name, in this kernel and in the ledger.

        `svc.conversation` and `svc.panel` find it by the old name, too. Other kernels
        that have the conversation keep the old name.

        Raises:
            ParameterError: The name is taken or not allowed.
            LedgerError: The ledger cannot be written; nothing was renamed.
        """
        if name != self.name:
            self._registry.rename(self.name, name, self._shared.state.all_series)
        self.is_untitled = False
        self._shared.rename(name)
        return self

    def title(self, text: str) -> None:
        """Name an untitled conversation after its first message."""
        if not self.is_untitled or self.turns or not (title := to_title(text)):
            return
        name = self._registry.free_name(title)
        self._registry.rename(
            self.name, name, ()
        )  # no series: in the ledger, the old name may be another conversation's
        self.is_untitled = False
        self._shared.rename(name)

    def from_json(self, text: str) -> Self:
        """Read the turns and the system message that `to_json` wrote, but not the name.

        Raises:
            ParameterError: The conversation has turns, or the text has another form.
        """
        return self.fill(import_turns.from_json(text))

    def begin(self, messages: object) -> None:
        """Begin with these turns, if there are none yet: see `svc.conversation`."""
        first_turns = import_turns.read_turns(messages)
        if not self.history.begins_with(first_turns):
            system = self.system if first_turns.system is None else first_turns.system
            self.fill(replace(first_turns, system=system))

    def fill(self, history: History) -> Self:
        """Fill a conversation without turns with a history; refuse one with a key."""
        import_turns.refuse_keys(history)
        if self.turns:
            raise ParameterError(
                f"The conversation {self.name!r} has {n_turns(len(self.turns))} "
                "already; choose another name, or reset it first.",
                param="conversation",
            )
        series = new_series()
        turns = to_copied(history.turns, series)
        self._shared.put(
            HistoryState(replace(history, name=self.name, turns=turns), series)
        )
        return self

    def to_df(self, *, versions: Literal["chosen", "all"] = "chosen") -> "pd.DataFrame":
        """List the messages: one row each, in order, with fixed dtypes.

        Args:
            versions: `chosen` for the messages that later requests send, `all` for
                every version and choice.
        """
        from .messages_frame import to_df  # noqa: PLC0415 - loads pandas

        return to_df(self.history, versions=versions)

    def to_markdown(self) -> str:
        """Return the chosen versions as a Markdown document."""
        return to_markdown(self.history)

    def to_json(self) -> str:
        """Return all turns, with every version and choice, as JSON text."""
        return to_json(self.history)

    def _edit(
        self, change: Callable[[History], History], turn: int | str | None = None
    ) -> None:
        """Apply a user's change; a version of `turn` may be missing."""
        try:
            self._with_marks(lambda: self._shared.change(change))
        except ParameterError as error:
            note = ""
            if error.param == "turn" and (older := self.older()):
                note = older_note(self.name, older.n_missing(self.history))
            elif error.param == "version" and turn is not None:
                with suppress(SvcError):
                    note = self._older_versions_note(turn)
            if note:
                error.remedy = f"{note[0].upper()}{note[1:]}."
            raise

    def _older_versions_note(self, turn: int | str) -> str:
        """Return a note on versions of a turn that `restore` brings back."""
        here = self.history.turn(turn)
        restored = merge(self.history, self.newest_of(self.saved()).history)
        n = len(restored.turn(here.turn_id).versions) - len(here.versions)
        number = self.history.index_of(turn) + 1
        return older_note(self.name, n, kind="version", owner=f"turn {number}")

    def _with_marks(self, act: Callable[[], _Result]) -> _Result:
        """Apply a user's change; write its marks and picks to the ledger."""
        before, result = self._shared.state, act()
        after = self._shared.state
        if after.series == before.series:  # a reset is not recorded
            for turn_id, marks in changed_marks(before, after, self._exchange_ids):
                self._registry.ledger().add_marks(self.name, turn_id, marks)
            if after.added or self._is_marked:
                self._mark_series()
            if before.added != after.added:
                return result  # the picks of added answers stay as they are
            for pick in changed_picks(before.history, after.history):
                self._registry.ledger().add_pick(*pick)
        return result

    def _ask_turn(self, params: ToolParams, **turn: Any) -> Completion:  # noqa: ANN401 - as next_turn
        self._warn_of_newer()
        settings = dict(params)
        permit = take_permit(settings)
        offer = to_offer(settings.pop("tools", None))
        turn_params = {**settings, "tools": offer.definitions}
        run, toolbox = self._registry.run, offer.toolbox

        def ask(request: CompletionRequest, origin: Origin) -> Completion:
            if toolbox is None:
                return self._registry.ask(request, origin)
            return run(request, origin, toolbox, permit)

        next_turn = self.next_turn(**turn, params=turn_params)
        try:
            return self._answer(next_turn, ask)
        except BadRequestError as error:
            if (shorter := next_turn.shorter(error)) is None:
                raise
        return self._answer(shorter, ask)

    def _answer(self, next_turn: NextTurn, ask: SendRequest) -> Completion:
        notes = next_turn.notes()
        try:
            completion = ask(next_turn.request, next_turn.origin).with_notes(*notes)
        except (SvcError, KeyboardInterrupt) as error:
            partial = getattr(error, "partial", None)  # also of Interrupted
            if isinstance(partial, Completion):
                self.record(next_turn, partial)
            raise
        self.record(next_turn, completion)
        return completion

    def _settings(self, model: str | None, **settings: Any) -> TurnSettings:  # noqa: ANN401 - its fields
        model = self._registry.model() if model is None else check_model(model)
        info = self._registry.info_of(model)
        return TurnSettings(model=model, info=info, **settings)

    def __reduce_ex__(self, protocol: object) -> Never:
        raise ParameterError(
            f"The conversation {self.name!r} belongs to this kernel and cannot be "
            "copied or pickled. Use copy(NAME), or its `history`, a plain value; in "
            f"another kernel, `%svc restore {in_a_line(self.name)}` restores it.",
            param="conversation",
        )

    def __repr__(self) -> str:
        return f"<Conversation {self.name!r}: {n_turns(len(self.turns))}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return to_transcript(self.history)


@dataclass(kw_only=True, eq=False, repr=False)
class Conversations:
    """The conversations of a session, by name.

    `ask`, `run` and `stream` send a request; `run` also runs the tools that are called.
    `model` returns the default model, `info_of` what is known of a model.
    """

    ask: SendRequest
    run: AskWithTools
    stream: StartStream
    model: Callable[[], str]
    info_of: Callable[[str], ModelInfo]
    ledger: Callable[[], Ledger]
    _lock: RLock = field(default_factory=RLock, init=False)
    _by_name: dict[str, Conversation] = field(default_factory=dict, init=False)
    _by_old_name: dict[str, Conversation] = field(default_factory=dict, init=False)

    def named(self, name: str) -> Conversation:
        """Return the conversation with this name, made at the first call.

        A conversation that was renamed, here or by an earlier kernel, is also found by
        its old name.
        """
        check_name(name)
        with self._lock:
            known = self._by_name.get(name) or self._by_old_name.get(name)
            return known or self._make(name)

    def _make(self, name: str) -> Conversation:
        """Make a conversation, under its current name in the ledger."""
        current_name = name
        with suppress(SvcError):  # without a readable ledger, no new name is known
            current_name = self.ledger().renamed(name) or name
        if current_name not in self._by_name:
            self._by_name[current_name] = Conversation(current_name, self)
        if current_name != name:
            self._by_old_name[name] = self._by_name[current_name]
        return self._by_name[current_name]

    def rename(self, old: str, new: str, series: Collection[str]) -> None:
        """Note a new name, here and in the ledger: see `Conversation.rename`.

        Without `series`, the ledger has no turns to rename.
        """
        check_name(new)
        with self._lock:
            if new in self._by_name:
                raise name_taken(new)
            if series:
                self.ledger().rename(old, new, series=series)
            self._by_name[new] = self._by_old_name[old] = self._by_name.pop(old)

    def free_name(self, name: str) -> str:
        """Return a name that no conversation has or had, with a number if needed."""
        known = {*self._by_name, *self._by_old_name}
        names = (name if n == 1 else f"{name}-{n}" for n in count(1))
        is_taken = self.ledger().has_conversation
        return next(name for name in names if name not in known and not is_taken(name))

    def delete(self, name: str) -> None:
        """Delete a conversation, here and in the ledger, which keeps the requests.

        Raises:
            LedgerError: The ledger cannot be written; nothing was deleted.
        """
        with self._lock:
            self.ledger().delete_conversation(name)
            conversation = self._by_name.pop(name, None)
            for old, renamed in tuple(self._by_old_name.items()):
                if renamed is conversation:
                    del self._by_old_name[old]
        if conversation and conversation.turns:
            conversation.reset()

    def known(self, name: str) -> Conversation:
        """Return a conversation of this session; refuse other names."""
        if name in self._by_name or name in self._by_old_name:
            return self.named(name)
        known = ", ".join(self._by_name) or "none yet"
        raise ParameterError(
            f"This kernel has no conversation {name!r} (it has: {known}). "
            f"`%svc restore {in_a_line(name)}` looks for it in the ledger.",
            param="conversation",
        )

    def __iter__(self) -> Iterator[Conversation]:
        return iter(tuple(self._by_name.values()))


MAX_NAME_CHARS = 100
_TITLE_CHARS = 60
_JOINERS = str.maketrans("", "", "\u200c\u200d")  # needed by emoji and some scripts


def _is_name(name: str) -> bool:
    visible = name.translate(_JOINERS)
    is_short = 0 < len(visible) <= len(name) <= MAX_NAME_CHARS
    return is_short and visible.isprintable() and name.strip() == name


def check_name(name: object) -> None:
    """Refuse a value that cannot be the name of a conversation."""
    if any(key.redact(name) != name for key in known_keys()):
        raise ParameterError(
            "The name of the conversation contains the API key, and names are "
            "recorded. Use another one.",
            param="conversation",
        )
    if isinstance(name, str):
        check_text(name, param="conversation", name="The name of the conversation")
    if not isinstance(name, str) or not _is_name(name):
        shown = shorten(repr(name), MAX_NAME_CHARS)
        raise ParameterError(
            f"A conversation cannot be named {shown}; use up to {MAX_NAME_CHARS} "
            "printable characters, without spaces around them.",
            param="conversation",
        )


def to_title(text: str) -> str:
    """Return the beginning of a message as the name of a conversation."""
    words = "".join(char if char.isprintable() else " " for char in text).split()
    title = " ".join(words)
    if len(title) <= _TITLE_CHARS:
        return title
    cut = title[:_TITLE_CHARS].rpartition(" ")[0]
    return f"{cut or title[:_TITLE_CHARS]} …"
