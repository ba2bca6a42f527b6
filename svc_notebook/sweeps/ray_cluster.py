"""Sends a run's requests from the workers of a Ray cluster: `run.run(on="ray")`.

The driver plans, paces and retries requests and writes the ledger, as on one machine.
A worker has one client; it gets requests in blocks and returns finished exchanges.
Another actor leases the slots of known rate limits, so that all workers keep them.
"""

import asyncio
import atexit
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from math import inf
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from svc_notebook.client.rate_lease import QuotaLeases, SendAges
from svc_notebook.client.remote_worker import (
    BEAT_S,
    GATHER_S,
    RemoteWorker,
    WorkerRequest,
    WorkerResponse,
    encode_requests,
    read_response,
    send_by_worker,
    wait_for_worker,
)
from svc_notebook.client.request_pipeline import Attempt
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
from svc_notebook.ledger.ledger_file import MEMORY
from svc_notebook.service.request import CompletionRequest
from svc_notebook.settings import Settings

MOST_WORKERS = 8  # if the user gives no number
MOST_LOSSES = 5  # workers that may be lost with the same request before it fails
MOST_LOST_IN_A_ROW = 10  # workers that may be lost without a reply in between
# a worker that could not connect counts as having so many more requests
UNSENT_LOAD = 8
VERSION = version("svc-notebook")
CONNECT_S = 10.0  # longest wait for an answer from a cluster at an address
# longest wait for an actor: a busy node takes long to import the package
START_S = 180.0
GONE_S = 120.0  # a quota that did not answer for so long will not be started again
KILL_S = 2.0  # longest wait for a cluster to end a worker: its head node may be gone
START_TRIES = 3  # because Ray gives up a start after 30 s
_joined: dict[str, str] = {}  # `on` of each connection that was made here, by Ray's job


def check_address(on: object) -> str:
    """Return the address of a cluster that the user gave, or refuse it."""
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
    needed_for = f"on={on!r} needs"
    ray = _on_thread(partial(import_extra, "ray", needed_for, install="'ray[client]'"))
    _holders.forget_lost(ray)
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


def _on_thread(work: Callable[[], Any], wait_s: float = inf) -> Any:  # noqa: ANN401 - as `work`
    """Call `work` on a thread: an interrupt could leave Ray's modules broken."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as problem:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(problem)

    Thread(target=run, name="svc_notebook talks to Ray", daemon=True).start()
    try:
        return done.result(None if wait_s == inf else wait_s)
    except TimeoutError:  # Ray tries for much longer by itself
        raise TimeoutError(f"no answer within {wait_s:.0f} s") from None


class _Holders:
    """The child process that holds the connection of this kernel to a cluster.

    Ray ends a process whose cluster has lost its head node, at once or after a minute.
    So only the child joins the cluster. This process talks to the child as a Ray
    client, and is not ended.
    """

    def __init__(self) -> None:
        self.current: subprocess.Popen[str] | None = None
        self._starting = Lock()  # two runs may want to start a cluster at once

    def connect(self, ray: Any, connect: Callable[..., object], address: str) -> None:  # noqa: ANN401 - the package
        """Start a child that joins a cluster or starts one, and connect to it."""
        with self._starting:
            if ray.is_initialized():
                return
            if address == _NEW:
                _make_token()
            with without_keys():  # all processes that Ray starts would inherit them
                child = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-c", _HOLDS, address],
                    stdin=subprocess.PIPE,  # the child ends when this is closed
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # where Ray writes about each lost node
                    text=True,
                    start_new_session=True,  # so that an interrupt does not reach it
                )
            try:
                result, *details = _first_words(child)
                if result != "at":
                    raise ConnectionError(" ".join(details) or "Ray ended at once")  # noqa: TRY301 - to end the child
                port, *mode = details
                _use_token(*mode)
                connect(address=f"ray://127.0.0.1:{port}")
            except BaseException:
                self._end(child)
                raise
            self.current = child
            atexit.register(self.end, ray, os.getpid())

    def forget_lost(self, ray: Any) -> None:  # noqa: ANN401 - the package
        """Disconnect from a child that has ended, unless the user has reconnected."""
        child = self.current
        if child is None or (child.poll() is None and ray.is_initialized()):
            return
        self._end(child)
        if ray.is_initialized():
            try:
                _on_thread(ray.cluster_resources, CONNECT_S)
            except Exception:  # noqa: BLE001 - whatever Ray raises
                ray.shutdown()

    def end(self, ray: Any, process_id: int) -> None:  # noqa: ANN401 - the package
        """Disconnect and end the child when this process ends, but not in a fork."""
        child = self.current
        if child is not None and process_id == os.getpid():
            if child.poll() is None:
                ray.shutdown()
            self._end(child)

    def _end(self, child: "subprocess.Popen[str]") -> None:
        self.current = None
        with child:  # this closes its input, and waits for its end
            pass


_holders = _Holders()
_NEW = "local"  # makes Ray start a cluster instead of searching for one
_HOLDS = """
import sys
from svc_notebook.sweeps.ray_cluster import hold
hold(sys.argv[1])
"""


def _first_words(child: "subprocess.Popen[str]") -> list[str]:
    """Return the words of a child's report on its start; skip lines of Ray."""
    for line in child.stdout or ():
        if line.startswith(("at ", "no ")):
            return line.split()
    return [""]


