"""Verdicts of a judge: what is asked for, how it is read, and what it comes to.

A judge answers in lines such as `verdict: yes`, which every server can. The lines are
part of each request, so that verdicts can also be read when nobody knows the type.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_origin, get_type_hints

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.service.params import must_be, printable, shorten

from .read_answers import AnswerType, NoAnswer, answer_type

VERDICT, REASON = "verdict", "reason"
LEFT, RIGHT, TIE = "left", "right", "tie"
_YES_OR_NO = ("yes", "no")
_ANY_NUMBER = "a number"
_BETWEEN = " | "
_MOST_OPTIONS = 20
_MIXED_UP = re.compile(r"[|,{}\n]")
_ALLOWED = (
    "bool, a list of labels, a Literal, an Enum, a range such as range(1, 6), int, "
    "float, or a dataclass with such fields"
)

JUDGEMENTS = (
    Column("judge", "string", "judge", "the name of the judge: `good` of `judge_good`"),
    Column("model", "string", "model", "the model that judged"),
    Column("criterion", "string", "criterion", "a field of `answer`, or `verdict`"),
    Column("verdict", "string", "verdict", "left, right or tie for pairs; else a text"),
    Column("reason", "string", "reason", "one sentence of the judge"),
    Column("error", "string", "error", "why there is no verdict"),
    Column(
        "order", "string", "order", "of a pair: `as is` (left came first), `swapped`"
    ),
    Column(
        "probe", "string", "probe", "itself, plain or markdown; missing if it counts"
    ),
    Column("left", "string", "left", "of a pair: the value of the factor on the left"),
    Column("right", "string", "right", "of a pair: that on the right"),
    Column("exchange_id", "string", "exchange_id", "of the reply; of a pair, the left"),
    Column("choice_index", "Int64", "choice_index", "which choice of it"),
    Column("right_exchange_id", "string", "right_exchange_id", "of a pair, the right"),
    Column("right_choice_index", "Int64", "right_choice_index", "which choice of it"),
    Column("repeat", "Int64", "repeat", "of the judge's request, from 0"),
    Column("judge_exchange_id", "string", "judge_exchange_id", "of the judge's reply"),
)
"""The columns of `judgements_df`."""
VALUE, IS_MEAN = "value", "is_mean"  # columns within the package only


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that is judged.

    Attributes:
        name: A field of the answer, or `verdict`.
        options: What may be said; any number if it is empty.
    """

    name: str
    options: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """How the judge is asked for it."""
        return f"{self.name}: {_BETWEEN.join(self.options) or _ANY_NUMBER}"

    @property
    def is_mean(self) -> bool:
        """Whether its verdicts are numbers, of which several have a mean."""
        return all(map(_is_int, self.options))

    def read(self, text: str) -> str:
        """Return the verdict in a reply of the judge, as a text.

        Raises:
            NoAnswer: There is none, or there are several.
        """
        said, how = _line_of(self.name).findall(text), self._type()
        if not said:
            raise NoAnswer(f"The judge gave no line such as `{self.line}`.")
        try:
            verdicts = {str(how.read(value, ())) for value in said if how.read}
        except NoAnswer:
            what = ", ".join(repr(shorten(value.strip(), 40)) for value in said[:2])
            raise NoAnswer(
                f"The judge said {what}, and was asked for `{self.line}`."
            ) from None
        if len(verdicts) > 1:
            raise NoAnswer(f"The judge gave several: {', '.join(sorted(verdicts))}.")
        verdict = verdicts.pop()
        is_yes = {"True": "yes", "False": "no"}
        return is_yes[verdict] if self.options == _YES_OR_NO else verdict

    def value(self, verdict: str | None) -> Any:  # noqa: ANN401 - of a score
        """Return what a verdict is as a score: True and False as 1 and 0."""
        if verdict is not None and self.options == _YES_OR_NO:
            return int(verdict == "yes")
        if verdict is None or not self.is_mean:
            return verdict
        return int(verdict) if _is_int(verdict) else float(verdict)

    def _type(self) -> AnswerType:
        if self.options == _YES_OR_NO:
            return answer_type(bool)
        return answer_type(Literal[self.options] if self.options else float)


WINNER = Criterion(VERDICT, (LEFT, RIGHT, TIE))


