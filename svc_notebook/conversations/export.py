"""Export of a conversation as Markdown and as JSON, which `from_json` can read.

Hidden turns are included. Texts are not changed, but in Markdown, prompts are quoted.
"""

import re
from collections.abc import Iterable
from itertools import starmap
from typing import Annotated, Any

import msgspec

from svc_notebook.display.markdown import block_tokens, token_lines, with_line_feeds
from svc_notebook.exchange import NO_CHARGE, Attached, Charge
from svc_notebook.ledger.exchange_rows import Comparison
from svc_notebook.service.request import Message, ToolCall

from .history import History, Turn, Version
from .transcript import to_entries


def to_markdown(history: History) -> str:
    """Return the chosen versions as a Markdown document."""
    parts = [f"# {history.name}"]
    for entry in to_entries(history):
        calls = (_as_code(call) for call in entry.notes)
        text = entry.text if entry.is_markdown else _as_typed(entry.text)
        parts += [f"## {entry.heading}", *calls, text]
        if entry.is_markdown:  # a prompt's text contains what is attached to it
            parts += starmap(_as_details, entry.folded)
        if entry.footer:
            parts.append(f"*{entry.footer}*")
    return "\n\n".join(part for part in parts if part) + "\n"


_TAG = re.compile(r"(?P<same>\\.)|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
# backticks that nothing closes are no code, but are not looked at twice
_CODE = r"(?P<ticks>`+)(?!`)(?:.*?[^`](?P=ticks)(?!`))?"
_CODE_OR_TAG = re.compile(f"(?P<code>{_CODE})|{_TAG.pattern}", re.DOTALL)


def _as_typed(text: str) -> str:
    """Quote a prompt with its line breaks; what looks like a tag is shown as text.

    Code is not changed, unless its backticks are in different lines or in a table.
    """
    typed = _quoted(with_line_feeds(text).split("\n"))
    source = typed.replace("]:", r"]\:")  # no address for links of the whole document
    lines, typed_lines = source.split("\n"), typed.split("\n")
    others, before = {*range(len(lines))}, ""
    for token in block_tokens(source):
        block = slice(*token_lines(token))
        is_cell, before = before in ("td_open", "th_open"), token.type
        if token.type == "inline" and not is_cell:
            words = _CODE_OR_TAG.sub(_shown, "\n".join(lines[block]))
            lines[block] = words.replace("\n", "  \n").split("\n")
        elif token.type in ("fence", "code_block"):
            lines[block] = typed_lines[block]
        else:
            continue
        others.difference_update(range(block.start, block.stop))
    for at in others:
        lines[at] = _TAG.sub(_shown, lines[at])
    return "\n".join(lines)


def _shown(found: re.Match[str]) -> str:
    """Write a tag so that it is shown as text; code of one line shows it anyway."""
    code = found.groupdict().get("code")
    if code is None:
        return found["same"] or f"\\{found[0]}"
    return _TAG.sub(_shown, code) if "\n" in code else code.replace(r"]\:", "]:")


def _quoted(lines: Iterable[str]) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in lines)


def _as_details(title: str, text: str) -> str:
    """Fold a text, such as the reasoning; as a quote, it wraps, and ends with it."""
    quote = _quoted(line.rstrip() for line in text.splitlines())
    return f"<details><summary>{title}</summary>\n\n{quote}\n\n</details>"


def _as_code(text: str) -> str:
    """Indent every line, so that Markdown shows the text as it is."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def to_json(history: History) -> str:
    """Return all turns, versions and choices as JSON text."""
    value = {
        "conversation": history.name,
        "system": history.system,
        "turns": [
            _to_json_turn(n, turn) for n, turn in enumerate(history.turns, start=1)
        ],
    }
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


class JsonToolRun(msgspec.Struct, kw_only=True):
    """What the messages do not say about a tool call, in JSON.

    The messages have what the model asked for, and the result.
    """

    call_id: str
    arguments: dict[str, Any] | None = None  # that the tool ran with
    is_approved: bool | None = None
    error: str | None = None
    seconds_s: float = 0.0


class JsonVersion(msgspec.Struct, kw_only=True):
    """A version in JSON."""

    exchange_id: str = ""
    first_id: str = ""
    indexes: tuple[int, ...] = (0,)
    is_picked: bool = False
    is_partial: bool = False
    is_cut: bool = False
    limit: str = ""
    is_open: bool = False
    unsent_calls: tuple[ToolCall, ...] = ()
    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=2)]
    choices: tuple[str, ...] = ()
    picked_choice: int | None = None
    footer: str = ""
    settings: str | None = ""
    system: str | None = None
    is_stale: bool = False
    charge: Charge = NO_CHARGE
    first_text_s: float | None = None
    marks: tuple[str, ...] = ()
    attached: tuple[Attached, ...] = ()
    reasonings: tuple[str, ...] = ()
    tool_runs: tuple[JsonToolRun, ...] = ()


class JsonTurn(msgspec.Struct, kw_only=True):
    """A turn in JSON."""

    number: int = 0
    turn_id: str = ""
    chosen_version: int = 1
    is_pinned: bool = False
    is_hidden: bool = False
    is_stale: bool = False
    comparisons: tuple[Comparison, ...] = ()
    versions: Annotated[tuple[JsonVersion, ...], msgspec.Meta(min_length=1)]


class JsonHistory(msgspec.Struct, kw_only=True):
    """A conversation in JSON."""

    turns: tuple[JsonTurn, ...]
    conversation: str = ""
    system: str | None = None


def same_fields(source: Version | Turn | JsonVersion | JsonTurn) -> dict[str, Any]:
    """Return the fields that are the same in a version or turn and in its JSON."""
    kind, json_kind = (
        (Version, JsonVersion)
        if isinstance(source, (Version, JsonVersion))
        else (Turn, JsonTurn)
    )
    shared = kind.__dataclass_fields__.keys() & {*json_kind.__struct_fields__}
    # These have another form in JSON: `choices` are texts, the others structs.
    same = shared - {"choices", "versions", "tool_runs"}
    return {name: getattr(source, name) for name in same}


def _to_json_turn(number: int, turn: Turn) -> JsonTurn:
    return JsonTurn(
        number=number,
        chosen_version=turn.chosen + 1,
        is_stale=turn.is_stale,
        versions=tuple(map(_to_json_version, turn.versions)),
        **same_fields(turn),
    )


def _to_json_version(version: Version) -> JsonVersion:
    return JsonVersion(
        messages=(version.prompt, *version.replies),
        choices=tuple(choice.content or "" for choice in version.choices),
        picked_choice=version.picked + 1 if version.choices else None,
        tool_runs=msgspec.convert(
            version.tool_runs, tuple[JsonToolRun, ...], from_attributes=True
        ),
        **same_fields(version),
    )
