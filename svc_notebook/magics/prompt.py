"""From a magic line and its cell to the request, with notes for the footer."""

import inspect
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unicodedata import normalize

from svc_notebook.completion import Completion
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.conversations.turn_requests import NextTurn
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Origin
from svc_notebook.service.checks import did_you_mean
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.template import fill, wrong_marks
from svc_notebook.tokens import MaxTokens, estimate_tokens, with_max_tokens
from svc_notebook.tools.results import cut_table, is_pandas

from .cell import last_error
from .error_report import to_report, versions
from .options import SvcOptions
from .subcommands import EXPLAIN, FIX

CAP_TOKENS = 1500  # of one table or item, so that 8192 hold a few and a reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A value that was put into a prompt."""

    name: str
    text: str
    kind: str

    @property
    def n_tokens(self) -> int:
        """Estimated tokens of the text."""
        return estimate_tokens(self.text).best

    @property
    def note(self) -> str:
        """The footer's words for it."""
        plural = "s"[: self.n_tokens != 1]
        return f"{self.name} ({self.kind}, about {self.n_tokens} token{plural})"


def to_item(name: str, value: object) -> Item:
    """Write a variable as text; a table has at most `CAP_TOKENS`."""
    try:
        if isinstance(value, str):
            return Item(name=name, text=value, kind="text")
        if is_pandas(value, "DataFrame", "Series"):
            return _table(name, value)
        return Item(name=name, text=_source(value), kind=type(value).__name__)
    except Exception as error:
        kind = type(value).__name__
        raise ParameterError(
            f"{name} cannot be put into a prompt: converting this {kind} to text "
            f"raised {type(error).__name__}. Convert it to text yourself first.",
            param="messages",
        ) from error


def _source(value: object) -> str:
    """Return the source of a function or class, and `str` of anything else."""
    if inspect.isfunction(value) or inspect.isclass(value):
        with suppress(OSError, TypeError):
            return inspect.getsource(value)
    return str(value)


def _table(name: str, value: object) -> Item:
    table = cut_table(value, CAP_TOKENS)
    cut = f"; {table.cut} follow" if table.cut else ""
    head = f"{table.kind} {name}, {table.shape}{cut}:"
    return Item(
        name=name,
        text="\n".join([head, *table.lines]),
        kind=f"{table.kind} {table.shape}{', cut to ' + table.cut if cut else ''}",
    )


_CELL = re.compile(r"(In|Out)\[(\d+)\]")
_FENCE = re.compile(r"`{3,}")


def add_items(prompt: str, items: Sequence[Item]) -> str:
    """Return the prompt with the items below it, each under its name."""
    blocks = [prompt]
    for item in items:
        longest = max((len(run) for run in _FENCE.findall(item.text)), default=2)
        fence = "`" * (longest + 1)
        blocks.append(f"{item.name}:\n{fence}\n{item.text}\n{fence}")
    return "\n\n".join(blocks)


def _find(name: str, names: Mapping[str, Any]) -> Item:
    """Find what `--with` names: a variable, In[3], Out[3] or Err."""
    cell = _CELL.fullmatch(name)
    if name == "Err":
        return _last_error()
    if cell:
        return _cell(name, cell[1], int(cell[2]), names)
    if name in names:
        return to_item(name, names[name])
    raise ParameterError(
        f"--with {name}: this variable does not exist.{_near(name, names)} Give "
        "variables, In[3], Out[3] and Err, separated by commas.",
        param="with",
    )


def _cell(name: str, kind: str, number: int, names: Mapping[str, Any]) -> Item:
    cells = names.get(kind, {})
    has_it = number in cells if isinstance(cells, dict) else 0 < number < len(cells)
    if not has_it:
        what = "was not run" if kind == "In" else "has no value"
        raise ParameterError(
            f"--with {name}: cell {number} {what} in this kernel.", param="with"
        )
    return to_item(name, cells[number])


def _last_error() -> Item:
    error = last_error()
    if error is None:
        raise ParameterError(
            "--with Err: no cell has failed in this kernel yet.", param="with"
        )
    return Item(name="Err", text=to_report(error).text, kind="the last error")


TASKS = {
    FIX: "A notebook cell fails. Write the corrected cell as a whole, in one Python "
    "code block. Then say in one or two sentences what was wrong.",
    EXPLAIN: "A notebook cell fails. Explain the error: what it means, what causes it "
    "here, and how to correct it.",
}
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)


