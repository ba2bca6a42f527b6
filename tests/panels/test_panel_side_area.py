"""Where a panel is: in its cell, or in JupyterLab's side area."""

import sys

import pytest

from svc_notebook.errors import ParameterError
from tests.panels.conftest import OpenPage


def test_a_place_that_does_not_exist_is_refused(open_page: OpenPage) -> None:
    """The message names the places that do."""
    with pytest.raises(ParameterError, match="must be 'cell', or 'right'"):
        open_page(place="left")


def test_without_sidecar_the_panel_says_what_it_needs(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in its cell, and the notice has the command that installs it."""
    monkeypatch.setitem(sys.modules, "sidecar", None)
    page = open_page()
    page.say("dock")

    assert page.view["sidecar_id"] == ""
    assert page.view["notice"] == (
        "The panel is in this cell: in JupyterLab's side area it needs sidecar, which "
        "is not installed. Install it with: python -m pip install sidecar"
    )


def test_the_cell_is_named_as_it_was_written(open_page: OpenPage) -> None:
    """Its call has the old name after the conversation was renamed, which works, too.

    So a restarted kernel's panel in the side area names a cell that the user finds.
    """
    page = open_page("plan")
    page.say("rename", name="trip")
    renamed = page.view
    again = open_page("plan", place="right").view

    assert (renamed["name"], renamed["call"]) == ("trip", 'svc.panel("plan", …)')
    assert (again["name"], again["call"]) == ("trip", 'svc.panel("plan", …)')
    assert open_page(None).view["call"] == "svc.panel(…)"


def test_one_sidecar_is_open_at_a_time(open_page: OpenPage) -> None:
    """To come to the front it opens again; the page knows it before the panel is there.

    A page that tells of an earlier one closes nothing.
    """
    pytest.importorskip("sidecar", reason="needs the extra `dock`")
    page = open_page()
    page.say("dock")
    first = page.view["sidecar_id"]
    page.say("dock")
    second = page.view["sidecar_id"]
    page.say("undock", name=first)

    assert first
    assert second not in ("", first)
    assert page.view["sidecar_id"] == second
    page.say("undock", name=second)
    assert page.view["sidecar_id"] == ""
