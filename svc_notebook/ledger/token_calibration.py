"""Fits the rules that estimate tokens to what the service reported, model by model."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from svc_notebook.exchange import Exchange
from svc_notebook.tokens import (
    FIXED,
    Z_90,
    Counts,
    Rule,
    by_chunks,
    count_choices,
    count_prompt,
)

from .ledger import Ledger

MIN_ROWS = 20
"""A rule is fitted on at least so many requests with reported usage, the newest."""
MAX_ROWS = 500
MIN_STREAMS = 10
"""So many streams tell whether each of their chunks has one token."""
_NEAR = 0.08  # of one token a chunk; other servers send words or several tokens
_SURE = 0.6  # the widest interval, as a share of the estimate, that tells anything
_SEEN_TOKENS = 300.0  # of one kind; after so many, half of what is unknown is left
_DRIFT = 0.05  # the next texts are not quite like those that were seen
_LEAST_NOISE = 0.02
_TRUST = 0.01  # weight of the fixed rule, for scripts with few examples
_LEAST_WEIGHT = 0.05  # no script is free, whatever a few requests say


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The rules of all models, each fitted when it is first needed.

    `newest` takes a model id and whether the emulator answered, and returns the newest
    exchanges with reported usage, and the newest streams without it.
    """

    newest: Callable[[str, bool], Iterable[Exchange]]
    fitted: dict[tuple[str, bool], Rule] = field(default_factory=dict)

    def rule(self, model: str, *, is_emulated: bool = False) -> Rule:
        """Return a model's rule; the fixed one if too few exchanges have usage."""
        key = model, is_emulated
        if key not in self.fitted:
            self.fitted[key] = fit(self.newest(model, is_emulated))
        return self.fitted[key]


def estimates_of(ledger: Ledger) -> TokenRules:
    """Return rules that are fitted on a ledger's reported tokens."""

    def newest(model: str, is_emulated: bool) -> list[Exchange]:  # noqa: FBT001 - as `TokenRules`
        read = partial(ledger.newest, model, is_emulated=is_emulated, n=MAX_ROWS)
        return [*read(usage_source="reported"), *read(usage_source="estimated")]

    return TokenRules(newest)


def fit(exchanges: Iterable[Exchange]) -> Rule:
    """Fit a rule to what the service reported; the fixed rule if that is too little.

    What was not seen, such as another script, keeps the fixed rule and its interval.
    Exchanges without usage only tell whether a chunk is one token.
    """
    exchanges = list(exchanges)
    pairs = [pair for exchange in exchanges for pair in _pairs(exchange)]
    n_rows = len(pairs) // 2
    if n_rows < MIN_ROWS:
        return FIXED
    counts = np.array([count for count, _ in pairs], dtype=float)
    tokens = np.array([n_tokens for _, n_tokens in pairs], dtype=float)
    weights = _weights(counts, tokens)
    errors = np.abs(tokens / np.maximum(counts @ weights, 1.0) - 1.0)
    noise = max(float(np.quantile(errors, 0.9)) / Z_90, _LEAST_NOISE)
    seen = (counts * weights).sum(axis=0)
    known = seen / (seen + _SEEN_TOKENS)
    bias = weights * (_DRIFT + Z_90 * noise / np.sqrt(n_rows)) * known
    under = bias + (1.0 - known) * np.maximum(weights - FIXED.lows, 0.0)
    over = bias + (1.0 - known) * np.maximum(FIXED.highs - weights, 0.0)
    rule = Rule(
        weights=tuple(weights.tolist()),
        lows=tuple((weights - under).tolist()),
        highs=tuple((weights + over).tolist()),
        noise=noise,
        n_rows=n_rows,
    )
    return replace(rule, is_by_chunk=_is_by_chunk(exchanges, rule))


def _pairs(exchange: Exchange) -> Iterator[tuple[Counts, int]]:
    """Return the counts of prompt and reply, each with its reported tokens."""
    usage = exchange.body.usage if exchange.body else None
    if usage is None or not usage.prompt_tokens or not usage.completion_tokens:
        return
    has_calls = any(choice.tool_calls for choice in exchange.choices)
    if exchange.request.tools or has_calls:
        return  # the document does not say how the service counts tools
    yield count_prompt(exchange.request.messages), usage.prompt_tokens
    yield count_choices(exchange.choices), usage.completion_tokens


def _is_by_chunk(exchanges: Iterable[Exchange], rule: Rule) -> bool:
    """Say whether streams have as many chunks as the rule expects tokens."""
    ratios = []
    for exchange in exchanges:
        tokens = rule.tokens(count_choices(exchange.choices))
        is_sure = tokens.high - tokens.low <= _SURE * tokens.mean
        if exchange.n_chunks and tokens.best and is_sure:
            ratios.append(by_chunks(exchange.n_chunks).mean / tokens.mean)
    if len(ratios) < MIN_STREAMS:
        return False
    return abs(float(np.median(ratios)) - 1.0) <= _NEAR


def _weights(counts: "np.ndarray", tokens: "np.ndarray") -> "np.ndarray":
    """Return the weights with the least relative error, drawn to the fixed rule."""
    fixed = np.array(FIXED.weights)
    scale = 1.0 / np.maximum(tokens, 1.0)
    rows, wanted = counts * scale[:, None], tokens * scale
    trust = _TRUST * len(tokens)
    squares = rows.T @ rows + trust * np.diag(1.0 / fixed**2)
    weights = np.linalg.solve(squares, rows.T @ wanted + trust / fixed)
    return np.maximum(weights, _LEAST_WEIGHT * fixed)
