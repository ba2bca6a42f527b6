"""Makes the request of a magic line and its cell, with notes for the footer."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from svc_notebook import Completion, Toolbox
from svc_notebook.completion import advice_on_params
from svc_notebook.conversations.attachments import add_items, as_sent
from svc_notebook.display.escape import in_a_line, to_terminal
from svc_notebook.display.front_end import can_answer
from svc_notebook.display.reply_display import Mode
from svc_notebook.errors import BadRequestError, ParameterError
from svc_notebook.exchange import Attached, Origin
from svc_notebook.service.catalogue import DOCUMENTED, ModelInfo
from svc_notebook.service.params import near_names, shorten
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.template import as_variable, names_in_single_braces
from svc_notebook.tokens import MaxTokens, with_max_tokens

from .cell_context import CellContext
from .interpolation import Filled, interpolate
from .options import SvcOptions
from .system_option import check_system
from .with_option import find_context

if TYPE_CHECKING:  # these load with the first conversation
    from svc_notebook import Conversation
    from svc_notebook.conversations.turn_request import NextTurn
    from svc_notebook.conversations.watched_turn import TurnWatcher

_ASKED = "sent without the turn that a panel is asking in this conversation"
_SYSTEM_CHARS = 30  # of a system prompt that is replaced
_DIGITS = re.compile(r"\d+")
_MARKS_CHARS = 100  # of the shown marks that are sent as typed


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPrompt:
    """What a cell asks for, after filling in variables and applying defaults."""

    text: str
    attached: tuple[Attached, ...]  # where `text` contains the items of `--with`
    system: str | None  # "" for none, None if not given
    model: str
    params: Mapping[str, Any]  # without max_tokens; `tools` are definitions
    max_tokens: MaxTokens
    notes: tuple[str, ...] = ()  # for the footer
    info: ModelInfo = DOCUMENTED  # what is known of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """A cell's request.

    Attributes:
        keep: Adds the reply to the conversation, if the cell is in one.
        asking: Shows the turn in the panels on the conversation, until it is kept.
        rest_of: The reply that the request continues, if any.
        failed_code: The cell that the reply is to correct; "" if it is none.
        note_on: Returns a note for the footer that depends on the reply; "" for none.
        shorter: Returns a shorter request after a refusal, or None: see `NextTurn`.
    """

    request: CompletionRequest
    origin: Origin
    notes: tuple[str, ...] = ()  # for the footer
    keep: Callable[[Completion], None] = lambda _: None
    note_on: Callable[[Completion], str] = lambda _: ""
    asking: "Callable[[], AbstractContextManager[tuple[TurnWatcher, ...]]]" = lambda: (
        nullcontext(())
    )
    rest_of: Completion | None = None
    failed_code: str = ""
    shorter: "Callable[[BadRequestError], CellRequest | None]" = lambda _: None


def to_prompt(context: CellContext, options: SvcOptions, cell: str) -> CellPrompt:
    """Read a line and its cell, fill in variables, and apply the defaults.

    Marks that are not filled in are listed above the reply.
    """
    defaults = context.traits.defaults()
    settings, hide = context.session_context.settings, context.hide

    def fill(template: str) -> Filled:
        # most cells have no mark
        if options.is_raw or "{{" not in template:
            return Filled(template)
        own_names = context.own_names()
        return interpolate(template, context.names(), hide=hide, own_names=own_names)

    if options.system:
        check_system(options.system, context.names())
    system = defaults.get("system") if options.system is None else options.system
    filled, filled_system = fill(cell), fill(system or "")
    if marks := (*filled.as_typed, *filled_system.as_typed):
        context.notes_above.append(_unfilled_note(marks))
    if not options.is_raw and (note := _braces_note(context, system or "", cell)):
        context.notes_above.append(note)
    added = tuple(
        as_sent(find_context(name, context.names(), context.own_names()), hide)
        for name in dict.fromkeys(options.context)
    )
    items = (*filled.items, *filled_system.items, *added)
    inserted = ", ".join(dict.fromkeys(item.note for item in items))
    text, attached = add_items(filled.text, added) if added else (filled.text, ())
    separate = {"system", "max_tokens"}
    params = {name: value for name, value in defaults.items() if name not in separate}
    params |= options.params
    model = options.model or settings.model
    max_tokens = options.max_tokens
    return CellPrompt(
        text=text,
        attached=attached,
        system=filled_system.text if system else system,
        model=model,
        params=params,
        max_tokens=defaults.get("max_tokens") if max_tokens is None else max_tokens,
        notes=tuple(
            filter(
                None, (inserted and f"inserted: {inserted}", _advice(context, params))
            )
        ),
        info=settings.endpoint.info_of(model),
    )


def _advice(context: CellContext, params: Mapping[str, Any]) -> str:
    """Return the document's advice about parameters, once in a kernel."""
    noted, advice = context.memory.noted, advice_on_params(params) or ""
    if advice in noted:
        return ""
    context.remember.append(partial(noted.add, advice))
    return advice


