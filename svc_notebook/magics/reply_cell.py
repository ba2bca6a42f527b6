"""One reply in a cell: while it streams, in its final form, or as a dry run.

Also what this needs of IPython: the source as typed, one output, and a box in place of
the traceback of our own errors.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import msgspec
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from svc_notebook.completion import Completion
from svc_notebook.display.error_report import LINE_CHARS, error_box
from svc_notebook.display.live import Mode, ReplyDisplay
from svc_notebook.display.markdown import Fence, fences
from svc_notebook.display.markup import visible
from svc_notebook.display.output import Wait, can_answer, parent_message
from svc_notebook.display.reply import REASONING, Entry, Final, transcript
from svc_notebook.errors import (
    Interrupted,
    ParameterError,
    SvcError,
    UnknownModelError,
)
from svc_notebook.service.catalogue import Model
from svc_notebook.service.checks import did_you_mean, shorten
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import Tokens, estimate_prompt_tokens

from .subcommands import command_or_question


def mode_of(display: str, shell: InteractiveShell) -> Mode:
    """Choose how to show replies, from the setting `display` and the shell."""
    if display != "auto":
        return Mode(display)
    if getattr(shell, "kernel", None) is None:
        return Mode.PLAIN
    return Mode.LIVE if can_answer(shell) else Mode.SETTLED


class HiddenResult:
    """Keeps IPython from drawing the value of this cell, which is shown already."""

    def __init__(self, shell: InteractiveShell, value: object) -> None:
        self._shell = shell
        self._value = value
        self._printers()[type(value)] = self._draw
        if getattr(shell, "kernel", None) is None:
            # A terminal writes "Out[3]:" before it asks how to draw a value.
            hook = vars(shell.displayhook)
            hook["write_output_prompt"] = lambda: None
            hook["compute_format_data"] = self._format
        shell.events.register("post_run_cell", self._end)

    def _draw(self, value: object) -> None:
        self._end()
        if value is not self._value:
            display(value)

    def _format(self, value: object) -> object:
        hook = self._shell.displayhook
        vars(hook).pop("compute_format_data", None)
        vars(hook).pop("write_output_prompt", None)
        if value is not self._value:
            hook.write_output_prompt()
        return hook.compute_format_data(value)

    def _end(self, *_: object) -> None:
        self._printers().pop(type(self._value), None)
        vars(self._shell.displayhook).pop("write_output_prompt", None)
        vars(self._shell.displayhook).pop("compute_format_data", None)
        with suppress(ValueError):  # it was removed before
            self._shell.events.unregister("post_run_cell", self._end)

    def _printers(self) -> dict[type, Callable[[object], None]]:
        """Return the printers that IPython tries first; if one draws, no other does."""
        formatter = self._shell.display_formatter
        if formatter is None:
            return {}
        printers: dict[type, Callable[[object], None]] = (
            formatter.ipython_display_formatter.type_printers
        )
        return printers


def cell_ids(shell: InteractiveShell) -> tuple[str, str]:
    """Return the ids of the cell that runs and of this execution, "" where unknown."""
    parent = parent_message(shell)
    cell_id = parent.get("metadata", {}).get("cellId") or ""
    return cell_id, parent.get("header", {}).get("msg_id", "")


NO_VALUE = object()  # what a function's own name has where it was not assigned


def own_names() -> dict[str, object]:
    """Return the names of the function that a line magic is in, without their values.

    With those of enclosing functions that are running: no global has these names.
    """
    names: dict[str, object] = {}
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - IPython looks so, too
    while frame and frame.f_code.co_name != "run_line_magic":
        frame = frame.f_back
    frame = frame and frame.f_back
    code = frame.f_code if frame else None
    while frame:
        found = frame.f_code
        if found is code or code in found.co_consts:
            own = (*found.co_varnames, *found.co_cellvars, *found.co_freevars)
            names.update(dict.fromkeys(own, NO_VALUE))
            code = found
        frame = frame.f_back
    return names


@contextmanager
def calm_interrupt(
    shell: InteractiveShell, mode: Callable[[], Mode], is_sending: Callable[[], bool]
) -> Iterator[None]:
    """Keep IPython from drawing an interrupt, which the output of the reply says.

    One that came while no stream was followed is said here, in one line.

    The cell fails all the same, so the cells that wait behind it do not run.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        if mode() is not Mode.SETTLED:  # else the file must tell that the cell failed
            _hide_interrupt(shell)
        if isinstance(stopped, Interrupted):
            raise
        footer = "" if is_sending() else "nothing was sent"
        said = Final(texts=(), marks=("interrupted",), footer=footer)
        ReplyDisplay.open(mode(), own_output=False).finish(said)
        raise Interrupted from None


