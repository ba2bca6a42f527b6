"""Sends a run's requests from the workers of a Ray cluster: `run.run(on="ray")`.

The driver plans, paces, asks again and writes the ledger, as on one machine. A worker
holds one client; it gets requests in blocks and hands finished exchanges back. One more
actor leases the slots of limits that are known, so that all workers keep them together.
"""

import asyncio
import os
import pickle
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from math import inf
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from svc_notebook.client.rate_lease import QuotaLeases
from svc_notebook.client.remote_worker import (
    GATHER_S,
    RemoteWorker,
    WorkerRequest,
    WorkerResponse,
    encode_requests,
    read_response,
    send_by_worker,
    wait_for_worker,
)
from svc_notebook.client.request_path import Attempt
from svc_notebook.client.retry import FailedTry, Policy
from svc_notebook.credentials import Key, without_keys
from svc_notebook.endpoints import Endpoint
from svc_notebook.errors import (
    ConfigError,
    NoConnectionError,
    ParameterError,
    SvcError,
    import_extra,
)
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.connection import MEMORY
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings

MOST_WORKERS = 8  # if the user does not say how many
MOST_LOSSES = 5  # workers that may end with the same request before it fails
MOST_LOST_IN_A_ROW = 10  # workers, without any reply between
# A worker that could not connect counts as having so many more requests.
UNSENT_LOAD = 8
VERSION = version("svc-notebook")
CONNECT_S = 10.0  # until a cluster at a given address answers
START_S = 180.0  # until it runs what we start: a busy node needs long to import it
START_TRIES = 3  # Ray gives up a start after 30 s
_joined: dict[str, str] = {}  # `on` of each connection that we made, by Ray's job
_starting = Lock()  # two runs may want to start a cluster at once


def check_address(on: object) -> str:
    """Return where the user says that a cluster is; refuse anything else."""
    address = on.strip() if isinstance(on, str) else ""
    if address in {"ray", "auto"} or _host_and_port(address):
        return address
    raise ParameterError(
        f"on must be 'ray' (a cluster on this machine), 'auto' (the one that this "
        f"machine is in) or an address such as 'ray://HOST:10001'; got {on!r}. "
        "None sends from this process.",
        param="on",
    )


def _host_and_port(address: str) -> tuple[str, int] | None:
    with suppress(ValueError):
        parts = urlsplit(address if "//" in address else f"//{address}")
        if parts.scheme in {"", "ray"} and parts.hostname and parts.port:
            return parts.hostname, parts.port
    return None


def connected(on: str) -> Any:  # noqa: ANN401 - the package
    """Return the package Ray, connected; an existing connection is used."""
    what = f"on={on!r} needs"
    ray = _on_thread(partial(import_extra, "ray", what, install="'ray[client]'"))
    is_new = not ray.is_initialized()
    if is_new and (problem := _try_to_connect(ray, on)):
        raise ConfigError(problem)
    job = ray.get_runtime_context().get_job_id()
    if is_new:
        _joined[job] = on
    elif _host_and_port(on) and (before := _joined.get(job, on)) != on:
        raise ConfigError(
            f"on={before!r} has connected this kernel to another Ray cluster than "
            f"{on!r}. Nothing was sent. Disconnect it with `import ray; "
            "ray.shutdown()`, or use on='auto' for the cluster that is connected."
        )
    return ray


def _on_thread(
    work: Callable[[], Any], wait_s: float = inf, *, stays: bool = False
) -> Any:  # noqa: ANN401 - as `work`
    """Work on a thread, because an interrupt half-way would leave Ray's modules broken.

    The thread `stays` where it started programs: the system ends them with it.
    """
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
            Event().wait(None if stays else 0)
        except Exception as problem:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(problem)

    Thread(target=run, name="svc_notebook connects to Ray", daemon=True).start()
    try:
        return done.result(None if wait_s == inf else wait_s)
    except TimeoutError:  # Ray tries for much longer by itself
        raise TimeoutError(f"no answer within {wait_s:.0f} s") from None


