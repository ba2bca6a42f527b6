"""`%svc continue`: the rest of a reply that was cut, interrupted or broken off."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.conversations.continuation import GO_ON
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import CutError
from svc_notebook.session import current, isolated
from tests.magics.conftest import Shell, contents

OFFER = "`%svc continue` asks for the rest"


def cut(text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of an entry
    """Return an entry whose reply ends at the token limit."""
    return {"text": text, "finish_reason": "length", **more}


CALL: dict[str, Any] = {"name": "f", "arguments": '{"a'}
SCRIPT: list[dict[str, Any]] = [
    cut("one, tw", when={"contains": "Count"}, times=None),
    {"when": {"contains": "Break"}, "text": ["on", "e, tw", "o"], "cut_after": 3},
    cut("a " * 7900, when={"contains": "Fill"}),
    {
        "when": {"contains": "Choose"},
        "choices": [
            {"text": text, "finish_reason": "length"} for text in ("one,", "uno,")
        ],
    },
    {
        "when": {"contains": "Mixed"},
        "choices": [{"text": "one."}, {"text": "uno,", "finish_reason": "length"}],
    },
    {
        "when": {"contains": "Call"},
        "text": "I call",
        "tool_calls": [CALL],
        "finish_reason": "length",
    },
    cut("two, thr", when={"contains": "Go on"}),
    {"when": {"contains": "Go on"}, "error": {"message": "no"}, "status": 400},
    {"when": {"contains": "Go on"}, "text": "three."},
    {"when": {"contains": "Fail"}, "error": {"message": "no"}, "status": 400},
]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose replies are cut, broken off, or the rest of one."""
    with Emulator(script=SCRIPT, tokens_per_s=None, first_token_s=0) as running:
        yield running


def last() -> svc.Completion:
    """Return the newest completion."""
    found = svc.last()
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["Count", "Break"])
def test_the_rest_is_offered_and_added(
    shell: Shell, emulator: Emulator, prompt: str
) -> None:
    """Again and again, past a failure, until the reply is whole; each time shortly."""
    first = shell.run(f"%%svc -t 0.2 -o answer\n{prompt}")
    second = shell.run("%svc continue")
    sent = contents(emulator)
    failed = shell.run("%svc continue")
    third = shell.run("%svc continue")

    assert OFFER in first.shown
    assert second.shown.startswith(("o, thr\n", ", thr\n"))
    assert OFFER in second.shown
    assert sent[0] == prompt
    assert sent[1] in {"one, tw", "one, two"}
    assert sent[2:] == [GO_ON]
    assert emulator.requests[-1].json["temperature"] == 0.2
    assert isinstance(failed.error, svc.errors.BadRequestError)
    assert third.shown.startswith("ee.\n")
    assert OFFER not in third.shown
    answer = last()
    assert (answer.text, answer.finish_reason) == ("one, two, three.", "stop")
    assert (answer.is_cut, answer.can_go_on) == (False, False)
    assert shell.names["answer"] == answer
    assert [each.content for each in answer.messages] == [prompt, answer.text]


def test_tokens_and_seconds_add_up(shell: Shell) -> None:
    """The whole has those of its parts, reported or estimated; so has the ledger."""
    shell.run("%%svc --no-stream\nCount")
    before = last().usage
    cell = shell.run("%svc --no-stream continue")

    used = last().usage
    both = svc.replies_df()
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(used, name) == both[name].sum()
        assert getattr(used, name) > getattr(before, name)
    assert last().usage_source == "reported"
    counted = f"{used.prompt_tokens} → {used.completion_tokens} tokens"
    assert f"2 requests, {counted}" in cell.shown
    assert f"2 requests, {counted}" in repr(last())


@pytest.mark.slow
def test_max_tokens_and_other_options_can_be_given(
    shell: Shell, emulator: Emulator
) -> None:
    """They differ from the reply's; a dry run sends nothing; --strict refuses."""
    shell.run("%%svc --max-tokens 5 -t 1\nCount")
    n_sent = len(emulator.requests)
    dry = shell.run("%svc --dry-run continue").shown
    not_sent = len(emulator.requests) == n_sent
    strict = shell.run("%svc --max-tokens 7 -t 0 -m svc-instruct --strict continue")
    sent = emulator.requests[-1].json
    fitted = shell.run("%svc -o more --dry-run continue").value

    assert not_sent
    assert "one, tw" in dry
    assert GO_ON[:30] in dry
    assert isinstance(strict.error, CutError)
    values = sent["max_tokens"], sent["temperature"], sent["model"]
    assert values == (7, 0, "svc-instruct")
    assert fitted.request.params["max_tokens"] > 5000  # type: ignore[attr-defined]  # a DryRun


