from collections.abc import Iterator

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from svc_notebook.display.live import Screen


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
    screen = Screen()

    screen.publish({"text/plain": "a"}, "d-1")
    screen.update({"text/plain": "b"}, "d-1")

    got = [(out["data"], out["transient"], out["update"]) for out in published.outputs]
    assert got == [
        ({"text/plain": "a"}, {"display_id": "d-1"}, False),
        ({"text/plain": "b"}, {"display_id": "d-1"}, True),
    ]


def test_outputs_without_id_have_none(published: CapturingDisplayPublisher) -> None:
    """A final output can never be updated by chance."""
    Screen().publish({"text/plain": "a"}, None)

    assert [out["transient"] for out in published.outputs] == [None]


@pytest.mark.parametrize("act", ["clear", "erase"])
def test_clearing_takes_outputs_away(
    published: CapturingDisplayPublisher, act: str
) -> None:
    """Both ways of emptying a cell reach IPython."""
    screen = Screen()
    screen.publish({"text/plain": "a"}, None)

    getattr(screen, act)()

    assert published.outputs == []


def test_text_is_written_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed text goes to standard output and adds no line end."""
    Screen().write("a")

    assert capsys.readouterr().out == "a"