def _is_int(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _line_of(name: str) -> re.Pattern[str]:
    """Return what finds a value by its name: in a line, or in JSON."""
    return re.compile(
        rf"(?:^|[{{,])[^\w\n]*{re.escape(name)}[^\w\n:=]*[:=]([^,}}\n]*)",
        re.MULTILINE | re.IGNORECASE,
    )


_REASON_LINE = re.compile(
    rf"(?:^|[{{,])[^\w\n]*{REASON}[^\w\n:=]*[:=][\s\"*_]*([^\n]*)",
    re.MULTILINE | re.IGNORECASE,
)


def reason_in(text: str) -> str | None:
    """Return the reason that a judge gave."""
    match = _REASON_LINE.search(text)
    return match[1].strip(' "*_') or None if match else None


def criteria_of(answer: Any) -> tuple[Criterion, ...]:  # noqa: ANN401 - whatever was given
    """Return what an `answer` of `run.judge` asks for.

    Raises:
        ParameterError: It is not a type that can be judged by.
    """
    is_class = isinstance(answer, type) and hasattr(answer, "__annotations__")
    if is_class and not hasattr(answer, "__members__"):
        hints = get_type_hints(answer)
        if REASON in hints:
            raise ParameterError(
                f"The field {REASON!r} of answer is what a judge always gives. Remove "
                "it; run.judgements_df() has the reasons.",
                param="answer",
            )
        fields = tuple(Criterion(name, _options(hints[name])) for name in hints)
        if fields:
            return fields
    return (Criterion(VERDICT, _options(answer)),)


def _options(type_: Any) -> tuple[str, ...]:  # noqa: ANN401 - whatever was given
    """Return what may be said; nothing for any number."""
    if isinstance(type_, (list, tuple, range)) and len(type_) > 0:
        type_ = Literal[tuple(type_)]
    is_type = isinstance(type_, type) or get_origin(type_) is not None
    how = answer_type(type_) if is_type else None
    if how is not None and how.name in {"int", "float"}:
        return ()
    if how is None or not how.labels or len(how.labels) > _MOST_OPTIONS:
        raise must_be("answer", f"{_ALLOWED}, with at most 20 labels", type_)
    options = _YES_OR_NO if how.name == "bool" else tuple(map(str, how.labels))
    for option in filter(_MIXED_UP.search, options):
        raise ParameterError(
            f"The label {shorten(repr(option), 40)} of answer has a comma, a bar, "
            "braces or a line end, which a judge's line has between values. Choose "
            "another label.",
            param="answer",
        )
    return options


def form_of(criteria: Iterable[Criterion]) -> str:
    """Return the lines in which a judge is to answer."""
    return "\n".join(criterion.line for criterion in criteria)


def criteria_in(form: str) -> tuple[Criterion, ...]:
    """Return the criteria of such lines."""
    pairs = (line.partition(": ") for line in form.splitlines())
    return tuple(
        Criterion(name, () if what == _ANY_NUMBER else tuple(what.split(_BETWEEN)))
        for name, _, what in pairs
    )


class ReadVerdict(NamedTuple):
    """What one reply of a judge says of one criterion."""

    criterion: str
    verdict: str | None
    value: Any  # of a score
    is_mean: bool  # of several such values the mean counts, else the majority
    error: str | None


def read_verdicts(text: str, form: str) -> list[ReadVerdict]:
    """Read what a reply of a judge says of each criterion of a form."""
    read = []
    for criterion in criteria_in(form):
        try:
            verdict, error = criterion.read(text), None
        except NoAnswer as why:
            verdict, error = None, shorten(printable(str(why)), 200)
        value = criterion.value(verdict)
        read.append(
            ReadVerdict(criterion.name, verdict, value, criterion.is_mean, error)
        )
    return read


_OTHER = {LEFT: RIGHT, RIGHT: LEFT}


def unswapped(verdict: str | None, *, is_swapped: bool) -> str | None:
    """Return which reply of a pair is meant, if the right one was shown first."""
    return _OTHER.get(verdict or "", verdict) if is_swapped else verdict


def majority(values: Iterable[Any]) -> Any:  # noqa: ANN401 - of verdicts
    """Return what most say; None if no value is the most frequent one."""
    counts = Counter(value for value in values if value is not None).most_common(2)
    is_even = len(counts) > 1 and counts[0][1] == counts[1][1]
    return None if is_even or not counts else counts[0][0]


def is_counted(verdicts: pd.DataFrame) -> "pd.Series[bool]":
    """Return which verdicts count: no probe, and one that could be read."""
    return verdicts["probe"].isna() & verdicts["verdict"].notna()


REPLY_KEY = ["exchange_id", "choice_index"]
PAIR_KEY = [*REPLY_KEY, "right_exchange_id", "right_choice_index"]


def score_values(verdicts: pd.DataFrame) -> dict[str, dict[tuple[str, int], Any]]:
    """Return the score of each reply by criterion: of yes, no and labels the majority.

    Of other numbers it is the mean. Without a majority the score is None.
    """
    part = verdicts[is_counted(verdicts)]
    scores: dict[str, dict[tuple[str, int], Any]] = {}
    for criterion, of_one in part.groupby("criterion", sort=False):
        values = of_one[VALUE]
        is_mean = of_one[IS_MEAN].all()
        scores[str(criterion)] = {
            (str(key[0]), int(str(key[1]))): _mean(group)
            if is_mean
            else majority(group)
            for key, group in values.astype(object).groupby(
                [of_one[name] for name in REPLY_KEY]
            )
        }
    return scores


def disputed(verdicts: pd.DataFrame) -> frozenset[str]:
    """Return the exchanges on which a judge is unsure.

    Its verdicts on a reply or a pair differ: those of a jury, of repeats, or of both
    orders.
    """
    part = verdicts[is_counted(verdicts)]
    if part.empty:
        return frozenset()
    asked = part.groupby(["judge", "criterion", *PAIR_KEY], dropna=False)
    unsure = part[asked["verdict"].transform("nunique") > 1]
    sides = (unsure[name].dropna() for name in ("exchange_id", "right_exchange_id"))
    return frozenset(str(exchange_id) for side in sides for exchange_id in side)


def _mean(values: Iterable[Any]) -> Any:  # noqa: ANN401 - a number
    mean = float(np.mean([float(value) for value in values]))
    return int(mean) if mean.is_integer() else mean


class Outcome(NamedTuple):
    """What a judge says of a pair that was shown in both orders."""

    winner: str | None  # None if a verdict is missing
    is_flip: bool


def outcome_of(as_is: str | None, swapped: str | None) -> Outcome:
    """Return the winner that both orders have; else it is a tie."""
    if as_is is None or swapped is None:
        return Outcome(None, is_flip=False)
    is_flip = {as_is, swapped} == {LEFT, RIGHT}
    return Outcome(as_is if as_is == swapped else TIE, is_flip)


def outcomes_df(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each pair and judge: `winner`, and whether it is a flip."""
    part = verdicts[is_counted(verdicts) & verdicts["order"].notna()]
    rows: list[Mapping[str, Any]] = []
    for key, pair in part.groupby([*PAIR_KEY, "left", "right", "model"], sort=False):
        names = [*PAIR_KEY, "left", "right", "rater"]
        by_order = {
            order: majority(group) or TIE
            for order, group in pair["verdict"].groupby(pair["order"])
        }
        outcome = outcome_of(by_order.get("as is"), by_order.get("swapped"))
        rows.append({**dict(zip(names, key, strict=True)), **outcome._asdict()})
    columns = [*PAIR_KEY, "left", "right", "rater", "winner", "is_flip"]
    return pd.DataFrame(rows, columns=columns)


def preferences(
    outcomes: pd.DataFrame, judged: pd.DataFrame, columns: Sequence[str]
) -> pd.DataFrame:
    """Return the outcomes as `svc.ranking` takes them.

    Args:
        outcomes: Those of `outcomes_df`.
        judged: The frame of the replies that were judged.
        columns: Those of its columns that say which row a pair is of.

    Returns:
        One row for each pair and judge: `columns`, then `left`, `right`, `winner`
        (left, right or tie) and `rater`. Pairs with a verdict in one order alone are
        left out.
    """
    rows = judged.drop_duplicates(REPLY_KEY)[[*REPLY_KEY, *columns]]
    joined = outcomes.dropna(subset="winner").merge(rows, on=REPLY_KEY, how="left")
    named = joined[[*columns, LEFT, RIGHT, "winner", "rater"]]
    texts = dict.fromkeys([LEFT, RIGHT, "winner", "rater"], "string")
    return named.astype(texts).reset_index(drop=True)
