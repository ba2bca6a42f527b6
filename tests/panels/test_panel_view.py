"""The views that a panel sends to its page: what is in them, and how much."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

import svc_notebook as svc
from svc_notebook.conversations.history import History, Turn, Version
from svc_notebook.display.front_end import Bundle, Output
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.static_transcript import StaticTranscript
from svc_notebook.service.request import Message
from tests.panels.conftest import OpenPage


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without limits."""
    with Emulator(
        keys=["svc-key-of-this-test-4b1c"],
        tokens_per_s=None,
        first_token_s=0,
        limits=False,
    ) as running:
        yield running


def test_the_view_holds_no_key(open_page: OpenPage, emulator: Emulator) -> None:
    """Neither state nor messages nor the repr hold the key or a header."""
    page = open_page()
    page.ask("Hello")

    said = f"{page.comm.published!r} {page.panel.get_state()!r} {page.panel!r}"

    assert emulator.api_key not in said
    assert "Authorization" not in said
    synced = {name for name in page.panel.keys if not name.startswith("_")}
    assert synced == {"layout", "tabbable", "tooltip", "view"}


def test_a_view_carries_the_turns_that_changed(open_page: OpenPage) -> None:
    """What a page has is not sent again; one that says hello gets everything."""
    page = open_page()
    ids = [page.ask(text)["id"] for text in ("One", "Two", "Three")]
    page.comm.published.clear()

    fourth = page.ask("Four")["id"]
    page.say("pin", turn=ids[0])
    brought = [each["id"] for view in page.views for each in view["turns"]]
    page.say("hello", seq=page.numbers[-1])
    n_views = len(page.views)
    page.say("hello")

    assert brought == [fourth, ids[0]]
    assert len(page.views) == n_views + 1
    assert all("fields" not in view for view in page.views[:-1])
    assert page.views[-1]["is_whole"]
    assert [each["id"] for each in page.views[-1]["turns"]] == [*ids, fourth]


def test_the_line_that_opens_a_long_prompt_comes_with_it(open_page: OpenPage) -> None:
    """With the reply that is being written, too; a short prompt has none."""
    page = open_page()

    turns = [page.ask(text) for text in ("Count.\n" * 63, "Count.")]

    assert [turn["whole"] for turn in turns] == ["All 63 lines", ""]
    lives = [view["live"] for view in page.views if view.get("live")]
    wholes = {(live["prompt"], live["whole"]) for live in lives}
    assert wholes == {(turn["prompt"], turn["whole"]) for turn in turns}


def test_a_broken_message_is_answered_in_words(open_page: OpenPage) -> None:
    """What the browser may not say changes nothing and is said in the notice."""
    page = open_page()

    page.say("nonsense")

    assert "reload" in page.view["notice"]


def test_the_static_transcript_marks_turns_as_the_conversation_does(
    open_page: OpenPage,
) -> None:
    """Choosing, pinning and hiding alone change it, in each output; no more is sent."""
    del open_page  # its session
    shown: dict[str, str] = {}
    written: list[str] = []

    def publish(bundle: Bundle, name: str | None) -> None:
        shown[str(name)] = bundle["text/plain"]
        written.append(str(name))

    plan = svc.conversation("plan")
    for n in range(1, 9):
        plan.ask(f"Question {n}.")
    static = StaticTranscript(Output(publish=publish, update=publish))
    static.show(plan.history)
    plan.on_change(lambda: static.update(plan.history))
    plan.ask_again(1)
    plan.ask("Question 9.")
    assert marked(shown, "stale") == [2, 3, 4, 5, 6, 7, 8]

    plan.choose(1, 1)
    assert marked(shown, "stale") == [9]
    written.clear()
    plan.pin(7)
    plan.hide(7)
    assert marked(shown, "pinned") == marked(shown, "hidden") == [7]
    assert len(written) == 2
    static.update(plan.history)
    assert len(written) == 2


def test_the_static_transcript_is_repeated_as_it_is_now() -> None:
    """For a page that was opened meanwhile; what is empty now, too, and in order."""
    written: list[tuple[str, str]] = []

    def publish(bundle: Bundle, name: str | None) -> None:
        written.append((str(name), bundle["text/plain"]))

    static = StaticTranscript(Output(publish=publish, update=publish))
    static.outputs.repeat()
    assert written == []
    turns = tuple(answered(f"turn-{n}", f"Question {n}.", "Yes.") for n in range(12))
    static.show(History(name="unit", turns=turns))
    static.update(History(name="unit", turns=turns[:7]))
    known = {name for name, _ in written}
    written.clear()

    static.outputs.repeat()
    first, second, third = (text for _, text in written)
    assert "Question 4." in first
    assert "Question 6." in second
    assert third == ""
    assert known.isdisjoint(name for name, _ in written)

    static.freeze(History(name="unit", turns=turns[:7]))
    written.clear()
    static.outputs.repeat()
    assert [text for _, text in written] == ["", "", ""]


