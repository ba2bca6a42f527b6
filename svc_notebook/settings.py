"""Settings: where requests go, how replies are shown, and where each value is set.

`from_env` and `read_env` read environment variables and the file of endpoints;
`endpoint_at` reads SVC_BASE_URL and that file.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from svc_notebook.endpoints import (
    ADDRESS_VARIABLE,
    CONFIG_VARIABLE,
    FILE,
    KEY_VARIABLE,
    SERVICE,
    Endpoint,
    config_file,
    own_endpoint,
    read_endpoints,
    to_base_url,
    to_server_url,
)
from svc_notebook.errors import ParameterError, SettingsError
from svc_notebook.service.catalogue import DEFAULT_MODEL
from svc_notebook.service.params import shown
from svc_notebook.timeouts import Timeouts

ENV_NAMES = {
    "base_url": ADDRESS_VARIABLE,
    "model": "SVC_MODEL",
    "ledger": "SVC_LEDGER",
    "display": "SVC_DISPLAY",
    "answers": "SVC_ANSWERS",
    "prices": "SVC_PRICES",
    "timeouts": "SVC_TIMEOUTS",
    "allow_http": "SVC_ALLOW_HTTP",
    "reuse": "SVC_REUSE",
    "traces": "SVC_TRACES",
}
_SET = """
Set SVC_BASE_URL (https://HOST/v1) and SVC_API_KEY (from the service's dashboard)"""
_NO_KEY = (
    '\nNo key? `%svc use emulator` (in a script, svc.use(endpoint="emulator")) answers '
    "on this machine."
)
WAYS_WITHOUT_PROMPT = f"{_SET}.{_NO_KEY}"
WAYS_ON = f"""{_SET}; \
or `%svc login https://HOST/v1`, then `%svc use https://HOST/v1`.{_NO_KEY}"""
"""The remedy if the address is missing, and possibly the key (doc: Authentication)."""
WAYS_TO_A_KEY = f"""
Set it (from the service's dashboard), or type it after `%svc login`.{_NO_KEY}"""
"""The remedy if only the key is missing."""


def no_address() -> SettingsError:
    """Return the error for a request without a base address."""
    return SettingsError(f"No base address: {ADDRESS_VARIABLE} is not set.{WAYS_ON}")


def service_address(environ: Mapping[str, str]) -> str | None:
    """Return SVC_BASE_URL in standard form; None if it is not set or not an address."""
    return _standard_form(environ.get(ADDRESS_VARIABLE, "").strip())


@lru_cache(maxsize=4)
def _standard_form(text: str) -> str | None:
    with suppress(SettingsError):
        return to_base_url(text, allow_http=True) if text else None
    return None


def _runs_cells_again() -> bool:
    """Whether this runs in marimo, which runs cells again by itself."""
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_FLAGS = ("allow_http", "reuse")
TRACES = ("off", "on", "content")
DISPLAYS = ("auto", "live", "settled", "plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that all requests of a client share.

    Attributes:
        base_url: The service's base address, ending with /v1; None if it is not set.
        model: The model of requests that name none.
        ledger: The file that keeps exchanges: a path, or `:memory:`.
        answers: A file of recorded answers to use instead of a service.
        prices: A file with a price table; None for no costs.
        display: How cells show replies: auto, live, settled or plain.
        is_emulated: Whether base_url is the emulator of this kernel.
        timeouts: How long each part of an exchange may take.
        allow_http: Whether the key may be sent unencrypted to another machine.
        endpoint: The endpoint at base_url, with its models, limits and key; by default
            the service.
        reuse: Whether the ledger answers identical requests of cells, verbs, sweeps and
            frames that do not say it themselves. In marimo the default is True.
            Conversations in Python, the panel and clients always send their requests.
        traces: Whether requests make OpenTelemetry spans: off, on, or content to
            include their texts.
        sources: Where each value was set; without those that were not set.
    """

    base_url: str | None = None
    model: str = DEFAULT_MODEL
    ledger: str = ""
    display: str = "auto"
    answers: str | None = None
    prices: str | None = None
    is_emulated: bool = False
    timeouts: Timeouts = field(default_factory=Timeouts)
    allow_http: bool = False
    reuse: bool = False
    traces: str = "off"
    endpoint: Endpoint = SERVICE
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _FLAGS:
            if not isinstance(value := getattr(self, name), bool):
                raise SettingsError(
                    f"{name} must be True or False; got {shown(value)} "
                    f"({ENV_NAMES[name]} takes 1 or 0)."
                )
        if self.base_url is not None:
            has_secret = self.endpoint.needs_key or bool(self.endpoint.variables)
            is_allowed = self.allow_http or not has_secret
            is_allowed |= self.endpoint.allow_http
            base_url = self.endpoint.url_of(self.base_url, allow_http=is_allowed)
            object.__setattr__(self, "base_url", base_url)
            endpoint = replace(self.endpoint, base_url=base_url)
            if self.endpoint.base_url not in {None, base_url}:
                # The variable's key is only for the address in the file.
                endpoint = replace(endpoint, key_env=None)
            object.__setattr__(self, "endpoint", endpoint)
        if self.display not in DISPLAYS:
            raise SettingsError(
                f"display must be one of {', '.join(DISPLAYS)}; got "
                f"{self.display!r}. Set SVC_DISPLAY to one of them."
            )
        if self.traces not in TRACES:
            raise SettingsError(
                f"traces must be one of {', '.join(TRACES)}; got "
                f"{shown(self.traces)}. Set SVC_TRACES to one of them."
            )
        if not self.ledger:
            object.__setattr__(self, "ledger", str(default_ledger(os.environ)))

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] = os.environ,
        endpoints: Mapping[str, Endpoint] | None = None,
    ) -> "Settings":
        """Read the environment; settings that it does not set keep their defaults.

        Args:
            environ: The environment variables.
            endpoints: The described endpoints, by name; those of the file if None.

        Raises:
            SettingsError: A value cannot be used; the message says what is allowed.
        """
        values: dict[str, Any] = {
            name: environ[env].strip()
            for name, env in ENV_NAMES.items()
            if environ.get(env, "").strip()
        }
        if "timeouts" in values:
            values["timeouts"] = Timeouts.from_text(values["timeouts"])
        for name in values.keys() & set(_FLAGS):
            values[name] = _WORDS.get(values[name].lower(), values[name])
        if "base_url" in values:
            values["endpoint"] = endpoint_at(values["base_url"], endpoints, environ)
        values.setdefault("ledger", str(default_ledger(environ)))
        sources = {
            name: env
            for name, env in ENV_NAMES.items()
            if name in values and env in environ
        }
        if "reuse" not in values and _runs_cells_again():
            values["reuse"], sources["reuse"] = True, "marimo"
        return cls(**values, sources=sources)

    def setting(self, source: str, **values: Any) -> "Settings":  # noqa: ANN401 - fields
        """Return the settings with these values; `source` says where they were set."""
        sources = {**self.sources, **dict.fromkeys(values, source)}
        return replace(self, **values, sources=sources)

    def reset(self, name: str, default: "Settings") -> "Settings":
        """Return the settings with one value, and its source, taken from `default`."""
        sources = {key: self.sources[key] for key in self.sources if key != name}
        if name in default.sources:
            sources[name] = default.sources[name]
        return replace(self, **{name: getattr(default, name)}, sources=sources)


def endpoint_at(
    text: str,
    endpoints: Mapping[str, Endpoint] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """Return the endpoint at an address: in the file, the service, or another server.

    The service is at SVC_BASE_URL.
    """
    base_url, query = to_server_url(text, allow_http=True)
    endpoints_by_name = read_endpoints(environ) if endpoints is None else endpoints
    for endpoint in endpoints_by_name.values():
        if endpoint.base_url in {base_url, text}:
            return replace(endpoint, query=query or endpoint.query)
    service = service_address(environ)
    if service is not None and service == service_address({ADDRESS_VARIABLE: text}):
        return endpoints_by_name.get(SERVICE.name, SERVICE)
    return own_endpoint(base_url, query)


def query_at(base_url: str) -> str:
    """Return the query of an address in the file of endpoints; "" without one."""
    with suppress(SettingsError):
        query = endpoint_at(base_url).query
        return f"?{urlencode(query)}" if query else ""
    return ""


def read_env(
    environ: Mapping[str, str],
) -> tuple[Settings, dict[str, SettingsError]]:
    """Read the environment variables, and leave out those with wrong values.

    Returns:
        The settings, and the errors by the name of the variable; an error in the file
        of endpoints has the name of the file.
    """
    problems: dict[str, SettingsError] = {}
    endpoints: Mapping[str, Endpoint] = {}
    try:
        endpoints = read_endpoints(environ)
    except SettingsError as problem:
        problems[FILE] = problem.with_traceback(None)
    allow = ENV_NAMES["allow_http"]  # read first: it decides whether http is allowed
    for name in sorted(ENV_NAMES.values(), key=lambda name: name != allow):
        together = {name} if allow in problems else {name, allow}
        try:
            Settings.from_env(
                {
                    variable: environ[variable]
                    for variable in together
                    if variable in environ
                },
                endpoints,
            )
        except SettingsError as problem:
            problems[name] = problem.with_traceback(None)
    usable = {name: environ[name] for name in environ if name not in problems}
    return Settings.from_env(usable, endpoints), problems


class Environment:
    """Follows the environment variables and the file of endpoints, and notices changes.

    It keeps only a hash of the values, because some of them are keys.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._watched: tuple[str, ...] = ()
        self._file = ""
        self._seen_mark: object = None

    def has_changed(self) -> bool:
        """Say whether a variable or the file has changed since `adopted`."""
        return self._mark() != self._seen_mark

    def adopted(
        self, settings: Settings
    ) -> tuple[Settings, Mapping[str, SettingsError]]:
        """Return the environment's settings, with those chosen in this kernel.

        The second value holds the errors, as in `read_env`.
        """
        self._watch()
        from_environment, problems = read_env(self._environ)
        sources = {
            name: source
            for name, source in settings.sources.items()
            if source not in ENV_NAMES.values()
        }
        values = {name: getattr(settings, name) for name in sources}
        endpoint = values.get("endpoint", SERVICE)
        is_of_file = sources.get("endpoint") == OF_ENDPOINT + endpoint.name
        if is_of_file and FILE not in problems:  # the file may have changed
            endpoint = read_endpoints(self._environ).get(endpoint.name, endpoint)
            values |= {"endpoint": endpoint, "base_url": endpoint.base_url}
        return replace(
            from_environment, **values, sources={**from_environment.sources, **sources}
        ), problems

    def _watch(self) -> None:
        """Note which variables and file settings and keys are now read from."""
        key_variables = [KEY_VARIABLE]
        with suppress(SettingsError):
            for endpoint in read_endpoints(self._environ).values():
                key_variables += endpoint.variables
        self._watched = (*ENV_NAMES.values(), *_PLACE_VARIABLES, *key_variables)
        self._file = config_file(self._environ)
        self._seen_mark = self._mark()

    def _mark(self) -> object:
        """Return a value that changes when a variable or the file changes."""
        values = hash(tuple(map(self._environ.get, self._watched)))
        try:
            status = os.stat(self._file)  # noqa: PTH116 - faster than Path, and called at each verb
        except OSError as problem:
            return values, problem.errno
        return values, status.st_mtime_ns, status.st_size, status.st_ino


_PLACE_VARIABLES = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME", CONFIG_VARIABLE)
"""The variables that decide where the ledger and the file of endpoints are."""
OF_ENDPOINT = "endpoint "
"""Begins the source of values that an endpoint has set; its name follows."""


def to_path(name: str, path: object) -> str:
    """Return a path as text; refuse an empty path, or a value that is not a path."""
    is_path = isinstance(path, (str, PathLike))
    if not is_path or not str(path).strip():
        problem = "empty" if is_path else type(path).__name__
        kind = "folder" if name == "folder" else "file"
        raise ParameterError(
            f"{name} is {problem}; give the path of a {kind}.", param=name
        )
    return str(path)


def default_ledger(environ: Mapping[str, str]) -> Path:
    """Return the default path of the ledger, in this user's XDG data folder."""
    data = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "svc_notebook" / "ledger.sqlite"
