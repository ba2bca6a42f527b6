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
        now_at: The present (aware), against which a date counts.
    """
    in_ms = _seconds(headers.get("retry-after-ms"))
    if in_ms is not None:
        return in_ms / 1000
    text = headers.get("retry-after")
    seconds = _seconds(text)
    return _until(text, now_at) if seconds is None else seconds


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "nan")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(text: str | None, now_at: datetime) -> float | None:
    try:
        at = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    try:
        return max((at - now_at).total_seconds(), 0.0)
    except OverflowError:
        return None
