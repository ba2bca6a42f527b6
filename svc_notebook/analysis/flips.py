"""Flips: the rows that only one of two values gets right, with the replies to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import inf
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal, to_text
from svc_notebook.display.front_end import fitted_to_terminal
from svc_notebook.display.html_styles import BODY, details_html
from svc_notebook.display.number_words import count_in_words
from svc_notebook.display.text_table import ComparedText, ComparisonTable
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import printable, shorten

from .compare import as_markdown, compared, plain, score_text
from .contrast_sentences import ADJECTIVES, capitalised
from .contrast_study import shown
from .missing import Missing, with_missing
from .reply_factors import (
    attributes,
    coded,
    factors,
    in_words,
    is_rate,
    spoken,
    varying_along,
)

_AGAINST = "_against"
_ENDINGS = ("", _AGAINST)  # of the column names of `level` and of `against`
_HALF = 0.5  # a row counts as right if more than half of the replies to it are
_TOLERANCE = 1e-9  # relative; scores that differ less are equal
_NAME_CHARS = 40
_HEAD = "margin:.8em 0 .3em;font-weight:bold"
N_SHOWN = 10  # rows in each direction; more are counted
_N_NAMED = 6
_N_ATTRIBUTES = 4  # columns of a row that are shown with it


@dataclass(frozen=True, slots=True)
class Flips:
    """The rows on which two values of a factor differ; a cell shows them side by side.

    A value gets a row right if more than half of its replies to it are right. For a
    score that is not a rate, the value with the higher mean is better.

    Attributes:
        df: One row for each row of the study that differs: first those where `level`
            is better, then those where `against` is, each with the largest differences
            first. Its columns: those that tell prompts apart, other factors, the row's
            own columns; the factor with `level`, and with `_against` behind its name
            the other value, such as `model` and `model_against`; `better` (the value
            that is better); for `level` its share or mean in `mean`, the number of
            replies in `n`, and one reply in `text` and `exchange_id`; for the other
            value `mean_against`, `n_against`, `text_against` and
            `exchange_id_against`.
        n_pairs: Rows with a score for both values.
        n_level: Rows that only `level` gets right; or where its score is higher.
        n_against: The same for `against`.
        n_both: Rows that both values get right; or where their scores are equal.
        n_neither: Rows that neither gets right; 0 for scores that are not rates.
        n_mixed: Rows where some replies of one value are right and some wrong.
        says: The counts as sentences.
        tables: For each direction a heading and a table of its first rows.
    """

    df: pd.DataFrame
    n_pairs: int
    n_level: int
    n_against: int
    n_both: int
    n_neither: int
    n_mixed: int
    says: str
    tables: tuple[tuple[str, ComparisonTable], ...]

    def __len__(self) -> int:
        return len(self.df)

    def __repr__(self) -> str:
        tables = (f"{head}\n\n{table}" for head, table in self.tables)
        return fitted_to_terminal(to_terminal("\n\n".join([self.says, *tables])))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        return {"text/html": self.html(), "text/plain": repr(self)}

    def html(self, *, n_open: float = inf) -> str:
        """Return the counts, and the first rows of each direction side by side.

        More than `n_open` rows are folded.
        """
        is_folded = sum(len(table.rows) for _, table in self.tables) > n_open
        has_heads = not is_folded or len(self.tables) > 1  # else the fold says it
        drawn = "".join(
            f'<div style="{_HEAD}">{to_text(head)}</div>' * has_heads + table.html()
            for head, table in self.tables
        )
        if is_folded:
            drawn = details_html(" · ".join(head for head, _ in self.tables), drawn)
        return f"{BODY}<div>{to_text(self.says)}</div>{drawn}</div>"


@dataclass(frozen=True, slots=True)
class _Question:
    """Two values of a factor in a frame of replies, and how they are compared."""

    df: pd.DataFrame
    factor: str
    on: str
    pair: tuple[Any, Any]
    names: tuple[str, str]
    is_rate: bool
    keys: list[str]
    heads: tuple[str, str]

    @property
    def score(self) -> str:
        """The name of the score."""
        return shorten(printable(self.on.removeprefix(PREFIX)), _NAME_CHARS)

    @property
    def value(self) -> str:
        """What a reply has, such as "a score `right`"."""
        return f"a score `{self.score}`" if self.on.startswith(PREFIX) else self.score

    @property
    def is_adjective(self) -> bool:
        """Whether the score's name describes a reply, such as "right"."""
        return self.score in ADJECTIVES

    def only(self, side: int) -> str:
        """Say what only one side gets, such as "improved: only b is right"."""
        head = f"{self.heads[side]}: " if self.heads[side] else ""
        return head + self._only_without_head(side)

    def also_only(self, side: int) -> str:
        """Go on after `only` with the other side, such as ", only a"."""
        name = self.names[side]
        start = f"; {self.heads[side]}: " if self.heads[side] else ", "
        if not self.is_rate:
            return f"{start}for {name}"
        return f"{start}only {name if self.is_adjective else f'for {name}'}"

    def _only_without_head(self, side: int) -> str:
        name = self.names[side]
        if not self.is_rate:
            return f"{self.score} is higher for {name}"
        if self.is_adjective:
            return f"only {name} is {self.score}"
        return f"{self.score} is true only for {name}"


