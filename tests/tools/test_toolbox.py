"""Toolboxes and consent."""

from dataclasses import replace
from typing import Any

import pytest

from svc_notebook.errors import ToolCallError, ToolSchemaError
from svc_notebook.service.request import FunctionCall, ToolCall
from svc_notebook.tools.call import CheckedCall, check_call
from svc_notebook.tools.consent import (
    ConsentDecision,
    Proposal,
    Remembered,
    deny_all,
)
from svc_notebook.tools.toolbox import Toolbox, to_toolbox, tool

READY: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Find <b>something</b>.",
        "parameters": {
            "type": "object",
            "properties": {"what": {"type": "string"}},
            "required": ["what"],
            "additionalProperties": False,
        },
    },
}


def weather(city: str) -> str:
    """Tell the weather."""
    return city


def now() -> str:
    """Tell the time."""
    return "noon"


def test_a_toolbox_holds_tools_in_order() -> None:
    """Functions, tools and ready-made definitions are tools, found by name."""
    asking = tool(now, confirm=True)

    box = Toolbox([weather, asking, READY])

    assert box.names == ("weather", "now", "find")
    assert [each.name for each in box] == ["weather", "now", "find"]
    assert len(box) == 3
    assert "now" in box
    assert box.tool("now") is asking
    assert box.definitions[2] == READY
    assert repr(box) == "Toolbox([weather, now, find])"


def test_two_tools_of_one_name_are_refused() -> None:
    """A call says no more than a name; the remedy is another one."""
    with pytest.raises(ToolSchemaError, match=r"called 'weather'.*name="):
        Toolbox([weather, tool(weather)])


def test_toolboxes_are_added() -> None:
    """A sum offers both; the very same tool is offered once, a namesake is refused."""
    asking = tool(now)

    box = Toolbox([weather, asking])

    assert (box + Toolbox([asking])).names == ("weather", "now")
    assert (Toolbox() + weather).names == ("weather",)
    with pytest.raises(ToolSchemaError):
        Toolbox([now]) + asking


@pytest.mark.parametrize("given", ["weather", b"x", 3, ["weather"], [None], [str]])
def test_what_is_no_tool_is_refused(given: object) -> None:
    """The refusal says what a toolbox is made of."""
    with pytest.raises(ToolSchemaError, match="function"):
        to_toolbox(given)


def test_a_toolbox_is_drawn_with_everything_escaped() -> None:
    """The table names tools, descriptions and what a request pays for them."""
    html = Toolbox([READY, tool(now, confirm=True)])._repr_html_()

    assert "Find &lt;b&gt;something&lt;/b&gt;." in html
    assert "asks first" in html
    assert "2 tools, about" in html


def _proposal() -> Proposal:
    call = ToolCall(
        id="call_1", function=FunctionCall(name="weather", arguments='{"city": "Nan"}')
    )
    checked = check_call(Toolbox([weather]), call)
    assert isinstance(checked, CheckedCall)
    return Proposal.of(checked)


def test_one_tool_can_be_forgotten() -> None:
    """The others stay allowed; those who share what is allowed forget it together."""
    consent = Remembered(lambda _: ConsentDecision(verdict="always"))
    beside = Remembered(deny_all, shared_with=consent)
    proposal = _proposal()
    consent(proposal)
    consent(replace(proposal, name="other"))

    consent.forget("weather")

    assert beside.always == ("other",)
    assert beside(proposal).verdict == "deny"


def test_an_unknown_name_is_shown_printable_once() -> None:
    """Control characters become escapes, and these are not escaped again."""
    with pytest.raises(ToolCallError) as caught:
        Toolbox().tool("a\x1b")

    assert str(caught.value) == "There is no tool 'a\\x1b'; the tools are: none."
