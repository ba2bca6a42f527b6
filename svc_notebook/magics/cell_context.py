"""The context of one `%svc` run: shell, session, defaults, variables, memory.

The memory lasts as long as the kernel: the requests of its cells, and which cell shows
which reply.
"""

import builtins
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from svc_notebook import Completion
from svc_notebook.display.front_end import (
    Output,
    can_answer,
    cell_ids,
    fitted_to_terminal,
    parent_message,
)
from svc_notebook.display.html_styles import verbatim_message_html
from svc_notebook.display.reply_display import Final, Mode, ReplyDisplay
from svc_notebook.errors import ParameterError
from svc_notebook.service.request import CompletionRequest
from svc_notebook.session import Context, Session, current

from .config_traits import SvcTraits

if TYPE_CHECKING:  # it loads with the first conversation
    from svc_notebook import Conversation


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


MAX_PLACES = 20  # replies whose place is remembered


@dataclass(slots=True)
class Place:
    """Where a reply is shown: the cell, its execution and the display."""

    cell: tuple[str, str]  # ids of the cell and of its execution
    number: int  # of the execution, as in `In [3]`
    display: ReplyDisplay
    draw: Callable[[Completion], Final]
    output: str | None  # name of the variable that has the reply
    run_again: str = ""  # a later execution of the cell


