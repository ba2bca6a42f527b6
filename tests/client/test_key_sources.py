"""Where the key comes from: typed, the environment, the system's keyring."""

import sys
from collections.abc import Iterator

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from svc_notebook.client.sync import Client
from svc_notebook.credentials import Key, find_key, forget, key_mark, remember
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import MissingKeyError
from svc_notebook.magics.endpoint import describe
from svc_notebook.session import Session

VALUE = "sk-secret-of-the-keyring"
ENV = "SVC_API_KEY"
HERE = "https://here.invalid/v1"
THERE = "https://there.invalid/v1"


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self, *, is_locked: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # keyring's
        self.entries: dict[tuple[str, str], str] = {}
        self.is_locked = is_locked

    @property
    def name(self) -> str:
        """What it is called."""
        return "Ring of the test"

    def get_password(self, service: str, username: str) -> str | None:
        """Look an entry up."""
        self._unlock()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep an entry."""
        self._unlock()
        self.entries[service, username] = password

    def _unlock(self) -> None:
        if self.is_locked:
            raise KeyringLocked(f"would not open for {VALUE}")


@pytest.fixture
def ring() -> Iterator[Ring]:
    """The keyring of this test's machine."""
    before = keyring.get_keyring()
    found = Ring()
    keyring.set_keyring(found)
    yield found
    keyring.set_keyring(before)


def test_the_keyring_is_the_second_source(ring: Ring) -> None:
    """Without a key in the environment the keyring's is taken, and said so."""
    ring.entries["svc-notebook", HERE] = f" {VALUE}\n"

    found = find_key({}, base_url=HERE)

    assert (found.source, found.authorization()) == ("the keyring", f"Bearer {VALUE}")
    assert find_key({"SVC_API_KEY": "sk-other"}, base_url=HERE).source == "SVC_API_KEY"


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_keyring_without_a_key_is_no_failure(ring: Ring, is_locked: bool) -> None:
    """A keyring that is locked or empty has no key; the message says how to set one."""
    ring.is_locked = is_locked

    with pytest.raises(MissingKeyError, match="%svc login") as caught:
        find_key({}, base_url=HERE)

    assert caught.value.__context__ is None


def test_what_the_keyring_holds_may_be_no_key(ring: Ring) -> None:
    """An entry that cannot be sent is refused by its source, unseen."""
    ring.entries["svc-notebook", HERE] = f"{VALUE} กุญแจ"

    with pytest.raises(MissingKeyError, match="the keyring contains a space") as caught:
        find_key({}, base_url=HERE)

    assert VALUE not in str(caught.value)


def test_a_typed_key_comes_first_and_is_kept(ring: Ring) -> None:
    """A typed key is used from now on, before the environment's, and is kept."""
    before = key_mark({})

    kept_in = remember(Key(VALUE, source="a prompt"), HERE)

    assert kept_in == "Ring of the test"
    assert ring.entries == {("svc-notebook", HERE): VALUE}
    assert find_key({"SVC_API_KEY": "sk-other"}, base_url=HERE).source == "a prompt"
    assert key_mark({}) != before
    forget()
    assert find_key({}, base_url=HERE).source == "the keyring"


def test_without_a_keyring_a_typed_key_is_in_memory(ring: Ring) -> None:
    """Where no keyring takes it, a typed key is this process's alone."""
    ring.is_locked = True

    kept_in = remember(Key(VALUE, source="a prompt"), HERE)

    assert (kept_in, find_key({}, base_url=HERE).source) == (None, "a prompt")


def test_without_the_extra_there_is_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package works where `keyring` is not installed."""
    monkeypatch.setitem(sys.modules, "keyring", None)

    with pytest.raises(MissingKeyError):
        find_key({}, base_url=HERE)


def sources(environ: dict[str, str], *addresses: str) -> list[str]:
    """Return where the key of each address is found; "" for none."""
    found = []
    for address in addresses:
        try:
            found.append(find_key(environ, base_url=address).source)
        except MissingKeyError:
            found.append("")
    return found


def test_a_key_is_for_one_address(ring: Ring) -> None:
    """Neither a typed key nor the keyring's is found for another address."""
    remember(Key(VALUE, source="a prompt"), HERE)
    ring.entries["svc-notebook", THERE] = VALUE

    assert sources({}, HERE, THERE, "https://x.invalid/v1") == [
        "a prompt",
        "the keyring",
        "",
    ]


def test_the_environments_key_is_for_its_address(ring: Ring) -> None:
    """SVC_API_KEY belongs to SVC_BASE_URL, however that is written, and to no other."""
    environ = {"SVC_API_KEY": VALUE, "SVC_BASE_URL": "https://here.invalid/"}

    assert not ring.entries
    assert sources(environ, THERE, HERE) == ["", "SVC_API_KEY"]
    assert sources({**environ, "SVC_BASE_URL": "nonsense"}, HERE) == [""]


@pytest.mark.parametrize("is_typed", [True, False])
def test_a_key_without_an_address_is_for_the_first(ring: Ring, is_typed: bool) -> None:
    """A key given before any address belongs to the first address that is used."""
    if is_typed:
        kept_in = remember(Key(VALUE, source="a prompt"), None)
        assert (kept_in, ring.entries) == (None, {})
    environ = {} if is_typed else {"SVC_API_KEY": VALUE}

    found = sources(environ, HERE, THERE, HERE)

    assert found == (["a prompt", "", "a prompt"] if is_typed else [ENV, "", ENV])


def test_the_key_of_one_service_is_not_sent_to_another(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of another address needs key=; the error says so before sending."""
    monkeypatch.setenv("SVC_BASE_URL", HERE)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)

    with pytest.raises(MissingKeyError) as caught:
        Client(base_url=emulator.base_url).complete("Hi")

    assert emulator.requests == ()
    said = str(caught.value)
    assert f"SVC_API_KEY belongs to {HERE} and was not sent" in said
    assert "key=" in said
    assert emulator.api_key not in said
    client = Client(base_url=emulator.base_url, key=emulator.api_key)
    assert client.complete("Hi").text


@pytest.mark.slow
def test_a_key_that_was_sent_stays_with_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC_API_KEY is not sent to another SVC_BASE_URL later; a typed key is."""
    monkeypatch.setenv("SVC_API_KEY", VALUE)
    with Emulator(keys=[VALUE]) as first, Emulator(keys=[VALUE]) as second:
        monkeypatch.setenv("SVC_BASE_URL", first.base_url)
        session = Session()
        session.client.complete("Hi")
        monkeypatch.setenv("SVC_BASE_URL", second.base_url)
        with pytest.raises(MissingKeyError) as caught:
            session.client.complete("Hi")
        said = f"SVC_API_KEY belongs to {first.base_url} and was not sent"
        assert said in str(caught.value)
        assert "%svc login" in str(caught.value)
        assert said in describe(session)
        assert second.requests == ()

        remember(Key(VALUE, source="a prompt"), second.base_url)
        assert session.client.complete("Hi").text
        session.close()


@pytest.mark.slow
def test_an_emulators_own_key_is_for_any_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key that every emulator serves goes with SVC_BASE_URL: it is no secret."""
    session = Session()
    for _ in range(2):
        with Emulator() as emulator:
            monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
            monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
            assert session.client.complete("Hi").text
    session.close()
