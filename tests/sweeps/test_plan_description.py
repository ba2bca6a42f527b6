"""A run in words: its plan, its progress, its outcome and its errors."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.session import Session
from svc_notebook.sweeps.estimate import estimate_of
from svc_notebook.sweeps.grid import Grid
from svc_notebook.sweeps.plan import build_grid
from svc_notebook.sweeps.plan_description import (
    Line,
    plan_lines,
)
from svc_notebook.sweeps.run import plan_run
from tests.sweeps.world import priced_run

SMALL = "svc-v2-8b-instruct"


def _planned(grid: Grid, prices: Prices | None = None) -> list[Line]:
    return plan_lines(grid, size=estimate_of(grid, prices=prices))


def _notes(grid: Grid) -> str:
    return " ".join(text for label, text in _planned(grid) if label == "note")


def test_says_what_it_may_cost() -> None:
    """With prices there is an interval; models without a price are left out of it."""
    price = Price(prompt=3_000_000.0, completion=1_000_000.0)
    prices = Prices(
        models={SMALL: price}, currency="USD", as_of=date(2026, 1, 31), source="mine"
    )
    grid = build_grid("Hi", varied={"model": SMALL, "max_tokens": 10})
    both, neither = (
        build_grid("Hi", varied={"model": models, "max_tokens": 10})
        for models in ([SMALL, "svc-instruct"], ["svc-instruct"])
    )

    costs = [dict(_planned(plan, prices))["cost"] for plan in (grid, both, neither)]

    by_prices = "by your prices (mine, 2026-01-31)"
    assert costs == [
        f"6 to 37 USD, {by_prices}",
        f"6 to 37 USD without svc-instruct, whose price is unknown, {by_prices}",
        "unknown: your price table has no price for svc-instruct",
    ]
    assert "cost" not in dict(_planned(grid))


def test_says_what_may_not_fit() -> None:
    """Requests whose prompt and max_tokens exceed the budget are counted."""
    varied = {"model": SMALL, "max_tokens": [10, 8192]}
    words = _notes(build_grid("p", varied=varied))

    assert "1 may not fit" in words
    assert "8,192" in words
    assert "is not set" not in words


OpenSession = Callable[[Emulator], Session]
LARGE = "svc-v2-70b-instruct"
PRICE = Price(prompt=1.0, completion=2.0)
PRICES = Prices(
    models={SMALL: PRICE, LARGE: PRICE},
    currency="USD",
    as_of=date(2026, 1, 31),
    source="mine",
)


def _scripted(*entries: dict[str, Any]) -> Emulator:
    return Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=list(entries)
    )


def test_a_plan_is_whole_in_a_terminal(session: Session) -> None:
    """A plan shows requests, tokens, cost, duration with its limit, and warnings."""
    run = priced_run(
        session,
        PRICES,
        "Sum up: {{text}}",
        rows=[{"text": f"text {number}", "of": 1} for number in range(50)],
        model=[SMALL, LARGE],
        temperature=[0, 0.7],
        name="sums",
    )

    lines = str(run).splitlines()
    labels = [line.split()[0] for line in lines[1:-1] if line[2] != " "]
    assert lines[0] == "Run sums: 200 requests planned, nothing sent yet."
    assert labels == [
        *("trials", "rows", "prompt", "model", "temperature"),
        *("tokens", "cost", "time", "note", "note"),
    ]
    assert {line.index(line.split()[1]) for line in lines[1:6]} == {15}
    assert max(map(len, lines)) <= 80
    assert lines[-1] == ".run() sends them"


@pytest.mark.slow
def test_a_running_run_is_described_briefly(open_session: OpenSession) -> None:
    """While it is running, a run shows its progress and what can be done."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as emulator:
        run = plan_run(open_session(emulator), list("abcd"), model=SMALL)
        run.in_flight = 1
        run.pause().start().pause()

        paused = str(run)
        run.resume()
        on = str(run)
        run.wait()

    assert paused.splitlines()[-1] == "paused; .resume() continues, .cancel() stops it"
    assert on.splitlines()[-1].startswith("running; .pause()")
    assert "prompt" not in paused
    assert str(run).splitlines()[-1] == ".replies_df(), .summary_df(), .compare()"
    assert "tokens" not in on


def test_a_plan_names_columns_that_are_there_twice(session: Session) -> None:
    """A plan says under which name the second one is kept."""
    rows = pd.DataFrame([["a", "b", "c"]], columns=["x", "x", "y"])

    run = plan_run(session, "T {{y}}", rows=rows)

    assert "1 (x, var_x, y), the second x as var_x" in str(run)


def test_reasons_are_printed_if_all_requests_failed(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without any reply ends with one line for each error, counted."""
    refused = {"status": 400, "error": {"message": "No, never."}, "times": None}
    only_b = {**refused, "error": {"message": "Not b."}, "when": {"contains": "b"}}
    with _scripted(only_b, refused) as emulator:
        run = plan_run(open_session(emulator), ["a", "b", "c"]).run()

    said = capsys.readouterr().err.splitlines()
    assert said[0] == "No request succeeded; 3 failed:"
    assert said[1].startswith("  2 x BadRequestError (400): ")
    assert "No, never." in said[1]
    assert said[2].startswith("  1 x BadRequestError (400): ")
    assert "Not b." in said[2]
    assert said[3] == "Fix this in a new plan."
    assert " ".join(said[1].split()) in " ".join(str(run).split())


def test_a_service_cannot_write_into_the_terminal(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an error says is shown, and obeyed by nothing."""
    refused = {"status": 400, "error": {"message": "\x1b[2J<b>x</b>"}, "times": None}
    with _scripted(refused) as emulator:
        run = plan_run(open_session(emulator), "a").run()

    assert "\x1b" not in capsys.readouterr().err
    assert "\x1b" not in str(run)
    assert "<b>" not in run._repr_mimebundle_()["text/html"]


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """Give a shell, and take it away again."""
    config = Config(HistoryManager={"enabled": False})
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("word", ["word ", "คำ"])
def test_a_prompt_is_shown_whole_or_cut_outside_of_its_placeholders(word: str) -> None:
    """Some lines of text fit; of a longer one, no `{{name}}` is cut in two."""
    mark = "{{the_name_of_a_column}}"
    whole = f"{word * 30}{mark}"
    longer = f"{word * (270 // len(word))}{mark}{word * 90}"
    rows = [{"the_name_of_a_column": "x"}]

    shown, cut = (
        dict(_planned(build_grid(prompt, varied={"model": SMALL}, rows=rows)))["prompt"]
        for prompt in (whole, longer)
    )

    assert shown == f"`{whole}`"
    assert cut.endswith(f"{word.strip()} ...`")
    assert len(cut) <= 302
    assert "{" not in cut or mark in cut


def test_a_whole_number_is_shown_without_a_point(session: Session) -> None:
    """A temperature of 0.0, as a judge has it, looks like the 0 that users write."""
    plans = [plan_run(session, "Say hi.", temperature=heat) for heat in (0.0, 0)]

    lines = [
        line for plan in plans for line in repr(plan).split("\n") if "temper" in line
    ]
    assert len(lines) == 2
    assert lines[0] == lines[1]
