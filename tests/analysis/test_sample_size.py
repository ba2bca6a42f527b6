"""A pilot says how many prompts and repeats a study needs."""

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from svc_notebook.analysis.sample_size import how_many
from svc_notebook.errors import ConfigError, ParameterError
from tests.analysis.make import LARGE, SMALL, replies


def _right(
    rates: dict[str, int],
    n_prompts: int = 100,
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return models that are right for the first so many of the prompts."""
    cost = {SMALL: 0.01, LARGE: 0.07}
    return replies(
        {
            "row": row,
            "prompt": f"Say {row}",
            "model": model,
            "score_right": row < n_right,
            "cost": cost.get(model, 0.02),
            **more,
        }
        for model, n_right in rates.items()
        for row in range(n_prompts)
    )


def test_a_pilot_says_how_many_prompts() -> None:
    """A smaller difference needs more prompts, four times as many for half of it."""
    pilot = _right({SMALL: 14, LARGE: 16}, n_prompts=20)

    large, small = (how_many(each, pilot, None, None) for each in (0.2, 0.1))

    assert small.n_prompts == pytest.approx(4 * large.n_prompts, rel=0.1)
    assert small.n_requests == 2 * small.n_prompts
    assert repr(small).startswith("To find a difference of 10 points in right between")


@pytest.mark.slow
def test_repeats_save_prompts_where_replies_vary() -> None:
    """With repeats in the pilot each number of repeats has its number of prompts."""
    rng = np.random.default_rng(1)
    pilot = pd.concat(
        [
            _right({SMALL: 0, LARGE: 0}, 20, repeat=repeat).assign(
                score_right=rng.random(40) < 0.7
            )
            for repeat in range(3)
        ]
    )

    options = how_many(0.05, pilot, "model", "right").options

    assert list(options) == [1, 2, 3, 5, 10]
    assert options[10] < options[1] / 4


@pytest.mark.slow
def test_planning_needs_scipy_and_a_sound_pilot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Differences must be possible; without SciPy the command is named."""
    pilot = _right({SMALL: 1, LARGE: 2}, n_prompts=4)

    with pytest.raises(ParameterError, match="difference must be a number > 0"):
        how_many(0, pilot, None, None)
    with pytest.raises(ParameterError, match=r"0\.05 for 5 points"):
        how_many(5, pilot, None, None)
    with pytest.raises(ParameterError, match="factor is needed"):
        how_many(0.1, pilot[pilot["model"] == SMALL], None, None)
    with pytest.raises(ParameterError, match="needs at least 3"):
        how_many(0.1, pilot[pilot["row"] < 2], None, None)
    with pytest.raises(ParameterError, match="different differences"):
        how_many(0.1, pilot.assign(score_right=3.0), None, None)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(ConfigError, match="Sample sizes need SciPy"):
        how_many(0.1, pilot, None, None)
