"""`%svc models`, `last`, `replies` and `settings` in a plain shell."""

import pandas as pd
import pytest

import svc_notebook as svc
from tests.magics.conftest import Shell


def frame(shell: Shell, line: str) -> pd.DataFrame:
    """Run a line and return the frame that it shows."""
    value = shell.run(line).value
    assert isinstance(value, pd.DataFrame)
    return value


def test_models_tell_the_room_left(shell: Shell) -> None:
    """What was asked is missing from the minute's room; no limit has no room."""
    shell.run("%%svc -m svc-v2-70b-instruct\nHello")

    models = frame(shell, "%svc models")

    left = models["left_minute"]
    assert left["svc-v2-70b-instruct"] == 49
    assert left["svc-v2-8b-instruct"] == 50
    assert left["svc-instruct"] is pd.NA
    assert str(models["left_second"].dtype) == "Int64"


def test_models_leave_out_what_differs_from_run_to_run(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody watches, the same notebook gives the same table."""
    monkeypatch.setenv("SVC_DISPLAY", "settled")

    assert "left_minute" not in frame(shell, "%svc models")


def test_models_are_listed_before_a_service_is_chosen(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key there is no room to tell, and the table is there."""
    monkeypatch.delenv("SVC_API_KEY")

    assert frame(shell, "%svc models")["left_minute"].isna().all()


def test_last_shows_the_newest_reply(shell: Shell) -> None:
    """Nothing is asked for it; before the first reply it says so."""
    before = shell.run("%svc last")
    asked = shell.run("%%svc\nHello").value

    assert "no reply yet" in before.shown
    assert shell.run("%svc last").value == asked


def test_replies_are_those_of_this_kernel(shell: Shell) -> None:
    """One row a choice, oldest first, failures included."""
    shell.run("%%svc -n 2\nHello")
    shell.run("%%svc -m svc-nope\nBye")

    replies = frame(shell, "%svc replies")

    assert replies["prompt"].tolist() == ["Hello", "Hello", "Bye"]
    assert replies["status"].tolist() == ["ok", "ok", "error"]


def test_settings_say_where_they_came_from(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value stands with its source; of the key only where it was found."""
    monkeypatch.setenv("SVC_TIMEOUTS", "idle_s=5")
    monkeypatch.setenv("SVC_MODEL", "svc-v2-70b-instruct")
    shell.run("%config SvcMagics.temperature = 0.5")
    shell.run("%config SvcMagics.system = 'Be brief.'")

    settings = frame(shell, "%svc settings")

    told = {name: tuple(row) for name, row in settings.iterrows()}
    assert told["model"] == ("svc-v2-70b-instruct", "SVC_MODEL")
    assert told["idle_s"] == ("5.0", "SVC_TIMEOUTS")
    assert told["temperature"] == ("0.5", "%config SvcMagics")
    assert told["system"] == ("Be brief.", "%config SvcMagics")
    assert told["max_tokens"] == ("fit", "default")
    assert told["key"] == ("found, never shown", "SVC_API_KEY")
    assert settings["value"].isna()["top_p"]


def test_settings_tell_what_cannot_be_used(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variable is named, and its default is shown."""
    monkeypatch.setenv("SVC_DISPLAY", "livee")

    told = frame(shell, "%svc settings").loc["display"]

    assert tuple(told) == ("auto", "default; SVC_DISPLAY cannot be used")


def test_restore_says_what_it_looked_for(shell: Shell) -> None:
    """A name that the ledger does not have is named; one turn is one turn."""
    shell.run("%%svc -c plan\nHello")
    nothing = shell.run("%svc restore nope").shown
    there = shell.run("%svc restore plan").shown
    svc.conversation("plan").reset()
    shell.run("%%svc -c plan\nHello")

    assert "holds no turns of nope" in nothing
    assert "plan has turns already" in there
