"""Tools in a sweep: the functions that it runs, and the rounds that send a trial.

Each round is an exchange of the run, and the last reply is the row of the trial. A
trial that was stopped between two rounds is sent again from its first round.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

import msgspec
from msgspec.structs import replace

from svc_notebook.client.async_client import run_on_thread
from svc_notebook.client.request_pipeline import SendRequest
from svc_notebook.client.retry import INTERACTIVE, QUEUED, Policy
from svc_notebook.completion import Completion
from svc_notebook.errors import Interrupted, ParameterError
from svc_notebook.exchange import Exchange, Origin, ToolRound
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tools.consent import ConsentDecision, Proposal, deny_all
from svc_notebook.tools.dataframe_for_model import is_pandas
from svc_notebook.tools.rounds import Permit, ToolRecord, run_rounds
from svc_notebook.tools.toolbox import Tool, Toolbox

from .grid import Dimension, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTools:
    """The functions of a sweep by definition, and the permit to run them."""

    tools: Mapping[bytes, Tool]
    permit: Permit

    @property
    def limits(self) -> dict[str, float]:
        """The limits of tool rounds, as a manifest stores them."""
        rounds = self.permit.rounds
        names = ("max_rounds", "tool_timeout_s", "total_s")
        return {name: getattr(rounds, name) for name in names}

    def toolbox(self, definitions: Iterable[Mapping[str, Any]]) -> Toolbox:
        """Return the tools with these definitions."""
        return Toolbox(
            [
                self.tools.get(_definition_key(definition), definition)
                for definition in definitions
            ]
        )


def sweep_tools(
    tools: object, permit: Permit, dimensions: Iterable[Dimension]
) -> SweepTools | None:
    """Return the functions that are offered, and check that they can be run.

    None if only definitions are offered: then nothing is run, and the caller gets the
    calls.
    """
    functions = {
        _definition_key(tool.definition): tool for tool in _with_functions(tools)
    }
    points = [point for dimension in dimensions for point in dimension.points]
    definitions = [tool for point in points for tool in point.get("tools") or ()]
    offered = [
        functions[key] for key in map(_definition_key, definitions) if key in functions
    ]
    if not offered:
        return None
    if any(point.get("n", 1) not in (None, 1) for point in points):
        raise _not_sent(
            "Tools can be run for one choice only; leave n out, or give "
            "run_tools=False to get the calls.",
            "n",
        )
    for tool in offered:
        if permit.confirm is True or (permit.confirm is None and tool.confirm):
            raise _not_sent(
                "A sweep asks for many replies at once, so it cannot ask you about "
                f"calls of {tool.name}. Give confirm=False to run them all, a function "
                "that decides (it is called for one call at a time), or "
                "run_tools=False to get the calls.",
                "confirm",
            )
    return SweepTools(tools=functions, permit=permit)


def _with_functions(tools: Any) -> Iterator[Tool]:  # noqa: ANN401 - any form of tools
    """Yield the functions in lists, labelled lists, toolboxes and frames."""
    if isinstance(tools, Mapping):
        tools = [*tools.values()]
    if is_pandas(tools, "DataFrame"):
        tools = [tools.get("tools", ())]
    if is_pandas(tools, "Series"):
        tools = tools.tolist()
    if isinstance(tools, Tool):
        tools = tools if tools.function is not None else ()
    if callable(tools):
        yield from Toolbox([tools])
    elif isinstance(tools, (list, tuple, Toolbox)):
        for tool in tools:
            yield from _with_functions(tool)


_definition_key = msgspec.json.Encoder(order="sorted").encode


def _not_sent(text: str, param: str) -> ParameterError:
    return ParameterError(f"{text} Nothing was sent.", param=param)


SendRound = Callable[[Trial, CompletionRequest, Origin, Policy], Awaitable[Exchange]]
"""Sends one request of a trial."""


class _StoppedError(Exception):
    """The run sends nothing more, so a tool round cannot be sent."""


class TrialRounds:
    """Sends trials in tool rounds.

    `may_go` waits until a model may get another round, and returns whether it may.
    """

    may_go: Callable[[str], Awaitable[bool]]

    def __init__(
        self, tools: SweepTools, *, ledger: Ledger, hide: Callable[[str], str]
    ) -> None:
        self._tools = tools
        self._ledger = ledger
        self._hide = hide
        self._consent = Lock()  # several trials may ask for consent at once

    async def send(
        self, trial: Trial, origin: Origin, send: SendRound
    ) -> tuple[Exchange, int]:
        """Send a trial; return the exchange of its last round, and the tokens of all.

        Raises:
            SvcError: The trial failed.
            CancelledError: The trial was stopped between two rounds.
        """
        permit, n_tokens, n_rounds = self._tools.permit, 0, 0
        exchange: Exchange
        n_before = _n_results(trial.request)

        async def ask(request: CompletionRequest, origin: Origin) -> Completion:
            nonlocal n_tokens, n_rounds, exchange
            if n_rounds and not await self.may_go(trial.model):
                raise _StoppedError
            n_rounds += 1
            this_round = ToolRound(
                n_rounds=n_rounds,
                n_tool_runs=_n_results(request) - n_before,
                is_last=n_rounds == permit.rounds.max_rounds,
            )
            # after a 429, a QUEUED trial is sent again from its first round; later
            # rounds are tried again here, because the rounds before them were paid for
            policy = QUEUED if n_rounds == 1 else INTERACTIVE
            round_origin = replace(origin, tool_round=this_round)
            exchange = await send(trial, request, round_origin, policy)
            n_tokens += exchange.n_tokens
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
                # on a thread, because tools may block
                await run_on_thread(run, trial.request, origin, ask)
            else:
                await ask(trial.request, origin)
        except (_StoppedError, Interrupted):
            raise asyncio.CancelledError from None
        return exchange, n_tokens

    def _decide(self, proposal: Proposal) -> ConsentDecision:
        with self._consent:  # the user's function is called for one call at a time
            return self._tools.permit.consent(deny_all)(proposal)


def _n_results(request: CompletionRequest) -> int:
    return sum(message.role == "tool" for message in request.messages)
