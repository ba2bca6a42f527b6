"""Which of several replies is better: picks are scores, and are undone and restored."""

from collections.abc import Iterator
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.conversations.history import STALE, History
from svc_notebook.conversations.merge import merge
from svc_notebook.conversations.picks import picks, to_columns
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.exchange_rows import Compared, Comparison
from svc_notebook.magics.conversation_commands import choose
from svc_notebook.session import current, isolated

A, B = "svc-v2-8b-instruct", "svc-v2-70b-instruct"
HOLLOW = {
    "when": {"contains": "hollow"},
    "choices": [{"text": ""}, {"text": "one"}, {"text": "two"}],
    "times": None,
}
CUT = {
    "when": {"contains": "Count"},
    "text": "one, tw",
    "finish_reason": "length",
    "times": None,
}
REST = {"when": {"contains": "Go on"}, "text": "o, three.", "times": None}


@pytest.fixture
def script() -> list[dict[str, Any]]:
    """What the emulator answers."""
    return [HOLLOW, CUT, REST]


@pytest.fixture(autouse=True)
def kernel(emulator: Emulator) -> Iterator[None]:  # noqa: ARG001 - the kernel's address
    """A kernel."""
    with isolated():
        yield


def compare(text: str = "Compare", *, is_blind: bool = False) -> svc.Conversation:
    """Ask two models at once, as a panel does; the second one finishes first."""
    plan = svc.conversation("plan")
    steps = [plan.next_turn(text, model=each, turn_key="x") for each in (B, A)]
    client = current().client
    said = [client.complete(each.request, origin=each.origin) for each in steps]
    replies = (
        Compared(
            label=each.exchange.request.model, exchange_id=each.exchange.exchange_id
        )
        for each in reversed(said)
    )
    comparison = Comparison(replies=tuple(replies), is_blind=is_blind)
    plan.record(steps[0], *said, comparison=comparison)
    assert current().ledger.flush()  # another kernel may read what is marked
    return plan


def scores() -> dict[str, int | None]:
    """Return the score of each model, None for a missing one."""
    frame = svc.replies_df(scope="all")
    if "score_picked" not in frame:
        return {}
    pairs = zip(frame["model"], frame["score_picked"].astype(object), strict=True)
    return {model: value for model, value in pairs if value in {0, 1}}


def test_the_first_to_finish_is_used_without_a_score() -> None:
    """The conversation goes on with it until one is picked; one undo removes both."""
    plan = compare()

    [turn] = plan.turns
    assert turn.version.model == B
    assert [each.label for each in to_columns(turn)] == [A, B]
    assert [each.is_used for each in to_columns(turn)] == [False, True]
    assert scores() == {}
    plan.undo()
    assert plan.turns == ()


@pytest.mark.parametrize("is_blind", [False, True])
def test_versions_are_numbered_as_the_columns_are(*, is_blind: bool) -> None:
    """Whatever ended first; also in another kernel, and where both are merged."""
    live = compare(is_blind=is_blind)
    with isolated():
        restored = svc.conversation("plan").restore()
        asked_too = svc.conversation("plan").copy("other")
    merged = merge(asked_too.history, live.history)

    for history in (live.history, restored.history, asked_too.history, merged):
        turn = history.turns[0]
        assert [each.model for each in turn.versions] == [A, B]
        assert [each.version for each in to_columns(turn)] == [1, 2]


@pytest.mark.slow
def test_a_pick_scores_every_reply_and_a_second_one_replaces_it() -> None:
    """The frame of replies says which model won; the conversation goes on with it."""
    plan = compare()
    numbers = {each.label: each.version for each in to_columns(plan.turns[0])}
    plan.prefer(1, numbers[A])
    assert (scores(), plan.turns[0].version.model) == ({A: 1, B: 0}, A)

    plan.prefer(1, numbers[B])

    assert (scores(), plan.turns[0].version.model) == ({A: 0, B: 1}, B)
    assert [each.is_picked for each in to_columns(plan.turns[0])] == [False, True]


@pytest.mark.slow
def test_an_undone_pick_has_no_score_and_a_redone_one_has() -> None:
    """Deleting the turn, or clearing all, takes no score back."""
    plan = compare()
    plan.prefer(1, 1)
    before = scores()
    plan.undo()
    assert scores() == {}
    plan.redo()
    assert scores() == before

    plan.delete(1)
    plan.reset()

    assert scores() == before


@pytest.mark.slow
def test_a_pick_comes_back_in_another_kernel() -> None:
    """With the columns, their labels, and what is sent."""
    live = compare()
    live.prefer(1, 1)
    assert current().ledger.flush()
    with isolated():
        plan = svc.conversation("plan").restore()

        assert to_columns(plan.turns[0]) == to_columns(live.turns[0])
        assert plan.turns[0].messages == live.turns[0].messages
        plan.prefer(1, 2)
        assert scores() == {A: 0, B: 1}


def test_a_comparison_without_a_pick_comes_back_as_it_was() -> None:
    """Blind ones too; nothing of it names a model."""
    live = compare(is_blind=True)
    with isolated():
        plan = svc.conversation("plan").restore()

    assert to_columns(plan.turns[0]) == to_columns(live.turns[0])
    assert [each.label for each in to_columns(plan.turns[0])] == ["A", "B"]
    shown = [to_columns(plan.turns[0]), plan.to_markdown(), *_bundle(plan).values()]
    assert not any(name in str(each) for name in (A, B) for each in shown)
    live.prefer(1, 1)
    assert [each.label for each in to_columns(live.turns[0])] == [A, B]


