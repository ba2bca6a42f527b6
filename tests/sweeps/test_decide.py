"""A run that decides: sent in blocks, looked at after each, ended when it is clear."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import Interrupted, ParameterError
from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.sweeps.decide import blocks_of
from svc_notebook.sweeps.run import plan_run
from svc_notebook.sweeps.stored_runs import stored_run
from tests.sweeps.conftest import LARGE, SMALL, answering

pytestmark = pytest.mark.slow

OpenSession = Callable[[Emulator], Session]
TINY = "svc-v2.5-30b-a3b-instruct"
RIGHT = svc.scores.exact("label")
N_ROWS = 300
PRICES = """
as_of = 2026-01-31
currency = "USD"
[models."svc-instruct"]
prompt = 0.1
completion = 0.1
[models."svc-v2.1-12b-instruct"]
prompt = 0.7
completion = 0.7
"""


def rows_of(n_rows: int = N_ROWS) -> pd.DataFrame:
    """Return messages, of which each fourth is hard and each seventh is odd."""
    kinds = [
        " ".join(["hard"] * (n % 4 == 0) + ["odd"] * (n % 7 == 0) + ["one"])
        for n in range(n_rows)
    ]
    texts = [f"{kind} {n}" for n, kind in enumerate(kinds)]
    return pd.DataFrame({"text": texts, "label": "yes", "page": range(n_rows)})


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose small model fails on hard messages, its tiny one on most."""
    with answering(
        {"when": {"contains": "hard", "model": SMALL}, "text": "no"},
        {"when": {"contains": "one", "model": TINY}, "text": "no"},
        {"text": "yes"},
    ) as running:
        yield running


