"""The document's rules for a request body: turns bytes into a `ChatRequest`.

Every range, default and bound is copied from the document, not imported from another
module (doc: Request body, Limits). Where the document is silent, checks are strict.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from .emulated_tokens import (
    MESSAGE_TOKENS,
    REPLY_TOKENS,
    count_json_tokens,
    count_tokens,
)
from .http_values import RuleError

JsonObject = dict[str, Any]

# These do not change the text of a reply, only where it ends and how it is sent.
_NOT_IN_SEED = ("is_streamed", "max_tokens", "stop", "user", "n_prompt_tokens", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call in the history (doc: Tool call)."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the history (doc: Message)."""

    role: str
    content: str = ""
    tool_calls: tuple[Call, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the request offers (doc: Tool definition)."""

    name: str
    description: str
    parameters: Mapping[str, Any]


# text between lines of backticks, and the lines of Markdown tables
_QUOTED = re.compile(
    r"^(?:(`{3,})[^\n]*\n.*?(?:^\1|\Z)|(?: *\|[^\n]*(?:\n|\Z))+)",
    re.MULTILINE | re.DOTALL,
)


# in a request for the rest of a reply that was cut
_GO_ON = re.compile(r"\b(?:go on|continue)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request that is valid by the document (doc: Request body)."""

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    top_p: float
    n: int
    is_streamed: bool
    stop: tuple[str, ...]
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    user: str | None
    tools: tuple[Tool, ...]
    n_prompt_tokens: int

    @property
    def question(self) -> str:
        """The newest user message, or an empty text."""
        users = [message.content for message in self.messages if message.role == "user"]
        return users[-1] if users else ""

    @property
    def system(self) -> str | None:
        """The system messages; None without any."""
        texts = [
            message.content for message in self.messages if message.role == "system"
        ]
        return "\n".join(texts) if texts else None

    @property
    def instructions(self) -> str:
        """The system messages and the newest user message, as one text."""
        return f"{self.system or ''}\n{self.question}"

    @property
    def wishes(self) -> tuple[str, str]:
        """What is asked for, without quoted code and tables: the question, the system.

        A number or an "or" in data that goes along with a question is no wish.
        """
        return _QUOTED.sub("\n", self.question), _QUOTED.sub("\n", self.system or "")

    @property
    def begun(self) -> str:
        """The reply that the newest message wants to go on; empty if there is none."""
        roles = [message.role for message in self.messages[-3:]]
        goes_on = roles[1:] == ["assistant", "user"] and _GO_ON.search(self.question)
        return self.messages[-2].content if goes_on else ""

    @property
    def before(self) -> "ChatRequest":
        """The request that the message before the newest one answered."""
        return replace(self, messages=self.messages[:-2])

    def identity(self) -> str:
        """Return an id of the request; identical requests have the same id."""
        return _digest(asdict(self))

    def seed(self, *, emulator_seed: int, nth: int, choice_index: int) -> int:
        """Return a choice's seed, the same in every run for the n-th same request."""
        fields = asdict(self)
        for name in _NOT_IN_SEED:
            del fields[name]
        return int(_digest([fields, emulator_seed, nth, choice_index])[:16], 16)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# doc: Message, "One of".
ROLES = ("system", "user", "assistant", "tool")
# doc: Limits, "Tokens per request (prompt plus completion)".
TOKENS_PER_REQUEST = 8192
# doc: Limits, "max_tokens default".
MAX_TOKENS_DEFAULT = 150
# doc: Limits, "stop sequences".
MAX_STOPS = 4
# The emulator's own limit: the document shows none, but memory is limited.
MAX_CHOICES = 128
# The emulator's own limit: no sensible schema is deeper.
MAX_LEVELS = 64


@dataclass(frozen=True, slots=True)
class _Range:
    """The range of a number; an integer if its default is one."""

    low: float
    high: float
    default: int | float


# doc: Request body. The range of top_p, and where n and max_tokens begin, is not shown.
_NUMBERS = {
    "temperature": _Range(0.0, 2.0, 0.7),
    "top_p": _Range(0.0, 1.0, 1.0),
    "presence_penalty": _Range(-2.0, 2.0, 0.0),
    "frequency_penalty": _Range(-2.0, 2.0, 0.0),
    "repetition_penalty": _Range(1.0, 2.0, 1.0),
    "max_tokens": _Range(1, TOKENS_PER_REQUEST, MAX_TOKENS_DEFAULT),
    "n": _Range(1, MAX_CHOICES, 1),
}


def read_chat_request(body: bytes, contexts: Mapping[str, int] = {}) -> ChatRequest:
    """Check a request body, in the order of the document's table.

    `contexts` are the tokens of models whose context is not the document's.

    Raises:
        RuleError: The body breaks a rule of the document.
    """
    body_fields = _read_object(body)
    # As in the interface that the service follows, null counts as not sent.
    fields = {name: value for name, value in body_fields.items() if value is not None}
    if not fields.get("model") or not isinstance(fields["model"], str):
        raise RuleError("'model' has to be a non-empty string and is required.")
    messages = read_messages(fields.get("messages"))
    budget = contexts.get(fields["model"], TOKENS_PER_REQUEST)
    ranges = dict(_NUMBERS)
    if fields["model"] in contexts:  # other servers check only the sum with the prompt
        ranges["max_tokens"] = _Range(1, math.inf, MAX_TOKENS_DEFAULT)
    numbers = {
        name: _read_number(fields, name, range_) for name, range_ in ranges.items()
    }
    tools = read_tools(fields.get("tools", []))
    is_streamed = fields.get("stream", False)
    if not isinstance(is_streamed, bool):
        raise RuleError("'stream' has to be a boolean.")
    n_prompt_tokens = _n_prompt_tokens(messages, fields)
    if n_prompt_tokens + numbers["max_tokens"] > budget:
        default = "" if "max_tokens" in fields else "the default of "
        is_own = fields["model"] in contexts
        context_note = (
            f"This model's maximum context length is {budget} tokens. " * is_own
        )
        raise RuleError(
            f"{context_note}The prompt takes {n_prompt_tokens} tokens and "
            f"'max_tokens' asks for {default}{numbers['max_tokens']}; "
            f"together they may be at most {budget}."
        )
    return ChatRequest(
        model=read_text(fields["model"], "model"),
        messages=messages,
        tools=tools,
        is_streamed=is_streamed,
        stop=_read_stops(fields.get("stop", [])),
        user=read_text(fields["user"], "user") if "user" in fields else None,
        n_prompt_tokens=n_prompt_tokens,
        **numbers,
    )


def _read_object(body: bytes) -> JsonObject:
    """Read a body as a JSON object (RFC 8259: NaN and Infinity are not JSON)."""
    try:
        value = json.loads(
            body.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=partial(_to_number, float),
            parse_int=partial(_to_number, int),
        )
    except UnicodeDecodeError:
        raise RuleError("The request body is not UTF-8.") from None
    except RecursionError:
        raise RuleError("The request body is nested too deeply.") from None
    except ValueError:
        raise RuleError("The request body is not JSON.") from None
    if not isinstance(value, dict):
        raise RuleError("The request body has to be a JSON object.")
    if _is_deep(value):
        raise RuleError("The request body is nested too deeply.")
    return value


def _is_deep(value: object) -> bool:
    """Say whether a JSON value has too many levels, without recursion."""
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    return bool(level)


def _to_number(kind: Callable[[str], float], digits: str) -> float:
    """Convert digits to a number; refuse infinity and integers with too many digits."""
    with suppress(ValueError):
        number = kind(digits)
        if abs(number) != math.inf:
            return number
    raise RuleError("The request body holds a number that is too large.")


def _refuse_constant(_name: str) -> None:
    """Refuse NaN, Infinity and -Infinity, which Python would accept."""
    raise ValueError


def _read_number(fields: Mapping[str, Any], name: str, range_: _Range) -> Any:  # noqa: ANN401 - an int, or a float
    """Read a number in its range; true is not a number, and 1.0 not an integer."""
    value = fields.get(name, range_.default)
    is_whole = isinstance(range_.default, int)
    types = int if is_whole else int | float
    if isinstance(value, bool) or not isinstance(value, types):
        kind = "an integer" if is_whole else "a number"
        raise RuleError(f"'{name}' has to be {kind}.")
    if not range_.low <= value <= range_.high:
        note = " (a limit of this emulator)" if name == "n" else ""
        raise RuleError(
            f"'{name}' has to be from {range_.low:g} to {range_.high:g}{note}."
        )
    return value if is_whole else float(value)


def _read_stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise RuleError(
            f"'stop' has to be a string or an array of up to {MAX_STOPS} strings."
        )
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise RuleError("Each sequence in 'stop' has to be a non-empty string.")
        read_text(stop, "stop")
    return tuple(stops)


def _n_prompt_tokens(messages: tuple[Message, ...], fields: JsonObject) -> int:
    total = REPLY_TOKENS
    for message in messages:
        total += MESSAGE_TOKENS + count_tokens(message.content)
        for call in message.tool_calls:
            total += count_tokens(call.name) + count_json_tokens(call.arguments)
    if tools := fields.get("tools"):
        text = json.dumps(tools, ensure_ascii=False, separators=(",", ":"))
        total += count_json_tokens(text)
    return total


def read_messages(value: object) -> tuple[Message, ...]:
    """Check a conversation."""
    if not isinstance(value, list) or not value:
        raise RuleError("'messages' has to be a non-empty array and is required.")
    messages = tuple(_read_message(message, at) for at, message in enumerate(value))
    _check_results(messages)
    return messages


def _read_message(value: object, at: int) -> Message:
    where = f"messages[{at}]"
    if not isinstance(value, dict):
        raise RuleError(f"'{where}' has to be an object.")
    role = value.get("role")
    if role not in ROLES:
        raise RuleError(f"'{where}.role' has to be one of {', '.join(ROLES)}.")
    calls = _read_calls(value, where) if role == "assistant" else ()
    content, call_id = value.get("content"), value.get("tool_call_id")
    if content is None and calls:  # a message needs no text next to tool calls
        content = ""
    if role != "tool":
        call_id = None
    elif call_id is not None:
        read_text(call_id, f"{where}.tool_call_id")
    return Message(
        role=role,
        content=read_text(content, f"{where}.content"),
        tool_calls=calls,
        tool_call_id=call_id,
    )


def _read_calls(value: JsonObject, where: str) -> tuple[Call, ...]:
    """Read the tool calls of an assistant message (doc: Tool call)."""
    calls = value.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise RuleError(f"'{where}.tool_calls' has to be an array.")
    calls_read = tuple(
        _read_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls)
    )
    if len({call.id for call in calls_read}) < len(calls_read):
        raise RuleError(f"'{where}.tool_calls' holds one id twice.")
    return calls_read


