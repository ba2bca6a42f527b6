"""What happens to one exchange while it is under way, and the record it becomes.

What it is not: it decides nothing. Rules: the exchange is made once, at the end;
waiting for our own limit is never part of a latency; no key enters.
"""

from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from svc_notebook.errors import DocumentError, ServiceError, SvcError
from svc_notebook.exchange import Exchange, Failure, Origin, Status
from svc_notebook.service.completion import CompletionBody
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_tokens

from .transport import Head


@dataclass(slots=True, kw_only=True)
class Journal:
    """Notes of one exchange under way.

    Attributes:
        exchange_id, request, origin, endpoint, is_streamed: Known from the start.
        started_at: When it was asked (aware, UTC).
        est_prompt_tokens: Estimated tokens of the prompt.
        others: As in `Exchange`; durations in seconds.
    """

    exchange_id: str
    request: CompletionRequest
    origin: Origin
    endpoint: str
    is_streamed: bool
    started_at: datetime
    est_prompt_tokens: int
    is_emulated: bool = False
    body: CompletionBody | None = None
    n_attempts: int = 0
    n_refused: int = 0
    n_chunks: int = 0
    queue_s: float = 0.0
    retry_wait_s: float = 0.0
    first_text_s: float | None = None
    sent_s: float | None = None

    def send(self, now_s: float) -> None:
        """Note that a request goes out; what came of an earlier one is dropped."""
        self.n_attempts += 1
        self.sent_s = now_s
        self.first_text_s = None
        self.body = None
        self.n_chunks = 0

    def answer(self, head: Head) -> None:
        """Note what the headers of an answer say."""
        self.is_emulated = self.is_emulated or head.is_emulated

    def text(self, now_s: float) -> None:
        """Note that text was shown."""
        if self.first_text_s is None and self.sent_s is not None:
            self.first_text_s = now_s - self.sent_s

    def exchange(
        self,
        *,
        status: Status,
        failure: Failure | None,
        now_s: float,
        ended_at: datetime,
    ) -> Exchange:
        """Return the record of it all."""
        return Exchange(
            exchange_id=self.exchange_id,
            origin=self.origin,
            endpoint=self.endpoint,
            is_emulated=self.is_emulated,
            is_streamed=self.is_streamed,
            request=self.request,
            body=self.body,
            status=status,
            failure=failure,
            n_attempts=self.n_attempts,
            n_refused=self.n_refused,
            n_chunks=self.n_chunks,
            queue_s=self.queue_s,
            retry_wait_s=self.retry_wait_s,
            first_text_s=self.first_text_s,
            latency_s=None if self.sent_s is None else now_s - self.sent_s,
            started_at=self.started_at,
            ended_at=ended_at,
            est_prompt_tokens=self.est_prompt_tokens,
            est_completion_tokens=_estimate(self.body),
        )


def to_failure(error: SvcError) -> Failure:
    """Return the record of an error."""
    failure = Failure(type=type(error).__name__, message=str(error))
    if isinstance(error, ServiceError):
        return replace(
            failure, http_status=error.status, code=error.code, param=error.param
        )
    if isinstance(error, DocumentError) and error.status:
        return replace(failure, http_status=error.status)
    return failure


CANCELLED = Failure(type="Cancelled", message="Interrupted before the reply's end.")


def _estimate(body: CompletionBody | None) -> int:
    if body is None:
        return 0
    return sum(
        estimate_tokens(choice.text or "")
        + sum(
            estimate_tokens(call.function.name + call.function.arguments)
            for call in choice.tool_calls
        )
        for choice in body.choices
    )
