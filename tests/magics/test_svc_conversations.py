"""`-c NAME`: a cell continues a conversation that Python sees too."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import isolated
from tests.magics.conftest import Shell, contents

Named = Callable[[str, str], str]
"""Runs a cell of that name and returns what it showed."""


@pytest.fixture
def named_cells(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Named:
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


def test_python_sees_the_same_conversation(shell: Shell, emulator: Emulator) -> None:
    """`svc.conversation` is what the cells continue."""
    plan = svc.conversation("plan", system="Be brief")
    answer = plan.ask("From Python", max_tokens=5)

    shell.run("%%svc -c plan\nFrom a cell")

    assert contents(emulator) == [
        "Be brief",
        "From Python",
        answer.text,
        "From a cell",
    ]
    assert [turn.prompt.content for turn in plan.turns] == [
        "From Python",
        "From a cell",
    ]


def test_a_cell_run_again_replaces_its_turn(
    emulator: Emulator, named_cells: Named
) -> None:
    """The turn keeps its place, the old answer is a version, later turns are stale."""
    named_cells("a", "%%svc -c plan\nFirst")
    named_cells("b", "%%svc -c plan\nSecond")

    shown = named_cells("a", "%%svc -c plan\nFirst, better")

    plan = svc.conversation("plan")
    assert contents(emulator) == ["First, better"]
    assert [turn.prompt.content for turn in plan.turns] == ["First, better", "Second"]
    assert [len(turn.versions) for turn in plan.turns] == [2, 1]
    assert [turn.is_stale for turn in plan.turns] == [False, True]
    assert "asked again, the earlier answer is kept as a version" in shown
    assert "1 later turn is now stale" in shown


def test_a_footer_counts_the_turns_that_are_stale_in_the_end(
    named_cells: Named,
) -> None:
    """None is if the same answer came again, or if the later turn did not send it."""
    named_cells("a", "%%svc -c plan\nFirst")
    named_cells("b", "%%svc -c plan\nSecond")

    same = named_cells("a", "%%svc -c plan\nFirst")
    plan = svc.conversation("plan")
    is_stale = plan.turns[1].is_stale
    plan.toggle_hidden(1)
    named_cells("b", "%%svc -c plan\nSecond")
    hidden = named_cells("a", "%%svc -c plan\nFirst, better")

    assert "asked again" in same
    assert ("stale" in same, is_stale) == (False, False)
    assert ("stale" in hidden, plan.turns[1].is_stale) == (False, False)


@pytest.mark.slow
def test_two_asks_of_one_execution_both_stay(named_cells: Named) -> None:
    """A loop that asks twice makes two turns, and so it does when run again."""
    code = "for n in (1, 2):\n    get_ipython().run_cell_magic('svc','-c plan', f'{n}')"
    named_cells("a", code)

    named_cells("a", code)

    plan = svc.conversation("plan")
    assert [turn.prompt.content for turn in plan.turns] == ["1", "2"]
    assert [len(turn.versions) for turn in plan.turns] == [2, 2]


def test_without_cell_names_turns_are_appended(shell: Shell) -> None:
    """A terminal names no cells: the same text twice is two turns."""
    shell.run("%%svc -c plan\nSame")
    shell.run("%%svc -c plan\nSame")

    assert len(svc.conversation("plan").turns) == 2


@pytest.mark.slow
def test_what_does_not_fit_is_left_out_and_said(
    shell: Shell, emulator: Emulator
) -> None:
    """The oldest turns make room; the cell says how many and how large."""
    plan = svc.conversation("plan", system="Be brief")
    for n in range(4):
        plan.ask(f"{n} " + "word " * 1900, max_tokens=5)

    cell = shell.run("%%svc -c plan\nLast")

    assert "left out to fit the limit: the oldest" in cell.shown
    assert contents(emulator)[0] == "Be brief"
    assert contents(emulator)[-1] == "Last"


def test_a_failed_turn_leaves_the_history_as_it_was(shell: Shell) -> None:
    """A refused request adds no turn."""
    shell.run("%%svc -c plan\nFirst")
    shell.run("%%svc -c plan -m svc-nope\nSecond")

    assert len(svc.conversation("plan").turns) == 1


@pytest.mark.slow
def test_a_reply_that_broke_off_is_kept_and_marked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had come stays in the history, marked, and the next turn can be sent."""
    broken = {"text": ["Half ", "an answer"], "cut_after": 2, "end": "cut"}
    with Emulator(script=[broken]) as emulator:
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        shell.run("%svc use service")
        failed = shell.run("%%svc -c plan\nFirst")
        history = shell.run("%svc history plan").shown
        shell.run("%%svc -c plan\nSecond")

        assert isinstance(failed.error, svc.errors.StreamBrokenError)
        assert "[incomplete]" in failed.shown
        assert "incomplete" in history
        assert contents(emulator)[0] == "First"
        assert contents(emulator)[1].startswith("Half ")
        assert contents(emulator)[2] == "Second"


