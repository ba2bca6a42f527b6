"""Drawing a token: penalties, temperature, top_p, then chance.

What it is not: it knows no words and no requests, only numbers of tokens.

Rules for this file: chance comes in as a `Random`; temperature 0 takes the
likeliest token and no chance at all; the order is the usual one: penalties on
the scores, then temperature, then the nucleus (doc: Request body).
"""

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random

# Scores are log-probabilities lifted by this, so that dividing a seen token's
# score by the repetition penalty costs it something even when it was certain.
LIFT = 12.0
# A little model is far surer of its next token than a large one: the additive
# penalties weigh more here, or their effect would drown in it.
WEIGHT = 2.5

Scored = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The parameters that act on the draw, with the document's defaults."""

    temperature: float = 0.7
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def is_penalised(self) -> bool:
        """Whether tokens that already appeared are treated differently."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )

    def scored(self, token_logp: float, n_seen: int) -> float:
        """Score a token that appeared so often before."""
        score = token_logp + LIFT
        if not n_seen:
            return score
        if score > 0:
            score /= self.repetition_penalty
        else:
            score *= self.repetition_penalty
        penalty = self.presence_penalty + self.frequency_penalty * n_seen
        return score - WEIGHT * penalty


def penalised(candidates: Scored, seen: Mapping[int, int], by: Sampling) -> Scored:
    """Apply the three penalties to log-probabilities."""
    if not by.is_penalised:
        return candidates
    return [
        (token, by.scored(logp, seen.get(token, 0)) - LIFT)
        for token, logp in candidates
    ]


def draw(
    candidates: Scored,
    rare: "Rare",
    *,
    by: Sampling,
    seen: Mapping[int, int],
    rng: Random,
) -> int:
    """Draw one token.

    Args:
        candidates: Tokens at hand with scores, penalties already applied.
        rare: All tokens, drawn from when none of the candidates is.
        by: The parameters.
        seen: How often each token appeared before.
        rng: Where chance comes from.
    """
    if by.temperature == 0.0:
        return max(candidates, key=lambda each: each[1])[0]
    top = max(score for _, score in candidates)
    weights = [
        (math.exp((score - top) / by.temperature), token) for token, score in candidates
    ]
    tail = rare.weight(top, by.temperature)
    if by.top_p < 1.0:
        weights, tail = nucleus(weights, tail, by.top_p)
    sums = list(accumulate(weight for weight, _ in weights))
    chance = rng.random() * (sums[-1] + tail)
    if chance < sums[-1]:
        return weights[bisect(sums, chance)][1]
    return _rare_draw(rare, by=by, seen=seen, rng=rng)


def nucleus(
    weights: list[tuple[float, int]], tail: float, top_p: float
) -> tuple[list[tuple[float, int]], float]:
    """Keep the likeliest tokens that together reach `top_p`.

    The rare tokens come last; they stay, as far as needed, only when the others
    do not reach it. At least one token is kept.
    """
    wanted = top_p * (sum(weight for weight, _ in weights) + tail)
    kept: list[tuple[float, int]] = []
    reached = 0.0
    for weight, token in sorted(weights, key=lambda each: (-each[0], each[1])):
        kept.append((weight, token))
        reached += weight
        if reached >= wanted:
            return kept, 0.0
    return kept, wanted - reached


class Rare:
    """Every token by its own frequency: what high temperatures reach into."""

    def __init__(self, singles: tuple[float, ...]) -> None:
        self._singles = singles

    def weight(self, top: float, temperature: float) -> float:
        """Weigh all rare tokens together against a best score of `top`."""
        log_mass = _tail(self._singles, temperature)[0] - top / temperature
        return math.exp(min(log_mass, 60.0))

    def draw(self, temperature: float, rng: Random) -> int:
        """Draw among all tokens."""
        sums = _tail(self._singles, temperature)[1]
        return min(bisect(sums, rng.random() * sums[-1]), len(sums) - 1)


@lru_cache(maxsize=64)
def _tail(
    singles: tuple[float, ...], temperature: float
) -> tuple[float, tuple[float, ...]]:
    """Compute the log of the tail's mass, and running sums to draw from."""
    best = max(singles)
    weights = [math.exp((logp - best) / temperature) for logp in singles]
    sums = tuple(accumulate(weights))
    return best / temperature + math.log(sums[-1]), sums


def _rare_draw(
    rare: Rare, *, by: Sampling, seen: Mapping[int, int], rng: Random
) -> int:
    """Draw a rare token; penalties are kept by drawing again."""
    for _ in range(8):
        token = rare.draw(by.temperature, rng)
        n_seen = seen.get(token, 0)
        loss = LIFT - by.scored(0.0, n_seen)
        if not n_seen or rng.random() < math.exp(min(0.0, -loss / by.temperature)):
            return token
    return token
