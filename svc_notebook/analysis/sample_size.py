"""How many prompts and repeats find a difference: planned from a pilot."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import check_number

from .contrast_pair import compare_pair
from .contrast_sentences import number, points, round_up
from .contrast_study import Study, pairs_of, study_of
from .differences import prompts_needed, spread_of
from .reply_factors import check_replies, factors
from .statistics import MIN_PROMPTS, need_scipy

REPEATS = (1, 2, 3, 5, 10)


class Needed(NamedTuple):
    """How many prompts a study needs, and what each number of repeats would save.

    Attributes:
        n_prompts: With the first of the options, which takes the fewest requests.
        n_requests: For all values of the factor together.
        options: The prompts needed for each number of repeats.
        says: All this as a sentence.
    """

    n_prompts: int
    n_requests: int
    options: dict[int, int]
    says: str

    def __repr__(self) -> str:
        return self.says


def how_many(
    difference: float, pilot: pd.DataFrame, factor: str | None, on: str | None
) -> Needed:
    """Plan a study from a pilot: see `svc.how_many`."""
    check_number("difference", difference, above=0)
    need_scipy("Sample sizes")
    pilot = check_replies(pilot)
    study = study_of(pilot, _only_factor(pilot, factor), on)
    if study.is_rate and difference >= 1:
        raise ParameterError(
            f"difference={difference:g} is more than a rate can differ; give a share, "
            "such as 0.05 for 5 points.",
            param="difference",
        )
    pairs = pairs_of(study)
    results = [compare_pair(study, *pair) for pair in pairs]
    known = (spread_of(result.estimate) for result in results)
    spread = max(
        (result_spread for result_spread in known if not np.isnan(result_spread)),
        default=0.0,
    )
    if not spread > 0:
        raise ParameterError(
            f"The pilot needs at least {MIN_PROMPTS} prompts, better 10, with both "
            f"values of {study.factor} and different differences; it has "
            f"{max(result.n_prompts for result in results)}.",
            param="pilot",
        )
    options = _options(study, difference, spread, len(pairs))
    n = options[1] if 1 in options else next(iter(options.values()))
    return Needed(
        n,
        n * len(study.levels) * next(iter(options)),
        options,
        _advice(study, difference, options),
    )


def _only_factor(df: pd.DataFrame, factor: str | None) -> str:
    varied = factors(df)
    if factor is not None or len(varied) == 1:
        return factor or varied[0]
    raise ParameterError(
        "factor is needed: what varies in the pilot is "
        f"{', '.join(varied) or 'nothing'}. Give the factor whose values you will "
        "compare.",
        param="factor",
    )


def _options(
    study: Study, difference: float, spread: float, n_comparisons: int
) -> dict[int, int]:
    """Return the prompts needed for numbers of repeats.

    Repeats make only the noise within a prompt smaller. Without repeats in the pilot
    it is not known, so the answer is for the pilot's own number.
    """
    within, n = study.prompts.variance, study.prompts.n
    n_repeats = max(round(float(np.median(n))), 1)
    if np.isnan(within).all():
        return {
            n_repeats: prompts_needed(difference, spread, n_comparisons=n_comparisons)
        }
    # the difference of two replies has twice the variance of one
    noise = 2 * float(np.nanmean(within))
    between = max(spread**2 - noise * float((1 / n).mean()), 0.0)
    return {
        repeats: prompts_needed(
            difference,
            float(np.sqrt(between + noise / repeats)),
            n_comparisons=n_comparisons,
        )
        for repeats in REPEATS
    }


def _advice(study: Study, difference: float, options: dict[int, int]) -> str:
    show = points if study.is_rate else number
    saving = {round_up(n): repeats for repeats, n in reversed(options.items())}
    choices = " or ".join(
        f"{n} prompts with {repeats} repeat{'s'[: repeats != 1]}"
        for n, repeats in reversed(saving.items())
    )
    size = show(difference, is_difference=True)
    return (
        f"To find a difference of {size} in {study.name} between values of "
        f"{study.factor} 8 of 10 times: about {choices}."
    )
