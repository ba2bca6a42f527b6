"""The tool calls of a kernel: kept in the ledger, and the newest of them at hand."""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile

from svc_notebook.exchange import Exchange
from svc_notebook.ledger.store import Ledger
from svc_notebook.ledger.tool_runs import ToolRow, row_of
from svc_notebook.service.request import Message

from .call import ToolRun

MAX_NEWEST = 200
Keep = Callable[[Exchange, ToolRun], None]
"""Takes each call when it has ended, with the exchange whose reply held it."""


class ToolRecord:
    """Puts each call into the ledger, and remembers the newest.

    Args:
        ledger: Returns the ledger in use.
    """

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger
        self._newest: deque[tuple[str, ToolRun]] = deque(maxlen=MAX_NEWEST)

    def __call__(self, exchange: Exchange, run: ToolRun) -> None:
        """Take a call that has ended, with the exchange whose reply held it."""
        # The tool's own object may be large, and nobody asks for it here.
        self._newest.append((exchange.exchange_id, replace(run, value=None)))
        self._ledger().add_tool_run(_row(exchange, run), started_at=exchange.started_at)

    def trail_of(self, exchange: Exchange) -> tuple[ToolRun, ...]:
        """Return the calls that were run for an exchange, as far as they are known.

        Args:
            exchange: Of this kernel: the last of its rounds, or where they broke off.
        """
        newest = tuple(self._newest)  # tools run on other threads
        own = [run for held_by, run in newest if held_by == exchange.exchange_id]
        left = [run for held_by, run in newest if held_by != exchange.exchange_id]
        before: list[ToolRun] = []
        for message in takewhile(_is_of_rounds, reversed(exchange.request.messages)):
            answers = [run.message for run in left]
            if message in answers:
                place = len(answers) - 1 - answers[::-1].index(message)
                before.insert(0, left[place])
                del left[place:]
        return (*before, *own)


def _is_of_rounds(message: Message) -> bool:
    return message.role == "tool" or bool(message.tool_calls)


def _row(exchange: Exchange, run: ToolRun) -> ToolRow:
    arguments = run.sent_arguments
    return row_of(
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
        created_at=datetime.now(UTC),
    )