def test_the_static_transcript_has_one_heading() -> None:
    """Later outputs go on with it, unless each is folded by itself."""
    shown: dict[str, Bundle] = {}

    def publish(bundle: Bundle, name: str | None) -> None:
        shown[str(name)] = bundle

    turns = tuple(answered(f"turn-{n}", f"Question {n}.", "Yes.") for n in range(1, 13))
    history = History(name="unit", turns=turns)
    static = StaticTranscript(Output(publish=publish, update=publish))
    static.show(history, {})
    first, *later = [each for each in shown.values() if each]
    assert "<strong>unit</strong>" in first["text/html"]
    assert first["text/plain"].startswith("unit\n")
    assert len(later) == 2
    for number, part in zip(("6", "11"), later, strict=True):
        assert part["text/plain"].startswith(f"{number} · You\n")
        assert "unit" not in part["text/html"]

    static.fold(history, is_folded=True)
    folded = [each["text/html"] for each in shown.values() if each]
    assert ["unit, from turn 6" in html for html in folded] == [False, True, False]

    static = StaticTranscript(Output(publish=publish, update=publish))
    shown.clear()
    static.show(History(name="unit", turns=turns * 20), {})
    first, *later = [each for each in shown.values() if each]
    assert "unit, from turn 51" in first["text/html"]
    assert "to go on chatting" in first["text/html"]
    assert not any("unit" in each["text/html"] for each in later)


def test_the_static_transcript_does_not_say_that_there_are_no_turns() -> None:
    """A page that is reloaded shows it while the panel, which may have turns, loads."""
    shown: dict[str, Bundle] = {}

    def publish(bundle: Bundle, name: str | None) -> None:
        shown[str(name)] = bundle

    static = StaticTranscript(Output(publish=publish, update=publish))
    static.show(History(name="unit"), {})
    (html,) = [each["text/html"] for each in shown.values() if each]
    assert "no turns" not in html
    assert "to go on chatting" in html


def marked(shown: dict[str, str], mark: str) -> list[int]:
    """Return the numbers of the turns whose answer has a mark."""
    turns = re.split(r"^(\d+) · You$", "\n".join(shown.values()), flags=re.MULTILINE)
    pairs = zip(turns[1::2], turns[2::2], strict=True)
    return [int(number) for number, text in pairs if f" · {mark}" in text]


@pytest.mark.slow
def test_the_static_transcript_of_a_long_chat_costs_little() -> None:
    """Of each turn a few outputs are written; they stay in order, and below 50."""
    shown: dict[str, str] = {}
    written: list[int] = []

    def publish(bundle: Bundle, name: str | None) -> None:
        shown[str(name)] = bundle["text/plain"]
        written[-1] += len(str(bundle))

    static = StaticTranscript(Output(publish=publish, update=publish))
    turns: tuple[Turn, ...] = ()
    text = "Some words of a reply. " * 40
    for n in range(1, 621):
        written.append(0)
        turns = (*turns, answered(f"turn-{n}", f"Question {n}.", text))
        history = History(name="plan", turns=turns)
        if n == 1:
            static.show(history)
        static.update(history)
        numbers = [int(n) for n in NUMBER.findall("\n".join(shown.values()))]
        assert numbers == list(range(n - len(numbers) + 1, n + 1))
        assert len(numbers) >= min(n, 150)

    assert len(shown) < 50
    assert max(written) < 30_000
    written.append(0)
    pinned = replace(turns[-3], is_pinned=True)
    static.update(History(name="plan", turns=(*turns[:-3], pinned, *turns[-2:])))
    assert 0 < written[-1] < 15_000  # of one output
    static.update(History(name="plan", turns=()))
    assert NUMBER.findall("\n".join(shown.values())) == []


NUMBER = re.compile(r"Question (\d+)\.")


def answered(turn_id: str, prompt: str, reply: str) -> Turn:
    """Return a turn with one answer."""
    version = Version(
        exchange_id=turn_id,
        prompt=Message(role="user", content=prompt),
        replies=(Message(role="assistant", content=reply),),
    )
    return Turn(turn_id=turn_id, versions=(version,))
