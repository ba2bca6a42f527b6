"""A panel that compares models or temperatures, spoken to through its comm."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.compared_replies import Comparing, to_group
from svc_notebook.panels.settings_form import PanelSettings
from svc_notebook.session import current, isolated
from tests.panels.conftest import TIMEOUT_S, OpenPage, Page
from tests.panels.test_panel_protocol import check

A, B, C = "svc-v2-8b-instruct", "svc-v2-70b-instruct", "svc-v1.5-instruct"
WORDS = [f"In sentence {n} there are some more words.\n\n" for n in range(400)]


def when(prompt: str, model: str, **reply: object) -> dict[str, Any]:
    """Answer a model's prompt that contains a text so."""
    return {"when": {"contains": prompt, "model": model}, "times": None, **reply}


SCRIPT = [
    when("race", A, text=["slow "] * 30, gap_s=0.02),
    when("halt", A, text=["kept "], cut_after=1, end="silent"),
    when("halt", B, text=["x"], cut_after=0, end="silent"),
    when("fail", A, status=404, error={"message": f"No model {A} here."}),
    when("stream", A, text=WORDS, gap_s=0.005),
    when("stream", B, text=WORDS, gap_s=0.005),
    when("Count", A, text="one, tw", finish_reason="length"),
    when("Go on", A, text="o, three."),
    when("limited", B, status=429, headers={"Retry-After": "1"}, times=1),
]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose models answer differently."""
    with Emulator(
        script=SCRIPT, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A panel that compares two models."""
    opened = open_page()
    opened.say("compare", name="model", value=[A, B], on=False)
    return opened


def columns(page: Page) -> dict[str, dict[str, Any]]:
    """Return the columns of the newest turn, by their labels."""
    return {each["label"]: each for each in page.view["turns"][-1]["columns"]}


def live_columns(page: Page) -> list[dict[str, Any]]:
    """Return the last state of each column while the replies were written."""
    last = {each["choice"]: each["column"] for each in page.all("column")}
    assert len(last) == 2
    return [*last.values()]


def scores() -> dict[str, int]:
    """Return the score of each model that has one."""
    frame = svc.replies_df().dropna(subset=["score_picked"])
    return dict(zip(frame["model"], frame["score_picked"], strict=True))


@pytest.mark.slow
def test_two_models_answer_side_by_side(page: Page, emulator: Emulator) -> None:
    """Each reply is an exchange of the panel's, and grows in its column."""
    turn = page.ask("Hello there")

    assert [each["label"] for each in turn["columns"]] == [A, B]
    assert {each.json["model"] for each in emulator.requests} == {A, B}
    assert {each["choice"] for each in page.all("delta")} == {0, 1}
    assert {each["choice"] for each in page.all("column")} == {0, 1}
    frame = svc.replies_df()
    assert (frame["origin"] == "panel").all()
    texts = dict(zip(frame["model"], frame["text"], strict=True))
    assert [each["text"] for each in turn["choices"]] == [texts[A], texts[B]]
    assert page.all("ended")[-1]["text"] == "Replies finished: pick one"
    for column in (*turn["columns"], *live_columns(page)):
        assert re.search(r" tokens · \d+\.\d\xa0s$", column["footer"])
        assert 0 < column["first_text_s"] < TIMEOUT_S
    assert (turn["version"], "continue" in turn["can"]) == ("", False)


@pytest.mark.slow
def test_the_pick_wins_in_the_frame_and_feeds_later_turns(
    page: Page, emulator: Emulator
) -> None:
    """Another pick replaces it."""
    turn = page.ask("Hello there")
    page.say("prefer", turn=turn["id"], version=columns(page)[A]["version"])
    assert scores() == {A: 1, B: 0}
    page.say("prefer", turn=turn["id"], version=columns(page)[B]["version"])

    assert scores() == {A: 0, B: 1}
    assert columns(page)[B]["is_picked"]
    page.say("compare", name="", value=None, on=False)
    page.ask("And then?")
    sent = emulator.requests[-1].json["messages"]
    assert sent[1]["content"] == turn["choices"][1]["text"]


@pytest.mark.slow
def test_without_a_pick_the_first_that_finished_is_used(page: Page) -> None:
    """The panel says so, and nothing is scored; a pick is still possible.

    Its version has the number of its column.
    """
    turn = page.ask("The race")
    page.ask("Next")

    [first, _] = page.view["turns"]
    assert [each["is_used"] for each in first["columns"]] == [False, True]
    assert [each["version"] for each in first["columns"]] == [1, 2]
    assert first["footer"] == (
        f"Pick the reply to continue with; without a pick it is {B}, the first that "
        "finished."
    )
    page.panel.conversation.choose(1, 1)
    assert page.view["turns"][0]["footer"] == (
        f"Pick the reply to continue with; without a pick it is {A}."
    )
    assert "score_picked" not in svc.replies_df()
    assert "prefer" in first["can"]
    assert turn["id"] == first["id"]


