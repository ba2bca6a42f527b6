"""The page of this folder is what the tests say."""

from collections import Counter

import pytest

from tests.faults.page import PATH, page
from tests.faults.tables import CASES


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    """README.md of this folder is what `python -m tests.faults.page` writes."""
    assert PATH.read_text("utf-8") == page()


def test_each_fault_has_its_own_line() -> None:
    """No two cases of a section have the same name."""
    counts = Counter((case.section, case.fault) for case in CASES)

    assert [name for name, n in counts.items() if n > 1] == []
    assert len(CASES) >= 156
