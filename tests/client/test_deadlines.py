"""The deadlines of an exchange, with time as a number."""

import math

from svc_notebook.client.deadlines import Deadlines, Left
from svc_notebook.service.request import build_request
from svc_notebook.settings import Timeouts

TIMEOUTS = Timeouts(
    first_byte_s=20, idle_s=10, whole_s=30, whole_token_s=0.1, total_s=100
)
REQUEST = build_request("Hi", model="m", params={"max_tokens": 50})


def deadlines(timeouts: Timeouts = TIMEOUTS, *, is_streamed: bool) -> Deadlines:
    """Return the deadlines of an exchange that began at 1000 s."""
    return Deadlines(timeouts, REQUEST, is_streamed=is_streamed, started_s=1000.0)


def test_a_stream_has_a_first_byte_and_silence() -> None:
    """A stream's headers and each event have a deadline of their own."""
    streamed = deadlines(is_streamed=True)

    got = [
        streamed.for_headers(1000.0),
        streamed.for_body(1050.0, sent_s=1000.0, event_s=1047.0),
    ]

    assert got == [Left(20.0, "first_byte", 20), Left(7.0, "idle", 10)]


def test_a_whole_reply_has_one_deadline_that_grows_with_its_tokens() -> None:
    """A reply in one piece may take 0.1 s longer for each token asked for."""
    whole = deadlines(is_streamed=False)

    got = [
        whole.for_headers(1000.0),
        whole.for_body(1030.0, sent_s=1005.0, event_s=1029.0),
    ]

    assert got == [Left(35.0, "whole", 35.0), Left(10.0, "whole", 35.0)]


def test_the_last_deadline_comes_before_the_others() -> None:
    """Near the end the total deadline is the nearest; our own limit moves it."""
    streamed = deadlines(is_streamed=True)

    before = streamed.for_headers(1095.0)
    streamed.queue_s = 50.0

    assert before == Left(5.0, "total", 100)
    assert streamed.for_headers(1095.0) == Left(20.0, "first_byte", 20)


def test_without_a_total_deadline_the_others_remain() -> None:
    """Where there is no total deadline each wait still has its own."""
    endless = deadlines(Timeouts(total_s=None), is_streamed=True)

    assert endless.total_left_s(1e9) == math.inf
    assert endless.for_headers(1e9).name == "first_byte"
