"""Looks at runs: with how many of its replies the values of a run were compared."""

from typing import NamedTuple

from .ledger import Ledger
from .ledger_file import transaction


class Look(NamedTuple):
    """One comparison of the replies of a run."""

    run: str
    n_replies: int
    n_rows: int  # of the plan, if the run was complete then; else 0


def keep_look(ledger: Ledger, look: Look) -> None:
    """Save a look; one that is known already is not saved twice."""
    with ledger.opened() as connection, transaction(connection):
        connection.execute("INSERT OR IGNORE INTO looks VALUES (?, ?, ?)", look)


def read_looks(ledger: Ledger, run: str) -> list[Look]:
    """Return the looks at a run, those with the fewest replies first."""
    sql = "SELECT run, n_replies, n_rows FROM looks WHERE run = ? ORDER BY n_replies"
    with ledger.opened() as connection:
        return [Look(*row) for row in connection.execute(sql, (run,))]
