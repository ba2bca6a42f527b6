"""Time-outs: how long each part of an exchange may take, and how much time is left.

The wait for our own rate limit moves the total deadline, and never counts as latency.
"""

import math
from dataclasses import dataclass, fields

from svc_notebook.errors import SettingsError, SvcError, TimedOutError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.params import as_number, is_within, shorten, shown
from svc_notebook.service.request import CompletionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long each part of an exchange may take, in seconds.

    Attributes:
        connect_s: To open a connection.
        first_byte_s: Until the headers of an answer arrive.
        idle_s: Between two events of a stream; comments do not count.
        whole_s, whole_token_s: For a reply in one piece: `whole_s`, plus
            `whole_token_s` for each token of `max_tokens`.
        total_s: For the whole exchange with retries and waits for rate limits (except
            in a sweep, where these waits do not count); None for no limit.

    Raises:
        SettingsError: A value is not a number of seconds > 0.
    """

    connect_s: float = 10.0
    first_byte_s: float = 60.0
    idle_s: float = 60.0
    whole_s: float = 60.0
    whole_token_s: float = 0.1
    total_s: float | None = 900.0

    def __post_init__(self) -> None:
        for field_ in fields(self):
            name = field_.name
            value = getattr(self, name)
            if name == "total_s" and value is None:
                continue
            number = as_number(value)
            is_time = number is not None and is_within(number, 0, None)
            if not is_time or (number == 0 and name != "whole_token_s"):
                raise SettingsError(
                    f"{name} must be a number of seconds > 0; got {shown(value)}. "
                    f"{_TIMEOUTS_FORM}"
                )

    @classmethod
    def from_text(cls, text: str) -> "Timeouts":
        """Read the value of SVC_TIMEOUTS.

        It is a number of seconds for every time-out except the total, such as `20`; or
        names with seconds, such as `connect_s=5 idle_s=30 total_s=none`.
        """
        values: dict[str, float | None] = {}
        for part in text.replace(",", " ").split():
            name, is_named, value = part.rpartition("=")
            names = (name,) if is_named else _ALL_BUT_TOTAL
            values |= dict.fromkeys(names, _seconds(value))
            if not is_named:
                values["whole_token_s"] = 0.0
        unknown = values.keys() - {field_.name for field_ in fields(cls)}
        if unknown:
            raise SettingsError(
                f"{min(unknown)!r} is not the name of a time-out. {_TIMEOUTS_FORM}"
            )
        return cls(**values)  # type: ignore[arg-type]  # checked as it is made


_ALL_BUT_TOTAL = ("connect_s", "first_byte_s", "idle_s", "whole_s")
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


@dataclass(frozen=True, slots=True)
class Left:
    """The nearest deadline: seconds left, name (see `_MESSAGES`), and whole length.

    `left_s` is negative after the deadline.
    """

    left_s: float
    name: str
    length_s: float


class Deadlines:
    """The deadlines of one exchange that began at `started_s` by the clock."""

    def __init__(
        self,
        timeouts: Timeouts,
        request: CompletionRequest,
        *,
        is_streamed: bool,
        started_s: float,
    ) -> None:
        # more tokens take longer, and meanwhile the service sends nothing
        n_tokens = request.max_tokens or request.info.max_reply_tokens or BUDGET_TOKENS
        self._whole_s = timeouts.whole_s + timeouts.whole_token_s * n_tokens
        self._timeouts = timeouts
        self._is_streamed = is_streamed
        self._started_s = started_s
        self.queue_s = 0.0

    def for_headers(self, now_s: float) -> Left:
        """Return the deadline for the headers of a request that is sent now."""
        if self._is_streamed:
            length_s = self._timeouts.first_byte_s
            return self._or_total(Left(length_s, "first_byte", length_s), now_s)
        return self.for_body(now_s, sent_s=now_s, event_s=now_s)

    def for_body(self, now_s: float, *, sent_s: float, event_s: float) -> Left:
        """Return the deadline for the next part of a body.

        `event_s` is when the newest event, or the headers, arrived.
        """
        if self._is_streamed:
            idle_s = self._timeouts.idle_s
            return self._or_total(Left(event_s + idle_s - now_s, "idle", idle_s), now_s)
        left_s = sent_s + self._whole_s - now_s
        return self._or_total(Left(left_s, "whole", self._whole_s), now_s)

    def _or_total(self, left: Left, now_s: float) -> Left:
        """Return the nearer one of a deadline and the total deadline."""
        total_left_s = self.total_left_s(now_s)
        if total_left_s < left.left_s:
            return Left(total_left_s, "total", self._timeouts.total_s or 0.0)
        return left

    def total_left_s(self, now_s: float) -> float:
        """Return the seconds until the total deadline; infinite without one."""
        total_s = self._timeouts.total_s
        if total_s is None:
            return math.inf
        return self._started_s + self.queue_s + total_s - now_s


_MESSAGES = {
    "first_byte": "The service did not begin to answer within {:g} s",
    "idle": "The service sent nothing for {:g} s in the middle of a reply",
    "whole": "The service did not finish its reply within {:g} s",
    "total": "The request took longer than {:g} s, including retries",
}


def timed_out(left: Left) -> TimedOutError:
    """Build the error for a deadline that passed."""
    return TimedOutError(
        f"{_MESSAGES[left.name].format(left.length_s)}. The request was not retried "
        "because it may have been billed. Ask again, ask for fewer tokens, or allow "
        "more time (SVC_TIMEOUTS, or Settings.timeouts).",
        deadline=left.name,
        deadline_s=left.length_s,
    )


def with_earlier(error: SvcError, earlier: SvcError) -> SvcError:
    """Add to a time-out how the previous try failed, which may be the reason."""
    if not isinstance(error, TimedOutError):
        return error
    status = getattr(earlier, "status", None)
    shown = f" (status {status})" if status else ""
    kind = type(earlier).__name__
    return TimedOutError(
        f"{error} The previous try failed with {kind}{shown}.",
        deadline=error.deadline,
        deadline_s=error.deadline_s,
    )
