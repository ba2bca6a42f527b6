"""A sweep in a real kernel: planned, run, interrupted, restarted, resumed, retried."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import Kernel, Ran

MODEL = "svc-instruct"  # no limit is shown for it, so nothing waits
PLAN = f"""
import pandas as pd
rows = pd.DataFrame({{"text": [f"text {{n}}" for n in range(60)], "half": [0, 1] * 30}})
run = svc.sweep("Repeat: {{{{text}}}}", rows=rows, model="{MODEL}", name="life")
run.in_flight = 2
"""
QUICK = PLAN.replace('f"text', 'f"word').replace("name=", 'max_tokens="fit", name=')
FAILING: dict[str, Any] = {
    "when": {"contains": "text 7"},
    "status": 403,
    "error": {"message": "Not this one."},
}
STUCK: dict[str, Any] = {"when": {"contains": "text 3"}, "end": "silent", "body": ["{"]}
LATE: dict[str, Any] = {**STUCK, "when": {"contains": "text 45"}}

Open = Callable[[], Kernel]


@pytest.fixture
def emulator(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    """An emulator that fails one text, and once does not answer another."""
    with Emulator(
        tokens_per_s=None,
        first_token_s=0.02,
        limits=False,
        script=getattr(request, "param", [FAILING, STUCK]),
        keys=["svc-key-of-this-test-77aa"],
    ) as running:
        yield running


@pytest.fixture
def open_kernel(emulator: Emulator, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens a kernel; all of them share one ledger's file."""
    with ExitStack() as stack:

        def opened() -> Kernel:
            env = {
                "SVC_BASE_URL": emulator.base_url,
                "SVC_API_KEY": emulator.api_key,
                "SVC_LEDGER": str(tmp_path / "ledger.sqlite"),
            }
            kernel = Kernel(env)
            stack.callback(kernel.close)
            loaded = kernel.run("import svc_notebook as svc")
            assert loaded.status == "ok", loaded.messages
            return kernel

        yield opened


def _counts(kernel: Kernel) -> str:
    counting = "sorted(run.replies_df()['status'].value_counts().to_dict().items())"
    return kernel.value(counting)


def _is_begun(emulator: Emulator, text: str) -> bool:
    """Return whether the reply to a text has begun."""
    found = [each for each in emulator.requests if text in str(each.json)]
    return any(each.n_pieces for each in found)


# The run waits for what is not answered: for text 3 until it is interrupted, and for
# text 45 until it is killed.
@pytest.mark.parametrize(
    "emulator", [[FAILING, STUCK, LATE]], ids=["stuck"], indirect=True
)
def test_the_whole_life_of_a_run(open_kernel: Open, emulator: Emulator) -> None:
    """Planned, interrupted, killed, resumed, retried: 60 rows, no reply asked twice."""
    first = open_kernel()
    planned = first.run(PLAN + "run.in_flight = 1\nrun", is_watched=False)
    assert "60 requests planned, nothing sent yet" in planned.shown
    assert not list(emulator.requests)

    ran = Ran()
    cell = first.begin("run.run()")
    following = first.begin("print('ran on')")
    first.read(cell, ran, until="tokens")
    pause = threading.Event()
    while not _is_begun(emulator, "text 3"):
        pause.wait(0.01)
    first.manager.interrupt_kernel()
    first.read(cell, ran)
    assert (ran.status, first.reply(following)) == ("error", "aborted")
    [error] = ran.all("error")
    assert "call this again on the same run" in error["evalue"]
    kept_forms = [set(each["data"]) for each in ran.all("update_display_data")]
    assert kept_forms == [{"text/html", "text/plain"}]
    assert 0 < int(first.value("(run.replies_df()['status'] == 'ok').sum()")) < 60

    assert first.run("run.in_flight = 2; run.start()").status == "ok"
    while not _is_begun(emulator, "text 45"):
        pause.wait(0.01)
    os.kill(int(first.value("__import__('os').getpid()")), signal.SIGKILL)
    assert emulator.wait_idle()
    n_before = len(emulator.requests)

    second = open_kernel()
    assert second.run(PLAN).status == "ok"
    n_todo = int(second.value("run.n_todo"))
    assert 0 < n_todo <= 40
    assert second.run("run.run()", is_watched=False).status == "ok"
    assert len(emulator.requests) - n_before == n_todo
    assert _counts(second) == "[('error', 1), ('ok', 59)]"

    assert second.run("run.retry()", is_watched=False).status == "ok"
    assert _counts(second) == "[('ok', 60)]"
    n_whole = len(emulator.requests)
    assert second.run("run.run(); run.retry()", is_watched=False).status == "ok"
    assert len(emulator.requests) == n_whole
    frame = (
        "run.replies_df()[['var_text', 'half']].values.tolist() == rows.values.tolist()"
    )
    assert second.value(frame) == "True"


def test_progress_is_widgets_where_somebody_watches(open_kernel: Open) -> None:
    """A watched cell keeps bars with their end; an unwatched one gets its result.

    What it keeps needs no kernel: in a saved notebook widgets are broken.
    """
    kernel = open_kernel()
    kernel.run(QUICK)

    watched = kernel.run("_ = run.run()")
    kernel.run(QUICK.replace('name="life"', 'name="other"'))
    alone = kernel.run("_ = run.run()", is_watched=False)

    bars = [each for each in watched.all("display_data") if MODEL in str(each)]
    assert len(bars) == 1
    assert "60/60" in watched.shown.replace("\u2007", " ")
    [last] = watched.all("update_display_data")
    assert last["transient"] == bars[0]["transient"]
    assert last["data"].keys() == {"text/html", "text/plain"}
    assert last["data"]["text/plain"].startswith(f"{MODEL} 60/60 · ")
    assert alone.messages == []


