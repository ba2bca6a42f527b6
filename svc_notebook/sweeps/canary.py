"""A canary: sends some rows of a run again, to see whether the model has changed.

Each check is stored as a run that is named after the first one, so nothing that was
paid for is lost: an interrupted check continues when it is called again. The replies of
all checks are read from the ledger each time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from random import Random

import pandas as pd

from svc_notebook.analysis.recheck import (
    CHECK,
    CheckQuestion,
    CheckRequests,
    Recheck,
    check_margin,
    rechecked,
)
from svc_notebook.analysis.reply_factors import check_replies, unit, unit_codes
from svc_notebook.analysis.summary import total_cost
from svc_notebook.errors import Interrupted, ParameterError, SettingsError
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_frames import with_scores
from svc_notebook.session import Session

from .decide import NOT_CONFIRMED
from .execution import Executor, SendOptions
from .plan import Plan, seed_of, stored_manifest
from .resume import by_trial, place_of, way_back
from .run_outcome import RunResult
from .run_scores import RunScores


def name_of(run_id: str, number: int) -> str:
    """Return the name of the run that stores a check."""
    return f"{run_id}: check {number}"


class Canary:
    """Sends rows of a run again and compares them with what was recorded.

    Rows are drawn at random. If rows were chosen because their scores differ, they
    would be compared with replies that were extreme by chance, and would seem to get
    better or worse although nothing changed. Sending the chosen rows twice, once as a
    new baseline, would hide what changed between the run and that baseline. The result
    for random rows also holds for all rows of the run. Each row is sent once before any
    row is sent again, because a new row tells more than a repeated one.

    Args:
        result: The result of the run.
        scores: The scores of its replies.
        session: The session whose settings, key and ledger are used.
    """

    def __init__(
        self, result: RunResult, scores: RunScores, *, session: Session
    ) -> None:
        self._result = result
        self._scores = scores
        self._session = session

    def check(self, n_rows: int, question: CheckQuestion) -> Recheck:
        """Send the next check, or the rest of the last one, and compare all checks."""
        ledger, recorded = self._result.ledger, self._recorded()
        if ledger is None or recorded.empty:
            raise ParameterError(
                "The run has no good replies to compare with. Call run() first.",
                param="run",
            )
        check_margin(recorded, question)
        self._check_endpoint()
        earlier = [self._replies(ledger, name) for name in self._names(ledger)]
        plan = self._open_plan(ledger, len(earlier))
        if plan is None:  # the last check is complete, so this is the next one
            earlier.append(recorded.iloc[:0])
            plan = self._plan(recorded, earlier, n_rows, question)
        result = self._send(plan)
        earlier[-1] = self._replies(ledger, plan.run_id)
        frames = [
            frame.assign(**{CHECK: number})
            for number, frame in enumerate([recorded, *earlier])
            if len(frame)
        ]
        df = pd.concat(frames, ignore_index=True)
        return rechecked(df, question, self._facts(result, earlier[-1], recorded))

    def _recorded(self) -> pd.DataFrame:
        return _good_replies(check_replies(self._result.replies_df()))

    def _check_endpoint(self) -> None:
        """Refuse a check that would compare the replies of two services."""
        first, settings = self._result.status().first, self._session.settings
        if first is None or (first.is_emulated and settings.is_emulated):
            return
        if first.endpoint != settings.base_url:
            now = "no address is set now"
            if settings.base_url is not None:
                now = f"requests now go to {settings.base_url}"
                now += ", so a check would compare two services"
            raise SettingsError(
                f"This run was sent to {place_of(first)}, but {now}. Nothing was sent. "
                f"{way_back(first)}, or send the sweep under another name and use "
                "svc.contrast([old, new], 'run')."
            )

    def _names(self, ledger: Ledger) -> list[str]:
        """Return the names of the checks so far."""
        known = {plan.run for plan in ledger.plans(is_whole=False)}
        names = (name_of(self._result.plan.run_id, number) for number in count(1))
        checks: list[str] = []
        for name in names:
            if name not in known:
                return checks
            checks.append(name)
        raise AssertionError  # `count` never ends

    def _replies(self, ledger: Ledger, name: str) -> pd.DataFrame:
        """Return the good replies of a check, with the columns of the run's rows."""
        frames, prices = self._result.frames, self._result.prices
        newest = by_trial(ledger.read(scope="all", run=name)).values()
        exchanges = [*frames.with_columns(newest)]
        if not exchanges:
            return self._recorded().iloc[:0]
        frame = with_scores(frames.frame_of_exchanges(exchanges, prices), ledger)
        return _good_replies(check_replies(frame))

    def _open_plan(self, ledger: Ledger, n_checks: int) -> Plan | None:
        """Return the plan of the newest check if it is not complete."""
        if not n_checks:
            return None
        name = name_of(self._result.plan.run_id, n_checks)
        kept = stored_manifest(ledger.plans(name)[-1]).kept or []
        plan = self._plan_of(name, kept)
        result = RunResult(plan, lambda _: None, session=self._session)
        result.ledger = ledger
        return plan if result.status().counts(len(plan.grid))["not_run"] else None

    def _plan(
        self,
        recorded: pd.DataFrame,
        earlier: Sequence[pd.DataFrame],
        n_rows: int,
        question: CheckQuestion,
    ) -> Plan:
        """Plan the next check."""
        base = self._result.plan
        keys = _draw_rows(recorded, earlier, n_rows, question, seed=base.seed)
        numbers = range(base.grid.n_combinations)
        kept = [
            (base.grid.kept or numbers)[position // base.grid.repeats]
            for position, (key, repeat) in enumerate(base.grid.trial_keys())
            if not repeat and key in keys
        ]
        return self._plan_of(name_of(base.run_id, len(earlier)), kept)

    def _plan_of(self, name: str, kept: Sequence[int]) -> Plan:
        base = self._result.plan
        rules = self._scores.rules.items()
        scores = {score: rule.function for score, rule in rules}
        return replace(
            base,
            grid=replace(base.grid, kept=kept, repeats=1),
            name=name,
            run_id=name,
            seed=seed_of(name),
            is_reusing=False,  # a recorded reply would never differ from the run's
            scores=scores,
            decision=None,
        )

    def _send(self, plan: Plan) -> RunResult:
        """Send what is missing of a check, if the user agrees."""
        result = RunResult(plan, lambda _: None, session=self._session)
        scores = RunScores(result, self._session)
        executor = Executor(result, scores, session=self._session)
        executor.bind()
        if not executor.is_confirmed(SendOptions()):
            raise Interrupted(message=NOT_CONFIRMED)
        if executor.run(SendOptions(is_confirmed=True)) is None:
            scores.catch_up()
        return result

    def _facts(
        self, result: RunResult, replies: pd.DataFrame, recorded: pd.DataFrame
    ) -> CheckRequests:
        """Return what is known of the newest check besides its replies."""
        n_failed = len(result.plan.grid) - result.status().count("ok")
        reasons = "; ".join(result.reasons())
        notes = []
        if n_failed:
            notes.append(f"{n_failed:,} of the requests have no reply: {reasons}")
        prices = result.prices
        if prices is not None:
            so = "the cost of the check is unknown"
            notes.append(prices.no_price(result.plan.grid.n_by_model, so=so))
        return CheckRequests(
            name=result.plan.run_id,
            n_requests=len(result.plan.grid),
            cost=total_cost(replies),
            currency=prices.currency if prices else "",
            n_rows_of_run=len(recorded.groupby(unit(recorded))),
            notes=[*filter(None, notes)],
        )


def _good_replies(df: pd.DataFrame) -> pd.DataFrame:
    return df[df["status"] == "ok"].reset_index(drop=True)


def _draw_rows(
    recorded: pd.DataFrame,
    earlier: Iterable[pd.DataFrame],
    n_rows: int,
    question: CheckQuestion,
    *,
    seed: int,
) -> set[str]:
    """Return the request keys of random rows, first of those that were checked least.

    Rows of one unit are drawn together.
    """
    columns = unit(recorded)
    unit_of = (
        unit_codes(recorded, columns)
        if question.unit is None
        else unit_codes(recorded, question.unit)
    )
    units = pd.Series(unit_of, index=recorded["request_key"])
    units = units[~units.index.duplicated()]
    rows = recorded.assign(unit=unit_of).drop_duplicates(columns)
    sizes = rows.groupby("unit").size()
    n_checked = dict.fromkeys(sizes.index.tolist(), 0)
    for frame in earlier:
        for code in set(units.reindex(frame["request_key"]).dropna().astype(int)):
            n_checked[code] += 1
    order = sorted(n_checked)
    Random(f"{seed}/recheck").shuffle(order)  # noqa: S311 - no secret
    # a stable sort: units that were checked equally often stay in random order
    order.sort(key=n_checked.__getitem__)
    drawn: set[int] = set()
    n_drawn = 0
    for code in order:
        if n_drawn >= n_rows:
            break
        drawn.add(code)
        n_drawn += int(sizes[code])
    return set(units.index[units.isin(drawn)])
