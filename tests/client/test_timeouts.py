"""The deadlines of an exchange, with time as a number."""

import math

from svc_notebook.service.request import build_request
from svc_notebook.timeouts import Deadlines, Timeouts

TIMEOUTS = Timeouts(
    first_byte_s=20, idle_s=10, whole_s=30, whole_token_s=0.1, total_s=100
)
REQUEST = build_request("Hi", model="m", params={"max_tokens": 50})


def deadlines(timeouts: Timeouts = TIMEOUTS, *, is_streamed: bool) -> Deadlines:
    """Return the deadlines of an exchange that began at 1000 s."""
    return Deadlines(timeouts, REQUEST, is_streamed=is_streamed, started_s=1000.0)


def test_without_a_total_deadline_the_others_remain() -> None:
    """Where there is no total deadline each wait still has its own."""
    endless = deadlines(Timeouts(total_s=None), is_streamed=True)

    assert endless.total_left_s(1e9) == math.inf
    assert endless.for_headers(1e9).name == "first_byte"
