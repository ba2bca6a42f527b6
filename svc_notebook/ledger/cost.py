"""What an exchange cost: its tokens at the prices of a table.

Rules: pure; without a table, without a price for the model, or without tokens the
cost is unknown; reported and estimated tokens are told apart; what the emulator
answered or the ledger gave back was not paid for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from svc_notebook.exchange import Exchange

from .columns import Column, Scalar
from .prices import Prices
from .replies import COST, REPLIES
from .reply import Reply


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount in the table's currency, and what it was reckoned from."""

    amount: float
    of: Literal["reported", "estimated"]


def cost_of(
    exchange: Exchange,
    prices: Prices | None,
    *,
    estimated: tuple[int, int] | None = None,
) -> Cost | None:
    """Return what an exchange's tokens cost; None if that is unknown.

    Args:
        exchange: Also one that was not paid for; its caller knows.
        prices: The table; None if there is none.
        estimated: Tokens of prompt and reply to reckon with where none were
            reported; as the exchange says if None.
    """
    if prices is None or exchange.body is None:
        return None
    usage = exchange.body.usage
    found: tuple[int | None, int | None]
    if usage is None:
        own = exchange.est_prompt_tokens, exchange.est_completion_tokens
        found = own if estimated is None else estimated
    else:
        found = usage.prompt_tokens, usage.completion_tokens
    prompt_tokens, completion_tokens = found
    if prompt_tokens is None or completion_tokens is None:
        return None
    amount = prices.cost(
        exchange.request.model,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )
    source: Literal["reported", "estimated"] = (
        "estimated" if usage is None else "reported"
    )
    return None if amount is None else Cost(amount, source)


def priced_columns(prices: Prices | None) -> tuple[Column[Reply], ...]:
    """Return the columns of replies with cost by this table."""
    if prices is None:
        return REPLIES
    table = prices

    def amount(exchange: Exchange) -> float | None:
        cost = _paid(exchange, table)
        return None if cost is None else cost.amount

    def source(exchange: Exchange) -> str | None:
        cost = _paid(exchange, table)
        return None if cost is None else f"{cost.of} tokens; {table.stamp}"

    reads = {"cost": amount, "cost_source": source}
    priced = (_of_request(each, reads[each.name]) for each in COST)
    return (*REPLIES[: -len(COST)], *priced)


def _of_request(
    column: Column[Reply], read: Callable[[Exchange], Scalar]
) -> Column[Reply]:
    """Return a column that is read of the exchange, on its first row."""
    return replace(
        column,
        read=lambda row: read(row.of_request) if row.of_request else None,
        read_all=lambda batch: batch.of_part("of_request", read),
    )


def _paid(exchange: Exchange, prices: Prices) -> Cost | None:
    if exchange.is_emulated or exchange.is_reused:
        return None
    return cost_of(exchange, prices)
