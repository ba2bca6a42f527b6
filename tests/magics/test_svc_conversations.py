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
    plan.hide(1)
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

    assert "Turn 1 (Cell a) is pinned: " in pinned
    assert "Turn 2 (Cell b) is hidden: " in hidden
    assert "Version 1 of 2 (svc-v2-8b-instruct) of turn 1 now feeds" in chosen
    assert contents(emulator) == ["Cell a", first, "Cell c"]


@pytest.mark.parametrize(
    ("name", "is_noted"),
    [("stat", True), ("stast", True), ("draft 3", False), ("tea", False)],
)
def test_a_name_that_may_be_misspelt_is_noted(
    shell: Shell,
    name: str,
    is_noted: bool,
) -> None:
    """Once, below the first reply; `draft 3` beside `draft 2` is none."""
    for other in ("stats", "draft 2"):
        shell.run(f"%%svc -c '{other}'\nHi")

    shown = [shell.run(f"%%svc -c '{name}'\n{text}").shown for text in ("Hi", "And?")]

    noted = ["a new conversation; there is also stats" in each for each in shown]
    assert noted == [is_noted, False]


@pytest.mark.slow
@pytest.mark.usefixtures("emulator")
def test_commands_on_turns_can_be_run_again(shell: Shell, named_cells: Named) -> None:
    """They do the same again, and two others undo them."""
    named_cells("a", "%%svc -c 'my plan'\nCell a")
    again = [shell.run("%svc pin my plan 1").shown for _ in range(2)]
    again += [shell.run("%svc hide my plan 1").shown for _ in range(2)]
    turn = svc.conversation("my plan").turns[0]
    undone = [shell.run("%svc unpin my plan 1").shown for _ in range(2)]
    undone += [shell.run("%svc -c 'my plan' unhide 1").shown for _ in range(2)]
    turn_after = svc.conversation("my plan").turns[0]

    assert (
        "is pinned: it is always sent. `%svc unpin 'my plan' 1` undoes it." in again[0]
    )
    assert "is hidden: it is not sent. `%svc unhide 'my plan' 1` undoes it." in again[2]
    assert again[::2] == again[1::2]
    assert (turn.is_pinned, turn.is_hidden) == (True, True)
    assert "Turn 1 (Cell a) is not pinned." in undone[0]
    assert "Turn 1 (Cell a) is sent, as it is not hidden." in undone[2]
    assert undone[::2] == undone[1::2]
    assert (turn_after.is_pinned, turn_after.is_hidden) == (False, False)


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

    shown = shell.run(line).shown
    assert remedy in shown
    assert f"{' '.join(line.split()[:2])} did not work" in shown


def test_history_and_list_show_what_was_said(shell: Shell) -> None:
    """A conversation is shown with its turns, the list with their number."""
    shell.run("%%svc -c plan\nFirst question")

    history = shell.run("%svc history plan").shown
    listed = shell.run("%svc conversations").shown

    assert "First question" in history
    assert "1 conversation in this kernel." in listed
    assert "plan" in listed
    assert "The ledger has" not in listed


