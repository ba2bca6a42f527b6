"""Consent and limits: checked before anything is sent, and who decides on calls."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.display.tool_runs import consent_line
from svc_notebook.errors import ParameterError
from svc_notebook.service.request import FunctionCall, ToolCall
from svc_notebook.tools.call import CheckedCall, check_call
from svc_notebook.tools.consent import (
    AtPrompt,
    ConsentDecision,
    Proposal,
    Remembered,
    approve_all,
    edited_arguments,
    proposal_text,
    to_consent,
)
from svc_notebook.tools.rounds import RoundLimits
from svc_notebook.tools.toolbox import to_toolbox, tool
from tests.tools.conftest import MakeCaller, Serve

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"confirm": 5}, "returns True or False; got 5."),
    ({"confirm": "yes"}, "returns True or False; got 'yes'."),
    ({"confirm": lambda: True}, "takes one Proposal"),
    ({"confirm": lambda _name, _given: True}, "takes one Proposal"),
    ({"max_rounds": "x"}, "max_rounds must be an integer >= 2; got 'x'."),
    ({"max_rounds": 1}, "max_rounds must be an integer >= 2; got 1."),
    ({"tool_timeout_s": -1}, "tool_timeout_s must be a number of seconds > 0; got -1."),
    ({"total_s": "x"}, "total_s must be a number of seconds > 0; got 'x'."),
]
FLAGS: list[tuple[dict[str, Any], str]] = [
    ({"run_tools": "no"}, "run_tools must be True or False; got 'no'"),
    ({"reuse": "x"}, "reuse must be True or False; got 'x'"),
]


@svc.tool(confirm=True)
def pay(amount: int) -> str:
    """Pay a sum."""
    return f"paid {amount}"


@pytest.mark.parametrize(("given", "said"), [*WRONG, *FLAGS])
@pytest.mark.parametrize("tools", [None, [], [pay]])
def test_complete_refuses_what_it_would_not_even_need(
    serve: Serve, given: dict[str, Any], said: str, tools: object
) -> None:
    """A wrong value is refused with tools and without; nothing is sent."""
    emulator = serve()

    with pytest.raises(svc.errors.ParameterError) as caught:
        svc.complete("Hello", tools=tools, **given)

    assert said in str(caught.value)
    assert not emulator.requests


DONE: dict[str, Any] = {"text": "Done."}
PROPOSAL = Proposal(call_id="c", name="send", arguments={"to": "Bo"}, about="Send it.")


def sending(*to: object) -> dict[str, Any]:
    """Return a scripted reply that calls `send` for each."""
    calls = [
        {"id": f"c{i}", "name": "send", "arguments": {"to": each}}
        for i, each in enumerate(to)
    ]
    return {"tool_calls": calls}


class Post:
    """A tool that asks first, and keeps what it sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        def send(to: str) -> str:
            """Send a letter."""
            self.sent.append(to)
            return f"sent to {to}"

        self.tool = tool(send, confirm=True)


