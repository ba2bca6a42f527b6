"""Write a comparison of two values as a sentence, with its caveats."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words
from svc_notebook.ledger.scores import PREFIX

from . import rounding
from .contrast_pair import Dependence, Pair
from .contrast_study import Study, level_names, short_names, shown, subtraction
from .differences import Correction, Difference, StudentEstimate, units_needed
from .joined_runs import IMPROVED, REGRESSED, RUN
from .reply_factors import setting_name, spoken
from .rounding import is_shown_as_none, number, percent, round_up
from .run_differences import only_in_one_run, run_differences
from .sequential import MIN_UNITS, ConfidenceSequence
from .statistics import HOW_TO_INSTALL, LEVEL, MIN_PROMPTS, special

# names of scores that describe a reply: "a is right more often than b"
ADJECTIVES = frozenset({"right", "correct", "wrong", "valid", "exact", "cut"})
CANNOT_TELL = "cannot tell"  # a verdict
_FIRST_WORDS = (
    *("cannot ", "no ", "only ", "over ", "the ", "too ", "with "),
    *(f"{head}: " for head in (IMPROVED, REGRESSED)),
)
_ALL = ("", "both ")  # in place of "all 1" and "all 2"
_FEW = 9  # of so few rows that differ, the sentence says how many they are
_MOST_MORE = 20  # a run that is larger by more than this factor is not suggested
SAME_COST = 0.005  # costs that differ by a smaller share would be shown as equal
_TWICE, _HUNDREDTH = 2.0, 0.01
_SHOWN_VALUES = 4
_PER_REPLIES = 1_000  # savings and mistakes are stated for so many replies
_TENTH = 0.1
_MISSING_TREATMENT = {
    "drop": "Left out",
    "wrong": "Counted as wrong",
    "bounds": "The interval allows for any value of what is missing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The options that apply to all comparisons of a call.

    Attributes:
        level: The level of the intervals.
        correct: How the comparisons are corrected together.
        n_family: How many are corrected together.
        margin: The difference that would not matter.
        mistake_costs: The cost of one mistake, in the currency of `cost`.
    """

    level: float = LEVEL
    correct: Correction | None = "holm"
    n_family: int = 1
    margin: float | None = None
    mistake_costs: float | None = None


class Drawn(NamedTuple):
    """A difference as the chart shows it.

    Attributes:
        name: The subtraction in words, such as "en: large minus small".
        amounts: The difference, and the ends of its interval.
        means: The two means that are subtracted.
    """

    name: str
    amounts: tuple[float, float, float]
    means: tuple[float, float]


class Sentence(NamedTuple):
    """The result of a comparison in words.

    Attributes:
        claim: What was found, and what may be its cause.
        left_out: Which replies have no value, and how they are treated.
        correction: For how many comparisons it is corrected; "" for a single one.
    """

    claim: str
    left_out: tuple[str, ...]
    correction: str = ""

    def text(self, *, without: Collection[str] = ()) -> str:
        """Return it as one text, without the remarks that are said elsewhere."""
        remarks = filter(None, [*self.left_out, self.correction])
        left = [remark for remark in remarks if remark not in without]
        return " ".join([self.claim, *left])


def shared_remarks(sentences: Sequence[Sentence]) -> list[str]:
    """Return the remarks that apply to all comparisons, if there are several."""
    if len(sentences) < 2:  # noqa: PLR2004 - a single sentence keeps its remarks
        return []
    first, *others = (sentence.left_out for sentence in sentences)
    same = [line for line in first if all(line in lines for lines in others)]
    # a comparison without a common prompt has no p that could be corrected
    corrections = dict.fromkeys(sentence.correction for sentence in sentences)
    return [*same, *filter(None, corrections)]


class _Facts(NamedTuple):
    """The names and numbers of a sentence, its subject first."""

    first: str
    second: str
    means: tuple[float, float]
    value: float
    low: float
    high: float
    costs: tuple[float, float]


