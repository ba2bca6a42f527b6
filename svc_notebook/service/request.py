"""Messages, tool calls and the request (doc: Message, Tool call, Request body).

The arguments of a call are kept as the model's text, byte for byte, because the
assistant message is sent back unchanged (doc: Tool-calling flow).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError

from .catalogue import DEFAULT_MODEL, DOCUMENTED, MAX_TOKENS, ModelInfo
from .params import (
    beyond_document,
    check_all,
    check_extra,
    check_text,
    has_address_form,
    shorten,
    shown,
)


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The name of the tool, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a tool that the model asks for (doc: Tool call).

    Attributes:
        id: Matches the result to the call.
        type: Always `function`.
        function: The tool's name and its arguments.
        other: Fields that the document does not show, such as a signature of the
            model's reasoning. They are sent back to other servers only.
    """

    id: str
    type: str = "function"
    function: FunctionCall
    other: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET

    def __hash__(self) -> int:
        return hash((self.id, self.function))  # `other` may be a mapping

    @classmethod
    def from_json(cls, value: object) -> "ToolCall":
        """Read a call from a mapping."""
        if isinstance(value, ToolCall):
            return value
        try:
            call = msgspec.convert(value, ToolCall)
        except msgspec.ValidationError as problem:
            reason = str(problem)
        else:
            fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
            other = {name: fields[name] for name in fields if name not in _CALL_FIELDS}
            return msgspec.structs.replace(call, other=other) if other else call
        raise ParameterError(
            f"A tool call is not as documented: {reason}. It needs id, type and "
            "function with name and arguments.",
            param="messages",
        )


_CALL_FIELDS = frozenset({"id", "type", "function", "other"})


