"""`Emulator`: the emulated service as an HTTP server on this machine.

It listens on 127.0.0.1 only, in its own thread. It prints nothing and does not change
signal handlers. Importing this module does not load the server.
"""

import asyncio
import atexit
import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Struct

from svc_notebook.errors import SettingsError

from .completion_writer import Pace
from .emulated_keys import FORBIDDEN_KEY, KEY, REVOKED_KEY, Keys
from .emulated_rate_limits import LIMITS
from .emulated_service import Service, Setup
from .http_values import DOCUMENTED
from .request_log import RecordedRequest, RequestLog
from .script import Script, read_script

if TYPE_CHECKING:  # asyncio and httptools load when an emulator is started
    from .http_server import HttpServer

_Count = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]
_Positive = Annotated[float, Meta(gt=0, le=1e9)]
# characters that a header can have after "Bearer "
_Keys = tuple[Annotated[str, Meta(pattern=r"^[\x21-\x7e]+\Z")], ...]

_KEYS_ALLOWED = (
    "a list of API keys; a key consists of letters, digits and other visible ASCII "
    "characters"
)
_ALLOWED = {
    "port": "an integer from 0 to 65535; 0 takes a free port",
    "tokens_per_s": "a number greater than 0, or None for no waiting",
    "first_token_s": "a number of seconds, 0 or more",
    "keep_alive_s": "a number of seconds, greater than 0",
    "seed": "an integer",
    "limits": "True, False, or a mapping of model ids to (requests per second, "
    "requests per minute)",
    "models": "a list of model ids",
    "contexts": "a mapping of model ids to tokens",
    "has_model_list": "True or False",
    "needs_key": "True or False",
    "text": "'answers' or 'filler'",
    "keys": f"{_KEYS_ALLOWED}; at least one is needed",
    "revoked": _KEYS_ALLOWED,
    "forbidden": _KEYS_ALLOWED,
}


class _Options(Struct, frozen=True, kw_only=True):
    """The arguments of `Emulator` that are plain values."""

    port: Annotated[int, Meta(ge=0, le=65535)]
    tokens_per_s: _Positive | None
    first_token_s: _Seconds
    keep_alive_s: _Positive
    seed: int
    limits: bool | dict[str, tuple[_Count, _Count]]
    models: tuple[Annotated[str, Meta(min_length=1)], ...]
    contexts: dict[str, Annotated[int, Meta(ge=1)]]
    has_model_list: bool
    needs_key: bool
    text: Literal["answers", "filler"]
    keys: Annotated[_Keys, Meta(min_length=1)]
    revoked: _Keys
    forbidden: _Keys

    def __post_init__(self) -> None:
        """Check conditions on several arguments together."""
        for first, second in combinations(("keys", "revoked", "forbidden"), 2):
            if set(getattr(self, first)) & set(getattr(self, second)):
                raise SettingsError(
                    f"{first} and {second} have a key in common; give each key in "
                    "only one of them."
                )
        served = (*DOCUMENTED, *self.models)
        unknown = set(self.model_limits) - set(served)
        if unknown:
            raise SettingsError(
                f"limits is given for the model {min(unknown)!r}, but the emulator "
                f"serves only {', '.join(served)}; add it to models."
            )

    @property
    def model_limits(self) -> Mapping[str, tuple[int, int]]:
        """Model id to requests in 1 s and in 60 s."""
        if isinstance(self.limits, bool):
            return LIMITS if self.limits else {}
        return self.limits


def _read_options(arguments: Mapping[str, object]) -> _Options:
    """Check the arguments; errors do not show keys."""
    try:
        return msgspec.convert(arguments, _Options)
    except msgspec.ValidationError as error:
        place = str(error).partition("`$.")[2]
        name = next(name for name in _ALLOWED if place.startswith(name))
        shown = "" if "key" in _ALLOWED[name] else f"{name}={arguments[name]!r}: "
        raise SettingsError(f"{shown}{name} must be {_ALLOWED[name]}.") from None


def _read_clock(name: str, clock: object) -> Callable[[], float]:
    now: Any = clock
    if callable(clock):
        try:
            now = clock()
        except Exception as error:  # noqa: BLE001 - the user's clock
            now = error
        is_number = isinstance(now, int | float) and not isinstance(now, bool)
        if is_number and math.isfinite(now):
            return clock
    raise SettingsError(
        f"{name} must be a function that returns a finite number of seconds; got "
        f"{now!r}."
    )


