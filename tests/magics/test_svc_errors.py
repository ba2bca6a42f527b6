"""`%svc fix` and `%svc explain`: what is sent about the user's last error, and when."""

import sys
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import Interrupted
from svc_notebook.magics.dry_run import DryRun
from svc_notebook.session import current
from tests.magics.conftest import Shell

FRAME = """\
import pandas as pd
df = pd.DataFrame({"price": [1, 2]})
pd.read_csv("no such file")"""


@pytest.fixture(autouse=True)
def no_error_before() -> None:
    """No cell of another test has failed."""
    vars(sys).pop("last_value", None)


def prompt(shell: Shell, line: str = "%svc fix --dry-run") -> str:
    """Return the prompt that a line shows."""
    value = shell.run(line).value
    assert isinstance(value, DryRun)
    return str(value.request.messages[-1].content)


def sent(emulator: Emulator) -> str:
    """Return the newest prompt that was sent."""
    text: str = emulator.requests[-1].json["messages"][-1]["content"]
    return text


@pytest.mark.slow
def test_the_first_fix_shows_what_it_would_send(
    shell: Shell, emulator: Emulator
) -> None:
    """Text, model and tokens are shown; the same line again sends just that."""
    shell.run(FRAME)

    first = shell.run("%svc fix")
    n_sent = len(emulator.requests)
    second = shell.run("%svc fix")

    assert n_sent == 0
    assert isinstance(first.value, DryRun)
    assert "prompt about" in repr(first.value)
    assert repr(first.value).startswith(
        "Dry run: nothing was sent. `%svc fix --send`, or the same line again, sends "
        "it."
    )
    drawn = first.value._repr_mimebundle_()["text/html"]
    assert ">%svc fix --send</code>, or the same line again, sends it.<" in drawn
    assert isinstance(second.value, svc.Completion)
    assert second.value.request == first.value.request
    assert current().ledger.last() == second.value.exchange
    assert second.value.exchange.origin.kind == "magic"


@pytest.mark.slow
def test_one_execution_of_a_cell_does_not_show_and_send(
    shell: Shell, emulator: Emulator
) -> None:
    """Nobody has read what a loop shows before its next turn."""
    shell.run("1 / 0")

    cell = shell.run("for _ in range(3):\n    %svc fix")

    assert cell.shown.count("Dry run: nothing was sent") == 3
    assert emulator.requests == ()


@pytest.mark.slow
def test_an_interrupt_is_not_an_error_to_correct(shell: Shell) -> None:
    """What the user stopped is not broken."""
    shell.run("1 / 0")
    shell.run("raise KeyboardInterrupt")

    assert "ZeroDivisionError" in prompt(shell)


@pytest.mark.slow
def test_the_error_comes_with_cell_traceback_and_versions(shell: Shell) -> None:
    """The cell whole; of the libraries the ends, and the versions; no colours."""
    number = shell.ipython.execution_count
    shell.run(FRAME)

    text = prompt(shell)

    assert f"Cell In[{number}] (failed):\n```\n{FRAME}\n```" in text
    assert f"Cell In[{number}], line 3, in <module>" in text
    assert "FileNotFoundError: [Errno 2]" in text
    assert "\n  [3 frames left out]\n" in text
    assert 'File "pandas/' in text
    assert f"pandas {sys.modules['pandas'].__version__}" in text
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}." in text
    assert "\x1b" not in text


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["", "-m svc-v2-70b-instruct", "-c bug"])
def test_send_sends_at_once(shell: Shell, emulator: Emulator, flag: str) -> None:
    """`--send` needs no look before; options of any question may follow."""
    shell.run("1 / 0")

    cell = shell.run(f"%svc explain {flag} --send")

    assert cell.error is None
    assert "Explain the error" in sent(emulator)
    assert "ZeroDivisionError" in sent(emulator)
    assert "the last error of In[" in cell.shown
    if flag.startswith("-m"):
        assert emulator.requests[-1].json["model"] == "svc-v2-70b-instruct"
    assert [each.name for each in current().conversations] == ["bug"] * ("-c" in flag)


