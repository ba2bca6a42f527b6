"""A panel's actions, view and settings, without a widget."""

from typing import Any

import pytest

from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.errors import ParameterError
from svc_notebook.panels.browser_messages import BrowserMessage, read_message
from svc_notebook.panels.panel_actions import FIELDS, GONE, allowed, allowed_on, refusal
from svc_notebook.panels.settings_form import OFFERED, PanelSettings, fields
from svc_notebook.panels.view import PanelState, Phase, draw_meter, draw_turn, to_view
from svc_notebook.service.params import PARAMS
from svc_notebook.service.request import (
    FunctionCall,
    Message,
    ToolCall,
    assistant,
    user,
)
from svc_notebook.tokens import Tokens


def turn(
    *, n_versions: int = 1, n_choices: int = 1, is_cut: bool = False, text: str = "text"
) -> Turn:
    """Return a turn of so many versions."""
    choices = tuple(assistant(text) for _ in range(n_choices))
    version = Version(
        exchange_id="e",
        prompt=user("ask"),
        replies=choices[:1],
        choices=choices if n_choices > 1 else (),
        is_cut=is_cut,
    )
    return Turn(turn_id="t", versions=(version,) * n_versions)


@pytest.mark.parametrize(
    ("phase", "n_turns", "steps", "expected"),
    [
        (Phase.IDLE, 0, "", "send set enter"),
        (Phase.IDLE, 1, "", "send set enter clear"),
        (Phase.IDLE, 0, "undo", "send set enter undo"),
        (Phase.IDLE, 2, "undo redo", "send set enter undo redo clear"),
        (Phase.BUSY, 2, "undo redo", "stop set enter"),
        (Phase.WAITING, 2, "undo redo", "stop set enter"),
        (Phase.ASKING, 2, "undo redo", "stop decide set enter"),
    ],
)
def test_what_the_whole_panel_takes(
    phase: Phase, n_turns: int, steps: str, expected: str
) -> None:
    """One reply at a time; while it comes it can be stopped and nothing else."""
    history = History(turns=(turn(),) * n_turns)

    assert allowed(phase, history, steps=steps.split()) == tuple(expected.split())


ALWAYS = "regenerate edit delete pin hide"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ALWAYS),
        ({"is_cut": True}, f"continue {ALWAYS}"),
        ({"is_cut": True, "text": ""}, ALWAYS),
        ({"n_choices": 2}, f"{ALWAYS} pick"),
        ({"n_versions": 2}, f"{ALWAYS} choose"),
    ],
)
def test_what_a_turn_takes(given: dict[str, Any], expected: str) -> None:
    """Continue needs a cut text, pick several choices, versions more than one."""
    assert allowed_on(turn(**given), Phase.IDLE) == tuple(expected.split())


@pytest.mark.parametrize(
    ("message", "phase", "reason"),
    [
        (BrowserMessage(kind="send", text="x"), Phase.IDLE, None),
        (BrowserMessage(kind="send", text="x"), Phase.BUSY, "being written"),
        (BrowserMessage(kind="stop"), Phase.BUSY, None),
        (BrowserMessage(kind="stop"), Phase.IDLE, "nothing to stop"),
        (BrowserMessage(kind="undo"), Phase.IDLE, "nothing to undo"),
        (BrowserMessage(kind="redo"), Phase.IDLE, "nothing to redo"),
        (BrowserMessage(kind="decide"), Phase.BUSY, "answered already"),
        (BrowserMessage(kind="set", name="n"), Phase.BUSY, None),
        (BrowserMessage(kind="hello"), Phase.WAITING, None),
        (BrowserMessage(kind="regenerate", turn="t"), Phase.IDLE, None),
        (BrowserMessage(kind="regenerate", turn="t"), Phase.BUSY, "being written"),
        (BrowserMessage(kind="continue", turn="t"), Phase.IDLE, "complete"),
        (BrowserMessage(kind="pick", turn="t"), Phase.IDLE, "one choice"),
        (BrowserMessage(kind="choose", turn="t"), Phase.IDLE, "one version"),
        (BrowserMessage(kind="edit", turn="gone"), Phase.IDLE, GONE),
    ],
)
def test_what_may_not_be_is_refused_in_words(
    message: BrowserMessage, phase: Phase, reason: str | None
) -> None:
    """A browser with an old view gets the reason."""
    history = History(turns=(turn(),))

    got = refusal(message, phase, history, steps=())

    assert (got is None) == (reason is None)
    assert reason is None or reason in (got or "")


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"t": "other"},
        {"t": ["send"]},
        {"t": "send"},
        {"t": "edit", "turn": "t"},
        {"t": "choose", "turn": "t", "version": "2"},
        {"t": "choose", "turn": "t", "version": True},
        {"t": "pick", "turn": "t", "choice": -1},
        {"t": "decide", "id": "1", "verdict": "maybe"},
    ],
)
def test_other_messages_are_refused(content: object) -> None:
    """What is not known, or lacks something, says to reload the page."""
    with pytest.raises(ParameterError, match="reload"):
        read_message(content, FIELDS, is_subshelled=False)


