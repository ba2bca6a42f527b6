"""What was asked before is asked of another model, next to the replies of then."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import current, isolated
from tests.sweeps.conftest import LARGE, SMALL


@pytest.fixture(autouse=True)
def emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Emulator]:
    """A server that plays the service, and a ledger that kernels share."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        monkeypatch.setenv("SVC_BASE_URL", running.base_url)
        monkeypatch.setenv("SVC_API_KEY", running.api_key)
        monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
        yield running


@contextmanager
def kernel() -> Iterator[None]:
    """Begin a kernel that asks the emulator as itself, so that nothing is left out."""
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def ask_some() -> None:
    """Ask two questions in Python and two turns of a conversation."""
    svc.complete("Say {{hello}}.", model=LARGE)
    svc.complete(
        "Name a \\{{tea}}.",
        model=LARGE,
        system="Be brief.",
        stop=["z"],
        temperature=0.3,
    )
    plan = svc.conversation("plan")
    plan.ask("เริ่มที่ไหนดี", model=LARGE, max_tokens=40)
    plan.ask("And then?", model=LARGE, max_tokens=None)


def sent(emulator: Emulator) -> list[dict[str, Any]]:
    """Return the bodies of the requests that came to the server."""
    return [request.json for request in emulator.requests]


def test_only_the_new_model_is_asked_with_the_whole_history(emulator: Emulator) -> None:
    """Messages and parameters are those of then, braces and histories included."""
    with kernel():
        ask_some()
        before = sent(emulator)
        run = svc.replay(model=SMALL).run()
        frame = run.replies_df()

    new = sent(emulator)[len(before) :]
    assert {body["model"] for body in new} == {SMALL}
    key = str
    assert sorted([{**body, "model": SMALL} for body in before], key=key) == sorted(
        new, key=key
    )
    assert list(frame["is_reused"]) == [True, False] * 4
    assert list(frame["row"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(frame["history"][4:]) == ["plan"] * 4


def test_its_plan_counts_what_the_ledger_answers_as_free() -> None:
    """Nothing is sent before `run()`, and the plan says what would be."""
    with kernel():
        ask_some()
        run = svc.replay(model=SMALL)
        said, size = repr(run), run.size

    assert "8 requests planned, nothing sent yet" in said
    assert "answers 4 of 8 requests, at no cost" in said
    assert size.n_trials == len(run) - len(run) // 2


def test_after_a_restart_nothing_is_paid_twice(emulator: Emulator) -> None:
    """A run that was rebuilt goes on re-using; another replay re-uses its replies."""
    with kernel():
        ask_some()
        svc.replay(model=SMALL, name="again").run(first=2)
    n_before = len(sent(emulator))
    with kernel():
        svc.run("again").run()
    n_after = len(sent(emulator))
    with kernel():
        svc.replay(model=SMALL).run()

    assert n_after <= n_before + 4
    assert len(sent(emulator)) == n_after == 8  # four of then, four of the small model


def test_says_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Failed, deleted, with tools, asked twice, and asked of this model already."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with kernel():
        ask_some()
        svc.complete("Say {{hello}}.", model=LARGE)
        svc.complete("Only the small one.", model=SMALL)
        svc.complete("What is 1 + 2?", model=LARGE, tools=[add])
        svc.conversation("plan").delete(2)
        with pytest.raises(svc.SvcError):
            svc.complete("Nobody knows it.", model="svc-unknown")
        capsys.readouterr()
        run = svc.replay(model=SMALL)

    said = capsys.readouterr().err
    assert "3 questions will be asked again, by conversation: plan 1; left out:" in said
    for why in (
        "1 asked twice",
        "1 already asked of this model",
        "with tools",
        "1 forgotten",
        "1 failed",
    ):
        assert why in said
    assert run.grid.rows is not None
    assert len(run.grid.rows) == 3


def test_a_deleted_conversation_is_not_asked_again() -> None:
    """Its turns belong to no conversation, and are left out."""
    with kernel():
        ask_some()
        current().conversations.delete("plan")
        questions = svc.dataset()

    assert "plan" not in set(questions["history"])
    assert len(questions) == 2


def test_rows_of_the_dataset_choose_what_is_asked() -> None:
    """`where=` and a frame without some rows leave them out."""
    with kernel():
        ask_some()
        rows = svc.dataset(where=lambda row: row["system"] is None)
        run = svc.replay(rows[rows["n_messages"] == 1], model=SMALL)

    assert list(rows["question"]) == ["Say {{hello}}.", "เริ่มที่ไหนดี", "And then?"]
    assert list(rows["n_messages"]) == [1, 1, 3]
    assert list(run.plan_df()["prompt"]) == ["Say {{hello}}."] * 2 + ["เริ่มที่ไหนดี"] * 2


@pytest.mark.parametrize("most", [1, 3])
def test_max_requests_draws_the_same_questions_each_time(most: int) -> None:
    """The draw is the seed's."""
    with kernel():
        ask_some()
        runs = [svc.replay(model=SMALL, max_requests=most, seed=7) for _ in range(2)]

    first, second = (run.plan_df()["asked_id"].tolist() for run in runs)
    assert first == second
    assert len(first) == 2 * most


def test_several_models_and_days(capsys: pytest.CaptureFixture[str]) -> None:
    """Each question is asked of all models that were not asked then."""
    with kernel():
        svc.complete("One", model=LARGE)
        svc.complete("Two", model=SMALL)
        run = svc.replay(model=[SMALL, "svc-v1.5-instruct"], since="1h").run()
        frame = run.replies_df()
        with pytest.raises(ParameterError, match="No question is left to ask again"):
            svc.replay(model=SMALL, since="2090-01-01")

    pairs = list(zip(frame["prompt"], frame["model"], frame["is_reused"], strict=True))
    assert sorted(pairs) == sorted(
        [
            ("One", LARGE, True),
            ("One", SMALL, False),
            ("One", "svc-v1.5-instruct", False),
            ("Two", SMALL, True),
            ("Two", "svc-v1.5-instruct", False),
        ]
    )
    assert "questions will be asked again" in capsys.readouterr().err