def answering(*answers: str) -> Callable[[str], str]:
    """Return a function like `input` that gives these answers, then ends."""
    left = list(answers)

    def read(_: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read


@pytest.mark.parametrize(
    ("answers", "decision"),
    [
        (["y"], ConsentDecision(verdict="approve")),
        ([" YES "], ConsentDecision(verdict="approve")),
        (["n"], ConsentDecision(verdict="deny")),
        (["a"], ConsentDecision(verdict="always")),
        (["", "what?", "y"], ConsentDecision(verdict="approve")),
        (
            ["e", '{"to": "Al"}'],
            ConsentDecision(verdict="approve", arguments={"to": "Al"}),
        ),
        (
            ["e", 'to="Al"'],
            ConsentDecision(verdict="approve", arguments={"to": "Al", "n": 1}),
        ),
        (
            ["e", " n = 2, to=null, more=[True, 'a'] "],
            ConsentDecision(
                verdict="approve",
                arguments={"to": None, "n": 2, "more": [True, "a"]},
            ),
        ),
        (
            ["e", "to = Ann สม Lee, n=2"],
            ConsentDecision(verdict="approve", arguments={"to": "Ann สม Lee", "n": 2}),
        ),
        (
            ["e", "to=Ann Lee, more='a, b'"],
            ConsentDecision(
                verdict="approve",
                arguments={"to": "Ann Lee", "n": 1, "more": "a, b"},
            ),
        ),
        (
            ["e", "Al", "to=Al"],
            ConsentDecision(verdict="approve", arguments={"to": "Al", "n": 1}),
        ),
        (["e", "Al", "", "n"], ConsentDecision(verdict="deny")),
        (["e", "to=print()", "", "n"], ConsentDecision(verdict="deny")),
        (["e", "n=1) or f(n=2", "", "n"], ConsentDecision(verdict="deny")),
        (["e", "n=1)(n=2", "", "n"], ConsentDecision(verdict="deny")),
        (["e", "'Al', n=2", "", "n"], ConsentDecision(verdict="deny")),
        (["e", "**{'n': 2}", "", "n"], ConsentDecision(verdict="deny")),
        (["e", "n={1}", "", "n"], ConsentDecision(verdict="deny")),
        (["e", "n=" + "[" * 9_000, "", "n"], ConsentDecision(verdict="deny")),
        (["e", '["Al"]', "", "n"], ConsentDecision(verdict="deny")),
        ([""] * 9, ConsentDecision(verdict="deny")),
        ([], ConsentDecision(verdict="deny")),
    ],
)
def test_answers_at_the_prompt(answers: list[str], decision: ConsentDecision) -> None:
    """Yes, no, always, edit by all or some arguments; no answer is a yes by itself."""
    proposal = replace(PROPOSAL, arguments={"to": "Bo", "n": 1})

    assert AtPrompt(answering(*answers))(proposal) == decision


def test_edit_shows_only_the_newest_problem() -> None:
    """It says how several changes are typed; what was wrong before is gone."""
    answers, questions = iter(["to=Al n=2", "to=Al, n=2"]), []

    def read(question: str) -> str:
        questions.append(question)
        return next(answers)

    edited = AtPrompt(read)(replace(PROPOSAL, problem="to must be a name."))

    assert edited.arguments == {"to": "Al", "n": 2}
    assert ["to must be a name." in question for question in questions] == [True, False]
    assert all("with a comma between several" in question for question in questions)
    assert "neither name=value nor JSON" in questions[1]


def test_edit_shows_the_arguments_to_copy() -> None:
    """The JSON that the model sent is above the prompt; Enter alone changes nothing."""
    answers, questions = iter(["e", "", "y"]), []

    def read(question: str) -> str:
        questions.append(question)
        return next(answers)

    proposal = Proposal(
        call_id="c", name="send", arguments={"to": "สมชาย\x1b", "n": 1}, about=""
    )

    assert AtPrompt(read)(proposal) == ConsentDecision(verdict="approve")
    assert '{"to": "สมชาย\\u001b", "n": 1}' in questions[1].splitlines()
    assert "JSON" not in questions[2]


def test_a_question_says_why_changed_arguments_do_not_fit(
    make_caller: MakeCaller,
) -> None:
    """The reason is above the question for other changes."""
    answers, questions = iter(["e", "to=7", "to=Al"]), []

    def read(question: str) -> str:
        questions.append(question)
        return next(answers)

    caller = make_caller(sending("Bo"), DONE)
    (run,) = caller.run([Post().tool], consent=AtPrompt(read)).tool_runs

    assert "do not fit" not in questions[1]
    assert questions[2].startswith("The changed arguments do not fit. ")
    assert '{"to": "Bo"}' in questions[2].splitlines()
    assert run.arguments == {"to": "Al"}


@svc.tool(confirm=True)
def set_price(
    drink: str,
    baht: Decimal,
    since: date | None = None,
    cups: int = 1,
    rate: float = 0.5,
    more: list[Decimal] | None = None,
) -> str:
    """Set a price."""
    assert drink == "tea" or since is None
    return repr((baht, cups, rate, *(more or ())))


def _pricing(arguments: str) -> dict[str, Any]:
    """Return a scripted reply that calls `set_price`."""
    call = {"id": "c", "name": "set_price", "arguments": arguments}
    return {"tool_calls": [call]}


@pytest.mark.parametrize(
    ("typed", "value", "change"),
    [
        ("baht=55.50", "Decimal('55.50'), 1, 0.5", 'baht from 95.00 to "55.50"'),
        ("baht=.10", "Decimal('0.10'), 1, 0.5", 'baht from 95.00 to ".10"'),
        ("drink=iced tea, baht=0.10", "Decimal('0.10'), 1, 0.5", 'to "0.10"'),
        (
            "baht=12345678901234567890.10",
            "Decimal('12345678901234567890.10'), 1, 0.5",
            'to "12345678901234567890.10"',
        ),
        (
            '{"drink": "tea", "baht": 0.10, "more": [1.0, 2.50]}',
            "Decimal('0.10'), 1, 0.5, Decimal('1.0'), Decimal('2.50')",
            'added more=["1.0", "2.50"]',
        ),
        (
            "cups=2.0, rate=1.50",
            "Decimal('95.00'), 2, 1.5",
            "you added cups=2, added rate=1.5 ",
        ),
    ],
)
def test_a_typed_number_for_a_decimal_keeps_its_digits(
    make_caller: MakeCaller, typed: str, value: str, change: str
) -> None:
    """Integers and floats stay what they are; the line has the digits, too."""
    caller = make_caller(_pricing('{"drink": "tea", "baht": 95.00}'), DONE)

    consent = AtPrompt(answering("e", typed))
    caller.run([set_price], consent=consent)
    [(_, run)] = caller.kept

    assert run.value == f"({value})"
    assert change in consent_line(run)


def test_a_number_of_the_model_for_a_decimal_keeps_its_digits(
    make_caller: MakeCaller,
) -> None:
    """The record has them, and nothing counts as changed by the user."""
    arguments = '{"drink": "tea", "baht": 0.10, "rate": 3.0, "more": [0.10, 2]}'
    caller = make_caller(_pricing(arguments), DONE)

    caller.run([set_price], consent=approve_all)
    [(_, run)] = caller.kept

    assert run.value == "(Decimal('0.10'), 1, 3.0, Decimal('0.10'), Decimal('2'))"
    assert run.arguments == {
        "drink": "tea",
        "baht": "0.10",
        "rate": 3,
        "more": ["0.10", 2],
    }
    assert consent_line(run) == "approved · "


@dataclass
class _Paid:
    baht: Decimal


@dataclass
class _Weighed:
    baht: float
    grams: Decimal | int


def test_a_number_that_may_be_a_float_stays_one(make_caller: MakeCaller) -> None:
    """Where a type allows another number or a text, the number is not changed."""

    def note(one: _Paid | _Weighed, two: Decimal | str, three: Decimal | None) -> str:
        """Note it."""
        return repr((one, two, three))

    arguments = {"one": {"baht": 0.5, "grams": 2.0}, "two": 1.5, "three": 2.5}
    call = {"name": "note", "arguments": arguments}
    caller = make_caller({"tool_calls": [call]}, DONE)

    caller.run([note])

    [(_, run)] = caller.kept
    assert run.arguments == arguments | {"three": "2.5"}
    assert run.value == (
        "(_Weighed(baht=0.5, grams=2), Decimal('1.5'), Decimal('2.5'))"
    )


@given_any(
    st.from_regex(
        r"-?(0|[1-9]\d{0,25})\.\d{1,25}", fullmatch=True, alphabet="-.0123456789"
    )
)
def test_any_number_typed_for_a_decimal_keeps_its_digits(typed: str) -> None:
    """As a change and as JSON, in what is recorded and in what the tool gets."""
    whole = f'{{"drink": "tea", "baht": {typed}}}'
    call = ToolCall(id="c", function=FunctionCall(name="set_price", arguments=whole))
    checked = check_call(to_toolbox([set_price]), call)

    assert isinstance(checked, CheckedCall)
    assert checked.arguments["baht"] == typed
    baht = set_price.parameters.read(checked.arguments)["baht"]
    assert str(baht) == str(Decimal(typed))
    for text in (whole, f"baht={typed}"):
        edited = edited_arguments({}, text)
        assert edited is not None
        assert edited["baht"].text == typed


@pytest.mark.parametrize(
    ("to", "lines"),
    [
        ("Bo\x1b", ['Run send(to="Bo\\u001b")? [y]es, [n]o, ']),
        (
            "Bo " * 30,
            ["The model calls send", f'  to = "{"Bo " * 30}"', "  (Send it.)", "Run "],
        ),
    ],
)
def test_a_short_call_is_asked_about_in_one_line(to: str, lines: list[str]) -> None:
    """A longer one is written out above the question, which names it."""
    questions = []

    def read(question: str) -> str:
        questions.append(question)
        return "n"

    AtPrompt(read)(replace(PROPOSAL, arguments={"to": to}))

    [question] = questions
    asked = question.split("\n")
    assert asked[:-1] == lines[:-1]
    assert asked[-1].startswith(f"{lines[-1]}"), asked
    assert len(asked[-1]) < 80


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            {"drink": "iced oolong", "price": 3.5, "currency": "EUR", "when": "today"},
            'drink="iced oolong", price=3.5, currency="EUR", when="today"',
        ),
        (
            {"to": "Bo " * 30, "n": 3, "names": ["Bo"] * 30},
            'to="Bo Bo Bo Bo Bo Bo B...", n=3, names=["Bo", "Bo", "Bo", "...]',
        ),
        ({"names": ["Bo"] * 30, "n": 3}, 'names=["Bo", "Bo", "Bo", "...], n=3'),
    ],
)
def test_the_question_has_every_argument(arguments: dict[str, Any], shown: str) -> None:
    """Single long values are shortened, and not the end of the line."""
    questions = []

    def read(question: str) -> str:
        questions.append(question)
        return "n"

    AtPrompt(read)(replace(PROPOSAL, arguments=arguments))

    [question] = questions
    line = question.split("\n")[-1]
    assert line.startswith(f"Run send({shown})? [y]es")


