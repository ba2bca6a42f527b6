"""Imports turns from JSON, messages or a frame, to begin a conversation with them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from svc_notebook.credentials import known_keys
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import must_be
from svc_notebook.service.request import Message, ToolCall, assistant, to_messages, user
from svc_notebook.tools.call import ToolRun

from .export import JsonHistory, JsonTurn, JsonVersion, same_fields, to_json
from .history import History, Turn, Version


def from_json(text: str) -> History:
    """Read the text that `to_json` wrote; an error says where a text differs."""
    given_text: object = text
    if not isinstance(given_text, str) or not given_text.lstrip().startswith("{"):
        raise must_be(
            "text",
            "the text that to_json() returned, not a path",
            text,
            hint="Pass Path(FILE).read_text('utf-8') to read it from a file.",
        )
    try:
        decoded = msgspec.json.decode(text, type=JsonHistory)
        turns = tuple(map(_to_turn, decoded.turns))
    except (ValueError, TypeError) as problem:
        raise ParameterError(
            f"This is not a conversation as to_json() writes it: {problem}.",
            param="text",
        ) from None
    return History(name=decoded.conversation, system=decoded.system, turns=turns)


class _ImportedRow(msgspec.Struct, kw_only=True):
    """A row of `Conversation.to_df` or of `replies_df`; other columns are ignored."""

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
        """The message, or the prompt and reply; none if they are not sent later."""
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
    """Refuse turns that contain an API key, before anything is shown or recorded."""
    for key in known_keys():
        key.refuse_in(to_json(history).encode())


def read_turns(source: Any) -> History:  # noqa: ANN401 - a user's value
    """Return the turns in messages, a frame or a file: see `svc.conversation`."""
    place = "The frame"
    try:
        if isinstance(source, (str, PathLike)):
            place = repr(str(source))
            source = _read_file(Path(source).expanduser())
        if isinstance(source, History):
            return source
        if hasattr(source, "to_dict"):  # a frame
            rows = source.astype(object).where(source.notna(), None).to_dict("records")
            source = msgspec.convert(rows, list[_ImportedRow])
        if isinstance(source, list) and any(
            isinstance(row, _ImportedRow) for row in source
        ):
            source = [message for row in source for message in row.messages]
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as problem:
        raise ParameterError(
            f"{place} cannot be read: {problem}. Give messages, a frame of to_df(), or "
            "its file (.jsonl, .parquet), or the .json file of to_json().",
            param="messages",
        ) from None
    return _to_history(to_messages(source))


def _read_file(path: Path) -> Any:  # noqa: ANN401 - rows, a frame or a history
    if path.suffix.lower() == ".json":
        return from_json(path.read_text(encoding="utf-8"))
    if path.suffix.lower() == ".jsonl":
        return msgspec.json.Decoder(_ImportedRow).decode_lines(path.read_bytes())
    if path.suffix.lower() == ".parquet":
        from svc_notebook.ledger.frame_export import (  # noqa: PLC0415 - pandas
            read_parquet,
        )

        return read_parquet(path)
    raise OSError("files with this ending cannot be imported")


def _to_history(messages: Sequence[Message]) -> History:
    system: str | None = None
    turns: list[list[Message]] = []
    calls: list[str | None] = []  # that have no result yet
    for number, message in enumerate((*messages, None), start=1):
        if reason := _why_misplaced(message, turns, calls, is_first=number == 1):
            where = f"Message {number} ({message.role})" if message else "The end"
            raise ParameterError(
                f"{where} is out of place: {reason}. After an optional system message, "
                "each turn is a user's message and an assistant's, with the results "
                "of its tool calls.",
                param="messages",
            )
        if message is None or message.role == "system":
            system = message.content if message else system
            continue
        if message.role == "user":
            turns.append([])
        elif message.role == "tool":
            calls.remove(message.tool_call_id)
        calls += [call.id for call in message.tool_calls]
        turns[-1].append(message)
    versions = (
        Version(
            exchange_id="",
            prompt=prompt,
            replies=tuple(replies),
            is_open=replies[-1].role == "tool",
        )
        for prompt, *replies in turns
    )
    history_turns = tuple(Turn(turn_id="", versions=(version,)) for version in versions)
    return History(system=system, turns=history_turns)


def _why_misplaced(
    message: Message | None,
    turns: list[list[Message]],
    calls: list[str | None],
    *,
    is_first: bool,
) -> str:
    """Return why a message, or the end (None), is misplaced here; "" if it is not."""
    role = message.role if message else "end"
    if message and role == "tool":
        is_known = message.tool_call_id in calls
        return "" if is_known else "it answers no call of the message before it"
    if calls:
        return f"the call {calls[0]!r} before it has no result"
    if role == "system":
        return "" if is_first else "a system message must be the first message"
    if role in {"user", "end"} and turns and len(turns[-1]) == 1:
        return "the user's message before it has no answer"
    return "" if turns or role == "user" else "no user's message comes before it"


def _to_turn(json: JsonTurn) -> Turn:
    versions = tuple(map(_to_version, json.versions))
    chosen = range(1, len(versions) + 1).index(json.chosen_version)
    return Turn(versions=versions, chosen=chosen, **same_fields(json))


def _to_version(json: JsonVersion) -> Version:
    prompt, *replies = json.messages
    if prompt.role != "user" or any(reply.role == "user" for reply in replies):
        raise ValueError("a version must begin with its only user message")
    choices = tuple(Message(role="assistant", content=text) for text in json.choices)
    picked = 0
    if choices:
        picked = range(1, len(choices) + 1).index(json.picked_choice or 1)
    version = Version(
        prompt=prompt,
        replies=tuple(replies),
        choices=choices,
        picked=picked,
        **same_fields(json),
    )
    return replace(version, tool_runs=tuple(_tool_runs(version, json)))


def _tool_runs(version: Version, json: JsonVersion) -> Iterator[ToolRun]:
    """Return the calls of a version whose runs are in the JSON."""
    runs = {run.call_id: run for run in json.tool_runs}
    for call, result, _ in version.calls:
        if result is not None and (run := runs.get(call.id)):
            yield ToolRun(
                name=call.function.name,
                asked_arguments=call.function.arguments,
                result=result,
                **msgspec.structs.asdict(run),
            )
