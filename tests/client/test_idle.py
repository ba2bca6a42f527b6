"""Idle connections: how many are kept, and which is taken."""

import asyncio

from svc_notebook.client.connections import MAX_IDLE, IdleStack


async def _shut(_: int) -> None:
    """Close a connection that is none."""


def test_only_so_many_are_kept() -> None:
    """One more has to be closed by whoever brings it; the newest is lent first."""

    async def scene() -> tuple[list[bool], int | None]:
        stack: IdleStack[int] = IdleStack(_shut)
        await stack.open()
        kept = [stack.put(each) for each in range(MAX_IDLE + 1)]
        newest = stack.take()
        await stack.aclose()
        return kept, newest

    kept, newest = asyncio.run(scene())

    assert kept == [True] * MAX_IDLE + [False]
    assert newest == MAX_IDLE - 1


def test_none_is_kept_after_the_end() -> None:
    """What comes back to a stack that was closed has to be closed, too."""

    async def scene() -> bool:
        stack: IdleStack[int] = IdleStack(_shut)
        await stack.open()
        await stack.aclose()
        return stack.put(1)

    assert asyncio.run(scene()) is False
