"""Usage: sums by group, and which part of them is estimated."""

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Failure, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.ledger.reply_columns import REPLIES, pick
from svc_notebook.ledger.usage import usage_df, usage_frame
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.request import build_request
from svc_notebook.session import isolated

MakeExchange = Callable[..., Exchange]

SCHEMA = {
    "model": "string",
    "n_requests": "Int64",
    "n_exchanges": "Int64",
    "n_failed": "Int64",
    "n_cancelled": "Int64",
    "n_cut": "Int64",
    "n_refused": "Int64",
    "n_reported": "Int64",
    "prompt_tokens": "Int64",
    "completion_tokens": "Int64",
    "total_tokens": "Int64",
    "n_estimated": "Int64",
    "estimated_prompt_tokens": "Int64",
    "estimated_completion_tokens": "Int64",
    "estimated_low_tokens": "Int64",
    "estimated_high_tokens": "Int64",
    "n_missing": "Int64",
    "queue_s": "Float64",
    "retry_wait_s": "Float64",
    "median_first_text_s": "Float64",
    "median_latency_s": "Float64",
    "cost": "Float64",
    "estimated_cost": "Float64",
    "n_unpriced": "Int64",
    "cost_source": "string",
    "n_left_out": "Int64",
}


PRICES = Prices(
    models={"svc-v2-8b-instruct": Price(prompt=2.0, completion=4.0)},
    currency="THB",
    as_of=date(2026, 1, 31),
    source="list",
)


def _streamed(make: MakeExchange, number: int, **changes: Any) -> Exchange:  # noqa: ANN401 - fields
    body = CompletionBody(choices=(Choice(text="Hi", finish_reason="length"),))
    return make(number, body=body, is_streamed=True, first_text_s=0.1, **changes)


