"""Rules that are fitted to what the service reported, per script."""

import json
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.token_calibration import MIN_ROWS, TokenRules, fit
from svc_notebook.ledger.usage import usage_frame
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import FunctionCall, ToolCall, build_request
from svc_notebook.tokens import FIXED, TokenRule, Tokens, count

MakeExchange = Callable[..., Exchange]
ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "tokens/texts.json").read_text(encoding="utf-8")
)
VOCABULARIES = sorted(ROWS[0]["tokens"])


def _rows(*kinds: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["kind"] in kinds]


def _reported(
    make: MakeExchange, n: int, *kinds: str, name: str = "gemma3"
) -> list[Exchange]:
    """Return whole replies with the usage that a vocabulary counts."""
    rows = islice(cycle(_rows(*kinds)), n)
    return [_answer(make, number, row, name) for number, row in enumerate(rows)]


def _answer(
    make: MakeExchange, number: int, row: dict[str, Any], name: str
) -> Exchange:
    tokens = row["tokens"][name]
    usage = Usage(prompt_tokens=tokens + 5, completion_tokens=tokens)
    body = CompletionBody(choices=(Choice(text=row["text"]),), usage=usage)
    return make(number, request=build_request(row["text"], model="m"), body=body)


def _streamed(
    make: MakeExchange, rows: Iterable[dict[str, Any]], *, tokens_per_chunk: int
) -> list[Exchange]:
    """Return streams without usage, in chunks of so many tokens of gemma3."""
    return [
        make(
            100 + number,
            request=build_request("Hi", model="m", params={"max_tokens": 4000}),
            body=CompletionBody(choices=(Choice(text=row["text"]),)),
            is_streamed=True,
            n_chunks=1 + row["tokens"]["gemma3"] // tokens_per_chunk,
        )
        for number, row in enumerate(rows)
    ]


def _sum(rule: TokenRule, kind: str) -> Tokens:
    rows = _rows(kind)
    return sum((rule.tokens(count(row["text"])) for row in rows), Tokens())


@pytest.mark.parametrize("n", [0, MIN_ROWS - 1])
def test_too_little_reported_means_the_fixed_rule(make: MakeExchange, n: int) -> None:
    """With too few reported requests the fixed rule holds."""
    assert fit(_reported(make, n, "english")) == FIXED


@pytest.mark.parametrize("name", VOCABULARIES)
def test_what_was_seen_is_estimated_more_closely(make: MakeExchange, name: str) -> None:
    """A fitted rule has narrower intervals for a script it has seen; they hold."""
    rule = fit(_reported(make, 40, "english", "thai", name=name))

    for kind in ("english", "thai"):
        tokens, fixed = _sum(rule, kind), _sum(FIXED, kind)
        truth = sum(row["tokens"][name] for row in _rows(kind))
        assert tokens.low <= truth <= tokens.high
        assert abs(tokens.best - truth) <= 0.15 * truth
        assert tokens.high - tokens.low < fixed.high - fixed.low
    assert rule.n_rows == 40


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("kind", ["thai", "chinese", "numbers"])
def test_what_was_not_seen_keeps_its_wide_interval(
    make: MakeExchange, kind: str, name: str
) -> None:
    """What was learnt of English says nothing of other scripts."""
    rule = fit(_reported(make, 40, "english", name=name))

    tokens = _sum(rule, kind)

    truth = sum(row["tokens"][name] for row in _rows(kind))
    assert tokens.low <= truth <= tokens.high


@pytest.mark.slow
def test_chunks_are_counted_where_each_has_one_token(make: MakeExchange) -> None:
    """If streams have as many chunks as whole replies have tokens, chunks count."""
    known = _reported(make, 40, "english", "code")
    streams = _streamed(make, _rows("english", "code"), tokens_per_chunk=1)
    thai = _streamed(make, _rows("thai"), tokens_per_chunk=1)
    estimates = TokenRules(lambda *_: [*known, *streams])

    frame = usage_frame(thai, (), estimates=estimates).frame

    truth = sum(row["tokens"]["gemma3"] for row in _rows("thai"))
    assert abs(frame["estimated_completion_tokens"][0] - truth) <= 0.05 * truth


@pytest.mark.parametrize(("tokens_per_chunk", "n_streams"), [(2, 16), (1, 5)])
def test_other_chunks_are_not_counted(
    make: MakeExchange, tokens_per_chunk: int, n_streams: int
) -> None:
    """Chunks of several tokens, and few streams, leave the text to be estimated."""
    known = _reported(make, 40, "english", "code")
    rows = _rows("english", "code")[:n_streams]
    streams = _streamed(make, rows, tokens_per_chunk=tokens_per_chunk)

    assert not fit([*known, *streams]).is_by_chunk


def test_tools_are_not_fitted_on(make: MakeExchange) -> None:
    """Requests with tools or calls say nothing, since their writing is not shown."""
    call = ToolCall(id="t", function=FunctionCall(name="f", arguments="{}"))
    usage = Usage(prompt_tokens=5, completion_tokens=5)
    body = CompletionBody(choices=(Choice(tool_calls=(call,)),), usage=usage)

    assert fit([make(number, body=body) for number in range(MIN_ROWS)]) == FIXED


def test_a_rule_is_fitted_once_for_each_model(make: MakeExchange) -> None:
    """Each model has its own rule, the emulator's apart, fitted when asked for."""
    asked: list[tuple[str, bool]] = []

    def newest(model: str, is_emulated: bool) -> list[Exchange]:
        asked.append((model, is_emulated))
        return _reported(make, 30, "english") if model == "m" else []

    estimates = TokenRules(newest)
    rules = [estimates.rule(model) for model in ("m", "other", "m")]
    estimates.rule("m", is_emulated=True)

    assert [rule.n_rows for rule in rules] == [30, 0, 30]
    assert asked == [("m", False), ("other", False), ("m", True)]


def test_a_rule_never_makes_a_script_free(make: MakeExchange) -> None:
    """A service that reports next to nothing does not make texts cost nothing."""
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    body = CompletionBody(choices=(Choice(text="The quick brown fox"),), usage=usage)

    rule = fit([make(number, body=body) for number in range(30)])

    assert all(weight > 0 for weight in rule.weights)
