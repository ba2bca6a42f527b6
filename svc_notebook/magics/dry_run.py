"""`--dry-run`: what a cell would send, and nothing sent.

Rules: shows the exact messages; every size is an estimate and says so.
"""

from dataclasses import dataclass
from typing import Any

from svc_notebook.display.transcript import Entry, transcript
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A request that was not sent.

    Attributes:
        request: What would be sent.
        notes: What the footer would say: what is put in, what is left out.
        wait: How long a limit would make it wait, in words; empty for not at all.
    """

    request: CompletionRequest
    notes: tuple[str, ...] = ()
    wait: str = ""

    @property
    def prompt_tokens(self) -> int:
        """Estimated tokens of the prompt."""
        return estimate_prompt_tokens(self.request.messages, self.request.tools)

    @property
    def room_tokens(self) -> int:
        """What the prompt leaves of 8192, by the estimate; below 0 if it is over."""
        return BUDGET_TOKENS - self.prompt_tokens

    @property
    def lines(self) -> tuple[str, ...]:
        """The figures, in words."""
        params = ", ".join(f"{k}={v!r}" for k, v in self.request.params.items())
        tools = self.request.tools
        names = ", ".join(str(each["function"]["name"]) for each in tools)
        offered = f"tools offered, about {estimate_prompt_tokens((), tools)} tokens"
        size = f"prompt about {self.prompt_tokens} tokens (estimated)"
        return (
            f"model {self.request.model}; parameters sent: {params or 'none'}",
            f"{size}; room left in {BUDGET_TOKENS}: {self.room_tokens}",
            self.wait or "no limit would make it wait now",
            *([f"{offered}: {names}"] if tools else []),
            *self.notes,
        )

    def __repr__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        entries = [
            Entry(heading=message.role, text=message.content or "")
            for message in self.request.messages
        ]
        figures = Entry(heading="would be sent with", text="\n".join(self.lines))
        return transcript("Dry run: nothing was sent", [*entries, figures])
