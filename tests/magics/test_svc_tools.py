"""`%%svc --tools` and `%svc tools`, as they are typed."""

from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.completion import Completion
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError, ToolLoopError
from tests.magics.conftest import Shell

TOOLS = '''
import svc_notebook as svc

@svc.tool
def weather(city: str) -> str:
    """Tell the weather of a city.

    Args:
        city: Where.
    """
    return "rain"

@svc.tool(confirm=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"

def double(n: int) -> int:
    """Double a number."""
    return 2 * n

@svc.tool
def stop(n: int) -> str:
    """Stop."""
    raise KeyboardInterrupt

box = svc.Toolbox([weather, double])
number = 7
class Bill: ...
'''

LONG_TOOL = '''
@svc.tool
def convert_currency(amount: float, source: str, target: str) -> float:
    """Convert an amount of money from a currency into another."""
    return amount
'''


@pytest.fixture
def tools(shell: Shell) -> Shell:
    """A shell whose notebook has tools."""
    shell.run(TOOLS)
    return shell


def names_offered(emulator: Emulator) -> list[str]:
    """Return the tools in the newest request."""
    offered: list[dict[str, Any]] = emulator.requests[-1].json.get("tools", [])
    return [each["function"]["name"] for each in offered]


def test_tools_are_run_and_the_trail_is_printed(tools: Shell) -> None:
    """A terminal shows each call on a line, and the Completion holds the tool_runs."""
    cell = tools.run("%%svc --tools weather,double -o answer\nUse weather for Rome")

    answer = tools.names["answer"]
    assert isinstance(answer, Completion)
    assert cell.value is answer
    assert [step.result for step in answer.tool_runs] == ["rain"]
    assert 'weather(city="Rome") → rain' in cell.shown
    assert "s · 1 tool call" in cell.shown
    assert cell.shown.count("weather answered: rain.") == 1


def test_the_line_below_counts_every_round(tools: Shell) -> None:
    """Tokens are those of all requests, also in `last()` and in a conversation."""
    cell = tools.run(
        "%%svc --no-stream -c trip --tools weather -o answer\nUse weather for Rome"
    )

    sent = svc.replies_df()
    prompt, reply = (
        sent[name].sum() for name in ("prompt_tokens", "completion_tokens")
    )
    counted = f"2 requests, {prompt} → {reply} tokens"
    assert len(sent) == 2
    assert counted in cell.shown
    assert counted in repr(tools.names["answer"])
    assert counted in repr(svc.last())
    assert counted in svc.conversation("trip").turns[0].version.footer


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("wether", "Did you mean weather?"),
        ("number", "number is int, not a tool"),
        ("Bill", "Bill is a type, not a tool"),
        ("pd", "no variable 'pd'"),
    ],
)
def test_a_name_that_is_no_tool_is_refused(
    tools: Shell, emulator: Emulator, names: str, said: str
) -> None:
    """Near misses are named; nothing is sent."""
    cell = tools.run(f"%%svc --tools {names}\nHello")

    assert isinstance(cell.error, ParameterError)
    assert said in cell.shown
    assert emulator.requests == ()


@pytest.mark.slow
def test_tools_can_be_offered_in_every_cell(tools: Shell, emulator: Emulator) -> None:
    """`add` and `remove` say which; a cell's own --tools go first, `none` is none."""
    offered = []
    for line, cell in [
        ("%svc tools add weather", ""),
        ("%svc tools add double", ""),
        ("", " --tools send"),
        ("", " --tools none"),
        ("%svc tools remove weather", ""),
        ("%svc tools remove double", ""),
    ]:
        tools.run(line)
        tools.run(f"%%svc{cell}\nHello")
        offered.append(names_offered(emulator))

    assert offered == [
        ["weather"],
        ["weather", "double"],
        ["send"],
        [],
        ["double"],
        [],
    ]


def test_a_tool_of_every_cell_that_is_gone_is_named(tools: Shell) -> None:
    """The error says how to offer it no longer."""
    tools.run("%svc tools add weather")
    tools.run("del weather")

    cell = tools.run("%%svc\nHello")
    removed = tools.run("%svc tools remove weather")

    assert "`%svc tools remove NAME` changes that" in cell.shown
    assert removed.error is None


def test_what_cannot_be_removed_or_added_is_named(tools: Shell) -> None:
    """Both say what is offered; a question that begins so is not sent by guess."""
    assert "not offered in every cell" in tools.run("%svc tools remove send").shown
    assert "no variable 'snd'" in tools.run("%svc tools add snd").shown
    assert "a command or a question?" in tools.run("%svc tools are nice").shown


