"""A panel's state, and the view of it that the browser draws.

Notebooks save the view, and all parts of a panel share the state; neither contains a
key.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from threading import RLock
from typing import Any

from msgspec import to_builtins

from svc_notebook.conversations.attachments import PromptItem
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.conversations.long_prompt import whole_label
from svc_notebook.conversations.picks import to_columns
from svc_notebook.conversations.turn_request import fit
from svc_notebook.display.markdown import reply_html
from svc_notebook.display.reply_footer import PROBABLY_CUT, titled_reasonings
from svc_notebook.display.tool_runs import NOT_ANSWERED, shortened_html
from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import BUDGET_TOKENS, ModelInfo
from svc_notebook.service.request import Message
from svc_notebook.session import Session
from svc_notebook.tokens import (
    Tokens,
    estimate_prompt_tokens,
    estimate_tokens,
    room_for_reply,
)
from svc_notebook.tools.rounds import Permit
from svc_notebook.tools.toolbox import Toolbox

from .browser_messages import Comm
from .compared_replies import Comparing, draw_compared
from .live_reply import LiveReply, draw_call, draw_run
from .settings_form import DOCUMENTED_IDS, PanelSettings, fields, label_of, words_of
from .side_area import SideArea
from .static_transcript import StaticTranscript

_log = logging.getLogger(__name__)

_NOT_SENT = (
    "Nothing was sent. Refused: {refused}. The field says why: change the value there, "
    "or close its message to keep the one before."
)


class Phase(StrEnum):
    """What a panel is doing."""

    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    ASKING = "asking"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """The state of a panel."""

    phase: Phase = Phase.IDLE
    settings: PanelSettings = field(default_factory=PanelSettings)
    comparing: Comparing = field(default_factory=Comparing)
    live: LiveReply | None = None
    notice: str = ""  # a message to the user, such as a refusal or a failure
    is_problem: bool = False  # whether the notice is an error
    is_restored: bool = False  # whether the notice is about restored turns
    # what the cell sets otherwise, if the notice says so; by the names of settings
    cells: Mapping[str, Any] = field(default_factory=dict)
    newer: str = ""  # a note on turns of other kernels that are not here
    # the system message that a panel used last, before cells began again; "" for none
    earlier_system: str | None = None
    dismissed: frozenset[str] = frozenset()  # exchanges whose note was dismissed
    question: Mapping[str, Any] | None = None  # a tool call that needs consent
    # reasons why settings of the last turn are not used, by the names of the settings
    unusable: Mapping[str, str] = field(default_factory=dict)
    # typed values that were refused, and why; nothing is sent until they are changed
    refused: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    send_on_enter: bool = True
    main_writes: int = 0  # how often it was shown while `Comm.is_lost`


class PanelContext:
    """The objects that the parts of one panel share: conversation, state, comm.

    Only `change` changes the state; any thread may call it.
    """

    def __init__(
        self,
        conversation: Conversation,
        session: Session,
        settings: PanelSettings,
        toolbox: Toolbox,
        permit: Permit,
    ) -> None:
        self.conversation = conversation
        self.session = session
        self.use_tools(toolbox, permit)
        notice = conversation.older_note()
        notice = notice[:1].upper() + notice[1:]
        self.opened_with = settings  # what code has set; the state may have more
        self.call = ""  # in the cell, which may have an earlier name
        self.state = PanelState(settings=settings, notice=notice)
        self.comm = Comm()
        self.static_transcript = StaticTranscript()
        self.side_area = SideArea()
        self.lock = RLock()

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - of the state's fields
        """Change fields of the state; what belongs to a notice ends with it."""
        if "notice" in changes:
            none = {"is_problem": False, "is_restored": False, "cells": {}}
            changes = none | changes
        with self.lock:
            self.state = replace(self.state, **changes)

    def add_notice(self, text: str) -> None:
        """Add a sentence to the notice, which stays what it is."""
        with self.lock:
            notice = " ".join(filter(None, [self.state.notice, text]))
            self.state = replace(self.state, notice=notice)

    def refuse_sending(self) -> None:
        """Refuse to send while a refused value is in the field of a setting."""
        refused = ", ".join(
            words_of(name, each["value"]) if "value" in each else label_of(name)
            for name, each in self.state.refused.items()
        )
        if refused:
            raise ParameterError(_NOT_SENT.format(refused=refused), param="panel")

    def cells_settings(self, system: str | None) -> dict[str, Any]:
        """Return what code has set otherwise than it is now, as the form has it.

        `system` is the system message that code has set.
        """
        code = self.opened_with
        values = code.values(model=self.session.settings.model, system=system)
        is_other = system is not None and system != self.conversation.system
        names = ("system",) * is_other + code.differing(self.state.settings)
        return {name: values[name] for name in names}

    def take_settings(self, other: PanelState) -> None:
        """Begin with another panel's settings, except where code has set its own.

        The system message that it offers is offered here, too.
        """
        settings = other.settings.reopened(PanelSettings(), self.opened_with)
        if self.tool_definitions and self.opened_with.value("n") is None:
            settings = settings.setting("n", None)  # tools need one choice
        self.change(settings=settings, earlier_system=other.earlier_system)

    def use_tools(self, toolbox: Toolbox, permit: Permit) -> None:
        """Offer these tools in each request."""
        self.toolbox, self.permit = toolbox, permit
        self.tool_definitions = toolbox.definitions

    @property
    def tool_params(self) -> dict[str, Any]:
        """The request parameter that offers the panel's tools; empty without tools."""
        return {"tools": self.tool_definitions} if self.tool_definitions else {}

    @property
    def model(self) -> str:
        """The model of the next message."""
        return self.state.settings.model or self.session.settings.model

    @property
    def info(self) -> ModelInfo:
        """What is known of the model of the next message."""
        return self.session.info_of(self.model)

    @property
    def budget_tokens(self) -> int | None:
        """Tokens that prompt and reply of the next message share; None if unknown."""
        return self.info.context_tokens

    def models(self) -> tuple[str, ...]:
        """Return the ids of the models that the server lists."""
        return tuple(model.id for model in self.session.models())


