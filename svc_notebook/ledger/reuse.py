"""Re-use: the recorded answer to a request that was asked before.

What it is not: it sends nothing and records nothing; whoever asks marks what it
gives back as re-used. Rules: two requests are the same when everything that affects
the reply is: endpoint, model, messages, parameters, tools, extra fields and the
repetition; only a whole, good, first-hand answer is given back, the newest one.
"""

from hashlib import blake2b
from typing import Any

import msgspec

from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.params import PARAMS
from svc_notebook.service.request import CompletionRequest

from .store import Ledger

_FLOATS = frozenset(param.name for param in PARAMS if param.kind == "float")
_UNHEARD = frozenset({"user"})  # doc: Request body; for monitoring, not for the reply


def find_answer(
    ledger: Ledger,
    request: CompletionRequest,
    *,
    endpoint: str,
    origin: Origin,
) -> Exchange | None:
    """Return the newest recorded exchange that answers a request; None if none does.

    The first call on a ledger reads all of it once; the ledger remembers.

    Args:
        ledger: Where to look, all sessions included.
        request: What would be asked.
        endpoint: The base address that would be asked.
        origin: Who asks; of its fields the repetition matters.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    found = ledger.asked(
        request_hash(request),
        endpoint=endpoint,
        hash_of=lambda exchange: request_hash(exchange.request),
    )
    return next((each for each in found if same_repeat(each.origin, origin)), None)


def same_repeat(one: Origin, other: Origin) -> bool:
    """Say whether two askers mean the same repetition; none given is the first."""
    return (one.repeat or 0) == (other.repeat or 0)


def request_hash(request: CompletionRequest) -> str:
    """Return the hash of all that affects the reply: 32 hexadecimal digits.

    It depends neither on the order of parameters or of names in a tool, nor on
    whether a number was written 0 or 0.0, nor on `user`.
    """
    whole = {
        "model": request.model,
        "messages": request.messages,
        "params": {
            name: _plain(name, value)
            for name, value in request.params.items()
            if name not in _UNHEARD
        },
        "tools": request.tools,
        "extra": request.extra,
    }
    text = msgspec.json.encode(whole, order="sorted", enc_hook=str)
    return blake2b(text, digest_size=16).hexdigest()


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 - any parameter
    """Return a value as the service would take it, however it was written."""
    if name in _FLOATS:
        return float(value)
    return [value] if name == "stop" and isinstance(value, str) else value