def _hide_interrupt(shell: InteractiveShell) -> None:
    show = type(shell)._showtraceback  # noqa: SLF001 - IPython asks it to draw errors

    def show_others(kind: type, error: BaseException, lines: list[str]) -> None:
        if isinstance(error, Interrupted):
            vars(shell)["_last_traceback"] = lines  # what a kernel replies with
        else:
            show(shell, kind, error, lines)

    def end(*_: object) -> None:
        vars(shell).pop("_showtraceback", None)
        shell.events.unregister("post_run_cell", end)

    vars(shell)["_showtraceback"] = show_others
    shell.events.register("post_run_cell", end)


class CellRequestIds:
    """Numbers the requests of each execution of a cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._execution = ""
        self._n_requests = 0

    def next(self) -> str | None:
        """Return the next request's id; None in a front end without cell ids."""
        cell_id, execution = cell_ids(self._shell)
        if not cell_id:
            return None
        if execution != self._execution:
            self._execution, self._n_requests = execution, 0
        self._n_requests += 1
        return f"{cell_id}.{self._n_requests}"


@contextmanager
def short_errors(*, is_on: bool = True, is_terminal: bool = False) -> Iterator[None]:
    """Show our own errors as one box; everything else keeps its traceback."""
    try:
        yield
    except SvcError as error:
        if not is_on:
            raise
        box = error_box(error, is_terminal=is_terminal)
        # IPython asks the instance; the class stays free of any notebook. In one piece:
        # a notebook that becomes a Markdown page has a blank line after each.
        error._render_traceback_ = lambda: [box]  # type: ignore[attr-defined]
        raise


def hint_at_model(
    error: UnknownModelError, model: str, models: Iterable[Model]
) -> None:
    """Name the known model that a misspelt one may have meant."""
    names = [each.id for each in models]
    hint = did_you_mean(model.lower(), names, n=1)
    if hint and model not in names:
        error.add_note(f"The model asked for is {model!r}.{hint}")


Draw = Callable[[Completion], Final]
MAX_PLACES = 20


@dataclass(slots=True)
class Place:
    """Where a reply is shown."""

    cell: tuple[str, str]  # ids of the cell and of its execution
    number: int  # of the execution, as in `In [3]`
    display: ReplyDisplay
    draw: Draw
    output: str | None  # name of the variable that has the reply
    run_again: str = ""  # a later execution of the cell


