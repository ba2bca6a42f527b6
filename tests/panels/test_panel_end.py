"""What is left of a panel that ended, and what is said of what went wrong."""

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from svc_notebook.emulator.server import Emulator
from tests.panels.conftest import OpenPage

SLOW = {"when": {"contains": "slow"}, "text": ["word "] * 400, "gap_s": 0.02}
FAIL = {"when": {"contains": "Fail"}, "error": {"message": "No way."}, "status": 400}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with a slow reply and a refusal."""
    script: list[dict[str, Any]] = [SLOW, FAIL]
    with Emulator(
        script=script, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


def test_what_is_refused_is_a_problem_and_a_note_is_none(open_page: OpenPage) -> None:
    """The picture says which; a new reply begins without either."""
    page = open_page()
    failed = page.do("send", text="Fail")
    assert (failed["is_problem"], "No way." in failed["notice"]) == (True, True)
    page.say("set", name="temperature", value=9)
    assert (page.view["is_problem"], "9" in page.view["notice"]) == (True, True)

    page.ask("Hello")

    assert (page.view["is_problem"], page.view["notice"]) == (False, "")


def test_a_refusal_during_a_reply_goes_with_it(open_page: OpenPage) -> None:
    """When the reply has ended it is not said any longer that one is under way."""
    page = open_page()
    page.say("send", text="Be slow")
    page.say("send", text="And this")
    assert (page.view["is_problem"], "being written" in page.view["notice"]) == (
        True,
        True,
    )
    page.say("stop")
    page.wait_idle()

    assert (page.view["is_problem"], page.view["notice"]) == (False, "")


@pytest.mark.parametrize("end", ["close", "freeze"])
def test_a_panel_that_ended_shows_as_its_transcript(
    open_page: OpenPage, end: str
) -> None:
    """There is nothing to chat with any longer; ending it again does nothing."""
    page = open_page()
    page.ask("Hello")
    InteractiveShell.clear_instance()
    formatter = InteractiveShell.instance().display_formatter
    assert formatter is not None
    try:
        with capture_output():
            getattr(page.panel, end)()
            page.panel.close()
        with capture_output() as captured:
            formatter.format(page.panel)  # type: ignore[no-untyped-call]  # IPython's
    finally:
        InteractiveShell.clear_instance()

    [shown] = captured.outputs
    assert "Hello" in shown.data["text/plain"]
    assert set(shown.data) == {"text/html", "text/plain"}