@pytest.mark.slow
def test_without_a_blind_pick_the_first_column_is_used(page: Page) -> None:
    """Neither words nor the choice say which was faster."""
    page.say("compare", name="model", value=[A, B], on=True)
    for _ in range(4):
        turn = page.ask("The race")

        assert [each["is_used"] for each in turn["columns"]] == [True, False]
        assert turn["footer"] == (
            "Pick the reply to continue with; without a pick it is A."
        )


@pytest.mark.slow
@pytest.mark.parametrize("text", ["Hello", "The race", "Must fail"])
def test_a_blind_comparison_names_nothing_until_the_pick(page: Page, text: str) -> None:
    """Neither a message, a view, the transcript nor an error has a model's name."""
    page.say("compare", name="model", value=[A, B], on=True)
    n_before = len(page.comm.published)
    turn = page.ask(text)

    said = json.dumps(page.comm.published[n_before:])
    assert A not in said
    assert B not in said
    assert A not in str(page.panel.conversation._repr_mimebundle_())
    assert [each["label"] for each in turn["columns"]] == ["A", "B"]
    there = next(each for each in turn["columns"] if each["version"])
    page.say("prefer", turn=turn["id"], version=there["version"])
    assert {*columns(page)} == {A, B}


@pytest.mark.slow
@pytest.mark.parametrize("is_blind", [True, False])
def test_a_column_says_what_it_waits_for(page: Page, is_blind: bool) -> None:
    """Why and how long, unless it is blind: limits are a model's."""
    page.say("compare", name="model", value=[A, B], on=is_blind)
    page.ask("Be limited")

    said = [each["column"] for each in page.all("column") if each["column"]["status"]]
    assert said
    assert {each["status"] == "Waiting …" for each in said} == {is_blind}
    assert all((each["until_ms"] is None) == is_blind for each in said)
    assert all(each["version"] for each in page.view["turns"][0]["columns"])


def test_a_blind_order_is_the_kernels() -> None:
    """It is drawn anew for each message; settings and labels go together."""
    comparing = Comparing(by="model", models=(A, B, C), is_blind=True)
    group, settings = to_group(
        comparing, PanelSettings(), lambda found: found.reverse()
    )

    assert [each.label for each in group.replies] == [C, B, A]
    assert [each.model for each in settings] == [C, B, A]


@pytest.mark.slow
def test_one_that_fails_leaves_the_others(page: Page) -> None:
    """It says why in its column; the other one can be picked, this one cannot."""
    turn = page.ask("Must fail")

    failed, good = columns(page)[A], columns(page)[B]
    assert "No model" in failed["problem"]
    assert (failed["version"], page.view["notice"]) == (0, "")
    page.say("prefer", turn=turn["id"], version=good["version"])
    assert scores() == {B: 1}


def test_if_all_fail_nothing_is_added_and_each_reason_is_named(page: Page) -> None:
    """The prompt comes back into the composer, as after any failure."""
    page.say("compare", name="temperature", value=[0, 1.5], on=True)
    page.do("send", text="Must fail")

    assert page.view["turns"] == []
    assert page.view["is_problem"]
    names = {line.partition(":")[0] for line in page.view["notice"].splitlines()}
    assert {"temperature 0", "temperature 1.5"} <= names


def wait_for_both(emulator: Emulator) -> None:
    """Wait until both models are asked; the second one brings no news."""
    end_s = time.monotonic() + TIMEOUT_S
    while len(emulator.requests) < 2:
        assert time.monotonic() < end_s
        Event().wait(0.01)


@pytest.mark.slow
def test_stop_stops_all_and_keeps_what_came(page: Page, emulator: Emulator) -> None:
    """A reply without text says so in its column."""
    page.say("send", text="Please halt")
    page.wait(lambda: page.all("delta"))
    wait_for_both(emulator)
    live = page.view["live"]
    page.say("stop")
    page.wait_idle()

    assert [each["label"] for each in live["columns"]] == [A, B]
    assert page.all("ended")[-1]["text"] == "Reply stopped"
    assert emulator.wait_idle()
    [turn] = page.view["turns"]
    assert turn["choices"][0]["text"] == "kept "
    assert columns(page)[B]["problem"] == "Stopped before any text arrived."


def test_temperatures_are_compared(page: Page, emulator: Emulator) -> None:
    """The same model is asked with each; the labels say which."""
    page.say("compare", name="temperature", value=[0, 0.7, 1.5], on=False)
    page.ask("Hello there")

    assert [*columns(page)] == ["temperature 0", "temperature 0.7", "temperature 1.5"]
    sent = {(r.json["model"], r.json["temperature"]) for r in emulator.requests}
    assert sent == {(A, 0), (A, 0.7), (A, 1.5)}
    assert page.view["compare"]["cost"] == "Each message asks 3 times."


