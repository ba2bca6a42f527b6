"""Idle connections: how many are kept, and which is taken."""

import asyncio

import pytest

from svc_notebook.client.http import MAX_IDLE, Connection, IdleStack


@pytest.mark.slow
def test_only_so_many_are_kept() -> None:
    """One more has to be closed by the caller; the newest is lent first."""
    connections = [Connection() for _ in range(MAX_IDLE + 1)]

    async def scene() -> tuple[list[bool], Connection | None]:
        stack = IdleStack()
        await stack.open()
        kept = [stack.put(each) for each in connections]
        newest = stack.take()
        await stack.aclose()
        return kept, newest

    kept, newest = asyncio.run(scene())

    assert kept == [True] * MAX_IDLE + [False]
    assert newest is connections[-2]


def test_none_is_kept_after_the_end() -> None:
    """A connection that comes back to a closed stack has to be closed, too."""

    async def scene() -> bool:
        stack = IdleStack()
        await stack.open()
        await stack.aclose()
        return stack.put(Connection())

    assert asyncio.run(scene()) is False