def view_of(state: PanelState, *turns: Turn) -> dict[str, Any]:
    """Return the view of a panel with these turns."""
    return to_view(
        state,
        History(name="plan", system="Be brief", turns=turns),
        can=("send", "undo"),
        turns=[
            draw_turn(number, turn, can=allowed_on(turn, Phase.IDLE))
            for number, turn in enumerate(turns, start=1)
        ],
        meter=draw_meter(Tokens(5.0, under=1.0, over=2.0), note="left out: 2"),
        model="svc-instruct",
    )


def test_tool_calls_are_shown_escaped() -> None:
    """Arguments and results are text, whatever a model or a tool wrote."""
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments='{"a":"<b>"}'))
    version = Version(
        exchange_id="e",
        prompt=user("ask"),
        replies=(
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content="Error: <img>", tool_call_id="c"),
            assistant("done"),
        ),
    )

    [got] = view_of(PanelState(), Turn(turn_id="t", versions=(version,)))["turns"]

    [step] = got["tool_runs"]
    assert (step["name"], step["is_error"]) == ("f", True)
    assert "&lt;b&gt;" in step["html"]
    assert "&lt;img&gt;" in step["html"]
    assert "<b>" not in step["html"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("temperature", "0.3", {"temperature": 0.3}),
        ("temperature", 1, {"temperature": 1}),
        ("n", "2", {"n": 2}),
        ("stop", "END\n\\n\\n\n", {"stop": ("END", "\n\n")}),
        ("stop", "a\\\\nb", {"stop": ("a\\nb",)}),
        ("top_p", " ", {}),
        ("presence_penalty", None, {}),
    ],
)
def test_what_is_typed_becomes_a_parameter(
    name: str, value: object, expected: dict[str, Any]
) -> None:
    """Numbers and lines are read; nothing typed is nothing sent."""
    assert PanelSettings().setting(name, value).params == expected


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("temperature", "3", "0 to 2"),
        ("temperature", "warm", "0 to 2"),
        ("temperature", "nan", "0 to 2"),
        ("n", "1.5", "integer"),
        ("max_tokens", "9000", "8192"),
        ("stop", "a\nb\nc\nd\ne", "up to 4"),
        ("other", "1", "is not a parameter"),
        ("api_key", "1", "is not a parameter"),
    ],
)
def test_what_is_not_allowed_is_refused_as_everywhere(
    name: str, value: object, remedy: str
) -> None:
    """The message is the table's own."""
    with pytest.raises(ParameterError, match=remedy):
        PanelSettings().setting(name, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("fit", "fit"), ("", "fit"), ("Service", "service"), ("200", 200), (5, 5)],
)
def test_max_tokens_takes_words_too(value: object, expected: object) -> None:
    """`fit` is what holds where nothing is typed."""
    assert PanelSettings().setting("max_tokens", value).max_tokens == expected


def test_the_fields_carry_the_documents_ranges() -> None:
    """Each offered parameter has the bounds and the default of the table."""
    by_name = {each["name"]: each for each in fields(model="svc-instruct")}
    table = {param.name: param for param in PARAMS}

    bounds = {n: (by_name[n]["minimum"], by_name[n]["maximum"]) for n in OFFERED}

    assert bounds == {n: (table[n].minimum, table[n].maximum) for n in OFFERED}
    assert list(by_name) == ["model", "system", *OFFERED, "extra"]
    assert by_name["max_tokens"]["default"] == "fit"
    assert by_name["temperature"]["default"] == "0.7"
