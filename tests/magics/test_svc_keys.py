"""Every key that this kernel has is kept out of what is shown and sent."""

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
