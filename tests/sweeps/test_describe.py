"""A run in words: its plan, its progress, its outcome and its errors."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from svc_notebook.client.attempts import RequestPath
from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.rate_windows import Waiting
from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import BadRequestError, ParameterError, ServerFaultError
from svc_notebook.exchange import Failure
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.service.catalogue import limit_of
from svc_notebook.session import Session
from svc_notebook.sweeps.describe import (
    SHOWN_REASONS,
    Line,
    Speed,
    duration_lines,
    forecast,
    headline,
    last_sent_s,
    plan_lines,
    reasons_of,
    size_of,
)
from svc_notebook.sweeps.grid import Grid, Trial
from svc_notebook.sweeps.order import Trials
from svc_notebook.sweeps.plan import build_grid, plan
from svc_notebook.sweeps.progress import progress_of
from svc_notebook.sweeps.scheduler import (
    FAILURES_IN_A_ROW,
    Answered,
    Failed,
    ModelQueue,
    Outcome,
)

SMALL = "svc-v2-8b-instruct"
DEFAULT_NOTE = (
    "max_tokens is not set: the service's default of 150 applies and cuts longer "
    "replies"
)


def _planned(grid: Grid, prices: Prices | None = None) -> list[Line]:
    return plan_lines(grid, size=size_of(grid, prices=prices))


def _notes(grid: Grid) -> str:
    return " ".join(text for label, text in _planned(grid) if label == "note")


def test_says_what_will_be_asked() -> None:
    """A plan names what varies, its size, and what the service's default will do."""
    varied: dict[str, Any] = {
        "model": [SMALL, "svc-instruct"],
        "temperature": [0, None],
        "stop": ["a", "b"],
    }
    grid = build_grid("Say\n`hi`.", varied=varied, repeats=2)

    assert _planned(grid) == [
        ("trials", "model (2) x temperature (2) x repeats (2)"),
        ("prompt", "`` Say `hi`. ``"),
        ("model", "`svc-v2-8b-instruct`, `svc-instruct`"),
        ("temperature", "`0`, not sent"),
        ("stop", "`['a', 'b']`"),
        ("repeats", "2"),
        (
            "tokens",
            (
                "about 68 in prompts (estimated: 50 to 95), "
                "0 to 1,200 in replies (by max_tokens)"
            ),
        ),
        ("time", "unknown for svc-instruct: no limit is documented"),
        ("note", DEFAULT_NOTE),
    ]


def test_says_what_it_may_cost() -> None:
    """With prices there is an interval; a model without a price is named."""
    price = Price(prompt=3_000_000.0, completion=1_000_000.0)
    prices = Prices(
        models={SMALL: price}, currency="USD", as_of=date(2026, 1, 31), source="mine"
    )
    grid = build_grid("Hi", varied={"model": SMALL, "max_tokens": 10})
    other = build_grid("Hi", varied={"model": [SMALL, "svc-instruct"]})

    costs = [dict(_planned(each, prices))["cost"] for each in (grid, other)]

    assert costs == [
        "6 to 37 USD, by your prices (mine, 2026-01-31)",
        "unknown: your price table has no price for svc-instruct",
    ]
    assert "cost" not in dict(_planned(grid))


def test_says_how_many_use_the_default() -> None:
    """Where max_tokens is set for some only, the others are counted."""
    varied = {"model": SMALL, "max_tokens": [None, 500]}
    words = _notes(build_grid("p", varied=varied))

    assert "max_tokens is not set for 1 of 2 requests" in words


def test_says_what_may_not_fit() -> None:
    """Requests whose prompt and max_tokens exceed the budget are counted."""
    varied = {"model": SMALL, "max_tokens": [10, 8192]}
    words = _notes(build_grid("p", varied=varied))

    assert "1 may not fit" in words
    assert "8192" in words
    assert "is not set" not in words