class Places:
    """Remembers where the newest replies are shown, by the ids of their exchanges."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._known: dict[str, Place] = {}
        self._stops: dict[Conversation, Callable[[], None]] = {}
        shell.events.register("pre_run_cell", self.note_run)

    def close(self) -> None:
        """Stop watching which cells run, and what becomes of their replies."""
        self._shell.events.unregister("pre_run_cell", self.note_run)
        for stop in self._stops.values():
            stop()

    def here(
        self,
        display: ReplyDisplay,
        draw: Callable[[Completion], Final],
        output: str | None,
    ) -> Place:
        """Return a place in the running cell."""
        # not `execution_count`: some versions of IPython raise it before the cell runs
        number = len(getattr(self._shell.history_manager, "input_hist_raw", ())) - 1
        return Place(cell_ids(self._shell), number, display, draw, output)

    def put(self, exchange_id: str, place: Place) -> None:
        """Remember where a reply is shown; forget the oldest beyond `MAX_PLACES`."""
        self._known[exchange_id] = place
        if len(self._known) > MAX_PLACES:
            del self._known[next(iter(self._known))]

    def find(self, exchange_id: str) -> Place | None:
        """Return where a reply is shown; refuse if its cell was run again since."""
        place = self._known.get(exchange_id)
        if place and place.run_again not in {"", cell_ids(self._shell)[1]}:
            raise ParameterError(
                f"The cell of this reply, [{place.number}], was run again since, so "
                "the reply is not there any more. Ask again.",
                param="line",
            )
        return place

    def watch(self, session: Session, conversation: "Conversation") -> None:
        """Add to replies in their cells what a panel or Python asks for as the rest."""
        if conversation not in self._stops:
            show_rests = partial(self._show_rests, session, conversation)
            self._stops[conversation] = conversation.on_change(show_rests)

    def _show_rests(self, session: Session, conversation: "Conversation") -> None:
        versions = (turn.versions for turn in conversation.turns)
        for version in chain.from_iterable(versions):
            place = self._known.get(version.first_id)
            is_known = version.exchange_id in self._known
            is_copy = not version.session_id  # of a turn of another conversation
            if not place or place.run_again or is_known or is_copy:
                continue
            self.put(version.exchange_id, place)
            newest = session.ledger.last(scope="all", exchange_id=version.exchange_id)
            so_far = newest.request.messages[-2].content if newest else None
            if newest and so_far and place.display.reopen(so_far):
                whole = session.context().joined(newest)
                place.display.add(whole.text.removeprefix(so_far))
                place.display.finish(place.draw(whole))

    def note_run(self, *_: object) -> None:
        """Note that a cell begins to run."""
        cell_id, execution = cell_ids(self._shell)
        for place in tuple(self._known.values()):  # a panel's thread may add one
            if cell_id == place.cell[0] != "" and execution != place.cell[1]:
                place.run_again = execution


@dataclass(slots=True)
class KernelMemory:
    """What the magic remembers from one cell to the next."""

    request_ids: CellRequestIds
    places: Places
    # the request that `%svc fix` showed, and the execution of the cell
    shown_fix: tuple[CompletionRequest, object] | None = None
    noted: set[str] = field(default_factory=set)  # names in single braces, and advice
    # the execution that first put code below a cell, by cell, its text, and the code
    put_codes: dict[tuple[str, str, str], str] = field(default_factory=dict)
    # system prompts of conversations that were said to be in use, or given in a cell;
    # and whether they were given in a cell
    noted_systems: dict[str, tuple[str, bool]] = field(default_factory=dict)


NO_VALUE = object()  # of a function's variable that was not assigned yet


def names_of_functions() -> dict[str, object]:
    """Return the variables of the function that calls a line magic, without values.

    They hide globals of the same name, even before they are assigned. Variables of
    enclosing functions are included while those functions run.
    """
    names: dict[str, object] = {}
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as IPython does
    while frame and frame.f_code.co_name != "run_line_magic":
        frame = frame.f_back
    frame = frame and frame.f_back
    code = frame.f_code if frame else None
    while frame:
        outer = frame.f_code
        if outer is code or code in outer.co_consts:
            own = (*outer.co_varnames, *outer.co_cellvars, *outer.co_freevars)
            names.update(dict.fromkeys(own, NO_VALUE))
            code = outer
        frame = frame.f_back
    return names


@dataclass
class CellContext:
    """One run of `%svc` or `%%svc`: the shell, the defaults, the session, the memory.

    The session is looked up once, so that it stays the same for the whole run.
    """

    shell: InteractiveShell
    traits: SvcTraits
    memory: KernelMemory
    # Variables of the function that the line is in; they hide all others.
    local_names: Mapping[str, object] = field(default_factory=dict)
    is_sending: bool = False  # whether a request may have been sent
    notes_above: list[str] = field(default_factory=list)  # on the prompt
    # what remembers the notes that are said once in a kernel
    remember: list[Callable[[], object]] = field(default_factory=list)

    @cached_property
    def session(self) -> Session:
        """This kernel's session."""
        return current()

    @cached_property
    def session_context(self) -> Context:
        """The settings and clients that the cell uses, fixed at their first use."""
        return self.session.context()

    @cached_property
    def hide(self) -> Callable[[str], str]:
        """A function that hides the keys of this kernel in a text."""
        return self.session_context.key_hider()

    @cached_property
    def mode(self) -> Mode:
        """How replies are shown here; the setting `display` and the shell decide it."""
        setting = self.session_context.settings.display
        if setting != "auto":
            return Mode(setting)
        if self.is_terminal:
            return Mode.PLAIN
        return Mode.LIVE if can_answer(self.shell) else Mode.SETTLED

    @property
    def is_terminal(self) -> bool:
        """Whether this is IPython in a terminal, without a kernel."""
        return getattr(self.shell, "kernel", None) is None

    @property
    def owns_output(self) -> bool:
        """Whether the cell is only this magic, so that its output may be cleared."""
        code = parent_message(self.shell).get("content", {}).get("code", "")
        return str(code).lstrip().startswith("%%svc")

    def names(self) -> dict[str, object]:
        """Return the variables that the line can use; those of its function come first.

        `In` holds the cells before this one, as they were typed.
        """
        cells = getattr(self.shell.history_manager, "input_hist_raw", [])
        content = parent_message(self.shell).get("content", {})
        n_before = len(cells) - bool(content.get("store_history", True))
        names = {**self.shell.user_ns, **self.local_names}
        return {**names, "In": cells[:n_before]}

    def own_names(self) -> tuple[str, ...]:
        """Return the names of the user's variables: not the shell's, no modules."""
        of_shell = self.shell.user_ns_hidden
        names = {**self.shell.user_ns, **self.local_names}
        return tuple(
            name
            for name, value in names.items()
            if not (name in of_shell and of_shell[name] is value)
            and not isinstance(value, ModuleType)
        )

    def check_output(self, name: str | None) -> None:
        """Refuse an `-o NAME` that must not be overwritten, before anything is sent."""
        is_of_shell = name in self.shell.user_ns_hidden
        reason = "belongs to the shell" if is_of_shell else ""
        if name and not name.startswith("_") and hasattr(builtins, name):
            reason = "is Python's own"
        if isinstance(self.shell.user_ns.get(name or ""), ModuleType):
            reason = "is a module"
        if reason:
            raise ParameterError(
                f"-o {name}: this name {reason} and would be lost. Use another, as in "
                "-o answer.",
                param="output",
            )

    def say(self, text: str, html: str = "") -> None:
        """Show a text that is safe to print; its lines are broken at blanks.

        What is printed, a narrow cell or a terminal breaks within words. A cell shows
        the HTML, if there is one.
        """
        if self.is_terminal:
            Output().write(f"{fitted_to_terminal(text)}\n")
            return
        html = html or verbatim_message_html(text)
        Output().publish({"text/html": html, "text/plain": text}, None)

    def say_above(self, *, is_dry: bool = False) -> None:
        """Say the notes on the prompt, above the reply.

        Called when nothing can refuse the request any more, so that no refused cell
        uses up a note that is said once; nor does a dry run.
        """
        for note in self.notes_above:
            self.say(note)
        self.notes_above.clear()
        for remember in () if is_dry else self.remember:
            remember()

    def put(self, output: str | None, value: object) -> None:
        """Assign a value to the variable that `-o` names, if there is one."""
        if output:
            self.shell.push({output: value})

    def show(self, value: object, output: str | None) -> object:
        """Display a value now, since its line may not be the cell's last; return it."""
        self.put(output, value)
        display(value)
        HiddenResult(self.shell, value)
        return value


class HiddenResult:
    """Stops IPython from displaying a cell's value, which is shown already."""

    def __init__(self, shell: InteractiveShell, value: object) -> None:
        self._shell = shell
        self._value = value
        self._printers()[type(value)] = self._display_other
        if getattr(shell, "kernel", None) is None:
            # A terminal prints "Out[3]:" before it formats the value.
            hook = vars(shell.displayhook)
            hook["write_output_prompt"] = lambda: None
            hook["compute_format_data"] = self._format
        shell.events.register("post_run_cell", self._end)

    def _display_other(self, value: object) -> None:
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
        with suppress(ValueError):  # it is removed already
            self._shell.events.unregister("post_run_cell", self._end)

    def _printers(self) -> dict[type, Callable[[object], None]]:
        """Return the printers that IPython tries first; if one prints, it stops."""
        formatter = self._shell.display_formatter
        if formatter is None:
            return {}
        printers: dict[type, Callable[[object], None]] = (
            formatter.ipython_display_formatter.type_printers
        )
        return printers
