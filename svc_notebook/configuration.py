"""`svc.use`: choose the endpoint, the model, the files and what may be spent."""

import os
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Literal, Never

from svc_notebook.credentials import Key, refuse_key_form, to_key
from svc_notebook.endpoint_file import FILE, read_endpoints
from svc_notebook.endpoints import own_endpoint, to_base_url
from svc_notebook.errors import MissingKeyError, ParameterError, SettingsError, warn
from svc_notebook.service.checks import (
    as_number,
    did_you_mean,
    has_address_form,
    must_be,
)
from svc_notebook.service.request import check_model
from svc_notebook.session import Session, checked_path, cost_of, current
from svc_notebook.settings import ADDRESS_IN_FILE, endpoint_at, read_env, to_path

if TYPE_CHECKING:
    from svc_notebook.emulator.server import Emulator

EMULATOR, SERVICE = "emulator", "service"


def use(  # noqa: PLR0913 - one for each thing that can be chosen
    *positional: Never,
    endpoint: "str | Emulator | None" = None,
    base_url: str | None = None,
    key: str | Literal[False] | None = None,
    model: str | None = None,
    ledger: str | PathLike[str] | None = None,
    prices: str | PathLike[str] | None = None,
    max_tokens_total: float | None = None,
    max_cost: float | None = None,
) -> None:
    """Choose where requests go, their model, where they are kept, what may be spent.

    It holds for this kernel. If a part is refused, nothing changes.

    Args:
        *positional: Not allowed; name every argument.
        endpoint: `emulator` starts an emulator of the service for this kernel, an
            `Emulator` is started and used, `service` goes to SVC_BASE_URL; another
            name is an endpoint of `svc_notebook.toml`.
        base_url: The address of the service or a server, such as https://HOST/v1.
        key: The API key for `base_url`, which goes to no other address and is forgotten
            when the kernel ends; False for a server that needs none. If None, it is
            looked for: SVC_API_KEY, `.env` in this folder, Colab's secrets, a keyring.
        model: The model id for requests that name none.
        ledger: The file that keeps every exchange from now on; `:memory:` for no file.
        prices: The file with your price table, for costs.
        max_tokens_total: Most tokens, of prompts and replies together, that this
            kernel may use from now on; then requests raise a SpendingLimitError.
            Answers from the ledger do not count. `float("inf")` removes the limit.
        max_cost: The same for the cost, in the currency of the price table.

    Raises:
        ConfigError: The key or the address is missing or cannot be used, or a file
            holds no price table or no endpoint of this name.
        LedgerError: The ledger cannot be read or made.
        ParameterError: A value is not allowed, or an argument is not named.

    Example:
        >>> svc.use(endpoint="emulator")
        >>> svc.use(base_url="http://127.0.0.1:8000/v1", key=False)
    """
    found = None if key is False else to_key(key, source="svc.use")
    is_keyless, key = key is False, None  # a traceback may show the locals
    _check_names(endpoint, base_url, *positional)
    refuse_key_form(model, param="model")
    if isinstance(found, MissingKeyError):
        raise found
    if base_url is None and (found or is_keyless):
        raise ParameterError(
            "key= belongs to base_url=; give both. For SVC_BASE_URL, set SVC_API_KEY "
            "or type the key after `%svc login`.",
            param="key",
        )
    model = None if model is None else check_model(model)
    # What may be refused comes before any change.
    files = _files(ledger=ledger, prices=prices)
    limits = _limits(max_tokens_total=max_tokens_total, max_cost=max_cost)
    if "max_cost" in limits and "prices" not in files:
        cost_of(current().prices)
    if endpoint is base_url is model is None and not {**files, **limits}:
        raise ParameterError(
            "Say what to use: endpoint='emulator', 'service' or a name of "
            f"{FILE}, base_url=ADDRESS, model=ID, ledger=FILE, prices=FILE, "
            "max_tokens_total= or max_cost=.",
            param="endpoint",
        )
    _go(endpoint, base_url, key=found, is_keyless=is_keyless)
    for name, path in files.items():
        current().use_path(name, path, source="use")
    if model is not None:
        current().use_model(model, source="use")
    if limits:
        current().limit_spending(**limits)


def _go(
    endpoint: "str | Emulator | None",
    base_url: str | None,
    *,
    key: Key | None,
    is_keyless: bool,
) -> None:
    if base_url is not None:
        use_address(current(), base_url, key=key, is_keyless=is_keyless)
    elif isinstance(endpoint, str):
        use_named(current(), endpoint)
    elif endpoint is not None:
        current().use_emulator(endpoint)
    else:
        return
    if note := current().answers_note:
        warn(note)


def use_named(session: Session, name: str) -> None:
    """Use the emulator, the service or an endpoint of the files."""
    if name == EMULATOR:
        session.use_emulator()
    elif name == SERVICE:
        session.use_service()
    elif (found := read_endpoints().get(name)) is not None:
        session.use_endpoint(found, source=f"endpoint {name}")
    else:
        raise unknown_endpoint(name)


def use_address(
    session: Session,
    address: str,
    *,
    key: Key | None = None,
    is_keyless: bool = False,
) -> None:
    """Use the server at an address: as the files describe it, else as it is."""
    base_url = to_base_url(address, allow_http=True)
    found = endpoint_at(base_url)
    named = read_env(os.environ)[0]
    # An address of `.env` is a server like others: only the file's key is for it.
    is_of_file = named.sources.get("base_url") == ADDRESS_IN_FILE
    is_service = base_url == named.base_url and not is_of_file
    if found.base_url is None and not is_service:
        found = own_endpoint(base_url)
    found = replace(
        found,
        base_url=base_url,
        needs_key=key is not None or (found.needs_key and not is_keyless),
    )
    is_allowed = session.settings.allow_http or found.allow_http
    to_base_url(address, allow_http=is_allowed or not found.needs_key)
    session.use_endpoint(found, source="use", key=key)


def known_endpoints() -> tuple[str, ...]:
    """Return the names that can be chosen; those of a broken file are left out."""
    names = [EMULATOR, SERVICE]
    with suppress(SettingsError):
        names += read_endpoints()
    return tuple(dict.fromkeys(names))


def endpoint_notes() -> tuple[tuple[str, str], ...]:
    """Return the endpoints of the files with their addresses, for Tab."""
    with suppress(SettingsError):
        found = read_endpoints().values()
        return tuple((each.name, each.base_url) for each in found if each.base_url)
    return ()


def unknown_endpoint(name: str) -> ParameterError:
    """Return the error for a name that no endpoint has, with near names."""
    read_endpoints()  # a broken file is the better explanation
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
    from svc_notebook.emulator.server import Emulator  # noqa: PLC0415 - at first use

    return isinstance(endpoint, Emulator)


def _files(**given: object) -> dict[str, str]:
    """Check the files that are given, and return their full paths."""
    return {
        name: checked_path(name, to_path(name, each))
        for name, each in given.items()
        if each is not None
    }


def _limits(**given: object) -> dict[str, float]:
    """Check the limits on spending that are given; infinity is none."""
    found: dict[str, float] = {}
    for name, value in given.items():
        number = as_number(value)
        if value is not None and (number is None or not number > 0):
            raise must_be(name, "a number above 0, or float('inf') for no limit", value)
        found |= {} if number is None else {name: number}
    return found
