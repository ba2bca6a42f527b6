"""Values of replies, read for many rows at once where that is faster.

What it is not: the columns themselves (see `replies`). Rules: pure; the result is
that of reading row by row.
"""

from operator import attrgetter
from typing import Any

import msgspec

from svc_notebook.service.completion import Choice
from svc_notebook.service.params import DEFAULT_MAX_TOKENS

from .columns import Batch, Scalar
from .reply import Reply


def is_cut(row: Reply) -> bool | None:
    """Say whether a row's choice was cut; None without one."""
    exchange, choice = row.exchange, row.choice
    return None if exchange is None or choice is None else exchange.is_cut(choice)


def cuts(batch: Batch) -> list[Scalar]:
    """Return `is_cut` of all rows; few are near the limit and have to be asked."""
    rows = zip(
        batch.part("exchange"),
        batch.part("choice"),
        batch.part("body.usage.completion_tokens"),
        batch.part("exchange.est_completion_tokens"),
        sent(batch, "max_tokens"),
        strict=True,
    )
    return [
        choice
        and (
            choice.finish_reason == "length"
            or (
                (estimated if counted is None else counted)
                >= (DEFAULT_MAX_TOKENS if allowed is None else allowed)
                and exchange.is_cut(choice)
            )
        )
        for exchange, choice, counted, estimated, allowed in rows
    ]


def call_counts(batch: Batch) -> list[Scalar]:
    """Return how many tool calls each choice asks for."""
    return batch.of_part("choice.tool_calls", len)


def calls(batch: Batch) -> list[Scalar]:
    """Return the tool calls as text; most choices have none."""
    if not any(batch.part("choice.tool_calls")):
        return [None] * batch.n_rows
    return batch.of_part("choice", calls_text)


def calls_text(choice: Choice) -> str | None:
    """Return the tool calls of a choice as JSON text; None if it has none."""
    return _to_json(choice.tool_calls) if choice.tool_calls else None


def systems(batch: Batch) -> list[Scalar]:
    """Return the system messages."""
    firsts = [messages[0] for messages in batch.part("request.messages")]
    return [each.content if each.role == "system" else None for each in firsts]


def prompts(batch: Batch) -> list[Scalar]:
    """Return the newest user messages, nearly always the last message."""
    lasts = [messages[-1] for messages in batch.part("request.messages")]
    if any(last.role != "user" for last in lasts):
        return batch.of_part("request", attrgetter("prompt"))
    return [last.content or "" for last in lasts]


def usage_sources(batch: Batch) -> list[Scalar]:
    """Return where token counts come from, often one place for all."""
    if None not in batch.part("body.usage"):
        return ["reported"] * batch.n_rows
    return batch.of_part("exchange", attrgetter("usage_source"))


def unknown(batch: Batch) -> list[Scalar]:
    """Return a missing value for each row."""
    return [None] * batch.n_rows


def stop_text(stop: Any) -> str | None:  # noqa: ANN401 - a parameter
    """Return `stop` as JSON text; None if it was not sent."""
    return None if stop is None else _to_json(stop)


def _to_json(value: Any) -> str:  # noqa: ANN401 - anything that JSON knows
    return msgspec.json.encode(value).decode()


def sent(batch: Batch, name: str) -> list[Scalar]:
    """Return a parameter as sent; most are not sent by any of many requests."""
    params = batch.part("request.params")
    names = batch.once("names sent", lambda: set[str]().union(*params))
    return [each.get(name) for each in params] if name in names else unknown(batch)
