"""Count how often raters' notes fall into categories that are defined by words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ratings import RATED, read_ratings
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import did_you_mean, must_be, shorten

from . import statistics
from .reply_factors import check_replies, counted, factors, named
from .statistics import HOW_TO_INSTALL, MIN_PROMPTS
from .summary import few_prompts, intervals_df, refuse_clash, say

NO_CATEGORY = "(none)"
"""The category of notes that are in no other category."""
CATEGORIES = (
    Column("category", "string", "category", "the category; (none): not in any other"),
    Column("n", "Int64", "n", "replies with a note of this category"),
    Column("n_replies", "Int64", "n_replies", "replies that were rated, or noted"),
    Column("share", "Float64", "share", "n of n_replies, each prompt the same"),
    Column("low", "Float64", "low", "lower end of its interval (0.95)"),
    Column("high", "Float64", "high", "its upper end"),
)
"""The columns of `categories`; the columns of `by` come after the first."""
NOTES = (
    Column("note", "string", "note", "what raters wrote"),
    Column("n", "Int64", "n", "replies with this note"),
)
"""The columns without categories; the columns of `by` come after the first."""
_FLAG = f"{PREFIX}has_category"
_SHOWN = 5  # notes without a category that are quoted
_SHOWN_CHARS = 60
_ALLOWED = 'a mapping from categories to words of notes, such as {"too long": ["long"]}'


def note_categories(
    df: pd.DataFrame,
    ledger: Ledger | None,
    categories: Mapping[str, str | Sequence[str]] | None,
    *,
    name: str | None,
    by: str | Sequence[str] | None,
    unit: str | Sequence[str] | None,
) -> pd.DataFrame:
    """Count the categories of notes: see `Run.categories`."""
    df, notes = _replies_with_notes(df, ledger, name)
    if categories is None:
        return _distinct(df, notes, [] if by is None else named(df, by))
    matchers = {
        category: _matcher(words) for category, words in _checked_categories(categories)
    }
    keys = named(df, by) if by is not None else factors(df) or ["model"]
    refuse_clash(df[keys], [column.name for column in CATEGORIES])
    flags = {
        category: [any(map(matches, texts)) for texts in notes]
        for category, matches in matchers.items()
    }
    left = [
        [x for x in texts if not any(matches(x) for matches in matchers.values())]
        for texts in notes
    ]
    if any(left):
        flags[NO_CATEGORY] = [bool(texts) for texts in left]
    frame = pd.concat(
        [
            _counts(df, category, values, keys, unit)
            for category, values in flags.items()
        ]
    )
    say([*_left_note(left), *_interval_notes(frame, counted(df, unit))])
    return frame[[CATEGORIES[0].name, *keys, *(x.name for x in CATEGORIES[1:])]]


def _replies_with_notes(
    df: pd.DataFrame, ledger: Ledger | None, name: str | None
) -> tuple[pd.DataFrame, list[list[str]]]:
    """Return the replies that were rated one by one, and the notes of each."""
    df = check_replies(df)
    df = df[df["status"] == "ok"]
    name = name and name.removeprefix(RATED)
    ids = set(df["exchange_id"].dropna())
    ratings = [] if ledger is None else read_ratings(ledger, ids)
    single = [rating for rating in ratings if len(rating.replies) == 1]
    notes: dict[tuple[str, int], list[str]] = {}
    for rating in single:
        if name in (None, rating.name):
            texts = notes.setdefault(rating.replies[0], [])
            texts += [rating.note.strip()] if rating.note.strip() else []
    if not any(notes.values()):
        of = "" if name is None else f" called {name!r}"
        known = sorted({rating.name for rating in single})
        raise ParameterError(
            f"There are no notes{of} on these replies. To collect notes, call "
            f"run.rate(notes=True).{did_you_mean(name or '', known, n=1)}",
            param="name",
        )
    notes_of_rows = [
        notes.get((exchange_id, int(index)))
        for exchange_id, index in zip(
            df["exchange_id"], df["choice_index"], strict=True
        )
    ]
    is_rated = np.array([texts is not None for texts in notes_of_rows])
    part = df[is_rated].reset_index(drop=True)
    return part, [texts for texts in notes_of_rows if texts is not None]


def _distinct(
    df: pd.DataFrame, notes: list[list[str]], keys: list[str]
) -> pd.DataFrame:
    """Return each note with the number of its replies, the most frequent first."""
    columns = [column.name for column in NOTES]
    refuse_clash(df[keys], columns)
    rows = df[keys].assign(
        note=pd.Series([list(dict.fromkeys(texts)) for texts in notes], dtype=object)
    )
    rows = rows.explode("note", ignore_index=True).dropna(subset="note")
    rows["note"] = rows["note"].astype("string")
    groups = rows.groupby(["note", *keys], sort=False, dropna=False, observed=True)
    frame = groups.size().reset_index(name="n").astype({"n": "Int64"})
    frame = frame.sort_values("n", ascending=False, kind="stable", ignore_index=True)
    return frame[[columns[0], *keys, *columns[1:]]]


def _checked_categories(categories: object) -> Iterable[tuple[str, list[str]]]:
    """Return each category with its words."""
    if not isinstance(categories, Mapping) or not categories:
        raise must_be("categories", _ALLOWED, categories)
    for category, words in categories.items():
        texts = [words] if isinstance(words, str) else words
        is_list = isinstance(texts, Sequence | set | frozenset) and bool(texts)
        if not is_list or not all(isinstance(x, str) and x.strip() for x in texts):
            raise must_be(
                f"categories[{category!r}]", "a word of notes, or several", words
            )
        if not isinstance(category, str) or category in ("", NO_CATEGORY):
            raise ParameterError(
                f"{category!r} cannot be the name of a category. Choose another text, "
                f"which is not empty and not {NO_CATEGORY!r}.",
                param="categories",
            )
        yield category, [*texts]


def _matcher(words: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that says whether a note contains one of these texts."""
    folded = [_folded(word) for word in words]
    return lambda note: any(word in _folded(note) for word in folded)