@pytest.mark.slow
def test_asking_again_compares_again_or_not(page: Page) -> None:
    """As the panel says then; arrows go from the comparison to the single reply.

    Versions are counted as everywhere, also where several are shown side by side.
    """
    turn = page.ask("Hello there")
    page.do("edit", turn=turn["id"], text="Hello again")
    [twice] = page.view["turns"]
    page.say("compare", name="", value=None, on=False)
    page.do("regenerate", turn=turn["id"])
    [single] = page.view["turns"]
    page.say("choose", turn=turn["id"], version=1)
    [back] = page.view["turns"]

    assert [len(each["columns"]) for each in (twice, single, back)] == [2, 0, 2]
    steps = [
        (each["version"], each["previous"], each["next"])
        for each in (twice, single, back)
    ]
    assert [label for label, *_ in steps] == [
        "3\N{EN DASH}4/4",
        "5/5",
        "1\N{EN DASH}2/5",
    ]
    [used] = [each["version"] for each in twice["columns"] if each["is_used"]]
    assert steps[1][1:] == (used, 0)
    assert steps[2][1:] == (0, used)
    assert back["prompt"] == "Hello there"
    for column in back["columns"]:
        assert f"version {column['version']} · " in column["footer"]


@pytest.mark.slow
def test_a_cut_reply_that_was_picked_is_continued_by_its_model(
    page: Page, emulator: Emulator
) -> None:
    """The others stay beside it."""
    page.say("compare", name="model", value=[B, A], on=False)
    turn = page.ask("Count")
    page.say("prefer", turn=turn["id"], version=columns(page)[A]["version"])
    page.do("continue", turn=turn["id"])

    [turn] = page.view["turns"]
    assert turn["choices"][1]["text"] == "one, two, three."
    assert emulator.requests[-1].json["model"] == A
    assert scores() == {A: 1, B: 0}


def test_a_preferred_version_that_was_not_compared_looks_as_before(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has its model, its line below and a badge; a new panel has its settings."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    page = open_page()
    turn = page.ask("Hello")
    page.say("set", name="temperature", value=0.5)
    page.do("edit", turn=turn["id"], text="Hello there")
    page.do("regenerate", turn=turn["id"])
    [before] = page.view["turns"]

    page.panel.conversation.prefer(1, 3)

    [after] = page.view["turns"]
    assert after["badges"] == ["picked", *before["badges"]]
    assert {**after, "badges": before["badges"]} == before
    assert current().ledger.flush()
    with isolated():
        again = open_page()
        assert again.view["settings"]["temperature"] == 0.5


@pytest.mark.slow
def test_undo_hide_and_delete_are_for_the_whole_turn(page: Page) -> None:
    """A comparison is one step; a pick is another."""
    turn = page.ask("Hello there")
    page.say("prefer", turn=turn["id"], version=2)
    page.say("hide", turn=turn["id"])
    page.say("undo")
    page.say("undo")
    assert "score_picked" not in svc.replies_df()
    page.say("undo")
    assert page.view["turns"] == []
    page.say("redo")
    assert len(columns(page)) == 2
    page.say("delete", turn=turn["id"])
    assert page.view["turns"] == []
    said = [step["text"].partition(" (")[0] for step in page.all("stepped")]
    assert said == [
        "Undone: turn 1 hidden",
        "Undone: reply of turn 1 picked",
        "Undone: turn 1 added",
        "Redone: turn 1 added",
    ]


@svc.tool
def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"rain in {city}"


def test_tools_and_several_choices_are_refused_in_words(open_page: OpenPage) -> None:
    """Before anything is sent."""
    page = open_page("tools", tools=[weather])
    assert page.view["tools"] == ["weather"]
    assert "A panel with tools cannot compare" in page.view["compare"]["refusal"]
    page.say("compare", name="model", value=None, on=False)
    assert "A panel with tools cannot compare" in page.view["notice"]
    assert page.view["compare"]["by"] == ""
    page = open_page("several", n=2)
    page.say("compare", name="model", value=None, on=False)
    assert "n must be 1 while replies are compared" in page.view["notice"]
    page.say("set", name="n", value=1)
    page.say("compare", name="model", value=None, on=False)
    page.say("set", name="n", value=2)
    assert "n must be 1 while replies are compared" in page.view["notice"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("model", None, [A, "svc-instruct"]),
        ("model", [B, None], [B, A]),
        ("temperature", None, [0, 0.7]),
        ("temperature", [0.7, 1, None], [0.7, 1, 0]),
    ],
)
def test_what_is_not_said_is_filled_in(
    open_page: OpenPage, name: str, value: object, expected: list[object]
) -> None:
    """The panel's model and another one, or usual temperatures."""
    page = open_page()
    page.say("compare", name=name, value=value, on=False)

    assert page.view["compare"]["values"] == expected
    check("View", page.view)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("model", [A], "Choose 2 to 4 to compare, not 1"),
        ("model", [A, B, C, "d", "e"], "Choose 2 to 4 to compare, not 5"),
        ("model", [A, A], "are the same"),
        ("model", [A, ""], "model"),
        ("temperature", [0, 9], "temperature"),
        ("temperature", [0, "warm"], "temperature"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    page: Page, name: str, value: list[object], reason: str
) -> None:
    """What was compared before stays."""
    page.say("compare", name=name, value=value, on=False)

    assert page.view["is_problem"]
    assert reason in page.view["notice"]
    assert page.view["compare"]["values"] == [A, B]
