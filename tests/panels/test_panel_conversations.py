"""The panel's list of conversations: find, open, begin, rename and export."""

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels import conversations_dialog
from svc_notebook.panels import view as panel_view
from svc_notebook.session import current, isolated
from tests.panels.conftest import OpenPage, Page
from tests.panels.protocol import of_kind
from tests.panels.test_panel_protocol import check

DELETED = (
    "The conversation sea was deleted in another panel of this notebook. This is a "
    "new one."
)
SLOW = {"when": {"contains": "slow"}, "text": ["word "] * 400, "gap_s": 0.02}
FAIL = {"when": {"contains": "Fail"}, "error": {"message": "No way."}, "status": 400}
CUT = {"when": {"contains": "Halt"}, "text": ["kept "], "cut_after": 1}


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulator with a slow reply, a refusal and a cut stream."""
    monkeypatch.setenv("SVC_MODEL", "svc-instruct")  # no limit, so nothing waits
    with Emulator(
        script=[SLOW, FAIL, CUT], tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


@pytest.fixture
def kept(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> OpenPage:
    """A ledger in which an earlier kernel has left two conversations."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        svc.conversation("sea", system="Be brief.").ask("Is it blue?")
        svc.conversation("chat").ask("Hello")
        current().ledger.close()
    return open_page


def last(page: Page, kind: str) -> dict[str, Any]:
    """Return the newest message of a kind, which has the fields of its type."""
    message = page.all(kind)[-1]
    assert set(message) == set(of_kind("Message")[kind])
    return message


def find(page: Page, text: str = "") -> list[str]:
    """Search, and return the names."""
    page.say("find", text=text)
    return [row["name"] for row in last(page, "found")["rows"]]


def prompts(page: Page) -> list[str]:
    """Return the prompts that the page shows."""
    return [turn["prompt"] for turn in page.view["turns"]]


def test_a_search_shows_what_it_found(kept: OpenPage) -> None:
    """An earlier prompt, or the place in a long reply; without a search the newest."""
    with isolated():
        svc.conversation("sea").ask("Is it deep?")
        current().ledger.close()
    page = kept("plan")
    shown = {}
    for text in ("", "BLUE", "the emulator", "sea"):
        assert "sea" in find(page, text)
        rows = {row["name"]: row["prompt"] for row in last(page, "found")["rows"]}
        shown[text] = rows["sea"]

    assert shown[""] == shown["sea"] == "Is it deep?"
    assert shown["BLUE"] == "Is it blue?"
    assert "the emulator" in shown["the emulator"]
    assert len(shown["the emulator"]) <= 130


@pytest.mark.slow
def test_the_list_is_found_and_opened(kept: OpenPage) -> None:
    """The panel goes on with the turns of an earlier kernel, and its settings stay."""
    page = kept("plan", temperature=0.3)
    page.ask("Here")
    names, some = find(page), find(page, "BLUE")
    check("Listed", last(page, "found")["rows"])
    page.say("open", name="sea")

    assert (names, some) == (["plan", "chat", "sea"], ["sea"])
    view = page.view
    assert (view["name"], view["notice"]) == ("sea", "")
    assert view["settings"]["system"] == "Be brief."
    assert view["settings"]["temperature"] == 0.3
    assert prompts(page) == ["Is it blue?"]
    assert page.views[-1]["is_whole"]
    page.ask("And deep?")
    assert prompts(page) == ["Is it blue?", "And deep?"]
    assert svc.conversation("sea").turns[1].prompt.content == "And deep?"
    assert len(svc.conversation("plan").turns) == 1


def test_the_conversation_that_was_left_draws_no_more(kept: OpenPage) -> None:
    """A panel follows only the conversation that it shows."""
    page = kept()
    page.say("open", name="sea")
    n = len(page.views)
    svc.conversation("plan").ask("Unseen")

    assert len(page.views) == n
    svc.conversation("sea").ask("Seen")
    assert prompts(page) == ["Is it blue?", "Seen"]


@pytest.mark.slow
def test_while_a_reply_comes_another_is_refused_in_words(kept: OpenPage) -> None:
    """The reply goes on where it began; the list can be looked at."""
    page = kept()
    page.say("send", text="slow")
    page.wait(lambda: page.all("delta"))
    for said in ({"kind": "open", "name": "sea"}, {"kind": "new"}):
        page.say(**said)
        assert page.view["notice"].startswith("A reply is being written; stop it")
    page.say("rename", name="trip")
    assert page.view["name"] == "plan"
    assert find(page, "sea") == ["sea"]
    page.say("stop")
    page.wait_idle()

    assert prompts(page) == ["slow"]


