"""A plan in words."""

from collections import Counter
from datetime import date
from typing import Any

import pytest

from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.sweeps.describe import (
    Line,
    duration,
    duration_lines,
    forecast,
    headline,
    plan_lines,
    size_of,
)
from svc_notebook.sweeps.grid import Grid
from svc_notebook.sweeps.plan import build_grid

SMALL = "svc-v2-8b-instruct"
DEFAULT_NOTE = (
    "max_tokens is not set: the service's default of 150 applies and cuts longer "
    "replies"
)


def _planned(grid: Grid, prices: Prices | None = None) -> list[Line]:
    return plan_lines(grid, size=size_of(grid, prices=prices))


def _notes(grid: Grid) -> str:
    return " ".join(text for label, text in _planned(grid) if label == "note")


def test_says_what_will_be_asked() -> None:
    """A plan names what varies, its size, and what the service's default will do."""
    varied: dict[str, Any] = {
        "model": [SMALL, "svc-instruct"],
        "temperature": [0, None],
        "stop": ["a", "b"],
    }
    grid = build_grid("Say\n`hi`.", varied=varied, repeats=2)

    assert _planned(grid) == [
        ("trials", "model (2) x temperature (2) x repeats (2)"),
        ("prompt", "`` Say `hi`. ``"),
        ("model", "`svc-v2-8b-instruct`, `svc-instruct`"),
        ("temperature", "`0`, not sent"),
        ("stop", "`['a', 'b']`"),
        ("repeats", "2"),
        (
            "tokens",
            "26 to 80 in prompts (estimated), 0 to 1,200 in replies (by max_tokens)",
        ),
        ("time", "unknown for svc-instruct: no limit is documented"),
        ("note", DEFAULT_NOTE),
    ]


def test_says_what_it_may_cost() -> None:
    """With prices there is an interval; a model without a price is named."""
    price = Price(prompt=3_000_000.0, completion=1_000_000.0)
    prices = Prices(
        models={SMALL: price}, currency="USD", as_of=date(2026, 1, 31), source="mine"
    )
    grid = build_grid("Hi", varied={"model": SMALL, "max_tokens": 10})
    other = build_grid("Hi", varied={"model": [SMALL, "svc-instruct"]})

    costs = [dict(_planned(each, prices))["cost"] for each in (grid, other)]

    assert costs == [
        "5 to 25 USD, by your prices (mine, 2026-01-31)",
        "unknown: your price table has no price for svc-instruct",
    ]
    assert "cost" not in dict(_planned(grid))


def test_says_how_many_use_the_default() -> None:
    """Where max_tokens is set for some only, the others are counted."""
    varied = {"model": SMALL, "max_tokens": [None, 500]}
    words = _notes(build_grid("p", varied=varied))

    assert "max_tokens is not set for 1 of 2 requests" in words


def test_says_what_may_not_fit() -> None:
    """Requests whose prompt and max_tokens exceed the budget are counted."""
    varied = {"model": SMALL, "max_tokens": [10, 8192]}
    words = _notes(build_grid("p", varied=varied))

    assert "1 may not fit" in words
    assert "8192" in words
    assert "is not set" not in words


def test_shortens_what_is_long() -> None:
    """Long texts and long lists are named by their beginning."""
    prompts = ["long " * 50, *(str(number) for number in range(9))]
    words = dict(_planned(build_grid(prompts, varied={"model": SMALL})))

    assert words["prompt"] == (
        "`long long long long long long long lo...`, `0`, `1`, `2`, `3`, `4` and 4 more"
    )


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["ok", "ok", "ok"], "3 requests: 3 ok."),
        (["ok", "error", "not_run"], "3 requests: 1 ok, 1 failed, 1 not run."),
        (["cancelled"] * 3, "3 requests: 0 ok, 3 interrupted."),
    ],
)
def test_says_what_became_of_them(statuses: list[str], expected: str) -> None:
    """After a run the first line counts what came of it."""
    grid = build_grid("p", varied={"model": SMALL}, repeats=3)

    assert headline(grid, Counter(statuses), is_begun=True) == expected


def test_one_is_one_request() -> None:
    """One request is not called several."""
    grid = build_grid("p", varied={"model": SMALL})

    assert headline(grid, {}, is_begun=False) == "1 request planned, nothing sent yet."


@pytest.mark.parametrize(
    ("model", "n_requests", "expected"),
    [
        (SMALL, 5, []),
        (SMALL, 6, ["about 1 s until", "per-second limit of svc-v2-8b-instruct"]),
        (SMALL, 50, ["about 10 s until", "per-second limit of svc-v2-8b-instruct"]),
        (SMALL, 51, ["about 60 s until", "per-minute limit of svc-v2-8b-instruct"]),
        (
            SMALL,
            200,
            ["about 3 min 10 s until", "per-minute limit of svc-v2-8b-instruct"],
        ),
        ("svc-v1.5-instruct", 150, ["about 8 s until", "per-second limit"]),
        ("svc-instruct", 1000, ["unknown for svc-instruct"]),
    ],
)
def test_knows_what_the_limits_make_of_it(
    model: str, n_requests: int, expected: list[str]
) -> None:
    """The documented limits say when the last goes; no limit is invented."""
    grid = build_grid("p", varied={"model": model}, repeats=n_requests)

    [line] = duration_lines(forecast(grid.n_by_model)) or [""]

    assert [each for each in expected if each not in line] == []
    assert bool(line) is bool(expected)


@pytest.mark.parametrize(
    ("length_s", "expected"),
    [(0, "0 s"), (119.4, "119 s"), (190, "3 min 10 s"), (7300, "2 h 2 min")],
)
def test_says_lengths_for_people(length_s: float, expected: str) -> None:
    """A length of time is said in the units that people use for it."""
    assert duration(length_s) == expected
