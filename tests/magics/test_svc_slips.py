"""Slips and changes of mind: what costs nothing, and what advice holds."""

import copy
import pickle
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.server import Emulator
from tests.magics.conftest import Shell


def sent(emulator: Emulator) -> dict[str, Any]:
    """Return the newest request's body."""
    body: dict[str, Any] = emulator.requests[-1].json
    return body


def test_the_environment_is_read_when_it_is_needed(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an error advises works: the key and address set afterwards are used."""
    key = emulator.api_key
    monkeypatch.delenv("SVC_BASE_URL")
    monkeypatch.setenv("SVC_API_KEY", "svc-wrong-key")
    no_address = shell.run("%%svc\nHello")
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    refused = shell.run("%%svc\nHello")
    monkeypatch.setenv("SVC_API_KEY", key)

    answered = shell.run("%%svc\nHello")

    assert isinstance(no_address.error, svc.SettingsError)
    assert isinstance(refused.error, svc.AuthError)
    assert answered.error is None


@pytest.mark.parametrize(
    ("name", "value"), [("SVC_BASE_URL", "HOST/v1"), ("SVC_DISPLAY", "livee")]
)
def test_a_wrong_setting_leaves_the_magic_there(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A setting that cannot be used fails the cell that needs it, by name."""
    monkeypatch.setenv(name, value)
    loaded = shell.run("%reload_ext svc_notebook")

    cell = shell.run("%%svc\nHello")
    helped = shell.run("%svc help")

    assert loaded.error is None
    assert isinstance(cell.error, svc.SettingsError)
    assert name in cell.shown
    assert "--temperature" in helped.shown


def test_the_emulator_needs_no_right_address(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong address does not keep the emulator from answering."""
    monkeypatch.setenv("SVC_BASE_URL", "HOST/v1")
    shell.run("%svc use emulator")

    assert shell.run("%%svc --max-tokens 3\nHello").error is None


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("%svc use emulater", "%svc use emulator"),
        ("%svc use Emulator", "%svc use emulator"),
        ("%%svc -o class\nHello", "-o answer"),
        ("%%svc -o get_ipython\nHello", "-o answer"),
        ("%%svc -o json\nHello", "is a module"),
        ("%%svc\n   \n", "The prompt is empty"),
        ("%%svc --system You are terse\nHello", "quotes around"),
    ],
)
def test_slips_cost_nothing(
    shell: Shell, emulator: Emulator, line: str, remedy: str
) -> None:
    """A slip is refused with the remedy; nothing is sent and nothing is lost."""
    shell.run("import json")

    cell = shell.run(line)

    assert isinstance(cell.error, svc.SvcError)
    assert remedy in cell.shown
    assert emulator.requests == ()


def test_marks_with_blanks_are_pointed_out(shell: Shell) -> None:
    """`{{ name }}` is sent as typed, and the footer says so."""
    shell.names["topic"] = "tea"

    cell = shell.run("%%svc\nAbout {{ topic }} and {{ other }}")

    assert "{{ topic }} has blanks and was sent as typed" in cell.shown
    assert "{{ other }} has blanks" not in cell.shown


def test_a_completion_is_a_value_that_travels(shell: Shell) -> None:
    """It can be copied, pickled and formatted."""
    completion = shell.run("%%svc --max-tokens 5\nHello").value

    assert copy.deepcopy(completion) == completion
    assert pickle.loads(pickle.dumps(completion)) == completion  # noqa: S301 - our own
    assert f"{completion:>3}" == str(completion)


def test_a_wide_frame_and_a_long_cell_stay_within_the_cap(
    shell: Shell, emulator: Emulator
) -> None:
    """A table of 3000 columns or with a very long text is cut, and says so."""
    shell.run("import pandas as pd\nwide = pd.DataFrame([range(3000)] * 3)")
    shell.run("long = pd.DataFrame({'text': ['word ' * 20000, 'short']})")

    shell.run("%%svc --no-stream\n{{wide}}\n{{long}}")

    content = sent(emulator)["messages"][0]["content"]
    assert "the first 40 columns follow" in content
    assert "of 100" in content
    assert len(content) < 6000
