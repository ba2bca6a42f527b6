"""`svc_notebook.toml`: your own servers by name, with keys, models and limits.

The file is yours: `~/.config/svc_notebook/svc_notebook.toml`. SVC_CONFIG names another
one instead, such as your team's. No file in a notebook's folder is read.

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
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from svc_notebook.endpoints import (
    ADDRESS_VARIABLE,
    KEY_VARIABLE,
    SERVICE,
    Endpoint,
    to_base_url,
)
from svc_notebook.errors import SettingsError
from svc_notebook.service.catalogue import Limit, Model
from svc_notebook.service.checks import did_you_mean, has_address_form, shown

FILE = "svc_notebook.toml"
CONFIG_VARIABLE = "SVC_CONFIG"
_RESERVED = "emulator"
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_NAME = re.compile(r"[A-Za-z][\w-]*")


def config_file(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of the file of endpoints, whether or not it exists."""
    if named := environ.get(CONFIG_VARIABLE, "").strip():
        return os.path.expanduser(named)  # noqa: PTH111 - without a home, too
    folder = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - as above
    return os.path.join(folder, "svc_notebook", FILE)  # noqa: PTH118 - as above


def read_endpoints() -> Mapping[str, Endpoint]:
    """Return the endpoints of the file by name; without a file there are none.

    Raises:
        SettingsError: The file cannot be used; the message names the line.
    """
    path = config_file()
    stamp = _stamp(path)
    if stamp is None and os.environ.get(CONFIG_VARIABLE, "").strip():
        raise SettingsError(
            f"{CONFIG_VARIABLE} names {path}, which does not exist. Correct the path, "
            "or unset the variable to use your own file."
        )
    return {} if stamp is None else _read(path, stamp)


