"""The simulated studies of the benchmark, a few of each, and the page with them."""

import re
from pathlib import Path

import pytest

from tests.benchmarks.coverage_bench import STUDIES, of_study

PAGE = Path(__file__).parents[2] / "notebooks" / "statistics.md"
N_RUNS = 40  # 0.95 is seen as less than 0.8, or 0.05 as more than 0.2, once in 2000


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in STUDIES if not name.startswith("the same")]
)
def test_studies_are_right_as_often_as_they_say(name: str) -> None:
    """With 20 rows, few intervals miss the truth, and few alarms are false."""
    meant = float(STUDIES[name][0])

    seen = of_study(name, 20, N_RUNS)

    assert abs(seen - meant) <= 0.15


def test_the_page_has_every_study() -> None:
    """The table of the page is that of the benchmark."""
    rows = re.findall(
        r"^\| (.+?) \| (0\.\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE
    )

    assert rows == [(name, meant) for name, (meant, _) in STUDIES.items()]
