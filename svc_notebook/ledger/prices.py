"""The user's price table: the cost of a million tokens of each model, and its date.

The service's document has no prices, so there is no default: a model that is not in
the table has an unknown cost, never 0.
"""

import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from svc_notebook.errors import SettingsError
from svc_notebook.exchange import Exchange

PER_TOKENS = 1_000_000
_EXAMPLE = """\
as_of = 2026-01-31
currency = "USD"
[models."svc-v2-8b-instruct"]
prompt = 0.10      # for a million tokens
completion = 0.20"""


_Amount = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens of a model cost."""

    prompt: _Amount
    completion: _Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price table."""

    models: Mapping[str, Price]  # by the model id asked for
    currency: str
    as_of: date
    source: str  # name of the table, as `cost_source` shows it
    priced_as: str = ""  # if given, the price of this model is used for all models

    @property
    def stamp(self) -> str:
        """The table, its currency and its date, as `cost_source` shows them."""
        priced_as = f", priced as {self.priced_as}" if self.priced_as else ""
        return f"{self.source}, {self.currency}, {self.as_of.isoformat()}{priced_as}"

    def cost(
        self,
        model: str,
        *,
        prompt_tokens: float | None,
        completion_tokens: float | None,
    ) -> float | None:
        """Return what these tokens cost; None if they or the price are unknown."""
        price = self.models.get(self.priced_as or model)
        if price is None or prompt_tokens is None or completion_tokens is None:
            return None
        total = price.prompt * prompt_tokens + price.completion * completion_tokens
        return total / PER_TOKENS

    def no_price(self, models: Iterable[str], *, so: str) -> str:
        """Say for which models no price is known, and what follows; "" if for none."""
        names = [name for name in models if (self.priced_as or name) not in self.models]
        if not names:
            return ""
        them = "it" if len(names) == 1 else "them"
        return (
            f"No price is known for {', '.join(names)}, so {so}. Add {them} to the "
            f"price table ({self.source}) and plan the sweep again."
        )

    @classmethod
    def from_file(cls, path: str | Path) -> "Prices":
        """Read a table from a TOML file, or from JSON if the name ends with .json."""
        kind = "JSON" if str(path).lower().endswith(".json") else "TOML"
        try:
            file = Path(path).expanduser()
            text = file.read_text(
                encoding="utf-8-sig"
            )  # editors on Windows add a byte order mark
            table = json.loads(text) if kind == "JSON" else tomllib.loads(text)
        except (OSError, RuntimeError) as problem:
            why = getattr(problem, "strerror", "unknown home folder")
            reason = f"it cannot be read ({why})"
        except ValueError as problem:  # the errors of JSON, TOML and UTF-8
            reason = f"it is not {kind}: {problem}"
        else:
            return cls.from_mapping(table, source=file.name)
        raise _unusable_table(str(path), reason)

    @classmethod
    def from_mapping(cls, table: Any, *, source: str = "given table") -> "Prices":  # noqa: ANN401 - checked here
        """Read a table with `as_of`, `currency` and `models`, as in a file."""
        # TOML reads a date with a time as a datetime
        if isinstance(table, Mapping) and isinstance(table.get("as_of"), datetime):
            table = {**table, "as_of": table["as_of"].date()}
        try:
            checked = msgspec.convert(table, _Table)
        except msgspec.ValidationError as problem:
            raise _unusable_table(source, str(problem)) from None
        return cls(
            models=checked.models,
            currency=checked.currency.strip(),
            as_of=checked.as_of,
            source=source,
        )


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    models: dict[str, Price]
    currency: Annotated[str, msgspec.Meta(pattern=r"\S")]
    as_of: date


def _unusable_table(source: str, reason: str) -> SettingsError:
    return SettingsError(
        f"The price table {source!r} cannot be used: {reason}. It must look like "
        f"this:\n{_EXAMPLE}"
    )


class ReplyCost(NamedTuple):
    """An amount in the table's currency, and the value of `cost_source`."""

    amount: float
    source: str


def is_paid(exchange: Exchange) -> bool:
    """Whether something was paid for an exchange; the emulator and re-use are free."""
    is_free = exchange.is_emulated or exchange.is_reused
    return not is_free and exchange.body is not None


def total_cost(exchanges: Iterable[Exchange], prices: Prices) -> float | None:
    """Return the cost of exchanges; None if one is unknown, or nothing was paid."""
    costs = [cost_of(exchange, prices) for exchange in exchanges if is_paid(exchange)]
    amounts = [cost.amount for cost in costs if cost is not None]
    return sum(amounts) if amounts and len(amounts) == len(costs) else None


def cost_of(exchange: Exchange, prices: Prices) -> ReplyCost | None:
    """Return what an exchange cost, by its reported or else its estimated tokens.

    None if the cost is unknown, or if nothing was paid: the emulator answered, or the
    answer was read from the ledger.
    """
    if exchange.body is None or not is_paid(exchange):
        return None
    usage = exchange.body.usage
    amount = prices.cost(
        exchange.request.model,
        prompt_tokens=usage.prompt_tokens if usage else exchange.est_prompt_tokens,
        completion_tokens=(
            usage.completion_tokens if usage else exchange.est_completion_tokens
        ),
    )
    if amount is None:
        return None
    return ReplyCost(amount, f"{exchange.usage_source} tokens; {prices.stamp}")
