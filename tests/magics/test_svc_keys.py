"""Every key that this kernel has is kept out of what is shown and sent."""

import json

import pytest

import svc_notebook as svc
from svc_notebook.session import current

from .conftest import Shell

SECRET = "sk-secret-of-the-service"  # noqa: S105 - made up


@pytest.fixture
def emulated(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A kernel that has the service's key and asks its own emulator."""
    monkeypatch.setenv("SVC_API_KEY", SECRET)
    shell.run("%svc use emulator")
    shell.names["KEY"] = SECRET
    return shell


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    ["%%svc\n{{KEY}} hello", "%%svc --with KEY\nhello", "%%svc --dry-run\n{{KEY}} hi"],
)
def test_the_services_key_is_hidden_from_the_emulator(
    emulated: Shell, cell: str
) -> None:
    """It would be in the ledger, and in the saved notebook."""
    shown = emulated.run(cell).shown
    asked = [each.request.messages for each in current().ledger.read()]

    assert SECRET not in shown
    assert SECRET not in str(asked)


@pytest.mark.usefixtures("emulated")
def test_a_prompt_with_the_services_key_is_refused() -> None:
    """From Python it is not hidden, but refused, as at the service."""
    with pytest.raises(svc.errors.ParameterError, match="contains the API key"):
        svc.complete(f"What is {SECRET}?")


def test_a_cell_never_shows_a_key_that_is_echoed(emulated: Shell) -> None:
    """A key that comes back, a few letters at a time, is `[key]` in the cell."""
    pieces = ["The key is ", *(SECRET[at : at + 4] for at in range(0, 24, 4)), "."]
    choices = [{"index": 0, "delta": {"content": piece}} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [*(json.dumps({"choices": [choice]}) for choice in choices), "[DONE]"]
    with svc.Emulator(script=[{"events": events}]) as emulator:
        svc.use(endpoint=emulator)
        shown = emulated.run("%%svc\nWhat is it?").shown

    assert "The key is [key]." in shown
    assert SECRET[:8] not in shown
