"""`svc_notebook.toml`: your own servers by name, with keys, models and limits.

The file lies in the notebook's folder, or in the user's configuration folder,
`~/.config/svc_notebook`; an endpoint that both describe is taken from the first. The
notebook's folder may be somebody else's, so its file

- does not set `proxy`, `ca_file` or `allow_http`;
- gives no other address to an endpoint of the user's file;
- gets a variable's key only for an address of this machine, or where the user's file
  names the same variable for the same address; SVC_API_KEY never;
- gets no key that was typed without an address.

    [lab]                                   # svc.use(endpoint="lab")
    base_url = "http://127.0.0.1:8000/v1"
    key = false                             # or key_env = "LAB_API_KEY"

    [lab.models."qwen-32b"]
    context = 32768                         # tokens of prompt and reply
    per_second = 50
    per_minute = false                      # no such limit
    in_flight = 200

    [service.models.svc-v2-8b-instruct]     # corrects the service's document
    per_minute = 500
"""

import os
import re
import ssl
import tomllib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from svc_notebook.endpoints import SERVICE, Endpoint, is_loopback, to_base_url
from svc_notebook.errors import SettingsError
from svc_notebook.service.catalogue import Limit, Model
from svc_notebook.service.checks import did_you_mean, has_address_form, shown

FILE = "svc_notebook.toml"
_RESERVED = "emulator"
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_NAME = re.compile(r"[A-Za-z][\w-]*")


def endpoint_files() -> tuple[str, ...]:
    """Return where endpoints are described, the first place first."""
    here = ""
    with suppress(OSError):  # the folder may be gone
        here = os.getcwd()  # noqa: PTH109 - each request asks
    return _places(here, os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME"))


@lru_cache(maxsize=4)
def _places(here: str, config: str | None, _home: str | None) -> tuple[str, ...]:
    home = config or os.path.expanduser("~/.config")  # noqa: PTH111 - without a home, too
    own = str(Path(home, "svc_notebook", FILE))
    return (str(Path(here, FILE)), own) if here else (own,)


def read_endpoints() -> dict[str, Endpoint]:
    """Return the endpoints of the files by name; a file that is absent has none.

    Raises:
        SettingsError: A file cannot be used; the message names the line.
    """
    stamped = files_stamp()
    if not any(at for _, at in stamped):
        return {}
    own_path = stamped[-1][0]
    read = {
        path: _read(path, at, is_own=_is_own(path, own_path))
        for path, at in stamped
        if at is not None
    }
    _check_keys(read.items())
    own = read.get(own_path, {})
    found = dict(own)
    for path, endpoints in read.items():
        if endpoints is not own and not _is_own(path, own_path):
            _check_addresses(path, endpoints, own)
            found |= {name: _limited(each, own) for name, each in endpoints.items()}
    return found


def user_file() -> str:
    """Return the path of the user's own file; another may be somebody else's."""
    return endpoint_files()[-1]


def _is_own(path: str, own_path: str) -> bool:
    """Say whether a file is the user's, also where that is the notebook's folder."""
    with suppress(OSError):
        return path == own_path or os.path.samefile(path, own_path)  # noqa: PTH121 - as above
    return False


def _check_addresses(
    path: str, endpoints: Mapping[str, Endpoint], own: Mapping[str, Endpoint]
) -> None:
    """Refuse another address for an endpoint of the user's file."""
    for name in endpoints.keys() & own.keys():
        here, there = endpoints[name].base_url, own[name].base_url
        if here != there:
            raise SettingsError(
                f"{path}: [{name}] has the address {here}, but {user_file()} says "
                f"{there}. A folder's file may be somebody else's, so it does not "
                "move an endpoint of yours. Give it another name there, or make both "
                "addresses the same."
            )


def _limited(each: Endpoint, own: Mapping[str, Endpoint]) -> Endpoint:
    """Return an endpoint of the folder with what the user's file allows it."""
    known = own.get(each.name, SERVICE)
    is_service = each.name == SERVICE.name and each.key_env in {None, _SERVICE_KEY}
    is_users = is_service or any(
        (other.base_url, other.key_env) == (each.base_url, each.key_env)
        for other in own.values()
    )
    is_here = is_loopback(urlsplit(each.base_url or "").hostname or "")
    return replace(
        each,
        **{name: getattr(known, name) for name in _CONNECTION},
        is_users=is_users,
        takes_env_key=is_users
        or (is_here and each.key_env not in {None, _SERVICE_KEY}),
    )


def files_stamp() -> tuple[tuple[str, object], ...]:
    """Return what changes when a file does."""
    return tuple((path, _stamp(path)) for path in endpoint_files())


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return problem.errno  # reading it says what is wrong
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=16)
def _read(name: str, _stamp: object, *, is_own: bool) -> Mapping[str, Endpoint]:
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8-sig")
        tables = tomllib.loads(text)
    except OSError as problem:
        raise _unreadable(path, problem.strerror) from None
    except ValueError as problem:  # of TOML and UTF-8
        is_text = isinstance(problem, tomllib.TOMLDecodeError)
        why = str(problem) if is_text else "it is not UTF-8"
        raise _unreadable(path, f"it is not TOML: {why}") from None
    return {
        name: _Reader(path, text, name, is_own).endpoint(tables[name])
        for name in tables
    }


