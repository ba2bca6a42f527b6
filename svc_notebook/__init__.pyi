import typing

from . import errors
from .analysis.contrast import Contrast
from .analysis.decision import Decision
from .analysis.frame_functions import (
    agreement,
    agreement_df,
    as_replies,
    compare,
    confusion_df,
    contrast,
    contrast_df,
    export,
    how_many,
    plot,
    ranking,
    read_answers,
    read_eval,
    read_parquet,
    repeats_df,
    reply,
    score,
    scores,
    summary_df,
    to_arrow,
    to_polars,
    trend,
)
from .analysis.recheck import Recheck
from .api import (
    complete,
    conversation,
    conversations_df,
    describe,
    export_answers,
    extract,
    last,
    replies_df,
    run,
    runs_df,
    stream,
    tool_calls_df,
    usage_df,
)
from .client.async_client import AsyncCompletionStream
from .client.sync_client import CompletionStream
from .completion import Completion
from .conversations.conversation import Conversation
from .emulator.emulator import Emulator
from .errors import SvcError
from .panels.open_panel import panel
from .service.request import Message
from .session import AsyncClient, Client
from .svc_use import use
from .sweeps.judge import Judge
from .sweeps.replay import dataset, replay
from .sweeps.run import Run, sweep
from .tokens import Tokens, estimate_tokens
from .tools.toolbox import Toolbox, tool

__all__ = [
    "AsyncClient",
    "AsyncCompletionStream",
    "Client",
    "Completion",
    "CompletionStream",
    "Contrast",
    "Conversation",
    "Decision",
    "Emulator",
    "Judge",
    "Message",
    "Recheck",
    "Run",
    "SvcError",
    "Tokens",
    "Toolbox",
    "agreement",
    "agreement_df",
    "as_replies",
    "compare",
    "complete",
    "confusion_df",
    "contrast",
    "contrast_df",
    "conversation",
    "conversations_df",
    "dataset",
    "describe",
    "errors",
    "estimate_tokens",
    "export",
    "export_answers",
    "extract",
    "how_many",
    "last",
    "load_ipython_extension",
    "panel",
    "plot",
    "ranking",
    "read_answers",
    "read_eval",
    "read_parquet",
    "repeats_df",
    "replay",
    "replies_df",
    "reply",
    "run",
    "runs_df",
    "score",
    "scores",
    "stream",
    "summary_df",
    "sweep",
    "to_arrow",
    "to_polars",
    "tool",
    "tool_calls_df",
    "trend",
    "unload_ipython_extension",
    "usage_df",
    "use",
]

__version__: str

def load_ipython_extension(ipython: typing.Any) -> None: ...  # noqa: ANN401 - IPython's shell
def unload_ipython_extension(ipython: typing.Any) -> None: ...  # noqa: ANN401 - IPython's shell
