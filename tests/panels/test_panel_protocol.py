"""The types in the scripts name the messages and fields that Python has."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.panel_actions import ACTIONS
from svc_notebook.panels.widget import script
from tests.panels.conftest import OpenPage
from tests.panels.protocol import Fields, of_kind, types_of

NAMES = ("attached", "kept")  # none is a list, too
KIND = re.compile(r'\b(?:send\(|this\.send\(|\{ t: )"(\w+)"')
PLACE = re.compile(r"^const \w+_BUTTONS = \[(.*)\];", re.MULTILINE)
ROW = re.compile(r'^(\w+): \{\s+label: "', re.MULTILINE)
USE = re.compile(r'\b(?:icon|text)Button\(\s*"(\w+)"')


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that calls a tool that the prompt names."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


@svc.tool(confirm=True)
def pay(amount: int) -> str:
    """Pay a person.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


def placed_buttons() -> set[str]:
    """Return the names in the lists that say where buttons are."""
    return {name for row in PLACE.findall(script()) for name in re.findall(r"\w+", row)}


def test_the_page_can_say_what_python_can_do() -> None:
    """Every row of the table is a type, and the page sends nothing else."""
    sent = {*KIND.findall(script()), *placed_buttons()}

    assert set(of_kind("Action")) == set(ACTIONS)
    assert sent <= set(ACTIONS)


def test_each_button_has_a_row() -> None:
    """The label and the icon of every button are in one table."""
    rows = {*ROW.findall(script())}

    assert {"send", "stop", "approve"} <= set(USE.findall(script())) <= rows
    assert {"undo", "regenerate", "pin"} <= placed_buttons() <= rows


@pytest.mark.parametrize("kind", ACTIONS)
def test_what_an_action_needs_is_sent(kind: str) -> None:
    """The fields without which Python refuses it are in its type."""
    fields = set(of_kind("Action")[kind])
    needed = set(ACTIONS[kind].needs)

    assert needed <= fields
    assert fields - needed <= {"t", "value", "arguments", "seq", "on", *NAMES}


def test_the_page_takes_what_python_says() -> None:
    """The page has an entry for each type of message, and no other."""
    table = script().partition("const TAKE = {")[2].partition("};")[0]

    assert set(re.findall(r"^(\w+):", table, re.MULTILINE)) == set(of_kind("Message"))


def test_the_page_reads_every_field() -> None:
    """A field that no line of the scripts names would be sent for nothing."""
    code = script()
    names = {name for fields in types_of("chat").values() for name in fields}

    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()


def test_everything_that_is_said_has_a_type(open_page: OpenPage) -> None:
    """A reply with a tool call, and a refusal, have the fields of the types."""
    page = open_page(tools=[pay])
    page.say("hello")
    page.say("set", name="temperature", value=9)
    page.say("dismiss", name="temperature")
    page.say("send", text="pay 5")
    page.wait(lambda: page.view["ask"])
    asked = page.view
    page.do("decide", id=asked["ask"]["id"], verdict="approve")

    messages = of_kind("Message")
    for said in page.heard:
        assert set(said) == set(messages[said["t"]]), said
    for view in (asked, page.view):
        check("View", view)
    assert {each["t"] for each in page.heard} >= {"ack", "live", "delta", "ended"}


def check(name: str, value: Any) -> None:  # noqa: ANN401 - JSON
    """Check that a value has the fields of its type, and so on inside it."""
    if isinstance(value, (list, tuple)):
        for each in value:
            check(name, each)
    elif value is not None:
        assert isinstance(value, Mapping), (name, value)
        fields: Fields = types_of("chat")[name]
        assert set(value) == set(fields), (name, set(value) ^ set(fields))
        for field, kind in fields.items():
            inner = kind.strip("?").removesuffix("[]")
            if inner in types_of("chat"):
                check(inner, value[field])