def test_bars_of_a_run_that_was_started_come_to_their_end(open_kernel: Open) -> None:
    """What `start` drew is there once, and shows the end although nobody waits."""
    kernel = open_kernel()
    kernel.run(QUICK)

    ran = Ran()
    begun = kernel.begin("_ = run.start()")
    kernel.read(begun, ran)
    while kernel.value("run.is_running") == "True":
        pass
    shown = (
        "[each.value for each in ipywidgets.widgets.widget._instances.values() "
        "if hasattr(each, 'bar_style')]"
    )
    kernel.run("import ipywidgets")

    assert kernel.value(shown) == "[60.0]"
    assert len([each for each in ran.all("display_data") if MODEL in str(each)]) == 1


def test_the_kernel_is_free_while_a_run_is_on(open_kernel: Open) -> None:
    """After `start` the next cell runs at once, and may `await` the end."""
    kernel = open_kernel()
    kernel.run(QUICK)

    begun = kernel.run("run.start(); print('free', run.is_running)", is_watched=False)
    ended = kernel.run("await run\nprint(run.n_todo)", is_watched=False)

    assert "free True" in begun.shown
    assert "0" in ended.shown


def test_no_message_of_a_run_holds_the_key(
    open_kernel: Open, emulator: Emulator
) -> None:
    """Plan, manifest, frame and errors of a run show no key."""
    kernel = open_kernel()
    cells = [
        QUICK + "run",
        "run.run()",
        "run.manifest",
        "vars(run)",
        "run.replies_df().to_dict()",
        "svc.sweep('{{nothing}}')",
    ]

    shown = [str(kernel.run(code).messages) for code in cells]

    assert all(shown)
    assert [emulator.api_key in each for each in shown] == [False] * len(cells)


def test_an_interrupted_await_is_one_line(
    open_kernel: Open, emulator: Emulator
) -> None:
    """A cell that awaits a run and is interrupted fails with a line, and resumes."""
    kernel = open_kernel()
    kernel.run(QUICK)

    ran = Ran()
    cell = kernel.begin("await run")
    pause = threading.Event()
    while not emulator.requests[3:]:
        pause.wait(0.01)
    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    [error] = ran.all("error")
    assert error["traceback"][0].split("\n") == [
        "(interrupted - what arrived is kept;",
        "call this again on the same run for the rest)",
    ]
    assert kernel.run("await run", is_watched=False).status == "ok"
    assert _counts(kernel) == "[('ok', 60)]"


def test_a_second_interrupt_waits_for_nothing(
    open_kernel: Open, emulator: Emulator
) -> None:
    """Interrupted twice, a run whose reply does not come ends at once, and resumes."""
    kernel = open_kernel()
    kernel.run(PLAN)
    # so long that only the second interrupt can end it before the test gives up
    kernel.run("from svc_notebook.sweeps import execution; execution.DRAIN_S = 600")

    ran = Ran()
    cell = kernel.begin("run.run()")
    pause = threading.Event()
    while not any("text 3" in str(each.json) for each in emulator.requests):
        pause.wait(0.01)
    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran, until="stopped")
    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    assert [each["ename"] for each in ran.all("error")] == ["Interrupted"]
    assert kernel.run("run.run().retry()", is_watched=False).status == "ok"
    assert _counts(kernel) == "[('ok', 60)]"


DECIDE = """
import pandas as pd
rows = pd.DataFrame({"text": [f"word {n}" for n in range(60)], "label": "yes"})
run = svc.sweep(
    "Is it? {{text}}", rows=rows,
    model={"good": "svc-instruct", "bad": "svc-v2.1-12b-instruct"},
    scores={"right": svc.scores.exact("label")}, name="decided",
)
run.decide("model", margin=0.03)
"""
RIGHT_OR_WRONG: list[dict[str, Any]] = [
    {"when": {"model": MODEL}, "text": "yes", "times": None},
    {"text": "no", "times": None},
]


@pytest.mark.parametrize("emulator", [RIGHT_OR_WRONG], ids=["script"], indirect=True)
def test_a_decision_shows_what_is_known_while_it_is_made(open_kernel: Open) -> None:
    """A bar and a drawing are updated; at the end the drawing is that of the result."""
    ran = open_kernel().run(DECIDE)

    assert ran.status == "ok", ran.messages
    (drawn,) = (each for each in ran.all("display_data") if "<svg" in str(each))
    updates = [
        each["data"]["text/html"]
        for each in ran.all("update_display_data")
        if each["transient"] == drawn["transient"]
    ]
    assert "look by look" in updates[-2]
    assert updates[-1] == ""
    bars = [
        each for each in ran.all("display_data") if "Progress of deciding" in str(each)
    ]
    assert len(bars) == 1
    (result,) = ran.all("execute_result")
    assert result["data"]["text/plain"].startswith("Use good. It is better than bad by")


def test_a_decision_that_nobody_watches_shows_its_result_alone(
    open_kernel: Open,
) -> None:
    """It has no bar and no drawing to update, so that a saved notebook is settled."""
    ran = open_kernel().run(
        DECIDE.replace("margin=0.03", "max_requests=20"), is_watched=False
    )

    assert ran.status == "ok", ran.messages
    assert ran.all("display_data") == ran.all("update_display_data") == []
    assert "Cannot tell within 20 requests" in ran.shown
