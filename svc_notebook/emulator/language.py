"""What the language model is to write: about what, in which language, how long.

What it is not: an understanding of the prompt; it picks words out of it.

Rules for this file: only letters are picked, never digits or marks, so that
nothing that looks like a key or a number comes back as if it were meant.

A small n-gram model: which tokens follow which, with what probability.

What it is not: it draws nothing (`sampling` does) and knows no requests.

Rules for this file: frozen once learnt; the counts after the last three, two and
one tokens and of every token alone are mixed, so that every token can follow every
other one and a higher temperature has somewhere to go.

Drawing a token: penalties, temperature, top_p, then chance.

What it is not: it knows no words and no requests, only numbers of tokens.

Rules for this file: chance comes in as a `Random`; temperature 0 takes the
likeliest token and no chance at all; the order is the usual one: penalties on
the scores, then temperature, then the nucleus (doc: Request body).

Prompts that ask for one of several words: which words, and which is picked.

What it is not: a judgement; the emulator understands nothing. It only lets a
classification be tried out: short replies, counted and compared.

Rules for this file: a word is picked by chance whose odds come from the prompt, so
that one prompt has a favourite, temperature 0 always takes it, and a higher
temperature takes others more often.

How each model writes: which texts it learnt from and how long it talks.

What it is not: it samples nothing; `language` does.

Rules for this file: models differ so that people can see a comparison work; the
differences are this emulator's own and say nothing of the service's models.

The emulator's language model: tokens of text for an ask, one after another.

What it is not: it does not stop at `stop` or `max_tokens` (`choice` does) and
calls no tools.

Rules for this file: the same seed writes the same tokens; a text says at its
beginning that it is emulated (a single word that was asked for stands alone); the
draw is a real one, so that temperature, top_p and the penalties can be seen at work.
"""

import hashlib
import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from itertools import accumulate
from random import Random
from types import MappingProxyType

from .chat_request import ChatRequest, split_tokens