def sentence(
    study: Study,
    pair: Pair,
    difference: Difference,
    terms: Terms,
    dependence: Dependence | None = None,
) -> Sentence:
    """Return the result of a comparison as a sentence, with its caveats."""
    facts = _facts(study, pair, difference)
    subgroup = _subgroup(study, pair)
    if not pair.n_prompts:
        claim = f"{subgroup}{_no_common_prompts(study, facts)}"
        return Sentence(capitalised(claim), tuple(left_out(study, pair)))
    if pair.is_between_groups:
        claim = _between_groups(study, pair, difference, terms)
    elif terms.margin is not None:
        claim = _not_worse(study, pair, difference, terms, facts)
    else:
        claim = _better(study, pair, difference, terms, facts)
    confounded = [*_confounded(study, pair, is_seen=_is_seen(study, facts))]
    caveats = [
        *confounded,
        *_depends(study, pair, dependence, is_first=not confounded),
    ]
    return Sentence(
        capitalised(" ".join([f"{subgroup}{claim}", *caveats])),
        tuple(left_out(study, pair)),
        _correction_note(terms),
    )


def capitalised(text: str) -> str:
    """Begin a sentence with a capital, unless it begins with a name or a value."""
    return text[:1].upper() + text[1:] if text.startswith(_FIRST_WORDS) else text


def drawn(study: Study, pair: Pair, difference: Difference) -> Drawn:
    """Return a comparison as the chart shows it."""
    amounts = difference.value, difference.low, difference.high
    subgroup = subtraction(_group_name(study, group) for group in pair.groups)
    names = short_names(study.factor, study.levels)
    name = subtraction(names[level] for level in pair.levels)
    return Drawn(f"{subgroup}: {name}" if pair.groups else name, amounts, pair.means)


def verdict(
    study: Study, pair: Pair, difference: Difference, terms: Terms
) -> str | None:
    """Return whether a value is worse than `against` by more than the margin.

    None without a margin, or if there is no interval.
    """
    if terms.margin is None or pair.is_between_groups or np.isnan(difference.low):
        return None
    low, high = difference.low, difference.high
    if study.is_of_requests:  # for seconds, tokens and cost, less is better
        low, high = -high, -low
    if low > -terms.margin:
        return f"not worse than {_margin(study, terms)}"
    return "worse" if high < -terms.margin else CANNOT_TELL


def _facts(study: Study, pair: Pair, difference: Difference) -> _Facts:
    names = level_names(study)
    first, second = (names[level] for level in pair.levels)
    value, low, high, *_ = difference
    return _Facts(first, second, pair.means, value, low, high, pair.costs)


def _better(
    study: Study, pair: Pair, difference: Difference, terms: Terms, facts: _Facts
) -> str:
    figures = _figures(study, pair, facts, terms)
    closing = f"{_cost(study, facts)}{_mistakes(facts, terms)}."
    amounts = facts.value, facts.low, facts.high
    if is_shown_as_none(amounts, is_rate=study.is_rate, means=facts.means):
        return f"{_no_difference(study, pair, facts, figures)}{closing}"
    seen = f"{_more(study, facts)}: {figures}"
    if np.isnan(facts.low):
        why = _why_no_interval(study, pair)
        return f"too early to say whether {seen}; {why}{closing}"
    if difference.p < 1 - terms.level:
        return f"{seen}{closing}"
    few = _few_differ(study, pair, difference, facts)
    would = _what_would_tell(study, pair, difference)
    return f"cannot tell yet whether {seen}; {few}{would}{closing}"


def _no_difference(study: Study, pair: Pair, facts: _Facts, figures: str) -> str:
    """Say that no difference is seen, and how large it may be."""
    between = f"{facts.first} and {facts.second}"
    if np.isnan(facts.low) and _has_too_few(pair):
        why = _why_no_interval(study, pair)
        return (
            f"too early to say whether {study.name} differs between {between}: "
            f"{figures}; {why}"
        )
    seen = f"no difference in {study.name} is seen between {between}: {figures}"
    if np.isnan(facts.low):
        return f"{seen}; {_why_no_interval(study, pair)}"
    farthest = max(-facts.low, facts.high)
    most = rounding.difference(farthest, is_rate=study.is_rate)
    return f"{seen}, so it may be up to {most} either way"


