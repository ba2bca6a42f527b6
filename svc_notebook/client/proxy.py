"""The proxy for an address, out of the environment.

Rules: the standard library's reading of the environment, once; the proxy itself is
checked here, because a wrong one shows up as anything but a proxy error later; a
proxy's password is never shown.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from svc_notebook.errors import SettingsError
from svc_notebook.service.address import is_loopback


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy: its address, which may hold a password, and how it may be shown."""

    shown: str
    _url: str

    @property
    def url(self) -> str:
        """The address as httpx takes it."""
        return self._url

    @property
    def is_tls(self) -> bool:
        """Whether the way to the proxy itself is encrypted."""
        return self._url.startswith("https:")

    def __repr__(self) -> str:
        return f"<Proxy {self.shown}>"


def proxy_for(base_url: str) -> Proxy | None:
    """Return the proxy that the environment names for an address.

    Raises:
        SettingsError: The environment names one that cannot be used.
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    found = getproxies()
    url = found.get(parts.scheme) or found.get("all")
    return _checked(url, parts.scheme) if url else None


def _checked(url: str, scheme: str) -> Proxy:
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"The environment names a proxy for {scheme} that cannot be used; the "
            f"right form is {scheme.upper()}_PROXY=http://HOST:PORT. NO_PROXY lists "
            "hosts that need none."
        )
    at_port = "" if port is None else f":{port}"
    return Proxy(f"{parts.scheme}://{parts.hostname}{at_port}", full)
