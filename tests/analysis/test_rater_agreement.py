"""Raters agree as published examples say, and the interval is over replies."""

import numpy as np
import pytest

from svc_notebook.analysis.rater_agreement import RaterAgreement, rater_agreement

OF_FOUR = ["123321412   ", "1233224125 3", " 3332342251 ", "12332441251 "]


def _agreement(*raters: str, is_text: bool) -> RaterAgreement:
    """Return the agreement of raters, each a text with a character for each unit."""
    rated = [
        (item, f"rater {n}", value if is_text else int(value))
        for n, values in enumerate(raters)
        for item, value in enumerate(values)
        if value != " "
    ]
    agreement = rater_agreement(*zip(*rated, strict=True))
    assert agreement is not None
    return agreement


def test_alpha_of_labels_is_krippendorffs() -> None:
    """Four observers of 12 units: 0.743 (Krippendorff 2011, example C, nominal)."""
    agreement = _agreement(*OF_FOUR, is_text=True)

    assert agreement.alpha == pytest.approx(0.743, abs=5e-4)
    assert (agreement.n_items, agreement.n_raters) == (11, 4)
    assert agreement.low < 0.743 < agreement.high <= 1


def test_alpha_of_numbers_is_krippendorffs() -> None:
    """The same as numbers of a scale: 0.849 (example C, interval)."""
    agreement = _agreement(*OF_FOUR, is_text=False)

    assert agreement.alpha == pytest.approx(0.849, abs=5e-4)


def test_alpha_of_yes_and_no_is_krippendorffs() -> None:
    """Two observers of ten units: 0.095 (Krippendorff 2011, example A)."""
    agreement = _agreement("0100000010", "1110010000", is_text=False)

    assert agreement.alpha == pytest.approx(0.095, abs=5e-4)
    assert agreement.agree == pytest.approx(0.6)
    assert str(agreement) == (
        "2 raters gave 10 replies the same value in 60 % of cases; Krippendorff's "
        "alpha is 0.10 (-0.63 to 0.67)."
    )


def test_alpha_of_one_value_is_not_defined() -> None:
    """If all said the same, chance would have given it, too."""
    agreement = _agreement("1" * 12, "1" * 12, is_text=False)

    assert np.isnan([agreement.alpha, agreement.low, agreement.high]).all()
    assert "always the same one, so alpha is not defined" in agreement.says


def test_few_replies_have_no_interval() -> None:
    """With two, alpha has no interval, and one rater has no agreement."""
    agreement = _agreement("10", "11", is_text=False)

    assert np.isnan([agreement.low, agreement.high]).all()
    assert "(" not in agreement.says
    assert rater_agreement(["a", "b"], ["ann", "ann"], [1, 0]) is None


def test_raters_that_always_agree_have_an_interval() -> None:
    """Twelve replies do not show that they would agree on all others."""
    agreement = _agreement("01" * 6, "01" * 6, is_text=False)

    assert agreement.alpha == agreement.high == 1
    assert 0 < agreement.low < 0.8


def test_the_unit_of_a_scale_does_not_matter() -> None:
    """Ratings of 1 to 5 and of 10 to 50 agree alike, and so do their intervals."""
    items, raters = [*range(12)] * 2, ["ann"] * 12 + ["bob"] * 12
    values = [n % 5 + 1 for n in range(12)] + [(n * 2) % 5 + 1 for n in range(12)]

    agreement = rater_agreement(items, raters, values)
    tenfold = rater_agreement(items, raters, [10 * value for value in values])

    assert agreement is not None
    assert tenfold is not None
    assert tenfold.low == pytest.approx(agreement.low)
    assert tenfold.alpha == pytest.approx(agreement.alpha)
    assert tenfold.high == pytest.approx(agreement.high)
    assert agreement.low < agreement.alpha < agreement.high


def test_the_order_of_ratings_does_not_matter() -> None:
    """Nor what raters and items are called."""
    rated = [(("x", n), f"{who}", n % who) for n in range(12) for who in (2, 3)]

    assert rater_agreement(*zip(*rated, strict=True)) == rater_agreement(
        *zip(*sorted(rated, key=lambda one: (one[0], -int(one[1]))), strict=True)
    )
