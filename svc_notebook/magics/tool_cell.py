"""A cell with tools: rounds of requests in one output, `--as`, and `%svc tools`.

With `--as` the reply is read as a value of a type of the notebook.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from IPython.lib.pretty import pretty

from svc_notebook.client.sync import CompletionStream
from svc_notebook.completion import Completion
from svc_notebook.display.live import Mode, ReplyDisplay
from svc_notebook.display.output import follow
from svc_notebook.display.reply import CALL_CHARS, REASONING, Final, call_line
from svc_notebook.errors import Interrupted, ParameterError, SvcError
from svc_notebook.exchange import Origin
from svc_notebook.service.checks import did_you_mean, shorten
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest, ToolCall
from svc_notebook.session import Session
from svc_notebook.tokens import estimate_prompt_tokens, refitted
from svc_notebook.tools.call import ToolRun
from svc_notebook.tools.extract import Form, asking_for, extract, to_form
from svc_notebook.tools.permissions import (
    Consent,
    Decision,
    Proposal,
    Remembered,
    Rounds,
    to_consent,
)
from svc_notebook.tools.rounds import Send, ToolRecord, run_rounds
from svc_notebook.tools.toolbox import Tool, Toolbox, to_toolbox

from .options import SvcOptions
from .prompt import CellPrompt, CellRequest, single_request
from .reply_cell import Draw, ReplyView
from .subcommands import command_or_question, indexed_frame, listed

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd


Value = TypeVar("Value")
Start = Callable[..., CompletionStream]  # takes a request and its `origin`
UNASKED = (
    "denied: you could not be asked; allow it with --confirm-tools none, or with "
    "%config SvcMagics.confirm_tools"
)
_CALL_CHARS = 200
_NOTE_CHARS = 60


class RoundsCell(ReplyView):
    """The rounds of one cell; a view of each reply.

    Calls are shown while they form and run only when the reply is whole. Text that
    came before a call stays; the cell ends with one final form, with its tool runs.
    """

    def __init__(
        self,
        session: Session,
        start: Start,
        display: ReplyDisplay,
        mode: Mode,
        draw: Draw,
    ) -> None:
        super().__init__(display, draw)
        self._session = session
        self._start = start
        self._is_plain = mode is Mode.PLAIN
        self._texts: list[str] = []  # of the rounds before this one
        self._tool_runs: tuple[ToolRun, ...] = ()
        self._newest: Completion | None = None  # of this round
        self._calls: dict[int | None, tuple[str, str]] = {}
        self._printed = StringIO()  # by the tool that runs
        self._running = ""
        self._is_gap_due = False

    def run(
        self,
        request: CompletionRequest,
        origin: Origin,
        toolbox: Toolbox,
        *,
        confirm_tools: str,
        rounds: Rounds,
        keep: ToolRecord,
    ) -> Completion:
        """Run the rounds, starting with this request, and draw what arrived."""
        session = self._session
        confirm = {"marked": None, "all": True, "none": False}[confirm_tools]
        consent, ask_for = to_consent(confirm, session.consent)
        n_unasked = session.at_prompt.n_unasked
        completion = self.attempt(
            lambda send: run_rounds(
                request,
                origin,
                toolbox=toolbox,
                send=send,
                consent=self._flushed(consent),
                rounds=replace(rounds, ask_for=ask_for),
                watch=self._show_call,
                check_stop=self._show_printed,
                printed=None if self._is_plain else self._printed,
                keep=keep,
                hide=session.key_hider(),
            )
        )
        n_denied = session.at_prompt.n_unasked - n_unasked
        notes = _notes(completion, len(self._texts) + 1, n_denied)
        self._finish(completion, *notes)
        return completion

    def attempt(self, ask: Callable[[Send], Value]) -> Value:
        """Ask in rounds; if they fail or are interrupted, draw what arrived."""
        try:
            return ask(self._send)
        except KeyboardInterrupt as stopped:
            partial = getattr(stopped, "partial", None)
            if partial is None and self._newest is not None:
                partial = self._newest.with_tool_runs(self._tool_runs)
            self._finish(partial, mark="interrupted")
            raise Interrupted(partial) from None
        except SvcError as error:
            self._finish(error.partial, mark="incomplete")
            raise

    def show(self, delta: Delta) -> None:
        """Show a piece of a reply: its text, or calls as they form."""
        if delta.index != 0:
            return
        if delta.text:
            if self._is_gap_due:
                self._display.add("\n\n")
                self._is_gap_due = False
            self._display.add(delta.text)
        elif delta.reasoning:
            self._display.status(REASONING)
        for piece in delta.calls:
            name, arguments = self._calls.get(piece.index, ("", ""))
            # a name may come in pieces, or whole in each piece
            name += piece.name if piece.name and piece.name != name else ""
            arguments = (arguments + piece.arguments)[:_CALL_CHARS]
            self._calls[piece.index] = name, arguments
            # a printed line cannot be taken back, so it has no arguments
            line = name if self._is_plain else call_line(name, arguments)
            self._display.status(f"calling {line} ...")

    def end(self, completion: object | None) -> None:
        """Take the reply of this round."""
        self._newest = completion if isinstance(completion, Completion) else None

    def _flushed(self, consent: Consent) -> Consent:
        """Show the text so far, then ask the user."""

        def ask(proposal: Proposal) -> Decision:
            self._display.flush()
            return consent(proposal)

        return ask

    def _send(self, request: CompletionRequest, origin: Origin) -> Completion:
        if self._newest is not None:
            self._texts.append(self._newest.text)
        self._newest = None
        self._is_gap_due = any(self._texts)
        self._calls = {}
        return follow(self._start(request, origin=origin), self)

    def _show_call(self, what: ToolCall | ToolRun) -> None:
        if isinstance(what, ToolRun):
            self._tool_runs = (*self._tool_runs, what)
            self._display.tool_run(what)
        elif not self._is_plain:
            line = call_line(what.function.name, what.function.arguments)
            self._running = f"running {line} ..."
            self._display.status(self._running, is_now=True)

    def _show_printed(self) -> None:
        """Show the newest line of the tool that runs."""
        if lines := self._printed.getvalue().rstrip().splitlines():
            line = shorten(lines[-1], CALL_CHARS)
            self._display.status(f"{self._running} {line}")

    def _finish(self, completion: object, *notes: str, mark: str = "") -> None:
        """Draw the final form: the text of all rounds, and the tool runs."""
        shown = completion if isinstance(completion, Completion) else self._newest
        if shown is None and not self._tool_runs:
            self._display.finish(None)
            return
        tool_runs = self._tool_runs
        final = (
            self._draw(shown.with_tool_runs(tool_runs)) if shown else Final(texts=())
        )
        final = final.with_notes(*notes)
        texts = [text for text in (*self._texts, *final.texts) if text]
        is_marked = mark in {"", *final.marks}
        self._display.finish(
            replace(
                final,
                texts=("\n\n".join(texts),) if texts else (),
                marks=final.marks if is_marked else (*final.marks, mark),
                tool_runs=final.tool_runs or tool_runs,
            )
        )


def _notes(completion: Completion, n_rounds: int, n_denied: int) -> list[str]:
    n_calls = len(completion.tool_runs)
    notes = []
    if n_calls:
        calls = "1 tool call" if n_calls == 1 else f"{n_calls} tool calls"
        notes.append(f"{calls}, the last of {n_rounds} rounds")
    if n_denied:
        notes.append(f"{n_denied} {UNASKED}")
    return notes


def to_tools(names: Sequence[str], variables: Mapping[str, object]) -> Toolbox:
    """Find tools by the names of their variables."""
    found = Toolbox()
    for name in names:
        found += to_toolbox(_found(name, variables))
    return found


def tools_of_every_cell(
    names: Sequence[str], variables: Mapping[str, object]
) -> Toolbox:
    """Find the tools that are offered in every cell."""
    try:
        return to_tools(names, variables)
    except SvcError as error:
        error.add_note(
            f"Every cell offers {', '.join(names)} (%config SvcMagics.tools). "
            "`%svc tools remove NAME` changes that; --tools none does for one cell."
        )
        raise


def known_tools(variables: Mapping[str, object]) -> dict[str, Toolbox]:
    """Return the variables that hold tools, by name."""
    return {
        name: to_toolbox(value)
        for name, value in variables.items()
        if isinstance(value, (Tool, Toolbox)) and not name.startswith("_")
    }


def tools_df(
    variables: Mapping[str, object], offered: Sequence[str], consent: Remembered
) -> "pd.DataFrame":
    """List the tools of the notebook's variables, one row per tool.

    `offered` are variables that every cell offers; `consent` knows what asks no more.
    """
    rows = (
        (
            variable,
            tool.name,
            ", ".join(tool.parameter_names),
            _first_line(tool),
            tool.confirm and not consent.allows(tool.name, tool.function),
            variable in offered,
            estimate_prompt_tokens((), [tool.definition]).best,
        )
        for variable, toolbox in known_tools(variables).items()
        for tool in toolbox
    )
    return indexed_frame(TOOL_LIST, rows)


TOOL_LIST = (
    *listed(
        "string",
        variable="that holds the tool, alone or in a toolbox",
        tool="its name, as the model knows it",
        parameters="their names",
        description="its first line",
    ),
    *listed(
        "boolean",
        asks_first="whether a call asks you before it runs",
        in_every_cell="whether every cell offers it",
    ),
    *listed("Int64", est_tokens="estimated tokens in every request that offers it"),
)


def _definitions_text(name: str, variables: Mapping[str, object]) -> str:
    """Write out what is sent of a tool, and its size."""
    toolbox = to_tools([name], variables)
    texts = [
        json.dumps(each, ensure_ascii=False, indent=2) for each in toolbox.definitions
    ]
    size = f"about {toolbox.n_tokens} tokens in every request that offers it"
    return "\n".join([*texts, f"({size})"])


def tools_command(
    words: Sequence[str],
    variables: Mapping[str, object],
    *,
    offered: Sequence[str],
    offer: Callable[[Sequence[str]], None],
    consent: Remembered,
) -> object:
    """Run `%svc tools ...`; `offer` sets the variables that every cell offers."""
    if not words:
        return tools_df(variables, offered, consent)
    verb, *names = words
    if verb == "ask":
        return _ask_again(names, variables, consent)
    if verb not in ("add", "remove"):
        if not names:
            return _definitions_text(verb, variables)
        raise command_or_question(f"tools {verb} {names[0]}", "tools")
    if not names:
        raise ParameterError(
            f"%svc tools {verb} needs a name, as in `%svc tools {verb} weather`; "
            "`%svc tools` lists them.",
            param="tools",
        )
    name = names[0]
    if verb == "add":
        to_tools([*offered, name], variables)
        offer(tuple(dict.fromkeys([*offered, name])))
        return (
            f"{name} is now offered in every %%svc cell; `%svc tools remove {name}` "
            "stops this."
        )
    if name not in offered:
        raise ParameterError(
            f"{name} is not offered in every cell; {', '.join(offered) or 'no tools'} "
            "are. To change the tools of one cell, use --tools.",
            param="tools",
        )
    offer([each for each in offered if each != name])
    return f"{name} is no longer offered in every cell."


def _ask_again(
    names: Sequence[str], variables: Mapping[str, object], consent: Remembered
) -> str:
    """Forget that calls are always allowed: of all tools, one, or a variable's."""
    held = known_tools(variables).get(names[0]) if names else None
    wanted = {*names, *(held.names if held else ())}
    forgotten = [each for each in consent.always if each in wanted or not names]
    if names and held is None and not forgotten:
        to_tools(names, variables)  # says that there is none, and which are near
    for each in forgotten:
        consent.forget(each)
    if not forgotten:
        said = f"{names[0]} is not" if names else "No tool is"
        return f"{said} always allowed; nothing changed."
    return f"You will be asked again before calls of: {', '.join(forgotten)}."


