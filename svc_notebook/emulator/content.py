"""What emulated replies contain: ready-made paragraphs, and calls of tools.

The open words of a paragraph are drawn as a language model draws tokens, so that
temperature, top_p and the penalties can be seen at work. That a text is made up is said
by the response's headers, and by the badge of whoever shows it. A tool is called if the
newest user message names it, with the simplest arguments that its schema allows, and
the prompt's numbers, quoted texts and capitalised names where they fit.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import accumulate, takewhile
from random import Random
from typing import Any, NamedTuple

from .rules import Call, ChatRequest, Tool, split_tokens

# Scores are drawn from LOWEST to LOWEST + SPREAD: above 0, since the repetition
# penalty divides them.
LOWEST = 4.0
SPREAD = 4.0
# Subtracted from a paragraph's score for each use; otherwise a text at temperature 0
# would repeat one paragraph.
AGAIN_COST = 12.0

_THAI_LETTER = re.compile(r"[\u0e01-\u0e2e]")
_LATIN_LETTER = re.compile(r"[A-Za-z]")
_OPEN_WORD = re.compile(r"<(\w+)>")
# Lets users try out a classification.
_LABELS = re.compile(
    r"\b(?:classify as|one word:) ((?:\w+, )*\w+),? or (\w+)", re.IGNORECASE
)


class Style(NamedTuple):
    """How a model writes: from which sections of the phrases, and how much."""

    shortest_tokens: int
    longest_tokens: int
    sections: tuple[str, ...]


_PLAIN = Style(50, 100, ("plain",))
# Models differ so that a comparison shows a difference; it says nothing about the
# service's models.
STYLES = {
    "svc-instruct": Style(40, 90, ("plain", "terse", "long")),
    "svc-v1.5-instruct": _PLAIN,
    "svc-v1.5x-70b-instruct": Style(100, 180, ("long",)),
    "svc-v2-8b-instruct": Style(25, 65, ("terse",)),
    "svc-v2-70b-instruct": Style(130, 230, ("long", "plain")),
    "svc-v2.1-12b-instruct": Style(60, 120, ("plain", "terse")),
    "svc-v2.5-30b-a3b-instruct": Style(80, 150, ("terse", "long")),
}


def write(
    chat: ChatRequest, seed: int, *, results: Sequence[tuple[str, str]] = ()
) -> Iterator[str]:
    """Write a reply token by token; it begins with what tools answered, by name."""
    rng = Random(seed)  # noqa: S311 - repeatable chance, not secrets
    labels = _LABELS.search(chat.instructions)
    if labels and not results:
        yield from split_tokens(_label(labels, chat, rng))
        return
    n_thai = len(_THAI_LETTER.findall(chat.question))
    is_thai = n_thai > len(_LATIN_LETTER.findall(chat.question))
    said = " ตอบว่า {}" if is_thai else " answered: {}."
    start = " ".join(name + said.format(result) for name, result in results)
    yield from split_tokens(start)
    style = STYLES.get(chat.model, _PLAIN)
    writer = _Writer(
        chat=chat,
        rng=rng,
        phrases=_phrases(is_thai=is_thai),
        taste=f"{chat.model}/{chat.question}",
    )
    length = _length(style, chat, rng)
    yield from writer.tokens(style, length=length, before=" " if start else "")


def _label(labels: "re.Match[str]", chat: ChatRequest, rng: Random) -> str:
    """Pick one of the words that a prompt offers, without judging anything."""
    offered: list[str] = [*labels[1].split(", "), labels[2]]
    if chat.temperature == 0.0:
        rng = Random(f"{chat.model}\n{chat.instructions}")  # noqa: S311 - repeatable
    return rng.choice(offered)


def _length(style: Style, chat: ChatRequest, rng: Random) -> float:
    """Decide how many tokens the reply has at least.

    A low temperature or top_p keeps it in the middle of the style's range.
    """
    room = min(1.0, chat.temperature) * chat.top_p
    share = round(0.5 + (rng.random() - 0.5) * room, 1)
    return style.shortest_tokens + share * (
        style.longest_tokens - style.shortest_tokens
    )


def penalised(chat: ChatRequest, score: float, n_seen: int) -> float:
    """Lower the score, above 0, of an option that appeared so often before."""
    if not n_seen:
        return score
    penalty = chat.presence_penalty + chat.frequency_penalty * n_seen
    return score / chat.repetition_penalty - penalty


def draw(chat: ChatRequest, scores: Sequence[float], rng: Random) -> int:
    """Draw a place by the temperature from the nucleus that reaches `top_p`."""
    ranked = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
    if chat.temperature == 0.0:
        return ranked[0]
    top = scores[ranked[0]]
    weights = [math.exp((scores[at] - top) / chat.temperature) for at in ranked]
    wanted = chat.top_p * sum(weights)
    sums = list(accumulate(weights))
    n_kept = 1 + sum(reached < wanted for reached in sums[:-1])
    return rng.choices(ranked[:n_kept], cum_weights=sums[:n_kept])[0]


@dataclass(frozen=True, slots=True)
class _Phrases:
    """What texts are made of: words by their slot, paragraphs by their section."""

    words: Mapping[str, tuple[str, ...]]
    paragraphs: Mapping[str, tuple[tuple[str, ...], ...]]


@cache
def _phrases(*, is_thai: bool) -> _Phrases:
    """Read the phrases of a language: [sections] of paragraphs of sentences."""
    name = "phrases_th.txt" if is_thai else "phrases_en.txt"
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    parts = re.split(r"^\[(\w+)\]\n", text, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    lines = (line.split(": ") for line in sections.pop("words").strip().splitlines())
    return _Phrases(
        words={slot: tuple(words.split(", ")) for slot, words in lines},
        paragraphs={
            section: tuple(
                # A list belongs to the sentence before it.
                tuple(re.split(r"\n(?!- )", paragraph))
                for paragraph in body.strip().split("\n\n")
            )
            for section, body in sections.items()
        },
    )


@dataclass(slots=True, kw_only=True)
class _Writer:
    """One reply; each `taste` prefers other words and paragraphs."""

    chat: ChatRequest
    rng: Random
    phrases: _Phrases
    taste: str
    seen: Counter[str] = field(default_factory=Counter)

    def tokens(self, style: Style, *, length: float, before: str) -> Iterator[str]:
        """Write whole sentences until the text is long enough, the first `before`."""
        paragraphs = [
            paragraph
            for section in style.sections
            for paragraph in self.phrases.paragraphs[section]
        ]
        firsts = [each[0] for each in paragraphs]
        n_tokens = 0
        while True:
            for sentence in paragraphs[self._draw(firsts, AGAIN_COST)]:
                text = before + _OPEN_WORD.sub(self._word, sentence)
                tokens = split_tokens(text)
                yield from tokens
                n_tokens += len(tokens)
                if n_tokens >= length:
                    return
                before = " "
            before = "\n\n"

    def _word(self, slot: "re.Match[str]") -> str:
        words = self.phrases.words[slot[1]]
        return words[self._draw(words)]

    def _draw(self, options: Sequence[str], again_cost: float = 0.0) -> int:
        scores = [
            penalised(self.chat, self._score(each), self.seen[each])
            - again_cost * self.seen[each]
            for each in options
        ]
        at = draw(self.chat, scores, self.rng)
        self.seen[options[at]] += 1
        return at

    def _score(self, text: str) -> float:
        """Score a text by the taste: the same in every run."""
        digest = hashlib.blake2b(f"{text}/{self.taste}".encode(), digest_size=4)
        return LOWEST + SPREAD * int.from_bytes(digest.digest()) / 2**32


# What all results together take of a reply, so that some text follows them.
_RESULTS_TOKENS = 100
_RESULTS_SHARE = 2 / 3
# Bounds for schemas that refer to themselves or ask for a great deal.
_DEPTH_AT_MOST = 8
# Below this depth only what the schema requires is made.
_OPTIONAL_DEPTH = 4
_VALUES_AT_MOST = 256
_ITEMS_AT_MOST = 16
_LETTERS_AT_MOST = 1000
# Floats are not exact beyond this.
_LARGEST = 1e15
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
    named = [tool for tool in chat.tools if _named(tool).search(chat.question)]
    n_before = sum(len(message.tool_calls) for message in chat.messages)
    return tuple(
        Call(
            id=f"call_{chat.identity()[:12]}_{choice_index}_{n_before + at}",
            name=tool.name,
            arguments=_arguments(tool, chat.question),
        )
        for at, tool in enumerate(named)
    )


def tool_results(chat: ChatRequest) -> list[tuple[str, str]]:
    """Repeat the results at the end of a request, shortened, by the tools' names."""
    names = {call.id: call.name for each in chat.messages for call in each.tool_calls}
    answers = list(takewhile(lambda each: each.role == "tool", reversed(chat.messages)))
    room = min(_RESULTS_TOKENS, int(chat.max_tokens * _RESULTS_SHARE))
    room //= max(1, len(answers))
    found = []
    for each in reversed(answers):
        tokens = split_tokens(each.content)
        shown = "".join(tokens[:room]) + ("…" if len(tokens) > room else "")
        name = names.get(each.tool_call_id or "", "the tool")
        found.append((name, shown.rstrip(". ")))
    return found


