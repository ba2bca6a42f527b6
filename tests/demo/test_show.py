"""What the demo says at its beginning and its end."""

from pathlib import Path

import pytest

from svc_notebook.demo import notebook as book
from svc_notebook.demo.play import Ended
from svc_notebook.demo.show import PLAIN, Page


def test_a_demo_that_asked_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped before its first request it names no ledger and nobody who answered."""
    ended = Ended(book.find(), "Stopped", is_stopped=True)

    Page("the emulator", palette=PLAIN).end(ended, tmp_path)

    assert capsys.readouterr().out == (
        f"\n  Stopped.\n\n  Written\n    {tmp_path / book.NAME}  (nothing was asked)\n"
    )
