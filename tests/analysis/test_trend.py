"""A score along a setting has one slope, in words and in numbers."""

import sys
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import svc_notebook as svc
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies

HEATS = (0.0, 0.5, 1.0)
Score = Callable[[int, float, int], float | bool | None]


def _asked(
    score: Score,
    *,
    n_rows: int = 12,
    heats: Sequence[float | None] = HEATS,
    n_repeats: int = 1,
    models: Sequence[str] = (SMALL,),
) -> pd.DataFrame:
    """Return rows asked at each temperature; the score is of row, heat and repeat."""
    return replies(
        (
            {"row": row, "document": row // 3, "model": model, "temperature": heat}
            | {"repeat": repeat, "score_right": score(row, heat or 0.0, repeat)}
            for row in range(n_rows)
            for model in models
            for heat in heats
            for repeat in range(n_repeats)
        ),
        middle=["document"],
    )


def _falling(row: int, heat: float, repeat: int) -> float:
    """Return a score that falls by 2 for 1 of temperature, more for some rows."""
    return 10 + row - (2 + (row % 5 - 2) / 10) * heat + repeat / 100


def test_a_trend_is_the_mean_slope_within_rows() -> None:
    """The slope is the mean of the rows' regressions, with Student's t over them."""
    frame = _asked(_falling, n_repeats=2, n_rows=15)
    slopes = [
        np.polyfit(part["temperature"].astype(float), part["score_right"], 1)[0]
        for _, part in frame.groupby("row")
    ]
    low, high = stats.t.interval(0.95, 14, np.mean(slopes), stats.sem(slopes))

    found = svc.trend(frame, "temperature")

    assert found.slope == pytest.approx(np.mean(slopes)) == pytest.approx(-2)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-3)
    assert found.p < 1e-10
    assert (found.n_prompts, found.n_units, found.n_scored) == (15, 15, 90)


def test_a_trend_is_read_as_a_sentence() -> None:
    """Points from the least to the largest value, and how likely that is by chance."""
    frame = _asked(lambda row, heat, _: heat < (0.4, 0.8, 2)[row % 3])

    found = svc.trend(frame, "temperature", on="right")

    assert repr(found) == (
        "right falls with temperature: by 67 points (35 to 98) from 0 to 1; p < 0.001, "
        "12 rows."
    )
    assert found.slope == pytest.approx(-2 / 3)


def test_what_cannot_be_told_is_said() -> None:
    """A slope that may be chance is no trend; too few rows have no interval."""
    chance = _asked(lambda row, heat, _: (row + 2 * heat) % 5 < 3)
    steady = _asked(lambda row, heat, _: row - heat)
    few = _asked(lambda row, heat, _: row + heat < 1, n_rows=2)

    assert str(svc.trend(chance, "temperature")).startswith(
        "Cannot tell yet whether right "
    )
    assert "change by the same amount" in str(svc.trend(steady, "temperature"))
    assert str(svc.trend(few, "temperature")).endswith(
        "it has 2 rows, but at least 3 are needed."
    )


def test_rows_that_are_always_right_have_an_interval() -> None:
    """Ten rows that no temperature changes do not show that it never does."""
    found = svc.trend(_asked(lambda *_: True, n_rows=10), "temperature")

    assert found.slope == 0
    assert -0.4 < found.low < -0.1
    assert found.p == 1


def test_a_cell_does_not_break_its_words() -> None:
    """The sentence is HTML, escaped; plain text would be broken at the cell's edge."""
    frame = _asked(lambda row, heat, _: row + heat).rename(
        columns={"score_right": "score_<b>"}
    )

    bundle = svc.trend(frame, "temperature")._repr_mimebundle_()

    assert "whether &lt;b&gt; rises with temperature" in bundle["text/html"]
    assert "whether <b> rises with temperature" in bundle["text/plain"]