def _unreadable(path: Path, why: str | None) -> SettingsError:
    return SettingsError(
        f"The file {path} cannot be read ({why}). Correct it, or remove it if you do "
        "not need its endpoints."
    )


def _check_keys(read: Iterable[tuple[str, Mapping[str, Endpoint]]]) -> None:
    """Refuse a key that would be sent to several servers, from one file or from two."""
    servers: dict[str, tuple[str, str, tuple[str, str]]] = {}
    described = [(path, each) for path, found in read for each in found.values()]
    for path, each in described:
        if each.key_env:
            server = origin(each.base_url or _service_address())
            first = servers.setdefault(each.key_env, (path, each.name, server))
            if server != first[2]:
                other = "" if first[0] == path else f" of {first[0]}"
                raise SettingsError(
                    f"{path}: [{first[1]}]{other} and [{each.name}] have the key of "
                    f"{each.key_env}, but are on different hosts or ports, or one has "
                    "http. A key is for one server only; give each endpoint its own "
                    "variable."
                )


def origin(address: str | None) -> tuple[str, str]:
    """Return the scheme and the host with its port: what a variable's key is for."""
    parts = urlsplit(address or "")
    return parts.scheme, parts.netloc


def _service_address() -> str:
    return os.environ.get("SVC_BASE_URL", "").strip().strip("\"'")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the table of one endpoint; what is wrong is named with its line."""

    path: Path
    text: str
    name: str
    is_own: bool

    def endpoint(self, table: object) -> Endpoint:
        """Return the endpoint that a table describes."""
        if not isinstance(table, Mapping):
            raise self._wrong("", f"{self.name} must be a table: write [{self.name}]")
        if not _NAME.fullmatch(self.name) or self.name == _RESERVED:
            raise self._wrong(
                "",
                "the name of an endpoint has letters, digits, - and _, and is not "
                f"{_RESERVED}",
            )
        self._check_names(table, ENDPOINT_KEYS)
        self._check_connection(table)
        given: dict[str, Any] = {
            name: self._value(name, table[name]) for name in _KINDS if name in table
        }
        if "model" in given:
            given["default_model"] = given.pop("model")
        given |= self._key(table)
        limit = self._limit(table, SERVICE.limit)
        models = self._models(table.get("models", {}), limit)
        if self.name == SERVICE.name:
            if "base_url" in table:
                raise self._wrong("base_url", "the service's is set by SVC_BASE_URL")
            return replace(SERVICE, **given, limit=limit, models=_merged(models))
        only = models[0].id if len(models) == 1 else None
        return Endpoint(
            **{"default_model": only, "lists_models": True, **given},
            name=self.name,
            base_url=self._address(table, given),
            models=models,
            limit=limit,
        )

    def _check_connection(self, table: Mapping[str, Any]) -> None:
        """Refuse what would let somebody else's file see a key or a prompt."""
        for name in () if self.is_own else _CONNECTION:
            if name in table:
                raise self._wrong(
                    name,
                    f"is not allowed here. Move it to {user_file()}; a folder's file "
                    "may be somebody else's",
                )

    def _address(self, table: Mapping[str, Any], given: Mapping[str, Any]) -> str:
        if not isinstance(table.get("base_url"), str):
            raise self._wrong("base_url", 'write base_url = "https://HOST/v1"')
        is_keyless = not given.get("needs_key", True)
        allow_http = given.get("allow_http", False) or is_keyless
        try:
            return to_base_url(table["base_url"], allow_http=allow_http)
        except SettingsError as problem:
            found = str(problem).removesuffix(".")
        raise self._wrong("base_url", found)

    def _key(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Read which variable has the key; a key itself is refused, and not shown."""
        key, key_env = table.get("key", True), table.get("key_env")
        is_name = isinstance(key_env, str) and _ENV_NAME.fullmatch(key_env)
        if not isinstance(key, bool) or not (key_env is None or is_name):
            raise self._key_refused("key_env" if isinstance(key, bool) else "key")
        if key_env is not None and not key:
            raise self._wrong("key", "remove either key = false or key_env")
        return {"needs_key": key, "key_env": key_env}

    def _key_refused(self, setting: str) -> SettingsError:
        variable = re.sub(r"\W", "_", self.name).upper() + "_API_KEY"
        return self._wrong(
            setting,
            "a key does not belong in a file. Set the environment variable "
            f'{variable} to it and write key_env = "{variable}" here; or key = false '
            "for a server that needs none",
        )

    def _value(self, name: str, value: object) -> object:
        kind, words = _KINDS[name]
        if not isinstance(value, kind) or value == "":
            raise self._wrong(name, f"must be {words}; got {shown(value)}")
        found = self._full(value) if name in _PATHS else value
        if name == "ca_file" and not _has_certificates(str(found)):
            raise self._wrong(name, "must be a readable file with certificates (PEM)")
        if name == "proxy" and not _is_proxy(str(found)):
            raise self._wrong(name, "must be http://HOST:PORT, or the same with https")
        return found

    def _full(self, path: object) -> str:
        """Return a path that is written as seen from the file."""
        return str(self.path.parent / Path(str(path)).expanduser())

    def _models(self, tables: object, limit: Limit | None) -> tuple[Model, ...]:
        if not isinstance(tables, Mapping):
            raise self._wrong("models", f'write [{self.name}.models."MODEL"]')
        return tuple(self._model(each, tables[each], limit) for each in tables)

    def _model(self, model_id: str, table: object, limit: Limit | None) -> Model:
        if not isinstance(table, Mapping) or has_address_form(model_id):
            raise self._wrong("models", f'write [{self.name}.models."MODEL"]')
        self._check_names(table, MODEL_KEYS, model_id)
        is_service = self.name == SERVICE.name
        known = SERVICE.model(model_id) if is_service else Model(model_id)
        return replace(
            known,
            context_tokens=self._count(table, "context", model_id),
            limit=self._limit(table, known.limit or limit, model_id),
        )

    def _limit(
        self, table: Mapping[str, Any], known: Limit | None, model_id: str = ""
    ) -> Limit | None:
        """Return the limit of a table; what it leaves out is taken from a known one."""
        given = {name: self._count(table, name, model_id) for name in _LIMITS}
        counts = {
            name: (each or None) if each is not None else getattr(known, name, None)
            for name, each in given.items()
        }
        is_said = any(each is not None for each in given.values())
        return Limit(**counts) if is_said else known

    def _count(self, table: Mapping[str, Any], name: str, model_id: str) -> int | None:
        """Return a number, 0 for false, None if it is not set."""
        value = table.get(name)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value is None or is_count:
            return value
        if value is False and name in _LIMITS:
            return 0
        other = ", or false for no such limit" if name in _LIMITS else ""
        said = f"must be an integer >= 1{other}; got {shown(value)}"
        raise self._wrong(name, said, model_id)

    def _check_names(
        self, table: Mapping[str, Any], known: Collection[str], model_id: str = ""
    ) -> None:
        for name in table:
            if name not in known and _SECRET.search(name):
                raise self._key_refused(name)
            if name not in known:
                near = did_you_mean(name, known, n=1)
                raise self._wrong(
                    name,
                    f"there is no such setting.{near} The settings are "
                    f"{', '.join(known)}",
                    model_id,
                )

    def _wrong(self, setting: str, why: str, model_id: str = "") -> SettingsError:
        where = f'[{self.name}.models."{model_id}"]' if model_id else f"[{self.name}]"
        line = self._line(setting, model_id)
        named = f"{where} {setting}" if setting else where
        return SettingsError(f"{self.path}, line {line}: {named}: {why}.")

    def _line(self, setting: str, model_id: str) -> int:
        """Return the line of a setting, else the one where its table begins."""
        found, inside = 1, False
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := _HEADER.match(line):
                names = re.sub(r"[\"'\s]", "", header[1])
                wanted = f"{self.name}.models.{model_id}" if model_id else self.name
                inside = names == re.sub(r"\s", "", wanted)
                found = number if inside else found
            elif inside and re.match(rf"\s*[\"']?{re.escape(setting)}[\"']?\s*=", line):
                return number if setting else found
        return found


_KINDS: Mapping[str, tuple[type, str]] = {
    "model": (str, "the id of a model"),
    "prices": (str, "the path of a price table"),
    "allow_http": (bool, "true or false"),
    "stream_usage": (bool, "true or false"),
    "ca_file": (str, "the path of a file with certificates"),
    "proxy": (str, "the address of a proxy"),
}
"""The settings that are taken as they are, with what they may be."""
_PATHS = ("prices", "ca_file")
_CONNECTION = ("proxy", "ca_file", "allow_http")
"""The settings of the user's file alone."""
_SERVICE_KEY = "SVC_API_KEY"
_LIMITS = {
    "per_second": "most requests to a model within a second; false for no such limit",
    "per_minute": "most requests to a model within a minute; false for no such limit",
    "in_flight": "most requests to a model at a time; false for no such limit",
}
ENDPOINT_KEYS = {
    "base_url": "the address, ending with /v1; not for `service` (SVC_BASE_URL)",
    "key": "false if the server needs no key; a key itself does not belong in a file",
    "key_env": "the environment variable that has the key",
    "model": "the model of requests that name none; if left out, its only model",
    "prices": "a price table for this endpoint, as a path seen from the file",
    "allow_http": "true lets a key be sent unencrypted (user's file only)",
    "stream_usage": "true asks for usage at the end of each stream",
    "ca_file": "certificates (PEM), as a path seen from the file (user's only)",
    "proxy": "http://HOST:PORT, instead of the environment's (user's file only)",
    **_LIMITS,
    "models": "a table for each model, such as [lab.models.qwen-32b]",
}
"""What the table of an endpoint may have, and what it means."""
MODEL_KEYS = {"context": "most tokens of prompt and reply together", **_LIMITS}
"""What the table of a model may have."""
_SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")


def _has_certificates(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError):  # SSLError is an OSError
        return False
    return True


def _is_proxy(text: str) -> bool:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        return parts.scheme in {"http", "https"} and bool(parts.hostname and parts.port)
    except ValueError:
        return False


def _merged(models: tuple[Model, ...]) -> tuple[Model, ...]:
    """Return the service's models, corrected by those that a file describes."""
    known = {each.id: each for each in SERVICE.models}
    return tuple((known | {each.id: each for each in models}).values())
