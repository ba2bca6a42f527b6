"""The settings for requests to an endpoint, in its file and in `svc.use`.

They are headers, a query, the header of the key, the path, fields for every request,
and limits of all its models. They never contain a secret: a value that begins with $
names the environment variable with the secret.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from svc_notebook.errors import SettingsError
from svc_notebook.service.params import check_extra, shown

NamesAndTexts = tuple[tuple[str, str], ...]
"""Names with their texts, in order."""

NO_KEY_HERE = "a key does not belong here"


class ConnectionSettings(TypedDict, total=False):
    """The settings for requests to an endpoint, for all its models."""

    headers: Mapping[str, str] | None
    query: Mapping[str, str] | None
    key_header: str | None
    path: str | None
    extra: Mapping[str, Any] | None
    context: int | None
    max_reply: int | None
    max_tokens_field: str | None
    stream_usage: bool | None


SETTINGS: Mapping[str, str] = {
    "headers": 'more headers, such as { X-Org = "lab", X-Token = "$LAB_TOKEN" }; '
    "$ names the variable of a secret",
    "query": 'the query of the address, such as { api-version = "2024-10-21" }',
    "key_header": 'the header of the key, such as "api-key"; "Authorization" if left '
    "out",
    "path": 'the path of the address, exactly, such as "/v1beta/openai"',
    "extra": "fields for every request, such as { top_k = 20 }",
    "context": "most tokens of prompt and reply together, of every model",
    "max_reply": "most tokens of a reply, of every model",
    "max_tokens_field": "the name under which max_tokens is sent, such as "
    '"max_completion_tokens"',
    "stream_usage": "whether streams are asked to report usage; tried if left out",
}
"""The settings, and what they mean."""


def check_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings that are not None, as the fields of an `Endpoint`.

    Raises:
        SettingsError: A value cannot be used; the message is "NAME: WHY".
    """
    checked = {}
    for name, value in settings.items():
        if value is None:
            continue
        try:
            checked[_FIELDS.get(name, name)] = CHECKS[name](value)
        except _WrongError as problem:
            reason = str(problem)
        else:
            continue
        raise SettingsError(f"{name}: {reason}.")
    return checked


_FIELDS = {"context": "context_tokens", "max_reply": "max_reply_tokens"}
"""Fields of `Endpoint` that have another name than their setting."""


class _WrongError(Exception):
    """Why a value cannot be used; never leaves this file."""


SECRET = re.compile(
    r"(?:^|[-_ ])(?:api[-_]?)?(?:keys?|tokens?|secrets?|passwords?|passwd|auth\w*"
    r"|cookie|credentials?|signature|sig)$",
    re.IGNORECASE,
)
"""Names of secrets; `max_tokens` is not one of them."""
_NUMBERS_OF_TOKENS = re.compile(r"^(?:n|min|max|num|total)[-_]", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_OWN_HEADERS = frozenset(
    {"host", "content-type", "content-length", "accept", "accept-encoding"}
)
_FIELD_NAME = re.compile(r"[A-Za-z_]\w*")
_OF_SERVICE = "SVC_API_KEY"


def is_secret_name(name: str) -> bool:
    """Say whether a setting, header or query parameter has the name of a secret."""
    return bool(SECRET.search(name)) and not _NUMBERS_OF_TOKENS.match(name)


def variable_of(value: str) -> str:
    """Return the variable that a header's value names; "" for a plain value."""
    named = _VARIABLE.fullmatch(value)
    return named[1] if named else ""


def _check_headers(value: object) -> NamesAndTexts:
    pairs = _check_pairs(value, 'a table such as { X-Org = "lab" }')
    for name, text in pairs:
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise _WrongError(f"{shown(name)} is not a header that can be set")
        if not all(" " <= letter <= "~" for letter in text):
            raise _WrongError(f"the value of {name} must be visible ASCII characters")
        variable = variable_of(text)
        if is_secret_name(name) and not variable:
            raise _WrongError(
                f"{NO_KEY_HERE}: set an environment variable to the value of {name}, "
                f'and write {name} = "$LAB_TOKEN" with its name'
            )
        if variable == _OF_SERVICE:
            raise _WrongError(
                f"{_OF_SERVICE} is for SVC_BASE_URL only; give this endpoint its own "
                "variable"
            )
    return pairs


def _check_query(value: object) -> NamesAndTexts:
    pairs = _check_pairs(value, 'a table such as { api-version = "2024-10-21" }')
    for name, text in pairs:
        if is_secret_name(name) or variable_of(text):
            raise _WrongError(
                f"{NO_KEY_HERE}: an address is shown and recorded. Send it as a "
                "header, with key_header or headers"
            )
    return pairs


def _check_pairs(value: object, allowed: str) -> NamesAndTexts:
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    ):
        raise _WrongError(f"must be {allowed}; got {shown(value)}")
    return tuple(value.items())


def _check_key_header(value: object) -> str:
    is_name = isinstance(value, str) and _HEADER_NAME.fullmatch(value)
    if not is_name or str(value).lower() in _OWN_HEADERS:
        raise _WrongError(
            f'must be the name of a header, "api-key"; got {shown(value)}'
        )
    return str(value)


def _check_path(value: object) -> str:
    text = value if isinstance(value, str) else ""
    is_plain = text.isascii() and text.isprintable() and not re.search(r"[\s?#@]", text)
    if not text.startswith("/") or not is_plain:
        raise _WrongError(
            f'must be a path such as "/v1beta/openai"; got {shown(value)}'
        )
    return text.rstrip("/").removesuffix("/chat/completions").rstrip("/")


def _check_extra_fields(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _WrongError(
            f"must be a table such as {{ top_k = 20 }}; got {shown(value)}"
        )
    try:
        return check_extra(value)
    except Exception as problem:  # noqa: BLE001 - ours, with the reason
        reason = str(problem).removesuffix(".")
    raise _WrongError(reason)


def _check_count(value: object) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not isinstance(value, int) or not is_count:
        raise _WrongError(f"must be an integer >= 1; got {shown(value)}")
    return value


def _check_field_name(value: object) -> str:
    if not isinstance(value, str) or not _FIELD_NAME.fullmatch(value):
        allowed = '"max_completion_tokens", or another name'
        raise _WrongError(f"must be {allowed}; got {shown(value)}")
    return value


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _WrongError(f"must be true or false; got {shown(value)}")
    return value


CHECKS: Mapping[str, Callable[[object], Any]] = {
    "headers": _check_headers,
    "query": _check_query,
    "key_header": _check_key_header,
    "path": _check_path,
    "extra": _check_extra_fields,
    "context": _check_count,
    "max_reply": _check_count,
    "max_tokens_field": _check_field_name,
    "stream_usage": _check_flag,
}