def test_the_notebooks_tools_are_listed(tools: Shell) -> None:
    """One row a tool, with what it asks and weighs."""
    tools.run("%svc tools add weather")

    frame = tools.run("%svc tools").value

    assert isinstance(frame, pd.DataFrame)
    shown = frame.reset_index()[["variable", "tool", "asks_first"]]
    assert list(shown.itertuples(index=False, name=None)) == [
        ("weather", "weather", False),
        ("send", "send", True),
        ("stop", "stop", False),
        ("box", "weather", False),
        ("box", "double", False),
    ]
    assert frame["in_every_cell"].tolist() == [True, False, False, False, False]
    assert (frame["est_tokens"] > 20).all()


def test_the_list_of_tools_is_narrow(tools: Shell) -> None:
    """A sentence, and of each tool what it does; the frame has the rest."""
    tools.run("%svc tools add weather")

    shown = tools.run("%svc tools").shown
    none = tools.run("%reset -f\n%load_ext svc_notebook\n%svc tools").shown

    assert "5 tools. `--tools VARIABLE` offers one to the model." in shown
    assert "in every cell" in shown
    assert "asks first" in shown
    assert "asks_first" not in shown
    assert "No variable holds a tool" in none


@pytest.mark.parametrize("n_columns", [80, 100])
def test_a_list_that_is_too_wide_breaks_at_blanks(
    tools: Shell, monkeypatch: pytest.MonkeyPatch, n_columns: int
) -> None:
    """Each column goes on below itself, so that all heads are above their column."""
    tools.run(LONG_TOOL)
    tools.run("%svc tools add convert_currency")
    listed = tools.run("%svc tools").value
    wide = repr(listed).split()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(n_columns))

    shown = repr(listed)

    lines = shown.split("\n")
    assert max(map(len, lines)) < n_columns
    assert sorted(shown.split()) == sorted(wide)
    [heads] = [line for line in lines if line.startswith("variable")]
    [tokens] = [line for line in lines if line.startswith("convert_currency ")]
    assert tokens.index("~") == heads.index("tokens")
    assert tokens.index("Convert") == heads.index("what it does")


def test_a_tools_definition_is_shown_as_it_is_sent(
    tools: Shell, emulator: Emulator
) -> None:
    """`%svc tools NAME` prints the JSON and its size."""
    shown = tools.run("%svc tools weather").shown
    tools.run("%%svc --tools weather\nHello")

    import json  # noqa: PLC0415 - here alone

    text, _, size = shown.rpartition("(about")
    assert json.loads(text) == emulator.requests[-1].json["tools"][0]
    assert "tokens in every request" in size


def test_a_dry_run_counts_the_definitions(tools: Shell, emulator: Emulator) -> None:
    """What would be offered is named with its size."""
    cell = tools.run("%%svc --tools weather --dry-run\nHello")

    assert "tools offered, about" in repr(cell.value)
    assert emulator.requests == ()


def test_rounds_are_bounded_by_the_line(tools: Shell) -> None:
    """--max-rounds is checked, and ends a model that only calls."""
    one = tools.run("%%svc --tools weather --max-rounds 1\nHello")
    word = tools.run("%%svc --tools weather --max-rounds many\nHello")

    assert isinstance(one.error, ParameterError)
    assert isinstance(word.error, ParameterError)


