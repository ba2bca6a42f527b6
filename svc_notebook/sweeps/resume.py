"""Resume and retry: how each trial ended, and which trials are sent again.

A trial that failed counts as settled, because only the user may decide to send it
again. A trial does not count as settled if it was interrupted, was never sent, or was
refused because of a rate limit, the key or the model.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan, nan
from typing import Literal, NamedTuple, overload

from msgspec.structs import replace

from svc_notebook.client.exchange_record import to_failure
from svc_notebook.completion import Completion
from svc_notebook.display.reply_footer import cut_mark
from svc_notebook.errors import CutError, ParameterError, SettingsError
from svc_notebook.exchange import Exchange, Failure
from svc_notebook.service.error_messages import UNAUTHORIZED
from svc_notebook.settings import Settings
from svc_notebook.tokens import more_room
from svc_notebook.tools.call import check_whole

from .estimate import Seen
from .grid import request_key_of
from .plan import Manifest, Plan, as_stored
from .plan_changes import PlanChange, changes_of, refusal

TrialKey = tuple[str, int]


class TrialFailure(NamedTuple):
    """Why a trial has no reply, if no exchange in the ledger says it."""

    failure: Failure
    model: str


def key_of(exchange: Exchange) -> TrialKey:
    """Return the key of the trial that an exchange belongs to."""
    return exchange.origin.request_key or "", exchange.origin.repeat or 0


_OPEN = Failure(
    type="Cancelled",
    message="The trial stopped between two tool rounds; run() sends it again.",
)
_LOOP = Failure(
    type="ToolLoopError",
    message="The model still calls tools in the last round; allow more rounds with "
    "max_rounds, or say in the prompt when to stop.",
)


def as_ended(exchange: Exchange) -> Exchange:
    """Return an exchange with the status of its trial: a reply with calls is not ok."""
    tool_round = exchange.origin.tool_round
    if tool_round is None or exchange.status != "ok":
        return exchange
    if not any(choice.tool_calls for choice in exchange.choices):
        return exchange
    if tool_round.is_last:
        return replace(exchange, status="error", failure=_LOOP)
    try:
        check_whole(Completion(exchange))
    except CutError as error:
        return replace(exchange, status="error", failure=to_failure(error))
    return replace(exchange, status="cancelled", failure=_OPEN)


def by_trial(
    exchanges: Iterable[Exchange],
    failures: Mapping[TrialKey, "TrialFailure"] | None = None,
) -> dict[TrialKey, Exchange]:
    """Return the newest good exchange of each trial, or else its newest exchange.

    The exchanges are of one run, oldest first. Of the tool rounds of a trial, the last
    one counts. `failures` says why a trial stopped between two rounds, which the ledger
    does not have.
    """
    return dict(newest_by_trial(exchanges, failures or {}))


def newest_by_trial(
    exchanges: Iterable[Exchange], failures: Mapping[TrialKey, TrialFailure]
) -> Iterator[tuple[TrialKey, Exchange]]:
    """Yield exchanges by trial; a later exchange of a trial replaces an earlier one."""
    good: set[TrialKey] = set()
    for sent in exchanges:
        exchange, key = as_ended(sent), key_of(sent)
        if exchange.status != "ok" and key in good:
            continue  # a failure does not replace a good reply
        if exchange.status == "ok":
            good.add(key)
        elif exchange.failure is _OPEN and key in failures:
            failure = failures[key].failure
            exchange = replace(exchange, status="error", failure=failure)
        yield key, exchange


Mark = Literal["ok", "error", "refused", "open", "cancelled"]
"""`refused`: the service would refuse the same request again (400). `open`: `run` sends
the trial again, because of a rate limit, the key or the model, or it was never sent."""


class TrialStatus(NamedTuple):
    """How a trial ended, and what to do if its reply was cut."""

    mark: Mark
    model: str
    remedy: str = ""
    is_open_round: bool = False  # whether its last reply calls tools


class SentTrials:
    """The status of each trial that was sent, by its key; the keys are not stored."""

    def __init__(self) -> None:
        # The number of a status, by the hash of the key. The keys of a million trials
        # would need 200 MB; two share a hash in one of 30 million such runs.
        self._numbers: dict[int, int] = {}
        self._kinds: dict[TrialStatus, int] = {}  # the number of each status
        self._statuses: list[TrialStatus] = []
        self._counts: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: TrialKey) -> bool:
        return hash(key) in self._numbers

    def get(self, key: TrialKey) -> TrialStatus | None:
        """Return the status of a trial; None if it was not sent."""
        number = self._numbers.get(hash(key))
        return None if number is None else self._statuses[number]

    def put(self, key: TrialKey, status: TrialStatus) -> None:
        """Set the status of a trial."""
        before = self._numbers.get(hash(key))
        if before is not None:
            self._counts[before] -= 1
        number = self._kinds.setdefault(status, len(self._statuses))
        if number == len(self._statuses):
            self._statuses.append(status)
            self._counts.append(0)
        self._counts[number] += 1
        self._numbers[hash(key)] = number

    def counts(self) -> Iterator[tuple[TrialStatus, int]]:
        """Return how many trials have each status."""
        return zip(self._statuses, self._counts, strict=True)

    def copy(self) -> "SentTrials":
        """Return a copy."""
        other = SentTrials()
        for name in ("_numbers", "_kinds", "_statuses", "_counts"):
            setattr(other, name, getattr(self, name).copy())
        return other


class SeenReplies(Sequence[Seen]):
    """The tokens and seconds of many replies, in arrays to save memory."""

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
            return [self[number] for number in range(*at.indices(len(self)))]
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

    `seen` has the tokens and seconds of the good replies of each model.
    """

    trials: SentTrials = field(default_factory=SentTrials)
    first: Exchange | None = None
    seen: Mapping[str, Sequence[Seen]] = field(default_factory=dict)

    def counts(self, n_trials: int) -> Counter[str]:
        """Count the trials by how they ended; those without a status are `not_run`."""
        counts = Counter[str](self._n_by_mark)
        counts["error"] += counts.pop("refused", 0) + counts.pop("open", 0)
        counts["not_run"] = n_trials - counts.total()
        return counts

    def cut_note(self) -> str:
        """Say how many replies were cut and what to pass; "" if none was."""
        remedies = Counter[str]()
        for status, n in self.trials.counts():
            remedies[status.remedy] += n if status.remedy else 0
        if not (remedies := +remedies):
            return ""
        ((remedy, _),) = remedies.most_common(1)
        verb = "was" if remedies.total() == 1 else "were"
        return f"{remedies.total()} of {self.count('ok')} replies {verb} cut. {remedy}."

    def count(self, mark: Mark) -> int:
        """Return how many trials ended with this mark."""
        return self._n_by_mark[mark]

    @cached_property
    def _n_by_mark(self) -> Counter[Mark]:
        counts = Counter[Mark]()
        for status, n in self.trials.counts():
            counts[status.mark] += n
        return counts

    def with_failures(self, failures: Mapping[TrialKey, TrialFailure]) -> "RunStatus":
        """Add trials that failed without an exchange in the ledger."""
        if not failures:
            return self
        trials = self.trials.copy()
        for key, failed in failures.items():
            known = trials.get(key)
            if known is None or known.is_open_round:
                trials.put(key, TrialStatus(_mark_of(failed.failure), failed.model))
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
                seen[exchange.request.model].append(
                    _usage_of(exchange, rounds.get(key))
                )
        if sent.status == "ok" and (tool_round := sent.origin.tool_round) is not None:
            rounds[key] = _usage_of(
                sent, rounds.get(key) if tool_round.n_rounds > 1 else None
            )
    return RunStatus(trials, first, seen)