@pytest.mark.slow
def test_each_error_is_shown_before_it_is_sent(
    shell: Shell, emulator: Emulator
) -> None:
    """Also after another error was sent, and when the same cell fails again."""
    failing_cells = ("1 / 0", "int('x')", "int('x')")
    for n_sent, failing_cell in enumerate(failing_cells):
        shell.run(failing_cell)

        first = shell.run("%svc fix")
        n_sent_first = len(emulator.requests)
        again = shell.run("%svc fix")

        assert isinstance(first.value, DryRun)
        assert n_sent_first == n_sent
        assert failing_cell in sent(emulator)
        assert isinstance(again.value, svc.Completion)


@pytest.mark.slow
def test_an_error_that_was_shown_may_be_sent_more_than_once(
    shell: Shell, emulator: Emulator
) -> None:
    """The same line asks again; another one shows first what it would send."""
    shell.run("1 / 0")
    for _ in range(3):
        shell.run("%svc fix")
    n_sent = len(emulator.requests)

    explained = shell.run("%svc explain")

    assert n_sent == 2
    assert isinstance(explained.value, DryRun)
    assert len(emulator.requests) == 2


@pytest.mark.slow
def test_an_error_of_ours_is_not_the_users(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 401, a slip in a line and cells that went well leave the last error there."""
    number = shell.ipython.execution_count
    shell.run("1 / 0")
    shell.run("%%svc --nonsense\nHello")
    monkeypatch.setenv("SVC_API_KEY", "svc-wrong")
    refused = shell.run("%%svc\nHello")
    shell.run("svc_error = None\nimport svc_notebook as svc\nsvc.complete('Hello')")
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    shell.run("fine = 1")

    text = prompt(shell)

    assert isinstance(refused.error, svc.errors.AuthError)
    assert f"Cell In[{number}], line 1" in text
    assert "ZeroDivisionError: division by zero" in text


def test_before_any_error_it_says_so(shell: Shell, emulator: Emulator) -> None:
    """Nothing is sent, and Run All goes on."""
    cell = shell.run("%svc fix --send")

    assert cell.error is None
    assert "No cell of this kernel has failed" in cell.shown
    assert emulator.requests == ()


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("def f(:\n    pass", "SyntaxError"),
        ("if True:\nx = 1", "IndentationError"),
    ],
)
def test_an_error_without_frames(shell: Shell, cell: str, said: str) -> None:
    """A cell that cannot be compiled."""
    number = shell.ipython.execution_count
    shell.run(cell)

    text = prompt(shell)

    assert said in text
    assert f"Cell In[{number}] (failed):\n```\n{cell}\n```" in text
    assert "ipython-input" not in text


@pytest.mark.slow
def test_paths_and_keys_stay_here(
    shell: Shell,
    emulator: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the home, nor the environment, nor the API key is sent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SECRET_OF_TEST", "s3cret-value")
    (tmp_path / "tool.py").write_text("def run():\n    open(__file__ + '.csv')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shell.run(f"key = {emulator.api_key!r}\nimport tool\ntool.run()")

    text = prompt(shell)

    assert str(tmp_path) not in text
    assert 'File "tool.py", line 2, in run' in text
    assert "No such file or directory: 'tool.py.csv'" in text
    assert emulator.api_key not in text
    assert "s3cret-value" not in text
    assert sys.prefix not in text


@pytest.mark.slow
def test_what_is_long_is_cut_in_the_middle(shell: Shell) -> None:
    """The request fits; begin and end of traceback and of a cell of functions."""
    lines = "\n".join(f"x{n} = 'some words {n}'" for n in range(4000))
    shell.run(f"{lines}\ndef fail():\n    raise ValueError('a ' * 100_000 + 'end')")
    shell.run("fail()")

    shown = shell.run("%svc explain")

    assert isinstance(shown.value, DryRun)
    assert (shown.value.room_tokens or 0) > 2500
    text = str(shown.value.request.messages[-1].content)
    assert "x0 = 'some words 0'" in text
    assert text.count("the middle is left out]") == 2
    assert text.count("a end") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("n_lines", "fitting"), [(450, {"explain"}), (2000, set())])
def test_the_failing_cell_is_whole_or_refused(
    shell: Shell, emulator: Emulator, n_lines: int, fitting: set[str]
) -> None:
    """A correction that replaces a cell must know all of it, and have room."""
    cell = "\n".join(f"x{n} = 'some words {n}'" for n in range(n_lines)) + "\n1 / 0"
    shell.run(cell)

    for task in ("explain", "fix"):
        ran = shell.run(f"%svc {task}")

        if task in fitting:
            assert isinstance(ran.value, DryRun)
            assert cell in str(ran.value.request.messages[-1].content)
        else:
            assert isinstance(ran.error, svc.errors.ParameterError)
            assert "Run the part that fails in a separate cell" in ran.shown
            assert "`%svc --with Err QUESTION`" in ran.shown
    assert emulator.requests == ()


STOPPED = """\
import signal
class Slow:
    def __str__(self):
        signal.raise_signal(signal.SIGINT)
    attribute = property(__str__)
slow = Slow()"""


@pytest.mark.parametrize("mark", ["{{slow}}", "{{slow.attribute}}"])
@pytest.mark.parametrize("option", ["", "--dry-run", "-t 0,1"])
def test_an_interrupt_before_the_request_is_one_line(
    shell: Shell, emulator: Emulator, mark: str, option: str
) -> None:
    """While a prompt is prepared; nothing was sent, and no traceback is shown."""
    shell.run(STOPPED)

    cell = shell.run(f"%%svc {option}\n{mark}")

    assert isinstance(cell.error, Interrupted)
    assert "nothing was sent" in cell.shown
    assert cell.shown.count("interrupted") == 1
    assert "Traceback" not in cell.shown
    assert len(cell.shown) < 100
    assert emulator.requests == ()


@pytest.mark.slow
def test_marks_in_the_code_are_sent_as_they_are(shell: Shell) -> None:
    """Double braces of the cell are no marks to fill in."""
    shell.run("x = 'a {{nope}}'\n1 / 0")

    assert "{{nope}}" in prompt(shell)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("%svc fix -m a,b", "asks for one reply"),
        ("%svc fix --send my code", "`%svc ask fix my code`"),
        ("%svc explain recursion", "`%svc ask explain recursion`"),
    ],
)
def test_slips_send_nothing(
    shell: Shell, emulator: Emulator, line: str, remedy: str
) -> None:
    """A slip is refused with the remedy."""
    shell.run("1 / 0")

    cell = shell.run(line)

    assert isinstance(cell.error, svc.errors.ParameterError)
    assert remedy in cell.shown
    assert emulator.requests == ()


@pytest.mark.slow
def test_the_corrected_code_goes_to_the_next_cell(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put there and not run; `-f markdown` leaves it in the reply."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)
    script: list[dict[str, Any]] = [{"text": "```python\n1 / 1\n```", "times": None}]
    with svc.Emulator(script=script) as scripted:
        monkeypatch.setenv("SVC_BASE_URL", scripted.base_url)
        monkeypatch.setenv("SVC_API_KEY", scripted.api_key)
        shell.run("1 / 0")
        fixed = shell.run("%svc fix --send")
        shell.run("%svc fix -f markdown --send")
        shell.run("%svc explain --send")

    assert taken == ["1 / 1"]
    assert "the code is in the next cell, and was not run" in fixed.shown


@pytest.mark.slow
@pytest.mark.parametrize("blank", ["", "  "])
def test_code_that_is_the_same_as_before_is_not_put_into_a_cell(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, blank: str
) -> None:
    """It would fail again: the footer says so, and what else to ask."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)
    text = f"Here it is:\n\n```python\nn = 1{blank}\nn / 0\n```\n"
    with svc.Emulator(script=[{"text": text, "times": None}]) as scripted:
        monkeypatch.setenv("SVC_BASE_URL", scripted.base_url)
        monkeypatch.setenv("SVC_API_KEY", scripted.api_key)
        shell.run("n = 1\nn / 0\n")
        fixed = shell.run("%svc fix --send")

    assert taken == []
    said = " ".join(fixed.shown.split())
    assert "the code is the same as in the cell that failed" in said
    assert "`%svc explain`" in said
    assert "next cell" not in said
