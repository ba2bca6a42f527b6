"""Outputs of a cell, by their ids, and the view that follows a stream."""

from collections.abc import Iterator

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from svc_notebook.display.front_end import Output
from svc_notebook.display.reply_display import Wait, follow
from svc_notebook.errors import Interrupted
from svc_notebook.service.chunk import Delta


@pytest.fixture
def published() -> Iterator[CapturingDisplayPublisher]:
    """Run a real shell without history, and keep what it publishes."""
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    original = shell.display_pub
    shell.display_pub = CapturingDisplayPublisher()  # type: ignore[no-untyped-call]  # IPython's
    yield shell.display_pub
    shell.display_pub = original
    InteractiveShell.clear_instance()


def test_outputs_are_updated_by_their_id(published: CapturingDisplayPublisher) -> None:
    """IPython gets a display with an id and then an update of the same id."""
    screen = Output()

    screen.publish({"text/plain": "a"}, "d-1")
    screen.update({"text/plain": "b"}, "d-1")

    got = [(out["data"], out["transient"], out["update"]) for out in published.outputs]
    assert got == [
        ({"text/plain": "a"}, {"display_id": "d-1"}, False),
        ({"text/plain": "b"}, {"display_id": "d-1"}, True),
    ]


@pytest.mark.parametrize("act", ["clear", "erase"])
def test_clearing_takes_outputs_away(
    published: CapturingDisplayPublisher, act: str
) -> None:
    """Both ways of emptying a cell reach IPython."""
    screen = Output()
    screen.publish({"text/plain": "a"}, None)

    getattr(screen, act)()

    assert published.outputs == []


class _Stream:
    """A stream of pieces; it raises a problem at its end, if there is one."""

    def __init__(self, *pieces: str, problem: BaseException | None = None) -> None:
        self.is_done = False
        self.completion = "".join(pieces)
        self._deltas = [Delta(text=piece) for piece in pieces]
        self._problem = problem
        self.waits_s: list[float] = []

    def poll(self, timeout_s: float) -> list[Delta]:
        """Return the pieces one at a time, without waiting."""
        self.waits_s.append(timeout_s)
        if not self._deltas and self._problem:
            raise self._problem
        self.is_done = len(self._deltas) <= 1 and self._problem is None
        return [self._deltas.pop(0)] if self._deltas else []

    def cancel(self) -> str:
        """Return what arrived."""
        self.is_done = True
        return self.completion


class _Seen:
    """A view that remembers, and says when it can show more."""

    def __init__(self, *left_s: float) -> None:
        self.calls: list[object] = []
        self._left_s = list(left_s)

    def show(self, delta: Delta) -> None:
        """Remember the text."""
        self.calls.append(delta.text)

    def wait(self, wait: Wait) -> None:
        """Remember the reason."""
        self.calls.append(wait.reason)

    def flush(self) -> float | None:
        """Remember that time passed."""
        self.calls.append("flush")
        return self._left_s.pop(0) if self._left_s else None

    def end(self, completion: object | None) -> None:
        """Remember the end."""
        self.calls.append(("end", completion))


def test_an_interrupt_keeps_what_arrived() -> None:
    """The stream is cancelled, the view sees what arrived, the error holds it."""
    seen = _Seen()

    with pytest.raises(Interrupted) as caught:
        follow(_Stream("a", problem=KeyboardInterrupt()), seen)

    assert caught.value.partial == "a"
    assert seen.calls == ["a", "flush", ("end", "a")]