def _stamp(path: str) -> object:
    """Return what changes when a file does; None if there is no such file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - of a text path
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return problem.errno  # reading it says what is wrong
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=4)
def _read(name: str, _stamp: object) -> Mapping[str, Endpoint]:
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
    endpoints = {
        name: _Reader(path, text, name).endpoint(tables[name]) for name in tables
    }
    _check_variables(path, endpoints.values())
    return endpoints


def _unreadable(path: Path, why: str | None) -> SettingsError:
    return SettingsError(
        f"The file {path} cannot be read ({why}). Correct it, or remove it if you do "
        "not need its endpoints."
    )


def _check_variables(path: Path, endpoints: Iterable[Endpoint]) -> None:
    """Refuse a variable whose key would be sent to several servers."""
    first_with: dict[str, Endpoint] = {}
    for endpoint in endpoints:
        if endpoint.key_env is None:
            continue
        first = first_with.setdefault(endpoint.key_env, endpoint)
        if _server(first) != _server(endpoint):
            raise SettingsError(
                f"{path}: [{first.name}] and [{endpoint.name}] have the key of "
                f"{endpoint.key_env}, but are on different hosts or ports, or one has "
                "http. A key is for one server only; give each endpoint its own "
                "variable."
            )


def _server(endpoint: Endpoint) -> tuple[str, str]:
    """Return the scheme and the host with its port: what a variable's key is for."""
    parts = urlsplit(endpoint.base_url or "")
    return parts.scheme, parts.netloc


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the table of one endpoint; what is wrong is named with its line."""

    path: Path
    text: str
    name: str

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
        fields: dict[str, Any] = {
            name: self._value(name, table[name]) for name in _KINDS if name in table
        }
        if "model" in fields:
            fields["default_model"] = fields.pop("model")
        fields |= self._key(table)
        limit = self._limit(table, SERVICE.limit)
        models = self._models(table.get("models", {}), limit)
        if self.name == SERVICE.name:
            for name in table.keys() & _OF_SERVICE.keys():
                raise self._wrong(name, f"the service's is set by {_OF_SERVICE[name]}")
            return replace(SERVICE, **fields, limit=limit, models=_merged(models))
        only = models[0].id if len(models) == 1 else None
        return Endpoint(
            **{"default_model": only, "lists_models": True, **fields},
            name=self.name,
            base_url=self._address(table, fields),
            models=models,
            limit=limit,
        )

    def _address(self, table: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
        if not isinstance(table.get("base_url"), str):
            raise self._wrong("base_url", 'write base_url = "https://HOST/v1"')
        is_keyless = not fields.get("needs_key", True)
        allow_http = fields.get("allow_http", False) or is_keyless
        try:
            return to_base_url(table["base_url"], allow_http=allow_http)
        except SettingsError as problem:
            why = str(problem).removesuffix(".")
        raise self._wrong("base_url", why)

    def _key(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Read which variable has the key; a key itself is refused, and not shown."""
        key, key_env = table.get("key", True), table.get("key_env")
        is_name = isinstance(key_env, str) and _ENV_NAME.fullmatch(key_env)
        if not isinstance(key, bool) or not (key_env is None or is_name):
            raise self._key_refused("key_env" if isinstance(key, bool) else "key")
        if key_env is not None and not key:
            raise self._wrong("key", "remove either key = false or key_env")
        if key_env == KEY_VARIABLE:
            raise self._wrong(
                "key_env",
                f"{KEY_VARIABLE} is for {ADDRESS_VARIABLE} only. Give this endpoint "
                "its own variable, or leave key_env out where it has that address",
            )
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
        if name in _PATHS:
            value = self._full(value)
        if name == "ca_file" and not _has_certificates(str(value)):
            raise self._wrong(name, "must be a readable file with certificates (PEM)")
        if name == "proxy" and not _is_proxy(str(value)):
            raise self._wrong(name, "must be http://HOST:PORT, or the same with https")
        return value

    def _full(self, path: object) -> str:
        """Return a path that is written as seen from the file."""
        return str(self.path.parent / Path(str(path)).expanduser())

    def _models(self, tables: object, limit: Limit | None) -> tuple[Model, ...]:
        if not isinstance(tables, Mapping):
            raise self._wrong("models", f'write [{self.name}.models."MODEL"]')
        return tuple(self._model(name, tables[name], limit) for name in tables)

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
        stated = {name: self._count(table, name, model_id) for name in _LIMITS}
        if not any(count is not None for count in stated.values()):
            return known
        counts = {
            # 0 is what `false` was read as: no such limit
            name: (count or None) if count is not None else getattr(known, name, None)
            for name, count in stated.items()
        }
        return Limit(**counts)

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
        table_line, inside = 1, False
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := _HEADER.match(line):
                names = re.sub(r"[\"'\s]", "", header[1])
                wanted = f"{self.name}.models.{model_id}" if model_id else self.name
                inside = names == re.sub(r"\s", "", wanted)
                table_line = number if inside else table_line
            elif inside and re.match(rf"\s*[\"']?{re.escape(setting)}[\"']?\s*=", line):
                return number if setting else table_line
        return table_line


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
_OF_SERVICE = {"base_url": ADDRESS_VARIABLE, "key_env": KEY_VARIABLE}
"""The settings that `[service]` does not have, and the variables that set them."""
_LIMITS = {
    "per_second": "most requests to a model within a second; false for no such limit",
    "per_minute": "most requests to a model within a minute; false for no such limit",
    "in_flight": "most requests to a model at a time; false for no such limit",
}
ENDPOINT_KEYS = {
    "base_url": "the address, ending with /v1; not for `service` (SVC_BASE_URL)",
    "key": "false if the server needs no key; a key itself does not belong in a file",
    "key_env": "the environment variable that has the key; not for `service`",
    "model": "the model of requests that name none; if left out, its only model",
    "prices": "a price table for this endpoint, as a path seen from the file",
    "allow_http": "true lets a key be sent unencrypted",
    "stream_usage": "true asks for usage at the end of each stream",
    "ca_file": "certificates (PEM), as a path seen from the file",
    "proxy": "http://HOST:PORT, instead of the environment's",
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
    known = {model.id: model for model in SERVICE.models}
    return tuple((known | {model.id: model for model in models}).values())