@pytest.mark.slow
def test_consent_can_be_given_by_the_line_and_by_config(
    tools: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can be asked a call is denied, unless told otherwise."""

    def nobody(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    ask = "\nUse send for 'Bob'"
    denied = tools.run("%%svc --tools send" + ask)
    by_line = tools.run("%%svc --tools send --confirm-tools none" + ask)
    tools.run("%config SvcMagics.confirm_tools = 'none'")
    by_config = tools.run("%%svc --tools send" + ask)
    every = tools.run("%%svc --tools weather --confirm-tools all\nUse weather for Rome")

    assert "1 denied: you could not be asked" in denied.shown
    assert "→ sent to Bob" in by_line.shown
    assert "→ sent to Bob" in by_config.shown
    assert "denied" in every.shown


def test_an_interrupt_keeps_what_was_run(tools: Shell) -> None:
    """The tool_runs is shown and marked, the variable holds it, the talk goes on."""
    cell = tools.run(
        "%%svc -c trip --tools weather,stop -o answer\nUse weather for Rome, stop for 3"
    )
    after = tools.run("%%svc -c trip\nNever mind")

    answer = tools.names["answer"]
    assert isinstance(cell.error, KeyboardInterrupt)
    assert isinstance(answer, Completion)
    assert [step.result for step in answer.tool_runs] == [
        "rain",
        "Error: The user interrupted this call; it gave no result.",
    ]
    assert "[interrupted]" in cell.shown
    assert after.error is None
    [turn, _] = svc.conversation("trip").turns
    assert [each.role for each in turn.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]


def test_several_answers_run_no_tools(tools: Shell, emulator: Emulator) -> None:
    """Rounds are for one answer; the line is refused, with what to do."""
    both = tools.run("%%svc --tools weather -m a,b\nHello")
    n = tools.run("%%svc --tools weather -n 2\nHello")

    assert "Leave --tools out" in both.shown
    assert "Leave -n out, or add --tools none." in n.shown
    assert emulator.requests == ()


class TestScripted:
    """Cells whose rounds do not end well."""

    @pytest.fixture
    def emulator(self) -> Any:  # noqa: ANN401 - a generator of one
        """An emulator that calls again and again, or fails after a call."""
        asked = {"id": "c", "name": "weather", "arguments": {"city": "x"}}
        call = {"tool_calls": [asked]}
        script: list[dict[str, Any]] = [
            {
                "when": {"contains": "says", "role": "user"},
                "choices": [{"text": "Let me look.", **call}],
            },
            {"when": {"contains": "says"}, "text": "It rains."},
            {**call, "when": {"contains": "endless"}, "times": None},
            {**call, "when": {"contains": "fails", "role": "user"}},
            {
                "when": {"contains": "fails"},
                "error": {"message": "No more."},
                "status": 400,
            },
        ]
        with Emulator(script=script, limits=False, tokens_per_s=None) as running:
            yield running

    def test_what_is_said_beside_a_call_stays(self, tools: Shell) -> None:
        """Text that came with a call stands before the answer, once."""
        cell = tools.run("%%svc --tools weather -o answer\nHe says")
        again = tools.run("answer")

        assert "Let me look.\n" in cell.shown
        assert cell.shown.index("Let me look.") < cell.shown.index("→ rain")
        assert cell.shown.index("→ rain") < cell.shown.index("It rains.")
        assert cell.shown.count("Let me look.") == cell.shown.count("It rains.") == 1
        assert "It rains." in again.shown

    def test_the_limit_is_one_short_box(self, tools: Shell) -> None:
        """The tool_runs is shown, and the error says what to do."""
        cell = tools.run("%%svc --tools weather --max-rounds 2\nendless")

        assert isinstance(cell.error, ToolLoopError)
        assert "still calls tools after 2 rounds" in cell.shown
        assert "→ rain" in cell.shown

    def test_a_failing_follow_up_shows_what_was_run(self, tools: Shell) -> None:
        """The tool_runs stays, marked; the error says how to go on."""
        cell = tools.run("%%svc --tools weather\nthis fails")

        assert "No more." in cell.shown
        assert "→ rain" in cell.shown
        assert "1 tool call was answered before this" in cell.shown


def test_a_changed_call_shows_what_ran(
    tools: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the arguments that ran and the change; so has the frame of calls."""
    answers = iter(["e", '{"to": "Al"}'])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))

    cell = tools.run("%%svc --tools send -o answer\nUse send for 'Bob'")

    line = 'send(to="Al") → approved, you changed to from "Bob" to "Al" · sent to Al'
    assert line in cell.shown
    answer = tools.names["answer"]
    assert isinstance(answer, Completion)
    [run] = answer.tool_runs
    assert (run.arguments, run.asked_arguments) == ({"to": "Al"}, '{"to": "Bob"}')
    calls = svc.tool_calls_df()
    assert calls["arguments"].tolist() == ['{"to": "Al"}']
    assert calls["asked_arguments"].tolist() == ['{"to": "Bob"}']


@pytest.mark.slow
def test_always_can_be_taken_back(
    tools: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`%svc tools ask NAME` asks again before calls; alone, of every tool."""
    asked: list[str] = []

    def answer(question: str = "") -> str:
        asked.append(question)
        return "always"

    monkeypatch.setattr("builtins.input", answer)
    said = []
    for line in ("", "", "%svc tools ask send", "", "%svc tools ask", "", ""):
        said.append(tools.run(line).shown if line else "")
        if not line:
            tools.run("%%svc --tools send\nUse send for Rome")

    assert len(asked) == 3
    assert "You will be asked again before calls of: send." in said[2]
    assert "You will be asked again before calls of: send." in said[4]


@pytest.mark.slow
def test_the_list_says_when_always_has_ended(
    tools: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that was always allowed asks first again once it is defined again."""
    monkeypatch.setattr("builtins.input", lambda _="": "always")
    found = []
    for cell in ("%%svc --tools send\nUse send for Rome", TOOLS):
        tools.run(cell)
        frame = tools.run("%svc tools").value
        assert isinstance(frame, pd.DataFrame)
        found.append(bool(frame.reset_index(drop=True)["asks_first"].any()))

    assert found == [False, True]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ask send", "send is not always allowed; nothing changed."),
        ("ask", "No tool is always allowed; nothing changed."),
        ("ask sned", "Did you mean send?"),
        ("add", "needs a name"),
        ("remove", "needs a name"),
    ],
)
def test_slips_of_the_tools_command_are_named(
    tools: Shell, line: str, said: str
) -> None:
    """A name that is missing, misspelt or not always allowed is no silent success."""
    assert said in tools.run(f"%svc tools {line}").shown