def _usage_of(exchange: Exchange, before: Seen | None = None) -> Seen:
    """Return the tokens and seconds of a reply, with those of earlier tool rounds."""
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
    # a ConfigError stops a run before the request is sent, so it is sent later
    if is_limit or is_key or failure.type in {"UnknownModelError", "ConfigError"}:
        return "open"
    return "refused" if failure.type == "BadRequestError" else "error"


class Settled:
    """The trials that are not sent again; the others have one of the `open_marks`."""

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


def settled_of(
    status: RunStatus, *, is_retried: bool = False, include_refused: bool = False
) -> Settled:
    """Return the trials that are not sent again."""
    open_marks: set[Mark] = {"cancelled", "open"}
    if is_retried:
        open_marks |= {"error", "refused"} if include_refused else {"error"}
    return Settled(status.trials, open_marks)


def next_steps(status: RunStatus, n_trials: int) -> list[str]:
    """Say what can be done next, while nothing is being sent."""
    n_todo = n_trials - len(settled_of(status))
    n_refused, n_open = status.count("refused"), status.count("open")
    some = "what is missing" if n_todo < n_trials or n_open else "them"
    pending = [some] if n_todo > n_open else []
    pending += [f"{n_open:,} of those that failed again"] if n_open else []
    read = ".replies_df(), .summary_df(), .compare()"
    steps = [f".run() sends {' and '.join(pending)}" if pending else read]
    if status.count("cancelled"):
        steps.append(".replies_df() has what arrived")
    if n_again := status.count("error"):
        other = "other " if n_open else ""
        steps.append(f".retry() sends the {other}{n_again:,} that failed again")
    if n_refused:
        steps.append(
            f"{n_refused:,} would be refused again, "
            ".retry(include_refused=True) sends them anyway"
        )
    return steps


