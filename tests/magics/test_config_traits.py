"""Defaults that `%config SvcMagics` sets: files, and who chose them."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.display.number_words import cost_in_words
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import build_request
from svc_notebook.session import current, isolated

Shell = Any

PRICES = """\
as_of = 2026-01-31
currency = "USD"
[models."svc-v2-8b-instruct"]
prompt = 1000
completion = 2000
"""


def answered(number: int, usage: Usage | None) -> Exchange:
    """Make an exchange with the service."""
    return Exchange(
        exchange_id=f"x{number}",
        origin=Origin(),
        endpoint="https://service.test/v1",
        request=build_request("Hello", model="svc-v2-8b-instruct"),
        body=CompletionBody(
            choices=(Choice(text="Hi", finish_reason="stop"),), usage=usage
        ),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        ended_at=datetime(2026, 1, 1, tzinfo=UTC),
        est_prompt_tokens=8,
        est_completion_tokens=3,
    )


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Return a price table in a file."""
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    return path


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("ledger", "no database at all " * 99, "is not a ledger"),
        ("prices", "as_of = 2026-01-31", "missing required field `models`"),
        ("prices", "models = ", "it is not TOML"),
        ("prices", None, "it cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(
    shell: Shell,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    text: str | None,
    reason: str,
) -> None:
    """The line says why, and what was in use stays in use."""
    place, before = tmp_path / "file.toml", getattr(current().settings, name)
    if text is not None:
        place.write_text(text)

    shell.run(f"%config SvcMagics.{name} = '{place}'")

    assert reason in caplog.text
    assert getattr(current().settings, name) == before
    assert text is None or place.read_text() == text


@pytest.mark.slow
def test_takes_back_to_what_the_environment_says(
    shell: Shell, tmp_path: Path, prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty path is what the environment says, its later changes included."""
    monkeypatch.setenv("SVC_PRICES", "before.toml")
    shell.run(f"%config SvcMagics.prices = '{prices}'")
    shell.run("%config SvcMagics.prices = ''")
    monkeypatch.setenv("SVC_PRICES", str(tmp_path / "after.toml"))

    got = shell.run("%config SvcMagics.prices").value

    assert got == str(tmp_path / "after.toml")
    assert "(SVC_PRICES)" in shell.run("%svc use").shown


@pytest.mark.slow
def test_usage_counts_what_usage_df_counts(
    shell: Shell, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made-up replies are counted and priced on request; a line says they are not."""
    shell.run("%svc use emulator")
    shell.run("%svc -t 0 Hello")
    shell.run(f"%config SvcMagics.prices = '{prices}'")
    capsys.readouterr()

    cell = shell.run("%svc usage")
    frame = svc.usage_df()
    said = capsys.readouterr().err
    priced = shell.run("%svc usage emulated")
    asked = priced.value
    everything = svc.usage_df(include_emulated=True)

    names = ["n_requests", "n_exchanges", "cost", "estimated_cost"]
    assert cell.value[names].to_numpy().tolist() == frame[names].to_numpy().tolist()
    assert cell.value.empty
    assert "the service would charge" not in cell.shown
    assert cell.shown.endswith(
        "This kernel sent 0 requests, not counting 1 answer of the emulator. `%svc "
        "usage emulated`, or `svc.usage_df(include_emulated=True)`, counts it.\n"
    )
    assert said.startswith("1 exchange left out: emulated or reused; include_emulated=")
    assert asked[names].to_dict("list") == everything[names].to_dict("list")
    assert asked["n_requests"].tolist() == [1]
    assert "the costs are what the service would charge" in priced.shown
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", ["foo", "7days", "today all 7d", "emulated of mine"])
def test_usage_names_the_words_that_it_takes(shell: Shell, words: str) -> None:
    """Other words are refused with the spellings."""
    shown = shell.run(f"%svc usage {words}").shown

    assert "`%svc usage [all|today|7d|2026-01-31] [emulated]`" in shown


@pytest.mark.slow
def test_usage_of_today_is_that_of_all_kernels(
    shell: Shell, prices: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It shows what the day cost, with the replies whose usage was not reported."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("SVC_PRICES", str(prices))
    with isolated():
        svc.complete("Hello")
    with isolated():
        shell.run("%svc -t 0 Hello")
        here = shell.run("%svc usage emulated")
        cells = [
            shell.run(f"%svc usage {words}")
            for words in ("today emulated", "emulated all", "1d emulated")
        ]
        frame = svc.usage_df(scope="all", since="today", include_emulated=True)

    assert here.value["n_requests"].tolist() == [1]
    assert "\nThis kernel sent 1 request, for ~" in here.shown
    for cell in cells:
        assert cell.value["cost"].tolist() == frame["cost"].tolist()
    cost = f"for ~{cost_in_words(frame['cost'].sum())} USD."
    today, ever, day = (cell.shown.splitlines()[1] for cell in cells)
    assert today.startswith("All kernels sent 2 requests since 20")
    assert " 00:00, " in today
    assert ever.startswith(f"All kernels sent 2 requests, {cost}")
    assert cost in today
    assert cost in day


def test_a_small_cost_is_shown_without_an_exponent(
    shell: Shell, tmp_path: Path
) -> None:
    """In the sentence and in the table, as people write it."""
    table = PRICES.replace("1000", "0.1").replace("2000", "0.2")
    (tmp_path / "cheap.toml").write_text(table)
    shell.run(f"%config SvcMagics.prices = '{tmp_path / 'cheap.toml'}'")
    shell.run("%svc -t 0 Hello")

    shown = shell.run("%svc usage emulated").shown

    assert re.search(r"for ~0\.0000\d+ USD\.", shown)
    assert "e-0" not in shown


@pytest.mark.slow
def test_usage_says_what_has_no_price(shell: Shell, prices: Path) -> None:
    """A cost that is not known is no 0, and the sum is not shown as one."""
    shell.run(f"%config SvcMagics.prices = '{prices}'")
    shell.run("%svc -t 0 Hello")
    shell.run("%svc -m svc-v2-70b-instruct Hello")

    shown = shell.run("%svc usage emulated").shown

    assert "This kernel sent 2 requests. Prompt" in shown
    assert "not known" in shown
    assert "1 exchange has no price in prices.toml" in shown


@pytest.mark.slow
def test_usage_shows_what_replies_cost(shell: Shell, prices: Path) -> None:
    """A reply of the service shows its cost, an estimate its interval."""
    shell.run(f"%config SvcMagics.prices = '{prices}'")
    for number, usage in enumerate(
        (Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15), None)
    ):
        current().ledger.add(answered(number, usage))

    got = shell.run("%svc usage").value.iloc[0]

    assert got[["n_exchanges", "cost", "estimated_cost"]].to_list() == [
        2,
        0.02 + 0.00715,
        0.00715,
    ]
    assert got["cost_source"] == "prices.toml, USD, 2026-01-31"
    assert got[["estimated_low_tokens", "estimated_high_tokens"]].to_list() == [3, 10]
