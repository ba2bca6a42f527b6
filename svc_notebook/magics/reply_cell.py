"""One reply in a cell: while it streams, in its final form, or as a dry run."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from svc_notebook.completion import Completion
from svc_notebook.display.live import Mode, ReplyDisplay
from svc_notebook.display.markdown import Fence, fences
from svc_notebook.display.markup import visible
from svc_notebook.display.output import Wait
from svc_notebook.display.reply import REASONING, Entry, Final, transcript
from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import shorten
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import Tokens, estimate_prompt_tokens

from .cell import cell_ids
from .error_box import LINE_CHARS
from .subcommands import command_or_question

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
        fit = "; max_tokens by fit is less, for the most that the prompt may have"
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