@pytest.mark.slow
def test_the_list_says_how_many_more_the_ledger_has(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it says they can be brought back with works."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        for name in ("plan", "sea", "sky"):
            shell.run(f"%%svc -c {name}\nHello")
    with isolated():
        alone = shell.run("%svc conversations").shown
        shell.run("%svc restore plan")
        some = shell.run("%svc conversations")

    assert "This kernel has no conversation yet." in alone
    assert "The ledger has 3: `svc.conversations_df()` lists them" in alone
    assert "The ledger has 2 more: " in some.shown
    assert "`%svc restore NAME` brings one back" in some.shown
    assert isinstance(some.value, pd.DataFrame)
    assert some.value["n_turns"].to_dict() == {"plan": 1}


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


def sent_prompts(emulator: Emulator) -> list[str]:
    """Return the prompts in the newest request: every second message."""
    return contents(emulator)[::2]


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_the_first_cell_of_a_new_kernel_goes_on_with_older_turns(
    shell: Shell, emulator: Emulator
) -> None:
    """It sends them, as the panel does, and its footer says so once."""
    first = shell.run("%svc -c plan three").shown
    sent = sent_prompts(emulator)
    second = shell.run("%%svc -c plan\nfour").shown

    assert sent == ["one", "two", "three"]
    assert sent_prompts(emulator) == ["one", "two", "three", "four"]
    assert "went on with 2 turns of plan, the last from " in first
    assert "`%svc reset plan` begins again" in first
    assert "went on" not in second


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_turns_that_went_on_are_one_series(shell: Shell) -> None:
    """The ledger has one series afterwards, and the next kernel goes on with it."""
    shell.run("%%svc -c plan\nthree")
    with isolated():
        shell.run("%%svc -c plan\nfour")
        saved = svc.conversation("plan").saved()

    assert [len(series.history.turns) for series in saved] == [4]


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_a_dry_run_and_a_failed_cell_leave_the_note_to_the_first_reply(
    shell: Shell,
) -> None:
    """A dry run shows what would be sent; the first reply still says it went on."""
    dry = repr(shell.run("%%svc -c plan --dry-run\nthree").value)
    shell.run("%%svc -c plan -m svc-nope\nthree")
    reply = shell.run("%%svc -c plan\nthree").shown

    assert "went on with 2 turns" in dry
    assert "went on with 2 turns" in reply


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_a_turn_that_only_the_ledger_has_is_said_how_to_bring_back(
    shell: Shell,
) -> None:
    """After Run All, for every command on a turn; what it names works."""
    shell.run("%%svc -c plan\none")  # it begins again
    lines = ["%svc version plan 2 1", "%svc pin plan 2", "%svc hide plan 2"]
    refused = [" ".join(shell.run(line).shown.split()) for line in lines]
    shell.run("%svc restore plan")
    pinned = shell.run("%svc pin plan 2").shown

    for shown in refused:
        assert "has 1 turn and no turn 2" in shown
        assert "The ledger has 1 older turn of plan, not sent here" in shown
        assert "`%svc restore plan` brings it back" in shown
    assert "Turn 2 (two) is pinned: " in pinned


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_a_reset_in_a_new_kernel_begins_again(shell: Shell, emulator: Emulator) -> None:
    """The first cell after it sends no older turn, and the ledger keeps them."""
    reset = shell.run("%svc reset plan").shown
    shell.run("%%svc -c plan\nthree")

    assert "plan is empty now" in reset
    assert sent_prompts(emulator) == ["three"]
    assert len(svc.conversation("plan").saved()) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_a_first_prompt_that_is_asked_again_begins_again(
    shell: Shell, emulator: Emulator
) -> None:
    """A notebook that is run from its top sends what it sent before, and says why."""
    first = shell.run("%%svc -c plan\none").shown
    shell.run("%%svc -c plan\ntwo")

    assert sent_prompts(emulator) == ["one", "two"]
    assert "begins plan again, since it asked the first turn before" in first
    assert "`%svc restore plan` brings its turns back" in first


@pytest.mark.slow
def test_named_cells_that_run_again_in_a_new_kernel_take_their_places(
    emulator: Emulator,
    named_cells: Named,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Run All sends each turn once, also with an edited first prompt.

    A cell further down that runs first asks its own turn again, after those before it.
    """
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        for cell in ("a", "b", "c"):
            named_cells(cell, f"%%svc -c plan\nCell {cell}")
    with isolated():
        for cell in ("a", "b", "c"):
            named_cells(cell, f"%%svc -c plan\nCell {cell}, edited")
        all_again = sent_prompts(emulator)
    with isolated():
        shown = named_cells("b", "%%svc -c plan\nOnly b")
        only_b = sent_prompts(emulator)
        turns = svc.conversation("plan").turns

    assert all_again == ["Cell a, edited", "Cell b, edited", "Cell c, edited"]
    assert only_b == ["Cell a, edited", "Only b"]
    assert "went on with 3 turns of plan" in shown
    assert "asked again, the earlier answer is kept as a version" in shown
    assert [len(turn.versions) for turn in turns] == [1, 2, 1]


def test_after_run_all_restore_merges_what_was_asked_before(
    emulator: Emulator,
    named_cells: Named,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """No turn comes twice: a cell's earlier answer is a version, and stays unsent."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        named_cells("a", "%%svc -c unit\nWhat is a set?")
        unit = svc.conversation("unit")
        unit.ask("An example?")
        unit.ask("Another?")
        named_cells("b", "%%svc -c unit\nSum it up")
    with isolated():  # it stopped early
        named_cells("a", "%%svc -c unit\nWhat is a set, please?")
    with isolated():
        named_cells("a", "%%svc -c unit\nWhat is a set, in short?")
        restored = named_cells("r", "%svc restore unit")
        again = named_cells("r", "%svc restore unit")
        turns = svc.conversation("unit").turns
        named_cells("c", "%%svc -c unit\nGo on")

    prompts = ["What is a set, in short?", "An example?", "Another?", "Sum it up"]
    assert [turn.prompt.content for turn in turns] == prompts
    assert [len(turn.versions) for turn in turns] == [3, 1, 1, 1]
    assert [turn.is_stale for turn in turns] == [False, True, True, True]
    assert sent_prompts(emulator) == [*prompts, "Go on"]
    assert restored == (
        "Restored: 3 turns of unit, in the order of asking, and other answers to 1 "
        "turn. It now has 4 turns.\n"
    )
    assert "unit has these turns already (4 turns); nothing was restored." in again


def test_a_version_of_an_earlier_run_is_named_with_how_to_restore_it(
    named_cells: Named, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a missing turn is; nothing is said of it where the ledger has no more."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    missing = "Turn 1 of 'unit' has 1 version and no version 2; `%svc history unit`"
    with isolated():
        named_cells("a", "%%svc -c unit\nWhat is a set?")
        named_cells("a", "%%svc -c unit\nWhat is a set?")
        none = named_cells("v", "%svc version unit 1 9")
    with isolated():
        named_cells("a", "%%svc -c unit\nWhat is a set?")
        named_cells("b", "%%svc -c unit\nAnd a bag?")
        shown = named_cells("v", "%svc version unit 1 2")
        of_other_turn = named_cells("v", "%svc version unit 2 2")
        named_cells("r", "%svc restore unit")
        chosen = named_cells("v", "%svc version unit 1 2")

    assert missing in shown
    assert (
        "The ledger has 2 older versions of turn 1, not sent here; `%svc restore unit` "
        "brings them back."
    ) in " ".join(shown.split())
    assert not [said for said in (none, of_other_turn) if "%svc restore" in said]
    assert "Version 2 of 3" in chosen


def test_restore_after_run_all_says_what_is_pinned_and_hidden_again(
    named_cells: Named, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the numbers of the turns; nothing is said of marks that are here."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    for run in range(2):
        with isolated():
            named_cells("a", "%%svc -c unit\nWhat is a set?")
            named_cells("b", "%%svc -c unit\nAn example?")
            if run == 0:
                named_cells("p", "%svc pin unit 1\n%svc hide unit 2")
            else:
                restored = named_cells("r", "%svc restore unit")

    assert restored == (
        "Restored: other answers to 2 turns of unit. Turn 1 (What is a set?) is pinned "
        "and turn 2 (An example?) is hidden.\n"
    )


def test_restore_in_a_new_kernel_finds_what_a_failed_run_all_has_hidden(
    named_cells: Named, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run that stopped early is the newest, and has one turn."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        named_cells("a", "%%svc -c unit\nWhat is a set?")
        svc.conversation("unit").ask("An example?")
    with isolated():
        named_cells("a", "%%svc -c unit\nWhat is a set?")
    with isolated():
        restored = named_cells("r", "%svc restore unit")
        turns = svc.conversation("unit").turns

    assert restored == "Restored: unit (2 turns).\n"
    assert [turn.prompt.content for turn in turns] == ["What is a set?", "An example?"]
    assert [len(turn.versions) for turn in turns] == [2, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_restore_after_the_first_turn_puts_the_older_ones_before_it(
    shell: Shell, emulator: Emulator
) -> None:
    """The command that a warning recommends works as it is printed."""
    with pytest.warns(RuntimeWarning, match=r"2 older turns.*`%svc restore plan`"):
        svc.conversation("plan").ask("three")

    restored = shell.run("%svc restore plan").shown
    again = shell.run("%svc restore plan").shown
    shell.run("%%svc -c plan\nfour")

    assert restored == (
        "Restored: 2 turns of plan, before the 1 turn here. It now has 3 turns.\n"
    )
    assert "plan has these turns already (3 turns); nothing was restored." in again
    assert sent_prompts(emulator) == ["one", "two", "three", "four"]


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_turns_of_another_notebook_are_said_below_the_reply_and_taken_in(
    shell: Shell, emulator: Emulator
) -> None:
    """The footer says so once, the command it names adds them, and they are sent."""
    shell.run("%%svc -c plan\nthree")
    with isolated():
        svc.conversation("plan").restore().ask("elsewhere")
        svc.conversation("plan").ask_again(1, "one again")
    said = shell.run("%%svc -c plan\nfour").shown
    sent = sent_prompts(emulator)
    silent = shell.run("%%svc -c plan\nfive").shown
    restored = shell.run("%svc restore plan").shown
    again = shell.run("%svc restore plan").shown
    shell.run("%%svc -c plan\nsix")

    note = "another session has asked 1 turn of plan and turn 1 (one) again meanwhile"
    assert f"{note}, not sent here; `%svc restore plan` adds them" in said
    assert sent == ["one", "two", "three", "four"]
    assert "meanwhile" not in silent
    assert restored == (
        "Restored: 1 turn of plan, in the order of asking, and other answers to 1 "
        "turn. It now has 6 turns.\n"
    )
    assert "plan has these turns already (6 turns)" in again
    prompts = ["one again", "two", "three", "elsewhere", "four", "five", "six"]
    assert sent_prompts(emulator) == prompts


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_the_same_cell_says_newer_turns_again(named_cells: Named) -> None:
    """A dry run before it does not take the note away; another cell is silent."""
    named_cells("c", "%%svc -c plan\nthree")
    with isolated():
        svc.conversation("plan").restore().ask("elsewhere")
    for cell, is_said in (("d", True), ("d", True), ("e", False)):
        shown = named_cells(cell, f"%%svc -c plan\n{cell}")
        assert ("asked 1 turn of plan meanwhile" in shown) == is_said


@pytest.mark.slow
@pytest.mark.usefixtures("older_turns")
def test_a_panel_that_was_opened_empty_keeps_cells_from_going_on(
    shell: Shell, emulator: Emulator
) -> None:
    """With restore=False the user has decided; the footer still names the command."""
    svc.panel("plan", restore=False)

    shown = shell.run("%%svc -c plan\nthree").shown

    assert sent_prompts(emulator) == ["three"]
    assert "2 older turns of plan, not sent here; `%svc restore plan`" in shown


@pytest.mark.slow
def test_a_cell_whose_turn_was_restored_asks_that_turn_again(
    emulator: Emulator,
    named_cells: Named,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It takes its place in any series, so that no turn is sent twice."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    for cell in ("x", "y"):
        with isolated():
            svc.conversation("plan").reset()
            named_cells(cell, f"%%svc -c plan\nCell {cell}")
    with isolated():
        named_cells("z", "%%svc -c plan\nCell z")
        svc.conversation("plan").restore(1)
        named_cells("y", "%%svc -c plan\nAgain y")
        first = sent_prompts(emulator)
        named_cells("x", "%%svc -c plan\nAgain x")

        assert first == ["Cell x", "Again y"]
        assert sent_prompts(emulator) == ["Again x"]


@pytest.mark.slow
def test_restore_adds_the_newest_series_and_lists_the_others(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another series is added by its number; what is here is never added twice."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    for prompt in ("oldest", "older"):
        with isolated():
            shell.run("%svc reset plan")
            shell.run(f"%%svc -c plan\n{prompt}")
    shell.run("%svc reset plan")
    shell.run("%%svc -c plan\nnow")

    newest = shell.run("%svc restore plan").shown
    prompts = [turn.prompt.content for turn in svc.conversation("plan").turns]
    added = shell.run("%svc restore plan 1").shown
    again = shell.run("%svc restore plan 1").shown
    whole = shell.run("%svc restore plan").shown

    assert "Restored: 1 turn of plan, before the 1 turn here." in newest
    assert "another kernel, 1 turn: oldest" in newest
    assert "`%svc restore plan NUMBER`" in newest
    assert prompts == ["older", "now"]
    assert "Restored: 1 turn of plan, before the 2 turns here." in added
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


def test_a_system_prompt_from_elsewhere_is_said_once(shell: Shell) -> None:
    """It is said again when it has changed; one that a cell gave is no news."""
    note = 'with its system prompt: `%svc history plan` shows it, `-s ""` removes it'
    plan = svc.conversation("plan", system="Be brief")
    shell.run("%%svc -c plan --dry-run\nHello")

    first = shell.run("%%svc -c plan\nHello").shown
    again = shell.run("%%svc -c plan\nHello").shown
    plan.system = "Be long"
    changed = shell.run("%%svc -c plan\nHello").shown
    shell.run("%%svc -c plan -s 'Be kind'\nHello")
    kept = shell.run("%%svc -c plan\nHello").shown
    shell.run('%%svc -c plan -s ""\nHello')
    removed = shell.run("%%svc -c plan\nHello").shown

    assert note in " ".join(first.split())
    assert note in " ".join(changed.split())
    assert not [
        shown
        for shown in (again, kept, removed)
        if "system prompt" in " ".join(shown.split())
    ]
    assert plan.system is None


@pytest.mark.parametrize(
    ("config", "option", "said"),
    [("", " -s Loud", "-s"), ("Loud", "", "SvcMagics.system")],
)
def test_a_cell_says_that_it_replaces_a_system_prompt_from_elsewhere(
    shell: Shell, config: str, option: str, said: str
) -> None:
    """Such as that of a panel: in the footer, once; removing one says nothing."""
    plan = svc.conversation("plan", system="Be\nbrief")
    shell.run("%%svc -c plan\nHello")
    shell.run(f"%config SvcMagics.system = {config!r}")

    first = shell.run(f"%%svc -c plan{option}\nHello").shown
    again = shell.run(f"%%svc -c plan{option}\nHello").shown
    plan.system = "Be brief"
    shown = shell.run('%%svc -c plan -s ""\nHello').shown

    note = f"with {said} in place of its system prompt “Be brief”"
    assert note in " ".join(first.split())
    assert "system prompt" not in f"{again}{shown}"
    assert plan.system is None


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

    assert "is pinned" in shell.run("%svc pin 'queueing theory' 1").shown


def test_the_list_has_what_was_typed(shell: Shell) -> None:
    """What `--with` adds to the newest prompt is not in the list."""
    shell.names["note"] = "a note"
    shell.run("%%svc -c plan --with note\nExplain")

    assert svc.conversations_df()["prompt"].tolist() == ["Explain"]


def test_a_reset_names_the_system_prompt_that_stays(shell: Shell) -> None:
    """It says how to send none; without one there is nothing to say."""
    shell.run("%%svc -c plan -s 'Be brief.'\nHi")
    shell.run("%%svc -c other\nHi")
    svc.conversation("plan").system = "Be brief."

    plan, other = (shell.run(f"%svc reset {name}").shown for name in ("plan", "other"))

    assert 'Its system prompt stays: `-c plan -s ""` removes it.' in plan
    assert "system" not in other


def test_commands_take_the_name_that_the_options_give(shell: Shell) -> None:
    """`-c NAME` stands for the name, as it does for `continue`."""
    shell.run("%%svc -c plan\nHi")

    history = shell.run("%svc -c plan history").value
    pinned = shell.run("%svc -c plan pin 1").shown

    assert history is svc.conversation("plan")
    assert "Turn 1 (Hi) is pinned: " in pinned


def test_a_name_of_several_words_needs_no_quotes(shell: Shell) -> None:
    """Commands take words that together are the name of a conversation as its name."""
    shell.run("%%svc -c 'support prompt'\nFrom a cell")
    lines = ("pin support prompt 1", "reset support prompt", "restore support prompt")

    shown = [shell.run(f"%svc {line}").shown.strip() for line in lines]
    history = shell.run("%svc history support prompt").value

    assert shown == [
        (
            "Turn 1 (From a cell) is pinned: it is always sent. "
            "`%svc unpin 'support prompt' 1` undoes it."
        ),
        "The conversation support prompt is empty now; the ledger keeps its turns.",
        "Restored: support prompt (1 turn).",
    ]
    assert history is svc.conversation("support prompt")


def test_words_that_are_no_name_are_not_joined(shell: Shell) -> None:
    """A line that may be a question is refused, as ever."""
    error = shell.run("%svc history of printing").error

    assert "a command or a question?" in str(error)
