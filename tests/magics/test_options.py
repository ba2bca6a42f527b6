"""A magic line becomes options, or an error that says what to type instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import ParameterError
from svc_notebook.magics.help import help_on
from svc_notebook.magics.options import (
    OPTIONS,
    SvcOptions,
    check_question,
    parse_options,
)
from svc_notebook.magics.subcommands import USAGES
from svc_notebook.service.params import PARAMS
from svc_notebook.template import decode_escapes


def test_reads_every_kind_of_option() -> None:
    """Flags, their short forms, `=` and quotes are all read."""
    options = parse_options(
        "-m svc-v2-70b-instruct -t 0.2 --top-p=0.9 -n 2 --max-tokens 20 "
        "--system 'Answer in Thai.' -o answer --no-stream --raw"
    )

    assert options == SvcOptions(
        model="svc-v2-70b-instruct",
        system="Answer in Thai.",
        params={"temperature": 0.2, "top_p": 0.9, "n": 2},
        max_tokens=20,
        output="answer",
        is_streamed=False,
        is_raw=True,
    )


def test_collects_stops_and_decodes_them() -> None:
    r"""`--stop` may be repeated; \n means a line end."""
    options = parse_options(r"--stop '\n\n' --stop END --stop='a\\b'")

    assert options.params == {"stop": ("\n\n", "END", "a\\b")}


@pytest.mark.parametrize(
    ("line", "same"),
    [
        (
            "--max_tokens 5 --top_p=0.5 --no_stream",
            "--max-tokens 5 --top-p=0.5 --no-stream",
        ),
        ("--stop a_b", "--stop a_b"),
        ("-t0.2 -n3", "-t 0.2 -n 3"),
        ("-t.5", "-t 0.5"),
        ("-t0,0.5 -n 2", "-t 0,0.5 -n 2"),
        ("ask --max_tokens 5 -t0.2 why?", "ask --max-tokens 5 -t 0.2 why?"),
    ],
)
def test_options_have_other_spellings(line: str, same: str) -> None:
    """The service's underscores, and a number without a blank, are read."""
    assert parse_options(line) == parse_options(same)


