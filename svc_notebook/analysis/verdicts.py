"""Verdicts of a judge: the form of its answer, how it is read, and scores from it.

A judge answers in lines such as `verdict: yes`, which any model can write. The form is
part of each request, so that verdicts can be read later without the type of the answer.
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
_SEPARATOR = " | "  # between the options in a line of the form
_MOST_OPTIONS = 20
_FORBIDDEN = re.compile(r"[|,{}\n]")  # signs in a label that would break its line
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
        "order", "string", "order", "in pairs: `as is` (left came first), `swapped`"
    ),
    Column(
        "probe", "string", "probe", "itself, plain or markdown; missing if it counts"
    ),
    Column("left", "string", "left", "in pairs: the value of the factor on the left"),
    Column("right", "string", "right", "in pairs: the value on the right"),
    Column("exchange_id", "string", "exchange_id", "the reply; in pairs, the left one"),
    Column("choice_index", "Int64", "choice_index", "its choice, from 0"),
    Column(
        "right_exchange_id", "string", "right_exchange_id", "the reply on the right"
    ),
    Column("right_choice_index", "Int64", "right_choice_index", "its choice, from 0"),
    Column("repeat", "Int64", "repeat", "repeat of the judge's request, from 0"),
    Column("judge_exchange_id", "string", "judge_exchange_id", "the judge's reply"),
)
"""The columns of `judgements_df`."""
VALUE, IS_MEAN = "value", "is_mean"  # columns within the package only


@dataclass(frozen=True, slots=True)
class Criterion:
    """One criterion of a judge.

    Attributes:
        name: A field of the answer, or `verdict`.
        options: The allowed verdicts; if empty, any number.
    """

    name: str
    options: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The line of the form that asks for this verdict."""
        return f"{self.name}: {_SEPARATOR.join(self.options) or _ANY_NUMBER}"

    @property
    def is_mean(self) -> bool:
        """Whether its verdicts are numbers, so that several have a mean."""
        return all(map(_is_int, self.options))

    def read(self, text: str) -> str:
        """Return the verdict in a reply of the judge, as a text.

        Raises:
            NoAnswer: There is no verdict, or there are several different ones.
        """
        values, type_ = _line_pattern(self.name).findall(text), self._type()
        if not values:
            raise NoAnswer(f"The judge's reply has no line such as `{self.line}`.")
        try:
            verdicts = {str(type_.read(value, ())) for value in values if type_.read}
        except NoAnswer:
            shown = ", ".join(repr(shorten(value.strip(), 40)) for value in values[:2])
            raise NoAnswer(
                f"The judge answered {shown}, but was asked for `{self.line}`."
            ) from None
        if len(verdicts) > 1:
            raise NoAnswer(
                f"The judge gave several verdicts: {', '.join(sorted(verdicts))}."
            )
        verdict = verdicts.pop()
        is_yes = {"True": "yes", "False": "no"}
        return is_yes[verdict] if self.options == _YES_OR_NO else verdict

    def value(self, verdict: str | None) -> Any:  # noqa: ANN401 - of a score
        """Return a verdict as a score: yes and no as 1 and 0, numbers as numbers."""
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


