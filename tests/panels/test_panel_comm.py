"""The way to the browser on kernels that send its messages elsewhere."""

from collections.abc import Callable
from typing import Any

import comm
import pytest
import traitlets
from comm.base_comm import BaseComm
from ipywidgets import Widget

from svc_notebook.panels.frontend import Comm


class ReroutingComm(BaseComm):
    """Sends messages to where it last published, as ipykernel 7.4 does."""

    def publish_msg(self, *_: object, **__: object) -> None:
        """Go nowhere."""

    def _reply_subshell_for(self, data: object, chosen: str | None) -> str | None:
        del data, chosen
        return "elsewhere"


class FixedComm(ReroutingComm):
    """The same, where that cannot be changed."""

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any
        if name == "_reply_subshell_for":
            raise AttributeError(name)
        super().__setattr__(name, value)


class Shown(Widget):  # type: ignore[misc]  # ipywidgets has no types
    """A widget with a picture."""

    view = traitlets.Dict().tag(sync=True)


def outlet_on(
    kind: type[BaseComm], monkeypatch: pytest.MonkeyPatch
) -> tuple[Comm, Shown]:
    """Return the outlet of a widget whose comm is of this kind."""
    make: Callable[..., BaseComm] = kind
    monkeypatch.setattr(comm, "create_comm", make)
    widget = Shown()
    return Comm(widget), widget


def test_the_front_ends_choice_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages go to the subshell that the front end names."""
    outlet, widget = outlet_on(ReroutingComm, monkeypatch)

    outlet.put({"a": 1})

    found: Any = widget.comm
    route = found._reply_subshell_for  # noqa: SLF001 - the kernel's own call
    assert route({}, "chosen") == "chosen"
    assert (outlet.is_lost, widget.view) == (False, {"a": 1, "nth": 1, "seq": 1})


def test_where_it_cannot_be_the_way_is_lost_until_something_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the page has to say hello again; what is heard mends it."""
    outlet, _ = outlet_on(FixedComm, monkeypatch)

    before = outlet.is_lost
    is_free = outlet.hear()

    assert (before, is_free, outlet.is_lost) == (True, False, False)


def test_a_closed_widget_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saying something after the end is no error."""
    outlet, widget = outlet_on(ReroutingComm, monkeypatch)
    widget.close()

    outlet.send({"t": "ended"})
    outlet.put({"a": 1})

    assert widget.view == {}
