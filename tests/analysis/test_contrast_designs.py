"""Studies that are more than pairs over rows: units, families, subgroups, margins."""

import itertools
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.analysis.contrast import Contrast, contrast, contrast_df
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies

MINI = "svc-v2-1b-instruct"


def _asked(
    values: dict[Any, Any],
    *,
    factor: str = "model",
    score: str = "score_right",
    **more: Any,  # noqa: ANN401 - a column: one value, or one for each row
) -> pd.DataFrame:
    """Return one reply for each value of a factor and row, with its score."""
    return replies(
        (
            {"row": row, "prompt": f"Say {row}", factor: level, score: of_row}
            | {
                name: column[row] if isinstance(column, list) else column
                for name, column in more.items()
            }
            for level, of_level in values.items()
            for row, of_row in enumerate(of_level)
        ),
        middle=more,
    )


def _first(n: int, of: int = 40) -> list[bool]:
    """Return that the first so many rows are right."""
    return [row < n for row in range(of)]


def _only(compared: Contrast) -> pd.Series:
    assert len(compared.df) == 1
    return compared.df.iloc[0]


def test_rows_of_one_document_belong_together() -> None:
    """The value stays, the interval is over documents, and the sentence says so."""
    frame = _asked(
        {SMALL: _first(20), LARGE: _first(30)}, doc=[row // 5 for row in range(40)]
    )

    by_row, by_document = contrast(frame, "model"), contrast(frame, "model", unit="doc")

    row, document = _only(by_row), _only(by_document)
    assert document["difference"] == row["difference"]
    assert (document["n_units"], document["n_prompts"]) == (8, 40)
    assert document["high"] > row["high"]
    assert ", over 8 values of doc;" in by_document.says[0]
    assert by_document.unit == ["doc"]


def test_prompts_count_the_same_unless_replies_do() -> None:
    """An easy row that was repeated often does not count more than another."""
    often = [_asked({SMALL: [1.0, 0.0, 0.0], LARGE: [1.0, 1.0, 0.0]})]
    easy = often[0]["row"] == 0
    frame = pd.concat([*often, *[often[0][easy]] * 7])

    mean, by_reply = (
        _only(contrast(frame, "model", weight=weight))[["mean", "mean_against"]]
        for weight in ("prompts", "replies")
    )

    assert mean.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert by_reply.tolist() == pytest.approx([9 / 10, 8 / 10])


def test_one_call_is_one_family() -> None:
    """Two factors and three scores share the correction, which each sentence names."""
    rng = np.random.default_rng(3)
    frame = replies(
        {"row": row, "prompt": f"{label} {row}", "prompt_label": label, "model": model}
        | {f"score_field_{name}": rng.random() < 0.7 for name in "ab"}
        | {"score_right": rng.random() < 0.5, "score_note": "fine"}
        for row in range(20)
        for model in (SMALL, LARGE)
        for label in ("terse", "polite")
    )

    compared = contrast(frame, ["model", "prompt"], ["right", "field_*"])

    assert compared.df["on"].tolist() == ["right", "field_a", "field_b"] * 2
    assert compared.factors == ["model", "prompt_label"]
    assert compared.scores == ["score_right", "score_field_a", "score_field_b"]
    assert all("Corrected for 6 comparisons (Holm)." in said for said in compared.says)
    with pytest.raises(ParameterError, match="the scores are field_a, field_b, right"):
        contrast(frame, "model", "colour_*")
    with pytest.raises(
        ParameterError, match="against must be a dict with the value for each"
    ):
        contrast(frame, ["model", "prompt"], "right", against=SMALL)


@pytest.mark.slow
def test_six_scores_without_a_difference_are_rarely_one() -> None:
    """False alarms of a family are at most 0.05; without correction they are 0.2."""
    rng, n_alarms = np.random.default_rng(4), {"holm": 0, None: 0}
    for _ in range(25):
        scores = {f"score_{name}": [*rng.normal(size=12)] for name in "abcdef"}
        frame = _asked({SMALL: [0.0] * 12}, score="score_z")
        frame = pd.concat([frame, frame.assign(model=LARGE)])
        frame = frame.assign(
            **{
                name: np.concatenate([np.zeros(12), values])
                for name, values in scores.items()
            }
        )
        for correct in n_alarms:
            found = contrast_df(frame, "model", "[a-f]*", correct=correct)
            n_alarms[correct] += int((found["p"] < 0.05).any())

    assert n_alarms["holm"] <= 3 < n_alarms[None]


def test_a_subgroup_with_a_difference_is_not_another_difference() -> None:
    """By language there is a row that tests how far the differences differ."""
    language = ["Thai" if row % 2 else "English" for row in range(80)]
    right = [row % 4 == 3 or row % 8 == 0 for row in range(80)]
    better = [row % 2 == 1 or row % 4 == 0 for row in range(80)]
    frame = _asked({SMALL: right, LARGE: better}, language=language)

    compared = contrast(frame, "model", by="language")

    found = compared.df
    assert found["language"].tolist() == ["English", "Thai", "Thai minus English"]
    assert found["is_between_groups"].tolist() == [False, False, True]
    assert found["difference"].tolist() == pytest.approx([0.25, 0.5, 0.25])
    assert "Thai minus English: 25 points (" in compared.says[2]
    assert compared.says[0].startswith("With language=English, 70b is right more often")
    assert compared.by == ["language"]


def test_the_difference_of_differences_is_welchs() -> None:
    """It is that of SciPy on the differences of each language's rows."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(5)
    low, high = rng.normal(3, 1, 30), rng.normal(4, 1, 30)
    language = ["en"] * 12 + ["th"] * 18
    frame = _asked({SMALL: low, LARGE: high}, score="score_grade", language=language)
    gain = high - low

    row = contrast_df(frame, "model", by="language", correct=None).iloc[2]

    expected = stats.ttest_ind(gain[12:], gain[:12], equal_var=False)
    assert row["p"] == pytest.approx(expected.pvalue)
    assert row[["low", "high"]].tolist() == pytest.approx(
        [*expected.confidence_interval()]
    )


@pytest.mark.parametrize(
    ("n_new", "verdict", "said"),
    [
        (197, "not worse than 3 points", "new is not worse than old by more than 3"),
        (110, "worse", "new is worse than old by more than 3 points"),
        (190, "cannot tell", "Cannot tell yet whether new is worse than old by more"),
    ],
)
def test_a_margin_gives_a_verdict(n_new: int, verdict: str, said: str) -> None:
    """A new model may be at most 3 points worse; p is that of the margin."""
    frame = _asked({"old": _first(200, 220), "new": _first(n_new, 220)})

    compared = contrast(frame, "model", against="old", margin=0.03)

    row = _only(compared)
    assert row["verdict"] == verdict
    assert compared.says[0].startswith(said)
    assert (row["p"] < 0.05) == (verdict != "cannot tell")


def test_more_seconds_are_worse() -> None:
    """For seconds, tokens and cost a margin is how much more they may be."""
    quick = [1.0, 1.1, 0.9, 1.2, 1.0, 0.8]
    frame = _asked(
        {"old": quick, "new": [second + 2 + second / 9 for second in quick]},
        score="latency_s",
    )

    compared = contrast(frame, "model", "latency_s", against="old", margin=0.5)

    assert _only(compared)["verdict"] == "worse"
    assert "new is worse than old in latency_s by more than 0.5" in compared.says[0]


def test_a_margin_needs_what_it_is_worse_than() -> None:
    """Without `against`, and beyond what is possible, it is refused."""
    frame = _asked({"old": _first(30), "new": _first(29)})

    with pytest.raises(ParameterError, match="such as against='old'"):
        contrast(frame, "model", margin=0.03)
    with pytest.raises(ParameterError, match="too large for a rate"):
        contrast(frame, "model", against="old", margin=3)


def test_mistakes_are_weighed_against_what_is_saved() -> None:
    """A cheaper model saves so much, and costs so much more in mistakes."""
    frame = _asked({"dear": _first(38), "cheap": _first(34)})
    frame["cost"] = (
        frame["model"].map({"dear": 0.0007, "cheap": 0.0001}).astype("Float64")
    )

    compared = contrast(frame, "model", mistake_costs=0.011)

    assert (
        "per 1,000 replies, cheap saves 0.60 and costs 1.10 more in mistakes"
        in (compared.says[0])
    )
    row = _only(compared)
    assert row["level"] == "dear"  # it has the higher mean
    assert row["saved_per_1000"] == pytest.approx(-0.6)
    assert row["mistakes_per_1000"] == pytest.approx(-1.1)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ((0.0, 0.7), "8b costs nothing"),
        ((0.7, 0.0), "70b costs nothing"),
        ((0.0, 0.0), "both cost nothing"),
        ((0.001, 0.001049), "70b costs 5 % more"),
        ((1.0, 0.0005), "8b costs 2,000 times as much"),
        ((1.0, 1.001), "both cost the same"),
    ],
)
def test_costs_are_said_as_they_are(costs: tuple[float, float], said: str) -> None:
    """A free model is no error, and 4.9 % is not the same."""
    frame = _asked({SMALL: _first(20), LARGE: _first(30)})
    frame["cost"] = np.repeat(costs, 40)

    assert f"; {said}." in contrast(frame, "model").says[0]


@pytest.fixture
def failed() -> pd.DataFrame:
    """Return a study where one model failed on its first 8 of 40 rows."""
    frame = _asked({SMALL: _first(20), LARGE: _first(24)})
    is_failed = (frame["model"] == LARGE) & (frame["row"] < 8)
    frame["status"] = frame["status"].mask(is_failed, "error")
    frame["score_right"] = frame["score_right"].astype("Float64").mask(is_failed)
    return frame


def test_what_is_missing_is_said_and_can_count(failed: pd.DataFrame) -> None:
    """It is left out, or counts as wrong, or the interval allows for anything."""
    drop, wrong, bounds = (
        contrast(failed, "model", missing=missing)
        for missing in ("drop", "wrong", "bounds")
    )

    assert "Left out: 8 of 40 replies of 70b failed." in drop.says[0]
    assert "Counted as wrong: 8 of 40 replies of 70b failed." in wrong.says[0]
    assert "allows for any value of what is missing: 8 of 40" in bounds.says[0]
    found = pd.concat([drop.df, wrong.df, bounds.df])
    assert found["n_prompts"].tolist() == [32, 40, 40]
    assert found["n_scored"].tolist() == [64, 72, 72]
    assert found["difference"].tolist() == pytest.approx([4 / 32, 4 / 40, 0.0])
    assert found["level"].tolist() == [LARGE, SMALL, LARGE]
    assert found["low"].iloc[2] == -found["high"].iloc[1]  # at worst they are wrong
    assert found["high"].iloc[2] > 4 / 40


def test_different_rows_can_be_compared() -> None:
    """Attributes of rows have no pairs: rates by Newcombe, numbers by Welch."""
    language = ["Thai"] * 15 + ["English"] * 25
    right = [True] * 6 + [False] * 9 + [True] * 20 + [False] * 5
    frame = _asked({SMALL: right}, language=language)

    compared = contrast(frame, "language", paired=False)

    row = _only(compared)
    assert row[["mean", "mean_against"]].tolist() == pytest.approx([0.8, 0.4])
    assert (row["n_prompts"], row["n_scored"]) == (40, 40)
    assert row[["low", "high"]].tolist() == pytest.approx([0.08, 0.63], abs=0.03)
    assert compared.says[0].startswith("language=English is right more often than")
    assert "no row" not in str(compared)


def test_two_wordings_in_two_runs_are_paired_by_row() -> None:
    """Their prompts differ, so the row pairs them."""
    frame = replies(
        {"row": row, "run": run, "prompt": f"{run} {row}", "score_right": row < n_right}
        for run, n_right in (("terse", 10), ("polite", 16))
        for row in range(20)
    )

    compared = contrast(frame, "run", pair_by="row")

    row = _only(compared)
    assert (row["n_prompts"], row["difference"]) == (20, pytest.approx(0.3))
    assert compared.says[0].startswith("polite is right more often than terse")
    assert compared.pair_by == ["row"]
    assert compared.flips().n_pairs == 20


@pytest.mark.parametrize("against", [None, pd.NA])
def test_what_was_not_sent_may_be_the_baseline(against: object) -> None:
    """None and pd.NA are the value that is not sent; left out, all pairs are made."""
    frame = _asked(
        {None: _first(20), 0.2: _first(22), 0.7: _first(30)}, factor="temperature"
    )

    found = contrast_df(frame, "temperature", against=against)

    assert found["level"].tolist() == [0.2, 0.7]
    assert found["against"].isna().all()
    with pytest.raises(ParameterError, match="against=None is not a value of model"):
        contrast(_asked({SMALL: [True], LARGE: [True]}), "model", against=None)


def test_values_that_cannot_be_told_apart_are_tied() -> None:
    """Of three models two are alike; a model may be in two ties."""
    frame = _asked({SMALL: _first(20), MINI: _first(21), LARGE: _first(39)})

    compared = contrast(frame, "model")

    assert [tie.names for tie in compared.tied] == [("1b", "8b")]
    assert "Tied: 1b and 8b cannot be told apart." in compared.notes


def test_an_interaction_is_said_in_the_sentence() -> None:
    """A mean difference near 0 hides that each model is better with one prompt."""
    shares = {("terse", SMALL): 15, ("terse", LARGE): 37}
    shares |= {("polite", SMALL): 36, ("polite", LARGE): 20}
    frame = replies(
        {"row": row, "prompt": f"{label} {row}", "prompt_label": label}
        | {"prompt_template": label, "model": model, "score_right": row < n_right}
        for (label, model), n_right in shares.items()
        for row in range(40)
    )

    (says,) = contrast(frame, "model").says

    assert "But it depends on prompt: 70b minus 8b is" in says
    assert "55 points with terse, -40 points with polite" in says
    assert "the difference is over all values of prompt together." in says


def test_prompts_are_called_what_they_are() -> None:
    """Without rows it is prompts that would tell."""
    frame = _asked({SMALL: _first(20), LARGE: _first(22)}).drop(columns="row")

    assert "a new run with" in (said := contrast(frame, "model").says[0])
    assert "prompts would tell" in said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        ([1800.0, 1850, 1795, 1823], [1850.0, 1902, 1851, 1871], "1,869 against 1,817"),
        ([0.5, 0.6, 0.7, 0.6], [0.5, 0.6, 0.71, 0.602], "0.603 against 0.600, differ"),
    ],
)
def test_numbers_are_written_as_people_do(
    low: list[float], high: list[float], said: str
) -> None:
    """There is no 1.85e+03, and means that differ look different."""
    frame = _asked({SMALL: low, LARGE: high}, score="score_grade")

    assert said in contrast(frame, "model").says[0]


def test_ends_never_contradict_the_value() -> None:
    """Rates that differ are not both 100 %, and an end keeps its sign."""
    frame = _asked({SMALL: _first(199, 200), LARGE: _first(200, 200)})

    (says,) = contrast(frame, "model").says

    assert "100.0 % against 99.5 %, difference 0.5 points (-0.5 to 1.5)" in says


def test_another_level_is_in_the_sentence() -> None:
    """An interval of 0.99 says so, and is wider."""
    frame = _asked({SMALL: _first(20), LARGE: _first(30)})

    usual, wide = contrast(frame, "model"), contrast(frame, "model", level=0.99)

    assert ", 99 %)" in wide.says[0]
    assert _only(wide)["low"] < _only(usual)["low"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"correct": "bonferoni"}, "correct must be 'holm', 'bonferroni' or None"),
        ({"level": 95}, "level must be between 0 and 1, such as 0.95"),
        ({"missing": "zero"}, "missing must be 'drop', 'wrong' or 'bounds'"),
        ({"weight": "rows"}, "weight must be 'prompts' or 'replies'"),
        ({"paired": "no"}, "paired must be True or False"),
        ({"unit": "document"}, "'document' is not a column of the frame"),
        ({"by": "model"}, "model is the factor, so it cannot also be in by"),
        ({"by": "row"}, "makes 40 subgroups; at most 8 .*give unit='row' instead"),
        ({"against": {"prompt": 1}}, "against has a value for prompt, which is not"),
        ({"mistake_costs": -1}, "mistake_costs must be a number > 0"),
        ({"on": "latency_s", "mistake_costs": 1}, "mistake_costs needs a score of"),
        ({"on": "latency_s", "missing": "wrong"}, "counts missing values as 0 or 1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    """Each error says what is allowed."""
    frame = _asked(
        {SMALL: _first(20), LARGE: _first(30)},
        latency_s=[float(row) for row in range(40)],
    )

    with pytest.raises(ParameterError, match=said):
        contrast(frame, "model", options.pop("on", "right"), **options)


def test_tokens_are_no_share_even_if_there_is_one() -> None:
    """Replies of one token each are 1 against 1, not 100 %."""
    frame = _asked({SMALL: _first(8, 10), LARGE: _first(9, 10)})
    frame["completion_tokens"] = pd.array([1] * len(frame), dtype="Int64")

    (says,) = contrast(frame, "model", "completion_tokens").says

    assert says.startswith("No difference in completion_tokens is seen between")
    assert "1 against 1, difference 0;" in says
    assert "%" not in says


def test_intervals_that_may_be_looked_at_are_wider() -> None:
    """They hold the others, p is below 0.05 where 0 is left out, and a note says it."""
    frame = _asked({"old": _first(20), "new": _first(35)})

    once, often = (contrast(frame, "model", looks=looks) for looks in ("one", "any"))

    one, other = _only(once), _only(often)
    assert other["difference"] == one["difference"] == pytest.approx(15 / 40)
    assert other["low"] < one["low"] < one["high"] < other["high"]
    assert (other["p"] < 0.05) == (other["low"] > 0)
    [note] = often.notes
    assert note.startswith("These intervals hold at any number of looks")


def test_a_study_that_goes_on_hears_how_long() -> None:
    """Where it cannot tell yet, the sentence says how many rows in all would."""
    frame = _asked({"old": _first(20), "new": _first(23)})

    [said] = contrast(frame, "model", looks="any").says

    assert "Cannot tell yet whether" in said
    assert "if others are like these, about" in said
    assert "rows in all would tell" in said
    assert "new run" not in said


def test_equal_values_are_never_told_apart() -> None:
    """Rows without any difference say so, with an interval around 0."""
    frame = _asked({"old": _first(20), "new": _first(20)})

    compared = contrast(frame, "model", looks="any")

    assert "so it may be up to 14 points either way" in compared.says[0]
    assert _only(compared)["low"] < 0 < _only(compared)["high"]


def test_too_few_rows_are_too_early_to_say() -> None:
    """Two rows with equal values are no evidence that there is no difference."""
    frame = _asked({"old": [1.0, 1.0], "new": [1.0, 1.0]})

    [said] = contrast(frame, "model").says

    assert said.startswith("Too early to say whether right differs between ")
    assert "at least 3 rows are needed" in said
    assert "o difference" not in said


def test_a_margin_is_ruled_out_at_any_look() -> None:
    """Enough rows without a difference show that one is at most 10 points worse."""
    frame = _asked({"old": ([1.0] * 100), "new": [1.0] * 100})

    compared = contrast(frame, "model", against="old", margin=0.1, looks="any")

    assert _only(compared)["verdict"] == "not worse than 10 points"


def test_numbers_without_bounds_wait_for_twenty_rows() -> None:
    """Before that the sentence says how many rows are the least."""
    values = [float(n) for n in range(30)]
    frame = _asked({"old": values, "new": [2.0 * value for value in values]})

    short = contrast(frame[frame["row"] < 19], "model", looks="any")
    whole = contrast(frame, "model", looks="any")

    assert "at least 20 rows are needed" in short.says[0]
    assert _only(whole)["low"] > 0


@pytest.mark.parametrize(
    "design",
    [
        {"by": "language"},
        {"paired": False},
        {"weight": "replies"},
        {"missing": "bounds"},
    ],
)
def test_what_has_no_such_interval_is_refused(design: dict[str, Any]) -> None:
    """The message names what to leave out."""
    frame = _asked({"old": _first(20), "new": _first(23)})
    frame["language"] = ["th", "en"] * (len(frame) // 2)

    with pytest.raises(ParameterError, match=f"leave {next(iter(design))} out"):
        contrast(frame, "model", looks="any", **design)


def test_units_count_the_same_at_any_look() -> None:
    """A document of ten rows is one step, as is one of a single row."""
    frame = _asked({"old": [0.0] * 11, "new": [1.0] * 10 + [0.0]})
    frame["document"] = (frame["row"] == 10).astype("Int64")

    row = _only(contrast(frame, "model", unit="document", looks="any"))

    assert row["difference"] == 0.5
    assert row["n_units"] == 2


@settings(max_examples=30, deadline=None)
@given(
    n_right=st.lists(st.integers(0, 30), min_size=4, max_size=4),
    against=st.sampled_from([..., "short", "thai"]),
    by=st.sampled_from([None, "model"]),
)
def test_all_texts_have_one_direction(
    n_right: list[int], against: object, by: str | None
) -> None:
    """The parts in a sentence average to its difference, as in chart and frame."""
    frame = _two_prompts_and_models(n_right)

    compared = contrast(frame, "prompt", against=against, by=by)

    df = compared.df
    assert df["difference"].tolist() == [row.amounts[0] for row in compared.drawn]
    assert len({*zip(df["level"], df["against"], strict=True)}) == 1
    subtracted = f"{df['level'].iloc[0]} minus {df['against'].iloc[0]}"
    assert all(subtracted in row.name for row in compared.drawn)
    if against is not ...:
        assert df["against"].iloc[0] == against
    else:
        assert df["difference"][~df["is_between_groups"]].sum() >= -1e-9
    for says, points in zip(compared.says, 100 * df["difference"], strict=True):
        of_all = [float(n) for n in re.findall(r", difference (-?[\d.]+) point", says)]
        assert of_all == pytest.approx([points] * len(of_all), abs=0.51)
        parts = re.findall(r"(-?[\d.]+) points? with ", says)
        if parts:
            assert f"{subtracted} is {parts[0]} point" in says
            assert np.mean([float(n) for n in parts]) == pytest.approx(points, abs=0.51)


def _two_prompts_and_models(n_right: list[int]) -> pd.DataFrame:
    """Return 30 rows with two prompts and two models, so many of each right."""
    settings_of = itertools.product(("thai", "short"), ("large", "small"))
    return replies(
        {"row": row, "prompt": f"{label} {row}", "prompt_label": label}
        | {"prompt_template": label, "model": model, "score_right": row < n}
        for (label, model), n in zip(settings_of, n_right, strict=True)
        for row in range(30)
    )
