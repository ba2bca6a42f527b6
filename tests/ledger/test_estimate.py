"""Estimates of tokens: on the safe side, fitted where the service reported."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.groups import MIN_ROWS, Estimates, fit
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import Message, build_request, user
from svc_notebook.service.tool_call import FunctionCall, ToolCall
from svc_notebook.tokens import (
    FIXED,
    Counts,
    Rule,
    count,
    count_choices,
    estimate_prompt_tokens,
    estimate_tokens,
)

MakeExchange = Callable[..., Exchange]

THAI = "สวัสดีครับวันนี้อากาศดีมากเลยไปเที่ยวทะเลกันไหม"
ENGLISH = "the quick brown fox jumps over the lazy dog and runs home "


def _counted(text: str, is_prompt: bool) -> int:
    """Count as an imagined tokenizer does: 4.4 letters or 1.6 Thai characters each."""
    counts = count(text)
    tokens = counts.letters / 4.4 + counts.thai / 1.6 + counts.signs / 3
    return round(tokens + 3 * is_prompt) or 1


def _reported(
    make: MakeExchange, n: int, script: str = ENGLISH + THAI, seed: int = 1
) -> list[Exchange]:
    chance = Random(seed)  # noqa: S311 - texts to test with
    found = []
    for number in range(n):
        prompt, reply = (
            "".join(chance.choices(script, k=chance.randint(20, 900))) for _ in range(2)
        )
        usage = Usage(
            prompt_tokens=_counted(prompt, is_prompt=True),
            completion_tokens=_counted(reply, is_prompt=False),
        )
        body = CompletionBody(choices=(Choice(text=reply),), usage=usage)
        request = build_request(prompt, model="m")
        found.append(make(number, request=request, body=body))
    return found


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abc", 1),
        ("abc def", 3),
        ("x" * 300, 100),
        ("12 + 3\n", 6),
        ("สวัสดี", 6),
        ("é", 1),
        ("漢字", 3),
        ("👩", 2),
        ("\ud83d", 2),
    ],
)
def test_the_fixed_rule(text: str, tokens: int) -> None:
    """A third of a token a letter, one a sign or Thai character, half a byte else."""
    assert estimate_tokens(text) == tokens


def test_counts_by_script() -> None:
    """Letters and blanks, signs, Thai characters and other bytes are told apart."""
    assert count("Hi, ไทย é!") == Counts(letters=4, signs=2, thai=3, other_bytes=2)


def test_a_message_costs_something_itself() -> None:
    """Each message adds to the prompt, and so do tools."""
    assert estimate_prompt_tokens([user("abc"), user("abc")]) == 10
    assert estimate_prompt_tokens([], [{"a": 1}]) == 7
    assert estimate_prompt_tokens([]) == 0


def test_a_tool_call_costs_its_words() -> None:
    """A call in a message or a reply adds its name and arguments."""
    call = ToolCall(id="t", function=FunctionCall(name="abc", arguments="{}"))
    message = Message(role="assistant", tool_calls=(call,))

    assert estimate_prompt_tokens([message]) == 4 + 3
    assert FIXED.tokens(count_choices([Choice(tool_calls=(call,))])) == 3


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one: str, more: str) -> None:
    """An estimate grows with the text."""
    assert estimate_tokens(one + more) >= estimate_tokens(one)


@pytest.mark.parametrize("n", [0, MIN_ROWS - 1])
def test_too_little_reported_means_the_fixed_rule(make: MakeExchange, n: int) -> None:
    """With too few reported requests the fixed rule holds."""
    assert fit(_reported(make, n)) == FIXED


def test_a_fitted_rule_is_nearer_and_still_safe(make: MakeExchange) -> None:
    """A fitted rule is near the count, and of new requests 9 in 10 are within it."""
    rule = fit(_reported(make, 100))

    ratios = []
    for exchange in _reported(make, 200, seed=2):
        assert exchange.body is not None
        assert exchange.body.usage is not None
        estimate = estimate_prompt_tokens(exchange.request.messages, rule=rule)
        ratios.append((exchange.body.usage.prompt_tokens or 0) / estimate)

    assert rule.n_rows == 100
    assert sum(ratio <= 1 for ratio in ratios) >= 180
    assert sum(rule.low * 0.95 <= ratio <= rule.high * 1.05 for ratio in ratios) >= 190
    assert sorted(ratios)[100] > 0.9


def test_a_script_that_was_hardly_seen_keeps_the_fixed_rule(
    make: MakeExchange,
) -> None:
    """What was learnt of English says nothing of Thai: that stays on the safe side."""
    rule = fit(_reported(make, 100, script=ENGLISH))

    assert rule.tokens(count(ENGLISH)) < FIXED.tokens(count(ENGLISH))
    assert rule.tokens(count(THAI)) >= 0.9 * len(THAI)


def test_tools_are_not_fitted_on(make: MakeExchange) -> None:
    """Requests with tools or calls say nothing, since their writing is not shown."""
    call = ToolCall(id="t", function=FunctionCall(name="f", arguments="{}"))
    usage = Usage(prompt_tokens=5, completion_tokens=5)
    body = CompletionBody(choices=(Choice(tool_calls=(call,)),), usage=usage)

    assert fit([make(number, body=body) for number in range(MIN_ROWS)]) == FIXED


def test_what_was_not_reported_is_not_fitted_on(make: MakeExchange) -> None:
    """Requests without counted tokens are stepped over."""
    body = CompletionBody(choices=(Choice(text="Hi"),))

    assert fit([make(number, body=body) for number in range(MIN_ROWS)]) == FIXED


def test_a_rule_is_fitted_once_for_each_model(make: MakeExchange) -> None:
    """Each model has its own rule, the emulator's apart, fitted when asked for."""
    asked: list[tuple[str, bool]] = []

    def reported(model: str, is_emulated: bool) -> list[Exchange]:
        asked.append((model, is_emulated))
        return _reported(make, 30) if model == "m" else []

    estimates = Estimates(reported)
    rules = [estimates.rule(model) for model in ("m", "other", "m")]
    estimates.rule("m", is_emulated=True)

    assert [rule.n_rows for rule in rules] == [30, 0, 30]
    assert asked == [("m", False), ("other", False), ("m", True)]


def test_a_rule_never_makes_a_script_free(make: MakeExchange) -> None:
    """A service that reports next to nothing does not make texts cost nothing."""
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    body = CompletionBody(choices=(Choice(text=ENGLISH),), usage=usage)

    rule = fit([make(number, body=body) for number in range(30)])

    assert all(weight > 0 for weight in rule.weights)
    assert isinstance(rule, Rule)