def check_endpoint(first: Exchange | None, settings: Settings, *, n_todo: int) -> None:
    """Raise SettingsError if the rest of a run would go to another address.

    All emulators count as one address, because their port changes at each start.
    """
    if first is None or (first.is_emulated and settings.is_emulated):
        return
    if first.endpoint != settings.base_url:
        now = "but no address is set now, so nothing was sent. "
        if settings.base_url is not None:
            now = (
                f"but requests now go to {settings.base_url}. That would mix the "
                "replies of two services, so nothing was sent. "
            )
        raise SettingsError(
            f"This run began at {place_of(first)}, and {n_todo:,} of its requests are "
            f"missing, {now}{way_back(first)}, or plan the sweep under another name. "
            "replies_df() shows the replies so far."
        )


def place_of(first: Exchange) -> str:
    """Return where the first request of a run went, in words."""
    # the port of an emulator says nothing, because it changes at each start
    return "an emulator" if first.is_emulated else first.endpoint


def way_back(first: Exchange) -> str:
    """Say how to send requests where the first one of a run went."""
    if first.is_emulated:
        return (
            "Start an emulator with `%svc use emulator`, or with "
            "svc.use(endpoint=svc.Emulator(...)) and its options"
        )
    return (
        f"Go back with svc.use(base_url={first.endpoint!r}), or set SVC_BASE_URL to it"
    )


def unplanned_of(
    plan: Plan, sent: SentTrials, read: Callable[[], Iterable[Exchange]]
) -> Mapping[TrialKey, TrialStatus]:
    """Return the trials that were `sent` under the plan's name and are not in it.

    `read` reads the exchanges of the run. It is called only if there are such trials,
    because only the exchanges have their keys.
    """
    if plan.name is None or not sent:
        return {}
    if sum(key in sent for key in plan.grid.trial_keys()) == len(sent):
        return {}
    planned = set(plan.grid.trial_keys())
    keys = (key for key in map(key_of, read()) if key not in planned)
    unplanned = ((key, sent.get(key)) for key in keys)
    return {key: status for key, status in unplanned if status is not None}


def check_unplanned(
    plan: Plan,
    unplanned: Mapping[TrialKey, TrialStatus],
    read: Callable[..., Iterable[Exchange]],
    stored: Callable[[], Sequence[Manifest]],
) -> None:
    """Raise ParameterError if trials that are not in the plan have replies.

    Trials without a reply are allowed, and so are rows that `df.svc` sent before and
    that the frame does not have now. `read` reads the exchanges of the run, and
    `stored` its earlier plans, the newest last.
    """
    has_reply = {key for key, status in unplanned.items() if status.mark == "ok"}
    if not has_reply or not len(plan.grid) or plan.name is None:
        return
    if all(
        _is_other_row(plan, exchange)
        for exchange in read(texts=True)
        if key_of(exchange) in has_reply
    ):
        return
    now = as_stored(plan)
    for before in reversed(stored()):
        if changes := changes_of(before, now):
            break
    else:
        detail = f"{len(has_reply):,} requests with replies are not in this plan."
        changes = [PlanChange("the combinations have changed", detail)]
    raise ParameterError(refusal(plan.name, changes), param="name")


def _is_other_row(plan: Plan, exchange: Exchange) -> bool:
    """Return whether an exchange is for a row of `df.svc` that the frame lacks now."""
    if plan.origin != "frame":
        return False
    # its key is right for the same templates, and only its messages differ
    templates = [next(plan.grid.values_of(name), None) for name in ("prompt", "system")]
    key = request_key_of(exchange.request, templates=templates)
    first, other = (
        request_key_of(replace(request, messages=()))
        for request in (plan.grid[0].request, exchange.request)
    )
    return first == other and (exchange.origin.request_key or "").startswith(key)
