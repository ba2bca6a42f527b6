"""Frames of replies as `replies_df` makes them, without asking anybody."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pandas as pd

from svc_notebook.ledger.reply_frames import replies_frame

MIDDLE = ("prompt_label", "prompt_template", "system_label", "tools", "row")
SMALL, LARGE = "svc-v2-8b-instruct", "svc-v2-70b-instruct"


@cache
def _empty() -> pd.DataFrame:
    return replies_frame([])


def replies(rows: Iterable[dict[str, Any]], middle: Iterable[str] = ()) -> pd.DataFrame:
    """Return a frame with the columns of the schema; those in `middle` after `prompt`.

    Replies are ok, of one model and one choice, unless a row says otherwise.
    """
    given = pd.DataFrame.from_records(list(rows))
    empty, n_rows = _empty(), len(given)
    usual = {"model": SMALL, "choice_index": 0, "repeat": 0, "status": "ok"}
    usual |= {"run": "run-1", "prompt": "Hi", "text": "Hello", "is_cut": False}
    columns: dict[str, Any] = {}
    for name in empty.columns:
        values = given.get(name, pd.Series([usual.get(name, pd.NA)] * n_rows))
        columns[name] = values.astype(empty[name].dtype)
        if name == "prompt":
            own = [each for each in (*MIDDLE, *middle) if each in given]
            for each in own:
                columns[each] = given[each].convert_dtypes()
    rest: dict[str, Any] = {
        str(name): given[name] for name in given if name not in columns
    }
    return pd.DataFrame({**columns, **rest})


def right_replies(
    rates: dict[str, int],
    n_prompts: int = 100,
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return models that are right for the first so many of the prompts."""
    cost = {SMALL: 0.01, LARGE: 0.07}
    return replies(
        {
            "row": row,
            "prompt": f"Say {row}",
            "model": model,
            "score_right": row < n_right,
            "cost": cost.get(model, 0.02),
            **more,
        }
        for model, n_right in rates.items()
        for row in range(n_prompts)
    )
