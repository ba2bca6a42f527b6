"""A run is compared while it goes on, and with an earlier one."""

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
from tests.sweeps.conftest import LARGE, SMALL

pytestmark = pytest.mark.slow

ROWS = pd.DataFrame({"text": [f"text {n}" for n in range(30)]})
LOOKED_AT = "This run was looked at with 20 of its 60 replies"


def swept(session: Session, name: str | None = None) -> svc.Run:
    """Return a run that scores how even the length of a reply is."""
    return plan_run(
        session,
        "{{text}}",
        rows=ROWS,
        model=[SMALL, LARGE],
        scores={"even": lambda reply: len(reply.text) % 2 == 0},
        name=name,
    )


def test_a_second_look_is_noted(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intervals for one look say so after another look; the other kind need not."""
    run = swept(session, "looks").run(first=20)
    assert run.contrast("model", "even").notes == []

    run.run()

    [note] = run.contrast("model", "even").notes
    assert note.startswith(LOOKED_AT)
    assert "looks='any'" in note
    assert LOOKED_AT in swept(session, "looks").contrast("model", "even").notes[0]
    [note] = run.contrast("model", "even", looks="any").notes
    assert note.startswith("These intervals hold at any number of looks")
    capsys.readouterr()
    run.contrast_df("model", "even")
    assert LOOKED_AT in capsys.readouterr().err


def test_the_only_look_needs_no_note(session: Session) -> None:
    """A run that was complete before it was compared says nothing, again and again."""
    run = swept(session).run()

    assert run.contrast("model", "even").notes == []
    assert run.contrast("model", "even").notes == []


def test_a_run_is_compared_with_an_earlier_one(session: Session) -> None:
    """By itself, or by a frame of the earlier run's replies."""
    rows = pd.DataFrame({"text": [f"message {n}" for n in range(6)]})
    old, new = (
        plan_run(
            session,
            prompt,
            rows=rows,
            model=SMALL,
            scores={"long": lambda reply, k=k: len(reply.text) % (k + 2) == 0},
            name=f"prompt {k}",
        ).run()
        for k, prompt in enumerate(["{{text}}", "Please: {{text}}"])
    )

    for against in (old, old.replies_df()):
        compared = new.contrast("run", against=against, on="long")
        row = compared.df.iloc[0]
        assert (row["level"], row["against"]) == ("prompt 1", "prompt 0")
        assert row["n_prompts"] == 6
    assert len(svc.contrast([old, new], "run", on="long").df) == 1
