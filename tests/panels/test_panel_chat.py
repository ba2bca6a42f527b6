"""The panel against the emulator, spoken to through its comm."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import svc_notebook as svc
from svc_notebook.conversations.continuation import GO_ON
from svc_notebook.conversations.transcript import to_entries
from svc_notebook.emulator.emulator import Emulator
from tests.panels.conftest import OpenPage, Page

SLOW = {"when": {"contains": "slow"}, "text": ["word "] * 400, "gap_s": 0.02}
CUT = {"when": {"contains": "Count"}, "text": "one, tw", "finish_reason": "length"}
REST = {"when": {"contains": "Go on"}, "text": "o, three."}
FAIL = {"when": {"contains": "Fail"}, "error": {"message": "No way."}, "status": 400}
SILENT = {
    "when": {"contains": "silent"},
    "text": ["Half ", "done"],
    "cut_after": 1,
    "end": "silent",
}
EMPTY = {"when": {"contains": "nothing"}, "text": ""}
CUT_AND_EMPTY = {
    "when": {"contains": "no room"},
    "text": "",
    "finish_reason": "length",
}
FILTERED = {
    "when": {"contains": "withheld"},
    "text": "",
    "finish_reason": "content_filter",
}
NO_TEXT = {
    "when": {"contains": "mute"},
    "text": ["x"],
    "cut_after": 0,
    "end": "silent",
}
OTHER = {
    "when": {"contains": "other"},
    "times": None,
    "events": [
        {
            "model": "another-model",
            "choices": [{"index": 0, "delta": {"content": "Hi"}}],
        },
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    ],
}


THINKING = {
    "when": {"contains": "think"},
    "events": [
        {"choices": [{"index": 0, "delta": {"reasoning_content": "I <think>."}}]},
        {"choices": [{"index": 0, "delta": {"content": "Hi"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    ],
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with a slow reply, a cut one and a refusal."""
    script: list[dict[str, Any]] = [SLOW, CUT, REST, FAIL, SILENT, OTHER]
    script += [EMPTY, CUT_AND_EMPTY, FILTERED, NO_TEXT, THINKING]
    key = "svc-key-of-this-test-4b1c"
    with Emulator(
        script=script, keys=[key], tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


def contents(emulator: Emulator) -> list[str]:
    """Return the texts of the newest request's messages."""
    messages: list[dict[str, Any]] = emulator.requests[-1].json["messages"]
    return [message["content"] for message in messages]


def test_a_prompt_is_answered(open_page: OpenPage, emulator: Emulator) -> None:
    """Busy with the prompt, deltas, ended, then the view with the turn."""
    page = open_page()
    page.say("hello")

    turn = page.ask("Hello there")

    assert page.heard[0]["t"] == "ack"
    [ended] = page.all("ended")
    assert ended["text"] == "Reply finished"
    assert turn["prompt"] == "Hello there"
    assert turn["choices"][0]["text"] == svc.last().text  # type: ignore[union-attr]  # just asked
    assert page.view["live"] is None
    assert emulator.requests[-1].json["max_tokens"] > 8000


def test_reasoning_is_folded_above_the_reply(open_page: OpenPage) -> None:
    """It is escaped, and no part of the text; while it comes, the panel says so."""
    page = open_page()

    turn = page.ask("think")

    assert turn["choices"][0]["text"] == "Hi"
    assert turn["tool_runs"] == [
        {
            "name": "reasoning",
            "line": "reasoning: 10 characters",
            "unanswered": "",
            "html": "<pre>I &lt;think&gt;.</pre>",
            "is_error": False,
        }
    ]
    assert [each["text"] for each in page.all("status")] == ["reasoning", ""]


@pytest.mark.slow
def test_while_it_comes_the_view_holds_what_has_come(open_page: OpenPage) -> None:
    """A page that is reloaded gets the reply so far, and nothing twice."""
    page = open_page()
    page.say("send", text="slow")
    page.wait(lambda: len(page.all("delta")) > 2)

    page.say("hello")

    live = page.view["live"]
    assert (page.view["state"], live["turn"], live["prompt"]) == ("busy", "new", "slow")
    assert "word" in live["choices"][0]["tail"]
    page.say("stop")
    page.wait_idle()


@pytest.mark.slow
def test_a_page_that_opens_meanwhile_has_all_that_has_come(open_page: OpenPage) -> None:
    """Just what the messages up to its number bring: no less, and nothing twice."""
    page = open_page()
    page.say("send", text="slow")

    tails = [""]
    while len(tails) < 9:
        page.wait(lambda: len(page.all("delta")) > len(tails))
        view = page.view
        heard = [each.get("content", {}) for each in page.comm.published]
        tails.append("")
        for each in heard:
            if each.get("t") == "delta" and each["seq"] <= view["seq"]:
                tails[-1] = tails[-1][: each["n_same"]] + each["tail"]
        assert "word" in tails[-1]
        assert [each["tail"] for each in view["live"]["choices"]] == tails[-1:]

    page.say("stop")
    page.wait_idle()


@pytest.mark.slow
def test_a_page_that_is_a_little_behind_gets_no_second_copy(
    open_page: OpenPage,
) -> None:
    """The pieces are on their way; a missing number tells the page to ask for all."""
    page = open_page()
    page.say("send", text="slow")
    page.wait(lambda: len(page.all("delta")) > 2)
    n_views = len(page.views)

    page.say("hello", seq=page.numbers[-1] - 1)
    n_views_behind = len(page.views)
    page.say("hello", seq=-1)

    assert page.all("ack")
    assert (n_views_behind, len(page.views)) == (n_views, n_views + 1)
    page.say("stop")
    page.wait_idle()


@pytest.mark.slow
def test_stop_closes_the_connection_and_keeps_the_text(
    open_page: OpenPage, emulator: Emulator
) -> None:
    """Also where the service is silent; the turn can be continued."""
    page = open_page()
    page.say("send", text="silent")
    page.wait(lambda: page.all("delta"))

    page.say("stop")
    page.wait_idle()

    [ended] = page.all("ended")
    assert ended["text"] == "Reply stopped"
    assert emulator.wait_idle()
    assert emulator.requests[-1].is_cut_by_client
    [turn] = page.view["turns"]
    assert turn["choices"][0]["text"] == "Half "
    assert "interrupted" in turn["badges"]
    assert "continue" in turn["can"]


def test_a_reply_that_ends_after_a_reset_is_no_turn(open_page: OpenPage) -> None:
    """It stays empty, and the panel says where the reply is, which was paid for."""
    page = open_page()
    page.say("send", text="silent")
    page.wait(lambda: page.all("delta"))

    page.panel.conversation.reset()
    page.say("stop")
    page.wait_idle()

    assert page.panel.conversation.turns == ()
    assert page.view["turns"] == []
    assert "cleared meanwhile" in page.view["notice"]
    assert "The ledger has the reply" in page.view["notice"]


def test_a_cut_reply_is_continued_in_place(
    open_page: OpenPage, emulator: Emulator
) -> None:
    """The live text begins with the cut reply; the joined text is one version."""
    page = open_page()
    turn = page.ask("Count")

    got = page.do("continue", turn=turn["id"])

    assert contents(emulator) == ["Count", "one, tw", GO_ON]
    assert "one, tw" in page.tails()[-1]
    [turn] = got["turns"]
    assert turn["choices"][0]["text"] == "one, two, three."
    assert (turn["n_versions"], "continue" in turn["can"]) == (1, False)
    assert page.all("ended")[0]["text"].startswith("Reply cut")


def test_versions_prompts_and_undo(open_page: OpenPage) -> None:
    """Asked again and edited; each version shows its prompt; undo takes it back."""
    page = open_page()
    turn_id = page.ask("First")["id"]

    page.do("regenerate", turn=turn_id)
    edited = page.do("edit", turn=turn_id, text="First, better")["turns"][0]
    page.say("choose", turn=turn_id, version=1)
    chosen = page.view["turns"][0]
    page.say("undo")
    page.say("undo")
    undone = page.view["turns"][0]
    page.say("redo")
    redone = page.view["turns"][0]

    assert (edited["prompt"], edited["version"], edited["n_versions"]) == (
        "First, better",
        "3/3",
        3,
    )
    assert (chosen["prompt"], chosen["version"]) == ("First", "1/3")
    assert (undone["prompt"], undone["n_versions"]) == ("First", 2)
    assert (redone["prompt"], redone["n_versions"]) == ("First, better", 3)
    assert "redo" in page.view["can"]


def test_choices_stand_side_by_side(open_page: OpenPage) -> None:
    """All n are there; the one that is picked feeds later turns."""
    page = open_page(n=3)
    turn = page.ask("Give me three")

    page.say("pick", turn=turn["id"], choice=2)

    [turn] = page.view["turns"]
    assert (len(turn["choices"]), turn["picked"]) == (3, 2)
    third = page.panel.conversation.turns[0].messages[-1].content
    assert third == turn["choices"][2]["text"]
    assert {each["choice"] for each in page.all("delta")} == {0, 1, 2}


def test_turns_are_pinned_hidden_deleted_and_cleared(open_page: OpenPage) -> None:
    """Each shows at once, and can be undone."""
    page = open_page()
    first, second = page.ask("First")["id"], page.ask("Second")["id"]

    page.say("pin", turn=first)
    page.say("hide", turn=second)
    marked = [(t["is_pinned"], t["is_hidden"]) for t in page.view["turns"]]
    page.say("delete", turn=first)
    left = [turn["id"] for turn in page.view["turns"]]
    page.say("clear")
    cleared = page.view["turns"]
    page.say("undo")
    page.say("undo")

    assert marked == [(True, False), (False, True)]
    assert (left, cleared) == ([second], [])
    assert [turn["id"] for turn in page.view["turns"]] == [first, second]


def test_undo_and_redo_say_which_change_they_made(open_page: OpenPage) -> None:
    """With the turn's number and the beginning of its prompt."""
    page = open_page()
    first, second = page.ask("First\nquestion")["id"], page.ask("Long " * 20)["id"]
    page.do("continue", turn=page.ask("Count")["id"])
    page.do("regenerate", turn=first)
    page.say("choose", turn=first, version=1)
    for change in ("pin", "pin", "hide", "hide"):
        page.say(change, turn=second)
    page.say("delete", turn=second)
    page.say("clear")
    while "undo" in page.view["can"]:
        page.say("undo")
    page.say("redo")

    long = "Long Long Long Long Lo..."
    assert [said["text"] for said in page.all("stepped")] == [
        f"Undone: {change}. Redo brings it back."
        for change in (
            "conversation cleared",
            f"turn 2 deleted ({long})",
            f"turn 2 shown again ({long})",
            f"turn 2 hidden ({long})",
            f"turn 2 unpinned ({long})",
            f"turn 2 pinned ({long})",
            "version 1 of turn 1 chosen (First question)",
            "turn 1 asked again (First question)",
            "turn 3 continued (Count)",
            "turn 3 added (Count)",
            f"turn 2 added ({long})",
            "turn 1 added (First question)",
        )
    ] + ["Redone: turn 1 added (First question)."]


def test_undo_of_a_reset_without_turns_says_so(open_page: OpenPage) -> None:
    """No turn has changed by it."""
    page = open_page("plan")
    svc.conversation("plan").reset()
    page.say("undo")

    [said] = page.all("stepped")
    assert said["text"] == "Undone: conversation cleared. Redo brings it back."


def test_undo_of_an_edit_says_so(open_page: OpenPage) -> None:
    """Its prompt differs; it names the prompt that is taken back."""
    page = open_page()
    page.do("edit", turn=page.ask("First question")["id"], text="Better question")
    page.say("undo")

    [said] = page.all("stepped")
    assert said["text"] == (
        "Undone: turn 1 edited (Better question). Redo brings it back."
    )


def test_undo_of_a_pick_says_so(open_page: OpenPage) -> None:
    """It is a choice of one reply."""
    page = open_page(n=3)
    page.say("pick", turn=page.ask("Give me three")["id"], choice=2)
    page.say("undo")

    [said] = page.all("stepped")
    assert said["text"] == (
        "Undone: choice 3 of turn 1 picked (Give me three). Redo brings it back."
    )


def test_without_a_key_the_panel_says_so(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing key is a notice, and nothing hangs."""
    page = open_page()
    monkeypatch.delenv("SVC_API_KEY")

    page.say("send", text="Hello")
    page.wait(lambda: page.view["state"] == "idle" and page.view["notice"])

    assert "SVC_API_KEY" in page.view["notice"]


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("nothing", "empty, so"),
        ("no room", "empty (cut at 150 tokens, max_tokens), so"),
        ("withheld", "empty (finish reason content_filter), so"),
    ],
)
def test_an_empty_reply_says_so(open_page: OpenPage, prompt: str, why: str) -> None:
    """Nothing is added to the conversation, and the notice says why."""
    page = open_page(max_tokens=150)
    page.ask("Hello there")

    got = page.do("send", text=prompt)

    assert [turn["prompt"] for turn in got["turns"]] == ["Hello there"]
    assert why in got["notice"]
    assert got["is_problem"]
    assert page.all("ended")[-1]["text"] == "Reply failed"


def test_an_empty_prompt_is_refused(open_page: OpenPage) -> None:
    """Nothing is sent for blanks."""
    page = open_page()

    page.say("send", text="  ")

    assert (page.view["state"], "empty" in page.view["notice"]) == ("idle", True)


def test_one_reply_at_a_time(open_page: OpenPage, emulator: Emulator) -> None:
    """A second prompt is refused in words while the first is answered."""
    page = open_page()
    page.say("send", text="slow")

    page.say("send", text="Another")

    assert "being written" in page.view["notice"]
    page.say("stop")
    page.wait_idle()
    assert len(emulator.requests) <= 1


def test_other_origins_are_seen_at_once(open_page: OpenPage) -> None:
    """Python's ask shows in two panels, and theirs in Python."""
    one, other = open_page(), open_page()

    svc.conversation("plan").ask("From Python")
    one.ask("From a panel")

    prompts = ["From Python", "From a panel"]
    assert [turn["prompt"] for turn in one.view["turns"]] == prompts
    assert [turn["prompt"] for turn in other.view["turns"]] == prompts
    assert [t.prompt.content for t in svc.conversation("plan").turns] == prompts


@pytest.mark.slow
def test_what_is_left_out_is_said(open_page: OpenPage) -> None:
    """The meter warns before, the notice tells after."""
    page = open_page()
    plan = page.panel.conversation
    for n in range(4):
        plan.ask(f"{n} " + "word " * 1900, max_tokens=5)

    metered = page.view["meter"]["text"]
    page.ask("Last")

    assert "left out to fit the limit: the oldest" in metered
    assert page.view["notice"].startswith("Left out to fit the limit: the oldest")


def test_the_meter_counts_the_draft(open_page: OpenPage) -> None:
    """It has the draft and what is attached, split, and the turns they push out."""
    page = open_page()
    page.ask("Hello")
    before = page.view["meter"]
    draft = {"id": "a", "text": "word " * 200, "n_attached": 300}

    page.say("draft", **draft)
    page.say("draft", **{**draft, "n_attached": 0})
    page.say("draft", **{**draft, "n_attached": 7900})

    split, alone, full = (each["meter"] for each in page.all("meter"))
    used, message = before["used_tokens"], split["used_tokens"] - 300
    message -= used
    assert 150 < message < 300
    parts = f"conversation {used}, attached 300, message {message}"
    assert split["text"] == (
        f"about {used + 300 + message} of 8,192 tokens (estimated): {parts}"
    )
    assert f": conversation {used}, message {message}" in alone["text"]
    assert "left out to fit the limit: the oldest turn" in full["text"]
    assert page.view["meter"] == before
    assert {each["id"] for each in page.all("meter")} == {"a"}


@pytest.mark.slow
def test_a_wait_is_a_countdown(open_page: OpenPage) -> None:
    """A limit that makes it wait is said with the time at which it ends."""
    svc.use(endpoint=Emulator(tokens_per_s=None, first_token_s=0))
    pages = [open_page(f"plan-{n}") for n in range(7)]

    for page in pages:
        page.say("send", text="Ask")
    for page in pages:
        page.wait_idle()

    waiting = [page for page in pages if page.all("status")]
    said = waiting[0].all("status")
    assert [bool(each["text"]) for each in said][-2:] == [True, False]
    assert said[0]["text"].startswith("Waiting: ")
    assert said[0]["until_ms"] > 1e12
    assert said[-1]["until_ms"] is None
    ends = [each["text"] for page in pages for each in page.all("ended")]
    assert ends == ["Reply finished"] * 7


def test_a_panel_without_a_name_goes_on_with_the_chat(open_page: OpenPage) -> None:
    """Opened again it shows what was said before."""
    open_page(None).ask("Hello")

    again: Page = open_page(None)

    assert again.view["name"] == "Hello"
    assert [turn["prompt"] for turn in again.view["turns"]] == ["Hello"]


def test_wrong_arguments_open_no_panel(open_page: OpenPage) -> None:
    """A name of two lines and a parameter out of range are refused."""
    with pytest.raises(svc.errors.ParameterError, match="100 printable"):
        open_page("a\nb")
    with pytest.raises(svc.errors.ParameterError, match="0 to 2"):
        open_page(temperature=5)


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


def test_a_spending_limit_is_said_in_the_panel(open_page: OpenPage) -> None:
    """The prompt that may not be sent leaves no turn, and the panel says why."""
    page = open_page()
    svc.use(max_tokens_total=165)  # one request of at most 150 + prompt
    page.ask("Say hello.")

    page.say("send", text="Say hello again.")
    page.wait(lambda: page.view["notice"])

    assert "svc.use(max_tokens_total=...)" in page.view["notice"]
    assert len(page.view["turns"]) == 1


def test_versions_say_which_settings_made_them(open_page: OpenPage) -> None:
    """Only where those of the versions differ; the transcript says the same."""
    page = open_page()
    turn = page.ask("Name a tea")
    again = {"turn": turn["id"]}
    same = page.do("regenerate", **again)["turns"][0]
    page.say("set", name="temperature", value="1.5")
    warm = page.do("regenerate", **again)["turns"][0]
    text = page.panel.conversation.to_markdown()
    page.say("choose", **again, version=1)
    first = page.view["turns"][0]

    assert "settings" not in same["footer"]
    assert warm["footer"].endswith(" · temperature 1.5")
    assert " · temperature 1.5" in text
    assert first["footer"].endswith(" · default parameters")


def test_versions_say_which_system_prompt_made_them(open_page: OpenPage) -> None:
    """With its first words, or those that differ, and all of it to point at."""
    page = open_page()
    page.say("set", name="system", value="ตอบสุภาพ")
    again = {"turn": page.ask("Name a tea")["id"]}
    alone = page.view["turns"][0]
    page.say("set", name="temperature", value="0.8")
    page.say(
        "set", name="system", value="Answer in a very short and polite sentence. A"
    )
    page.do("regenerate", **again)
    page.say(
        "set", name="system", value="Answer in a very short and polite sentence. B"
    )
    page.do("regenerate", **again)
    page.say("set", name="system", value="")
    shown = [page.do("regenerate", **again)["turns"][0]]
    for number in (3, 2, 1):
        page.say("choose", **again, version=number)
        shown.append(page.view["turns"][0])
    ends = [turn["footer"].split(" · ")[2:] for turn in shown]

    assert "system" not in alone["footer"]
    assert alone["system"] == ""
    assert ends == [
        ["temperature 0.8", "no system prompt"],
        ["temperature 0.8", "system prompt “...sentence. B”"],
        ["temperature 0.8", "system prompt “...sentence. A”"],
        ["default parameters", "system prompt “ตอบสุภาพ”"],
    ]
    assert [turn["system"][-2:] for turn in shown] == ["", " B", " A", "าพ"]
    assert not any(turn["is_stale"] for turn in shown)


def test_system_prompts_that_differ_late_are_told_apart(open_page: OpenPage) -> None:
    """Those that differ at the end of the first words show what is their own."""
    page = open_page()
    page.say("set", name="system", value="You help a science teacher prepare lessons.")
    again = {"turn": page.ask("Name a tea")["id"]}
    page.say(
        "set", name="system", value="You help a science teacher. Write for pupils."
    )
    second = page.do("regenerate", **again)["turns"][0]
    page.say("choose", **again, version=1)
    first = page.view["turns"][0]

    assert "teacher prepare lessons." in first["footer"]
    assert "teacher. Write for pupils." in second["footer"]


def test_exports_say_which_system_prompt_an_answer_had(open_page: OpenPage) -> None:
    """Where it is not that of the turn above; the transcripts say the same."""
    page = open_page()
    page.say("set", name="system", value="Be kind")
    page.ask("Name a tea")
    turn = page.ask("And a cup")
    page.say("set", name="system", value="Second")
    page.do("regenerate", turn=turn["id"])
    page.ask("And a pot")
    page.say("choose", turn=turn["id"], version=1)
    page.say("set", name="system", value="Third")
    plan = page.panel.conversation
    text = plan.to_markdown()
    versions = [
        [version["system"] for version in turn["versions"]]
        for turn in json.loads(plan.to_json())["turns"]
    ]
    copy = svc.conversation("copy").from_json(plan.to_json())

    assert text.count("system prompt: Be kind") == 1
    assert (
        "## system\n\n> Third\n\n## 1 · You\n\n    system prompt: Be kind\n\n" in text
    )
    assert "## 2 · You\n\n> And a cup\n\n" in text
    assert "## 3 · You\n\n    system prompt: Second\n\n" in text
    assert versions == [["Be kind"], ["Be kind", "Second"], ["Second"]]
    assert copy.to_markdown().count("system prompt: ") == 2


def test_transcripts_say_where_the_system_prompt_changes(open_page: OpenPage) -> None:
    """Once for all turns that follow, back to one above or to that of the top."""
    page = open_page()
    for system in ("Be kind", "", "Be kind", "Be brief", "Be brief", "Be kind", "Top"):
        page.say("set", name="system", value=system)
        page.ask("Name a tea")
    page.ask("And a cup")
    page.say("set", name="system", value="Be brief")
    page.ask("And a pot")
    page.say("set", name="system", value="Top")
    entries = to_entries(page.panel.conversation.history)
    notes = [entry.notes for entry in entries if entry.heading.endswith(" · You")]

    assert notes == [
        ("system prompt: Be kind",),
        ("no system prompt",),
        ("system prompt: as in turn 1",),
        ("system prompt: Be brief",),
        (),
        ("system prompt: as in turn 1",),
        ("system prompt: as at the top",),
        (),
        ("system prompt: as in turn 4",),
    ]


def steep(minutes: int) -> str:
    """Steep the tea."""
    return f"{minutes} min"


def test_a_second_panel_begins_with_the_settings_of_the_newest(
    open_page: OpenPage,
) -> None:
    """What code sets for the second one is used instead."""
    first = open_page()
    first.say("set", name="temperature", value="1.5")
    first.say("set", name="n", value="2")
    second, third = open_page(), open_page(temperature=0.5)
    other, with_tools = open_page("other"), open_page(tools=[steep])
    first.panel.close()
    shown = (page.view["settings"] for page in (second, third, other, with_tools))

    assert [(each["temperature"], each["n"]) for each in shown] == [
        *((1.5, 2), (0.5, 2), (None, None), (0.5, None))
    ]
