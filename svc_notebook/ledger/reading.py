"""From a ledger to frames: what to read of it, and by which rules to sum up.

Loads pandas. Rules: filters work in the database; texts are read only where a
column or an estimate needs them.
"""

from collections.abc import Iterable, Sequence
from datetime import date

import pandas as pd

from svc_notebook.exchange import Exchange

from .columns import Column, template_columns
from .frames import replies_df as replies_frame
from .frames import to_frame
from .frames import usage_df as usage_frame
from .prices import Prices
from .query import Scope, Wanted
from .reply_columns import REPLIES, TEXTS, Reply
from .scores import with_scores
from .store import Ledger, Texts
from .token_estimates import MAX_ROWS, Estimates
from .tool_runs import TOOL_CALLS

_NAMES = frozenset(column.name for column in REPLIES)


def replies_df(  # noqa: PLR0913 - one argument a filter
    ledger: Ledger,
    *,
    scope: Scope = "session",
    since: date | str | None = None,
    conversation: Wanted = None,
    run: Wanted = None,
    model: Wanted = None,
    texts: bool = True,
    prices: Prices | None = None,
) -> pd.DataFrame:
    """List the replies that a ledger holds.

    Args:
        ledger: To read.
        scope: `session` for this kernel's, `all` for the whole ledger.
        since: Only exchanges started at or after this instant.
        conversation: Only this conversation, or any of several.
        run: Only this run, or any of several.
        model: Only this model, or any of several.
        texts: False leaves the texts unread and out: the columns `TEXTS` and
            template columns.
        prices: The price table for `cost`; unknown without one.

    Returns:
        One row a choice, the exchange that started first coming first; columns
        `REPLIES`, then one a name of a score.

    Raises:
        ParameterError: A filter is not one that could be meant.
        LedgerError: The ledger cannot be read.
    """
    exchanges = ledger.read(
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        texts=texts,
    )
    frame = replies_frame(exchanges, texts=texts, prices=prices)
    return with_scores(frame, ledger)


def usage_df(  # noqa: PLR0913 - one argument a filter
    ledger: Ledger,
    *,
    by: str | Sequence[str] = ("model",),
    scope: Scope = "session",
    since: date | str | None = None,
    conversation: Wanted = None,
    run: Wanted = None,
    model: Wanted = None,
    include_emulated: bool = False,
    include_reused: bool = False,
    prices: Prices | None = None,
) -> pd.DataFrame:
    """Sum up what the exchanges of a ledger used.

    Args:
        ledger: To read.
        by: Columns of `replies_df` to group by, template columns included; none for
            one row over all.
        scope: As for `replies_df`.
        since: As for `replies_df`.
        conversation: As for `replies_df`.
        run: As for `replies_df`.
        model: As for `replies_df`.
        include_emulated: Count answers of the emulator, which cost nothing.
        include_reused: Count replies that were read from the ledger.
        prices: The price table for `cost`; unknown without one.

    Returns:
        One row a group: the columns grouped by, then `USAGE`. Tokens that were not
        reported are estimated by a rule fitted on what the whole ledger has reported
        for the model, or by the fixed rule.

    Raises:
        ParameterError: A filter or a column is not one that could be meant.
        LedgerError: The ledger cannot be read.
    """
    needed = _needed(by)
    texts: Texts = "estimated" if needed.isdisjoint(TEXTS) else True
    exchanges: Iterable[Exchange] = ledger.read(
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        texts=texts if needed <= _NAMES else True,
    )
    columns: tuple[Column[Reply], ...] = REPLIES
    if not needed <= _NAMES:
        exchanges = list(exchanges)
        columns = _with_templates(exchanges)
    return usage_frame(
        exchanges,
        by=by,
        columns=columns,
        include_emulated=include_emulated,
        include_reused=include_reused,
        estimates=estimates_of(ledger),
        prices=prices,
    )


def _needed(by: object) -> set[str]:
    """Return the names that are grouped by; what is no name is refused later."""
    names = by if isinstance(by, Iterable) and not isinstance(by, str) else [by]
    return {str(name) for name in names}


def _with_templates(exchanges: Iterable[Exchange]) -> tuple[Column[Reply], ...]:
    found: tuple[Column[Reply], ...] = template_columns(
        (each.origin.columns for each in exchanges),
        lambda row: row.origin.columns,
        _NAMES,
    )
    return (*REPLIES, *found)


def tool_calls_df(  # noqa: PLR0913 - one argument a filter
    ledger: Ledger,
    *,
    scope: Scope = "session",
    since: date | str | None = None,
    conversation: Wanted = None,
    run: Wanted = None,
    model: Wanted = None,
    name: Wanted = None,
) -> pd.DataFrame:
    """List the tool calls that a ledger holds.

    Args:
        ledger: To read.
        scope: As for `replies_df`.
        since: As for `replies_df`.
        conversation: As for `replies_df`.
        run: As for `replies_df`.
        model: As for `replies_df`.
        name: Only this tool, or any of several.

    Returns:
        One row a call, the one that was run first coming first; columns `TOOL_CALLS`.

    Raises:
        ParameterError: A filter is not one that could be meant.
        LedgerError: The ledger cannot be read.
    """
    rows = ledger.tool_runs(
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        name=name,
    )
    return to_frame(rows, TOOL_CALLS)


def estimates_of(ledger: Ledger) -> Estimates:
    """Return the rules that a ledger's reported tokens give, fitted when asked for."""
    return Estimates(
        lambda model, is_emulated: ledger.reported(
            model, is_emulated=is_emulated, n=MAX_ROWS
        )
    )
