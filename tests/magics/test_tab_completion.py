"""Tab knows options, values, models, commands and `{{variables}}`."""

import re

import pytest
from IPython.core.completer import CompletionContext

import svc_notebook as svc
from svc_notebook.magics.options import OPTIONS
from svc_notebook.magics.subcommands import COMMANDS
from svc_notebook.magics.tab_completion import (
    KnownNames,
    KnownTurn,
    Suggestions,
    match,
    suggest,
)
from svc_notebook.service.catalogue import MODELS
from tests.magics.conftest import Shell

KNOWN = KnownNames(
    variables=(("article", "str"), ("articles", "DataFrame"), ("x", "int")),
    conversations=("plan", "support prompt", "empty"),
    turns={
        "plan": [KnownTurn("Hi", ["model-a", "model-b"]), KnownTurn("And?", [""])],
        "support prompt": [KnownTurn("Help me", ["model-a"])],
    },
    types=(("Invoice", "An invoice."), ("Order", "")),
)


def texts(found: Suggestions | None) -> list[str]:
    """Return what would be put in."""
    return [item.text for item in found.items] if found else []


@pytest.mark.parametrize(
    ("line", "fragment", "expected"),
    [
        ("%%svc --te", "--te", ["--temperature"]),
        ("%%svc --repetition-penalty 1.1 --pres", "--pres", ["--presence-penalty"]),
        ("%%svc --model svc-v2-7", "svc-v2-7", ["svc-v2-70b-instruct"]),
        ("%%svc -m svc-v2-7", "svc-v2-7", ["svc-v2-70b-instruct"]),
        ("%%svc --model=svc-v2-7", "svc-v2-7", ["svc-v2-70b-instruct"]),
        (
            "%%svc -m svc-new,svc-v2-7",
            "svc-new,svc-v2-7",
            ["svc-new,svc-v2-70b-instruct"],
        ),
        ("%%svc -f ht", "ht", ["html"]),
        ("%%svc -c sup", "sup", ["'support prompt'"]),
        ("%svc history 'sup", "'sup", ["'support prompt'"]),
        ("%%svc --with art", "art", ["article", "articles"]),
        (
            "%%svc --with article,",
            "article,",
            [
                "article,articles",
                "article,x",
                "article,Err",
                "article,In[",
                "article,Out[",
            ],
        ),
        ("%%svc --as I", "I", ["Invoice"]),
        ("%svc fix --se", "--se", ["--send"]),
        ("%%svc --max-tokens f", "f", ["fit"]),
        ("%svc use e", "e", ["emulator"]),
        ("%svc mo", "mo", ["models"]),
        ("%svc history p", "p", ["plan"]),
        ("%svc history ", "", ["plan", "'support prompt'"]),
        ("%svc panel ", "", ["plan", "'support prompt'", "empty"]),
        ("%svc pin plan ", "", ["1", "2"]),
        ("%svc hide 'support prompt' ", "", ["1"]),
        ("%svc hide support prompt ", "", ["1"]),
        ("%svc version plan ", "", ["1", "2"]),
        ("%svc version plan 1 ", "", ["1", "2"]),
        ("%svc version plan 1 2", "2", ["2"]),
        ("%svc -c plan pin ", "", ["1", "2"]),
        ("%svc -c 'support prompt' continue ", "", ["1"]),
        ("%svc -c plan version 1 2", "2", ["2"]),
        ("%svc -c plan --mo", "--mo", ["--model"]),
        ("%%svc -c p", "p", ["plan"]),
        ("%%svc --system {{art", "art", ["article}}", "articles}}"]),
        ("%svc About {{ art", "art", ["article}}", "articles}}"]),
    ],
)
def test_completes_on_a_magic_line(
    line: str, fragment: str, expected: list[str]
) -> None:
    """Options, values, models, commands and variables are completed."""
    found = suggest([line], KNOWN)

    assert texts(found) == expected
    assert found is not None
    assert found.fragment == fragment


def test_turns_and_versions_have_notes() -> None:
    """A number alone does not tell which turn or version it is."""
    turns = suggest(["%svc pin plan "], KNOWN)
    versions = suggest(["%svc version plan 1 "], KNOWN)

    assert turns is not None
    assert versions is not None
    assert [item.note for item in turns.items] == ["turn · Hi", "turn · And?"]
    assert [i.note for i in versions.items] == [
        "version · model-a",
        "version · model-b",
    ]