def to_request(
    context: CellContext, options: SvcOptions, cell: str, toolbox: Toolbox | None
) -> CellRequest:
    """Build the request of a cell, in its conversation if the line names one."""
    prompt = to_prompt(context, options, cell)
    if not options.is_recorded:
        prompt = replace(prompt, notes=(*prompt.notes, "not in the ledger"))
    if toolbox:
        if prompt.params.get("n", 1) != 1:
            raise ParameterError(
                "Tools can be run for one choice only, and -n asks for several. "
                "Leave -n out, or add --tools none.",
                param="n",
            )
        tools = {"tools": toolbox.definitions}
        prompt = replace(prompt, params={**prompt.params, **tools})
    if options.conversation is None:
        return single_request(prompt)
    conversation = context.session.conversations.named(options.conversation)
    turn_key = context.memory.request_ids.next()
    # a notebook that nobody watches, as in nbclient, sends the same in each run
    is_watched = context.mode is not Mode.SETTLED and can_answer(context.shell)
    older = (
        conversation.resume(turn_key, prompt.text)
        if is_watched
        else conversation.older_note()
    )
    newer = conversation.newer_note(turn_key)
    similar = "" if older else _similar_note(context, conversation)
    asked = _ASKED if conversation.watched.asked else ""
    option = "SvcMagics.system" if options.system is None else "-s"
    system = _system_note(context, prompt.system, conversation, option)
    if notes := tuple(filter(None, (older, similar, newer, asked, system))):
        prompt = replace(prompt, notes=(*notes, *prompt.notes))
    return conversation_request(prompt, conversation, turn_key=turn_key)


def _similar_note(context: CellContext, conversation: "Conversation") -> str:
    """Say that a conversation is new if its name may be another one, misspelt."""
    if conversation.turns:
        return ""
    name = conversation.name
    others = [each.name for each in context.session.conversations if each.turns]
    # `draft 2` is no misspelt `draft 1`
    others = [each for each in others if _DIGITS.sub("", each) != _DIGITS.sub("", name)]
    near = near_names(name, others, n=1, cutoff=0.75, least_chars=3)
    return f"a new conversation; there is also {in_a_line(near[0])}" if near else ""


def _system_note(
    context: CellContext, given: str | None, conversation: "Conversation", option: str
) -> str:
    """Say once that a system prompt is used that no cell of this kernel has given.

    Or that one is replaced by what the option gives, as it is for later turns.
    """
    name, noted = conversation.name, context.memory.noted_systems
    own = conversation.system or ""
    known, is_of_cell = noted.get(name, ("", False))
    is_of_cell &= own == known
    if given is None and own and own != known:
        note = (
            f"with its system prompt: `%svc history {in_a_line(name)}` shows it, "
            '`-s ""` removes it'
        )
    elif given and own and own != given and not is_of_cell:
        words = shorten(" ".join(own.split()), _SYSTEM_CHARS)
        note = f"with {option} in place of its system prompt “{words}”"
    else:
        note = ""
    used = (own, is_of_cell) if given is None else (given, True)
    context.remember.append(partial(noted.update, {name: used}))
    return note


