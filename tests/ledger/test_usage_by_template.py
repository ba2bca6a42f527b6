"""Usage summed up by the columns that prompts were filled with."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.store import Ledger
from svc_notebook.ledger.usage import usage_df

MakeExchange = Callable[..., Exchange]


@pytest.mark.slow
def test_usage_is_summed_up_by_a_template_column(
    ledger: Ledger, make: MakeExchange
) -> None:
    """It has the name and dtype of `replies_df`; others have it missing."""
    filled: list[dict[str, Any]] = [{"text": "a", "cups": 2}, {"text": "b"}, {}]
    for number, columns in enumerate(filled):
        ledger.add(make(number, origin=Origin(kind="sweep", columns=columns)))

    found = usage_df(ledger, by=["var_text", "cups", "model"])

    expected = pd.DataFrame(
        {
            "var_text": pd.array(["a", "b", None], dtype="string"),
            "cups": pd.array([2, None, None], dtype="Int64"),
            "n_requests": pd.array([1, 1, 1], dtype="Int64"),
        }
    )
    shown = found[["var_text", "cups", "n_requests"]]
    pd.testing.assert_frame_equal(shown, expected)


@pytest.mark.parametrize("by", ["cup", ["model", "cup"], [5], 5, None])
def test_usage_by_what_is_no_column_is_refused(
    ledger: Ledger, make: MakeExchange, by: object
) -> None:
    """The columns that there are include those of templates."""
    ledger.add(make(origin=Origin(kind="sweep", columns={"cups": 2})))

    with pytest.raises(ParameterError, match="cups"):
        usage_df(ledger, by=by)  # type: ignore[arg-type]  # what a user may give
