"""Rules of tokens fitted on what the service reported, one a model.

What it is not: the estimate itself (see `tokens`). Rules: pure; a rule is fitted on
requests whose usage was reported, and errs to the safe side: of those, 19 in 20 had
no more tokens than it says; it states how far it was off; on too few requests there
is no fitting, and the fixed rule holds; the emulator's tokens are not the service's.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from svc_notebook.exchange import Exchange
from svc_notebook.tokens import FIXED, Counts, Rule, count_choices, count_prompt

MIN_ROWS = 20
"""Requests with reported usage from which on a rule is fitted."""
MAX_ROWS = 500
"""Newest requests that are looked at for each model."""
SAFE_SHARE = 0.95
_TRUST = 0.01  # how hard the fixed rule holds on where a script was hardly seen
_LEAST_WEIGHT = 0.05  # no script is free, whatever a few requests seem to say

Reported = Callable[[str, bool], Iterable[Exchange]]
"""The newest exchanges with reported usage of a model, emulated or not."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """The rules of all models, each fitted when it is first asked for.

    Attributes:
        reported: Finds the exchanges to fit on.
        fitted: By model id and whether the emulator is meant.
    """

    reported: Reported
    fitted: dict[tuple[str, bool], Rule] = field(default_factory=dict)

    def rule(self, model: str, *, is_emulated: bool = False) -> Rule:
        """Return a model's rule; the fixed one if too little was reported."""
        key = model, is_emulated
        if key not in self.fitted:
            self.fitted[key] = fit(self.reported(model, is_emulated))
        return self.fitted[key]


def fit(exchanges: Iterable[Exchange]) -> Rule:
    """Fit a rule.

    Args:
        exchanges: Of one model, with reported usage; others are stepped over.

    Returns:
        The rule, its `low` and `high` from the requests it was fitted on.
    """
    pairs = [pair for exchange in exchanges for pair in _pairs(exchange)]
    n_rows = len(pairs) // 2
    if n_rows < MIN_ROWS:
        return FIXED
    counts = np.array([each for each, _ in pairs], dtype=float)
    tokens = np.array([each for _, each in pairs], dtype=float)
    weights = _weights(counts, tokens)
    ratios = tokens / np.maximum(counts @ weights, 1.0)
    safe = float(np.quantile(ratios, SAFE_SHARE, method="higher"))
    return Rule(
        weights=tuple(float(weight) for weight in weights * safe),
        low=min(float(np.quantile(ratios, 1 - SAFE_SHARE)) / safe, 1.0),
        high=max(float(ratios.max()) / safe, 1.0),
        n_rows=n_rows,
    )


def _pairs(exchange: Exchange) -> Iterator[tuple[Counts, int]]:
    """Return prompt and reply of a request, each with its counted tokens."""
    usage = exchange.body.usage if exchange.body else None
    if usage is None or not usage.prompt_tokens or not usage.completion_tokens:
        return
    request = exchange.request
    has_calls = any(choice.tool_calls for choice in exchange.choices)
    if request.tools or has_calls:
        return  # how the service writes tools out is not shown, nor what it counts
    yield count_prompt(request.messages), usage.prompt_tokens
    yield count_choices(exchange.choices), usage.completion_tokens


def _weights(counts: "np.ndarray", tokens: "np.ndarray") -> "np.ndarray":
    """Return the weights of least relative error, drawn towards the fixed rule."""
    fixed = np.array(FIXED.weights)
    scale = 1.0 / np.maximum(tokens, 1.0)
    rows, wanted = counts * scale[:, None], tokens * scale
    trust = _TRUST * len(tokens)
    squares = rows.T @ rows + trust * np.diag(1.0 / fixed**2)
    found = np.linalg.solve(squares, rows.T @ wanted + trust / fixed)
    return np.maximum(found, _LEAST_WEIGHT * fixed)
