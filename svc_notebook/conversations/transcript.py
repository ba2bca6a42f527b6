"""A conversation as transcript entries, as Markdown and as JSON, which can be read.

Hidden turns are included and marked; texts are not changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import msgspec

from svc_notebook.credentials import known_keys
from svc_notebook.display.reply import Entry, titled_reasonings, transcript
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Attached
from svc_notebook.ledger.row import Comparison
from svc_notebook.service.checks import must_be
from svc_notebook.service.request import Message, ToolCall, assistant, to_messages, user

from .compare import to_columns
from .history import History, Turn, Version


def to_entries(history: History) -> list[Entry]:
    """Return the entries of a transcript: the system message and chosen versions."""
    system = history.system
    front = [Entry(heading="system", text=system)] if system else []
    turns = enumerate(history.turns, start=1)
    return [*front, *(entry for n, turn in turns for entry in _entries(n, turn))]


def to_transcript(
    history: History, start: int = 0, stop: int | None = None
) -> dict[str, str]:
    """Return a static transcript, or of these turns only, as a MIME bundle."""
    if not start:
        shown = replace(history, turns=history.turns[:stop])
        return transcript(history.name, to_entries(shown))
    turns = enumerate(history.turns[start:stop], start=start + 1)
    entries = [entry for n, turn in turns for entry in _entries(n, turn)]
    return transcript(f"{history.name}, from turn {start + 1}", entries)


def to_markdown(history: History) -> str:
    """Return the chosen versions as a Markdown document."""
    parts = [f"# {history.name}"]
    if history.system:
        parts += ["## system", history.system]
    for entry in to_entries(history)[bool(history.system) :]:
        calls = (_as_code(call) for call in entry.notes)
        parts += [f"## {entry.heading}", *calls, entry.text]
        if entry.footer:
            parts.append(f"*{entry.footer}*")
    return "\n\n".join(part for part in parts if part) + "\n"


def _as_code(text: str) -> str:
    """Indent every line, so that nothing in a text acts as Markdown."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def to_json(history: History) -> str:
    """Return all turns, versions and choices as JSON text."""
    value = {
        "conversation": history.name,
        "system": history.system,
        "turns": [_turn(n, turn) for n, turn in enumerate(history.turns, start=1)],
    }
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


_SAME_IN_VERSION = (
    "exchange_id",
    "first_id",
    "indexes",
    "is_picked",
    "is_partial",
    "is_cut",
    "limit",
    "is_open",
    "footer",
    "marks",
    "attached",
    "reasonings",
)
_SAME_IN_TURN = ("turn_id", "is_pinned", "is_hidden", "is_stale", "comparisons")


class _JsonVersion(msgspec.Struct, kw_only=True):
    exchange_id: str = ""
    first_id: str = ""
    indexes: tuple[int, ...] = (0,)
    is_picked: bool = False
    is_partial: bool = False
    is_cut: bool = False
    limit: str = ""
    is_open: bool = False
    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=2)]
    choices: tuple[str, ...] = ()
    picked_choice: int | None = None
    footer: str = ""
    marks: tuple[str, ...] = ()
    attached: tuple[Attached, ...] = ()
    reasonings: tuple[str, ...] = ()


class _JsonTurn(msgspec.Struct, kw_only=True):
    number: int = 0
    turn_id: str = ""
    chosen_version: int = 1
    is_pinned: bool = False
    is_hidden: bool = False
    is_stale: bool = False
    comparisons: tuple[Comparison, ...] = ()
    versions: Annotated[tuple[_JsonVersion, ...], msgspec.Meta(min_length=1)]


class _JsonHistory(msgspec.Struct, kw_only=True):
    turns: tuple[_JsonTurn, ...]
    conversation: str = ""
    system: str | None = None


def from_json(text: str) -> History:
    """Read what `to_json` wrote, or say where the text differs from that."""
    given: object = text
    if not isinstance(given, str) or not given.lstrip().startswith("{"):
        raise must_be(
            "text",
            "the text that to_json() returned, not a path",
            text,
            hint="Pass Path(FILE).read_text('utf-8') to read it from a file.",
        )
    try:
        found = msgspec.json.decode(text, type=_JsonHistory)
        turns = tuple(map(_to_turn, found.turns))
    except (ValueError, TypeError) as problem:
        raise ParameterError(
            f"This is not a conversation as to_json() writes it: {problem}.",
            param="text",
        ) from None
    return History(name=found.conversation, system=found.system, turns=turns)


