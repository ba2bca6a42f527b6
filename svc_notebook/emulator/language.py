"""The emulator's language model: tokens of text for an ask, one after another.

What it is not: it does not stop at `stop` or `max_tokens` (`choice` does) and
calls no tools.

Rules for this file: the same seed writes the same tokens; a text says at its
beginning that it is emulated (a single word that was asked for stands alone); the
draw is a real one, so that temperature, top_p and the penalties can be seen at work.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from .ask import Ask
from .brief import Brief, brief_of
from .ngram import Candidates, Context, Ngram
from .pick import options_of, pick
from .sampling import Rare, Sampling, draw, penalised
from .tokens import split_tokens
from .voice import SUBJECT, Voice, learnt, voice_of

OPENING = ("Emulated", " reply", ".")
OPENING_THAI = ("คำ", "ตอบ", "จำ", "ลอง")
# A small aversion against writing the same tokens in a row again, as any language
# model has; without it temperature 0 would go round in circles.
AGAIN_COST = 1.5
# Over how many tokens around its length a reply makes up its mind to end.
END_SLOPE_TOKENS = 6.0
# How many lengths a reply can be meant to have.
LENGTHS = 10
_END = -1
ENDS = (".", "?", "!")


def write(ask: Ask, seed: int, *, told: Sequence[str] = ()) -> Iterator[str]:
    """Write a reply token by token until its natural end.

    Args:
        ask: What is asked.
        seed: Decides every draw; not used at temperature 0.
        told: Tokens to say first: what tools answered.
    """
    rng = Random(seed)  # noqa: S311 - repeatable chance is the point, not secrets
    by = _sampling(ask)
    options = options_of(ask.instructions)
    if options and not told:
        word = pick(options, ask.instructions, model=ask.model, by=by, rng=rng)
        yield from split_tokens(word)
        return
    brief = brief_of(ask.question)
    yield from OPENING_THAI if brief.is_thai else OPENING
    yield from told
    voice = voice_of(ask.model)
    ngram = learnt(voice.sections, is_thai=brief.is_thai)
    length = _length(voice, brief, by, rng)
    pen = _Pen(ngram, by, rng, length=length, taste=ask.question)
    blank = " "
    for token in pen.tokens():
        yield blank + _about(token, brief, pen)
        blank = ""


def _sampling(ask: Ask) -> Sampling:
    """Take the parameters that act on a draw."""
    return Sampling(
        temperature=ask.temperature,
        top_p=ask.top_p,
        presence_penalty=ask.presence_penalty,
        frequency_penalty=ask.frequency_penalty,
        repetition_penalty=ask.repetition_penalty,
    )


def _length(voice: Voice, brief: Brief, by: Sampling, rng: Random) -> float:
    """Decide about how many tokens the reply shall have.

    The length is one of `LENGTHS`; the nucleus and a low temperature keep those
    in the middle, at last a single one.
    """
    if brief.wanted_tokens is not None:
        return float(brief.wanted_tokens)
    n_lengths = max(1, round(LENGTHS * by.top_p * min(1.0, by.temperature)))
    share = 0.5 + (rng.randrange(n_lengths) - (n_lengths - 1) / 2) / LENGTHS
    return voice.shortest_tokens + share * (
        voice.longest_tokens - voice.shortest_tokens
    )


def _about(token: str, brief: Brief, pen: "_Pen") -> str:
    """Put a word of the prompt where the corpus leaves room for one."""
    if SUBJECT not in token:
        return token
    pen.n_subjects += 1
    word = brief.subjects[(pen.n_subjects - 1) % len(brief.subjects)]
    return token.replace(SUBJECT, word)


@dataclass(slots=True)
class _Pen:
    """One reply being written: what was written so far, and what comes next."""

    ngram: Ngram
    by: Sampling
    rng: Random
    length: float
    taste: str
    n_subjects: int = 0
    seen: Counter[int] = field(default_factory=Counter)
    steps: dict[Context, int] = field(default_factory=dict)

    def tokens(self) -> Iterator[str]:
        """Draw tokens until one draw says that this is the end."""
        rare = Rare(self.ngram.singles)
        stop = self.ngram.stop
        context = self.ngram.start
        n_tokens = len(OPENING)
        while True:
            known = self._with_end(self._fresh(context), context, n_tokens)
            scores = penalised(known, self.seen, self.by)
            token = draw(scores, rare, by=self.by, seen=self.seen, rng=self.rng)
            if token == _END or (token == stop and n_tokens >= self.length):
                return
            yield self.ngram.vocabulary[token]
            n_tokens += 1
            self.seen[token] += 1
            step = (*context, token)
            self.steps[step] = self.steps.get(step, 0) + 1
            context = self.ngram.start if token == stop else step[1:]

    def _fresh(self, context: Context) -> Candidates:
        """List what may follow, less likely where it followed before."""
        candidates = self.ngram.candidates(context)
        if context == self.ngram.start:
            candidates = self._by_taste(candidates)
        steps = self.steps
        return tuple(
            (token, logp - AGAIN_COST * steps.get((*context, token), 0))
            for token, logp in candidates
        )

    def _by_taste(self, openings: Candidates) -> Candidates:
        """Let the prompt favour some ways to open a paragraph."""
        return tuple(
            (token, logp + Random(f"{token}/{self.taste}").random())  # noqa: S311 - repeatable, no secret
            for token, logp in openings
        )

    def _with_end(
        self, known: Candidates, context: Context, n_tokens: int
    ) -> Candidates:
        """Offer to end where a sentence or a paragraph does, once it is long enough."""
        stop = self.ngram.stop
        may_end = self.ngram.vocabulary[context[-1]] in ENDS or any(
            token == stop for token, _ in known
        )
        if not may_end or context[-1] == stop:
            return known
        return (*known, (_END, (n_tokens - self.length) / END_SLOPE_TOKENS))
