"""Fits the rules that estimate tokens to the tokens that the service reported."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from svc_notebook.exchange import Exchange
from svc_notebook.tokens import (
    FIXED,
    Z_90,
    Counts,
    TokenRule,
    by_chunks,
    count_choices,
    count_prompt,
)

from .ledger import Ledger

MIN_ROWS = 20
"""Fewest requests with reported usage that a rule is fitted to."""
MAX_ROWS = 500
"""Most requests that a rule is fitted to: the newest ones."""
MIN_STREAMS = 10
"""Fewest streams that can show whether each chunk is one token."""
# Chunks count as tokens if there are as many of them, within this share. Other servers
# send words, or several tokens in a chunk.
_TOLERANCE = 0.08
_WIDEST = 0.6  # a stream whose interval is wider than this share of it shows nothing
_SEEN_TOKENS = 300.0  # of one script; after so many, its uncertainty is halved
_DRIFT = 0.05  # relative error that is added, because later texts differ from these
_LEAST_NOISE = 0.02  # relative error of one text that is assumed at least
_TRUST = 0.01  # weight of the fixed rule for each row, for scripts with few examples
_LEAST_WEIGHT = 0.05  # of the fixed weight, however little a few requests reported


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The rules of all models, each fitted when it is first needed.

    `newest` takes a model id and whether the emulator answered. It returns the newest
    exchanges with reported usage, and the newest streams without reported usage.
    """

    newest: Callable[[str, bool], Iterable[Exchange]]
    fitted: dict[tuple[str, bool], TokenRule] = field(default_factory=dict)

    def rule(self, model: str, *, is_emulated: bool = False) -> TokenRule:
        """Return the rule of a model; the fixed rule if too few have reported usage."""
        key = model, is_emulated
        if key not in self.fitted:
            self.fitted[key] = fit(self.newest(model, is_emulated))
        return self.fitted[key]


def estimates_of(ledger: Ledger) -> TokenRules:
    """Return rules that are fitted to the reported tokens in a ledger."""

    def newest(model: str, is_emulated: bool) -> list[Exchange]:  # noqa: FBT001 - as `TokenRules`
        read = partial(ledger.newest, model, is_emulated=is_emulated, n=MAX_ROWS)
        return [*read(usage_source="reported"), *read(usage_source="estimated")]

    return TokenRules(newest)


def fit(exchanges: Iterable[Exchange]) -> TokenRule:
    """Fit a rule to reported tokens; return the fixed rule if there are too few.

    A script that does not occur keeps the weight and the interval of the fixed rule.
    Exchanges without usage only show whether a chunk is one token.
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
    known = seen / (seen + _SEEN_TOKENS)  # share of what is known of each script
    # a known script has the error of the fit, an unknown one the fixed rule's interval
    bias = weights * (_DRIFT + Z_90 * noise / np.sqrt(n_rows)) * known
    under = bias + (1.0 - known) * np.maximum(weights - FIXED.lows, 0.0)
    over = bias + (1.0 - known) * np.maximum(FIXED.highs - weights, 0.0)
    rule = TokenRule(
        weights=tuple(weights.tolist()),
        lows=tuple((weights - under).tolist()),
        highs=tuple((weights + over).tolist()),
        noise=noise,
        n_rows=n_rows,
    )
    return replace(rule, is_by_chunk=_is_by_chunk(exchanges, rule))


def _pairs(exchange: Exchange) -> Iterator[tuple[Counts, int]]:
    """Return the counts of the prompt and of the reply, with the reported tokens."""
    usage = exchange.body.usage if exchange.body else None
    if usage is None or not usage.prompt_tokens or not usage.completion_tokens:
        return
    has_calls = any(choice.tool_calls for choice in exchange.choices)
    if exchange.request.tools or has_calls:
        return  # the document does not say how the service counts tools
    yield count_prompt(exchange.request.messages), usage.prompt_tokens
    yield count_choices(exchange.choices), usage.completion_tokens


def _is_by_chunk(exchanges: Iterable[Exchange], rule: TokenRule) -> bool:
    """Return whether streams have as many chunks as the rule expects tokens."""
    ratios = []
    for exchange in exchanges:
        tokens = rule.tokens(count_choices(exchange.choices))
        is_narrow = tokens.high - tokens.low <= _WIDEST * tokens.mean
        if exchange.n_chunks and tokens.best and is_narrow:
            ratios.append(by_chunks(exchange.n_chunks).mean / tokens.mean)
    if len(ratios) < MIN_STREAMS:
        return False
    return abs(float(np.median(ratios)) - 1.0) <= _TOLERANCE


def _weights(counts: "np.ndarray", tokens: "np.ndarray") -> "np.ndarray":
    """Return weights by ridge regression: shrunk to the fixed rule, relative errors."""
    fixed = np.array(FIXED.weights)
    scale = 1.0 / np.maximum(tokens, 1.0)
    rows, target = counts * scale[:, None], tokens * scale
    trust = _TRUST * len(tokens)
    squares = rows.T @ rows + trust * np.diag(1.0 / fixed**2)
    weights = np.linalg.solve(squares, rows.T @ target + trust / fixed)
    return np.maximum(weights, _LEAST_WEIGHT * fixed)