def _read_call(value: object, where: str) -> Call:
    function = _read_function(value, where)
    return Call(
        id=read_text(value.get("id"), f"{where}.id"),  # type: ignore[attr-defined]  # checked
        name=read_text(function.get("name"), f"{where}.function.name"),
        arguments=read_text(function.get("arguments"), f"{where}.function.arguments"),
    )


def _read_function(value: object, where: str) -> JsonObject:
    """Read the function of a tool call or of a definition."""
    if not isinstance(value, dict) or value.get("type") != "function":
        raise RuleError(f"'{where}' has to be an object with type 'function'.")
    function = value.get("function")
    if not isinstance(function, dict):
        raise RuleError(f"'{where}.function' has to be an object.")
    return function


def read_text(value: object, where: str) -> str:
    r"""Read a text that can be written as UTF-8; JSON can spell halves like \ud800."""
    if not isinstance(value, str):
        raise RuleError(f"'{where}' has to be a string.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RuleError(f"'{where}' holds half a surrogate pair.") from None
    return value


def _check_results(messages: tuple[Message, ...]) -> None:
    """Match tool results with tool calls, in order (doc: Tool-calling flow).

    Each call needs one `tool` message before a message of another role. The document
    does not show whether `tool_call_id` is required: without it, a result answers the
    first call that is still open.
    """
    open_ids: list[str] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            _match_result(open_ids, message, at)
            continue
        if open_ids:
            raise RuleError(
                f"'messages[{at}]' comes before all tool calls are answered "
                f"({len(open_ids)} left); each call needs a message with role 'tool' "
                "and its tool_call_id."
            )
        open_ids = [call.id for call in message.tool_calls]
    if open_ids:
        raise RuleError(
            "'messages' ends before all tool calls are answered "
            f"({len(open_ids)} left); send each result in a message with role 'tool'."
        )


def _match_result(open_ids: list[str], message: Message, at: int) -> None:
    """Remove the call that a result answers from the open ones."""
    answered = message.tool_call_id
    if answered is None and open_ids:
        answered = open_ids[0]
    if answered not in open_ids:
        raise RuleError(
            f"'messages[{at}]' does not answer an open tool call; its tool_call_id "
            "has to be the id of a call in the assistant message before it."
        )
    open_ids.remove(answered)


def read_tools(value: object) -> tuple[Tool, ...]:
    """Check the offered tools."""
    if not isinstance(value, list):
        raise RuleError("'tools' has to be an array.")
    tools = tuple(_read_tool(tool, f"tools[{at}]") for at, tool in enumerate(value))
    if len({tool.name for tool in tools}) < len(tools):
        raise RuleError(
            "'tools' holds one function name twice, which this emulator refuses."
        )
    return tools


def _read_tool(value: object, where: str) -> Tool:
    function = _read_function(value, where)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RuleError(f"'{where}.function.name' has to be a non-empty string.")
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise RuleError(f"'{where}.function.description' has to be a string.")
    return Tool(
        name=name, description=description, parameters=_read_schema(function, where)
    )


def _read_schema(function: JsonObject, where: str) -> JsonObject:
    """Check that the parameters, if given, are an object schema."""
    schema = function.get("parameters")
    where += ".function.parameters"
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise RuleError(f"'{where}' has to be a schema of type 'object'.")
    properties = schema.get("properties", {})
    # In JSON Schema, true and false allow anything and nothing.
    if not isinstance(properties, dict) or not all(
        isinstance(field, dict | bool) for field in properties.values()
    ):
        raise RuleError(f"'{where}.properties' has to be an object of objects.")
    required = [] if schema.get("required") is None else schema["required"]
    if not isinstance(required, list) or not all(isinstance(x, str) for x in required):
        raise RuleError(f"'{where}.required' has to be an array of input names.")
    return schema