def _named(tool: Tool) -> "re.Pattern[str]":
    """Find a tool's name as a whole word; its underscores may be blanks."""
    name = re.escape(tool.name).replace("_", "[_ ]")
    return re.compile(rf"(?<![a-z0-9_]){name}(?![a-z0-9_])", re.IGNORECASE)


def _arguments(tool: Tool, question: str) -> str:
    rest = _named(tool).sub("it", question)
    filler = _Filler(
        root=tool.parameters,
        texts=iter([*_QUOTED.findall(rest), *_NAME.findall(rest)]),
        numbers=(float(each) for each in _NUMBER.findall(rest)),
    )
    return json.dumps(filler.value(tool.parameters), ensure_ascii=False)


@dataclass(slots=True)
class _Filler:
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
        is_too_much = depth > _DEPTH_AT_MOST or self.n_values > _VALUES_AT_MOST
        if not isinstance(schema, Mapping) or is_too_much:
            return None
        for word in ("const", "default"):
            if word in schema:
                return schema[word]
        if "$ref" in schema:
            return self.value(_referred(self.root, schema["$ref"]), depth + 1)
        for word in ("anyOf", "oneOf", "allOf"):
            if _listed(schema, word):
                return self.value(schema[word][0], depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: Schema, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Make a value of the schema's type, the first if it has several."""
        if _listed(schema, "enum"):
            return schema["enum"][0]
        kind = (_listed(schema, "type") or [schema.get("type")])[0]
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            usual = min(_count(schema, "maxItems", 1), int(depth < _OPTIONAL_DEPTH))
            n_items = min(max(_count(schema, "minItems", 0), usual), _ITEMS_AT_MOST)
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
        required = [x for x in _listed(schema, "required") if isinstance(x, str)]
        return {
            name: self.value(known.get(name, {}), depth + 1)
            for name in required or (known if depth < _OPTIONAL_DEPTH else ())
        }

    def _text(self, schema: Schema) -> str:
        """Take a text of the prompt, as long as the schema wants."""
        if str(schema.get("format")) in _FORMATS:
            return _FORMATS[schema["format"]]
        text = next(self.texts, "this")
        shortest = min(_count(schema, "minLength", 0), _LETTERS_AT_MOST)
        return text.ljust(shortest, "x")[
            : _count(schema, "maxLength", _LETTERS_AT_MOST)
        ]

    def _number(self, schema: Schema, *, is_integer: bool) -> float:
        """Take a number of the prompt, within the bounds of the schema."""
        low = _bound(schema, "minimum", "exclusiveMinimum", 1)
        high = _bound(schema, "maximum", "exclusiveMaximum", -1)
        number = min(max(next(self.numbers, 1.0), low), high)
        return round(number) if is_integer else number


def _referred(root: Schema, reference: object) -> object:
    """Look up a reference such as #/$defs/City; None if it leads nowhere."""
    here: object = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def _listed(schema: Schema, word: str) -> list[Any]:
    """Read an array of a schema; empty if it is not one."""
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
        if is_number and abs(value) <= _LARGEST:
            return float(value) + moved
    return math.inf * -step
