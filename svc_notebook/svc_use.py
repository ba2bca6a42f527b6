"""`svc.use`: choose the endpoint, the model, the files and what may be spent."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from math import inf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never, Unpack
from urllib.parse import urlsplit

from svc_notebook.credentials import (
    Key,
    check_variables,
    find_key,
    hold,
    note_keyless,
    refuse_key_form,
    to_key,
)
from svc_notebook.endpoint_settings import (
    SETTINGS,
    ConnectionSettings,
    check_settings,
)
from svc_notebook.endpoints import (
    FILE,
    OF_SERVICE,
    SERVICE,
    Endpoint,
    facts_of,
    forget_learnt,
    is_private,
    own_endpoint,
    read_endpoints,
    to_server_url,
)
from svc_notebook.errors import MissingKeyError, ParameterError, SettingsError, warn
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ledger_file import MEMORY
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.catalogue import MODELS
from svc_notebook.service.params import (
    as_number,
    did_you_mean,
    has_address_form,
    must_be,
    with_params,
)
from svc_notebook.service.request import check_model
from svc_notebook.session import Client, Session, current
from svc_notebook.settings import (
    OF_ENDPOINT,
    TRACES,
    Settings,
    endpoint_at,
    no_address,
    to_path,
)
from svc_notebook.tracing import tracing_of

if TYPE_CHECKING:
    from svc_notebook.client.spending_limit import CostOf
    from svc_notebook.emulator.emulator import Emulator

EMULATOR_NAME, SERVICE_NAME = "emulator", SERVICE.name


LIST_S = 1.0  # longest wait for a server's list of models, when it is chosen


@with_params
def use(  # noqa: PLR0913 - one argument for each thing to choose
    *positional: Never,
    endpoint: "str | Emulator | None" = None,
    base_url: str | None = None,
    key: str | Literal[False] | None = None,
    model: str | None = None,
    ledger: str | PathLike[str] | None = None,
    prices: str | PathLike[str] | None = None,
    max_tokens_total: float | None = None,
    max_cost: float | None = None,
    traces: Literal["off", "on", "content"] | bool | None = None,
    **connection: Unpack[ConnectionSettings],
) -> None:
    """Choose the endpoint, the model, the files, and a limit on spending.

    The choice applies to this kernel. If one value is refused, nothing changes.

    Args:
        *positional: Not allowed; name every argument.
        endpoint: `emulator` starts this kernel's emulator, with its own answers; an
            `Emulator` is started and used, `service` goes to SVC_BASE_URL; another
            name is an endpoint of `svc_notebook.toml`.
        base_url: The address of the service or a server, such as https://HOST/v1.
        key: The API key for `base_url`. It is sent to no other address, and forgotten
            when the kernel ends. False for a server that needs none. If None: the key
            typed for this address; the variable `key_env` in the file, or without one
            SVC_API_KEY if this is SVC_BASE_URL; the keyring's key.
        model: The model id for requests that name none.
        ledger: The file that keeps every exchange from now on; `:memory:` for no file.
        prices: The file with your price table, for costs.
        max_tokens_total: Most tokens of prompts and replies that this kernel may use
            from now on; then requests raise a SpendingLimitError. Answers from the
            ledger do not count. `float("inf")` removes the limit.
        max_cost: A limit on the cost, in the currency of the price table.
        traces: `on` for OpenTelemetry spans, `content` with the texts, or `off`.
        **connection: Settings for requests to the endpoint, for all its models; without
            `endpoint` and `base_url`, the one in use. `headers` (a value such as
            `$LAB_TOKEN` names the variable of a secret), `query`, `key_header`, `path`
            (exactly), `extra` (fields for every request), `context` (most tokens in
            all), `max_reply` (of a reply), `max_tokens_field`, `stream_usage`.

    Raises:
        ConfigError: A key, an address or a file is missing or cannot be used.
        LedgerError: The ledger cannot be read or made.
        ParameterError: A value is not allowed, or an argument is not named.

    Example:
        >>> svc.use(endpoint="emulator")
        >>> svc.use(base_url="http://127.0.0.1:8000/v1", key=False)
    """
    given_key = None if key is False else to_key(key, source="svc.use")
    is_keyless, key = key is False, None  # a traceback may show local variables
    _check_names(endpoint, base_url, *positional)
    refuse_key_form(model, param="model")
    if isinstance(given_key, MissingKeyError):
        raise given_key
    if base_url is None and (given_key or is_keyless):
        raise ParameterError(
            "key= belongs to base_url=; give both. For SVC_BASE_URL, set SVC_API_KEY "
            "or type the key after `%svc login`.",
            param="key",
        )
    session = current()
    settings = _check_connection(connection)
    model = None if model is None else check_model(model)
    # Everything that may be refused is checked before anything changes.
    files = _check_files(ledger=ledger, prices=prices)
    limits = _check_limits(max_tokens_total=max_tokens_total, max_cost=max_cost)
    traced = _check_traces(traces)
    if limits.get("max_cost", inf) < inf and "prices" not in files:
        cost_of(session.context().prices)
    is_nothing = not {**files, **limits, **settings} and traced is None
    if endpoint is base_url is model is None and is_nothing:
        raise ParameterError(
            "Say what to use: endpoint='emulator', 'service' or a name of "
            f"{FILE}, base_url=ADDRESS, model=ID, ledger=FILE, prices=FILE, "
            f"max_tokens_total=, max_cost=, traces=, or {', '.join(SETTINGS)}.",
            param="endpoint",
        )
    secret: Key | Literal[False] | None = False if is_keyless else given_key
    has_model = model is not None
    _apply_endpoint(
        session, endpoint, base_url, settings, key=secret, has_model=has_model
    )
    for name, path in files.items():
        use_path(session, name, path, source="use")
    if model is not None:
        use_model(session, model, source="use")
    if limits:
        limit_spending(session, **limits)
    use_traces(session, traced, source="use")


def use_traces(session: Session, traces: object, *, source: str) -> None:
    """Set what is traced from now on; None changes nothing.

    Raises:
        ParameterError: The word is unknown.
        ConfigError: OpenTelemetry is not installed; the message names the command.
    """
    if word := _check_traces(traces):
        with session.lock:
            session.change(session.settings.setting(source, traces=word))


def _check_traces(traces: object) -> str | None:
    """Check `traces`, and that OpenTelemetry is installed; True means `on`."""
    if traces is None:
        return None
    words = {True: "on", False: "off"}
    word = words[traces] if isinstance(traces, bool) else traces
    if word not in TRACES:
        raise must_be("traces", f"one of {', '.join(map(repr, TRACES))}", traces)
    tracing_of(str(word))
    return str(word)


def _check_connection(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check settings for requests; return them as fields of an `Endpoint`."""
    for name in settings.keys() - SETTINGS.keys():
        raise ParameterError(
            f"use() has no argument {name!r}.{did_you_mean(name, SETTINGS, n=1)} The "
            f"settings for requests to an endpoint are {', '.join(SETTINGS)}.",
            param=name,
        )
    try:
        checked = check_settings(settings)
    except SettingsError as problem:
        message = str(problem)
        refused = ParameterError(message, param=message.partition(":")[0])
    else:
        for _, text in (*checked.get("headers", ()), *checked.get("query", ())):
            refuse_key_form(text, param="headers")
        return checked
    raise refused