def error_prompt(task: str, names: Mapping[str, Any]) -> tuple[str, str]:
    """Write a question about the user's last error, "" without one, and a note on it.

    Besides cells and traceback, versions are all that is told of this machine.
    """
    error = last_error()
    if error is None:
        return "", f"No cell of this kernel has failed; nothing to {task}.\n"
    report = to_report(error)
    cells = [each for each in report.cells if each < len(names["In"])]
    sources = [names["In"][each].strip("\n") for each in cells]
    named = [f"Cell In[{each}]" for each in cells]
    named[:1] = [f"{each} (failed)" for each in named[:1]]
    items = [
        _capped(Item(name=name, text=source, kind="cell"), 2 * CAP_TOKENS // len(named))
        for name, source in zip(named, sources, strict=True)
    ]
    items.append(_capped(Item(name="Traceback", text=report.text, kind="error")))
    code = "\n".join(sources)
    values = (names.get(word) for word in set(re.findall(r"\w+", code)))
    used = {each.__name__ for each in values if isinstance(each, ModuleType)}
    modules = report.modules.union(_IMPORT.findall(code), used)
    where = f" of In[{cells[0]}]" if cells else ""
    note = f"the last error{where}: {type(error).__name__}"
    return f"{add_items(TASKS[task], items)}\n\nVersions: {versions(modules)}", note


def _capped(item: Item, most_tokens: int = CAP_TOKENS) -> Item:
    """Cut the middle out of an item that is longer than the cap allows."""
    if item.n_tokens <= most_tokens:
        return item
    whole, n_whole = item.text, len(item.text)

    def ends(n_chars: int) -> tuple[str, str]:
        n_last = n_chars // 3
        return whole[: n_chars - n_last], whole[n_whole - n_last :]

    n_chars = bisect_right(
        range(n_whole + 1),
        most_tokens,
        key=lambda n: estimate_tokens("".join(ends(n))).best,
    )
    first, last = ends(n_chars - 1)
    cut = f"cut to {n_chars - 1} of {n_whole} characters"
    text = f"{first}\n[{cut}; the middle is left out]\n{last}"
    return replace(item, text=text, kind=f"{item.kind}, {cut}")


def interpolate(
    template: str, names: Mapping[str, object], *, hide: Callable[[str], str] = str
) -> tuple[str, tuple[Item, ...]]:
    """Replace `{{name}}` marks by values without keys; return what was put in, too."""
    items: dict[str, Item] = {}

    def text_of(typed: str) -> str:
        name = normalize("NFKC", typed)  # as Python keeps names
        if name not in names:
            raise _unknown(typed, names)
        if name not in items:
            item = to_item(name, names[name])
            items[name] = replace(item, text=hide(item.text))
        return items[name].text

    text = fill(template, text_of) if "{{" in template else template
    return text, tuple(items.values())


def _unknown(name: str, names: Mapping[str, object]) -> ParameterError:
    return ParameterError(
        f"{{{{{name}}}}}: this notebook has no such variable.{_near(name, names)} "
        f"Define it first, write \\{{{{{name}}}}} for the plain text, or use --raw.",
        param="messages",
    )


def _near(name: str, names: Mapping[str, object]) -> str:
    return did_you_mean(name, (each for each in names if not each.startswith("_")))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPrompt:
    """What a cell asks for, with variables put in and defaults applied."""

    text: str
    system: str | None  # "" for none, None if not given
    model: str
    params: Mapping[str, Any]  # without max_tokens; `tools` are definitions
    max_tokens: MaxTokens
    notes: tuple[str, ...] = ()  # for the footer


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """A cell's request; `keep` takes its reply into the conversation, if any."""

    request: CompletionRequest
    origin: Origin
    notes: tuple[str, ...] = ()  # for the footer
    keep: Callable[[Completion], None] = lambda _: None


def to_prompt(
    options: SvcOptions,
    cell: str,
    *,
    names: Mapping[str, object],
    defaults: Mapping[str, Any],
    hide: Callable[[str], str] = str,
) -> CellPrompt:
    """Read a line and its cell; `hide` hides the API key in what is put in."""
    system = defaults.get("system") if options.system is None else options.system
    text, items = cell, tuple[Item, ...]()
    if not options.is_raw:
        text, items = interpolate(cell, names, hide=hide)
        system = interpolate(system, names, hide=hide)[0] if system else system
    apart = {"model", "system", "max_tokens"}
    given = {name: value for name, value in defaults.items() if name not in apart}
    asked = options.max_tokens
    found = (_capped(_find(name, names)) for name in options.context)
    added = tuple(replace(item, text=hide(item.text)) for item in found)
    put_in = ", ".join(dict.fromkeys(item.note for item in (*items, *added)))
    notes = [f"put in: {put_in}"] if put_in else []
    notes += [
        f"{mark} contains spaces and was sent as typed"
        for mark in (() if options.is_raw else wrong_marks(cell))
        if mark[2:-2].strip() in names
    ]
    return CellPrompt(
        text=add_items(text, added),
        system=system,
        model=options.model or defaults["model"],
        params={**given, **options.params},
        max_tokens=defaults.get("max_tokens") if asked is None else asked,
        notes=tuple(notes),
    )


def single_request(prompt: CellPrompt) -> CellRequest:
    """Build the request of a cell without a conversation."""
    system = prompt.system or None
    request = build_request(
        prompt.text, model=prompt.model, system=system, params=prompt.params
    )
    return CellRequest(
        request=with_max_tokens(request, prompt.max_tokens),
        origin=Origin(kind="magic"),
        notes=prompt.notes,
    )


def conversation_request(
    prompt: CellPrompt, conversation: Conversation, *, place: str | None = None
) -> CellRequest:
    """Build the request of a cell that continues a conversation.

    `place` names the cell's turn, so that running the cell again asks it again. A
    system message is the conversation's once it was answered.
    """
    older = conversation.older_note()
    turn = conversation.next_turn(
        prompt.text,
        model=prompt.model,
        params=prompt.params,
        max_tokens=prompt.max_tokens,
        origin_kind="magic",
        place=place,
        system=prompt.system,
    )

    def keep(completion: Completion) -> None:
        if prompt.system is not None:
            conversation.system = prompt.system or None
        conversation.record(turn, completion)

    return CellRequest(
        request=turn.request,
        origin=turn.origin,
        notes=tuple(filter(None, (*_turn_notes(turn), older, *prompt.notes))),
        keep=keep,
    )


def _turn_notes(turn: NextTurn) -> tuple[str, ...]:
    """Note what a reader must know about a turn: asked again, stale, turns left out."""
    notes = [f"conversation {turn.origin.conversation}"]
    if turn.is_again:
        notes.append("asked again, the earlier answer is kept as a version")
    if turn.n_later:
        turns = "turn is" if turn.n_later == 1 else "turns are"
        notes.append(f"{turn.n_later} later {turns} now stale")
    return (*notes, turn.fitted.note)