@pytest.mark.parametrize(
    ("option", "which"),
    [("", "the last reply"), ("-c plan ", "the last reply to turn 1 of plan")],
)
def test_a_complete_reply_is_no_error(
    shell: Shell, emulator: Emulator, option: str, which: str
) -> None:
    """So Run All goes on below the cell; nothing is sent, and `-o` holds the reply."""
    shell.run(f"%%svc {option}\nHello")

    ran = shell.run(f"%svc {option}-o whole continue")

    assert ran.error is None
    assert f"Nothing was sent: {which} ended by itself" in ran.shown
    assert len(emulator.requests) == 1
    assert shell.run("whole.finish_reason").value == "stop"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "line", "why"),
    [
        ([], "continue", "This kernel has no recorded reply yet"),
        (["%%svc\nCall"], "continue", "ends with tool calls"),
        (["%%svc -n 2\nChoose"], "continue", "pick a choice that was cut"),
        (
            ["%%svc -c plan -n 2\nMixed"],
            "-c plan continue",
            "pick a choice that was cut",
        ),
        (["%%svc\nFill"], "continue", "the rest in a new cell"),
        (["%%svc -c plan\nCount"], "-c other continue", "it has: plan"),
        (["%%svc -c plan\nCount", "%svc reset plan"], "continue", "has moved on"),
        (["%%svc\nHi", "%%svc --no-record\nCount"], "continue", "not in the ledger"),
        (["%%svc\nCount", "%%svc\nFail"], "continue", "no text (it failed)"),
        (
            ["%%svc\nCount", "%%svc --no-record\nFail"],
            "continue",
            "no text (it failed)",
        ),
        (
            ["%%svc -c plan\nCount", "%%svc -c plan\nFail"],
            "-c plan continue",
            "no text",
        ),
        (["%%svc\nCount"], "-n 2 continue", "leave the other options out"),
        (["%%svc\nCount"], "--raw continue", "leave the other options out"),
        (["%%svc\nCount"], "continue the list", "`%svc ask continue the list`"),
        (["%%svc\nCount"], "continue 1", "`%svc -c NAME continue 1`"),
        (["%%svc -c plan\nCount"], "-c plan continue 7", "has 1 turn and no turn 7"),
    ],
)
def test_what_cannot_be_continued_is_refused(
    shell: Shell, emulator: Emulator, before: list[str], line: str, why: str
) -> None:
    """The reason is said, and nothing is sent."""
    for each in before:
        shell.run(each)
    n_sent = len(emulator.requests)

    refused = shell.run(f"%svc {line}")

    assert isinstance(refused.error, svc.errors.AskError)
    assert why in refused.shown
    assert len(emulator.requests) == n_sent


def test_a_sweep_is_run_again_instead(shell: Shell) -> None:
    """The newest reply is of a run: what is missing there is sent by the run."""
    svc.sweep("Count", repeats=2).run()

    assert "belongs to a sweep" in shell.run("%svc continue").shown


def test_a_cell_that_asked_several_is_run_again(
    shell: Shell, emulator: Emulator
) -> None:
    """It is called what it is, and the way without paying again is true."""
    cell = "-m svc-instruct,svc-v2-8b-instruct -o two\nCount"
    shell.run(f"%%svc {cell}")

    refused = shell.run("%svc continue").shown
    n_sent = len(emulator.requests)
    shell.run(f"%%svc --reuse {cell}")

    assert "one of several that a cell asked for" in refused
    assert "sweep" not in refused
    assert len(emulator.requests) == n_sent


def test_the_picked_choice_of_a_turn_goes_on(shell: Shell, emulator: Emulator) -> None:
    """In a conversation one of several choices is picked, and grows."""
    shell.run("%%svc -c plan -n 2\nChoose")
    svc.conversation("plan").pick(1, 2)
    shell.run("%svc -c plan continue")

    [turn] = svc.conversation("plan").turns
    assert contents(emulator)[1] == "uno,"
    assert [m.content for m in turn.version.choices] == ["one,", "uno,two, thr"]