def test_shortens_what_is_long() -> None:
    """Long texts and long lists are named by their beginning."""
    prompts = ["long " * 50, *(str(number) for number in range(9))]
    words = dict(_planned(build_grid(prompts, varied={"model": SMALL})))

    assert words["prompt"] == (
        "`long long long long long long long lo...`, `0`, `1`, `2`, `3`, `4` and 4 more"
    )


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["ok", "ok", "ok"], "3 requests: 3 ok."),
        (["ok", "error", "not_run"], "3 requests: 1 ok, 1 failed, 1 not run."),
        (["cancelled"] * 3, "3 requests: 0 ok, 3 interrupted."),
    ],
)
def test_says_what_became_of_them(statuses: list[str], expected: str) -> None:
    """After a run the first line counts its outcomes."""
    grid = build_grid("p", varied={"model": SMALL}, repeats=3)

    assert headline(grid, Counter(statuses), is_begun=True) == expected


def test_one_is_one_request() -> None:
    """One request is not called several."""
    grid = build_grid("p", varied={"model": SMALL})

    assert headline(grid, {}, is_begun=False) == "1 request planned, nothing sent yet."


@pytest.mark.parametrize(
    ("model", "n_requests", "expected"),
    [
        (SMALL, 5, []),
        (SMALL, 6, ["about 1 s until", "per-second limit of svc-v2-8b-instruct"]),
        (SMALL, 50, ["about 10 s until", "per-second limit of svc-v2-8b-instruct"]),
        (SMALL, 51, ["about 60 s until", "per-minute limit of svc-v2-8b-instruct"]),
        (
            SMALL,
            200,
            ["about 3 min 10 s until", "per-minute limit of svc-v2-8b-instruct"],
        ),
        ("svc-v1.5-instruct", 150, ["about 8 s until", "per-second limit"]),
        ("svc-instruct", 1000, ["unknown for svc-instruct"]),
    ],
)
def test_knows_what_the_limits_make_of_it(
    model: str, n_requests: int, expected: list[str]
) -> None:
    """The documented limits say when the last goes; no limit is invented."""
    grid = build_grid("p", varied={"model": model}, repeats=n_requests)

    [line] = duration_lines(forecast(grid.n_by_model)) or [""]

    assert [each for each in expected if each not in line] == []
    assert bool(line) is bool(expected)


@pytest.mark.parametrize(
    ("n_held", "n_requests", "expected_s"),
    [(0, 30, 5.0), (15, 30, 5.0), (43, 7, 1.0), (43, 30, 34.1), (50, 200, 221.0)],
)
def test_what_the_windows_hold_comes_first(
    n_held: int, n_requests: int, expected_s: float
) -> None:
    """Requests of the last minute take their places in the limit."""
    limit = limit_of(SMALL)
    assert limit is not None
    held_s = [-30.0 + last_sent_s(n + 1, limit) for n in range(n_held)]

    [found] = forecast({SMALL: n_requests}, Speed(held_of=lambda _: held_s))

    assert found.last_sent_s == pytest.approx(expected_s, abs=1.0)


def test_a_plan_counts_what_was_just_asked(session: Session) -> None:
    """What this kernel sent in the last minute delays a plan, as its limiter knows."""
    before = repr(plan(session, "p", repeats=30))
    limiter = RequestPath(session.settings, key=session.key()).limiter(SMALL)
    for _ in range(43):
        limiter.reserve()

    after = repr(plan(session, "p", repeats=30))

    assert "about 5 s until the last request is sent" in before
    assert "per-minute limit of svc-v2-8b-instruct" in " ".join(after.split())


OpenSession = Callable[[Emulator], Session]
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
    """A plan shows requests, tokens, cost, duration with its limit, and warnings."""
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
            "  tokens       about 1,889 in prompts (estimated: 1,531 to 2,582), "
            "0 to 30,000"
        ),
        "               in replies (by max_tokens)",
        "  cost         0.001528 to 0.06258 USD, by your prices (mine, 2026-01-31)",
        "  time         about 70 s until the last request is sent, because of the",
        "               per-minute limit of svc-v2-8b-instruct",
        (
            "  note         max_tokens is not set: the service's default of 150 "
            "applies and"
        ),
        "               cuts longer replies",
        "  note         in replies_df(), text is var_text",
        ".run() sends what is missing",
    ]


