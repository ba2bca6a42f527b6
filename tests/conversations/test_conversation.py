"""A conversation against the emulator: asked again, continued, undone, read."""

import copy
import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import msgspec
import pytest

import svc_notebook as svc
from svc_notebook.conversations.continuation import GO_ON
from svc_notebook.conversations.history import Turn
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.service.request import assistant, user
from svc_notebook.session import current, isolated
from svc_notebook.tokens import REPLY_TOKENS
from svc_notebook.tools.consent import ConsentDecision

CUT: dict[str, Any] = {
    "when": {"contains": "Count"},
    "text": "one, tw",
    "finish_reason": "length",
}
REST = {"when": {"contains": "Go on"}, "text": "o, three."}
BROKEN = {"when": {"contains": "Break"}, "text": ["a", "b"], "cut_after": 1}
LINGER = {"when": {"contains": "Linger"}, "text": ["a"], "end": "silent"}
NOTHING = {"when": {"contains": "Fail"}, "error": {"message": "no"}, "status": 400}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that cuts one reply, and answers the rest at once."""
    script: list[dict[str, Any]] = [CUT, REST, NOTHING, BROKEN, LINGER]
    with Emulator(script=script, tokens_per_s=None, first_token_s=0) as running:
        yield running


def weather(city: str) -> str:
    """Say the weather.

    Args:
        city: Where.
    """
    return f"sunny\n# in {city}"


def contents(emulator: Emulator) -> list[str]:
    """Return the texts of the newest request's messages."""
    messages: list[dict[str, Any]] = emulator.requests[-1].json["messages"]
    return [message["content"] for message in messages]


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_conversation_belongs_to_its_kernel(
    plan: svc.Conversation, take: Callable[[object], object]
) -> None:
    """It is neither copied nor pickled; the error names its history, which can be."""
    plan.ask("Hello")

    with pytest.raises(
        svc.errors.ParameterError, match=r"`history`.*%svc restore plan"
    ):
        take(plan)

    assert copy.deepcopy(plan.history) == plan.history
    assert pickle.loads(pickle.dumps(plan.history)) == plan.history  # noqa: S301 - our own


def test_a_cut_reply_goes_on_in_its_place(
    plan: svc.Conversation, emulator: Emulator
) -> None:
    """The partial reply and a request to go on are sent; the texts are joined."""
    plan.ask("Count")

    more = plan.go_on()

    assert contents(emulator) == ["Count", "one, tw", GO_ON]
    assert more.text == "one, two, three."
    assert more.messages == (user("Count"), assistant("one, two, three."))
    assert plan.turns[0].messages == (user("Count"), assistant("one, two, three."))


def test_a_whole_reply_does_not_go_on(plan: svc.Conversation) -> None:
    """What has come to its end is refused before anything is sent."""
    plan.ask("Hello")

    with pytest.raises(svc.errors.ParameterError, match="cut or interrupted"):
        plan.go_on()


def test_every_change_can_be_undone(plan: svc.Conversation) -> None:
    """Steps are taken back one by one, a reset included, down to nothing."""
    plan.ask("First")
    plan.ask("Second")
    seen = [plan.history]
    for change in (
        lambda: plan.pin(1),
        lambda: plan.ask_again(1),
        lambda: plan.delete(2),
        plan.reset,
    ):
        change()
        seen.append(plan.history)

    undone = []
    while plan.can_undo:
        undone.append(plan.history)
        plan.undo()

    assert undone[: len(seen)] == list(reversed(seen))
    assert plan.turns == ()
    assert not plan.undo()

    redone = []
    while plan.redo():
        redone.append(plan.history)

    assert redone == undone[::-1]
    assert not plan.can_redo


@pytest.mark.parametrize("change", ["ask", "reset", "pin"])
def test_after_a_new_change_nothing_is_redone(
    plan: svc.Conversation, change: str
) -> None:
    """What was undone does not come back on top of something else."""
    plan.ask("First")
    plan.ask("Second")
    plan.undo()
    assert plan.can_redo

    changes: dict[str, Callable[[], object]] = {
        "ask": lambda: plan.ask("Third"),
        "reset": plan.reset,
        "pin": lambda: plan.pin(1),
    }
    changes[change]()

    assert (plan.can_redo, plan.redo()) == (False, False)


