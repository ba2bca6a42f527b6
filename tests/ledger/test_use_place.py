"""Choosing the ledger and the price table from Python."""

from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.session import current, isolated

TABLE = 'as_of = 2026-01-31\ncurrency = "EUR"\n[models.m]\nprompt = 1\ncompletion = 2\n'
FIVE: Any = 5


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a generator
    """A session of its own, whose environment keeps nothing."""
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    with isolated():
        yield


@pytest.mark.slow
def test_a_ledger_given_in_python_is_used_from_now_on(tmp_path: Path) -> None:
    """It comes before the environment's, and the settings say who chose it."""
    svc.use(endpoint="emulator", ledger=tmp_path / "project.sqlite")
    svc.complete("Say hello.", max_tokens=3)

    settings = current().settings
    assert settings.ledger == str(tmp_path / "project.sqlite")
    assert settings.sources["ledger"] == "use"
    assert len(svc.replies_df()) == 1
    svc.use(ledger=":memory:")
    assert len(svc.replies_df(scope="all")) == 0


def test_a_price_table_given_in_python_is_used(tmp_path: Path) -> None:
    """Costs come from it, stamped with its name and date."""
    table = tmp_path / "prices.toml"
    table.write_text(TABLE)

    svc.use(prices=table)

    prices = current().prices
    assert prices is not None
    assert prices.stamp == "prices.toml, EUR, 2026-01-31"


def test_a_ledger_that_cannot_be_made_leaves_the_one_before(tmp_path: Path) -> None:
    """The error names the file; nothing else of the call is done either."""
    with pytest.raises(svc.LedgerError, match="folder"):
        svc.use(model="another-model", ledger=tmp_path)

    settings = current().settings
    assert (settings.ledger, settings.model) == (":memory:", "svc-v2-8b-instruct")


@pytest.mark.parametrize("missing", ["SVC_BASE_URL", "prices"])
def test_a_part_that_is_refused_leaves_the_rest(tmp_path: Path, missing: str) -> None:
    """A service without an address, or a wrong price table, changes no ledger."""
    given: Any = {"prices": tmp_path / "none.toml"}
    if missing == "SVC_BASE_URL":
        given = {"endpoint": "service"}

    with pytest.raises(svc.ConfigError, match=f"{missing}|none.toml"):
        svc.use(ledger=tmp_path / "project.sqlite", **given)

    assert current().settings.ledger == ":memory:"


def test_a_closed_session_leaves_its_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """After close() it goes where the environment says, and the key does, too."""
    monkeypatch.setenv("SVC_BASE_URL", "https://here.invalid/v1")
    monkeypatch.setenv("SVC_API_KEY", "sk-of-the-user")
    session = current()
    session.use_model("svc-instruct", source="use")
    session.use_emulator()

    session.close()

    settings = session.settings
    assert (settings.base_url, settings.is_emulated, settings.model) == (
        "https://here.invalid/v1",
        False,
        "svc-instruct",
    )
    assert session.key().source == "SVC_API_KEY"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "ledger=FILE"),
        ({"ledger": FIVE}, "ledger is int; give the path"),
        ({"ledger": " "}, "ledger is empty; give the path"),
        ({"prices": ""}, "prices is empty; give the path"),
        ({"model": FIVE}, "must be a model id"),
        ({"endpoint": "emulater"}, "use 'emulator' or 'service'"),
        ({"endpoint": "svc-v2-8b-instruct"}, "A model is chosen with model="),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], said: str) -> None:
    """The message says what to give."""
    with pytest.raises(svc.ParameterError) as caught:
        svc.use(**given)

    assert said in str(caught.value)
