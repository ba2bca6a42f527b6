"""A run that is checked again: has the model behind it changed?"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import Interrupted, ParameterError, SettingsError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
from tests.sweeps.conftest import LARGE, SMALL

pytestmark = pytest.mark.slow

OpenSession = Callable[[Emulator], Session]
RIGHT = svc.scores.exact("label")
N_ROWS = 200
ROOT = Path(__file__).parents[2]


ODD = {"when": {"contains": "odd"}, "text": "no"}
HARD = {"when": {"contains": "hard"}, "text": "no"}


class Address:
    """An address, and the model behind it, which may be replaced by another one."""

    emulator: Emulator

    def __init__(self) -> None:
        self.port = 0

    def plays(self, *entries: Mapping[str, Any]) -> Emulator:
        """Start a model that answers so, and "yes" to all else."""
        if self.port:
            self.emulator.close()
        script = [{"times": None, **entry} for entry in (*entries, {"text": "yes"})]
        self.emulator = Emulator(
            tokens_per_s=None,
            first_token_s=0,
            limits=False,
            script=script,
            port=self.port,
        )
        self.emulator.start()
        self.port = int(self.emulator.base_url.split(":")[2].split("/")[0])
        return self.emulator


@pytest.fixture
def address() -> Iterator[Address]:
    """An address with a model that fails on each seventh message."""
    address = Address()
    address.plays(ODD)
    yield address
    address.emulator.close()


@pytest.fixture
def emulator(address: Address) -> Emulator:
    """The first model behind the address."""
    return address.emulator


def rows_of(n_rows: int = N_ROWS) -> pd.DataFrame:
    """Return messages, of which each third is hard and each seventh is odd."""
    texts = [
        " ".join(["hard"] * (n % 3 == 0) + ["odd"] * (n % 7 == 0) + [f"one {n}"])
        for n in range(n_rows)
    ]
    return pd.DataFrame(
        {"text": texts, "label": "yes", "page": [n // 5 for n in range(n_rows)]}
    )


def swept(session: Session, **how: Any) -> svc.Run:  # noqa: ANN401 - any arguments
    """Send a run, and return it."""
    arguments: dict[str, Any] = {
        "rows": rows_of(),
        "model": SMALL,
        "scores": {"right": RIGHT},
        "name": "tea-shop",
        **how,
    }
    return plan_run(session, "Is it? {{text}}", **arguments).run()


def asked(emulator: Emulator, *, after: int = 0) -> Counter[str]:
    """Return how often each message was asked, after so many requests."""
    return Counter(
        request.json["messages"][-1]["content"] for request in emulator.requests[after:]
    )


def test_a_model_that_did_not_change_is_as_before(
    session: Session, emulator: Emulator
) -> None:
    """Enough rows show that nothing differs by more than 5 points."""
    run = swept(session)

    checked = run.recheck(n=150)

    assert checked.verdict == "as before"
    assert checked.says == (
        "As before (-4 to 4 points). This is over 150 rows in 1 check, by right; 150 "
        "requests were sent."
    )
    assert not checked.is_worse
    assert checked.flips is None
    assert len(emulator.requests) == N_ROWS + 150
    assert set(asked(emulator, after=N_ROWS).values()) == {1}


def test_few_rows_cannot_tell_and_say_how_many_would(session: Session) -> None:
    """Forty rows without any difference are too few for 5 points."""
    checked = swept(session).recheck()

    assert checked.verdict == "cannot tell"
    assert checked.says.startswith(
        "Cannot tell with 40 rows (-15 to 15 points); 130 would tell. "
    )
    assert "This is over 40 rows in 1 check, by right; 40 requests" in checked.says


def test_checks_add_up(session: Session, emulator: Emulator) -> None:
    """Each check sends other rows, and goes on where the last one ended."""
    run = swept(session)
    verdicts = [run.recheck(n=50).verdict for _ in range(3)]

    assert verdicts == ["cannot tell", "cannot tell", "as before"]
    assert set(asked(emulator).values()) == {1, 2}  # no row was checked twice
    assert [name for name in svc_names(session) if "check" in name] == [
        "tea-shop: check 1",
        "tea-shop: check 2",
        "tea-shop: check 3",
    ]


def svc_names(session: Session) -> Sequence[str]:
    """Return the names of the runs in a ledger."""
    return [plan.run for plan in session.ledger.plans(is_whole=False)]


def test_a_worse_model_has_changed(session: Session, address: Address) -> None:
    """It says by how much, and shows the rows that got worse."""
    run = swept(session)

    address.plays(ODD, HARD)
    checked = run.recheck(n=60)

    assert checked.verdict == "changed"
    assert checked.is_worse
    assert checked.says.startswith("Changed by -")
    assert checked.flips is not None
    assert set(checked.flips.df["text"]) == {"yes"}
    assert set(checked.flips.df["text_against"]) == {"no"}
    assert "Regressed: only before is right" in checked.flips.says
    assert "Regressed" in checked._repr_mimebundle_()["text/html"]
    assert repr(checked).startswith("Changed by -")


def test_a_change_after_many_checks_is_found(
    session: Session, address: Address
) -> None:
    """Checks before it do not hide it, and it is said since when."""
    run = swept(session)
    for _ in range(6):
        run.recheck(n=40)

    address.plays(ODD, HARD)
    checks = [run.recheck(n=60) for _ in range(2)]

    assert checks[-1].verdict == "changed"
    assert " since check " in checks[-1].says
    assert list(checks[-1].df["check"]) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(checks[-1].df["verdict"].unique())[-1] == "changed"


def test_a_better_model_has_changed_and_is_not_worse(
    session: Session, address: Address
) -> None:
    """A test that fails only when something got worse passes."""
    address.plays(ODD, HARD)
    run = swept(session)

    address.plays(ODD)
    checked = run.recheck(n=60)

    assert (checked.verdict, checked.is_worse) == ("changed", False)


def test_each_model_is_judged_alone(session: Session, address: Address) -> None:
    """One of two models changes, and the other one is as before."""
    run = swept(session, model={"small": SMALL, "large": LARGE})

    address.plays(ODD, {"when": {"contains": "hard", "model": SMALL}, "text": "no"})
    checked = run.recheck(n=180)

    assert checked.says.startswith("Changed: small: right by -")
    assert "As before: large: right (-" in checked.says


def test_another_name_is_a_change(session: Session, address: Address) -> None:
    """A server that says that another model answered need not be measured."""
    run = swept(session)
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "svc-new",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "yes"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }

    address.plays({"json": body})
    checked = run.recheck(n=10)

    assert checked.verdict == "changed"
    assert not checked.is_worse
    assert checked.says.startswith("Changed: svc-new answers instead of svc-instruct.")


def test_without_scores_texts_at_temperature_0_are_compared(
    session: Session, address: Address
) -> None:
    """The repeats of the run say how often texts differ anyway: never, here."""
    how: dict[str, Any] = {"scores": None, "temperature": 0, "repeats": 2}
    run = swept(session, **how)
    same = run.recheck(n=180)

    address.plays(ODD, HARD)
    changed = run.recheck(n=120)

    assert same.verdict == "as before"
    assert same.says.startswith("As before: texts (")
    assert changed.verdict == "changed"
    assert changed.says.startswith("Changed: texts by ")
    assert not changed.is_worse


def test_without_repeats_other_texts_cannot_tell(
    session: Session, address: Address
) -> None:
    """Nobody knows how often they differ anyway, and it is said what would help."""
    run = swept(session, scores=None, temperature=0)

    address.plays(ODD, HARD)
    checked = run.recheck(n=60)

    assert checked.verdict == "cannot tell"
    assert "repeats=2" in checked.notes[0]


def test_lengths_are_compared_at_other_temperatures(
    session: Session, address: Address
) -> None:
    """Replies that are twice as long have changed."""
    texts = [
        {"when": {"contains": f"one {n}"}, "text": "word " * (5 + n % 4)}
        for n in range(9, 0, -1)
    ]
    longer = [{**text, "text": f"{text['text']}{text['text']}"} for text in texts]
    how: dict[str, Any] = {"scores": None, "temperature": 1}
    address.plays(*texts)
    run = swept(session, **how)

    address.plays(*longer)
    checked = run.recheck(n=80)

    assert checked.verdict == "changed"
    assert "length by " in checked.says


def test_an_interrupted_check_goes_on(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was paid for is kept, and the same check ends when it is called again."""
    monkeypatch.setattr("svc_notebook.sweeps.run_scores.GATHER_S", 0.0)
    is_stopped = iter([True])

    def stop_once(row: Any) -> bool:  # noqa: ANN401 - a row
        if len(emulator.requests) > N_ROWS + 10 and next(is_stopped, False):
            signal.raise_signal(signal.SIGINT)
        return bool(row.text == row.label)

    run = swept(session, scores={"right": stop_once}, in_flight=1)
    with pytest.raises(Interrupted):
        run.recheck(n=80)
    n_sent = len(emulator.requests)
    assert N_ROWS < n_sent < N_ROWS + 80

    checked = run.recheck(n=80)

    assert checked.name == "tea-shop: check 1"
    assert len(emulator.requests) == N_ROWS + 80
    assert checked.df["n_rows"].tolist() == [80]


