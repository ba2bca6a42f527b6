"""Random dialogues end well, and as they do through httpx's own transport."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.faults.answers import GOOD
from tests.faults.case import Case, Step
from tests.faults.dialogues import DIFFERENCES, Difference, Ended, dialogues
from tests.faults.player import (
    KEY,
    Played,
    everything_of,
    is_chained,
    play_awaited,
    play_through,
)
from tests.faults.server import RawServer

KEEP_S = 0.3  # what our side still waits for never comes then
N_DIALOGUES = 500


def _ended(
    player: Callable[..., Played], case: Case, *, is_early: bool = False
) -> Ended:
    """Play a dialogue, look at what must always hold, and return how it ended."""
    server = RawServer(case.answers, is_early=is_early, keep_s=KEEP_S)
    n_requests: list[int] = []

    def after() -> bool:
        n_requests.append(len(server.requests))
        server.then([GOOD])
        return True

    try:
        played = player(server.base_url, case, case.verbs[0], after)
        still_open = server.wait_until_left()
    finally:
        server.close()
    (exchange,) = played.exchanges
    how = played.completion.text if played.completion else type(played.error).__name__
    assert (played.again, still_open) == ("Hello.", [])
    assert (exchange.status == "ok") == (played.error is None)
    assert exchange.n_attempts <= n_requests[0] <= exchange.n_attempts + 1
    assert not is_chained(played.error)
    assert KEY not in everything_of(played)
    assert str(played.error).replace("\n", "").isprintable()
    n_silent = n_requests[0] - exchange.n_attempts
    return Ended(how, played.shown, n_requests[0], n_silent)


def _bytes_of(answers: Sequence[Sequence[Step]]) -> bytes:
    """Return what a server sends, an answer after the other."""
    steps = [step for answer in answers for step in (*answer, b"\n\n")]
    return b"".join(step for step in steps if isinstance(step, bytes))


@pytest.mark.slow
@settings(
    max_examples=N_DIALOGUES,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(dialogues())
def test_dialogues_end_as_through_httpx(dialogue: tuple[Case, bool]) -> None:
    """A dialogue ends as through httpx's transport, or as a known difference says."""
    case, is_early = dialogue

    ours = _ended(play_awaited, case, is_early=is_early)
    httpx = _ended(play_through, case, is_early=is_early)

    came = _bytes_of(case.answers)
    known = [which for which in DIFFERENCES if which.is_it(came, ours, httpx)]
    assert ours == httpx or known, f"{ours} {httpx} {case.answers}"


@pytest.mark.slow
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda known: known.fault)
def test_each_difference_exists(difference: Difference) -> None:
    """An answer with nothing but this in it ends in another way through httpx."""
    case = Case(section="C", fault="", verbs=["complete"], answers=difference.answers)

    ours, httpx = _ended(play_awaited, case), _ended(play_through, case)

    came = _bytes_of(case.answers)
    assert ours != httpx
    assert difference.is_it(came, ours, httpx)
    assert (ours.how == "DocumentError") == ("DocumentError" in difference.ours)
    assert (httpx.how == "DocumentError") == ("DocumentError" in difference.httpx)