def flips(  # noqa: PLR0913 - the comparison, and how much of it is shown
    df: pd.DataFrame,
    factor: str,
    on: str,
    pair: tuple[Any, Any],
    *,
    names: tuple[str, str],
    units: Sequence[str],
    missing: Missing,
    n: int,
    heads: tuple[str, str] = ("", ""),
    scope: str = "",
) -> Flips:
    """Find the rows that only one of two values gets right.

    Args:
        df: A frame of replies, as `check_replies` returns it.
        factor: One of its columns.
        on: A score or another column of numbers.
        pair: Two values of the factor.
        names: The names of the values in sentences.
        units: The columns that replies are paired by.
        missing: How replies without a score are treated; "bounds" leaves them out.
        n: How many rows are shown in each direction.
        heads: A word for the rows of each direction, such as "improved".
        scope: What the sentences begin with, such as "over all values of language: ".
    """
    others = [name for name in factors(df) if name not in (factor, *units)]
    along = varying_along(df, others, coded(df[factor])[0])
    others = [name for name in others if name not in along]
    values = with_missing(df, on, "drop" if missing == "bounds" else missing).low
    scored = _scored(df[factor], factor, pair, values)
    pairs, scored_pairs = _paired(df, scored, [*units, *others])
    if pairs.empty:  # other factors always vary with this one: pair whole prompts
        others = []
        pairs, scored_pairs = _paired(df, scored, list(units))
    question = _Question(
        df=df,
        factor=factor,
        on=on,
        pair=pair,
        names=names,
        is_rate=is_rate(df, on),
        keys=[*units, *others],
        heads=heads,
    )
    pairs["better"] = _better(question, pairs)
    pairs["size"] = (pairs["mean"] - pairs["mean_against"]).abs()
    counts = _counts(question, pairs)
    flipped = _ordered(df, pairs[pairs["better"] != 0], scored_pairs, list(units))
    positions = _typical(scored_pairs, flipped)
    return Flips(
        df=_frame(question, flipped, positions),
        says=capitalised(scope + _sentence(question, **counts)),
        tables=_tables(question, flipped, positions, n),
        **counts,
    )