def _start_here(ray: Any, connect: Callable[..., object]) -> None:  # noqa: ANN401 - the package
    with _starting, without_keys():  # all that Ray starts would have them
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            connect(include_dashboard=False)


def _try_to_connect(ray: Any, on: str) -> str:  # noqa: ANN401 - the package
    """Connect to a cluster; return why that is not possible, "" if it is."""
    connect = partial(ray.init, log_to_driver=False, logging_level="ERROR")
    host_port, is_there = _host_and_port(on), on == "ray"
    for n_left in reversed(range(START_TRIES)):
        try:
            if host_port:
                _on_thread(partial(_reach, *host_port), CONNECT_S)
                is_there = True
            if on == "ray":
                _on_thread(partial(_start_here, ray, connect), stays=True)
            else:  # one that is there, and busy, needs long to let us in
                _on_thread(
                    partial(connect, address=on), START_S if host_port else CONNECT_S
                )
        except Exception as problem:  # noqa: BLE001 - Ray raises many kinds
            said = in_words(problem)
            # a busy machine takes more than Ray's 30 s; another version stays one
            if not n_left or not is_there or "version" in said.lower():
                return (_NOT_STARTED if on == "ray" else _NOWHERE).format(on, said)
        else:
            break
    return ""


def _reach(host: str, port: int) -> None:
    """Raise an error if nothing that speaks Ray's protocol is at an address."""
    socket.create_connection((host, port), timeout=2 * CONNECT_S).close()
    if os.environ.get("RAY_USE_TLS", "0") == "0":
        grpc = import_module("grpc")
        channel = grpc.insecure_channel(f"{host}:{port}")
        grpc.channel_ready_future(channel).result(timeout=2 * CONNECT_S)
        channel.close()


def in_words(problem: Exception) -> str:
    """Return what an error says in a line, without a traceback."""
    first, *rest = str(problem).strip().splitlines() or [""]
    if first.endswith(":"):  # the reason is in the lines below
        below = rest[-1:] if "Traceback" in str(problem) else rest
        first = " ".join([first, *below])
    return " ".join(first.split())[:300].rstrip(".:") or type(problem).__name__


def check_version(theirs: str) -> None:
    """Refuse workers without this package, or with another version of it."""
    if theirs == VERSION:
        return
    which = f"svc-notebook {theirs}" if theirs else "no svc-notebook"
    raise ConfigError(
        f"The workers of the Ray cluster have {which}, and this kernel has "
        f"{VERSION}. Nothing more was sent. Install the same version on every "
        f"node: python -m pip install 'svc-notebook[cluster]=={VERSION}'"
    )


def unusable(said: Exception, key: Key) -> SvcError:
    """Return the error for a cluster that cannot run the workers."""
    if isinstance(said, SvcError):
        return said
    # if only one side uses Ray's token, Ray says only that all actors died
    has_token = os.environ.get("RAY_AUTH_MODE") == "token"
    why = key.redact(in_words(said))
    return ConfigError(_UNUSABLE.format(why) + _NO_AUTH * has_token)


# What a node runs


def _actor_class() -> type:
    """Return the class of the actors.

    Ray sends a class that is defined in a function by value, so that a node with any
    version of this package, or without it, can answer `version`.
    """

    class SvcWorker:
        async def version(self) -> str:
            try:
                return version("svc-notebook")
            except PackageNotFoundError:
                return ""

        async def start(self, *arguments: Any) -> None:  # noqa: ANN401 - the actor's
            self._worker = started(*arguments)

        async def put(self, batch: bytes) -> None:
            self._worker.put(batch)

        async def take(self) -> list[bytes]:
            return await self._worker.take()

    return SvcWorker


def started(
    settings_and_source: bytes,
    secret: str,
    number: int,
    quota: Any,  # noqa: ANN401 - an actor's handle
) -> RemoteWorker:
    """Return the worker of an actor; the key comes as an argument of its own."""
    key = Key(secret, source="") if secret else Key.none()
    secret = ""  # a traceback may show the locals of this frame
    settings, key.source = pickle.loads(settings_and_source)  # noqa: S301 - from the driver
    lease = None if quota is None else partial(quota.lease.remote, number)
    return RemoteWorker(settings, key=key, lease=lease)


