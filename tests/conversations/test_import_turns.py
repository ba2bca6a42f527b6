"""`svc.conversation(NAME, messages=…)`: turns that were made elsewhere."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated

SHOTS: list[dict[str, Any]] = [
    {"role": "system", "content": "Say the opposite."},
    {"role": "user", "content": "hot"},
    {"role": "assistant", "content": "cold"},
    {"role": "user", "content": "ใหญ่"},
    {"role": "assistant", "content": "เล็ก"},
]
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
    {"role": "assistant", "content": "It is sunny."},
]


@pytest.fixture(autouse=True)
def place(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Path]:
    """A kernel with a ledger in a file."""
    path = tmp_path / "ledger.sqlite"
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", str(path))
    with isolated():
        yield path


def sent(emulator: Emulator) -> list[dict[str, Any]]:
    """Return the newest request's messages."""
    messages: list[dict[str, Any]] = emulator.requests[-1].json["messages"]
    return messages


@pytest.mark.parametrize("given", [SHOTS, CALLED, SHOTS + CALLED])
def test_a_question_goes_with_the_given_turns(
    emulator: Emulator, given: list[dict[str, Any]]
) -> None:
    """They are sent as they were given, before the question; the system is kept."""
    plan = svc.conversation("plan", messages=given)

    plan.ask("wet")

    assert sent(emulator) == [*given, {"role": "user", "content": "wet"}]
    assert plan.system == (SHOTS[0]["content"] if given[0] in SHOTS else None)
    assert len(plan.turns) == sum(each["role"] == "user" for each in given) + 1


@pytest.mark.slow
@pytest.mark.parametrize("form", ["frame", "jsonl", "parquet", "json", "text path"])
def test_what_was_exported_is_taken(
    emulator: Emulator, tmp_path: Path, form: str
) -> None:
    """A frame of a conversation and its files give the same turns, calls included."""
    first = svc.conversation("first", messages=SHOTS + CALLED)
    first.hide(2)
    first.ask("old")
    given: Any = first.to_df(versions="all")
    if form == "json":
        given = tmp_path / "first.json"
        given.write_text(first.to_json(), encoding="utf-8")
    elif form != "frame":
        path = tmp_path / ("first.jsonl" if form == "text path" else f"first.{form}")
        written = svc.export(given, path)
        given = str(written) if form == "text path" else written

    svc.conversation("second", messages=given).ask("new")

    said = sent(emulator)
    assert [*SHOTS[:3], *CALLED] == said[:7]
    assert [each["content"] for each in said[7:]] == [
        "old",
        first.turns[-1].version.text,
        "new",
    ]


@pytest.mark.slow
def test_replies_are_turns_too(emulator: Emulator, tmp_path: Path) -> None:
    """Each good reply of a frame of replies is a prompt with its answer."""
    svc.complete("one", n=2)
    svc.complete("two")
    file = svc.export(svc.replies_df(), tmp_path / "replies.jsonl")

    plan = svc.conversation("plan", messages=file)
    plan.ask("three")

    prompts = [each["content"] for each in sent(emulator) if each["role"] == "user"]
    assert prompts == ["one", "two", "three"]
    assert next(iter(svc.replies_df()["text"])) == plan.turns[0].version.text


def test_the_cell_can_be_run_again() -> None:
    """The same turns change nothing, also when others were asked after them."""
    plan = svc.conversation("plan", messages=SHOTS)
    plan.ask("wet")
    before = plan.history

    assert svc.conversation("plan", messages=SHOTS) is plan
    assert plan.history == before
    with pytest.raises(
        svc.errors.ParameterError, match="has 3 turns already; choose another"
    ):
        svc.conversation("plan", messages=CALLED)
    assert plan.history == before