@pytest.mark.slow
def test_a_picked_reply_that_was_continued_keeps_its_score() -> None:
    """Here and after a restart it is one reply; another pick replaces its score."""
    live = compare("Count")
    live.prefer(1, 1)
    live.go_on(1)
    with isolated():
        plan = svc.conversation("plan").restore()
        for each in (live, plan):
            [turn] = each.turns
            assert (turn.version.text, turn.chosen) == ("one, two, three.", 0)
            assert sorted(picks(turn).values()) == [0, 1]
        plan.prefer(1, 2)
        frame = svc.replies_df(scope="all")

    assert frame["score_picked"].fillna(-1).tolist() == [1, 0, -1]


def test_every_compared_reply_is_stale_that_was_asked_on_other_turns() -> None:
    """The marks are on each reply; one that is asked again afterwards has none."""
    svc.conversation("plan").ask("One")
    plan = compare()
    plan.ask_again(1, "Another")

    assert plan.to_markdown().count(STALE) == 2
    plan.ask_again(2)
    plan.choose(2, 1)
    frame = plan.to_df(versions="all")
    answers = frame[(frame["role"] == "assistant") & (frame["turn"] == 2)]
    assert answers["is_stale"].tolist() == [True, True, False]


@pytest.mark.slow
def test_a_version_can_be_preferred_afterwards() -> None:
    """To whatever answers the same prompt; versions asked later count the next time."""
    plan = svc.conversation("plan")
    plan.ask("One")
    plan.ask_again(1, "Another prompt")
    plan.ask_again(1, "One", model=B)
    plan.ask_again(1, "One", model=B)

    plan.prefer(1, 3)

    scored = svc.replies_df()["score_picked"]
    assert scored.fillna(-1).tolist() == [0, -1, 1, 0]
    plan.ask_again(1)
    plan.prefer(1, 5)
    scored = svc.replies_df()["score_picked"]
    assert scored.fillna(-1).tolist() == [0, -1, 0, 0, 1]


def test_a_preferred_version_is_shown_like_a_chosen_one() -> None:
    """With its tool calls, and a mark that says so; another version has no mark."""
    plan = svc.conversation("plan")
    plan.ask('weather in "Oslo"', tools=[weather])
    plan.ask_again(1, tools=[weather])
    plan.choose(1, 1)
    texts = {"chosen": [plan.to_markdown(), *_bundle(plan).values()]}

    plan.prefer(1, 1)

    texts["preferred"] = [plan.to_markdown(), *_bundle(plan).values()]
    for chosen, preferred in zip(*texts.values(), strict=True):
        assert "sunny in Oslo" in chosen
        assert preferred.replace(" · picked", "") == chosen
        assert preferred.count(" · version 1 of 2 · picked") == 1
    assert current().ledger.flush()
    with isolated():
        plan = svc.conversation("plan").restore()
        assert plan.to_markdown() == texts["preferred"][0]
    plan.choose(1, 2)
    assert "picked" not in plan.to_markdown()


def weather(city: str) -> str:
    """Say the weather."""
    return f"sunny in {city}"


def test_a_picked_choice_is_a_score_of_that_choice() -> None:
    """Also the first one, and where an empty choice before it is not shown."""
    plan = svc.conversation("plan")
    plan.ask("Three names", n=3)
    plan.ask("A hollow one", n=3)

    plan.pick(1, 1)
    plan.pick(2, 2)

    frame = svc.replies_df()
    assert frame["score_picked"].fillna(-1).tolist() == [1, 0, 0, -1, 0, 1]
    assert not plan.turns[1].is_stale
    plan.undo()
    assert svc.replies_df()["score_picked"].fillna(-1).tolist() == [1, 0, 0, -1, -1, -1]


def test_the_transcript_and_exports_name_every_reply() -> None:
    """With its label, and which was picked; JSON is read back whole."""
    plan = compare()
    plan.prefer(1, 2)

    for text in (plan.to_markdown(), *_bundle(plan).values()):
        assert f"{A} · " in text
        assert f"{B} · " in text
        assert text.count(" · picked") == 1
        assert text.count(" · version 2 of 2 · picked") == 1
        assert text.count(" · version 1 of 2") == 1
    again = svc.conversation("again").from_json(plan.to_json())
    assert to_columns(again.turns[0]) == to_columns(plan.turns[0])


@pytest.mark.parametrize("is_blind", [False, True])
def test_the_command_says_which_version_it_chose(*, is_blind: bool) -> None:
    """With its model; of a blind comparison, with the letter as long as that is so."""
    plan = compare(is_blind=is_blind)
    said = choose(current(), "plan", "1", "2")

    assert plan.turns[0].chosen == 1
    label = "B" if is_blind else B
    assert said == f"Version 2 of 2 ({label}) of turn 1 now feeds later turns of plan."


def test_what_was_not_compared_has_no_columns() -> None:
    """A version that is not there cannot be preferred."""
    plan = svc.conversation("plan")
    plan.ask("One")

    assert to_columns(plan.turns[0]) == ()
    with pytest.raises(ParameterError, match="has 1 version and no version 2"):
        plan.prefer(1, 2)
    assert History().turns == ()


def _bundle(plan: svc.Conversation) -> dict[str, str]:
    return plan._repr_mimebundle_()


def test_places_count_a_comparison_once() -> None:
    """Earlier and later answers have places of their own."""
    plan = compare()
    places = [plan.turns[0].places]
    plan.ask_again(1)
    places.append(plan.turns[0].places)
    plan.prefer(1, 1)
    places.append(plan.turns[0].places)

    assert places == [(1,), (1, 2), (0, 2)]
