"""Tool calls on their way into the ledger.

What it is not: the table (see `ledger.tool_runs`). Rules: a call that was run is never
lost because it could not be written down; what went wrong is warned about.
"""

import json
import warnings
from collections.abc import Callable
from datetime import UTC, datetime

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.store import Ledger
from svc_notebook.ledger.tool_runs import row_of
from svc_notebook.tools.calling import ToolRun

Keep = Callable[[Exchange, ToolRun], None]
"""Takes each call when it has ended, with the exchange whose reply held it."""


def keep_in(
    ledger: Ledger, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Keep:
    """Return what writes calls into a ledger.

    Args:
        ledger: Where they are kept.
        now: Gives the time (aware).
    """

    def keep(exchange: Exchange, run: ToolRun) -> None:
        arguments = run.sent_arguments
        row = row_of(
            exchange,
            call_id=run.call_id,
            name=run.name,
            arguments=run.arguments,
            sent_arguments=None
            if arguments is None
            else json.dumps(arguments, ensure_ascii=False),
            result=run.result,
            error=run.error,
            is_approved=run.is_approved,
            n_cut_tokens=run.n_cut_tokens,
            seconds_s=run.seconds_s,
            created_at=now(),
        )
        try:
            ledger.add_tool_run(row, started_at=exchange.started_at)
        except LedgerError as problem:
            warnings.warn(
                f"A tool call could not be kept ({problem}). Its result is not lost, "
                "but it is missing from `svc.tool_calls_df()`.",
                RuntimeWarning,
                stacklevel=2,
            )

    return keep
