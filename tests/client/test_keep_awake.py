"""The tick that lets an interrupt into a loop that waits."""

import asyncio

from svc_notebook.client.event_loop import keep_awake


def scheduled(loop: asyncio.AbstractEventLoop) -> int:
    """Return how many timers of a loop are to come."""
    timers = loop._scheduled  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
    return len([timer for timer in timers if not timer.cancelled()])


async def counts() -> list[int]:
    """Return the timers before, in one request, in two, after one, and after all."""
    loop = asyncio.get_running_loop()
    seen = [scheduled(loop)]
    with keep_awake():
        seen.append(scheduled(loop))
        with keep_awake():
            seen.append(scheduled(loop))
        seen.append(scheduled(loop))
    return [*seen, scheduled(loop)]


def test_a_loop_has_one_tick_while_requests_are_under_way() -> None:
    """Several requests share a tick, and the last one takes it away."""
    assert asyncio.run(counts()) == [0, 1, 1, 1, 0]
