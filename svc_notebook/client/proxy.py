"""Proxies: the one an endpoint names, else HTTPS_PROXY, with NO_PROXY, is obeyed."""

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from svc_notebook.endpoints import is_loopback
from svc_notebook.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy: its address, which may hold a password, and how it may be shown."""

    shown: str
    _url: str = field(repr=False)

    @property
    def url(self) -> httpx.URL:
        """Its address."""
        return httpx.URL(self._url)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers for a request to it."""
        login = httpx.Proxy(self._url).raw_auth
        basic = b"Basic " + b64encode(b":".join(login or ()))
        return [(b"Proxy-Authorization", basic)] if login else []


def proxy_for(base_url: str, named: str | None = None) -> Proxy | None:
    """Return the proxy for an address: the one named, else the environment's."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    proxy: Proxy | SettingsError | None = None
    if named:
        proxy = _proxy(named, "The proxy of the endpoint", "proxy")
    elif not is_loopback(host) and not proxy_bypass(parts.netloc):
        proxy = _environments_proxy(parts.scheme)
    if isinstance(proxy, SettingsError):
        raise proxy
    return proxy


def _environments_proxy(scheme: str) -> Proxy | SettingsError | None:
    named = getproxies()
    url = named.get(scheme) or named.get("all")
    if not url:
        return None
    where = f"The proxy that the environment names for {scheme}"
    return _proxy(url, where, f"{scheme.upper()}_PROXY")


def _proxy(url: str, what: str, setting: str) -> Proxy | SettingsError:
    """Return a proxy, or the error; its password is in this frame."""
    full = url if "://" in url else f"http://{url}"
    parsed = parse_url(full)
    if parsed is None or parsed.scheme not in {"http", "https"} or not parsed.host:
        return SettingsError(
            f"{what} cannot be used; set {setting}=http://HOST:PORT. NO_PROXY lists "
            "hosts that are reached without a proxy of the environment."
        )
    return Proxy(f"{parsed.scheme}://{parsed.netloc.decode()}", full)


def parse_url(text: str) -> httpx.URL | None:
    """Return an address as httpx takes it; None if it does not."""
    try:
        url = httpx.URL(text)
        _ = url.host  # decodes international names
    except (httpx.InvalidURL, ValueError):  # idna's errors are ValueErrors
        return None
    return url
