"""`%svc login`: typed, unseen, used at once."""

from collections.abc import Iterator

import pytest

from svc_notebook.credentials import forget
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import ConfigError, MissingKeyError
from svc_notebook.magics.subcommands import login
from tests.magics.conftest import Shell

VALUE = "sk-secret-of-the-prompt"


@pytest.fixture(autouse=True)
def nobody_logged_in() -> Iterator[None]:
    """Forget what a test typed."""
    yield
    forget()


def test_a_typed_key_is_used_at_once(shell: Shell) -> None:
    """After a login `%svc use` names the prompt, and nothing shows the key."""
    said = login(lambda _: f"Bearer {VALUE}\n")
    shown = shell.run("%svc use").shown

    assert said == "The key is kept in this kernel's memory, until the kernel ends."
    assert "key      from a prompt" in shown
    assert VALUE not in shown


def test_a_login_mends_a_refused_key(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a 401 a login is all it takes; the kernel's client takes the new key."""
    monkeypatch.setenv("SVC_API_KEY", "sk-revoked-long-ago")
    refused = shell.run("%svc Hello")

    login(lambda _: emulator.api_key)
    mended = shell.run("%svc Hello")

    assert "401" in refused.shown
    assert (mended.error, emulator.requests[-1].status) == (None, 200)


@pytest.mark.parametrize("typed", ["", f"{VALUE} {VALUE}", f"{VALUE}\x7f"])
def test_what_is_no_key_is_refused_unseen(typed: str, shell: Shell) -> None:
    """What cannot be sent is refused without showing it; the old key stays."""
    before = shell.run("%svc use").shown

    with pytest.raises(MissingKeyError) as caught:
        login(lambda _: typed)

    assert VALUE not in str(caught.value)
    assert shell.run("%svc use").shown == before


@pytest.mark.parametrize("problem", [EOFError, RuntimeError, UserWarning])
def test_where_nobody_can_type(problem: type[Exception]) -> None:
    """Without a prompt, or with one that would show the key, the ways on are named."""

    def ask(_: str) -> str:
        raise problem(VALUE)

    with pytest.raises(ConfigError, match="SVC_API_KEY") as caught:
        login(ask)

    assert caught.value.__context__ is None
    assert VALUE not in str(caught.value)