def test_every_parameter_of_the_document_is_an_option() -> None:
    """No parameter of the table lacks its flag."""
    flags = {flag for option in OPTIONS for flag in option.flags}

    assert {param.flag for param in PARAMS} - flags == {"--n"}
    assert "-n" in flags


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("--temprature 1", "Did you mean --temperature"),
        ("--modle x", "Did you mean --model"),
        ("--temp 1", "Did you mean --temperature?"),
        ("-temp 1", "Did you mean --temperature?"),
        ("--sys x", "Did you mean --system?"),
        ("--Temperature 1", "Did you mean --temperature?"),
        ("--max 5", "--max-rounds, --max-tokens?"),
        ("--file notes.md", "Did you mean --with notes.md?"),
        ("--json", "Did you mean -f json?"),
        ("--seed 1", """Did you mean --extra '{"seed": 1}'?"""),
        ('--extra {"seed":1}', 'a JSON object, such as {"seed": 1} (on a line, in'),
        ("--extra 3", "extra must be a JSON object"),
        ("hi --max_tokens 5", "--max_tokens comes after the text"),
        ("–t0.2 hi", "Type -t0.2."),  # noqa: RUF001 - as word processors write it
        ("-x5", "-x is not an option"),
        ("-- hi", "-- is not an option. `%svc help`"),
        ("-t0.2 -t 1", "--temperature is given twice"),
        ("--model", "--model needs a value"),
        ("-t", "-t needs a value, -t X: higher is more random"),
        ("--model -t 1", "--model needs a value"),
        ("--no-stream=1", "takes no value"),
        ("--system 'open", "close it"),
        ("--max-tokens many", "fit"),
        ("-o 2x", "-o answer"),
        ("--xyzzy", "%svc help"),
        ("--tmp 0.2", "Did you mean --temperature?"),
        ("--mxtok 9", "Did you mean --max-tokens?"),
        ("--to", "Did you mean --tools, --top-p?"),
        ("--stob", "Did you mean --stop"),
        ("-t 1 --temperature 2", "--temperature is given twice"),
        ("–t 0.2", "Type -t."),  # noqa: RUF001 - as word processors write it
        ("—temperature=0.2 hi", "Type --temperature=0.2."),
        ("hi --dry-run", "`%svc ask hi --dry-run`"),
        ("-s You sort mails --dry-run", """in quotes: `-s "You sort mails"`."""),
        ("-t 0 --system=Be terse --raw", """in quotes: `--system "Be terse"`."""),
        ("-s 'Be terse' Hi --raw", "--raw comes after the text"),
        *(
            (f"{flag}{quoted} Tell me a joke", "Type straight quotes: -")
            for flag in ("-s ", "--system=", "-t 0 --stop ")
            for quoted in (
                "“You are”",
                "\N{LEFT SINGLE QUOTATION MARK}You are",
                "„You are“",
                "«You are»",
                "“You”",
            )
        ),
        ("hi there --model=x", "--model=x comes after the text"),
        (
            "A joke -f json --max-tokens 9",
            "first: `%svc -f json --max-tokens 9 A joke`",
        ),
        ("-o class", "'class' is a Python keyword"),
    ],
)
def test_refusals_say_what_to_type(line: str, remedy: str) -> None:
    """A refused line names the remedy."""
    with pytest.raises(ParameterError) as refused:
        parse_options(line)

    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("A joke -t 0", "-t comes after the text"),
        ("A joke -t 0", "first: `%svc -t 0 A joke`; to send"),
        ("-n 2 A joke -t0,1", "first: `%svc -n 2 -t0,1 A joke`; to send"),
        ("-n 2 A joke -t 0", "these words, write `%svc -n 2 ask A joke -t 0`"),
        ("A joke -m svc-instruct", "`%svc -m svc-instruct A joke`"),
        ("A joke -c plan -o answer", "`%svc -c plan -o answer A joke`"),
        ("-s You sort mails -t 0", """in quotes: `-s "You sort mails"`."""),
        ("Hi -s 'You are a pirate'", "`%svc -s 'You are a pirate' Hi`"),
    ],
)
def test_a_question_that_ends_with_short_options_is_refused(
    line: str, remedy: str
) -> None:
    """The line that works is named, and the one that sends the words."""
    with pytest.raises(ParameterError) as refused:
        check_question(parse_options(line).text, line)

    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("-t 1 what's a monad?", "what's a monad?"),
        ("use emulator", "use emulator"),
        ("--raw a  b -t 2 c", "a  b -t 2 c"),
        ("what does rm -f do", "what does rm -f do"),
        ("explain tar -c, python -m venv", "explain tar -c, python -m venv"),
        ("is ls -n the same as ls -l -n", "is ls -n the same as ls -l -n"),
        ("what does gcc -c do?", "what does gcc -c do?"),
        ("ask A joke -t 0", "ask A joke -t 0"),
        ("--stop '“' “Why?”", "“Why?”"),
        ("--raw “Why?”", "“Why?”"),
        ("-5 apples", "-5 apples"),
        ("explain curl -s -o", "explain curl -s -o"),
        ("– a dash", "– a dash"),  # noqa: RUF001 - a dash that is meant
        ("ask what is --model?", "ask what is --model?"),
        ("ask does pip have --user", "ask does pip have --user"),
        ("ask -x marks the spot", "ask -x marks the spot"),
    ],
)
def test_the_rest_of_the_line_is_text(line: str, text: str) -> None:
    """From the first word that is no option on, the line stays as typed."""
    options = parse_options(line)

    check_question(options.text, line)
    assert options.text == text


@pytest.mark.slow
@given(st.text(alphabet=st.characters(exclude_characters="\\")))
def test_text_without_backslash_has_no_escapes(text: str) -> None:
    """Only a backslash begins an escape."""
    assert decode_escapes(text) == text


@pytest.mark.slow
@given(st.text())
def test_any_line_is_read_or_refused(line: str) -> None:
    """No line ends in anything but options or our error."""
    try:
        options = parse_options(line)
    except ParameterError as refused:
        assert str(refused)  # noqa: PT017 - both ends are right
    else:
        assert isinstance(options, SvcOptions)


def test_help_shows_every_flag_and_what_applies_now() -> None:
    """The help page lists every option, with the defaults in force."""
    defaults = {"model": "svc-v2-70b-instruct", "max_tokens": "fit"}
    page = str(help_on("all", defaults, USAGES))

    assert [f for o in OPTIONS for f in o.flags if f not in page] == []
    assert "[now: svc-v2-70b-instruct]" in page
    assert "[now: fit]" in page
    assert max(len(line) for line in page.splitlines()) <= 80
