"""Sends a run's requests from the workers of a Ray cluster: `run.run(on="ray")`.

The driver plans, paces, asks again and writes the ledger, as on one machine. A worker
holds one client; it gets requests in blocks and hands finished exchanges back. One more
actor leases the slots of limits that are known, so that all workers keep them together.
"""

import asyncio
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Mapping
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

from svc_notebook.client.leased_slots import Quota
from svc_notebook.client.retry import Policy
from svc_notebook.client.worker import (
    GATHER_S,
    Asked,
    Ended,
    Worker,
    encode_asked,
    read_ended,
    said_by,
)
from svc_notebook.credentials import Key, without_keys
from svc_notebook.errors import ConfigError, NoConnectionError, ParameterError, SvcError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.connect import MEMORY
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings

MOST_WORKERS = 8  # of what is chosen for the user
MOST_LOSSES = 5  # of workers while they had the same request
MOST_LOST_IN_A_ROW = 10  # workers, without any reply between
UNSENT_LOAD = 8  # requests: what an attempt without a connection counts
VERSION = version("svc-notebook")
CONNECT_S = 10.0  # to reach a cluster that is said to be there
START_S = 180.0  # until it runs what we start: a busy node needs long to import it
START_TRIES = 3  # of a cluster here, which gets 30 s of Ray
_joined: dict[str, str] = {}  # our connections by Ray's job, and what `on` was
_starting = Lock()  # two runs may want to start a cluster at once


def checked_place(on: object) -> str:
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
    """Return the package Ray, connected; a connection that there is already is used."""
    try:
        ray = _apart(partial(import_module, "ray"))
    except ImportError:
        raise ConfigError(
            f"on={on!r} needs Ray, which is not installed. Install it with: "
            "python -m pip install 'svc-notebook[cluster]'"
        ) from None
    is_new = not ray.is_initialized()
    if is_new and (problem := _problem_of(ray, on)):
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


def _apart(work: Callable[[], Any], wait_s: float = inf, *, stays: bool = False) -> Any:  # noqa: ANN401 - as `work`
    """Work on a thread: an interrupt in the midst of it would spoil Ray's modules.

    It `stays` where programs were started: the system ends them with their thread.
    """
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(work())
            Event().wait(None if stays else 0)
        except Exception as problem:  # noqa: BLE001 - raised where it is waited for
            found.set_exception(problem)

    Thread(target=run, name="svc_notebook connects to Ray", daemon=True).start()
    try:
        return found.result(None if wait_s == inf else wait_s)
    except TimeoutError:  # Ray tries for much longer by itself
        raise TimeoutError(f"no answer within {wait_s:.0f} s") from None


def _start_here(ray: Any, connect: Callable[..., object]) -> None:  # noqa: ANN401 - the package
    with _starting, without_keys():  # all that Ray starts would have them
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            connect(include_dashboard=False)


def _problem_of(ray: Any, on: str) -> str:  # noqa: ANN401 - the package
    """Connect to a cluster; return why that is not possible, "" if it is."""
    connect = partial(ray.init, log_to_driver=False, logging_level="ERROR")
    place, is_there = _host_and_port(on), on == "ray"
    for n_left in reversed(range(START_TRIES)):
        try:
            if place:
                _apart(partial(_reach, *place), CONNECT_S)
                is_there = True
            if on == "ray":
                _apart(partial(_start_here, ray, connect), stays=True)
            else:  # one that is there, and busy, needs long to let us in
                _apart(partial(connect, address=on), START_S if place else CONNECT_S)
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
    if first.endswith(":"):  # what it is comes below
        below = rest[-1:] if "Traceback" in str(problem) else rest
        first = " ".join([first, *below])
    return " ".join(first.split())[:300].rstrip(".:") or type(problem).__name__


def check_version(found: str) -> None:
    """Refuse workers without this package, or with another version of it."""
    if found == VERSION:
        return
    which = f"svc-notebook {found}" if found else "no svc-notebook"
    raise ConfigError(
        f"The workers of the Ray cluster have {which}, and this kernel has "
        f"{VERSION}. Nothing more was sent. Install the same version on every "
        f"node: python -m pip install 'svc-notebook[cluster]=={VERSION}'"
    )


def unusable(said: Exception, key: Key) -> SvcError:
    """Return the error for a cluster that cannot run the workers."""
    if isinstance(said, SvcError):
        return said
    # Ray says "died" of all actors if only one side wants its token
    has_token = os.environ.get("RAY_AUTH_MODE") == "token"
    why = key.redact(in_words(said))
    return ConfigError(_UNUSABLE.format(why) + _NO_AUTH * has_token)


# What a node runs


