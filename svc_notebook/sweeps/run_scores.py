"""The scores of a run: its functions score each reply as it comes, on a thread.

A run remembers the functions of `scores=` and of `run.score` while the kernel lives. A
function of the user may call the service, so it never runs on the event loop. Nor do
functions and types that read answers, which are counted here, too.
"""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from msgspec.structs import replace

from svc_notebook.analysis.read_answers import UnreadAnswers, unread_answers
from svc_notebook.analysis.scorers import Scorer
from svc_notebook.analysis.scoring import (
    ERROR,
    Columns,
    LostFunction,
    OnError,
    ScoreOutcome,
    ScoreRule,
    good_rows,
    scores_of,
    scores_to_keep,
    source_digest,
)
from svc_notebook.display.front_end import write_note, write_warning
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ratings import RATED
from svc_notebook.ledger.scores import JUDGED
from svc_notebook.service.params import did_you_mean
from svc_notebook.session import Session

from .grid import Trial
from .plan import Plan, stored_manifest
from .plan_changes import changed_trials
from .progress import RepliesSoFar
from .resume import as_ended, key_of
from .run_lock import run_key
from .run_outcome import RunResult

BATCH_REPLIES = 256  # most replies in a frame that is scored
# how long to wait for more replies: a frame of one takes as long as a frame of many
GATHER_S = 0.25
_SHOWN_SCORES = 2  # most scores in a line of progress
_NO_SCORE = "give the plan one, such as scores={'right': svc.scores.exact('label')}"


_remembered: dict[str, dict[str, ScoreRule]] = {}  # the rules of named runs
# the digests of the functions that scored the replies of named runs
_scored_by: dict[str, dict[str, str]] = {}


def _rules_of(plan: Plan, session: Session) -> dict[str, ScoreRule]:
    """Return the score functions of a run; all `Run`s with its name share them."""
    rules: dict[str, ScoreRule] = {}
    if plan.name is not None:
        rules = _remembered.setdefault(run_key(session.ledger, plan.run_id), rules)
    for name, score in plan.scores.items():
        if not isinstance(score, LostFunction):
            rules[name] = ScoreRule(score)
    return rules


@dataclass(slots=True)
class Rate:
    """The mean of a score so far."""

    total: float = 0.0
    n: int = 0
    is_share: bool = True  # all values are 0 or 1

    def add(self, value: float) -> None:
        """Count a value."""
        self.total += value
        self.n += 1
        self.is_share &= value in (0, 1)

    def __str__(self) -> str:
        """Return it for a line of progress."""
        from svc_notebook.analysis.rounding import number, percent  # noqa: PLC0415 - numpy

        mean = self.total / self.n
        return f"{percent(mean)} of {self.n}" if self.is_share else number(mean)


