"""The box that a cell shows for one of our errors."""

import pytest

from svc_notebook.magics.error_box import error_lines


def test_errors_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expected failure is its title in bold and indented lines."""
    monkeypatch.delenv("NO_COLOR", raising=False)

    got = error_lines("Refused", ["Wait 12 s,\nthen ask again."], 70)

    assert got == ["\x1b[1mRefused\x1b[0m", "  Wait 12 s,", "  then ask again."]


def test_errors_have_no_colour_where_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NO_COLOR leaves the title plain."""
    monkeypatch.setenv("NO_COLOR", "1")

    assert error_lines("Refused", [], 70) == ["Refused"]


def test_errors_show_what_was_said_without_obeying_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a server wrote does not act in a terminal."""
    monkeypatch.setenv("NO_COLOR", "1")

    assert error_lines("\x1b[2J", ["a\x1b"], 70) == ["\\x1b[2J", "  a\\x1b"]
