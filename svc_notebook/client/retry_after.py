"""How long the service asks to wait, out of its headers.

The document shows no such header (doc: Errors); the ones read here are the common
ones. Rules: pure; a value that makes no sense is treated as absent, and so is an
infinite one; a date that is over means no wait.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(headers: Mapping[str, str], *, now_at: datetime) -> float | None:
    """Return the seconds asked for, None if there are none to read.

    Args:
        headers: By name, in lower case.
        now_at: The present (aware); a date counts from the service's own clock, if
            its answer says what that shows, since ours may be wrong.
    """
    in_ms = _longest(headers.get("retry-after-ms"))
    if in_ms is not None:
        return in_ms / 1000
    text = headers.get("retry-after")
    seconds = _longest(text)
    if seconds is not None:
        return seconds
    return _until(text, _date(headers.get("date")) or now_at)


def _longest(text: str | None) -> float | None:
    """Read seconds; of several, as a repeated header gives them, the longest."""
    found = [_seconds(part) for part in (text or "").split(",") if part.strip()]
    if any(each is None for each in found):
        return None
    return max((each for each in found if each is not None), default=None)


def _seconds(text: str) -> float | None:
    if "_" in text:  # a number for Python alone
        return None
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(text: str | None, now_at: datetime) -> float | None:
    at = _date(text)
    if at is None:
        return None
    try:
        return max((at - now_at).total_seconds(), 0.0)
    except OverflowError:
        return None


def _date(text: str | None) -> datetime | None:
    try:
        at = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
