"""Settings: where requests go, how long they may take, and where each value is set.

The environment comes first, and is read only when `from_env` or `read_env` is called.
Then comes `.env` in the notebook's folder, for the address and the key only:

    SVC_BASE_URL=https://HOST/v1
    SVC_API_KEY=...

The folder may be somebody else's, so the address in `.env` is used only with the key
beside it, and only if the environment has neither.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from io import StringIO
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from typing import Any

from svc_notebook.endpoint_file import FILE, files_stamp, read_endpoints
from svc_notebook.endpoints import SERVICE, Endpoint, to_base_url
from svc_notebook.errors import ParameterError, SettingsError
from svc_notebook.service.catalogue import DEFAULT_MODEL
from svc_notebook.service.checks import as_number, is_within, shorten, shown

ENV_FILE = ".env"
ADDRESS, KEY = "SVC_BASE_URL", "SVC_API_KEY"
IN_FILE = f" in {ENV_FILE}"
ADDRESS_IN_FILE, KEY_IN_FILE = ADDRESS + IN_FILE, KEY + IN_FILE  # where a value is from
_MOST_BYTES = 100_000  # more is not a file of settings


@dataclass(frozen=True, slots=True)
class EnvFile:
    """What a `.env` file says; it never shows a value.

    Attributes:
        values: Its variables; those that are empty are left out.
        problem: Why it cannot be read; "" if it can.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    problem: str = ""

    def value(self, name: str) -> str:
        """Return a variable's value; "" if it has none."""
        return self.values.get(name, "")

    def address(self, environ: Mapping[str, str]) -> str:
        """Return the address to use; "" if there is none, or it must not be used."""
        is_whole = bool(self.value(ADDRESS) and self.value(KEY))
        is_alone = not any(environ.get(name, "").strip() for name in (ADDRESS, KEY))
        return self.value(ADDRESS) if is_whole and is_alone else ""

    def completed(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with the address and the key that it takes from here.

        They are for another process, whose working folder may be another.
        """
        found = dict(environ)
        if address := self.address(environ):
            return found | {ADDRESS: address, KEY: self.value(KEY)}
        if self.value(KEY) and not (self.value(ADDRESS) or found.get(KEY, "").strip()):
            found[KEY] = self.value(KEY)
        return found

    def note(self, environ: Mapping[str, str]) -> str:
        """Say why the file or its address is not used; "" if that needs no words."""
        if self.problem:
            return f"The file {ENV_FILE} in this folder is not read: {self.problem}."
        if environ.get(ADDRESS, "").strip() or not self.value(ADDRESS):
            return ""
        if not self.value(KEY):
            return (
                f"{ADDRESS} in {ENV_FILE} is not used, since {KEY} is not in that "
                "file: a key from elsewhere is not sent to a file's address. Write "
                f"both into {ENV_FILE}, or choose the address: `%svc use ADDRESS`."
            )
        if not environ.get(KEY, "").strip():
            return ""
        return (
            f"{ADDRESS} in {ENV_FILE} is not used, since {KEY} is set outside it: that "
            f"key is not sent to a file's address. Unset {KEY} to use the file, or "
            "choose the address: `%svc use ADDRESS`."
        )


def read_env_file() -> EnvFile:
    """Read the file in the working folder, if there is one and it has changed."""
    try:
        path = os.path.join(os.getcwd(), ENV_FILE)  # noqa: PTH118, PTH109 - each request asks
        found = os.stat(path)  # noqa: PTH116 - as above
    except OSError:  # there is none, or the folder is gone
        return EnvFile()
    if not S_ISREG(found.st_mode):  # such as a virtual environment of this name
        return EnvFile()
    if found.st_size > _MOST_BYTES:
        return EnvFile(problem=f"it has more than {_MOST_BYTES} bytes")
    return _read(path, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=4)
def _read(path: str, _stamp: object) -> EnvFile:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as problem:
        return EnvFile(problem=problem.strerror or "it cannot be opened")
    except UnicodeDecodeError:
        return EnvFile(problem="it is not UTF-8")
    from dotenv import dotenv_values  # noqa: PLC0415 - only where there is a file

    # Nothing is expanded: "$" is an ordinary letter of a key.
    found = dotenv_values(stream=StringIO(text), interpolate=False)
    given = {name: (value or "").strip() for name, value in found.items()}
    return EnvFile({name: value for name, value in given.items() if value})


ENV_NAMES = {
    "base_url": "SVC_BASE_URL",
    "model": "SVC_MODEL",
    "ledger": "SVC_LEDGER",
    "display": "SVC_DISPLAY",
    "answers": "SVC_ANSWERS",
    "prices": "SVC_PRICES",
    "timeouts": "SVC_TIMEOUTS",
    "allow_http": "SVC_ALLOW_HTTP",
    "reuse": "SVC_REUSE",
}
_SET = """
Set SVC_BASE_URL (https://HOST/v1) and SVC_API_KEY (from the service's dashboard), \
also in a .env file in this folder"""
_NO_KEY = "\nNo key? `%svc use emulator` answers on this machine."
WAYS_WITHOUT_PROMPT = f"{_SET}.{_NO_KEY}"
_SET_KEY = f"""
Set it (from the service's dashboard), also in a .env file in this folder; \
or type it after `%svc login`.{_NO_KEY}"""
WAYS_ON = f"{_SET}; or `%svc login`, then `%svc use https://HOST/v1`.{_NO_KEY}"
"""What to do if a key or an address is missing (doc: Authentication)."""


def ways_on(
    environ: Mapping[str, str] = os.environ, *, has_address: bool = False
) -> str:
    """Return what to do, or why the address in this folder's `.env` is not used."""
    file = read_env_file()
    note = file.note(environ)
    ways = _SET_KEY if has_address else WAYS_ON
    return (note and f"\n{note}") + ("" if note and not file.problem else ways)


_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_FLAGS = ("allow_http", "reuse")
DISPLAYS = ("auto", "live", "settled", "plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long each part of an exchange may take, in seconds.

    Attributes:
        connect_s: To connect.
        first_byte_s: Until the headers of an answer come.
        idle_s: Between two events of a stream; comments do not count.
        whole_s, whole_token_s: For a reply in one piece: `whole_s`, plus
            `whole_token_s` for each token of `max_tokens`.
        total_s: For the whole exchange with its retries, without the wait for our own
            rate limit; None for no limit.

    Raises:
        SettingsError: One of them is not a number of seconds > 0.
    """

    connect_s: float = 10.0
    first_byte_s: float = 60.0
    idle_s: float = 60.0
    whole_s: float = 60.0
    whole_token_s: float = 0.1
    total_s: float | None = 900.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "total_s" and value is None:
                continue
            number = as_number(value)
            is_time = number is not None and is_within(number, 0, None)
            if not is_time or (number == 0 and each.name != "whole_token_s"):
                raise SettingsError(
                    f"{each.name} must be a number of seconds > 0; got {shown(value)}. "
                    f"{_TIMEOUTS_FORM}"
                )

    @classmethod
    def from_text(cls, text: str) -> "Timeouts":
        """Read what SVC_TIMEOUTS says.

        These are seconds for every time-out but the total, such as `20`; or names and
        seconds, such as `connect_s=5 idle_s=30 total_s=none`.
        """
        values: dict[str, float | None] = {}
        for part in text.replace(",", " ").split():
            name, is_named, value = part.rpartition("=")
            names = (name,) if is_named else _EVERY_WAIT
            values |= dict.fromkeys(names, _seconds(value))
            if not is_named:
                values["whole_token_s"] = 0.0
        unknown = values.keys() - {each.name for each in fields(cls)}
        if unknown:
            raise SettingsError(
                f"{min(unknown)!r} is not the name of a time-out. {_TIMEOUTS_FORM}"
            )
        return cls(**values)  # type: ignore[arg-type]  # checked as it is made


_EVERY_WAIT = ("connect_s", "first_byte_s", "idle_s", "whole_s")
_TIMEOUTS_FORM = (
    "SVC_TIMEOUTS takes seconds, such as 20, or names and seconds, such as "
    "'connect_s=5 idle_s=30 total_s=none'; the names are connect_s, first_byte_s, "
    "idle_s, whole_s, whole_token_s and total_s."
)


def _seconds(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise SettingsError(
            f"{shorten(text, 40)!r} is not a number of seconds. {_TIMEOUTS_FORM}"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is the same for all requests of a client.

    Attributes:
        base_url: The service's base address, ending with /v1; None if it is not set.
        model: The model of requests that name none.
        ledger: Where exchanges are kept: a path, or `:memory:`.
        answers: A file of recorded answers to use instead of a service.
        prices: A file with a price table; None for no costs.
        display: How cells show replies: auto, live, settled or plain.
        is_emulated: Whether base_url is the emulator of this kernel.
        timeouts: How long things may take.
        allow_http: Whether the key may be sent unencrypted to another machine.
        endpoint: What is at base_url: its models and their limits, and which key it
            takes; the service's by itself.
        reuse: Whether the ledger's answer is given back for an identical request,
            where a cell, a verb of the package, a sweep or a frame does not say.
            Conversations in Python, the panel and clients always ask.
        sources: For each value that was set, where it was set.
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
            is_allowed = self.allow_http or not self.endpoint.needs_key
            is_allowed |= self.endpoint.allow_http
            base_url = to_base_url(self.base_url, allow_http=is_allowed)
            object.__setattr__(self, "base_url", base_url)
            endpoint = replace(self.endpoint, base_url=base_url)
            object.__setattr__(self, "endpoint", endpoint)
        if self.display not in DISPLAYS:
            raise SettingsError(
                f"display must be one of {', '.join(DISPLAYS)}; got "
                f"{self.display!r}. Set SVC_DISPLAY to one of them."
            )
        if not self.ledger:
            object.__setattr__(self, "ledger", str(default_ledger(os.environ)))

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] = os.environ,
        endpoints: Mapping[str, Endpoint] | None = None,
        file: EnvFile | None = None,
    ) -> "Settings":
        """Read the environment; what it does not set keeps its default.

        Args:
            environ: The variables.
            endpoints: Those that can be at the address; those of the files if None.
            file: What may have the address instead; the `.env` file if None.

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
            values["endpoint"] = endpoint_at(values["base_url"], endpoints)
        values.setdefault("ledger", str(default_ledger(environ)))
        sources = {
            name: env
            for name, env in ENV_NAMES.items()
            if name in values and env in environ
        }
        file = read_env_file() if file is None else file
        if address := file.address(environ):
            # No other key may go there, whatever a file of endpoints says.
            own = replace(endpoint_at(address, endpoints), key_env=KEY_IN_FILE)
            values |= {"base_url": address, "endpoint": own}
            sources["base_url"] = ADDRESS_IN_FILE
        return cls(**values, sources=sources)

    def setting(self, source: str, **values: Any) -> "Settings":  # noqa: ANN401 - fields
        """Return settings with these values and where they were set."""
        sources = {**self.sources, **dict.fromkeys(values, source)}
        return replace(self, **values, sources=sources)


def endpoint_at(text: str, endpoints: Mapping[str, Endpoint] | None = None) -> Endpoint:
    """Return the endpoint that a file describes at an address, else the service's."""
    base_url = to_base_url(text, allow_http=True)
    described = read_endpoints() if endpoints is None else endpoints
    found = (each for each in described.values() if each.base_url == base_url)
    return next(found, described.get(SERVICE.name, SERVICE))


def read_env(
    environ: Mapping[str, str],
) -> tuple[Settings, dict[str, SettingsError]]:
    """Read the variables of the environment, and leave out those that are wrong.

    Returns:
        The settings from the others, and the error of each wrong one by its name; that
        of a file of endpoints is there by the name of the file.
    """
    problems: dict[str, SettingsError] = {}
    endpoints: Mapping[str, Endpoint] = {}
    try:
        endpoints = read_endpoints()
    except SettingsError as problem:
        problems[FILE] = problem.with_traceback(None)
    allow = ENV_NAMES["allow_http"]  # first: it decides whether http is right
    for name in sorted(ENV_NAMES.values(), key=lambda name: name != allow):
        given = {each: environ[each] for each in (name, allow) if each in environ}
        try:
            used = {k: v for k, v in given.items() if k not in problems}
            Settings.from_env(used, endpoints, EnvFile())
        except SettingsError as problem:
            problems[name] = problem.with_traceback(None)
    usable = {name: environ[name] for name in environ if name not in problems}
    try:
        return Settings.from_env(usable, endpoints), problems
    except SettingsError as problem:
        problems[ADDRESS_IN_FILE] = problem.with_traceback(None)
    return Settings.from_env(usable, endpoints, EnvFile()), problems


def env_values(environ: Mapping[str, str]) -> object:
    """Return the values that settings are read from, to notice a change."""
    names = (*ENV_NAMES.values(), "XDG_DATA_HOME")
    file = read_env_file().address(environ)
    return tuple(environ.get(name) for name in names), files_stamp(), file


def is_from_outside(source: str) -> bool:
    """Say whether a setting was read, from a variable or a file, or chosen here."""
    return source in {*ENV_NAMES.values(), ADDRESS_IN_FILE}


def to_path(name: str, path: object) -> str:
    """Return a path as text; refuse what is empty or not a path."""
    is_path = isinstance(path, (str, PathLike))
    if not is_path or not str(path).strip():
        found = "empty" if is_path else type(path).__name__
        kind = "folder" if name == "folder" else "file"
        raise ParameterError(
            f"{name} is {found}; give the path of a {kind}.", param=name
        )
    return str(path)


def default_ledger(environ: Mapping[str, str]) -> Path:
    """Return the ledger's place for this user (the XDG data folder)."""
    data = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "svc_notebook" / "ledger.sqlite"
