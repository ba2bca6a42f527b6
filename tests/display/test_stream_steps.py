"""Tool calls while a reply grows: shown where they belong, in every mode."""

import pytest

from svc_notebook.display.reply import Final
from svc_notebook.display.stream import Growing, Mode
from svc_notebook.tools.call import ToolRun
from tests.display.conftest import Recorder

RUN = ToolRun(call_id="c", name="weather", arguments='{"city": "Rome"}', result="rain")
LINE = 'weather({"city": "Rome"}) → rain'
FINAL = Final(texts=("Before.\n\nAfter.",), footer="m", tool_runs=(RUN,))


def grown(recorder: Recorder, mode: Mode, *, own_output: bool = True) -> Growing:
    """Return a reply with text, a call, and text."""
    growing = Growing.open(
        mode,
        own_output=own_output,
        screen=recorder.screen(),
        clock=recorder.clock,
        display_id="d",
    )
    growing.add("Before.")
    recorder.now_s += 1
    growing.note("running", is_now=True)
    recorder.now_s += 1
    growing.step(RUN)
    recorder.now_s += 1
    growing.add("\n\n")
    growing.add("After.")
    recorder.now_s += 1
    growing.flush()
    return growing


@pytest.mark.parametrize("own_output", [True, False])
def test_a_live_cell_shows_text_call_and_text(
    recorder: Recorder, *, own_output: bool
) -> None:
    """In this order, each once; the status line is gone."""
    grown(recorder, Mode.LIVE, own_output=own_output)

    shown = "".join(each.get("text/html", "") for each in recorder.cell())
    places = [shown.index(word) for word in ("Before.", "<details>", "After.")]
    assert places == sorted(places)
    assert [shown.count(word) for word in ("Before.", "<details>", "After.")] == [
        1,
        1,
        1,
    ]
    assert "running" not in shown


def test_a_terminal_prints_the_call_on_a_line(recorder: Recorder) -> None:
    """Between the texts; the final form adds its closing line alone."""
    growing = grown(recorder, Mode.PLAIN)
    growing.settle(FINAL)

    assert recorder.printed() == f"Before.\nrunning\n{LINE}\n\n\nAfter.\nm\n"


def test_settled_draws_once(recorder: Recorder) -> None:
    """Nothing until the end; then the tool_runs is in the one output."""
    growing = grown(recorder, Mode.SETTLED)
    assert recorder.acts == []

    growing.settle(FINAL)

    assert recorder.cell() == [FINAL.bundle()]


def test_a_status_line_that_cannot_wait_shows_at_once(recorder: Recorder) -> None:
    """While a tool runs nobody flushes, so it is shown before."""
    growing = Growing.open(
        Mode.LIVE, screen=recorder.screen(), clock=recorder.clock, display_id="d"
    )
    growing.add("One")

    growing.note("running", is_now=True)

    assert "running" in str(recorder.cell()[-1])
