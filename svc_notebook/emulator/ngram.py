"""A small n-gram model: which tokens follow which, with what probability.

What it is not: it draws nothing (`sampling` does) and knows no requests.

Rules for this file: frozen once learnt; the counts after the last three, two and
one tokens and of every token alone are mixed, so that every token can follow every
other one and a higher temperature has somewhere to go.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

BREAK = "\n\n"

# Shares of the counts after three, two and one tokens, and of a token alone. Small
# shares keep the text readable at ordinary temperatures; they grow by themselves as
# the temperature flattens them.
SHARES = (0.90, 0.075, 0.0246)
SINGLE_SHARE = 0.0004
ORDER = len(SHARES)

Context = tuple[int, ...]
Candidates = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Ngram:
    """What was learnt.

    Attributes:
        vocabulary: Every token; a token's number is its place here.
        singles: Log-probability of each token to come from nowhere.
        stop: The number of `BREAK`.
    """

    vocabulary: tuple[str, ...]
    singles: tuple[float, ...]
    stop: int
    _after: dict[Context, Counter[int]]
    _known: dict[Context, Candidates] = field(default_factory=dict)

    @property
    def start(self) -> Context:
        """The context in which a paragraph begins."""
        return (self.stop,) * ORDER

    def candidates(self, context: Context) -> Candidates:
        """List the tokens seen after the last three, with log-probabilities.

        Tokens that were never seen there have `singles`; likeliest come first.
        """
        if context not in self._known:
            self._known[context] = self._mixed(context)
        return self._known[context]

    def _mixed(self, context: Context) -> Candidates:
        """Mix the counts; a share without counts goes to the next shorter context."""
        mixed: dict[int, float] = {}
        share = 0.0
        for length, own_share in zip(range(ORDER, 0, -1), SHARES, strict=True):
            share += own_share
            counts = self._after.get(context[ORDER - length :])
            if counts is None:
                continue
            total = counts.total()
            for token, count in counts.items():
                mixed[token] = mixed.get(token, 0.0) + share * count / total
            share = 0.0
        scored = (
            (token, math.log(part + math.exp(self.singles[token])))
            for token, part in mixed.items()
        )
        return tuple(sorted(scored, key=lambda each: (-each[1], each[0])))


def learn(paragraphs: Sequence[Sequence[str]]) -> Ngram:
    """Count what follows what; every paragraph starts afresh and ends in `BREAK`."""
    vocabulary = sorted({BREAK, *(token for each in paragraphs for token in each)})
    numbers = {token: number for number, token in enumerate(vocabulary)}
    stop = numbers[BREAK]
    singles: Counter[int] = Counter()
    after: dict[Context, Counter[int]] = {}
    for paragraph in paragraphs:
        line = [stop] * ORDER + [numbers[token] for token in paragraph] + [stop]
        singles.update(line[ORDER:])
        for at in range(ORDER, len(line)):
            for length in range(1, ORDER + 1):
                before = tuple(line[at - length : at])
                after.setdefault(before, Counter())[line[at]] += 1
    total = singles.total()
    return Ngram(
        vocabulary=tuple(vocabulary),
        singles=tuple(
            math.log(SINGLE_SHARE * singles[number] / total)
            for number in range(len(vocabulary))
        ),
        stop=stop,
        _after=after,
    )
