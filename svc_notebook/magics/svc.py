"""`%%svc` and `%svc`: a magic reads its line, sends the request and shows the reply."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from svc_notebook.completion import Completion, cut_mark, is_cut, on_params, on_reply
from svc_notebook.credentials import refuse_keys
from svc_notebook.display.live import Mode, ReplyDisplay
from svc_notebook.display.output import Output, can_answer, follow, parent_message
from svc_notebook.display.reply import Final
from svc_notebook.errors import (
    ConfigError,
    CutError,
    Interrupted,
    ParameterError,
    SvcError,
    UnknownModelError,
)
from svc_notebook.service.request import CompletionRequest
from svc_notebook.session import Session, current
from svc_notebook.tokens import check_budget
from svc_notebook.tools.permissions import MAX_ROUNDS, Rounds
from svc_notebook.tools.toolbox import Toolbox

from .defaults import SvcTraits
from .options import HELP, SvcOptions, help_on, parse_options, to_names
from .prompt import (
    CellPrompt,
    CellRequest,
    conversation_request,
    error_prompt,
    single_request,
    to_prompt,
)
from .reply_cell import (
    CellRequestIds,
    DryRun,
    HiddenResult,
    Place,
    Places,
    ReplyView,
    calm_interrupt,
    cell_ids,
    chosen_cell,
    hint_at_model,
    interrupted,
    lay_out,
    mode_of,
    next_cell,
    own_names,
    short_errors,
)
from .rest_cell import RestView, rest_request
from .subcommands import (
    ASK,
    BY_NAME,
    CONTINUE,
    EXPLAIN,
    FIX,
    CommandLine,
    models_df,
    parse_command,
    settings_df,
)
from .tool_cell import (
    RoundsCell,
    Start,
    ValueCell,
    to_named_form,
    to_tools,
    tools_command,
    tools_of_every_cell,
    value_request,
)

if TYPE_CHECKING:
    from svc_notebook.sweeps.run import Run  # a cell that asks once needs none


class SvcCommand:
    """What `%svc` and `%%svc` do; `traits` has the defaults that `%config` sets."""

    def __init__(self, shell: InteractiveShell, traits: SvcTraits) -> None:
        self.shell = shell
        self._traits = traits
        self._request_ids = CellRequestIds(shell)
        self._places = Places(shell)
        self._place: Place | None = None  # of the reply that is shown
        # what `%svc fix` showed, and in which execution of a cell
        self._shown_request: tuple[CompletionRequest | None, object] = None, None
        self._is_sending = False
        self._has_sent_errors = False  # so that the next ones go at once
        self._has_advised = False

    @property
    def session(self) -> Session:
        """This kernel's session."""
        return current()

    def close(self) -> None:
        """Let go of the shell."""
        self._places.close()

    def help(self, topic: str = "") -> str:
        """Return the help on a topic, with the defaults in force."""
        traits = self._traits
        tools, reuse = traits.tools or None, traits.reuse or None
        own = {"tools": tools, "confirm_tools": traits.confirm_tools, "reuse": reuse}
        return help_on(topic, {**traits.defaults(), **own})

    def run(
        self, line: str, cell: str | None, local_ns: Mapping[str, object] | None
    ) -> object:
        """Read the line of `%svc`, or of `%%svc` with its cell, and do it."""
        is_terminal = getattr(self.shell, "kernel", None) is None
        with (
            short_errors(
                is_on=not self._traits.show_traceback, is_terminal=is_terminal
            ),
            calm_interrupt(self.shell, self._mode, lambda: self._is_sending),
        ):
            self._is_sending = False
            local_names = {**own_names(), **(local_ns or {})}
            options = replace(parse_options(line), local_names=local_names)
            if cell is not None and options.text != HELP:
                return self._cell(options, cell)
            line_command = parse_command(options.text)
            if line_command.name in (FIX, EXPLAIN):
                return self._ask_about_error(options, line_command.name)
            if line_command.name == ASK:
                return self._ask(options, line_command.text, own_output=False)
            if line_command.name == CONTINUE:
                return self._continue(options)
            return self._command(line_command)

    def _continue(self, options: SvcOptions) -> object:
        """Ask for the rest of a reply that was cut or interrupted."""
        self._check_output(options)
        max_tokens = options.max_tokens or self._traits.defaults().get("max_tokens")
        asked = rest_request(self.session, options, max_tokens)
        place = self._places.find(asked.origin.continues or "")
        name = place.output if place else None
        is_its_own = name and self.shell.user_ns.get(name) == asked.rest_of
        if is_its_own and not options.is_dry:
            options = replace(options, output=options.output or name)
        return self._run(options, asked, None, own_output=False)

    def _cell(self, options: SvcOptions, cell: str) -> object:
        if options.text:
            raise ParameterError(
                f"{options.text!r} is on the line of options and would not be sent. "
                "Put the prompt below that line, ask in one line with %svc, or put "
                "quotes around an option's value that has blanks.",
                param="line",
            )
        return self._ask(options, cell, own_output=self._owns_output())

    def _owns_output(self) -> bool:
        """Whether the cell holds only this magic, so that its output may be cleared."""
        code = parent_message(self.shell).get("content", {}).get("code", "")
        return str(code).lstrip().startswith("%%svc")

    def _ask(self, options: SvcOptions, text: str, *, own_output: bool) -> object:
        self._check_output(options)
        _check_record(options)
        if options.type_name:
            return self._ask_for_value(options, text)
        toolbox = self._toolbox(options)
        if options.is_several:
            return self._ask_several(options, text)
        asked = self._request(options, text, toolbox)
        return self._run(options, asked, toolbox, own_output=own_output)

    def _run(
        self,
        options: SvcOptions,
        asked: CellRequest,
        toolbox: Toolbox | None,
        *,
        own_output: bool,
    ) -> object:
        """Send a request, unless the line asks for a dry run, and keep the reply."""
        if options.is_dry:
            return self._dry_run(options, asked)
        return self._complete(options, asked, toolbox, own_output=own_output)

    def _ask_for_value(self, options: SvcOptions, text: str) -> object:
        """Ask for a value of a type, show it, and give it to the cell."""
        form = to_named_form(options.type_name or "", self._names(options))
        asked = value_request(options, self._prompt(options, text), form)
        if options.is_dry:
            return self._dry_run(options, asked)
        mode = self._mode()
        display = ReplyDisplay.open(
            mode, own_output=False, is_verbatim=True, is_late=True
        )
        draw = partial(_draw, options, asked, mode)
        cell = ValueCell(self.session, self._start(options), display, mode, draw)
        value = cell.ask(form, asked)
        if options.output:
            self.shell.push({options.output: value})
        HiddenResult(self.shell, value)
        return value

    def _dry_run(self, options: SvcOptions, asked: CellRequest, *notes: str) -> object:
        notes, wait = (*asked.notes, *notes), self._wait(asked)
        refuse_keys([asked.request], of="The request")
        dry = DryRun(request=asked.request, notes=notes, wait=wait)
        return self._shown_now(options, dry)

    def _shown_now(self, options: SvcOptions, value: object) -> object:
        """Show what would be sent, which need not be the value of its cell."""
        if options.output:
            self.shell.push({options.output: value})
        display(value)
        HiddenResult(self.shell, value)
        return value

    def _ask_about_error(self, options: SvcOptions, task: str) -> object:
        """Show what would be sent about the last error, or send what was shown."""
        options = self._for_error(options, task)
        room = self.session.context_of(options.model or self.session.settings.model)
        prompt, note = error_prompt(task, self._names(options), context_tokens=room)
        if not prompt:
            Output().write(note)
            return None
        toolbox = self._toolbox(options)
        asked = self._request(options, self.session.key_hider()(prompt), toolbox)
        asked = replace(asked, notes=(note, *asked.notes))
        execution = (*cell_ids(self.shell), self.shell.execution_count)
        shown, shown_in = self._shown_request
        is_known = shown == asked.request and shown_in != execution
        is_sent = options.is_sent or is_known or self._has_sent_errors
        if options.is_dry or not is_sent:
            self._shown_request = asked.request, execution
            way = f"`%svc {task} --send`, or the same line again, sends it"
            return self._dry_run(options, asked, way)
        self._has_sent_errors = True
        return self._complete(options, asked, toolbox, own_output=False)

    def _for_error(self, options: SvcOptions, task: str) -> SvcOptions:
        self._check_output(options)
        if not can_answer(self.shell):
            raise ParameterError(
                f"%svc {task}: nobody watches this notebook run, and it would send "
                "code unseen. Run this line by hand, or remove it.",
                param="line",
            )
        if options.is_several or options.type_name:
            raise ParameterError(
                f"%svc {task} asks for one reply in words; leave --as out, and give "
                "one model and one value each.",
                param="model",
            )
        layout = options.layout or ("code" if task == FIX else None)
        # a traceback may have {{marks}}; tools are offered only if this line names them
        return replace(options, is_raw=True, layout=layout, tools=options.tools or ())

    def _complete(
        self,
        options: SvcOptions,
        asked: CellRequest,
        toolbox: Toolbox | None,
        *,
        own_output: bool,
    ) -> Completion:
        """Send a cell's request, show the reply, and keep it where it belongs."""
        try:
            sent = self._send(options, asked, toolbox, own_output)
        except (SvcError, Interrupted) as stopped:
            stopped.partial = self._keep(options, asked, stopped.partial)
            self._explain(stopped, asked)
            raise
        completion: Completion = self._keep(options, asked, sent)
        if options.layout == "code":
            next_cell(completion, self._mode()).put(self.shell)
        HiddenResult(self.shell, completion)
        if options.is_strict and completion.is_cut:
            raise _cut_error(completion)
        return completion

    def _send(
        self,
        options: SvcOptions,
        asked: CellRequest,
        toolbox: Toolbox | None,
        own_output: bool,  # noqa: FBT001 - as `_ask` has it
    ) -> Completion:
        """Send a cell's request, in rounds where tools can run, and show the reply."""
        mode = self._mode()
        start = self._start(options)
        if toolbox:
            check_budget(asked.request)
        has_rounds = any(tool.function is not None for tool in toolbox or ())
        stream = None if has_rounds else start(asked.request, origin=asked.origin)
        display = ReplyDisplay.open(
            mode,
            # what tools print, and what was asked, is not the reply's to clear
            own_output=own_output and not has_rounds,
            is_verbatim=options.layout in {"text", "json", "html"},
            is_late=options.layout == "json",
            n_texts=asked.request.params.get("n") or 1,
        )
        draw = partial(_draw, options, asked, mode)
        self._place = self._places.here(display, draw, options.output)
        if stream is not None and asked.rest_of:
            view = RestView(self.session, asked, self._places, self._place, mode)
            self._place = view.place
            return follow(stream, view)
        if stream is not None:
            return follow(stream, ReplyView(display, draw))
        session = self.session
        return RoundsCell(session, start, display, mode, draw).run(
            asked.request,
            asked.origin,
            toolbox or Toolbox(),
            confirm_tools=options.confirm_tools or self._traits.confirm_tools,
            rounds=Rounds(max_rounds=options.max_rounds or MAX_ROUNDS),
            keep=session.tool_record
            if options.is_recorded
            else session.unrecorded_tools,
        )

    def _start(self, options: SvcOptions) -> Start:
        session = self.session
        client = session.client_of(is_recorded=options.is_recorded)
        self._is_sending = True
        return partial(
            client.stream,
            is_streamed=options.is_streamed,
            answers=session.reused if session.is_reusing(options.is_reused) else None,
        )

    def _explain(self, stopped: SvcError | Interrupted, asked: CellRequest) -> None:
        """Say what neither the error nor what arrived says."""
        if isinstance(stopped, UnknownModelError):
            models = self.session.models()
            hint_at_model(stopped, asked.request.model, models)
        if isinstance(stopped, Interrupted) and not getattr(
            stopped.partial, "choices", ()
        ):
            display = ReplyDisplay.open(self._mode())
            display.finish(interrupted(stopped.partial))

    def _toolbox(self, options: SvcOptions) -> Toolbox | None:
        """Find the tools that a line names, or else those of every cell."""
        if options.tools:
            return to_tools(options.tools, self._names(options))
        if options.tools is None and self._traits.tools and not options.is_several:
            return tools_of_every_cell(to_names(self._traits.tools), self.shell.user_ns)
        return None

    def _offer(self, names: Sequence[str]) -> None:
        self._traits.tools = ",".join(names)

    def _ask_several(self, options: SvcOptions, text: str) -> object:
        from svc_notebook.sweeps.side_by_side import run_side_by_side  # noqa: PLC0415 - at first use

        _check_several(options)
        run = _to_run(self.session, options, self._prompt(options, text))
        if options.is_dry:
            return self._shown_now(options, run)
        if options.output:
            self.shell.push({options.output: run})
        self._is_sending = True
        run_side_by_side(run, mode=self._mode(), is_streamed=options.is_streamed)
        if options.is_strict:
            _check_whole(run)
        return None

    def _mode(self) -> Mode:
        return mode_of(self.session.settings.display, self.shell)

    def _wait(self, asked: CellRequest) -> str:
        """Say how long the request would wait for a limit now."""
        try:
            due = self.session.client.due(asked.request.model)
        except ConfigError:
            return "no service is chosen yet, so no limit is known"
        return f"would wait {due.wait_s:.0f} s: {due.reason}" if due.wait_s > 0 else ""

    def _prompt(self, options: SvcOptions, cell: str) -> CellPrompt:
        prompt = to_prompt(
            options,
            cell,
            names=self._names(options),
            defaults=self._traits.defaults(),
            hide=self.session.key_hider(),
        )
        context_tokens = self.session.context_of(prompt.model)
        prompt = replace(prompt, context_tokens=context_tokens)
        if prompt.as_typed:
            Output().write(prompt.as_typed)
        advice = on_params(prompt.params)
        if advice is None or self._has_advised:
            return prompt
        self._has_advised = True  # once in a kernel is enough
        return replace(prompt, notes=(*prompt.notes, advice))

    def _request(
        self, options: SvcOptions, cell: str, toolbox: Toolbox | None
    ) -> CellRequest:
        prompt = self._prompt(options, cell)
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
        conversation = self.session.conversations.named(options.conversation)
        return conversation_request(
            prompt, conversation, place=self._request_ids.next()
        )

    def _names(self, options: SvcOptions) -> dict[str, object]:
        """Return the variables that the line sees, a function's own before all others.

        `In` has the cells before this one, as they were typed.
        """
        cells = getattr(self.shell.history_manager, "input_hist_raw", [])
        content = parent_message(self.shell).get("content", {})
        n_before = len(cells) - bool(content.get("store_history", True))
        names = {**self.shell.user_ns, **options.local_names}
        return {**names, "In": cells[:n_before]}

    def _check_output(self, options: SvcOptions) -> None:
        """Refuse a name that must not be overwritten, before anything is sent."""
        name = options.output or ""
        is_shells = name in self.shell.user_ns_hidden
        if is_shells or isinstance(self.shell.user_ns.get(name), ModuleType):
            what = "belongs to the shell" if is_shells else "is a module"
            raise ParameterError(
                f"-o {name}: this name {what} and would be lost. Use another, as in "
                "-o answer.",
                param="output",
            )

    def _keep(self, options: SvcOptions, asked: CellRequest, completion: Any) -> Any:  # noqa: ANN401 - of whatever kind
        """Keep a reply, whole or partial; return it with what it continues."""
        if not isinstance(completion, Completion):
            return completion
        asked.keep(completion)
        if asked.rest_of:
            completion = self.session.joined(completion.exchange)
        if self._place:
            self._places.put(completion.exchange.exchange_id, self._place)
        if options.output:
            self.shell.push({options.output: completion})
        return completion

    def _command(self, command: CommandLine) -> object:
        answer = self._answer(command)
        if isinstance(answer, str):
            Output().write(answer + "\n")
            return None
        return answer

    def _answer(self, line: CommandLine) -> object:
        run = BY_NAME[line.name].run
        if run is not None:
            return run(self.session, *line.arguments)
        if line.name == "models":
            # what differs from run to run is left out of settled outputs
            return models_df(self.session, has_room=self._mode() is not Mode.SETTLED)
        if line.name == "settings":
            return settings_df(self.session, self._traits.own_settings())
        if line.name == "help":
            return self.help(*line.arguments)
        if line.name == "insert":
            word = next(iter(line.arguments), "1")
            cell = chosen_cell(self.session.last, word, self._mode())
            return cell.put(self.shell)
        return tools_command(
            line.arguments,
            self.shell.user_ns,
            offered=to_names(self._traits.tools),
            offer=self._offer,
            consent=self.session.consent,
        )