@pytest.mark.slow
def test_what_is_gone_or_cannot_be_read_is_said(kept: OpenPage, tmp_path: Path) -> None:
    """The panel stays on its conversation, and the name stays free."""
    page = kept()
    page.ask("Here")
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
        sql = "UPDATE exchanges SET record_crc32 = 0 WHERE conversation = 'sea'"
        connection.execute(sql)
        connection.commit()
    page.say("open", name="nothing")
    gone = page.view
    page.say("open", name="sea")
    damaged = page.view

    assert gone["notice"] == "The ledger has no turns of 'nothing'."
    assert "cannot be read: its checksum differs" in damaged["notice"]
    assert damaged["is_problem"]
    assert prompts(page) == ["Here"]
    page.say("rename", name="nothing")
    assert page.view["name"] == "nothing"


def test_turns_that_were_asked_apart_are_named(kept: OpenPage) -> None:
    """A name that two kernels used separately opens with the newest turns."""
    with warnings.catch_warnings(), isolated():
        warnings.simplefilter("ignore")
        svc.conversation("sea").ask("Is it salt?")
    page = kept()
    page.say("open", name="sea")

    opened = prompts(page)
    noted = page.view["newer"]
    page.say("newer", on=True)

    assert opened == ["Is it salt?"]
    assert noted == (
        "1 turn that was asked separately, in another kernel, is not here."
    )
    assert prompts(page) == ["Is it blue?", "Is it salt?"]
    assert page.view["newer"] == ""


def test_a_new_conversation_has_a_free_name(kept: OpenPage) -> None:
    """Names of the ledger and of this kernel are not used again."""
    svc.conversation("chat-2")
    page = kept()
    page.ask("Here")
    page.say("new")

    assert (page.view["name"], page.view["turns"]) == ("chat-3", [])
    page.say("new")
    assert page.view["name"] == "chat-3"


def test_a_rename_reaches_every_panel(kept: OpenPage) -> None:
    """The same conversation, whoever renames it; a taken name is refused."""
    page, other = kept(), kept()
    page.ask("Here")
    page.say("rename", name="sea")
    refused = page.view
    page.say("rename", name="trip")
    renamed = other.view

    assert "'sea' already" in refused["notice"]
    assert (refused["name"], refused["is_problem"]) == ("plan", True)
    assert (page.view["name"], page.view["notice"]) == ("trip", "")
    assert (renamed["name"], renamed["label"]) == ("trip", "Conversation trip")
    assert other.panel.conversation is svc.conversation("trip")
    assert find(page) == ["trip", "chat", "sea"]


def test_a_deleted_conversation_is_gone_and_its_cost_stays(kept: OpenPage) -> None:
    """It is in no list, cannot come back, and its name is free."""
    page = kept("sea")
    page.ask("And deep?")
    page.say("remove", name="sea")

    assert (page.view["name"], prompts(page)) == ("chat-2", [])
    assert find(page) == ["chat"]
    with isolated():
        assert not svc.conversation("sea").saved()
        assert len(svc.replies_df(scope="all")) == 3
    page.say("remove", name="chat")
    assert (page.view["name"], find(page)) == ("chat-2", [])
    page.say("rename", name="sea")
    assert page.view["name"] == "sea"


def test_a_conversation_that_another_panel_has_open_is_deleted_there_too(
    kept: OpenPage,
) -> None:
    """The list says that it is open; its panel says that it is gone, for good."""
    page, other, empty = kept("plan"), kept("sea"), kept("sea", restore=False)
    other.ask("And deep?")
    find(page)
    rows = last(page, "found")["rows"]
    assert {row["name"]: row["is_elsewhere"] for row in rows} == {
        "sea": True,
        "chat": False,
    }
    page.say("remove", name="sea")

    for left in (other, empty):
        view = left.view
        assert view["notice"] == DELETED
        assert view["label"] == "New conversation"
        assert (view["turns"], "undo" in view["can"]) == ([], False)
        assert left.panel.conversation.name != "sea"
    assert (page.view["name"], page.view["notice"]) == ("plan", "")
    left_names = {each.panel.conversation.name for each in (other, empty)}
    assert len(left_names) == 2
    other.ask("Anew")
    assert find(page) == ["Anew", "chat"]