def with_own_ids(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Number ids that a reply uses twice, because results are matched by id.

    Calls should be sent back unchanged (doc: Tool-calling flow), but a history in which
    two calls have the same id is refused.
    """
    used_ids: set[str] = set()
    numbered = []
    for call in calls:
        call_id, n = call.id, 1
        while call_id in used_ids:
            n += 1
            call_id = f"{call.id or 'call'}-{n}"
        used_ids.add(call_id)
        is_same = call_id == call.id
        numbered.append(call if is_same else msgspec.structs.replace(call, id=call_id))
    return tuple(numbered)


ROLES = ("system", "user", "assistant", "tool")  # doc: Message


def _message_error(reason: str) -> ParameterError:
    return ParameterError(f"{reason}.", param="messages")


class _FieldsByName(msgspec.StructMeta):
    """Refuses wrong fields with our message; decoding does not call it."""

    def __call__(cls, *positional: Any, **fields: Any) -> Any:  # noqa: ANN401, N805 - a metaclass
        try:
            return super().__call__(*positional, **fields)
        except TypeError:
            pass
        raise _message_error(
            f"{cls.__name__} takes its fields by name: "
            f"{', '.join(cls.__struct_fields__)}; role is needed. Write "
            f"{cls.__name__}(role='user', content='...')"
        )


class Message(
    msgspec.Struct,
    metaclass=_FieldsByName,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,
):
    """One message of a conversation (doc: Message).

    Attributes:
        role: One of system, user, assistant, tool; other servers may know more.
        content: The text; None only in a message with tool calls.
        tool_calls: The calls of an assistant message, as the model made them.
        tool_call_id: On a tool message, the id of the call that it answers.
        other: Fields that the document does not show, such as `name`, or `content` in
            parts. They are never sent to the service.

    Example:
        >>> svc.complete([svc.Message(role="user", content="Say hello.")]).text
        'Hello!'
    """

    role: str
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    other: dict[str, Any] = {}

    def __hash__(self) -> int:
        return hash((self.role, self.content, self.tool_calls, self.tool_call_id))

    def __post_init__(self) -> None:
        content = self.content
        if type(content) is str and content.isascii() and self.role in ROLES:
            return  # the usual case, kept fast: frames read very many messages
        if self.role not in ROLES and not self.other:
            raise _message_error(
                f"role must be one of {', '.join(ROLES)}; got {self.role!r}"
            )
        may_lack_content = self.content is None and (self.tool_calls or self.other)
        if not isinstance(self.content, str) and not may_lack_content:
            raise _message_error(
                f"The content of a {self.role} message must be a text; got "
                f"{shown(self.content)}"
            )
        if self.content is not None:
            check_text(self.content, param="messages")


def system(text: str) -> Message:
    """Make a message that sets the assistant's behaviour (doc: Message)."""
    return Message(role="system", content=text)


def user(text: str) -> Message:
    """Make a user message (doc: Message)."""
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    """Make an assistant message (doc: Message)."""
    return Message(role="assistant", content=text)


Prompt = str | Sequence[Message | Mapping[str, Any]]


def to_messages(
    prompt: Prompt, *, system: str | None = None, is_documented: bool = True
) -> tuple[Message, ...]:
    """Return a prompt as messages; a text becomes one user message.

    For the service, anything that its document does not show is refused; other servers
    get other roles, fields and contents unchanged.
    """
    front = () if system is None else (Message(role="system", content=system),)
    return (*front, *_read_prompt(prompt, is_documented=is_documented))


def _read_prompt(prompt: object, *, is_documented: bool) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise _message_error("The prompt is empty; write what to ask")
        return (Message(role="user", content=prompt),)
    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise _message_error(
            f"messages is {type(prompt).__name__}; give a text or a list of messages",
        )
    if not prompt:
        raise _message_error(
            "messages is empty; give at least one message with role and content",
        )
    return tuple(
        _to_message(message, is_documented=is_documented) for message in prompt
    )


def _to_message(message: object, *, is_documented: bool) -> Message:
    if isinstance(message, Message):
        return message
    if not isinstance(message, Mapping):
        raise _message_error(
            f"A message is {type(message).__name__}; give a Message or a mapping with "
            "role and content"
        )
    calls = tuple(ToolCall.from_json(call) for call in message.get("tool_calls") or ())
    known: dict[str, Any] = {"tool_calls": calls}
    known |= {name: message[name] for name in _OWN_FIELDS if name in message}
    other = {name: message[name] for name in message if name not in _MESSAGE_FIELDS}
    if not is_documented:
        return _undocumented_message(known, other)
    if other:
        raise _message_error(
            f"A message has the unknown field {shorten(str(next(iter(other))), 60)!r}; "
            f"use the fields {', '.join(_MESSAGE_FIELDS)}"
        )
    return Message(**{"role": None, **known})


_OWN_FIELDS = ("role", "content", "tool_call_id")
_MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def _undocumented_message(
    known: Mapping[str, Any], other: Mapping[str, Any]
) -> Message:
    """Return a message for another server, with roles and fields unchanged."""
    content, role = known.get("content"), known.get("role")
    if not isinstance(role, str) or not role.strip():
        raise _message_error(f"role must be a text; got {shown(role)}")
    if isinstance(content, Sequence) and not isinstance(content, str):
        other = {**other, "content": list(content)}
        content = text_of_parts(content)
    if role not in ROLES:
        other = {**other, "role": role}
    return Message(**{**known, "content": content}, other=dict(other))


def text_of_parts(parts: Iterable[object]) -> str:
    """Return the joined texts of a content's parts; images and audio have none."""
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        texts.append(text if isinstance(text, str) else "")
    return "".join(texts)


_SENT_BACK = ("reasoning_content", "reasoning_details")
"""The fields of a reply that some servers need back with its tool calls."""

_OTHER_MAX_TOKENS = (
    *("max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict"),
)
"""Names that other servers use for max_tokens."""


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request to the service: the whole history, and the parameters to send.

    `extra` holds fields that the document does not show. `is_fitted` says whether
    max_tokens was computed, because `fit` was requested. `info` is what is known of the
    model; it is not sent.
    """

    model: str
    messages: tuple[Message, ...]
    params: dict[str, Any] = {}
    tools: tuple[dict[str, Any], ...] = ()
    extra: dict[str, Any] = {}
    is_fitted: bool = False
    info: ModelInfo = DOCUMENTED

    @property
    def context_tokens(self) -> int | None:
        """Tokens that prompt and reply share; None if unknown."""
        return self.info.context_tokens

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of a reply: as sent, or the default; None if unknown."""
        sent = self.params.get(MAX_TOKENS, self.info.default_max_tokens)
        if sent is None and (name := self.other_max_tokens):
            sent = self.extra[name]
        return sent if isinstance(sent, int) and sent > 0 else None

    @property
    def other_max_tokens(self) -> str:
        """The field of `extra` that limits the reply instead of max_tokens, or ""."""
        if self.info.is_documented:
            return ""
        return next((name for name in _OTHER_MAX_TOKENS if name in self.extra), "")

    @property
    def undocumented(self) -> tuple[str, ...]:
        """What is sent to another server although the document does not allow it."""
        if self.info.is_documented:
            return ()
        names = dict.fromkeys(
            name if name != "role" else f"the role {message.role}"
            for message in self.messages
            for name in message.other
            if name not in _SENT_BACK
        )
        return (*beyond_document(self.params), *names)

    @property
    def system(self) -> str | None:
        """The text of the first message, if it is a system message."""
        first = self.messages[0]
        return first.content if first.role == "system" else None

    @property
    def asked_params(self) -> dict[str, Any]:
        """The parameters with `fit` itself, not the number that was computed for it.

        They identify the request; the number would change with our estimates.
        """
        return {**self.params, "max_tokens": "fit"} if self.is_fitted else self.params

    @property
    def prompt(self) -> str:
        """The text of the newest user message; "" without one."""
        texts = (
            message.content for message in self.messages[::-1] if message.role == "user"
        )
        return next(texts, None) or ""


def build_request(
    prompt: Prompt,
    *,
    model: str,
    system: str | None = None,
    params: Mapping[str, object] | None = None,
    info_of: Callable[[str], ModelInfo] = lambda _: DOCUMENTED,
) -> CompletionRequest:
    """Check everything and make the request; `params` may have `tools` and `extra`.

    `info_of` returns what is known of a model.
    """
    unchecked = dict(params or {})
    extra = check_extra(unchecked.pop("extra", None))
    model = check_model(model)
    info = info_of(model)
    checked = check_all(unchecked, info)
    tools = checked.pop("tools", ())
    return CompletionRequest(
        model=model,
        messages=to_messages(prompt, system=system, is_documented=info.is_documented),
        params=checked,
        tools=tuple(dict(tool) for tool in tools),  # type: ignore[attr-defined]  # checked
        extra={**info.extra, **extra},
        info=msgspec.structs.replace(info, extra={}) if info.extra else info,
    )


def check_model(model: object) -> str:
    """Return a model id; ids that are not listed are allowed (doc: Model ids)."""
    if model == "":
        raise ParameterError(
            "No model is chosen, and the server has several. `%svc models` lists them; "
            "choose one with `%svc use MODEL`, svc.use(model=...) or model=.",
            param="model",
        )
    if not isinstance(model, str) or not model.strip():
        raise ParameterError(
            f"model must be a model id such as {DEFAULT_MODEL!r}; got {shown(model)}.",
            param="model",
        )
    if has_address_form(model):
        raise ParameterError(
            "model is an address, not a model id; choose an address with "
            "svc.use(base_url='https://HOST/v1') or `%svc use https://HOST/v1`. "
            "Nothing was changed or sent.",
            param="model",
        )
    return check_text(model.strip(), param="model")
