"""A hosted chat-completion service in Jupyter: magic, sweeps, DataFrames.

    %load_ext svc_notebook

    %%svc --temperature 0.2 -o answer
    Explain server-sent events in two sentences.

Every public name is here. The verbs import their parts at the first call, so
that importing the package loads neither httpx, pandas nor ipywidgets.
"""

from importlib.metadata import version
from typing import Any

from svc_notebook.api import (
    complete,
    conversation,
    export,
    export_answers,
    extract,
    last,
    read_parquet,
    replies_df,
    score,
    stream,
    tool_calls_df,
    usage_df,
)
from svc_notebook.client.aio import (
    AsyncClient,
    AsyncCompletionStream,
    Defaults,
    set_defaults,
)
from svc_notebook.client.sync import Client, CompletionStream
from svc_notebook.completion import Completion
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import (
    AskError,
    AuthError,
    BadRequestError,
    ConfigError,
    CutError,
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
    ToolCallError,
    ToolError,
    ToolLoopError,
    ToolSchemaError,
    TransportError,
    UnknownModelError,
)
from svc_notebook.panels.open_panel import panel
from svc_notebook.service.request import Message
from svc_notebook.session import current, take_tools, use
from svc_notebook.sweeps.plan import sweep
from svc_notebook.sweeps.run import Run
from svc_notebook.tokens import Tokens, estimate_tokens
from svc_notebook.tools.tool import tool
from svc_notebook.tools.toolbox import Toolbox

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
    "CutError",
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
    "Tokens",
    "ToolCallError",
    "ToolError",
    "ToolLoopError",
    "ToolSchemaError",
    "Toolbox",
    "TransportError",
    "UnknownModelError",
    "complete",
    "conversation",
    "estimate_tokens",
    "export",
    "export_answers",
    "extract",
    "last",
    "load_ipython_extension",
    "panel",
    "read_parquet",
    "replies_df",
    "score",
    "stream",
    "sweep",
    "tool",
    "tool_calls_df",
    "unload_ipython_extension",
    "usage_df",
    "use",
]

__version__ = version("svc-notebook")


def __dir__() -> list[str]:
    """Let the Tab key offer what is meant to be used, and no part behind it."""
    return [*__all__, "__version__"]


# A client that is given no address or ledger takes this kernel's.
set_defaults(
    Defaults(
        settings=lambda: current().settings,
        key=lambda settings: current().key(settings),
        sinks=lambda: (current().ledger,),
        take_tools=take_tools,
    )
)


def load_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Register `%svc` and `%%svc` (`%load_ext svc_notebook`)."""
    from svc_notebook.magics.extension import load  # noqa: PLC0415 - IPython only here

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Take `%svc` and `%%svc` away again."""
    from svc_notebook.magics.extension import unload  # noqa: PLC0415 - IPython only here

    unload(ipython)
