"""Missing replies: requests that failed or were not sent, and replies without a score.

Notes say how many are missing. A score can leave them out, count them as wrong, or give
bounds with all of them wrong and all of them right.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import must_be, printable, shorten

from .reply_factors import (
    OF_REQUESTS,
    attributes,
    coded,
    column_of,
    counted,
    factors,
    has,
    has_flag,
    in_words,
    is_request,
    measure,
    prompt_codes,
)

Missing = Literal["drop", "wrong", "bounds"]
"""How replies without a value are treated: left out, counted as 0, or as 0 in the lower
end of an interval and as 1 in the upper end."""
_MAX_LABEL_CHARS = 40
_MAX_KINDS = 12  # a column with more values is an id of prompts, not a category
_CLEAR = 1.645  # standard deviations; chance alone exceeds it in 1 of 20 cases
_LEAST_SHARE = 0.1  # smaller differences of shares are not mentioned
_TREATMENT = {
    "drop": "; {figures} leave {them} out",
    "wrong": "; {they} as wrong",
    "bounds": "; low counts all of them as wrong, and high as right",
}


class Ends(NamedTuple):
    """The score of each row, for the lower and for the upper end; NaN is missing."""

    low: Any
    high: Any


def check_missing(missing: Any) -> Missing:  # noqa: ANN401 - not checked yet
    """Return the value if it is one of `Missing`."""
    if missing not in get_args(Missing):
        raise must_be("missing", "'drop', 'wrong' or 'bounds'", missing)
    chosen: Missing = missing
    return chosen


def with_missing(df: pd.DataFrame, on: str, missing: Missing) -> Ends:
    """Return a measure as floats, with missing values filled in as `missing` says.

    Failed requests and replies without a value are missing. Requests that were not sent
    are always left out.

    Raises:
        ParameterError: Values are to be filled in, but the measure is not within 0 and
            1, or is seconds, tokens or costs, which are neither wrong nor right.
    """
    values = measure(df, on).to_numpy()
    if missing == "drop":
        return Ends(values, values)
    known = values[~np.isnan(values)]
    problem = "is not a score" if column_of(df, on) in OF_REQUESTS else ""
    if ((known < 0) | (known > 1)).any():
        problem = problem or f"has values from {known.min():g} to {known.max():g}"
    if problem:
        raise ParameterError(
            f"missing={missing!r} counts missing values as 0 or 1, but {on} {problem}. "
            "Use missing='drop', or a score of True and False or from 0 to 1.",
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
    """Return a note for each reason why replies are missing, such as "2 of 9 failed".

    If a reason is clearly more frequent for one value of a factor, of a column of the
    rows, or of a column in `by`, the note names that value. Replies that were cut are
    mentioned only in this case, since they have a score; if nothing is measured, that
    applies to all reasons.

    Args:
        df: A frame of replies.
        on: The measures that are reported; None if there are none.
        by: Columns that the figures are grouped by.
        missing: How the figures treat missing values.
    """
    names = [column_of(df, name) for name in as_names(on or ())]
    gaps = [gap for gap in _gaps(df, names) if gap.is_bad.any()]
    if not gaps:
        return repeated_lines(df)
    prompt, compared = prompt_codes(df), [*factors(df), *by]
    # compared columns come first, since their figures are shown side by side
    kinds = _kinds_of(df, compared), _kinds_of(df, attributes(df))
    lines = []
    for gap in gaps:
        where = _where(gap, prompt, kinds[0]) or _where(gap, prompt, kinds[1])
        if where or (on is not None and gap.is_left_out):
            treatment = None if on is None else missing
            lines.append(_line(df, gap, where, prompt, treatment))
    return [*repeated_lines(df), *lines]


class _Gap(NamedTuple):
    """Replies that are missing for one reason.

    Attributes:
        noun: The plural of the rows, such as "requests".
        verbs: What happened to them, for one and for several.
        is_bad: Which rows are missing for this reason.
        is_due: Which rows could be.
        is_left_out: Whether figures cannot include them.
        is_filled: Whether `missing` fills in a value for them.
        figures: The figures that this concerns.
    """

    noun: str
    verbs: tuple[str, str]
    is_bad: Any
    is_due: Any
    is_left_out: bool = True
    is_filled: bool = True
    figures: Literal["the figures", "its figures", "their figures"] = "the figures"


def _gaps(df: pd.DataFrame, names: Sequence[str]) -> Iterable[_Gap]:
    """Return one gap for each reason: not sent, failed, cut, and without a score."""
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
        is_due = is_ok & is_expected(df, name)
        is_bad = is_due & np.isnan(measure(df, name).to_numpy())
        alike.setdefault(is_bad.tobytes(), (is_bad, is_due, []))[2].append(name)
    for is_bad, is_due, same in alike.values():
        names_of = " and ".join(map(_measure_name, same))
        verbs = f"has no {names_of}", f"have no {names_of}"
        gap = _Gap("replies", verbs, is_bad, is_due)
        if len(same) < len(set(names)):
            gap = gap._replace(
                figures="its figures" if len(same) == 1 else "their figures"
            )
        yield gap


def _measure_name(name: str) -> str:
    """Return the name of a measure in a sentence, such as "score `right`"."""
    is_score = name.startswith(PREFIX)
    return f"score `{printable(name.removeprefix(PREFIX))}`" if is_score else name


def _line(
    df: pd.DataFrame,
    gap: _Gap,
    where: "_Where | None",
    prompt: Any,  # noqa: ANN401 - codes
    missing: Missing | None,
) -> str:
    """Say how many replies are missing, where, and how the figures treat them."""
    n, n_all = int(gap.is_bad.sum()), int(gap.is_due.sum())
    if where is None:
        line = f"{n:,} of {count_in_words(n_all, gap.noun)} {gap.verbs[n != 1]}"
    else:
        rows = count_in_words(where.n_all, gap.noun)
        line = f"{where.n:,} of {rows} {where.phrase} {gap.verbs[where.n != 1]}"
        line += f", and {n - where.n:,} of {n_all - where.n_all:,} others"
    if missing is None or not gap.is_left_out:
        return f"{line}."
    they, them = ("it counts", "it") if n == 1 else ("they count", "them")
    line += _TREATMENT[missing if gap.is_filled else "drop"].format(
        they=they, them=them, figures=gap.figures
    )
    n_prompts = len(np.unique(prompt[gap.is_due]))
    is_lost = missing == "drop" or not gap.is_filled
    n_lost = n_prompts - len(np.unique(prompt[gap.is_due & ~gap.is_bad]))
    of_all = f"of {n_prompts:,} {counted(df)}"
    if is_lost and n_lost and gap.figures == "the figures":
        line += f", and with {them} {n_lost:,} {of_all}"
    elif is_lost and n_lost:
        line += f", and are over {n_prompts - n_lost:,} {of_all}"
    return f"{line}."


class _Where(NamedTuple):
    """The value of a column for which clearly more replies are missing."""

    phrase: str
    n: int
    n_all: int


def _where(gap: _Gap, prompt: Any, kinds: dict[str, Any]) -> _Where | None:  # noqa: ANN401 - codes
    """Return where prompts with missing replies are clearly more frequent, if anywhere.

    By chance alone, the number of such prompts would be hypergeometric. Since many
    columns are searched, chance often makes one of them clear. So a note only counts,
    and does not claim a cause.
    """
    places: list[tuple[float, str, Any]] = []
    for name, (codes, values) in kinds.items():
        z_scores = _z_scores(codes, len(values), prompt, gap)
        code = int(z_scores.argmax())
        places.append((float(z_scores[code]), name, (codes == code, values[code])))
    if not places:
        return None
    z_score, name, (has_value, value) = max(places, key=lambda place: place[0])
    if z_score < _CLEAR:
        return None
    text = shorten(in_words(name, value), _MAX_LABEL_CHARS)
    is_name = name == "model" or name.endswith("_label")
    return _Where(
        f"of {text}" if is_name else f"with {name}={text}",
        int((gap.is_bad & has_value).sum()),
        int((gap.is_due & has_value).sum()),
    )


def _z_scores(codes: Any, size: int, prompt: Any, gap: _Gap) -> Any:  # noqa: ANN401 - codes
    """Return by how many standard deviations each value has more bad prompts.

    Shape (size,); 0 where the difference is not worth mentioning.
    """
    cells, place = np.unique(
        prompt[gap.is_due] * size + codes[gap.is_due], return_inverse=True
    )
    bad = np.bincount(place, gap.is_bad[gap.is_due], len(cells)) > 0
    n = np.bincount(cells % size, minlength=size)
    n_bad = np.bincount(cells % size, bad, size)
    total, all_bad = n.sum(), n_bad.sum()
    with np.errstate(all="ignore"):
        share = n / total
        # mean and variance of the hypergeometric distribution
        variance = all_bad * share * (1 - share) * (total - all_bad) / (total - 1)
        z_scores = (n_bad - all_bad * share) / np.sqrt(variance)
        excess = n_bad / n - (all_bad - n_bad) / (total - n)
    is_worth = (n_bad >= 2) & (excess >= _LEAST_SHARE)  # noqa: PLR2004 - one may be an accident
    return np.nan_to_num(np.where(is_worth, z_scores, 0.0))


def _kinds_of(df: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """Return the codes and values of the columns that have a few values each."""
    codes_by_name = {name: coded(df[name]) for name in names}
    return {
        name: coded_column
        for name, coded_column in codes_by_name.items()
        if 1 < len(coded_column[1]) <= _MAX_KINDS
    }


def repeated_lines(df: pd.DataFrame) -> list[str]:
    """Return a note if the frame contains replies more than once."""
    keys = ["exchange_id", "choice_index", "run", "row", "repeat"]
    keys = [name for name in keys if name in df.columns]
    if "exchange_id" not in keys or df["exchange_id"].is_unique:
        return []
    n = int((df.duplicated(keys) & df["exchange_id"].notna()).sum())
    rows = f"{n:,} rows repeat a reply" if n > 1 else "One row repeats a reply"
    line = (
        f"{rows} that is already in the frame, so it counts more than once; "
        f"df.drop_duplicates({keys}) keeps each reply once."
    )
    return [line] if n else []


def is_expected(df: pd.DataFrame, name: str) -> Any:  # noqa: ANN401 - an array
    """Return which rows should have a value: good replies, and requests that failed.

    Seconds, tokens and costs belong to requests: only the first reply to each counts.
    """
    is_ended = has(df, "status", "ok") | has(df, "status", "error")
    return is_ended & is_request(df) if name in OF_REQUESTS else is_ended
