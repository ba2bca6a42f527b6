"""A hosted chat-completion service in Jupyter: magic, sweeps, DataFrames.

    %load_ext svc_notebook

    %%svc --temperature 0.2 -o answer
    Explain server-sent events in two sentences.

Every public name is here. The verbs import their parts at the first call, so
that importing the package loads neither httpx, pandas nor ipywidgets.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, Unpack

from svc_notebook.chat.conversation import Conversation
from svc_notebook.client.aio import AsyncClient
from svc_notebook.client.signature import with_params
from svc_notebook.client.stream import AsyncCompletionStream
from svc_notebook.client.sync import Client, CompletionStream
from svc_notebook.client.waiting import say
from svc_notebook.completion import Completion
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import (
    AskError,
    AuthError,
    BadRequestError,
    ConfigError,
    DocumentError,
    LedgerError,
    MissingKeyError,
    NoConnectionError,
    OverBudgetError,
    ParameterError,
    RateLimitError,
    ServerFaultError,
    ServiceError,
    SettingsError,
    StreamBrokenError,
    SvcError,
    TimedOutError,
    TransportError,
    UnknownModelError,
)
from svc_notebook.service.message import Message, Prompt
from svc_notebook.service.params import Params
from svc_notebook.service.request import check_model
from svc_notebook.sweeps.run import Run

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

__all__ = [
    "AskError",
    "AsyncClient",
    "AsyncCompletionStream",
    "AuthError",
    "BadRequestError",
    "Client",
    "Completion",
    "CompletionStream",
    "ConfigError",
    "Conversation",
    "DocumentError",
    "Emulator",
    "LedgerError",
    "Message",
    "MissingKeyError",
    "NoConnectionError",
    "OverBudgetError",
    "ParameterError",
    "RateLimitError",
    "Run",
    "ServerFaultError",
    "ServiceError",
    "SettingsError",
    "StreamBrokenError",
    "SvcError",
    "TimedOutError",
    "TransportError",
    "UnknownModelError",
    "complete",
    "conversation",
    "last",
    "load_ipython_extension",
    "replies_df",
    "stream",
    "sweep",
    "unload_ipython_extension",
    "usage_df",
    "use",
]

__version__ = version("svc-notebook")


@with_params
def complete(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    **params: Unpack[Params],
) -> Completion:
    """Ask for a reply in one piece (doc: POST /v1/chat/completions).

    Args:
        prompt: A text, which becomes one user message, or messages as `Message` or
            as mappings with role and content, oldest first.
        model: Id of the model; the session's model if None (see `use`).
        system: A text put in front as a system message.
        **params: Parameters by the document's names, checked against its ranges; one
            that is left out is not sent, so the service's default applies (150
            tokens for max_tokens). `extra` sends fields the document does not show.

    Returns:
        The completion, with usage as the service reported it.

    Raises:
        AskError: Something is not allowed; nothing was sent.
        ConfigError: The API key or the base address is missing.
        ServiceError: The service refused or failed, after bounded tries.
        TransportError: No whole answer came; `partial` holds what had come.

    Example:
        >>> svc.complete("Say hello.", max_tokens=20).text  # doctest: +SKIP
    """
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call

    session = current()
    model = model or session.settings.model
    return session.client.complete(
        prompt, model=model, system=system, watch=say, **params
    )


@with_params
def stream(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    **params: Unpack[Params],
) -> CompletionStream:
    """Ask for a reply that comes as it is generated (doc: Response, streamed).

    Args:
        prompt: As for `complete`.
        model: As for `complete`.
        system: As for `complete`.
        **params: As for `complete`.

    Returns:
        A stream: iterate it for pieces of text, then read `.completion`. Its usage is
        estimated, since streams report none.

    Raises:
        AskError: Something is not allowed; nothing was sent.
        ConfigError: The API key or the base address is missing.

    Example:
        >>> for text in svc.stream("Tell a story."):  # doctest: +SKIP
        ...     print(text, end="")
    """
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call

    session = current()
    model = model or session.settings.model
    return session.client.stream(
        prompt, model=model, system=system, watch=say, **params
    )


def conversation(name: str, *, system: str | None = None) -> Conversation:
    """Return the conversation of this name; `%%svc -c NAME` continues the same one.

    Args:
        name: A word without blanks; a new name begins a new conversation.
        system: Becomes the system message in front of every request; None leaves it.

    Raises:
        ParameterError: The name is empty or has blanks.

    Example:
        >>> svc.conversation("plan").ask("Where to begin?")  # doctest: +SKIP
    """
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call

    found = current().conversations.named(name)
    if system is not None:
        found.system = system
    return found


def last() -> Completion | None:
    """Return the newest completion of this kernel, a partial one included.

    Returns:
        The completion; None if nothing was answered yet.
    """
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call

    return current().last


def sweep(
    prompt: str | Sequence[str],
    *,
    model: str | Sequence[str] | None = None,
    system: str | Sequence[str | None] | None = None,
    repeats: int = 1,
    name: str | None = None,
    extra: Mapping[str, Any] | None = None,
    **varied: Any,  # noqa: ANN401 - a value, or a list of values, of any parameter
) -> Run:
    """Plan a grid of requests: every combination of what is given as a list.

    Nothing is sent until `.run()` is called on the plan.

    Args:
        prompt: A text, or a list of texts.
        model: One model id, or a list.
        system: One system text, or a list; None is no system message.
        repeats: How many times each combination is asked.
        name: Name of the run; made from the time if None.
        extra: Fields the document does not show, sent with every request.
        **varied: Any parameter of the service, as one value or a list of values.
            `stop` as a list of texts is one value; a list of lists varies it.

    Returns:
        The run: look at it for the plan, then `.run()` and `.replies_df()`.

    Raises:
        ParameterError: A combination is not allowed; it is named.

    Example:
        >>> run = svc.sweep("Greet.", temperature=[0, 1])  # doctest: +SKIP
        >>> run.run().replies_df()  # doctest: +SKIP
    """
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call
    from svc_notebook.sweeps.run import plan  # noqa: PLC0415 - at the first call

    return plan(
        current(),
        prompt,
        model=model,
        system=system,
        repeats=repeats,
        name=name,
        extra=extra,
        varied=varied,
    )


def replies_df(
    *,
    scope: Literal["session", "all"] = "session",
    since: datetime | None = None,
    conversation: str | None = None,
    run: str | None = None,
    model: str | None = None,
) -> "pd.DataFrame":
    """List the replies in the ledger.

    Args:
        scope: `session` for what this kernel asked, `all` for the whole ledger.
        since: Only exchanges started at or after this instant (aware).
        conversation: Only this conversation.
        run: Only this run of a sweep.
        model: Only this model.

    Returns:
        One row a choice, oldest exchange first; numbers of the request stand on the
        row with choice_index 0 only. dtypes are fixed, also for no rows.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    from svc_notebook.ledger.frames import replies_df as frame  # noqa: PLC0415
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call

    return frame(
        current().ledger.read(
            scope=scope, since=since, conversation=conversation, run=run, model=model
        )
    )


