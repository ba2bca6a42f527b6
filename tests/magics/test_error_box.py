"""The box that a cell shows for one of our errors."""

import ast
import inspect
from pathlib import Path

import pytest

import svc_notebook
import svc_notebook as svc
from svc_notebook import errors
from svc_notebook.display.error_box import QUIET_VERBS, ErrorBox, headline
from tests.magics.conftest import Shell

ROOT = Path(svc_notebook.__file__).parent


def test_every_error_has_a_headline() -> None:
    """No name of a class is shown in place of words."""
    kinds = [
        each
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, errors.SvcError)
    ]

    assert not [each for each in kinds if "Error" in headline(each())]


def test_quiet_verbs_are_public() -> None:
    """Each is a function of the package, or a method of one of its values."""
    classes = (svc.Run, svc.Contrast, svc.Conversation)
    public = {*svc.__all__, *(name for each in classes for name in dir(each))}

    assert public >= QUIET_VERBS


def _texts(path: Path) -> list[str]:
    """Return the texts of a module that are not docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["(doc:", "error's `partial`"])
def test_messages_are_for_people(words: str) -> None:
    """No message cites the document, or sends its reader to an attribute."""
    found = {
        path.name
        for path in ROOT.rglob("*.py")
        if any(words in text for text in _texts(path))
    }

    assert found == set()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_errors_have_no_colour_where_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """NO_COLOR, or a terminal that has none, leaves the title plain."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(name, value)

    assert ErrorBox(title="Refused", lines=()).text() == "Refused"


def test_errors_show_what_was_said_without_obeying_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a server wrote does not act in a terminal, nor as markup."""
    monkeypatch.setenv("NO_COLOR", "1")

    box = ErrorBox(title="\x1b[2J", lines=("a\x1b<b>",))

    assert box.text() == "\\x1b[2J\n  a\\x1b<b>"
    assert "a\u241b&lt;b&gt;" in box.bundle["text/html"]
    assert box.bundle["text/plain"] == "  a\\x1b<b>"


def test_errors_show_code_without_backticks_in_html_alone() -> None:
    """A terminal, and a text copied from it, keep the backticks."""
    box = ErrorBox(title="Refused", lines=("Write `%svc <NAME>` below.",))

    assert "`" not in box.bundle["text/html"]
    assert "%svc &lt;NAME&gt;</code> below." in box.bundle["text/html"]
    assert box.bundle["text/plain"] == "  Write `%svc <NAME>` below."


def test_a_spending_limit_has_a_headline_of_its_own(shell: Shell) -> None:
    """A cell that may not be sent says so, and how to go on."""
    svc.use(max_tokens_total=165)  # one request of at most 150 + prompt
    shell.run("%%svc\nSay hello.")

    cell = shell.run("%%svc\nSay hello again.")

    assert isinstance(cell.error, svc.errors.SpendingLimitError)
    assert "The spending limit leaves too little" in cell.shown
    assert "svc.use(max_tokens_total=...)" in cell.shown


def test_a_message_does_not_repeat_the_headline() -> None:
    """A message that ends with the headline's sentence is shown without it."""
    error = errors.ParameterError(
        "{{b}} is not a column. Nothing was sent.", param="prompt"
    )

    assert ErrorBox.of(error).text().count("Nothing was sent") == 1


def test_a_box_breaks_no_command_at_a_hyphen() -> None:
    """Half of it could not be copied."""
    command = "svc-notebook-with-a-long-name ledger"
    box = ErrorBox.of(errors.ParameterError(f"{'word ' * 12}{command} deletes it."))

    assert command.partition(" ")[0] in box.text()