def test_a_proposal_is_written_out_whole_and_printable() -> None:
    """Every argument is on its own line, without control characters."""
    proposal = Proposal(
        call_id="c",
        name="send",
        arguments={"to": "a\x1b[2J", "by": "\x9b2J\u202e\x7f", "n": 1},
        about="Send.\x1b]0;",
    )

    text = proposal_text(proposal)

    assert text.splitlines()[:2] == ["The model calls send", '  to = "a\\u001b[2J"']
    assert text.splitlines()[3:] == ["  n = 1", "  (Send.\\x1b]0;)"]
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("consent", "sent", "expected"),
    [
        (approve_all, ["Bo"], "sent to Bo"),
        (AtPrompt(answering("n")), [], "Error: This call was not allowed."),
        (AtPrompt(answering()), [], "Error: This call was not allowed."),
        (
            AtPrompt(answering("e", '{"to": "Al"}')),
            ["Al"],
            '(The user changed the arguments to {"to": "Al"}.)\nsent to Al',
        ),
        (
            AtPrompt(answering("e", '{"to": 7}', '{"to": "Al"}')),
            ["Al"],
            '(The user changed the arguments to {"to": "Al"}.)\nsent to Al',
        ),
    ],
)
def test_a_tool_that_asks_runs_as_decided(
    make_caller: MakeCaller,
    consent: Callable[[Proposal], ConsentDecision],
    sent: list[str],
    expected: str,
) -> None:
    """Approved, denied, unasked, edited, edited wrongly first."""
    post = Post()
    caller = make_caller(sending("Bo"), DONE)

    (run,) = caller.run([post.tool], consent=consent).tool_runs

    assert post.sent == sent
    assert run.result.startswith(expected)
    assert run.is_approved is bool(sent)