def _usage_df(
    exchanges: list[Exchange],
    by: Any = ("model",),  # noqa: ANN401 - anything
    **rules: Any,  # noqa: ANN401 - arguments
) -> pd.DataFrame:
    return usage_frame(exchanges, pick(REPLIES, by), **rules).frame


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows without their missing values and zeros."""
    rows = frame.to_dict("records")
    return [
        {str(name): value for name, value in row.items() if pd.notna(value) and value}
        for row in rows
    ]


TABLE = """\
as_of = 2026-01-31
currency = "USD"
[models."svc-v2-8b-instruct"]
prompt = 1000
completion = 2000
"""


@pytest.fixture
def asked(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    """A whole reply, whose usage is reported, and a streamed one, whose is not."""
    (tmp_path / "prices.toml").write_text(TABLE)
    monkeypatch.setenv("SVC_PRICES", str(tmp_path / "prices.toml"))
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        svc.complete("Where do we begin?")
        for _ in svc.stream("And where do we end?"):
            pass
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
def test_tokens_and_cost_are_those_of_all_replies() -> None:
    """A total has the estimate where none was reported, and says how much that is."""
    usage = svc.usage_df(by=(), include_emulated=True).iloc[0]
    kinds = svc.usage_df(by="usage_source", include_emulated=True)

    reported, estimated = (
        kinds.set_index("usage_source").loc[kind] for kind in ("reported", "estimated")
    )
    assert usage["cost"] == pytest.approx(reported["cost"] + estimated["cost"])
    assert usage["estimated_cost"] == estimated["cost"] > 0
    for name in ("prompt_tokens", "completion_tokens"):
        assert usage[name] == reported[name] + estimated[name]
        assert usage[f"estimated_{name}"] == estimated[name] > 0
    tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["total_tokens"] == tokens
    price = (usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000) / 1e6
    assert usage["cost"] == pytest.approx(price, rel=0.05)  # tokens are rounded


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
def test_a_run_counts_its_tokens_by_the_same_rule() -> None:
    """The frame of a run and the ledger's have the same totals of it."""
    run = svc.sweep("Say {{text}}", rows=["a", "b"], name="say").run()

    names = ["prompt_tokens", "completion_tokens", "total_tokens", "cost"]
    of_run = run.usage_df(include_emulated=True)[names]
    of_ledger = svc.usage_df(run="say", include_emulated=True)[names]
    pd.testing.assert_frame_equal(of_run, of_ledger)


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
def test_a_model_without_a_price_makes_the_cost_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its row is missing, not 0, and a line says that a sum leaves it out."""
    svc.complete("Hello", model="svc-v2-70b-instruct")
    capsys.readouterr()

    usage = svc.usage_df(include_emulated=True)

    models = ["svc-v2-8b-instruct", "svc-v2-70b-instruct"]
    assert usage["model"].tolist() == models
    assert usage["cost"].isna().tolist() == [False, True]
    assert capsys.readouterr().err == (
        "1 exchange has no price in prices.toml, so its cost is unknown: "
        "svc-v2-70b-instruct.\n"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
def test_today_begins_at_midnight() -> None:
    """`since` takes today, the local day, and of all kernels with scope="all"."""
    with isolated():
        svc.complete("In another kernel")
    today = svc.usage_df(since="today", include_emulated=True)
    of_all = svc.usage_df(since="today", scope="all", include_emulated=True)

    assert today["n_exchanges"].tolist() == [2]
    assert of_all["n_exchanges"].tolist() == [3]


@pytest.mark.parametrize("n_exchanges", [0, 1])
def test_has_the_same_dtypes_when_empty(make: MakeExchange, n_exchanges: int) -> None:
    """No exchange gives the same columns and dtypes as many."""
    frame = _usage_df([make()] * n_exchanges)

    dtypes = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
    assert dtypes == SCHEMA
    assert len(frame) == n_exchanges


def test_sums_by_model(make: MakeExchange) -> None:
    """Each model has a row; tokens are reported, or else estimated."""
    failure = Failure(type="ServerFaultError", http_status=500)
    other = build_request("Hi", model="other")
    asked = [
        make(0),
        make(1, latency_s=1.5),
        _streamed(make, 2, latency_s=9.0),
        make(
            3,
            body=None,
            status="error",
            failure=failure,
            n_attempts=3,
            n_refused=2,
            queue_s=0.25,
            retry_wait_s=4.0,
        ),
        make(4, request=other, status="cancelled"),
    ]

    assert _records(_usage_df(asked)) == [
        {
            "model": "svc-v2-8b-instruct",
            "n_requests": 6,
            "n_exchanges": 4,
            "n_failed": 1,
            "n_cut": 1,
            "n_refused": 2,
            "n_reported": 2,
            "prompt_tokens": 27,
            "completion_tokens": 5,
            "total_tokens": 32,
            "n_estimated": 1,
            "estimated_prompt_tokens": 7,
            "estimated_completion_tokens": 1,
            "estimated_low_tokens": 4,
            "estimated_high_tokens": 12,
            "n_missing": 1,
            "queue_s": 0.25,
            "retry_wait_s": 4.0,
            "median_first_text_s": 0.1,
            "median_latency_s": 1.5,
            "n_unpriced": 3,
        },
        {
            "model": "other",
            "n_requests": 1,
            "n_exchanges": 1,
            "n_cancelled": 1,
            "n_reported": 1,
            "prompt_tokens": 10,
            "completion_tokens": 2,
            "total_tokens": 12,
            "n_unpriced": 1,
        },
    ]


def test_a_refusal_in_a_run_is_no_failure(make: MakeExchange) -> None:
    """A 429 of a run, which sends it again, is in n_refused; others failed too."""
    refusal = Failure(type="RateLimitError", http_status=429)
    fields = {"body": None, "status": "error", "failure": refusal, "n_refused": 1}
    swept = make(0, origin=Origin(kind="sweep", run="r"), **fields)

    frame = _usage_df([swept, make(1, **fields)], by="run")

    names = ["n_requests", "n_exchanges", "n_failed", "n_refused"]
    assert frame[names].to_numpy().tolist() == [[1, 1, 0, 1], [1, 1, 1, 1]]


def test_leaves_emulated_and_reused_replies_out_and_says_so(
    make: MakeExchange,
) -> None:
    """What cost nothing is not counted, but its number is told."""
    asked = [make(0, is_emulated=True), make(1, is_reused=True)]

    assert _records(_usage_df(asked)) == [
        {"model": "svc-v2-8b-instruct", "n_left_out": 2}
    ]


def test_a_cost_needs_a_table(make: MakeExchange) -> None:
    """With a price table there are costs, and their estimated part."""
    asked = [make(0), make(1), _streamed(make, 2), make(3, is_emulated=True)]

    frame = _usage_df(asked, prices=PRICES)

    names = ["cost", "estimated_cost", "n_unpriced", "cost_source"]
    assert frame[names].to_dict("records") == [
        {
            "cost": pytest.approx((2 * (10 * 2 + 2 * 4) + 6.95 * 2 + 1.05 * 4) / 1e6),
            "estimated_cost": pytest.approx((6.95 * 2 + 1.05 * 4) / 1e6),
            "n_unpriced": 0,
            "cost_source": "list, THB, 2026-01-31",
        }
    ]


def test_a_cost_that_lacks_a_part_is_unknown(make: MakeExchange) -> None:
    """A model without a price makes the sum unknown, and says how many it was."""
    other = make(1, request=build_request("Hi", model="other"))

    frame = _usage_df([make(0), other], by=(), prices=PRICES)

    assert frame["cost"].isna().tolist() == [True]
    assert frame["n_unpriced"].tolist() == [1]


def test_the_same_tokens_are_priced_as_another_model(
    ledger: Ledger, make: MakeExchange
) -> None:
    """All tokens cost what that model's would, and the source says so."""
    ledger.add(make(0, request=build_request("Hi", model="other")))
    ledger.add(make(1))

    frame = usage_df(ledger, prices=PRICES, priced_as="svc-v2-8b-instruct")

    assert frame["cost"].tolist() == [pytest.approx((10 * 2 + 2 * 4) / 1e6)] * 2
    source = "list, THB, 2026-01-31, priced as svc-v2-8b-instruct"
    assert frame["cost_source"].tolist() == [source] * 2


