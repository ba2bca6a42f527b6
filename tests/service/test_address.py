"""The base address, mended or refused."""

import pytest

from svc_notebook.endpoints import is_loopback, to_base_url
from svc_notebook.errors import SettingsError

MENDED = {
    "https://host/v1": "https://host/v1",
    "https://host/v1/": "https://host/v1",
    " https://host/v1\n": "https://host/v1",
    '"https://host/v1"': "https://host/v1",
    "https://host": "https://host/v1",
    "https://host:8443/api": "https://host:8443/api/v1",
    "https://host/v1/chat/completions": "https://host/v1",
    "https://host/v1/chat/completions/": "https://host/v1",
    "http://127.0.0.1:8000/v1": "http://127.0.0.1:8000/v1",
    "http://localhost:8000": "http://localhost:8000/v1",
    "http://[::1]:8000/v1": "http://[::1]:8000/v1",
}
REFUSED = [
    "",
    "host",
    "host/v1",
    "ftp://host/v1",
    "https://",
    "https:///v1",
    "https://user:secret@host/v1",
    "https://host/v1?key=1",
    "https://host/v1#x",
    "https://host:0/v1",
    "https://host:port/v1",
    "https://ho st/v1",
    "https://host/v1\r\nX: y",
    "https://โฮสต์/v1",
]


@pytest.mark.parametrize("text", MENDED)
def test_addresses_come_to_one_form(text: str) -> None:
    """Slashes, quotes, a missing /v1 and the whole endpoint are mended."""
    assert to_base_url(text) == MENDED[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_address_is_refused(text: str) -> None:
    """What cannot be the service's address is refused with the right form."""
    with pytest.raises(SettingsError, match="https://HOST/v1") as caught:
        to_base_url(text)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["https://HOST/v1", "https://HOST:8000"])
def test_the_placeholder_of_the_documentation_is_no_host(text: str) -> None:
    """Copied as it is, the address says what is to be written there."""
    with pytest.raises(SettingsError, match=r"HOST .* is a placeholder.*use emulator"):
        to_base_url(text)


@pytest.mark.parametrize(
    "text", ["unix:///run/llm.sock", "http+unix://%2Frun%2Fllm/v1", "/run/llm.sock"]
)
def test_a_unix_socket_is_not_supported(text: str) -> None:
    """The error says so, and what to do instead."""
    with pytest.raises(SettingsError, match=r"not supported(.|\n)*127.0.0.1:8000/v1"):
        to_base_url(text)


@pytest.mark.parametrize("host", ["host", "10.0.0.1", "127.0.0.1.example"])
def test_a_key_never_travels_in_clear(host: str) -> None:
    """Plain http to another machine is refused."""
    with pytest.raises(SettingsError, match="unencrypted"):
        to_base_url(f"http://{host}/v1")


def test_loopback() -> None:
    """This machine is known by name and by number."""
    hosts = ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "x"]  # noqa: S104 - it is not this machine

    assert [is_loopback(host) for host in hosts] == [True] * 5 + [False] * 2