def _with_connection(endpoint: Endpoint, settings: Mapping[str, Any]) -> Endpoint:
    """Return an endpoint with other settings; refuse those that the document fixes."""
    if endpoint.is_documented and (names := settings.keys() & OF_SERVICE.keys()):
        raise ParameterError(
            f"{min(names)}= is for other servers only, because the service's document "
            "fixes it. Nothing was changed.",
            param=min(names),
        )
    model_fields = {"context_tokens", "max_reply_tokens", "max_tokens_field"}
    cleared: dict[str, Any] = dict.fromkeys(model_fields & settings.keys())
    models = tuple(replace(model, **cleared) for model in endpoint.models)
    return replace(endpoint, models=models, **settings)


def _apply_endpoint(
    session: Session,
    endpoint: "str | Emulator | None",
    base_url: str | None,
    connection: Mapping[str, Any],
    *,
    key: Key | Literal[False] | None,
    has_model: bool,
) -> None:
    """Use an address, an endpoint or an emulator; or change the one in use."""
    if "path" in connection and base_url is None:
        raise ParameterError(
            "path= can only be given with base_url=, or in the file of endpoints.",
            param="path",
        )
    if base_url is not None:
        use_address(
            session, base_url, key=key, connection=connection, has_model=has_model
        )
    elif isinstance(endpoint, str):
        use_named(session, endpoint, connection=connection, has_model=has_model)
    elif endpoint is not None:
        use_emulator(session, endpoint)
    else:
        _reconnect(session, connection)
        return
    if note := session.context().answers_note:
        warn(note)


