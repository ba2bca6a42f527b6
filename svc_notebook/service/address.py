"""The base address of the service, mended or refused (doc: Versioning).

Rules: pure; the result ends with /v1 and has no slash behind it; a key travels
in clear only where that was asked for; else http is for this machine alone.
"""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from svc_notebook.errors import SettingsError

VERSION = "v1"  # doc: Versioning
OPERATION = "chat/completions"  # doc: POST /v1/chat/completions
_OTHER_VERSION = re.compile(r"v\d+")
_RIGHT_FORM = "the right form is https://HOST/v1"


def to_base_url(text: str, *, allow_http: bool = False) -> str:
    """Return the base address in its one form, such as https://host/v1.

    Args:
        text: What a user gave: with or without a trailing slash, without /v1, or
            with the whole endpoint.
        allow_http: Whether the key may travel in clear to another machine.

    Raises:
        SettingsError: It is no address of the service, it holds a user name, a query
            or a fragment, or it would carry the key in clear to another machine.
    """
    if not isinstance(text, str):
        raise SettingsError(
            f"The base address is {type(text).__name__}; give a text: {_RIGHT_FORM}."
        )
    cleaned = text.strip().strip("\"'")
    parts = _split(cleaned)
    path = parts.path.rstrip("/").removesuffix("/" + OPERATION).rstrip("/")
    last = path.rsplit("/", 1)[-1]
    if _OTHER_VERSION.fullmatch(last) and last != VERSION:
        raise SettingsError(
            f"The base address ends with /{last}, and only /{VERSION} is documented; "
            f"{_RIGHT_FORM} (doc: Versioning)."
        )
    if last != VERSION:
        path = f"{path}/{VERSION}"
    is_clear = parts.scheme == "http" and not is_loopback(parts.hostname or "")
    if is_clear and not allow_http:
        raise SettingsError(
            f"The base address is http://{parts.hostname}: the API key would travel "
            f"in clear. Use https ({_RIGHT_FORM}); http is for this machine, "
            "or for a network you trust: SVC_ALLOW_HTTP=1 allows it."
        )
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    is_clean = text.isascii() and not any(c.isspace() or c < " " for c in text)
    has_host = parts.scheme in {"http", "https"} and bool(parts.hostname)
    if not (is_plain and is_clean and has_host) or port == 0:
        # The text is not repeated: a key pasted in the wrong place would show.
        raise SettingsError(
            "The base address cannot be used: it needs https and a host, perhaps a "
            "port up to 65535, and no user name, query, fragment or blank; "
            f"{_RIGHT_FORM}. Set SVC_BASE_URL to it (doc: Versioning)."
        )
    return parts


def is_loopback(host: str) -> bool:
    """Say whether a host name means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
