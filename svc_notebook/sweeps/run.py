"""A run: the plan of a sweep, its execution and its result, as users have them.

`Plan` says what is sent. `Executor` lets a `Preflight` check the plan and ask the user,
locks the run and begins an `Execution`. Its `Scheduler` sends the trials, from one
`ModelQueue` for each model. `RunResult` reads the replies from the ledger.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    Never,
    NoReturn,
    ParamSpec,
    Self,
)

from svc_notebook.analysis.read_answers import answer_type
from svc_notebook.analysis.scorers import compared_columns
from svc_notebook.analysis.scoring import OnError, score_replies
from svc_notebook.client.request_pipeline import Watch
from svc_notebook.completion import Completion
from svc_notebook.display.front_end import (
    Output,
    find_screen,
    running_shell,
    write_warning,
)
from svc_notebook.display.text_table import ComparisonTable
from svc_notebook.errors import Interrupted, LedgerError, ParameterError, write_line
from svc_notebook.exchange import Exchange, OriginKind
from svc_notebook.ledger.looks import Look, keep_look
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.reply_columns import ReplyRow, as_names
from svc_notebook.service.params import check_flag, check_int, shorten
from svc_notebook.session import Session, current

from .estimate import PlanEstimate, most_of_rest
from .execution import Execution, Executor, SendOptions, ShowPiece, Tick
from .grid import Grid, Trial
from .plan import Plan, looks_at, make_plan, n_rows_of
from .plan_description import Line, RunDescription, headline, plan_lines
from .rating import Rating, begin_rating
from .resume import RunStatus, next_steps, settled_of
from .run_outcome import RunResult
from .run_scores import RunScores

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

    from svc_notebook.analysis.contrast import Contrast
    from svc_notebook.analysis.decision import Decision
    from svc_notebook.analysis.judge_agreement import JudgeAgreement
    from svc_notebook.analysis.missing import Missing
    from svc_notebook.analysis.plot import Plot
    from svc_notebook.analysis.ranking import Ranking
    from svc_notebook.analysis.recheck import Recheck
    from svc_notebook.analysis.repeats import Similarity
    from svc_notebook.analysis.run_differences import RunFacts
    from svc_notebook.analysis.sample_size import Needed
    from svc_notebook.analysis.score_report import ScoreReport
    from svc_notebook.analysis.statistics import Weight
    from svc_notebook.analysis.trend import Trend

    from .decide import Decider
    from .judge import Judge


NOT_SUMMED_UP = "(interrupted - all replies are kept; show the run for its scores)"
Arguments = ParamSpec("Arguments")


class Run:
    """A sweep: its plan, and after `run()` its replies.

    Displaying a run shows the number of requests, a range of tokens and cost, the
    expected duration with the limit that determines it, and warnings; later how the
    requests ended, how many answers could not be read, and what can be done next. If
    it has `scores=`, they are shown below that, and when `run()` ends: by condition,
    what differs, and the first rows that only one of two values gets right. Planning
    sends nothing. A run with a name continues where it ended, also after a restart:
    only missing requests are sent, and a complete run is never sent again.

    Models are asked in parallel, each within its limits (doc: Rate limits per model).
    A request that fails is a row of `replies_df`; only an error that all further
    requests would meet ends the run. After the first interrupt nothing more is sent,
    and the replies of the next seconds are kept; the second one cancels. `await run`
    does the same as `run()` without blocking the event loop.

    Args:
        plan: The plan to run.
        session: The session whose settings, key and ledger are used.

    Attributes:
        plan: What is sent, under which name and in which order.
        grid: The trials.
        name: The name of the run, if it has one.
        run_id: Marks its exchanges in the ledger: the column `run`.
        seed, origin, is_reusing: Those of the plan.
        prices: That of the plan; if it has none, the one that the session has now.
        in_flight: Most requests in flight for one model. If None, the limit of the
            model determines it, or it is found out. You may change it.
        confirm_above: Ask the user before sending more requests; never if None.
            Requests that the ledger or a file answers do not count. You may change it.

    Raises:
        ParameterError: A run of this name has replies that are not in the plan.
        LedgerError: The run has a name, and the ledger cannot be read.

    Example:
        >>> run = svc.sweep("Say hello.", temperature=[0, 1])
        >>> run.run().replies_df()["text"].tolist()
        ['Hello!', 'Hello!']
    """

    def __init__(self, plan: Plan, *, session: Session) -> None:
        self._session = session
        self._result = RunResult(plan, self._reused, session=session)
        self._scores = RunScores(self._result, session)
        self._executor = Executor(self._result, self._scores, session=session)
        # a cell, and what it printed
        self._explained: tuple[int | None, str] = (None, "")
        self._reported_in: int | None = None  # the cell that shows the scores already
        if plan.name is not None:
            self._executor.bind()
            self._result.take_answer()
            self._scores.warn_of_changes()
            if self._executor.take_rows():
                for line in self._scores.catch_up():
                    write_warning(line)

    def __len__(self) -> int:
        return len(self.plan.grid)

    if not TYPE_CHECKING:  # a type checker is to see the mistake

        def __iter__(self) -> NoReturn:
            """Refuse to be iterated over, and say where the replies are."""
            raise ParameterError(
                "A run is not a list of replies. `run.replies_df()['text']` has their "
                "texts, one after the other; `run.reply(model=...)` returns one reply, "
                "with all that is known of it.",
                param="run",
            )

    @property
    def plan(self) -> Plan:
        """What is sent."""
        return self._result.plan

    @property
    def grid(self) -> Grid:
        """The trials of the plan."""
        return self.plan.grid

    @property
    def name(self) -> str | None:
        """The name of the run, if it has one."""
        return self.plan.name

    @property
    def run_id(self) -> str:
        """Marks its exchanges in the ledger: the column `run`."""
        return self.plan.run_id

    @property
    def seed(self) -> int:
        """Sets the order in which requests are sent."""
        return self.plan.seed

    @property
    def origin(self) -> OriginKind:
        """Which part of the package asks: the column `origin`."""
        return self.plan.origin

    @property
    def prices(self) -> Prices | None:
        """The price table of its costs: the plan's, or else the session's, if any."""
        return self._result.prices

    @property
    def is_reusing(self) -> bool:
        """Whether the ledger may answer identical requests."""
        return self.plan.is_reusing

    @property
    def in_flight(self) -> int | None:
        """Most requests in flight for one model."""
        return self.plan.in_flight

    @in_flight.setter
    def in_flight(self, most: int | None) -> None:
        self._result.plan = replace(self.plan, in_flight=most)

    @property
    def confirm_above(self) -> int | None:
        """Most requests that are sent without asking the user."""
        return self.plan.confirm_above

    @confirm_above.setter
    def confirm_above(self, most: int | None) -> None:
        self._result.plan = replace(self.plan, confirm_above=most)

    def run(
        self,
        *,
        first: int | None = None,
        watch: Watch | None = None,
        on: str | None = None,
        workers: int | None = None,
    ) -> Self:
        """Send what is missing, and wait for the end.

        Failed requests are not sent again (see `retry`), except those that failed
        because of a rate limit, the key or an unknown model. You are asked before more
        than `confirm_above` requests are sent.

        Args:
            first: Send only so many of all requests, as a pilot: equally many of each
                condition, on the same rows, which are spread over all rows. Then the
                run shows tokens, cost and time estimated from these replies; `run()`
                sends the rest.
            watch: Called before each wait, for a limit or another try. If None, waits
                of a minute or more are shown as notes.
            on: A Ray cluster whose workers send the requests: `ray` starts or joins
                one here, `auto` joins that of this machine, `ray://HOST:PORT` another.
                Everything else happens here, such as tools. The API key is sent to each
                worker, so join only a cluster that you trust. None sends from this
                process.
            workers: The number of workers; if None, one for each CPU, at most 8.

        Returns:
            The run itself.

        Raises:
            ConfigError: API key, base address or cluster is missing or unusable.
            ParameterError: Another kernel is sending the run of this name.
            SettingsError: Requests are missing, and the run began at another address.
            LedgerError: Replies cannot be saved. They stay in memory, and are saved
                when the run is continued.
            AuthError: The key is invalid (401), so no request can succeed.
            UnknownModelError: The service knows none of the models (404).
            SvcError: All models were given up after many failures in a row; this is
                one of the failures.
        """
        if first is not None:
            first = check_int("first", first, minimum=1, otherwise="or None for all")
        options = SendOptions(first=first, watch=watch, on=on, workers=workers)
        return self._run(options)

    def retry(
        self,
        *,
        include_refused: bool = False,
        watch: Watch | None = None,
        on: str | None = None,
        workers: int | None = None,
    ) -> Self:
        """Send what failed and what is missing, and wait; otherwise like `run`.

        Args:
            include_refused: Also send what the service refused as invalid (400), which
                it would most likely refuse again.
            watch: Called before each wait, for a limit or another try.
            on: As in `run`.
            workers: As in `run`.
        """
        check_flag("include_refused", include_refused)
        options = SendOptions(
            is_retried=True,
            include_refused=include_refused,
            watch=watch,
            on=on,
            workers=workers,
        )
        return self._run(options)

    def start(
        self,
        *,
        watch: Watch | None = None,
        show: ShowPiece | None = None,
        is_retried: bool = False,
        is_drawn: bool = True,
        on: str | None = None,
        workers: int | None = None,
    ) -> Self:
        """Begin to send what is missing, and return at once; the kernel stays free.

        A run that is paused continues. You can look at the run or its `replies_df` at
        any time; `wait` waits for the end.

        Args:
            watch: Called before each wait, for a limit or another try.
            show: Called with each piece of a reply. Replies are streamed then, and
                their usage is estimated.
            is_retried: Whether failed requests are sent again, as `retry` does.
            is_drawn: Whether to show progress, where that is possible.
            on: As in `run`; not together with `show`.
            workers: As in `run`.

        Returns:
            The run itself.

        Raises:
            SvcError: It cannot begin; see `run`.
        """
        options = SendOptions(
            is_retried=is_retried,
            watch=watch,
            show=show,
            on=on,
            workers=workers,
        )
        self._executor.start(options, is_drawn=is_drawn)
        return self

    def wait(self, *, tick: Tick = lambda: None) -> Self:
        """Wait for the end of what `start` began, and raise the error that ended it.

        Args:
            tick: Called again and again, on this thread.
        """
        if (execution := self._executor.execution) is not None:
            if execution.scheduler.is_paused and not execution.is_over:
                write_warning(
                    "The run is paused, so nothing is sent. Interrupt this, and call "
                    "run() to send the rest."
                )
            execution.wait(tick)
        return self

    def pause(self) -> Self:
        """Send nothing more until `resume`; requests in flight are completed."""
        if (execution := self._executor.execution) is not None:
            execution.scheduler.is_paused = True
        return self

    def resume(self) -> Self:
        """Continue after `pause`."""
        if (execution := self._executor.execution) is not None:
            execution.scheduler.is_paused = False
        return self

    def cancel(self) -> Self:
        """Stop sending; the replies so far are kept."""
        execution = self._executor.execution
        if execution is not None and not execution.is_over:
            execution.stop()
        return self

    @property
    def is_running(self) -> bool:
        """Whether requests are being sent."""
        return self._executor.is_running

    @property
    def error(self) -> BaseException | None:
        """The error that stopped the last sending early; None if there is none."""
        execution = self._executor.execution
        return None if execution is None else execution.error

    @property
    def size(self) -> PlanEstimate:
        """How large the plan is: requests, tokens and cost, by the replies so far."""
        return self._result.size

    @property
    def n_todo(self) -> int:
        """How many requests `run` would send."""
        return self._result.n_todo

    @property
    def n_failed(self) -> int:
        """How many requests failed, including those that the service refused."""
        return self._result.status().counts(len(self))["error"]

    @property
    def reasons(self) -> list[str]:
        """Why requests failed, each reason with its count."""
        return self._result.reasons()

    @property
    def cut_note(self) -> str:
        """How many replies were cut and what to pass; "" if none was."""
        return self._result.status().cut_note()

    @property
    def manifest(self) -> dict[str, Any]:
        """Everything that is needed to repeat the run, as JSON values, without any key.

        `svc.sweep(manifest=...)` takes it, with `name`, `seed`, `confirm_above`,
        `reuse`, `answer`, `scores`, `unit`, `limits` and `in_flight` if you want
        others.
        """
        values = self._result.manifest(self._executor.found_limits())
        return {**values, "ended_at": None} if self.is_running else values

    def replies(self) -> Iterator[ReplyRow]:
        """Return the rows of `replies_df`, one by one."""
        return self._result.replies()

    def plan_df(self) -> "pd.DataFrame":
        """List what is planned.

        Returns:
            One row for each request, in the order of the plan, with the columns of
            `replies_df`; the status is `planned` throughout.
        """
        return self._result.plan_df()

    def replies_df(
        self, columns: Literal["narrow"] | Sequence[str] | None = None
    ) -> "pd.DataFrame":
        """List the replies, and the requests without one; also while the run goes on.

        Args:
            columns: `narrow` leaves out columns that are empty or the same in all rows,
                and details such as ids, estimates and waits; or the names of columns;
                all columns if None.

        Returns:
            One row for each choice, in the order of the plan, with the columns of
            `svc.replies_df`. First come the columns of the rows given, with their own
            dtypes: `row` (the position, from 0), the index if it is more than a count,
            and all others. A request without an answer has one row, whose status says
            why: error, cancelled, not_run, or planned before the first run.

        Raises:
            ParameterError: A column does not exist.
            LedgerError: The ledger cannot be read.
        """
        from svc_notebook.ledger.reply_frames import select_columns  # noqa: PLC0415 - pandas

        return select_columns(self._result.replies_df(), columns)

    def write_parquet(self, folder: str | PathLike[str]) -> Path:
        """Write `replies_df` in parts of about 50 000 rows, one in memory at a time.

        Each part appears when it is complete, and replaces an older one.

        Args:
            folder: Made if it is missing. One that has other files, or parts of
                another run, is refused.

        Returns:
            The folder, which `svc.read_parquet` reads as one frame.
        """
        from .parquet_parts import write_parts  # noqa: PLC0415 - pandas

        return write_parts(self._result, folder)

    def to_eval(
        self, path: str | PathLike[str], *, target: str | None = None
    ) -> list[Path]:
        """Write the replies as logs of inspect-ai, which `svc.read_eval` reads again.

        A log has one model and one set of parameters, so a run with several conditions
        makes several: `log-1.eval`, `log-2.eval`, in the order of `replies_df`. A
        sample's id is the row's position, its epoch the repeat from 1, and its metadata
        are the columns of the row and the labels of the condition. Requests that were
        not sent are left out.

        Args:
            path: Ends with .eval; an old file is replaced.
            target: The column with the right answers; `target` if the rows have it.

        Returns:
            The files.

        Raises:
            ParameterError: There are no replies, or the file cannot be written.

        Example:
            >>> replies = svc.read_eval(*run.to_eval("log.eval"))
        """
        from svc_notebook.analysis.write_eval import write_eval  # noqa: PLC0415 - pandas

        return write_eval(self.replies_df(), Path(path), target=target)

    def read(self, answer: Any) -> Self:  # noqa: ANN401 - a type, a regex or a function
        """Read the answers of the replies again, as another type; nothing is sent.

        Args:
            answer: A type, a compiled regex or a function, as in `svc.sweep`. A
                dataclass and the like is also found as JSON in the text. None reads no
                answers.

        Returns:
            The run itself, whose frames have these answers from now on. The stored
            plan, and so a run that is continued, still has the type of the plan.

        Raises:
            ParameterError: Answers cannot be read as this type.
        """
        self._result.frames.answer = None if answer is None else answer_type(answer)
        self._reported_in = None
        return self

    def score(
        self,
        *,
        on_error: OnError = "missing",
        **scores: Callable[[Any], object] | None,
    ) -> int:
        """Score the good replies; the ledger keeps the scores.

        The functions are remembered while the kernel lives: they score new replies of
        this run as they come. `svc.sweep(scores=...)` does so from the beginning.

        Args:
            on_error: The score where a function raises: `missing`, 0 or `raise`, as in
                `svc.score`.
            **scores: By name, a function of a row of `replies_df`, or None to remove
                the score, as in `svc.score`.

        Returns:
            How many scores were saved. As the last line of a cell it says the rate or
            mean, of how many replies, and the name of the column.

        Raises:
            ParameterError: A function failed for all replies, or returned both texts
                and numbers, or there is no such score to remove; nothing was changed.
            LedgerError: The ledger cannot be read or written.

        Example:
            >>> run.score(right=svc.scores.exact("label"))
            12
        """
        if not scores:
            raise ParameterError(
                "Name a score and give its function, such as "
                "run.score(right=svc.scores.exact('label')).",
                param="scores",
            )
        n_kept = score_replies(
            self._result.ledger,
            self._result.replies_df(),
            scores,
            on_error=on_error,
            answer=self._result.frames.answer,
            remembered=self._scores.rules,
        )
        self._scores.remember(scores, on_error)
        self._reported_in = None
        return n_kept

    def rate(  # noqa: PLR0913 - a rating is described in many words
        self,
        name: str = "good",
        *,
        scale: str | Sequence[str] = "yes/no",
        pairs: str | None = None,
        first: Literal["differs", "random"] = "differs",
        n: int | None = None,
        rater: str | None = None,
        notes: bool = False,
        blind: bool = True,
        columns: str | Sequence[str] | None = None,
        in_terminal: bool = False,
    ) -> Rating:
        """Rate replies by hand: in a panel with the keyboard, or in a terminal.

        Each rating is saved in the ledger at once. Run the cell again to continue, also
        after a restart or tomorrow. The ratings of a reply by all raters make its score
        `rated_NAME`: the most frequent value, or the mean of numbers. Equal replies to
        the same prompt are rated once.

        Args:
            name: What is rated; for pairs and notes the default is `pairs` and `notes`.
            scale: "yes/no" (1 and 0), "1-5" (up to "1-9"), or a list of 2 to 9 labels.
            pairs: A factor, such as `model`: the better of two replies is chosen, and
                `run.ranking(on="rated_pairs")` ranks the values of the factor.
            first: "differs" begins with rows whose scores or texts differ, or where a
                judge is unsure: they tell most with few ratings. "random" is needed to
                correct the scores of a judge with `contrast(labels=...)`.
            n: How many replies or pairs, rounded up to whole rows; all if None.
            rater: Who rates; your user name if None. All raters get the same replies in
                the same order.
            notes: Ask for a note in your own words instead of a value.
            blind: Hide what made the replies.
            columns: Columns of the rows to show with a reply. If None, those that fill
                the prompt or the system message: others may give the answer away.
            in_terminal: Ask with `input`, one after the other.

        Returns:
            The rating, which displays itself as a panel.

        Raises:
            ParameterError: There are no good replies, or an argument cannot be used.
            LedgerError: The ledger cannot be read.

        Example:
            >>> rating = run.rate("helpful", scale="1-5", first="random", n=30)
        """
        rating = begin_rating(
            self._result,
            name,
            scale=scale,
            pairs=pairs,
            first=first,
            n=n,
            rater=rater,
            notes=notes,
            blind=blind,
            columns=columns,
            unsure=self._disputed() if first == "differs" else frozenset(),
        )
        return rating.in_terminal() if in_terminal else rating

    def to_rate(
        self,
        name: str = "good",
        *,
        scale: str | Sequence[str] = "yes/no",
        **options: Any,  # noqa: ANN401 - those of `rate`
    ) -> "pd.DataFrame":
        """Return the replies to rate as a sheet, which `svc.export` writes to a file.

        Args:
            name: As in `rate`.
            scale: As in `rate`.
            **options: Those of `rate`: `pairs`, `first`, `n`, `rater`, `notes`,
                `columns`.

        Returns:
            One row for each card that the rater has not rated: `rate_id`, the values
            that filled the prompt, `prompt`, `reply` or `left` and `right`, `scale`,
            and `rating` and `note`, which the rater fills in. No column shows what made
            a reply, or what a scorer compares it with.

        Example:
            >>> path = svc.export(run.to_rate("helpful", n=20), "rate.csv")
        """
        from .rating_sheet import to_sheet  # noqa: PLC0415 - pandas

        return to_sheet(self.rate(name, scale=scale, **options))

    def take_ratings(
        self,
        sheet: Any,  # noqa: ANN401 - a frame or a path
        name: str = "good",
        *,
        scale: str | Sequence[str] = "yes/no",
        **options: Any,  # noqa: ANN401 - those of `rate`
    ) -> int:
        """Save the ratings in a spreadsheet that `to_rate` made.

        Args:
            sheet: The frame, or the path of a CSV or Excel file. Rows without a rating
                are left out.
            name: The same as for `to_rate`.
            scale: The same as for `to_rate`.
            **options: The same as for `to_rate`; `rater` is who filled in the sheet.

        Returns:
            How many cards were rated.

        Raises:
            ParameterError: A rating is not on the scale, or a row is not of this run;
                nothing was saved.
        """
        from .rating_sheet import (  # noqa: PLC0415 - pandas
            first_of,
            read_sheet,
            take_sheet,
        )

        df = read_sheet(sheet)
        options = {**first_of(df), **options, "n": None}
        return take_sheet(df, self.rate(name, scale=scale, **options))

    def ratings_df(self, name: str | None = None) -> "pd.DataFrame":
        """List the ratings of the replies by people.

        Args:
            name: Only ratings of this name, such as `good`; all if None.

        Returns:
            One row for each reply or pair that has a rating, the oldest first: `name`,
            `rater`, `row`, `candidate` (of a pair the left one, with
            `other_candidate`), `value` or `label`, `note`, `seconds_s`, `chosen`, ids
            and time. Replies that say the same are rated together: their rows have the
            same `name`, `rater` and `rated_at`. Drop such duplicates to count ratings
            or to add up `seconds_s`.

        Example:
            >>> once = run.ratings_df().drop_duplicates(["name", "rater", "rated_at"])
        """
        from svc_notebook.analysis.rated import ratings_df  # noqa: PLC0415 - pandas

        return ratings_df(self.replies_df(), self._result.ledger, name)

    def categories(
        self,
        categories: Mapping[str, str | Sequence[str]] | None = None,
        *,
        name: str | None = None,
        by: str | Sequence[str] | None = None,
        unit: str | Sequence[str] | None = None,
    ) -> "pd.DataFrame":
        """Count the notes of raters in categories that you define.

        Write notes first, with `run.rate(notes=True)`. Read them, and give words for
        what they are about. Edit the mapping to rename or merge categories.

        Args:
            categories: The words of each category. A note belongs to every category of
                which it contains a word, also as a part of a word; case is ignored.
                None lists the notes.
            name: Only notes of these ratings, such as `good`; all if None.
            by: Columns to count by; what varies if None.
            unit: As in `svc.summary_df`; that of the plan if None.

        Returns:
            One row for each category and group: `category`, what it is counted by,
            `n`, `n_replies` (those with a rating or a note), `share`, `low`, `high`.
            Notes in no category are `(none)`, and are shown below. Without categories
            one row for each note: `note`, `n`.

        Raises:
            ParameterError: There are no notes, or categories is not a mapping.

        Example:
            >>> run.rate(notes=True).rate(None, note="much too long")
            >>> counts = run.categories({"length": ["long", "wordy"]}, by="model")
        """
        from svc_notebook.analysis.note_categories import (  # noqa: PLC0415 - pandas
            note_categories,
        )

        return note_categories(
            self.replies_df(),
            self._result.ledger,
            categories,
            name=name,
            by=by,
            unit=self._unit(unit),
        )

    def usage_df(
        self,
        *,
        by: str | Sequence[str] = ("model",),
        include_emulated: bool = False,
        include_reused: bool = False,
    ) -> "pd.DataFrame":
        """Sum up the usage of the run, including failed and repeated requests.

        Args:
            by: Columns of `replies_df` to group by, including those of the rows.
            include_emulated: Count the emulator's answers too, as if they were paid.
            include_reused: Count answers from the ledger or a file too.

        Returns:
            One row for each group: see `svc.usage_df`.

        Raises:
            ParameterError: `by` names a column that does not exist.
            LedgerError: The ledger cannot be read.
        """
        return self._result.usage_df(
            by, include_emulated=include_emulated, include_reused=include_reused
        )

    def summary_df(  # noqa: PLR0913 - the arguments of svc.summary_df
        self,
        by: str | Sequence[str] | None = None,
        on: str | Sequence[str] | None = None,
        *,
        unit: str | Sequence[str] | None = None,
        weight: "Weight" = "prompts",
        missing: "Missing" = "drop",
        prices: Prices | Mapping[str, Any] | str | Path | None = None,
        include_emulated: bool = False,
    ) -> "pd.DataFrame":
        """Sum up the replies by what varies: `svc.summary_df` of `replies_df()`.

        Example:
            >>> summary = run.summary_df(by="model", weight="replies")
        """
        from svc_notebook.analysis.summary import summary_df  # noqa: PLC0415 - pandas

        if prices is None and include_emulated:
            prices = self.prices
        return summary_df(
            self.replies_df(),
            by,
            on,
            unit=self._unit(unit),
            weight=weight,
            missing=missing,
            prices=prices,
            include_emulated=include_emulated,
        )

    def contrast(  # noqa: PLR0913 - a study is described in many words
        self,
        factor: str | Sequence[str],
        on: str | Sequence[str] | None = None,
        *,
        against: object = ...,
        by: str | Sequence[str] | None = None,
        unit: str | Sequence[str] | None = None,
        weight: Literal["prompts", "replies"] = "prompts",
        missing: Literal["drop", "wrong", "bounds"] = "drop",
        paired: bool = True,
        pair_by: str | Sequence[str] | None = None,
        margin: float | None = None,
        mistake_costs: float | None = None,
        level: float = 0.95,
        correct: Literal["holm", "bonferroni"] | None = "holm",
        looks: Literal["one", "any"] = "one",
        labels: str | None = None,
    ) -> "Contrast":
        """Compare the values of factors in pairs: `svc.contrast` of `replies_df()`.

        With looks="any" you can call it during the run, as often as you like. The
        factor "run" compares with an earlier run, or a frame of replies, given as
        `against`. Labels of `rate` are left out if their replies were not drawn at
        random.
        """
        from svc_notebook.analysis.contrast import contrast  # noqa: PLC0415 - pandas
        from svc_notebook.analysis.joined_runs import (  # noqa: PLC0415 - pandas
            is_run,
            joined,
        )
        from svc_notebook.analysis.rated import (  # noqa: PLC0415 - pandas
            of_chosen_labels,
            random_labels,
        )

        if factor == "run" and isinstance(against, str):
            name = shorten(repr(against), 60)
            raise ParameterError(
                f"against={name} must be the run itself, not its name: give "
                f"against=svc.run({name}).",
                param="against",
            )
        df = self.replies_df()
        facts: Mapping[str, RunFacts] = {}
        if factor == "run" and is_run(against):
            df, (against, _), pair_by, facts = joined([against, self], pair_by)
        ledger = self._result.ledger
        names = [] if on is None else as_names(on)
        notes = [of_chosen_labels(df, ledger, name) for name in names]
        if labels is not None:
            df, left_out = random_labels(df, ledger, labels)
            notes.append(left_out)
        compared = contrast(
            df,
            factor,
            on,
            against=against,
            by=by,
            unit=self._unit(unit),
            weight=weight,
            missing=missing,
            paired=paired,
            pair_by=pair_by,
            margin=margin,
            mistake_costs=mistake_costs,
            level=level,
            correct=correct,
            looks=looks,
            labels=labels,
            facts=facts,
        )
        compared = replace(compared, notes=[*compared.notes, *filter(None, notes)])
        return self._with_looks(compared)

    def decide(  # noqa: PLR0913 - a study is described in many words
        self,
        factor: str | Sequence[str],
        on: str | None = None,
        *,
        margin: float | None = None,
        max_requests: int | None = None,
        max_cost: float | None = None,
        unit: str | Sequence[str] | None = None,
        missing: Literal["drop", "wrong"] = "drop",
        level: float = 0.95,
    ) -> "Decision":
        """Send rows until it is clear which value to use, and say which.

        Rows are sent in a random order, with all values of the factor, in blocks. After
        each block it looks at the intervals of `contrast(..., looks="any")`, which hold
        at all looks together. A value that is clearly worse is sent no more. It ends
        when one value is clearly better, when one is at most `margin` worse than all
        that are left and none of these is cheaper, or when the rows or the budget are
        used up. If it was interrupted, call it again to continue; if it is complete, it
        answers again and sends nothing. A run that was complete before it is looked at
        once, with the intervals of `contrast`. It blocks the cell; to keep the kernel
        free, use `await asyncio.to_thread(run.decide, "model")`. Requests are sent from
        this process, because blocks are too small for a cluster; replies that a cluster
        got with `run(on=...)` count, too.

        Args:
            factor: What is decided about, such as `model`; for several, such as
                `["model", "prompt"]`, each combination is a value.
            on: A score that the run makes as replies come; the only one if None. More
                is better.
            margin: How much worse a cheaper value may be: 0.03 is 3 points. If None,
                only a value that is clearly better ends it.
            max_requests: Most requests to send; all of the plan if None.
            max_cost: Most to spend, by your price table, with a price for each model.
                The first block is always sent, because costs are unknown before.
            unit: Columns that say which rows belong together, such as `document`; the
                `unit` of the plan if None.
            missing: Replies without a score are left out ("drop") or count as 0.
            level: The least share of such decisions that are right.

        Returns:
            The decision, which displays itself; `says` has it in words, `value` is what
            to use, `df` has all looks.

        Raises:
            ParameterError: The factor or the score is not one of the run's, or the
                budget does not pay for one row.
            SvcError: As in `run`.

        Example:
            >>> decision = run.decide("model", on="right", margin=0.03)
        """
        from svc_notebook.analysis.stopping_rule import (  # noqa: PLC0415 - pandas
            Question,
        )

        from .decide import Budget  # noqa: PLC0415 - pandas

        unit = self._unit(unit)
        question = Question(
            factor=factor,
            on=on,
            margin=margin,
            unit=None if unit is None else as_names(unit),
            missing=missing,
            level=level,
        )
        budget = Budget(max_requests=max_requests, max_cost=max_cost)
        return self._decider().decide(question, budget)

    def report(  # noqa: PLR0913 - a report is described in many words
        self,
        path: str | PathLike[str],
        *,
        factor: str | Sequence[str] | None = None,
        on: str | Sequence[str] | None = None,
        labels: str | None = None,
        by: str | Sequence[str] | None = None,
        margin: float | None = None,
        title: str | None = None,
    ) -> list[Path]:
        """Write a report to attach to a decision: one file that needs no scripts.

        It has the answer in a sentence, the differences as a drawing and in words, what
        the data cannot tell, rows that flip, ten replies at random and the ten worst,
        judges compared with people, the plan with its digest, models, prompts, costs
        and versions; after `decide` also the decision. Nothing is sent. Replies of a
        few hundred rows are inside the page, as CSV and Parquet; larger ones, and those
        of a Markdown report, are files next to it.

        Args:
            path: Ends with .html or .md; an old file is replaced.
            factor: What is compared; by default what was decided, or all that varies.
            on: The score, or several; by default those of the plan, or all.
            labels: Ratings by people, which correct the score of a judge; by default
                those of the same name, such as `rated_good` for `judge_good`.
            by: A column of the rows, such as `language`, or several: figures and
                differences are also shown for each of its values, at most 8.
            margin: A difference that would not matter. After `decide` its margin
                counts, and another one is refused, unless you name the `factor`.
            title: The title of the report.

        Returns:
            The files: the report, and the files next to it, if any.

        Raises:
            ParameterError: A factor or score does not exist, or the file cannot be
                written.
            LedgerError: The ledger cannot be read.

        Example:
            >>> files = run.report("decision.html")
        """
        from .decision_report import (  # noqa: PLC0415 - pandas
            ReportQuestion,
            write_report,
        )
        from .judge import stored_judges  # noqa: PLC0415 - pandas

        question = ReportQuestion(
            factor=factor, on=on, labels=labels, by=by, margin=margin, title=title
        )
        return write_report(
            self._result,
            path,
            question,
            replay=lambda: self._decider().replay(),
            with_looks=self._with_looks,
            judges=stored_judges(self._session, self._result),
        )

    def recheck(
        self,
        n: int = 40,
        on: str | None = None,
        *,
        margin: float | None = None,
        level: float = 0.95,
    ) -> "Recheck":
        """Send some rows again, and say whether the model still answers as it did.

        Rows are drawn at random, and each is sent once before any is sent again. Rows
        whose scores differ would mislead: they were extreme by chance, and would seem
        to change. Replies are compared with those of the same rows, over all checks so
        far, and the answer holds however often you check. A score is compared if the
        run has one; else the texts (temperature 0) or their lengths (other
        temperatures), and how they end. If another model answers, that is a change,
        too. Each check is stored as a run in the ledger: if it was interrupted, the
        next call continues it; if it is complete, the next call is the next check.

        Args:
            n: How many rows, with all values that the run varies.
            on: A score that the run makes as replies come; the only one if None. More
                is better.
            margin: How much the score may differ and still be as before; 5 points if
                None. Needed for scores that are not shares from 0 to 1.
            level: The least probability that no check calls a model changed that did
                not change.

        Returns:
            The answer, which displays itself; `says` has it in words, `verdict` is "as
            before", "changed" or "cannot tell", `is_worse` whether a score is lower.

        Raises:
            ParameterError: The run has no replies, or no such score.
            SettingsError: Requests now go to another address.
            SvcError: As in `run`.

        Example:
            >>> checked = run.recheck(n=40)
        """
        from svc_notebook.analysis.recheck import (  # noqa: PLC0415 - pandas
            CheckQuestion,
        )

        from .canary import Canary  # noqa: PLC0415 - pandas

        n = check_int("n", n, minimum=1)
        question = CheckQuestion(
            on=self._scores.score_name(on, is_needed=False),
            margin=margin,
            unit=self._result.unit,
            level=level,
        )
        canary = Canary(self._result, self._scores, session=self._session)
        return canary.check(n, question)

    def judge(  # noqa: PLR0913 - a judge is described in many words
        self,
        question: str,
        *,
        model: str | Sequence[str],
        answer: Any = None,  # noqa: ANN401 - a type, labels or a range
        pairs: str | None = None,
        name: str | None = None,
        n: int | None = None,
        probes: bool = True,
        **options: Any,  # noqa: ANN401 - those of `svc.sweep`
    ) -> "Judge":
        """Plan to have a model judge the replies; `.run()` of the result sends it.

        It is a sweep that is named after this run, so the same call continues it, also
        after a restart. Verdicts on replies are the score `judge_NAME`, for `contrast`
        and the like. The judge also shows what it gets wrong: `order` (verdicts that
        change when a pair is swapped, which count as ties), `itself` (when asked
        again), `style` (when the same words have Markdown), `length`, and `family` (a
        name that judge and candidate share). `agreement` compares it with people.

        Args:
            question: What is judged, such as "Is the tone polite?".
            model: The judge; several models are a jury, whose majority counts.
            answer: What a verdict is: bool if None, labels, a Literal, a range such as
                `range(1, 6)`, or a dataclass with several of these, whose scores are
                `judge_FIELD`.
            pairs: What the run varies, such as `model`: two replies to a row are
                compared, in both orders, by "left", "right" or "tie".
            name: NAME of the score; `good` if None, and `pairs` for pairs.
            n: How many replies or pairs, of random rows and rounded up to whole rows,
                so that the replies to a row can be compared; all of them if None.
            probes: Whether about 60 more requests measure `itself` and `style`.
            **options: Those of `svc.sweep`, such as `confirm_above`, `limits`,
                `repeats` or `max_tokens`. `temperature` is 0 if left out.

        Returns:
            The judge, which displays its plan, and after `run()` its verdicts.

        Raises:
            ParameterError: There are no replies, or an argument cannot be used.

        Example:
            >>> judge = run.judge("Is it polite?", model="svc-instruct").run()
            >>> reasons = judge.judgements_df()["reason"]
        """
        from .judge import Judge, plan_judge, question_of  # noqa: PLC0415 - pandas

        asked = question_of(
            question,
            answer=bool if answer is None else answer,
            pairs=pairs,
            name=name,
            n=n,
            probes=probes,
        )
        options = {"model": model, **options}
        plan = plan_judge(self._session, self._result, asked, options)
        return Judge(Run(plan, session=self._session), self._result, asked)

    def judgements_df(self) -> "pd.DataFrame":
        """List what all judges said about the replies, including their probes.

        Returns:
            One row for each reply of a judge and criterion: `judge` and `model`,
            `criterion`, `verdict` and `reason`, or the `error` if none could be read;
            `order` of a pair, and `probe` if it does not count. `left` and `right` are
            the values of a pair, and its verdict names one of them, in whichever order
            they were shown. `exchange_id` and `choice_index` are those of the reply (of
            a pair, the left one, with `right_exchange_id` and `right_choice_index`),
            `judge_exchange_id` is that of the judge.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        from svc_notebook.analysis.verdicts import JUDGEMENTS  # noqa: PLC0415 - pandas

        from .judge import stored_judgements  # noqa: PLC0415 - pandas

        verdicts = stored_judgements(self._session, self._result)
        return verdicts[[column.name for column in JUDGEMENTS]]

    def contrast_df(
        self,
        factor: str | Sequence[str],
        on: str | Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401 - those of `contrast`
    ) -> "pd.DataFrame":
        """Return the numbers of `contrast`, with the same arguments."""
        from svc_notebook.analysis.summary import say  # noqa: PLC0415 - pandas

        compared = self.contrast(factor, on, **options)
        say(compared.notes)
        return compared.df

    def how_many(  # noqa: PLR0913 - a study is described in many words
        self,
        difference: float,
        factor: str | None = None,
        on: str | None = None,
        *,
        margin: bool = False,
        power: float = 0.8,
        level: float = 0.95,
        against: object = ...,
        unit: str | Sequence[str] | None = None,
        labels: str | None = None,
    ) -> "Needed":
        """Plan a larger run with this one as the pilot: `svc.how_many`.

        Labels of `rate` are left out if their replies were not drawn at random.
        """
        from svc_notebook.analysis.rated import random_labels  # noqa: PLC0415 - pandas
        from svc_notebook.analysis.sample_size import how_many  # noqa: PLC0415 - pandas

        df, note = self.replies_df(), ""
        if labels is not None:
            df, note = random_labels(df, self._result.ledger, labels)
        needed = how_many(
            difference,
            df,
            factor,
            on,
            margin=margin,
            power=power,
            level=level,
            against=against,
            unit=self._unit(unit),
            labels=labels,
        )
        return needed._replace(says=f"{needed.says} {note}".rstrip())

    def agreement_df(
        self,
        by: str | Sequence[str] | None = None,
        on: str | None = None,
        *,
        similarity: "Literal['exact'] | Similarity" = "exact",
        k: int | Sequence[int] | None = None,
        unit: str | Sequence[str] | None = None,
        missing: "Missing" = "drop",
    ) -> "pd.DataFrame":
        """Say how much repeats agree: `svc.agreement_df` of `replies_df()`."""
        from svc_notebook.analysis.agreement import agreement_df  # noqa: PLC0415

        return agreement_df(
            self.replies_df(),
            by,
            on,
            similarity=similarity,
            k=k,
            unit=self._unit(unit),
            missing=missing,
        )

    def agreement(
        self,
        judge: str,
        labels: str,
        *,
        by: str | Sequence[str] | None = None,
        unit: str | Sequence[str] | None = None,
    ) -> "JudgeAgreement":
        """Say whether a judge says what people say: `svc.agreement`.

        A note counts labels of `rate` whose replies were not drawn at random.
        """
        from svc_notebook.analysis.judge_agreement import (  # noqa: PLC0415 - pandas
            judge_agreement,
        )
        from svc_notebook.analysis.rated import (  # noqa: PLC0415 - pandas
            of_chosen_labels,
        )

        df = self.replies_df()
        trust = judge_agreement(df, judge, labels, by=by, unit=self._unit(unit))
        note = of_chosen_labels(df, self._result.ledger, labels)
        return replace(trust, notes=[*trust.notes, note]) if note else trust

    def repeats_df(
        self,
        on: str | None = None,
        *,
        similarity: "Literal['exact'] | Similarity" = "exact",
    ) -> "pd.DataFrame":
        """List the least agreement of repeats: `svc.repeats_df` of `replies_df()`."""
        from svc_notebook.analysis.agreement import repeats_df  # noqa: PLC0415 - pandas

        return repeats_df(self.replies_df(), on, similarity=similarity)

    def confusion_df(
        self,
        label: str = "label",
        by: str | Sequence[str] | None = None,
        *,
        unit: str | Sequence[str] | None = None,
        missing: Literal["drop", "wrong"] = "drop",
    ) -> "pd.DataFrame":
        """Count which labels are answered: `svc.confusion_df` of `replies_df()`."""
        from svc_notebook.analysis.confusion import confusion_df  # noqa: PLC0415

        return confusion_df(
            self.replies_df(), label, by, unit=self._unit(unit), missing=missing
        )

    def ranking(
        self,
        on: str = "rated_pairs",
        *,
        unit: str | Sequence[str] | None = None,
        level: float = 0.95,
    ) -> "Ranking":
        """Rank what was compared in pairs: `svc.ranking` of these preferences.

        Args:
            on: Ratings of pairs, such as `rated_pairs` of `rate(pairs="model")`, or
                verdicts on pairs, such as `judge_pairs` of `judge(pairs="model")`.
            unit: Columns that say which rows belong together; the unit of the plan if
                None, or else the row.
            level: The level of the intervals, between 0 and 1.

        Returns:
            The ranking, which displays itself: `df`, `best`, `says`.

        Raises:
            ParameterError: There are no such preferences.

        Example:
            >>> judge = run.judge("Which is good?", model="svc-instruct", pairs="model")
            >>> judge.run().preferences().columns.tolist()
            ['row', 'left', 'right', 'winner', 'rater']
            >>> ranked = run.ranking(on="judge_pairs")
        """
        from svc_notebook.analysis.ranking import ranking  # noqa: PLC0415 - pandas
        from svc_notebook.analysis.rated import preferences  # noqa: PLC0415 - pandas
        from svc_notebook.ledger.scores import JUDGED  # noqa: PLC0415 - pandas

        unit = self._unit(unit)
        by_unit = None if unit is None else list(as_names(unit))
        if on.startswith(JUDGED):
            from .judge import judge_preferences  # noqa: PLC0415 - pandas

            pairs = judge_preferences(self._session, self._result, on, unit)
            # the first column of the frame says which row a pair is of
            by_unit = by_unit or list(pairs.columns[:1])
        else:
            pairs = preferences(self.replies_df(), self._result.ledger, on, unit=unit)
        return ranking(pairs, unit=by_unit, level=level)

    def compare(
        self,
        rows: str | Sequence[str] | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        markdown: bool = True,
        diff: bool = False,
    ) -> ComparisonTable:
        """Show replies side by side in a table.

        Args:
            rows: Columns of `replies_df` whose values become the table's rows; if
                None, the prompt, or what fills it, with the correct answer that
                `svc.scores.exact` compares with. A name that the rows of the run have,
                too, such as `text`, means the column of the rows; `model` and other
                names that vary mean what was sent.
            columns: Columns whose values become the table's columns; the other names
                that vary if None.
            markdown: Whether replies are rendered; False shows them as written.
            diff: Mark what differs from the first reply of each row, in the texts as
                written: words, or characters in scripts without blanks, such as Thai.

        Returns:
            A table that displays itself. Each reply says what else varies, and equal
            replies are shown once. Long texts are folded, and a line counts what does
            not fit.

        Raises:
            ParameterError: A column does not exist.
            LedgerError: The ledger cannot be read.
        """
        scorers = [rule.function for rule in self._scores.rules.values()]
        return self._result.compare(
            rows,
            columns,
            markdown=markdown,
            diff=diff,
            correct=compared_columns(scorers),
        )

    def trend(
        self,
        factor: str,
        on: str | None = None,
        *,
        unit: str | Sequence[str] | None = None,
        missing: Literal["drop", "wrong"] = "drop",
    ) -> "Trend":
        """Tell how a score changes along a setting: `svc.trend` of `replies_df()`.

        Example:
            >>> run = svc.sweep("{{text}}", rows=df, temperature=[0, 0.5, 1]).run()
            >>> slope = run.trend("temperature", on="completion_tokens")
        """
        from svc_notebook.analysis.trend import trend  # noqa: PLC0415 - pandas

        return trend(
            self.replies_df(), factor, on, unit=self._unit(unit), missing=missing
        )

    def plot(  # noqa: PLR0913 - the arguments of svc.plot
        self,
        on: str,
        *,
        by: str | Sequence[str] | None = None,
        x: str | None = None,
        against: str | None = None,
        unit: str | Sequence[str] | None = None,
        weight: "Weight" = "prompts",
        missing: "Missing" = "drop",
        width: int = 480,
        include_emulated: bool = False,
    ) -> "Plot":
        """Draw a score of the replies by group; arguments and chart as in `svc.plot`.

        With `include_emulated`, replies of the emulator cost what the service's would.

        Example:
            >>> chart = run.plot("right", by="model", against="latency_s")
        """
        from svc_notebook.analysis.plot import plot  # noqa: PLC0415 - pandas
        from svc_notebook.analysis.summary import with_costs  # noqa: PLC0415 - pandas

        df = self.replies_df()
        check_flag("include_emulated", include_emulated)
        if include_emulated:
            df = with_costs(df, self.prices, include_emulated=True)
        return plot(
            df,
            on,
            by=by,
            x=x,
            against=against,
            unit=self._unit(unit),
            weight=weight,
            missing=missing,
            width=width,
        )

    def reply(self, exchange_id: str | None = None, **conditions: object) -> Completion:
        """Return one reply, with the request that was sent for it.

        Args:
            exchange_id: The id of the exchange, as in `replies_df`.
            **conditions: Columns of `replies_df`, each with the value of the reply,
                such as `row=3, model="svc-v2-8b-instruct", repeat=0`.

        Returns:
            The reply, which displays itself; `request` is what was sent, and
            `as_python()` and `as_curl()` write it as code.

        Raises:
            ParameterError: No reply matches, or several do: the message says what
                still varies.
            LedgerError: The ledger cannot be read.

        Example:
            >>> run.reply(row=0, model="svc-v2-8b-instruct").text
            'spam'
        """
        if exchange_id is None:
            exchange_id = self._result.exchange_id_of(conditions)
        elif conditions:
            raise ParameterError(
                f"An exchange_id names one reply; leave out {', '.join(conditions)}.",
                param="exchange_id",
            )
        return self._session.context().reply(exchange_id)

    def __reduce_ex__(self, protocol: object) -> Never:
        remedy = "Plan it again"
        if self._result.is_begun:
            remedy = f"svc.run({self.run_id!r}) rebuilds it from the ledger"
        raise ParameterError(
            "A run belongs to this kernel and cannot be copied or pickled. "
            f"{remedy}; replies_df() is a plain frame.",
            param="run",
        )

    def __await__(self) -> Generator[Any, None, Self]:
        return self._run_async().__await__()

    def __repr__(self) -> str:
        text, report = self._describe().text, self._score_report()
        return text if report is None else f"{text}\n\n{report.text()}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # noqa: ANN401 - IPython's
        # what this cell has shown already is left out
        here, (cell, text) = _cell_number(), self._explained
        printed = text if cell is not None and cell == here else ""
        bundle = self._describe(printed).bundle()
        is_reported = here is not None and here == self._reported_in
        report = None if is_reported else self._score_report()
        if report is None:
            return bundle
        html = bundle["text/html"] + report.html()
        plain = f"{bundle['text/plain']}\n\n{report.text()}"
        return {"text/html": html, "text/plain": plain}

    def _disputed(self) -> frozenset[str]:
        """Return the ids of exchanges about which a judge is unsure."""
        from svc_notebook.analysis.verdicts import disputed  # noqa: PLC0415 - pandas

        return disputed(self.judgements_df())

    def _decider(self) -> "Decider":
        from .decide import Decider  # noqa: PLC0415 - pandas

        endpoint = self._session.settings.endpoint
        limits = {
            model: self.plan.limit(model, endpoint) for model in self.grid.n_by_model
        }
        return Decider(
            self._result,
            self._executor,
            self._scores,
            screen=find_screen(self._session.settings.display),
            per_minute={
                model: limit.per_minute
                for model, limit in limits.items()
                if limit is not None and limit.per_minute is not None
            },
        )

    def _run(self, options: SendOptions) -> Self:
        execution = self._executor.run(options)
        lines = self._scores.catch_up() if execution is None else None
        self._explain_end(execution, lines)
        self._show_scores()
        return self

    async def _run_async(self) -> Self:
        execution = await self._executor.run_async(SendOptions())
        # on a thread, because a score function may call the service
        lines = None if execution else await asyncio.to_thread(self._scores.catch_up)
        self._explain_end(execution, lines)
        self._show_scores()
        return self

    def _describe(self, printed: str = "") -> RunDescription:
        """Describe the run, without lines that were `printed` above it."""
        result, grid = self._result, self.plan.grid
        try:
            status = result.status()
            counts = status.counts(len(self))
            reasons = self.reasons if counts["error"] else []
            size, faults = self.size, result.answer_faults()
        except LedgerError as problem:
            head = f"its ledger cannot be read. {problem}"
            return RunDescription(name=self.name, head=head)
        n_left = Counter(grid.n_by_model) - Counter(settled_of(status).n_by_model)
        news = [
            *(("failed", reason) for reason in reasons),
            ("cut", status.cut_note()),
            ("not read", faults.unread.note),
            *(("note", note) for note in faults.notes(result.rules)),
        ]
        unread = faults.unread.in_words
        n_left = n_left if result.is_begun else n_left - Counter(size.answered)
        lines = plan_lines(
            grid,
            size=size,
            n_left=n_left,
            is_answered=self._executor.is_answered,
            speed=self._executor.speed(),
        )
        lines += self._shortages(size, n_left.total())
        lines += result.notes()
        if self.is_running:
            lines = [line for line in lines if line[0] == "time"]
        return RunDescription(
            name=self.name,
            head=headline(grid, counts, is_begun=result.is_begun, unread=unread),
            lines=[*(line for line in news if line[1] not in printed), *lines],
            footer=" · ".join(self._next_steps(status)),
            marks=(unread,) if unread else (),
        )

    def _shortages(self, size: PlanEstimate, n_left: int) -> list[Line]:
        """Say which limits on spending may end the run before all is sent."""
        spending = self._session.spending
        if spending is None or self._executor.is_answered:
            return []
        most = most_of_rest(size, n_left)
        return [("limit", text) for text in spending.shortages(most)]

    def _next_steps(self, status: RunStatus) -> list[str]:
        execution = self._executor.execution
        if execution is not None and not execution.is_over:
            if execution.scheduler.is_paused:
                return ["paused; .resume() continues, .cancel() stops it"]
            return ["running; .pause(), .cancel(), .replies_df() at any time"]
        return next_steps(status, len(self)) + [
            f"stopped sending to {queue.model}: {type(queue.given_up).__name__}"
            for queue in (() if execution is None else execution.scheduler.queues)
            if queue.given_up
        ]

    def _explain_end(
        self, execution: Execution | None, scored: Sequence[str] | None
    ) -> None:
        """Print why all requests of a pass failed, and what is wrong with replies.

        `scored` has the lines to print if nothing was sent.
        """
        if execution is None or self.plan.origin != "sweep":
            for line in scored or ():
                write_warning(line)
            self._explained = _cell_number(), "\n".join(scored or ())
            return
        queues = execution.scheduler.queues
        n_failed = sum(queue.n_failed for queue in queues)
        text = ""
        if any(queue.n_ok for queue in queues):
            faults = self._result.answer_faults()
            notes = faults.unread.note, *faults.notes(self._result.rules)
            text = "\n".join(filter(None, (self.cut_note, *notes)))
        elif n_failed:
            reasons = "".join(f"\n  {reason}" for reason in self.reasons)
            remedy = "Fix this, then call retry()"
            if self._result.status().count("refused") >= n_failed:
                remedy = "Fix this in a new plan"
            where = " in this pass" if self._result.status().count("ok") else ""
            text = (
                f"No request succeeded{where}; {n_failed:,} failed:{reasons}\n{remedy}."
            )
        if text:
            self._explained = _cell_number(), text
            write_warning(text)
        n_sent = sum(queue.n_ok for queue in queues)
        for line in self._scores.lines(n_sent=n_sent):
            write_warning(line)

    def _reused(self, trial: Trial) -> Exchange | None:
        """Return the answer that the ledger has for a trial, if any."""
        context = self._session.context()
        return context.reused(trial.request, self.plan.origin_of(trial))

    def _unit(self, unit: str | Sequence[str] | None) -> str | Sequence[str] | None:
        """Return the given unit, or else the columns of the unit of the plan."""
        return self._result.unit if unit is None else unit

    def _score_report(self) -> "ScoreReport | None":
        """Return the report on the scores of the plan; None before there are any."""
        if not self.plan.scores or self.is_running or not self._result.is_begun:
            return None
        from svc_notebook.analysis.score_report import (  # noqa: PLC0415 - pandas
            score_report,
        )

        try:
            report = score_report(
                self.replies_df(),
                self.plan.scores,
                unit=self._unit(None),
                is_complete=not self.n_todo,
            )
            if report is None:
                return None
            if report.contrast is not None:
                return replace(report, contrast=self._with_looks(report.contrast))
            # `decide` ends before all is sent, and has compared
            is_decided = self._result.decision is not None
            return replace(report, note="") if is_decided else report
        except LedgerError:
            return None
        except KeyboardInterrupt:  # the first report takes seconds: it loads SciPy
            raise Interrupted(message=NOT_SUMMED_UP) from None

    def _with_looks(self, compared: "Contrast") -> "Contrast":
        """Add a note to intervals for one look if this is not the first look.

        A look is a comparison after which the run goes on, or grows by more rows. It
        counts from now on, if it has an interval: "too early to say" tells nothing that
        one could stop for.
        """
        from svc_notebook.ledger.scores import PREFIX  # noqa: PLC0415 - pandas

        n_replies = self._result.status().count("ok")
        looks = looks_at(self._result.ledger, self.plan)
        earlier = max((n for n in looks if n < n_replies), default=None)
        decision = self._result.decision
        if compared.df["low"].notna().any():
            self._keep_look(n_replies)
        if compared.looks == "any":
            return compared
        if (
            decision is not None
            and decision.block_rows is not None  # else it looked once
            and f"{PREFIX}{decision.on}" in compared.scores
        ):
            when = "after each block that decide sent"
        elif earlier is not None:
            when = f"with {earlier:,} of its {n_replies:,} replies"
        else:
            return compared
        note = (
            f"This run was looked at {when}, and these intervals are for one look: "
            "they are wrong more often than they say. looks='any' gives intervals that "
            "hold however often you look."
        )
        notes = [*compared.notes, note]
        return replace(compared, notes=notes, is_first_look=False)

    def _keep_look(self, n_replies: int) -> None:
        if (ledger := self._result.ledger) is not None:
            with suppress(LedgerError):  # the ledger may be read-only
                ledger.check()
                n_rows = 0 if self.n_todo else n_rows_of(self.plan)
                keep_look(ledger, Look(self.run_id, n_replies, n_rows))

    def _show_scores(self) -> None:
        """Show the scores of the plan, above what the cell outputs next."""
        if (report := self._score_report()) is None:
            return
        self._reported_in = _cell_number()
        if self._reported_in is None:
            write_line(report.text())
        else:
            bundle = {"text/html": report.html(), "text/plain": report.text()}
            Output().publish(bundle, None)


def _cell_number() -> int | None:
    """Return the number of the cell that is running; None outside of IPython."""
    shell = running_shell()
    return None if shell is None else int(shell.execution_count)


def plan_run(
    session: Session,
    prompt: object = None,
    *,
    origin: OriginKind = "sweep",
    **arguments: Any,  # noqa: ANN401 - those of `make_plan`
) -> Run:
    """Plan a run in a session; for the arguments see `svc.sweep`."""
    plan = make_plan(session, prompt, **arguments)
    return Run(replace(plan, origin=origin), session=session)


def _in_current_session(
    make: Callable[Concatenate[Session, Arguments], Plan],
) -> Callable[Arguments, Run]:
    """Make a public verb of a function that takes a session."""

    @wraps(make)
    def sweep(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Run:
        session = current()
        return Run(make(session, *args, **kwargs), session=session)

    signature = inspect.signature(make)
    _, *shown = signature.parameters.values()
    sweep.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what `?` shows
        parameters=shown, return_annotation="Run"
    )
    sweep.__name__ = sweep.__qualname__ = "sweep"
    return sweep


# made of `make_plan`, so that the arguments are listed only once
sweep = _in_current_session(make_plan)
