"""A comparison is read: sentences, a drawing, costs and flips, as HTML and as text."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.analysis.score_report import score_report
from svc_notebook.display.terminal_width import width
from tests.analysis.make import LARGE, SMALL, replies

ATTACK = '"><script>alert(1)</script>'


def _right(
    rates: dict[str, float],
    n_prompts: int = 40,
    **more: Any,  # noqa: ANN401 - any column
) -> pd.DataFrame:
    """Return models that are right for the first part of the prompts."""
    return replies(
        {
            "row": row,
            "prompt": f"Say {row}",
            "model": model,
            "score_right": row < rate * n_prompts,
            "latency_s": rate + row / 100,
            "text": f"reply {row}",
            "cost": 0.002 if model == LARGE else 0.0005,
            **more,
        }
        for model, rate in rates.items()
        for row in range(n_prompts)
    )


PAIR = _right({SMALL: 0.5, LARGE: 0.9})


def test_a_terminal_gets_all_in_characters() -> None:
    """Sentence, interval on an axis, costs, flips and what to do next."""
    lines = str(svc.contrast(PAIR, "model", on="right")).splitlines()

    assert lines[0].startswith("70b is right more often than 8b: 90 % against 50 %")
    at = lines.index("difference in right")
    assert re.fullmatch(
        r"  70b minus 8b   *│ +├─+●─+┤ +40 points \(\d+ to \d+\)", lines[at + 1]
    )
    assert re.fullmatch(r" +0 +(\d+ +)+points", lines[at + 2])
    assert "1,000 requests cost 8b: 0.5, 70b: 2" in lines
    assert any(
        line.startswith("Only 70b is right in 16 of 40 rows, only 8b in 0")
        for line in lines
    )
    assert max(map(len, lines)) <= 80


def test_what_is_not_clear_is_a_hollow_point() -> None:
    """Its interval crosses the line of no difference."""
    text = str(svc.contrast(_right({SMALL: 0.5, LARGE: 0.55}), "model", on="right"))

    assert re.search(r"├─*┼─*○─*┤ ", text)
    assert "●" not in text


def test_html_is_drawn_without_a_kernel_or_a_script() -> None:
    """Drawings are inline SVG in the colours of the host, and say their numbers."""
    html = svc.contrast(PAIR, "model", on="right")._repr_mimebundle_()["text/html"]

    assert html.count("<svg") == 1
    assert re.search(r'aria-label="70b minus 8b: 40 points \(\d+ to \d+\)"', html)
    assert "currentColor" in html
    assert "Only 70b is right: 16 rows" in html
    assert "<script" not in html
    assert "http" not in html


@pytest.mark.slow
def test_a_large_family_stays_readable() -> None:
    """Of 28 comparisons the clear ones are shown first; the rest is counted."""
    rates = {f"m{n}": 0.5 + (n == 7) * 0.45 for n in range(8)}
    compared = svc.contrast(_right(rates), "model", on="right")

    text = str(compared)
    html = compared._repr_mimebundle_()["text/html"]

    assert "(22 more sentences are in .says)" in text
    assert "16 more comparisons are in .df" in text
    assert text.count("●") == 7
    assert len(text.splitlines()) < 50
    assert html.count("<svg") == 28
    assert "<summary" in html
    assert "22 more sentences" in html


def test_many_rows_are_folded_below_a_line_that_counts_them() -> None:
    """Sentences and drawing stay together; up to 4 rows are shown at once."""
    few, many = (
        svc.contrast(
            _right({SMALL: 0.5, LARGE: 0.5 + n / 40}), "model", on="right"
        )._repr_mimebundle_()["text/html"]
        for n in (4, 5)
    )

    assert "<details>" not in few
    assert few.count("row: ") == 4
    head, _, folded = many.partition("<details>")
    assert "Only 70b is right in 5 of 40 rows, only 8b in 0" in head
    assert "row: " not in head
    assert re.search("<summary[^>]*>Only 70b is right: 5 rows</summary>", folded)
    assert folded.partition("</details>")[0].count("row: ") == 5


def test_rows_that_are_asked_for_are_not_folded() -> None:
    """`flips` shows them all at once."""
    flips = svc.contrast(PAIR, "model", on="right").flips()

    html = flips._repr_mimebundle_()["text/html"]

    assert "<details>" not in html
    assert html.count("row: ") == 10


def test_a_condition_whose_replies_all_failed_has_no_replies() -> None:
    """The chart of a run names it without a number."""
    is_failed = PAIR["model"] == LARGE
    frame = PAIR.assign(
        score_right=PAIR["score_right"].astype("boolean").mask(is_failed)
    )

    failed, unscored = (
        score_report(df, ["right"])
        for df in (frame.assign(status=np.where(is_failed, "error", "ok")), frame)
    )

    assert failed is not None
    assert unscored is not None
    assert "70b no replies" in failed.text()
    assert ">no replies<" in failed.html()
    assert "nan" not in failed.text()
    assert "70b no value" in unscored.text()


@pytest.mark.slow
def test_a_margin_is_a_band() -> None:
    """It lies around no difference, below the interval; its verdict fills the point."""
    compared = svc.contrast(PAIR, "model", on="right", against=SMALL, margin=0.03)

    html = compared._repr_mimebundle_()["text/html"]
    assert re.search(r"░+│░+ +├─+●─+┤", str(compared))
    assert html.count("<rect") == 1
    assert "not worse" in html


def test_subgroups_are_named_on_the_axis() -> None:
    """Each has a line, and so has the difference of their differences."""
    frame = _right({SMALL: 0.5, LARGE: 0.9})
    frame.insert(0, "language", ["ไทย" if row % 2 else "en" for row in frame["row"]])

    text = str(svc.contrast(frame, "model", on="right", by="language"))

    names = re.findall(r"^  (\S.*: 70b minus 8b)", text, re.MULTILINE)
    assert names == [
        "en: 70b minus 8b",
        "ไทย: 70b minus 8b",
        "ไทย minus en: 70b minus 8b",
    ]


def test_each_score_has_its_result_over_all_before_the_subgroups() -> None:
    """Of subgroups only what is clear is said, and whether nothing is."""
    frame = _right({SMALL: 0.5, LARGE: 0.9}, n_prompts=20)
    is_short = (frame["model"] == SMALL) | (frame["row"] % 2 == 0)
    frame["score_short"] = is_short.astype("boolean")
    frame.insert(0, "topic", [f"topic {row % 4}" for row in frame["row"]])

    compared = svc.contrast(frame, "model", on=["right", "short"], by="topic")

    overall = svc.contrast(frame, "model", on=["right", "short"])
    assert compared.overall is not None
    assert compared.overall.says == overall.says
    says, after, *_ = str(compared).split("\n\n")
    lines = " ".join(says.split())
    first, second = ("70b is right more often", "short is true more often for 8b")
    assert lines.index(first) < lines.index(second)
    assert "difference between values of topic" in " ".join(after.split())
    assert "cannot tell yet" not in str(compared).lower()


def test_a_difference_of_differences_is_explained() -> None:
    """Of shares it reaches from -200 to 200 points, which surprises readers."""
    frame = _right({SMALL: 0.5, LARGE: 0.9}, n_prompts=8)
    frame.insert(0, "topic", [f"topic {row % 2}" for row in frame["row"]])

    notes = svc.contrast(frame, "model", on="right", by="topic").notes
    without = svc.contrast(frame, "model", on="right").notes

    assert any("may be up to 200 points" in note for note in notes)
    assert not any("200 points" in note for note in without)


@pytest.mark.slow
def test_flips_of_subgroups_say_that_they_are_of_all() -> None:
    """The rows below a comparison by language are those of every language."""
    frame = _right({SMALL: 0.5, LARGE: 0.9})
    frame.insert(0, "language", ["th" if row % 2 else "en" for row in frame["row"]])

    compared = svc.contrast(frame, "model", on="right", by="language")

    says = "Over all values of language: only 70b is right in 16 of 40 rows"
    assert compared.flips().says.startswith(says)


def test_what_applies_to_all_comparisons_is_said_once() -> None:
    """What is left out and the correction follow the sentences; each row has both."""
    frame = _right({SMALL: 0.5, LARGE: 0.9}).assign(score_polite=True)
    is_failed = (frame["model"] == LARGE) & (frame["row"] < 4)
    scores = ["score_right", "score_polite"]
    frame[scores] = frame[scores].astype("boolean")
    frame.loc[is_failed, scores] = pd.NA
    frame.loc[is_failed, "status"] = "error"

    compared = svc.contrast(frame, "model", on=["right", "polite"])

    shown = " ".join(str(compared).split())
    html = compared._repr_mimebundle_()["text/html"]
    for remark in (
        "Left out: 4 of 40 replies of 70b failed.",
        "Corrected for 2 comparisons (Holm).",
    ):
        assert [shown.count(remark), html.count(remark)] == [1, 1]
        assert compared.df["says"].str.contains(remark, regex=False).all()


def test_what_applies_to_some_comparisons_stays_with_them() -> None:
    """The small model failed more often in one language than in the other."""
    frame = _right({SMALL: 0.5, LARGE: 0.9})
    frame.insert(0, "language", ["th" if row % 2 else "en" for row in frame["row"]])
    is_failed = (frame["model"] == SMALL) & frame["row"].isin([0, 1, 3])
    frame["score_right"] = frame["score_right"].astype("boolean")
    frame.loc[is_failed, "score_right"] = pd.NA
    frame.loc[is_failed, "status"] = "error"

    shown = " ".join(str(svc.contrast(frame, "model", by="language")).split())

    assert "Left out: 1 of 20 replies of 8b failed." in shown
    assert "Left out: 2 of 20 replies of 8b failed." in shown


def test_each_kind_of_number_has_its_axis() -> None:
    """Two scores are drawn apart, and so are two factors on the same axis."""
    frame = pd.concat(
        [
            _right({SMALL: 0.5, LARGE: rate}, temperature=temperature)
            for temperature, rate in ((0.0, 0.9), (1.0, 0.8))
        ]
    )

    compared = svc.contrast(frame, ["model", "temperature"], on=["right", "latency_s"])

    lines = str(compared).splitlines()
    titles = [line for line in lines if line.startswith("difference in ")]
    assert titles == [
        "difference in right by model",
        "difference in right by temperature",
        "difference in latency_s by model",
        "difference in latency_s by temperature",
    ]
    assert sum(line.endswith("points") for line in lines) == 1


def test_scores_that_are_no_shares_have_no_points_and_no_flips() -> None:
    """Seconds differ in every row, so that rows say nothing."""
    text = str(svc.contrast(PAIR, "model", on="latency_s"))

    assert "points" not in text
    assert "higher" not in text.split("difference in latency_s\n")[1]


def test_without_scipy_there_are_points_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences are worth seeing without their intervals."""
    monkeypatch.setitem(__import__("sys").modules, "scipy.special", None)

    text = str(svc.contrast(PAIR, "model", on="right"))

    assert re.search(r"70b minus 8b +│ +○ +40 points\n", text)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(
        st.text(alphabet="abก็ำ漢-/<\x1b \u202e", min_size=1, max_size=60),
        min_size=2,
        max_size=3,
        unique_by=lambda name: name.strip(),
    )
)
def test_any_name_fits_a_terminal_of_80_columns(names: list[str]) -> None:
    """Long names, Thai marks and control characters break no line of the drawing."""
    rates = dict(zip(names, np.linspace(0.2, 0.9, len(names)), strict=True))
    text = str(svc.contrast(_right(rates, n_prompts=4), "model", on="right"))

    drawn = text.split("\n\n")[1]
    assert max(map(width, drawn.splitlines())) <= 80
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_hostile_names_are_texts() -> None:
    """Names of models and of scores are escaped wherever they are shown."""
    frame = _right({SMALL + ATTACK: 0.5, LARGE: 0.9}).rename(
        columns={"score_right": f"score_{ATTACK}"}
    )

    html = svc.contrast(frame, "model", on=ATTACK)._repr_mimebundle_()["text/html"]

    assert "<script" not in html
    assert html.count('"><') == html.count('"><rect') + len(
        re.findall('"><(?!r)', html)
    )


