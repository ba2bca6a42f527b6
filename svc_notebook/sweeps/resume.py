"""What the ledger has of a run's trials, and which of them are still to be sent.

A trial that failed counts as settled, because sending it again is the user's choice.
One that was interrupted or refused, for a rate limit, its key or its model, does not.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan, nan
from typing import Any, Literal, NamedTuple, overload

from msgspec.structs import replace

from svc_notebook.analysis.answers import kept_type
from svc_notebook.client.exchange_record import to_failure
from svc_notebook.completion import Completion, cut_mark
from svc_notebook.errors import CutError, ParameterError, SettingsError
from svc_notebook.exchange import Exchange, Failure
from svc_notebook.ledger.columns import Batch, chunks
from svc_notebook.ledger.reply_columns import (
    Reply,
    RowStatus,
    exchange_batch,
    to_replies,
)
from svc_notebook.service.chunk import UNAUTHORIZED
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings
from svc_notebook.tokens import more_room
from svc_notebook.tools.call import check_whole

from .describe import Seen
from .dimensions import FACTORS, short
from .grid import Grid, RunPlan, prompt_tokens_of, request_key_of, value_of
from .source import HashedNumbers

TrialKey = tuple[str, int]
Columns = dict[str, Any]


class TrialFailure(NamedTuple):
    """Why a trial has no reply; the ledger may have no exchange that says it."""

    failure: Failure
    model: str


def key_of(exchange: Exchange) -> TrialKey:
    """Return the key of the trial that an exchange belongs to."""
    return exchange.origin.request_key or "", exchange.origin.repeat or 0


_OPEN = Failure(
    type="Cancelled",
    message="It ended between two tool rounds; run() begins it again.",
)
_LOOP = Failure(
    type="ToolLoopError",
    message="The model still calls tools in the last round; allow more with "
    "max_rounds, or say in the prompt when to stop.",
)


def as_ended(exchange: Exchange) -> Exchange:
    """Return what an exchange is for its trial: with open tool calls no good reply."""
    place = exchange.origin.tool_round
    if place is None or exchange.status != "ok":
        return exchange
    if not any(choice.tool_calls for choice in exchange.choices):
        return exchange
    if place.is_last:
        return replace(exchange, status="error", failure=_LOOP)
    try:
        check_whole(Completion(exchange))
    except CutError as error:
        return replace(exchange, status="error", failure=to_failure(error))
    return replace(exchange, status="cancelled", failure=_OPEN)


def counts_more(exchange: Exchange, *, is_before_ok: bool) -> bool:
    """Say whether an exchange counts for its trial, and not one before it."""
    return exchange.status == "ok" or not is_before_ok


def by_trial(
    exchanges: Iterable[Exchange],
    failures: Mapping[TrialKey, "TrialFailure"] | None = None,
) -> dict[TrialKey, Exchange]:
    """Return each trial's newest good exchange, or else its newest.

    The exchanges are of one run, oldest first. Of tool rounds the last one counts;
    `failures` say why rounds ended that the ledger has without an end.
    """
    return dict(_newest(exchanges, failures or {}))


def _newest(
    exchanges: Iterable[Exchange], failures: Mapping[TrialKey, TrialFailure]
) -> Iterator[tuple[TrialKey, Exchange]]:
    """Return exchanges by trial; one that comes later replaces an earlier one."""
    good: set[TrialKey] = set()
    for each in exchanges:
        exchange, key = as_ended(each), key_of(each)
        if not counts_more(exchange, is_before_ok=key in good):
            continue
        if exchange.status == "ok":
            good.add(key)
        elif exchange.failure is _OPEN and key in failures:
            failure = failures[key].failure
            exchange = replace(exchange, status="error", failure=failure)
        yield key, exchange


def reply_rows(
    plan: RunPlan,
    found: Mapping[TrialKey, Exchange],
    failures: Mapping[TrialKey, TrialFailure],
    *,
    is_begun: bool,
) -> Iterator[Reply]:
    """Return the rows of all trials: their choices, or why they have no reply."""
    missing: RowStatus = "not_run" if is_begun else "planned"
    for number, (key, columns) in enumerate(plan.grid.places()):
        exchange = found.get(key)
        if exchange is None:
            trial, failed = plan.grid[number], failures.get(key)
            yield Reply(
                request=trial.request,
                origin=replace(plan.origin_of(trial), columns=columns),
                status="error" if failed else missing,
                failure=failed.failure if failed else None,
                est_prompt_tokens=trial.prompt_tokens.best,
            )
            continue
        yield from to_replies(exchange, columns)


def trial_batches(
    plan: RunPlan,
    exchanges: Iterable[Exchange],
    failures: Mapping[TrialKey, TrialFailure],
    *,
    is_begun: bool,
) -> Iterator[Batch]:
    """Return the rows of all trials as `reply_rows` does, to be read by columns.

    The exchanges are those of `by_trial`, read once. The part `trial` is the number in
    the plan; of a trial only the rows of the last `turn` count.
    """
    places = {
        key: (number, columns)
        for number, (key, columns) in enumerate(plan.grid.places())
    }
    sent = set[int]()

    def rows() -> Iterator[tuple[int, int, Exchange, Columns]]:
        for turn, (key, exchange) in enumerate(_newest(exchanges, failures)):
            if key in places:
                number, columns = places[key]
                sent.add(number)
                yield number, turn, exchange, columns or exchange.origin.columns

    for chunk in chunks(rows()):
        numbers, turns, found, columns = zip(*chunk, strict=True)
        parts = {"trial": numbers, "turn": turns, "origin.columns": columns}
        batch = exchange_batch(found, plan.prices, parts=parts)
        del chunk, found
        yield batch
        del batch
    missing = [
        (number, key, columns)
        for key, (number, columns) in places.items()
        if number not in sent
    ]
    status: RowStatus = "not_run" if is_begun else "planned"
    for part in chunks(missing):
        yield _missing_batch(plan, part, failures, status)


def _missing_batch(
    plan: RunPlan,
    places: Sequence[tuple[int, TrialKey, Columns]],
    failures: Mapping[TrialKey, TrialFailure],
    status: RowStatus,
) -> Batch:
    """Return the rows of trials without a reply; a batch of them has no exchange."""
    numbers, keys, columns = zip(*places, strict=True)
    combinations = [number // plan.grid.repeats for number in numbers]
    requests = [*plan.grid.requests(combinations)]
    failed = [failures.get(key) for key in keys]
    origin, nothing = plan.origin_of(plan.grid[numbers[0]]), [None] * len(numbers)
    return Batch(
        numbers,
        {
            **dict.fromkeys(("exchange", "first", "choice", "cost"), nothing),
            "trial": numbers,
            "request": requests,
            "origin": [origin] * len(numbers),
            "origin.request_key": [key for key, _ in keys],
            "origin.repeat": [repeat for _, repeat in keys],
            "origin.columns": columns,
            "status": ["error" if each else status for each in failed],
            "failure": [each and each.failure for each in failed],
            "est_prompt_tokens": [*_estimates(plan.grid, combinations, requests)],
        },
    )


def _estimates(
    grid: Grid, combinations: Iterable[int], requests: Iterable[CompletionRequest]
) -> Iterator[int]:
    """Return the estimated prompt tokens; the conditions of a row share messages."""
    known, before = grid.estimates, None
    for number, each in zip(combinations, requests, strict=True):
        if known[number] < 0:
            if before is None or each.messages is not before.messages or each.tools:
                before, best = each, prompt_tokens_of(each).best
            known[number] = best
        yield known[number]


Mark = Literal["ok", "error", "refused", "open", "cancelled"]
"""`refused` is an error that the same request would get again (400), `open` one that
`run` sends again: of a rate limit, of the key or of the model."""


class TrialStatus(NamedTuple):
    """How a trial that was sent has ended, and what to do if its reply was cut."""

    mark: Mark
    model: str
    remedy: str = ""
    is_open_round: bool = False  # its last reply calls tools


class SentTrials:
    """The status of each trial that was sent, by its key; kept without the keys."""

    def __init__(self) -> None:
        self._numbers = HashedNumbers()  # of the statuses, which are few
        self._kinds: dict[TrialStatus, int] = {}
        self._statuses: list[TrialStatus] = []
        self._counts: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: TrialKey) -> bool:
        return self._numbers.get(key) is not None

    def get(self, key: TrialKey) -> TrialStatus | None:
        """Return the status of a trial; None if it was not sent."""
        number = self._numbers.get(key)
        return None if number is None else self._statuses[number]

    def put(self, key: TrialKey, status: TrialStatus) -> None:
        """Set the status of a trial."""
        before = self._numbers.get(key)
        if before is not None:
            self._counts[before] -= 1
        number = self._kinds.setdefault(status, len(self._statuses))
        if number == len(self._statuses):
            self._statuses.append(status)
            self._counts.append(0)
        self._counts[number] += 1
        self._numbers.put(key, number)

    def counts(self) -> Iterator[tuple[TrialStatus, int]]:
        """Return how many trials have each status."""
        return zip(self._statuses, self._counts, strict=True)

    def copy(self) -> "SentTrials":
        """Return a copy."""
        found = copy(self)
        found._numbers = self._numbers.copy()  # noqa: SLF001 - its own kind
        found._kinds = self._kinds.copy()  # noqa: SLF001 - as above
        found._statuses = self._statuses.copy()  # noqa: SLF001 - as above
        found._counts = self._counts.copy()  # noqa: SLF001 - as above
        return found


class Settled:
    """The trials that are not sent again: those without one of the `open_marks`."""

    def __init__(self, trials: SentTrials, open_marks: Collection[Mark]) -> None:
        self._trials = trials
        self._open_marks = open_marks
        self.n_by_model: Counter[str] = Counter()
        for status, n in trials.counts():
            if status.mark not in open_marks:
                self.n_by_model[status.model] += n

    def __len__(self) -> int:
        return self.n_by_model.total()

    def __contains__(self, key: TrialKey) -> bool:
        status = self._trials.get(key)
        return status is not None and status.mark not in self._open_marks


class SeenReplies(Sequence[Seen]):
    """What many replies took, in arrays."""

    def __init__(self) -> None:
        self._n_prompt, self._n_reply = array("q"), array("q")
        self._took_s = array("d")

    def __len__(self) -> int:
        return len(self._took_s)

    @overload
    def __getitem__(self, at: int) -> Seen: ...
    @overload
    def __getitem__(self, at: slice) -> list[Seen]: ...
    def __getitem__(self, at: int | slice) -> Seen | list[Seen]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        took_s = self._took_s[at]
        known_s = None if isnan(took_s) else took_s
        return Seen(self._n_prompt[at], self._n_reply[at], known_s)

    def append(self, seen: Seen) -> None:
        """Add a reply."""
        self._n_prompt.append(seen.prompt_tokens)
        self._n_reply.append(seen.completion_tokens)
        self._took_s.append(nan if seen.latency_s is None else seen.latency_s)


@dataclass(frozen=True)
class RunStatus:
    """The status of each trial that was sent, and the first good exchange.

    `seen` has what good replies of each model took.
    """

    trials: SentTrials = field(default_factory=SentTrials)
    first: Exchange | None = None
    seen: Mapping[str, Sequence[Seen]] = field(default_factory=dict)

    def counts(self, n_trials: int) -> Counter[str]:
        """Return how many of all trials ended how; the others are `not_run`."""
        counts = Counter[str](self._n_by_mark)
        counts["error"] += counts.pop("refused", 0) + counts.pop("open", 0)
        counts["not_run"] = n_trials - counts.total()
        return counts

    def cut_note(self) -> str:
        """Say how many replies were cut and what to pass; "" if none was."""
        remedies = Counter[str]()
        for each, n in self.trials.counts():
            remedies[each.remedy] += n if each.remedy else 0
        if not (remedies := +remedies):
            return ""
        ((remedy, _),) = remedies.most_common(1)
        verb = "was" if remedies.total() == 1 else "were"
        return f"{remedies.total()} of {self.count('ok')} replies {verb} cut. {remedy}."

    def count(self, mark: Mark) -> int:
        """Return how many trials ended so."""
        return self._n_by_mark[mark]

    @cached_property
    def _n_by_mark(self) -> Counter[Mark]:
        counts = Counter[Mark]()
        for each, n in self.trials.counts():
            counts[each.mark] += n
        return counts

    def settled(
        self, *, is_retried: bool = False, include_refused: bool = False
    ) -> Settled:
        """Return the trials that are not sent again."""
        open_marks: set[Mark] = {"cancelled", "open"}
        if is_retried:
            open_marks |= {"error", "refused"} if include_refused else {"error"}
        return Settled(self.trials, open_marks)

    @cached_property
    def n_settled(self) -> Counter[str]:
        """How many trials of each model `run` would not send again."""
        return self.settled().n_by_model

    def next_steps(self, n_trials: int) -> list[str]:
        """Say what can be done once nothing is being sent."""
        n_todo = n_trials - self.n_settled.total()
        n_refused, n_open = self.count("refused"), self.count("open")
        sent = ["what is missing"] if n_todo > n_open else []
        sent += [f"{n_open} of those that failed again"] if n_open else []
        read = ".replies_df(), .summary_df(), .compare()"
        steps = [f".run() sends {' and '.join(sent)}" if sent else read]
        if n_again := self.count("error"):
            other = "other " if n_open else ""
            steps.append(f".retry() sends the {other}{n_again} that failed again")
        if n_refused:
            steps.append(
                f"{n_refused} would be refused again, "
                ".retry(include_refused=True) sends them all the same"
            )
        return steps

    def with_failures(self, failures: Mapping[TrialKey, TrialFailure]) -> "RunStatus":
        """Add trials that failed before anything was sent."""
        if not failures:
            return self
        trials = self.trials.copy()
        for key, each in failures.items():
            known = trials.get(key)
            if known is None or known.is_open_round:
                trials.put(key, TrialStatus(_mark_of(each.failure), each.model))
        return RunStatus(trials, self.first, self.seen)


def status_of(exchanges: Iterable[Exchange]) -> RunStatus:
    """Return the status of a run from its exchanges, oldest first."""
    trials = SentTrials()
    seen: defaultdict[str, SeenReplies] = defaultdict(SeenReplies)
    rounds: dict[TrialKey, Seen] = {}
    first = None
    for sent in exchanges:
        if first is None and sent.status == "ok":
            first = sent
        exchange = as_ended(sent)
        key = key_of(exchange)
        before = trials.get(key)
        if before is None or before.mark != "ok":
            is_cut = exchange.status == "ok" and bool(cut_mark(exchange))
            remedy = more_room(exchange.request) if is_cut else ""
            failure = exchange.failure if exchange.status == "error" else None
            mark = _mark_of(failure) if failure else exchange.status
            is_open = exchange.failure is _OPEN
            model = exchange.request.model
            trials.put(key, TrialStatus(mark, model, remedy, is_open))
            if exchange.status == "ok":
                seen[exchange.request.model].append(_seen(exchange, rounds.get(key)))
        if sent.status == "ok" and (place := sent.origin.tool_round) is not None:
            rounds[key] = _seen(sent, rounds.get(key) if place.n_rounds > 1 else None)
    return RunStatus(trials, first, seen)


def _seen(exchange: Exchange, before: Seen | None = None) -> Seen:
    """Return what a reply took, together with the tool rounds before it."""
    usage = exchange.body.usage if exchange.body else None
    prompt = usage.prompt_tokens if usage else None
    reply = usage.completion_tokens if usage else None
    prompt = exchange.est_prompt_tokens if prompt is None else prompt
    reply = exchange.est_completion_tokens if reply is None else reply
    took_s = None if exchange.is_reused else exchange.latency_s
    if before is None:
        return Seen(prompt, reply, took_s)
    took_s = None if took_s is None else took_s + (before.latency_s or 0.0)
    return Seen(before.prompt_tokens + prompt, before.completion_tokens + reply, took_s)


def _mark_of(failure: Failure) -> Mark:
    is_limit = failure.type == "RateLimitError"
    is_key = failure.type == "AuthError" and failure.http_status == UNAUTHORIZED
    if is_limit or is_key or failure.type == "UnknownModelError":
        return "open"
    return "refused" if failure.type == "BadRequestError" else "error"


def check_endpoint(first: Exchange | None, settings: Settings, *, n_todo: int) -> None:
    """Raise SettingsError if the rest of a run would go to another address.

    An emulator is the same wherever it serves: its address changes.
    """
    if first is None or (first.is_emulated and settings.is_emulated):
        return
    if first.endpoint != settings.base_url:
        raise SettingsError(
            f"This run began at {first.endpoint} and {n_todo} of its requests are "
            f"missing, but requests now go to {settings.base_url}. That would mix the "
            "replies of two services, so nothing was sent. Switch back to the first "
            "address (SVC_BASE_URL, or use(...)), or plan the sweep under another "
            "name. replies_df() shows the replies so far."
        )


def strays_of(
    plan: RunPlan, sent: SentTrials, read: Callable[[], Iterable[Exchange]]
) -> Mapping[TrialKey, TrialStatus]:
    """Return those of the trials `sent` under the plan's name that it lacks.

    `read` reads the run's exchanges, whose keys are needed where there are some.
    """
    if plan.name is None or not sent:
        return {}
    if sum(key in sent for key in plan.grid.trial_keys()) == len(sent):
        return {}
    mine = set(plan.grid.trial_keys())
    keys = (key for key in map(key_of, read()) if key not in mine)
    found = ((key, sent.get(key)) for key in keys)
    return {key: status for key, status in found if status is not None}


def check_strays(
    plan: RunPlan,
    strays: Mapping[TrialKey, TrialStatus],
    read: Callable[..., Iterable[Exchange]],
) -> None:
    """Raise ParameterError if trials that the plan lacks have replies.

    A trial without one binds nothing, and rows may be left out of a frame. `read`
    reads the run's exchanges.
    """
    has_reply = {key for key, each in strays.items() if each.mark == "ok"}
    if has_reply and len(plan.grid):
        others = {
            key_of(each): each
            for each in read(texts=True)
            if key_of(each) in has_reply and not _is_other_row(plan, each)
        }
        if others:
            raise ParameterError(
                f"The run {plan.name!r} already has {len(others)} requests that are "
                f"not in this plan: {_difference(plan.grid, others.values())}. Nothing "
                "was sent. Choose another name, or plan all requests of the run; a "
                f"plan may add more.{_answer_hint(plan, others.values())}",
                param="name",
            )


def _is_other_row(plan: RunPlan, exchange: Exchange) -> bool:
    """Return whether an exchange is of a frame's run, for a row that is left out."""
    if plan.origin != "frame":
        return False
    templates = [next(plan.grid.values_of(name), None) for name in ("prompt", "system")]
    key = request_key_of(exchange.request, templates=templates)
    first, other = (
        request_key_of(replace(each, messages=()))
        for each in (plan.grid[0].request, exchange.request)
    )
    return first == other and (exchange.origin.request_key or "").startswith(key)


def _answer_hint(plan: RunPlan, strays: Iterable[Exchange]) -> str:
    """Say which answer was asked for, if this plan asks for none."""
    kept = (kept_type(each.origin.answer) for each in strays)
    name = next((each.name for each in kept if each), None)
    if name is None or plan.answer is not None:
        return ""
    return f" They were asked for answer={name}; give it again."


_SHOWN = 4


def _difference(grid: Grid, strays: Iterable[Exchange]) -> str:
    """Return the values in these exchanges that the grid does not have."""
    mine = {pair for each in grid for pair in _values(each.request, each.repeat)}
    theirs: dict[str, dict[str, None]] = {}
    for stray in strays:
        for name, value in _values(stray.request, stray.origin.repeat or 0):
            if (name, value) not in mine:
                theirs.setdefault(name, {})[value] = None
    if not theirs:
        return "other combinations of the same values"
    return "; ".join(
        f"{name} {', '.join(list(values)[:_SHOWN])}"
        + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")
        for name, values in theirs.items()
    )


def _values(request: CompletionRequest, repeat: int) -> Iterator[tuple[str, str]]:
    yield "repeat", str(repeat)
    for name in FACTORS:
        value = value_of(request, name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        yield name, "not sent" if value in (None, ()) else short(value)
