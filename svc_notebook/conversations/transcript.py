"""A conversation as a static transcript, in HTML and as text."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, starmap

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import Output, as_streamed, fitted_to_terminal
from svc_notebook.display.html_styles import (
    PLAIN_CODE,
    QUIET_LINE,
    TYPED,
    folded_html,
    message_html,
    quiet_html,
    rest_html,
)
from svc_notebook.display.markdown import reply_html
from svc_notebook.display.reply_footer import titled_reasonings
from svc_notebook.display.tool_runs import (
    NOT_ANSWERED,
    Step,
    arguments_line,
    consent_line,
    own_result,
    run_arguments,
)
from svc_notebook.service.request import ToolCall

from .history import STALE, History, Turn, Version
from .long_prompt import rest_words, split_long, whole_label
from .picks import to_columns

_ENTRY = "margin:.2em 0 .8em"
_TYPED = f"{TYPED};font-family:inherit;border-left:3px solid #8886;padding-left:.7em"
_FENCE = re.compile("^(?= {0,3}```)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEntry:
    """One message."""

    heading: str  # who wrote it, and what to know about it
    text: str
    is_markdown: bool = False  # if False, the text is shown as typed
    footer: str = ""  # a quiet line below
    notes: tuple[str, ...] = ()  # quiet lines above the text, such as tool calls
    typed: str | None = None  # the part of the text that is always visible; None: all
    folded: tuple[tuple[str, str], ...] = ()  # titles and texts of the folded rest
    is_whole: bool = False  # if True, a long text is not folded


def transcript(
    title: str, entries: Sequence[MessageEntry], *, whole: str = ""
) -> dict[str, str]:
    """Draw messages below a title, as `text/html` and `text/plain`.

    A terminal cannot fold long texts. If `whole` is code that prints all of them, it
    shows their beginnings, and names the code.
    """
    head = quiet_html(f"<strong>{message_html(title)}</strong>") if title else ""
    has_room = not (whole and Output().columns())
    shown = [*entries] if has_room else [*map(_shortened, entries)]
    plain = [_entry_text(entry) for entry in shown] or ["(no turns yet)"]
    if shown != [*entries]:
        note = f"(long prompts are shortened; {whole} shows all)"
        plain.append(fitted_to_terminal(to_terminal(note)))
    body = "".join(map(_entry_html, entries)) or quiet_html("no turns yet")
    return {
        "text/html": f"<div>{head}{body}</div>",
        "text/plain": "\n\n".join([fitted_to_terminal(to_terminal(title)), *plain]),
    }


def _shortened(entry: MessageEntry) -> MessageEntry:
    """Leave out what HTML would fold of a text, and say how much it is."""
    if entry.is_markdown or entry.is_whole or not whole_label(entry.text):
        return entry
    text, rest = split_long(entry.text)
    return replace(entry, text=text.rstrip("\n"), footer=f"({rest_words(text, rest)})")


def _entry_text(entry: MessageEntry) -> str:
    """Return a message as text that is safe to print."""
    heads = "\n".join((entry.heading, *entry.notes))
    heads, text, footer = map(to_terminal, (heads, entry.text, entry.footer))
    parts = (fitted_to_terminal(heads), as_streamed(text), fitted_to_terminal(footer))
    return "\n".join(filter(None, parts))


def _entry_html(entry: MessageEntry) -> str:
    typed = entry.text if entry.typed is None else entry.typed
    if entry.is_markdown:
        text = reply_html(entry.text)
    else:
        text = _typed_html(typed) if entry.is_whole else _folded_html(typed)
    text += quiet_html("".join(map(folded_html, entry.folded))) if entry.folded else ""
    notes = "".join(map(_quiet_line, entry.notes))
    footer = _quiet_line(entry.footer) if entry.footer else ""
    heading = _quiet_line(entry.heading)
    return f'<div style="{_ENTRY}">{heading}{notes}{text}{footer}</div>'


def _folded_html(text: str) -> str:
    shown, rest = split_long(text)
    if not rest:
        return _typed_html(text)
    is_code = len(_FENCE.findall(shown)) % 2 == 1
    below = rest_html(whole_label(text), _typed_html(rest, is_code=is_code))
    return _typed_html(shown) + below


def _typed_html(text: str, *, is_code: bool = False) -> str:
    """Show a text as typed; code between fences has letters of one width.

    `is_code` says whether the text begins within a block of code.
    """
    shown = []
    for part in _FENCE.split(text):
        html = to_text(part)
        shown.append(f"{PLAIN_CODE}{html}</code>" if is_code else html)
        is_code = not is_code
    return f'<pre style="{_TYPED}">{"".join(shown)}</pre>'


def _quiet_line(line: str) -> str:
    return f'<div style="{QUIET_LINE};overflow-wrap:anywhere">{to_text(line)}</div>'


def to_entries(
    history: History, start: int = 0, stop: int | None = None
) -> list[MessageEntry]:
    """Return the entries of all turns, or of a range; only chosen versions.

    The system message comes before the first turn.
    """
    system = "" if start else history.system
    front = [MessageEntry(heading="system", text=system)] if system else []
    notes = system_notes(history)
    turns = enumerate(history.turns[start:stop], start=start + 1)
    of_turns = (
        _turn_entries(number, turn, notes.get(turn.turn_id, ""))
        for number, turn in turns
    )
    return [*front, *chain.from_iterable(of_turns)]


def system_notes(history: History) -> dict[str, str]:
    """Return notes on system messages other than the one above, by turn_id.

    The history's own is at the top.
    """
    above = history.system or ""
    notes, places = dict[str, str](), {above: "at the top"}
    for number, turn in enumerate(history.turns, start=1):
        system = turn.version.system
        if system is None or system == above:
            continue
        place = places.setdefault(system, f"in turn {number}")
        is_new = place == f"in turn {number}"
        words = f"system prompt: {system if is_new else f'as {place}'}"
        notes[turn.turn_id] = words if system else "no system prompt"
        above = system
    return notes


def to_transcript(history: History) -> dict[str, str]:
    """Return a static transcript as a MIME bundle."""
    whole = f"print(svc.conversation({history.name!r}).to_markdown())"
    return transcript(history.name, to_entries(history), whole=whole)


def _turn_entries(number: int, turn: Turn, note: str) -> tuple[MessageEntry, ...]:
    prompt = _prompt_entry(number, turn.version)
    if note:
        prompt = replace(prompt, notes=(note,))
    return (
        prompt,
        *(_compared_entries(turn) if turn.comparison else (_answer_entry(turn),)),
    )


def _compared_entries(turn: Turn) -> Iterator[MessageEntry]:
    """Return an entry for each reply that was compared."""
    turn_marks = [mark for mark in turn.marks if mark not in turn.version.marks]
    for column in to_columns(turn):
        state = "picked" if column.is_picked else "used" if column.is_used else ""
        is_stale = column.version and turn.versions[column.version - 1].is_stale
        marks = {*(turn_marks if column.is_used else ()), *column.marks}
        marks |= {STALE} if is_stale else set()
        number = _version_words(turn, column.version) if column.version else ""
        heads = [column.label, number, state, *sorted(marks)]
        yield MessageEntry(
            heading=" · ".join(filter(None, heads)),
            text="\n\n".join(filter(None, [column.text, column.problem])),
            is_markdown=True,
            footer=column.footer,
        )


def _version_words(turn: Turn, number: int) -> str:
    n_versions = len(turn.versions)
    return f"version {number} of {n_versions}" if n_versions > 1 else ""


def _answer_entry(turn: Turn) -> MessageEntry:
    version = turn.version
    heads = [version.model or "assistant"]  # copied turns have no model
    if number := _version_words(turn, turn.chosen + 1):
        heads.append(number)
    if version.choices:
        heads.append(f"choice {version.picked + 1} of {len(version.choices)}")
    return MessageEntry(
        heading=" · ".join([*heads, *turn.marks]),
        text=version.all_text,
        is_markdown=True,
        footer=turn.footer,
        notes=tuple(starmap(_call_note, version.calls)),
        folded=titled_reasonings(version.reasonings),
    )


def _call_note(call: ToolCall, result: str | None, run: Step | None) -> str:
    """Return a call with its result; `run` is known if the ledger has it."""
    name, asked_arguments = call.function.name, call.function.arguments
    if run is None:
        shown_result = NOT_ANSWERED if result is None else result
        return f"{name}({arguments_line(asked_arguments)}) → {shown_result}"
    shown = arguments_line(run_arguments(run))
    return f"{name}({shown}) → {consent_line(run)}{own_result(run)}"


def _prompt_entry(number: int, version: Version) -> MessageEntry:
    heading, text = f"{number} · You", version.prompt.content or ""
    if not version.attached:
        return MessageEntry(heading=heading, text=text)
    folded = tuple((item.note, item.text) for item in version.items)
    return MessageEntry(heading=heading, text=text, typed=version.typed, folded=folded)
