"""A key is found for its own address by three rules, and is sent to no other."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from zlib import decompress

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

import svc_notebook as svc
from svc_notebook.client.sync_client import Client
from svc_notebook.credentials import Key, find_key, forget, remember
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.endpoints import Endpoint
from svc_notebook.errors import MissingKeyError, ParameterError, SettingsError, SvcError
from svc_notebook.magics.use_and_login import login
from svc_notebook.session import Session, current, isolated
from svc_notebook.settings import Settings

VALUE = "sk-secret-of-the-keyring"
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


def test_the_keyring_is_asked_last(ring: Ring) -> None:
    """Its entry is used where the rules find no key, and is said as the source."""
    ring.entries["svc-notebook", HERE] = f" {VALUE}\n"

    key = find_key({}, base_url=HERE)

    assert (key.source, key.authorization()) == ("the keyring", f"Bearer {VALUE}")
    environ = {"SVC_API_KEY": "sk-other", "SVC_BASE_URL": HERE}
    assert find_key(environ, base_url=HERE).source == "SVC_API_KEY"


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
    kept_in = remember(Key(VALUE, source="a prompt"), HERE)

    assert kept_in == "Ring of the test"
    assert ring.entries == {("svc-notebook", HERE): VALUE}
    environ = {"SVC_API_KEY": "sk-other", "SVC_BASE_URL": HERE}
    assert find_key(environ, base_url=HERE).source == "a prompt"
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


@pytest.mark.parametrize("blank", ["", " \t\n"])
def test_a_blank_variable_is_not_set(ring: Ring, blank: str) -> None:
    """A blank SVC_API_KEY leaves the keyring's entry in use, as if it were unset."""
    environ = {"SVC_API_KEY": blank, "SVC_BASE_URL": HERE}
    with pytest.raises(MissingKeyError, match="SVC_API_KEY is not set"):
        find_key(environ, base_url=HERE)
    ring.entries["svc-notebook", HERE] = VALUE

    assert find_key(environ, base_url=HERE).source == "the keyring"


def test_a_run_never_keeps_the_keyrings_key(
    ring: Ring, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the template nor the name of a run brings it into the ledger."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    ring.entries["svc-notebook", emulator.base_url] = VALUE
    with isolated():
        template = svc.sweep(f"My key is {VALUE}.", temperature=[0, 1])
        named = svc.sweep("Hi", temperature=[0, 1], name=VALUE)

        with pytest.raises(ParameterError, match="contains the API key"):
            named.run()
        with suppress(SvcError):
            template.run()
        manifests = [
            decompress(plan.manifest).decode() for plan in current().ledger.plans()
        ]

    assert VALUE not in "".join(manifests)
    assert emulator.requests == ()


def sources(environ: dict[str, str], *addresses: str) -> list[str]:
    """Return where the key of each address is found; "" for none."""
    found = []
    for address in addresses:
        try:
            found.append(find_key(environ, base_url=address).source)
        except MissingKeyError:
            found.append("")
    return found


def test_a_typed_key_is_for_its_address(ring: Ring) -> None:
    """Neither a typed key nor the keyring's is found for another address."""
    remember(Key(VALUE, source="a prompt"), HERE)
    ring.entries["svc-notebook", THERE] = VALUE

    assert sources({}, HERE, THERE, "https://x.invalid/v1") == [
        "a prompt",
        "the keyring",
        "",
    ]


def test_the_environments_key_is_for_its_address(ring: Ring) -> None:
    """SVC_API_KEY is for SVC_BASE_URL, however that is written, and for no other."""
    environ = {"SVC_API_KEY": VALUE, "SVC_BASE_URL": "https://here.invalid/"}

    assert not ring.entries
    assert sources(environ, THERE, HERE) == ["", "SVC_API_KEY"]
    assert sources({**environ, "SVC_BASE_URL": THERE}, THERE, HERE) == [
        "SVC_API_KEY",
        "",
    ]
    for address in ("nonsense", ""):
        assert sources({**environ, "SVC_BASE_URL": address}, HERE, THERE) == ["", ""]


def test_the_variable_of_an_endpoint_is_for_its_address() -> None:
    """It is not found for an address that the file does not name."""
    environ = {"LAB_API_KEY": VALUE, "SVC_API_KEY": "sk-other", "SVC_BASE_URL": HERE}
    lab = Endpoint(name="lab", base_url=THERE, key_env="LAB_API_KEY")

    key = find_key(environ, base_url=THERE, endpoint=lab)
    moved = Settings(base_url=HERE, endpoint=lab).endpoint

    assert key.source == "LAB_API_KEY"
    assert find_key(environ, base_url=HERE, endpoint=moved).source == "SVC_API_KEY"
    with pytest.raises(MissingKeyError, match="LAB_API_KEY is not set"):
        find_key({"SVC_API_KEY": VALUE}, base_url=THERE, endpoint=lab)


def test_a_key_is_typed_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """`%svc login` alone takes the address in use, and refuses if there is none."""
    session = Session()

    with pytest.raises(SettingsError, match="Write `%svc login https://HOST/v1`"):
        login(session, ask=lambda _: VALUE)
    typed_for_one = login(session, THERE, ask=lambda _: VALUE)
    monkeypatch.setenv("SVC_BASE_URL", HERE)
    login(session, ask=lambda _: "sk-typed-for-here")

    assert f"`%svc use {THERE}` sends requests there" in typed_for_one
    assert [find_key({}, base_url=each).digest("") for each in (HERE, THERE)] == [
        Key("sk-typed-for-here", source="").digest(""),
        Key(VALUE, source="").digest(""),
    ]


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
    assert "SVC_API_KEY is for SVC_BASE_URL only, and was not sent" in said
    assert "key=" in said
    assert emulator.api_key not in said
    client = Client(base_url=emulator.base_url, key=emulator.api_key)
    assert client.complete("Hi").text


def test_a_new_address_in_the_environment_gets_the_environments_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are the environment's; a client that was made before sends nothing more."""
    at_once: dict[str, Any] = {"tokens_per_s": None, "first_token_s": 0}
    with (
        Emulator(keys=[VALUE], **at_once) as first,
        Emulator(keys=["sk-new-one"], **at_once) as second,
    ):
        monkeypatch.setenv("SVC_BASE_URL", first.base_url)
        monkeypatch.setenv("SVC_API_KEY", VALUE)
        session = Session()
        older = Client(session.settings)
        session.client.complete("Hi")
        monkeypatch.setenv("SVC_BASE_URL", second.base_url)
        monkeypatch.setenv("SVC_API_KEY", "sk-new-one")
        session.client.complete("Hi")
        with pytest.raises(MissingKeyError):
            older.complete("Hi")
        session.close()

    assert [each.status for each in first.requests] == [200]
    assert [each.status for each in second.requests] == [200]
