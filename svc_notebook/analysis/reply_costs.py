"""Costs of a frame of replies, by a price table that is given afterwards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.prices import PER_TOKENS, Prices
from svc_notebook.service.params import check_flag

from .reply_factors import column, has, has_flag, is_request


def with_costs(
    df: pd.DataFrame,
    prices: Prices | Mapping[str, Any] | str | Path | None,
    *,
    include_emulated: bool,
) -> pd.DataFrame:
    """Return the replies with what they cost by a price table; as they are without.

    Reported tokens count, or else estimated ones. The emulator's answers are counted
    only if asked for, as if they were paid; those that were re-used never are.

    Raises:
        ParameterError: The emulator's answers are to be counted without prices.
        SettingsError: The table cannot be read.
    """
    check_flag("include_emulated", include_emulated)
    if prices is None:
        if include_emulated:
            raise ParameterError(
                "include_emulated=True needs a price table, such as "
                "prices='prices.toml'.",
                param="prices",
            )
        return df
    table = _table(prices)
    is_paid = is_request(df) & (has(df, "status", "ok") | _is_reported(df))
    is_paid &= ~has_flag(df, "is_reused")
    if not include_emulated:
        is_paid &= ~has_flag(df, "is_emulated")
    cost = np.zeros(len(df))
    for kind in ("prompt", "completion"):
        amounts = {name: getattr(price, kind) for name, price in table.models.items()}
        amount = df["model"].astype(object).map(amounts).to_numpy(dtype="float64")
        cost += amount * _tokens(df, kind) / PER_TOKENS
    is_known = is_paid & ~np.isnan(cost)
    source = np.where(_is_reported(df), "reported", "estimated")
    sources = pd.Series(source, df.index, dtype="string") + f" tokens; {table.stamp}"
    return df.assign(
        cost=pd.Series(cost, df.index).where(is_known).astype("Float64"),
        cost_source=sources.where(is_known),
    )


def _table(prices: Prices | Mapping[str, Any] | str | Path) -> Prices:
    if isinstance(prices, Prices):
        return prices
    if isinstance(prices, str | Path):
        return Prices.from_file(prices)
    return Prices.from_mapping(prices)


def _is_reported(df: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return for which rows the service reported the tokens of both kinds."""
    reported = [column(df, f"{kind}_tokens") for kind in ("prompt", "completion")]
    return reported[0].notna().to_numpy() & reported[1].notna().to_numpy()


def _tokens(df: pd.DataFrame, kind: str) -> Any:  # noqa: ANN401 - an array
    """Return tokens as floats: reported ones, or else estimated ones."""
    reported, estimated = (
        column(df, name).to_numpy(dtype="float64", na_value=np.nan)
        for name in (f"{kind}_tokens", f"est_{kind}_tokens")
    )
    return np.where(_is_reported(df), reported, estimated)
