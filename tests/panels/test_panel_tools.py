"""Tools in the panel: rounds, consent, the tool_runs, and stopping them."""

from collections.abc import Iterator
from decimal import Decimal
from html import unescape
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.conversations.transcript import to_transcript
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated
from tests.panels.conftest import TIMEOUT_S, OpenPage, Page


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that calls a tool that the prompt names, once with words before."""
    call = {"name": "weather", "arguments": {"city": "Oslo"}}
    script: list[dict[str, Any]] = [
        {
            "when": {"contains": "How is", "role": "user"},
            "text": "Let me **look**.",
            "tool_calls": [call],
        },
        {"when": {"contains": "How is", "role": "tool"}, "text": "It is sunny."},
        {"when": {"contains": "Talk", "role": "user"}, "tool_calls": [call]},
        {
            "when": {"contains": "Both", "role": "user"},
            "tool_calls": [call, {"name": "pay", "arguments": {"amount": 5}}],
        },
        {
            "when": {"contains": "Talk", "role": "tool"},
            "text": [f"word{n} " for n in range(10_000)],
            "gap_s": 0.02,
        },
    ]
    with Emulator(
        script=script, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


def weather(city: str) -> str:
    """Say the weather.

    Args:
        city: Where.
    """
    return f"sunny in {city}"


@svc.tool(confirm=True)
def pay(amount: int) -> str:
    """Pay a person.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


def asked(page: Page, text: str = "pay 5") -> dict[str, Any]:
    """Send a prompt and return the question that comes."""
    page.say("send", text=text)
    page.wait(lambda: page.view["ask"])
    question: dict[str, Any] = page.view["ask"]
    return question


def decided(page: Page, verdict: str, arguments: str | None = None) -> dict[str, Any]:
    """Decide the question that is open and wait for the end."""
    return page.do(
        "decide", id=page.view["ask"]["id"], verdict=verdict, arguments=arguments
    )


