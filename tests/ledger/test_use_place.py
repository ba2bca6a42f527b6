"""Choosing the ledger and the price table from Python."""

from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.ledger.recordings import RecordingFile
from svc_notebook.session import current, isolated
from svc_notebook.svc_use import use_emulator, use_model

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


@pytest.mark.parametrize("missing", ["SVC_BASE_URL", "prices"])
def test_a_part_that_is_refused_leaves_the_rest(tmp_path: Path, missing: str) -> None:
    """A service without an address, or a wrong price table, changes no ledger."""
    given: Any = {"prices": tmp_path / "none.toml"}
    if missing == "SVC_BASE_URL":
        given = {"endpoint": "service"}

    with pytest.raises(svc.errors.ConfigError, match=f"{missing}|none.toml"):
        svc.use(ledger=tmp_path / "project.sqlite", **given)

    assert current().settings.ledger == ":memory:"


def test_an_emulator_with_a_script_is_used(tmp_path: Path) -> None:
    """Its note is shown with the reply, and goes wherever the exchange goes."""
    script = tmp_path / "answers.json"
    script.write_text(
        '{"entries": [{"when": {"temperature": {"above": 1}}, "text": "Jasmine"}],'
        ' "defaults": {"note": "written by hand · ก", "times": null}}',
        encoding="utf-8",
    )
    emulator = svc.Emulator(script=script, tokens_per_s=None, first_token_s=0)
    svc.use(endpoint=emulator)

    replies = [svc.complete("A name", temperature=each) for each in (1.2, 0)]
    svc.export_answers(tmp_path / "answers.jsonl")

    marks = [reply.final().marks for reply in replies]
    assert marks == [("emulator: written by hand · ก",), ("emulator: no answer",)]
    kept = current().ledger.last(exchange_id=replies[0].exchange.exchange_id)
    assert kept is not None
    assert kept.emulator_note == "written by hand · ก"
    notes = svc.replies_df()["emulator_note"]
    assert notes.to_list() == [kept.emulator_note, "no answer"]
    assert "2 replies · emulator: written by hand · ก" in repr(
        svc.compare(svc.replies_df())
    )
    answers = RecordingFile.from_file(tmp_path / "answers.jsonl")
    assert [each.emulator_note for each in answers] == notes.to_list()


def test_the_emulator_before_is_closed() -> None:
    """A cell that makes an emulator may be run again."""
    first, second = svc.Emulator(), svc.Emulator()
    svc.use(endpoint=first)
    svc.use(endpoint=first)
    assert current().settings.base_url == first.base_url

    svc.use(endpoint=second)

    assert current().settings.base_url == second.base_url
    with pytest.raises(svc.errors.SettingsError, match="not running"):
        _ = first.base_url


def test_a_closed_session_leaves_its_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """After close() it goes where the environment says, and the key does, too."""
    monkeypatch.setenv("SVC_BASE_URL", "https://here.invalid/v1")
    monkeypatch.setenv("SVC_API_KEY", "sk-of-the-user")
    session = current()
    use_model(session, "svc-instruct", source="use")
    use_emulator(session)

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
        ({"endpoint": "emulater"}, "mean emulator? Use 'emulator', 'service'"),
        ({"endpoint": "svc-v2-8b-instruct"}, "A model is chosen with model="),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], said: str) -> None:
    """The message says what to give."""
    with pytest.raises(svc.errors.ParameterError) as caught:
        svc.use(**given)

    assert said in str(caught.value)
