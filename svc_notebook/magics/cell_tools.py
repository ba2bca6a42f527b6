"""A cell with tools: rounds of requests in one output, and where tools are found."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import TypeVar

from svc_notebook import Completion, CompletionStream, Toolbox
from svc_notebook.client.request_path import SendRequest
from svc_notebook.display.final_reply import Final
from svc_notebook.display.footer import REASONING
from svc_notebook.display.reply_display import Mode, follow
from svc_notebook.display.tool_runs import CALL_CHARS, call_line
from svc_notebook.errors import Interrupted, ParameterError, SvcError
from svc_notebook.exchange import Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.service.params import did_you_mean, shorten
from svc_notebook.service.request import CompletionRequest, ToolCall
from svc_notebook.tools.call import ToolRun
from svc_notebook.tools.consent import Consent, Decision, Proposal, to_consent
from svc_notebook.tools.rounds import RoundLimits, ToolRecord, run_rounds
from svc_notebook.tools.toolbox import Tool, to_toolbox

from .cell_context import CellContext
from .cell_view import CellView, Place
from .options import SvcOptions, to_names

Result = TypeVar("Result")
Start = Callable[..., CompletionStream]  # takes a request and its `origin`
UNASKED = (
    "denied: you could not be asked; allow it with --confirm-tools none, or with "
    "%config SvcMagics.confirm_tools"
)
_CALL_CHARS = 200  # of arguments that form; the status line shows less


class RoundsCell(CellView):
    """The rounds of one cell; each reply has its own view.

    Calls are shown while they form and run only when the reply is whole. Text that
    came before a call stays; the cell ends with one final form, with its tool runs.
    """

    def __init__(self, context: CellContext, start: Start, place: Place) -> None:
        super().__init__(place)
        self._session = context.session
        self._start = start
        self._is_plain = context.mode is Mode.PLAIN
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
        rounds: RoundLimits,
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

    def attempt(self, ask: Callable[[SendRequest], Result]) -> Result:
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
            self.place.draw(shown.with_tool_runs(tool_runs))
            if shown
            else Final(texts=())
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


def offered_tools(context: CellContext, options: SvcOptions) -> Toolbox | None:
    """Find the tools that a line names, or else those of every cell."""
    of_every_cell = context.traits.tools
    if options.tools:
        return to_tools(options.tools, context.names())
    if options.tools is None and of_every_cell:
        return tools_of_every_cell(to_names(of_every_cell), context.shell.user_ns)
    return None


def to_tools(names: Sequence[str], variables: Mapping[str, object]) -> Toolbox:
    """Find tools by the names of their variables."""
    toolbox = Toolbox()
    for name in names:
        toolbox += to_toolbox(find_tool(name, variables))
    return toolbox


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


def find_tool(name: str, variables: Mapping[str, object]) -> object:
    """Return the variable that `--tools` names, or refuse what cannot be a tool."""
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
        variable
        for variable, value in variables.items()
        if inspect.isfunction(value) and not variable.startswith("_")
    ]
    hint = did_you_mean(name, [*tools, *functions])
    there = f" The tools here are {', '.join(tools)}." if tools else ""
    raise ParameterError(
        f"There is no variable {name!r} to offer as a tool.{hint}{there} Define it "
        "first, with @svc.tool above the function; `%svc tools` lists them.",
        param="tools",
    )


def first_line(tool: Tool) -> str:
    """Return the first line of a tool's description."""
    return tool.description.strip().split("\n", 1)[0]
