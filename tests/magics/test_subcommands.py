"""The subcommands of `%svc`: how they are read, what they show, and the login."""

import re

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ConfigError, MissingKeyError, ParameterError
from svc_notebook.magics.options import OPTIONS
from svc_notebook.magics.subcommands import COMMANDS, CommandLine, parse_command
from svc_notebook.magics.use_and_login import login
from svc_notebook.session import current
from tests.magics.conftest import Shell


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", CommandLine("help")),
        ("models", CommandLine("models")),
        ("models?", CommandLine("help", ("models?",))),
        ("use emulator", CommandLine("use", ("emulator",))),
        ("version plan 2 1", CommandLine("version", ("plan", "2", "1"))),
        ("what is a monad?", CommandLine("ask", text="what is a monad?")),
        ("ask use the force?", CommandLine("ask", text="use the force?")),
        ("อธิบาย  SSE", CommandLine("ask", text="อธิบาย  SSE")),
        *(
            (question, CommandLine("ask", text=question))
            for question in (
                "hi there",
                "monad?",
                "อธิบายเรื่องฝน",
                "list rivers",
                "show me models",
                "stop words in Thai?",
                "stop words in Thai",
                "model the growth of yeast",
                "clear sky?",
                "quit smoking",
                "clear a path for me",
                "Help me with this",
                "histories of Siam in three lines",
                "retry policies in HTTP clients",
                "last words of Socrates?",
                "tools needed for a garden?",
                "version of Python 3?",
                "temperature of the sun",
                "temperature 0.2 in what unit?",
                "new words in Thai",
                "list three rivers",
                "save the whales, why",
            )
        ),
    ],
)
def test_reads_commands_and_questions(text: str, said: CommandLine) -> None:
    """Commands are known by their words; everything else is a question, as typed."""
    assert parse_command(text) == said


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ("use the force wisely", "%svc use [MODEL|NAME|ADDRESS [no-key]]"),
        ("history", "%svc history NAME"),
        ("modles", "%svc models"),
        ("hlep", "%svc help [all|OPTION|COMMAND]"),
        ("help me with this", "%svc help [all|OPTION|COMMAND]"),
        ("hist", "%svc history NAME"),
        ("histroy plan", "%svc history NAME"),
        ("Models", "%svc models"),
        ("/reset plan", "%svc reset NAME"),
        ("/help", "%svc help [all|OPTION|COMMAND]"),
        ("models svc-instruct", "%svc models"),
        ("reset", "%svc reset NAME"),
        ("clear", "%svc reset NAME"),
        ("clear plan", "%svc reset NAME"),
        ("model svc-instruct", "%svc use MODEL"),
        ("Model", "%svc use MODEL"),
        ("set temperature 0.5", "%svc -t 0.2 QUESTION"),
        ("explain recursion", "%svc explain [--send]"),
        ("explain recursion to me", "%svc explain [--send]"),
        ("last words?", "%svc last"),
        ("temperature 0.2", "%svc -t 0.2 QUESTION"),
        ("temperature=0.2", "%svc -t 0.2 QUESTION"),
        ("top-p: .9", "%svc -t 0.2 QUESTION"),
        ("forget", "%svc reset NAME"),
        ("forget plan", "svc-notebook ledger forget"),
        ("delete", "svc-notebook ledger forget"),
        ("delete plan", "%svc reset NAME"),
        ("undo", "%svc reset NAME"),
        ("new", "%svc reset NAME"),
        ("list", "%svc conversations"),
        ("save", "svc.export"),
        ("load foo", "%svc restore NAME"),
        ("cost", "%svc usage"),
        ("fixes", "%svc fix"),
        ("config", "%svc settings"),
        ("confg", "%svc settings"),
        ("satus", "%svc use"),
        ("status", "%svc use"),
        ("key", "%svc login"),
        ("api key", "%svc login"),
        ("endpoint lab", "%svc use"),
        ("list models", "%svc models"),
        ("show setings", "%svc settings"),
        ("get status", "%svc use"),
        ("temperature", "%svc -t 0.2 QUESTION"),
        ("limits", "%svc models"),
        ("hi", "%svc help"),
        ("Hello!", "%svc help"),
        ("svc-v2-8b-instruct", "%svc help"),
        ("notes.md", "%svc help"),
        ("fix: my code", "%svc fix [--send]"),
        ("fix my code", "%svc fix [--send]"),
        ("insert a row", "%svc insert [NUMBER]"),
    ],
)
def test_what_may_be_either_is_not_sent(text: str, usage: str) -> None:
    """What may be a command or a question shows both spellings."""
    with pytest.raises(ParameterError) as refused:
        parse_command(text)

    assert f"`{usage}`" in str(refused.value)
    assert f"`%svc ask {text}`" in str(refused.value)