def test_an_earlier_turn_goes_on(shell: Shell, emulator: Emulator) -> None:
    """By its number; without one, a complete newest reply names the turn."""
    shell.run("%%svc -c 'my plan'\nCount")
    shell.run("%%svc -c 'my plan'\nHi")
    refused = shell.run("%svc -c 'my plan' continue").shown
    n_sent = len(emulator.requests)
    shell.run("%svc -c 'my plan' continue 1")
    ask = emulator.requests[-1].json["messages"]
    second = shell.run("%svc -c 'my plan' continue 2").shown

    assert "the last reply to turn 2 of my plan ended by itself" in refused
    assert (
        "The reply to turn 1 is not complete: `%svc -c 'my plan' continue 1` asks for "
        "the rest." in refused
    )
    assert len(emulator.requests) == n_sent + 1
    assert [message["content"] for message in ask[:2]] == ["Count", "one, tw"]
    assert len(svc.conversation("my plan").turns) == 2
    assert svc.conversation("my plan").turns[0].version.text == "one, two, thr"
    assert "turn 2 of my plan ended by itself" in second


@pytest.mark.slow
def test_it_goes_on_after_a_restart(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A conversation that was restored goes on where it was cut the day before."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        shell.run("%%svc -c plan\nCount")
    with isolated():
        shell.run("%svc restore plan")
        rest = shell.run("%svc -c plan continue")
        used = last().usage

        assert rest.shown.startswith("o, thr\n")
        assert used.total_tokens == sum(
            each.est_prompt_tokens + each.est_completion_tokens
            for each in current().ledger.read(scope="all")
        )


def test_a_new_kernel_says_where_the_last_reply_is(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It names the two lines to run, if the conversation was not deleted."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        shell.run("%%svc -c 'tea plan'\nCount")
    with isolated():
        refused = shell.run("%svc continue").shown
        lines = re.findall("`(.+?)`", " ".join(refused.split()))
        rest = [shell.run(line).shown for line in lines][-1]
        current().conversations.delete("tea plan")
    with isolated():
        shown = shell.run("%svc continue").shown

    assert lines == ["%svc restore 'tea plan'", "%svc -c 'tea plan' continue"]
    assert rest.startswith("o, thr\n")
    assert "ask first" in shown
    assert "restore" not in shown


@pytest.fixture
def named_cells(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], str]:
    """Run cells as a front end that names them does."""
    count = iter(range(100))

    def run(cell_id: str, code: str) -> str:
        parent = {
            "header": {"msg_id": f"execution-{next(count)}"},
            "metadata": {"cellId": cell_id},
        }
        monkeypatch.setattr(shell.ipython, "get_parent", lambda: parent, raising=False)
        return shell.run(code).shown

    return run


@pytest.mark.slow
def test_a_cell_that_was_run_again_is_not_continued(
    emulator: Emulator, named_cells: Callable[[str, str], str]
) -> None:
    """Its reply is not there any more; the cell that continues may run again."""
    named_cells("a", "%%svc\nCount")
    named_cells("b", "%svc continue")
    named_cells("b", "%svc continue")
    again = named_cells("b", "%svc continue")
    named_cells("a", "%%svc\nCount")
    named_cells("a", "1 + 1")
    n_sent = len(emulator.requests)

    refused = named_cells("b", "%svc continue")

    assert again.startswith("ee.\n")
    assert "was run again since" in refused
    assert len(emulator.requests) == n_sent


@pytest.mark.slow
@pytest.mark.parametrize("line", ["continue", "-c rc continue"])
def test_run_all_pays_for_no_rest_again(
    emulator: Emulator,
    named_cells: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
) -> None:
    """The cut half, its rest and the next turn are re-used, in the same kernel."""
    monkeypatch.setenv("SVC_REUSE", "1")
    cells = ("%%svc -c rc\nCount", f"%svc {line}", "%%svc -c rc\nNext")
    for number, each in enumerate(cells):
        named_cells(str(number), each)
    n_sent = len(emulator.requests)

    shown = [named_cells(str(number), each) for number, each in enumerate(cells)]

    assert len(emulator.requests) == n_sent == 3
    assert all("re-used 20" in each for each in shown)
    turns = svc.conversation("rc").turns
    assert [each.replies[-1].content for each in turns[0].versions] == [
        "one, two, thr",
        "one, two, thr",
    ]


def test_what_is_kept_out_of_the_ledger_is_not_offered(shell: Shell) -> None:
    """It would be refused."""
    assert "asks for the rest" not in shell.run("%%svc --no-record\nCount").shown


def test_after_a_reload_cells_are_watched_once(shell: Shell) -> None:
    """Loading the extension again leaves one watcher, unloading none."""
    shell.run("%svc use")
    runs = shell.ipython.events.callbacks["pre_run_cell"]
    n_runs = len(runs)
    shell.run("%reload_ext svc_notebook")
    shell.run("%svc use")
    reloaded = len(runs)
    shell.run("%unload_ext svc_notebook")

    assert (reloaded, len(runs)) == (n_runs, n_runs - 1)