def draw_meter(
    used: Tokens,
    *,
    budget_tokens: int | None = BUDGET_TOKENS,
    note: str,
    message: Tokens | None = None,
    n_attached: int = 0,
) -> dict[str, Any]:
    """Return the size of the next request for the browser.

    `used` is the size without the draft in the composer; `message` is the size of the
    draft, and `n_attached` counts the tokens that are attached to it.
    """
    whole = used if message is None else used + message
    best = whole.best + n_attached
    of_budget = "" if budget_tokens is None else f" of {budget_tokens:,}"
    # no interval with attachments: the page knows only their best estimates
    interval = "" if n_attached else f": {whole}"
    text = f"about {best:,}{of_budget} tokens (estimated{interval})"
    if message is not None:
        attached = f", attached {n_attached:,}" if n_attached else ""
        text += f": conversation {used.best:,}{attached}, message {message.best:,}"
    if not of_budget:
        text += "; the model's context is unknown"
    if note:
        text += f"; {note}"
    return {"used_tokens": best, "budget_tokens": budget_tokens, "text": text}


def draw_turn(number: int, turn: Turn, *, can: tuple[str, ...]) -> dict[str, Any]:
    """Return a turn for the browser; `can` are the actions on it in an idle panel."""
    version = turn.version
    compared = draw_compared(turn)[0] if turn.comparison else {}
    before, after = _steps(turn)
    return {
        "id": turn.turn_id,
        "number": number,
        "prompt": version.typed,
        "whole": whole_label(version.typed),
        "attached": list(map(draw_item, version.items)),
        "choices": [
            {"html": reply_html(text), "text": text} for text in reply_texts(turn)
        ],
        "model": version.model,
        "picked": version.picked,
        "ended": _end_label(version),
        "footer": turn.footer,
        "system": turn.differing_system or "",
        "badges": turn.answer_marks,
        "tool_runs": [*_draw_calls(version), *_draw_reasonings(turn)],
        "columns": [],
        "version": _version_label(turn),
        "previous": before,
        "next": after,
        "n_versions": len(turn.versions),
        "is_pinned": turn.is_pinned,
        "is_hidden": turn.is_hidden,
        "is_stale": turn.is_stale,
        "can": list(can),
    } | compared


def reply_texts(turn: Turn) -> list[str]:
    """Return the Markdown of the replies of a turn, in the order of its choices."""
    version = turn.version
    if turn.comparison:
        return draw_compared(turn)[1]
    return [choice.content or "" for choice in version.choices] or [version.all_text]


def draw_item(item: PromptItem) -> dict[str, Any]:
    """Return an attachment of a prompt for the browser."""
    html = f"<pre>{shortened_html(item.text)}</pre>"
    size = {"kind": item.kind, "n_tokens": item.n_tokens}
    return {"name": item.name, **size, "html": html}


