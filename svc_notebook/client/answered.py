"""An exchange that was answered before: given back, marked, and recorded.

What it is not: it finds no answer (an `Answerer` does) and sends nothing. Rules: it
has the face of an `Asking`, so that streams and verbs meet no difference; what is
given back is marked as re-used, keeps the service's own date, and reaches every sink
once.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import CallPiece, Delta
from svc_notebook.service.completion import Choice
from svc_notebook.service.request import CompletionRequest

from .sinks import Sinks
from .world import World

Answerer = Callable[[CompletionRequest, Origin], Exchange | None]
"""Finds the recorded exchange that answers a request; None to ask the service."""


class Run(Protocol):
    """One exchange to run: asked of the service, or answered before."""

    exchange: Exchange | None

    async def run(self, show: Callable[[Delta], None]) -> Exchange:
        """Show what comes and return the record."""


class Answered:
    """A recorded answer to a new request; `run` it once.

    Args:
        recorded: The exchange that answers.
        request: What was asked now.
        origin: Who asks now.
        is_streamed: Whether a stream was asked for.
        sinks: Told about it.
        world: Where time and ids come from.
    """

    def __init__(
        self,
        recorded: Exchange,
        *,
        request: CompletionRequest,
        origin: Origin,
        is_streamed: bool,
        sinks: Sinks,
        world: World,
    ) -> None:
        self.exchange: Exchange | None = None
        self._sinks = sinks
        self._world = world
        now = world.now()
        self._answer = replace(
            recorded,
            exchange_id=world.new_id(),
            origin=origin,
            request=request,
            is_reused=True,
            is_streamed=is_streamed,
            n_attempts=0,
            n_refused=0,
            n_chunks=0,
            queue_s=0.0,
            retry_wait_s=0.0,
            first_text_s=None,
            latency_s=None,
            started_at=now,
            ended_at=now,
        )

    async def run(self, show: Callable[[Delta], None]) -> Exchange:
        """Show the answer, record it, and return it."""
        for choice in self._answer.choices:
            show(_to_delta(choice))
        self.exchange = replace(self._answer, ended_at=self._world.now())
        self._sinks.tell(self.exchange)
        return self.exchange


def _to_delta(choice: Choice) -> Delta:
    return Delta(
        index=choice.index,
        text=choice.text,
        calls=tuple(
            CallPiece(
                index=at,
                id=call.id,
                name=call.function.name,
                arguments=call.function.arguments,
            )
            for at, call in enumerate(choice.tool_calls)
        ),
        finish_reason=choice.finish_reason,
    )
