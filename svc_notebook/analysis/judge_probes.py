"""Probes of a judge: does a verdict depend on order, repetition, style, length, family?

A probe compares verdicts with each other, not with the truth: verdicts should not
depend on these things. `svc.agreement` compares a judge with people.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.display.markdown import plain_text
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.ledger.usage import group_codes

from .repeats import Requests, agreement
from .rounding import number_with_interval, percent_with_interval
from .statistics import LEVEL, MIN_PROMPTS, Floats, Ratios, t_quantile
from .verdicts import (
    LEFT,
    PAIR_KEY,
    REPLY_KEY,
    RIGHT,
    TIE,
    VALUE,
    is_counted,
    outcomes_df,
)

ITSELF, PLAIN, MARKDOWN = "itself", "plain", "markdown"
N_PROBED = 20
"""How many replies, or pairs, are judged again for each probe."""

PROBES = (
    Column("probe", "string", "probe", "order, itself, style, length, family or jury"),
    Column("model", "string", "model", "the model that judged; missing for a jury"),
    Column("criterion", "string", "criterion", "the criterion of the verdicts"),
    Column("value", "Float64", "value", "a share; a correlation for length of replies"),
    Column("low", "Float64", "low", "lower end of its interval (0.95)"),
    Column("high", "Float64", "high", "its upper end"),
    Column("n", "Int64", "n", "verdicts that were compared"),
    Column("says", "string", "says", "the result as a sentence"),
)
"""The columns of `probes_df` of a judge."""

_MIN_UNITS = 10  # for the interval of a correlation
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_SPACE = re.compile(r"\s+")


class Probe(NamedTuple):
    """The result of a probe: a figure with its interval, and a sentence."""

    probe: str
    model: str | None
    criterion: str | None
    value: float
    low: float
    high: float
    n: int
    says: str


class _Figure(NamedTuple):
    value: float
    low: float
    high: float

    @property
    def words(self) -> str:
        return percent_with_interval(*self)


def has_markdown(text: str) -> bool:
    """Return whether a text has Markdown: whether rendering it removes characters."""
    return _SPACE.sub("", plain_text(text)) != _SPACE.sub("", text)


def with_markdown(text: str) -> str:
    """Return a text with Markdown; if it has none, its sentences become a list."""
    if has_markdown(text):
        return text
    items = []
    for sentence in filter(None, map(str.strip, _BETWEEN_SENTENCES.split(text))):
        first, _, rest = sentence.partition(" ")
        items.append(f"- **{first}** {rest}".rstrip())
    return "\n".join(items)


def probes_of(verdicts: pd.DataFrame, models: Iterable[str]) -> list[Probe]:
    """Return the results of all probes of a judge.

    Args:
        verdicts: All verdicts of one judge, with the columns `JUDGEMENTS`, the value of
            each, the texts `left_text` and `right_text`, and `unit`, a code of the row.
        models: The models that wrote the replies.
    """
    probes: list[Probe] = []
    for (model, criterion), part in verdicts.groupby(["model", "criterion"]):
        judge = _judge_name(verdicts, str(model), str(criterion))
        for name, result in _results(part):
            probes.append(
                Probe(
                    name,
                    str(model),
                    str(criterion),
                    *result.figure,
                    result.n,
                    f"{name}{judge}: {result.says}",
                )
            )
    candidates = sorted({*models})
    for model in sorted(set(verdicts["model"])):
        if says := _family(str(model), candidates):
            unknown = (float("nan"),) * 3
            probes.append(Probe("family", str(model), None, *unknown, 0, says))
    return [*probes, *_jury(verdicts)]


def _judge_name(verdicts: pd.DataFrame, model: str, criterion: str) -> str:
    """Return the criterion and the model in parentheses, where there are several."""
    names = [
        value
        for column, value in (("criterion", criterion), ("model", model))
        if len(verdicts[column].unique()) > 1
    ]
    return f" ({', '.join(names)})" if names else ""


class _Result(NamedTuple):
    """A figure, the number of verdicts or pairs it is based on, and a sentence."""

    figure: _Figure
    n: int
    says: str


def _results(part: pd.DataFrame) -> Iterator[tuple[str, _Result]]:
    """Return the results for one judge and criterion, with the names of the probes."""
    is_pairs = part["order"].notna().any()
    makers = {
        "order": _order if is_pairs else None,
        ITSELF: _itself,
        "style": _style,
        "length": _length_of_pairs if is_pairs else _length,
    }
    for name, make in makers.items():
        if make is not None and (result := make(part)) is not None:
            yield name, result


def share_of(flags: Any, unit: Any) -> _Figure:  # noqa: ANN401 - arrays
    """Return the share of flags that are True, with an interval over units."""
    flags = np.asarray(flags, dtype=float)
    codes = pd.factorize(np.asarray(unit))[0]
    group = np.zeros(len(flags), dtype=np.int64)  # all flags are one group
    share = Ratios.of(flags, np.ones(len(flags)), codes, group, 1).share()
    return _Figure(*(float(end[0]) for end in share))


def _order(part: pd.DataFrame) -> _Result | None:
    outcomes = _with_units(outcomes_df(part), part).dropna(subset="winner")
    if outcomes.empty:
        return None
    figure, n = share_of(outcomes["is_flip"], outcomes["unit"]), len(outcomes)
    shown = part[is_counted(part)]
    is_first = (shown["verdict"] == LEFT) == (shown["order"] == "as is")
    is_decided = shown["verdict"] != TIE
    n_first, n_decided = int((is_first & is_decided).sum()), int(is_decided.sum())
    return _Result(
        figure,
        n,
        f"{figure.words} of {n:,} pairs have another winner when the order is "
        f"swapped; they count as ties. The reply shown first won {n_first:,} of "
        f"{n_decided:,} verdicts.",
    )


def _with_units(outcomes: pd.DataFrame, part: pd.DataFrame) -> pd.DataFrame:
    extra = ["unit", "left_text", "right_text"]
    rows = part.drop_duplicates(PAIR_KEY)[[*PAIR_KEY, *extra]]
    return outcomes.merge(rows, on=PAIR_KEY, how="left")


def _compared(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Join verdicts on the same reply or pair: `verdict_x` and `verdict_y`."""
    keys = [*PAIR_KEY, "repeat"]
    columns = [*keys, "verdict", "unit"]
    first, second = (df.dropna(subset="verdict")[columns] for df in (first, second))
    return first.merge(second.drop(columns="unit"), on=keys)


