"""`--dry-run`: what would be sent, and its size."""

from dataclasses import dataclass
from typing import Any

from svc_notebook import Tokens
from svc_notebook.conversations.transcript import MessageEntry, transcript
from svc_notebook.credentials import refuse_keys
from svc_notebook.errors import ConfigError
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_prompt_tokens, fit_note

from .cell_context import CellContext
from .cell_request import CellRequest
from .options import SvcOptions


def dry_run(
    context: CellContext, options: SvcOptions, cell_request: CellRequest, way: str = ""
) -> object:
    """Show what would be sent, and how long it would wait; nothing is sent.

    `way` is a sentence on how to send it.
    """
    refuse_keys([cell_request.request], of="The request")
    dry = DryRun(
        request=cell_request.request,
        notes=cell_request.notes,
        wait=_wait(context, cell_request),
        way=way,
    )
    context.say_above(is_dry=True)
    return context.show(dry, options.output)


def _wait(context: CellContext, cell_request: CellRequest) -> str:
    """Say how long the request would wait for a limit now."""
    try:
        due = context.session.client.due(cell_request.request.model)
    except ConfigError:
        return "no service is chosen yet, so no limit is known"
    return f"would wait {due.wait_s:.0f} s: {due.reason}" if due.wait_s > 0 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A request that was not sent."""

    request: CompletionRequest
    notes: tuple[str, ...] = ()  # what the footer would say
    wait: str = ""  # a sentence on how long it would wait for a limit
    way: str = ""  # a sentence on how to send it

    @property
    def prompt_tokens(self) -> Tokens:
        """Estimated tokens of the prompt."""
        return estimate_prompt_tokens(self.request.messages, self.request.tools)

    @property
    def room_tokens(self) -> int | None:
        """Estimated tokens that the prompt leaves in the model's context.

        Below 0 if the prompt is too long; None if the size of the context is unknown.
        """
        context_tokens = self.request.context_tokens
        return context_tokens and context_tokens - self.prompt_tokens.best

    @property
    def lines(self) -> tuple[str, ...]:
        """The parameters, sizes and waits, as sentences."""
        sent = {**self.request.params, **self.request.extra}
        params = ", ".join(f"{name}={value!r}" for name, value in sent.items())
        tools, prompt = self.request.tools, self.prompt_tokens
        names = ", ".join(str(tool["function"]["name"]) for tool in tools)
        offered = (
            f"tools offered, about {estimate_prompt_tokens((), tools).best:,} tokens"
        )
        # the worst case, which `fit` counts with, is above this interval
        size = f"prompt about {prompt.best:,} tokens ({prompt} in 9 of 10 cases)"
        room, context = self.room_tokens, self.request.context_tokens
        left = "its context is unknown"
        if room is not None:
            left = f"room left in {context:,}: {room:,}"
        return (
            f"model {self.request.model}; parameters sent: {params or 'none'}",
            f"{size}; {left}",
            *filter(None, [fit_note(self.request)]),
            self.wait or "no limit would make it wait now",
            *([f"{offered}: {names}"] if tools else []),
            *self.notes,
        )

    def __repr__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        entries = [
            MessageEntry(
                heading=message.role,
                text=message.content or "",
                is_whole=message is self.request.messages[-1],  # the cell's own prompt
            )
            for message in self.request.messages
        ]
        figures = MessageEntry(
            heading="would be sent with", text="\n".join(self.lines), is_whole=True
        )
        title = "Dry run: nothing was sent" + f". {self.way}" * bool(self.way)
        return transcript(title, [*entries, figures])