def _not_worse(
    study: Study, pair: Pair, difference: Difference, terms: Terms, facts: _Facts
) -> str:
    first, second, margin = facts.first, facts.second, _margin(study, terms)
    figures = _figures(study, pair, facts, terms)
    on = "" if study.name in ADJECTIVES else f" in {study.name}"
    closing = f"{_cost(study, facts)}{_mistakes(facts, terms)}."
    conclusion = verdict(study, pair, difference, terms)
    if conclusion is None:
        why = _why_no_interval(study, pair)
        return (
            f"too early to say whether {first} is worse than {second}{on} by more than "
            f"{margin}: {figures}; {why}{closing}"
        )
    if conclusion == CANNOT_TELL:
        would = _what_would_tell(study, pair, difference, terms.margin)
        return (
            f"cannot tell yet whether {first} is worse than {second}{on} by more than "
            f"{margin}: {figures}; {would}{closing}"
        )
    if conclusion == "worse":
        seen = f"{first} is worse than {second}{on} by more than {margin}"
    elif (facts.high < 0) if study.is_of_requests else (facts.low > 0):
        seen = f"{first} is better than {second}{on}, so not worse by {margin}"
    else:
        seen = f"{first} is not worse than {second}{on} by more than {margin}"
    return f"{seen}: {figures}{closing}"


def _between_groups(
    study: Study, pair: Pair, difference: Difference, terms: Terms
) -> str:
    """Say whether a difference is larger in one subgroup than in the other."""
    means, amounts = pair.means, (difference.value, difference.low, difference.high)
    names = level_names(study)
    compared = subtraction(names[level] for level in pair.levels)
    group_names = [_group_name(study, group) for group in pair.groups]
    interval = rounding.difference_with_interval(
        amounts, is_rate=study.is_rate, means=means, level=terms.level
    )
    shown_means = rounding.means_of_difference(
        means, amounts, is_rate=study.is_rate, is_of_differences=True
    )
    one, other = (
        f"{mean} for {group}"
        for mean, group in zip(shown_means, group_names, strict=True)
    )
    seen = (
        f"the difference in {study.name} ({compared}) depends on "
        f"{' and '.join(map(spoken, study.design.by))}: {one}, {other}; "
        f"{subtraction(group_names)}: {interval}{_over(study, pair)}"
    )
    if np.isnan(difference.low):
        return f"too early to say whether {seen}; {_why_no_interval(study, pair)}."
    if difference.p < 1 - terms.level:
        return f"{seen}."
    return f"cannot tell yet whether {seen}."


def _no_common_prompts(study: Study, facts: _Facts) -> str:
    if study.design.is_paired:
        what = "no row has" if study.counted == "rows" else "no prompt has"
        value = _score_with_article(study)
        return f"{what} {value} for both {facts.first} and {facts.second}."
    return f"{facts.first} or {facts.second} has no {_score_name(study)}."


def _more(study: Study, facts: _Facts) -> str:
    first, second, is_less = facts.first, facts.second, facts.value < 0
    if not study.is_rate:
        compared = "lower" if is_less else "higher"
        return f"{study.name} is {compared} for {first} than for {second}"
    often = "less often" if is_less else "more often"
    if study.name in ADJECTIVES:
        return f"{first} is {study.name} {often} than {second}"
    return f"{study.name} is true {often} for {first} than for {second}"


def _figures(study: Study, pair: Pair, facts: _Facts, terms: Terms) -> str:
    """Write the means, the difference, and the number of units if unit was given."""
    figures = rounding.means_with_difference(
        facts.means,
        (facts.value, facts.low, facts.high),
        is_rate=study.is_rate,
        level=terms.level,
    )
    return f"{figures}{_over(study, pair)}"


def _over(study: Study, pair: Pair) -> str:
    over = ""
    if study.design.unit is not None:
        over = f", over {pair.estimate.n_units:,} {study.counted}"
    return f"{over}{_from_labels(study, pair)}"


def _from_labels(study: Study, pair: Pair) -> str:
    """Say how many scores and labels a corrected difference was made from."""
    if pair.labelled is None or study.scored is None:
        return ""
    labels = count_in_words(pair.labelled.n, "labels")
    if not pair.labelled.weight:
        return f", from {labels} alone: {study.scored.name} adds nothing to them"
    scores = count_in_words(pair.n_scored, "scores")
    return f", from {scores} of {study.scored.name}, corrected by {labels}"