def _cut_error(completion: Completion) -> CutError:
    error = CutError(
        f"The reply was {cut_mark(completion.exchange)} and --strict asks for a "
        "whole one. Give it more room with --max-tokens, or ask for less; svc.last() "
        "holds what arrived."
    )
    error.partial = completion
    error.exchange_id = completion.exchange.exchange_id
    return error


def _draw(
    options: SvcOptions, asked: CellRequest, mode: Mode, completion: Completion
) -> Final:
    """Make the final form: the footer with its notes, drawn as asked for."""
    advice = on_reply(completion.text, completion.request.params) or ""
    code = next_cell(completion, mode).note if options.layout == "code" else ""
    of = f" -c {options.conversation}" if options.conversation else ""
    can_go_on = completion.can_go_on and options.is_recorded
    rest = f"`%svc{of} continue` asks for the rest" if can_go_on else ""
    has_part = completion.exchange.status == "cancelled" and completion.exchange.choices
    kept = "svc.last() has what arrived" if has_part else ""
    final = completion.final().with_notes(*asked.notes, rest, kept, advice, code)
    return lay_out(final, options.layout, mode)


def _check_record(options: SvcOptions) -> None:
    """Refuse --no-record where the ledger would have the exchange all the same."""
    why = ""
    if options.conversation is not None:
        why = f"-c {options.conversation} sends it again, in turns that are recorded"
    elif options.is_several:
        why = "a grid is read back from the ledger"
    if why and not options.is_recorded:
        raise ParameterError(
            f"--no-record is for one question: {why}. Leave one of the two out.",
            param="record",
        )