def test_a_repeated_pin_or_hide_changes_nothing(plan: svc.Conversation) -> None:
    """So a cell can be run again; there is no step more to undo."""
    plan.ask("First")
    for change, undone in ((plan.pin, plan.unpin), (plan.hide, plan.unhide)):
        before = plan.history
        undone(1)
        assert plan.history == before
        change(1)
        changed = plan.history
        change(1)
        assert plan.history == changed != before
        plan.undo()
        assert plan.history == before
        change(1)
        undone(1)
        assert (plan.turns[0].is_pinned, plan.turns[0].is_hidden) == (False, False)


def test_an_answer_that_comes_after_a_reset_is_no_turn(plan: svc.Conversation) -> None:
    """After a reset a late answer does not bring its turn back."""
    step = plan.next_turn("First")
    late = svc.complete("First")
    plan.reset()

    plan.record(step, late)

    assert plan.turns == ()


def test_a_listener_is_called_after_every_change(plan: svc.Conversation) -> None:
    """Answers, changes, the system message and undo, until listening is stopped."""
    n_turns: list[int] = []
    stop = plan.on_change(lambda: n_turns.append(len(plan.turns)))

    plan.ask("First")
    plan.system = "Be brief"
    plan.hide(1)
    plan.reset()
    plan.undo()
    stop()
    plan.ask("Second")

    assert n_turns == [1, 1, 1, 0, 1]