class _QuotaActor(QuotaLeases):
    """The quota of an endpoint, as an actor; Ray starts it again if its node dies."""

    def __init__(self, endpoint: Endpoint) -> None:
        context = import_module("ray").get_runtime_context()
        is_restarted = context.was_current_actor_reconstructed
        super().__init__(endpoint.limit_of, is_restarted=is_restarted)


# What the driver does


@dataclass(slots=True)
class _SharedQuota:
    """The quota of a key at an endpoint, and how many runs of this kernel use it.

    Workers send some time after the driver has let a request go, so that two runs with
    a quota each would overrun the limit together.
    """

    actor: Any
    n_runs: int = 0


_quotas: dict[object, _SharedQuota] = {}
_quotas_lock = Lock()
_worker_numbers = count()  # of all runs: a quota tells workers apart by them


@dataclass(slots=True, eq=False)
class _Request:
    """A request that has not ended."""

    message: WorkerRequest
    ended: "asyncio.Future[tuple[Exchange | None, SvcError | None]]"
    n_losses: int = 0
    is_moved: bool = False


@dataclass(slots=True, eq=False)
class _Link:
    """A worker as the driver has it."""

    number: int
    actor: Any
    is_usable: Callable[[], bool]  # if not, Ray may start a cluster for a call
    open: dict[int, _Request] = field(default_factory=dict)
    outbox: list[WorkerRequest] = field(default_factory=list)
    posted_s: float = -inf
    n_unsent: int = 0  # in a row

    def give(self, request: _Request) -> None:
        """Give the worker a request, together with others of this moment."""
        self.open[request.message.number] = request
        if not self.outbox:
            loop = asyncio.get_running_loop()
            loop.call_at(max(self.posted_s + GATHER_S, loop.time()), self._post)
        self.outbox.append(request.message)

    def _post(self) -> None:
        batch, self.outbox = self.outbox, []
        self.posted_s = asyncio.get_running_loop().time()
        with suppress(Exception):  # if the worker is gone, `_read` notices it
            if self.is_usable():
                self.actor.put.remote(encode_requests(batch))