class RunScores:
    """The score functions of a run, and the passes that apply them.

    Attributes:
        rules: The score functions, by name.
        without_score: The ids of replies for which a function returned None, by name.
        newest: The newest pass over the run, if there was one.
    """

    def __init__(self, result: RunResult, session: Session) -> None:
        self.rules = _rules_of(result.plan, session)
        result.rules = self.rules
        self._ledger = session.ledger
        self.without_score: dict[str, set[str]] = {}
        self.newest: ScoringPass | None = None
        self._result = result

    def warn_of_changes(self) -> None:
        """Say that replies have scores by a function that the plan has no more."""
        plan, ledger = self._result.plan, self._result.ledger
        if plan.name is None:
            return
        before = _scored_by.setdefault(run_key(self._ledger, plan.run_id), {})
        for name, score in plan.scores.items():
            digest = source_digest(score)
            if ledger is None or not (digest and before.get(name)):
                before[name] = digest or before.get(name, "")
            elif before[name] != digest:
                write_warning(
                    f"The function of the score {name} has changed since run "
                    f'"{plan.name}" was started. Its replies keep their scores, and '
                    f"only new replies get others; run.score({name}=...) scores all "
                    "again."
                )

    def take_rows(self, ledger: Ledger) -> bool:
        """Remove scores whose rows have changed, if a function can make them again.

        Call it before the plan is stored, because the replies were scored with the
        stored rows. A line says which replies are scored again, and which scores stay.

        Returns:
            Whether rows of replies have changed.
        """
        ids = self._with_changed_rows(ledger)
        if not ids:
            return False
        from svc_notebook.ledger.scores import (  # noqa: PLC0415 - pandas
            names_of_scores,
            replace_scores,
        )

        names = names_of_scores(ledger, ids)
        again = [name for name in names if rule_of(name, self.rules) is not None]
        replace_scores(ledger, (), old=again, among=ids)
        for without in self.without_score.values():
            without.difference_update(ids)
        names = [name for name in names if not name.endswith(ERROR)]
        kept = [name for name in names if name not in again]
        again = [name for name in names if name in again]
        rows = self._result.plan.grid.rows
        row = "file" if rows is not None and rows.files is not None else "row"
        since = f"The {row} of 1 reply has changed since it was scored"
        if len(ids) > 1:
            since = f"The {row}s of {len(ids):,} replies have changed since they were "
            since += "scored"
        if again:
            write_note(f"{since}. Scored again: {', '.join(again)}.")
        if kept:
            write_warning(
                f"{since}. Kept as before: {', '.join(kept)}; run.score(...) scores "
                "again."
            )
        return True

    def _with_changed_rows(self, ledger: Ledger) -> set[str]:
        """Return the ids of good replies whose rows differ from the stored ones."""
        result = self._result
        plan = result.plan
        if plan.name is None or plan.grid.rows is None or result.ledger is None:
            return set()
        stored = [*map(stored_manifest, ledger.plans(plan.run_id))]
        changed = changed_trials(stored, plan)
        return {
            exchange.exchange_id
            for exchange in (result.exchanges(texts=False) if changed else ())
            if exchange.status == "ok" and key_of(exchange) in changed
        }

    def remember(self, scores: Mapping[str, Scorer | None], on_error: OnError) -> None:
        """Score new replies with these functions, too; None forgets a function."""
        for name, function in scores.items():
            self.without_score.pop(name, None)
            if function is None:
                self.rules.pop(name, None)
            else:
                self.rules[name] = ScoreRule(function, on_error)
                key = run_key(self._ledger, self._result.plan.run_id)
                _scored_by.setdefault(key, {})[name] = source_digest(function)
        plan = self._result.plan  # it shows the scores and stores them
        now = {name: scores.get(name, score) for name, score in plan.scores.items()}
        changed = {name: score for name, score in now.items() if score is not None}
        self._result.plan = dataclasses.replace(plan, scores=changed)

    def score_name(self, on: str | None, *, is_needed: bool = True) -> str | None:
        """Return the name of a score whose function this kernel knows.

        Args:
            on: The name of the score; if None, the only score of the run.
            is_needed: Whether to raise if `on` is None and the run has no score.

        Returns:
            The name; None if the run has no score and none is needed.

        Raises:
            ParameterError: There is no such score, or there are several.
        """
        names = list(self.rules)
        known = ", ".join(names)
        if on is None:
            if len(names) == 1:
                return names[0]
            if not names and not is_needed:
                return None
            raise ParameterError(
                f"on is needed: {f'the scores are {known}' if names else _NO_SCORE}.",
                param="on",
            )
        on = on.removeprefix("score_")
        if rule_of(on, names) is None:
            raise ParameterError(
                f"on={on!r} is not a score that this run makes as replies come; "
                f"{f'it makes {known}' if names else _NO_SCORE}."
                f"{did_you_mean(on, names, n=1)}",
                param="on",
            )
        return on

    def begin(self) -> "ScoringPass":
        """Begin a pass over the run."""
        self.newest = ScoringPass(self, self._result)
        return self.newest

    def catch_up(self) -> list[str]:
        """Score replies without a score, and return the lines to print."""
        if not self.rules:
            return []
        scoring = self.begin()
        scoring.catch_up()
        faults = self._result.answer_faults()
        return [*scoring.lines(), *faults.notes(scoring.scored)]

    def lines(self, *, n_sent: int) -> list[str]:
        """Return the lines to print after a pass that sent `n_sent` requests."""
        lines = self.newest.lines() if self.newest else []
        ledger, plan = self._result.ledger, self._result.plan
        if ledger is None or not n_sent:
            return lines
        from svc_notebook.ledger.scores import names_in_run  # noqa: PLC0415 - pandas

        lost = [name for name in plan.scores if name not in self.rules]
        with suppress(SvcError):
            names = names_in_run(ledger, plan.run_id)
            known = [name for name in names if not name.endswith(ERROR)]
            rules = [*self.rules, *lost]
            lost += [
                name
                for name in known
                if rule_of(name, rules) is None and not name.startswith(RATED)
            ]
        judged = [name for name in lost if name.startswith(JUDGED)]
        lost = [name for name in lost if name not in judged]
        replies = "reply has" if n_sent == 1 else "replies have"
        if judged:
            lines.append(
                f"{n_sent:,} new {replies} no score {', '.join(judged)}: call "
                "run.judge(...) again, which judges what is new."
            )
        if lost:
            lines.append(
                f"{n_sent:,} new {replies} no score {', '.join(lost)}: this kernel "
                f"does not know its function. run.score({lost[0]}=...) scores all "
                "replies."
            )
        return lines