def _steps(turn: Turn) -> tuple[int, int]:
    """Return the numbers of the versions to which the arrows lead; 0 at an end."""
    numbers = [0, *(place + 1 for place in turn.places), 0]
    at = numbers.index(turn.chosen + 1)
    return numbers[at - 1], numbers[at + 1]


def _version_label(turn: Turn) -> str:
    """Return which version is shown, or which compared ones: `3/5`, `3-4/5`."""
    if len(turn.places) == 1:
        return ""
    columns = sorted(column.version for column in to_columns(turn) if column.version)
    numbers = columns or [turn.chosen + 1]
    first, last = numbers[0], numbers[-1]
    label = ", ".join(map(str, numbers))
    if 0 < last - first == len(numbers) - 1:
        label = f"{first}\N{EN DASH}{last}"
    return f"{label}/{len(turn.versions)}"


def _end_label(version: Version) -> str:
    if not version.is_cut:
        return "Interrupted"
    # the page shows no badge that this begins with
    word = "Probably cut" if PROBABLY_CUT in version.marks else "Cut"
    return f"{word} at {version.limit}" if version.limit else word


def _draw_calls(version: Version) -> list[dict[str, Any]]:
    return [
        draw_run(run)
        if run
        else draw_call(
            call.function.name, call.function.arguments, result, state=NOT_ANSWERED
        )
        for call, result, run in version.calls
    ]


def _draw_reasonings(turn: Turn) -> Iterator[dict[str, Any]]:
    if turn.comparison:  # the reasoning is of only one of the replies
        return
    for title, text in titled_reasonings(turn.version.reasonings):
        html = f"<pre>{shortened_html(text)}</pre>"
        lines = {"line": title, "unanswered": ""}
        yield {"name": "reasoning", **lines, "html": html, "is_error": False}


def to_view(  # noqa: PLR0913 - the parts of a view
    state: PanelState,
    history: History,
    *,
    can: tuple[str, ...],
    turns: list[dict[str, Any]],
    meter: Mapping[str, Any],
    model: str,
    models: tuple[str, ...] = DOCUMENTED_IDS,
    tools: Sequence[str] = (),
    n_older: int = 0,
    label: str = "",
) -> dict[str, Any]:
    """Return everything that the browser shows.

    `can` are the actions on the whole panel that are allowed now; `turns` are the drawn
    turns, and `n_older` counts those before them; `tools` are the names of the tools
    that are offered.
    """
    return {
        "name": history.name,
        "label": label or f"Conversation {history.name}",
        "state": str(state.phase),
        "main_writes": state.main_writes,
        "turns": turns,
        "n_turns": len(turns),
        "n_older": n_older,
        "live": to_builtins(state.live),
        "can": list(can),
        "meter": meter,
        "notice": state.notice,
        "is_problem": state.is_problem and bool(state.notice),
        "is_restored": state.is_restored,
        "cells": {**state.cells},
        "newer": state.newer,
        "settings": state.settings.values(model=model, system=history.system),
        "unusable": {**state.unusable},
        "refused": {**state.refused},
        "fields": fields(
            model=model, models=models, most_tokens=meter["budget_tokens"]
        ),
        "compare": state.comparing.view(
            model=state.settings.model or model,
            models=models,
            has_tools=bool(tools),
        ),
        "tools": [*tools],
        "send_on_enter": state.send_on_enter,
        "ask": dict(state.question) if state.question else None,
    }