def _margin(study: Study, terms: Terms) -> str:
    return rounding.difference(terms.margin or 0.0, is_rate=study.is_rate)


def _cost(study: Study, facts: _Facts) -> str:
    """Say what the subject of a sentence costs, compared with the other value."""
    first, second = facts.costs
    if np.isnan(first) or np.isnan(second) or study.on == "cost":
        return ""
    if not first and not second:
        return "; both cost nothing"
    if not first or not second:
        return f"; {facts.second if first else facts.first} costs nothing"
    return f"; {_cost_ratio(facts, first / second)}"


def _cost_ratio(facts: _Facts, ratio: float) -> str:
    if abs(ratio - 1) < SAME_COST:
        return "both cost the same"
    if ratio >= _TWICE:
        return f"{facts.first} costs {number(ratio)} times as much"
    if ratio > 1:
        return f"{facts.first} costs {percent(ratio - 1)} more"
    if ratio <= _HUNDREDTH:
        return f"{facts.second} costs {number(1 / ratio)} times as much"
    return f"{facts.first} costs {percent(1 - ratio)} less"


def _mistakes(facts: _Facts, terms: Terms) -> str:
    """Say what the cheaper value saves, and what its mistakes cost."""
    if terms.mistake_costs is None:
        return ""
    # how much more the mistakes of the second value cost than those of the first
    more = _PER_REPLIES * terms.mistake_costs * facts.value
    saved = _PER_REPLIES * (facts.costs[1] - facts.costs[0])
    subject, other = facts.first, facts.second
    if saved < 0 or (np.isnan(saved) and more < 0):
        subject, other, more, saved = other, subject, -more, -saved
    if np.isnan(saved) or not saved:
        verb = "saves" if more >= 0 else "costs"
        return (
            f"; per {_PER_REPLIES:,} replies, {subject} {verb} {_money(more)} in "
            "mistakes"
        )
    mistakes = "" if more >= 0 else "costs "
    mistakes += f"{_money(more)} {'more ' if more < 0 else ''}in mistakes"
    return (
        f"; per {_PER_REPLIES:,} replies, {subject} saves {_money(saved)} and "
        f"{mistakes}"
    )


def _money(amount: float) -> str:
    size = abs(amount)
    return f"{size:,.2f}" if size >= _TENTH or not size else number(size)


def _what_would_tell(
    study: Study, pair: Pair, difference: Difference, margin: float | None = None
) -> str:
    """Say how many prompts would be enough, or which difference this run could find.

    To add prompts until a difference shows would double the false alarms, so the advice
    is a plan for a new run.
    """
    if len(pair.figures) > 1:
        return "the answer depends on the missing replies"
    if isinstance(pair.estimate, ConfidenceSequence):
        return _more_units_needed(study, pair.estimate, difference.tail, margin)
    smallest = difference.smallest
    seen = abs(difference.value)
    if margin is not None:
        worse = difference.value if study.is_of_requests else -difference.value
        seen = margin - worse
    if seen > 0 and seen * np.sqrt(_MOST_MORE) > smallest:
        n = units_needed(
            difference.spread,
            seen,
            tail=difference.tail,
            is_one_sided=margin is not None,
        )
        if margin is None:
            condition = "if it is that large"
            n = max(n, least_units(pair, difference.tail))
        else:
            condition = "if the difference is as seen"
        labelled = ""
        if pair.labelled is not None:
            n_labelled = int(np.ceil(n * pair.labelled.n_units / pair.estimate.n_units))
            labelled = f", {round_up(n_labelled):,} of them with labels,"
        n_new = f"{round_up(n):,} {study.counted}"
        return f"{condition}, a new run with {n_new}{labelled} would tell"
    if study.most < smallest:
        return f"with so few {study.counted} no difference could have been found"
    least = rounding.difference(smallest, is_rate=study.is_rate)
    return f"this run would have found a difference of {least}"


def least_units(pair: Pair, tail: float) -> int:
    """Return how many units are needed so that enough of them differ; 0 for any."""
    n_differ, _ = _n_differing(pair, tail)
    if not n_differ:
        return 0
    n_all_alike = int(-np.log2(tail)) + 1  # the exact test needs so many
    return int(np.ceil(pair.estimate.n_units * n_all_alike / n_differ))