class Cluster:
    """The workers of one run, on the event loop that its requests are sent on."""

    def __init__(
        self,
        on: str,
        *,
        settings: Settings,
        key: Key,
        models: Iterable[str],
        n_workers: int | None = None,
    ) -> None:
        self._on = on
        self._key = key
        # paths of this machine, and where settings came from, stay here
        plain = replace(settings, ledger=MEMORY, prices=None, answers=None, sources={})
        self._settings = pickle.dumps((plain, key.source))
        limits = map(settings.endpoint.limit_of, models)
        self._has_limits = any(limit and limit.is_windowed for limit in limits)
        self._endpoint = settings.endpoint
        self._key_at_address = (settings.base_url, key.digest(settings.base_url or ""))
        self._quota_key: object = None
        self.n_workers = n_workers or 0
        self._quota: Any = None
        self._numbers = count()
        self._links: list[_Link] = []
        self._is_closed = self._is_reading = False
        self._answer_of = partial(wait_for_worker, is_usable=self._is_usable)
        self._unassigned: list[_Request] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_lost = 0  # in a row
        self._problem: SvcError | None = None

    def start(self) -> None:
        """Start or join the cluster, and the workers; a ConfigError says why not."""
        self._ray = connected(self._on)
        try:
            self._start_workers()
        except BaseException as said:  # also an interrupt, since starting takes long
            self.close()
            if not isinstance(said, Exception):
                raise
            problem = unusable(said, self._key)
        else:
            return
        raise problem.with_traceback(None)  # without Ray's frames, which have the key

    def _start_workers(self) -> None:
        n_cpus = int(self._ray.cluster_resources().get("CPU", 1))
        self.n_workers = self.n_workers or min(max(n_cpus, 1), MOST_WORKERS)
        self._actor = self._ray.remote(_actor_class())
        if self._has_limits:
            self._quota = self._share_quota()
        get = partial(self._ray.get, timeout=START_S)
        # added one by one, so that `close` ends those that an interrupt leaves
        self._links.extend(self._new_link() for _ in range(self.n_workers))
        for theirs in get([link.actor.version.remote() for link in self._links]):
            check_version(theirs)  # before the key leaves this process
        quota = [self._quota.end.remote(-1)] if self._has_limits else []  # does it run?
        get([*quota, *map(self._start_of, self._links)])

    async def send_once(self, attempt: Attempt) -> FailedTry | None:
        """Send a request from a worker, for a request path."""
        return await send_by_worker(attempt, send=self.send)

    async def send(
        self, request: CompletionRequest, policy: Policy
    ) -> tuple[Exchange | None, SvcError | None]:
        """Let a worker send a request; return its exchange, and its error if any."""
        if self._problem is not None:
            return None, self._problem
        if not self._is_reading:
            self._is_reading = True
            for link in self._links:
                self._begin(self._read(link))
        message = WorkerRequest(next(self._numbers), request, policy)
        pending = _Request(message, asyncio.get_running_loop().create_future())
        self._give(pending)
        return await pending.ended

    def close(self) -> None:
        """End the workers; what they have in flight is lost."""
        self._is_closed = True
        actors = [*(link.actor for link in self._links), self._leave_quota()]
        self._links, self._quota = [], None
        for actor in actors:
            self._kill(actor)

    def _share_quota(self) -> Any:  # noqa: ANN401 - an actor's handle
        """Use the quota that other runs of this kernel use, or start it."""
        job = self._ray.get_runtime_context().get_job_id()
        limits = (self._endpoint.models, self._endpoint.limit)
        self._quota_key = (job, *self._key_at_address, *limits)
        with _quotas_lock:
            if (shared := _quotas.get(self._quota_key)) is None:
                kind = self._ray.remote(_QuotaActor)
                kind = kind.options(num_cpus=0, max_restarts=-1)
                shared = _SharedQuota(kind.remote(self._endpoint))
                _quotas[self._quota_key] = shared
            shared.n_runs += 1
        return shared.actor

    def _leave_quota(self) -> Any:  # noqa: ANN401 - an actor's handle, or None
        """Return the quota if no other run uses it, so that it can be ended."""
        if self._quota is None:
            return None
        with _quotas_lock:
            shared = _quotas[self._quota_key]
            shared.n_runs -= 1
            if shared.n_runs > 0:
                return None
            del _quotas[self._quota_key]
        return shared.actor

    def _kill(self, actor: Any) -> None:  # noqa: ANN401 - an actor's handle
        # without a connection Ray would make one for this call, even at the end
        if actor is not None and self._ray.is_initialized():
            with suppress(Exception):  # it may be gone
                self._ray.kill(actor)

    def _new_link(self) -> _Link:
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        actor = self._actor.options(max_concurrency=1000, **options).remote()
        return _Link(next(_worker_numbers), actor, self._is_usable)

    def _is_usable(self) -> bool:
        return not self._is_closed and self._ray.is_initialized()

    def _start_of(self, link: _Link) -> Any:  # noqa: ANN401 - an object reference
        start = partial(link.actor.start.remote, self._settings)
        bearer = self._key.authorization  # its value is in no local variable
        return start(bearer().removeprefix("Bearer "), link.number, self._quota)

    def _begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(self, request: _Request, *, but: _Link | None = None) -> None:
        if request.ended.done():  # it was cancelled
            return
        if links := [link for link in self._links if link is not but]:
            # a worker without a network fails fast, and would get the most requests
            load = (len(link.open) + UNSENT_LOAD * link.n_unsent for link in links)
            min(zip(load, count(), links, strict=False))[2].give(request)
        else:
            self._unassigned.append(request)

    async def _read(self, link: _Link) -> None:
        """Read what a worker has ended, until it is gone."""
        with suppress(Exception):  # Ray has many errors for a worker that is gone
            while link.is_usable():
                for response in await self._answer_of(link.actor.take.remote()):
                    self._n_lost = 0
                    self._end(link, read_response(response))
        if not self._is_closed:
            self._lose(link)

    def _end(self, link: _Link, ended: WorkerResponse) -> None:
        """End a request; let another worker try if this one cannot connect."""
        link.n_unsent = link.n_unsent + 1 if ended.is_unsent else 0
        request = link.open.pop(ended.number, None)
        if request is None or request.ended.done():  # it may have been cancelled
            return
        if ended.is_unsent and len(self._links) > 1 and not request.is_moved:
            request.is_moved = True
            self._give(request, but=link)
            return
        error = pickle.loads(ended.error) if ended.error else None  # noqa: S301 - ours
        request.ended.set_result((ended.exchange, error))

    def _lose(self, link: _Link) -> None:
        """Give what a worker had in flight to others, and start another worker."""
        if link in self._links:
            self._links.remove(link)
        link.outbox.clear()  # others get it
        self._kill(link.actor)  # it may still run on a node that cannot be reached
        if self._quota is not None and link.is_usable():
            with suppress(Exception):
                self._quota.end.remote(link.number)
        self._n_lost += 1
        # all workers may be on one node that dies
        if self._n_lost >= max(MOST_LOST_IN_A_ROW, 2 * self.n_workers):
            self._unassigned.extend(link.open.values())
            self._fail(_LOST_ALL.format(self._n_lost))
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
        if not self._is_usable():  # for a call, Ray would connect to some cluster
            self._fail(_DISCONNECTED)
            return
        try:
            link = self._new_link()
            async with asyncio.timeout(START_S):
                check_version(await self._answer_of(link.actor.version.remote()))
                await self._answer_of(self._start_of(link))
        except Exception as said:  # noqa: BLE001 - whatever Ray says
            problem = unusable(said, self._key)
            if link is not None and problem is not said:
                self._lose(link)
                return
            self._fail(str(problem))
            self._kill(link and link.actor)
        else:
            self._links.append(link)
            if self._is_closed:
                self._kill(link.actor)
            self._begin(self._read(link))
            while self._unassigned:
                self._give(self._unassigned.pop(0))

    def _fail(self, why: str) -> None:
        """End everything that is open, because no worker can run."""
        self._problem = ConfigError(why)
        requests = [request for link in self._links for request in link.open.values()]
        for request in (*requests, *self._unassigned):
            if not request.ended.done():
                request.ended.set_result((None, ConfigError(why)))


