"""The document's rules on `messages`: shapes, roles and the order of tool results.

What it is not: `rules` reads every other parameter.

Rules for this file: every tool call of an assistant message is answered by one
`tool` message before any other role speaks, and no `tool` message answers a call
that was not made (doc: Tool-calling flow). Whether `tool_call_id` is required is
not shown: without one, a result answers the first call still open.
"""

from .ask import Call, JsonObject, Message
from .fault import RuleError

# doc: Message, "One of".
ROLES = ("system", "user", "assistant", "tool")


def read_messages(value: object) -> tuple[Message, ...]:
    """Check a conversation.

    Raises:
        RuleError: It is missing, empty, or breaks a rule of the document.
    """
    if not isinstance(value, list) or not value:
        raise RuleError("'messages' has to be a non-empty array and is required.")
    messages = tuple(_message(each, at) for at, each in enumerate(value))
    _check_results(messages)
    return messages


def _message(value: object, at: int) -> Message:
    """Check one message by itself."""
    where = f"messages[{at}]"
    if not isinstance(value, dict):
        raise RuleError(f"'{where}' has to be an object.")
    role = value.get("role")
    if role not in ROLES:
        raise RuleError(f"'{where}.role' has to be one of {', '.join(ROLES)}.")
    calls = _calls(value, where) if role == "assistant" else ()
    return Message(
        role=role,
        content=_content(value, where, has_calls=bool(calls)),
        tool_calls=calls,
        tool_call_id=_call_id(value, where) if role == "tool" else None,
    )


def _content(value: JsonObject, where: str, *, has_calls: bool) -> str:
    """Read the text; only a message with tool calls may come without one."""
    content = value.get("content")
    if content is None and has_calls:
        return ""
    return read_text(content, f"{where}.content")


def _call_id(value: JsonObject, where: str) -> str | None:
    """Read the id that a result answers, if there is one."""
    if value.get("tool_call_id") is None:
        return None
    return read_text(value["tool_call_id"], f"{where}.tool_call_id")


def _calls(value: JsonObject, where: str) -> tuple[Call, ...]:
    """Read the tool calls of an assistant message (doc: Tool call)."""
    calls = value.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise RuleError(f"'{where}.tool_calls' has to be an array.")
    read = tuple(
        _call(each, f"{where}.tool_calls[{at}]") for at, each in enumerate(calls)
    )
    if len({call.id for call in read}) < len(read):
        raise RuleError(f"'{where}.tool_calls' holds one id twice.")
    return read


def _call(value: object, where: str) -> Call:
    """Read one tool call."""
    if not isinstance(value, dict) or value.get("type") != "function":
        raise RuleError(f"'{where}' has to be an object with type 'function'.")
    function = value.get("function")
    if not isinstance(function, dict):
        raise RuleError(f"'{where}.function' has to be an object.")
    return Call(
        id=read_text(value.get("id"), f"{where}.id"),
        name=read_text(function.get("name"), f"{where}.function.name"),
        arguments=read_text(function.get("arguments"), f"{where}.function.arguments"),
    )


def read_text(value: object, where: str) -> str:
    r"""Read a text that can be written as UTF-8.

    Raises:
        RuleError: It is no string, or holds half of a surrogate pair, which JSON
            can spell as \ud800.
    """
    if not isinstance(value, str):
        raise RuleError(f"'{where}' has to be a string.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RuleError(f"'{where}' holds half a surrogate pair.") from None
    return value


def _check_results(messages: tuple[Message, ...]) -> None:
    """Match tool results with tool calls, in order."""
    is_open: list[str] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            _close(is_open, message, at)
            continue
        if is_open:
            raise RuleError(
                f"'messages[{at}]' comes before all tool calls are answered "
                f"({len(is_open)} left); each call needs a message with role 'tool' "
                "and its tool_call_id."
            )
        is_open = [call.id for call in message.tool_calls]
    if is_open:
        raise RuleError(
            "'messages' ends before all tool calls are answered "
            f"({len(is_open)} left); send each result in a message with role 'tool'."
        )


def _close(is_open: list[str], message: Message, at: int) -> None:
    """Take the call that a result answers off the list of open ones."""
    answered = message.tool_call_id
    if answered is None and is_open:
        answered = is_open[0]
    if answered not in is_open:
        raise RuleError(
            f"'messages[{at}]' is the result of no open tool call; its tool_call_id "
            "has to be the id of a call in the assistant message before it."
        )
    is_open.remove(answered)