def _few_differ(study: Study, pair: Pair, difference: Difference, facts: _Facts) -> str:
    """Say how many units differ if they are too few for the exact test."""
    n_differ, n_higher = _n_differing(pair, difference.tail)
    if not 0 < n_differ <= _FEW:
        return ""
    higher = facts.second if facts.value < 0 else facts.first
    which = f"all {n_differ} " if n_higher == n_differ else f"{n_higher} of them "
    if n_higher == n_differ <= len(_ALL):
        which = _ALL[n_differ - 1]
    verb = "differs" if n_differ == 1 else "differ"
    return (
        f"{n_differ} of {count_in_words(pair.estimate.n_units, study.counted)} {verb}, "
        f"{which}for {higher}: too few to be sure; "
    )


def _n_differing(pair: Pair, tail: float) -> tuple[int, int]:
    """Return how many units differ, and how many of them as the mean does.

    Both are 0 if the exact test does not decide.
    """
    estimate = pair.estimate
    if not isinstance(estimate, StudentEstimate) or estimate.exact_tail < tail:
        return 0, 0
    moves = pair.figures[0].moves * np.sign(estimate.value)
    return int(np.count_nonzero(moves)), int((moves > 0).sum())


def _more_units_needed(
    study: Study, sequence: ConfidenceSequence, tail: float, margin: float | None
) -> str:
    """Say how many prompts in all would be enough, where prompts may be added."""
    null = 0.0
    if margin is not None:
        null = margin if study.is_of_requests else -margin
    n = sequence.n_would_tell(null, tail)
    if n is None:
        return f"even many times as many {study.counted} would not be enough"
    return (
        f"if others are like these, about {round_up(n):,} {study.counted} in all would "
        "tell"
    )


def _has_too_few(pair: Pair) -> bool:
    """Whether a comparison without an interval has too few units for one."""
    if isinstance(pair.estimate, ConfidenceSequence):
        return pair.estimate.n_units < MIN_UNITS
    return pair.estimate.n_units < MIN_PROMPTS * max(len(pair.groups), 1)


def _why_no_interval(study: Study, pair: Pair) -> str:
    """Say why a comparison has no interval."""
    if (
        isinstance(pair.estimate, ConfidenceSequence)
        and pair.estimate.n_units < MIN_UNITS
    ):
        return f"at least {MIN_UNITS} {study.counted} are needed"
    if special() is None and not isinstance(pair.estimate, ConfidenceSequence):
        return f"intervals {HOW_TO_INSTALL}"
    if pair.estimate.n_units < MIN_PROMPTS * max(len(pair.groups), 1):
        labels = "" if pair.labelled is None else " with labels"
        return f"at least {MIN_PROMPTS} {study.counted}{labels} are needed"
    return (
        f"all {study.counted} differ by the same amount, so it is not known how much "
        "others vary"
    )


def _subgroup(study: Study, pair: Pair) -> str:
    if len(pair.groups) != 1:
        return ""
    return f"with {_named_group(study, pair.groups[0])}, "


def _named_group(study: Study, group: int) -> str:
    values = study.groups.iloc[group].to_dict()
    return " and ".join(
        f"{spoken(str(name))}={shown(str(name), values[name])}" for name in values
    )


def _group_name(study: Study, group: int) -> str:
    values = study.groups.iloc[group].to_dict()
    return setting_name(shown(str(name), values[name]) for name in values)


def _is_seen(study: Study, facts: _Facts) -> bool:
    amounts = facts.value, facts.low, facts.high
    return not is_shown_as_none(amounts, is_rate=study.is_rate, means=facts.means)


def _confounded(study: Study, pair: Pair, *, is_seen: bool) -> Iterable[str]:
    """Say what else differs, so that it may be the cause of what is seen."""
    if study.factor == RUN and (names := _differences_of_runs(study, pair)):
        listed = f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]
        may_be = [", which may be", ", so either may be"]
        cause = (
            f"{(may_be[len(names) - 1 :] or [', so any of these may be'])[0]} the cause"
        )
        yield f"But the runs differ in {listed}{cause if is_seen else ''}."
    elif pair.is_confounded or study.along:
        others = " and ".join(map(spoken, study.along or study.others))
        yield (
            f"But {spoken(study.factor)} varies only together with {others}, so "
            "either may be the cause."
        )