def _reconnect(session: Session, connection: Mapping[str, Any]) -> None:
    """Change the settings for requests to the endpoint in use."""
    if connection:
        changed = _with_connection(session.settings.endpoint, connection)
        check_variables(changed)
        with session.lock:
            session.change(session.settings.setting("use", endpoint=changed))


def use_named(
    session: Session,
    name: str,
    *,
    connection: Mapping[str, Any] | None = None,
    has_model: bool = False,
) -> None:
    """Use the emulator, the service or an endpoint of the file."""
    if name == EMULATOR_NAME:
        use_emulator(session)
    elif name == SERVICE_NAME:
        use_service(session)
    elif (endpoint := read_endpoints().get(name)) is not None:
        source = "use" if connection else f"{OF_ENDPOINT}{name}"
        endpoint = _with_connection(endpoint, connection or {})
        facts_of(endpoint.base_url or "").asked_s = -inf  # it may have been restarted
        _use_endpoint(session, endpoint, source=source, has_model=has_model)
        return
    else:
        raise unknown_endpoint(name)
    _reconnect(session, connection or {})


def use_address(
    session: Session,
    address: str,
    *,
    key: Key | Literal[False] | None = None,
    connection: Mapping[str, Any] | None = None,
    has_model: bool = False,
    has_list: bool = False,
) -> None:
    """Use the server at an address, with its description in the file, if any.

    `key` is False for a server that needs none. `has_model` says that the caller names
    a model, `has_list` that the server's models were listed just now.
    """
    connection = dict(connection or {})
    endpoint = address_endpoint(address, path=connection.get("path"))
    connection["query"] = (*endpoint.query, *connection.get("query", ()))
    if endpoint.is_documented:
        connection = {name: connection[name] for name in connection if connection[name]}
    endpoint = _with_connection(endpoint, connection)
    needs_key = isinstance(key, Key) or (endpoint.needs_key and key is not False)
    endpoint = replace(endpoint, needs_key=needs_key)
    is_allowed = session.settings.allow_http or endpoint.allow_http
    endpoint.url_of(address, allow_http=is_allowed or not endpoint.needs_key)
    if not has_list:  # ask again: it may have been restarted, or need the key
        facts_of(endpoint.base_url or "").asked_s = -inf
    _use_endpoint(session, endpoint, source="use", key=key or None, has_model=has_model)


def address_endpoint(address: str, *, path: str | None = None) -> Endpoint:
    """Return the endpoint at an address; `path` replaces the address's own path."""
    if path is None:
        endpoint = endpoint_at(address)
        return replace(endpoint, base_url=endpoint.url_of(address, allow_http=True))
    base_url, query = to_server_url(address, allow_http=True, path=path)
    same_address = (
        endpoint
        for endpoint in read_endpoints().values()
        if endpoint.base_url == base_url
    )
    return replace(next(same_address, own_endpoint(base_url, query)), path=path)


def answers_without_key(session: Session, address: str) -> bool:
    """Say whether a server in a private network lists its models without a key.

    A public server may list them, too, but still need a key for completions.
    """
    endpoint = replace(address_endpoint(address), needs_key=False)
    base_url = endpoint.base_url or ""
    facts_of(base_url).asked_s = -inf
    settings = replace(session.settings, base_url=base_url, endpoint=endpoint)
    settings = replace(settings, is_emulated=False)
    with Client(settings, sinks=()) as client:
        client.list_models(wait_s=LIST_S)
    host = urlsplit(base_url).hostname or ""
    return facts_of(base_url).status == HTTPStatus.OK and is_private(host)


