"""Replies that a figure cannot stand on: what failed, was not sent or has no score.

What is missing is counted in words, and a score can count it as wrong, or allow for
the worst and the best.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import must_be, shorten

from .reply_factors import (
    OF_REQUESTS,
    attributes,
    coded,
    column_of,
    counted,
    factors,
    has,
    has_flag,
    in_number,
    in_words,
    is_request,
    measure,
    prompt_codes,
)

Missing = Literal["drop", "wrong", "bounds"]
"""What a score does about replies without a value: leave them out, count them as 0, or
allow for 0 and for 1."""
_MAX_LABEL_CHARS = 40
_MAX_KINDS = 12  # a column with more values tells prompts apart
_CLEAR = 1.645  # standard deviations; chance alone exceeds it in 1 of 20 cases
_LEAST_SHARE = 0.1  # a smaller difference of shares is not worth a word
_INSTEAD = {
    "drop": "; the figures leave {them} out",
    "wrong": "; {they} as wrong",
    "bounds": "; low and high allow for all of them being wrong, and right",
}


class Ends(NamedTuple):
    """A score of each row, NaN where it has none: for the lower end, and the upper."""

    low: Any
    high: Any


def check_missing(missing: Any) -> Missing:  # noqa: ANN401 - whatever was given
    """Return the value if it is one of `Missing`."""
    if missing not in get_args(Missing):
        raise must_be("missing", "'drop', 'wrong' or 'bounds'", missing)
    chosen: Missing = missing
    return chosen


def with_missing(df: pd.DataFrame, on: str, missing: Missing) -> Ends:
    """Return a measure as floats, with what takes the place of missing values.

    Requests that failed, and replies without a value, are missing; what was not sent
    is left out in any case.

    Raises:
        ParameterError: Something takes their place, and the values are not within 0
            and 1, or are seconds, tokens or costs, which are neither wrong nor right.
    """
    values = measure(df, on).to_numpy()
    if missing == "drop":
        return Ends(values, values)
    known = values[~np.isnan(values)]
    why = "is not a score" if column_of(df, on) in OF_REQUESTS else ""
    if ((known < 0) | (known > 1)).any():
        why = why or f"has values from {known.min():g} to {known.max():g}"
    if why:
        raise ParameterError(
            f"missing={missing!r} counts what is missing as 0 or 1, but {on} {why}. "
            "Leave it at 'drop', or measure a score of True and False, or of 0 to 1.",
            param="missing",
        )
    is_missing = np.isnan(values) & is_expected(df, column_of(df, on))
    wrong = np.where(is_missing, 0.0, values)
    if missing == "wrong":
        return Ends(wrong, wrong)
    return Ends(wrong, np.where(is_missing, 1.0, values))


def missing_lines(
    df: pd.DataFrame,
    *,
    on: str | Sequence[str] | None = None,
    by: Iterable[str] = (),
    missing: Missing = "drop",
) -> list[str]:
    """Return a line for each reason why replies are missing: how many of how many.

    A line names where they are clearly more frequent: a value of a factor, of a column
    of the rows, or of one in `by`. That is all that is said of replies that were cut,
    which have a score, and of all kinds if nothing is measured.

    Args:
        df: A frame of replies.
        on: The measures that figures are about; None is of no figures at all.
        by: Columns that the figures are grouped by.
        missing: What figures do about them.
    """
    names = [column_of(df, name) for name in as_names(on or ())]
    gaps = [gap for gap in _gaps(df, names) if gap.is_bad.any()]
    if not gaps:
        return repeated_lines(df)
    prompt, compared = prompt_codes(df), [*factors(df), *by]
    # what is compared comes first: of it, figures stand side by side
    kinds = _kinds_of(df, compared), _kinds_of(df, attributes(df))
    lines = []
    for gap in gaps:
        where = _where(gap, prompt, kinds[0]) or _where(gap, prompt, kinds[1])
        if where or (on is not None and gap.is_left_out):
            how = None if on is None else missing
            lines.append(_line(df, gap, where, prompt, how))
    return [*repeated_lines(df), *lines]


class _Gap(NamedTuple):
    """Replies that are missing for one reason, among all of which they could be.

    Attributes:
        what: What the rows are called.
        verbs: What one did, and what several did.
        is_left_out: Whether figures cannot be about them.
        is_filled: Whether `missing` says what takes their place.
    """

    what: str
    verbs: tuple[str, str]
    is_bad: Any
    is_asked: Any
    is_left_out: bool = True
    is_filled: bool = True


def _gaps(df: pd.DataFrame, names: Sequence[str]) -> Iterable[_Gap]:
    """Return what may be missing; rows are bad only where they are asked for."""
    is_first, is_ok = is_request(df), has(df, "status", "ok")
    is_error = has(df, "status", "error") & is_first
    is_ended = is_error | (is_ok & is_first)
    if is_ended.any():
        is_unsent = is_first & ~is_ended
        yield _Gap(
            "requests",
            ("was not sent", "were not sent"),
            is_unsent,
            is_first,
            is_filled=False,
        )
    yield _Gap("replies", ("failed", "failed"), is_error, is_ended)
    is_cut = has_flag(df, "is_cut") & is_ok
    yield _Gap("replies", ("was cut", "were cut"), is_cut, is_ok, is_left_out=False)
    alike: dict[bytes, tuple[Any, Any, list[str]]] = {}
    for name in names:
        is_asked = is_ok & is_expected(df, name)
        is_bad = is_asked & np.isnan(measure(df, name).to_numpy())
        alike.setdefault(is_bad.tobytes(), (is_bad, is_asked, []))[2].append(name)
    for is_bad, is_asked, same in alike.values():
        said = " and ".join(map(_called, same))
        yield _Gap("replies", (f"has no {said}", f"have no {said}"), is_bad, is_asked)


def _called(name: str) -> str:
    """Return what a measure is called in a sentence: a score by its own name."""
    is_score = name.startswith(PREFIX)
    return f"score {name.removeprefix(PREFIX)}" if is_score else name


def _line(
    df: pd.DataFrame,
    gap: _Gap,
    where: "_Where | None",
    prompt: Any,  # noqa: ANN401 - codes
    missing: Missing | None,
) -> str:
    """Say how many are missing, where most of them are, and what the figures do."""
    n, n_all = int(gap.is_bad.sum()), int(gap.is_asked.sum())
    if where is None:
        line = f"{n:,} of {in_number(n_all, gap.what)} {gap.verbs[n != 1]}"
    else:
        there = in_number(where.n_all, gap.what)
        line = f"{where.n:,} of {there} {where.said} {gap.verbs[where.n != 1]}"
        line += f", and {n - where.n:,} of {n_all - where.n_all:,} others"
    if missing is None or not gap.is_left_out:
        return f"{line}."
    they, them = ("it counts", "it") if n == 1 else ("they count", "them")
    line += _INSTEAD[missing if gap.is_filled else "drop"].format(they=they, them=them)
    n_prompts = len(np.unique(prompt[gap.is_asked]))
    is_lost = missing == "drop" or not gap.is_filled
    n_lost = n_prompts - len(np.unique(prompt[gap.is_asked & ~gap.is_bad]))
    if is_lost and n_lost:
        line += f", and with {them} {n_lost:,} of {n_prompts:,} {counted(df)}"
    return f"{line}."


class _Where(NamedTuple):
    """The value of a column that has clearly the most bad replies."""

    said: str
    n: int
    n_all: int


def _where(gap: _Gap, prompt: Any, kinds: dict[str, Any]) -> _Where | None:  # noqa: ANN401 - codes
    """Return where prompts with bad replies are clearly more frequent, if anywhere.

    By chance alone, the number of bad prompts would be hypergeometric. Many columns
    are looked at, so that chance finds one often: a line counts, and claims no reason.
    """
    places: list[tuple[float, str, Any]] = []
    for name, (codes, values) in kinds.items():
        clear = _clear(codes, len(values), prompt, gap)
        at = int(clear.argmax())
        places.append((float(clear[at]), name, (codes == at, values[at])))
    if not places:
        return None
    clear, name, (is_there, value) = max(places, key=lambda place: place[0])
    if clear < _CLEAR:
        return None
    said = shorten(in_words(name, value), _MAX_LABEL_CHARS)
    is_name = name == "model" or name.endswith("_label")
    return _Where(
        f"of {said}" if is_name else f"with {name}={said}",
        int((gap.is_bad & is_there).sum()),
        int((gap.is_asked & is_there).sum()),
    )


def _clear(codes: Any, size: int, prompt: Any, gap: _Gap) -> Any:  # noqa: ANN401 - codes
    """Return by how many standard deviations each value has more bad prompts."""
    cells, place = np.unique(
        prompt[gap.is_asked] * size + codes[gap.is_asked], return_inverse=True
    )
    bad = np.bincount(place, gap.is_bad[gap.is_asked], len(cells)) > 0
    n = np.bincount(cells % size, minlength=size)
    n_bad = np.bincount(cells % size, bad, size)
    total, all_bad = n.sum(), n_bad.sum()
    with np.errstate(all="ignore"):
        share = n / total
        variance = all_bad * share * (1 - share) * (total - all_bad) / (total - 1)
        clear = (n_bad - all_bad * share) / np.sqrt(variance)
        more = n_bad / n - (all_bad - n_bad) / (total - n)
    is_worth = (n_bad >= 2) & (more >= _LEAST_SHARE)  # noqa: PLR2004 - one may be an accident
    return np.nan_to_num(np.where(is_worth, clear, 0.0))


def _kinds_of(df: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """Return the codes and values of columns that what is missing may depend on."""
    codes_by_name = {name: coded(df[name]) for name in names}
    return {
        name: coded_column
        for name, coded_column in codes_by_name.items()
        if 1 < len(coded_column[1]) <= _MAX_KINDS
    }


def repeated_lines(df: pd.DataFrame) -> list[str]:
    """Return a line if the frame has replies more than once."""
    which = ["exchange_id", "choice_index", "run", "row", "repeat"]
    which = [name for name in which if name in df.columns]
    if "exchange_id" not in which or df["exchange_id"].is_unique:
        return []
    n = int((df.duplicated(which) & df["exchange_id"].notna()).sum())
    said = f"{n:,} replies are" if n > 1 else "One reply is"
    line = (
        f"{said} in the frame again and counted again; "
        f"df.drop_duplicates({which}) keeps each once."
    )
    return [line] if n else []


def is_expected(df: pd.DataFrame, name: str) -> Any:  # noqa: ANN401 - an array
    """Return which rows should have a value: replies, and requests that failed.

    Seconds, tokens and costs are of requests, which have one row each.
    """
    is_ended = has(df, "status", "ok") | has(df, "status", "error")
    return is_ended & is_request(df) if name in OF_REQUESTS else is_ended
