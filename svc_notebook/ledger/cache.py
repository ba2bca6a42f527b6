"""The cache: which recorded exchange answers a request, in the ledger or in a file.

Requests that are written differently but ask the same have the same hash. The answers
to several hashes may serve one request; a store is searched for the best one first.
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
# context_tokens are not here, because they are not sent
_HASHED = ("model", "messages", "params", "tools", "extra", "is_fitted")


Serves = Callable[[Exchange], bool]
"""Says whether a recorded exchange, as it was, may answer a request."""


class RecordingStore(Protocol):
    """Has recorded exchanges by the hash of their request."""

    def recorded(
        self,
        request_hash: str,
        request: CompletionRequest,
        origin: Origin,
        serves: Serves,
    ) -> Exchange | None:
        """Return the exchange for a repetition of a request, if there is one."""


class LedgerCache:
    """The exchanges of any session with one endpoint, the newest first.

    The first search reads the whole ledger, and keeps the hashes of requests there.
    """

    def __init__(self, ledger: Ledger, endpoint: str) -> None:
        self._ledger = ledger
        self._endpoint = endpoint

    def recorded(
        self,
        request_hash: str,
        request: CompletionRequest,  # noqa: ARG002 - another store needs it
        origin: Origin,
        serves: Serves,
    ) -> Exchange | None:
        """Return the newest that did not fail; `origin` has the repetition."""
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
    """Return the exchange of a store that answers a request best, if any does."""
    for request_hash, serves in _hashes_to_try(request):
        exchange = store.recorded(request_hash, request, origin, serves)
        if exchange is not None:
            return exchange
    return None


def hash_request(request: CompletionRequest) -> str:
    """Return the hash of everything that affects the reply: 32 hexadecimal digits.

    The order of names, 0 or 0.0, `user`, and what was computed for `fit` make no
    difference.
    """
    plain = in_one_form(request)
    hashed = {name: getattr(plain, name) for name in _HASHED}
    text = msgspec.json.encode(hashed, order="sorted", enc_hook=str)
    return blake2b(text, digest_size=16).hexdigest()


def _hash_of_exchange(exchange: Exchange) -> str:
    return hash_request(exchange.request)


def _hashes_to_try(request: CompletionRequest) -> Iterator[tuple[str, Serves]]:
    """Return the hashes of requests whose answers serve this one, the best first."""
    yield hash_request(request), lambda _: True
    if request.is_fitted:
        # An answer to a request without max_tokens serves `fit`, too, where the
        # service's default was enough for it.
        params = {k: v for k, v in request.params.items() if k != "max_tokens"}
        plain = msgspec.structs.replace(request, params=params, is_fitted=False)
        yield hash_request(plain), _is_whole


def _is_whole(exchange: Exchange) -> bool:
    return not Completion(exchange).is_cut


def in_one_form(request: CompletionRequest) -> CompletionRequest:
    """Return the one form of requests that are written differently but ask the same."""
    # `fit` stays `fit`: the number computed for it changes with our estimates
    params = {
        name: _value_in_one_form(name, value)
        for name, value in request.asked_params.items()
        if name != _WITHOUT_EFFECT
    }
    return msgspec.structs.replace(request, params=params, is_fitted=False)


def _value_in_one_form(name: str, value: Any) -> Any:  # noqa: ANN401 - any parameter
    """Return the one form of a value that can be written in several ways."""
    if name in _FLOATS:
        return float(value)
    return [value] if name == "stop" and isinstance(value, str) else value
