"""`%%svc` and `%svc`: the edge between IPython and the package.

Rules: a magic reads its line, asks and shows; what an option means, what is sent
and how it looks is decided elsewhere. The Completion is returned, so that `_`
holds it, and is drawn by the cell that streamed it only once.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from traitlets import All, Enum, Unicode, observe

from svc_notebook.completion import Completion, on_params, on_reply
from svc_notebook.display.live import Screen
from svc_notebook.display.reply import Final
from svc_notebook.display.stream import Growing, Mode
from svc_notebook.errors import (
    ConfigError,
    CutError,
    ParameterError,
    SvcError,
    UnknownModelError,
)
from svc_notebook.panels.panel import panel
from svc_notebook.service.catalogue import MODELS
from svc_notebook.session import Session, current
from svc_notebook.sweeps.side_by_side import run_side_by_side
from svc_notebook.tokens import check_budget
from svc_notebook.tools.toolbox import Toolbox

from . import subcommands as commands
from . import subcommands as lists
from .cell import DrawnOnce, Interrupted, Places, mode_of, short_errors
from .defaults import SvcTraits
from .grid_cell import check_one_answer, check_whole, is_several, to_run
from .help import help_text
from .options import CONFIRMATIONS, SvcOptions, to_names
from .parse import parse_options
from .prompt import Step, Wanted, alone, continued, to_wanted
from .reply_cell import DryRun, lay_out, next_cell, show
from .subcommands import ASK, Said, login, parse_words
from .tool_cell import (
    RoundsCell,
    to_offered,
    to_tools,
    tools_command,
    tools_of_every_cell,
)


@magics_class
class SvcMagics(SvcTraits, Magics):
    """Ask a chat-completion service from a cell; `%config SvcMagics` lists defaults."""

    shell: InteractiveShell
    tools = Unicode("", help="variables whose tools are offered in every cell").tag(
        config=True
    )
    confirm_tools = Enum(
        CONFIRMATIONS, "marked", help="which calls of tools ask you first"
    ).tag(config=True)

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell=shell)
        self._places = Places(shell)
        self._has_advised = False
        if "model" in self.config.get("SvcMagics", {}):
            self.session.use_model(self.model, source="configuration")
        self.model = self.session.settings.model
        self._on_change(None)

    @property
    def session(self) -> Session:
        """This kernel's session."""
        return current()

    @observe(All)
    def _on_change(self, _: object) -> None:
        """Keep what `%svc?` and `%%svc?` show in step with the defaults."""
        SvcMagics.svc.__doc__ = self._help()

    def _help(self) -> str:
        own = {"tools": self.tools or None, "confirm_tools": self.confirm_tools}
        return help_text({**self.defaults(), **own})

    @observe("model")
    def _on_model(self, change: Any) -> None:  # noqa: ANN401 - a traitlets bunch
        if change["new"] != self.session.settings.model:
            self.session.use_model(change["new"], source="%config SvcMagics.model")

    @no_var_expand
    @line_cell_magic
    def svc(self, line: str, cell: str | None = None) -> object:
        """Ask the service, or tell it how to answer; `%svc help` lists the options."""
        is_terminal = getattr(self.shell, "kernel", None) is None
        with short_errors(is_on=not self.show_traceback, is_terminal=is_terminal):
            options = parse_options(line)
            if cell is not None:
                return self._cell(options, cell)
            said = parse_words(options.text)
            if said.command == ASK:
                return self._ask(options, said.text, own_output=False)
            return self._command(said)

    def _cell(self, options: SvcOptions, cell: str) -> object:
        if options.text:
            raise ParameterError(
                f"{options.text!r} stands on the line of options and would not be "
                "sent. Put the prompt below that line, ask in one line with %svc, or "
                "put quotes around an option's value that has blanks.",
                param="line",
            )
        return self._ask(options, cell, own_output=self._owns_output())

    def _owns_output(self) -> bool:
        """Say whether the cell is this magic's alone, so that it may be cleared."""
        parent: dict[str, Any] = getattr(self.shell, "get_parent", dict)() or {}
        code = parent.get("content", {}).get("code", "")
        return str(code).lstrip().startswith("%%svc")

    def _ask(self, options: SvcOptions, text: str, *, own_output: bool) -> object:
        self._check_output(options)
        toolbox = self._toolbox(options)
        if is_several(options):
            check_one_answer(options)
            return self._ask_several(options, text)
        step = self._step(options, text, toolbox)
        if options.is_dry:
            return DryRun(request=step.request, notes=step.notes, wait=self._wait(step))
        mode = self._mode()
        try:
            completion = self._shown(options, step, toolbox, mode, own_output)
        except (SvcError, Interrupted) as stopped:
            self._keep(options, step, stopped.partial)
            if isinstance(stopped, UnknownModelError):
                _hint_at_model(stopped, step.request.model)
            raise
        self._keep(options, step, completion)
        if options.layout == "code":
            self._put_in_next_cell(next_cell(completion, mode).code)
        DrawnOnce(self.shell, completion)
        if options.is_strict and completion.is_cut:
            raise _cut_error(completion)
        return completion

    def _shown(
        self,
        options: SvcOptions,
        step: Step,
        toolbox: Toolbox,
        mode: Mode,
        own_output: bool,  # noqa: FBT001 - as `_ask` has it
    ) -> Completion:
        """Send what a cell asks, in rounds where tools can run, and show it."""
        start = partial(
            self.session.client.stream,
            is_streamed=options.is_streamed,
            answers=self.session.reused if options.is_reused else None,
        )
        if len(toolbox):
            check_budget(step.request)
        has_rounds = any(tool.function is not None for tool in toolbox)
        stream = None if has_rounds else start(step.request, origin=step.origin)
        growing = Growing.open(
            mode,
            # what tools print, and what was asked, is not the reply's to clear
            own_output=own_output and not has_rounds,
            is_verbatim=options.layout in {"text", "json", "html"},
            is_late=options.layout == "json",
            n_texts=step.request.params.get("n") or 1,
        )
        draw = partial(_draw, options, step, mode)
        if stream is not None:
            return show(stream, growing, draw=draw)
        cell = RoundsCell(
            lambda request, origin: start(request, origin=origin), growing, mode, draw
        )
        asked = options.max_tokens
        offered = to_offered(
            self.session,
            toolbox,
            confirm_tools=options.confirm_tools or self.confirm_tools,
            max_rounds=options.max_rounds,
            max_tokens=self.defaults().get("max_tokens") if asked is None else asked,
        )
        return cell.run(step.request, step.origin, offered)

    def _put_in_next_cell(self, code: str | None) -> None:
        if code is not None:
            self.shell.set_next_input(code)

    def _toolbox(self, options: SvcOptions) -> Toolbox:
        """Find the tools that a line names, or else those of every cell."""
        if options.tools is not None:
            return to_tools(options.tools, self.shell.user_ns)
        if is_several(options):
            return Toolbox()
        return tools_of_every_cell(to_names(self.tools), self.shell.user_ns)

    def _offer(self, names: Sequence[str]) -> None:
        self.tools = ",".join(names)

    def _ask_several(self, options: SvcOptions, text: str) -> object:
        run = to_run(self.session, options, self._wanted(options, text))
        if options.output:
            self.shell.push({options.output: run})
        if options.is_dry:
            return run
        run_side_by_side(run, mode=self._mode(), is_streamed=options.is_streamed)
        if options.is_strict:
            check_whole(run)
        return None

    def _mode(self) -> Mode:
        return mode_of(self.session.settings.display, self.shell)

    def _is_watched(self) -> bool:
        """Say whether what differs from run to run has its place here."""
        return self._mode() is not Mode.SETTLED

    def _wait(self, step: Step) -> str:
        """Say how long a limit would make this wait now."""
        try:
            due = self.session.client.due(step.request.model)
        except ConfigError:
            return "no service is chosen yet, so no limit is known"
        return f"would wait {due.wait_s:.0f} s: {due.reason}" if due.wait_s > 0 else ""

    def _wanted(self, options: SvcOptions, cell: str) -> Wanted:
        wanted = to_wanted(
            options,
            cell,
            names=self._names(),
            defaults=self.defaults(),
            hide=self.session.key_hider(),
        )
        return replace(wanted, notes=(*wanted.notes, *self._advise(wanted)))

    def _step(self, options: SvcOptions, cell: str, toolbox: Toolbox) -> Step:
        wanted = self._wanted(options, cell)
        if len(toolbox):
            tools = {"tools": toolbox.definitions}
            wanted = replace(wanted, params={**wanted.params, **tools})
        if options.conversation is None:
            return alone(wanted)
        conversation = self.session.conversations.named(options.conversation)
        return continued(wanted, conversation, place=self._places.next())

    def _names(self) -> dict[str, object]:
        """Return the notebook's variables, with the cells as they were typed."""
        cells = getattr(self.shell.history_manager, "input_hist_raw", [])
        return {**self.shell.user_ns, "In": cells[: self.shell.execution_count]}

    def _advise(self, wanted: Wanted) -> tuple[str, ...]:
        """Say what the document advises about parameters, once a kernel."""
        advice = on_params(wanted.params)
        if advice is None or self._has_advised:
            return ()
        self._has_advised = True
        return (advice,)

    def _check_output(self, options: SvcOptions) -> None:
        """Refuse a name whose loss would hurt, before anything is sent."""
        name = options.output or ""
        is_shells = name in self.shell.user_ns_hidden
        if is_shells or isinstance(self.shell.user_ns.get(name), ModuleType):
            what = "belongs to the shell" if is_shells else "is a module"
            raise ParameterError(
                f"-o {name}: this name {what} and would be lost. Use another, as in "
                "-o answer.",
                param="output",
            )

    def _keep(self, options: SvcOptions, step: Step, completion: object) -> None:
        """Keep an answer, a partial one too: nothing that came is lost."""
        if not isinstance(completion, Completion):
            return
        step.keep(completion)
        if options.output:
            self.shell.push({options.output: completion})

    def _command(self, said: Said) -> object:
        answer = self._answer(said)
        self.model = self.session.settings.model
        if isinstance(answer, str):
            Screen().write(answer + "\n")
            return None
        return answer

    def _answer(self, said: Said) -> object:
        session, arguments = self.session, said.arguments
        answers: dict[str, Callable[[], object]] = {
            "use": lambda: commands.use(session, arguments),
            "login": login,
            "models": lambda: lists.models_df(session, has_room=self._is_watched()),
            "usage": lambda: lists.usage_df(session),
            "replies": lambda: lists.replies_df(session),
            "last": lambda: session.last or "Nothing was answered in this kernel yet.",
            "settings": lambda: lists.settings_df(session, self.said()),
            "conversations": lambda: lists.conversations_df(session),
            "history": lambda: session.conversations.known(arguments[0]),
            "reset": lambda: commands.reset(session, arguments[0]),
            "pin": lambda: commands.mark(session, arguments, "pin"),
            "hide": lambda: commands.mark(session, arguments, "hide"),
            "version": lambda: commands.choose(session, arguments),
            "restore": lambda: commands.restore(session, arguments),
            "panel": lambda: panel(*arguments),
            "tools": lambda: tools_command(
                arguments,
                self.shell.user_ns,
                offered=to_names(self.tools),
                offer=self._offer,
                consent=session.consent,
            ),
            "help": self._help,
        }
        return answers[said.command]()


def _hint_at_model(error: UnknownModelError, model: str) -> None:
    """Name the documented model that a misspelt one may have meant."""
    near = get_close_matches(model.lower(), [each.id for each in MODELS], n=1)
    if near and near[0] != model:
        error.add_note(f"The model asked for is {model!r}; did you mean {near[0]}?")


def _cut_error(completion: Completion) -> CutError:
    error = CutError(
        f"The reply was {completion.exchange.cut_mark} and --strict asks for a "
        "whole one. Give it more room with --max-tokens, or ask for less; svc.last() "
        "holds what came (doc: Limits)."
    )
    error.partial = completion
    error.exchange_id = completion.exchange.exchange_id
    return error


def _draw(options: SvcOptions, step: Step, mode: Mode, completion: Completion) -> Final:
    """Make the final form: the footer with its notes, drawn as asked for."""
    final = completion.final()
    advice = on_reply(completion.text, completion.request.params)
    coded = next_cell(completion, mode).note if options.layout == "code" else ""
    notes = [note for note in (*step.notes, advice, coded) if note]
    footer = " · ".join([final.footer, *notes])
    return lay_out(replace(final, footer=footer), options.layout, mode)
