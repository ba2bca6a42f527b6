"""Named runs: continued, extended, refused, and sent by one kernel at a time."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError, UnknownModelError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.request import build_request
from svc_notebook.session import Session
from svc_notebook.svc_use import use_emulator
from svc_notebook.sweeps.run import plan_run
from svc_notebook.sweeps.run_lock import held_here, lock_run
from svc_notebook.sweeps.stored_runs import stored_run
from tests.sweeps.conftest import LARGE, SMALL

OpenSession = Callable[[Emulator], Session]


@pytest.mark.slow
def test_the_same_name_goes_on_after_a_restart(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """Planned again in another kernel, a finished run is finished; nothing is sent."""
    rows = pd.DataFrame({"text": ["a", "b"], "label": [1, 2]})
    given: dict[str, Any] = {"rows": rows, "name": "spam", "repeats": 2}
    before = plan_run(open_session(emulator), "{{text}}", **given).run()

    after = plan_run(open_session(emulator), "{{text}}", **given)

    assert repr(after).startswith("Run spam: 4 requests: 4 ok.\n")
    assert after.run().replies_df().equals(before.replies_df())
    assert after.plan.seed == before.plan.seed
    assert len(emulator.requests) == 4


def test_a_plan_that_was_extended_sends_its_own_and_the_larger_stays(
    session: Session, emulator: Emulator
) -> None:
    """The smaller plan can be completed; the ledger keeps the larger one."""
    small = plan_run(session, "{{text}}", rows=list("ab"), name="n").run(first=1)
    plan_run(session, "{{text}}", rows=list("abcde"), name="n").run(first=3)
    n_before = len(emulator.requests)
    n_todo = small.n_todo

    small.run()

    assert len(emulator.requests) == n_before + n_todo
    assert set(small.replies_df()["status"]) == {"ok"}
    assert len(stored_run(session, "n")) == 5


@pytest.mark.slow
def test_a_larger_grid_extends_it(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """With more rows, models, values or repeats only the new requests are sent."""
    session = open_session(emulator)
    plan_run(session, "{{text}}", rows=["a"], model=SMALL, name="n").run()

    larger = plan_run(
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


@pytest.mark.slow
def test_a_run_without_a_reply_binds_nothing(open_session: OpenSession) -> None:
    """After a mistyped model, or a wrong address, the name takes another plan."""
    with Emulator(tokens_per_s=None, first_token_s=0) as wrong:
        with pytest.raises(UnknownModelError):
            plan_run(open_session(wrong), list("abc"), model="typo", name="n").run()
        assert 1 <= len(wrong.requests) <= 3
    with Emulator(tokens_per_s=None, first_token_s=0) as right:
        run = plan_run(open_session(right), list("abcd"), model=SMALL, name="n")
        before = repr(run)

        frame = run.run().replies_df()

        assert len(right.requests) == 4
    assert before.startswith("Run n: 4 requests planned, nothing sent yet.")
    assert frame["status"].tolist() == ["ok"] * 4
    assert repr(run).startswith("Run n: 4 requests: 4 ok.")


@pytest.mark.slow
def test_finding_a_run_again_reads_no_texts(session: Session) -> None:
    """A run with 10 MB of replies is found again in less than 5 MB of memory."""
    prompts = [str(number) for number in range(2000)]
    now = datetime.now(UTC)
    for key in plan_run(session, prompts).plan_df()["request_key"]:
        session.ledger.add(
            Exchange(
                exchange_id=key,
                origin=Origin(kind="sweep", run="long", request_key=key, repeat=0),
                endpoint=str(session.settings.base_url),
                request=build_request("p", model="m"),
                body=CompletionBody(choices=(Choice(text="x" * 5000),)),
                started_at=now,
                ended_at=now,
            )
        )
    session.ledger.flush()

    tracemalloc.start()
    run = plan_run(session, prompts, name="long")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert "2,000 ok" in repr(run)
    assert peak < 5e6


@pytest.mark.slow
def test_an_emulators_run_goes_on_at_the_next_emulator(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """An emulator's address changes with each kernel; its runs go on all the same."""
    first = open_session(emulator)
    use_emulator(first)
    short: dict[str, Any] = {"max_tokens": 3}
    plan_run(first, ["a"], name="n", **short).run()
    first.close()
    second = open_session(emulator)
    use_emulator(second)

    frame = plan_run(second, ["a", "b"], name="n", **short).run().replies_df()

    assert frame["status"].tolist() == ["ok", "ok"]
    assert frame["endpoint"].nunique() == 2