def tool_notes(variables: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the names of tools with a note on each, for Tab."""
    return tuple(
        (name, shorten(", ".join(map(_first_line, toolbox)), _NOTE_CHARS))
        for name, toolbox in known_tools(variables).items()
    )


def _found(name: str, variables: Mapping[str, object]) -> object:
    if name in variables:
        value = variables[name]
        is_made = isinstance(value, (Tool, Toolbox, Mapping, list, tuple))
        if is_made or inspect.isroutine(value):
            return value
        raise ParameterError(
            f"{name} is {type(value).__name__}, not a tool; give a function, made a "
            "tool with @svc.tool if you like, or a svc.Toolbox.",
            param="tools",
        )
    tools = list(known_tools(variables))
    functions = [
        each
        for each, value in variables.items()
        if inspect.isfunction(value) and not each.startswith("_")
    ]
    hint = did_you_mean(name, [*tools, *functions])
    there = f" The tools here are {', '.join(tools)}." if tools else ""
    raise ParameterError(
        f"There is no variable {name!r} to offer as a tool.{hint}{there} Define it "
        "first, with @svc.tool above the function; `%svc tools` lists them.",
        param="tools",
    )


def _first_line(tool: Tool) -> str:
    return tool.description.strip().split("\n", 1)[0]


_NAMED = re.compile(r"(?P<list>list\[)?(?P<name>\w+)(?(list)\])")


def to_named_form(text: str, names: Mapping[str, object]) -> Form[Any]:
    """Find the type that `--as` names."""
    found = _NAMED.fullmatch(text.replace(" ", ""))
    name = found["name"] if found else text
    if found is None or name not in names:
        hint = did_you_mean(name, dict(known_types(names)))
        raise ParameterError(
            f"--as {text}: this notebook has no such type.{hint} Give the name of a "
            "dataclass, a TypedDict or a pydantic model, or list[NAME].",
            param="as",
        )
    type_: Any = names[name]
    return to_form(list[type_] if found["list"] else type_)


def known_types(names: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the names of types with a note on each, for Tab."""
    return tuple(
        (name, (getattr(value, "__doc__", "") or "").partition("\n")[0])
        for name, value in names.items()
        if not name.startswith("_")
        and (isinstance(value, type) or get_origin(value) is not None)
    )


def value_request(
    options: SvcOptions, prompt: CellPrompt, form: Form[Any]
) -> CellRequest:
    """Build the request for a value; options that do not go with it are refused."""
    for flag, is_given, why in (
        ("-c", options.conversation, "a value belongs to no conversation"),
        ("--tools", options.tools, "the type is the only tool that is offered"),
        ("--format", options.layout, "the value is shown as Python writes it"),
        ("-n", prompt.params.get("n", 1) != 1, "one reply gives the value"),
        ("several values", options.is_several, "one reply gives the value"),
    ):
        if is_given:
            raise ParameterError(
                f"--as does not go with {flag}: {why}. Leave one of them out.",
                param="as",
            )
    asked = single_request(prompt)
    return replace(asked, request=refitted(asking_for(form, asked.request)))


class ValueCell(RoundsCell):
    """The tries of one cell to get a value; a view of each reply."""

    def ask(self, form: Form[Value], asked: CellRequest) -> Value:
        """Ask until a value fits, and show it."""
        keep = self._session.tool_record
        value = self.attempt(
            lambda send: extract(
                form, asked.request, asked.origin, send=send, keep=keep
            )
        )
        n_tries = len(self._texts) + 1
        note = f"the last of {n_tries} tries" if n_tries > 1 else ""
        last = self._newest.final() if self._newest else Final(texts=())
        final = replace(last, texts=(_written(value),), is_verbatim=True, tool_runs=())
        self._display.finish(final.with_notes(*asked.notes, note))
        return value


def _written(value: object) -> str:
    try:
        return str(pretty(value))
    except Exception:  # noqa: BLE001 - a class of the user may write itself
        return f"<a {type(value).__name__} that cannot be written>"
