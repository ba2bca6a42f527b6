"""Sends a run's requests from the workers of a Ray cluster: `run.run(on="ray")`.

The driver plans, paces, asks again and writes the ledger, as on one machine. A worker
holds one client; it gets requests in blocks and hands finished exchanges back. One more
actor leases the slots of limits that are known, so that all workers keep them together.
"""

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from math import inf
from typing import Any

import msgspec

from svc_notebook.client.attempts import ExchangeTask, RequestPath
from svc_notebook.client.exchange_record import ExchangeRecord, internal_error
from svc_notebook.client.leased_slots import Leased, LeasedQuota, Quota
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.retry import FailedTry, Policy
from svc_notebook.credentials import Key
from svc_notebook.errors import ConfigError, NoConnectionError, SvcError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.connect import MEMORY
from svc_notebook.ledger.row import mended
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.chunk import Delta
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings

from .ray_connection import START_S, VERSION, check_version, connected, unusable

MOST_WORKERS = 8  # of what is chosen for the user
GATHER_S = 0.01  # one call hands over what comes within it: a call takes 0.2 ms
MOST_LOSSES = 5  # of workers while they had the same request
MOST_LOST_IN_A_ROW = 10  # workers, without any reply between


# What a worker runs


class _Asked(msgspec.Struct, array_like=True, gc=False):
    """A request for a worker."""

    number: int
    request: CompletionRequest
    policy: Policy


class _Ended(msgspec.Struct, array_like=True, gc=False):
    """An exchange that has ended, and its error, pickled; no exchange if unsent."""

    number: int
    exchange: Exchange | None = None
    error: bytes | None = None


_encode = msgspec.msgpack.Encoder().encode
_read_asked = msgspec.msgpack.Decoder(list[_Asked]).decode
_read_ended = msgspec.msgpack.Decoder(_Ended).decode
_NO_REQUEST = CompletionRequest(model="", messages=())  # the driver has it

Lease = Callable[[str, int, list[int], list[int]], Awaitable[Leased]]
"""Reports slots of a model, and leases more: see `Quota.lease`."""


