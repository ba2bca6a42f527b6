"""The price table: what tokens cost, as its owner says, and since when.

What it is not: a list of the service's prices; its document shows none, so nothing
here has a default. Rules: a table has a date and a currency; what is not in it
costs an unknown amount, never nothing.
"""

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

from svc_notebook.errors import SettingsError
from svc_notebook.exchange import Exchange

from .columns import Column, Scalar
from .reply_columns import COST, REPLIES, Reply

PER_TOKENS = 1_000_000
_EXAMPLE = """\
as_of = 2026-01-31
currency = "USD"
[models."svc-v2-8b-instruct"]
prompt = 0.10      # for a million tokens
completion = 0.20"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a million tokens of a model cost."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price table.

    Attributes:
        models: By the model id asked for.
        currency: Of all prices, as given.
        as_of: The day they were noted.
        source: Where the table came from, for `cost_source`.
    """

    models: Mapping[str, Price]
    currency: str
    as_of: date
    source: str

    @property
    def stamp(self) -> str:
        """What a cost says of where it came from."""
        return f"{self.source}, {self.currency}, {self.as_of.isoformat()}"

    def cost(
        self, model: str, *, prompt_tokens: int, completion_tokens: int
    ) -> float | None:
        """Return what these tokens cost; None if the model has no price."""
        price = self.models.get(model)
        if price is None:
            return None
        total = price.prompt * prompt_tokens + price.completion * completion_tokens
        return total / PER_TOKENS

    @classmethod
    def from_file(cls, path: str | Path) -> "Prices":
        """Read a table from a TOML or, by its name, JSON file.

        Args:
            path: The file: `as_of`, `currency`, and for each model the price of a
                million tokens of `prompt` and of `completion`.

        Raises:
            SettingsError: It cannot be read, or is not a price table; the message
                shows one.
        """
        try:
            file = Path(path).expanduser()
            text = file.read_text(encoding="utf-8")
            is_json = file.suffix.lower() == ".json"
            table = json.loads(text) if is_json else tomllib.loads(text)
        except OSError as problem:
            reason = f"it cannot be read ({problem.strerror})"
        except RuntimeError:  # of a home that nobody knows
            reason = "it cannot be read (there is no such home)"
        except ValueError as problem:  # of JSON, TOML and UTF-8
            reason = (
                f"it is not {'JSON' if file.suffix.lower() == '.json' else 'TOML'}: "
                + str(problem)
            )
        else:
            return cls.from_mapping(table, source=file.name)
        raise _refused(str(path), reason)

    @classmethod
    def from_mapping(cls, table: object, *, source: str = "given table") -> "Prices":
        """Read a table as a file would hold it.

        Args:
            table: `as_of`, `currency` and `models`, as in a file.
            source: Where it came from.

        Raises:
            SettingsError: It is not a price table.
        """
        if not isinstance(table, Mapping) or not isinstance(
            models := table.get("models"), Mapping
        ):
            raise _refused(source, "it has no models")
        unknown = [str(key) for key in table if key not in _KEYS]
        if unknown:
            raise _refused(source, f"{unknown[0]!r} means nothing here")
        return cls(
            models={
                str(model): _price(each, source, str(model))
                for model, each in models.items()
            },
            currency=_currency(table.get("currency"), source),
            as_of=_day(table.get("as_of"), source),
            source=source,
        )


_KEYS = ("as_of", "currency", "models")


def _price(value: object, source: str, model: str) -> Price:
    names = ("prompt", "completion")
    if not isinstance(value, Mapping) or sorted(value) != sorted(names):
        raise _refused(source, f"{model} needs prompt and completion, and no more")
    return Price(**{name: _amount(value[name], source, model) for name in names})


def _amount(value: Any, source: str, model: str) -> float:  # noqa: ANN401 - JSON
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise _refused(source, f"{value!r} is no price of {model}")
    return float(value)


def _currency(value: object, source: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _refused(source, "it does not say its currency")
    return value.strip()


def _day(value: object, source: str) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)  # type: ignore[arg-type]  # tried
    except (TypeError, ValueError):
        pass  # the error below says it, without a foreign one behind it
    raise _refused(source, "it does not say since when: as_of is a day")


def _refused(source: str, reason: str) -> SettingsError:
    return SettingsError(
        f"The price table {source!r} cannot be used: {reason}. One looks like "
        f"this:\n{_EXAMPLE}"
    )


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
