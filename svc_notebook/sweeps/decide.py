"""Decides with a run: sends rows in blocks, and stops when the replies are clear.

All blocks follow from the plan and its seed. A decision that was interrupted looks at
the same blocks again, sends what is missing, and comes to the same answer; a complete
one sends nothing. What was fixed before the first request is stored with the plan.
"""

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import takewhile
from math import ceil, isnan
from random import Random
from uuid import uuid4

import pandas as pd
from msgspec import structs

from svc_notebook.analysis.decision import (
    Decision,
    Spent,
    chart_of,
    decided,
    progress_line,
)
from svc_notebook.analysis.missing import check_missing
from svc_notebook.analysis.reply_factors import check_replies, coded, named, unit_codes
from svc_notebook.analysis.scoring import source_digest
from svc_notebook.analysis.sequential import Looks
from svc_notebook.analysis.statistics import special
from svc_notebook.analysis.stopping_rule import Look, Question, combined, look_at
from svc_notebook.analysis.summary import with_costs
from svc_notebook.display.front_end import Output, Screen
from svc_notebook.display.html_styles import BODY
from svc_notebook.display.number_words import cost_in_words
from svc_notebook.errors import Interrupted, ParameterError
from svc_notebook.ledger.exchange_rows import to_json
from svc_notebook.ledger.reply_columns import as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import check_int, check_positive

from .execution import Execution, Executor, SendOptions
from .plan import DecisionPlan, Plan, looks_at, manifest_of
from .progress import Bars, ModelProgress
from .resume import settled_of
from .run_outcome import RunResult
from .run_scores import RunScores