def _make_token() -> None:
    """Make a token for the new cluster, so that Ray does not write one into a file.

    With a file ~/.ray/auth_token, all later clusters of the user would require it.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    has_token = any(os.environ.get(name) for name in names)
    if not has_token and not Path("~/.ray/auth_token").expanduser().exists():
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token_hex(32))


def _use_token(mode: str = "") -> None:
    """Let Ray use a token in this process, if the child found that there is one."""
    if mode:
        os.environ.setdefault("RAY_AUTH_MODE", mode)
        with suppress(Exception):  # Ray read the variables when it was imported
            import_module("ray._raylet").Config.initialize("")


def hold(address: str) -> None:
    """Hold a connection for another process, until stdin or the cluster ends."""
    import ray  # noqa: PLC0415 - in the child alone
    from ray.util.client.server.server import serve  # noqa: PLC0415 - as above

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options = {"include_dashboard": False} if address == _NEW else {}
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as problem:  # noqa: BLE001 - Ray raises many kinds
        sys.stdout.write(f"no {in_words(problem)}\n")
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = serve("127.0.0.1", port)
    sys.stdout.write(f"at {port} {os.environ.get('RAY_AUTH_MODE', '')}\n")
    sys.stdout.flush()
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), 1
    )  # nobody reads the rest of what Ray prints
    is_over = Event()

    def wait() -> None:
        sys.stdin.read()
        is_over.set()

    Thread(target=wait, daemon=True).start()
    n_before = 0
    while not is_over.wait(BEAT_S):
        n_clients = server.data_servicer.num_clients
        if n_before and not n_clients:  # the user called ray.shutdown()
            break
        n_before = n_clients
    ray.shutdown()


def _try_to_connect(ray: Any, on: str) -> str:  # noqa: ANN401 - the package
    """Connect to a cluster; return why that failed, or "" if it did not."""
    # lost connections are reported by this module
    logging.getLogger("ray.util.client").setLevel(logging.CRITICAL)
    logging.getLogger("ray.util.client.logsclient").disabled = True
    connect = partial(ray.init, log_to_driver=False, logging_level="ERROR")
    # RAY_ADDRESS is a variable of Ray itself
    address = os.environ.get("RAY_ADDRESS") or _NEW if on == "ray" else on
    host_port, is_there = _host_and_port(on), on == "ray"
    for n_left in reversed(range(START_TRIES)):
        try:
            if host_port:
                _on_thread(partial(_reach, *host_port), CONNECT_S)
                is_there = True
            join = partial(connect, address=address)
            if not address.startswith("ray://"):
                join = partial(_holders.connect, ray, connect, address)
            _on_thread(join, START_S)  # a busy cluster is slow to accept a connection
        except Exception as problem:  # noqa: BLE001 - Ray raises many kinds
            reason = in_words(problem)
            # a busy machine may need more than Ray's 30 s, so try again; but not if
            # nothing answers there, or if the versions differ
            if not n_left or not is_there or "version" in reason.lower():
                return (_NOT_STARTED if on == "ray" else _NOWHERE).format(on, reason)
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
    """Return the message of an error in one line, without a traceback."""
    first, *rest = str(problem).strip().splitlines() or [""]
    if first.endswith(":"):  # the reason is in the lines below
        below = rest[-1:] if "Traceback" in str(problem) else rest
        first = " ".join([first, *below])
    return " ".join(first.split())[:300].rstrip(".:") or type(problem).__name__


def check_version(theirs: str) -> None:
    """Refuse workers that lack this package, or that have another version of it."""
    if theirs == VERSION:
        return
    which = f"svc-notebook {theirs}" if theirs else "no svc-notebook"
    raise ConfigError(
        f"The workers of the Ray cluster have {which}, and this kernel has "
        f"{VERSION}. Nothing more was sent. Install the same version on every node, "
        "from where this kernel has it, and its two packages for a cluster: python -m "
        "pip install 'ray[client]' pyarrow"
    )


def unusable(problem: Exception, key: Key) -> SvcError:
    """Return the error for a cluster that cannot run the workers."""
    if isinstance(problem, SvcError):
        return problem
    # if only one side uses a token, Ray just says that all actors died
    has_token = os.environ.get("RAY_AUTH_MODE") == "token"
    reason = key.redact(in_words(problem))
    return ConfigError(_UNUSABLE.format(reason) + _NO_AUTH * has_token)


# What a node runs


def _actor_class() -> type:
    """Return the class of the actors.

    Ray sends a class that is defined in a function by value, so a node with any version
    of this package, or without it, can answer `version`. Outside of its methods the
    class must not use a name of this package, which would then be imported with it.
    """

    class SvcWorker:
        async def version(self) -> str:
            try:
                return version("svc-notebook")
            except PackageNotFoundError:
                return ""

        async def start(self, *arguments: Any) -> None:  # noqa: ANN401 - the actor's
            module = import_module("svc_notebook.sweeps.ray_cluster")
            self._worker = module.started(*arguments)

        async def put(self, batch: bytes) -> None:
            self._worker.put(batch)

        async def take(self) -> list[bytes]:
            ended: list[bytes] = await self._worker.take()
            return ended

    return SvcWorker


def started(
    settings_and_source: bytes,
    secret: str,
    number: int,
    quota: Any,  # noqa: ANN401 - an actor's handle
) -> RemoteWorker:
    """Return the worker of an actor; the key is a separate argument."""
    key = Key(secret, source="") if secret else Key.none()
    secret = ""  # a traceback may show the locals of this frame
    settings, key.source = pickle.loads(settings_and_source)  # noqa: S301 - from the driver
    lease = None if quota is None else partial(quota.lease.remote, number)
    return RemoteWorker(settings, key=key, lease=lease)


class _QuotaActor(QuotaLeases):
    """The quota of an endpoint, as an actor; Ray restarts it if its node dies."""

    def __init__(self, endpoint: Endpoint, history: SendAges) -> None:
        context = import_module("ray").get_runtime_context()
        is_restarted = (
            context.was_current_actor_reconstructed
        )  # then `history` is out of date
        super().__init__(endpoint.limit_of, history=history, is_restarted=is_restarted)


# What the driver does


@dataclass(slots=True)
class _SharedQuota:
    """The quota of a key at an endpoint, and the runs of this kernel that use it.

    Workers send a request some time after the driver allowed it, so two runs with
    separate quotas would exceed the limit together.
    """

    actor: Any
    runs: list["Cluster"] = field(default_factory=list)


_quotas: dict[object, _SharedQuota] = {}
_quotas_lock = Lock()
_worker_numbers = count()  # over all runs, because they may share a quota


@dataclass(slots=True, eq=False)
class _Request:
    """A request that has not ended."""

    message: WorkerRequest
    ended: "asyncio.Future[tuple[Exchange | None, SvcError | None]]"
    n_losses: int = 0
    is_moved: bool = False
    is_posted: bool = False  # a worker may have sent it


@dataclass(slots=True, eq=False)
class _Link:
    """The driver's side of a worker."""

    number: int
    actor: Any
    is_usable: Callable[[], bool]  # if False, a call may make Ray start a cluster
    open: dict[int, _Request] = field(default_factory=dict)  # by number
    outbox: list[WorkerRequest] = field(default_factory=list)
    posted_s: float = -inf  # when a block was last posted
    n_unsent: int = 0  # requests in a row that it could not send

    def give(self, request: _Request) -> None:
        """Give the worker a request, in a block with others of the same moment."""
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
                for message in batch:
                    if message.number in self.open:
                        self.open[message.number].is_posted = True


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
        sent_lately: Callable[[], SendAges] = dict,
    ) -> None:
        self._on = on
        self._sent_lately = sent_lately  # reads the ledger
        self._key = key
        # the paths of this machine, and the sources of settings, are not sent
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
        self._n_lost = 0  # workers lost in a row
        self._problem: SvcError | None = None

    def start(self) -> None:
        """Start or join the cluster and start the workers, or raise a ConfigError."""
        self._ray = connected(self._on)
        self._holder = _holders.current
        try:
            _on_thread(self._start_workers)
        except BaseException as caught:  # also an interrupt, since starting takes long
            self.close()
            if not isinstance(caught, Exception):
                raise
            problem = unusable(caught, self._key)
        else:
            return
        raise problem.with_traceback(None)  # without Ray's frames, which have the key

    def _start_workers(self) -> None:
        n_cpus = int(self._ray.cluster_resources().get("CPU", 1))
        self.n_workers = self.n_workers or min(max(n_cpus, 1), MOST_WORKERS)
        self._actor = self._ray.remote(_actor_class())
        get = partial(self._ray.get, timeout=START_S)
        for _ in range(self.n_workers):
            self._links.append(self._new_link())
            # an interrupt closed the others before this one was added
            if self._is_closed:
                self.close()
                return
        for theirs in get([link.actor.version.remote() for link in self._links]):
            check_version(theirs)  # before the key leaves this process
        if self._has_limits:
            self._quota = self._share_quota()
        quota = (
            [self._quota.end.remote(-1)] if self._has_limits else []
        )  # waits until it runs
        get([*quota, *map(self._start_of, self._links)])

    async def send_once(self, attempt: Attempt) -> FailedTry | None:
        """Send a request from a worker, for a request pipeline."""
        return await send_by_worker(attempt, send=self.send)

    async def send(
        self, request: CompletionRequest, policy: Policy
    ) -> tuple[Exchange | None, SvcError | None]:
        """Let a worker send a request; return the exchange and the error, if any."""
        if self._problem is not None:
            return None, self._problem
        if not self._is_reading:
            self._is_reading = True
            for link in self._links:
                self._begin(self._read(link))
            if self._quota is not None:
                self._begin(self._watch(self._quota))
        message = WorkerRequest(next(self._numbers), request, policy)
        pending = _Request(message, asyncio.get_running_loop().create_future())
        self._give(pending)
        return await pending.ended

    def close(self) -> None:
        """End the workers; their requests in flight are lost."""
        self._is_closed = True
        actors = [*(link.actor for link in self._links), self._leave_quota()]
        self._links, self._quota = [], None
        for actor in actors:
            self._kill(actor)

    def _share_quota(self) -> Any:  # noqa: ANN401 - an actor's handle
        """Join the quota of other runs of this kernel, or start one."""
        job = self._ray.get_runtime_context().get_job_id()
        limits = (self._endpoint.models, self._endpoint.limit)
        self._quota_key = (job, *self._key_at_address, *limits)
        with _quotas_lock:
            if (shared := _quotas.get(self._quota_key)) is None:
                kind = self._ray.remote(_QuotaActor)
                kind = kind.options(num_cpus=0, max_restarts=-1)
                actor = kind.remote(self._endpoint, self._sent_lately())
                shared = _SharedQuota(actor)
                _quotas[self._quota_key] = shared
            shared.runs.append(self)
        return shared.actor

    def _leave_quota(self) -> Any:  # noqa: ANN401 - an actor's handle, or None
        """Leave the quota; return its actor if no other run uses it, to end it."""
        if self._quota is None:
            return None
        with _quotas_lock:
            shared = _quotas[self._quota_key]
            shared.runs.remove(self)
            if shared.runs:
                return None
            del _quotas[self._quota_key]
        return shared.actor

    def _kill(self, actor: Any) -> None:  # noqa: ANN401 - an actor's handle
        # without a connection, Ray would make one for this call, even at exit
        if actor is not None and self._is_connected():
            with suppress(
                Exception
            ):  # it may be gone, and the head node may not answer
                _on_thread(partial(self._ray.kill, actor), KILL_S)

    def _new_link(self) -> _Link:
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        actor = self._actor.options(max_concurrency=1000, **options).remote()
        return _Link(next(_worker_numbers), actor, self._is_usable)

    def _is_usable(self) -> bool:
        return not self._is_closed and self._is_connected()

    def _is_connected(self) -> bool:
        is_held = self._holder is None or self._holder.poll() is None
        return is_held and self._ray.is_initialized()

    def _start_of(self, link: _Link) -> Any:  # noqa: ANN401 - an object reference
        start = partial(link.actor.start.remote, self._settings)
        bearer = (
            self._key.authorization
        )  # no local variable has the key, which a traceback may show
        return start(bearer().removeprefix("Bearer "), link.number, self._quota)

    def _begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(self, request: _Request, *, but: _Link | None = None) -> None:
        """Give a request to the worker with the least to do, but not to `but`."""
        if request.ended.done():  # it was cancelled
            return
        if links := [link for link in self._links if link is not but]:
            # a worker without a network fails fast, and would else get most requests
            load = (len(link.open) + UNSENT_LOAD * link.n_unsent for link in links)
            min(zip(load, count(), links, strict=False))[2].give(request)
        else:
            self._unassigned.append(request)

    async def _read(self, link: _Link) -> None:
        """Read the responses of a worker, until it is gone."""
        with suppress(Exception):  # Ray raises many errors for a worker that is gone
            while link.is_usable():
                for response in await self._answer_of(link.actor.take.remote()):
                    self._n_lost = 0
                    self._end(link, read_response(response))
        if not self._is_closed:
            self._lose(link)

    async def _watch(self, quota: Any) -> None:  # noqa: ANN401 - an actor's handle
        """End the run if its quota is gone for good, for which the workers wait."""
        clock = asyncio.get_running_loop().time
        answered_s = clock()
        while not self._is_closed and self._problem is None:
            with suppress(Exception):  # Ray is restarting it, or it is gone
                async with asyncio.timeout(GONE_S):
                    if await self._answer_of(quota.has_forgotten.remote()):
                        await self._remind(quota)
                    answered_s = clock()
            if clock() > answered_s + GONE_S and not self._is_closed:
                self._fail(_NO_QUOTA)
            await asyncio.sleep(BEAT_S)

    async def _remind(self, quota: Any) -> None:  # noqa: ANN401 - an actor's handle
        """Send a restarted quota the history of the last minute."""
        with _quotas_lock:
            runs = [*_quotas[self._quota_key].runs]
        # it is unknown whether and when requests that have not ended were sent
        open_ = [request for run in runs for request in run.open_requests()]
        await asyncio.sleep(
            BEAT_S
        )  # so that exchanges that just ended are in the ledger
        history = dict(await asyncio.to_thread(self._sent_lately))
        for request in open_:
            model = request.message.request.model
            history[model] = [*history.get(model, ()), 0.0]  # as if sent just now
        await self._answer_of(quota.recall.remote(history))

    def open_requests(self) -> list[_Request]:
        """Return the requests that have not ended."""
        of_links = (request for link in self._links for request in link.open.values())
        return [*of_links, *self._unassigned]

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
        """Give the requests of a lost worker to others, and start another worker."""
        if link in self._links:
            self._links.remove(link)
        link.outbox.clear()  # other workers get these requests
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
            request.n_losses += (
                request.is_posted
            )  # a request that was not posted did not cause the loss
            if request.n_losses < MOST_LOSSES:
                self._give(request)
            elif not request.ended.done():
                request.ended.set_result((None, NoConnectionError(_LOST)))
        self._begin(self._replace())

    async def _replace(self) -> None:
        link = None
        if not self._is_usable():  # a call would make Ray connect to some cluster
            self._fail(_DISCONNECTED)
            return
        try:
            link = self._new_link()
            async with asyncio.timeout(START_S):
                check_version(await self._answer_of(link.actor.version.remote()))
                await self._answer_of(self._start_of(link))
        except Exception as caught:  # noqa: BLE001 - whatever Ray raises
            problem = unusable(caught, self._key)
            if link is not None and problem is not caught:
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
        """End all open requests, because no worker can run.

        A request that no worker got ends with an error that stops the run, so that
        `run` sends it again.
        """
        self._problem = ConfigError(why)
        for request in self.open_requests():
            if not request.ended.done():
                kind = NoConnectionError if request.is_posted else ConfigError
                request.ended.set_result((None, kind(why)))


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
_NO_AUTH = (
    " Ray's token is in use here (RAY_AUTH_MODE=token; it is that of RAY_AUTH_TOKEN or "
    "~/.ray/auth_token). If the cluster has none, start this kernel with "
    "RAY_AUTH_MODE=disabled; if it has another one, set RAY_AUTH_TOKEN."
)
_LOST = (
    f"{MOST_LOSSES} workers of the Ray cluster ended while they had this request. It "
    "may have been billed. Look at Ray's logs; run.retry(on=...) sends it again."
)
_GO_ON = (
    "The replies so far are kept. run(on=...) sends what is missing, and retry(on=...) "
    "also what was in flight, which may have been billed."
)
_DISCONNECTED = f"This kernel was disconnected from the Ray cluster. {_GO_ON}"
_NO_QUOTA = (
    "The actor that keeps the rate limits for all workers of the Ray cluster is gone. "
    f"Look at `ray status` and at Ray's logs. {_GO_ON}"
)
_LOST_ALL = "{} workers ended in a row, without a reply. Look at Ray's logs. " + _GO_ON
