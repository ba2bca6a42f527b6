"""Settings: where requests go, how long they may take, and where each value is set.

The environment is read only when `from_env` or `read_env` is called.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from svc_notebook.errors import ParameterError, SettingsError
from svc_notebook.service.catalogue import DEFAULT_MODEL
from svc_notebook.service.checks import as_number, is_within, shorten, shown

VERSION = "v1"  # doc: Versioning
OPERATION = "chat/completions"  # doc: POST /v1/chat/completions
_OTHER_VERSION = re.compile(r"v\d+")
_RIGHT_FORM = "the right form is https://HOST/v1"


def to_base_url(text: str, *, allow_http: bool = False) -> str:
    """Return the base address in its one form, such as https://host/v1.

    The text may have a trailing slash, lack /v1, or have the path of the endpoint.

    Raises:
        SettingsError: It is not a plain address, or the key would be sent unencrypted
            to another machine, unless `allow_http` says that it may.
    """
    if not isinstance(text, str):
        raise SettingsError(
            f"The base address is {type(text).__name__}; give a text: {_RIGHT_FORM}."
        )
    cleaned = text.strip().strip("\"'")
    parts = _split(cleaned)
    path = parts.path.rstrip("/").removesuffix("/" + OPERATION).rstrip("/")
    last = path.rsplit("/", 1)[-1]
    if _OTHER_VERSION.fullmatch(last) and last != VERSION:
        raise SettingsError(
            f"The base address ends with /{last}, but only /{VERSION} is documented; "
            f"{_RIGHT_FORM}."
        )
    if last != VERSION:
        path = f"{path}/{VERSION}"
    is_clear = parts.scheme == "http" and not is_loopback(parts.hostname or "")
    if is_clear and not allow_http:
        raise SettingsError(
            f"The base address is http://{parts.netloc}: the API key would be sent "
            f"unencrypted. Use https ({_RIGHT_FORM}); http is for this machine. In a "
            "network that you trust, SVC_ALLOW_HTTP=1 allows it."
        )
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    is_clean = text.isascii() and not any(c.isspace() or c < " " for c in text)
    has_host = parts.scheme in {"http", "https"} and bool(parts.hostname)
    if not (is_plain and is_clean and has_host) or port == 0:
        raise unusable_address()
    if "%" in parts.netloc:
        raise SettingsError(
            "The base address has a % in its host. Zone ids of IPv6 addresses are not "
            "supported; set SVC_BASE_URL to a host name, or an address without one."
        )
    return parts


def unusable_address() -> SettingsError:
    """Return the error for what is not an address; a key pasted there is not shown."""
    return SettingsError(
        "The base address cannot be used: it needs https and a host, may have a "
        "port up to 65535, and has no user name, query, fragment or space; "
        f"{_RIGHT_FORM}. Set SVC_BASE_URL to it."
    )


def is_loopback(host: str) -> bool:
    """Say whether a host name means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


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
WAYS_ON = """\
You have two choices:
- With a key: set SVC_BASE_URL to the service's address, such as https://HOST/v1, and \
SVC_API_KEY to your key, or type the key after `%svc login`. Create keys in the key \
section of the service's dashboard; each is shown once, for server-side use only.
- Without a key: `%svc use emulator` starts an emulator of the service for this \
kernel."""
"""What to do if a key or an address is missing (doc: Authentication)."""

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
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _FLAGS:
            if not isinstance(value := getattr(self, name), bool):
                raise SettingsError(
                    f"{name} must be True or False; got {shown(value)} "
                    f"({ENV_NAMES[name]} takes 1 or 0)."
                )
        if self.base_url is not None:
            base_url = to_base_url(self.base_url, allow_http=self.allow_http)
            object.__setattr__(self, "base_url", base_url)
        if self.display not in DISPLAYS:
            raise SettingsError(
                f"display must be one of {', '.join(DISPLAYS)}; got "
                f"{self.display!r}. Set SVC_DISPLAY to one of them."
            )
        if not self.ledger:
            object.__setattr__(self, "ledger", str(default_ledger(os.environ)))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read the environment; what it does not set keeps its default.

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
        values.setdefault("ledger", str(default_ledger(environ)))
        sources = {
            name: ENV_NAMES[name] for name in values if ENV_NAMES[name] in environ
        }
        return cls(**values, sources=sources)

    def setting(self, source: str, **values: Any) -> "Settings":  # noqa: ANN401 - fields
        """Return settings with these values and where they were set."""
        sources = {**self.sources, **dict.fromkeys(values, source)}
        return replace(self, **values, sources=sources)


def read_env(
    environ: Mapping[str, str],
) -> tuple[Settings, dict[str, SettingsError]]:
    """Read the variables of the environment, and leave out those that are wrong.

    Returns:
        The settings from the others, and the error of each wrong one by its name.
    """
    problems: dict[str, SettingsError] = {}
    allow = ENV_NAMES["allow_http"]  # first: it decides whether http is right
    for name in sorted(ENV_NAMES.values(), key=lambda name: name != allow):
        given = {each: environ[each] for each in (name, allow) if each in environ}
        try:
            Settings.from_env({k: v for k, v in given.items() if k not in problems})
        except SettingsError as problem:
            problems[name] = problem.with_traceback(None)
    usable = {name: environ[name] for name in environ if name not in problems}
    return Settings.from_env(usable), problems


def env_values(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return the values that settings are read from, to notice a change."""
    return tuple(environ.get(name) for name in (*ENV_NAMES.values(), "XDG_DATA_HOME"))


def to_path(name: str, path: object) -> str:
    """Return a path as text; refuse what is empty or not a path."""
    is_path = isinstance(path, (str, PathLike))
    if not is_path or not str(path).strip():
        found = "empty" if is_path else type(path).__name__
        raise ParameterError(f"{name} is {found}; give the path of a file.", param=name)
    return str(path)


def default_ledger(environ: Mapping[str, str]) -> Path:
    """Return the ledger's place for this user (the XDG data folder)."""
    data = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "svc_notebook" / "ledger.sqlite"
