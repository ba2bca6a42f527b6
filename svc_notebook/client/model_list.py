"""`GET /models`: asks a server which models it has.

The service's document does not show this operation, so only addresses other than
SVC_BASE_URL are asked. If a server does not have it, nothing is said.
"""

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from svc_notebook.credentials import Key
from svc_notebook.endpoints import NOT_REACHED, ServerFacts, facts_of, read_models

from .retry import FailedTry

if TYPE_CHECKING:  # httpx loads at the first request
    from .connections import HttpTransport

OPERATION = "models"
WITHIN_S = 3.0  # a person may be waiting for the list
_AGAIN_S = 30.0  # until a server that did not answer is asked again
_MAX_BYTES = 4_000_000  # some servers list hundreds of models, with long texts
_OK = 200
# With these, a server has listed its models or said that it has no list, and is not
# asked again. Other statuses may pass, or need another key.
_FINAL_STATUSES = frozenset({_OK, 404, 405, 410, 501})


def may_ask(base_url: str) -> bool:
    """Say whether a server is to be asked now, and note that it is asked."""
    facts, now_s = facts_of(base_url), time.monotonic()
    if now_s < facts.asked_s + _AGAIN_S:
        return False
    facts.asked_s = now_s
    return True


async def ask_for_models(transport: "HttpTransport", key: Key, base_url: str) -> None:
    """Ask a server for its models; keep them, or why they could not be read."""
    facts = facts_of(base_url)
    facts.problem, facts.status = f"no answer within {WITHIN_S:.0f} s", 0
    with suppress(TimeoutError):
        async with asyncio.timeout(WITHIN_S):
            await _ask(transport, key, facts)


async def _ask(transport: "HttpTransport", key: Key, facts: ServerFacts) -> None:
    answer = await transport.send(
        b"",
        key=key,
        is_streamed=False,
        connect_s=WITHIN_S,
        within_s=WITHIN_S,
        on_sent=lambda: None,
    )
    if isinstance(answer, FailedTry):
        facts.problem = NOT_REACHED
    if answer is None or isinstance(answer, FailedTry):
        return
    body = b""
    try:
        while len(body) < _MAX_BYTES and isinstance(
            piece := await answer.read(within_s=WITHIN_S), bytes
        ):
            if not piece:
                if answer.head.status in _FINAL_STATUSES:
                    facts.asked_s = float("inf")
                break
            body += piece
    finally:
        await answer.close()
    facts.problem, facts.status = str(answer.head.status), answer.head.status
    if answer.head.status == _OK:
        listed = _read(key.redact(body.decode("utf-8", "replace")))
        facts.listed = read_models(listed)
        is_list = bool(facts.listed) or isinstance(listed, (dict, list))
        facts.problem = "" if is_list else "it is not JSON"


def _read(text: str) -> Any:  # noqa: ANN401 - any JSON
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(text)
    return None
