"""A limit on tokens or cost: it holds for whatever asks, and loses nothing."""

import asyncio
import re
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
# the default of max_tokens and a short prompt: a second request does not fit
ONE_REPLY = 165


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
    """A request that may use more than what is left is not sent."""
    svc.use(max_tokens_total=ONE_REPLY)
    svc.complete("Say hello.")

    with pytest.raises(
        svc.errors.SpendingLimitError, match="of 165 tokens are used"
    ) as caught:
        svc.complete("Say hello again.")

    assert _n_asked() == 1
    assert "svc.use(max_tokens_total=...)" in str(caught.value)


@pytest.mark.slow
def test_setting_it_again_counts_from_0() -> None:
    """A new limit lets requests through again."""
    svc.use(max_tokens_total=ONE_REPLY)
    svc.complete("Say hello.")
    svc.use(max_tokens_total=ONE_REPLY)

    svc.complete("Say hello again.")

    assert _n_asked() == 2


@pytest.mark.slow
def test_infinity_removes_it() -> None:
    """Without a limit nothing is refused, and nothing is said."""
    svc.use(max_tokens_total=ONE_REPLY)
    svc.complete("Say hello.")
    svc.use(max_tokens_total=float("inf"))

    svc.complete("Say hello again.")

    assert "spent" not in describe(current())


@pytest.mark.slow
def test_holds_for_streams() -> None:
    """A stream is refused at the call; its estimated tokens count."""
    svc.use(max_tokens_total=ONE_REPLY)
    for _ in svc.stream("Say hello."):
        pass

    with pytest.raises(svc.errors.SpendingLimitError):
        svc.stream("Say hello again.")


@pytest.mark.slow
def test_holds_for_clients() -> None:
    """A client that was made before the limit keeps it, too."""

    async def ask() -> None:
        async with svc.AsyncClient() as client:
            svc.use(max_tokens_total=ONE_REPLY)
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
    svc.use(max_tokens_total=ONE_REPLY)

    with pytest.raises(svc.errors.SpendingLimitError):
        run.run()

    status = run.replies_df()["status"].tolist()
    assert sorted(status) == ["not_run", "not_run", "not_run", "ok"]
    svc.use(max_tokens_total=float("inf"))
    assert run.run().replies_df()["status"].tolist() == ["ok"] * 4


def test_refuses_what_may_not_fit() -> None:
    """The first request, too, is sent only if its longest reply fits.

    The message names the longest that does.
    """
    svc.use(max_tokens_total=100)

    with pytest.raises(svc.errors.SpendingLimitError) as caught:
        svc.complete("Say hello.")

    said = str(caught.value)
    assert "may use up to 161 tokens, more than the limit leaves (100 tokens)" in said
    assert _n_asked() == 0
    [named] = re.findall(r"max_tokens=(\d+)", said)
    with pytest.raises(svc.errors.SpendingLimitError):
        svc.complete("Say hello.", max_tokens=int(named) + 1)
    assert svc.complete("Say hello.", max_tokens=int(named)).text


def test_names_no_smaller_reply_if_the_prompt_is_too_long() -> None:
    """Then only another limit helps."""
    svc.use(max_tokens_total=5)

    with pytest.raises(svc.errors.SpendingLimitError) as caught:
        svc.complete("Say hello.")

    assert "max_tokens=" not in str(caught.value)


@pytest.mark.parametrize("limit", [300, 600])
def test_no_run_passes_the_limit(limit: int) -> None:
    """Requests wait for the replies in flight, and the message has the final sum."""
    run = svc.sweep(
        "Count to {{text}}.",
        rows=list(map(str, range(200))),
        model="svc-instruct",  # no limit is shown for it, so nothing waits
        max_tokens=30,
    )
    svc.use(max_tokens_total=limit)

    with pytest.raises(svc.errors.SpendingLimitError) as caught:
        run.run()

    replies = run.replies_df()
    n_used = int(replies["total_tokens"].sum())
    assert limit - 60 < n_used <= limit
    assert f": {n_used:,} of {limit:,} tokens are used. " in str(caught.value)


def test_the_message_has_the_cost_of_the_replies(prices: Path) -> None:
    """What the message says was used is the cost of all replies in the frame."""
    svc.use(prices=prices, max_cost=400)
    run = svc.sweep("Count to {{text}}.", rows=list(map(str, range(200))))

    with pytest.raises(svc.errors.SpendingLimitError) as caught:
        run.run()

    # the frame has no cost of emulated replies; each token costs 1
    cost = run.replies_df()["total_tokens"].sum()
    assert cost <= 400
    assert f": {cost} of 400 in cost are used. " in str(caught.value)