def test_a_listener_that_fails_is_kept_apart(
    plan: svc.Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply is returned, the error is logged, other listeners are called."""
    called: list[str] = []
    plan.on_change(lambda: 1 / 0)
    plan.on_change(lambda: called.append("called"))

    with caplog.at_level(logging.ERROR):
        plan.ask("First")

    assert called == ["called"]
    assert "ZeroDivisionError" in caplog.text


def test_threads_can_ask_at_the_same_time(plan: svc.Conversation) -> None:
    """No answer of several threads is lost."""
    threads = [Thread(target=plan.ask, args=(f"Ask {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    asked = sorted(turn.prompt.content or "" for turn in plan.turns)
    assert asked == ["Ask 0", "Ask 1", "Ask 2", "Ask 3"]


def test_restored_with_continued_and_chosen_replies(plan: svc.Conversation) -> None:
    """From the ledger alone a conversation is what it was, joined texts included."""
    plan.ask("Count")
    plan.go_on()
    plan.ask("Second")
    plan.ask_again(2, "Second, better")
    live = [turn.messages for turn in plan.turns]

    plan.reset()
    plan.restore()

    assert [turn.messages for turn in plan.turns] == live
    assert [len(turn.versions) for turn in plan.turns] == [1, 2]


def test_restored_in_order_after_the_clock_was_set_back(
    plan: svc.Conversation,
) -> None:
    """Restored turns and the last reply have the order in which they were asked."""
    asked = [plan.ask(prompt).exchange for prompt in ("one", "two", "three")]
    with isolated():
        for hour, exchange in enumerate(asked):
            started_at = exchange.started_at - timedelta(hours=hour)
            earlier = msgspec.structs.replace(exchange, started_at=started_at)
            current().ledger.add(earlier)
        restored = svc.conversation("plan").restore()
        last = svc.last()

    prompts = [turn.prompt.content for turn in restored.turns]
    assert prompts == ["one", "two", "three"]
    assert last is not None
    assert last.text == asked[-1].choices[0].text


def test_as_a_frame_it_has_a_row_a_message(plan: svc.Conversation) -> None:
    """All versions and choices if asked for; the chosen ones if not."""
    plan.system = "Be brief"
    plan.ask("First", n=2)
    plan.ask_again(1, "First, better")

    chosen, every = plan.to_df(), plan.to_df(versions="all")

    assert chosen["role"].tolist() == ["system", "user", "assistant"]
    assert chosen["text"].tolist()[:2] == ["Be brief", "First, better"]
    assert every["role"].tolist()[1:] == [
        *["user", "assistant", "assistant"],
        *["user", "assistant"],
    ]
    assert every["choice_index"].tolist()[2:4] == [0, 1]
    assert every["is_chosen"].tolist() == [True, False, False, False, True, True]


def test_versions_other_than_chosen_and_all_are_refused(plan: svc.Conversation) -> None:
    """The message names the two."""
    with pytest.raises(svc.errors.ParameterError, match="'chosen' or 'all'"):
        plan.to_df(versions="some")  # type: ignore[arg-type]  # what is refused


def test_as_markdown_it_reads_from_top_to_bottom(plan: svc.Conversation) -> None:
    """Headings say who speaks; what was typed is quoted."""
    plan.system = "Be brief"
    plan.ask("Count")

    text = plan.to_markdown()

    head = "# plan\n\n## system\n\n> Be brief\n\n## 1 · You\n\n> Count\n\n"
    assert text.startswith(head)
    assert "one, tw" in text


def test_shown_it_is_the_static_transcript(plan: svc.Conversation) -> None:
    """What a user typed is escaped, and the footer is below the reply."""
    plan.ask("Count <b>")

    bundle = plan._repr_mimebundle_()

    assert "Count &lt;b&gt;" in bundle["text/html"]
    assert "cut" in bundle["text/plain"]
    assert "svc-v2-8b-instruct" in bundle["text/plain"]


def test_prompts_have_the_font_and_size_of_replies(plan: svc.Conversation) -> None:
    """Hosts have styles for <pre>, in slides of half the size; these override them."""
    plan.ask("Count")

    prompt = plan._repr_mimebundle_()["text/html"].partition("<pre ")[2]

    style, _, text = prompt.partition(">")
    assert "font-size:inherit;font-family:inherit" in style
    assert text.startswith("Count</pre>")


def test_what_is_left_out_is_warned_of_and_noted(plan: svc.Conversation) -> None:
    """The warning and the completion, also a stream's, say how many and how large."""
    for n in range(4):
        plan.ask(f"{n} " + "word " * 1900, model="svc-instruct", max_tokens=5)
    match = r"plan: left out to fit the limit: the oldest .* tokens \(estimated\)"

    with pytest.warns(RuntimeWarning, match=match):
        got = plan.ask("Last")
    with pytest.warns(RuntimeWarning, match=match):
        stream = plan.stream("Last")

    assert got.notes[0].startswith("left out to fit the limit: the oldest")
    assert got.notes[0] in got._repr_mimebundle_()["text/plain"]
    assert pickle.loads(pickle.dumps(got)).notes == got.notes  # noqa: S301 - our own
    assert stream.completion.notes


@pytest.mark.parametrize(
    ("text", "n_turns", "max_tokens"),
    [
        ("word " * 3430, 2, 20),
        ("word " * 2860, 2, "fit"),
        ("ทะเลกว้างใหญ่ไพศาลและไม่มีใครรู้ว่าลึกเท่าไร " * 60, 5, "fit"),
    ],
)
def test_turns_that_fit_by_the_best_estimate_are_sent(
    plan: svc.Conversation,
    emulator: Emulator,
    text: str,
    n_turns: int,
    max_tokens: int | Literal["fit"],
) -> None:
    """The most that other tokenizers count leaves no turn out, nor the reply's room."""
    for _ in range(n_turns):
        got = plan.ask(text, max_tokens=max_tokens)

    asked = [each for each in contents(emulator) if each == text]
    assert len(asked) == n_turns
    assert got.notes == ()
    room = REPLY_TOKENS if max_tokens == "fit" else max_tokens
    assert emulator.requests[-1].json["max_tokens"] >= room


def test_a_stream_that_breaks_off_is_kept_and_marked(plan: svc.Conversation) -> None:
    """What came stays in the history; the error is raised."""
    with pytest.raises(svc.SvcError):
        list(plan.stream("Break"))

    [turn] = plan.turns
    assert turn.version.text == "a"
    assert turn.version.is_partial


def test_a_dropped_stream_is_a_turn(plan: svc.Conversation, emulator: Emulator) -> None:
    """After `break` its text so far is in the history, marked, and sent next."""
    for _ in plan.stream("Linger"):
        break
    dropped = plan.turns
    plan.ask("Next")

    [turn] = dropped
    assert (turn.version.text, turn.version.is_partial) == ("a", True)
    assert contents(emulator) == ["Linger", "a", "Next"]
    assert plan.turns[0].versions == turn.versions


def test_a_copy_goes_on_independently(
    plan: svc.Conversation, emulator: Emulator
) -> None:
    """It has the turns until the one named, with what is pinned, and the system."""
    plan.system = "Be brief"
    for text in ("one", "two", "three"):
        plan.ask(text)
    plan.pin(1)

    other = plan.copy("other", until=2)
    other.ask("four")
    other.ask_again(1, "one, better")

    assert [turn.prompt.content for turn in plan.turns] == ["one", "two", "three"]
    assert [turn.prompt.content for turn in other.turns] == [
        *("one, better", "two", "four"),
    ]
    assert other.turns[0].is_pinned
    assert contents(emulator) == ["Be brief", "one, better"]
    assert svc.conversation("other") is other


def test_a_copy_does_not_overwrite(plan: svc.Conversation) -> None:
    """A conversation that has turns takes no others."""
    plan.ask("one")
    plan.copy("other")

    with pytest.raises(svc.errors.ParameterError, match="'other' has 1 turn already"):
        plan.copy("other")
    with pytest.raises(svc.errors.ParameterError, match="no turn 5"):
        plan.copy("third", until=5)


def test_what_json_holds_is_read_back(plan: svc.Conversation) -> None:
    """Versions, choices, marks and tool rounds come back, and go on."""
    plan.system = "Be brief"
    plan.ask("Count", n=2)
    plan.ask_again(1)
    plan.choose(1, 1)
    plan.pin(1)
    plan.ask("weather", tools=[weather])

    other = svc.conversation("other").from_json(plan.to_json())
    other.ask_again(2)

    def without_runs(turn: Turn) -> Turn:
        versions = (
            replace(each, tool_runs=(), session_id="") for each in turn.versions
        )
        return replace(turn, turn_id="", versions=tuple(versions))

    assert other.system == "Be brief"
    assert without_runs(other.turns[0]) == without_runs(plan.turns[0])
    first, again = (without_runs(c.turns[1]).versions[0] for c in (plan, other))
    assert again == first
    assert len(other.turns[1].versions) == 2


SWAPPED = msgspec.json.encode({"messages": [assistant("a"), user("b")]}).decode()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{nonsense", "JSON"),
        ('{"turns": [{"turn_id": "a", "versions": []}]}', "versions"),
        (f'{{"turns": [{{"turn_id": "a", "versions": [{SWAPPED}]}}]}}', "user message"),
    ],
)
def test_what_is_no_conversation_is_refused(
    plan: svc.Conversation, text: str, what: str
) -> None:
    """The message says where the text differs; the conversation stays empty."""
    with pytest.raises(svc.errors.ParameterError, match=f"as to_json.*{what}"):
        plan.from_json(text)

    assert plan.turns == ()


