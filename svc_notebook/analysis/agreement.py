"""How much the repeats of a prompt agree, and the prompts that agree the least."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_columns import Column
from svc_notebook.service.params import check_int, must_be, printable, shorten

from . import statistics
from .missing import Missing, check_missing, missing_lines, with_missing
from .repeats import (
    Pairs,
    Requests,
    Similarity,
    all_of_k,
    answer_codes,
    answers_of,
    any_of_k,
    equal_pairs,
    exact_agreement,
    similar_pairs,
)
from .reply_factors import (
    check_replies,
    column_of,
    counted,
    factors,
    has,
    in_words,
    is_rate,
    measure,
    named,
    scores,
    unit_codes,
)
from .reply_factors import unit as prompt_columns
from .statistics import HOW_TO_INSTALL, MIN_PROMPTS, Share
from .summary import few_prompts, grouped, refuse_clash, say


def _with_ends(name: str, doc: str) -> dict[str, str]:
    low, high = f"lower end of the interval (0.95) of {name}", "its upper end"
    return {name: doc, f"{name}_low": low, f"{name}_high": high}


CountedAs = Literal["drop", "wrong", "right"]
AGREEMENT = tuple(
    Column(name, "Int64" if name == "k" or name[:2] == "n_" else "Float64", name, doc)
    for name, doc in {
        "n_prompts": "prompts with at least two replies that are compared",
        "n_replies": "replies to these prompts that are compared",
        "n_no_answer": "good replies without an answer, which are not compared",
        **_with_ends("equal", "share of the pairs of repeats that are equal"),
        **_with_ends("alpha", "Krippendorff's alpha: agreement beyond chance"),
        "k": "the number of replies that all_of_k and any_of_k look at",
        "n_prompts_of_k": "prompts with at least k replies that have the score",
        **_with_ends("all_of_k", "chance that k replies are all right (pass^k)"),
        **_with_ends("any_of_k", "chance that one or more of k are right (pass@k)"),
    }.items()
)
"""The columns of `agreement_df`, after the columns of `by`."""
REPEATS = (
    Column("n_replies", "Int64", "n_replies", "good replies that are compared"),
    Column("n_distinct", "Int64", "n_distinct", "different replies among them"),
    Column("equal", "Float64", "equal", "share of the pairs of replies that are equal"),
    Column("replies", "string", "replies", "the most frequent, with their counts"),
)
"""The columns of `repeats_df`, after the factors; the score comes before `replies`."""
_DTYPES: dict[str, Any] = {
    column.name: column.dtype for column in (*AGREEMENT, *REPEATS)
}
_MISSING_COUNTS_AS: dict[str, tuple[CountedAs, ...]] = {
    "drop": ("drop",),
    "wrong": ("wrong",),
    "bounds": ("drop", "wrong", "right"),
}
"""What a missing score counts as: in the value, then at the lower and upper end."""
_SHORT_OF_K = 0.1  # the share of prompts that may have fewer replies than the default k
_SHOWN_CHARS = 40
_SHOWN_KINDS = 4


def agreement_df(  # noqa: PLR0913 - those of the public verb
    df: pd.DataFrame,
    by: str | Sequence[str] | None = None,
    on: str | None = None,
    *,
    similarity: Literal["exact"] | Similarity = "exact",
    k: int | Sequence[int] | None = None,
    unit: str | Sequence[str] | None = None,
    missing: Missing = "drop",
) -> pd.DataFrame:
    """Measure how much repeats agree: see `svc.agreement_df`."""
    df = check_replies(df)
    groups = grouped(df, named(df, by) if by is not None else factors(df) or ["model"])
    requests = Requests.of(df, groups.codes, len(groups.keys), unit_codes(df, unit))
    refuse_clash(groups.keys, _DTYPES)
    score, numbers = _right_score(df, on), _check_k(k)
    counts = [
        _count_right(df, requests, score, end)
        for end in _MISSING_COUNTS_AS[check_missing(missing)]
    ]
    columns = _agreement(df, requests, _check_similarity(similarity))
    frames = [
        _add_columns(groups.keys, columns | right_of_k)
        for right_of_k in _right_of_k(requests, score, counts, numbers)
    ]
    frame = pd.concat(frames).sort_index(kind="stable").reset_index(drop=True)
    lines = missing_lines(df, on=score, by=groups.keys.columns, missing=missing)
    say([*lines, *_notes(df, columns["n_prompts"], score, unit)])
    return frame


def repeats_df(
    df: pd.DataFrame,
    on: str | None = None,
    *,
    similarity: Literal["exact"] | Similarity = "exact",
) -> pd.DataFrame:
    """List prompts by how much their repeats agree: see `svc.repeats_df`."""
    df = check_replies(df)
    requests = Requests.of(df, np.zeros(len(df), dtype=np.int64), 1)
    score, pairs = (
        _right_score(df, on),
        _pairs(df, requests, _check_similarity(similarity)),
    )
    repeated = np.flatnonzero(pairs.n > 1)
    columns = {
        "n_replies": pairs.n[repeated],
        "n_distinct": pairs.n_kinds[repeated],
        "equal": pairs.alike[repeated],
    }
    order = [columns["equal"]]
    if score is not None:
        n_right, n = _count_right(df, requests, score, "drop")
        with np.errstate(all="ignore"):
            columns[score] = (n_right / n)[repeated]
        order.insert(0, columns[score])
    columns["replies"] = _most_frequent(df, requests, repeated)
    names = dict.fromkeys([*factors(df), *prompt_columns(df), "prompt"])
    firsts = np.unique(requests.of_row, return_index=True)[1][repeated]
    keys = df[list(names)].iloc[firsts].reset_index(drop=True)
    refuse_clash(keys, columns)
    return _add_columns(keys, columns).iloc[np.lexsort(order)].reset_index(drop=True)


def _check_similarity(similarity: Any) -> Similarity | None:  # noqa: ANN401 - not checked yet
    """Return the function that compares two replies; None for 'exact'."""
    if isinstance(similarity, str) and similarity == "exact":
        return None
    if not callable(similarity):
        raise must_be(
            "similarity",
            "'exact' or a function of two replies",
            similarity,
            hint="Such as lambda a, b: a.text.casefold() == b.text.casefold().",
        )
    function: Similarity = similarity
    return function


def _check_k(k: Any) -> list[int]:  # noqa: ANN401 - not checked yet
    """Return each k once; an empty list if k is to be chosen from the frame."""
    if k is None:
        return []
    is_list = isinstance(k, Iterable) and not isinstance(k, str)
    numbers = [*dict.fromkeys(k)] if is_list else [k]
    if not numbers:
        raise must_be("k", "a number of replies, or several", k)
    return [check_int("k", number, minimum=1) for number in numbers]


def _right_score(df: pd.DataFrame, on: Any) -> str | None:  # noqa: ANN401 - not checked yet
    """Return the score that says which replies are right.

    Without `on` it is the only score of True and False; None if none or several are.
    """
    if on is None:
        rates = _rates(df)
        return rates[0] if len(rates) == 1 else None
    name = column_of(df, on)
    if measure(df, name).notna().any() and not is_rate(df, name):
        raise ParameterError(
            f"{name} has values other than True and False, so it does not say which "
            "replies are right. Add a score that does, such as "
            f"run.score(good=lambda r: r[{name!r}] > 0.5), and give on='good'.",
            param="on",
        )
    return name


def _rates(df: pd.DataFrame) -> list[str]:
    """Return the scores whose values are only True and False."""
    rates = []
    for name in scores(df):
        try:
            rates += [name] if is_rate(df, name) else []
        except ParameterError:  # a score of labels
            continue
    return rates


def _pairs(
    df: pd.DataFrame, requests: Requests, similarity: Similarity | None
) -> Pairs:
    if similarity is None:
        return equal_pairs(answer_codes(df), requests)
    return similar_pairs(df, requests, similarity)


def _agreement(
    df: pd.DataFrame, requests: Requests, similarity: Similarity | None
) -> dict[str, Any]:
    """Return the counts and the agreement.

    Krippendorff's alpha needs labels that are equal or not, so it is missing where a
    function compares the replies.
    """
    pairs = _pairs(df, requests, similarity)
    is_repeated, n_groups = pairs.n > 1, requests.n_groups
    n_replies = np.where(is_repeated, pairs.n, 0)
    is_left_out = has(df, "status", "ok") & (answer_codes(df) < 0)
    if similarity is not None:
        is_left_out[:] = False  # the function also compares replies without an answer
    columns = {
        "n_prompts": requests.n_prompts(is_repeated),
        "n_replies": np.bincount(requests.group, n_replies, n_groups),
        "n_no_answer": np.bincount(
            requests.group[requests.of_row], is_left_out, n_groups
        ),
    }
    unknown = np.full(n_groups, np.nan)
    equal, alpha = requests.share(pairs.alike), Share(unknown, unknown, unknown)
    if similarity is None:
        equal, _, alpha = exact_agreement(df, requests)
    return columns | _ends("equal", equal) | _ends("alpha", alpha)


def _count_right(
    df: pd.DataFrame, requests: Requests, score: str | None, end: CountedAs
) -> tuple[Any, Any]:
    """Return how many replies of each request are right, and how many are scored."""
    n_requests = len(requests.group)
    if score is None:
        return np.zeros(n_requests), np.zeros(n_requests)
    if end == "drop":
        values = measure(df, score).to_numpy()
    else:
        wrong, right = with_missing(df, score, "bounds")
        values = wrong if end == "wrong" else right
    n = np.bincount(requests.of_row, ~np.isnan(values), n_requests)
    return np.bincount(requests.of_row, np.nan_to_num(values), n_requests), n


def _right_of_k(
    requests: Requests,
    score: str | None,
    counts: Sequence[tuple[Any, Any]],
    numbers: list[int],
) -> Iterable[dict[str, Any]]:
    """Return the columns of `AGREEMENT` from `k` on, for each k.

    Args:
        requests: What was sent.
        score: The score that says which replies are right, if there is one.
        counts: The numbers of right and of scored replies of each request: for the
            value, and if missing="bounds" also for the lower and the upper end.
        numbers: The values of k; if empty, k is a number that most prompts reach.
    """
    n = counts[0][1]
    most = int(n.max(initial=0))
    if numbers and score is not None and max(numbers) > most:
        raise ParameterError(
            f"k={max(numbers)}, but no prompt has more than {most} replies with "
            f"{score}. Give a smaller k, or run the sweep with "
            f"repeats={max(numbers)}.",
            param="k",
        )
    if not numbers and most > 1:
        numbers = [int(np.quantile(n[n > 1], _SHORT_OF_K, method="inverted_cdf"))]
    for k in numbers or [most + 1]:  # no request has so many: all figures are missing
        columns: dict[str, Any] = {
            "k": np.full(requests.n_groups, k if k <= most else np.nan),
            "n_prompts_of_k": requests.n_prompts(n >= k),
        }
        for name, chance in (("all_of_k", all_of_k), ("any_of_k", any_of_k)):
            figures, *ends = (
                requests.share(chance(n_right, n_scored, k))
                for n_right, n_scored in counts
            )
            if ends:
                lower, upper = ends
                figures = figures._replace(low=lower.low, high=upper.high)
            columns |= _ends(name, figures)
        yield columns


def _ends(name: str, share: Share) -> dict[str, Any]:
    return {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}


def _most_frequent(df: pd.DataFrame, requests: Requests, codes: Any) -> list[str]:  # noqa: ANN401 - an array
    """Return the replies to these requests as text, such as "2x ham, 1x spam"."""
    texts = answers_of(df).astype(object)
    is_good = has(df, "status", "ok")
    by_request = texts[is_good].groupby(requests.of_row[is_good]).agg(list)
    return [_counts_in_words(by_request[request]) for request in codes.tolist()]


def _counts_in_words(replies: list[Any]) -> str:
    counts = Counter("no answer" if pd.isna(x) else in_words("", x) for x in replies)
    kinds = [
        f"{n}x {shorten(printable(text), _SHOWN_CHARS)}"
        for text, n in counts.most_common(_SHOWN_KINDS)
    ]
    n_more = len(counts) - len(kinds)
    return ", ".join(kinds) + (f" and {n_more} more" if n_more else "")


def _add_columns(keys: pd.DataFrame, columns: dict[str, Any]) -> pd.DataFrame:
    return keys.assign(
        **{
            name: pd.array(values, dtype=_DTYPES.get(name, "Float64"))
            for name, values in columns.items()
        }
    )


def _notes(
    df: pd.DataFrame,
    n_prompts: Any,  # noqa: ANN401 - an array
    score: str | None,
    unit: str | Sequence[str] | None,
) -> list[str]:
    """Return notes that say why figures or their intervals are missing."""
    if not n_prompts.any():
        return ["Nothing was asked twice, so repeats cannot agree; sweep(repeats=3)."]
    lines = []
    if score is None and (rates := _rates(df)):
        lines.append(f"all_of_k and any_of_k need on=, one of {', '.join(rates)}.")
    if statistics.special() is None:
        return [*lines, f"low and high {HOW_TO_INSTALL}."]
    if n := int(((n_prompts > 0) & (n_prompts < MIN_PROMPTS)).sum()):
        lines.append(few_prompts(count_in_words(n, "groups"), counted(df, unit)))
    return lines
