"""Filling in a tool's schema: arguments made of a prompt's own words and numbers.

What it is not: it chooses no tool (`tools` does) and validates nothing.

Rules for this file: what it makes satisfies the schema as far as the schema's
words are known here (`pattern` and `not` are not); what cannot be read is passed
over; every filling ends, however a schema is nested or refers to itself.

Tools: which offers the emulator calls, with what, and what it says of results.

What it is not: it runs nothing, and checks no history (`history` does).

Rules for this file: a tool is called when the newest user message names it or
holds every word of its name that says what it is about, once for each tool;
arguments are made by `filling`; when results are in, each is told, in its share of
the reply, and no further call is made.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from .chat_request import Call, ChatRequest, Tool, split_tokens
from .language import brief_of

# However a schema is nested, filling it in ends.
_DEPTH_AT_MOST = 8
_VALUES_AT_MOST = 256
_ITEMS_AT_MOST = 16
_LETTERS_AT_MOST = 1000
# Below this depth nothing is made that the schema does not require.
_OPTIONAL_DEPTH = 4
# Larger bounds are passed over: floats are no longer exact there.
_LARGEST = 1e15
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"[\"\u201c']([^\"\u201c\u201d']{1,200})[\"\u201d']")
# How a format looks in a prompt, and what stands in where none is found.
_FORMATS = {
    "date": (r"\b\d{4}-[01]\d-[0-3]\d\b", "2026-01-02"),
    "time": (r"\b[0-2]\d:[0-5]\d:[0-5]\dZ\b", "03:04:05Z"),
    "date-time": (
        r"\b\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ\b",
        "2026-01-02T03:04:05Z",
    ),
    "email": (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b", "somebody@example.org"),
    "uri": (r"\bhttps?://[^\s\"'<>]+", "https://example.org/"),
    "uuid": (
        r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        "00000000-0000-4000-8000-000000000000",
    ),
}

Schema = Mapping[str, Any]


@dataclass(slots=True)
class Filling:
    """A prompt's words and numbers, given out one after another.

    Attributes:
        question: The prompt.
        root: The whole schema, where references are looked up.
    """

    question: str
    root: Schema
    _texts: list[str] = field(init=False)
    _numbers: list[float] = field(init=False)
    _n_values: int = 0

    def __post_init__(self) -> None:
        quoted = _QUOTED.findall(self.question)
        subjects = brief_of(self.question).subjects
        names = [
            word
            for word in subjects
            if word[:1].isupper() and not self.question.lstrip().startswith(word)
        ]
        self._texts = [*quoted, *names, *reversed(subjects)]
        self._numbers = [float(each) for each in _NUMBER.findall(self.question)]

    def arguments(self) -> dict[str, Any]:
        """Fill in the whole schema."""
        return self._object(self._plain(self.root), 0)

    def _value(self, schema: object, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Make a value that a schema allows; null where it cannot be read."""
        self._n_values += 1
        is_too_much = depth > _DEPTH_AT_MOST or self._n_values > _VALUES_AT_MOST
        if not isinstance(schema, Mapping) or is_too_much:
            return None
        plain = self._plain(schema)
        for word in ("const", "default"):
            if word in plain:
                return plain[word]
        for word in ("anyOf", "oneOf"):
            choices = _listed(plain, word)
            if choices and isinstance(choices[0], Mapping):
                rest = {name: each for name, each in plain.items() if name != word}
                return self._value({**rest, **choices[0]}, depth + 1)
        if _listed(plain, "enum"):
            return self._one_of(_listed(plain, "enum"))
        return self._typed(plain, depth)

    def _plain(self, schema: Schema) -> Schema:
        """Put what a schema refers to, and all of `allOf`, into one schema."""
        plain: dict[str, Any] = {}
        open_parts: list[Any] = [schema]
        for _ in range(_ITEMS_AT_MOST):
            if not open_parts:
                break
            part = open_parts.pop()
            if not isinstance(part, Mapping):
                continue
            _merge(plain, part)
            open_parts += _listed(part, "allOf")
            if "$ref" in part:
                open_parts.append(_pointed(self.root, part["$ref"]))
        return plain

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        """Make an object: its required properties, or all where none is."""
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        required = [
            each for each in _listed(schema, "required") if isinstance(each, str)
        ]
        wanted = known if depth < _OPTIONAL_DEPTH else ()
        return {
            name: self._value(known.get(name, {}), depth + 1)
            for name in required or wanted
        }

    def _typed(self, schema: Schema, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Make a value of the schema's type, the first where there are several."""
        kind = (_listed(schema, "type") or [schema.get("type")])[0]
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return self._number(schema, is_whole=kind == "integer")
        if kind in ("boolean", "null"):
            return True if kind == "boolean" else None
        return self._text(schema)

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        """Make an array: one item, or as many as the schema wants."""
        usual = 1 if depth < _OPTIONAL_DEPTH else 0
        n_items = min(
            max(usual, _count(schema.get("minItems"), 0)),
            _count(schema.get("maxItems"), _ITEMS_AT_MOST),
            _ITEMS_AT_MOST,
        )
        items: list[Any] = []
        for at in range(n_items):
            item = self._value(schema.get("items", {}), depth + 1)
            is_again = schema.get("uniqueItems") is True and item in items
            items.append(_another(item, at) if is_again else item)
        return items

    def _one_of(self, values: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON
        """Take the value that the prompt names, or the first."""
        asked = self.question.casefold()
        named = [v for v in values if isinstance(v, str) and v.casefold() in asked]
        return (named or values)[0]

    def _text(self, schema: Schema) -> str:
        """Take a text of the prompt, in the form and as long as the schema wants."""
        look, sample = _FORMATS.get(str(schema.get("format")), (None, ""))
        if look is not None:
            found = re.search(look, self.question, re.IGNORECASE)
            return found[0] if found else sample
        text = self._texts.pop(0) if self._texts else "this"
        shortest = _count(schema.get("minLength"), 0)
        text = text.ljust(min(shortest, _LETTERS_AT_MOST), "x")
        return text[: _count(schema.get("maxLength"), len(text))]

    def _number(self, schema: Schema, *, is_whole: bool) -> float:
        """Take a number of the prompt, or the next one that the schema allows."""
        asked = self._numbers.pop(0) if self._numbers else 1.0
        step = _bound(schema, "multipleOf") or 0.0
        if step <= 0:
            step = 1.0 if is_whole else 0.0
        near = [asked, *_bounds(schema)]
        tried = [on for each in near for on in _on_steps(each, step)]
        number = next((each for each in tried if _is_within(each, schema)), tried[0])
        return int(number) if is_whole else number


def _merge(plain: dict[str, Any], part: Schema) -> None:
    """Add a part to a schema: what was there stays, properties add up."""
    for word, value in part.items():
        both = plain.get(word), value
        if word == "properties" and all(isinstance(each, Mapping) for each in both):
            plain[word] = {**value, **plain[word]}
        elif word == "required" and all(isinstance(each, list) for each in both):
            plain[word] = [*plain[word], *value]
        elif word not in ("$ref", "allOf"):
            plain.setdefault(word, value)


def _pointed(root: Schema, reference: object) -> object:
    """Look up a reference such as #/$defs/City; None where it leads nowhere."""
    here: object = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def _another(item: object, at: int) -> object:
    """Make an item differ from those before it, where that is easy."""
    if isinstance(item, str):
        return f"{item} {at + 1}"
    if isinstance(item, int | float) and not isinstance(item, bool):
        return item + at
    return item


def _bounds(schema: Schema) -> Iterator[float]:
    """List the bounds of a number and what is next to them."""
    found = [
        bound
        for word in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
        if (bound := _bound(schema, word)) is not None
    ]
    for bound in found:
        yield from (bound, bound + 1, bound - 1)
    if found:
        yield sum(found) / len(found)


def _on_steps(number: float, step: float) -> tuple[float, ...]:
    """Move a number down and up to a multiple of a step; 0 for no steps."""
    if not step or not math.isfinite(number / step):
        return (number,)
    return math.floor(number / step) * step, math.ceil(number / step) * step


def _is_within(number: float, schema: Schema) -> bool:
    """Tell whether a number keeps to the bounds of a schema."""
    low, high = _bound(schema, "minimum"), _bound(schema, "maximum")
    above, below = (
        _bound(schema, "exclusiveMinimum"),
        _bound(schema, "exclusiveMaximum"),
    )
    return (
        (low is None or number >= low)
        and (high is None or number <= high)
        and (above is None or number > above)
        and (below is None or number < below)
    )


def _bound(schema: Schema, word: str) -> float | None:
    """Read a number of a schema, if it is one of ordinary size."""
    value = schema.get(word)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def _count(value: object, otherwise: int) -> int:
    """Read a count of a schema."""
    return value if isinstance(value, int) and value >= 0 else otherwise


def _listed(schema: Schema, word: str) -> list[Any]:
    """Read an array of a schema; empty where it is none."""
    value = schema.get(word)
    return value if isinstance(value, list) else []


# What is told of all results together, so that each is told and a text follows.
_TOLD_TOKENS = 100
_TOLD_SHARE = 2 / 3
# The words of a name, however they are joined: get_weather, getWeather.
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
# Words of a name that people leave out when they chat for what the tool is about.
_UNSPOKEN = frozenset(
    ("a", "current", "fetch", "find", "for", "get", "in", "look", "lookup", "my")
) | {"of", "show", "tell", "the", "up"}


def calls_for(chat: ChatRequest, choice_index: int = 0) -> tuple[Call, ...]:
    """Decide which of the offered tools to call, and with which arguments.

    Args:
        chat: What was asked.
        choice_index: Which choice calls; ids are of one choice only.
    """
    if chat.messages[-1].role != "user":
        return ()
    named = [tool for tool in chat.tools if _is_named(tool, chat.question)]
    n_before = sum(len(message.tool_calls) for message in chat.messages)
    return tuple(
        Call(
            id=f"call_{chat.identity()[:12]}_{choice_index}_{n_before + at}",
            name=tool.name,
            arguments=_arguments(tool, chat.question),
        )
        for at, tool in enumerate(named)
    )


def told_results(chat: ChatRequest) -> tuple[str, ...]:
    """Say what the tools answered, as tokens; nothing if none has just answered."""
    names = {call.id: call.name for each in chat.messages for call in each.tool_calls}
    answers = list(takewhile(lambda each: each.role == "tool", reversed(chat.messages)))
    room = min(_TOLD_TOKENS, int(chat.max_tokens * _TOLD_SHARE)) // max(1, len(answers))
    results = [
        f" {names.get(each.tool_call_id or '', 'the tool')} answered: "
        f"{_shortened(each.content, room).rstrip('. ')}."
        for each in reversed(answers)
    ]
    return tuple(split_tokens("".join(results)))


def _shortened(text: str, n_tokens: int) -> str:
    """Cut a text off after so many tokens, visibly."""
    tokens = split_tokens(text)
    if len(tokens) <= n_tokens:
        return text
    return "".join(tokens[:n_tokens]) + "…"


def _is_named(tool: Tool, question: str) -> bool:
    """Tell whether a prompt names a tool or what it is about."""
    asked = question.casefold()
    words = [each.casefold() for each in _NAME_WORD.findall(tool.name)]
    about = [each for each in words if each not in _UNSPOKEN]
    return (
        _holds(asked, tool.name.casefold())
        or (bool(words) and _holds(asked, " ".join(words)))
        or (bool(about) and all(_holds(asked, each) for each in about))
    )


def _holds(asked: str, name: str) -> bool:
    """Tell whether a text holds a name, not only as a part of another word."""
    found = re.search(rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])", asked)
    return found is not None


def _arguments(tool: Tool, question: str) -> str:
    """Fill in a tool's schema from a prompt, as JSON."""
    rest = re.sub(re.escape(tool.name), " ", question, flags=re.IGNORECASE)
    return json.dumps(Filling(rest, tool.parameters).arguments(), ensure_ascii=False)