def test_a_conversation_is_not_deleted_while_another_panel_has_a_reply(
    kept: OpenPage,
) -> None:
    """Nothing is lost, and the notice says why."""
    page, other = kept("plan"), kept("sea")
    other.say("send", text="slow")
    other.wait(lambda: other.all("delta"))
    page.say("remove", name="sea")
    refused = page.view["notice"]
    other.say("stop")
    other.wait_idle()

    assert refused == (
        "Another panel is writing a reply in sea. Stop it there, or wait until it "
        "ends, and delete it then."
    )
    assert prompts(other) == ["Is it blue?", "slow"]
    assert "sea" in find(page)


def test_a_new_conversation_compares_nothing(open_page: OpenPage) -> None:
    """What was compared before can be switched on again."""
    page = open_page()
    page.say("compare", name="temperature", value=[0.1, 0.2], on=False)
    page.ask("Hello")
    page.say("new")

    assert page.view["compare"]["by"] == ""
    page.say("compare", name="temperature", value=None, on=False)
    assert page.view["compare"]["values"] == [0.1, 0.2]


@pytest.mark.parametrize("action", ["open", "remove"])
def test_another_conversation_is_not_compared(
    kept: OpenPage, emulator: Emulator, action: str
) -> None:
    """A message in one that was opened is asked once; Compare stays in its own."""
    page = kept("sea")
    page.say("compare", name="temperature", value=[0.1, 0.2], on=False)
    page.ask("Warm?")
    page.say("open", name="sea")
    own = page.view["compare"]["by"]
    page.say(action, name={"open": "chat", "remove": "sea"}[action])
    n_asked = len(emulator.requests)
    page.ask("And you?")

    assert own == "temperature"
    assert page.view["compare"]["by"] == ""
    assert len(emulator.requests) == n_asked + 1


def test_a_conversation_without_a_name_gets_one_from_its_first_message(
    kept: OpenPage,
) -> None:
    """Without a request; the cell that opened it finds it, and a name stays."""
    page = kept(None)
    assert page.view["label"] == "New conversation"
    long = (
        "Explain queueing theory,\nplease, in two sentences of at most ten words each"
    )
    page.ask(long)
    title = "Explain queueing theory, please, in two sentences of at …"

    assert (page.view["name"], page.view["label"]) == (title, f"Conversation {title}")
    assert svc.conversation("chat").name == kept(None).view["name"] == title
    assert find(page) == [title, "chat", "sea"]  # the chat of an earlier kernel stays
    page.ask("And then?")
    assert page.view["name"] == title
    page.say("new")
    page.say("rename", name="queueing theory")
    assert page.view["label"] == "Conversation queueing theory"
    page.ask("Hello")
    assert page.view["name"] == "queueing theory"
    page.say("new")
    page.ask("Hello")
    page.say("new")
    page.ask("Hello")
    assert find(page)[:3] == ["Hello-2", "Hello", "queueing theory"]


@pytest.mark.slow
def test_a_renamed_conversation_is_found_by_either_name(kept: OpenPage) -> None:
    """In this kernel, and in the next one."""
    page = kept("sea")
    page.say("rename", name="the sea")
    again = kept("sea")

    assert again.panel.conversation is page.panel.conversation
    with isolated():
        assert svc.panel("sea").conversation.name == "the sea"
        assert len(svc.panel("the sea").conversation.turns) == 1


@pytest.mark.parametrize("ending", ["md", "json"])
def test_a_file_has_what_python_writes(open_page: OpenPage, ending: str) -> None:
    """Its name is one that every system takes; only the page that asked saves it."""
    page = open_page("ทริป/1:a")
    page.ask("Hello there")
    page.say("export", name=ending, id="page-1")

    plan = svc.conversation("ทริป/1:a")
    text = plan.to_markdown() if ending == "md" else plan.to_json()
    kind = {"md": "text/markdown", "json": "application/json"}[ending]
    name = f"ทริป_1_a.{ending}"
    assert last(page, "file") == {
        "t": "file",
        "id": "page-1",
        "name": name,
        "kind": kind,
        "text": text,
    }


