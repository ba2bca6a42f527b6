"""What IPython shows of an error that a Python call of this package raises."""

import sys

import pytest

import svc_notebook as svc
from tests.magics.conftest import Shell

KEY = "sk-secret-of-the-service"
WRONG = "import svc_notebook as svc\n\nsvc.complete('Hello', temperature=3)"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.slow
def test_a_refusal_is_short_and_names_the_users_line(shell: Shell) -> None:
    """What happened, what is allowed, and where: six lines instead of sixty."""
    cell = shell.run(WRONG)

    assert isinstance(cell.error, svc.errors.ParameterError)
    assert cell.shown.startswith("Nothing was sent temperature must be")
    assert "line 3: svc.complete('Hello', temperature=3)" in cell.shown
    assert cell.shown.endswith("`%tb` shows the whole traceback.")
    assert "svc_notebook/" not in cell.shown
    assert len(cell.shown) < 400


@pytest.mark.parametrize(
    ("code", "head"),
    [
        ("svc.score([1], right=len)", "score did not work"),
        ("svc.contrast([1], 'model')", "contrast did not work"),
        ("svc.usage_df(by='modle')", "usage_df did not work"),
        ("svc.conversation('a').choose(9, 3)", "choose did not work"),
        ("svc.sweep('{{a}}', rows=[{'b': 1}])", "Nothing was sent"),
    ],
)
def test_a_verb_that_sends_nothing_is_named(shell: Shell, code: str, head: str) -> None:
    """Only the errors of verbs that send are headed by what was not sent."""
    shown = shell.run(f"import svc_notebook as svc\n{code}").shown

    assert shown.startswith(head)


@pytest.mark.slow
def test_tb_shows_the_rest(shell: Shell) -> None:
    """The frames within the package are there on demand."""
    shell.run(WRONG)

    shown = shell.run("%tb").shown

    assert "Traceback (most recent call last)" in shown
    assert "temperature=3" in shown


def test_the_line_of_a_function_is_shown_below_that_of_its_cell(shell: Shell) -> None:
    """Both ends of the user's own code, however deep it is."""
    shell.run("def ask(heat):\n    return svc.complete('Hi', temperature=heat)")
    shell.run("import svc_notebook as svc")

    shown = shell.run("heats = 0, 3\n[ask(heat) for heat in heats]").shown

    assert "line 2: [ask(heat) for heat in heats]" in shown
    assert "line 2: return svc.complete('Hi', temperature=heat)" in shown
    assert shown.index("in heats]") < shown.index("return")


def test_the_only_line_of_a_cell_is_not_repeated(shell: Shell) -> None:
    """It is right above; the line of a function that it calls is shown."""
    shell.run("import svc_notebook as svc")
    shell.run("def ask(heat):\n    return svc.complete('Hi', temperature=heat)")

    direct = shell.run("svc.complete('Hi', temperature=3)").shown
    called = shell.run("ask(3)").shown

    assert "line 1" not in direct
    assert "ask(3)" not in called
    assert "line 2: return svc.complete('Hi', temperature=heat)" in called


def test_an_awaited_call_is_shown_so_too(shell: Shell) -> None:
    """A cell with `await` has no other form."""
    shell.run("import svc_notebook as svc\nclient = svc.AsyncClient()")

    shown = shell.run("x = 1\nawait client.complete('Hello', temperature=3)").shown

    assert shown.startswith("Nothing was sent")
    assert "line 2: await client.complete('Hello', temperature=3)" in shown
    assert "Traceback" not in shown


def test_a_cause_is_named_with_its_line(shell: Shell) -> None:
    """What the user's own error was is not lost."""
    code = (
        "import svc_notebook as svc\n"
        "try:\n    {}['city']\n"
        "except KeyError as problem:\n    raise svc.SvcError('No city.') from problem"
    )

    shown = shell.run(code).shown

    assert "caused by KeyError: 'city'" in shown
    assert "line 3: {}['city']" in shown


@pytest.mark.slow
def test_a_key_is_not_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is typed there nor one that is known, also in a cause."""
    monkeypatch.setenv("SVC_API_KEY", KEY)
    code = (
        "import svc_notebook as svc\n"
        f"try:\n    raise ValueError('{KEY}')\n"
        "except ValueError as problem:\n"
        "    raise svc.SvcError('No.', remedy=f'x') from problem  # api_key='sk-typed'"
    )

    shown = shell.run(code).shown
    typed = shell.run('x = 1\nsvc.use(key="sk-typed-here", base_url="nowhere")').shown

    assert "[key]" in shown
    assert KEY not in shown
    assert 'svc.use(key="[key]", base_url="nowhere")' in typed
    assert "sk-typed" not in shown + typed


def test_other_errors_and_other_handlers_stay(shell: Shell) -> None:
    """A handler that somebody else has registered still gets its errors."""
    code = (
        "seen = []\n"
        "get_ipython().set_custom_exc((KeyError,), lambda *a, **k: seen.append(a[1]))\n"
        "from svc_notebook.magics.short_errors import register\n"
        "register(get_ipython())"
    )
    shell.run(code)
    try:
        shell.run("{}['city']")
        short = shell.run(WRONG).shown
        usual = shell.run("1 / 0").shown
    finally:
        shell.run("get_ipython().set_custom_exc((), None)\nregister(get_ipython())")

    assert shell.names["seen"] == [KeyError]
    assert "Traceback" not in short
    assert "Traceback" in usual


def test_the_whole_traceback_can_be_the_rule(shell: Shell) -> None:
    """The trait of the magic counts for Python's calls, too."""
    shell.run("%config SvcMagics.show_traceback = True")

    assert "Traceback" in shell.run(WRONG).shown


def test_what_python_programs_ask_knows_no_notebook(shell: Shell) -> None:
    """`%debug` finds the newest error as it does otherwise."""
    cell = shell.run(WRONG)

    assert sys.last_value is cell.error