@pytest.mark.slow
def test_they_come_back_with_the_conversation(emulator: Emulator) -> None:
    """After a restart `restore` has given turns and asked ones, once each."""
    svc.conversation("plan", messages=SHOTS + CALLED).ask("wet")
    with isolated():
        svc.conversation("plan").restore().ask("dry")
        assert sent(emulator)[:-3] == [*SHOTS, *CALLED]
        svc.conversation("plan", messages=SHOTS + CALLED)
        assert len(svc.conversation("plan").turns) == 5
    with isolated():
        with pytest.warns(RuntimeWarning, match="older turns of plan"):
            plan = svc.conversation("plan", messages=SHOTS + CALLED)
        plan.restore()
        assert [turn.prompt.content for turn in plan.turns] == [
            *("hot", "ใหญ่", "Rome?", "wet", "dry")
        ]
        assert not any(turn.is_stale for turn in plan.turns)
        plan.ask("high")
        assert len(sent(emulator)) == 14


def user(text: str = "a") -> dict[str, Any]:
    """Make a user's message."""
    return {"role": "user", "content": text}


ANSWER = {"role": "assistant", "content": "b"}
RESULT = CALLED[2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "messages is empty"),
        ([SHOTS[0]], "The end is out of place: no user's message"),
        ([ANSWER], r"Message 1 \(assistant\) is out of place: no user's message"),
        ([user()], "The end is out of place: the user's message before it has no"),
        ([user(), user()], r"Message 2 \(user\) .* before it has no answer"),
        (
            [user(), ANSWER, SHOTS[0]],
            r"Message 3 \(system\) .* must be the first message",
        ),
        ([user(), ANSWER, RESULT], r"Message 3 \(tool\) .* answers no call"),
        ([*CALLED[:3], RESULT], r"Message 4 \(tool\) .* answers no call"),
        ([*CALLED[:2], user()], r"Message 3 \(user\) .* the call 'c1' .* no result"),
        (CALLED[:2], "The end is out of place: the call 'c1' before it has no result"),
        ([user(), {"role": "bot", "content": "b"}], "role must be one of system, user"),
        ([user(), {"role": "assistant"}], "content of a assistant message must be"),
        ([user(), {**ANSWER, "name": "x"}], "unknown field 'name'"),
        (["hot", "cold"], "A message is str"),
        (7, "messages is int"),
        (
            "hot",
            "'hot' cannot be read: files with this ending cannot be imported. Give",
        ),
        ("none.jsonl", "'none.jsonl' cannot be read: .*No such file"),
        (Path("none.json"), "'none.json' cannot be read: .*No such file"),
        ({"role": "user"}, "messages is dict"),
    ],
)
def test_what_cannot_be_turns_is_refused(given: object, reason: str) -> None:
    """The place and the reason are said; the conversation has no turns after it."""
    with pytest.raises(svc.errors.ParameterError, match=reason):
        svc.conversation("plan", messages=given)

    assert svc.conversation("plan").turns == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", "{"),
        ("a.jsonl", '{"role": 7}'),
        ("a.jsonl", "\udcff"),
        ("a.jsonl", '{"role": "assistant", "text": "", "tool_calls": "{"}'),
        ("a.json", "[]"),
        ("a.json", '{"turns": 7}'),
        ("a.parquet", "text"),
        ("a.csv", "role,text"),
    ],
)
def test_a_file_of_something_else_is_refused(
    tmp_path: Path, name: str, text: str
) -> None:
    """No foreign error comes out, and nothing changes."""
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(svc.errors.ParameterError):
        svc.conversation("plan", messages=path)

    assert svc.conversation("plan").turns == ()


def test_nothing_is_in_the_ledger_until_a_turn_is_asked(place: Path) -> None:
    """Given turns alone are the notebook's; the first question records them."""
    plan = svc.conversation("plan", messages=SHOTS)
    assert current().ledger.count() == 0

    plan.ask("wet")

    current().ledger.flush()
    assert json.dumps("cold").encode() in b"".join(
        each.read_bytes() for each in place.parent.glob("ledger*")
    )


def test_turns_with_the_key_are_refused(emulator: Emulator) -> None:
    """A key in given turns is neither shown nor kept; the conversation stays empty."""
    given = [*SHOTS[1:3], {"role": "user", "content": f"It is {emulator.api_key}."}]

    with pytest.raises(
        svc.errors.ParameterError, match="contains the API key"
    ) as caught:
        svc.conversation("plan", messages=[*given, SHOTS[2]])

    assert emulator.api_key not in str(caught.value)
    assert not svc.conversation("plan").turns
