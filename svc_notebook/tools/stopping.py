"""Tools that can be stopped from another thread, where no interrupt can reach.

What it is not: it cannot end a thread; a plain function that was stopped is left
running, as after an interrupt (see `apart`). Rules: the one who stops gives a function
that raises a KeyboardInterrupt, which passes through everything as an interrupt does.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from .apart import Work
from .tool import Tool
from .toolbox import Toolbox

_LOOK_S = 0.05


def stoppable(toolbox: Toolbox, check_stop: Callable[[], None]) -> Toolbox:
    """Return the same tools, each of which looks whether it is to stop.

    Args:
        toolbox: What is offered.
        check_stop: Raises a KeyboardInterrupt when it is to stop; called often.
    """
    return Toolbox([_stoppable(tool, check_stop) for tool in toolbox])


def _stoppable(tool: Tool, check_stop: Callable[[], None]) -> Tool:
    function = tool.function
    if function is None:
        return tool

    def call(**arguments: Any) -> object:  # noqa: ANN401 - the tool's own
        work = Work.start(lambda: function(**arguments), name=f"tool {tool.name}")
        while not work.wait(_LOOK_S):
            check_stop()
        if work.problem is not None:
            raise work.problem
        if inspect.isawaitable(work.value):
            return _awaited(work.value, check_stop)
        return work.value

    return replace(tool, function=call)


async def _awaited(returned: Awaitable[Any], check_stop: Callable[[], None]) -> object:
    task = asyncio.ensure_future(returned)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            check_stop()
    finally:
        task.cancel()
    return task.result()
