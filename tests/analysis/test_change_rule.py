"""When a measure has changed since a run, and when it is as before."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.analysis.change_rule import (
    ChangeRule,
    CheckedReplies,
    change_of,
    of_means,
    of_texts,
    share_of_level,
)

RULE = ChangeRule(margin=0.05, tail=0.025)


def checked(*replies: tuple[int, int, float]) -> CheckedReplies:
    """Return replies, each with its check, its row and its value."""
    check, row, value = zip(*replies, strict=True)
    rows = np.array(row)
    return CheckedReplies(
        np.array(check), rows, rows, rows, np.array(value, dtype=float)
    )


def test_all_checks_share_the_level() -> None:
    """However many checks there will be, their shares are at most 1 in all."""
    total = sum(map(share_of_level, range(1, 10_000)))

    assert 0.9999 < total <= 1


def test_a_row_that_is_sent_again_is_no_further_unit() -> None:
    """Its replies are averaged, before and after."""
    replies = [(0, 0, 1), (0, 0, 0), (0, 1, 1), (1, 0, 0), (2, 0, 0), (2, 1, 1)]

    assert of_means(checked(*replies), 1).units.tolist() == [-0.5, 0.0]
    assert of_means(checked(*replies), 2).units.tolist() == pytest.approx([-1 / 3, 0])


def test_rows_without_a_newer_reply_do_not_count() -> None:
    """Nor do those without a value."""
    replies = [(0, 0, 1), (0, 1, 1), (0, 2, 1), (1, 0, 0), (1, 1, np.nan)]

    assert of_means(checked(*replies), 1).units.tolist() == [-1.0]


def test_texts_are_compared_with_how_often_repeats_differ() -> None:
    """Repeats that differ anyway say nothing of a change."""
    same, differing = [(0, 0, 1), (0, 0, 1)], [(0, 1, 1), (0, 1, 2)]
    newer = [(1, 0, 3), (1, 1, 3)]

    gaps = of_texts(checked(*same, *differing, *newer), 1)

    assert gaps.units.tolist() == [1.0, 0.0]
    assert not gaps.is_bound


def test_without_repeats_texts_never_change() -> None:
    """What is known is only the most by which they can differ more."""
    replies = [(check, row, check) for check in (0, 1) for row in range(200)]
    rule = ChangeRule(margin=0.05, tail=0.025, is_one_sided=True, gaps=of_texts)

    change = change_of(checked(*replies), rule)

    assert change.is_bound
    assert change.verdict == "cannot tell"


def test_a_late_change_is_dated() -> None:
    """Many checks without a change do not hide one that comes later."""
    rows, order = 200, np.random.default_rng(1).permutation(200)
    replies = [(0, row, 1.0) for row in range(rows)]
    for number in range(1, 21):
        sent = order[np.arange(40 * number, 40 * number + 40) % rows]
        is_worse = number >= 18
        replies += [
            (number, int(row), float(not (is_worse and row % 5 == 0))) for row in sent
        ]

    change = change_of(checked(*replies), RULE)

    assert change.verdict == "changed"
    assert 16 <= change.start <= 19


@pytest.mark.slow
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60))
def test_equal_replies_are_never_a_change(values: Sequence[float]) -> None:
    """The interval has 0 in it, and more rows would tell."""
    replies = [(check, row, x) for check in (0, 1) for row, x in enumerate(values)]

    change = change_of(checked(*replies), RULE)

    low, high = change.interval
    assert low < 0 < high
    assert change.verdict != "changed"
    assert change.n_would_tell > 60
