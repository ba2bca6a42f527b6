"""The demo's notebooks: what is changed in them, run in a kernel, or opened in a Lab.

Against the emulator the quickstart runs without a change; for the service the cell
tagged `service` is changed. A kernel uses this Python, whatever kernels are installed,
and has ended when `run_notebook` returns, also after Ctrl-C. `svc-notebook lab` opens a
copy of the tour, with an emulator that ends with JupyterLab; an existing copy is not
overwritten.
"""

import asyncio
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryFile
from typing import IO, Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output

from svc_notebook.display.markup import to_terminal
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import SettingsError

NAME = "quickstart.ipynb"
ANSWERS = "answers.json"  # what it is answered, written by hand
FOLDER = "svc-notebook-demo"
EMULATOR = "the emulator"
_TAG = "service"


def notebooks_folder() -> Path:
    """Return the folder of the notebooks: in the wheel, or else in the checkout.

    Raises:
        SettingsError: It is in neither.
    """
    package = Path(str(files("svc_notebook")))
    for found in (package / "notebooks", package.parent / "notebooks"):
        if (found / NAME).is_file():
            return found
    raise SettingsError(
        f"The demo's notebook, {NAME}, was not installed with the package. Install "
        "it again: python -m pip install --force-reinstall svc-notebook."
    )


def read_quickstart() -> NotebookNode:
    """Read the quickstart.

    Raises:
        SettingsError: It was not installed.
    """
    text = (notebooks_folder() / NAME).read_text("utf-8")
    read: NotebookNode = nbformat.reads(text, as_version=4)
    return read


def for_service(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook asking the real service instead of the emulator."""
    changed = deepcopy(notebook)
    for cell in changed.cells:
        if _TAG in cell.metadata.get("tags", []):
            cell.source = "%svc use service"
    return changed


def with_note(notebook: NotebookNode, *, who: str, now: datetime) -> NotebookNode:
    """Return the notebook with a first cell that says who answered, and when.

    Args:
        notebook: The notebook as it ran.
        who: Who answered: `EMULATOR` or the service's address.
        now: When it ran (aware).
    """
    when = now.strftime("%Y-%m-%d %H:%M %Z").strip()
    text = f"> This copy was run by `svc-notebook demo` on {when}.\n> "
    text += (
        "**Every reply and every number below comes from the emulator**, a program "
        "on this machine; no service was asked and nothing was spent."
        if who == EMULATOR
        else f"The replies below come from the service at {who}."
    )
    changed = deepcopy(notebook)
    note = nbformat.v4.new_markdown_cell(text)
    note["id"] = "demo-note"
    changed.cells.insert(0, note)
    changed.metadata["svc_notebook"] = {"answered_by": who}
    return changed


def make_folder(out: Path | None, *, here: Path) -> Path:
    """Make the folder that the executed notebook is written to.

    Args:
        out: The folder asked for; None for a new one.
        here: Where a new one is made.

    Raises:
        SettingsError: It cannot be made, or it already holds such a notebook.
    """
    if out is not None and (out / NAME).exists():
        raise SettingsError(
            f"{out / NAME} already exists and may contain your own work; choose "
            "another folder with --out, or move that file."
        )
    names = chain([FOLDER], (f"{FOLDER}-{n}" for n in count(2)))
    made = out or next(here / name for name in names if not (here / name).exists())
    try:
        made.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"The folder {made} cannot be created ({error.strerror}); choose a folder "
            "that you can write to with --out DIR."
        ) from None
    if not (made / ANSWERS).exists():
        copyfile(notebooks_folder() / ANSWERS, made / ANSWERS)
    return made


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
class RunResult:
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
) -> RunResult:
    """Run every cell and report to the listener.

    Args:
        notebook: Run without a change; its outputs are replaced.
        listener: Is called while it runs.
        env: The kernel's whole environment.
        cwd: The kernel's folder.
        columns: How wide frames may be printed.
    """
    return asyncio.run(_run(_Client(notebook, listener, columns), env, cwd))


async def _run(client: "_Client", env: Mapping[str, str], cwd: str) -> RunResult:
    notebook = client.nb
    with TemporaryFile("w+", errors="replace") as noise:
        try:
            await client.async_execute(
                env=dict(env), cwd=cwd, stdout=noise, stderr=noise, cleanup_kc=True
            )
        except CellExecutionError:
            return RunResult(notebook, "The cell above failed")
        except (DeadKernelError, asyncio.CancelledError, RuntimeError) as error:
            if client.is_stopped:
                return RunResult(notebook, "Stopped", is_stopped=True)
            return RunResult(notebook, _why(error, noise))
        finally:
            await client.end_kernel()
    return RunResult(notebook)


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


LAB_FOLDER = "svc-notebook-tour"


def open_lab(folder: Path | None = None, options: Sequence[str] = ()) -> int:
    """Open JupyterLab on the tour, wait for its end, return its exit status.

    Args:
        folder: Where the tour is copied to; `svc-notebook-tour` here if None.
        options: For JupyterLab, such as --no-browser.

    Raises:
        SettingsError: JupyterLab is not installed, or the folder cannot be written.
    """
    if find_spec("jupyterlab") is None:
        raise SettingsError(
            "JupyterLab is not installed. Install it with "
            "`python -m pip install 'svc-notebook[lab]'`, or run `svc-notebook demo`, "
            "which needs only a terminal."
        )
    tour = copy_tour(folder or Path(LAB_FOLDER))
    with Emulator() as emulator:
        print(  # noqa: T201 - the command's answer
            f"JupyterLab opens on {tour}, a copy that you can change.\n"
            "An emulator of the service answers on this machine: its replies were "
            "written by hand or are made up, and marked.\nCtrl-C twice ends both.",
            flush=True,
        )
        command = [sys.executable, "-m", "jupyterlab", *options, str(tour)]
        with subprocess.Popen(  # noqa: S603 - our own command
            command, env=lab_env(os.environ, emulator)
        ) as lab:
            signal.signal(signal.SIGTERM, lambda *_: lab.terminate())
            return _wait(lab)


def copy_tour(folder: Path) -> Path:
    """Copy the notebooks into a folder; return the one to begin with.

    Raises:
        SettingsError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "images").mkdir(exist_ok=True)
        tour = notebooks_folder()
        for source in (
            *tour.glob("*.ipynb"),
            *tour.glob("*.json"),
            *tour.glob("*.csv"),
            *tour.glob("*.toml"),
            *tour.glob("images/*.png"),
        ):
            target = folder / source.relative_to(tour)
            if not target.exists():
                shutil.copyfile(source, target)
    except OSError as error:
        raise SettingsError(
            f"The folder {folder} cannot be written ({error.strerror}); choose another "
            "with --dir."
        ) from None
    return folder / NAME


def lab_env(environ: Mapping[str, str], emulator: Emulator) -> dict[str, str]:
    """Return JupyterLab's environment, in which the emulator is the service."""
    return {
        **environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
    }


def _wait(lab: "subprocess.Popen[bytes]") -> int:
    """Wait for JupyterLab, which handles Ctrl-C itself."""
    while True:
        try:
            return lab.wait()
        except KeyboardInterrupt:
            continue
