"""Run a notebook in a kernel of its own and show its outputs as they come.

What it is not: it neither chooses nor writes the notebook. Rules: the kernel is
this Python's, whatever kernels are installed; it is gone when `play` returns,
also after Ctrl-C; text is shown when it comes, and the notebook keeps what
Jupyter would have kept.
"""

import asyncio
import atexit
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output

from svc_notebook.display.markup import to_terminal

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LAST = "__import__('svc_notebook').last()"
_BLUSTER = "[IPKernelApp] WARNING"
_PRINTED_MAGIC = "%%svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Who is told what the notebook does, and when.

    Attributes:
        cell: A cell begins.
        text: A piece of output came; it holds no control characters.
        done: The cell has ended.
    """

    cell: Callable[[NotebookNode], None]
    text: Callable[[str], None]
    done: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run ended.

    Attributes:
        notebook: As far as it ran.
        reason: Empty when every cell ran; else what stopped it, in words.
        is_stopped: Whether the user stopped it.
    """

    notebook: NotebookNode
    reason: str = ""
    is_stopped: bool = False


def play(
    notebook: NotebookNode,
    stage: Stage,
    *,
    env: Mapping[str, str],
    cwd: str,
    columns: int,
) -> Ended:
    """Run every cell, and tell the stage.

    Args:
        notebook: Run as it stands; its outputs are replaced.
        stage: Told what happens.
        env: The kernel's whole environment.
        cwd: The kernel's folder.
        columns: How wide frames may be printed.
    """
    return asyncio.run(_play(notebook, stage, env, cwd, columns))


async def _play(
    notebook: NotebookNode,
    stage: Stage,
    env: Mapping[str, str],
    cwd: str,
    columns: int,
) -> Ended:
    client = _Client(notebook, stage, columns)
    with TemporaryFile("w+", errors="replace") as noise:
        try:
            await client.async_execute(
                env=dict(env), cwd=cwd, stdout=noise, stderr=noise, cleanup_kc=True
            )
        except CellExecutionError:
            return Ended(notebook, "The cell above failed")
        except (DeadKernelError, asyncio.CancelledError, RuntimeError) as error:
            if client.is_stopped:
                return Ended(notebook, "Stopped", is_stopped=True)
            return Ended(notebook, _why(error, noise))
        finally:
            await client.end_kernel()
    return Ended(notebook)


def _why(error: BaseException, noise: IO[str]) -> str:
    noise.seek(0)
    said = [line.strip() for line in noise if line.strip() and _BLUSTER not in line]
    last = f": {to_terminal(said[-1])}" if said else ""
    return f"The kernel did not run ({type(error).__name__}{last})"


class _Client(NotebookClient):
    """A notebook client that shows what it is told, when it is told."""

    def __init__(self, notebook: NotebookNode, stage: Stage, columns: int) -> None:
        # A kernel that the user installed under the same name may be another Python.
        native = KernelSpecManager(kernel_dirs=[])
        widen = f"import pandas; pandas.set_option('display.width', {columns})"
        super().__init__(
            notebook,
            km=AsyncKernelManager(kernel_spec_manager=native, kernel_name="python3"),
            timeout=None,
            store_widget_state=False,
            coalesce_streams=True,
            extra_arguments=[f"--IPKernelApp.exec_lines={widen}"],
        )
        self.stage = stage
        self.is_stopped = False

    async def async_start_new_kernel(self, **kwargs: Any) -> None:  # noqa: ANN401 - nbclient's
        """Start the kernel, and before that take Ctrl-C over from nbclient."""
        # Its own handler ends the kernel beside what still waits for the kernel.
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, task)
        await super().async_start_new_kernel(**kwargs)

    async def end_kernel(self) -> None:
        """End the kernel if it was stopped before nbclient had joined it."""
        if self.km is not None and self.km.has_kernel:
            self.shutdown_kernel = "immediate"  # it does not listen yet
            await self._async_cleanup_kernel()
        atexit.unregister(self._cleanup_kernel)

    def _stop(self, task: "asyncio.Task[Any] | None") -> None:
        # A second Ctrl-C must not break off the ending of the kernel.
        if task and not self.is_stopped:
            self.is_stopped = True
            task.cancel()

    async def async_execute_cell(
        self,
        cell: NotebookNode,
        cell_index: int,
        execution_count: int | None = None,
        store_history: bool = True,  # noqa: FBT001, FBT002 - nbclient's signature
    ) -> NotebookNode:
        """Run one cell between the stage's two calls."""
        self.stage.cell(cell)
        done = await super().async_execute_cell(
            cell, cell_index, execution_count, store_history
        )
        self.stage.done()
        if cell.cell_type == "code" and cell.source.startswith(_PRINTED_MAGIC):
            await self._draw(done)
        return done

    async def _draw(self, cell: NotebookNode) -> None:
        """Put the reply's final form in place of its printed text."""
        # Printing shows text as it comes; a saved notebook should hold what a
        # cell in Jupyter ends with, and the kernel knows that form.
        if self.kc is None:
            return
        request = self.kc.execute(
            "", silent=True, store_history=False, user_expressions={"last": _LAST}
        )
        reply = await self.async_wait_for_reply(request)
        last = (reply or {}).get("content", {}).get("user_expressions", {}).get("last")
        if last and last.get("status") == "ok" and "text/html" in last["data"]:
            cell.outputs = [new_output("display_data", last["data"])]

    def process_message(
        self, msg: dict[str, Any], cell: NotebookNode, cell_index: int
    ) -> NotebookNode | None:
        """Show a message, then keep it as nbclient does."""
        for text in _texts(msg["msg_type"], msg["content"]):
            self.stage.text(to_terminal(text))
        return super().process_message(msg, cell, cell_index)


def _texts(kind: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Return what a message has to show in a terminal."""
    match kind:
        case "stream":
            yield _COLOURS.sub("", content["text"])
        case "display_data" | "execute_result":
            yield content["data"].get("text/plain", "") + "\n"
        case "error":
            yield _COLOURS.sub("", "\n".join(content["traceback"])) + "\n"