def _line_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a value by its name, in a line or in JSON."""
    return re.compile(
        rf"(?:^|[{{,])[^\w\n]*{re.escape(name)}[^\w\n:=]*[:=]([^,}}\n]*)",
        re.MULTILINE | re.IGNORECASE,
    )


_REASON_LINE = re.compile(
    rf"(?:^|[{{,])[^\w\n]*{REASON}[^\w\n:=]*[:=][\s\"*_]*([^\n]*)",
    re.MULTILINE | re.IGNORECASE,
)


def reason_in(text: str) -> str | None:
    """Return the reason in a reply of a judge; None if there is none."""
    match = _REASON_LINE.search(text)
    return match[1].strip(' "*_') or None if match else None


def criteria_of(answer: Any) -> tuple[Criterion, ...]:  # noqa: ANN401 - not checked yet
    """Return the criteria of the `answer` of `run.judge`.

    Raises:
        ParameterError: The type cannot be the answer of a judge.
    """
    is_class = isinstance(answer, type) and hasattr(answer, "__annotations__")
    if is_class and not hasattr(answer, "__members__"):
        hints = get_type_hints(answer)
        if REASON in hints:
            raise ParameterError(
                f"answer must not have a field {REASON!r}, since a judge always gives "
                "a reason. Remove the field; run.judgements_df() has the reasons.",
                param="answer",
            )
        fields = tuple(Criterion(name, _options(hints[name])) for name in hints)
        if fields:
            return fields
    return (Criterion(VERDICT, _options(answer)),)


def _options(type_: Any) -> tuple[str, ...]:  # noqa: ANN401 - not checked yet
    """Return the allowed verdicts of a type; () for any number."""
    if isinstance(type_, (list, tuple, range)) and len(type_) > 0:
        type_ = Literal[tuple(type_)]
    is_type = isinstance(type_, type) or get_origin(type_) is not None
    answer = answer_type(type_) if is_type else None
    if answer is not None and answer.name in {"int", "float"}:
        return ()
    if answer is None or not answer.labels or len(answer.labels) > _MOST_OPTIONS:
        allowed = f"{_ALLOWED}, with at most {_MOST_OPTIONS} labels"
        raise must_be("answer", allowed, type_)
    options = _YES_OR_NO if answer.name == "bool" else tuple(map(str, answer.labels))
    for option in filter(_FORBIDDEN.search, options):
        raise ParameterError(
            f"The label {shorten(repr(option), 40)} of answer contains a comma, a bar, "
            "a brace or a line end, which would be read as the end of the label. "
            "Choose another label.",
            param="answer",
        )
    return options


def form_of(criteria: Iterable[Criterion]) -> str:
    """Return the form: the lines in which a judge must answer."""
    return "\n".join(criterion.line for criterion in criteria)


def criteria_in(form: str) -> tuple[Criterion, ...]:
    """Return the criteria of a form, the reverse of `form_of`."""
    pairs = (line.partition(": ") for line in form.splitlines())
    return tuple(
        Criterion(name, () if text == _ANY_NUMBER else tuple(text.split(_SEPARATOR)))
        for name, _, text in pairs
    )


class ReadVerdict(NamedTuple):
    """The verdict on one criterion in one reply of a judge."""

    criterion: str
    verdict: str | None
    value: Any  # the verdict as a score
    is_mean: bool  # whether several values are combined by their mean, not by majority
    error: str | None


def read_verdicts(text: str, form: str) -> list[ReadVerdict]:
    """Read the verdict on each criterion of a form from a reply of a judge."""
    read = []
    for criterion in criteria_in(form):
        try:
            verdict, error = criterion.read(text), None
        except NoAnswer as problem:
            verdict, error = None, shorten(printable(str(problem)), 200)
        value = criterion.value(verdict)
        read.append(
            ReadVerdict(criterion.name, verdict, value, criterion.is_mean, error)
        )
    return read


_OTHER = {LEFT: RIGHT, RIGHT: LEFT}


def unswapped(verdict: str | None, *, is_swapped: bool) -> str | None:
    """Return the verdict on a pair in its own order, if the judge saw it swapped."""
    return _OTHER.get(verdict or "", verdict) if is_swapped else verdict


def majority(values: Iterable[Any]) -> Any:  # noqa: ANN401 - of verdicts
    """Return the most frequent value; None if two are equally frequent."""
    counts = Counter(value for value in values if value is not None).most_common(2)
    is_tied = len(counts) > 1 and counts[0][1] == counts[1][1]
    return None if is_tied or not counts else counts[0][0]


def is_counted(verdicts: pd.DataFrame) -> "pd.Series[bool]":
    """Return which verdicts count: those that are not of a probe and could be read."""
    return verdicts["probe"].isna() & verdicts["verdict"].notna()


REPLY_KEY = ["exchange_id", "choice_index"]
PAIR_KEY = [*REPLY_KEY, "right_exchange_id", "right_choice_index"]


def score_values(verdicts: pd.DataFrame) -> dict[str, dict[tuple[str, int], Any]]:
    """Return the score of each reply, by criterion.

    For yes, no and labels it is the majority of the verdicts, or None if there is none;
    for other numbers it is their mean.
    """
    part = verdicts[is_counted(verdicts)]
    scores: dict[str, dict[tuple[str, int], Any]] = {}
    for criterion, rows in part.groupby("criterion", sort=False):
        values = rows[VALUE]
        is_mean = rows[IS_MEAN].all()
        scores[str(criterion)] = {
            (str(key[0]), int(str(key[1]))): _mean(group)
            if is_mean
            else majority(group)
            for key, group in values.astype(object).groupby(
                [rows[name] for name in REPLY_KEY]
            )
        }
    return scores


def disputed(verdicts: pd.DataFrame) -> frozenset[str]:
    """Return the ids of the exchanges on which a judge is unsure.

    That is, its verdicts on the reply or pair differ: between the models of a jury,
    between repeats, or between both orders.
    """
    part = verdicts[is_counted(verdicts)]
    if part.empty:
        return frozenset()
    items = part.groupby(["judge", "criterion", *PAIR_KEY], dropna=False)
    unsure = part[items["verdict"].transform("nunique") > 1]
    sides = (unsure[name].dropna() for name in ("exchange_id", "right_exchange_id"))
    return frozenset(str(exchange_id) for side in sides for exchange_id in side)


def _mean(values: Iterable[Any]) -> Any:  # noqa: ANN401 - a number
    mean = float(np.mean([float(value) for value in values]))
    return int(mean) if mean.is_integer() else mean


class PairOutcome(NamedTuple):
    """The outcome of a pair that a judge saw in both orders."""

    winner: str | None  # left, right or tie; None if a verdict is missing
    is_flip: bool  # whether the winner depends on the order


def outcome_of(as_is: str | None, swapped: str | None) -> PairOutcome:
    """Return the winner if both orders have the same one, else a tie."""
    if as_is is None or swapped is None:
        return PairOutcome(None, is_flip=False)
    is_flip = {as_is, swapped} == {LEFT, RIGHT}
    return PairOutcome(as_is if as_is == swapped else TIE, is_flip)


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
        outcomes: The frame that `outcomes_df` returns.
        judged: The frame of the replies that were judged.
        columns: The columns of `judged` that identify the row of a pair.

    Returns:
        One row for each pair and judge: `columns`, then `left`, `right`, `winner`
        (left, right or tie) and `rater`. Pairs with a verdict in only one order are
        left out.
    """
    rows = judged.drop_duplicates(REPLY_KEY)[[*REPLY_KEY, *columns]]
    joined = outcomes.dropna(subset="winner").merge(rows, on=REPLY_KEY, how="left")
    named = joined[[*columns, LEFT, RIGHT, "winner", "rater"]]
    texts = dict.fromkeys([LEFT, RIGHT, "winner", "rater"], "string")
    return named.astype(texts).reset_index(drop=True)
