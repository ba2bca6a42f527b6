"""A `%svc` line is a command or a question, and never one by guess."""

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.magics.subcommands import COMMANDS, CommandLine, parse_command


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", CommandLine("help")),
        ("models", CommandLine("models")),
        ("models?", CommandLine("help")),
        ("use emulator", CommandLine("use", ("emulator",))),
        ("version plan 2 1", CommandLine("version", ("plan", "2", "1"))),
        ("what is a monad?", CommandLine("ask", text="what is a monad?")),
        ("ask use the force?", CommandLine("ask", text="use the force?")),
        ("อธิบาย  SSE", CommandLine("ask", text="อธิบาย  SSE")),
    ],
)
def test_reads_commands_and_questions(text: str, said: CommandLine) -> None:
    """Commands are known by their words; everything else is a question, as typed."""
    assert parse_command(text) == said


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ("use the force wisely", "%svc use [emulator|service|MODEL]"),
        ("history", "%svc history NAME"),
        ("modles", "%svc models"),
        ("help me with this", "%svc help"),
    ],
)
def test_what_may_be_either_is_not_sent(text: str, usage: str) -> None:
    """What may be a command or a question shows both spellings."""
    with pytest.raises(ParameterError) as refused:
        parse_command(text)

    assert f"`{usage}`" in str(refused.value)
    assert f"`%svc ask {text}`" in str(refused.value)


def test_ask_needs_a_question() -> None:
    """`%svc ask` alone is refused with an example."""
    with pytest.raises(ParameterError, match="needs a question"):
        parse_command("ask")


def test_every_command_has_its_words() -> None:
    """Names are single words and differ."""
    names = [command.name for command in COMMANDS]

    assert [name for name in names if len(name.split()) != 1] == []
    assert sorted(set(names)) == sorted(names)
