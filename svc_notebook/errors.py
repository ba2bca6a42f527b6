"""Every error that the package raises on purpose.

    SvcError
      ConfigError
        MissingKeyError        the API key is missing or cannot be sent
        SettingsError          a setting cannot be used
        SpendingLimitError     the limit on tokens or cost that you set is reached
      AskError (ValueError)    the request is wrong; nothing was sent
        ParameterError         a parameter, message or name is not allowed
        OverBudgetError        prompt and reply do not fit into one request
      TransportError
        NoConnectionError      no connection: host, port, TLS, proxy
        TimedOutError          a deadline passed
        StreamBrokenError      a reply ended too early
      ServiceError             the service answered with an error body
        AuthError              401, 403
        BadRequestError        400 and other 4xx: a retry would fail again
        UnknownModelError      404
        RateLimitError         429
        ServerFaultError       500 and other 5xx
      DocumentError            the answer is not as the service document says
      CutError                 the reply was cut, and a complete one is required
      ToolError
        ToolSchemaError (ValueError)  something cannot be offered as a tool
        ToolCallError          a call does not fit its tool
        ToolLoopError          rounds of tool calls ended without an answer
      LedgerError              the store of exchanges cannot be used

    Interrupted (KeyboardInterrupt)  the user stopped it; the reply so far is kept

A message says what happened and what is allowed; its remedy says what to do next. They
never contain a key or a whole prompt; texts of the service are quoted verbatim.
"""

import inspect
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Protocol


class HasText(Protocol):
    """Anything with the text of a reply, such as a `Completion`."""

    @property
    def text(self) -> str | None:
        """The text of the reply."""