def chosen_comparison(
    comparisons: pd.DataFrame,
    values: tuple[object, object],
    columns: Mapping[str, object],
) -> dict[str, Any]:
    """Return the comparison that matches; of several, the one with the smallest p.

    Args:
        comparisons: The frame of a `Contrast`.
        values: The two values in either order; ... matches any, None is "not sent".
        columns: Values of other columns of the comparison; None matches any.

    Raises:
        ParameterError: There is no such comparison.
    """
    left = comparisons.sort_values("p", kind="stable")
    for name, value in columns.items():
        if value is not None:
            left = left[left[name] == str(value).removeprefix(PREFIX)]
    for row in records(left):
        for pair in permutations((row["level"], row["against"])):
            if all(
                wanted is ... or _is_same(row["factor"], wanted, value)
                for wanted, value in zip(values, pair, strict=True)
            ):
                return row | {"level": pair[0], "against": pair[1]}
    known = [
        f"{in_words(factor, level)} with {in_words(factor, against)}"
        for factor, level, against in comparisons[
            ["factor", "level", "against"]
        ].itertuples(index=False)
    ]
    more = f" and {len(known) - _N_NAMED} more" if len(known) > _N_NAMED else ""
    raise ParameterError(
        "These values were not compared. Choose one of the comparisons: "
        f"{', '.join(map(printable, known[:_N_NAMED]))}{more}.",
        param="level",
    )


def records(df: pd.DataFrame) -> list[dict[str, Any]]:
    """Return each row as a dict by column name."""
    return [{str(name): row[name] for name in row} for row in df.to_dict("records")]


def _is_same(factor: str, first: object, second: object) -> bool:
    """Say whether two values are the same, where either may be given as its text.

    A `Contrast` has texts if its factors are of several dtypes.
    """
    if in_words(factor, first) == in_words(factor, second):
        return True
    return shown(factor, first) == str(second) or str(first) == shown(factor, second)