NOT_CONFIRMED = "(not confirmed - nothing was sent)"
_LEAST_ROWS = 5  # in a block
_BLOCKS = 20  # fewest blocks, if there are enough rows: each is a chance to stop
_USUAL_ROWS = 30  # in a block, where no rate limit is known
_BUDGET = frozenset({"max_requests", "max_cost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most requests that may be sent, and their highest cost; None is no limit."""

    max_requests: int | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.max_requests is not None:
            allowed = "or None for all"
            check_int("max_requests", self.max_requests, minimum=1, otherwise=allowed)
        if self.max_cost is not None:
            check_positive("max_cost", self.max_cost)


def blocks_of(
    rows: Sequence[int], units: Sequence[int], *, seed: int, n_rows: int | None
) -> list[list[list[int]]]:
    """Return the blocks of a run: a block is a list of units, a unit a list of rows.

    Units are in a random order that the seed fixes. Units are added to a block until it
    has at least `n_rows` rows; None is one block with all of them.
    """
    by_unit: dict[int, list[int]] = {}
    for row, unit in dict(zip(rows, units, strict=True)).items():
        by_unit.setdefault(unit, []).append(row)
    order = list(by_unit.values())
    Random(f"{seed}/decide").shuffle(order)  # noqa: S311 - no secret
    blocks: list[list[list[int]]] = []
    n_rows = len(rows) if n_rows is None else n_rows
    for unit_rows in order:
        if not blocks or sum(map(len, blocks[-1])) >= n_rows:
            blocks.append([])
        blocks[-1].append(unit_rows)
    return blocks


def rows_of_block(plan: Plan, n_rows: int, per_minute: Mapping[str, int]) -> int:
    """Return how many rows are sent before the next look.

    As many as the limit of the slowest model allows in a minute, but not so many that
    there would be fewer than about twenty looks.

    Args:
        plan: The plan of the run.
        n_rows: How many rows there are.
        per_minute: The limits that are known, by model: requests a minute.
    """
    per_row = {model: n / n_rows for model, n in plan.grid.n_by_model.items()}
    rows_a_minute = [
        limit // max(per_row[model], 1) for model, limit in per_minute.items() if limit
    ]
    most = min(rows_a_minute, default=_USUAL_ROWS)
    return int(max(min(most, ceil(n_rows / _BLOCKS)), _LEAST_ROWS))


class Decider:
    """Decides with a run: sends its blocks, and looks at the replies after each.

    Args:
        result: The result of the run.
        executor: Sends its requests.
        scores: The scores of its replies.
        screen: Where progress is shown.
        per_minute: The limits that are known, by model: requests a minute.
    """

    def __init__(
        self,
        result: RunResult,
        executor: Executor,
        scores: RunScores,
        *,
        screen: Screen,
        per_minute: Mapping[str, int],
    ) -> None:
        self._result = result
        self._executor = executor
        self._scores = scores
        self._screen = screen
        self._per_minute = per_minute
        self._replies = _RepliesSoFar(result)

    def decide(self, question: Question, budget: Budget) -> Decision:
        """Send blocks until the answer is clear, or rows or the budget are used up."""
        if budget.max_cost is not None:
            self._check_prices()
        places = _TrialPlaces.of(self._result.plan_df(), question, self._result.plan)
        question = replace(question, on=self._scores.score_name(question.on))
        fixed, notes = self._fix(question, budget, places)
        if fixed.block_rows is None:
            budget = Budget()  # all was sent before
        self._confirm(budget, places)
        view = _View(self._screen, self._executor.bars(), question, places, budget)
        blocks = self._blocks(fixed, places, budget)
        looks = blocks.looks
        seen: set[int] = set()
        try:
            for number, (rows, open_values) in enumerate(blocks):
                self._result.plan = replace(self._result.plan, decision=fixed)
                self._send(rows, open_values, number, places, view)
                seen.update(rows)
                looks.append(self._look(seen, question, open_values, fixed))
                view.look(looks)
        finally:
            view.end(is_clear=bool(looks) and looks[-1].value is not None)
        if not looks:
            raise ParameterError(
                f"The budget of {blocks.most} does not pay for one row with all values "
                f"of {in_words(question.factor)}. Nothing was sent. Give a larger one.",
                param="max_requests" if budget.max_requests else "max_cost",
            )
        return self._conclude(blocks, question, places, notes, fixed)

    def replay(self) -> Decision | None:
        """Decide again by the replies so far, and send nothing.

        Returns:
            The decision; None if the run never decided, or no row has all its replies.
        """
        result = self._result
        fixed = result.decision
        if fixed is None or result.ledger is None:
            return None
        frame = result.plan_df()
        question = _question_of(fixed, frame.columns)
        places = _TrialPlaces.of(frame, question, result.plan)
        blocks = self._blocks(fixed, places, Budget())
        seen: set[int] = set()
        for rows, open_values in blocks:
            complete = list(takewhile(self._has_all(places, open_values), rows))
            if complete:
                seen.update(complete)
                blocks.looks.append(self._look(seen, question, open_values, fixed))
            if len(complete) < len(rows):
                blocks.most = "the replies so far"
                break
        if not blocks.looks:
            return None
        now = decision_plan(
            result.plan,
            question,
            Budget(),
            block_rows=fixed.block_rows,
            looks=fixed.looks,
            n_before=fixed.n_before,
        )
        if not all(now.scores.values()):  # this kernel does not have the functions
            now = structs.replace(now, scores=fixed.scores)
        notes = [*_note_of_earlier_replies(fixed), *_changes_since(fixed, now)]
        return self._conclude(blocks, question, places, notes, fixed)

    def _has_all(
        self, places: "_TrialPlaces", open_values: Collection[int]
    ) -> Callable[[int], bool]:
        """Return a function that says whether a row has ended with all open values."""
        grid = self._result.plan.grid
        keys, settled = [*grid.trial_keys()], settled_of(self._result.status())
        return lambda row: all(
            keys[number * grid.repeats + repeat] in settled
            for number, repeat in places.of_rows([row], open_values)
        )

    def _blocks(
        self, fixed: DecisionPlan, places: "_TrialPlaces", budget: Budget
    ) -> "_Blocks":
        blocks = blocks_of(
            places.rows,
            places.units,
            seed=self._result.plan.seed,
            n_rows=fixed.block_rows,
        )
        return _Blocks(blocks, places, budget)

    def _conclude(
        self,
        blocks: "_Blocks",
        question: Question,
        places: "_TrialPlaces",
        notes: Sequence[str],
        fixed: DecisionPlan,
    ) -> Decision:
        prices = self._result.prices
        spent = Spent(
            n_possible=len(self._result.plan.grid),
            most=blocks.most,
            per_row=places.per_row,
            currency=prices.currency if prices else "",
            is_planned=not notes,
            looked=self._how_looked(fixed),
            notes=[*notes, *self._price_notes()],
        )
        return decided(blocks.looks, question, spent)

    def _how_looked(self, fixed: DecisionPlan) -> str:
        """Say how a complete run was looked at; "" if its blocks were."""
        if fixed.block_rows is not None:
            return ""
        if fixed.looks == "one":
            return "this is one look at the replies"
        earlier = self._last_look()
        why = "SciPy, which intervals for one look need, is not installed"
        if earlier is not None:
            why = f"values were compared with {earlier:,} replies already"
        return (
            f"{why}, so this interval is wider than for one look: it holds however "
            "often you look"
        )

    def _last_look(self) -> int | None:
        """Return with how many replies values were compared before all had come."""
        n_replies = self._result.status().count("ok")
        looks = looks_at(self._result.ledger, self._result.plan)
        return max((n for n in looks if n < n_replies), default=None)

    def _check_prices(self) -> None:
        """Refuse a limit of the cost if a price is unknown."""
        prices = self._result.prices
        if prices is None:
            raise ParameterError(
                "max_cost needs a price table: svc.use(prices='prices.toml').",
                param="max_cost",
            )
        models = self._result.plan.grid.n_by_model
        if says := prices.no_price(models, so="max_cost cannot be kept"):
            raise ParameterError(f"{says} Nothing was sent.", param="max_cost")

    def _fix(
        self, question: Question, budget: Budget, places: "_TrialPlaces"
    ) -> tuple[DecisionPlan, list[str]]:
        """Return the decision plan, fixed now or before, and what has changed since.

        A complete run that was never decided about has one look. Its intervals may be
        those for one look, as in `contrast`, if nobody compared its values earlier:
        then no look had a say in how many replies there are.
        """
        result = self._result
        fixed = result.decision
        if fixed is not None and fixed.block_rows is None:
            fixed = None  # a look at a complete run fixes nothing that is sent later
        is_one = fixed is None and not result.n_todo
        n_rows = len(set(places.rows))
        is_first = is_one and self._last_look() is None and special() is not None
        now = decision_plan(
            result.plan,
            question,
            budget,
            block_rows=(
                None if is_one else rows_of_block(result.plan, n_rows, self._per_minute)
            ),
            looks="one" if is_first else "any",
            n_before=result.status().count("ok"),
        )
        fixed = fixed or now
        return fixed, [*_note_of_earlier_replies(fixed), *_changes_since(fixed, now)]

    def _confirm(self, budget: Budget, places: "_TrialPlaces") -> None:
        """Ask the user once, before the first block."""
        whole = places.of_rows(dict.fromkeys(places.rows), range(places.n_values))
        options = SendOptions(places=whole[: budget.max_requests])
        if not self._executor.is_confirmed(options):
            raise Interrupted(message=NOT_CONFIRMED)

    def _send(
        self,
        rows: Sequence[int],
        open_values: Collection[int],
        number: int,
        places: "_TrialPlaces",
        view: "_View",
    ) -> None:
        """Send what is missing of a block, and wait until its replies are scored."""
        trials = places.of_rows(rows, open_values)
        Random(f"{self._result.plan.seed}/decide/{number}").shuffle(trials)  # noqa: S311 - no secret
        options = SendOptions(places=trials, is_confirmed=True)
        self._replies.begin()
        if self._executor.run(options, tick=view.tick) is not None:
            self._replies.update()
        elif not self._replies.is_read:
            self._scores.catch_up()

    def _look(
        self,
        rows: Collection[int],
        question: Question,
        open_values: Collection[int],
        fixed: DecisionPlan,
    ) -> Look:
        result = self._result
        df = self._replies.df()
        df = df[df["row"].isin(list(rows))].reset_index(drop=True)
        if not df.columns.str.startswith(PREFIX).any():
            reasons = " ".join(result.reasons()) or "Its function returned none."
            raise ParameterError(
                f"No reply of the first block has a score {question.on}. {reasons}",
                param="on",
            )
        if result.prices and self._is_emulated():
            df = with_costs(df, result.prices, include_emulated=True)
        looks: Looks = "one" if fixed.looks == "one" else "any"
        return look_at(df, question, open_values, looks=looks)

    def _is_emulated(self) -> bool:
        return bool(self._replies.df()["is_emulated"].fillna(value=False).any())

    def _price_notes(self) -> Iterable[str]:
        """Say which prices are unknown, and that an emulator cost nothing."""
        prices = self._result.prices
        if prices is None:
            return
        models = self._result.plan.grid.n_by_model
        if note := prices.no_price(models, so="the cost of the run is unknown"):
            yield note
        if self._is_emulated():
            yield "An emulator answered; costs are what its replies would have cost."


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrialPlaces:
    """The trials of a run: the row, unit and value of each combination.

    Attributes:
        rows, units, values: The row, the unit and the value of each combination, in the
            order of the plan.
        n_values: How many values the factor has.
        repeats: How many times each combination is sent.
    """

    rows: Sequence[int]
    units: Sequence[int]
    values: Sequence[int]
    n_values: int
    repeats: int

    @classmethod
    def of(cls, df: pd.DataFrame, question: Question, plan: Plan) -> "_TrialPlaces":
        """Read the trials from the frame of a plan, and check the question."""
        if plan.grid.rows is None:
            raise ParameterError(
                "decide sends a run row by row, but this run has no rows. Give rows= "
                "to svc.sweep.",
                param="rows",
            )
        df = check_replies(df).iloc[:: plan.grid.repeats]
        df, column = combined(df.reset_index(drop=True), question.factor)
        values, levels = coded(df[column])
        if len(levels) == 1:
            raise ParameterError(
                f"{in_words(question.factor)} has one value, so there is nothing to "
                "decide. Give a column that the sweep varies, or several of them.",
                param="factor",
            )
        if question.unit is not None:
            named(df, question.unit, param="unit")
        rows = df["row"].tolist()
        units = (
            rows if question.unit is None else unit_codes(df, question.unit).tolist()
        )
        return cls(
            rows=rows,
            units=units,
            values=values.tolist(),
            n_values=len(levels),
            repeats=plan.grid.repeats,
        )

    @property
    def per_row(self) -> int:
        """How many requests are sent for one row and one value."""
        n_trials = len(self.rows) * self.repeats
        return round(n_trials / len(set(self.rows)) / self.n_values)

    def of_rows(
        self, rows: Iterable[int], values: Collection[int]
    ) -> list[tuple[int, int]]:
        """Return the trials of rows with some values, row by row."""
        position = {row: n for n, row in enumerate(rows)}
        values = set(values)
        combinations = [
            number
            for number, (row, value) in enumerate(
                zip(self.rows, self.values, strict=True)
            )
            if row in position and value in values
        ]
        combinations.sort(key=lambda number: position[self.rows[number]])
        return [(n, repeat) for n in combinations for repeat in range(self.repeats)]


@dataclass(slots=True)
class _Blocks:
    """The blocks to send, one after another, until the last look is clear.

    Attributes:
        blocks: All blocks.
        places: The trials of the run.
        budget: The most that may be sent.
        looks: One look after each block; the caller adds it before the next block.
        most: The budget, in words, if it was used up.
    """

    blocks: Sequence[Sequence[Sequence[int]]]
    places: _TrialPlaces
    budget: Budget
    looks: list[Look] = field(default_factory=list)
    most: str = ""

    def __iter__(self) -> Iterator[tuple[list[int], Collection[int]]]:
        """Return the rows of each block, and the values that are still open."""
        for block in self.blocks:
            looks, places = self.looks, self.places
            open_values = looks[-1].asked if looks else range(places.n_values)
            rows, self.most = _within_budget(
                block, open_values, looks, places, self.budget
            )
            if not rows:
                return
            yield rows, open_values
            if looks[-1].value is not None or self.most:
                return


class _RepliesSoFar:
    """The replies of a run so far; after each block only its replies are read.

    Reading all replies at each look would take longer with each look.
    """

    def __init__(self, result: RunResult) -> None:
        self._result = result
        self._df: pd.DataFrame | None = None
        self._began_at = datetime.now(UTC)
        self._places: dict[tuple[str, int], int] = {}

    @property
    def is_read(self) -> bool:
        """Whether replies were read."""
        return self._df is not None

    def df(self) -> pd.DataFrame:
        """Return one row for each choice, in the order of the plan."""
        if self._df is None:
            self._df = self._result.replies_df()
        return self._df

    def begin(self) -> None:
        """Note that the next block is sent from now on."""
        self._began_at = datetime.now(UTC)

    def update(self) -> None:
        """Read the replies that came since `begin`."""
        # the ledger may not have all failures, so then everything is read again
        if self._df is None or self._result.failures:
            self._df = None
            return
        newer = self._result.replies_since(self._began_at)
        older, newer = _with_equal_columns(self._df, newer)
        places = self._keys(older)
        older = older[~places.isin(set(self._keys(newer)))]
        df = pd.concat([older, newer], ignore_index=True)
        order = self._keys(df).argsort(kind="stable")
        self._df = df.iloc[order].reset_index(drop=True)

    def _keys(self, df: pd.DataFrame) -> pd.Series:
        """Return the number in the plan of each reply's trial."""
        if not self._places:
            keys = self._result.plan.grid.trial_keys()
            self._places = {key: number for number, key in enumerate(keys)}
        keys_of = zip(df["request_key"], df["repeat"], strict=True)
        return pd.Series([self._places[key] for key in keys_of], dtype="int64")


def _with_equal_columns(
    older: pd.DataFrame, newer: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two frames with the columns of both, such as scores that one lacks."""
    frames = []
    for frame, other in ((older, newer), (newer, older)):
        added = {
            name: pd.Series(pd.NA, index=frame.index, dtype=other[name].dtype)
            for name in other.columns
            if name not in frame.columns
        }
        frames.append(frame.assign(**added))
    return frames[0], frames[1][frames[0].columns]


def _within_budget(
    block: Sequence[Sequence[int]],
    open_values: Collection[int],
    looks: Sequence[Look],
    places: _TrialPlaces,
    budget: Budget,
) -> tuple[list[int], str]:
    """Return the rows of a block that the budget allows, and what it was if not all."""
    n_sent = looks[-1].n_requests if looks else 0
    cost = looks[-1].cost if looks and not isnan(looks[-1].cost) else 0.0
    row_cost = sum(looks[-1].costs[value] for value in open_values) if looks else 0.0
    row_cost = 0.0 if isnan(row_cost) else row_cost * places.per_row
    per_row = Counter(
        row
        for row, value in zip(places.rows, places.values, strict=True)
        if value in set(open_values)
    )
    rows: list[int] = []
    for unit_rows in block:
        n_sent += sum(per_row[row] for row in unit_rows) * places.repeats
        cost += len(unit_rows) * row_cost
        if budget.max_requests is not None and n_sent > budget.max_requests:
            return rows, f"{budget.max_requests:,} requests"
        if budget.max_cost is not None and cost > budget.max_cost:
            return rows, f"a cost of {cost_in_words(budget.max_cost)}"
        rows += unit_rows
    return rows, ""


def decision_plan(
    plan: Plan,
    question: Question,
    budget: Budget,
    *,
    block_rows: int | None,
    looks: str,
    n_before: int,
) -> DecisionPlan:
    """Return what is fixed before the first request, with a digest of all of it."""
    # without what may change while the question stays the same
    manifest = structs.replace(
        manifest_of(replace(plan, decision=None)),
        run="",
        name=None,
        own_limits={},
        in_flight=None,
        scores={},
    )
    fixed = DecisionPlan(
        factor=in_words(question.factor),
        on=question.on or "",
        margin=question.margin,
        unit=None if question.unit is None else list(question.unit),
        missing=question.missing,
        level=question.level,
        max_requests=budget.max_requests,
        max_cost=budget.max_cost,
        block_rows=block_rows,
        looks=looks,
        scores={name: source_digest(score) for name, score in plan.scores.items()},
        plan=_digest(to_json(manifest)),
        n_before=n_before,
    )
    return structs.replace(fixed, digest=_digest(to_json(fixed)))


def _question_of(fixed: DecisionPlan, columns: Iterable[str]) -> Question:
    """Return the question that was fixed; several factors are stored as one text."""
    is_one = fixed.factor in set(columns)
    return Question(
        factor=fixed.factor if is_one else fixed.factor.split(" and "),
        on=fixed.on,
        margin=fixed.margin,
        unit=fixed.unit,
        missing=check_missing(fixed.missing),
        level=fixed.level,
    )


def in_words(factor: str | Sequence[str]) -> str:
    """Return the name of a factor, or of several."""
    return " and ".join(as_names(factor))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def _note_of_earlier_replies(fixed: DecisionPlan) -> Iterable[str]:
    if fixed.n_before:
        yield (
            f"Not planned: the run had {fixed.n_before:,} replies before this was "
            "fixed, and what they show may have led to the question."
        )


_FIELD_NAMES = {
    "plan": "the rows, prompts or values of the run",
    "scores": "the source of its scores",
    "max_requests": "max_requests",
    "max_cost": "max_cost",
}


def _changes_since(fixed: DecisionPlan, now: DecisionPlan) -> Iterable[str]:
    """Say what differs from what was fixed before the first request."""
    names = [
        name
        for name in fixed.__struct_fields__
        if name not in {"digest", "n_before", "block_rows", "looks", *_BUDGET}
        and getattr(fixed, name) != getattr(now, name)
    ]
    if names:
        changes = [
            _FIELD_NAMES.get(name, f"{name} (it was {getattr(fixed, name)!r})")
            for name in names
        ]
        yield (
            "Not as planned: since the first request, this was changed: "
            f"{', '.join(changes)}."
        )


class _View:
    """Shows the progress of a decision: a bar of requests, and a chart of intervals."""

    def __init__(
        self,
        screen: Screen,
        bars: Bars | None,
        question: Question,
        places: _TrialPlaces,
        budget: Budget,
    ) -> None:
        self._bars = bars
        self._question = question
        self._per_row = places.per_row
        n_all = len(places.rows) * places.repeats
        self._n_most = min(n_all, budget.max_requests or n_all)
        self._chart_id = uuid4().hex if screen is Screen.NOTEBOOK else None
        self._is_published = False
        self._n_before = self._n_now = 0
        self._note = ""

    def tick(self, execution: Execution) -> None:
        """Show how many requests were sent."""
        queues = execution.scheduler.queues
        self._n_now = sum(queue.n_ok + queue.n_failed for queue in queues)
        self._draw()

    def look(self, looks: Sequence[Look]) -> None:
        """Show the result of the last look."""
        last = looks[-1]
        self._n_before, self._n_now = last.n_requests, 0
        chart = chart_of(looks, self._question)
        self._note = progress_line(looks, self._question, self._per_row)
        self._draw()
        if self._chart_id is None:
            return
        bundle = {"text/html": f"{BODY}{chart.html()}</div>", "text/plain": ""}
        if self._is_published:
            Output().update(bundle, self._chart_id)
        else:
            Output().publish(bundle, self._chart_id)
        self._is_published = True

    def end(self, *, is_clear: bool) -> None:
        """Draw the bar for the last time, and remove the chart: the decision shows it.

        A bar that is not full at the end turns red, as if something had failed. So it
        is drawn full if the answer is clear.
        """
        if is_clear:
            self._n_most = self._n_before + self._n_now
        self._draw(is_last=True)
        if self._chart_id is not None and self._is_published:
            Output().update({"text/html": "", "text/plain": ""}, self._chart_id)

    def _draw(self, *, is_last: bool = False) -> None:
        if self._bars is None:
            return
        progress = ModelProgress(
            name=f"deciding on {self._question.on}",
            n_done=self._n_before + self._n_now,
            n_total=self._n_most,
            note=self._note,
        )
        self._bars.show([progress], is_last=is_last)