class _Row(msgspec.Struct, kw_only=True):
    """A row of `Conversation.to_df` or of `replies_df`; it has other columns, too."""

    role: str | None = None
    text: str | None = None
    content: str | None = None
    prompt: str | None = None
    tool_calls: str | tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    choice_index: int | None = None
    is_chosen: bool | None = None
    is_hidden: bool | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """Its message, or those of a reply; none of what later turns do not see."""
        text, calls = self.content or self.text, self.tool_calls or ()
        if self.role is None:
            if self.choice_index or self.prompt is None or text is None:
                return ()
            return user(self.prompt), assistant(text)
        if self.is_hidden or self.is_chosen is False:
            return ()
        if isinstance(calls, str):
            calls = msgspec.json.decode(calls, type=tuple[ToolCall, ...])
        id_ = self.tool_call_id
        content = text if calls else text or ""
        message = Message(
            role=self.role, content=content, tool_calls=calls, tool_call_id=id_
        )
        return (message,)


def refuse_keys(history: History) -> None:
    """Refuse turns that hold a key, before anything is shown or kept."""
    for key in known_keys():
        key.refuse_in(to_json(history).encode())


def read_turns(given: Any) -> History:  # noqa: ANN401 - as a user gives it
    """Return turns that were made elsewhere: see `svc.conversation`."""
    place = "The frame"
    try:
        if isinstance(given, (str, PathLike)):
            place = repr(str(given))
            given = _read_file(Path(given).expanduser())
        if isinstance(given, History):
            return given
        if hasattr(given, "to_dict"):  # a frame
            rows = given.astype(object).where(given.notna(), None).to_dict("records")
            given = msgspec.convert(rows, list[_Row])
        if isinstance(given, list) and any(isinstance(each, _Row) for each in given):
            given = [message for row in given for message in row.messages]
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as problem:
        raise ParameterError(
            f"{place} cannot be read: {problem}. Give messages, a frame of to_df(), or "
            "its file (.jsonl, .parquet), or the .json file of to_json().",
            param="messages",
        ) from None
    return _to_history(to_messages(given))


def _read_file(path: Path) -> Any:  # noqa: ANN401 - rows, a frame or a history
    if path.suffix.lower() == ".json":
        return from_json(path.read_text(encoding="utf-8"))
    if path.suffix.lower() == ".jsonl":
        return msgspec.json.Decoder(_Row).decode_lines(path.read_bytes())
    if path.suffix.lower() == ".parquet":
        from svc_notebook.ledger.exports import read_parquet  # noqa: PLC0415 - pandas

        return read_parquet(path)
    raise OSError("its name has another ending")


def _to_history(messages: Sequence[Message]) -> History:
    system: str | None = None
    turns: list[list[Message]] = []
    calls: list[str | None] = []  # that have no result yet
    for number, each in enumerate((*messages, None), start=1):
        if why := _misplaced(each, turns, calls, is_first=number == 1):
            where = f"Message {number} ({each.role})" if each else "The end"
            raise ParameterError(
                f"{where} is out of place: {why}. After a system message, if any, a "
                "turn is a user's message and the assistant's, with the results of "
                "its tool calls.",
                param="messages",
            )
        if each is None or each.role == "system":
            system = each.content if each else system
            continue
        if each.role == "user":
            turns.append([])
        elif each.role == "tool":
            calls.remove(each.tool_call_id)
        calls += [call.id for call in each.tool_calls]
        turns[-1].append(each)
    versions = (
        Version(
            exchange_id="",
            prompt=prompt,
            replies=tuple(replies),
            is_open=replies[-1].role == "tool",
        )
        for prompt, *replies in turns
    )
    made = tuple(Turn(turn_id="", versions=(version,)) for version in versions)
    return History(system=system, turns=made)