def _actor_class() -> type:
    """Return the class of the actors.

    Ray sends one that is made here by value: any node can say its version.
    """

    class SvcWorker:
        async def version(self) -> str:
            try:
                return version("svc-notebook")
            except PackageNotFoundError:
                return ""

        async def start(self, *given: Any) -> None:  # noqa: ANN401 - the actor's
            self._worker = started(*given)

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

    asked: Asked
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
    outbox: list[Asked] = field(default_factory=list)
    posted_s: float = -inf
    n_unsent: int = 0  # in a row

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
            if self.is_usable():
                self.actor.put.remote(encode_asked(batch))


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
        # no path of this machine, and nothing of how it was set, goes elsewhere
        plain = replace(settings, ledger=MEMORY, prices=None, answers=None, sources={})
        self._given = pickle.dumps((plain, key.source))
        known = ((model, settings.endpoint.limit_of(model)) for model in models)
        self._limits = {
            model: each for model, each in known if each and each.is_windowed
        }
        self.n_workers = n_workers or 0
        self._quota: Any = None
        self._numbers, self._worker_numbers = count(), count()
        self._links: list[_Link] = []
        self._is_closed = self._is_reading = False
        self._said = partial(said_by, is_usable=self._is_usable)
        self._homeless: list[_Request] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_lost = 0  # in a row
        self._problem: SvcError | None = None

    def start(self) -> None:
        """Start or join the cluster, and the workers; a ConfigError says why not."""
        self._ray = connected(self._on)
        try:
            self._start_workers()
        except BaseException as said:  # also an interrupt: it took long
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
        if self._limits:
            kind = self._ray.remote(_QuotaActor).options(num_cpus=0, max_restarts=-1)
            self._quota = kind.remote(self._limits)
        get = partial(self._ray.get, timeout=START_S)
        # an interrupt in between leaves those that there are, to be ended
        self._links.extend(self._new_link() for _ in range(self.n_workers))
        for found in get([link.actor.version.remote() for link in self._links]):
            check_version(found)  # before the key leaves this process
        quota = [self._quota.end.remote(-1)] if self._limits else []  # can it run?
        get([*quota, *map(self._start_of, self._links)])

    async def ask(
        self, request: CompletionRequest, policy: Policy
    ) -> tuple[Exchange | None, SvcError | None]:
        """Let a worker send a request; return its exchange, and its error if any."""
        if self._problem is not None:
            return None, self._problem
        if not self._is_reading:
            self._is_reading = True
            for link in self._links:
                self._begin(self._read(link))
        asked = Asked(next(self._numbers), request, policy)
        found = _Request(asked, asyncio.get_running_loop().create_future())
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
        return _Link(next(self._worker_numbers), actor, self._is_usable)

    def _is_usable(self) -> bool:
        return not self._is_closed and self._ray.is_initialized()

    def _start_of(self, link: _Link) -> Any:  # noqa: ANN401 - an object reference
        start = partial(link.actor.start.remote, self._given)
        bearer = self._key.authorization  # its value is in no local variable
        return start(bearer().removeprefix("Bearer "), link.number, self._quota)

    def _begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(self, request: _Request, *, but: _Link | None = None) -> None:
        if request.ended.done():  # it was cancelled
            return
        if links := [each for each in self._links if each is not but]:
            # one without a network fails fast, and would get more than the others
            load = (len(link.open) + UNSENT_LOAD * link.n_unsent for link in links)
            min(zip(load, count(), links, strict=False))[2].give(request)
        else:
            self._homeless.append(request)

    async def _read(self, link: _Link) -> None:
        """Read what a worker has ended, until it is gone."""
        with suppress(Exception):  # whatever Ray says of it
            while link.is_usable():
                for each in map(read_ended, await self._said(link.actor.take.remote())):
                    self._n_lost = 0
                    self._end(link, each)
        if not self._is_closed:
            self._lose(link)

    def _end(self, link: _Link, ended: Ended) -> None:
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
        self._kill(link.actor)  # it may live, where it cannot be reached
        if self._quota is not None and link.is_usable():
            with suppress(Exception):
                self._quota.end.remote(link.number)
        self._n_lost += 1
        # all of them may be on a node that dies
        if self._n_lost >= max(MOST_LOST_IN_A_ROW, 2 * self.n_workers):
            self._homeless.extend(link.open.values())
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
        if not self._is_usable():  # Ray would connect to any cluster
            self._fail(_DISCONNECTED)
            return
        try:
            link = self._new_link()
            async with asyncio.timeout(START_S):
                check_version(await self._said(link.actor.version.remote()))
                await self._said(self._start_of(link))
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
            while self._homeless:
                self._give(self._homeless.pop(0))

    def _fail(self, why: str) -> None:
        """End everything that is open, because no worker can run."""
        self._problem = ConfigError(why)
        requests = [each for link in self._links for each in link.open.values()]
        for request in (*requests, *self._homeless):
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