def test_calls_are_denied_by_default(make_caller: MakeCaller) -> None:
    """RoundLimits without a consent function deny calls that need consent."""
    post = Post()
    caller = make_caller(sending("Bo"), DONE)

    caller.run([post.tool])

    assert post.sent == []


def test_always_holds_for_later_calls(make_caller: MakeCaller) -> None:
    """Said once, it is remembered for the tool, in this and in later rounds."""
    post = Post()
    consent = Remembered(AtPrompt(answering("a")))
    caller = make_caller(sending("Bo", "Al"), DONE, sending("Cy"), DONE)

    caller.run([post.tool], consent=consent)
    caller.run([post.tool], consent=consent)

    assert post.sent == ["Bo", "Al", "Cy"]


def test_a_tool_that_is_defined_again_is_asked_about_again(
    make_caller: MakeCaller,
) -> None:
    """Always was said about another function, although its name is the same."""
    first, again = Post(), Post()
    consent = Remembered(AtPrompt(answering("a", "n")))
    caller = make_caller(sending("Bo"), DONE, sending("Al"), DONE)

    caller.run([first.tool], consent=consent)
    caller.run([again.tool], consent=consent)

    assert (first.sent, again.sent) == (["Bo"], [])


def test_always_holds_for_a_method_of_the_same_object(make_caller: MakeCaller) -> None:
    """Each look at a method makes another object, which is equal."""

    class Desk:
        """Has a tool."""

        def send(self, to: str) -> str:
            """Send a letter."""
            return f"sent to {to}"

    desk = Desk()
    consent = Remembered(AtPrompt(answering("a")))
    caller = make_caller(sending("Bo"), DONE, sending("Al"), DONE)

    for _ in range(2):
        (run,) = caller.run([tool(desk.send, confirm=True)], consent=consent).tool_runs

    assert run.is_approved


