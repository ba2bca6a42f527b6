"""Estimates and bounds against the counts of seven vocabularies: `texts.json`."""

import json
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.errors import OverBudgetError
from svc_notebook.service.chunk import Choice
from svc_notebook.service.request import (
    FunctionCall,
    Message,
    ToolCall,
    build_request,
    user,
)
from svc_notebook.session import isolated
from svc_notebook.tokens import (
    Tokens,
    check_budget,
    estimate_prompt_tokens,
    estimate_reply_tokens,
    estimate_tokens,
    fit_max_tokens,
    most_prompt_tokens,
    most_tokens,
    with_max_tokens,
)

ROWS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("texts.json").read_text(encoding="utf-8")
)
KINDS = ("english", "thai", "mixed", "code", "json", "chinese", "numbers")
OLD = {"gpt35turbo", "llama2"}  # vocabularies that are hardly used any more
VOCABULARIES = sorted(ROWS[0]["tokens"])


def _rows(kind: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["kind"] == kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_estimate_is_near(kind: str) -> None:
    """Against current vocabularies the median error is at most 20 %."""
    errors = [
        abs(svc.estimate_tokens(row["text"]).best - n) / n
        for row in _rows(kind)
        for name, n in row["tokens"].items()
        if name not in OLD
    ]

    assert median(errors) <= 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_holds_the_true_number(kind: str) -> None:
    """Nine times in ten the number is in the interval, in old vocabularies too."""
    found = []
    for row in _rows(kind):
        tokens = svc.estimate_tokens(row["text"])
        found += [tokens.low <= n <= tokens.high for n in row["tokens"].values()]

    assert sum(found) >= 0.9 * len(found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kind']}-{row['text']:.9}")
def test_the_upper_bound_holds_in_every_vocabulary(row: dict[str, Any]) -> None:
    """No text has more tokens than its bound, whether base64, emoji or blanks."""
    assert most_tokens(row["text"]) >= max(row["tokens"].values())


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_of_a_sum_holds_the_sum(kind: str, name: str) -> None:
    """The estimates of several texts add up to an interval that holds their sum."""
    rows = _rows(kind)
    total = sum(row["tokens"][name] for row in rows)

    tokens = sum((estimate_tokens(row["text"]) for row in rows), Tokens())

    assert tokens.low <= total <= tokens.high


def test_the_interval_of_a_sum_is_narrower() -> None:
    """Errors of single texts partly cancel, and best estimates are not rounded up."""
    one = estimate_tokens(_rows("english")[0]["text"])

    many = sum([one] * 100, Tokens())

    assert abs(many.best - 100 * one.mean) <= 1
    assert many.high - many.low < 0.8 * 100 * (one.high - one.low)


def test_an_estimate_shows_its_number_and_its_interval() -> None:
    """In a cell an estimate is one line; as text it is the interval."""
    tokens = svc.estimate_tokens("The quick brown fox jumps over the lazy dog. " * 6)

    assert (repr(tokens), str(tokens)) == ("<Tokens ~62 (50 to 75)>", "50 to 75")
    assert svc.estimate_tokens("") == Tokens()


def test_a_reply_never_has_more_than_was_asked_for() -> None:
    """The estimate and its interval end at max_tokens, for each choice."""
    choices = [Choice(text="word " * 97)] * 2

    tokens = [estimate_reply_tokens(choices, max_tokens=n) for n in (60, 100, 900)]

    assert [(each.best, each.high) for each in tokens[:1]] == [(120, 120)]
    assert tokens[1].high == 200
    assert tokens[2].high < 300
    assert tokens[0].low <= tokens[1].low <= tokens[2].low


def test_estimates_add_up_with_sum() -> None:
    """`sum` of estimates is their sum."""
    one, two = svc.estimate_tokens("One."), svc.estimate_tokens("Two words.")

    assert sum([one, two]) == one + two


def test_a_message_and_its_calls_cost_something() -> None:
    """Each message adds to the prompt, and so do tools and calls."""
    call = ToolCall(id="t", function=FunctionCall(name="abc", arguments="{}"))
    calling = Message(role="assistant", tool_calls=(call,))
    alone = estimate_prompt_tokens([user("abc")])

    assert estimate_prompt_tokens([user("abc")] * 2).mean == 2 * alone.mean
    assert alone.best > estimate_tokens("abc").best
    assert estimate_prompt_tokens([calling]).best > 4
    assert estimate_prompt_tokens([], [{"a": 1}]).best > 2
    assert estimate_prompt_tokens([]) == Tokens()


@pytest.mark.slow
@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one: str, more: str) -> None:
    """Estimate and bound grow with the text, also with half a surrogate pair."""
    assert estimate_tokens(one + more).mean >= estimate_tokens(one).mean - 1e-9
    assert most_tokens(one + more) >= most_tokens(one)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kind']}-{row['text']:.9}")
def test_a_prompt_that_fits_is_not_refused(row: dict[str, Any]) -> None:
    """A prompt is sent if it fits in any of the vocabularies."""
    n_tokens = min(row["tokens"].values())
    request = build_request("x" + row["text"] * (7900 // n_tokens), model="m")

    assert check_budget(request).best > 0


def test_a_prompt_that_cannot_fit_is_refused() -> None:
    """In no vocabulary has this text fewer than 8192 tokens."""
    request = build_request("word " * 12_000, model="m")

    with pytest.raises(OverBudgetError, match="at least 8,400; prompt and reply"):
        check_budget(request)


def test_what_is_no_text_has_no_tokens() -> None:
    """The refusal says what to give."""
    with pytest.raises(svc.errors.ParameterError, match="text"):
        svc.estimate_tokens(None)  # type: ignore[arg-type]


def test_a_fitted_reply_is_no_number_that_was_asked_for() -> None:
    """What `fit` computed is not named in the refusal; a number that was given is."""
    request = build_request("word " * 20_000, model="m")

    with pytest.raises(OverBudgetError, match="at least 14,000; prompt and reply"):
        check_budget(with_max_tokens(request, "fit"))
    with pytest.raises(
        OverBudgetError, match="14,000 and max_tokens=256 was requested"
    ):
        check_budget(with_max_tokens(request, 256))


def test_a_prompt_that_probably_does_not_fit_is_sent_with_a_warning() -> None:
    """Between the bounds the package warns, and the service decides."""
    with isolated():
        svc.use(endpoint=svc.Emulator())

        with (
            pytest.warns(RuntimeWarning, match="may not fit"),
            pytest.raises(svc.errors.BadRequestError),
        ):
            svc.Client().complete("word " * 6000, max_tokens=2500)


@pytest.mark.slow
def test_a_warning_names_the_users_line_each_time() -> None:
    """Python's own filter shows the warning at each call, with the caller's file."""
    with isolated(), warnings.catch_warnings(record=True) as caught:
        svc.use(endpoint=svc.Emulator(tokens_per_s=None, first_token_s=0))
        warnings.simplefilter("default")
        for _ in range(3):
            svc.Client().complete("word " * 7900, max_tokens=200)

    assert [each.filename for each in caught] == [__file__] * 3
    assert {type(each.message) for each in caught} == {RuntimeWarning}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_reply_leaves_the_prompt_its_room(kind: str) -> None:
    """With `fit`, prompt and reply are within 8192 tokens in every vocabulary."""
    for row in _rows(kind):
        n_times = 3000 // max(row["tokens"].values())
        bound = most_prompt_tokens([user(row["text"] * n_times)])

        reply = fit_max_tokens(bound)

        assert reply + n_times * max(row["tokens"].values()) <= 8192
