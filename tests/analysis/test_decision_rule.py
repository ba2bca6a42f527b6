"""When a question ends, and with which value."""

from math import nan

from svc_notebook.analysis.stopping_rule import IsAbove, chosen, unbeaten

MEANS = {0: 0.8, 1: 0.7, 2: 0.6}
CHEAPER = {0: 1.0, 1: 0.1, 2: 0.1}
NO_COSTS = {0: nan, 1: nan, 2: nan}


def lows(**ends: float) -> IsAbove:
    """Return what is certain by the low ends of differences, such as `_0_1`."""
    return lambda one, other, null: ends.get(f"_{one}_{other}", -1.0) > null


def test_a_value_that_another_one_beats_is_no_longer_asked() -> None:
    """Only what is clearly worse drops out; what may be equal stays."""
    is_above = lows(_0_2=0.01, _0_1=-0.02, _1_2=-0.05)

    assert unbeaten([0, 1, 2], is_above) == [0, 1]


def test_the_last_value_is_chosen() -> None:
    """One that is left has beaten the others, also without a margin."""
    value = chosen([0], lows(), margin=None, costs=CHEAPER, means=MEANS)

    assert value == 0


def test_a_cheaper_value_is_chosen_if_it_is_not_much_worse() -> None:
    """It may be worse by less than the margin."""
    is_above = lows(_1_0=-0.029, _0_1=-0.01)

    value = chosen([0, 1], is_above, margin=0.03, costs=CHEAPER, means=MEANS)

    assert value == 1


def test_a_dear_value_waits_until_a_cheaper_one_is_out() -> None:
    """That it is not much worse is no reason to pay more for it."""
    is_above = lows(_0_1=-0.01, _1_0=-0.08)

    assert chosen([0, 1], is_above, margin=0.03, costs=CHEAPER, means=MEANS) is None


def test_without_costs_the_better_of_what_would_do_is_chosen() -> None:
    """Where nothing is known of costs, or they are equal, scores decide."""
    is_above = lows(_0_1=-0.01, _1_0=-0.02)

    for costs in (NO_COSTS, {0: 1.0, 1: 1.004}):
        value = chosen([0, 1], is_above, margin=0.03, costs=costs, means=MEANS)
        assert value == 0


def test_an_unknown_cost_is_not_the_lowest() -> None:
    """A value with a known cost is chosen, also if the other one has a better mean."""
    is_above = lows(_0_1=-0.01, _1_0=-0.02)
    costs = {0: nan, 1: 1.0}

    assert chosen([0, 1], is_above, margin=0.03, costs=costs, means=MEANS) == 1


def test_without_a_margin_nothing_but_a_winner_ends_it() -> None:
    """Values that may be equal cannot be decided about."""
    is_above = lows(_0_1=-0.001, _1_0=-0.001)

    assert chosen([0, 1], is_above, margin=None, costs=CHEAPER, means=MEANS) is None