@pytest.fixture
def priced(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """Return a session with a price table; the large model is seven times as dear."""
    file = tmp_path / "prices.toml"
    file.write_text(PRICES, "utf-8")
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    session = Session(
        Settings(
            base_url=emulator.base_url,
            ledger=str(tmp_path / "ledger.sqlite"),
            prices=str(file),
        )
    )
    yield session
    session.close()


def swept(session: Session, **how: Any) -> svc.Run:  # noqa: ANN401 - any arguments
    """Plan a run of a small model and a large one."""
    arguments: dict[str, Any] = {
        "rows": rows_of(),
        "model": {"small": SMALL, "large": LARGE},
        "scores": {"right": RIGHT},
        "name": "tea-shop",
        "seed": 5,
        **how,
    }
    return plan_run(session, "Is it? {{text}}", **arguments)


def asked(emulator: Emulator) -> Counter[tuple[str, str]]:
    """Return how often each model was asked each message."""
    return Counter(
        (request.json["model"], request.json["messages"][-1]["content"])
        for request in emulator.requests
    )


def test_it_ends_when_one_is_clearly_better(
    session: Session, emulator: Emulator
) -> None:
    """The large model is 25 points better, which a part of the rows shows."""
    decision = swept(session).decide("model", "right", margin=0.03)

    assert decision.value == "large"
    assert decision.says.startswith("Use large. It is better than small by ")
    assert decision.says.endswith(" requests of 600; asked until this was clear.")
    assert decision.n_requests == len(emulator.requests) < 300
    assert decision.is_planned
    assert list(decision.df) == [
        *("n_requests", "n_units", "value", "other", "difference", "low", "high")
    ]
    assert decision.df["low"].iloc[-1] > 0 >= decision.df["low"].iloc[-2]


def test_a_cheaper_model_is_enough(priced: Session) -> None:
    """Two models that are equal: the cheaper one is used, and it is said why."""
    rows = rows_of().assign(text=[f"easy {n}" for n in range(N_ROWS)])

    decision = swept(priced, rows=rows).decide("model", margin=0.05)

    assert decision.value == "small"
    assert "It is at most 5 points worse than large (-" in decision.says
    assert "and costs 86 % less" in decision.says
    assert decision.left == ["small", "large"]
    assert decision.notes == [
        "An emulator answered; costs are what its replies would have cost."
    ]


def test_a_budget_ends_it_and_a_larger_one_goes_on(
    session: Session, emulator: Emulator
) -> None:
    """It cannot tell yet, says how many would, and sends nothing twice."""
    run = swept(session)

    decision = run.decide("model", margin=0.03, max_requests=34)
    assert decision.value is None
    assert decision.says.startswith("Cannot tell within 34 requests: large leads with")
    assert " in all would tell; to find 3 points, the margin, " in decision.says
    assert decision.says.endswith(" requests). 34 requests of 600 were sent.")
    assert decision.left == ["small", "large"]
    assert len(emulator.requests) == 34

    decision = run.decide("model", margin=0.03)
    assert decision.value == "large"
    assert decision.is_planned
    assert set(asked(emulator).values()) == {1}


def test_rows_that_do_not_tell_are_used_up(session: Session) -> None:
    """Without a margin, equal models are never decided about."""
    rows = rows_of(20).assign(text=[f"easy {n}" for n in range(20)])

    decision = swept(session, rows=rows).decide("model")

    assert decision.says.startswith("Cannot tell with all rows: ")
    assert "more rows like these would not be enough" in decision.says
    assert decision.n_requests == decision.n_possible == 40


def test_a_cost_ends_it(priced: Session) -> None:
    """No block is sent whose cost would be more than what is left."""
    decision = swept(priced).decide("model", margin=0.03, max_cost=0.0002)

    assert "Cannot tell within a cost of 0.0002" in decision.says
    assert 0 < decision.cost <= 0.0002


def test_a_cost_limit_needs_the_price_of_each_model(
    priced: Session, emulator: Emulator
) -> None:
    """A model without a price would always be within the limit."""
    models = {"small": SMALL, "tiny": TINY}
    said = (
        f"No price is known for {TINY}, so max_cost cannot be kept. Add it to the "
        r"price table \(prices.toml\) and plan the sweep again. Nothing was sent."
    )

    with pytest.raises(ParameterError, match=said):
        swept(priced, model=models).decide("model", margin=0.03, max_cost=1.0)

    assert not emulator.requests


def test_a_model_without_a_price_is_not_the_cheaper_one(priced: Session) -> None:
    """Of equal models, one with a known price is used, and a note says why."""
    models = {"tiny": TINY, "large": LARGE, "small": SMALL}
    rows = rows_of().assign(text=[f"easy {n}" for n in range(N_ROWS)])

    decision = swept(priced, rows=rows, model=models).decide("model", margin=0.05)

    assert decision.value == "small"
    assert decision.cost != decision.cost  # not known
    assert (
        f"No price is known for {TINY}, so the cost of the run is unknown. Add it to "
        "the price table (prices.toml) and plan the sweep again."
    ) in decision.notes


def test_it_answers_again_without_sending(
    emulator: Emulator, open_session: OpenSession
) -> None:
    """A decision is made again from the ledger, by the same run or a rebuilt one."""
    session = open_session(emulator)
    first = swept(session).decide("model", "right", margin=0.03)
    n_sent = len(emulator.requests)

    again = swept(session).decide("model", "right", margin=0.03)
    rebuilt = stored_run(open_session(emulator), "tea-shop")

    assert again.says == first.says
    pd.testing.assert_frame_equal(again.df, first.df)
    assert rebuilt.decide("model", "right", margin=0.03).says == first.says
    assert len(emulator.requests) == n_sent


def test_a_beaten_value_is_no_longer_asked(
    session: Session, emulator: Emulator
) -> None:
    """Of three, one drops out early, and the others go on."""
    models = {"small": SMALL, "large": LARGE, "tiny": TINY}

    decision = swept(session, model=models).decide("model")

    n_by_model = Counter(model for model, _ in asked(emulator).elements())
    assert n_by_model[TINY] < n_by_model[SMALL] == n_by_model[LARGE]
    assert decision.value == "large"
    assert "It is better than all others; than small, which comes next, by" in (
        decision.says
    )
    assert any(note.startswith("tiny was clearly worse") for note in decision.notes)


def test_values_that_are_left_are_named_as_a_set(session: Session) -> None:
    """Two equal models and a bad one end with the two, tied."""
    models = {"a": LARGE, "b": SMALL, "tiny": TINY}
    rows = rows_of(60).assign(text=[f"one odd {n}" for n in range(60)])

    decision = swept(session, rows=rows, model=models).decide("model")

    assert decision.value is None
    assert decision.left == ["a", "b"]
    assert "a has 100 %; b cannot be told from it (a minus b is" in decision.says


def test_several_factors_are_decided_about_together(
    session: Session, emulator: Emulator
) -> None:
    """Each combination is a value; those that are beaten drop out, the rest is tied."""
    prompts = {"short": "Is it? {{text}}", "long": "Tell me, is it? {{text}}"}
    run = plan_run(
        session,
        prompts,
        rows=rows_of(120).assign(text=[f"one {n}" for n in range(120)]),
        scores={"right": RIGHT},
        seed=5,
        model={"small": SMALL, "tiny": TINY},
        name="two",
    )

    decision = run.decide(["model", "prompt"])

    assert decision.value is None
    assert decision.left == ["small/short", "small/long"]
    assert "small/short has 100 %; small/long cannot be told from it" in decision.says
    assert any(" was clearly worse after " in note for note in decision.notes)
    n_by_model = Counter(model for model, _ in asked(emulator).elements())
    assert n_by_model[TINY] < n_by_model[SMALL] == 240
    assert run.manifest["decision"]["factor"] == "model and prompt"


def test_it_is_awaited_on_a_thread(session: Session) -> None:
    """The event loop stays free, and the decision is the same."""

    async def decide() -> tuple[svc.Decision, int]:
        task = asyncio.create_task(
            asyncio.to_thread(swept(session).decide, "model", margin=0.03)
        )
        n_turns = 0
        while not task.done():
            n_turns += 1
            await asyncio.sleep(0)
        return await task, n_turns

    decision, n_turns = asyncio.run(decide())

    assert decision.value == "large"
    assert n_turns > 1


def test_what_was_fixed_is_in_the_manifest(session: Session) -> None:
    """With a digest of all of it; what is changed afterwards is said."""
    run = swept(session)
    run.decide("model", margin=0.03, max_requests=40)

    fixed = run.manifest["decision"]
    assert (fixed["factor"], fixed["on"], fixed["margin"]) == ("model", "right", 0.03)
    assert (fixed["max_requests"], fixed["looks"], fixed["n_before"]) == (40, "any", 0)
    assert len(fixed["digest"]) == 16
    assert list(fixed["scores"]) == ["right"]

    changed = swept(session, rows=rows_of(310)).decide("model", margin=0.1)

    assert not changed.is_planned
    [note] = changed.notes
    assert note.startswith("Not as planned: since the first request")
    assert "margin (it was 0.03), the rows, prompts or values of the run" in note


def test_the_plan_of_a_decision_outlives_other_passes(
    emulator: Emulator, open_session: OpenSession
) -> None:
    """A later `run()` of the same name keeps what was fixed."""
    swept(open_session(emulator)).decide("model", margin=0.03, max_requests=40)

    run = swept(open_session(emulator)).run()

    assert not run.decide("model", margin=0.1).is_planned
    rebuilt = stored_run(open_session(emulator), "tea-shop")
    assert rebuilt.decide("model", margin=0.03).is_planned


def test_a_run_that_was_looked_at_is_not_planned(session: Session) -> None:
    """Replies that were there before may have led to the question."""
    run = swept(session).run(first=20)

    decision = run.decide("model", margin=0.03)

    assert not decision.is_planned
    assert decision.notes[0].startswith("Not planned: the run had 20 replies before")


def test_an_interrupted_decision_goes_on(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same in the end, and no row is sent twice."""
    monkeypatch.setattr("svc_notebook.sweeps.run_scores.GATHER_S", 0.0)
    is_stopped = iter([True])

    def stop_once(row: Any) -> bool:  # noqa: ANN401 - a row
        if len(emulator.requests) > 40 and next(is_stopped, False):
            signal.raise_signal(signal.SIGINT)
        return bool(row.text == row.label)

    run = swept(session, scores={"right": stop_once})
    with pytest.raises(Interrupted):
        run.decide("model", margin=0.03)
    assert emulator.requests

    decision = run.decide("model", margin=0.03)

    assert max(asked(emulator).values()) == 1
    alone = swept(session, name="alone").decide("model", margin=0.03)
    assert decision.says == alone.says


def test_rows_of_a_unit_come_together(session: Session, emulator: Emulator) -> None:
    """A page of ten rows is in one block, and the intervals are over pages."""
    rows = rows_of(200).assign(page=lambda rows: rows["page"] // 10)

    decision = swept(session, rows=rows).decide(
        "model", margin=0.03, unit="page", max_requests=100
    )

    numbers = {int(text.split()[-1]) for _, text in asked(emulator)}
    assert Counter(number // 10 for number in numbers).most_common()[-1][1] == 10
    assert decision.df["n_units"].iloc[-1] == len(numbers) / 10


def test_the_user_is_asked_once(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all that may be sent; who declines has sent nothing."""
    questions: list[str] = []

    def decline(question: str) -> str:
        questions.append(question)
        return "n" if len(questions) == 1 else "y"

    monkeypatch.setattr("builtins.input", decline)
    run = swept(session, confirm_above=10)
    with pytest.raises(Interrupted, match="nothing was sent"):
        run.decide("model", margin=0.03, max_requests=200)
    assert not emulator.requests

    run.decide("model", margin=0.03, max_requests=200)

    assert len(questions) == 2
    assert "200 requests" in questions[1]


@pytest.mark.parametrize(
    ("how", "arguments", "said"),
    [
        ({"rows": None, "repeats": 3}, {}, "Give rows= to svc.sweep"),
        ({"scores": None}, {}, "scores={'right'"),
        ({}, {"on": "wrong"}, "not a score that this run makes"),
        ({}, {"on": "rigth"}, "it makes right. Did you mean right"),
        ({}, {"factor": "temperature"}, "temperature"),
        ({}, {"margin": 0}, "margin"),
        ({}, {"level": 1}, "level must be between 0 and 1"),
        ({}, {"missing": "bounds"}, "missing must be 'drop' or 'wrong'"),
        ({}, {"max_requests": 0}, "max_requests must be an integer >= 1"),
        ({}, {"max_requests": 1}, "does not pay for one row"),
        ({}, {"max_cost": 1.0}, "max_cost needs a price table"),
        ({}, {"unit": "chapter"}, "chapter"),
    ],
)
def test_refuses_what_cannot_be_decided(
    session: Session,
    emulator: Emulator,
    how: dict[str, Any],
    arguments: dict[str, Any],
    said: str,
) -> None:
    """The message says what is allowed, and nothing was sent."""
    if "rows" in how:
        scores = {"right": svc.scores.length()}
        run = plan_run(session, "Is it?", model=[SMALL, LARGE], scores=scores)
    else:
        run = swept(session, **how)

    with pytest.raises(ParameterError, match=said):
        run.decide(**{"factor": "model", "margin": 0.03, **arguments})

    assert not emulator.requests


def test_a_margin_in_points_is_refused(session: Session) -> None:
    """A score of right and wrong differs by less than 1, so 3 cannot be meant."""
    run = swept(session)

    with pytest.raises(ParameterError, match=r"such as 0\.03 for 3 points"):
        run.decide("model", margin=3)


def test_a_contrast_after_a_decision_says_that_it_was_looked_at(
    session: Session,
) -> None:
    """Its intervals are for one look, and the decision took several."""
    run = swept(session)
    run.decide("model", margin=0.03)

    assert "looked at after each block that decide sent" in str(
        run.contrast("model", on="right").notes
    )
    assert "looked at" not in str(run.contrast("model", on="right", looks="any").notes)
    assert "nothing is compared yet" not in repr(run)
    run.score(short=lambda row: len(row["text"]) < 3)
    assert "looked at" not in str(run.contrast("model", on="short").notes)


def test_a_budget_that_pays_for_nothing_is_no_decision(session: Session) -> None:
    """Nothing was sent, so nothing was looked at either."""
    run = swept(session, rows=rows_of(40))
    with pytest.raises(ParameterError, match="Nothing was sent"):
        run.decide("model", margin=0.03, max_requests=1)

    run.run()

    assert run.contrast("model", on="right").notes == []
    assert run.manifest["decision"] is None


def _ends(df: pd.DataFrame) -> list[float]:
    """Return the ends of the only interval, whichever value is subtracted."""
    assert len(df) == 1
    return sorted(df[["low", "high"]].abs().to_numpy(dtype=float)[0].round(9).tolist())


@pytest.mark.parametrize("margin", [None, 0.05])
def test_a_complete_run_is_looked_at_once(
    session: Session, emulator: Emulator, margin: float | None
) -> None:
    """No look had a say in how many replies there are: it agrees with contrast."""
    run = swept(session, rows=rows_of(40)).run()
    n_sent = len(emulator.requests)
    before = _ends(run.contrast("model", on="right").df)

    decision = run.decide("model", "right", margin=margin, max_requests=10)

    assert len(emulator.requests) == n_sent == 80
    assert decision.says.startswith("Use large. It is better than small by ")
    assert decision.says.endswith(
        " 80 requests of 80 had been sent before; this is one look at the replies."
    )
    assert _ends(decision.df) == before
    assert not decision.is_planned
    assert run.contrast("model", on="right").notes == []
    again = stored_run(session, "tea-shop")
    assert again.decide("model", "right", margin=margin).says == decision.says
    assert again.contrast("model", on="right").notes == []


def test_a_complete_run_that_was_compared_before_says_so(
    session: Session, tmp_path: Path
) -> None:
    """Its one interval is then wider than that for one look, and it is said why."""
    run = swept(session, rows=rows_of(40)).run(first=20)
    run.contrast("model", on="right")
    run.run()

    decision = run.decide("model", "right", margin=0.05)

    any_look = run.contrast("model", on="right", looks="any")
    assert _ends(decision.df) == _ends(any_look.df)
    assert (
        "had been sent before; values were compared with 20 replies already, so this "
        "interval is wider than for one look: it holds however often you look."
    ) in decision.says
    (note,) = run.contrast("model", on="right").notes
    assert note.startswith("This run was looked at with 20 of its 80 replies")
    (file, *_) = run.report(tmp_path / "a.md")
    assert decision.headline in file.read_text("utf-8")


def test_a_complete_run_that_grows_goes_on_in_blocks(
    session: Session, emulator: Emulator, tmp_path: Path
) -> None:
    """What was looked at once does not say how more rows are sent."""
    run = swept(session, rows=rows_of(40)).run()
    run.decide("model", "right", margin=0.05)

    run = swept(session)
    (file, *_) = run.report(tmp_path / "a.md")
    assert "This run is not complete" in file.read_text("utf-8")
    decision = run.decide("model", "right", margin=0.05)

    assert len(decision.df) > 1
    assert decision.says.endswith("asked until this was clear.")
    assert set(asked(emulator).values()) == {1}
    (note,) = run.contrast("model", on="right").notes
    assert "looked at after each block that decide sent" in note


def test_a_first_block_without_scores_ends_it(session: Session) -> None:
    """The message names the score, of which nothing can be known."""
    run = swept(session, scores={"none": lambda _: None})

    with pytest.raises(ParameterError, match="first block has a score none"):
        run.decide("model")


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.integers(1, 10),
    st.integers(0, 3),
)
def test_blocks_have_each_row_once(
    units: Sequence[int], n_rows: int, seed: int
) -> None:
    """Units stay together, and all blocks but the last are large enough."""
    rows = list(range(len(units)))

    blocks = blocks_of(rows, units, seed=seed, n_rows=n_rows)

    unit_rows = [of_unit for block in blocks for of_unit in block]
    assert sorted(row for of_unit in unit_rows for row in of_unit) == rows
    assert all(len({units[row] for row in of_unit}) == 1 for of_unit in unit_rows)
    assert len(unit_rows) == len(set(units))
    sizes = [sum(map(len, block)) for block in blocks]
    assert all(size >= n_rows for size in sizes[:-1])
    assert blocks == blocks_of(rows, units, seed=seed, n_rows=n_rows)


_DECIDER = """
import json, sys
import pandas as pd
import svc_notebook as svc
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
given = json.loads(sys.argv[1])
run = plan_run(
    Session(), "Is it? {{text}}", rows=pd.DataFrame(given["rows"]),
    model={"small": "svc-instruct", "large": "svc-v2.1-12b-instruct"},
    scores={"right": svc.scores.exact("label")}, name="tea-shop", seed=5,
)
print("planned", flush=True)
print(run.decide("model", margin=0.03).says)
"""


def _decider(emulator: Emulator, ledger: Path) -> "subprocess.Popen[str]":
    env = {
        **os.environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": str(ledger),
    }
    return subprocess.Popen(  # noqa: S603 - our own program
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            _DECIDER,
            json.dumps({"rows": rows_of().to_dict("list")}),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.slow
def test_killed_at_any_moment_it_decides_alike(
    session: Session, emulator: Emulator, tmp_path: Path
) -> None:
    """After some kills the decision is that of a run that was left alone."""
    alone = swept(session).decide("model", margin=0.03)
    rows_alone = {text for _, text in asked(emulator)}
    before = asked(emulator)
    path, chance = tmp_path / "killed.sqlite", random.Random(3)  # noqa: S311 - no secret
    pause, n_kills = threading.Event(), 4
    for _ in range(n_kills):
        with _decider(emulator, path) as process:
            assert process.stdout is not None
            process.stdout.readline()
            pause.wait(chance.uniform(0.3, 2.0))
            process.kill()
        emulator.wait_idle()

    with _decider(emulator, path) as process:
        said, _ = process.communicate(timeout=120)

    assert said.splitlines()[-1] == alone.says
    again = asked(emulator) - before
    assert {text for _, text in again} == rows_alone
    assert sum(again.values()) <= alone.n_requests + n_kills * 64