@pytest.mark.parametrize("given", ["c.json", "", "[]", None, Path("c.json")])
def test_what_is_no_json_text_is_refused(plan: svc.Conversation, given: Any) -> None:  # noqa: ANN401 - what is refused
    """The message says that it takes the text and not a path, and how to read one."""
    with pytest.raises(
        svc.errors.ParameterError,
        match=r"to_json\(\) returned, not a path; got .*read_text",
    ):
        plan.from_json(given)


def test_as_markdown_tool_calls_show_with_their_results(plan: svc.Conversation) -> None:
    """They stand above the answer as code, so that nothing in them is Markdown."""
    plan.ask('weather in "Oslo"', tools=[weather])

    shown = '\n    weather(city="Oslo") → sunny\n    # in Oslo\n'
    assert shown in plan.to_markdown()


def test_a_turn_with_a_tool_run_can_be_pinned(plan: svc.Conversation) -> None:
    """And changed otherwise, although the arguments of its calls are a mapping."""
    plan.ask('weather in "Oslo"', tools=[weather])

    plan.pin(1)
    plan.hide(1)

    assert (plan.turns[0].is_pinned, plan.turns[0].is_hidden) == (True, True)


def test_a_changed_call_shows_what_ran_also_when_read_again(
    plan: svc.Conversation,
) -> None:
    """In the export, and after the turns are read from JSON or from the ledger."""
    changed = ConsentDecision(verdict="approve", arguments={"city": "Rome"})
    plan.ask('weather in "Oslo"', tools=[weather], confirm=lambda _: changed)
    asked = plan.to_markdown()

    read = svc.conversation("read").from_json(plan.to_json()).to_markdown()
    restored = plan.restore().to_markdown()

    shown = (
        'weather(city="Rome") → approved, you changed city from "Oslo" to "Rome" · '
        "sunny\n    # in Rome\n"
    )
    assert shown in asked
    assert shown in read
    assert shown in restored