class Emulator:
    """The service on this machine: a context manager, plain or `async`.

    Args:
        port: The port to listen on; 0 takes a free one.
        tokens_per_s: Tokens per second of replies; None for no waiting.
        first_token_s: Seconds before the first token.
        limits: True for the document's rate limits, False for none, or a mapping of
            model ids to (requests per second, requests per minute).
        models: Model ids that are served in addition to the documented ones.
        contexts: Tokens that prompt and reply share by model, if not the document's.
        has_model_list: Whether `GET /models` lists the models, as other servers do.
        needs_key: Whether requests need a key.
        keys, revoked, forbidden: API keys that are accepted, answered with 401, and
            answered with 403.
        script: Answers instead of the emulator's own: entries, or the path of a JSON
            file with entries; see `svc_notebook.emulator.script`.
        text: "answers" answers what README.md, guides and panel ask, and says if it
            cannot (lessons bring a script); "filler" writes prose, to try out lengths.
        seed: The same seed gives the same texts, and the same requests a `share`.
        keep_alive_s: Seconds after which an idle connection is closed.
        clock: Returns seconds that never run backwards, for the rate limits.
        now: Returns the Unix time, for `created`.

    Raises:
        SettingsError: An argument or an entry of the script cannot be used; when
            started, also if the port is taken.

    Example:
        >>> with svc.Emulator(tokens_per_s=None, first_token_s=0) as emulator:
        ...     emulator.base_url.endswith("/v1")
        True
    """

    def __init__(  # noqa: PLR0913 - one keyword for each thing that can be set
        self,
        *,
        port: int = 0,
        tokens_per_s: float | None = 60.0,
        first_token_s: float = 0.2,
        limits: bool | Mapping[str, tuple[int, int]] = True,
        models: Sequence[str] = (),
        contexts: Mapping[str, int] = {},
        has_model_list: bool = False,
        needs_key: bool = True,
        keys: Sequence[str] = (KEY,),
        revoked: Sequence[str] = (REVOKED_KEY,),
        forbidden: Sequence[str] = (FORBIDDEN_KEY,),
        script: Sequence[Mapping[str, Any]] | Mapping[str, Any] | str | Path = (),
        text: Literal["answers", "filler"] = "answers",
        seed: int = 0,
        keep_alive_s: float = 75.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        options = _read_options(locals())  # takes those that are fields of `_Options`
        entries = read_script(script) if isinstance(script, str | Path) else script
        self._keys = Keys(options.keys, options.revoked, options.forbidden)
        setup = Setup(
            keys=self._keys,
            pace=Pace(
                first_token_s=options.first_token_s, tokens_per_s=options.tokens_per_s
            ),
            models=options.models,
            limits=options.model_limits,
            contexts=options.contexts,
            has_model_list=options.has_model_list,
            needs_key=options.needs_key,
            is_filler=options.text == "filler",
            seed=options.seed,
            clock=_read_clock("clock", clock),
            now=_read_clock("now", now),
        )
        self._port = options.port
        self._keep_alive_s = options.keep_alive_s
        self._log = RequestLog(self._keys, clock)
        self._service = Service(setup, Script(entries, seed=setup.seed))
        self._running: HttpServer | None = None

    @property
    def api_key(self) -> str:
        """A key that is accepted."""
        return self._keys.valid[0]

    @property
    def revoked_key(self) -> str:
        """A key that is answered with 401; empty if there is none."""
        return next(iter(self._keys.revoked), "")

    @property
    def forbidden_key(self) -> str:
        """A key that is answered with 403; empty if there is none."""
        return next(iter(self._keys.forbidden), "")

    @property
    def base_url(self) -> str:
        """The service base address, which ends in /v1.

        Raises:
            SettingsError: The emulator is not running.
        """
        if self._running is None:
            raise SettingsError("The emulator is not running; start it, or use `with`.")
        return f"{self._running.address}/v1"

    @property
    def requests(self) -> tuple[RecordedRequest, ...]:
        """The requests received, oldest first, without keys."""
        return self._log.requests()

    @property
    def n_connections(self) -> int:
        """How many connections are open now."""
        return self._running.n_connections if self._running else 0

    def wait_idle(self, timeout_s: float = 60.0) -> bool:
        """Wait until no request is running; False if one still is."""
        return self._log.wait_idle(timeout_s)

    def start(self) -> Self:
        """Start listening; a running emulator is left as it is.

        Raises:
            SettingsError: The port is taken.
        """
        if self._running is None:
            from .http_server import HttpServer  # noqa: PLC0415 - loads httptools

            self._running = HttpServer(
                self._port,
                self._service.reply,
                self._log,
                keep_alive_s=self._keep_alive_s,
            )
            atexit.register(self.close)
        return self

    def close(self) -> None:
        """Stop the server: unfinished replies are cut, and the port becomes free."""
        running, self._running = self._running, None
        if running is not None:
            running.close()
            atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        state = self.base_url if self._running else "not running"
        return f"<Emulator: {state}>"
