"""A real kernel, spoken to as a front end does."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import Empty
from threading import Event
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from svc_notebook.emulator.emulator import Emulator

TIMEOUT_S = 120.0


@dataclass
class Ran:
    """A cell that was run.

    Attributes:
        status: ok, error or aborted.
        messages: What the kernel published for it: (type, content), in order.
    """

    status: str = ""
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return the contents of one type of message."""
        return [content for each, content in self.messages if each == kind]

    @property
    def shown(self) -> str:
        """Everything that was shown, updates included, as one text."""
        return "\n".join(
            str(content.get("data") or content.get("text") or "")
            for _, content in self.messages
        )


class Kernel:
    """A kernel of this Python.

    Args:
        env: What its environment holds besides this one's.
    """

    def __init__(self, env: dict[str, str]) -> None:
        self.manager = KernelManager(
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]), kernel_name="python3"
        )
        self.manager.start_kernel(env={**os.environ, **env})
        client = self.manager.client()
        assert isinstance(client, BlockingKernelClient)
        self.client = client
        self.next_inputs: list[str] = []  # what cells put below themselves
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT_S)

    def begin(self, code: str, *, is_watched: bool = True, cell_id: str = "") -> str:
        """Send a cell; somebody watches it, or nobody does as in nbclient."""
        if not cell_id:
            cell: str = self.client.execute(code, allow_stdin=is_watched)
            return cell
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": is_watched,
            "stop_on_error": True,
        }
        metadata = {"cellId": cell_id}
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def read(self, cell: str, ran: Ran, *, until: str = "") -> Ran:
        """Read what a cell publishes until a text shows, or until it is idle."""
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=TIMEOUT_S)
            except Empty:
                raise AssertionError(f"nothing came; so far: {ran.messages}") from None
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                ran.status = self.reply(cell)
                return ran
            if kind not in {"status", "execute_input"}:
                ran.messages.append((kind, content))
            if until and until in ran.shown:
                return ran

    def reply(self, cell: str) -> str:
        """Return how a cell ended."""
        while True:
            message = self.client.get_shell_msg(timeout=TIMEOUT_S)
            if message["parent_header"].get("msg_id") == cell:
                content = message["content"]
                for each in content.get("payload", ()):
                    if each["source"] == "set_next_input":
                        self.next_inputs.append(each["text"])
                status: str = content["status"]
                return status

    def run(self, code: str, *, is_watched: bool = True, cell_id: str = "") -> Ran:
        """Run a cell to its end."""
        return self.read(
            self.begin(code, is_watched=is_watched, cell_id=cell_id), Ran()
        )

    def value(self, expression: str) -> str:
        """Return what an expression prints as."""
        ran = self.run(f"print({expression})", is_watched=False)
        return "".join(each["text"] for each in ran.all("stream")).strip()

    def close(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


def wait_for_request(emulator: Emulator) -> None:
    """Wait until a request has come."""
    late_s = time.monotonic() + TIMEOUT_S
    while not emulator.requests:
        assert time.monotonic() < late_s
        Event().wait(0.01)


@pytest.fixture
def kernel(emulator: Emulator) -> Iterator[Kernel]:
    """A kernel with the extension loaded, whose service is the emulator."""
    env = {
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": ":memory:",
    }
    kernel = Kernel(env)
    try:
        loaded = kernel.run("%load_ext svc_notebook\nimport svc_notebook as svc")
        assert loaded.status == "ok", loaded.messages
        yield kernel
    finally:
        kernel.close()
