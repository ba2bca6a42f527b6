"""A row of replies: a choice of an exchange, or a cell of a sweep that has none.

What it is not: the columns (see `replies`). Rules: pure; every choice that came
has a row, and so has what brought none.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec

from svc_notebook.exchange import Exchange, Failure, Origin
from svc_notebook.service.completion import Choice, CompletionBody, Usage
from svc_notebook.service.request import CompletionRequest

from .columns import Batch

RowStatus = Literal["planned", "ok", "error", "cancelled", "not_run"]


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row: a choice of an exchange, or a cell of a sweep that has none.

    Without the garbage collector's notice, since frames make very many and a row
    holds nothing that holds it.

    Attributes:
        request: What was, or will be, sent.
        origin: Who asks.
        status: planned and not_run are rows without an exchange.
        exchange: None if nothing was sent.
        choice: None if none came.
        failure: Why there is no whole answer.
        choice_index: Position of the choice; 0 if none came.
        is_first: Whether this row carries the numbers of the request.
        est_prompt_tokens: Estimated for the request; on its first row only.
        of_request: The exchange, on its first row only.
        body: What came back, if anything did.
        usage: As reported, on the first row of the exchange only.
    """

    request: CompletionRequest
    origin: Origin
    status: RowStatus
    exchange: Exchange | None = None
    choice: Choice | None = None
    failure: Failure | None = None
    choice_index: int = 0
    is_first: bool = True
    est_prompt_tokens: int | None = None
    of_request: Exchange | None = None
    body: CompletionBody | None = None
    usage: Usage | None = None


def to_replies(exchange: Exchange) -> Iterator[Reply]:
    """Return the rows of an exchange: one a choice, or one if no choice came."""
    choices: tuple[Choice | None, ...] = exchange.choices or (None,)
    body = exchange.body
    for position, choice in enumerate(choices):
        is_first = position == 0
        yield Reply(
            request=exchange.request,
            origin=exchange.origin,
            status=exchange.status,
            exchange=exchange,
            choice=choice,
            failure=exchange.failure,
            choice_index=choice.index if choice else 0,
            is_first=is_first,
            est_prompt_tokens=exchange.est_prompt_tokens if is_first else None,
            of_request=exchange if is_first else None,
            body=body,
            usage=body.usage if body and is_first else None,
        )


class ExchangeBatch(Batch):
    """The rows of exchanges of one choice at most: parts without the rows.

    Args:
        exchanges: Of which none has several choices.
        bodies: Theirs.
        choices: Theirs.
    """

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        bodies: Sequence[CompletionBody | None],
        choices: Sequence[Choice | None],
    ) -> None:
        super().__init__(exchanges)
        self._once |= {
            "exchange": exchanges,
            "of_request": exchanges,
            "body": bodies,
            "choice": choices,
            "choice_index": [each.index if each else 0 for each in choices],
        }

    @property
    def rows(self) -> Sequence[Reply]:
        """The rows, made if they are needed one by one."""
        return self.once("rows", lambda: list(all_replies(self._rows)))

    def _part(self, name: str) -> list[Any]:
        whole = _PARTS.get(name)
        return super()._part(name if whole is None else f"{whole}.{name}")


_PARTS = {
    **dict.fromkeys(("request", "origin", "status", "failure"), "exchange"),
    "est_prompt_tokens": "exchange",
    "usage": "body",
}
"""Where the parts of a row are found that are parts of an exchange's."""


def to_batch(exchanges: Sequence[Exchange]) -> Batch:
    """Return the rows of exchanges for reading column by column."""
    bodies = [exchange.body for exchange in exchanges]
    found = [body.choices if body else () for body in bodies]
    if max(map(len, found), default=0) > 1:
        return Batch(list(all_replies(exchanges)))
    return ExchangeBatch(
        exchanges, bodies, [each[0] if each else None for each in found]
    )


def all_replies(exchanges: Iterable[Exchange]) -> Iterator[Reply]:
    """Return the rows of exchanges, in their order."""
    return chain.from_iterable(map(to_replies, exchanges))
