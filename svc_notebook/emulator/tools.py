"""Tools: which offers the emulator calls, with what, and what it says of results.

What it is not: it runs nothing, and checks no history (`history` does).

Rules for this file: a tool is called when the newest user message names it, once
for each name; arguments satisfy the offered schema as far as its words are known
here, and are made of the prompt's own words and numbers where they can be; when
results are in, they are told and no further call is made.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .ask import Ask, Call, Tool
from .brief import brief_of
from .tokens import split_tokens

# However a schema is nested, filling it in ends.
_DEPTH_AT_MOST = 8
_VALUES_AT_MOST = 256
_ITEMS_AT_MOST = 16
_LETTERS_AT_MOST = 1000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"[\"\u201c']([^\"\u201c\u201d']{1,200})[\"\u201d']")
_RESULT_LETTERS_AT_MOST = 400


def calls_for(ask: Ask, choice_index: int = 0) -> tuple[Call, ...]:
    """Decide which of the offered tools to call, and with which arguments.

    Args:
        ask: What was asked.
        choice_index: Which choice calls; ids are of one choice only.
    """
    if ask.messages[-1].role != "user":
        return ()
    named = [tool for tool in ask.tools if _is_named(tool, ask.question)]
    n_before = sum(len(message.tool_calls) for message in ask.messages)
    return tuple(
        Call(
            id=f"call_{ask.identity()[:12]}_{choice_index}_{n_before + at}",
            name=tool.name,
            arguments=_arguments(tool, ask.question),
        )
        for at, tool in enumerate(named)
    )


def told_results(ask: Ask) -> tuple[str, ...]:
    """Say what the tools answered, as tokens; nothing if none has just answered."""
    names = {call.id: call.name for each in ask.messages for call in each.tool_calls}
    results = []
    for message in reversed(ask.messages):
        if message.role != "tool":
            break
        name = names.get(message.tool_call_id or "", "the tool")
        content = message.content[:_RESULT_LETTERS_AT_MOST]
        results.append(f" {name} answered: {content}.")
    return tuple(split_tokens("".join(reversed(results))))


def _is_named(tool: Tool, question: str) -> bool:
    """Tell whether a prompt names a tool, also with blanks for underlines."""
    asked = question.casefold()
    name = tool.name.casefold()
    return any(
        re.search(rf"(?<![a-z0-9_]){re.escape(each)}(?![a-z0-9_])", asked)
        for each in (name, re.sub(r"[_-]+", " ", name))
    )


def _arguments(tool: Tool, question: str) -> str:
    """Fill in a tool's schema from a prompt, as JSON."""
    rest = re.sub(re.escape(tool.name), " ", question, flags=re.IGNORECASE)
    return json.dumps(_Filling(rest).object(tool.parameters, 0), ensure_ascii=False)


@dataclass(slots=True)
class _Filling:
    """A prompt's words and numbers, given out one after another."""

    question: str
    texts: list[str] = field(init=False)
    numbers: list[float] = field(init=False)
    n_values: int = 0

    def __post_init__(self) -> None:
        quoted = _QUOTED.findall(self.question)
        names = [
            word
            for word in brief_of(self.question).subjects
            if word[:1].isupper() and not self.question.lstrip().startswith(word)
        ]
        self.texts = [*quoted, *names, *reversed(brief_of(self.question).subjects)]
        self.numbers = [float(each) for each in _NUMBER.findall(self.question)]

    def value(self, schema: object, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Make a value that a schema allows; null where it cannot be read."""
        self.n_values += 1
        is_too_much = depth > _DEPTH_AT_MOST or self.n_values > _VALUES_AT_MOST
        if not isinstance(schema, Mapping) or is_too_much:
            return None
        for word in ("const", "default"):
            if word in schema:
                return schema[word]
        for word in ("anyOf", "oneOf", "allOf"):
            if _listed(schema, word):
                return self.value(_listed(schema, word)[0], depth + 1)
        if _listed(schema, "enum"):
            return self._one_of(_listed(schema, "enum"))
        return self._typed(schema, depth)

    def object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Make an object: its required properties, or all where none is."""
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        required = [
            each for each in _listed(schema, "required") if isinstance(each, str)
        ]
        return {
            name: self.value(known.get(name, {}), depth + 1)
            for name in required or known
        }

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401 - JSON
        """Make a value of the schema's type, the first where there are several."""
        kinds = _listed(schema, "type") or [schema.get("type")]
        if kinds[0] == "object":
            return self.object(schema, depth)
        if kinds[0] == "array":
            n_items = min(max(1, _count(schema.get("minItems"), 1)), _ITEMS_AT_MOST)
            item = schema.get("items", {})
            return [self.value(item, depth + 1) for _ in range(n_items)]
        if kinds[0] in ("integer", "number"):
            return self._number(schema, is_whole=kinds[0] == "integer")
        if kinds[0] in ("boolean", "null"):
            return True if kinds[0] == "boolean" else None
        return self._text(schema)

    def _one_of(self, values: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON
        """Take the value that the prompt names, or the first."""
        asked = self.question.casefold()
        named = [v for v in values if isinstance(v, str) and v.casefold() in asked]
        return (named or values)[0]

    def _text(self, schema: Mapping[str, Any]) -> str:
        """Take a text of the prompt, as long as the schema wants it."""
        text = self.texts.pop(0) if self.texts else "this"
        shortest = _count(schema.get("minLength"), 0)
        text = text.ljust(min(shortest, _LETTERS_AT_MOST), "x")
        return text[: _count(schema.get("maxLength"), len(text))]

    def _number(self, schema: Mapping[str, Any], *, is_whole: bool) -> float:
        """Take a number of the prompt, moved into the schema's bounds."""
        number = self.numbers.pop(0) if self.numbers else 1.0
        low, high = schema.get("minimum"), schema.get("maximum")
        if isinstance(low, int | float):
            number = max(number, low)
        if isinstance(high, int | float):
            number = min(number, high)
        return int(number) if is_whole else number


def _count(value: object, otherwise: int) -> int:
    """Read a count of a schema."""
    return value if isinstance(value, int) and value >= 0 else otherwise


def _listed(schema: Mapping[str, Any], word: str) -> list[Any]:
    """Read an array of a schema; empty where it is none."""
    value = schema.get(word)
    return value if isinstance(value, list) else []
