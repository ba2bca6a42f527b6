"""Every error that the package raises on purpose.

What it is not: it knows neither IPython nor the request; the layer that
raises fills in what happened, and the notebook edge decides how it looks.

    SvcError
      ConfigError
        MissingKeyError        no API key, or one that cannot be sent
        SettingsError          a setting that cannot be used
      AskError (ValueError)    found before anything was sent
        ParameterError         a parameter, message or name outside what is allowed
        OverBudgetError        prompt and reply do not fit one request
      TransportError
        NoConnectionError      no connection: host, port, TLS, proxy
        TimedOutError          a deadline passed
        StreamBrokenError      a reply stopped before its end
      ServiceError             the service answered with an error body
        AuthError              401, 403
        BadRequestError        400 and other refusals that a retry cannot mend
        UnknownModelError      404
        RateLimitError         429
        ServerFaultError       500 and its kin
      DocumentError            an answer that the service document does not allow
      CutError                 a reply was cut where only a whole one will do
      ToolError
        ToolSchemaError (ValueError)  what cannot be offered as a tool
        ToolCallError          a call that does not fit its tool
        ToolLoopError          rounds of calls that came to no answer
      LedgerError              the store of exchanges cannot be used

Rules: a message says what happened, what is allowed and what to do next; no
message holds a key or a whole prompt; what the service said is verbatim.
"""

import sys
import warnings
from contextlib import suppress
from typing import Protocol


class HasText(Protocol):
    """Anything that carries the text of a reply, a `Completion` for one."""

    @property
    def text(self) -> str | None:
        """The text that came."""


class SvcError(Exception):
    """The root of the tree: everything this package raises on purpose.

    Attributes:
        partial: What had come before the error, as a `Completion`; None if nothing.
        exchange_id: The exchange in the ledger that holds the failure, if any.
        n_attempts: Requests sent, retries included; 0 when nothing was sent.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.partial: HasText | None = None
        self.exchange_id: str | None = None
        self.n_attempts = 0


class ConfigError(SvcError):
    """Something the user sets is missing or cannot be used."""


class MissingKeyError(ConfigError):
    """There is no API key, or the one found cannot be sent."""


class SettingsError(ConfigError):
    """A setting that cannot be used."""


class AskError(SvcError, ValueError):
    """A request found wrong before it was sent; nothing was spent."""


class ParameterError(AskError):
    """A parameter, a message or a name is outside what is allowed.

    Attributes:
        param: The name as the service document spells it.
    """

    def __init__(self, message: str = "", *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class OverBudgetError(AskError):
    """Prompt and reply together do not fit one request.

    Attributes:
        prompt_tokens: Estimated tokens of the prompt.
        budget_tokens: Tokens that prompt and completion share.
    """

    def __init__(
        self, message: str = "", *, prompt_tokens: int = 0, budget_tokens: int = 0
    ) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.budget_tokens = budget_tokens


class TransportError(SvcError):
    """No whole answer came over the network."""


class NoConnectionError(TransportError):
    """No connection to the service could be made or kept before it answered."""


class TimedOutError(TransportError):
    """A deadline passed.

    Attributes:
        deadline: Which one: connect, first_byte, idle or total.
        deadline_s: Its length in seconds.
    """

    def __init__(
        self, message: str = "", *, deadline: str = "", deadline_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.deadline = deadline
        self.deadline_s = deadline_s


class StreamBrokenError(TransportError):
    """A reply ended before its end; `partial` holds what had come."""


class ServiceError(SvcError):
    """The service answered with an error body.

    Attributes:
        status: HTTP status; 200 when the error came inside a stream.
        type, param, code: The error body's fields, verbatim (doc: Error body).
        retry_after_s: Seconds the service asked to wait, if it did.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status: int = 0,
        type: str | None = None,  # noqa: A002 - the document's own word
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


class AuthError(ServiceError):
    """The key is invalid or revoked (401) or lacks permission (403)."""


class BadRequestError(ServiceError):
    """The request was refused and would be refused again (400 and other 4xx)."""


class UnknownModelError(ServiceError):
    """The resource does not exist (404): the model, or the address."""


class RateLimitError(ServiceError):
    """A limit of the service was exceeded (429)."""


class ServerFaultError(ServiceError):
    """The service failed (500 and its kin)."""


class DocumentError(SvcError):
    """An answer that the service document does not allow.

    Attributes:
        status: HTTP status of the answer.
        content_type: Its content type, as sent.
        head: The first characters of the body, made printable.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status: int = 0,
        content_type: str = "",
        head: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.content_type = content_type
        self.head = head


class CutError(SvcError):
    """A reply was cut where only a whole one will do; `partial` holds it."""


class ToolError(SvcError):
    """Something about tools went wrong."""


class ToolSchemaError(ToolError, ValueError):
    """A function or a definition cannot be offered as a tool; nothing was sent."""


class ToolCallError(ToolError):
    """A call, or a value of the model's, does not fit what was offered.

    Attributes:
        faults: Every fault, a sentence each, in words for the model.
    """

    def __init__(self, message: str = "", *, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults or (message,)


class ToolLoopError(ToolError):
    """Rounds of calls that ended before the model gave an answer.

    Attributes:
        messages: The history until then, which can be sent again: `Message`s.
        tool_runs: The calls that were run until then: `ToolRun`s.
    """

    def __init__(
        self,
        message: str = "",
        *,
        messages: tuple[object, ...] = (),
        tool_runs: tuple[object, ...] = (),
    ) -> None:
        super().__init__(message)
        self.messages = messages
        self.tool_runs = tool_runs


class LedgerError(SvcError):
    """The store of exchanges cannot be read or written."""


def warn(message: str) -> None:
    """Warn, and never raise: where warnings are errors it is a line on stderr."""
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except Exception:  # noqa: BLE001 - of a filter, or of whoever shows warnings
        with suppress(Exception):
            sys.stderr.write(message + "\n")