def _unfilled_note(marks: Sequence[str]) -> str:
    """Return the note that marks are sent as typed, and why."""
    named = to_terminal(shorten(" ".join(", ".join(marks).split()), _MARKS_CHARS))
    filled = "variables, with .attribute and [index] parts"
    is_curly = re.search("[\u2018\u2019\u201c\u201d]", named) is not None
    hint = """; an index needs straight quotes: " or '""" * is_curly
    return f"Sent as typed: {named} (only {filled}, are filled in{hint})"


def _braces_note(context: CellContext, *texts: str) -> str:
    """Return the note on variables in single braces, each once per kernel; or ""."""
    found = tuple(
        name for text in texts if "{" in text for name in names_in_single_braces(text)
    )
    if not found:
        return ""
    noted, of_shell = context.memory.noted, context.shell.user_ns_hidden
    names = context.names()
    new_names = [
        name
        for name in dict.fromkeys(found)
        if (variable := as_variable(name)) in names
        and name not in noted
        and variable not in of_shell
        and not isinstance(names[variable], ModuleType)
    ]
    if not new_names:
        return ""
    context.remember.append(partial(noted.update, new_names))
    typed, marks = (
        to_terminal(", ".join(template.format(name) for name in new_names))
        for template in ("{{{}}}", "{{{{{}}}}}")
    )
    variables = "variable" if len(new_names) == 1 else "variables"
    return f"Sent as typed: {typed}. Write {marks} to fill in the {variables}."


def single_request(prompt: CellPrompt) -> CellRequest:
    """Build the request of a cell without a conversation."""
    system = prompt.system or None
    request = build_request(
        prompt.text,
        model=prompt.model,
        system=system,
        params=prompt.params,
        info_of=lambda _: prompt.info,
    )
    return CellRequest(
        request=with_max_tokens(request, prompt.max_tokens),
        origin=Origin(kind="magic"),
        notes=prompt.notes,
    )


def conversation_request(
    prompt: CellPrompt, conversation: "Conversation", *, turn_key: str | None = None
) -> CellRequest:
    """Build the request of a cell that continues a conversation.

    `turn_key` identifies the turn by its cell, so that running the cell again asks the
    same turn again. The conversation takes over a new system message with the reply.
    """
    turn = conversation.next_turn(
        prompt.text,
        attached=prompt.attached,
        model=prompt.model,
        params=prompt.params,
        max_tokens=prompt.max_tokens,
        origin_kind="magic",
        turn_key=turn_key,
        system=prompt.system,
    )

    def keep(completion: Completion) -> None:
        if prompt.system is not None:
            conversation.system = prompt.system or None
        conversation.record(turn, completion)

    def stale_note(completion: Completion) -> str:
        n_stale = conversation.n_stale_after(turn, completion)
        turns = "turn is" if n_stale == 1 else "turns are"
        return f"{n_stale} later {turns} now stale" if n_stale else ""

    def shortened(error: BadRequestError) -> CellRequest | None:
        shorter = turn.shorter(error)
        return None if shorter is None else to_cell_request(shorter)

    def to_cell_request(next_turn: "NextTurn") -> CellRequest:
        return CellRequest(
            request=next_turn.request,
            origin=next_turn.origin,
            notes=tuple(filter(None, (*_turn_notes(next_turn), *prompt.notes))),
            keep=keep,
            asking=partial(conversation.watched.asking, next_turn),
            note_on=stale_note,
            shorter=shortened,
        )

    return to_cell_request(turn)


def _turn_notes(turn: "NextTurn") -> tuple[str, ...]:
    """Return notes for the footer: the conversation, and a turn that is asked again."""
    notes = [f"conversation {turn.origin.conversation}"]
    if turn.is_again:
        notes.append("asked again, the earlier answer is kept as a version")
    return (*notes, turn.fitted.note)
