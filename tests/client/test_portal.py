"""The portal: work on a background loop, waited for, stopped, and closed."""

import asyncio
import threading

import pytest

from svc_notebook.client.event_loop import Portal, portal
from svc_notebook.errors import SvcError


@pytest.fixture
def own() -> Portal:
    """A portal of the test's own."""
    return Portal()


async def _answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def _fail() -> None:
    raise ValueError("as it was")


def test_work_is_done_elsewhere(own: Portal) -> None:
    """Results and errors come back as they were."""
    got = own.run(_answer(5))

    assert got == 5
    with pytest.raises(ValueError, match="as it was"):
        own.run(_fail())
    own.close()


def test_closing_ends_everything(own: Portal) -> None:
    """Closing cancels running work, ends the thread and refuses more work."""
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    own.run(_answer(1))
    job = own.submit(wait())
    own.run(_answer(2))

    own.close()
    own.close()

    assert (ended.is_set(), own.is_open) == (True, False)
    with pytest.raises(SvcError, match="stopped"):
        job.wait()
    with pytest.raises(SvcError, match="shutting down"):
        own.run(_answer(3))


def test_work_is_stopped_before_it_begins(own: Portal) -> None:
    """Work that is cancelled at once never goes past its first wait."""
    gone: list[int] = []

    async def go() -> None:
        await asyncio.sleep(0)
        gone.append(1)

    hold = threading.Event()
    own.submit(_hold(hold))
    job = own.submit(go())
    job.stop()
    hold.set()

    assert job.cancel()
    assert gone == []
    own.close()


async def _hold(event: threading.Event) -> None:
    event.wait(60)  # blocks the loop, as busy work would


def test_the_portal_does_not_wait_for_itself() -> None:
    """Plain verbs in a callback of the portal are refused, since they would hang."""

    async def inside() -> int:
        return portal().run(_answer(1))

    with pytest.raises(SvcError, match="AsyncClient"):
        portal().run(inside())