def _differences_of_runs(study: Study, pair: Pair) -> list[str]:
    return run_differences(_runs(study, pair), study.design.facts, study.on)


def _runs(study: Study, pair: Pair) -> dict[str, pd.DataFrame]:
    """Return the replies of two runs by name, the earlier run first."""
    names = [study.levels[level] for level in sorted(pair.levels)]
    return {str(name): study.df[study.df[RUN] == name] for name in names}


def _depends(
    study: Study, pair: Pair, dependence: Dependence | None, *, is_first: bool
) -> Iterable[str]:
    if dependence is None:
        return
    by_size = sorted(dependence.differences, key=lambda pair: -pair[1])
    half = _SHOWN_VALUES // 2
    if len(by_size) > _SHOWN_VALUES:
        by_size = by_size[:half] + by_size[-half:]
    differences = ", ".join(
        f"{rounding.difference(value, is_rate=study.is_rate)} with {name}"
        for name, value in by_size
    )
    compared = subtraction(level_names(study)[level] for level in pair.levels)
    start = "But it" if is_first else "It also"
    yield (
        f"{start} depends on {spoken(dependence.factor)}: {compared} is {differences}; "
        f"the difference is over all values of {spoken(dependence.factor)} together."
    )


def left_out(study: Study, pair: Pair) -> Iterable[str]:
    """Say how many replies have no value, and how they are treated."""
    yield from _only_in_one_run(study, pair)
    labelled = pair.labelled
    if labelled is not None and labelled.n_unpaired:
        yield (
            f"Left out: {count_in_words(labelled.n_unpaired, 'labels')} of replies "
            "whose counterpart has no label."
        )
    study = study.scored or study
    names = level_names(study)
    parts = []
    for gap in dict.fromkeys(pair.gaps):
        of = f"of {gap.n_all:,} replies of {names[gap.level]}"
        reasons = {
            "failed": gap.n_failed,
            f"{'was' if gap.n_cut == 1 else 'were'} cut": gap.n_cut,
            f"{'has' if gap.n_unscored == 1 else 'have'} no {_score_name(study)}": (
                gap.n_unscored
            ),
        }
        parts += [f"{n:,} {of} {verb}" for verb, n in reasons.items() if n]
    if pair.n_alone and pair.n_prompts and not parts:
        rows = "row" if study.counted == "rows" else "prompt"
        both = count_in_words(pair.n_prompts, f"{rows}s")
        have = "has" if pair.n_prompts == 1 else "have"
        alone = f"{pair.n_alone:,} {'has' if pair.n_alone == 1 else 'have'}"
        value = _score_with_article(study)
        yield f"Only {both} {have} {value} for both; {alone} it for one of them."
    if parts:
        yield f"{_MISSING_TREATMENT[study.design.missing]}: {', '.join(parts)}."


def _only_in_one_run(study: Study, pair: Pair) -> Iterable[str]:
    """Say which values of other factors only one of two runs has."""
    if study.factor != RUN or not study.design.is_paired:
        return
    values = only_in_one_run(_runs(study, pair), study.others)
    if values:
        n_more = len(values) - _SHOWN_VALUES
        more = f" and {n_more} more" if n_more > 0 else ""
        yield f"Left out: {'; '.join(values[:_SHOWN_VALUES])}{more}."


def _score_name(study: Study) -> str:
    return f"score `{study.name}`" if study.on.startswith(PREFIX) else study.name


def _score_with_article(study: Study) -> str:
    article = "a " if study.on.startswith(PREFIX) else ""
    return f"{article}{_score_name(study)}"


def _correction_note(terms: Terms) -> str:
    if terms.n_family <= 1:
        return ""
    how = {"holm": "Corrected", "bonferroni": "Corrected", None: "Not corrected"}
    by = f" ({terms.correct.title()})" if terms.correct else ""
    return f"{how[terms.correct]} for {terms.n_family} comparisons{by}."