@pytest.mark.parametrize("name", ["", " ", 5])
def test_refuses_what_is_no_name(session: Session, name: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """A name is a text with something in it."""
    with pytest.raises(ParameterError, match="must be a text"):
        plan_run(session, "p", name=name)


@pytest.mark.parametrize("seed", ["7", 1.5, True])
def test_refuses_what_is_no_seed(session: Session, seed: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """A seed is an integer."""
    with pytest.raises(ParameterError, match="must be an integer"):
        plan_run(session, "p", seed=seed)


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

    plan_run(session, ["a", "b", "c"], confirm_above=2).run()

    assert len(emulator.requests) == n_sent


def test_a_no_is_confirmed_in_a_line(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a yes, a line says that nothing was sent."""
    monkeypatch.setattr("builtins.input", lambda _: "n")

    plan_run(session, ["a", "b", "c"], confirm_above=2).run()

    assert capsys.readouterr().err == "Nothing was sent. run() asks again.\n"


def test_a_run_is_not_locked_while_the_user_is_asked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another kernel may send a run of this name while nobody has agreed here."""

    def lock_elsewhere(_: str) -> str:
        lock_run(session.ledger, "asked").release()
        return "y"

    monkeypatch.setattr("builtins.input", lock_elsewhere)

    run = plan_run(session, ["a", "b", "c"], name="asked", confirm_above=2).run()

    assert run.replies_df()["status"].tolist() == ["ok", "ok", "ok"]


def test_what_is_sent_elsewhere_is_refused_before_the_question(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is not asked about a run that is in progress in another kernel."""
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    run = plan_run(session, ["a", "b", "c"], name="busy", confirm_above=2)
    lock = lock_run(session.ledger, "busy")

    with pytest.raises(ParameterError, match="is in progress"):
        run.run()

    lock.release()


def test_settings_that_change_during_the_question_are_for_later(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes to the address that was checked, with the key of that address."""
    with Emulator(keys=(emulator.api_key,)) as other:

        def switch(_: str) -> str:
            session.change(replace(session.settings, base_url=other.base_url))
            return "y"

        monkeypatch.setattr("builtins.input", switch)

        plan_run(session, ["a", "b", "c"], confirm_above=2).run()

        assert (len(emulator.requests), len(other.requests)) == (3, 0)


def test_the_question_names_what_it_may_cost(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With prices, the question before a large run says what is sent costs at most."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    table = tmp_path / "prices.toml"
    table.write_text(
        f'as_of = 2026-01-31\ncurrency = "USD"\n[models."{SMALL}"]\n'
        "prompt = 0\ncompletion = 10_000\n"
    )
    priced = Session(replace(session.settings, prices=str(table)))
    prompts = ["a", "b", "c", "d"]
    run = plan_run(priced, prompts, model=SMALL, max_tokens=100, confirm_above=2)

    with pytest.raises(ParameterError, match=r"costs at most about 4 USD\. Continue"):
        run.run()

    priced.close()


def test_without_input_nothing_is_sent(
    session: Session, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without anybody to ask, a large run is refused."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    with pytest.raises(ParameterError, match="No input is possible"):
        plan_run(session, ["a", "b", "c"], confirm_above=2).run()

    assert len(emulator.requests) == 0


@pytest.mark.parametrize("confirm_above", [-1, True, "many", 1.5])
def test_refuses_what_is_no_number_of_requests(
    session: Session,
    confirm_above: Any,  # noqa: ANN401 - wrong on purpose
) -> None:
    """The threshold is a count, or None."""
    with pytest.raises(ParameterError, match="confirm_above"):
        plan_run(session, "p", confirm_above=confirm_above)


PROMPTS = ["a", "b", "slow"]
SILENT: dict[str, Any] = {"when": {"contains": "slow"}, "end": "silent", "body": ["{"]}
_OTHER_KERNEL = """
import json, sys, time
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

run = plan_run(Session(), json.loads(sys.argv[1]), name="mine").start()
while run.n_todo > 1:
    time.sleep(0.01)
print("asking", flush=True)
run.wait()
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that once does not answer what is slow."""
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=[SILENT]
    ) as running:
        yield running


@contextmanager
def _other_kernel(
    emulator: Emulator, folder: Path
) -> "Iterator[subprocess.Popen[str]]":
    """Another kernel that sends the run `mine`, which does not end."""
    env = {
        **os.environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": str(folder / "ledger.sqlite"),
    }
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", _OTHER_KERNEL, json.dumps(PROMPTS)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_the_second_kernel_is_told_who_asks(
    open_session: OpenSession, emulator: Emulator, tmp_path: Path
) -> None:
    """While one kernel sends a run, another one can read it but not send it."""
    with _other_kernel(emulator, tmp_path) as other:
        run = plan_run(open_session(emulator), PROMPTS, name="mine")
        n_before = len(emulator.requests)

        with pytest.raises(ParameterError) as caught:
            run.run()
        with pytest.raises(ParameterError):
            run.start()

        assert f"process {other.pid} on this machine, since 20" in str(caught.value)
        assert run.replies_df()["status"].tolist() == ["ok", "ok", "not_run"]
        assert len(emulator.requests) == n_before


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_dead_kernel_releases_the_lock(
    open_session: OpenSession, emulator: Emulator, tmp_path: Path, how: signal.Signals
) -> None:
    """After the first kernel was killed or interrupted, the second one continues."""
    with _other_kernel(emulator, tmp_path) as other:
        other.send_signal(how)
        other.wait()

        run = plan_run(open_session(emulator), PROMPTS, name="mine").run()

    assert run.replies_df()["status"].tolist() == ["ok"] * 3
    assert [len(emulator.requests), run.n_todo] == [4, 0]
    assert list(tmp_path.glob("*.lock")) == []


@pytest.mark.slow
def test_a_cell_that_is_run_again_joins_its_own_run(
    session: Session, emulator: Emulator
) -> None:
    """Planned and started again in the same kernel, a running run is joined."""
    first = plan_run(session, PROMPTS, name="mine").start()
    again = plan_run(session, PROMPTS, name="mine").start()

    assert (first.is_running, again.is_running) == (True, True)
    pause = threading.Event()
    while len(emulator.requests) < len(PROMPTS):
        pause.wait(0.01)
    again.cancel()
    whole = again.run()

    assert not first.is_running
    assert whole.replies_df()["status"].tolist() == ["ok"] * 3
    assert len(emulator.requests) == 4


@pytest.mark.slow
def test_a_larger_grid_goes_on_after_the_smaller_one(open_session: OpenSession) -> None:
    """A larger grid of a running run waits for it, and sends what is new."""
    with Emulator(tokens_per_s=None, first_token_s=0.1, limits=False) as emulator:
        session = open_session(emulator)
        plan_run(session, ["a", "b"], name="mine").start()

        larger = plan_run(session, ["a", "b", "c"], name="mine").run()

        assert larger.replies_df()["status"].tolist() == ["ok"] * 3
        assert len(emulator.requests) == 3


@pytest.mark.slow
def test_another_grid_is_refused_after_the_first_one_replied(
    open_session: OpenSession,
) -> None:
    """A plan that waited for a run of its name is checked against its replies."""
    slow = {"when": {"contains": "a"}, "before_s": 0.3, "text": "late"}
    with Emulator(tokens_per_s=None, first_token_s=0, script=[slow]) as emulator:
        session = open_session(emulator)
        first = plan_run(session, ["a"], name="n").start()
        other = plan_run(session, ["b"], name="n")

        with pytest.raises(ParameterError, match="text of the prompt has changed"):
            other.run()

        assert first.wait().n_todo == 0
        assert len(emulator.requests) == 1


LONG = "Label this mail by what its sender wants, in one word only, please: {{text}}"
CHANGED = LONG.replace("please", "quickly")


def _refused(session: Session, prompt: object, **changed: Any) -> list[str]:  # noqa: ANN401 - any argument
    """Return the sentences of the error for a plan that differs from the run."""
    rows = ["hi", "it's me"]
    settings: dict[str, Any] = {
        "rows": rows,
        "model": SMALL,
        "temperature": 0,
        "max_tokens": 10,
    }
    labelled = {"short": "Label: {{text}}", "long": LONG}
    plan_run(session, labelled, name="mails", repeats=2, **settings).run()
    given: dict[str, Any] = {"repeats": 2, **settings, **changed}

    with pytest.raises(ParameterError) as caught:
        plan_run(session, prompt or labelled, name="mails", **given)

    return str(caught.value).split(". ")


def test_a_changed_prompt_is_named_in_the_first_sentence(session: Session) -> None:
    """Then come the first words that differ, and the two ways on."""
    message = _refused(session, {"short": "Label: {{text}}", "long": CHANGED})

    assert ". ".join(message) == (
        'The text of prompt `long` has changed since run "mails" was started; nothing '
        "was sent. It was '...in one word only, please: {{text}}' and is now '...in "
        "one word only, quickly: {{text}}'. Choose another name, such as "
        "name='mails-2', or undo the change. Under the same name a plan may only add "
        "to what was sent: rows, repeats, or values, such as a prompt under another "
        "label."
    )


def _weather(city: str) -> str:
    """Return the weather."""
    return city


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"max_tokens": 20}, "max_tokens has changed from 10 to 20"),
        ({"max_tokens": None}, "max_tokens (10) has been removed"),
        ({"model": LARGE}, f"model has changed from '{SMALL}' to '{LARGE}'"),
        ({"system": "Hi"}, "system ('Hi') has been added to all requests"),
        ({"tools": [_weather], "run_tools": False}, "tools (_weather) have been added"),
        ({"rows": ["hi"]}, "1 of 2 rows has been removed"),
        ({"rows": ["hi", "it's you"]}, "Row 1 has changed"),
        ({"repeats": 1}, "repeats has changed from 2 to 1"),
        (
            {"temperature": 1, "max_tokens": 20},
            "temperature has changed from 0 to 1, and max_tokens has changed from 10",
        ),
        ({"where": lambda c: c["prompt_label"] == "long"}, "The combinations have"),
        ({"prompt": {"long": LONG}}, "prompt `short` has been removed"),
        (
            {"prompt": {"short": "Label {{text}}", "long": CHANGED}},
            "The texts of prompt `short` and `long` have changed",
        ),
    ],
)
def test_an_error_begins_with_what_has_changed(
    session: Session, emulator: Emulator, changed: dict[str, Any], says: str
) -> None:
    """It names what is missing, in the words of the call, and nothing is sent."""
    others = {name: value for name, value in changed.items() if name != "prompt"}

    assert _refused(session, changed.get("prompt"), **others)[0].startswith(says)
    assert len(emulator.requests) == 8


