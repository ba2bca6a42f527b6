"""From a magic line and its cell to what is asked.

Rules: decides, reading nothing but variables and the conversation; nothing is sent
here; what the footer will say besides the usual is decided here too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from svc_notebook.budget import MaxTokens, in_force
from svc_notebook.chat.conversation import Conversation
from svc_notebook.chat.steps import NextTurn
from svc_notebook.completion import Completion
from svc_notebook.exchange import Origin
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.tokens import estimate_prompt_tokens

from .attach import add_items, to_items
from .context import Item
from .interpolate import interpolate, near_marks
from .options import SvcOptions

_APART = frozenset({"model", "system", "max_tokens"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a cell wants, with variables put in and defaults applied.

    Attributes:
        text: The prompt.
        system: The system message; "" for none, None where nobody said.
        model: Id of the model.
        params: Parameters by the document's names, without max_tokens; `tools` are
            definitions.
        max_tokens: A number, or how to find one.
        notes: What was put in, for the footer.
    """

    text: str
    system: str | None
    model: str
    params: Mapping[str, Any]
    max_tokens: MaxTokens
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a cell asks.

    Attributes:
        request: What is sent.
        origin: Who asks.
        notes: What the footer says besides the usual.
        keep: Takes the answer, partial or whole, into the conversation.
    """

    request: CompletionRequest
    origin: Origin
    notes: tuple[str, ...] = ()
    keep: Callable[[Completion], None] = lambda _: None


def to_wanted(
    options: SvcOptions,
    cell: str,
    *,
    names: Mapping[str, object],
    defaults: Mapping[str, Any],
    hide: Callable[[str], str] = str,
) -> Wanted:
    """Read a line and its cell.

    Args:
        options: The line.
        cell: The prompt as typed.
        names: Notebook variables, for `{{name}}`.
        defaults: What applies where the line does not say: model, system, max_tokens
            and parameters by the document's names.
        hide: Blots the API key out of what is put in; what was typed stays.

    Raises:
        ParameterError: A variable is not there.
    """
    system = defaults.get("system") if options.system is None else options.system
    text, items = cell, tuple[Item, ...]()
    if not options.is_raw:
        text, items = interpolate(cell, names, hide=hide)
        system = interpolate(system, names, hide=hide)[0] if system else system
    given = {name: value for name, value in defaults.items() if name not in _APART}
    asked = options.max_tokens
    added = tuple(
        replace(item, text=hide(item.text)) for item in to_items(options.context, names)
    )
    put_in = ", ".join(item.note for item in (*items, *added))
    near = () if options.is_raw else near_marks(cell, names)
    notes = [f"put in: {put_in}"] if put_in else []
    notes += [f"{mark} has blanks and was sent as typed" for mark in near]
    return Wanted(
        text=add_items(text, added),
        system=system,
        model=options.model or defaults["model"],
        params={**given, **options.params},
        max_tokens=defaults.get("max_tokens") if asked is None else asked,
        notes=tuple(notes),
    )


def alone(wanted: Wanted) -> Step:
    """Build the request of a cell that stands alone.

    Raises:
        AskError: Something is not allowed; nothing was sent.
    """
    number = wanted.max_tokens if isinstance(wanted.max_tokens, int) else None
    request = build_request(
        wanted.text,
        model=wanted.model,
        system=wanted.system or None,
        params={**wanted.params, "max_tokens": number},
    )
    prompt_tokens = estimate_prompt_tokens(request.messages, request.tools)
    max_tokens = in_force(wanted.max_tokens, prompt_tokens)
    if max_tokens is not None:
        params = {**request.params, "max_tokens": max_tokens}
        request = msgspec.structs.replace(request, params=params)
    return Step(request=request, origin=Origin(door="magic"), notes=wanted.notes)


def continued(
    wanted: Wanted, conversation: Conversation, *, place: str | None = None
) -> Step:
    """Build the request of a cell that continues a conversation.

    Args:
        wanted: What the cell wants; a system message is the conversation's once it
            was answered.
        conversation: The one to continue.
        place: Names the cell's turn, so that running the cell again asks it again.

    Raises:
        AskError: Something is not allowed; nothing was sent.
    """
    turn = conversation.next_turn(
        wanted.text,
        model=wanted.model,
        params=wanted.params,
        max_tokens=wanted.max_tokens,
        door="magic",
        place=place,
        system=wanted.system,
    )

    def keep(completion: Completion) -> None:
        if wanted.system is not None:
            conversation.system = wanted.system or None
        conversation.record(turn, completion)

    return Step(
        request=turn.request,
        origin=turn.origin,
        notes=(*turn_notes(turn), *wanted.notes),
        keep=keep,
    )


def turn_notes(turn: NextTurn) -> tuple[str, ...]:
    """Say what a reader must know of a turn: again, stale, left out."""
    notes = [f"conversation {turn.origin.conversation}"]
    if turn.is_again:
        notes.append("asked again, the earlier answer is kept as a version")
    if turn.n_later:
        turns = "turn is" if turn.n_later == 1 else "turns are"
        notes.append(f"{turn.n_later} later {turns} now stale")
    n_left_out = len(turn.fitted.left_out)
    if n_left_out:
        turns = "turn" if n_left_out == 1 else f"{n_left_out} turns"
        notes.append(
            f"left out for room: the oldest {turns}, about "
            f"{turn.fitted.left_out_tokens} tokens"
        )
    return tuple(notes)
