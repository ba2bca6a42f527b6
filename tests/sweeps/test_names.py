"""Named runs: resumed, extended, refused; and who asks before a large one."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import ParameterError, SettingsError
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import plan

OpenSession = Callable[[Emulator], Session]

SMALL = "svc-v2-8b-instruct"
LARGE = "svc-v2-70b-instruct"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without rate limits."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


def test_the_same_name_goes_on_after_a_restart(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """Planned again in another kernel, a finished run is finished; nothing is sent."""
    rows = pd.DataFrame({"text": ["a", "b"], "label": [1, 2]})
    given: dict[str, Any] = {"rows": rows, "name": "spam", "repeats": 2}
    before = plan(open_session(emulator), "{{text}}", **given).run()

    after = plan(open_session(emulator), "{{text}}", **given)

    assert repr(after).startswith("Run spam: 4 requests: 4 ok.\n")
    assert after.run().replies_df().equals(before.replies_df())
    assert after.seed == before.seed
    assert len(emulator.requests) == 4


def test_a_larger_grid_extends_it(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """More rows, models, values or repeats: only what is new is asked."""
    plan(open_session(emulator), "{{text}}", rows=["a"], name="n").run()

    larger = plan(
        open_session(emulator),
        "{{text}}",
        rows=["a", "b"],
        model=[SMALL, LARGE],
        name="n",
        repeats=2,
    )

    assert larger.n_todo == 7
    assert larger.run().replies_df()["status"].tolist() == ["ok"] * 8
    assert len(emulator.requests) == 8


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"varied": {"temperature": 0.5}}, "temperature 0."),
        ({"model": LARGE}, "model 'svc-v2-8b-instruct'"),
        ({"repeats": 1}, "repeat 1"),
        ({"prompt": "Hi {{text}}"}, "prompt 'a'"),
        ({"rows": ["b"]}, "prompt 'a'"),
        ({"system": "Be brief."}, "system not sent"),
    ],
)
def test_another_grid_of_the_same_name_is_refused(
    session: Session, emulator: Emulator, changed: dict[str, Any], said: str
) -> None:
    """What was asked and is not in the grid is named, and nothing is sent."""
    given: dict[str, Any] = {
        "prompt": "{{text}}",
        "rows": ["a"],
        "repeats": 2,
        "varied": {"temperature": 0},
    }
    plan(session, **given, name="n").run()
    n_before = len(emulator.requests)

    with pytest.raises(ParameterError) as caught:
        plan(session, **{**given, **changed}, name="n")

    assert said in str(caught.value)
    assert "Give another name" in str(caught.value)
    assert len(emulator.requests) == n_before


def test_runs_of_other_names_are_never_mixed(
    session: Session, emulator: Emulator
) -> None:
    """Two runs of one grid have replies of their own."""
    one = plan(session, "p", name="one").run()
    other = plan(session, "p", name="other").run()

    assert len(emulator.requests) == 2
    assert set(one.replies_df()["exchange_id"]).isdisjoint(
        other.replies_df()["exchange_id"]
    )


def test_a_named_run_is_not_continued_elsewhere(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """A run begun at one address is refused at another, also after a restart."""
    plan(open_session(emulator), ["a"], name="n").run()
    with Emulator(tokens_per_s=None, first_token_s=0) as other:
        again = plan(open_session(other), ["a", "b"], name="n")

        with pytest.raises(SettingsError, match="mix the replies"):
            again.run()

        assert len(other.requests) == 0


def test_an_emulators_run_goes_on_at_the_next_emulator(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """An emulator's address changes with each kernel; its runs go on all the same."""
    first = open_session(emulator)
    first.use_emulator()
    plan(first, ["a"], name="n").run()
    first.close()
    second = open_session(emulator)
    second.use_emulator()

    frame = plan(second, ["a", "b"], name="n").run().replies_df()

    assert frame["status"].tolist() == ["ok", "ok"]
    assert frame["endpoint"].nunique() == 2


@pytest.mark.parametrize("name", ["", " ", 5])
def test_refuses_what_is_no_name(session: Session, name: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """A name is a text with something in it."""
    with pytest.raises(ParameterError, match="must be a text"):
        plan(session, "p", name=name)


@pytest.mark.parametrize("seed", ["7", 1.5, True])
def test_refuses_what_is_no_seed(session: Session, seed: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """A seed is an integer."""
    with pytest.raises(ParameterError, match="must be an integer"):
        plan(session, "p", seed=seed)


def test_a_plan_without_a_name_opens_no_ledger(session: Session) -> None:
    """Only a name is looked up."""
    plan(session, "p")

    assert not Path(session.settings.ledger).exists()


@pytest.mark.parametrize(("answer", "n_sent"), [("y\n", 3), ("n\n", 0), ("\n", 0)])
def test_asks_before_a_large_run(
    session: Session,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    n_sent: int,
) -> None:
    """Above so many requests nothing is sent without a yes."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))

    plan(session, ["a", "b", "c"], confirm_above=2).run()

    assert len(emulator.requests) == n_sent


def test_a_small_run_asks_nobody(session: Session, emulator: Emulator) -> None:
    """Up to so many requests nobody is asked."""
    plan(session, ["a", "b"], confirm_above=2).run()

    assert len(emulator.requests) == 2


def test_where_nobody_can_answer_nothing_is_sent(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without anybody to ask, a large run is refused."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    with pytest.raises(ParameterError, match="Nobody can answer"):
        plan(session, ["a", "b", "c"], confirm_above=2).run()

    assert len(emulator.requests) == 0


@pytest.mark.parametrize("confirm_above", [-1, True, "many", 1.5])
def test_refuses_what_is_no_number_of_requests(
    session: Session,
    confirm_above: Any,  # noqa: ANN401 - wrong on purpose
) -> None:
    """The threshold is a count, or None."""
    with pytest.raises(ParameterError, match="confirm_above"):
        plan(session, "p", confirm_above=confirm_above)