@pytest.mark.parametrize(
    ("prices", "said"),
    [(None, "There is no price table"), (PRICES, "mean svc-v2-8b-instruct")],
)
def test_a_model_without_a_price_is_refused(
    ledger: Ledger, prices: Prices | None, said: str
) -> None:
    """The message says what the table has."""
    with pytest.raises(ParameterError, match=said):
        usage_df(ledger, prices=prices, priced_as="svc-v2-8b")


@pytest.mark.slow
def test_sums_over_all_without_groups(make: MakeExchange) -> None:
    """With nothing to group by there is one row, also for no exchanges."""
    assert _usage_df([make(0), make(1)], by=())["total_tokens"].tolist() == [24]
    assert _usage_df([], by=())["n_requests"].tolist() == [0]


def test_refuses_an_unknown_column_with_the_nearest(make: MakeExchange) -> None:
    """A name that is no column is refused with the nearest one."""
    with pytest.raises(ParameterError, match="Did you mean model"):
        _usage_df([make()], by="modle")


@pytest.mark.parametrize("by", ["cost", ["model", "prompt_tokens"]])
def test_refuses_to_group_by_what_it_sums(
    make: MakeExchange, by: str | list[str]
) -> None:
    """A column that is summed up cannot also be grouped by."""
    with pytest.raises(ParameterError, match="is one of its sums"):
        _usage_df([make()], by=by)


@pytest.mark.slow
def test_usage_is_summed_up_by_a_template_column(
    ledger: Ledger, make: MakeExchange
) -> None:
    """It has the name and dtype of `replies_df`; others have it missing."""
    filled: list[dict[str, Any]] = [{"text": "a", "cups": 2}, {"text": "b"}, {}]
    for number, columns in enumerate(filled):
        ledger.add(make(number, origin=Origin(kind="sweep", columns=columns)))

    found = usage_df(ledger, by=["var_text", "cups", "model"])

    expected = pd.DataFrame(
        {
            "var_text": pd.array(["a", "b", None], dtype="string"),
            "cups": pd.array([2, None, None], dtype="Int64"),
            "n_requests": pd.array([1, 1, 1], dtype="Int64"),
        }
    )
    shown = found[["var_text", "cups", "n_requests"]]
    pd.testing.assert_frame_equal(shown, expected)


@pytest.mark.parametrize("by", ["cup", ["model", "cup"], [5], 5, None])
def test_usage_by_what_is_no_column_is_refused(
    ledger: Ledger, make: MakeExchange, by: object
) -> None:
    """The columns that there are include those of templates."""
    ledger.add(make(origin=Origin(kind="sweep", columns={"cups": 2})))

    with pytest.raises(ParameterError, match="cups"):
        usage_df(ledger, by=by)  # type: ignore[arg-type]  # what a user may give