def use_emulator(session: Session, emulator: "Emulator | None" = None) -> "Emulator":
    """Send requests to an emulator, which lives as long as this kernel."""
    used = session.start_emulator(emulator)
    endpoint = replace(SERVICE, name=EMULATOR_NAME, base_url=used.base_url)
    _switch_to(session, endpoint, source="use emulator", is_emulated=True)
    return used


def use_service(session: Session) -> None:
    """Send requests to the service that the environment names, if it has a key."""
    settings = Settings.from_env()
    find_key(base_url=settings.base_url, endpoint=settings.endpoint)
    if settings.base_url is None:
        raise no_address()
    _switch_to(session, settings.endpoint, source=settings.sources["base_url"])


def _use_endpoint(
    session: Session,
    endpoint: Endpoint,
    *,
    source: str,
    key: Key | None = None,
    has_model: bool,
) -> None:
    """Send requests to another endpoint from now on, if it has a key.

    `key` is the key of its address, kept in this process only. `has_model` says that
    the caller names a model.
    """
    base_url = endpoint.base_url or ""
    check_variables(endpoint)
    if key is not None:
        hold(key, base_url)
    else:
        find_key(base_url=base_url, endpoint=endpoint)
    note_keyless(base_url, is_keyless=not endpoint.needs_key)
    _switch_to(session, endpoint, source=source)
    if endpoint.lists_models:
        session.models(wait_s=LIST_S)
        if not has_model and endpoint.default_model is None:
            _choose_model(session)


def _choose_model(session: Session) -> None:
    """Use the only model that a server lists; no model if it lists several.

    A chosen model is kept, unless it is one of the service's models.
    """
    settings, of_service = session.settings, {model.id for model in MODELS}
    listed = [model.id for model in facts_of(settings.base_url or "").listed]
    if not listed or settings.model in listed:
        return
    if settings.model and settings.model not in of_service:
        return
    source = f"{OF_ENDPOINT}{settings.endpoint.name}"
    model = listed[0] if len(listed) == 1 else ""
    with session.lock:
        session.change(session.settings.setting(source, model=model))


def _switch_to(
    session: Session, endpoint: Endpoint, *, source: str, is_emulated: bool = False
) -> None:
    """Use an endpoint and its default model; forget what refusals have taught."""
    forget_learnt(endpoint.base_url)
    with session.lock:
        settings = session.settings
        if settings.sources.get("model", "").startswith(OF_ENDPOINT):
            settings = settings.reset("model", session.environment_settings())
        if model := endpoint.default_model:
            settings = settings.setting(f"{OF_ENDPOINT}{endpoint.name}", model=model)
        session.change(
            settings.setting(
                source,
                base_url=endpoint.base_url,
                endpoint=endpoint,
                is_emulated=is_emulated,
            )
        )


def use_model(session: Session, model: str, *, source: str) -> None:
    """Use this model for requests that name none."""
    refuse_key_form(model, param="model")
    with session.lock:
        session.change(session.settings.setting(source, model=model))


def use_reuse(session: Session, *, reuse: bool, source: str) -> None:
    """Set whether the ledger may answer requests that do not say it themselves."""
    with session.lock:
        session.change(session.settings.setting(source, reuse=reuse))


def use_path(session: Session, name: str, path: str | None, *, source: str) -> None:
    """Use a file as `ledger` or `prices`; None means the environment's setting.

    If the file is refused, the previous one stays in use.
    """
    path = None if path is None else _checked_path(name, path)
    with session.lock:
        settings = session.settings
        if path is None:
            settings = settings.reset(name, session.environment_settings())
        else:
            settings = settings.setting(source, **{name: path})
        session.change(settings)


def limit_spending(
    session: Session,
    *,
    max_tokens_total: float | None = None,
    max_cost: float | None = None,
) -> None:
    """Limit tokens, cost or both from now on: see `use`."""
    from svc_notebook.client.spending_limit import SpendingLimit  # noqa: PLC0415 - at first use

    limit = session.spending or SpendingLimit()
    if max_tokens_total is not None:
        limit.limit("tokens", max_tokens_total)
    if max_cost is not None:
        # to remove the limit takes no prices
        costs = cost_of(session.context().prices) if max_cost < inf else None
        limit.limit("cost", max_cost, cost_of=costs)
    session.spending = limit