def test_a_word_behind_options_is_a_question(shell: Shell, emulator: Emulator) -> None:
    """Who sets a parameter wants to ask; alone the same word is not sent."""
    alone = shell.run("%svc Hello")
    asked = shell.run("%svc --max-tokens 5 Hello")

    assert "`%svc ask Hello`" in alone.shown
    assert asked.error is None
    assert len(emulator.requests) == 1


@pytest.mark.parametrize("typed", ["sk-abcdefgh1234", "key sk-abcdefgh1234"])
def test_a_key_that_is_typed_as_a_command_is_not_shown(
    shell: Shell, emulator: Emulator, typed: str
) -> None:
    """It is neither sent nor quoted; the error says where to type it."""
    cell = shell.run(f"%svc {typed}")

    assert "`%svc login`" in cell.shown
    assert "abcdefgh" not in cell.shown
    assert emulator.requests == ()


@pytest.mark.parametrize(
    ("word", "way"),
    [
        ("retry", "run the cell again"),
        ("/retry", "run the cell again"),
        ("Retry?", "run the cell again"),
        ("stop", "interrupt the kernel"),
        ("quit", "interrupt the kernel"),
        ("exit", "interrupt the kernel"),
    ],
)
def test_commands_of_other_tools_ask_back(
    shell: Shell, emulator: Emulator, word: str, way: str
) -> None:
    """The way and the other spelling are shown; nothing is sent."""
    cell = shell.run(f"%svc {word}")

    assert way in cell.shown
    assert f"`%svc ask {word}`" in cell.shown
    assert emulator.requests == ()


@pytest.mark.parametrize(
    "line",
    ["undo plan", "rename plan trip", "prefer plan 2 1", "pni plan 1", "export plan"],
)
def test_an_unknown_word_before_a_conversation_is_not_sent(line: str) -> None:
    """A model would answer as if it had done it; a question about it is sent."""
    is_name = {"plan"}.__contains__

    with pytest.raises(ParameterError, match=r"a command or a question\?.*undo\(\)"):
        parse_command(line, is_name=is_name)

    for question in ("undo plan?", "draw a plan", "what plan is the best of all"):
        assert parse_command(question, is_name=is_name).name == "ask"


def test_ask_needs_a_question() -> None:
    """`%svc ask` alone is refused with an example."""
    with pytest.raises(ParameterError, match="needs a question"):
        parse_command("ask")


def frame(shell: Shell, line: str) -> pd.DataFrame:
    """Run a line and return the frame that it shows."""
    value = shell.run(line).value
    assert isinstance(value, pd.DataFrame)
    return value


@pytest.mark.slow
def test_models_tell_the_room_left(shell: Shell) -> None:
    """What was asked is missing from the minute's room; no limit has no room."""
    shell.run("%svc use emulator")
    shell.run("%%svc -m svc-v2-70b-instruct\nHello")

    models = frame(shell, "%svc models")

    left = models["left_minute"]
    assert left["svc-v2-70b-instruct"] == 49
    assert left["svc-v2-8b-instruct"] == 50
    assert left["svc-instruct"] is pd.NA
    assert str(models["left_second"].dtype) == "Int64"


def test_help_is_a_short_page(shell: Shell) -> None:
    """Examples first, then every option and command, in 15 lines of a narrow cell."""
    page = shell.run("%svc help").shown
    lines = page.strip().splitlines()

    assert len(lines) <= 15
    assert max(map(len, lines)) <= 67
    assert lines[0].startswith("%%svc -t 0.2")
    assert [o.usage for o in OPTIONS if o.flags[0] not in page.split()] == []
    assert [c.name for c in COMMANDS if c.name not in page.split()] == []


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        *(("--temperature", "-t, --temperature X"), ("-t", "-t, --temperature X")),
        *(("max_tokens", "--max-tokens N|fit"), ("pin", "%svc pin NAME TURN")),
        *(
            ("all", "ask this many times"),
            ("temprature", "`%svc ask help temprature`"),
        ),
    ],
)
def test_help_on_one_thing(shell: Shell, topic: str, shown: str) -> None:
    """An option by any of its spellings, a command, or all; nothing is sent."""
    page = shell.run(f"%svc help {topic}").shown

    assert shown in page
    assert shell.run("%svc last").shown.startswith("This kernel has no reply yet")


def test_last_shows_the_newest_reply(shell: Shell) -> None:
    """Nothing is asked for it; before the first reply it says so."""
    before = shell.run("%svc last")
    asked = shell.run("%%svc\nHello").value

    assert "no reply yet" in before.shown
    assert shell.run("%svc last").value == asked