def _itself(part: pd.DataFrame) -> _Result | None:
    again = part[part["probe"] == ITSELF]
    is_first = part["probe"].isna() & (
        part["order"].isna() | (part["order"] == "as is")
    )
    both = _compared(part[is_first], again)
    if both.empty:
        return None
    figure, n = (
        share_of(both["verdict_x"] == both["verdict_y"], both["unit"]),
        len(both),
    )
    return _Result(
        figure, n, f"asked again, it says the same on {figure.words} of {n:,}."
    )


def _style(part: pd.DataFrame) -> _Result | None:
    both = _compared(part[part["probe"] == PLAIN], part[part["probe"] == MARKDOWN])
    if both.empty:
        return None
    figure, n = (
        share_of(both["verdict_x"] != both["verdict_y"], both["unit"]),
        len(both),
    )
    changed = "when Markdown moves from one reply to the other"
    if part["order"].isna().all():
        changed = "when the same words have Markdown"
    return _Result(figure, n, f"{figure.words} of {n:,} verdicts change {changed}.")


def _n_words(texts: Iterable[Any]) -> Floats:
    return np.array([len(plain_text(str(text)).split()) for text in texts], dtype=float)


def _length_of_pairs(part: pd.DataFrame) -> _Result | None:
    outcomes = _with_units(outcomes_df(part), part)
    left, right = _n_words(outcomes["left_text"]), _n_words(outcomes["right_text"])
    is_compared = outcomes["winner"].isin([LEFT, RIGHT]).to_numpy() & (left != right)
    if not is_compared.any():
        return None
    is_longer = (outcomes["winner"] == LEFT).to_numpy() == (left > right)
    figure = share_of(is_longer[is_compared], outcomes["unit"].to_numpy()[is_compared])
    n = int(is_compared.sum())
    return _Result(
        figure,
        n,
        f"the longer reply won {figure.words} of {n:,} pairs with a winner"
        f"{_conclusion(figure, 1 / 2)}.",
    )


def _conclusion(figure: _Figure, no_effect: float) -> str:
    """Say whether length matters: whether the interval excludes "no effect"."""
    if not figure.low <= no_effect <= figure.high and not np.isnan(figure.low):
        return "; long ones may also be better"
    return ", so no effect of length is seen" if not np.isnan(figure.low) else ""


def _length(part: pd.DataFrame) -> _Result | None:
    """Return the correlation of numeric verdicts with the length of replies."""
    part = part[is_counted(part)]
    values = pd.to_numeric(part[VALUE], errors="coerce").to_numpy(dtype=float)
    length = np.log(np.maximum(_n_words(part["left_text"]), 1))
    is_known = ~np.isnan(values)
    if is_known.sum() < MIN_PROMPTS:
        return None
    unit = part["unit"].to_numpy()[is_known]
    figure, n = (
        _correlation(values[is_known], length[is_known], unit),
        int(is_known.sum()),
    )
    if np.isnan(figure.value):
        return None
    return _Result(
        figure,
        n,
        f"verdicts and length (logarithm of words) have a correlation of "
        f"{number_with_interval(*figure)} over {n:,} replies"
        f"{_conclusion(figure, 0)}.",
    )