def view_update(view: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what the browser has already, so that a long chat costs no more.

    Only changed turns are included; their numbers say where they belong.
    """
    changed = {name: view[name] for name in view if known[name] != view[name]}
    pairs = zip_longest(view["turns"], known["turns"][: view["n_turns"]])
    turns = [new for new, old in pairs if new is not old and new != old]
    return {**changed, "turns": turns, "n_turns": view["n_turns"]}


TURNS_AT_ONCE = 200  # turns shown at first, and added by `show_older`


class PanelView:
    """Draws one panel, and sends changes to the browser.

    In a long conversation, only the newest turns are shown; `show_older` shows more.
    `allowed` returns the actions on the whole panel that are allowed now, `allowed_on`
    the actions on a turn while the panel is idle.
    """

    def __init__(
        self,
        context: PanelContext,
        allowed: Callable[[PanelContext], tuple[str, ...]],
        allowed_on: Callable[[Turn], tuple[str, ...]],
    ) -> None:
        self._context = context
        self._allowed, self._allowed_on = allowed, allowed_on
        self._drawn: dict[str, tuple[Turn, dict[str, Any]]] = {}  # by turn_id
        self._sent: dict[str, Any] = {}
        self._n_older = self._n_shown = 0

    def show_older(self) -> None:
        """Show more of the turns before the first one that is shown."""
        self._n_older = max(0, self._n_older - TURNS_AT_ONCE)
        self.show()

    def forget_shown(self) -> None:
        """Begin again with the newest turns, for another conversation."""
        self._n_older = self._n_shown = 0

    def show(self, *, is_whole: bool = False) -> None:
        """Send the view to the browser; unless `is_whole`, only what has changed."""
        context = self._context
        with context.comm.lock:
            if context.comm.is_lost:
                context.change(main_writes=context.state.main_writes + 1)
            known, self._sent = self._sent, self._draw()
            is_whole |= known.get("n_older") != self._sent["n_older"]
            view = self._sent if is_whole else view_update(self._sent, known)
            context.comm.put({**view, "is_whole": is_whole})
            context.static_transcript.update(context.conversation.history)

    def show_problem(self, problem: str) -> None:
        """Show an error as a notice."""
        self._context.change(notice=problem, is_problem=True)
        self.show()

    def show_failure(self, problem: Exception) -> None:
        """Show and log an unexpected exception."""
        _log.exception("The panel failed.")
        text = f"{type(problem).__name__}: {problem}"
        # also as a message, because drawing the view may be what failed
        self._context.comm.send({"t": "problem", "text": text})
        self.show_problem(text)

    def whole(self) -> dict[str, Any]:
        """Return the whole view, for a page that opens the panel."""
        with self._context.comm.lock:  # no piece of a reply twice, and none left out
            self._sent = self._sent or self._draw()
            live = to_builtins(self._context.state.live)  # has grown since
            numbers = self._context.comm.numbers
            return {**self._sent, "live": live, "is_whole": True, **numbers}

    def _draw(self) -> dict[str, Any]:
        context = self._context
        history = context.conversation.history
        self._choose_older(len(history.turns))
        return to_view(
            context.state,
            history,
            can=self._allowed(context),
            n_older=self._n_older,
            label="New conversation" * context.conversation.is_untitled,
            turns=self._draw_turns(history.turns),
            meter=self.meter(),
            model=context.session.settings.model,
            models=context.models(),
            tools=[tool["function"]["name"] for tool in context.tool_definitions],
        ) | {
            "panel_id": context.static_transcript.name,
            "sidecar_id": context.side_area.sidecar_id,
            "call": context.call,
        }

    def _choose_older(self, n_turns: int) -> None:
        """Choose how many old turns are left out; new turns are always shown."""
        is_in_sight = 0 < n_turns - self._n_older <= self._n_shown + TURNS_AT_ONCE
        if not is_in_sight:  # the first view, or many turns changed at once
            self._n_older = max(0, n_turns - TURNS_AT_ONCE)
        self._n_shown = n_turns - self._n_older

    def _draw_turns(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        """Draw turns; those that have not changed are the same objects as before."""
        known, self._drawn = self._drawn, {}
        first = self._n_older
        for number, turn in enumerate(turns[first:], start=first + 1):
            old, drawn = known.get(turn.turn_id, (None, {}))
            if old is not turn or drawn["number"] != number:
                drawn = draw_turn(number, turn, can=self._allowed_on(turn))
            self._drawn[turn.turn_id] = turn, drawn
        return [drawn for _, drawn in self._drawn.values()]

    def meter(self, draft: str = "", *, n_attached: int = 0) -> dict[str, Any]:
        """Return the size of the next request, with a draft and what is attached."""
        context = self._context
        history, tools = context.conversation.history, context.tool_definitions
        estimate = partial(estimate_prompt_tokens, info=context.info)
        n_others = estimate((), tools).best + n_attached
        fitted = fit(
            history.system,
            history.turns,
            Message(role="user", content=draft),
            reply_tokens=room_for_reply(context.state.settings.max_tokens),
            info=context.info,
            other_tokens=n_others,
        )
        empty = Message(role="user", content="")
        used = estimate((*fitted.messages[:-1], empty), tools)
        is_drafted = bool(draft or n_attached)
        return draw_meter(
            used,
            budget_tokens=context.budget_tokens,
            note=fitted.note,
            message=estimate_tokens(draft) if is_drafted else None,
            n_attached=n_attached,
        )