class Worker:
    """Sends the requests that it is given, on the loop of its actor."""

    def __init__(self, settings: Settings, *, key: Key, lease: Lease | None) -> None:
        self._quotas: dict[str, LeasedQuota] = {}
        self._lease = lease
        self._path = RequestPath(
            settings,
            key=key,
            limits=RateLimits(
                clock=time.monotonic,
                limit_of=settings.endpoint.limit_of,
                others_of=self._quota_of,
            ),
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: list[bytes] = []
        self._has_ended = asyncio.Event()
        self._taken_s = -inf

    def put(self, batch: bytes) -> None:
        """Begin to send requests."""
        for asked in _read_asked(batch):
            task = asyncio.get_running_loop().create_task(self._ask(asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def take(self) -> list[bytes]:
        """Wait until something has ended, and return all that has."""
        await self._has_ended.wait()
        await asyncio.sleep(self._taken_s + GATHER_S - time.monotonic())
        self._taken_s = time.monotonic()
        ended, self._ended = self._ended, []
        self._has_ended.clear()
        return ended

    async def _ask(self, asked: _Asked) -> None:
        quota = self._quota_of(asked.request.model)
        if quota:
            quota.n_open += 1
        # how many may be in flight is the driver's to say
        policy = replace(asked.policy, limits_in_flight=True)
        error, exchange = None, None
        try:
            task = self._path.begin(asked.request, policy=policy)
            try:
                exchange = await task.run(lambda _: None)
            except SvcError:
                exchange = task.exchange
                raise
        except Exception as problem:  # noqa: BLE001 - the driver waits for it
            said = problem if isinstance(problem, SvcError) else internal_error(problem)
            said.partial = None  # it is in the exchange
            vars(said).pop("__notes__", None)  # the driver adds its own
            error = pickle.dumps(said)
        finally:
            if quota:
                quota.end()
        self._ended.append(_encoded(_Ended(asked.number, exchange, error)))
        self._has_ended.set()

    def _quota_of(self, model: str) -> LeasedQuota | None:
        if self._lease is None:
            return None
        if model not in self._quotas:
            self._quotas[model] = LeasedQuota(partial(self._lease, model))
        return self._quotas[model]


def _encoded(ended: _Ended) -> bytes:
    if ended.exchange is not None:
        ended.exchange = msgspec.structs.replace(ended.exchange, request=_NO_REQUEST)
    try:
        return _encode(ended)
    except UnicodeEncodeError:  # half a surrogate pair, which the ledger replaces, too
        return _encode(mended(msgspec.to_builtins(ended, builtin_types=(bytes,))))


def _actor_class() -> type:
    """Return the class of the actors.

    Ray sends a class that is made here by value, so that a node without this package,
    or with another version of it, can say so.
    """

    class SvcWorker:
        async def start(self, mine: str, *given: Any) -> str:  # noqa: ANN401 - actors
            try:
                found = version("svc-notebook")
            except PackageNotFoundError:
                return ""
            if found == mine:
                from svc_notebook.sweeps.ray_cluster import started  # noqa: PLC0415

                self._worker = started(*given)
            return found

        async def put(self, batch: bytes) -> None:
            self._worker.put(batch)

        async def take(self) -> list[bytes]:
            return await self._worker.take()

    return SvcWorker


def started(given: bytes, secret: str, number: int, quota: Any) -> Worker:  # noqa: ANN401 - an actor's handle
    """Return the worker of an actor; the key comes as an argument of its own."""
    key = Key(secret, source="") if secret else Key.none()
    secret = ""  # a traceback may show the locals of this frame
    settings, key.source = pickle.loads(given)  # noqa: S301 - from the driver
    lease = None if quota is None else partial(quota.lease.remote, number)
    return Worker(settings, key=key, lease=lease)


class _QuotaActor(Quota):
    """The quota of a run, as an actor; Ray starts it again if its node dies."""

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        context = import_module("ray").get_runtime_context()
        super().__init__(limits, is_restarted=context.was_current_actor_reconstructed)


# What the driver does


@dataclass(slots=True, eq=False)
class _Request:
    """A request that has not ended."""

    asked: _Asked
    ended: "asyncio.Future[tuple[Exchange | None, SvcError | None]]"
    n_losses: int = 0


@dataclass(slots=True, eq=False)
class _Link:
    """A worker as the driver has it."""

    number: int
    actor: Any
    open: dict[int, _Request] = field(default_factory=dict)
    outbox: list[_Asked] = field(default_factory=list)
    posted_s: float = -inf

    def give(self, request: _Request) -> None:
        """Give the worker a request, together with others of this moment."""
        self.open[request.asked.number] = request
        if not self.outbox:
            loop = asyncio.get_running_loop()
            loop.call_at(max(self.posted_s + GATHER_S, loop.time()), self._post)
        self.outbox.append(request.asked)

    def _post(self) -> None:
        batch, self.outbox = self.outbox, []
        self.posted_s = asyncio.get_running_loop().time()
        with suppress(Exception):  # that the worker is gone shows when it is read
            self.actor.put.remote(_encode(batch))


class ClusterTask(ExchangeTask):
    """An exchange that a worker runs; what is before and after it happens here."""

    def __init__(
        self,
        record: ExchangeRecord,
        body: bytes,
        *,
        cluster: "Cluster",
        **given: Any,  # noqa: ANN401 - as `ExchangeTask`
    ) -> None:
        super().__init__(record, body, **given)
        self._cluster = cluster

    async def _tries(self, _: Callable[[Delta], None]) -> None:
        slot = await self._pace()
        clock, record = self._runtime.clock, self._record
        record.send(clock())
        self._limiter.sent(slot)
        asked = self._cluster.ask(record.begun.request, self._policy)
        try:
            exchange, error = await asked
        except BaseException:
            self._limiter.failed(slot)
            raise
        self._failure = None if error is None else FailedTry(error=error)
        self._end_try(slot, self._failure)
        if exchange is None:
            return
        for name in ("n_attempts", "n_refused", "n_chunks", "retry_wait_s"):
            setattr(record, name, getattr(exchange, name))
        record.body = self._context.key.redact(exchange.body)
        record.is_emulated |= exchange.is_emulated
        record.emulator_note = self._context.key.redact(exchange.emulator_note)
        record.first_text_s = exchange.first_text_s
        record.queue_s += exchange.queue_s
        # a latency is what the worker has measured, not the way to it
        took_s = exchange.latency_s
        record.sent_s = None if took_s is None else clock() - took_s


class Cluster:
    """The workers of one run, on the event loop that its requests are sent on."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - the package
        *,
        settings: Settings,
        key: Key,
        limits: Mapping[str, Limit],
        n_workers: int | None = None,
    ) -> None:
        self._ray = ray
        self._key = key
        # no path of this machine, and nothing of how it was set, goes elsewhere
        plain = replace(settings, ledger=MEMORY, prices=None, answers=None, sources={})
        self._given = pickle.dumps((plain, key.source))
        n_cpus = int(ray.cluster_resources().get("CPU", 1))
        self.n_workers = n_workers or min(max(n_cpus, 1), MOST_WORKERS)
        self._quota: Any = None
        self._limits = limits
        self._actor = ray.remote(_actor_class())
        self._numbers, self._worker_numbers = count(), count()
        self._links: list[_Link] = []
        self._is_closed = self._is_reading = False
        self._homeless: list[_Request] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_lost = 0  # in a row
        self._problem: SvcError | None = None

    def task(self, record: ExchangeRecord, body: bytes, **given: Any) -> ClusterTask:  # noqa: ANN401 - as `ExchangeTask`
        """Return an exchange that a worker will run."""
        return ClusterTask(record, body, cluster=self, **given)

    def start(self) -> None:
        """Start the workers, and wait until they run; a ConfigError says why not."""
        ray = self._ray
        if self._limits:
            quota = ray.remote(_QuotaActor).options(num_cpus=0, max_restarts=-1)
            self._quota = quota.remote(self._limits)
        found: list[str] | ConfigError
        try:
            self._links = [self._new_link() for _ in range(self.n_workers)]
            starts = [self._start_of(link) for link in self._links]
            found = ray.get(starts, timeout=START_S)
        except Exception as problem:  # noqa: BLE001 - whatever Ray says; it took long
            found = unusable(problem, self._key)
        if isinstance(found, ConfigError):  # without Ray's frames, which have the key
            raise found
        for each in found:
            check_version(each)

    async def ask(
        self, request: CompletionRequest, policy: Policy
    ) -> tuple[Exchange | None, SvcError | None]:
        """Let a worker send a request; return its exchange, and its error if any."""
        if self._problem is not None:
            return None, self._problem
        loop = asyncio.get_running_loop()
        if not self._is_reading:
            self._is_reading = True
            for link in self._links:
                self._begin(self._read(link))
        asked = _Asked(next(self._numbers), request, policy)
        found = _Request(asked, loop.create_future())
        self._give(found)
        return await found.ended

    def close(self) -> None:
        """End the workers; what they have in flight is lost."""
        self._is_closed = True
        actors = [*(link.actor for link in self._links), self._quota]
        self._links, self._quota = [], None
        for actor in actors:
            self._kill(actor)

    def _kill(self, actor: Any) -> None:  # noqa: ANN401 - an actor's handle
        # Ray connects again, if need be: also where this process is about to end
        if actor is not None and self._ray.is_initialized():
            with suppress(Exception):  # it may be gone
                self._ray.kill(actor)

    def _new_link(self) -> _Link:
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        actor = self._actor.options(max_concurrency=1000, **options).remote()
        return _Link(next(self._worker_numbers), actor)

    def _start_of(self, link: _Link) -> Any:  # noqa: ANN401 - an object reference
        start = partial(link.actor.start.remote, VERSION, self._given)
        bearer = self._key.authorization  # its value is in no local variable
        return start(bearer().removeprefix("Bearer "), link.number, self._quota)

    def _begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(self, request: _Request) -> None:
        if self._links:
            min(self._links, key=lambda link: len(link.open)).give(request)
        else:
            self._homeless.append(request)

    async def _read(self, link: _Link) -> None:
        """Read what a worker has ended, until it is gone."""
        try:
            while not self._is_closed:
                for each in map(_read_ended, await link.actor.take.remote()):
                    self._n_lost = 0
                    if request := link.open.pop(each.number, None):
                        _end(request, each)
        except Exception:  # noqa: BLE001 - whatever Ray says of it
            if not self._is_closed:
                self._lose(link)

    def _lose(self, link: _Link) -> None:
        """Give what a worker had in flight to others, and start another worker."""
        if link in self._links:
            self._links.remove(link)
        self._kill(link.actor)  # it may live, where it cannot be reached
        if self._quota is not None:
            with suppress(Exception):
                self._quota.end.remote(link.number)
        self._n_lost += 1
        if self._n_lost >= MOST_LOST_IN_A_ROW:
            self._homeless.extend(link.open.values())
            self._fail(_LOST_ALL)
            return
        for request in link.open.values():
            request.n_losses += 1
            if request.n_losses < MOST_LOSSES:
                self._give(request)
            elif not request.ended.done():
                request.ended.set_result((None, NoConnectionError(_LOST)))
        self._begin(self._replace())

    async def _replace(self) -> None:
        link = None
        if not self._ray.is_initialized():  # it would connect to any cluster
            self._fail(_DISCONNECTED)
            return
        try:
            link = self._new_link()
            check_version(await self._start_of(link))
        except SvcError as problem:
            self._fail(str(problem))
        except Exception as problem:  # noqa: BLE001 - whatever Ray says
            if link is None:
                self._fail(str(unusable(problem, self._key)))
            else:
                self._lose(link)
        else:
            self._links.append(link)
            if self._is_closed:
                self.close()
                return
            self._begin(self._read(link))
            homeless, self._homeless = self._homeless, []
            for request in homeless:
                self._give(request)

    def _fail(self, why: str) -> None:
        """End everything that is open, because no worker can run."""
        self._problem = ConfigError(why)
        requests = [each for link in self._links for each in link.open.values()]
        for request in (*requests, *self._homeless):
            if not request.ended.done():
                request.ended.set_result((None, ConfigError(why)))


_LOST = (
    f"{MOST_LOSSES} workers of the Ray cluster ended while they had this request, so "
    "it was given up. It may have been billed. Look at Ray's logs for why they ended; "
    "run.retry(on=...) sends it again."
)
_DISCONNECTED = (
    "This kernel was disconnected from the Ray cluster. The replies so far are kept; "
    "run(on=...) connects and sends what is missing."
)
_LOST_ALL = (
    f"{MOST_LOST_IN_A_ROW} workers of the Ray cluster ended one after the other, "
    "without a reply between. The replies so far are kept. Look at `ray status` and at "
    "Ray's logs for why they ended; run(on=...) sends what is missing."
)


def _end(request: _Request, ended: _Ended) -> None:
    error = None
    if ended.error is not None:
        error = pickle.loads(ended.error)  # noqa: S301 - from our own worker
    if not request.ended.done():  # it may have been cancelled
        request.ended.set_result((ended.exchange, error))


def join(
    on: str,
    *,
    settings: Settings,
    key: Key,
    models: Iterable[str],
    n_workers: int | None = None,
) -> Cluster:
    """Start or join a cluster, and start workers there for one run.

    Raises:
        ConfigError: Ray is not installed, no cluster is there, or the workers have
            another version of this package.
    """
    ray = connected(on)
    known = ((model, settings.endpoint.limit_of(model)) for model in models)
    cluster = Cluster(
        ray,
        settings=settings,
        key=key,
        limits={model: each for model, each in known if each and each.is_windowed},
        n_workers=n_workers,
    )
    try:
        cluster.start()
    except BaseException:
        cluster.close()
        raise
    return cluster
