"""A run told in a cell and in a terminal: plan, outcome, reasons, next step."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from svc_notebook.emulator.server import Emulator
from svc_notebook.exchange import Failure
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.session import Session
from svc_notebook.sweeps.describe import SHOWN_REASONS, reasons_of
from svc_notebook.sweeps.plan import plan

OpenSession = Callable[[Emulator], Session]

SMALL = "svc-v2-8b-instruct"
LARGE = "svc-v2-70b-instruct"
PRICE = Price(prompt=1.0, completion=2.0)
PRICES = Prices(
    models={SMALL: PRICE, LARGE: PRICE},
    currency="USD",
    as_of=date(2026, 1, 31),
    source="mine",
)


def _scripted(*entries: dict[str, Any]) -> Emulator:
    return Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=list(entries)
    )


def test_a_plan_is_whole_in_a_terminal(session: Session) -> None:
    """Printed, a plan says what it asks, takes and costs, and what limit binds."""
    run = plan(
        session,
        "Sum up: {{text}}",
        rows=[{"text": f"text {number}", "of": 1} for number in range(50)],
        model=[SMALL, LARGE],
        varied={"temperature": [0, 0.7]},
        prices=PRICES,
        name="sums",
    )

    assert str(run).splitlines() == [
        "Run sums: 200 requests planned, nothing sent yet.",
        "  trials       rows (50) x model (2) x temperature (2)",
        "  rows         50 (text, of)",
        "  prompt       `Sum up: {{text}}`",
        "  model        `svc-v2-8b-instruct`, `svc-v2-70b-instruct`",
        "  temperature  `0`, `0.7`",
        (
            "  tokens       720 to 2,160 in prompts (estimated), 0 to 30,000 in replies "
            "(by max_tokens)"
        ),
        "  cost         0.00072 to 0.06216 USD, by your prices (mine, 2026-01-31)",
        (
            "  time         about 70 s until the last request is sent, because of the "
            "per-minute limit"
        ),
        "               of svc-v2-8b-instruct",
        (
            "  note         max_tokens is not set: the service's default of 150 applies "
            "and cuts longer"
        ),
        "               replies",
        ".run() sends what is missing",
    ]


def test_what_runs_is_told_in_short(open_session: OpenSession) -> None:
    """While it is on, a run says how far it is, what is left, and what can be done."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as emulator:
        run = plan(open_session(emulator), list("abcdefgh"), model=SMALL)
        run.in_flight = 1
        run.pause().start().pause()

        paused = str(run)
        run.resume()
        on = str(run)
        run.wait()

    assert paused.splitlines()[-1] == "paused; .resume() continues, .cancel() stops it"
    assert on.splitlines()[-1].startswith("running; .pause()")
    assert "prompt" not in paused
    assert str(run).splitlines()[-1] == ".replies_df(), .summary_df(), .compare()"
    assert "tokens" not in str(run)


def test_a_page_says_the_same(session: Session) -> None:
    """The HTML has every line of the text, as a list."""
    run = plan(session, "Hi", model=[SMALL, LARGE], prices=PRICES, name="a<b>*c*")

    bundle = run._repr_mimebundle_()

    labels = [line.split()[0] for line in bundle["text/plain"].splitlines()[1:-2]]
    assert labels == ["prompt", "model", "tokens", "cost", "note"]
    assert all(f"<li>{label}: " in bundle["text/html"] for label in labels)
    assert "a<b>" not in bundle["text/html"]
    assert "&lt;b&gt;*c*" in bundle["text/html"]


def test_it_is_said_why_all_failed(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of which nothing was answered ends with a line an error, counted."""
    refused = {"status": 400, "error": {"message": "No, never."}, "times": None}
    only_b = {**refused, "error": {"message": "Not b."}, "when": {"contains": "b"}}
    with _scripted(only_b, refused) as emulator:
        run = plan(open_session(emulator), ["a", "b", "c"]).run()

    said = capsys.readouterr().err.splitlines()
    assert said[0] == "No request succeeded; 3 failed:"
    assert said[1].startswith("  2 x BadRequestError (400): ")
    assert "No, never." in said[1]
    assert said[2].startswith("  1 x BadRequestError (400): ")
    assert "Not b." in said[2]
    assert said[3] == "Fix this, then call retry()."
    assert " ".join(said[1].split()) in " ".join(str(run).split())


def test_where_some_were_answered_nothing_is_printed(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some failures among answers are told by the run when it is shown, not before."""
    refused = {"status": 400, "error": {"message": "No."}, "when": {"contains": "b"}}
    with _scripted({**refused, "times": None}) as emulator:
        run = plan(open_session(emulator), ["a", "b"]).run()

    assert capsys.readouterr().err == ""
    assert "  failed  1 x BadRequestError (400): " in str(run)
    assert run._repr_mimebundle_()["text/plain"] == str(run)


def test_a_service_cannot_write_into_the_terminal(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an error says is shown, and obeyed by nothing."""
    refused = {"status": 400, "error": {"message": "\x1b[2J<b>x</b>"}, "times": None}
    with _scripted(refused) as emulator:
        run = plan(open_session(emulator), "a").run()

    assert "\x1b" not in capsys.readouterr().err
    assert "\x1b" not in str(run)
    assert "<b>" not in run._repr_mimebundle_()["text/html"]


def test_failures_that_differ_in_numbers_are_one() -> None:
    """Reasons are counted, the most frequent first; the rest is counted, too."""
    failures = [
        Failure(type="A", message=f"id {number}", http_status=500)
        for number in range(3)
    ]
    others = [Failure(type="B", message="x" * at) for at in range(SHOWN_REASONS)]

    lines = reasons_of([*others, *failures])

    assert lines[0] == "3 x A (500): id 0"
    assert len(lines) == SHOWN_REASONS + 1
    assert lines[-1] == "1 more reasons are in replies_df()"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """Give a shell, and take it away again."""
    config = Config(HistoryManager={"enabled": False})
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


def test_a_cell_says_once_why_all_failed(
    open_session: OpenSession, shell: InteractiveShell
) -> None:
    """Where a run has just said why, the cell's output does not; a later one does."""
    refused = {"status": 400, "error": {"message": "No."}, "times": None}
    with _scripted(refused) as emulator:
        run = plan(open_session(emulator), ["a", "b"]).run()

    shown = run._repr_mimebundle_()["text/plain"]
    shell.execution_count += 1
    later = run._repr_mimebundle_()["text/plain"]
    assert ("  failed  " in shown, "  failed  " in later) == (False, True)
    assert "2 failed" in shown
