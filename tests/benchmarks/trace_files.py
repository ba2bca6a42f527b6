"""How many files of the package one call enters.

`python tests/benchmarks/trace_files.py` prints, for four everyday calls, the number of
the package's files whose functions run, the emulator's left out; `-v` lists them. Each
call is made once before it is traced, so that nothing is counted that happens once.
It is no test: nothing fails.
"""

import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import comm
from comm.base_comm import BaseComm
from IPython.core.interactiveshell import InteractiveShell

import svc_notebook as svc

PACKAGE = Path(svc.__file__).parent
UNCOUNTED = {"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"}
TIMEOUT_S = 60


class Trace:
    """Collects the files whose functions are called while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call."""
        if self.is_on and event == "call" and frame.f_code.co_name not in UNCOUNTED:
            self.files.add(frame.f_code.co_filename)

    def of(self, call: Callable[[], object]) -> list[str]:
        """Return the files that a call enters the second time it is made."""
        call()
        gc.collect()
        self.files.clear()
        self.is_on = True
        call()
        self.is_on = False
        entered = [Path(name) for name in self.files if name.startswith(str(PACKAGE))]
        return sorted(
            name
            for path in entered
            if not (name := str(path.relative_to(PACKAGE))).startswith("emulator")
        )


class PageComm(BaseComm):
    """A comm whose other end is this program."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - BaseComm's
        self.n_ended = 0
        self.state = ""
        super().__init__(*args, **kwargs)

    def publish_msg(  # type: ignore[override]  # the rest is not looked at
        self,
        _msg_type: str,
        data: Any = None,  # noqa: ANN401 - BaseComm's
        **_: object,
    ) -> None:
        """Note that a reply has ended, and what the panel is doing."""
        data = data or {}
        self.n_ended += data.get("content", {}).get("t") == "ended"
        self.state = data.get("state", {}).get("view", {}).get("state", self.state)

    def ask(self, text: str) -> None:
        """Send a prompt as the browser does, and wait for the end of its reply."""
        n_ended = self.n_ended
        content = {"t": "send", "text": text}
        data = {"method": "custom", "content": content}
        message = {"content": {"comm_id": self.comm_id, "data": data}, "buffers": []}
        self.handle_msg(message)
        until_s = time.monotonic() + TIMEOUT_S
        while self.n_ended == n_ended or self.state != "idle":
            if time.monotonic() > until_s:
                sys.exit("the panel's reply does not end")
            time.sleep(0.01)


def main() -> None:
    """Trace the calls, print what they enter."""
    trace = Trace()
    threading.setprofile(trace)  # the threads that the package starts
    sys.setprofile(trace)
    shell = InteractiveShell.instance(colors="nocolor")
    svc.use(ledger=":memory:")
    svc.use(endpoint="emulator")
    shell.run_line_magic("load_ext", "svc_notebook")
    vars(comm)["create_comm"] = PageComm
    page: Any = svc.panel("trace").comm

    def cell() -> None:
        shell.run_cell("%%svc\nSay hello.\n")  # type: ignore[no-untyped-call]
        svc.replies_df()

    def sweep() -> None:
        run = svc.sweep("Say hello.", repeats=1)
        run.run()
        run.replies_df()

    calls: dict[str, Callable[[], object]] = {
        "svc.complete": lambda: svc.complete("Say hello."),
        "a %%svc cell and replies_df": cell,
        "a sweep of one request": sweep,
        "a panel message": lambda: page.ask("Say hello."),
    }
    for name, call in calls.items():
        files = trace.of(call)
        sys.stderr.write(f"{name}: {len(files)} files\n")
        if "-v" in sys.argv:
            sys.stderr.write("".join(f"    {each}\n" for each in files))
    sys.setprofile(None)


if __name__ == "__main__":
    main()