def _misplaced(
    each: Message | None,
    turns: list[list[Message]],
    calls: list[str | None],
    *,
    is_first: bool,
) -> str:
    """Say why a message cannot stand here, or the end, which is None; "" if it can."""
    role = each.role if each else "end"
    if each and role == "tool":
        is_known = each.tool_call_id in calls
        return "" if is_known else "it answers no call of the message before it"
    if calls:
        return f"the call {calls[0]!r} before it has no result"
    if role == "system":
        return "" if is_first else "a system message is the first, if there is one"
    if role in {"user", "end"} and turns and len(turns[-1]) == 1:
        return "the user's message before it has no answer"
    return "" if turns or role == "user" else "no user's message comes before it"


def _to_turn(found: _JsonTurn) -> Turn:
    versions = tuple(map(_to_version, found.versions))
    chosen = range(1, len(versions) + 1).index(found.chosen_version)
    return Turn(versions=versions, chosen=chosen, **_fields(found, _SAME_IN_TURN))


def _to_version(found: _JsonVersion) -> Version:
    prompt, *replies = found.messages
    if prompt.role != "user" or any(each.role == "user" for each in replies):
        raise ValueError("the messages of a version begin with its only user message")
    choices = tuple(Message(role="assistant", content=each) for each in found.choices)
    picked = 0
    if choices:
        picked = range(1, len(choices) + 1).index(found.picked_choice or 1)
    return Version(
        prompt=prompt,
        replies=tuple(replies),
        choices=choices,
        picked=picked,
        **_fields(found, _SAME_IN_VERSION),
    )


def _fields(value: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _entries(number: int, turn: Turn) -> tuple[Entry, ...]:
    prompt = _asked(number, turn.version)
    return (prompt, *(_compared(turn) if turn.comparison else (_answer(turn),)))


def _compared(turn: Turn) -> Iterator[Entry]:
    """Return an entry for each reply that stands side by side with the chosen one."""
    of_turn = [mark for mark in turn.marks if mark not in turn.version.marks]
    for column in to_columns(turn):
        state = "picked" if column.is_picked else "used" if column.is_used else ""
        marks = {*(of_turn if column.is_used else ()), *column.marks}
        heads = ["assistant", column.label, state, *sorted(marks)]
        yield Entry(
            heading=" · ".join(filter(None, heads)),
            text="\n\n".join(filter(None, [column.text, column.problem])),
            is_markdown=True,
            footer=column.footer,
        )


def _answer(turn: Turn) -> Entry:
    version, n_versions = turn.version, len(turn.versions)
    heads = ["assistant"]
    if n_versions > 1:
        heads.append(f"version {turn.chosen + 1} of {n_versions}")
    if version.choices:
        heads.append(f"choice {version.picked + 1} of {len(version.choices)}")
    said = [m.content for m in version.replies if m.role == "assistant" and m.content]
    calls = [
        f"{call.function.name}({call.function.arguments}) → {result}"
        for call, result in version.calls
    ]
    return Entry(
        heading=" · ".join([*heads, *turn.marks]),
        text="\n\n".join(said),
        is_markdown=True,
        footer=version.footer,
        notes=tuple(calls),
        folded=titled_reasonings(version.reasonings),
    )


def _asked(number: int, version: Version) -> Entry:
    heading, text = f"{number} · user", version.prompt.content or ""
    if not version.attached:
        return Entry(heading=heading, text=text)
    folded = tuple((each.note, each.text) for each in version.items)
    return Entry(heading=heading, text=text, typed=version.typed, folded=folded)


def _turn(number: int, turn: Turn) -> _JsonTurn:
    return _JsonTurn(
        number=number,
        chosen_version=turn.chosen + 1,
        versions=tuple(map(_version, turn.versions)),
        **_fields(turn, _SAME_IN_TURN),
    )


def _version(version: Version) -> _JsonVersion:
    return _JsonVersion(
        messages=(version.prompt, *version.replies),
        choices=tuple(choice.content or "" for choice in version.choices),
        picked_choice=version.picked + 1 if version.choices else None,
        **_fields(version, _SAME_IN_VERSION),
    )