def test_the_user_is_asked_once(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check above the limit asks; who declines has sent nothing."""
    questions: list[str] = []

    def decline(question: str) -> str:
        questions.append(question)
        return "n"

    run = swept(session)
    run.confirm_above = 30
    monkeypatch.setattr("builtins.input", decline)
    with pytest.raises(Interrupted, match="nothing was sent"):
        run.recheck()

    assert "40 requests" in questions[0]
    assert len(emulator.requests) == N_ROWS


def test_rows_of_a_unit_come_together(session: Session, emulator: Emulator) -> None:
    """Pages of five rows are drawn whole, and the interval is over pages."""
    run = swept(session, unit="page")

    checked = run.recheck(n=40)

    numbers = {int(text.split()[-1]) for text in asked(emulator, after=N_ROWS)}
    assert set(Counter(number // 5 for number in numbers).values()) == {5}
    assert checked.df["n_units"].tolist() == [8]


def test_prompts_without_rows_are_checked(session: Session, emulator: Emulator) -> None:
    """A list of prompts is its rows."""
    prompts = [f"Is it one {n}?" for n in range(30)]
    run = plan_run(
        session, prompts, model=SMALL, scores={"right": lambda row: row.text == "yes"}
    ).run()

    checked = run.recheck(n=10)

    assert len(emulator.requests) == 40
    assert "10 rows in 1 check" in checked.says


def test_failures_are_said(session: Session, address: Address) -> None:
    """Requests without a reply are left out and counted."""
    run = swept(session)
    fault = {"when": {"contains": "odd"}, "status": 400, "error": {"message": "No."}}

    address.plays(fault)
    checked = run.recheck(n=200)

    [note] = checked.notes
    assert "of the requests have no reply" in note
    assert checked.verdict == "as before"


def test_a_model_without_a_price_is_named(session: Session, tmp_path: Path) -> None:
    """What the check costs is unknown then, and a note says what to do."""
    table = """
as_of = 2026-01-31
currency = "USD"
[models."another"]
prompt = 0.1
completion = 0.1
"""
    (tmp_path / "prices.toml").write_text(table, "utf-8")
    prices = str(tmp_path / "prices.toml")

    priced = Session(replace(session.settings, prices=prices))
    checked = swept(priced).recheck()
    priced.close()

    [note] = checked.notes
    assert note == (
        f"No price is known for {SMALL}, so the cost of the check is unknown. Add it "
        "to the price table (prices.toml) and plan the sweep again."
    )


@pytest.mark.parametrize(
    ("how", "arguments", "said"),
    [
        ({}, {"n": 0}, "n must be an integer >= 1"),
        ({}, {"on": "wrong"}, "not a score that this run makes"),
        ({}, {"margin": 2}, "too large for a rate"),
        ({}, {"level": 1}, "level must be between 0 and 1"),
        ({"scores": {"a": RIGHT, "b": RIGHT}}, {}, "the scores are a, b"),
        ({"scores": {"size": lambda row: len(row.text)}}, {}, "margin is needed"),
    ],
)
def test_refuses_what_cannot_be_checked(
    session: Session,
    emulator: Emulator,
    how: dict[str, Any],
    arguments: dict[str, Any],
    said: str,
) -> None:
    """The message says what is allowed, and nothing was sent."""
    run = swept(session, rows=rows_of(10), **how)

    with pytest.raises(ParameterError, match=said):
        run.recheck(**arguments)

    assert len(emulator.requests) == 10


def test_a_run_without_replies_is_refused(session: Session) -> None:
    """There is nothing that a check could be compared with."""
    run = plan_run(session, "Is it? {{text}}", rows=rows_of(5))

    with pytest.raises(ParameterError, match="no good replies"):
        run.recheck()


def test_another_address_is_refused(
    session: Session, open_session: OpenSession
) -> None:
    """Replies of two services are not the same model before and after."""
    manifest = swept(session, rows=rows_of(5)).manifest

    with Emulator() as other:
        run = plan_run(open_session(other), manifest=manifest, name="tea-shop")
        with pytest.raises(SettingsError, match="would compare two services"):
            run.recheck()

        assert not other.requests


_COMMAND = [sys.executable, "-W", "error", "-m", "svc_notebook", "recheck"]


def _command(
    emulator: Emulator, ledger: Path, *words: str
) -> "subprocess.CompletedProcess[str]":
    env = {
        **os.environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": str(ledger),
    }
    return subprocess.run(  # noqa: S603 - our own program
        [*_COMMAND, *words],
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_command_tells_by_its_status(
    session: Session, address: Address, tmp_path: Path
) -> None:
    """0 is as before, 1 changed, 2 cannot tell; --json is one line."""
    swept(session)
    ledger = tmp_path / "ledger.sqlite"

    few = _command(address.emulator, ledger, "tea-shop", "--rows", "20")
    many = _command(address.emulator, ledger, "tea-shop", "--rows", "150", "--json")
    address.plays(ODD, HARD)
    changed = _command(address.emulator, ledger, "tea-shop", "--rows", "150", "--json")
    unknown = _command(address.emulator, ledger, "tee-shop", "--json")

    assert [few.returncode, many.returncode] == [2, 0], few.stderr + many.stderr
    assert few.stdout.startswith("Cannot tell with 20 rows (")
    told = json.loads(many.stdout)
    assert (told["verdict"], told["check"]) == ("as before", "tea-shop: check 2")
    assert many.stdout.count("\n") == 1
    told = json.loads(changed.stdout)
    assert (changed.returncode, told["is_worse"]) == (1, True)
    assert told["high"] < 0
    assert unknown.returncode == 2
    assert "Did you mean tea-shop?" in unknown.stderr
    told = json.loads(unknown.stdout)
    assert (told["verdict"], told["says"] in unknown.stderr) == (None, True)
