"""Consent: who is asked, what they may say, and what happens where nobody is."""

from collections.abc import Callable
from typing import Any

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.tools.permissions import (
    AtPrompt,
    Decision,
    Proposal,
    Remembered,
    Rounds,
    approve_all,
    proposal_text,
    to_consent,
)
from svc_notebook.tools.tool import tool
from tests.tools.conftest import MakeCaller

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
    """Return somebody who answers these, then goes away."""
    left = list(answers)

    def read(_: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read


@pytest.mark.parametrize(
    ("answers", "decision"),
    [
        (["y"], Decision(verdict="approve")),
        ([" YES "], Decision(verdict="approve")),
        (["n"], Decision(verdict="deny")),
        (["a"], Decision(verdict="always")),
        (["", "what?", "y"], Decision(verdict="approve")),
        (["e", '{"to": "Al"}'], Decision(verdict="approve", arguments={"to": "Al"})),
        (["e", "Al", "n"], Decision(verdict="deny")),
        (["e", '["Al"]', "n"], Decision(verdict="deny")),
        ([""] * 9, Decision(verdict="deny")),
        ([], Decision(verdict="deny")),
    ],
)
def test_answers_at_the_prompt(answers: list[str], decision: Decision) -> None:
    """Yes, no, always, edit; no answer is a yes by itself."""
    assert AtPrompt(answering(*answers))(PROPOSAL) == decision


def test_calls_that_nobody_was_asked_about_are_counted() -> None:
    """Where stdin is closed the call is denied, and that can be said."""
    at_prompt = AtPrompt(answering())

    at_prompt(PROPOSAL)

    assert at_prompt.n_unasked == 1


def test_a_proposal_is_written_out_whole_and_printable() -> None:
    """Every argument is on a line of its own, with nothing a terminal obeys."""
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
    ("consent", "sent", "told"),
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
            AtPrompt(answering("e", '{"to": 7}', "e", '{"to": "Al"}')),
            ["Al"],
            '(The user changed the arguments to {"to": "Al"}.)\nsent to Al',
        ),
    ],
)
def test_a_tool_that_asks_runs_as_decided(
    make_caller: MakeCaller,
    consent: Callable[[Proposal], Decision],
    sent: list[str],
    told: str,
) -> None:
    """Approved, denied, unasked, edited, edited wrongly first."""
    post = Post()
    caller = make_caller(sending("Bo"), DONE)

    (run,) = caller.run([post.tool], consent=consent).tool_runs

    assert post.sent == sent
    assert run.result.startswith(told)
    assert run.is_approved is bool(sent)


def test_nobody_is_asked_by_default(make_caller: MakeCaller) -> None:
    """Rounds that are told nothing deny what wants consent."""
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


def test_consent_can_be_wanted_for_every_call(make_caller: MakeCaller) -> None:
    """A setting asks for tools that are not marked too."""

    def ping() -> str:
        """Answer."""
        return "pong"

    caller = make_caller(
        {"tool_calls": [{"id": "c", "name": "ping", "arguments": {}}]}, DONE
    )

    (run,) = caller.run([ping], rounds=Rounds(ask_for="all")).tool_runs

    assert run.is_approved is False


def test_waiting_for_consent_takes_no_time_of_the_rounds(
    make_caller: MakeCaller,
) -> None:
    """Somebody who thinks for an hour still gets the call run."""
    now = [0.0]

    def think(_: Proposal) -> Decision:
        now[0] += 3600
        return Decision(verdict="approve")

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
        (Decision(verdict="always"), "always"),
    ],
)
def test_a_function_decides_by_a_bool_or_a_decision(
    said: Any,  # noqa: ANN401 - also what is neither
    verdict: str,
) -> None:
    """Only a plain True is a yes."""
    consent, ask_for = to_consent(lambda _: said, Remembered(approve_all))

    assert (consent(PROPOSAL).verdict, ask_for) == (verdict, "all")


def test_what_a_door_says_of_consent_is_read() -> None:
    """None, True or False; anything that is no function either is refused."""
    prompt = Remembered(AtPrompt(answering()))

    read = [to_consent(each, prompt) for each in (None, True, False)]

    assert read == [(prompt, "marked"), (prompt, "all"), (approve_all, "none")]
    with pytest.raises(ParameterError, match="confirm="):
        to_consent("yes", prompt)  # type: ignore[arg-type]  # the point