_THAI_LETTER = re.compile(r"[\u0e01-\u0e2e]")
_LATIN_LETTER = re.compile(r"[A-Za-z]")
# A word, or a name of several words.
_NAME = re.compile(r"[A-Z][a-z]{2,19}(?: [A-Z][a-z]{2,19}){1,3}|[^\W\d_]{3,20}")
# Thai words run together; these stand between the words worth repeating.
_THAI_BETWEEN = re.compile(
    r"[^\u0e01-\u0e4e]+|ช่วย|ขอ|อธิบาย|บอก|เขียน|สรุป|เรื่อง|เกี่ยวกับ|อะไร|คือ"
    r"|อย่างไร|ประโยค|ย่อหน้า|ทำไม|ครับ|ค่ะ|คะ|ไหม|และ|หรือ|ของ|ให้|หน่อย|เป็น|สั้น ?ๆ|ว่า|ที่|ใน"
    r"|ยาว|ละเอียด"
)
_LENGTH = re.compile(
    r"(\d{1,4})\s*(?:-\s*)?(word|sentence|paragraph|token|คำ|ประโยค|ย่อหน้า)"
)
_TOKENS_PER = {
    "word": 1.2,
    "sentence": 16.0,
    "paragraph": 80.0,
    "token": 1.0,
    "คำ": 1.3,
    "ประโยค": 14.0,
    "ย่อหน้า": 50.0,
}
# RecordedRequest for a long text without a number: well above the default of max_tokens.
_LONG = re.compile(
    r"\b(?:(?:very|as|a|really) long(?:er)?|lengthy|at length|essay|detailed)\b"
    r"|\bin (?:\w+ )?detail\b|ยาว|ละเอียด",
    re.IGNORECASE,
)
_LONG_TOKENS = 400
_SUBJECTS_AT_MOST = 8
# Letters of a prompt that are looked at for subjects.
_READ_AT_MOST = 20_000
# How long a Thai stretch may be to be worth repeating, in letters.
_THAI_SHORTEST = 2
_THAI_LONGEST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What to write.

    Attributes:
        subjects: Words of the prompt to come back to; never empty.
        is_thai: Whether to write Thai.
        wanted_tokens: The length asked for, as a number or as "long"; or None.
    """

    subjects: tuple[str, ...]
    is_thai: bool
    wanted_tokens: int | None


def brief_of(question: str) -> Brief:
    """Read a prompt for what to write about."""
    n_thai = len(_THAI_LETTER.findall(question))
    is_thai = n_thai > len(_LATIN_LETTER.findall(question))
    subjects = _thai_subjects(question) if is_thai else _subjects(question)
    return Brief(
        subjects=tuple(subjects[:_SUBJECTS_AT_MOST])
        or (("เรื่องนี้",) if is_thai else ("this",)),
        is_thai=is_thai,
        wanted_tokens=_wanted_tokens(question),
    )


def _subjects(question: str) -> list[str]:
    """Pick the words and names that are not common, each once, in order."""
    common = _stopwords()
    picked = (
        " ".join(word for word in found.split() if word.lower() not in common)
        for found in _NAME.findall(question[:_READ_AT_MOST])
    )
    return list(dict.fromkeys(each for each in picked if each))


@cache
def _stopwords() -> frozenset[str]:
    """Read the words that say nothing about the subject."""
    text = resources.files(__package__).joinpath("stopwords_en.txt")
    return frozenset(text.read_text(encoding="utf-8").split())


def _thai_subjects(question: str) -> list[str]:
    """Pick what stands between common words and is not too long to repeat."""
    parts = _THAI_BETWEEN.split(question[:_READ_AT_MOST])
    return list(
        dict.fromkeys(
            part for part in parts if _THAI_SHORTEST <= len(part) <= _THAI_LONGEST
        )
    )


def _wanted_tokens(question: str) -> int | None:
    """Read a length such as "in 50 words" or "a long story", as tokens."""
    found = _LENGTH.search(question)
    if found:
        return int(int(found[1]) * _TOKENS_PER[found[2]])
    return _LONG_TOKENS if _LONG.search(question) else None


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


# A prompt has to ask for a word, not only to mention an "or".
_ONE_WORD = re.compile(r"\b(?:one|single|only)[ -]word\b", re.IGNORECASE)
_ASKS = re.compile(
    rf"{_ONE_WORD.pattern}|\bone of\b|\byes or no\b|\bclassify\b|\b(?:reply|answer|"
    r"respond) (?:only )?with\b|คำเดียว|อย่างใดอย่างหนึ่ง",
    re.IGNORECASE,
)
_OPTION = r"[^\W_][\w\u0e31\u0e34-\u0e3a\u0e47-\u0e4e-]*"
_OPTIONS = re.compile(
    rf"({_OPTION}(?:\s*[,/]\s*{_OPTION})*)\s*,?\s*(?:\bor\b|หรือ|/)\s*({_OPTION})",
    re.IGNORECASE,
)
# How far apart the odds of two words are, as logarithms.
_SPREAD = 4.0
_MODEL_SPREAD = 1.5


def options_of(text: str) -> tuple[str, ...]:
    """Find the words that a prompt offers; empty if it asks for no single word."""
    if not _ASKS.search(text):
        return ()
    found = _OPTIONS.search(_ONE_WORD.sub(".", text))
    if found is None:
        return ()
    return (*re.split(r"\s*[,/]\s*", found[1]), found[2])


def pick(
    options: tuple[str, ...], about: str, *, model: str, by: Sampling, rng: Random
) -> str:
    """Pick one of the words.

    Args:
        options: The words, at least one.
        about: The prompt, which sets the odds.
        model: The model, which moves them a little, so that models disagree at times.
        by: The request's temperature and top_p; 0 takes the favourite.
        rng: Where chance comes from.
    """
    odds = [
        _SPREAD * _share(option, about) + _MODEL_SPREAD * _share(option, about, model)
        for option in options
    ]
    top = max(odds)
    if by.temperature == 0.0:
        return options[odds.index(top)]
    weights = [
        (math.exp((each - top) / by.temperature), at) for at, each in enumerate(odds)
    ]
    kept = {at: weight for weight, at in nucleus(weights, 0.0, by.top_p)[0]}
    return rng.choices(options, [kept.get(at, 0.0) for at in range(len(odds))])[0]


def _share(*texts: str) -> float:
    """Give texts a number in 0 to 1: the same in every run."""
    return hashlib.sha256("\n".join(texts).encode()).digest()[0] / 255.0


SUBJECT = "{s}"

# English is cut into words with the blank before them, marks, and line breaks
# with what opens the next line; Thai is written without blanks between words, so
# its corpus marks the cuts with |.
_CUT = re.compile(
    r"\n+(?:- )?|[ ]?(?:\*{1,2})?\{s\}(?:\*{1,2})?|[ ]?\*\*|[ ]?[^\W_]+|[ ]?[^\w\s]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """A manner of writing.

    Attributes:
        sections: The parts of the corpus it learnt from.
        shortest_tokens, longest_tokens: How long a reply usually is.
    """

    sections: tuple[str, ...]
    shortest_tokens: int
    longest_tokens: int


_PLAIN = Voice(sections=("plain",), shortest_tokens=60, longest_tokens=110)
VOICES: Mapping[str, Voice] = MappingProxyType(
    {
        "svc-instruct": Voice(
            sections=("plain", "terse", "long"), shortest_tokens=50, longest_tokens=100
        ),
        "svc-v1.5-instruct": _PLAIN,
        "svc-v1.5x-70b-instruct": Voice(
            sections=("long",), shortest_tokens=110, longest_tokens=190
        ),
        "svc-v2-8b-instruct": Voice(
            sections=("terse",), shortest_tokens=35, longest_tokens=80
        ),
        "svc-v2-70b-instruct": Voice(
            sections=("long", "plain"), shortest_tokens=140, longest_tokens=240
        ),
        "svc-v2.1-12b-instruct": Voice(
            sections=("plain", "terse"), shortest_tokens=70, longest_tokens=130
        ),
        "svc-v2.5-30b-a3b-instruct": Voice(
            sections=("terse", "long"), shortest_tokens=90, longest_tokens=160
        ),
    }
)


def voice_of(model: str) -> Voice:
    """Say how a model writes; models of the user's own write plainly."""
    return VOICES.get(model, _PLAIN)


@cache
def learnt(sections: Sequence[str], *, is_thai: bool) -> Ngram:
    """Build the language model of these sections, once."""
    texts = _corpus("corpus_th.txt" if is_thai else "corpus_en.txt")
    paragraphs = [
        paragraph
        for section in sections
        for paragraph in texts[section].strip().split("\n\n")
    ]
    return learn([_cut(each, is_thai=is_thai) for each in paragraphs])


def _cut(paragraph: str, *, is_thai: bool) -> list[str]:
    """Cut a paragraph of the corpus into tokens."""
    if not is_thai:
        return _CUT.findall(paragraph)
    return [token for token in re.split(r"\||(?=\n- )", paragraph) if token]


@cache
def _corpus(name: str) -> Mapping[str, str]:
    """Read a corpus: sections headed by [name]."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    parts = re.split(r"^\[(\w+)\]$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


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


def write(ask: ChatRequest, seed: int, *, told: Sequence[str] = ()) -> Iterator[str]:
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


def _sampling(ask: ChatRequest) -> Sampling:
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
