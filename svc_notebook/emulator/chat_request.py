"""A request that keeps to the document's rules, and the tokens of its texts.

The service's own tokenizer is not shown, so these tokens are the emulator's.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

JsonObject = dict[str, Any]

# One token: up to four line breaks with a list or heading mark, up to sixteen
# blanks, a word with the blank before it (long words are cut at eight letters), up
# to three digits, a Thai consonant with its vowels and tone, or one other character.
_TOKEN = re.compile(
    r"""
    (?:\r?\n){1,4}(?:-\ |\#{1,6}\ |>\ |\d\.\ )?
    |[ ]{1,16}(?=[ ])|[^\S\n ]{1,16}
    |[ ]?[A-Za-z\u00c0-\u024f]{1,8}(?:['\u2019][a-z]{1,2}\b)?
    |[ ]?\d{1,3}
    |[ ]?[\u0e40-\u0e44]?[\u0e01-\u0e2e][\u0e30-\u0e3a\u0e45-\u0e4e]*
    |[ ]?\*\*
    |.
    """,
    re.VERBOSE | re.DOTALL,
)

# What each message of a prompt, and the reply to it, take in addition to their text.
MESSAGE_TOKENS = 4
REPLY_TOKENS = 3
# These do not change the words of a reply, only where it stops or how it is sent.
_NOT_IN_SEED = ("is_streamed", "max_tokens", "stop", "user", "n_prompt_tokens", "n")


def split_tokens(text: str) -> list[str]:
    """Cut a text into tokens; joined again they are the text, byte for byte."""
    return _TOKEN.findall(text)


def count_tokens(text: str) -> int:
    """Count the tokens of a text."""
    return sum(1 for _ in _TOKEN.finditer(text))


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
    """A tool on offer (doc: Tool definition)."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request that keeps to the document (doc: Request body)."""

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
        users = [each.content for each in self.messages if each.role == "user"]
        return users[-1] if users else ""

    @property
    def system(self) -> str | None:
        """The system messages; None without any."""
        texts = [each.content for each in self.messages if each.role == "system"]
        return "\n".join(texts) if texts else None

    @property
    def instructions(self) -> str:
        """What the system messages and the newest user message say."""
        return f"{self.system or ''}\n{self.question}"

    def identity(self) -> str:
        """Name the request; identical requests have the same name."""
        return _digest(asdict(self))

    def seed(self, *, emulator_seed: int, nth: int, choice_index: int) -> int:
        """Seed one choice: the same for the nth identical request of every run."""
        fields = asdict(self)
        for name in _NOT_IN_SEED:
            del fields[name]
        return int(_digest([fields, emulator_seed, nth, choice_index])[:16], 16)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
