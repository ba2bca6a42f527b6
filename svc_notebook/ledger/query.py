"""Which exchanges to read: filters checked and turned into SQL.

Every value is bound, never pasted into the statement. A filter that cannot match is
refused, since an empty frame would look like a true answer.
"""

from collections.abc import Collection, Iterable
from datetime import date, datetime, time
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import OriginKind, Status

from .row import to_sortable

Scope = Literal["session", "all"]
Wanted = str | Collection[str] | None
"""One value, several, or None for any."""


class Filters(TypedDict, total=False):
    """Which exchanges to read: see `Ledger.read`."""

    scope: Scope
    since: date | str | None
    conversation: Wanted
    run: Wanted
    model: Wanted


class Where(NamedTuple):
    """A condition and the values it binds."""

    sql: str
    values: tuple[Any, ...]


_ALLOWED = {"origin": get_args(OriginKind), "status": get_args(Status)}
_SINCE_SESSION = (
    "started_at >= (SELECT first_started_at FROM sessions WHERE session_id = ?)"
)
_SINCE_RUN = "started_at >= (SELECT min(first_started_at) FROM runs WHERE {})"


def where(
    *,
    scope: str,
    session_id: str,
    since: date | str | None = None,
    **wanted: Wanted,
) -> Where:
    """Build the condition.

    Args:
        scope: `session` for this session's exchanges, `all` for everybody's.
        session_id: This session.
        since: Only exchanges started at or after this instant or day; text is ISO
            8601; one without a zone is this machine's local time.
        **wanted: Column name -> a value, several, or None for any.

    Raises:
        ParameterError: A filter has a value that cannot match.
    """
    if scope not in get_args(Scope):
        raise ParameterError(
            f"scope must be 'session', for what this kernel asked, or 'all', for the "
            f"whole ledger; got {scope!r}.",
            param="scope",
        )
    filters = dict(wanted)
    parts, values = ["1"], []
    if scope == "session":
        filters["session_id"] = session_id
        parts.append(_SINCE_SESSION)  # no index has the session, but one the instant
        values.append(session_id)
    for column, want in filters.items():
        if want is not None:
            allowed = _several(column, want)
            one_of = f"{column} IN ({', '.join('?' * len(allowed))})"
            parts.append(one_of)
            values += allowed
            if column == "run":  # likewise
                parts.append(_SINCE_RUN.format(one_of))
                values += allowed
    if since is not None:
        parts.append("started_at >= ?")
        values.append(since_sql(since))
    return Where(" AND ".join(parts), tuple(values))


def _several(column: str, want: Any) -> list[str]:  # noqa: ANN401 - numbers come too
    is_one = isinstance(want, (str, bytes)) or not isinstance(want, Iterable)
    found: list[Any] = [want] if is_one else list(want)
    allowed = _ALLOWED.get(column, found)
    for each in found:
        if not isinstance(each, str):
            raise ParameterError(
                f"{column} must be a name or a list of names; got {each!r}.",
                param=column,
            )
        if each not in allowed:
            raise ParameterError(
                f"{column} must be one of {', '.join(allowed)}; got {each!r}.",
                param=column,
            )
    return found


def since_sql(instant: date | str, *, name: str = "since") -> str:
    """Return an instant as `started_at` holds it.

    Args:
        instant: A datetime, a day, or ISO 8601; without a zone it is this machine's
            time, and a day begins at midnight.
        name: Of the argument, for the message.

    Raises:
        ParameterError: It is none of these.
    """
    try:
        return to_sortable(_to_datetime(instant))
    except (AttributeError, TypeError, ValueError, OverflowError):
        pass  # the error below says it
    raise ParameterError(
        f"{name} must be a datetime, or text such as '2026-01-31' or "
        f"'2026-01-31T09:00:00+00:00'; got {instant!r}.",
        param=name,
    )


def _to_datetime(instant: Any) -> datetime:  # noqa: ANN401 - what a user gives
    if isinstance(instant, str):
        return datetime.fromisoformat(instant)
    if not isinstance(instant, datetime):
        return datetime.combine(instant, time())
    # pandas' own kind of datetime does not take this machine's zone by itself
    return datetime.combine(instant.date(), instant.timetz())
