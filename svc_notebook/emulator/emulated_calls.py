"""The tool calls of emulated replies: which tools, with which arguments; and results.

A tool is called if the newest user message names it. The arguments are the simplest
ones that its schema allows, with the prompt's numbers, quoted texts and capitalised
names where they fit.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from .emulated_tokens import split_tokens
from .request_checks import Call, ChatRequest, Tool

# the most of a reply that tool results may take, so that some text follows them
_RESULTS_TOKENS = 100
_RESULTS_SHARE = 2 / 3
# bounds, because schemas may be recursive or ask for very many values
_MAX_DEPTH = 8
# Below this depth only what the schema requires is made.
_OPTIONAL_DEPTH = 4
_MAX_VALUES = 256
_MAX_ITEMS = 16
_MAX_LETTERS = 1000
# Floats are not exact beyond this.
_MAX_NUMBER = 1e15
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"[\"\u201c']([^\"\u201c\u201d']{1,200})[\"\u201d']")
# One or several capitalised words, not at the beginning of a sentence.
_NAME = re.compile(r"(?<=[\w,:;] )[A-Z][a-z]+(?: [A-Z][a-z]+)*")
_FORMATS = {
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "date-time": "2026-01-02T03:04:05Z",
    "email": "user@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

Schema = Mapping[str, Any]


def calls_for(chat: ChatRequest, choice_index: int = 0) -> tuple[Call, ...]:
    """Decide which tools to call after a user message, and with which arguments.

    No two choices share the id of a call.
    """
    if chat.messages[-1].role != "user":
        return ()
    named_tools = [
        tool for tool in chat.tools if _name_pattern(tool).search(chat.question)
    ]
    n_before = sum(len(message.tool_calls) for message in chat.messages)
    return tuple(
        Call(
            id=f"call_{chat.identity()[:12]}_{choice_index}_{n_before + at}",
            name=tool.name,
            arguments=_arguments(tool, chat.question),
        )
        for at, tool in enumerate(named_tools)
    )


def tool_results(chat: ChatRequest) -> list[tuple[str, str]]:
    """Return the tool results at the end of a request: tool names and short texts."""
    names = {
        call.id: call.name for message in chat.messages for call in message.tool_calls
    }
    answers = list(
        takewhile(lambda message: message.role == "tool", reversed(chat.messages))
    )
    room = min(_RESULTS_TOKENS, int(chat.max_tokens * _RESULTS_SHARE))
    room //= max(1, len(answers))
    results = []
    for message in reversed(answers):
        tokens = split_tokens(message.content)
        shown = "".join(tokens[:room]) + ("…" if len(tokens) > room else "")
        name = names.get(message.tool_call_id or "", "the tool")
        results.append((name, shown.rstrip(". ")))
    return results


def _name_pattern(tool: Tool) -> "re.Pattern[str]":
    """Return a pattern for a tool's name as a word; underscores may be blanks."""
    name = re.escape(tool.name).replace("_", "[_ ]")
    return re.compile(rf"(?<![a-z0-9_]){name}(?![a-z0-9_])", re.IGNORECASE)


def _arguments(tool: Tool, question: str) -> str:
    rest = _name_pattern(tool).sub("it", question)
    examples = _ExampleValues(
        root=tool.parameters,
        texts=iter([*_QUOTED.findall(rest), *_NAME.findall(rest)]),
        numbers=(float(digits) for digits in _NUMBER.findall(rest)),
    )
    return json.dumps(examples.value(tool.parameters), ensure_ascii=False)


@dataclass(slots=True)
class _ExampleValues:
    """Makes values for a schema; a prompt's texts and numbers are used once each.

    References are looked up in `root`, the whole schema.
    """

    root: Schema
    texts: Iterator[str]
    numbers: Iterator[float]
    n_values: int = field(default=0, init=False)

    def value(self, schema: object, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
        """Make a value that a schema allows; null if it cannot be read."""
        self.n_values += 1
        is_too_much = depth > _MAX_DEPTH or self.n_values > _MAX_VALUES
        if not isinstance(schema, Mapping) or is_too_much:
            return None
        for word in ("const", "default"):
            if word in schema:
                return schema[word]
        if "$ref" in schema:
            return self.value(_look_up(self.root, schema["$ref"]), depth + 1)
        for word in ("anyOf", "oneOf", "allOf"):
            if _read_array(schema, word):
                return self.value(schema[word][0], depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: Schema, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Make a value of the schema's type, the first if it has several."""
        if _read_array(schema, "enum"):
            return schema["enum"][0]
        kind = (_read_array(schema, "type") or [schema.get("type")])[0]
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            usual = min(_count(schema, "maxItems", 1), int(depth < _OPTIONAL_DEPTH))
            n_items = min(max(_count(schema, "minItems", 0), usual), _MAX_ITEMS)
            items = schema.get("items", {})
            return [self.value(items, depth + 1) for _ in range(n_items)]
        if kind in ("integer", "number"):
            return self._number(schema, is_integer=kind == "integer")
        if kind in ("boolean", "null"):
            return True if kind == "boolean" else None
        return self._text(schema)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        """Make an object: its required properties, or all if none is required."""
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        required = [x for x in _read_array(schema, "required") if isinstance(x, str)]
        return {
            name: self.value(known.get(name, {}), depth + 1)
            for name in required or (known if depth < _OPTIONAL_DEPTH else ())
        }

    def _text(self, schema: Schema) -> str:
        """Return a text of the prompt, in the length that the schema requires."""
        if str(schema.get("format")) in _FORMATS:
            return _FORMATS[schema["format"]]
        if schema.get("format") == "decimal":
            return str(self._number(schema, is_integer=False))
        text = next(self.texts, "made up")
        shortest = min(_count(schema, "minLength", 0), _MAX_LETTERS)
        return text.ljust(shortest, "x")[: _count(schema, "maxLength", _MAX_LETTERS)]

    def _number(self, schema: Schema, *, is_integer: bool) -> float:
        """Return a number of the prompt, moved into the bounds of the schema."""
        low = _bound(schema, "minimum", "exclusiveMinimum", 1)
        high = _bound(schema, "maximum", "exclusiveMaximum", -1)
        number = min(max(next(self.numbers, 1.0), low), high)
        # a whole number as a model writes it: 250, not 250.0
        return round(number) if is_integer or number.is_integer() else number


def _look_up(root: Schema, reference: object) -> object:
    """Look up a reference such as #/$defs/City; None if it leads nowhere."""
    schema: object = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        schema = schema.get(name) if isinstance(schema, Mapping) else None
    return schema


def _read_array(schema: Schema, word: str) -> list[Any]:
    """Return an array of a schema; empty if the value is not an array."""
    value = schema.get(word)
    return value if isinstance(value, list) else []


def _count(schema: Schema, word: str, default: int) -> int:
    value = schema.get(word)
    return value if type(value) is int and value >= 0 else default


def _bound(schema: Schema, word: str, exclusive: str, step: int) -> float:
    """Read a bound of a number; an exclusive one is moved by a step."""
    for name, moved in ((word, 0), (exclusive, step)):
        value: Any = schema.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and abs(value) <= _MAX_NUMBER:
            return float(value) + moved
    return math.inf * -step
