"""A reply under way that may call tools: rounds, consent, and its tool runs.

What it is not: the rounds themselves (see `chat.loop`). Rules: no tool that wants
consent runs before the user has said so in the panel; a stop ends a question and the
waiting for a tool at once.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

from svc_notebook.completion import Completion
from svc_notebook.display.live import POLL_S
from svc_notebook.errors import Interrupted, ParameterError
from svc_notebook.exchange import Origin
from svc_notebook.service.request import CompletionRequest
from svc_notebook.service.tool import ToolCall
from svc_notebook.tools.calling import ToolRun
from svc_notebook.tools.consent import Consent, Decision, Proposal
from svc_notebook.tools.rounds import Keep, Rounds, run_rounds
from svc_notebook.tools.stopping import stoppable
from svc_notebook.tools.toolbox import Toolbox

from .messages import Event
from .state import Phase, draw_call, draw_step
from .worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a panel's replies may call.

    Attributes:
        toolbox: What is offered.
        keep: Takes each call for the record.
        hide: Blots the key out of a text.
        consent: Asks the worker that is at work, unless a tool is always allowed.
        rounds: How far they may go.
    """

    toolbox: Toolbox
    keep: Keep
    hide: Callable[[str], str]
    consent: Consent
    rounds: Rounds


class ToolWorker(Worker):
    """Asks, and goes on until the model answers without calling a tool.

    Args:
        *given: As `Worker`.
        tools: What may be called.
        **named: As `Worker`.
    """

    def __init__(self, *given: Any, tools: Tools, **named: Any) -> None:  # noqa: ANN401 - as Worker
        super().__init__(*given, **named)
        self._tools = tools
        self._n_rounds = 0
        self._question: dict[str, Any] | None = None
        self._decisions: SimpleQueue[Decision] = SimpleQueue()
        self._calls: dict[str, dict[str, Any]] = {}

    def ask(self) -> Completion:
        """Run the rounds and return the last reply, with its tool_runs.

        Raises:
            Interrupted: The user stopped it.
            SvcError: It failed.
        """
        step, tools = self._step, self._tools
        try:
            outcome = run_rounds(
                step.request,
                step.origin,
                toolbox=stoppable(tools.toolbox, self.check_stop),
                send=self._send_round,
                consent=tools.consent,
                rounds=tools.rounds,
                told=self._tell,
                keep=tools.keep,
                hide=tools.hide,
            )
        except Interrupted as stopped:
            self.take(stopped.partial)
            raise
        return outcome.completion

    def decide(self, event: Event) -> None:
        """Take the user's answer to the question that is open.

        Raises:
            ParameterError: It is another question, or the arguments are no object.
        """
        question = self._question
        if question is None or question["id"] != event.question_id:
            raise ParameterError("This question was answered already.", param="id")
        verdict: Any = event.verdict
        arguments = _arguments(event.arguments, str(question["arguments"]))
        self._decisions.put(Decision(verdict=verdict, arguments=arguments))

    def _send_round(self, request: CompletionRequest, origin: Origin) -> Completion:
        self._n_rounds += 1
        if self._n_rounds > 1:
            self.show_round()
        return self.send(request, origin)

    def consent(self, proposal: Proposal) -> Decision:
        """Ask the user, and wait for the answer.

        Raises:
            Interrupted: The user stopped the reply instead.
        """
        self._question = {
            "id": f"{self._n_rounds}/{proposal.call_id}",
            "name": proposal.name,
            "arguments": json.dumps(proposal.arguments, ensure_ascii=False, indent=2),
            "about": proposal.about,
        }
        self._stage.question(self._question)
        try:
            while True:
                self.check_stop()
                try:
                    return self._decisions.get(timeout=POLL_S)
                except Empty:
                    continue
        finally:
            self._question = None
            self._stage.question(None)

    def _tell(self, what: ToolCall | ToolRun) -> None:
        if isinstance(what, ToolCall):
            name, arguments = what.function.name, what.function.arguments
            self._calls[what.id] = draw_call(name, arguments, None)
        else:
            self._calls[what.call_id] = draw_step(what)
        self._live = replace(self._live, tool_runs=tuple(self._calls.values()))
        message = {"t": "live", "live": self._live.drawn()}
        self._stage.play(self._live, Phase.BUSY, message)


def _arguments(text: str | None, proposed: str) -> dict[str, Any] | None:
    """Read arguments that the user may have changed; None where they have not."""
    if text is None or text == proposed:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise ParameterError(
        "The arguments are not the JSON of an object; mend them, and decide again.",
        param="arguments",
    )