def rule_of(name: str, rules: Iterable[str]) -> str | None:
    """Return the name of the function that gives a score; None if it is not known.

    A function that returns a dict gives several scores: their names begin with the name
    of the function.
    """
    own = [rule for rule in rules if name == rule or name.startswith(f"{rule}_")]
    return max(own, key=len, default=None)


class ScoringPass:
    """Scores replies while a run is sent, and knows the mean scores so far.

    It also counts the answers that could not be read.
    """

    def __init__(self, scores: RunScores, result: RunResult) -> None:
        self._scores = scores
        self._result = result
        self._queue: SimpleQueue[Exchange | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._when_done: Callable[[], object] = lambda: None
        self._is_stopped = False
        self._outcomes: dict[str, ScoreOutcome] = {}
        # why a function is not called any more, by its name; "" for all functions
        self._problems: dict[str, str] = {}
        self._n_rows: dict[str, int] = {}  # rows that a function scores within GATHER_S
        self._is_text: dict[str, bool] = {}  # whether a score is text, by its name
        self._rates: dict[str, dict[str, Rate]] = {}  # by model and name of the score
        self._n_unread = Counter[str]()  # answers that could not be read, by model

    @property
    def _is_needed(self) -> bool:
        answer = self._result.frames.answer
        return bool(self._scores.rules or (answer and answer.read))

    def put(self, trial: Trial, exchange: Exchange) -> None:
        """Put a reply into the queue, without waiting."""
        if self._is_needed:
            columns = self._result.plan.grid.columns_of(trial)
            origin = replace(exchange.origin, columns=columns)
            self._queue.put(replace(exchange, origin=origin))
            self._begin()

    async def finish(self) -> None:
        """Wait until all replies are scored, including those of earlier passes."""
        if not self._is_needed:
            return
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()
        self._when_done = lambda: loop.call_soon_threadsafe(is_done.set)
        self._queue.put(None)
        self._begin()
        await is_done.wait()

    def stop(self) -> None:
        """Score nothing more; the next pass scores the rest."""
        self._is_stopped = True
        self._queue.put(None)

    def so_far(self, model: str) -> RepliesSoFar:
        """Return the mean scores of a model, and what could not be read or scored."""
        rates, outcomes = self._rates.get(model, {}).copy(), self._outcomes.copy()
        # the score for all fields of an answer comes first
        names = sorted(rates, key=lambda name: not name.endswith("_all"))
        parts = [f"{name} {rates[name]}" for name in names[:_SHOWN_SCORES]]
        problems = [
            f"{name} raised for {outcome.n_failed}"
            for name, outcome in outcomes.items()
            if outcome.n_failed
        ]
        unread = UnreadAnswers(n=self._n_unread[model])
        problems += [unread.in_words] if unread.n else []
        return RepliesSoFar(parts, problems)

    @property
    def scored(self) -> Collection[str]:
        """The names of the functions that scored a reply."""
        return self._outcomes.keys()

    def lines(self) -> list[str]:
        """Return the lines to print at the end."""
        outcomes, result = self._outcomes.values(), self._result
        n_ok = result.status().counts(len(result.plan.grid))["ok"] if outcomes else 0
        lines = [line for outcome in outcomes for line in outcome.lines(n_replies=n_ok)]
        return [*lines, *dict.fromkeys(self._problems.values())]

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="svc-scores", daemon=True)
            self._thread.start()

    def _count_earlier(self) -> None:
        """Begin the mean scores with those of earlier replies, as the bars do."""
        from svc_notebook.ledger.scores import sums_in_run  # noqa: PLC0415 - pandas

        ledger, rules = self._result.ledger, self._scores.rules
        if ledger is None or not rules:
            return
        with suppress(SvcError):  # a ledger that cannot be read says so at the end
            for of_model in sums_in_run(ledger, self._result.plan.run_id):
                if rule_of(of_model.name, rules) is not None:
                    rates = self._rates.setdefault(of_model.model, {})
                    rates[of_model.name] = Rate(*of_model[2:])

    def _work(self) -> None:
        is_last = False
        self._count_earlier()
        while not is_last:  # also after an error, because `finish` waits for the end
            batch, is_last = self._next_batch()
            try:
                self._score(batch)
                if is_last:
                    self.catch_up()
            except Exception as problem:  # noqa: BLE001 - scores must not stop a run that is paid for
                self._problems[""] = (
                    f"Internal error in svc_notebook ({type(problem).__name__}): not "
                    "all replies were scored. run.score(...) scores them."
                )
        self._when_done()

    def _next_batch(self) -> tuple[list[Exchange], bool]:
        """Wait for replies; return some, and whether they are the last ones."""
        exchange, batch = self._queue.get(), list[Exchange]()
        while exchange is not None:
            batch.append(exchange)
            if len(batch) == BATCH_REPLIES:
                return batch, False
            try:
                exchange = self._queue.get(timeout=GATHER_S)
            except Empty:
                return batch, False
        return batch, True

    def catch_up(self) -> None:
        """Score the replies that lack the scores of a function."""
        if self._result.ledger is None or self._is_stopped or not self._scores.rules:
            return
        try:
            wanted = self._unscored(self._result.ledger)
            ids = set[str]().union(*wanted.values())
            batch: list[Exchange] = []
            for exchange in self._earlier() if ids else ():
                if exchange.exchange_id in ids:
                    batch.append(exchange)
                if len(batch) == BATCH_REPLIES:
                    self._score(batch, wanted)
                    batch = []
            self._score(batch, wanted)
        except SvcError as problem:
            self._problems[""] = f"Not all replies could be scored. {problem}"

    def _earlier(self) -> Iterable[Exchange]:
        result = self._result
        return result.frames.with_columns(result.exchanges(texts=True))

    def _unscored(self, ledger: Ledger) -> dict[str, set[str]]:
        """Return the ids of good replies without a score, by function."""
        from svc_notebook.ledger.scores import (  # noqa: PLC0415 - pandas
            names_in_run,
            unscored,
        )

        run_id, scores = self._result.plan.run_id, self._scores
        known = names_in_run(ledger, run_id)
        return {
            rule: unscored(
                ledger,
                run_id,
                [name for name in known if rule_of(name, scores.rules) == rule],
            )
            - scores.without_score.get(rule, set())
            for rule in scores.rules
            if rule not in self._problems
        }

    def _score(
        self,
        exchanges: Iterable[Exchange],
        wanted: Mapping[str, set[str]] | None = None,
    ) -> None:
        """Score replies with each function, or only the `wanted` ones of each."""
        ended = [
            exchange for exchange in map(as_ended, exchanges) if exchange.status == "ok"
        ]
        if not ended or self._is_stopped:
            return
        frames, prices = self._result.frames, self._result.prices
        frame = frames.frame_of_exchanges(ended, prices)
        if wanted is None:  # others were counted when they came
            for model, of_model in frame.groupby("model"):
                self._n_unread[str(model)] += unread_answers(of_model).n
        columns = Columns(frame)
        ids = columns["exchange_id"]
        for name, rule in self._scores.rules.copy().items():
            positions = [
                position
                for position in good_rows(columns)
                if wanted is None or ids[position] in wanted.get(name, ())
            ]
            if not positions or name in self._problems:
                continue
            try:
                self._score_in_pieces(name, rule, columns, positions)
            except SvcError as problem:
                self._problems[name] = f"{name}: {problem}"

    def _score_in_pieces(
        self, name: str, rule: ScoreRule, columns: Columns, positions: Sequence[int]
    ) -> None:
        """Save the scores of a slow function often, so that a stop loses only a few."""
        while positions and not self._is_stopped:
            n_rows, began_s = self._n_rows.get(name, 1), time.monotonic()
            self._score_with(name, rule, columns, positions[:n_rows])
            positions = positions[n_rows:]
            # as many rows as take about GATHER_S
            is_slow = time.monotonic() - began_s > GATHER_S
            self._n_rows[name] = max(n_rows // 2, 1) if is_slow else n_rows * 2

    def _score_with(
        self, name: str, rule: ScoreRule, columns: Columns, positions: Sequence[int]
    ) -> None:
        outcome = self._outcomes.get(name)
        if outcome is None or outcome.rule is not rule.function:
            outcome = self._outcomes[name] = ScoreOutcome(name, *rule)
        ids = columns["exchange_id"]
        values_by_name = scores_of(columns, positions, outcome)
        self._keep(columns, values_by_name)
        without = self._scores.without_score.setdefault(name, set())
        models = columns["model"]
        for position in positions:
            values = {key: column[position] for key, column in values_by_name.items()}
            if all(value is None for value in values.values()):
                without.add(ids[position])
            rates = self._rates.setdefault(models[position], {})
            for key, value in values.items():
                if isinstance(value, (int, float)):
                    rates.setdefault(key, Rate()).add(value)

    def _keep(self, columns: Columns, values_by_name: dict[str, list[Any]]) -> None:
        from svc_notebook.ledger.scores import (  # noqa: PLC0415 - pandas
            add_scores,
            check_types,
            replace_scores,
        )

        ledger = self._result.ledger
        if ledger is None:
            return
        check_types(values_by_name)
        is_text = {
            key: any(isinstance(value, str) for value in values)
            for key, values in values_by_name.items()
        }
        scores = scores_to_keep(columns, values_by_name)
        if is_text.items() <= self._is_text.items():  # their types were checked before
            add_scores(ledger, scores)
            return
        among = {score.exchange_id for score in scores}
        replace_scores(ledger, scores, old=(), among=among)
        self._is_text |= is_text