def _better(question: _Question, pairs: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return which side is better for each pair: 1 the first, -1 the second, 0 none."""
    first, second = pairs["mean"], pairs["mean_against"]
    if question.is_rate:
        return (first > _HALF).astype(int) - (second > _HALF).astype(int)
    is_equal = np.isclose(first, second, rtol=_TOLERANCE, atol=0)
    return np.where(is_equal, 0, np.sign(first - second)).astype(int)


def _counts(question: _Question, pairs: pd.DataFrame) -> dict[str, int]:
    better = pairs["better"]
    is_right = pairs["mean"] > _HALF if question.is_rate else better == 0
    means = pairs[["mean", "mean_against"]]
    is_mixed = ((means > 0) & (means < 1)).any(axis=1)
    flags = {
        "n_pairs": better.notna(),
        "n_level": better > 0,
        "n_against": better < 0,
        "n_both": (better == 0) & is_right,
        "n_neither": (better == 0) & ~is_right,
        "n_mixed": is_mixed & question.is_rate,
    }
    return {name: int(flag.sum()) for name, flag in flags.items()}


def _scored(
    levels: pd.Series,
    factor: str,
    pair: tuple[Any, Any],
    values: Any,  # noqa: ANN401 - an array
) -> pd.DataFrame:
    """Return the value and the side (0 or 1) of each reply of the pair with a score."""
    codes, kinds = coded(levels)
    side_of = [
        next((side for side in (0, 1) if _is_same(factor, kind, pair[side])), -1)
        for kind in kinds
    ]
    sides = np.array(side_of, dtype=int)[codes]
    scored = pd.DataFrame({"side": sides, "value": values})
    return scored[(scored["side"] >= 0) & scored["value"].notna()]


def _paired(
    df: pd.DataFrame, scored: pd.DataFrame, keys: list[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return, by code of cell, the means of both sides where both have a score.

    A cell is a prompt with one combination of the other factors. The second result is
    the scored replies in these cells.
    """
    scored = scored.assign(cell=group_codes(df[keys])[0][scored.index])
    first, second = (
        scored[scored["side"] == side].groupby("cell")["value"].agg(["mean", "count"])
        for side in (0, 1)
    )
    pairs = first.join(second.add_suffix(_AGAINST), how="inner")
    return pairs, scored[scored["cell"].isin(pairs.index)]


def _ordered(
    df: pd.DataFrame, flipped: pd.DataFrame, scored: pd.DataFrame, units: list[str]
) -> pd.DataFrame:
    """Sort the flips: those of the first side first, the largest differences first.

    Among equal differences, the first cell of each row comes before further cells of
    the same row, so that the first flips show different rows.
    """
    positions = scored["cell"].drop_duplicates()
    row = pd.Series(group_codes(df[units])[0][positions.index], positions.array)
    flipped = flipped.assign(row=row.loc[flipped.index])
    n_earlier = flipped.groupby(["better", "size", "row"]).cumcount()
    return flipped.assign(n_earlier=n_earlier).sort_values(
        ["better", "size", "n_earlier"], ascending=[False, False, True], kind="stable"
    )


def _typical(scored: pd.DataFrame, flipped: pd.DataFrame) -> list[Any]:
    """Return, for both sides, the position of a typical reply of each cell.

    It is the reply whose score is nearest to the mean. Of two that are equally near,
    the better side shows the higher score, and the other side the lower one.
    """
    scored = scored[scored["cell"].isin(flipped.index)]
    sides = []
    for side, ending in enumerate(_ENDINGS):
        replies = scored[scored["side"] == side]
        cells = flipped.loc[replies["cell"]]
        values = replies["value"].to_numpy()
        # rounded, so that replies on both sides of the mean are equally near
        distance = (values - cells[f"mean{ending}"].to_numpy()).round(9)
        tie = values * cells["better"].to_numpy() * (2 * side - 1)
        replies = replies.assign(distance=np.abs(distance), tie=tie)
        replies = replies.sort_values(["distance", "tie"], kind="stable")
        nearest = replies.drop_duplicates("cell")
        position = nearest.reset_index().set_index("cell")["index"]
        sides.append(position.loc[flipped.index].to_numpy())
    return sides


def _frame(
    question: _Question, flipped: pd.DataFrame, positions: list[Any]
) -> pd.DataFrame:
    df, (level, against) = question.df, positions
    is_level = flipped["better"].to_numpy() > 0
    values = df[question.factor].array
    columns: dict[str, Any] = {
        question.factor: values.take(level),
        question.factor + _AGAINST: values.take(against),
        "better": values.take(np.where(is_level, level, against)),
    }
    for side, ending in enumerate(_ENDINGS):
        columns[f"mean{ending}"] = flipped[f"mean{ending}"].astype("Float64").array
        columns[f"n{ending}"] = flipped[f"count{ending}"].astype("Int64").array
        for name in ("text", "exchange_id"):
            if name in df.columns:
                columns[f"{name}{ending}"] = df[name].array.take(positions[side])
    more = [name for name in attributes(df) if name not in columns]
    keys: pd.DataFrame = df[[*question.keys, *more]].iloc[level]
    return keys.reset_index(drop=True).assign(**columns)


def _tables(
    question: _Question, flipped: pd.DataFrame, positions: list[Any], n: int
) -> tuple[tuple[str, ComparisonTable], ...]:
    """Return, for each direction, a heading and a table of its first rows."""
    tables = []
    for side, sign in enumerate((1, -1)):
        (places,) = np.nonzero(flipped["better"].to_numpy() == sign)
        first_places = places[:n]
        if not len(first_places):
            continue
        heads = tuple((in_words(question.factor, value),) for value in question.pair)
        names = _shown_keys(question)
        rows = question.df[names].iloc[positions[0][first_places]]
        keys = zip(*(plain(rows[name]) for name in names), strict=True)
        sides = [
            _entries(
                question, flipped.iloc[first_places], end, positions[end][first_places]
            )
            for end in (0, 1)
        ]
        head = capitalised(f"{question.only(side)}: {_count(len(places), question)}")
        table = ComparisonTable(
            title="",
            row_names=tuple(names),
            column_names=(question.factor,),
            heads=heads,
            rows=tuple(
                (tuple(map(in_words, names, key)), ((first,), (second,)))
                for key, first, second in zip(keys, *sides, strict=True)
            ),
            n_more_rows=len(places) - len(first_places),
        )
        tables.append((head, table))
    return tuple(tables)


def _shown_keys(question: _Question) -> list[str]:
    """Return the columns that name a row: its keys and attributes, or its prompt."""
    shown_attributes = attributes(question.df)[:_N_ATTRIBUTES]
    is_prompt = question.factor.startswith("prompt")
    prompt = ["prompt"] if not shown_attributes and not is_prompt else []
    return list(dict.fromkeys([*question.keys, *shown_attributes, *prompt]))


def _entries(
    question: _Question,
    flipped: pd.DataFrame,
    side: int,
    positions: Any,  # noqa: ANN401 - an array
) -> list[ComparedText]:
    """Return a reply for each row, with its score and its answer."""
    replies = question.df.iloc[positions]
    answers = plain(replies["answer"]) if "answer" in replies else [None] * len(replies)
    means, counts = flipped[f"mean{_ENDINGS[side]}"], flipped[f"count{_ENDINGS[side]}"]
    return [
        replace(
            entry,
            label=" · ".join(
                [_score(question, mean, int(n)), *_answer_label(entry, answer)]
            ),
        )
        for entry, answer, mean, n in zip(
            map(as_markdown, compared(replies)), answers, means, counts, strict=True
        )
    ]


def _answer_label(entry: ComparedText, answer: object) -> list[str]:
    """Return the answer that was read from a reply, unless it is the whole text."""
    text = " ".join(str(answer).split())
    is_whole = answer is None or text == " ".join(entry.text.split())
    return [] if is_whole else [f"answer {shorten(text, _NAME_CHARS)}"]


def _score(question: _Question, mean: float, n: int) -> str:
    text = score_text(question.score, mean, is_rate=question.is_rate)
    if n == 1:
        return text
    if not question.is_rate:
        return f"{text}, mean of {n:,}"
    is_true = score_text(question.score, 1.0, is_rate=True)
    return f"{is_true} in {round(mean * n)} of {n}"


def _sentence(question: _Question, **counts: int) -> str:
    """Say how many rows there are of each kind."""
    if not counts["n_pairs"]:
        names = " and ".join(question.names)
        return f"no row has {question.value} for both {names}."
    of_all = f"of {_count(counts['n_pairs'], question)}"
    by_side = (counts["n_level"], counts["n_against"])
    if not any(by_side):
        sentence = _same_sentence(question, of_all, counts)
    else:
        sentence = _differing_sentence(question, of_all, by_side, counts)
    if question.is_rate and counts["n_mixed"]:
        sentence += (
            f" Where repeats differ ({counts['n_mixed']:,}), more than half of them "
            "decide."
        )
    return sentence


def _differing_sentence(
    question: _Question,
    of_all: str,
    by_side: tuple[int, int],
    counts: Mapping[str, int],
) -> str:
    """Say how many rows differ in each direction; one without any comes last."""
    one, other = (0, 1) if by_side[0] else (1, 0)
    sentence = f"{question.only(one)} in {by_side[one]:,} {of_all}"
    sentence += f"{question.also_only(other)} in {by_side[other]:,}; "
    if not question.is_rate:
        return f"{sentence}equal in {counts['n_both']:,}."
    return (
        f"{sentence}both in {counts['n_both']:,}, neither in {counts['n_neither']:,}."
    )


def _same_sentence(question: _Question, of_all: str, counts: Mapping[str, int]) -> str:
    """Say that no row differs, and how many rows both get right."""
    first, second = question.names
    n_both = counts["n_both"]
    if not question.is_rate:
        return (
            f"{question.score} of {first} and {second} is equal in {n_both:,} {of_all}."
        )
    neither = f"neither in {counts['n_neither']:,}"
    if question.is_adjective:
        same = f"{first} and {second} are {question.score} in the same rows"
    else:
        same = f"{question.score} is true for {first} and {second} in the same rows"
    return f"{same}: both in {n_both:,} {of_all}, {neither}."


def _count(n: int, question: _Question) -> str:
    """Count rows; where other factors vary, a row counts with each combination."""
    unit = "row" if "row" in question.keys else "prompt"
    more = [name for name in question.keys if name not in {"row", "run", "prompt"}]
    if more:
        same = " and ".join([unit, *map(spoken, more)])
        return f"{count_in_words(n, 'pairs')} with the same {same}"
    return count_in_words(n, f"{unit}s")
