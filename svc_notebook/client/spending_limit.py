"""A limit on tokens or cost, checked before every request of the package.

It counts from the moment it is set. A request is sent only if what it may use is left
beside what the requests in flight may use. So the total passes the limit only if a
reply is longer than expected.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from math import isinf
from threading import Lock
from typing import Literal

from svc_notebook.display.number_words import cost_in_words
from svc_notebook.errors import SpendingLimitError
from svc_notebook.exchange import Exchange
from svc_notebook.service.catalogue import DEFAULT_MAX_TOKENS
from svc_notebook.service.request import CompletionRequest

SpendingKind = Literal["tokens", "cost"]
CostOf = Callable[[str, int, int], float | None]
"""Returns the cost of prompt and completion tokens of a model id; None if unknown."""

# with fewer replies of a model, the longest one says too little
_ENOUGH_REPLIES = 10
_ARGUMENTS: dict[SpendingKind, str] = {"tokens": "max_tokens_total", "cost": "max_cost"}


class SpendingLimit:
    """Counts tokens and cost, and refuses requests that a limit might not allow.

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
        # by model: how many replies there were, and the tokens of the longest
        self._n_replies: Counter[str] = Counter()
        self._longest_tokens: dict[str, int] = {}
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

    @property
    def is_set(self) -> bool:
        """Whether there is a limit now."""
        return bool(self._most)

    def shortages(self, most: Mapping[SpendingKind, float]) -> list[str]:
        """Say which limits leave less than the most that is needed, and how much."""
        with self._lock:
            left = {
                kind: limit
                - self._used[kind]
                - sum(amounts[kind] for amounts in self._expected.values())
                for kind, limit in self._most.items()
            }
        return [
            f"the session's limit leaves {_amount(kind, max(amount, 0.0))}"
            f"{' in cost' if kind == 'cost' else ''}; {_may_take(kind, most[kind])}"
            for kind, amount in left.items()
            if most.get(kind, 0.0) > amount
        ]

    def check(self, request: CompletionRequest, prompt_tokens: int) -> None:
        """Raise a SpendingLimitError if this request may not be sent now."""
        with self._lock:
            self._check(request, prompt_tokens)

    def begin(self, exchange: Exchange, prompt_tokens: int) -> None:
        """Check a request that is sent now, and reserve the most that it may use."""
        request = exchange.request
        with self._lock:
            self._check(request, prompt_tokens)
            reserved = self._most_of(request, prompt_tokens)
            self._expected[exchange.exchange_id] = reserved

    def _check(self, request: CompletionRequest, prompt_tokens: int) -> None:
        if "cost" in self._most and self._cost_of(request.model, 0, 0) is None:
            raise SpendingLimitError(
                f"max_cost is set, but the price table has no price for "
                f"{request.model!r}. Nothing was sent. Add the price to the table and "
                "set max_cost again, or remove the limit with "
                "svc.use(max_cost=float('inf'))."
            )
        needed = self._most_of(request, prompt_tokens)
        for kind, limit in self._most.items():
            in_flight = sum(amounts[kind] for amounts in self._expected.values())
            used = self._used[kind] + in_flight
            if used + needed[kind] > limit:
                including = ", including requests in flight" if in_flight else ""
                n_choices = int(request.params.get("n", 1))
                room = int((limit - used - prompt_tokens) // n_choices)
                fits = kind == "tokens" and room > 0
                raise SpendingLimitError(
                    f"One request may use up to {_amount(kind, needed[kind])}, more "
                    f"than the limit leaves ({_amount(kind, max(limit - used, 0.0))}): "
                    f"{_used_of_limit(kind, used, limit)} are used{including}. It was "
                    "not sent; earlier replies are kept. To go on, "
                    + f"ask with max_tokens={room} or less, or "
                    * fits
                    + f"set the limit again: svc.use({_ARGUMENTS[kind]}=...) counts "
                    "from 0, and float('inf') removes the limit."
                )

    def _most_of(
        self, request: CompletionRequest, prompt_tokens: int
    ) -> dict[SpendingKind, float]:
        """Return the most that a request is expected to use.

        Its reply is expected to have at most the tokens of the model's longest one.
        """
        longest = self._longest_tokens.get(request.model, 0)
        if self._n_replies[request.model] < _ENOUGH_REPLIES:
            # a fitted max_tokens is all that the model allows, which is far too much
            stated = None if request.is_fitted else request.max_tokens
            longest = stated or max(longest, DEFAULT_MAX_TOKENS)
        reply = min(longest, request.max_tokens or longest)
        n_choices = int(request.params.get("n", 1))
        return self._amounts(request.model, prompt_tokens, reply * n_choices)

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
            model, n_choices = exchange.request.model, len(exchange.choices)
            for kind, amount in self._amounts(model, prompt, completion).items():
                self._used[kind] += amount
            if n_choices:
                longest = max(
                    self._longest_tokens.get(model, 0), -(-completion // n_choices)
                )
                self._longest_tokens[model] = longest
                self._n_replies[model] += n_choices

    def _amounts(
        self, model: str, prompt: int, completion: int
    ) -> dict[SpendingKind, float]:
        cost = self._cost_of(model, prompt, completion) or 0.0
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


def _amount(kind: SpendingKind, amount: float) -> str:
    return f"{amount:,.0f} tokens" if kind == "tokens" else cost_in_words(amount)


def _may_take(kind: SpendingKind, most: float) -> str:
    if isinf(most):  # replies without max_tokens, from another server
        return "this may take more"
    return f"this may take up to {_amount(kind, most).removesuffix(' tokens')}"