def test_a_tool_is_run_and_its_result_answered(open_page: OpenPage) -> None:
    """One turn has the rounds inside it, and its calls show while they run."""
    page = open_page(tools=[weather])

    turn = page.ask('weather in "Oslo"')

    [step] = turn["tool_runs"]
    assert (step["name"], step["is_error"]) == ("weather", False)
    assert "sunny in Oslo" in step["html"]
    assert step["line"].startswith('weather(city="Oslo") → sunny in Oslo')
    tool_runs = [each["live"]["tool_runs"] for each in page.all("live")]
    assert tool_runs[0][0]["line"] == 'weather(city="Oslo") → running …'
    assert not page.all("live")[-1]["live"]["choices"]
    roles = [each.role for each in page.panel.conversation.turns[0].messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert svc.tool_calls_df()["name"].tolist() == ["weather"]


def test_the_line_below_counts_every_round(open_page: OpenPage) -> None:
    """It has the sum of all requests, and so has the static transcript."""
    page = open_page(tools=[weather])

    footer = page.ask("How is Oslo?")["footer"]

    replies = svc.replies_df()
    prompts, texts = (
        int(replies[name].sum())
        for name in ("est_prompt_tokens", "est_completion_tokens")
    )
    assert len(replies) == 2
    assert footer.startswith(f"2 requests, ~{prompts} → ~{texts} tokens")
    assert footer in to_transcript(page.panel.conversation.history)["text/plain"]


def test_a_stopped_round_counts_those_before_it(
    open_page: OpenPage, emulator: Emulator
) -> None:
    """The line has the charge of all requests, also if the last one was stopped."""
    page = open_page(tools=[weather])
    page.say("send", text="Talk about Oslo")
    page.wait(lambda: any("word3 " in tail for tail in page.tails()))

    turn = page.do("stop")["turns"][0]

    assert len(emulator.requests) == 2
    assert turn["footer"].startswith("2 requests, ")
    assert "interrupted" in turn["badges"]


def test_nothing_runs_before_the_user_approves(open_page: OpenPage) -> None:
    """The card shows the call; approved, it runs."""
    page = open_page(tools=[pay])

    question = asked(page)
    state, can = page.view["state"], page.view["can"]
    waiting = page.all("live")[-1]["live"]["tool_runs"]
    got = decided(page, "approve")

    assert (question["name"], question["about"]) == ("pay", "Pay a person.")
    assert '"amount"' in question["arguments"]
    assert (state, "decide" in can) == ("asking", True)
    assert waiting[0]["line"] == "pay(amount=5) → waits for your answer"
    assert "paid" in got["turns"][0]["tool_runs"][0]["html"]
    assert "approved" in got["turns"][0]["tool_runs"][0]["html"]


def test_what_is_denied_does_not_run(open_page: OpenPage) -> None:
    """The model learns it, and goes on without the call."""
    page = open_page(tools=[pay])
    asked(page)

    got = decided(page, "deny")

    [step] = got["turns"][0]["tool_runs"]
    assert step["is_error"]
    assert "paid" not in step["html"]
    assert "→ denied · " in step["line"]
    saved = to_transcript(page.panel.conversation.history)["text/plain"]
    assert "pay(amount=5) → denied · " in saved


@pytest.mark.parametrize("typed", ['{"amount": 7}', "amount=7"])
def test_arguments_can_be_changed(open_page: OpenPage, typed: str) -> None:
    """As in a cell; what cannot be read is refused, and asked for again."""
    page = open_page(tools=[pay])
    question = asked(page)

    page.say("decide", id=question["id"], verdict="approve", arguments="{")
    notice, still = page.view["notice"], page.view["ask"]
    got = decided(page, "approve", typed)

    how = "what changes as name=value, with a comma between several, or all as JSON"
    assert question["how_to_edit"] == how
    assert notice == (
        f"The changed arguments cannot be read. Type {how}, and decide again."
    )
    assert still == question
    assert "paid 7" in got["turns"][0]["tool_runs"][0]["html"]


def test_changed_arguments_that_do_not_fit_are_kept(open_page: OpenPage) -> None:
    """The next question has them as typed, and the reason; nothing has run."""
    page = open_page(tools=[pay])
    first = asked(page)
    typed = '{"amount": "50 บาท"}'
    page.say("decide", id=first["id"], verdict="approve", arguments=typed)
    page.wait(lambda: (page.view["ask"] or first)["problem"])
    again = page.view["ask"]
    decided(page, "approve", "amount=50")

    assert (first["problem"], first["typed"]) == ("", "")
    assert again["typed"] == typed
    assert again["problem"].startswith("The changed arguments do not fit. amount:")
    assert (again["about"], again["arguments"]) == (first["about"], first["arguments"])
    assert svc.tool_calls_df()["result"].str.endswith("paid 50").tolist() == [True]


def test_a_call_is_denied_whatever_was_typed(open_page: OpenPage) -> None:
    """Arguments that cannot be read do not matter then."""
    page = open_page(tools=[pay])
    asked(page)

    got = decided(page, "deny", "{")

    assert "→ denied · " in got["turns"][0]["tool_runs"][0]["line"]


def test_a_changed_call_shows_what_ran(open_page: OpenPage) -> None:
    """In its line while it runs and afterwards, unfolded, and in the transcript."""
    page = open_page(tools=[pay])
    asked(page)

    got = decided(page, "approve", '{"amount": 7}')

    [step] = got["turns"][0]["tool_runs"]
    running = [each["live"]["tool_runs"][0]["line"] for each in page.all("live")]
    line = "pay(amount=7) → approved, you changed amount from 5 to 7 · paid 7"
    assert "pay(amount=7) → running …" in running
    assert step["line"].startswith(line)
    assert '<p>arguments</p><pre>{"amount": 7}</pre>' in unescape(step["html"])
    assert "<p>arguments that the model asked for</p>" in step["html"]
    assert line in to_transcript(page.panel.conversation.history)["text/plain"]


def test_a_number_typed_for_a_decimal_keeps_its_digits(open_page: OpenPage) -> None:
    """In the call, in its line and in the record."""

    def refund(amount: Decimal) -> str:
        """Pay back."""
        return f"paid back {amount}"

    page = open_page(tools=[svc.tool(refund, name="pay", confirm=True)])
    asked(page, "pay 5")

    got = decided(page, "approve", "amount=55.50")

    [step] = got["turns"][0]["tool_runs"]
    lines = [each["live"]["tool_runs"][0]["line"] for each in page.all("live")]
    assert list(dict.fromkeys(lines))[1:3] == [
        'pay(amount="5") → waits for your answer',
        'pay(amount="55.50") → running …',
    ]
    assert 'to "55.50" · paid back 55.50' in step["line"]
    assert svc.tool_calls_df()["arguments"].tolist() == ['{"amount": "55.50"}']


@pytest.mark.slow
def test_always_is_remembered(open_page: OpenPage) -> None:
    """The second call runs without a question, until the session forgets it."""
    page = open_page(tools=[pay])
    asked(page)
    decided(page, "always")

    turn = page.ask("pay 6")
    remembered = current().consent.always
    current().consent.forget("pay")  # as `%svc tools ask pay` does
    question = asked(page, "pay 7")

    assert "paid 6" in turn["tool_runs"][0]["html"]
    assert remembered == ("pay",)
    assert question["name"] == "pay"


def test_a_call_that_waited_when_the_kernel_ended_is_shown(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Restored, the turn has its calls, the result that there is, and a mark."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    ended = open_page(tools=[weather, pay])
    asked(ended, "Both")
    assert current().ledger.flush()

    with isolated():
        page = open_page(tools=[weather, pay])

    [turn] = page.view["turns"]
    first, second = [run["line"].partition(" · ")[0] for run in turn["tool_runs"]]
    assert first == 'weather(city="Oslo") → sunny in Oslo'
    assert second == "pay(amount=5) → not answered"
    assert "tool results missing, not sent" in turn["badges"]
    saved = page.panel.conversation.to_markdown()
    assert first in saved
    assert second in saved
    ended.do("stop")


@pytest.mark.slow
def test_a_stop_ends_a_question(open_page: OpenPage) -> None:
    """Nothing runs, and the history can be sent."""
    page = open_page(tools=[pay])
    asked(page)

    got = page.do("stop")

    assert page.all("ended")[-1]["text"] == "Reply stopped"
    assert (got["state"], got["ask"]) == ("idle", None)
    assert page.ask("Hello")["prompt"] == "Hello"


def test_a_stop_ends_the_waiting_for_a_tool(open_page: OpenPage) -> None:
    """A plain tool is left running, and the next prompt is answered."""
    begun, go_on = Event(), Event()

    def dig() -> str:
        """Dig for long."""
        begun.set()
        go_on.wait()
        return "dug"

    page = open_page(tools=[dig])
    page.say("send", text="dig")
    assert begun.wait(TIMEOUT_S)

    page.do("stop")  # fails if the reply waits for the tool
    go_on.set()

    assert page.ask("Hello")["prompt"] == "Hello"


def test_a_tool_that_fails_is_shown_to_model_and_user(open_page: OpenPage) -> None:
    """The tool_runs has the traceback; the model gets a line."""

    def divide() -> float:
        """Divide."""
        return 1 / 0

    page = open_page(tools=[divide])

    turn = page.ask("divide")

    [step] = turn["tool_runs"]
    assert step["is_error"]
    assert "Traceback" in step["html"]
    results = [
        each.content
        for each in page.panel.conversation.turns[0].messages
        if each.role == "tool"
    ]
    assert results == ["Error: ZeroDivisionError: division by zero"]


def test_every_call_can_be_asked_for(open_page: OpenPage) -> None:
    """confirm=True shows a card before a tool that does not want one itself."""
    page = open_page(tools=[weather], confirm=True)

    question = asked(page, 'weather in "Oslo"')
    decided(page, "approve")

    assert (question["name"], '"Oslo"' in question["arguments"]) == ("weather", True)
    assert "sunny in Oslo" in page.view["turns"][0]["tool_runs"][0]["html"]


@pytest.mark.slow
def test_no_call_need_be_asked_for(open_page: OpenPage) -> None:
    """confirm=False runs what would have asked; a function decides in its place."""
    free = open_page(tools=[pay], confirm=False).ask("pay 5")
    denied = open_page(tools=[pay], confirm=lambda _: False).ask("pay 5")

    assert (free["tool_runs"][0]["is_error"], denied["tool_runs"][0]["is_error"]) == (
        False,
        True,
    )


def test_the_limits_of_rounds_hold_in_a_panel(open_page: OpenPage) -> None:
    """The limits of `complete` hold here too; wrong ones are refused at once."""
    page = open_page(tools=[weather], total_s=1e-9)
    page.say("send", text='weather in "Oslo"')
    page.wait(lambda: page.view["notice"])

    assert "allow more with total_s" in page.view["notice"]
    with pytest.raises(
        svc.errors.ParameterError, match=r"max_rounds must be .* got 'x'"
    ):
        open_page(max_rounds="x")


def test_several_choices_and_tools_are_refused_when_they_are_set(
    open_page: OpenPage,
) -> None:
    """Not when a prompt is sent; the words say what a panel can do."""
    page = open_page(tools=[weather])

    page.say("set", name="n", value=3)
    refused = page.view["notice"]
    page.say("dismiss", name="")

    assert "open a panel without tools" in refused
    assert page.view["settings"]["n"] is None
    assert (page.view["notice"], page.view["is_problem"]) == ("", False)
    with pytest.raises(
        svc.errors.ParameterError, match="n must be 1 in a panel with tools"
    ):
        open_page(tools=[weather], n=3)


def test_what_is_said_before_a_call_stays(open_page: OpenPage) -> None:
    """While the next round is written, and when it has ended."""
    page = open_page(tools=[weather])

    turn = page.ask("How is Oslo?")

    deltas = page.all("delta")
    html = "".join(delta["html"] for delta in deltas)
    assert "Let me <strong>look</strong>." in html
    assert not any(delta["n_back"] for delta in deltas)
    assert turn["choices"][0]["text"] == "Let me **look**.\n\nIt is sunny."
