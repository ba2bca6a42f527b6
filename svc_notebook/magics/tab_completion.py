"""Tab completion: options, values, models, commands and `{{variables}}`.

It completes lines that begin with `%svc` or `%%svc`, and names after `{{` in the body
of a `%%svc` cell. It sends nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from types import ModuleType
from typing import NamedTuple

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
)
from IPython.core.interactiveshell import InteractiveShell

from svc_notebook import Conversation
from svc_notebook.display.escape import in_a_line
from svc_notebook.service.catalogue import MODELS, Model
from svc_notebook.service.params import shorten
from svc_notebook.session import current
from svc_notebook.svc_use import endpoint_notes

from .as_option import known_types
from .config_traits import CONFIRMATIONS
from .options import ASK, BY_FLAG, LAYOUTS, OPTIONS, Option
from .subcommands import COMMANDS
from .tools_command import tool_notes

_LINE = re.compile(r"\s*%{1,2}svc(?:\s|$)")
_CELL_LINE = re.compile(r"\s*%%svc(?:\s|$)")
_MARK = re.compile(r"\{\{[ \t]*(\w*)$")
_TAKE_A_NAME = [command.name for command in COMMANDS if command.takes_name]
_UNBROKEN = str.maketrans(" -", "\xa0\N{NON-BREAKING HYPHEN}")
_PROMPT_CHARS = 40  # of a turn's prompt
_TAKE_A_TURN = [command.name for command in COMMANDS if "TURN" in command.arguments]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text to insert, and a note on what it is."""

    text: str
    note: str


