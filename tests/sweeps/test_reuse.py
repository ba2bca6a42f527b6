"""Sweeps that are answered from a file, or from the ledger."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from svc_notebook.client.event_loop import portal
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.ledger.recordings import export_answers
from svc_notebook.session import Session
from svc_notebook.settings import Settings
from svc_notebook.svc_use import use_emulator
from svc_notebook.sweeps.run import plan_run

pytestmark = pytest.mark.slow

OpenSession = Callable[[Emulator], Session]

MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits
PROMPTS = [f"text {number}" for number in range(10)]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without limits."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        yield running


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session without key and address that a file answers."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as emulator:
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        first = Session(Settings(base_url=emulator.base_url, ledger=":memory:"))
        plan_run(first, PROMPTS, model=MODEL, repeats=2).run()
        export_answers(tmp_path / "answers.jsonl", first.ledger.read(scope="all"))
        first.close()
    monkeypatch.delenv("SVC_BASE_URL")
    monkeypatch.delenv("SVC_API_KEY")
    session = Session(
        Settings(
            ledger=str(tmp_path / "ledger.sqlite"),
            answers=str(tmp_path / "answers.jsonl"),
        )
    )
    yield session
    session.close()


@pytest.mark.parametrize("is_reusing", [False, True])
def test_a_file_answers_without_key_and_network(
    answered: Session,
    is_reusing: bool,
) -> None:
    """With SVC_ANSWERS a sweep runs whole, at once, and each repeat has its answer."""
    run = plan_run(
        answered, PROMPTS, model=MODEL, repeats=2, name="again", reuse=is_reusing
    )

    frame = run.run().replies_df()

    assert frame["status"].tolist() == ["ok"] * 20
    assert frame["is_reused"].all()
    assert frame["text"].notna().all()
    assert run.run().n_todo == 0
    again = plan_run(answered, PROMPTS, model=MODEL, repeats=2, name="again")
    assert again.n_todo == 0


@pytest.mark.parametrize("prompt", ["do {{t}}", ["do {{t}}", "do {{u}}"]])
def test_equal_rows_get_their_own_replies_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: str | list[str]
) -> None:
    """Trials that send the same are answered as they were, whichever asks first."""
    rows = [{"t": "a", "u": "a"}] * 8
    script = [{"text": f"r{number}"} for number in range(40)]
    file = tmp_path / "answers.jsonl"

    def texts(session: Session) -> list[list[str]]:
        runs = [
            plan_run(session, prompt, rows=rows, model=MODEL).run() for _ in range(2)
        ]
        return [run.replies_df()["text"].tolist() for run in runs]

    with Emulator(script=script, limits=False, tokens_per_s=None) as emulator:
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        first = Session(Settings(base_url=emulator.base_url, ledger=":memory:"))
        recorded = texts(first)
        export_answers(file, first.ledger.read())
        first.close()
    replaying = Session(Settings(ledger=":memory:", answers=str(file)))
    replayed = texts(replaying)
    replaying.close()

    assert replayed == recorded


def test_a_plan_that_a_file_answers_shows_no_time(
    answered: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing will be sent, so no limit, no cost and no question stand in the way."""
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    limited = [f"text {number}" for number in range(200)]

    shown = repr(plan_run(answered, limited, model="svc-v2-8b-instruct"))
    run = plan_run(answered, PROMPTS, model=MODEL, confirm_above=5).run()

    assert "until the last request" not in shown
    assert "nothing is sent: the file in SVC_ANSWERS answers" in shown
    assert run.replies_df()["status"].tolist() == ["ok"] * 10


def test_only_what_is_sent_is_confirmed(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ledger answers is not counted in the question."""
    questions: list[str] = []

    def agree(question: str) -> str:
        questions.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    plan_run(session, PROMPTS, model=MODEL).run()
    more = [*PROMPTS, "a", "b", "c"]

    plan_run(session, more, model=MODEL, reuse=True, confirm_above=3).run()
    assert questions == []
    plan_run(session, [*more, "d"], model=MODEL, reuse=True, confirm_above=0).run()

    assert questions == ["This sends 1 request. Continue? [y/N] "]
    assert len(emulator.requests) == 14


def test_the_ledger_comes_before_the_file(
    answered: Session, open_session: OpenSession
) -> None:
    """With reuse a sweep looks where `complete` looks: in the ledger, then the file."""
    script = [{"text": "from the ledger"}]
    with Emulator(tokens_per_s=None, first_token_s=0, script=script) as emulator:
        asked = open_session(emulator)
        plan_run(asked, "text 1", model=MODEL).run()
        asked.ledger.flush()
        both = Session(replace(asked.settings, answers=answered.settings.answers))

        prompts = ["text 1", "text 2"]
        texts = (
            plan_run(both, prompts, model=MODEL, reuse=True).run().replies_df()["text"]
        )
        one = both.client.complete("text 1", model=MODEL, answers=both.context().reused)

        both.close()
        assert len(emulator.requests) == 1
    assert one.text == texts[0] == "from the ledger"
    assert texts[1] != "from the ledger"


def test_what_is_not_in_the_file_is_a_row(answered: Session) -> None:
    """A request that the file lacks fails by itself, and says what is near."""
    frame = plan_run(answered, ["text 1", "text x"], model=MODEL).run().replies_df()

    assert frame["status"].tolist() == ["ok", "error"]
    assert "text x" in frame["error_message"][1]


def test_a_change_of_endpoint_does_not_wait_for_the_loop(session: Session) -> None:
    """What runs on the loop may look at the session while its endpoint changes."""
    assert session.client.settings.base_url
    change = Thread(target=use_emulator, args=[session])

    async def blocked() -> bool:
        change.start()
        change.join(60.0)  # the loop does nothing meanwhile
        return change.is_alive()

    assert not portal().run(blocked())
