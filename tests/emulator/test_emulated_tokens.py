"""What the emulator counts for offered tools is what plans and estimates expect."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, TypedDict

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.session import isolated


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    with isolated():
        svc.use(endpoint=svc.Emulator(tokens_per_s=None, first_token_s=0, limits=False))
        yield


@dataclass
class Bill:
    """What a bill says."""

    shop: str
    total: Decimal
    day: date


@dataclass
class Ticket:
    """A request of a customer."""

    kind: Literal["refund", "delivery", "complaint", "other"]
    urgency: Literal[1, 2, 3]
    order_number: str | None
    wants: list[str]


class Place(TypedDict):
    """A place on a map."""

    latitude: float
    longitude: float


Many = make_dataclass("Many", [(f"measured_value_{n}", float) for n in range(30)])


@pytest.mark.parametrize("answer", [Bill, Ticket, Place, Many, bool])
def test_a_plan_with_an_answer_holds_what_the_run_uses(answer: type) -> None:
    """A plan's interval holds the tokens of the tool that takes the answer."""
    rows = pd.DataFrame({"text": [f"The receipt of day {n}." for n in range(10)]})
    models = ["svc-instruct", "svc-v2.1-12b-instruct"]  # without limits
    run = svc.sweep("Read this: {{text}}", rows=rows, model=models, answer=answer)
    planned = run.size.prompt

    n_used = run.run().replies_df()["prompt_tokens"].sum()

    assert planned.low <= n_used <= planned.high


def weather(city: str, days: int = 3) -> str:
    """Tell the weather of a city.

    Args:
        city: The name of the city, in English.
        days: For how many days from today on.
    """
    return f"{city}: sunny for {days} days"


def convert(amount: Decimal, currency: Literal["THB", "USD", "EUR"]) -> str:
    """Convert an amount of money into another currency."""
    return f"{amount} {currency}"


@pytest.mark.parametrize("tools", [[weather], [convert], [weather, convert]])
def test_the_estimate_of_a_prompt_with_tools_holds_its_usage(
    tools: list[Callable[..., str]],
) -> None:
    """The estimate kept with a reply differs from the usage by at most 30 %."""
    svc.complete("Hi there, what can you do?", tools=tools)

    reply = svc.replies_df().iloc[-1]

    assert reply["est_prompt_tokens"] == pytest.approx(reply["prompt_tokens"], rel=0.3)


def test_a_history_with_calls_is_estimated_as_it_counts() -> None:
    """The arguments of a call count in the next request like the JSON that they are."""
    svc.complete("Use weather for Oslo.", tools=[weather], run_tools=True)

    replies = svc.replies_df()

    assert len(replies) > 1
    for _, reply in replies.iterrows():
        n_used = reply["prompt_tokens"]
        assert reply["est_prompt_tokens"] == pytest.approx(n_used, rel=0.3)
