"""The price table: what tokens cost, as its owner says, and since when.

What it is not: a list of the service's prices; its document shows none, so nothing
here has a default. Rules: a table has a date and a currency; what is not in it
costs an unknown amount, never nothing.
"""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from svc_notebook.errors import SettingsError

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
