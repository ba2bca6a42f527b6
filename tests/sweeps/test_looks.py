"""A run may be looked at while it goes on, and says what such a look is worth."""

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run

ROWS = pd.DataFrame({"text": [f"text {n}" for n in range(30)]})
MODELS = ["svc-v1.5-instruct", "svc-v2-8b-instruct"]
LOOKED_AT = "This run was looked at with 20 of its 60 replies"


def swept(session: Session, name: str | None = None) -> svc.Run:
    """Return a run that scores how even the length of a reply is."""
    return plan_run(
        session,
        "{{text}}",
        rows=ROWS,
        model=MODELS,
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
    assert note.startswith("These intervals hold however often one looks")
    capsys.readouterr()
    run.contrast_df("model", "even")
    assert LOOKED_AT in capsys.readouterr().err


def test_the_only_look_needs_no_note(session: Session) -> None:
    """A run that was complete before it was compared says nothing, again and again."""
    run = swept(session).run()

    assert run.contrast("model", "even").notes == []
    assert run.contrast("model", "even").notes == []
