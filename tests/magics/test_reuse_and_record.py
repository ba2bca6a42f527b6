"""Run All that pays only for what changed, and cells kept out of the ledger."""

from pathlib import Path

import pandas as pd
import pytest

import svc_notebook as svc
import svc_notebook.pandas
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current
from tests.magics.conftest import Shell

NOTEBOOK = (
    "%%svc\nHello",
    "%%svc -c plan\nWhere to begin?",
    "%%svc -c plan\nAnd then?",
    "%svc what is a monad?",
    "%%svc --tools clock -t 0\nCall clock.",
    "%%svc -t 0,1 --repeats 2\nTell a joke.",
    "svc.complete('A', temperature=0)",
    "list(svc.stream('B'))",
    "svc.sweep('C {{n}}', rows=[{'n': '1'}, {'n': '2'}], repeats=2).run()",
    "frame['text'].svc.complete('Short: {{value}}')",
)


def run_all(shell: Shell) -> None:
    """Run a notebook."""
    shell.names.update(svc=svc, frame=pd.DataFrame({"text": ["x", "y"]}))
    for code in (
        "def clock() -> str:\n    'Tell the time.'\n    return '9'",
        *NOTEBOOK,
    ):
        assert shell.run(code).error is None, code


@pytest.mark.slow
@pytest.mark.parametrize("way", ["SVC_REUSE", "%config"])
def test_run_all_pays_only_for_what_changed(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The second run of a notebook sends nothing but the cell that was changed."""
    run_all(shell)
    n_sent = len(emulator.requests)
    if way == "SVC_REUSE":
        monkeypatch.setenv("SVC_REUSE", "1")
    else:
        shell.run("%config SvcMagics.reuse = True")
    for each in current().conversations:
        each.reset()  # as a restart does

    run_all(shell)
    changed = shell.run("%%svc\nHello!")

    assert len(emulator.requests) == n_sent + 1
    assert emulator.requests[-1].json["messages"][-1]["content"] == "Hello!"
    assert "re-used" not in changed.shown
    assert "[emulator: written by hand] [re-used 20" in shell.run("%%svc\nHello").shown


@pytest.mark.slow
def test_one_cell_or_one_call_can_ask_all_the_same(
    shell: Shell, emulator: Emulator
) -> None:
    """`--no-reuse` and `reuse=False` ask, whatever the setting says."""
    shell.run("%config SvcMagics.reuse = True")
    shell.run("%%svc -t 0\nHello")

    fresh = shell.run("%%svc -t 0 --no-reuse\nHello")
    svc.complete("Hello", temperature=0, reuse=False)
    list(svc.stream("Hello", temperature=0, reuse=False))
    grid = shell.run("%%svc -t 0,0.5 --fresh\nHello")

    # A busy machine may get a 429 for one that came late, and ask it once more.
    answered = [each for each in emulator.requests if each.status == 200]
    assert len(answered) == 6
    assert "re-used" not in fresh.shown + grid.shown


@pytest.mark.slow
def test_a_conversation_in_python_always_asks(shell: Shell, emulator: Emulator) -> None:
    """Asking a turn again wants another answer; a panel and a client ask as well."""
    shell.run("%config SvcMagics.reuse = True")
    plan = svc.conversation("plan")

    plan.ask("Hello")
    plan.ask_again(1)
    svc.Client().complete("Hello")
    svc.Client().complete("Hello")

    assert len(emulator.requests) == 4


TOOLS = "def clock() -> str:\n    'Tell the time.'\n    return 'nine o clock'"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "%%svc --no-record -o kept\nA secret",
        "%%svc --no-record --no-stream -o kept\nA secret",
        "%svc --no-record -o kept A secret",
        "%%svc --no-record --tools clock -o kept\nCall clock, a secret.",
        "%%svc --no-record --reuse -o kept\nA secret",
    ],
)
def test_one_exchange_is_kept_out_of_the_ledger(
    shell: Shell, tmp_path: Path, code: str
) -> None:
    """The reply in hand is whole; no frame and no file of the ledger has it."""
    shell.run(f"%config SvcMagics.ledger = '{tmp_path / 'ledger.sqlite'}'")
    shell.run(TOOLS)
    shell.run("%%svc\nBefore")

    cell = shell.run(code)

    assert cell.error is None
    kept = shell.names["kept"]
    assert isinstance(kept, svc.Completion)
    assert "not in the ledger" in cell.shown
    assert kept.usage.total_tokens
    assert "secret" in kept.as_python()
    last = svc.last()
    assert last == kept
    assert [run.result for run in last.tool_runs] == [r.result for r in kept.tool_runs]
    assert list(svc.replies_df(scope="all")["prompt"]) == ["Before"]
    assert len(svc.tool_calls_df(scope="all")) == 0
    current().ledger.flush()
    for file in tmp_path.glob("ledger*"):
        assert b"secret" not in file.read_bytes()
        assert b"nine o clock" not in file.read_bytes()
    shell.run("%%svc\nAfter")
    newest = svc.last()
    assert newest is not None
    assert newest.request.prompt == "After"


@pytest.mark.slow
def test_what_fails_is_kept_out_too(shell: Shell) -> None:
    """A cut reply under --strict, and a refused request, leave nothing behind."""
    shell.run("%%svc --no-record -m svc-unknown\nA secret")
    shell.run("%%svc --no-record --strict --max-tokens 5\nA secret")

    last = svc.last()

    assert last is not None
    assert last.is_cut
    assert len(svc.replies_df(scope="all")) == 0
    assert str(shell.run("%svc replies").value).startswith("Empty")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-c plan", "-c plan sends it again, in turns that are recorded"),
        ("-t 0,1", "a grid is read back from the ledger"),
        ("--repeats 2", "a grid is read back from the ledger"),
    ],
)
def test_what_the_ledger_would_have_anyway_is_refused(
    shell: Shell, emulator: Emulator, line: str, reason: str
) -> None:
    """A conversation sends the turn again, and a grid reads its replies back."""
    cell = shell.run(f"%%svc --no-record {line}\nHello")

    assert isinstance(cell.error, svc.errors.ParameterError)
    assert reason in str(cell.error)
    assert len(emulator.requests) == 0