@pytest.mark.slow
def test_a_running_run_is_described_briefly(open_session: OpenSession) -> None:
    """While it is running, a run shows its progress and what can be done."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as emulator:
        run = plan(open_session(emulator), list("abcd"), model=SMALL)
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


def test_a_plan_names_columns_that_are_there_twice(session: Session) -> None:
    """A plan says under which name the second one is kept."""
    rows = pd.DataFrame([["a", "b", "c"]], columns=["x", "x", "y"])

    run = plan(session, "T {{y}}", rows=rows)

    assert "1 (x, var_x, y), the second x as var_x" in str(run)


def test_a_plan_is_as_wide_as_frames_are_printed(session: Session) -> None:
    """Every line fits where pandas prints narrow frames, but has room for its words."""
    run = plan(session, "Hi", model=[SMALL, LARGE], varied={"temperature": [0, 0.7]})

    with pd.option_context("display.width", 60):
        lines = str(run).splitlines()

    assert max(map(len, lines)) <= 60
    assert any(line.startswith(" " * 15) for line in lines)


def test_html_has_every_line_of_the_text(session: Session) -> None:
    """The HTML has every line of the text, as a list."""
    run = plan(session, "Hi", model=[SMALL, LARGE], prices=PRICES, name="a<b>*c*")

    bundle = run._repr_mimebundle_()

    found = re.findall(r"^  (\w+) ", bundle["text/plain"], re.MULTILINE)
    labels = list(dict.fromkeys(found))
    assert labels == ["prompt", "model", "tokens", "cost", "note"]
    assert all(f"<li>{label}: " in bundle["text/html"] for label in labels)
    assert "a<b>" not in bundle["text/html"]
    assert "&lt;b&gt;*c*" in bundle["text/html"]


def test_reasons_are_printed_if_all_requests_failed(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without any reply ends with one line for each error, counted."""
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
    assert said[3] == "Fix this in a new plan."
    assert " ".join(said[1].split()) in " ".join(str(run).split())