def test_a_version_has_its_model_and_prompt(shell: Shell) -> None:
    """Each on one line: the menu would break it at blanks and hyphens."""
    shell.run("%%svc -c plan\nShorter, please")
    svc.conversation("plan").ask_again(1, "Friendlier, please")
    line = "%svc version plan 1 "
    cursor = CompletionContext(
        token="", full_text=line, cursor_position=len(line), cursor_line=0, limit=None
    )

    completions = [*match(cursor, shell.ipython)["completions"]]

    notes = [item.type.replace("\N{NON-BREAKING HYPHEN}", "-") for item in completions]
    assert [note.replace("\xa0", " ") for note in notes] == [
        "version · svc-v2-8b-instruct · Shorter, please",
        "version · svc-v2-8b-instruct · Friendlier, please",
    ]
    assert not any(re.search("[ -]", item.type) for item in completions)


@pytest.mark.parametrize(
    "line",
    [
        "%svc history plan ",
        "%svc pin empty ",
        "%svc pin plan 1 ",
        "%svc version plan 3 ",
        "%svc version plan x ",
        "%svc version plan 1 1 ",
        "%svc -c plan history ",
        "%svc -c plan pin 1 ",
    ],
)
def test_offers_nothing_where_nothing_follows(line: str) -> None:
    """Options go before the command, so none is offered there."""
    assert texts(suggest([line], KNOWN)) == []


def test_offers_everything_behind_a_blank() -> None:
    """Where nothing is typed yet, everything that fits is offered."""
    assert texts(suggest(["%%svc "], KNOWN)) == [o.flags[-1] for o in OPTIONS]
    assert texts(suggest(["%svc "], KNOWN)) == [
        *(command.name for command in COMMANDS),
        "ask",
    ]
    assert texts(suggest(["%%svc -m "], KNOWN)) == [model.id for model in MODELS]


@pytest.mark.parametrize("line", ["%%svc -", "%svc ", "%svc help ", "%svc use "])
def test_notes_are_whole_and_plain(line: str) -> None:
    """Each note is a short phrase that is not cut off."""
    found = suggest([line], KNOWN)

    assert found is not None
    assert [i for i in found.items if not 2 < len(i.note) <= 70] == []
    assert [i for i in found.items if re.search(r"[`(;]|\.\.\.|SVC_", i.note)] == []


def test_completes_variables_in_the_body() -> None:
    """In the body of a cell only a variable's mark is completed."""
    assert texts(suggest(["%%svc -t 1", "Sum up {{arti"], KNOWN)) == [
        "article}}",
        "articles}}",
    ]
    assert suggest(["%%svc", "--te"], KNOWN) is None


@pytest.mark.parametrize(
    "line", ["--te", "%svcx --te", "x = 1", "{{art", "print(%svc "]
)
def test_leaves_other_lines_alone(line: str) -> None:
    """Lines that are not ours are left to IPython."""
    assert suggest([line], KNOWN) is None


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("%%svc --tools ", ["weather", "send"]),
        ("%%svc --tools we", ["weather"]),
        ("%%svc --tools weather,", ["weather,send"]),
        ("%%svc --tools=weather,s", ["weather,send"]),
        ("%svc tools ", ["add", "remove", "ask", "weather", "send"]),
        ("%svc tools add w", ["weather"]),
        ("%%svc --confirm-tools a", ["all"]),
    ],
)
def test_tools_are_completed_by_name(line: str, texts: list[str]) -> None:
    """Variables that are tools, also behind a comma; those named are left out."""
    known = KnownNames(tools=(("weather", "Tell."), ("send", "Send.")))

    found = suggest([line], known)

    assert found is not None
    assert [each.text for each in found.items] == texts


def test_the_note_on_a_model_begins_with_what_it_is() -> None:
    """JupyterLab shows the first letter of a note as the badge of its kind."""
    found = suggest(["%%svc -m "], KNOWN)

    assert found is not None
    assert {item.note.partition(" · ")[0] for item in found.items} == {"model"}
