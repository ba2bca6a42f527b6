"""Tools in a sweep: a trial is sent in rounds, and the last reply is its row.

Each round is an exchange of the run. A trial that was stopped between two rounds is
sent again from its first one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from threading import Lock

from msgspec.structs import replace

from svc_notebook.client.async_client import run_on_thread
from svc_notebook.client.request_path import SendRequest
from svc_notebook.client.retry import INTERACTIVE, QUEUED, Policy
from svc_notebook.completion import Completion
from svc_notebook.errors import Interrupted
from svc_notebook.exchange import Exchange, Origin, ToolRound
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tools.consent import Decision, Proposal, deny_all
from svc_notebook.tools.rounds import ToolRecord, run_rounds

from .grid import Trial
from .scheduler import n_tokens_of
from .sweep_tools import SweepTools

SendRound = Callable[[Trial, CompletionRequest, Origin, Policy], Awaitable[Exchange]]
"""Sends one request of a trial."""


class _StoppedError(Exception):
    """The run sends nothing more."""


class TrialRounds:
    """Sends trials in rounds; `may_go` waits until another round may be sent."""

    may_go: Callable[[str], Awaitable[bool]]

    def __init__(
        self, tools: SweepTools, *, ledger: Ledger, hide: Callable[[str], str]
    ) -> None:
        self._tools = tools
        self._ledger = ledger
        self._hide = hide
        self._consent = Lock()

    async def send(
        self, trial: Trial, origin: Origin, send: SendRound
    ) -> tuple[Exchange, int]:
        """Send a trial; return the exchange of its last round, and the tokens of all.

        Raises:
            SvcError: It failed.
            CancelledError: It was stopped between two rounds.
        """
        permit, n_tokens, n_rounds = self._tools.permit, 0, 0
        exchange: Exchange
        n_before = _n_results(trial.request)

        async def ask(request: CompletionRequest, origin: Origin) -> Completion:
            nonlocal n_tokens, n_rounds, exchange
            if n_rounds and not await self.may_go(trial.model):
                raise _StoppedError
            n_rounds += 1
            place = ToolRound(
                n_rounds=n_rounds,
                n_tool_runs=_n_results(request) - n_before,
                is_last=n_rounds == permit.rounds.max_rounds,
            )
            # after a 429, a QUEUED trial is sent again from its first round; later
            # rounds are tried again here, because the rounds before them were paid for
            policy = QUEUED if n_rounds == 1 else INTERACTIVE
            own = replace(origin, tool_round=place)
            exchange = await send(trial, request, own, policy)
            n_tokens += n_tokens_of(exchange)
            return Completion(exchange)

        def run(
            request: CompletionRequest,
            origin: Origin,
            ask: SendRequest,
            check_stop: Callable[[], None] = lambda: None,
        ) -> Completion:
            return run_rounds(
                request,
                origin,
                toolbox=self._tools.toolbox(request.tools),
                send=ask,
                consent=self._decide,
                rounds=permit.rounds,
                keep=ToolRecord(lambda: self._ledger),
                hide=self._hide,
                check_stop=check_stop,
            )

        try:
            if trial.request.tools:
                await run_on_thread(run, trial.request, origin, ask)
            else:
                await ask(trial.request, origin)
        except (_StoppedError, Interrupted):
            raise asyncio.CancelledError from None
        return exchange, n_tokens

    def _decide(self, proposal: Proposal) -> Decision:
        with self._consent:  # the user's function is called for one at a time
            return self._tools.permit.consent(deny_all)(proposal)


def _n_results(request: CompletionRequest) -> int:
    return sum(message.role == "tool" for message in request.messages)