def test_the_list_is_not_saved_with_the_notebook(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widget state has the open conversation only; a long list is cut, and counted."""
    monkeypatch.setattr(conversations_dialog, "MAX_LISTED", 1)
    page = open_page()
    for name in ("one", "two", "three"):
        svc.conversation(name).ask(f"Question {name}")
    names = find(page)

    assert (names, last(page, "found")["n_more"]) == (["three"], 2)
    assert "Question" not in str(page.panel.get_state())


def test_another_kind_of_file_is_refused(open_page: OpenPage) -> None:
    """The message has the kinds that there are."""
    page = open_page()
    page.say("export", name="docx", id="page-1")

    assert "one of md, json" in page.view["notice"]
    assert not page.all("file")


@pytest.mark.slow
def test_a_panel_with_a_name_goes_on_where_it_was(kept: OpenPage) -> None:
    """The turns of the last kernel are there, are sent, and can be cleared."""
    page = kept("sea")
    view = page.view
    page.ask("And deep?")

    assert [turn["prompt"] for turn in view["turns"]] == ["Is it blue?"]
    assert view["settings"]["system"] == "Be brief."
    assert view["notice"] == "1 turn of sea restored from the ledger."
    assert (view["is_restored"], view["is_problem"]) == (True, False)
    newest = svc.last()
    assert newest
    assert newest.request.messages[1].content == "Is it blue?"
    page.say("clear")
    assert (prompts(page), page.view["notice"]) == ([], "")
    assert kept("sea").view["turns"] == []


@pytest.mark.parametrize("asked", [["Fail"], ["Halt"], ["Deep?", "Fail"]])
def test_only_the_restored_notice_offers_to_start_empty(
    kept: OpenPage, asked: list[str]
) -> None:
    """An error that takes its place would offer to remove what was asked since."""
    page = kept("sea")
    assert page.view["is_restored"]

    for prompt in asked:
        page.ask(prompt)

    view = page.view
    assert (view["is_problem"], view["is_restored"]) == (True, False), view["notice"]


def test_a_later_notice_is_not_what_the_earlier_one_was(kept: OpenPage) -> None:
    """After an error, what only informs is no error, and offers nothing."""
    page = kept("sea")
    page.say("export", name="docx", id="page-1")
    assert (page.view["is_problem"], page.view["is_restored"]) == (True, False)

    page.panel.leave(svc.conversation("chat"), "This is another one.")

    view = page.view
    assert (view["notice"], view["is_problem"]) == ("This is another one.", False)


def test_a_cell_that_asks_ends_the_offer_to_start_empty(kept: OpenPage) -> None:
    """It would remove the cell's turn as well; the notice stays."""
    page = kept("sea")

    svc.conversation("sea").ask("Deep?")

    page.wait(lambda: prompts(page) == ["Is it blue?", "Deep?"])
    assert page.view["notice"] == "1 turn of sea restored from the ledger."
    assert not page.view["is_restored"]


def test_a_panel_begins_empty_if_asked(kept: OpenPage) -> None:
    """With `restore=False`, or without a name, the ledger's turns stay there."""
    page, unnamed = kept("sea", restore=False), kept(None)

    assert (prompts(page), prompts(unnamed)) == ([], [])
    page.ask("Is it salt?")
    assert prompts(page) == ["Is it salt?"]


@pytest.mark.slow
def test_a_ledger_that_cannot_be_read_opens_an_empty_panel(
    kept: OpenPage, tmp_path: Path
) -> None:
    """Why is said in the panel, which works."""
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
        connection.execute("UPDATE exchanges SET record_crc32 = 0")
        connection.commit()
    page = kept("sea")

    assert "cannot be read: its checksum differs" in page.view["notice"]
    assert page.view["is_problem"]
    assert len(page.ask("Hello")) > 0


def test_of_a_long_conversation_the_newest_turns_are_shown(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older ones come in steps; new ones are added, and a clearing shows none."""
    monkeypatch.setattr(panel_view, "TURNS_AT_ONCE", 3)
    plan = svc.conversation("plan")
    for n in range(8):
        plan.ask(f"Question {n}")
    page = open_page()

    def shown() -> tuple[int, list[int]]:
        return page.view["n_older"], [turn["number"] for turn in page.view["turns"]]

    assert shown() == (5, [6, 7, 8])
    page.say("pin", turn=page.view["turns"][0]["id"])
    assert [turn["number"] for turn in page.views[-1]["turns"]] == [6]
    page.ask("One more")
    assert shown() == (5, [6, 7, 8, 9])
    page.say("older")
    assert page.views[-1]["is_whole"]
    assert shown() == (2, [3, 4, 5, 6, 7, 8, 9])
    page.say("older")
    assert shown() == (0, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    page.say("clear")
    assert shown() == (0, [])
    page.say("undo")
    assert shown() == (6, [7, 8, 9])


NEWER = "Another session has asked 2 turns of sea meanwhile, not sent here."


def ask_elsewhere(*prompts: str) -> None:
    """Ask in another kernel that has restored the conversation."""
    with isolated():
        sea = svc.conversation("sea").restore()
        for prompt in prompts:
            sea.ask(prompt)
        current().ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("said", ["draft", "hello"])
def test_turns_of_another_notebook_are_offered_before_sending(
    kept: OpenPage, said: str
) -> None:
    """While one types or comes back to the page; one click adds them, undo removes."""
    page = kept("sea")
    page.ask("Here")
    silent = page.view["newer"]
    ask_elsewhere("Is it deep?", "Is it wide?")
    page.say(said, id="a", text="Next", n_attached=0, seq=0, on=True)
    noted = page.view["newer"]
    page.say("newer", on=True)
    view = page.view
    page.say("undo")
    page.say("redo")
    page.say("undo")

    assert (silent, noted, view["newer"]) == ("", NEWER, "")
    assert [said["text"] for said in page.all("stepped")][:2] == [
        "Undone: 2 turns added. Redo brings it back.",
        "Redone: 2 turns added.",
    ]
    assert [turn["prompt"] for turn in view["turns"]] == [
        "Is it blue?",
        "Here",
        "Is it deep?",
        "Is it wide?",
    ]
    assert [turn["is_stale"] for turn in view["turns"]] == [False] * 4
    assert prompts(page) == ["Is it blue?", "Here"]


@pytest.mark.slow
def test_what_is_sent_without_them_is_sent_as_asked(kept: OpenPage) -> None:
    """The note stays until it is dismissed, and comes back for newer ones only."""
    page = kept("sea")
    ask_elsewhere("Is it deep?", "Is it wide?")
    page.ask("Here")
    noted = page.view["newer"]
    page.say("newer", on=False)
    page.ask("There")
    dismissed = page.view["newer"]
    ask_elsewhere("Is it cold?")
    page.ask("Everywhere")
    more = page.view["newer"]
    svc.conversation("sea").restore()
    after = page.view

    assert (noted, dismissed) == (NEWER, "")
    assert more == NEWER.replace("2 turns", "3 turns")
    assert after["newer"] == ""
    assert [turn["prompt"] for turn in after["turns"] if turn["is_stale"]] == [
        "Here",
        "There",
        "Everywhere",
    ]


@pytest.mark.slow
def test_an_empty_panel_offers_what_another_notebook_has_begun(kept: OpenPage) -> None:
    """It goes on with all turns that the other notebook has."""
    page = kept("land")
    with isolated():
        svc.conversation("land").ask("Is it green?")
        current().ledger.close()
    page.say("draft", id="a", text="Next", n_attached=0)
    noted = page.view["newer"]
    page.say("newer", on=True)

    assert noted == "Another session has asked 1 turn of land meanwhile, not sent here."
    assert (prompts(page), page.view["newer"]) == (["Is it green?"], "")


@pytest.fixture
def run_again(kept: OpenPage) -> OpenPage:
    """A first turn of a cell, and two of a panel below it; then Run All."""
    with isolated():
        svc.conversation("unit").ask("What is a set?")
        page = kept("unit")
        page.ask("An example?")
        page.ask("Another?")
        page.panel.close()
        current().ledger.close()
    svc.conversation("unit").ask("What is a set?")
    return kept


OLDER = "2 turns that were asked in the panel before the restart are not here."


def test_after_run_all_the_panel_offers_the_turns_asked_before(
    run_again: OpenPage,
) -> None:
    """It says which; the button adds them to the turn they followed, undo removes."""
    page = run_again("unit")
    noted, shown = page.view["newer"], prompts(page)
    page.say("newer", on=True)
    added = page.view
    page.say("undo")
    page.say("draft", id="a", text="Next", n_attached=0)
    undone = page.view
    page.say("newer", on=True)

    assert (noted, shown) == (OLDER, ["What is a set?"])
    assert [turn["prompt"] for turn in added["turns"]] == [
        "What is a set?",
        "An example?",
        "Another?",
    ]
    assert [turn["n_versions"] for turn in added["turns"]] == [2, 1, 1]
    assert not added["turns"][0]["is_stale"]
    assert page.all("stepped")[0]["text"].startswith(
        "Undone: 2 turns added, 1 turn changed. "  # the first has an earlier answer
    )
    assert (undone["newer"], undone["n_turns"]) == (OLDER, 1)
    assert (page.view["newer"], page.view["n_turns"]) == ("", 3)


def test_what_a_panel_only_asked_again_was_not_asked_in_the_panel(
    kept: OpenPage,
) -> None:
    """Such as the turn of a cell that was deleted from the notebook since."""
    with isolated():
        unit = svc.conversation("unit")
        unit.ask("What is a set?")
        unit.ask("An example?")
        page = kept("unit")
        page.do("regenerate", turn=page.view["turns"][1]["id"])
        page.panel.close()
        current().ledger.close()
    svc.conversation("unit").ask("What is a set?")

    noted = kept("unit").view["newer"]

    assert noted == "1 turn that was asked before the restart is not here."


def test_pins_and_hidden_turns_of_an_earlier_run_are_offered(
    kept: OpenPage,
) -> None:
    """Also if nothing else is missing; the button brings them, undo removes them."""
    with isolated():
        page = kept("unit")
        for prompt in ("One?", "Two?", "Three?"):
            page.ask(prompt)
        first, _, third = page.view["turns"]
        page.say("pin", turn=first["id"])
        page.say("hide", turn=third["id"])
        page.panel.close()
        current().ledger.close()
    for prompt in ("One?", "Two?", "Three?"):
        svc.conversation("unit").ask(prompt)
    page = kept("unit")
    noted = page.view["newer"]
    page.say("newer", on=True)
    added = [(turn["is_pinned"], turn["is_hidden"]) for turn in page.view["turns"]]
    told = page.view["newer"]
    page.say("undo")
    page.say("draft", id="a", text="Next", n_attached=0)

    assert noted == (
        "Before the restart, turn 1 (One?) was pinned and turn 3 (Three?) was hidden."
    )
    assert added == [(True, False), (False, False), (False, True)]
    assert (told, page.view["newer"]) == ("", noted)


def test_turns_asked_before_are_never_added_unasked(run_again: OpenPage) -> None:
    """The note can be dismissed; a cell and a message send what is shown."""
    page = run_again("unit")
    page.say("newer", on=False)
    dismissed = page.view["newer"]
    page.ask("A third?")
    page.say("hello", id="a", seq=0, on=True)

    assert dismissed == page.view["newer"] == ""
    assert prompts(page) == ["What is a set?", "A third?"]


@pytest.mark.parametrize("begin", ["reset", "empty"])
def test_a_conversation_begun_on_purpose_offers_no_earlier_turns(
    run_again: OpenPage, begin: str
) -> None:
    """After a reset, and in a panel that was opened with restore=False."""
    if begin == "reset":
        svc.conversation("unit").reset()
    page = run_again("unit", restore=begin == "reset")
    page.ask("What is a bag?")

    assert page.view["newer"] == ""


def test_what_was_added_is_there_the_next_day(run_again: OpenPage) -> None:
    """As it was seen last, although nothing was asked with it."""
    page = run_again("unit")
    page.say("newer", on=True)
    page.say("version", turn=page.view["turns"][0]["id"], version=1)
    page.say("delete", turn=page.view["turns"][2]["id"])
    seen = [
        (turn["prompt"], turn["version"], turn["is_stale"])
        for turn in page.view["turns"]
    ]
    current().ledger.close()
    with isolated():
        page = run_again("unit")
        view = page.view
        page.panel.close()

    assert [(t["prompt"], t["version"], t["is_stale"]) for t in view["turns"]] == seen
    assert [prompt for prompt, *_ in seen] == ["What is a set?", "An example?"]
    assert view["notice"] == "2 turns of unit restored from the ledger."
    assert view["newer"] == ""


def test_a_panel_offers_what_a_run_that_stopped_early_has_hidden(
    run_again: OpenPage,
) -> None:
    """The next kernel opens with its only turn, and says what is missing."""
    current().ledger.close()
    with isolated():
        page = run_again("unit")
        opened, noted = prompts(page), page.view["newer"]
        page.say("newer", on=True)
        added = prompts(page)
        page.panel.close()

    assert opened == ["What is a set?"]
    assert noted == OLDER
    assert added == ["What is a set?", "An example?", "Another?"]


def test_the_list_counts_a_turn_that_ran_again_once(run_again: OpenPage) -> None:
    """A cell has the same key in each run; what is added is the same turn, too."""
    page = run_again("unit")
    page.say("newer", on=True)
    find(page, "unit")

    assert last(page, "found")["rows"][0]["n_turns"] == 3