@pytest.mark.slow
def test_turns_are_pinned_hidden_and_chosen(
    shell: Shell, emulator: Emulator, named_cells: Named
) -> None:
    """The commands change what is sent, and say so."""
    for name in ("a", "b", "a"):
        named_cells(name, f"%%svc -c plan\nCell {name}")
    first = svc.conversation("plan").turns[0].versions[0].replies[0].content

    pinned = shell.run("%svc pin plan 1").shown
    hidden = shell.run("%svc hide plan 2").shown
    chosen = shell.run("%svc version plan 1 1").shown
    named_cells("c", "%%svc -c plan\nCell c")

    assert "pinned" in pinned
    assert "hidden" in hidden
    assert "Version 1 of turn 1" in chosen
    assert contents(emulator) == ["Cell a", first, "Cell c"]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("%svc history nothing", "it has: plan"),
        ("%svc pin plan 7", "%svc history plan"),
        ("%svc pin plan one", "count from 1"),
        ("%svc version plan 1 9", "%svc history plan"),
    ],
)
def test_what_is_not_there_is_named(shell: Shell, line: str, remedy: str) -> None:
    """A turn, version or conversation that is not there is refused with a way on."""
    shell.run("%%svc -c plan\nFirst")

    assert remedy in shell.run(line).shown


def test_history_and_list_show_what_was_said(shell: Shell) -> None:
    """A conversation is shown with its turns, the list with their number."""
    shell.run("%%svc -c plan\nFirst question")

    history = shell.run("%svc history plan").shown
    listed = shell.run("%svc conversations").shown

    assert "First question" in history
    assert "plan" in listed


@pytest.mark.slow
def test_restored_after_a_restart(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new kernel finds the turns in the ledger, those before a reset left out."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        shell.run("%%svc -c plan\nForgotten")
        shell.run("%svc reset plan")
        shell.run("%%svc -c plan -s 'Be brief'\nKept")
        svc.conversation("other").ask("Elsewhere")
        before = svc.conversation("plan").history
    with isolated():
        said = shell.run("%svc restore").shown
        after = svc.conversation("plan").history

    assert "plan (1 turn)" in said
    assert "other (1 turn)" in said
    assert after == before


@pytest.fixture
def older_turns(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    """A new kernel, whose ledger has two turns of `plan` from another one."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        shell.run("%%svc -c plan\none")
        shell.run("%%svc -c plan\ntwo")
    with isolated():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_the_first_use_of_a_name_says_that_there_are_older_turns(shell: Shell) -> None:
    """The first cell names the command that shows them, a later one does not."""
    first = shell.run("%%svc -c plan\nthree").shown
    second = shell.run("%%svc -c plan\nfour").shown

    assert "2 older turns of plan, not sent here: see `%svc restore plan`" in first
    assert "older" not in second


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_restore_lists_what_is_not_here_and_adds_what_is_asked_for(
    shell: Shell,
) -> None:
    """A conversation with turns is changed only by a number from the list."""
    shell.run("%%svc -c plan\nthree")

    listed = shell.run("%svc restore plan").shown
    prompts = [turn.prompt.content for turn in svc.conversation("plan").turns]
    added = shell.run("%svc restore plan 1").shown
    again = shell.run("%svc restore plan 1").shown
    whole = shell.run("%svc restore plan").shown

    assert "plan has turns already (1 turn); nothing was restored." in listed
    assert "another kernel, 2 turns: one" in listed
    assert "`%svc restore plan NUMBER`" in listed
    assert prompts == ["three"]
    assert added == "Restored: 2 turns of plan, which now has 3 turns.\n"
    assert "has these turns already" in again
    assert "another kernel" not in whole


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
@pytest.mark.parametrize("number", ["x", "0", "2"])
def test_a_number_that_restore_does_not_list_is_refused(
    shell: Shell, number: str
) -> None:
    """The message names the command that shows the list."""
    shown = shell.run(f"%svc restore plan {number}").shown

    assert number in shown
    assert "not a number in the list of `%svc restore plan`" in " ".join(shown.split())


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_restore_of_a_misspelt_name_makes_no_conversation(shell: Shell) -> None:
    """The near name is said, and the list of conversations stays as it is."""
    said = shell.run("%svc restore plam").shown
    listed = shell.run("%svc conversations").value

    assert "holds no turns of plam. Did you mean plan?" in said
    assert isinstance(listed, pd.DataFrame)
    assert listed.empty


def test_a_panel_opens_on_the_conversation(shell: Shell) -> None:
    """Where nobody can use a widget, its transcript is what shows."""
    shell.run("%%svc -c plan\nFirst question")

    cell = shell.run("%svc panel plan")

    assert repr(cell.value) == "<Panel on the conversation 'plan'>"
    assert "First question" in cell.shown


@pytest.mark.slow
def test_a_system_message_holds_once_it_was_answered(
    shell: Shell, emulator: Emulator
) -> None:
    """A dry run or a failed ask leaves the conversation's own; "" takes it away."""
    shell.run("%%svc -c plan -s 'Be brief'\nHello")
    dry = shell.run("%%svc -c plan -s Loud --dry-run\nHello").value
    shell.run("%%svc -c plan -s Loud -m svc-nope\nHello")
    kept = svc.conversation("plan").system
    shell.run("%%svc -c plan -s ''\nHello")

    assert "Loud" in repr(dry)
    assert kept == "Be brief"
    assert svc.conversation("plan").system is None
    roles = [each["role"] for each in emulator.requests[-1].json["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_a_name_with_spaces_is_in_quotes(shell: Shell) -> None:
    """In the options of a cell, and behind a command."""
    shell.run("%%svc -c 'queueing theory'\nHello")

    assert "Turn 1 is pinned" in shell.run("%svc pin 'queueing theory' 1").shown


def test_the_list_has_what_was_typed(shell: Shell) -> None:
    """What `--with` adds to the newest prompt is not in the list."""
    shell.names["note"] = "a note"
    shell.run("%%svc -c plan --with note\nExplain")

    assert svc.conversations_df()["prompt"].tolist() == ["Explain"]