def test_what_is_only_added_is_allowed(session: Session) -> None:
    """More rows, repeats, models and prompts belong to the same run."""
    plan_run(session, {"a": "A {{text}}"}, rows=["x"], model=SMALL, name="n").run()

    larger = plan_run(
        session,
        {"b": "B {{text}}", "a": "A {{text}}"},
        rows=["y", "x"],
        model=[LARGE, SMALL],
        repeats=2,
        name="n",
    )

    assert (len(larger), larger.n_todo) == (16, 15)


@pytest.mark.slow
def test_what_was_asked_since_the_plan_is_seen(
    open_session: OpenSession, emulator: Emulator
) -> None:
    """A name that was free when it was planned may be another grid's when it is run."""
    planned = plan_run(open_session(emulator), ["a", "b"], name="mine")
    larger = plan_run(open_session(emulator), ["a", "b", "c"], name="mine")
    plan_run(open_session(emulator), ["a", "c"], name="mine").run()

    for _ in range(2):
        with pytest.raises(ParameterError, match="prompt 'c' has been removed"):
            planned.run()

    assert planned.replies_df()["status"].tolist() == ["planned"] * 2
    assert larger.run().replies_df()["status"].tolist() == ["ok"] * 3
    assert len(emulator.requests) == 3


def test_runs_in_memory_are_of_their_session(session: Session) -> None:
    """A claim on a ledger in memory holds for that ledger only, and makes no file."""
    ledger = session.ledger
    held = lock_run(ledger, "n")

    assert held_here(ledger, "n") is held
    assert held_here(ledger, "m") is None
    with pytest.raises(ParameterError, match=f"process {os.getpid()}"):
        lock_run(ledger, "n")

    held.release()
    held.release()
    assert held_here(ledger, "n") is None


