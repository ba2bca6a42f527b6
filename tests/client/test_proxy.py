"""Proxies out of the environment."""

import traceback
from collections.abc import Callable
from dataclasses import replace

import pytest

from svc_notebook.client.connections import proxy_for
from svc_notebook.client.sync_client import Client
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.endpoints import SERVICE
from svc_notebook.errors import SettingsError
from svc_notebook.settings import Settings
from tests.faults.server import RawServer

NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


CASES = [
    ({}, None),
    ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
    ({"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
    ({"ALL_PROXY": "https://user:pa55@proxy"}, "https://proxy"),
    ({"ALL_PROXY": "http://user:pa55@[::1]:80"}, "http://[::1]"),
    ({"HTTP_PROXY": "http://proxy:3128"}, None),
    ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "svc.example"}, None),
    ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "*"}, None),
]


@pytest.mark.parametrize(("environ", "shown"), CASES)
def test_the_environment_names_a_proxy(
    environ: dict[str, str], shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTPS_PROXY, ALL_PROXY and NO_PROXY are obeyed; a password is not shown."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    proxy = proxy_for("https://svc.example/v1")

    assert (proxy and proxy.shown) == shown
    assert "pa55" not in repr(proxy)


def test_this_machine_needs_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to this machine never go through a proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")

    assert proxy_for("http://127.0.0.1:5000/v1") is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_named_proxy_does_not_get_what_is_for_this_machine(
    host: str, serve: Callable[..., RawServer], emulator: Emulator
) -> None:
    """A key that may go unencrypted to this machine is not sent to a proxy."""
    proxy = serve([b""])
    base_url = emulator.base_url.replace("127.0.0.1", host)
    named = proxy.base_url.removesuffix("/v1")
    endpoint = replace(SERVICE, proxy=named)
    settings = Settings(base_url=base_url, endpoint=endpoint)

    with Client(settings, api_key=emulator.api_key) as client:
        assert client.complete("Hi").text

    assert (len(emulator.requests), proxy.requests) == (1, [])


@pytest.mark.parametrize(
    "url",
    [
        "socks5://user:pa55@proxy",
        "http://",
        "http://user:pa55@proxy:port",
        "http://user:pa55@[v1.x]:3128",
    ],
)
def test_a_proxy_that_cannot_be_used(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with the right form; no frame of the traceback has its password."""
    monkeypatch.setenv("HTTPS_PROXY", url)

    with pytest.raises(SettingsError, match=r"Set proxy=http://HOST:PORT"):
        proxy_for("https://svc.example/v1", url)
    with pytest.raises(SettingsError, match="HTTPS_PROXY=http://HOST:PORT") as caught:
        proxy_for("https://svc.example/v1")

    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    ours = [frame.locals for frame in shown.stack if frame.filename != __file__]
    assert "pa55" not in f"{ours} {caught.value} {shown.__context__}"