def usage_df(
    *,
    by: Sequence[str] = ("model",),
    scope: Literal["session", "all"] = "session",
    since: datetime | None = None,
    include_emulated: bool = False,
) -> "pd.DataFrame":
    """Sum up requests and tokens in the ledger.

    Args:
        by: Columns of `replies_df` to group by.
        scope: `session` for what this kernel asked, `all` for the whole ledger.
        since: Only exchanges started at or after this instant (aware).
        include_emulated: Count answers of the emulator too; they cost nothing.

    Returns:
        One row a group; reported and estimated tokens stand apart.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    from svc_notebook.ledger.frames import usage_df as frame  # noqa: PLC0415
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call

    exchanges = current().ledger.read(scope=scope, since=since)
    return frame(exchanges, by=by, include_emulated=include_emulated)


def use(what: str) -> None:
    """Choose where requests go, or which model they name by default.

    Args:
        what: `emulator` starts an emulator of the service for this kernel; `service`
            goes to SVC_BASE_URL with SVC_API_KEY; anything else is a model id.

    Raises:
        ConfigError: The service's key or address is missing.
        ParameterError: It is no model id.
    """
    from svc_notebook.session import current  # noqa: PLC0415 - at the first call

    if what == "emulator":
        current().use_emulator()
    elif what == "service":
        current().use_service()
    else:
        current().use_model(check_model(what), source="use")


def load_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Register `%svc` and `%%svc` (`%load_ext svc_notebook`)."""
    from svc_notebook.magics.svc import load  # noqa: PLC0415 - IPython only here

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Take `%svc` and `%%svc` away again."""
    from svc_notebook.magics.svc import unload  # noqa: PLC0415 - IPython only here

    unload(ipython)
