"""What can be read of a run: frames, a comparison, its plan in words.

What it is not: asking (see `run`). Rules: the ledger is the only record, and is read
anew each time, so that a frame can be looked at while the run is on; planning reads
nothing and sends nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from svc_notebook.display.comparison import Comparison
from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange, Failure, OriginKind
from svc_notebook.ledger.columns import Column, pick
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.reply_columns import Reply
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.params import check_flag

from .compare import comparison_of
from .describe import headline, reasons_of
from .dimensions import TOOLS
from .forecast import Size, size_of
from .grid import Grid
from .manifest import manifest_of
from .resume import (
    Known,
    Standing,
    TrialKey,
    by_trial,
    plan_rows,
    reply_rows,
    standing_of,
)
from .run_frames import (
    columns_of,
    final_names,
    replies_frame,
    source_names,
    summary_frame,
    usage_frame,
)
from .trial_runner import Note

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd


class Readings:
    """A run as it can be read.

    Attributes:
        grid: What was planned.
        name: As given, or None.
        run_id: Marks its exchanges in the ledger: the column `run`.
        seed: Of the order of asking.
        origin: Who asks.
        prices: The price table for costs, if there is one.
        notes: Why requests have no reply, where the ledger does not say.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        name: str | None,
        run_id: str,
        seed: int,
        origin: OriginKind = "sweep",
        prices: Prices | None = None,
    ) -> None:
        self.grid = grid
        self.name = name
        self.run_id = run_id
        self.seed = seed
        self.origin: OriginKind = origin
        self.prices = prices
        self.notes: dict[TrialKey, Note] = {}
        self._ledger: Ledger | None = None
        self._size: Size | None = None

    @property
    def size(self) -> Size:
        """How large the plan is: requests, tokens, cost."""
        if self._size is None:
            self._size = size_of(self.grid, prices=self.prices)
        return self._size

    @property
    def n_todo(self) -> int:
        """How many requests are missing: what `run` would ask.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        return len(self.grid) - len(self._standing().settled())

    @property
    def n_failed(self) -> int:
        """How many requests failed: what `retry` would ask besides.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        return self._standing().counts["error"]

    @property
    def reasons(self) -> list[str]:
        """Why requests failed: a line an error, with how often it came.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        return reasons_of(self._failures())

    @property
    def manifest(self) -> dict[str, Any]:
        """All that is needed to repeat the run, as JSON values; never a key.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        standing = self._standing()
        counts = standing.counts
        counts["not_run"] = len(self.grid) - sum(
            counts[mark] for mark in ("ok", "error", "cancelled")
        )
        counts.pop("missing", None)
        return manifest_of(
            self.grid,
            name=self.name,
            run_id=self.run_id,
            seed=self.seed,
            counts=counts,
            endpoint=standing.place.endpoint if standing.place else None,
            prices=self.prices,
        )

    def plan_df(self) -> "pd.DataFrame":
        """List what is planned.

        Returns:
            One row a request, in the order of the plan, with the columns of
            `replies_df`; status is `planned` throughout.
        """
        return self._frame_of(plan_rows(self.grid, self.run_id, origin=self.origin))

    def replies_df(self) -> "pd.DataFrame":
        """List the replies, and what has none yet; also while the run is on.

        Returns:
            One row a choice, in the order of the plan, with the columns of
            `svc.replies_df`. After `prompt` stand `row`, the position of its row in
            the rows given, from 0; their index, if it is more than a count; and their
            columns, with the dtypes they have there. A request without an answer has
            one row, whose status says why: error, cancelled, not_run, or planned
            before the first run.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        from svc_notebook.ledger.frames import with_scores  # noqa: PLC0415 - pandas

        return with_scores(self._frame_of(self.replies()), self._ledger)

    def usage_df(
        self,
        *,
        by: str | Sequence[str] = ("model",),
        include_emulated: bool = False,
        include_reused: bool = False,
    ) -> "pd.DataFrame":
        """Sum up what the run used, failed and repeated requests included.

        Args:
            by: Columns of `replies_df` to group by, those of the rows included.
            include_emulated: Count answers of the emulator too; they cost nothing.
            include_reused: Count answers that were given back from the ledger, or
                from a file, too.

        Returns:
            One row a group; reported and estimated tokens stand apart.

        Raises:
            ParameterError: `by` names what is no column of replies.
            LedgerError: The ledger cannot be read.
        """
        from svc_notebook.ledger.groups import estimates_of  # noqa: PLC0415 - pandas

        check_flag("include_emulated", include_emulated)
        check_flag("include_reused", include_reused)
        ledger = self._ledger
        return usage_frame(
            self._found(),
            self.grid,
            by=by,
            include_emulated=include_emulated,
            include_reused=include_reused,
            estimates=None if ledger is None else estimates_of(ledger),
            prices=self.prices,
        )

    def summary_df(self, by: str | Sequence[str] | None = None) -> "pd.DataFrame":
        """Sum up the trials by what varies.

        Args:
            by: Columns of `replies_df` to group by, those of the rows included; what
                varies if None.

        Returns:
            One row a group, in the order of the plan: the columns grouped by, then
            counts of trials and replies, reported tokens, and quantiles of latency_s.

        Raises:
            ParameterError: `by` names what is no column of replies.
            LedgerError: The ledger cannot be read.
        """
        rows = list(self.replies())
        return summary_frame(rows, self.grid, self._varied() if by is None else by)

    def compare(
        self,
        *,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> Comparison:
        """Lay replies side by side.

        Args:
            rows: Columns of `replies_df` that tell the rows apart; the prompt, or
                the columns put into it, if None. A name that the source has, too,
                such as `text`, is the source's.
            columns: Those that tell the columns apart; what else varies if None.

        Returns:
            A table that draws itself, static and escaped; long texts are shown by
            their beginning, and what has no room is counted.

        Raises:
            ParameterError: A name is no column of replies.
            LedgerError: The ledger cannot be read.
        """
        found = list(self.replies())
        known = columns_of(found, self.grid)
        down = pick(known, self._own(rows) or self._down(), param="rows")
        across = pick(known, self._own(columns) or self._across(down), param="columns")
        title = headline_of(self)
        return comparison_of(found, rows=down, columns=across, title=title)

    def __len__(self) -> int:
        return len(self.grid)

    def _varied(self) -> tuple[str, ...]:
        """Return the columns that what varies is seen in."""
        names = []
        for name in self.grid.varied or ("model",):
            is_filled = name in self.grid.templates
            names.append(f"{name}_template" if is_filled else name)
        known = {column.name for column in columns_of((), self.grid)}
        return tuple(name for name in names if name in known) or ("model",)

    def _own(self, names: str | Sequence[str] | None) -> list[str] | None:
        """Return names with the source's instead of the replies' of the same name."""
        given = [names] if isinstance(names, str) else names
        if not isinstance(given, Sequence):
            return given  # refused by name where it is looked up
        mine = source_names(self.grid)
        return [mine.get(name, name) for name in given]

    def _frame_of(self, rows: Iterable[Reply]) -> "pd.DataFrame":
        return replies_frame(rows, self.grid, prices=self.prices)

    def _down(self) -> tuple[str, ...]:
        if not self.grid.source:
            return ("prompt",)
        mine, names = source_names(self.grid), final_names(self.grid)
        across = {TOOLS, *(f"{name}_template" for name in self.grid.templates)}
        filled = (name for name in self.grid[0].columns if name not in across)
        return tuple(mine.get(name, names[name]) for name in filled) or ("prompt",)

    def _across(self, down: Sequence[Column]) -> tuple[str, ...]:
        taken = {column.name for column in down}
        return tuple(name for name in self._varied() if name not in taken) or ("model",)

    def replies(self) -> Iterator[Reply]:
        """Return the rows of `replies_df`, one by one."""
        return reply_rows(
            self.grid,
            by_trial(self._found()),
            run_id=self.run_id,
            failures={key: note.failure for key, note in self.notes.items()},
            is_begun=self._ledger is not None,
            origin=self.origin,
        )

    def _found(self) -> Iterable[Exchange]:
        return self._read(texts=True)

    def _read(self, *, texts: bool) -> Iterable[Exchange]:
        if self._ledger is None:
            return ()
        return self._ledger.read(scope="all", run=self.run_id, texts=texts)

    def _failures(self) -> list[Failure]:
        """Return why requests failed, one a trial that has no answer."""
        found = by_trial(self._read(texts=False))
        kept = [
            each.failure
            for each in found.values()
            if each.status == "error" and each.failure is not None
        ]
        noted = [note.failure for key, note in self.notes.items() if key not in found]
        return [*kept, *noted]

    def _standing(self) -> Standing:
        notes = {
            key: Known("error", note.model)
            for key, note in self.notes.items()
            if note.failure.type != "RateLimitError"
        }
        return standing_of(self._read(texts=False)).noting(notes)


def headline_of(run: Readings) -> str:
    """Return a line that says where a run stands, also if that cannot be read."""
    name = f"Run {run.name}: " if run.name else "Run: "
    try:
        counts = run._standing().counts  # noqa: SLF001 - of this file
    except LedgerError:
        return name + "its ledger cannot be read."
    is_begun = run._ledger is not None  # noqa: SLF001 - of this file
    return name + headline(run.grid, counts, is_begun=is_begun)