def _folded(text: str) -> str:
    # a Thai vowel such as ำ has two encodings that look the same; NFKC makes one
    return normalize("NFKC", text).casefold()


def _counts(
    df: pd.DataFrame,
    category: str,
    flags: Sequence[bool],
    keys: list[str],
    unit: str | Sequence[str] | None,
) -> pd.DataFrame:
    """Return one row for each group: how many replies have a note of a category."""
    flagged = df.assign(**{_FLAG: np.array(flags, dtype=float)})
    frame = intervals_df(flagged, _FLAG, keys, unit=unit)
    groups = flagged.groupby(keys, sort=False, dropna=False, observed=True)[_FLAG]
    columns: dict[str, Any] = {
        "category": [category] * len(frame),
        "n": groups.sum().to_numpy().astype(int),
        "n_replies": groups.size().to_numpy(),
        "share": frame["value"],
        "low": frame["low"],
        "high": frame["high"],
    }
    return frame.assign(
        **{x.name: pd.array(columns[x.name], dtype=x.dtype) for x in CATEGORIES}
    )


def _left_note(notes: Iterable[Sequence[str]]) -> list[str]:
    """Return a note that quotes the notes without a category."""
    texts = [*dict.fromkeys(text for of_reply in notes for text in of_reply)]
    if not texts:
        return []
    shown = ", ".join(repr(shorten(text, _SHOWN_CHARS)) for text in texts[:_SHOWN])
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    is_or_are = "1 note is" if len(texts) == 1 else f"{len(texts):,} notes are"
    return [f"{is_or_are} in no category: {shown}{more}."]


def _interval_notes(frame: pd.DataFrame, what: str) -> list[str]:
    """Return a note that says why intervals are missing, if they are."""
    if statistics.special() is None:
        return [f"low and high {HOW_TO_INSTALL}."]
    first = frame[frame["category"] == frame["category"].iloc[0]]
    n = int((first["n_units"] < MIN_PROMPTS).sum())
    return [few_prompts(count_in_words(n, "groups"), what)] if n else []
