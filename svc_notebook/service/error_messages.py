"""Error messages: turns the service's error bodies into our errors (doc: Errors).

An error quotes the service and says what to do next; its message is below 4 kB.
"""

import msgspec

from svc_notebook.errors import (
    AuthError,
    BadRequestError,
    DocumentError,
    RateLimitError,
    ServerFaultError,
    ServiceError,
    UnknownModelError,
)

from .params import printable, shorten

SHOWN_CHARS = 700  # of the service's text, in a message
FIELD_CHARS = 1000  # of a field of the error, in the ledger
_SHOWN_PARAM_CHARS = 100
_TIMEOUT_STATUS = 408  # of HTTP: a 4xx that is not the fault of the request
_SERVER_STATUS = 500
UNAUTHORIZED = 401
"""The key was refused, so every other request with it fails, too (doc: Errors)."""
UNAVAILABLE = 503
"""The server is overloaded: a status of HTTP that the document does not show."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The service's error body (doc: Error body).

    Attributes:
        message: Human-readable description; "" if there is none.
        type, param, code: As sent; None where null or absent.
    """

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: str | None = None


_ERRORS: dict[int, type[ServiceError]] = {  # doc: Errors
    401: AuthError,
    403: AuthError,
    404: UnknownModelError,
    429: RateLimitError,
}
_NO_QUOTA = (
    "The account has no quota left. This is not a rate limit, so the request was not "
    "retried. Add to the account's balance, or use another key."
)
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_LACKS_PERMISSION = (
    "The API key lacks permission for this request. Use another key, or ask the holder "
    "of the account for the permission."
)
_REMEDIES = {
    # `credentials.name_refused_key` says which key, and how to replace it
    401: "The API key is invalid or revoked. Use a valid one.",
    403: _LACKS_PERMISSION,
    404: (
        "Either the model id is unknown to the service (`%svc models` lists the "
        "documented ones) or the base address is wrong (it ends with /v1). Check both."
    ),
    429: (
        "A rate limit was exceeded. Wait and ask again, or send fewer requests per "
        "second and minute."
    ),
    # HTTP's own status for a network that wants a login, as in a hotel
    511: (
        "The network requires a login; the service was not reached. Open a page in a "
        "browser, log in there and ask again."
    ),
}
_REFUSED = "The same request would be refused again. Change what the message names."
_FAILED = "Ask again later."


def to_error(
    fault: Fault, *, status: int, retry_after_s: float | None = None
) -> ServiceError:
    """Make the error for an error body; an error inside a stream has status 200."""
    is_failure = status >= _SERVER_STATUS or status in {_TIMEOUT_STATUS, 200}
    error_type = _ERRORS.get(
        status, ServerFaultError if is_failure else BadRequestError
    )
    has_quota = _QUOTA_CODES.isdisjoint({fault.code, fault.type})
    if not has_quota:  # waiting does not help, whatever the status
        error_type = BadRequestError
    remedy = _REMEDIES.get(status, _FAILED if is_failure else _REFUSED)
    service_text = _printable_start(fault.message.strip(), SHOWN_CHARS) or "no message"
    param = _printable_start(fault.param or "", _SHOWN_PARAM_CHARS)
    where = f", parameter {param}" if param else ""
    wait = "" if retry_after_s is None else f" It asks to wait {retry_after_s:.0f} s."
    error = error_type(
        f"The service answered with status {status}{where}: {service_text}",
        status=status,
        type=_bounded(fault.type),
        param=_bounded(fault.param),
        code=_bounded(fault.code),
        retry_after_s=retry_after_s,
    )
    error.remedy = remedy + wait if has_quota else _NO_QUOTA
    return error


WRONG_ADDRESS = (
    "Check that SVC_BASE_URL is the service's address, ending with /v1, and that no "
    "proxy or cache answers in its place."
)
"""The remedy for an answer that is not from the service."""
MOVED = (
    "If that address is right, set SVC_BASE_URL to it, with https and ending with /v1."
)
"""The remedy for a redirect, which is not followed."""
_FOR_OTHER_SERVERS = {
    WRONG_ADDRESS: (
        "Check that {address} is the address of an OpenAI-compatible server, and that "
        "no proxy answers in its place."
    ),
    MOVED: "If that address is right, `%svc use` it instead of {address}.",
}


def name_address(error: DocumentError, address: str) -> None:
    """Replace a remedy for the service by the one for another server's address."""
    if remedy := _FOR_OTHER_SERVERS.get(error.remedy):
        error.remedy = remedy.format(address=address)


def _printable_start(text: str, n_chars: int) -> str:
    """Return the beginning of a text, with unprintable characters escaped."""
    lines = text[: n_chars + 1].splitlines()
    shown = "\n".join(printable(line) for line in lines)
    return shorten(shown, n_chars)


def _bounded(field: str | None) -> str | None:
    return None if field is None else field[:FIELD_CHARS]
