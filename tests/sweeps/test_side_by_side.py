"""A small run shown while it comes."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from svc_notebook.display.front_end import Output
from svc_notebook.display.html_styles import card_html
from svc_notebook.display.reply_display import Mode
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import Interrupted, SvcError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import Run, plan_run
from svc_notebook.sweeps.side_by_side import MAX_CARDS, run_side_by_side

pytestmark = pytest.mark.slow

MODELS = ["svc-instruct", "svc-v2.1-12b-instruct"]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose replies come in three pieces, a moment apart."""
    slow: dict[str, Any] = {
        "text": ["**one** ", "<b>two</b> ", "three"],
        "gap_s": 0.05,
        "times": None,
    }
    with Emulator(first_token_s=0, limits=False, script=[slow]) as running:
        yield running


class _Seen:
    """A screen that remembers what was shown on it."""

    def __init__(self) -> None:
        self.published: list[tuple[dict[str, str], str | None]] = []
        self.updated: list[dict[str, str]] = []
        self.written: list[str] = []

    @property
    def output(self) -> Output:
        return Output(
            publish=lambda bundle, name: self.published.append((dict(bundle), name)),
            update=lambda bundle, _: self.updated.append(dict(bundle)),
            write=self.written.append,
        )


def _clock() -> Callable[[], float]:
    """Return a clock by which every piece is worth a drawing."""
    return partial(next, count(0.0))


def _plan(session: Session, **given: Any) -> Run:  # noqa: ANN401 - as plan
    return plan_run(session, "p", model=MODELS, raw=True, origin="magic", **given)


@pytest.mark.slow
def test_grows_in_one_output_and_ends_rendered(session: Session) -> None:
    """Live, one output is updated; growing text is Markdown, and marked as such."""
    seen = _Seen()

    run = run_side_by_side(
        _plan(session), mode=Mode.LIVE, output=seen.output, clock=_clock()
    )

    assert len(seen.published) == 1
    growing = [each["text/html"] for each in seen.updated[:-1]]
    begun = "<strong>one</strong>"
    assert any(begun in html and "three" not in html for html in growing)
    assert all("still being written" in html for html in growing if begun in html)
    assert all("<b>two" not in html for html in growing)
    last = seen.updated[-1]
    assert last["text/html"].count("<strong>one</strong>") == 2
    assert all(model in last["text/plain"] for model in MODELS)
    assert run.replies_df()["is_streamed"].tolist() == [True, True]
    assert run.replies_df()["origin"].tolist() == ["magic", "magic"]


@pytest.mark.slow
def test_a_terminal_gets_text(session: Session) -> None:
    """In a terminal the replies are printed one below the other."""
    seen = _Seen()

    run_side_by_side(_plan(session), mode=Mode.PLAIN, output=seen.output)

    [text] = seen.written
    assert text.count("**one** <b>two</b> three") == 2
    assert f"--- {MODELS[0]}" in text


def test_a_terminal_shows_how_far_they_are(session: Session) -> None:
    """One line is replaced until the replies are printed, which removes it."""
    seen = _Seen()
    output = replace(seen.output, columns=lambda: 80)

    run_side_by_side(_plan(session), mode=Mode.PLAIN, output=output, clock=_clock())

    *lines, erased, text = seen.written
    assert lines[0].startswith("\r0 of 2 replies")
    assert all(line.startswith("\r") and "\n" not in line for line in lines)
    assert "characters so far" in lines[-1]
    assert erased.strip() == ""
    assert text.startswith("--- ")


@pytest.mark.slow
def test_cards_say_what_differs(session: Session) -> None:
    """A card is headed by what varies, and by its repetition if there are more."""
    seen = _Seen()
    run = _plan(session, temperature=[0, None], repeats=2)

    run_side_by_side(run, mode=Mode.PLAIN, output=seen.output)

    lines = seen.written[0].splitlines()
    heads = [line for line in lines if line.startswith("---")]
    assert heads[:3] == [
        "--- temperature 0 · 1 of 2",
        "--- temperature 0 · 2 of 2",
        "--- temperature not sent · 1 of 2",
    ]
    named = [line for line in lines if MODELS[0] in line]
    assert len(named) == 1  # above its replies, as the row of a grid
    assert lines.index(named[0]) < lines.index(heads[0])