def _check_several(options: SvcOptions) -> None:
    """Refuse options that mean something for one reply only."""
    layout = options.layout if options.layout != "markdown" else None
    for flag, value, param, why in (
        ("-c", options.conversation, "conversation", "continues one conversation"),
        ("--format", layout, "format", "draws one reply"),
        ("--tools", ",".join(options.tools or ()), "tools", "runs tools for one reply"),
    ):
        if value:
            raise ParameterError(
                f"{flag} {value} {why}, and this line asks for several replies. Leave "
                f"{flag} out, or give one value each.",
                param=param,
            )


def _to_run(session: Session, options: SvcOptions, prompt: CellPrompt) -> "Run":
    """Plan the requests of a line with several values; nothing is sent."""
    from svc_notebook.sweeps.plan import plan  # noqa: PLC0415 - at first use

    return plan(
        session,
        prompt.text,
        model=[each.strip() for each in prompt.model.split(",")],
        system=prompt.system or None,
        repeats=options.repeats,
        raw=True,
        reuse=options.is_reused,
        origin="magic",
        varied={**prompt.params, "max_tokens": prompt.max_tokens},
    )


def _check_whole(run: "Run") -> None:
    """Refuse cut replies; all are shown and kept."""
    n_cut = sum(
        reply.exchange is not None
        and reply.choice is not None
        and is_cut(reply.exchange, reply.choice)
        for reply in run.replies()
    )
    if n_cut:
        raise CutError(
            f"{n_cut} of the replies were cut and --strict asks for whole ones. Give "
            "them more room with --max-tokens, or ask for less."
        )