def test_where_some_were_answered_nothing_is_printed(
    open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some failures among answers are shown with the run, and not printed."""
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
    """The cell that printed the reasons does not show them again; a later one does."""
    refused = {"status": 400, "error": {"message": "No."}, "times": None}
    with _scripted(refused) as emulator:
        run = plan(open_session(emulator), ["a", "b"]).run()

    shown = run._repr_mimebundle_()["text/plain"]
    shell.execution_count += 1
    later = run._repr_mimebundle_()["text/plain"]
    assert ("  failed  " in shown, "  failed  " in later) == (False, True)
    assert "2 failed" in shown


def test_a_cell_that_said_what_was_cut_shows_what_failed(
    open_session: OpenSession,
    shell: InteractiveShell,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The note on cut replies is not shown twice; the reasons were not printed."""
    refused = {"status": 400, "error": {"message": "No."}, "when": {"contains": "b"}}
    with _scripted(refused) as emulator:
        run = plan(open_session(emulator), ["a", "b"], varied={"max_tokens": 1}).run()

    shown = run._repr_mimebundle_()["text/plain"]
    assert shell.execution_count == 1
    assert capsys.readouterr().err.startswith("1 of 1 replies was cut.")
    assert "  failed      1 x BadRequestError (400): " in shown
    assert "  cut  " not in shown


MODEL = "svc-v1.5-instruct"


def test_estimates_of_a_run_that_is_begun_say_what_they_are_of(
    session: Session,
) -> None:
    """Tokens are those of the whole plan, the duration that of what is missing."""
    varied = {"temperature": [0, 1], "max_tokens": 3}
    plan(session, "a", model=MODEL, name="r", varied={**varied, "n": 1}).run()

    larger = plan(
        session, "a", model=MODEL, name="r", repeats=2, varied={**varied, "n": 1}
    )

    assert "(by max_tokens), for all 4 requests" in " ".join(repr(larger).split())
    assert "for all" not in repr(plan(session, "a", varied={"max_tokens": 3}))


def test_numbers_that_differ_are_written_as_people_do(session: Session) -> None:
    """An integer has no decimal point, even if it was given as a float."""
    plan(
        session, "a", model=MODEL, name="r", varied={"max_tokens": 3, "top_p": 1.0}
    ).run()

    with pytest.raises(ParameterError) as caught:
        plan(session, "a", model=MODEL, name="r", varied={"max_tokens": 4, "top_p": 1})

    assert "max_tokens 3." in str(caught.value)
    assert "3.0" not in str(caught.value)
    assert "top_p" not in str(caught.value)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _queue(
    n_trials: int,
    outcomes: list[Outcome],
    *,
    model: str = SMALL,
    took_s: float = 0.0,
) -> ModelQueue:
    grid = build_grid("p", varied={"model": model}, repeats=n_trials)
    pull: Iterator[Trial] = iter(grid)
    queue = ModelQueue(model, Trials(pull=pull, n_trials=n_trials))
    queue.limiter = RateLimits(clock=lambda: 0.0).of(model)
    for outcome in outcomes:
        queue.pull()
        queue.end(queue.take(0.0), outcome, took_s)
    return queue


def _note(queue: ModelQueue, *, now_s: float = 0.0, state: str = "") -> str:
    [part] = progress_of([queue], now_s=now_s, now_at=NOON, state=state)
    return part.note


def test_says_which_limits_were_found() -> None:
    """A model without known limits has what its 429s and replies have shown."""
    queue = _queue(20, [], model="svc-instruct")
    limits = RateLimits(clock=lambda: now_s)
    now_s, queue.limiter = 0.0, limits.of("svc-instruct")
    before = _note(queue)
    slots = [queue.limiter.reserve() for _ in range(8)]
    for slot in slots:
        queue.limiter.try_pass(slot)
        queue.limiter.sent(slot)
    now_s = 0.1
    for slot in slots:
        queue.limiter.answered(slot)
    level = _note(queue)
    slot = queue.limiter.reserve()
    queue.limiter.try_pass(slot)
    queue.limiter.sent(slot)
    queue.limiter.refused(slot, retry_after_s=None)
    now_s = 1.5
    queue.limiter.due()

    assert before == "0 tokens"
    assert level == "0 tokens · found: 8 at once"
    assert _note(queue) == "0 tokens · found: 8 a second, 8 at once"


def test_says_tokens_failures_and_the_computed_end() -> None:
    """A line has tokens so far, failures, and when the last reply is expected."""
    outcomes: list[Outcome] = [
        Answered(n_tokens=1500),
        Failed(error=BadRequestError("no")),
    ]
    [part] = progress_of([_queue(101, outcomes)], now_s=0.0, now_at=NOON)

    assert (part.n_done, part.n_total, part.is_bad) == (2, 101, True)
    assert part.note == "1 failed · 1,500 tokens · ends about 12:02:00"


def test_a_model_with_nothing_to_ask_has_no_bar() -> None:
    """What is sent again may be of one model only; the others are not drawn."""
    done = ModelQueue(SMALL, Trials(pull=iter(()), n_trials=0))

    assert progress_of([done], now_s=0.0, now_at=NOON) == ()


def test_says_what_it_waits_for() -> None:
    """A wait of some length is named with its reason."""
    queue = _queue(60, [Answered()])
    queue.waits_for = Waiting(12.0, "minute limit of m")

    assert "waits 12 s: minute limit of m" in _note(queue)


def test_an_end_that_is_late_moves() -> None:
    """What was lost to a pause is not made up for: as long is left after a minute."""
    queue = _queue(101, [Answered()])

    assert "12:02:00" in _note(queue, now_s=0.0)
    assert "12:02:00" in _note(queue, now_s=60.0)


def test_says_pauses_and_ends() -> None:
    """The note of a model says that it is paused, stopped, complete or given up."""
    failures: list[Outcome] = [
        Failed(error=ServerFaultError("gone"), is_of_service=True)
    ] * FAILURES_IN_A_ROW

    assert _note(_queue(3, []), state="paused") == "0 tokens · paused"
    assert _note(_queue(3, []), state="stopped") == "0 tokens · stopped"
    assert _note(_queue(1, [Answered(n_tokens=7)])) == "7 tokens"
    assert _note(_queue(50, failures)) == (
        "10 failed · 0 tokens · stopped: ServerFaultError"
    )


def test_a_model_without_a_documented_limit_has_an_end() -> None:
    """Of 99 trials 98 are left, 8 at a time, 10 s each: thirteen rounds."""
    queue = _queue(99, [Answered()], model="svc-instruct", took_s=10.0)

    assert _note(queue, now_s=10.0) == "0 tokens · ends about 12:02:10"


def test_no_end_is_announced_before_the_first_reply() -> None:
    """How long replies take is not known before."""
    assert _note(_queue(99, [])) == "0 tokens"
