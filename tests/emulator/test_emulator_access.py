"""Keys and rate windows (doc: Authentication, Rate limits per model)."""

from typing import Protocol

import pytest

from svc_notebook.emulator.emulated_keys import Keys
from svc_notebook.emulator.emulated_rate_limits import LIMITS, Quota

KEYS = Keys(valid=("sk-long-enough", "abc"), revoked=("sk-long",), forbidden=())


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("my sk-long-enough!", "my [key]!"),
        ("xsk-long-enoughx", "x[key]x"),
        ("sk-long", "[key]"),
        ("the abc of abcd", "the [key] of abcd"),
        ("mine is sent-key-9", "mine is [key]"),
    ],
)
def test_takes_keys_out_of_texts(text: str, hidden: str) -> None:
    """Known keys and the one sent go; short ones where they stand alone."""
    assert KEYS.hide(text, {"authorization": "Bearer sent-key-9"}) == hidden


class SetClock(Protocol):
    """The clock of the fixture."""

    at_s: float

    def __call__(self) -> float:
        """Tell the time."""
        ...


@pytest.fixture
def quota(clock: SetClock) -> Quota:
    """The document's limits."""
    return Quota(LIMITS, clock)


@pytest.mark.parametrize(
    ("model", "per_minute"), [(m, n) for m, (_, n) in LIMITS.items()]
)
def test_a_minute_holds_so_many_requests(
    quota: Quota, clock: SetClock, model: str, per_minute: int
) -> None:
    """Spread out, the minute's limit is met, and frees itself one by one."""
    begun_at_s = clock.at_s
    for _ in range(per_minute):
        assert quota.take(model) is None
        clock.at_s += 0.3

    assert quota.take(model) == "per minute"
    clock.at_s = begun_at_s + 60.0
    assert [quota.take(model), quota.take(model)] == [None, "per minute"]


def test_windows_slide(quota: Quota, clock: SetClock) -> None:
    """No moment opens a fresh window: any second holds at most its number."""
    taken = []
    for _ in range(40):
        taken.append(quota.take("svc-v2-8b-instruct"))
        clock.at_s += 0.1

    assert taken[:12] == [None] * 5 + ["per second"] * 5 + [None] * 2