class Places:
    """Where the newest replies are shown, by the ids of their exchanges."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._known: dict[str, Place] = {}
        shell.events.register("pre_run_cell", self.note_run)

    def close(self) -> None:
        """Follow the cells no longer."""
        self._shell.events.unregister("pre_run_cell", self.note_run)

    def here(self, display: ReplyDisplay, draw: Draw, output: str | None) -> Place:
        """Return a place in the cell that runs."""
        # IPython counts on before the cell or after it
        number = len(getattr(self._shell.history_manager, "input_hist_raw", ())) - 1
        return Place(cell_ids(self._shell), number, display, draw, output)

    def put(self, exchange_id: str, place: Place) -> None:
        """Note where a reply is shown; the oldest note goes."""
        self._known[exchange_id] = place
        if len(self._known) > MAX_PLACES:
            del self._known[next(iter(self._known))]

    def find(self, exchange_id: str) -> Place | None:
        """Return where a reply is, or refuse if its cell ran again, not as this one."""
        found = self._known.get(exchange_id)
        if found and found.run_again not in {"", cell_ids(self._shell)[1]}:
            raise ParameterError(
                f"The cell of this reply, [{found.number}], was run again since, so "
                "the reply is not there any more. Ask again.",
                param="line",
            )
        return found

    def note_run(self, *_: object) -> None:
        """Note that a cell begins to run."""
        cell_id, execution = cell_ids(self._shell)
        for place in self._known.values():
            if cell_id == place.cell[0] != "" and execution != place.cell[1]:
                place.run_again = execution


class ReplyView:
    """Shows one reply: while it streams, then as `draw` makes its final form."""

    def __init__(self, display: ReplyDisplay, draw: Draw) -> None:
        self._display = display
        self._draw = draw

    def show(self, delta: Delta) -> None:
        """Show a piece of the reply, or that the model reasons."""
        self._display.add(delta.text or "", delta.index)
        if delta.reasoning and not delta.text:
            self._display.status(REASONING)

    def wait(self, wait: Wait) -> None:
        """Show a wait."""
        self._display.wait(wait)

    def flush(self) -> float | None:
        """Show what is new, if it is time; else return the seconds until then."""
        return self._display.flush()

    def end(self, completion: object | None) -> None:
        """Show the final form of what arrived."""
        has_reply = isinstance(completion, Completion) and completion.choices
        self._display.finish(self._draw(completion) if has_reply else None)  # type: ignore[arg-type]  # just tested


def interrupted(partial: object) -> Final:
    """Return what is shown of an interrupt before the first words."""
    if isinstance(partial, Completion):
        return partial.final()
    return Final(texts=(), marks=("interrupted",), footer="nothing was sent")


_PYTHON = {"python", "py", "python3", "ipython", "ipython3"}
# A line that IPython gives to a shell, or to a magic such as `%%bash`.
_ACTING = re.compile(r"(?m)^(?:[\w, \t]*=)?[ \t]*((?:!|%%?[A-Za-z]).*)")


@dataclass(frozen=True, slots=True)
class NextCell:
    """The code for the next cell, if any, and what the footer says about it."""

    code: str | None = None
    note: str = ""

    def put(self, shell: InteractiveShell) -> str:
        """Put the code there, if any; return the note as a sentence, or with it."""
        said = self.note[:1].upper() + self.note[1:]
        if self.code is not None and not _can_put():
            return f"{said}\n{self.code}"
        if self.code is not None:
            shell.set_next_input(self.code)
        return said


def _can_put() -> bool:
    """Whether this front end shows a next cell; a simple prompt has none."""
    return not getattr(get_ipython(), "simple_prompt", False)


def next_cell(completion: Completion, mode: Mode) -> NextCell:
    """Choose the code of a reply: the first Python block, or else the first."""
    if completion.is_partial:
        return NextCell()
    found = fences(completion.text)
    if not found:
        return NextCell(note="no code block in the reply")
    python = (n for n, each in enumerate(found) if each.language in _PYTHON)
    return _to_next(found, next(python, 0), mode)


def chosen_cell(completion: Completion | None, word: str, mode: Mode) -> NextCell:
    """Take the code block that `%svc insert` names, counted from 1."""
    if not word.isdecimal():
        raise command_or_question(f"insert {word}", "insert")
    texts = completion.texts if completion else ()
    found = [each for text in texts for each in fences(text)]
    if not found:
        has_none = "The last reply has no code block."
        return NextCell(note=has_none if texts else "This kernel has no reply yet.")
    if not 1 <= int(word) <= len(found):
        lines = [f"%svc insert {word}: the last reply has no such code block. It has:"]
        for number, each in enumerate(found, 1):
            first = each.code.strip().partition("\n")[0]
            line = f"{number}  {each.language[:20] or 'code'}  {first}"
            lines.append(shorten(line, LINE_CHARS))
        raise ParameterError("\n".join(lines), param="line")
    return _to_next(found, int(word) - 1, mode)


def _to_next(found: Sequence[Fence], place: int, mode: Mode) -> NextCell:
    """Put a block into the next cell where somebody sees it before it can run."""
    if mode is Mode.SETTLED:
        return NextCell(note="not interactive: the code was not put into a new cell")
    chosen = found[place]
    which = f"code block {place + 1} of {len(found)}" if len(found) > 1 else "the code"
    words = [] if chosen.language in {"", *_PYTHON} else [chosen.language[:20]]
    words += [] if chosen.is_closed else ["unfinished"]
    kind = f" ({', '.join(words)})" if words else ""
    note = f"{which}{kind} is in the next cell, and was not run"
    if not _can_put():
        note = f"{which}{kind} was not run; a simple prompt has no next cell: copy it"
    code = visible(chosen.code.removesuffix("\n"))
    if acting := _ACTING.search(code):
        line = code.count("\n", 0, acting.start(1)) + 1
        note += f"; look at line {line}: {shorten(acting[1], 40)}"
    return NextCell(code, note)


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def lay_out(final: Final, layout: str | None, mode: Mode) -> Final:
    """Return the final form in one of `options.LAYOUTS`; None is markdown."""
    if layout == "text":
        return replace(final, is_verbatim=True)
    if layout == "json":
        return _as_json(final)
    if layout == "html" and mode is not Mode.PLAIN:
        texts = tuple(_block(text, {"html"}) for text in final.texts)
        return replace(final, texts=texts, is_page=True)
    return replace(final, is_verbatim=layout == "html")


def _as_json(final: Final) -> Final:
    found = [_json_of(text) for text in final.texts]
    texts = tuple(text for text, _ in found)
    noted = final.with_notes(*(why for _, why in found))
    return replace(noted, texts=texts, is_verbatim=True)


def _json_of(text: str) -> tuple[str, str]:
    """Return indented JSON; else the text as it is, and why it is not JSON."""
    source = _block(text, {"json", ""})
    try:
        json.loads(source, parse_constant=_refuse)
        return _indented(source), ""
    except json.JSONDecodeError as error:
        return text, f"not JSON: {error.msg}, line {error.lineno} column {error.colno}"
    except (ValueError, RecursionError) as error:
        return text, f"cannot be read as JSON: {error}"


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not allowed")


def _block(text: str, languages: set[str]) -> str:
    """Return the only block of these languages, else the whole text."""
    found: list[Fence] = [each for each in fences(text) if each.language in languages]
    return found[0].code if len(found) == 1 else text


def _indented(source: str) -> str:
    """Indent valid JSON; numbers stay as written, escapes of letters become letters."""
    return _STRING.sub(
        lambda found: json.dumps(json.loads(found[0]), ensure_ascii=False),
        msgspec.json.format(source, indent=2),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A request that was not sent."""

    request: CompletionRequest
    notes: tuple[str, ...] = ()  # what the footer would say
    wait: str = ""  # how long it would wait for a limit, in words

    @property
    def prompt_tokens(self) -> Tokens:
        """Estimated tokens of the prompt."""
        return estimate_prompt_tokens(self.request.messages, self.request.tools)

    @property
    def room_tokens(self) -> int:
        """Estimated tokens that the prompt leaves; below 0 if too long."""
        return self.request.context_tokens - self.prompt_tokens.best

    @property
    def lines(self) -> tuple[str, ...]:
        """The figures, in words."""
        sent = {**self.request.params, **self.request.extra}
        params = ", ".join(f"{name}={value!r}" for name, value in sent.items())
        tools, prompt = self.request.tools, self.prompt_tokens
        names = ", ".join(str(each["function"]["name"]) for each in tools)
        offered = (
            f"tools offered, about {estimate_prompt_tokens((), tools).best} tokens"
        )
        size = f"prompt about {prompt.best} tokens (estimated: {prompt})"
        fit = "; max_tokens by fit is smaller: it counts with the upper estimate"
        return (
            f"model {self.request.model}; parameters sent: {params or 'none'}",
            f"{size}; room left in {self.request.context_tokens}: {self.room_tokens}"
            + fit * self.request.is_fitted,
            self.wait or "no limit would make it wait now",
            *([f"{offered}: {names}"] if tools else []),
            *self.notes,
        )

    def __repr__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        entries = [
            Entry(heading=message.role, text=message.content or "")
            for message in self.request.messages
        ]
        figures = Entry(heading="would be sent with", text="\n".join(self.lines))
        return transcript("Dry run: nothing was sent", [*entries, figures])