@pytest.mark.slow
def test_a_plot_has_points_intervals_and_the_line() -> None:
    """Differences of a rate are in points; a filled point is clear."""
    chart = svc.contrast(PAIR, "model", on="right").plot()

    spec = chart._repr_mimebundle_()[0]["application/vnd.vegalite.v5+json"]
    [row] = (
        spec["data"]["values"]
        if "values" in spec["data"]
        else next(iter(spec["datasets"].values()))
    )
    assert (row["group"], row["value"], row["clear"]) == ("70b minus 8b", 40.0, True)
    assert str(chart).startswith("difference in right: 70b minus 8b: 40 points (")


def test_a_drawing_has_the_direction_of_its_sentence() -> None:
    """A pair has one direction in all subgroups; there it may be less often right."""
    rates = {("en", SMALL): 0.9, ("en", LARGE): 0.5, ("th", SMALL): 0.5}
    frame = _right({SMALL: 0.5, LARGE: 0.5}, n_prompts=80)
    languages = ["en" if row < 40 else "th" for row in frame["row"]]
    cells = zip(languages, frame["model"], frame["row"] % 40, strict=True)
    frame["score_right"] = [
        row < 40 * rates.get((language, model), 0.8) for language, model, row in cells
    ]
    frame.insert(0, "language", languages)

    compared = svc.contrast(frame, "model", by="language")

    assert [one.name for one in compared.drawn] == [
        "en: 8b minus 70b",
        "th: 8b minus 70b",
        "en minus th: 8b minus 70b",
    ]
    assert [one.amounts[0] > 0 for one in compared.drawn] == [True, False, True]
    assert "8b is right more often than 70b" in compared.says[0]
    assert "8b is right less often than 70b" in compared.says[1]
    said = re.search(r"en minus th: (\d+ points \([^)]*\))", compared.says[2])
    assert said is not None
    assert f"en minus th: 8b minus 70b  {said[1]}" in re.sub(
        r"\s*[│├─┼○●┤]+(?: *[│├─┼○●┤]+)* +", "  ", str(compared)
    )


def test_a_margin_keeps_the_direction() -> None:
    """What is new is compared with what it shall not be worse than."""
    compared = svc.contrast(PAIR, "model", against=LARGE, margin=0.03)

    assert compared.drawn[0].name == "8b minus 70b"
    assert compared.drawn[0].amounts[0] == pytest.approx(-0.4)