def test_a_limit_keeps_models_together() -> None:
    """A run that is ended by the limit has the replies of both models for a row."""
    models = ["svc-instruct", "svc-v2.1-12b-instruct"]  # nothing waits
    run = svc.sweep(
        ["Count to {{text}}.", "Spell {{text}}."],
        rows=list(map(str, range(60))),
        model=models,
        max_tokens=20,
        limits={models[1]: {"in_flight": 1}},
    )
    svc.use(max_tokens_total=1200)

    with pytest.raises(svc.errors.SpendingLimitError):
        run.run()

    replies = run.replies_df()
    assert replies["total_tokens"].sum() <= 1200
    n_ok = replies[replies["status"] == "ok"].groupby("model").size()
    assert n_ok.min() > 10
    assert n_ok.max() - n_ok.min() <= 5


def _lines(run: svc.Run, start: str) -> list[str]:
    lines = [line.split(maxsplit=1) for line in str(run).split("\n")]
    return [line[1] for line in lines if line[0] == start]


def test_a_plan_says_that_the_limit_may_not_suffice() -> None:
    """Before and after a stop, a run names what is left and what it may take."""
    rows = [f"number {n}" for n in range(20)]
    run = svc.sweep("Say {{text}}.", rows=rows, model="svc-instruct", max_tokens=30)
    assert _lines(run, "limit") == []
    svc.use(max_tokens_total=500)
    most = run.size.prompt.high + 600

    planned = _lines(run, "limit")
    with pytest.raises(svc.errors.SpendingLimitError):
        run.run()
    [stopped] = _lines(run, "limit")

    expected = "the session's limit leaves 500 tokens; this may take up to"
    assert planned == [f"{expected} {most:,}"]
    n_left = 500 - int(run.replies_df()["total_tokens"].sum())
    assert f"leaves {n_left} tokens; this may take up to " in stopped
    svc.use(max_tokens_total=5000)
    assert _lines(run, "limit") == []
    svc.use(max_tokens_total=1)
    svc.use(max_tokens_total=float("inf"))
    assert _lines(run.run(), "limit") == []


def test_a_plan_says_what_max_cost_leaves(prices: Path) -> None:
    """A limit on cost is compared with the most that the plan may cost."""
    svc.use(prices=prices, max_cost=40)
    run = svc.sweep("Say {{text}}.", rows=["a", "b"], max_tokens=30)
    most = run.size.prompt.high + 60  # each token costs 1

    assert _lines(run, "limit") == [
        f"the session's limit leaves 40 in cost; this may take up to {most}"
    ]
    assert "the session's limit" in run._repr_mimebundle_()["text/html"]


def test_a_complete_run_says_nothing_of_the_limit() -> None:
    """Nothing is missing, so it does not matter what the limit leaves."""
    run = svc.sweep("Say hello.").run()

    svc.use(max_tokens_total=1)

    assert _lines(run, "limit") == []


def test_holds_for_frames() -> None:
    """A column stops in the middle; the rows before it are kept."""
    frame = pd.DataFrame({"text": [f"number {n}" for n in range(60)]})
    svc.use(max_tokens_total=ONE_REPLY)

    with pytest.raises(svc.errors.SpendingLimitError):
        frame.svc.complete("Say {{text}}.")

    assert _n_asked() >= 1


@pytest.mark.slow
def test_an_answer_from_the_ledger_costs_nothing() -> None:
    """Re-use goes on after the limit is reached."""
    rows = ["a"]
    svc.sweep("Say {{text}}.", rows=rows).run()
    svc.use(max_tokens_total=ONE_REPLY)
    svc.complete("Say hello.")

    run = svc.sweep("Say {{text}}.", rows=rows, reuse=True).run()

    assert run.replies_df()["is_reused"].tolist() == [True]


def test_limits_the_cost(prices: Path) -> None:
    """With a price table the cost is limited."""
    svc.use(prices=prices, max_cost=ONE_REPLY)
    used = svc.complete("Say hello.").usage

    with pytest.raises(svc.errors.SpendingLimitError, match="in cost"):
        svc.complete("Say hello again.")

    assert used is not None
    assert str(current().spending) == f"{used.total_tokens} of {ONE_REPLY} in cost"


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


def test_a_limit_on_cost_is_removed_without_prices() -> None:
    """Also when there was none, so that a cell can be copied to any notebook."""
    svc.use(max_cost=float("inf"))

    assert svc.complete("Say hello.").text
    with pytest.raises(svc.errors.ParameterError, match="max_cost needs a price table"):
        svc.use(max_cost=1)


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
