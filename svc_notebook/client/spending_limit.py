"""A limit on tokens or cost, checked before every request of the package.

It counts from the moment it is set. Requests in flight are not stopped, so the total
can end a little above the limit.
"""

from collections.abc import Callable
from math import isinf
from threading import Lock
from typing import Literal

from svc_notebook.display.costs import cost_in_words
from svc_notebook.errors import SpendingLimitError
from svc_notebook.exchange import Exchange
from svc_notebook.service.catalogue import DEFAULT_MAX_TOKENS
from svc_notebook.service.request import CompletionRequest

SpendingKind = Literal["tokens", "cost"]
CostOf = Callable[[str, int, int], float | None]
"""Returns the cost of prompt and completion tokens of a model id; None if unknown."""

_ARGUMENTS: dict[SpendingKind, str] = {"tokens": "max_tokens_total", "cost": "max_cost"}


class SpendingLimit:
    """Counts tokens and cost, and refuses requests once a limit is reached.

    Reported tokens are counted; estimated ones where none are reported. Requests to the
    emulator count as if they were paid; recorded answers do not count. Any thread may
    use it.
    """

    def __init__(self) -> None:
        self._most: dict[SpendingKind, float] = {}
        self._used: dict[SpendingKind, float] = {"tokens": 0.0, "cost": 0.0}
        # by the exchange ids of the requests in flight
        self._expected: dict[str, dict[SpendingKind, float]] = {}
        self._cost_of: CostOf = lambda *_: None
        self._n_replies = self._n_reply_tokens = 0
        self._lock = Lock()

    def limit(
        self, kind: SpendingKind, most: float, *, cost_of: CostOf | None = None
    ) -> None:
        """Set a limit and count from 0; infinity removes it. Cost needs `cost_of`."""
        with self._lock:
            self._most.pop(kind, None)
            if not isinf(most):
                self._most[kind] = most
            self._used[kind] = 0.0
            self._cost_of = cost_of or self._cost_of

    def check(self, request: CompletionRequest) -> None:
        """Raise a SpendingLimitError if this request may not be sent."""
        with self._lock:
            most, counted = dict(self._most), [self._used, *self._expected.values()]
            used = {kind: sum(amounts[kind] for amounts in counted) for kind in most}
        if "cost" in most and self._cost_of(request.model, 0, 0) is None:
            raise SpendingLimitError(
                f"max_cost is set, but the price table has no price for "
                f"{request.model!r}. Nothing was sent. Add the price to the table and "
                "set max_cost again, or remove the limit with "
                "svc.use(max_cost=float('inf'))."
            )
        for kind, limit in most.items():
            if used[kind] >= limit:
                raise SpendingLimitError(
                    f"{_used_of_limit(kind, used[kind], limit)} are used, including "
                    "requests in flight. This request was not sent; earlier replies "
                    "are kept. To go on, set the limit again: "
                    f"svc.use({_ARGUMENTS[kind]}=...) counts from 0, and float('inf') "
                    "removes the limit."
                )

    def begin(self, exchange: Exchange) -> None:
        """Count the expected amounts of a request that is being sent."""
        prompt = exchange.est_prompt_tokens
        n_choices = int(exchange.request.params.get("n", 1))
        with self._lock:
            reply = self._n_reply_tokens / max(self._n_replies, 1) or DEFAULT_MAX_TOKENS
            reply = min(round(reply), exchange.max_tokens or round(reply)) * n_choices
            amounts = self._amounts(exchange, prompt, reply)
            self._expected[exchange.exchange_id] = amounts

    def end(self, exchange: Exchange) -> None:
        """Count the actual amounts of a request that has ended."""
        prompt = completion = 0
        if exchange.body is not None:
            usage = exchange.body.usage
            reported = usage and (usage.prompt_tokens, usage.completion_tokens)
            prompt, completion = (
                exchange.est_prompt_tokens,
                exchange.est_completion_tokens,
            )
            if reported:
                prompt = prompt if reported[0] is None else reported[0]
                completion = completion if reported[1] is None else reported[1]
        with self._lock:
            self._expected.pop(exchange.exchange_id, None)
            for kind, amount in self._amounts(exchange, prompt, completion).items():
                self._used[kind] += amount
            self._n_replies += len(exchange.choices)
            self._n_reply_tokens += completion

    def _amounts(
        self, exchange: Exchange, prompt: int, completion: int
    ) -> dict[SpendingKind, float]:
        cost = self._cost_of(exchange.request.model, prompt, completion) or 0.0
        return {"tokens": prompt + completion, "cost": cost}

    def __str__(self) -> str:
        return ", ".join(
            _used_of_limit(kind, self._used[kind], most)
            for kind, most in self._most.items()
        )


def _used_of_limit(kind: SpendingKind, used: float, most: float) -> str:
    if kind == "tokens":
        return f"{used:,.0f} of {most:,.0f} tokens"
    return f"{cost_in_words(used)} of {cost_in_words(most)} in cost"
