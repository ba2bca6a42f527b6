"""Runs a notebook in a kernel and reports each output as it comes.

The kernel uses this Python, whatever kernels are installed, and has ended when
`run_notebook` returns, also after Ctrl-C.
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

from svc_notebook.display.escape import to_terminal

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LAST = "__import__('svc_notebook').last()"
_WARNING = "[IPKernelApp] WARNING"
_PRINTED_MAGIC = "%%svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What to call while the notebook runs."""

    cell: Callable[[NotebookNode], None]  # when a cell begins
    text: Callable[[str], None]  # with a piece of output, without control characters
    done: Callable[[], None]  # when the cell has ended


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """How the run ended."""

    notebook: NotebookNode  # as far as it ran
    reason: str = ""  # what stopped it, in words; empty when every cell ran
    is_stopped: bool = False  # whether the user stopped it


def run_notebook(
    notebook: NotebookNode,
    listener: Listener,
    *,
    env: Mapping[str, str],
    cwd: str,
    columns: int,
) -> NotebookRun:
    """Run every cell and report to the listener.

    Args:
        notebook: Run without a change; its outputs are replaced.
        listener: Is called while it runs.
        env: The kernel's whole environment.
        cwd: The kernel's folder.
        columns: How wide frames may be printed.
    """
    return asyncio.run(_run(_Client(notebook, listener, columns), env, cwd))


async def _run(client: "_Client", env: Mapping[str, str], cwd: str) -> NotebookRun:
    notebook = client.nb
    with TemporaryFile("w+", errors="replace") as noise:
        try:
            await client.async_execute(
                env=dict(env), cwd=cwd, stdout=noise, stderr=noise, cleanup_kc=True
            )
        except CellExecutionError:
            return NotebookRun(notebook, "The cell above failed")
        except (DeadKernelError, asyncio.CancelledError, RuntimeError) as error:
            if client.is_stopped:
                return NotebookRun(notebook, "Stopped", is_stopped=True)
            return NotebookRun(notebook, _why(error, noise))
        finally:
            await client.end_kernel()
    return NotebookRun(notebook)


def _why(error: BaseException, noise: IO[str]) -> str:
    noise.seek(0)
    said = [line.strip() for line in noise if line.strip() and _WARNING not in line]
    last = f": {to_terminal(said[-1])}" if said else ""
    return f"The kernel did not run ({type(error).__name__}{last})"


class _Client(NotebookClient):
    """A notebook client that shows each message when it arrives."""

    def __init__(
        self, notebook: NotebookNode, listener: Listener, columns: int
    ) -> None:
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
        self.listener = listener
        self.is_stopped = False

    async def async_start_new_kernel(self, **kwargs: Any) -> None:  # noqa: ANN401 - nbclient's
        """Start the kernel, and before that take Ctrl-C over from nbclient."""
        # Its own handler ends the kernel while a task still waits for the kernel.
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self._stop, task)
            except NotImplementedError:  # Windows' loops know no signals
                signal.signal(
                    number,
                    lambda *_: loop.call_soon_threadsafe(self._stop, task),
                )
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
        """Run one cell between two calls of the listener."""
        self.listener.cell(cell)
        done = await super().async_execute_cell(
            cell, cell_index, execution_count, store_history
        )
        self.listener.done()
        self._check_stop()
        if cell.cell_type == "code" and cell.source.startswith(_PRINTED_MAGIC):
            await self._draw(done)
            self._check_stop()
        return done

    def _check_stop(self) -> None:
        """Stop here if it was lost: `wait_for` does that to one at a cell's end."""
        if self.is_stopped:
            raise asyncio.CancelledError

    async def _draw(self, cell: NotebookNode) -> None:
        """Replace the printed text of a reply by its final form."""
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
            self.listener.text(to_terminal(text))
        return super().process_message(msg, cell, cell_index)


def _texts(kind: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Return the texts that a terminal shows of a message."""
    match kind:
        case "stream":
            yield _COLOURS.sub("", content["text"])
        case "display_data" | "execute_result":
            yield content["data"].get("text/plain", "") + "\n"
        case "error":
            yield _COLOURS.sub("", "\n".join(content["traceback"])) + "\n"
