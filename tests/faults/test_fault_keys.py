"""I. Keys as people paste them: mended, or refused without being shown."""

import copy
import inspect
import json
import logging
import pickle
from collections.abc import Callable, Iterator

import pytest

from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.sync import Client
from svc_notebook.credentials import Key, find_key
from svc_notebook.errors import MissingKeyError, SettingsError, SvcError
from tests.faults.answers import GOOD, http
from tests.faults.player import KEY, MODEL, Played, everything_of
from tests.faults.server import RawServer


@pytest.fixture
def serve() -> Iterator[Callable[..., RawServer]]:
    """Start servers of raw bytes."""
    servers: list[RawServer] = []

    def start(answer: bytes = GOOD) -> RawServer:
        servers.append(RawServer([[answer]]))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    "pasted",
    [f"{KEY}\n", f"\r\n {KEY}\t", f"Bearer {KEY}", f"bearer  {KEY}", f"'{KEY}'"],
)
def test_a_pasted_key_is_mended(pasted: str, serve: Callable[..., RawServer]) -> None:
    """Newlines, blanks, quotes and "Bearer " around a pasted key are taken off."""
    server = serve()

    with Client(base_url=server.base_url, api_key=pasted) as client:
        client.complete("Hi", model=MODEL)

    assert f"\r\nAuthorization: Bearer {KEY}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize(
    "pasted",
    [
        f"{KEY}\r\nX-Injected: yes",
        f"{KEY}\0",
        f"{KEY}กุญแจ",
        f"{KEY} {KEY}",
        f"{KEY}\u200b",
        f"{KEY}\x7f",
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_cannot_be_a_key_is_refused_unseen(
    pasted: str, kind: Callable[..., object], serve: Callable[..., RawServer]
) -> None:
    """CR, LF, NUL, Thai, inner blanks and invisible letters are refused unseen."""
    server = serve()

    with pytest.raises(MissingKeyError) as caught:
        kind(base_url=server.base_url, api_key=pasted)

    assert "fault-suite" not in everything_of(Played(error=caught.value))
    assert server.requests == []


@pytest.mark.parametrize("empty", ["", "  ", "\n", '""', "Bearer "])
def test_an_empty_key_names_the_way_on(empty: str) -> None:
    """An empty key is refused, and where keys come from is said."""
    with pytest.raises(MissingKeyError, match="dashboard"):
        Key(empty, source="test")


def test_a_key_shows_in_nothing_that_looks_at_objects() -> None:
    """repr, str, format, members, attributes, JSON, copies: none shows the key."""
    key = Key(KEY, source="SVC_API_KEY")

    looks = [
        repr(key),
        str(key),
        f"{key:>40}",
        f"{key!a}",
        repr(inspect.getmembers(key)),
        repr([getattr(key, name) for name in dir(key) if not callable(name)]),
        json.dumps({"key": key}, default=repr),
        repr(copy.deepcopy({"key": key})),
    ]

    assert [look for look in looks if KEY in look] == []
    assert "SVC_API_KEY" in repr(key)


def test_a_key_cannot_be_stored() -> None:
    """Pickling a key, or asking for its state, is refused by name."""
    key = Key(KEY, source="test")

    with pytest.raises(MissingKeyError, match="not stored"):
        pickle.dumps(key)
    with pytest.raises(MissingKeyError, match="not stored"):
        key.__getstate__()

    assert copy.copy(key) is key


@pytest.mark.parametrize("key", [KEY, KEY[:12], "x" * 190 + KEY])
def test_a_key_that_is_sent_back_is_blotted_out(
    key: str, serve: Callable[..., RawServer], caplog: pytest.LogCaptureFixture
) -> None:
    """A key, or its beginning, in body, header or page shows in no error and no log."""
    caplog.set_level(logging.DEBUG)
    server = serve(http(f"{key} is wrong".encode(), X_Echo=key))

    with (
        Client(base_url=server.base_url, api_key=KEY) as client,
        pytest.raises(SvcError) as caught,
    ):
        client.complete("Hi", model=MODEL)

    shown = everything_of(Played(error=caught.value)) + caplog.text
    assert KEY[:12] not in shown
    assert "[key]" in shown


@pytest.mark.parametrize(
    "address", ["http://svc.invalid/v1", "http://10.0.0.1/v1", "http://127.0.0.1.x/v1"]
)
def test_a_key_does_not_travel_in_clear(address: str) -> None:
    """Plain http to anything but this machine is refused."""
    with pytest.raises(SettingsError, match="in clear"):
        Client(base_url=address, api_key=KEY)


@pytest.mark.parametrize(
    "address",
    [f"https://{KEY}@svc.invalid/v1", f"https://svc.invalid/v1?key={KEY}", KEY],
)
def test_a_key_in_the_address_is_refused_unseen(address: str) -> None:
    """A key pasted where the address belongs is refused and not repeated."""
    with pytest.raises(SettingsError) as caught:
        Client(base_url=address, api_key="k")

    assert KEY not in str(caught.value)


def test_where_the_key_was_found_is_said() -> None:
    """What is said of a key is where it came from."""
    key = find_key({"SVC_API_KEY": KEY})

    assert (key.source, repr(key)) == (
        "SVC_API_KEY",
        "<API key (hidden) from SVC_API_KEY>",
    )