def test_rows_of_one_document_belong_together() -> None:
    """With `unit` the slope stays, and its interval is over documents."""
    frame = _asked(lambda row, heat, _: 5.0 - (row // 3) * heat - heat * row / 100)

    alone = svc.trend(frame, "temperature")
    together = svc.trend(frame, "temperature", unit="document")

    assert together.slope == pytest.approx(alone.slope)
    assert together.n_units == 4
    assert together.low < alone.low < alone.high < together.high
    assert "4 values of document" in together.says


def test_other_factors_are_kept_equal() -> None:
    """A model that is better does not make a trend, even with more of its replies."""
    frame = _asked(_falling, models=(SMALL, LARGE))
    is_large = frame["model"] == LARGE
    frame["score_right"] += 5 * is_large.astype("float64")
    frame = frame[~(is_large & (frame["temperature"] == 0) & (frame["row"] < 4))]

    found = svc.trend(frame, "temperature")

    assert found.slope == pytest.approx(-2, abs=0.05)
    assert "averaged over model" in found.says


def test_a_setting_that_never_varies_alone_is_said() -> None:
    """Another model at another temperature may be the reason."""
    cool = _asked(_falling, heats=[0.0])
    hot = _asked(_falling, heats=[1.0]).assign(model=LARGE)

    found = svc.trend(pd.concat([cool, hot]), "temperature")

    assert "varies only together with model" in found.says


def test_a_curve_that_bends_is_said() -> None:
    """A straight line misses what is best in the middle."""
    frame = _asked(lambda row, heat, _: row % 2 + heat * (1 - heat) * (1 + row / 50))

    found = svc.trend(frame, "temperature")

    assert abs(found.slope) < 1e-9
    assert "the curve bends (p < 0.001): plot(on, x='temperature')" in found.says


def test_what_is_missing_is_part_of_the_sentence() -> None:
    """Scores that are not there, and replies without the setting, are counted."""
    frame = _asked(
        lambda row, heat, _: None if row < 3 else heat * row % 7 < 2,
        heats=[*HEATS, None],
    )
    frame["score_right"] = frame["score_right"].astype("boolean")

    dropped = svc.trend(frame, "temperature")
    wrong = svc.trend(frame, "temperature", missing="wrong")

    assert "9 replies without temperature left out" in dropped.says
    assert "12 of 12 replies with document=0 have no score `right`" in dropped.says
    assert (dropped.n_prompts, wrong.n_prompts) == (9, 12)
    assert "they count as wrong" in wrong.says


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"factor": "model"}, "one column of numbers, such as temperature; got"),
        ({"factor": "document"}, "one value for each of the rows"),
        ({"factor": "temprature"}, "Did you mean temperature"),
        ({"factor": "temperature", "on": "score_wrong"}, "is not a score"),
        ({"factor": "temperature", "missing": "bounds"}, "no worst case"),
        ({"factor": "temperature", "unit": "model"}, "several values for one"),
    ],
)
def test_what_has_no_slope_is_refused(arguments: dict[str, str], said: str) -> None:
    """The message says what a trend needs."""
    frame = _asked(_falling, models=(SMALL, LARGE))

    with pytest.raises(ParameterError, match=said):
        svc.trend(frame, **arguments)  # type: ignore[arg-type]  # names by value


def test_no_replies_have_no_trend() -> None:
    """An empty frame is refused, in our words."""
    with pytest.raises(ParameterError, match="nothing to compare"):
        svc.trend(_asked(_falling).iloc[:0], "temperature")


def test_without_scipy_there_is_a_slope_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the command."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)

    found = svc.trend(_asked(_falling), "temperature")

    assert found.slope == pytest.approx(-2, abs=0.1)
    assert np.isnan([found.low, found.high, found.p]).all()
    assert "python -m pip install scipy" in found.says


def test_hostile_names_cannot_steer_the_terminal() -> None:
    """A score's name is printed, never obeyed."""
    frame = _asked(_falling).rename(columns={"score_right": "score_\x1b[2J"})

    assert "\x1b" not in repr(svc.trend(frame, "temperature"))


@pytest.mark.slow
def test_slopes_hold_what_was_planted() -> None:
    """Of 300 studies 92 to 98 of 100 intervals hold a slope of rates."""
    rng, n_runs, n_rows = np.random.default_rng(5), 300, 30
    heats = np.linspace(0, 1, 5)
    truth = float(np.polyfit(heats, PLANTED, 1)[0])
    frame = _asked(lambda *_: True, n_rows=n_rows, heats=heats.tolist())
    held = 0
    for _ in range(n_runs):
        chance = np.clip(rng.beta(4, 1, (n_rows, 1)) - 0.3 * heats, 0, 1)
        right = (rng.random(chance.shape) < chance).ravel()
        found = svc.trend(frame.assign(score_right=right), "temperature")
        held += found.low <= truth <= found.high
    assert 0.92 <= held / n_runs <= 0.98


_EASE = np.random.default_rng(0).beta(4, 1, (400_000, 1))
PLANTED = np.clip(_EASE - 0.3 * np.linspace(0, 1, 5), 0, 1).mean(axis=0)