class SvcError(Exception):
    """The base class of every error that this package raises on purpose.

    Do what the message says; `except SvcError` catches them all.

    Attributes:
        remedy: What to do next, if the message does not say it. `str` joins the two. It
            may be set later, where more is known.
        partial: The reply so far, as a `Completion`; None if there is none.
        exchange_id: The exchange in the ledger that records the failure, if any.
        n_attempts: Requests sent, retries included.

    Example:
        >>> try:
        ...     svc.complete("Say hello.", temperature=3)
        ... except svc.SvcError as error:
        ...     print(type(error).__name__)
        ParameterError
    """

    def __init__(self, message: str = "", *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        self.partial: HasText | None = None
        self.exchange_id: str | None = None
        self.n_attempts = 0

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{self.remedy}" if self.remedy else message

    @property
    def lines(self) -> list[str]:
        """The message with its remedy, then the notes (see `add_note`)."""
        return [str(self), *getattr(self, "__notes__", ())]


class ConfigError(SvcError):
    """A setting or the API key is missing or cannot be used.

    Do what the message says. `%svc settings` lists each setting and where it was set.
    """


class MissingKeyError(ConfigError):
    """The API key is missing or cannot be sent.

    Set SVC_API_KEY, or type the key after `%svc login`. Without a key,
    `svc.use(endpoint="emulator")` starts the emulator.
    """


class SettingsError(ConfigError):
    """A setting cannot be used.

    The message names the setting and its allowed values; correct it where it was set.
    """


class SpendingLimitError(ConfigError):
    """The limit on tokens or cost leaves too little. Nothing was sent.

    `svc.use(max_tokens_total=...)` or `svc.use(max_cost=...)` sets another limit.
    """


class AskError(SvcError, ValueError):
    """The request is wrong. It was not sent, and costs nothing.

    Correct what the message names, and ask again.
    """

    verb = ""  # what did not work, where nothing would be sent; else it is looked for


class ParameterError(AskError):
    """A parameter, a message or a name is not allowed.

    Choose a value that the message allows.

    Attributes:
        param: The name as the service document spells it.
    """

    def __init__(self, message: str = "", *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class OverBudgetError(AskError):
    """Prompt and reply together do not fit into one request.

    Shorten the prompt, ask for fewer `max_tokens`, or hide turns of the conversation.

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
    """No complete answer arrived over the network.

    `partial` has the reply so far. The request may have been billed.
    """


class NoConnectionError(TransportError):
    """There was no connection, or it was lost before the service answered.

    Check the address (`%svc use` shows it), the network, proxy and certificates.
    """


class TimedOutError(TransportError):
    """A deadline passed.

    Ask again, or allow more time with SVC_TIMEOUTS.

    Attributes:
        deadline: The name of the deadline: connect, first_byte, idle, whole or total.
        deadline_s: The length of the deadline, in seconds.
    """

    def __init__(
        self, message: str = "", *, deadline: str = "", deadline_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.deadline = deadline
        self.deadline_s = deadline_s


class StreamBrokenError(TransportError):
    """A reply ended too early; `partial` is the reply so far.

    Ask again; in a cell, `%svc continue` asks for the rest.
    """


class ServiceError(SvcError):
    """The service answered with an error body.

    The message quotes the service.

    Attributes:
        status: HTTP status; 200 if the error came inside a stream.
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
    """The key is invalid or revoked (401) or lacks permission (403).

    Type another key after `%svc login`, or set the variable that the message names:
    SVC_API_KEY for the service, whose dashboard has its keys.
    """


class BadRequestError(ServiceError):
    """The request was refused and would be refused again (400 and other 4xx).

    Change what the message names; `param` is the name of the field.
    """


class UnknownModelError(ServiceError):
    """The resource does not exist (404): the model, or the address.

    `%svc models` lists the known models; `%svc use` shows the address in use.
    """


class RateLimitError(ServiceError):
    """A limit of the service was exceeded (429).

    Wait as long as `retry_after_s` says. Sweeps wait by themselves.
    """


class ServerFaultError(ServiceError):
    """The service failed (500 and other 5xx).

    Ask again later; `n_attempts` says how often it was tried.
    """


class DocumentError(SvcError):
    """The answer is not as the service document says.

    Check that the address is that of the service, or of a server with the same form of
    requests, and not of a web page or a proxy.

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
        remedy: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status
        self.content_type = content_type
        self.head = head


class CutError(SvcError):
    """The reply was cut, and a complete one is required; `partial` is the reply.

    Allow a longer reply with `max_tokens`, or shorten the prompt.
    """


class ToolError(SvcError):
    """The base class of errors about tools.

    The message of the subclass says what to do.
    """


class ToolSchemaError(ToolError, ValueError):
    """A function or a definition cannot be offered as a tool. Nothing was sent.

    Give its parameters types that a schema can have; the message names the parameter.
    """


class ToolCallError(ToolError):
    """A tool call, or a value from the model, does not fit the definition.

    Describe the parameters more clearly, or try another model.

    Attributes:
        faults: A sentence for each fault, written for the model.
        type_name: The type that no reply fitted; "" for the call of a tool.
    """

    def __init__(
        self, message: str = "", *, faults: tuple[str, ...] = (), type_name: str = ""
    ) -> None:
        super().__init__(message)
        self.faults = faults or (message,)
        self.type_name = type_name


class ToolLoopError(ToolError):
    """The rounds of tool calls ended before the model gave an answer.

    Allow more with `max_rounds` or `total_s`, or send `messages` again.

    Attributes:
        messages: The history so far, which can be sent again, as `Message`s.
        tool_runs: The calls that were run so far, as `ToolRun`s.
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
    """The store of exchanges cannot be read or written.

    Check that the disk has room and that you may write the file. `svc.use(ledger=...)`
    uses another file.
    """


class Interrupted(KeyboardInterrupt):
    """The user stopped a request, rounds of tool calls or a run; one line in a cell.

    Ask again, or continue: `%svc continue` asks for the rest of a reply, `run()` sends
    the rest of a run.

    Attributes:
        partial: The reply so far, as a `Completion`; None if there is none.
        messages: If tools ran, the history, which can be sent again.
        tool_runs: If tools ran, the calls that were answered.
    """

    def __init__(
        self,
        partial: object = None,
        *,
        message: str = "",
        messages: tuple[object, ...] = (),
        tool_runs: tuple[object, ...] = (),
    ) -> None:
        has_reply = bool(getattr(partial, "choices", ()))
        hint = " - what arrived is kept: svc.last()" if has_reply else ""
        super().__init__(message or f"(interrupted{hint})")
        self.partial = partial
        self.messages = messages
        self.tool_runs = tool_runs

    def _render_traceback_(self) -> list[str]:
        # a narrow cell would break a longer line within a word; one item, since a
        # Markdown page made of the notebook has a blank line after each item
        text = str(self)
        return [text if len(text) <= _LINE_CHARS else text.replace("; ", ";\n")]


_LINE_CHARS = 48
_SKIPPED_PACKAGES = {"svc_notebook", "IPython"}
_THREAD_PACKAGES = {"asyncio", "concurrent", "threading"}


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn without raising, because a reply that was paid for would be lost.

    The warning names the user's line and is shown each time. On a background thread,
    which has no line of the user, it is shown once. If warnings are errors, it is
    written to stderr instead.
    """
    frame = inspect.currentframe()
    while frame and _root_of(frame) in _SKIPPED_PACKAGES:
        frame = frame.f_back
    try:
        if frame is None or _root_of(frame) in _THREAD_PACKAGES:
            warnings.warn(message, category, stacklevel=2)
        else:  # without a registry, Python shows the warning each time
            warnings.warn_explicit(
                message,
                category,
                frame.f_code.co_filename,
                frame.f_lineno,
                module=str(frame.f_globals.get("__name__")),
            )
    except Exception:  # noqa: BLE001 - from a filter that raises, or from the display
        write_line(message)


def _root_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def import_extra(package: str, what: str, *, install: str = "") -> ModuleType:
    """Import an optional package.

    Args:
        package: The name of the package, or of a module in it.
        what: The beginning of the error message, such as "Plots need".
        install: The name for pip, if it differs.

    Raises:
        ConfigError: The package is not installed, or cannot be imported.
    """
    name = package.partition(".")[0]
    install = install or name
    try:
        return import_module(package)
    except ModuleNotFoundError as missing:
        reason = str(missing) if missing.name not in (name, package) else ""
    except Exception as problem:  # noqa: BLE001 - such as built for another NumPy
        reason = f"{type(problem).__name__}: {problem}"
    if reason:
        first = reason.strip().splitlines()[0][:_REASON_CHARS].rstrip(".")
        raise ConfigError(
            f"{what} {name}, which is installed but cannot be imported ({first}). Its "
            "version probably does not fit the other packages. Upgrade it with: "
            f"python -m pip install --upgrade {install}"
        )
    raise ConfigError(
        f"{what} {name}, which is not installed. Install it with: "
        f"python -m pip install {install}"
    )


_REASON_CHARS = 300


def internal_error(problem: Exception, consequence: str) -> SvcError:
    """Build the error for an exception that is a mistake in this package."""
    place = ""
    for frame, line in walk_tb(problem.__traceback__):
        place = f", {Path(frame.f_code.co_filename).name}:{line}"
    return SvcError(
        f"Internal error in svc_notebook ({type(problem).__name__}{place}). "
        f"{consequence} Please report this line."
    )


def write_line(line: str) -> None:
    """Write a line on stderr; ignore it if stderr is missing or closed."""
    with suppress(Exception):
        sys.stderr.write(line + "\n")


class LastError:
    """Remembers the newest error in the user's code, which IPython overwrites.

    A mistyped magic, an error of this package or of the service, and an interrupt do
    not count.
    """

    _error: BaseException | None = None

    def __call__(self, *_: object) -> BaseException | None:
        """Return the newest error; called after each cell, too, to note a new one."""
        newest = getattr(sys, "last_value", None)
        is_refusal = type(newest).__module__ == "IPython.core.error"
        if not is_refusal and not isinstance(newest, (SvcError, KeyboardInterrupt)):
            self._error = newest
        return self._error


last_error = LastError()  # of this process, as `sys.last_value` is
