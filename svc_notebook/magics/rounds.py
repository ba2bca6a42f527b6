"""A cell whose tools are run: rounds of requests in one growing output.

What it is not: the rounds (see `chat.loop`). Rules: calls are shown as they form and
run only when the reply is whole; what was said before a call stays; a cell ends with
one final form, the trail folded in it, however it ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from svc_notebook.budget import MaxTokens
from svc_notebook.chat.consenting import AtPrompt, to_consent
from svc_notebook.chat.loop import (
    MAX_ROUNDS,
    Outcome,
    Rounds,
    RoundsInterrupted,
    run_rounds,
)
from svc_notebook.chat.tool_record import Keep
from svc_notebook.client.sync import CompletionStream
from svc_notebook.completion import Completion
from svc_notebook.display.reply import Final
from svc_notebook.display.stream import Growing, Mode
from svc_notebook.display.trail import Step as TrailStep
from svc_notebook.display.trail import call_line
from svc_notebook.errors import SvcError
from svc_notebook.exchange import Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest
from svc_notebook.service.tool import ToolCall
from svc_notebook.session import Session
from svc_notebook.tools.calling import ToolRun
from svc_notebook.tools.consent import Consent, Decision, Proposal
from svc_notebook.tools.toolbox import Toolbox

from .edge import Interrupted
from .show import follow

Start = Callable[[CompletionRequest, Origin], CompletionStream]
UNASKED = (
    "denied, since nobody could be asked; --confirm-tools none, or %config "
    "SvcMagics.confirm_tools, allows it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The tools of a cell, and how they are run.

    Attributes:
        toolbox: On offer.
        rounds: Limits.
        consent: Asked for calls that want it.
        at_prompt: Counts those that nobody could be asked about.
        keep: Takes each call for the record.
        hide: Blots the key out of a text.
    """

    toolbox: Toolbox
    rounds: Rounds
    consent: Consent
    at_prompt: AtPrompt
    keep: Keep
    hide: Callable[[str], str]