@pytest.mark.slow
def test_replies_are_those_of_this_kernel(shell: Shell) -> None:
    """One row a choice, oldest first, failures included."""
    shell.run("%%svc -n 2\nHello")
    shell.run("%%svc -m svc-nope\nBye")

    replies = frame(shell, "%svc replies")

    assert replies["prompt"].tolist() == ["Hello", "Hello", "Bye"]
    assert replies["status"].tolist() == ["ok", "ok", "error"]


@pytest.mark.slow
def test_settings_say_where_they_came_from(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value stands with its source; of the key only where it was found."""
    monkeypatch.setenv("SVC_TIMEOUTS", "idle_s=5")
    monkeypatch.setenv("SVC_MODEL", "svc-v2-70b-instruct")
    shell.run("%config SvcMagics.temperature = 0.5")
    shell.run("%config SvcMagics.system = 'Be brief.'")

    settings = frame(shell, "%svc settings")

    told = {name: tuple(row) for name, row in settings.iterrows()}
    assert told["model"] == ("svc-v2-70b-instruct", "SVC_MODEL")
    assert told["idle_s"] == ("5.0", "SVC_TIMEOUTS")
    assert told["temperature"] == ("0.5", "%config SvcMagics")
    assert told["system"] == ("Be brief.", "%config SvcMagics")
    assert told["max_tokens"] == ("fit", "default")
    assert told["key"] == ("found, never shown", "SVC_API_KEY")
    assert settings["value"].isna()["top_p"]


def test_settings_fit_on_a_screen(shell: Shell) -> None:
    """What has no value is named below the table; a long value is shortened there."""
    shell.names["long"] = "Be brief.\n" * 99
    shell.run("%config SvcMagics.system = long")

    cell = shell.run("%svc settings")

    table, without = cell.shown.rsplit("\n\n", 1)
    assert "NA" not in cell.shown
    assert len(table.splitlines()) <= 25
    assert without.startswith("Without a value: answers, prices, extra,")
    assert "temperature" not in table
    assert max(map(len, table.splitlines())) <= 100
    assert isinstance(cell.value, pd.DataFrame)
    assert cell.value.loc["system", "value"] == shell.names["long"]


def test_settings_tell_what_cannot_be_used(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variable is named, and its default is shown."""
    monkeypatch.setenv("SVC_DISPLAY", "livee")

    told = frame(shell, "%svc settings").loc["display"]

    assert tuple(told) == ("auto", "default; SVC_DISPLAY cannot be used")


@pytest.mark.slow
def test_restore_says_what_it_looked_for(shell: Shell) -> None:
    """A name that the ledger does not have is named; one turn is one turn."""
    shell.run("%%svc -c plan\nHello")
    nothing = shell.run("%svc restore nope").shown
    there = shell.run("%svc restore plan").shown
    svc.conversation("plan").reset()
    shell.run("%%svc -c plan\nHello")

    assert "holds no turns of nope" in nothing
    assert "plan has these turns already" in there


VALUE = "sk-secret-of-the-prompt"


def test_a_typed_key_is_used_at_once(shell: Shell, emulator: Emulator) -> None:
    """After a login `%svc use` names the prompt, and nothing shows the key."""
    said = login(current(), ask=lambda _: f"Bearer {VALUE}\n")
    shown = shell.run("%svc use").shown

    assert said == (
        f"The key of {emulator.base_url} is kept in this kernel's memory, until the "
        "kernel ends."
    )
    assert "key      from a prompt" in shown
    assert VALUE not in shown


def test_a_login_mends_a_refused_key(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a 401 a login is all it takes; the kernel's client takes the new key."""
    monkeypatch.setenv("SVC_API_KEY", "sk-revoked-long-ago")
    refused = shell.run("%svc Hello there")

    login(current(), ask=lambda _: emulator.api_key)
    mended = shell.run("%svc Hello there")

    assert "401" in refused.shown
    assert (mended.error, emulator.requests[-1].status) == (None, 200)


def test_a_typed_key_stays_with_its_address(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed SVC_BASE_URL does not take the typed key along; nothing is sent."""
    monkeypatch.delenv("SVC_API_KEY")
    login(current(), ask=lambda _: emulator.api_key)
    with Emulator(tokens_per_s=None, first_token_s=0) as other:
        monkeypatch.setenv("SVC_BASE_URL", other.base_url)
        refused = shell.run("%svc Hello there")
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        answered = shell.run("%svc Hello there")

        assert (other.requests, answered.error) == ((), None)
        assert "SVC_API_KEY is not set" in refused.shown
        assert "%svc login" in refused.shown


@pytest.mark.slow
def test_a_key_is_typed_for_an_address_not_yet_in_use(shell: Shell) -> None:
    """`%svc use` of another address names the login for it; then it can be used."""
    with Emulator(tokens_per_s=None, first_token_s=0) as other:
        refused = shell.run(f"%svc use {other.base_url}")
        said = login(current(), other.base_url, ask=lambda _: other.api_key)
        shell.run(f"%svc use {other.base_url}")
        answered = shell.run("%svc Hello there")

        assert f"`%svc login {other.base_url}`" in " ".join(refused.shown.split())
        assert f"`%svc use {other.base_url}` sends requests there" in said
        assert (answered.error, other.requests[-1].status) == (None, 200)


def test_a_login_takes_an_address_and_never_a_key(shell: Shell) -> None:
    """A key behind `%svc login` is refused unseen; so is a word that is no address."""
    refused = shell.run(f"%svc login {VALUE}")
    no_address = shell.run("%svc login page")

    assert VALUE not in refused.shown
    assert "Type a key after `%svc login`" in " ".join(refused.shown.split())
    assert "`%svc ask login page`" in " ".join(no_address.shown.split())


@pytest.mark.slow
def test_the_emulator_names_a_question_and_a_line_that_work(shell: Shell) -> None:
    """As typed: the question has an answer, the line changes what is answered."""
    shell.run("import svc_notebook as svc")

    [question] = re.findall("`(.*?)`", shell.run("%svc use emulator").shown)
    answered = shell.run(question).shown
    unknown = " ".join(shell.run("%%svc\nIn 20 sentences: why?").shown.split())
    [line, *_] = re.findall("`(svc[.]use[^`]*filler[^`]*)`", unknown)
    shell.run(line)

    assert "written by hand" in answered
    assert "made up" in shell.run("%%svc\nWhy?").shown


@pytest.mark.slow
@pytest.mark.parametrize("line", ["%svc use emulator", "svc.use(endpoint='emulator')"])
def test_the_emulator_by_name_has_its_answers(shell: Shell, line: str) -> None:
    """An emulator that was made otherwise ends; using it again brings it back."""
    shell.run("import svc_notebook as svc; mine = svc.Emulator(text='filler')")
    shell.run("svc.use(endpoint=mine)")
    filler = shell.run("%svc Tell me a joke").shown

    said, answered = shell.run(line).shown, shell.run("%svc Tell me a joke").shown
    again = shell.run("%svc use emulator").shown
    shell.run("svc.use(endpoint=mine)")

    assert "made up" in filler
    assert "written by hand" in answered
    is_said = "The emulator that you made has ended" in " ".join(said.split())
    assert is_said is line.startswith("%")
    assert "has ended" not in again
    assert "made up" in shell.run("%svc Tell me a joke").shown


def test_a_key_typed_at_the_emulator_is_the_services(
    shell: Shell, emulator: Emulator
) -> None:
    """While the kernel's emulator is in use, a typed key belongs to SVC_BASE_URL."""
    shell.run("%svc use emulator")

    said = login(current(), ask=lambda _: emulator.api_key)
    shell.run("%svc use service")
    answered = shell.run("%svc Hello there")

    assert emulator.base_url in said
    assert (answered.error, emulator.requests[-1].status) == (None, 200)


@pytest.mark.parametrize("typed", ["", f"{VALUE} {VALUE}", f"{VALUE}\x7f"])
def test_what_is_no_key_is_refused_unseen(typed: str, shell: Shell) -> None:
    """What cannot be sent is refused without showing it; the old key stays."""
    before = shell.run("%svc use").shown

    with pytest.raises(MissingKeyError) as caught:
        login(current(), ask=lambda _: typed)

    assert VALUE not in str(caught.value)
    assert shell.run("%svc use").shown == before


@pytest.mark.parametrize("problem", [EOFError, RuntimeError, UserWarning])
def test_where_nobody_can_type(problem: type[Exception]) -> None:
    """Without a prompt, or with one that would show the key, the ways on are named."""

    def ask(_: str) -> str:
        raise problem(VALUE)

    with pytest.raises(ConfigError, match="SVC_API_KEY") as caught:
        login(current(), "https://here.invalid/v1", ask=ask)

    assert "%svc login" not in str(caught.value)
    assert caught.value.__context__ is None
    assert VALUE not in str(caught.value)


@pytest.mark.parametrize(
    "cell", ["%svc usage emulated", "%%svc --dry-run\n" + "some words " * 20]
)
def test_a_terminal_breaks_no_word(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    """What is wider than a terminal is broken at blanks."""
    shell.run("%%svc\nSay hello.")
    shown = shell.run(cell).value
    wide = repr(shown)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "70")

    narrow = repr(shown)

    assert max(map(len, wide.split("\n"))) > 70
    assert max(map(len, narrow.split("\n"))) <= 70
    assert narrow.split() == wide.split()