def test_what_a_dead_kernel_left_is_taken_over(
    session: Session, tmp_path: Path
) -> None:
    """A lock file without a holder is taken over, whatever it contains."""
    session.ledger.check()
    held = lock_run(session.ledger, "mine")
    [file], [holder] = tmp_path.glob("*.lock"), tmp_path.glob("*.holder")
    held.release()
    file.write_bytes(b"\xff garbage")
    holder.write_bytes(b"\xff garbage")

    again = lock_run(session.ledger, "mine")

    assert json.loads(holder.read_bytes())["pid"] == os.getpid()
    again.release()
    assert not file.exists()
    assert not holder.exists()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_neither_keeps_nor_frees_the_lock(
    session: Session, tmp_path: Path
) -> None:
    """The lock is the parent's: it outlives a child, and ends while one is alive."""
    session.ledger.check()
    program = (
        "import os, signal, sys; from svc_notebook.sweeps.run_lock import lock_run; "
        "from svc_notebook.ledger.ledger import Ledger; "
        "lock = lock_run(Ledger(sys.argv[1]), 'mine'); "
        "os.waitpid(os.fork() or os._exit(0), 0); "
        "child = os.fork() or signal.pause(); "
        "print(child, flush=True); sys.stdin.readline(); os._exit(0)"
    )
    with subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", program, session.ledger.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with pytest.raises(ParameterError, match=f"process {parent.pid} on this"):
                lock_run(session.ledger, "mine")
            parent.stdin.close()
            parent.wait()

            lock_run(session.ledger, "mine").release()
        finally:
            os.kill(child, signal.SIGKILL)
    assert not list(tmp_path.glob("*.lock"))
