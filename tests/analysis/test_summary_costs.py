"""Costs by a price table that is given afterwards, also of the emulator's replies."""

from math import isnan
from pathlib import Path

import pandas as pd
import pytest

from svc_notebook.analysis.summary import total_cost, with_costs
from svc_notebook.errors import ParameterError, SettingsError
from tests.analysis.make import LARGE, SMALL, replies

TABLE = """
as_of = 2026-01-31
currency = "USD"
[models."svc-v2-8b-instruct"]
prompt = 100.0
completion = 200.0
"""


def _replies(*, is_emulated: bool = True) -> pd.DataFrame:
    tokens = {"prompt_tokens": 1000, "completion_tokens": 500}
    estimated = {"est_prompt_tokens": 900, "est_completion_tokens": 400}
    usual = {"is_emulated": is_emulated, "model": SMALL, "status": "ok"}
    return replies(
        [
            {**usual, **tokens, **estimated},
            {**usual, **estimated},
            {**usual, **estimated, "status": "error"},
            {**usual, **tokens, "is_reused": True},
            {**usual, **tokens, "model": LARGE},
        ]
    )


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Return a file with the price of one model."""
    file = tmp_path / "prices.toml"
    file.write_text(TABLE, "utf-8")
    return file


@pytest.mark.parametrize("is_emulated", [True, False])
def test_replies_cost_what_the_table_says(prices: Path, *, is_emulated: bool) -> None:
    """Reported tokens count before estimated ones; no price is no cost."""
    frame = _replies(is_emulated=is_emulated)

    found = with_costs(frame, prices, include_emulated=is_emulated)

    assert found["cost"][:2].to_numpy(float) == pytest.approx([0.2, 0.17])
    assert found["cost"].isna().tolist() == [False, False, True, True, True]
    assert found["cost_source"].tolist()[:2] == [
        "reported tokens; prices.toml, USD, 2026-01-31",
        "estimated tokens; prices.toml, USD, 2026-01-31",
    ]


def test_the_emulator_costs_nothing_unless_asked(prices: Path) -> None:
    """Its replies are free; `include_emulated` rehearses what they would cost."""
    assert with_costs(_replies(), prices, include_emulated=False)["cost"].isna().all()
    with pytest.raises(ParameterError, match=r"prices='prices\.toml'"):
        with_costs(_replies(), None, include_emulated=True)
    with pytest.raises(SettingsError, match="cannot be read"):
        with_costs(_replies(), "nowhere.toml", include_emulated=True)


def test_no_replies_cost_nothing(prices: Path) -> None:
    """An empty frame keeps its dtypes."""
    frame = _replies()

    found = with_costs(frame.iloc[:0], prices, include_emulated=True)

    assert found.dtypes.to_dict() == frame.dtypes.to_dict()


def test_a_sum_with_an_unknown_cost_is_unknown(prices: Path) -> None:
    """One model without a price makes the sum unknown, and re-used replies do not."""
    found = with_costs(_replies(), prices, include_emulated=True)

    assert isnan(total_cost(found))
    assert total_cost(found[:4]) == pytest.approx(0.37)
    assert isnan(total_cost(_replies()[:4]))