def test_consent_can_be_wanted_for_every_call(make_caller: MakeCaller) -> None:
    """A setting asks for tools that are not marked too."""

    def ping() -> str:
        """Answer."""
        return "pong"

    caller = make_caller(
        {"tool_calls": [{"id": "c", "name": "ping", "arguments": {}}]}, DONE
    )

    (run,) = caller.run([ping], rounds=RoundLimits(ask_for="all")).tool_runs

    assert run.is_approved is False


def test_waiting_for_consent_takes_no_time_of_the_rounds(
    make_caller: MakeCaller,
) -> None:
    """Somebody who thinks for an hour still gets the call run."""
    now = [0.0]

    def think(_: Proposal) -> ConsentDecision:
        now[0] += 3600
        return ConsentDecision(verdict="approve")

    post = Post()
    caller = make_caller(sending("Bo"), DONE)

    caller.run([post.tool], consent=think, clock=lambda: now[0])

    assert post.sent == ["Bo"]


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (True, "approve"),
        (False, "deny"),
        (None, "deny"),
        ("no", "deny"),
        (1, "deny"),
        (ConsentDecision(verdict="always"), "always"),
    ],
)
def test_a_function_decides_by_a_bool_or_a_decision(
    said: Any,  # noqa: ANN401 - also what is neither
    verdict: str,
) -> None:
    """Only a plain True is a yes."""
    consent, ask_for = to_consent(lambda _: said, Remembered(approve_all))

    assert (consent(PROPOSAL).verdict, ask_for) == (verdict, "all")


def test_confirm_is_read() -> None:
    """None, True, False or a function; anything else is refused."""
    prompt = Remembered(AtPrompt(answering()))

    read = [to_consent(each, prompt) for each in (None, True, False)]

    assert read == [(prompt, "marked"), (prompt, "all"), (approve_all, "none")]
    with pytest.raises(ParameterError, match="confirm="):
        to_consent("yes", prompt)  # type: ignore[arg-type]  # the point
