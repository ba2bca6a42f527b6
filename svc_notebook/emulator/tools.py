"""Tools: which offers the emulator calls, with what, and what it says of results.

What it is not: it runs nothing, and checks no history (`history` does).

Rules for this file: a tool is called when the newest user message names it or
holds every word of its name that says what it is about, once for each tool;
arguments are made by `filling`; when results are in, each is told, in its share of
the reply, and no further call is made.
"""

import json
import re
from itertools import takewhile

from .ask import Ask, Call, Tool
from .filling import Filling
from .tokens import split_tokens

# What is told of all results together, so that each is told and a text follows.
_TOLD_TOKENS = 100
_TOLD_SHARE = 2 / 3
# The words of a name, however they are joined: get_weather, getWeather.
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
# Words of a name that people leave out when they ask for what the tool is about.
_UNSPOKEN = frozenset(
    ("a", "current", "fetch", "find", "for", "get", "in", "look", "lookup", "my")
) | {"of", "show", "tell", "the", "up"}


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
    answers = list(takewhile(lambda each: each.role == "tool", reversed(ask.messages)))
    room = min(_TOLD_TOKENS, int(ask.max_tokens * _TOLD_SHARE)) // max(1, len(answers))
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
