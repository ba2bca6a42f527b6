"""Messages of a conversation (doc: Message).

A message is checked when it is made, so every `Message` is one that can be sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError

from .tool import ToolCall


def check_text(text: str, *, param: str) -> str:
    """Return the text unchanged if UTF-8 can carry it.

    Raises:
        ParameterError: It contains half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        where = problem.start
    else:
        return text
    raise ParameterError(
        f"{param} contains half of a surrogate pair at position {where}, which UTF-8 "
        "cannot encode; remove it, for example with "
        "text.encode('utf-8', 'replace').decode().",
        param=param,
    )


def printable(text: str) -> str:
    """Return the text with escapes for control and other invisible characters.

    Marks of writing direction are among them.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text.encode("utf-8", "replace").decode()
    )


ROLES = ("system", "user", "assistant", "tool")  # doc: Message


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One message of a conversation (doc: Message).

    Attributes:
        role: One of system, user, assistant, tool.
        content: The text; None only in a message with tool calls.
        tool_calls: The calls of an assistant message, as the model made them.
        tool_call_id: On a tool message, the id of the call it answers.
    """

    role: str
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ParameterError(
                f"role must be one of {', '.join(ROLES)}; got {self.role!r} "
                "(doc: Message).",
                param="messages",
            )
        if not isinstance(self.content, str) and not self._may_lack_content():
            raise ParameterError(
                f"The content of a {self.role} message is "
                f"{type(self.content).__name__}; give it as text (doc: Message).",
                param="messages",
            )
        if self.content is not None:
            check_text(self.content, param="messages")

    def _may_lack_content(self) -> bool:
        return self.content is None and bool(self.tool_calls)


def system(text: str) -> Message:
    """Make a message that sets the assistant's behaviour (doc: Message)."""
    return Message(role="system", content=text)


def user(text: str) -> Message:
    """Make a message of the user (doc: Message)."""
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    """Make a message of the assistant (doc: Message)."""
    return Message(role="assistant", content=text)


Prompt = str | Sequence[Message | Mapping[str, Any]]


def to_messages(prompt: Prompt, *, system: str | None = None) -> tuple[Message, ...]:
    """Turn what a user wrote into messages.

    Args:
        prompt: A text, which becomes one user message, or messages as `Message`
            or as mappings with the document's field names.
        system: The text of a system message that comes first.

    Raises:
        ParameterError: There is no message, or one is not allowed.
    """
    front = () if system is None else (Message(role="system", content=system),)
    return (*front, *_read(prompt))


def _read(prompt: object) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ParameterError(
                "The prompt is empty; write what to ask (doc: Request body).",
                param="messages",
            )
        return (Message(role="user", content=prompt),)
    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise ParameterError(
            f"messages is {type(prompt).__name__}; give a text or a list of messages "
            "(doc: Request body).",
            param="messages",
        )
    if not prompt:
        raise ParameterError(
            "messages is empty; give at least one message with role and content "
            "(doc: Request body).",
            param="messages",
        )
    return tuple(_to_message(each) for each in prompt)


def _to_message(each: object) -> Message:
    if isinstance(each, Message):
        return each
    if not isinstance(each, Mapping):
        raise ParameterError(
            f"A message is {type(each).__name__}; give a Message or a mapping with "
            "role and content (doc: Message).",
            param="messages",
        )
    unknown = [str(name) for name in each if name not in Message.__struct_fields__]
    if unknown:
        raise ParameterError(
            f"A message has the unknown field {unknown[0][:60]!r}; use the fields "
            f"{', '.join(Message.__struct_fields__)} (doc: Message).",
            param="messages",
        )
    calls = tuple(ToolCall.from_json(call) for call in each.get("tool_calls") or ())
    rest = {name: value for name, value in each.items() if name != "tool_calls"}
    return Message(**{"role": None, **rest}, tool_calls=calls)