_CONTEXT = (
    Suggestion("Err", "the last error"),
    Suggestion("In[", "the code of a cell: In[3], or In[-1], the last"),
    Suggestion("Out[", "the value of a cell: Out[3], or Out[-1], the newest"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    """The suggestions at the cursor, in the order to show them."""

    fragment: str  # the text before the cursor that an item replaces
    items: tuple[Suggestion, ...]  # at least one


class KnownTurn(NamedTuple):
    """A turn of a conversation."""

    prompt: str  # its beginning
    versions: Sequence[str]  # the model and the prompt of each


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """The names in this kernel that can be typed."""

    variables: tuple[tuple[str, str], ...] = ()  # each with its type
    conversations: tuple[str, ...] = ()
    turns: Mapping[str, Sequence[KnownTurn]] = field(default_factory=dict)  # by name
    tools: tuple[tuple[str, str], ...] = ()  # each with a note
    types: tuple[tuple[str, str], ...] = ()  # each with a note
    models: tuple[Model, ...] = MODELS
    endpoints: tuple[tuple[str, str], ...] = ()  # each with a note


def suggest(
    lines: Sequence[str], known: KnownNames, *, after: str = ""
) -> Suggestions | None:
    """Return suggestions for the cursor, at the end of the lines, or None.

    Without suggestions, IPython completes. `after` is the text after the cursor.
    """
    line = lines[-1]
    is_line = _LINE.match(line) is not None
    is_body = len(lines) > 1 and _CELL_LINE.match(lines[0]) is not None
    if not (is_line or is_body):
        return None
    mark = _MARK.search(line)
    if mark:
        closing = "" if after.startswith("}}") else "}}"
        return _starting_with(
            mark[1], starmap(Suggestion, known.variables), closing=closing
        )
    return _on_line(line, known) if is_line else None


def _on_line(line: str, known: KnownNames) -> Suggestions | None:
    *before, fragment = re.split(r"\s+", line.lstrip())
    flag, has_value, value = fragment.partition("=")
    if has_value and flag in BY_FLAG:
        return _starting_with(value, _values(BY_FLAG[flag], value, known))
    return _starting_with(fragment, _next_words(before, fragment, known))


def _next_words(
    before: list[str], fragment: str, known: KnownNames
) -> Iterable[Suggestion]:
    """Return suggestions for the word after these words."""
    option = BY_FLAG.get(before[-1]) if before else None
    if option and option.value:
        return _values(option, fragment, known)
    if before == ["%svc"] and not fragment.startswith("-"):
        return (*_commands(), Suggestion(ASK, "send the words after it as a question"))
    if before in (["%svc", "help"], ["%svc", "use"]):
        return _topics() if before[1] == "help" else _in_use(known)
    if command := _command_on_turns(before, known):
        return _places(command[0], command[1:], known)
    if before[:2] == ["%svc", "tools"]:
        return _tool_words(before[2:], known)
    is_open = before and (fragment.startswith("-") or not fragment)
    return _flags() if is_open else ()


def _command_on_turns(before: list[str], known: KnownNames) -> list[str]:
    """Return a command with the name of a conversation behind it, also that of -c."""
    if before[:1] != ["%svc"]:
        return []
    words = before[1:]
    if words[:1] in (["-c"], ["--conversation"]):
        for name in known.conversations:
            end = 1 + len(typed := in_a_line(name).split())
            if words[1:end] == typed and words[end:][:1]:
                named = [words[end], *typed, *words[end + 1 :]]
                return named if named[0] in {*_TAKE_A_NAME, *_TAKE_A_TURN} else []
    return words if words[:1] and words[0] in _TAKE_A_NAME else []


def _starting_with(
    fragment: str, items: Iterable[Suggestion], *, closing: str = ""
) -> Suggestions | None:
    fitting = tuple(
        Suggestion(item.text + closing, item.note)
        for item in items
        if item.text.lstrip("'").startswith(fragment.lstrip("'"))  # a quoted name
    )
    return Suggestions(fragment=fragment, items=fitting) if fitting else None


def _flags() -> Iterable[Suggestion]:
    return (Suggestion(option.flags[-1], _first_part(option.doc)) for option in OPTIONS)


def _commands() -> Iterable[Suggestion]:
    return (Suggestion(command.name, _first_part(command.doc)) for command in COMMANDS)


def _topics() -> Iterable[Suggestion]:
    return (Suggestion("all", "every option and command"), *_commands(), *_flags())


def _in_use(known: KnownNames) -> Iterable[Suggestion]:
    emulator = Suggestion("emulator", "replies without a key or a network")
    service = Suggestion("service", "the real service")
    named = starmap(Suggestion, known.endpoints)
    return (emulator, service, *named, *_models(known))


def _first_part(doc: str) -> str:
    """Return a text up to its first semicolon, colon or bracket."""
    return re.split(r"[;:] | \(", doc, maxsplit=1)[0]


def _values(option: Option, fragment: str, known: KnownNames) -> Iterable[Suggestion]:
    lists: dict[str, Callable[[], Iterable[Suggestion]]] = {
        "--tools": lambda: starmap(Suggestion, known.tools),
        "--model": lambda: _models(known),
        "--with": lambda: (*starmap(Suggestion, known.variables), *_CONTEXT),
    }
    name = option.flags[-1]
    if name == "--as":
        return starmap(Suggestion, known.types)
    if name == "--conversation":
        return _conversations(known.conversations)
    if name in lists:
        return _next_in_list(fragment, lists[name]())
    values = {
        "--max-tokens": {
            "fit": "as many as the prompt leaves",
            "service": "the service's default (150)",
        },
        "--format": dict.fromkeys(LAYOUTS, "how the reply is drawn"),
        "--confirm-tools": dict.fromkeys(CONFIRMATIONS, "which calls ask you first"),
    }
    return starmap(Suggestion, values.get(name, {}).items())


def _next_in_list(fragment: str, items: Iterable[Suggestion]) -> Iterable[Suggestion]:
    """Return suggestions for the next name in a list separated by commas."""
    earlier = fragment.rpartition(",")[0]
    prefix = f"{earlier}," if earlier else ""
    listed_names = {name.strip() for name in earlier.split(",")}
    return (
        Suggestion(prefix + item.text, item.note)
        for item in items
        if item.text not in listed_names
    )


def _conversations(names: Iterable[str]) -> Iterable[Suggestion]:
    return (Suggestion(in_a_line(name), "conversation") for name in names)


def _places(command: str, before: list[str], known: KnownNames) -> Iterable[Suggestion]:
    """Return names of conversations, then numbers of turns, then of versions."""
    if not before:
        may_be_empty = command in {"panel", "restore"}
        return _conversations(known.conversations if may_be_empty else known.turns)
    if command not in _TAKE_A_TURN:
        return ()
    typed = " ".join([*before, ""])
    for name, turns in known.turns.items():
        starts = [f"{written} " for written in (name, in_a_line(name))]
        start = next(filter(typed.startswith, starts), None)
        match start and typed.removeprefix(start).split():
            case []:
                return _numbered("turn", (turn.prompt for turn in turns))
            case [number] if command == "version" and number in _range(turns):
                return _numbered("version", turns[int(number) - 1].versions)
    return ()


def _range(turns: Sequence[KnownTurn]) -> list[str]:
    return [str(number) for number in range(1, len(turns) + 1)]


def _numbered(kind: str, notes: Iterable[str]) -> Iterable[Suggestion]:
    for number, note in enumerate(notes, start=1):
        yield Suggestion(str(number), f"{kind} · {note}" if note else kind)


def _tool_words(before: list[str], known: KnownNames) -> Iterable[Suggestion]:
    tools = list(starmap(Suggestion, known.tools))
    if not before:
        return [
            Suggestion("add", "offer in every cell"),
            Suggestion("remove", "offer no longer"),
            Suggestion("ask", "ask before calls again"),
            *tools,
        ]
    return tools if before in (["add"], ["remove"], ["ask"]) else ()


def _models(known: KnownNames) -> Iterable[Suggestion]:
    for model in known.models:
        limit = str(model.limit) if model.limit else "no known limit"
        context = model.context_tokens
        tokens = f"{context} tokens" if context else ""
        # JupyterLab shows the first letter of a note as a badge
        yield Suggestion(
            model.id, " · ".join(filter(None, ("model", model.size, tokens, limit)))
        )


def _known_names(shell: InteractiveShell) -> KnownNames:
    hidden, conversations = shell.user_ns_hidden, tuple(current().conversations)
    return KnownNames(
        variables=tuple(
            (name, type(value).__name__)
            for name, value in shell.user_ns.items()
            if not name.startswith("_")
            and name not in hidden
            and not isinstance(value, ModuleType)
        ),
        conversations=tuple(each.name for each in conversations),
        turns={
            each.name: tuple(_known_turns(each)) for each in conversations if each.turns
        },
        tools=tool_notes(shell.user_ns),
        types=known_types(shell.user_ns),
        models=current().models(),
        endpoints=endpoint_notes(),
    )


def _known_turns(conversation: Conversation) -> Iterable[KnownTurn]:
    for turn in conversation.turns:
        begins = [each.typed[: 2 * _PROMPT_CHARS].split() for each in turn.versions]
        shown = [shorten(" ".join(words), _PROMPT_CHARS) for words in begins]
        models = (each.model for each in turn.versions)
        versions = [
            " · ".join(filter(None, words)) for words in zip(models, shown, strict=True)
        ]
        yield KnownTurn(shown[turn.chosen], versions)


def match(context: CompletionContext, shell: InteractiveShell) -> SimpleMatcherResult:
    """Return the suggestions for the cursor to IPython."""
    lines = context.full_text.split("\n")[: context.cursor_line + 1]
    column = context.cursor_position
    lines[-1], after = lines[-1][:column], lines[-1][column:]
    suggestions = suggest(lines, _known_names(shell), after=after)
    if suggestions is None:
        return SimpleMatcherResult(completions=[])
    # the menu would break the lines of a note at blanks and hyphens
    notes = (item.note.translate(_UNBROKEN) for item in suggestions.items)
    return SimpleMatcherResult(
        completions=[
            SimpleCompletion(item.text, type=note)
            for item, note in zip(suggestions.items, notes, strict=True)
        ],
        matched_fragment=suggestions.fragment,
        suppress=True,
        ordered=True,
    )