_NOWHERE = (
    "There is no Ray cluster at {!r} that this kernel can use: {}. Nothing was sent. "
    "Check the address, the versions of Ray and Python there, and Ray's token, if it "
    "has one. `ray start --head` starts a cluster; so does on='ray' on this machine."
)
_NOT_STARTED = (
    "on={!r} cannot start a Ray cluster on this machine: {}. Nothing was sent. Try "
    "again when the machine has less to do, or send from this process, without on."
)
_UNUSABLE = (
    "The Ray cluster cannot run the workers: {}. Nothing more was sent. Look at `ray "
    "status` and at Ray's logs."
)
_NO_AUTH = " If Ray has no token there, start this kernel with RAY_AUTH_MODE=disabled."
_LOST = (
    f"{MOST_LOSSES} workers of the Ray cluster ended while they had this request. It "
    "may have been billed. Look at Ray's logs; run.retry(on=...) sends it again."
)
_GO_ON = (
    "The replies so far are kept. run(on=...) sends what is missing, and retry(on=...) "
    "also what was in flight, which may have been billed."
)
_DISCONNECTED = f"This kernel was disconnected from the Ray cluster. {_GO_ON}"
_LOST_ALL = "{} workers ended in a row, without a reply. Look at Ray's logs. " + _GO_ON
