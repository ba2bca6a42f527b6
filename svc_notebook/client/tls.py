"""TLS: the certificates that are trusted (SSL_CERT_FILE, or `ca_file`)."""

import ssl
from functools import cache

import httpx

from svc_notebook.errors import SettingsError


@cache
def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return one context for all connections that trust the same certificates.

    Without `ca_file`, SSL_CERT_FILE and SSL_CERT_DIR are used.
    """
    trusted = ssl.create_default_context(cafile=ca_file) if ca_file else True
    context = httpx.create_ssl_context(verify=trusted)
    context.set_alpn_protocols(["http/1.1"])  # the only version we speak
    return context


def unreadable_certificates(ca_file: str | None) -> SettingsError:
    """Build the error for a file of certificates that cannot be read."""
    if ca_file:
        return SettingsError(
            f"The certificates in ca_file={ca_file!r} of the endpoint cannot be read. "
            "Give the path of a readable file in PEM format."
        )
    return SettingsError(
        "The certificates named by SSL_CERT_FILE or SSL_CERT_DIR cannot be read. Set "
        "SSL_CERT_FILE to a readable file in PEM format, or unset both variables to "
        "use the default certificates."
    )
