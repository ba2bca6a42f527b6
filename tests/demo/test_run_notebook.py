"""A notebook run in a kernel of its own, its outputs shown as they come."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from svc_notebook.demo.run_notebook import (
    Listener,
    Notebook,
    NotebookRun,
    run_notebook,
)


class Seen:
    """A listener that remembers what it heard."""

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.texts: list[str] = []
        self.listener = Listener(
            cell=lambda cell: self.cells.append(cell["source"]),
            text=self.texts.append,
            done=lambda: None,
        )

    @property
    def text(self) -> str:
        """All text, joined."""
        return "".join(self.texts)


def _notebook(*sources: str) -> Notebook:
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources)
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def _play(seen: Seen, folder: Path, *sources: str) -> NotebookRun:
    return run_notebook(
        _notebook(*sources), seen.listener, env=os.environ, cwd=str(folder), columns=60
    )


def test_shows_what_the_cells_show(tmp_path: Path) -> None:
    """Prints, results and frames come in order, frames as wide as was said."""
    seen = Seen()

    ended = _play(
        seen,
        tmp_path,
        "print('one')",
        "import pandas; pandas.get_option('display.width')",
    )

    assert ended.reason == ""
    assert seen.text == "one\n60\n"
    assert len(seen.cells) == 2


def test_what_ran_is_a_notebook_of_the_format(tmp_path: Path) -> None:
    """Texts, results, displays and errors are kept as a front end would keep them."""
    shown = "from IPython.display import display, HTML; display(HTML('<b>x</b>')); 42"

    ended = _play(Seen(), tmp_path, "print('one')\nprint('two')", shown, "1 / 0")

    nbformat.validate(nbformat.from_dict(ended.notebook))  # type: ignore[no-untyped-call]  # nbformat's
    kinds = [
        [output["output_type"] for output in cell["outputs"]]
        for cell in ended.notebook["cells"]
    ]
    assert kinds == [["stream"], ["display_data", "execute_result"], ["error"]]
    assert [cell["execution_count"] for cell in ended.notebook["cells"]] == [1, 2, 3]


def test_a_failing_cell_ends_the_run(tmp_path: Path) -> None:
    """The error shows without colours, later cells do not run, what ran is kept."""
    seen = Seen()

    ended = _play(seen, tmp_path, "print('one')", "1 / 0", "print('three')")

    assert ended.reason == "The cell above failed"
    assert not ended.is_stopped
    assert "ZeroDivisionError: division by zero" in seen.text
    assert "\x1b" not in seen.text
    assert "three" not in seen.text
    assert ended.notebook["cells"][0]["outputs"][0]["text"] == "one\n"


def test_a_kernel_that_dies_is_one_sentence(tmp_path: Path) -> None:
    """A kernel that ends by itself is named; there is no traceback."""
    ended = _play(Seen(), tmp_path, "import os; os._exit(1)")

    assert ended.reason == "The kernel did not run (DeadKernelError)"


@pytest.mark.parametrize("n_times", [1, 3])
def test_ctrl_c_while_the_kernel_starts_is_calm(tmp_path: Path, n_times: int) -> None:
    """A kernel that is stopped before it has answered goes; no error shows.

    The kernel's own start sends the signal, so that it comes in that time.
    """
    start = tmp_path / "ipython" / "profile_default" / "startup" / "stop.py"
    start.parent.mkdir(parents=True)
    start.write_text(
        f"import os, time\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        f"for _ in range({n_times}): os.kill({os.getpid()}, {int(signal.SIGINT)}); "
        f"time.sleep(0.05)\n"
        f"time.sleep(60)\n"
    )
    seen = Seen()

    ended = run_notebook(
        _notebook("print('never')"),
        seen.listener,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")},
        cwd=str(tmp_path),
        columns=60,
    )

    assert (ended.reason, ended.is_stopped) == ("Stopped", True)
    assert seen.text == ""
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_terminal_commands_of_an_output_are_shown_not_obeyed(tmp_path: Path) -> None:
    """An output cannot move the cursor or set the title of the terminal."""
    seen = Seen()

    _play(seen, tmp_path, r"print('\x1b]0;title\x07')")

    assert "\x1b" not in seen.text
    assert "title" in seen.text


def test_a_kernel_of_the_same_name_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `python3` kernel that the user installed for another Python is passed over."""
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": ["/no/such/python"], "display_name": "Other"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    seen = Seen()

    ended = _play(seen, tmp_path, "print('here')")

    assert (ended.reason, seen.text) == ("", "here\n")