def test_too_many_are_not_streamed(session: Session) -> None:
    """More than a screen can show are asked whole, and the rest is counted."""
    seen = _Seen()
    run = _plan(session, repeats=MAX_CARDS)

    run_side_by_side(run, mode=Mode.SETTLED, output=seen.output)

    assert f"{MAX_CARDS} more are in the frame" in seen.published[0][0]["text/plain"]
    assert run.replies_df()["is_streamed"].tolist() == [False] * 2 * MAX_CARDS


def _refusing(**when: Any) -> Emulator:  # noqa: ANN401 - as a script's entry
    entry = {"status": 400, "error": {"message": "No."}, "times": None, **when}
    return Emulator(limits=False, tokens_per_s=None, first_token_s=0, script=[entry])


def test_fails_where_nothing_was_answered(
    open_session: Callable[[Emulator], Session],
) -> None:
    """If every request failed the cards say why, and the trial fails like any other."""
    seen = _Seen()
    with _refusing() as emulator:
        run = _plan(open_session(emulator))
        with pytest.raises(SvcError) as caught:
            run_side_by_side(run, mode=Mode.SETTLED, output=seen.output)

    assert str(caught.value) == (
        "None of the 2 requests was answered; the reasons are above."
    )
    assert seen.published[0][0]["text/plain"].count("BadRequestError") == 2


def test_goes_on_where_something_was_answered(
    open_session: Callable[[Emulator], Session],
) -> None:
    """A failure among answers is a card, and no failure of the trial."""
    with _refusing(when={"contains": "b"}) as emulator:
        run = plan_run(open_session(emulator), ["a", "b"], raw=True, origin="magic")

        seen = _Seen()
        run_side_by_side(run, mode=Mode.SETTLED, output=seen.output)

    assert run.replies_df()["status"].tolist() == ["ok", "error"]
    shown = seen.published[0][0]["text/plain"]
    assert "[failed]" in shown
    assert shown.endswith("1 of 2 requests failed")


def test_an_interrupt_shows_and_keeps_what_arrived(session: Session) -> None:
    """The cards end as the ledger has them, and the error is one line."""
    seen = _Seen()
    is_stopped = threading.Event()

    def update(bundle: Mapping[str, str], _: str) -> None:
        seen.updated.append(dict(bundle))
        if "one" in bundle["text/plain"] and not is_stopped.is_set():
            is_stopped.set()
            signal.raise_signal(signal.SIGINT)

    output = Output(publish=lambda *_: None, update=update)
    run = _plan(session)
    with pytest.raises(Interrupted, match="what arrived is kept"):
        run_side_by_side(run, mode=Mode.LIVE, output=output, clock=_clock())

    assert "one" in seen.updated[-1]["text/plain"]
    assert not run.is_running


def test_an_interrupt_ends_streamed_replies_at_once(
    open_session: Callable[[Emulator], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of them is received; the part that was shown is kept."""
    monkeypatch.setattr("svc_notebook.sweeps.execution.DRAIN_S", 60.0)
    halting: dict[str, Any] = {"text": ["one ", "two"], "gap_s": 5, "times": None}
    is_stopped = threading.Event()

    def show(bundle: Mapping[str, str], _: str | None) -> None:
        n_begun = bundle["text/plain"].count("one")
        if n_begun == len(MODELS) and not is_stopped.is_set():
            is_stopped.set()
            signal.raise_signal(signal.SIGINT)

    output = Output(publish=show, update=show)
    with Emulator(first_token_s=0, limits=False, script=[halting]) as emulator:
        run = _plan(open_session(emulator))
        with pytest.raises(Interrupted):
            run_side_by_side(run, mode=Mode.LIVE, output=output, clock=_clock())
        assert emulator.wait_idle()
        ended = [request.ended for request in emulator.requests]

    assert ended == ["client_left"] * len(MODELS)
    replies = run.replies_df()
    assert replies["status"].tolist() == ["cancelled"] * len(MODELS)
    assert replies["text"].tolist() == ["one "] * len(MODELS)
    assert repr(run).endswith(".run() sends them · .replies_df() has what arrived")


def test_a_long_name_of_a_model_breaks_after_a_hyphen() -> None:
    """In a narrow card, browsers would break it after any letter."""
    assert "svc-<wbr>v2.1-<wbr>12b-<wbr>instruct" in card_html(
        "svc-v2.1-12b-instruct", ""
    )
