"""Runs a notebook in a kernel and reports each output when it arrives.

The kernel uses this Python, whatever kernels are installed. It has always ended when
`run_notebook` returns, even after Ctrl-C.
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
# most seconds for the start of a kernel, and seconds between checks that it is alive
_START_S, _CHECK_S = 120, 0.5

Cell = dict[str, Any]
Notebook = dict[str, Any]
"""A notebook as in its file (nbformat 4), but each source is one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The functions to call while the notebook runs."""

    cell: Callable[[Cell], None]  # when a cell begins
    text: Callable[[str], None]  # with a piece of output, without control characters
    done: Callable[[], None]  # when the cell has ended


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """How the run ended."""

    notebook: Notebook  # as far as it ran
    reason: str = ""  # why it stopped; empty if every cell ran
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
        notebook: The notebook to run; its outputs are replaced.
        listener: The functions to call while it runs.
        env: The whole environment of the kernel.
        cwd: The kernel's folder.
        columns: The width for printed frames.
    """
    return asyncio.run(_Kernel(listener).play(notebook, dict(env), cwd, columns))


class _FailedError(Exception):
    """A cell failed."""


class _DeadKernelError(RuntimeError):
    """The kernel has ended by itself."""


class _Kernel:
    """A kernel whose outputs are shown when they arrive, and then kept."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        # a user's installed kernel of the same name may use another Python
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
                reason = (
                    "Stopped" if self._is_stopped else _failure_reason(error, noise)
                )
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
            except (
                NotImplementedError
            ):  # event loops on Windows have no signal handlers
                signal.signal(
                    number,
                    lambda *_: loop.call_soon_threadsafe(self._stop, task),
                )

    def _stop(self, task: "asyncio.Task[Any] | None") -> None:
        # a second Ctrl-C must not interrupt the shutdown of the kernel
        if task and not self._is_stopped:
            self._is_stopped = True
            task.cancel()

    def _check_stop(self) -> None:
        """Raise if the run was stopped: `wait_for` can swallow the cancellation."""
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
            _add_output(outputs, kind, content)

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
                message: dict[str, Any] = await get(timeout=_CHECK_S)
            except Empty:
                if not await self._manager.is_alive():
                    raise _DeadKernelError from None
                continue
            if message["parent_header"].get("msg_id") == request:
                return message


def _add_output(
    outputs: list[dict[str, Any]], kind: str, content: Mapping[str, Any]
) -> None:
    """Add the output in a message to a cell's outputs.

    In the plain mode of a terminal, outputs are never updated.
    """
    last = outputs[-1] if outputs else {}
    fields = {name: content[name] for name in _OUTPUT_FIELDS.get(kind, ())}
    if kind == "stream" and last.get("name") == content["name"]:
        last["text"] += content["text"]
    elif fields:
        outputs.append({"output_type": kind, **fields})


_OUTPUT_FIELDS = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}


def _failure_reason(error: BaseException, noise: IO[str]) -> str:
    noise.seek(0)
    noise_lines = [
        line.strip() for line in noise if line.strip() and _WARNING not in line
    ]
    last = f": {to_terminal(noise_lines[-1])}" if noise_lines else ""
    return f"The kernel did not run ({type(error).__name__.lstrip('_')}{last})"


def _texts(kind: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Return the texts of a message for a terminal."""
    match kind:
        case "stream":
            yield _COLOURS.sub("", content["text"])
        case "display_data" | "execute_result":
            yield content["data"].get("text/plain", "") + "\n"
        case "error":
            yield _COLOURS.sub("", "\n".join(content["traceback"])) + "\n"
