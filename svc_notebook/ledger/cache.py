"""The cache: which recorded exchange answers a request, in the ledger or in a file.

Requests that are written differently but ask the same have the same hash. A request
may be answered by the recordings of several hashes, which are tried from the best on.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from svc_notebook.completion import Completion
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.params import PARAMS
from svc_notebook.service.request import CompletionRequest

from .ledger import Ledger

_FLOATS = frozenset(param.name for param in PARAMS if param.kind == "float")
_WITHOUT_EFFECT = "user"  # doc: Request body; for monitoring, not for the reply
# context_tokens is not here, because it is not sent
_HASHED = ("model", "messages", "params", "tools", "extra", "is_fitted")


Serves = Callable[[Exchange], bool]
"""Returns whether a recorded exchange may answer a request."""


class RecordingStore(Protocol):
    """A store of recorded exchanges, which are found by the hash of their request."""

    def recorded(
        self, request_hash: str, origin: Origin, serves: Serves
    ) -> Exchange | None:
        """Return the exchange for the `repeat` of `origin`; None without one."""


class LedgerCache:
    """The exchanges of all sessions with one endpoint, the newest first.

    The first search reads the whole ledger, and writes the hashes of requests there.
    """

    def __init__(self, ledger: Ledger, endpoint: str) -> None:
        self._ledger = ledger
        self._endpoint = endpoint

    def recorded(
        self, request_hash: str, origin: Origin, serves: Serves
    ) -> Exchange | None:
        """Return the newest exchange for the `repeat` of `origin`; None without one."""
        exchanges = self._ledger.with_request_hash(
            request_hash, endpoint=self._endpoint, hash_of=_hash_of_exchange
        )
        repeat = origin.repeat or 0
        of_repeat = (
            exchange
            for exchange in exchanges
            if (exchange.origin.repeat or 0) == repeat
        )
        return next(filter(serves, of_repeat), None)


def find_recorded(
    store: RecordingStore, request: CompletionRequest, origin: Origin
) -> Exchange | None:
    """Return the recorded exchange that answers a request best; None without one."""
    for request_hash, serves in _hashes_to_try(request):
        exchange = store.recorded(request_hash, origin, serves)
        if exchange is not None:
            return exchange
    return None


def hash_request(request: CompletionRequest) -> str:
    """Return the hash of everything that affects the reply: 32 hexadecimal digits.

    Two requests have the same hash if they differ only in the order of names, in 0 and
    0.0, in `user`, or in the number that was computed for `fit`.
    """
    canonical = canonical_request(request)
    hashed = {name: getattr(canonical, name) for name in _HASHED}
    text = msgspec.json.encode(hashed, order="sorted", enc_hook=str)
    return blake2b(text, digest_size=16).hexdigest()


def _hash_of_exchange(exchange: Exchange) -> str:
    return hash_request(exchange.request)


def _hashes_to_try(request: CompletionRequest) -> Iterator[tuple[str, Serves]]:
    """Return the hashes whose recordings may answer a request, the best first."""
    yield hash_request(request), lambda _: True
    if request.is_fitted:
        # An answer to a request without max_tokens serves `fit`, too, if the service's
        # default did not cut it.
        params = {
            name: value
            for name, value in request.params.items()
            if name != "max_tokens"
        }
        unlimited = msgspec.structs.replace(request, params=params, is_fitted=False)
        yield hash_request(unlimited), _is_uncut


def _is_uncut(exchange: Exchange) -> bool:
    return not Completion(exchange).is_cut


def canonical_request(request: CompletionRequest) -> CompletionRequest:
    """Return a request in the form that all ways of writing it share."""
    # `fit` stays `fit`: the number that is computed for it changes with our estimates
    params = {
        name: _canonical_value(name, value)
        for name, value in request.asked_params.items()
        if name != _WITHOUT_EFFECT
    }
    return msgspec.structs.replace(request, params=params, is_fitted=False)


def _canonical_value(name: str, value: Any) -> Any:  # noqa: ANN401 - any parameter
    """Return a parameter's value in the form that all ways of writing it share."""
    if name in _FLOATS:
        return float(value)
    return [value] if name == "stop" and isinstance(value, str) else value