def cost_of(prices: Prices | None) -> "CostOf":
    """Return the function that computes costs; refuse if there is no price table."""
    if prices is None:
        raise ParameterError(
            "max_cost needs a price table: svc.use(prices=FILE, max_cost=...). Without "
            "one, limit the tokens with max_tokens_total=.",
            param="max_cost",
        )
    return lambda model, prompt, completion: prices.cost(
        model, prompt_tokens=prompt, completion_tokens=completion
    )


def _checked_path(name: str, path: str) -> str:
    """Return the full path of a ledger or price table, if it can be read.

    Whether a ledger can be written is checked before a request is sent.
    """
    path = path if path == MEMORY else str(Path(path).expanduser().absolute())
    if name == "prices":
        Prices.from_file(path)
    else:
        with Ledger(path) as ledger, ledger.opened():
            pass
    return path


def known_endpoints() -> tuple[str, ...]:
    """Return the names of endpoints; without those of a file that cannot be read."""
    names = [EMULATOR_NAME, SERVICE_NAME]
    with suppress(SettingsError):
        names += read_endpoints()
    return tuple(dict.fromkeys(names))


def endpoint_notes() -> tuple[tuple[str, str], ...]:
    """Return the endpoints of the file with their addresses, for Tab."""
    with suppress(SettingsError):
        endpoints = read_endpoints().values()
        return tuple(
            (endpoint.name, endpoint.base_url)
            for endpoint in endpoints
            if endpoint.base_url
        )
    return ()


def unknown_endpoint(name: str) -> ParameterError:
    """Return the error for an unknown endpoint, with similar names."""
    read_endpoints()  # if the file cannot be read, that error explains more
    known = known_endpoints()
    return ParameterError(
        f"endpoint={name!r} is not known.{did_you_mean(name, known)} Use "
        f"{', '.join(map(repr, known))}, or describe it in {FILE}. A model is chosen "
        "with model=, an address with base_url=.",
        param="endpoint",
    )


def _check_names(endpoint: object, base_url: object, *positional: object) -> None:
    refuse_key_form(endpoint, param="endpoint")
    if positional:
        refuse_key_form(positional[0], param="key")
        first = positional[0]
        is_address = isinstance(first, str) and has_address_form(first)
        name = "base_url" if is_address else "model"
        name = "endpoint" if first in known_endpoints() else name
        value = "..." if is_address else repr(first)
        raise ParameterError(
            f"use() takes named arguments only; write svc.use({name}={value}).",
            param=name,
        )
    if endpoint is not None and base_url is not None:
        raise ParameterError(
            "Give endpoint= or base_url=, not both: an endpoint has its own address.",
            param="base_url",
        )
    is_name = isinstance(endpoint, str) and not has_address_form(endpoint)
    if not (endpoint is None or is_name or _is_emulator(endpoint)):
        raise must_be(
            "endpoint",
            "a name, or an Emulator",
            endpoint,
            hint="An address is given with base_url=.",
        )
    if isinstance(endpoint, str) and endpoint not in known_endpoints():
        raise unknown_endpoint(endpoint)


def _is_emulator(endpoint: object) -> bool:
    from svc_notebook.emulator.emulator import Emulator  # noqa: PLC0415 - at first use

    return isinstance(endpoint, Emulator)


def _check_files(**paths: object) -> dict[str, str]:
    """Check the files that are named, and return their full paths."""
    return {
        name: _checked_path(name, to_path(name, path))
        for name, path in paths.items()
        if path is not None
    }


def _check_limits(**values: object) -> dict[str, float]:
    """Check the limits on spending; infinity removes a limit."""
    limits: dict[str, float] = {}
    for name, value in values.items():
        number = as_number(value)
        if value is not None and (number is None or not number > 0):
            raise must_be(name, "a number above 0, or float('inf') for no limit", value)
        limits |= {} if number is None else {name: number}
    return limits
