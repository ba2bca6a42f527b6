"""RoundLimits on the emulator: what was sent, and what came of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from svc_notebook.client.sync_client import Client
from svc_notebook.completion import Completion
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.request import CompletionRequest, Prompt, build_request
from svc_notebook.session import isolated
from svc_notebook.tokens import with_max_tokens
from svc_notebook.tools.call import ToolRun
from svc_notebook.tools.rounds import RoundLimits, run_rounds
from svc_notebook.tools.toolbox import Toolbox, to_toolbox

MODEL = "svc-v2-8b-instruct"


@dataclass
class Caller:
    """Asks an emulator that plays a script, and keeps what it sent.

    Attributes:
        client: Of the emulator.
        is_streamed: Whether replies are streamed.
        sent: Requests, in order.
        watched: Calls before they were run, and their runs, in order.
        kept: Runs with the exchange that held each call.
    """

    client: Client
    is_streamed: bool = False
    sent: list[CompletionRequest] = field(default_factory=list)
    watched: list[object] = field(default_factory=list)
    kept: list[tuple[str, ToolRun]] = field(default_factory=list)

    def send(self, request: CompletionRequest, origin: Origin) -> Completion:
        """Send, and keep what was sent."""
        self.sent.append(request)
        return self.client.stream(
            request, origin=origin, is_streamed=self.is_streamed
        ).completion

    def keep(self, exchange: Exchange, run: ToolRun) -> None:
        """Keep a run."""
        self.kept.append((exchange.exchange_id, run))

    def run(
        self,
        tools: object,
        prompt: Prompt = "Go.",
        *,
        params: dict[str, Any] | None = None,
        rounds: RoundLimits | None = None,
        **more: Any,  # noqa: ANN401 - of run_rounds
    ) -> Completion:
        """Run rounds with these tools."""
        toolbox: Toolbox = to_toolbox(tools)
        given = dict(params or {})
        max_tokens = given.pop("max_tokens", None)
        request = build_request(prompt, model=MODEL, params=given)
        return run_rounds(
            with_max_tokens(request, max_tokens),
            Origin(),
            toolbox=toolbox,
            send=self.send,
            watch=self.watched.append,
            keep=self.keep,
            rounds=rounds,
            **more,
        )


MakeCaller = Callable[..., Caller]
Serve = Callable[..., Emulator]


@pytest.fixture
def make_caller() -> Iterator[MakeCaller]:
    """Return the function that makes callers to emulators of their own."""
    opened: list[Any] = []

    def make(*script: dict[str, Any], is_streamed: bool = False) -> Caller:
        emulator = Emulator(
            script=list(script), limits=False, tokens_per_s=None, first_token_s=0
        ).start()
        client = Client(base_url=emulator.base_url, api_key=emulator.api_key, sinks=())
        opened.extend((client, emulator))
        return Caller(client, is_streamed=is_streamed)

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return the function that makes an emulator with a script the kernel's service."""
    opened: list[Emulator] = []

    def start(*script: dict[str, Any]) -> Emulator:
        emulator = Emulator(
            script=list(script), limits=False, tokens_per_s=None, first_token_s=0
        ).start()
        opened.append(emulator)
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        monkeypatch.setenv("SVC_LEDGER", ":memory:")
        return emulator

    with isolated():
        yield start
    for each in opened:
        each.close()