def _correlation(x: Floats, y: Floats, unit: Any) -> _Figure:  # noqa: ANN401 - codes
    """Return Pearson's correlation, with a jackknife interval over units.

    The jackknife is applied to Fisher's z = arctanh(r). An interval from the influence
    of units was too short in simulations with up to 40 units.
    """
    unknown = _Figure(*(float("nan"),) * 3)
    if x.std() == 0 or y.std() == 0:
        return unknown
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    codes = pd.factorize(unit)[0]
    n = int(codes.max()) + 1
    sums = np.array(
        [
            np.bincount(codes, terms, n)
            for terms in (np.ones_like(x), x, y, x * x, y * y, x * y)
        ]
    )
    r = _pearson(sums.sum(axis=1))
    with np.errstate(all="ignore"):
        z, left_out = np.arctanh(r), np.arctanh(_pearson(sums.sum(1)[:, None] - sums))
    spread = np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    if n < _MIN_UNITS or not np.isfinite(spread):
        return unknown._replace(value=float(r))
    reach = t_quantile((1 + LEVEL) / 2, n - 1) * spread
    return _Figure(*(float(end) for end in (r, np.tanh(z - reach), np.tanh(z + reach))))


def _pearson(sums: Floats) -> Any:  # noqa: ANN401 - a number or an array
    """Return the correlation from sums of 1, x, y, x², y² and xy."""
    n, x, y, xx, yy, xy = sums
    with np.errstate(all="ignore"):
        return (n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y))


_FAMILY = re.compile(r"[^\W\d_]+")


def family_of(model: str) -> str:
    """Return the name of a model's family: the letters that its id begins with."""
    match = _FAMILY.search(model.rpartition("/")[2])
    return match[0].casefold() if match else ""


def _family(model: str, candidates: Sequence[str]) -> str:
    family = family_of(model)
    same = [other for other in candidates if family and family_of(other) == family]
    if not same:
        return ""
    if len(same) == len(candidates):
        favours = "it may find replies of its own kind good"
    else:
        favours = f"it may favour {', '.join(same)}"
    return (
        f"family: the judge {model} shares the name {family} with {len(same):,} of "
        f"{len(candidates):,} models that it judges; {favours}. Names alone do not "
        "show that it does."
    )


def _jury(verdicts: pd.DataFrame) -> Iterator[Probe]:
    """Return how far several judges agree, by criterion."""
    criteria = verdicts["criterion"].unique()
    for criterion in criteria if len(verdicts["model"].unique()) > 1 else ():
        part = verdicts[verdicts["criterion"] == criterion]
        verdict_of_judge = _verdicts_by_judge(part)
        if verdict_of_judge.empty:
            continue
        # the verdicts of several judges on one item are treated as repeats
        of_row, firsts = group_codes(verdict_of_judge[["item"]])
        unit = pd.factorize(verdict_of_judge["unit"])[0][firsts]
        items = np.arange(len(firsts))
        requests = Requests(of_row, items, unit, np.zeros_like(items), 1)
        agree = agreement(pd.factorize(verdict_of_judge["verdict"])[0], requests)
        equal = _Figure(*(float(end[0]) for end in agree.equal))
        alpha = [float(end[0]) for end in agree.alpha]
        is_known = not np.isnan(alpha[0])
        alpha_text = number_with_interval(*alpha) if is_known else "not known"
        topic = f" ({criterion})" if len(criteria) > 1 else ""
        says = (
            f"jury{topic}: two judges say the same on {equal.words} of {len(items):,}; "
            f"Krippendorff's alpha is {alpha_text}."
        )
        yield Probe("jury", None, str(criterion), *equal, len(items), says)


def _verdicts_by_judge(part: pd.DataFrame) -> pd.DataFrame:
    """Return the verdict of each judge on each item: `item`, `unit` and `verdict`."""
    if part["order"].notna().any():
        rows = _with_units(outcomes_df(part), part).dropna(subset="winner")
        keys, column = PAIR_KEY, "winner"
    else:
        rows = part[is_counted(part)].drop_duplicates([*REPLY_KEY, "model"])
        keys, column = REPLY_KEY, "verdict"
    items = rows[["unit", column]].set_axis(["unit", "verdict"], axis="columns")
    return items.assign(item=group_codes(rows[keys])[0]) if len(rows) else items


def probes_frame(probes: Sequence[Probe]) -> pd.DataFrame:
    """Return probes as a frame with the columns `PROBES`."""
    rows: list[Mapping[str, Any]] = [probe._asdict() for probe in probes]
    frame = pd.DataFrame(rows, columns=[column.name for column in PROBES])
    return frame.astype({column.name: column.dtype for column in PROBES})
