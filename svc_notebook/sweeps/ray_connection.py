"""The connection to a Ray cluster: what `on` of a run may be, and how it is reached."""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from svc_notebook.credentials import Key
from svc_notebook.errors import ConfigError, ParameterError
from svc_notebook.service.checks import check_int

VERSION = version("svc-notebook")
CONNECT_S = 10.0  # to reach a cluster that is said to be there
START_S = 180.0  # until it runs what we start: a busy node needs long to import it
INSTALL = "python -m pip install 'svc-notebook[cluster]'"


def place_of(on: object, workers: object, *, is_shown: bool = False) -> dict[str, Any]:
    """Check where a run is to be sent from; return it as `SendOptions` has it."""
    if on is workers is None:
        return {}
    if on is None:
        raise ParameterError(
            "workers is for a run on a cluster; give on='ray', too.", param="workers"
        )
    address = on.strip() if isinstance(on, str) else ""
    if not (address in {"ray", "auto"} or _host_and_port(address)):
        raise ParameterError(
            f"on must be 'ray' (a cluster on this machine), 'auto' (the one that this "
            f"machine is in) or an address such as 'ray://HOST:10001'; got {on!r}. "
            "None sends from this process.",
            param="on",
        )
    if is_shown:
        raise ParameterError(
            "show is called with pieces of replies, which workers of a cluster do not "
            "send. Leave out show or on.",
            param="show",
        )
    if workers is not None:
        check_int("workers", workers, minimum=1, otherwise="or None to choose")
    return {"on": address, "n_workers": workers}


def _host_and_port(address: str) -> tuple[str, int] | None:
    with suppress(ValueError):
        parts = urlsplit(address if "//" in address else f"//{address}")
        if parts.scheme in {"", "ray"} and parts.hostname and parts.port:
            return parts.hostname, parts.port
    return None


def connected(on: str) -> Any:  # noqa: ANN401 - the package
    """Return the package Ray, connected; a connection that there is already is used."""
    try:
        ray = import_module("ray")
    except ImportError:
        raise ConfigError(
            f"on={on!r} needs Ray, which is not installed. Install it with: {INSTALL}"
        ) from None
    connect = partial(ray.init, log_to_driver=False, logging_level="ERROR")
    if ray.is_initialized():
        return ray
    if on == "ray":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray's makers need none
        connect(include_dashboard=False)
    elif said := _problem_of(partial(connect, address=on), on):
        raise ConfigError(
            f"There is no Ray cluster at {on!r}: {said}. Nothing was sent. Start one "
            "with `ray start --head`, correct the address, or use on='ray' for a "
            "cluster on this machine."
        )
    return ray


def _problem_of(connect: Callable[[], object], on: str) -> str:
    """Connect to a cluster that is said to be there; return why not, "" if it is."""
    problems: list[Exception] = []
    place, is_reached = _host_and_port(on), Event()

    def work() -> None:
        try:
            if place:
                _reach(*place)
                is_reached.set()
            connect()
        except Exception as problem:  # noqa: BLE001 - Ray raises many kinds
            problems.append(problem)

    # Ray tries for much longer by itself
    thread = Thread(target=work, name="svc_notebook connects to Ray", daemon=True)
    thread.start()
    thread.join(CONNECT_S)
    if is_reached.is_set():  # it is there; a busy one needs long to let us in
        thread.join(START_S)
    if thread.is_alive():
        return f"no answer within {CONNECT_S:.0f} s"
    return first_line(problems[0]) if problems else ""


def _reach(host: str, port: int) -> None:
    """Raise an error if nothing that speaks Ray's protocol is at an address."""
    socket.create_connection((host, port), timeout=CONNECT_S).close()
    with suppress(ImportError):
        if os.environ.get("RAY_USE_TLS", "0") == "0":
            grpc = import_module("grpc")
            channel = grpc.insecure_channel(f"{host}:{port}")
            grpc.channel_ready_future(channel).result(timeout=2 * CONNECT_S)
            channel.close()


def first_line(problem: Exception) -> str:
    """Return the first line of what an error says."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0][:300].rstrip(".")


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


def unusable(problem: Exception, key: Key) -> ConfigError:
    """Return the error for a cluster that cannot run the workers."""
    return ConfigError(
        "The Ray cluster cannot run the workers: "
        f"{key.redact(first_line(problem))}. Nothing more was sent. Look at `ray "
        "status` and at Ray's logs."
    )
