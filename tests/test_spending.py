"""A limit on tokens or cost: it holds for whatever asks, and loses nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import svc_notebook as svc
import svc_notebook.pandas
from svc_notebook.magics.use_and_login import describe
from svc_notebook.session import current, isolated

PRICES = """\
as_of = 2026-01-31
currency = "USD"
[models."svc-v2-8b-instruct"]
prompt = 1000000
completion = 1000000
"""


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    with isolated():
        svc.use(endpoint=svc.Emulator(tokens_per_s=None, first_token_s=0))
        yield


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """A price table in which each token costs 1."""
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    return path


def _n_asked() -> int:
    return len(svc.replies_df())


@pytest.mark.slow
def test_refuses_once_the_limit_is_reached() -> None:
    """The reply that reaches the limit comes; the next request is not sent."""
    svc.use(max_tokens_total=1)
    svc.complete("Say hello.")

    with pytest.raises(
        svc.errors.SpendingLimitError, match="of 1 tokens are used"
    ) as caught:
        svc.complete("Say hello again.")

    assert _n_asked() == 1
    assert "svc.use(max_tokens_total=...)" in str(caught.value)


@pytest.mark.slow
def test_setting_it_again_counts_from_0() -> None:
    """A new limit lets requests through again."""
    svc.use(max_tokens_total=1)
    svc.complete("Say hello.")
    svc.use(max_tokens_total=1)

    svc.complete("Say hello again.")

    assert _n_asked() == 2


@pytest.mark.slow
def test_infinity_removes_it() -> None:
    """Without a limit nothing is refused, and nothing is said."""
    svc.use(max_tokens_total=1)
    svc.complete("Say hello.")
    svc.use(max_tokens_total=float("inf"))

    svc.complete("Say hello again.")

    assert "spent" not in describe(current())


@pytest.mark.slow
def test_holds_for_streams() -> None:
    """A stream is refused at the call; its estimated tokens count."""
    svc.use(max_tokens_total=1)
    for _ in svc.stream("Say hello."):
        pass

    with pytest.raises(svc.errors.SpendingLimitError):
        svc.stream("Say hello again.")


@pytest.mark.slow
def test_holds_for_clients() -> None:
    """A client that was made before the limit keeps it, too."""

    async def ask() -> None:
        async with svc.AsyncClient() as client:
            svc.use(max_tokens_total=1)
            await client.complete("Say hello.")
            await client.complete("Say hello again.")

    with pytest.raises(svc.errors.SpendingLimitError):
        asyncio.run(ask())

    assert _n_asked() == 1


@pytest.mark.slow
def test_stops_a_sweep_that_goes_on_later() -> None:
    """The trials that were not sent are sent after the limit is set again."""
    run = svc.sweep("Say {{text}}.", rows=["a", "b", "c", "d"])
    run.in_flight = 1
    svc.use(max_tokens_total=1)

    with pytest.raises(svc.errors.SpendingLimitError):
        run.run()

    status = run.replies_df()["status"].tolist()
    assert sorted(status) == ["not_run", "not_run", "not_run", "ok"]
    svc.use(max_tokens_total=float("inf"))
    assert run.run().replies_df()["status"].tolist() == ["ok"] * 4


@pytest.mark.slow
def test_counts_what_is_in_flight() -> None:
    """Requests that are sent at once count before their replies come."""
    run = svc.sweep(
        "Count to {{text}}.", rows=list(map(str, range(200))), max_tokens=10
    )
    svc.use(max_tokens_total=100)

    with pytest.raises(svc.errors.SpendingLimitError):
        run.run()

    n_ok = int((run.replies_df()["status"] == "ok").sum())
    assert 1 <= n_ok <= 10


def test_holds_for_frames() -> None:
    """A column stops in the middle; the rows before it are kept."""
    frame = pd.DataFrame({"text": [f"number {n}" for n in range(60)]})
    svc.use(max_tokens_total=1)

    with pytest.raises(svc.errors.SpendingLimitError):
        frame.svc.complete("Say {{text}}.")

    assert _n_asked() >= 1


@pytest.mark.slow
def test_an_answer_from_the_ledger_costs_nothing() -> None:
    """Re-use goes on after the limit is reached."""
    rows = ["a"]
    svc.sweep("Say {{text}}.", rows=rows).run()
    svc.use(max_tokens_total=1)
    svc.complete("Say hello.")

    run = svc.sweep("Say {{text}}.", rows=rows, reuse=True).run()

    assert run.replies_df()["is_reused"].tolist() == [True]


def test_limits_the_cost(prices: Path) -> None:
    """With a price table the cost is limited."""
    svc.use(prices=prices, max_cost=0.5)
    used = svc.complete("Say hello.").usage

    with pytest.raises(svc.errors.SpendingLimitError, match="in cost"):
        svc.complete("Say hello again.")

    assert used is not None
    assert str(current().spending) == f"{used.total_tokens} of 0.5 in cost"


def test_a_model_without_a_price_is_refused(prices: Path) -> None:
    """An unknown cost is never taken for 0."""
    svc.use(prices=prices, max_cost=1)

    with pytest.raises(svc.errors.SpendingLimitError, match="no price for 'svc-v2-70b"):
        svc.complete("Say hello.", model="svc-v2-70b-instruct")


def test_cost_needs_a_price_table() -> None:
    """Without prices a limit on cost is refused, and nothing changes."""
    with pytest.raises(svc.errors.ParameterError, match="max_cost needs a price table"):
        svc.use(max_cost=1, max_tokens_total=1)

    assert current().spending is None


@pytest.mark.parametrize("value", [0, -1, True, "many", float("nan")])
def test_what_is_no_limit(value: object) -> None:
    """A limit is a number above 0."""
    with pytest.raises(
        svc.errors.ParameterError, match="max_tokens_total must be a number"
    ):
        svc.use(max_tokens_total=value)  # type: ignore[arg-type]  # the mistake


def test_is_said_by_use() -> None:
    """`%svc use` shows how much of the limit is used."""
    svc.use(max_tokens_total=500)

    assert "spent    0 of 500 tokens" in describe(current())
