"""Runs a notebook in a kernel and reports each output as it comes.

The kernel uses this Python, whatever kernels are installed, and has ended when
`run_notebook` returns, also after Ctrl-C.
"""

import asyncio
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty
from tempfile import TemporaryFile
from typing import IO, Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from svc_notebook.display.escape import to_terminal

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LAST = "__import__('svc_notebook').last()"
_WARNING = "[IPKernelApp] WARNING"
_PRINTED_MAGIC = "%%svc"
# How long a kernel may take to start, and between two looks whether it lives.
_START_S, _LOOK_S = 120, 0.5

Cell = dict[str, Any]
Notebook = dict[str, Any]
"""A notebook as in its file (nbformat 4), each source in one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What to call while the notebook runs."""

    cell: Callable[[Cell], None]  # when a cell begins
    text: Callable[[str], None]  # with a piece of output, without control characters
    done: Callable[[], None]  # when the cell has ended


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """How the run ended."""

    notebook: Notebook  # as far as it ran
    reason: str = ""  # what stopped it, in words; empty when every cell ran
    is_stopped: bool = False  # whether the user stopped it


def run_notebook(
    notebook: Notebook,
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
    return asyncio.run(_Kernel(listener).play(notebook, dict(env), cwd, columns))


class _FailedError(Exception):
    """A cell failed."""


class _DeadKernelError(RuntimeError):
    """The kernel has ended by itself."""


class _Kernel:
    """A kernel that shows each message when it arrives, then keeps it."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        # A kernel that the user installed under the same name may be another Python.
        native = KernelSpecManager(kernel_dirs=[])
        self._manager = AsyncKernelManager(
            kernel_spec_manager=native, kernel_name="python3"
        )
        self._client: AsyncKernelClient
        self._is_stopped = False

    async def play(
        self, notebook: Notebook, env: dict[str, str], cwd: str, columns: int
    ) -> NotebookRun:
        """Start the kernel, run the cells, and end it, whatever happens."""
        self._take_signals()
        widen = f"import pandas; pandas.set_option('display.width', {columns})"
        reason = ""
        with TemporaryFile("w+", errors="replace") as noise:
            try:
                await self._manager.start_kernel(
                    env=env,
                    cwd=cwd,
                    stdout=noise,
                    stderr=noise,
                    extra_arguments=[f"--IPKernelApp.exec_lines={widen}"],
                )
                self._client = self._manager.client()
                self._client.start_channels()
                await self._client.wait_for_ready(timeout=_START_S)
                for cell in notebook["cells"]:
                    await self._run_cell(cell)
            except _FailedError:
                reason = "The cell above failed"
            except (asyncio.CancelledError, RuntimeError, OSError) as error:
                reason = "Stopped" if self._is_stopped else _why(error, noise)
            finally:
                await self._end(is_hasty=bool(reason))
        return NotebookRun(notebook, reason, is_stopped=reason == "Stopped")

    def _take_signals(self) -> None:
        """Let Ctrl-C stop the run, after which the kernel is ended."""
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

    def _stop(self, task: "asyncio.Task[Any] | None") -> None:
        # A second Ctrl-C must not break off the ending of the kernel.
        if task and not self._is_stopped:
            self._is_stopped = True
            task.cancel()

    def _check_stop(self) -> None:
        """Stop here if it was lost: `wait_for` does that to one at a cell's end."""
        if self._is_stopped:
            raise asyncio.CancelledError

    async def _end(self, *, is_hasty: bool) -> None:
        """End the kernel; one that has run all has the time to close its ledger."""
        if "_client" in vars(self):
            self._client.stop_channels()
        if self._manager.has_kernel:
            await self._manager.shutdown_kernel(now=is_hasty)

    async def _run_cell(self, cell: Cell) -> None:
        """Run one cell between two calls of the listener."""
        self._listener.cell(cell)
        is_code = cell["cell_type"] == "code" and bool(cell["source"].strip())
        has_failed = is_code and await self._execute(cell)
        self._listener.done()
        self._check_stop()
        if has_failed:
            raise _FailedError
        if is_code and cell["source"].startswith(_PRINTED_MAGIC):
            await self._draw(cell)
            self._check_stop()

    async def _execute(self, cell: Cell) -> bool:
        """Send a cell and keep its outputs until it is idle; return if it failed."""
        outputs: list[dict[str, Any]] = []
        cell["outputs"] = outputs
        request = self._client.execute(cell["source"], allow_stdin=False)
        while True:
            message = await self._next(self._client.get_iopub_msg, request)
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return any(output["output_type"] == "error" for output in outputs)
            if kind == "execute_input":
                cell["execution_count"] = content["execution_count"]
            for text in _texts(kind, content):
                self._listener.text(to_terminal(text))
            _keep(outputs, kind, content)

    async def _draw(self, cell: Cell) -> None:
        """Replace the printed text of a reply by its final form."""
        # Printing shows text as it comes; a saved notebook should hold what a
        # cell in Jupyter ends with, and the kernel knows that form.
        request = self._client.execute(
            "", silent=True, store_history=False, user_expressions={"last": _LAST}
        )
        reply = await self._next(self._client.get_shell_msg, request)
        last = reply["content"].get("user_expressions", {}).get("last", {})
        if last.get("status") == "ok" and "text/html" in last["data"]:
            drawn = {"data": last["data"], "metadata": {}}
            cell["outputs"] = [{"output_type": "display_data", **drawn}]

    async def _next(self, get: Callable[..., Any], request: str) -> dict[str, Any]:
        """Return the next message about a request."""
        while True:
            try:
                message: dict[str, Any] = await get(timeout=_LOOK_S)
            except Empty:
                if not await self._manager.is_alive():
                    raise _DeadKernelError from None
                continue
            if message["parent_header"].get("msg_id") == request:
                return message


def _keep(outputs: list[dict[str, Any]], kind: str, content: Mapping[str, Any]) -> None:
    """Put what a message shows into a cell's outputs.

    In a terminal's plain mode nothing that was shown is changed later.
    """
    last = outputs[-1] if outputs else {}
    shown = {name: content[name] for name in _KEPT.get(kind, ())}
    if kind == "stream" and last.get("name") == content["name"]:
        last["text"] += content["text"]
    elif shown:
        outputs.append({"output_type": kind, **shown})


_KEPT = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}


def _why(error: BaseException, noise: IO[str]) -> str:
    noise.seek(0)
    said = [line.strip() for line in noise if line.strip() and _WARNING not in line]
    last = f": {to_terminal(said[-1])}" if said else ""
    return f"The kernel did not run ({type(error).__name__.lstrip('_')}{last})"


def _texts(kind: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Return the texts that a terminal shows of a message."""
    match kind:
        case "stream":
            yield _COLOURS.sub("", content["text"])
        case "display_data" | "execute_result":
            yield content["data"].get("text/plain", "") + "\n"
        case "error":
            yield _COLOURS.sub("", "\n".join(content["traceback"])) + "\n"
