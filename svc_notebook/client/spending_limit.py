"""A limit on what is spent, checked before every request of the package.

It counts from the moment it is set. Requests in flight are completed, so the total
can end a little above the limit.
"""

from collections.abc import Callable
from math import isinf
from threading import Lock
from typing import Literal

from svc_notebook.errors import SpendingLimitError
from svc_notebook.exchange import Exchange
from svc_notebook.service.catalogue import DEFAULT_MAX_TOKENS
from svc_notebook.service.request import CompletionRequest

SpendingKind = Literal["tokens", "cost"]
CostOf = Callable[[str, int, int], float | None]
"""Returns what tokens of a model's prompt and completion cost; None if unknown."""

_ARGUMENTS: dict[SpendingKind, str] = {"tokens": "max_tokens_total", "cost": "max_cost"}


class SpendingLimit:
    """Counts tokens and cost, and refuses requests once a limit is reached.

    Reported tokens are counted, else estimated ones. The emulator's count too, as if
    they were paid; answers from the ledger or a file do not. Any thread may use it.
    """

    def __init__(self) -> None:
        self._most: dict[SpendingKind, float] = {}
        self._used: dict[SpendingKind, float] = {"tokens": 0.0, "cost": 0.0}
        # of requests in flight, by exchange id
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
                    f"{_of(kind, used[kind], limit)} are used, with what is in flight. "
                    "Nothing more was sent, and everything so far is kept. To go on, "
                    f"set the limit again: svc.use({_ARGUMENTS[kind]}=...) counts from "
                    "0, and float('inf') removes it."
                )

    def begin(self, exchange: Exchange) -> None:
        """Count what a request that is sent will probably take."""
        prompt = exchange.est_prompt_tokens
        n_choices = int(exchange.request.params.get("n", 1))
        with self._lock:
            reply = self._n_reply_tokens / max(self._n_replies, 1) or DEFAULT_MAX_TOKENS
            reply = min(round(reply), exchange.max_tokens or round(reply)) * n_choices
            taken = self._taken(exchange, prompt, reply)
            self._expected[exchange.exchange_id] = taken

    def end(self, exchange: Exchange) -> None:
        """Count what it took."""
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
            for kind, amount in self._taken(exchange, prompt, completion).items():
                self._used[kind] += amount
            self._n_replies += len(exchange.choices)
            self._n_reply_tokens += completion

    def _taken(
        self, exchange: Exchange, prompt: int, completion: int
    ) -> dict[SpendingKind, float]:
        cost = self._cost_of(exchange.request.model, prompt, completion) or 0.0
        return {"tokens": prompt + completion, "cost": cost}

    def __str__(self) -> str:
        return ", ".join(
            _of(kind, self._used[kind], most) for kind, most in self._most.items()
        )


def _of(kind: SpendingKind, used: float, most: float) -> str:
    if kind == "tokens":
        return f"{used:,.0f} of {most:,.0f} tokens"
    return f"{used:,.6g} of {most:,.6g} in cost"