class RoundsCell:
    """One cell under way.

    Args:
        start: Begins a request.
        growing: Where it is shown.
        mode: How.
        draw: Makes the final form of a completion.
    """

    def __init__(
        self,
        start: Start,
        growing: Growing,
        mode: Mode,
        draw: Callable[[Completion], Final],
    ) -> None:
        self._start = start
        self._growing = growing
        self._is_plain = mode is Mode.PLAIN
        self._draw = draw
        self._said: list[str] = []  # what came with calls, round by round
        self._trail: list[ToolRun] = []
        self._last: Completion | None = None
        self._forming: dict[Any, str] = {}
        self._is_between = False

    def run(
        self, request: CompletionRequest, origin: Origin, offered: Offered
    ) -> Completion:
        """Run the rounds and draw what they came to.

        Raises:
            Interrupted: The user stopped it; what had come is shown and marked.
            SvcError: It failed; what had come is shown.
        """
        n_unasked = offered.at_prompt.n_unasked
        try:
            outcome = self._outcome(request, origin, offered)
        except RoundsInterrupted as stopped:
            kept = stopped.completion.with_trail(stopped.trail)
            self._settle(kept, mark="interrupted")
            raise Interrupted(kept) from None
        except Interrupted as stopped:
            self._settle(stopped.partial, mark="interrupted")
            raise
        except KeyboardInterrupt:  # between a reply and its calls
            last = self._last.with_trail(tuple(self._trail)) if self._last else None
            self._settle(last, mark="interrupted")
            raise Interrupted(last) from None
        except SvcError as error:
            partial = error.partial if isinstance(error.partial, Completion) else None
            self._settle(partial, mark="incomplete")
            raise
        denied = offered.at_prompt.n_unasked - n_unasked
        self._settle(outcome.completion, _notes(outcome, self._n_rounds, denied))
        return outcome.completion

    @property
    def _n_rounds(self) -> int:
        return len(self._said) + 1

    def _outcome(
        self, request: CompletionRequest, origin: Origin, offered: Offered
    ) -> Outcome:
        return run_rounds(
            request,
            origin,
            toolbox=offered.toolbox,
            send=self._send,
            consent=self._asking(offered.consent),
            rounds=offered.rounds,
            told=self._told,
            keep=offered.keep,
            hide=offered.hide,
        )

    def _send(self, request: CompletionRequest, origin: Origin) -> Completion:
        if self._last is not None:
            self._said.append(self._last.text)
        self._last = None
        self._is_between = any(self._said)
        self._forming = {}
        stream = self._start(request, origin)
        self._last = follow(stream, self._growing, take=self._take)
        return self._last

    def _take(self, delta: Delta) -> None:
        """Show a piece of a reply: its text, or calls as they form."""
        if delta.text:
            if self._is_between:
                self._growing.add("\n\n")
                self._is_between = False
            self._growing.add(delta.text)
        for piece in delta.calls:
            so_far = self._forming.get(piece.index, "")
            name, _, arguments = so_far.partition("(")
            # a name may come in pieces, or whole in each piece
            name += piece.name if piece.name and piece.name != name else ""
            self._forming[piece.index] = f"{name}({(arguments + piece.arguments)[:200]}"
            self._note_call(name, self._forming[piece.index].partition("(")[2])

    def _note_call(self, name: str, arguments: str) -> None:
        if self._is_plain:  # a printed line cannot be taken back
            self._growing.note(f"calling {name} ...")
        else:
            self._growing.note(f"calling {call_line(name, arguments)} ...")

    def _told(self, what: ToolCall | ToolRun) -> None:
        if isinstance(what, ToolRun):
            self._trail.append(what)
            self._growing.step(what)
        elif not self._is_plain:
            line = call_line(what.function.name, what.function.arguments)
            self._growing.note(f"running {line} ...", is_now=True)

    def _asking(self, consent: Consent) -> Consent:
        def asked(proposal: Proposal) -> Decision:
            self._growing.flush()
            return consent(proposal)

        return asked

    def _settle(
        self, completion: Completion | None, notes: str = "", *, mark: str = ""
    ) -> None:
        """Draw the final form: what was said in all rounds, and the trail."""
        trail: tuple[TrailStep, ...] = tuple(self._trail)
        shown = completion or self._last
        if shown is None and not trail:
            self._growing.settle(None)
            return
        final = self._draw(shown.with_trail(trail)) if shown else Final(texts=())
        texts = [text for text in (*self._said, *final.texts) if text]
        footer = " · ".join(part for part in (final.footer, notes) if part)
        is_marked = mark in {"", *final.marks}
        self._growing.settle(
            replace(
                final,
                texts=("\n\n".join(texts),) if texts else (),
                footer=footer,
                marks=final.marks if is_marked else (*final.marks, mark),
                trail=final.trail or trail,
            )
        )


def _notes(outcome: Outcome, n_rounds: int, n_denied: int) -> str:
    n_calls = len(outcome.trail)
    parts = []
    if n_calls:
        calls = "1 tool call" if n_calls == 1 else f"{n_calls} tool calls"
        parts.append(f"{calls}, the last of {n_rounds} rounds")
    if n_denied:
        parts.append(f"{n_denied} {UNASKED}")
    return " · ".join(parts)


def to_offered(
    session: Session,
    toolbox: Toolbox,
    *,
    confirm_tools: str,
    max_rounds: int | None,
    max_tokens: MaxTokens,
) -> Offered:
    """Put together how the tools of a cell are run.

    Args:
        session: This kernel's.
        toolbox: On offer.
        confirm_tools: Which calls ask first: marked, all or none.
        max_rounds: Most requests; the usual number if None.
        max_tokens: As asked for.

    Raises:
        ParameterError: There are too few rounds.
    """
    confirm = {"marked": None, "all": True, "none": False}[confirm_tools]
    consent, ask_for = to_consent(confirm, session.consent)
    return Offered(
        toolbox=toolbox,
        rounds=Rounds(
            max_rounds=MAX_ROUNDS if max_rounds is None else max_rounds,
            max_tokens=max_tokens,
            ask_for=ask_for,
        ),
        consent=consent,
        at_prompt=session.at_prompt,
        keep=session.tool_record,
        hide=session.key_hider(),
    )
