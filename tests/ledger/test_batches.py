"""Columns hold the same, however their rows are read."""

from collections.abc import Callable
from random import Random
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from svc_notebook.exchange import Exchange, Failure, Origin
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.reply_columns import exchange_batch
from svc_notebook.ledger.reply_frames import replies_frame, trials_frame
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import FunctionCall, ToolCall, build_request

MakeExchange = Callable[..., Exchange]

PRICES = Prices.from_mapping(
    {
        "as_of": "2026-01-31",
        "currency": "USD",
        "models": {"svc-v2-8b-instruct": {"prompt": 1, "completion": 2}},
    }
)
PARAMS: dict[str, list[Any]] = {
    "temperature": [0, 0.5],
    "max_tokens": [2, 150, 8000],
    "stop": ["x", ("a", "b")],
    "user": ["somebody"],
}
CALL = ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))
MESSAGES = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "ไทย"}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
)


def _choice(luck: Random, index: int) -> Choice:
    return Choice(
        index=index,
        text=luck.choice([None, "", "Hello.", "half \ud83d"]),
        tool_calls=luck.choice([(), (), (CALL,)]),
        finish_reason=luck.choice([None, "stop", "stop", "length", "other"]),
    )


def _body(luck: Random, n_choices: int) -> CompletionBody:
    tokens = luck.choice([None, 1, 2, 150])
    usage = Usage(prompt_tokens=1, completion_tokens=tokens, total_tokens=9)
    return CompletionBody(
        id=luck.choice([None, "c1"]),
        created=luck.choice([None, -5, 1_767_225_600, 10**18]),
        choices=tuple(_choice(luck, index) for index in range(n_choices)),
        usage=luck.choice([None, usage]),
    )


def _varied(make: MakeExchange, *, n_choices: int, seed: int) -> list[Exchange]:
    """Make exchanges of many kinds, of so many choices at most."""
    luck = Random(seed)  # noqa: S311 - no secret
    found = []
    for number in range(60):
        params = {
            name: luck.choice(values)
            for name, values in PARAMS.items()
            if luck.random() < 0.4
        }
        found.append(
            make(
                number,
                origin=Origin(repeat=luck.choice([None, 0, 1])),
                request=build_request(
                    luck.choice(MESSAGES),
                    model=luck.choice(["svc-v2-8b-instruct", "other"]),
                    params=params,
                ),
                body=luck.choice([None, _body(luck, luck.randint(1, n_choices))]),
                failure=luck.choice([None, Failure(type="BadRequestError")]),
                is_emulated=luck.random() < 0.2,
                est_completion_tokens=luck.choice([0, 2, 8000]),
            )
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("n_choices", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_run_are_read_as_those_of_the_ledger(
    make: MakeExchange, n_choices: int, seed: int
) -> None:
    """Rows that come in another order are put in that of their trials, choices too."""
    exchanges = _varied(make, n_choices=n_choices, seed=seed)
    order = Random(seed).sample(range(len(exchanges)), len(exchanges))  # noqa: S311 - no secret
    batches = (
        exchange_batch([exchanges[at]], PRICES, parts={"trial": [at]}) for at in order
    )

    frame = trials_frame(batches)

    assert_frame_equal(frame, replies_frame(exchanges, prices=PRICES))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_one_at_a_time_is_all_at_once(make: MakeExchange, seed: int) -> None:
    """What a row holds does not depend on the rows that are read with it."""
    exchanges = _varied(make, n_choices=3, seed=seed)
    alone = [replies_frame([exchange], prices=PRICES) for exchange in exchanges]

    frame = replies_frame(exchanges, prices=PRICES)

    assert_frame_equal(pd.concat(alone, ignore_index=True), frame)
