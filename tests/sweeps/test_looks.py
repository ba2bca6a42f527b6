"""A run is compared while it goes on, and with an earlier one."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from zlib import compress, decompress

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
from svc_notebook.sweeps.stored_runs import stored_run
from tests.sweeps.conftest import LARGE, SMALL, OpenSession

pytestmark = pytest.mark.slow

ROWS = pd.DataFrame({"text": [f"text {n}" for n in range(30)]})
LOOKED_AT = "This run was looked at with 20 of its 60 replies"


def swept(
    session: Session,
    name: str | None = None,
    *,
    n_rows: int = 30,
    model: Sequence[str] = (SMALL, LARGE),
) -> svc.Run:
    """Return a run that scores how even the length of a reply is."""
    return plan_run(
        session,
        "{{text}}",
        rows=ROWS.head(n_rows),
        model=list(model),
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
    [note] = run.contrast("model", "even", looks="any").notes
    assert note.startswith("These intervals hold at any number of looks")
    capsys.readouterr()
    run.contrast_df("model", "even")
    assert LOOKED_AT in capsys.readouterr().err


@pytest.mark.parametrize("name", ["looks", None])
@pytest.mark.parametrize("looks", ["one", "any"])
def test_the_ledger_keeps_looks(
    session: Session,
    emulator: Emulator,
    open_session: OpenSession,
    name: str | None,
    looks: Literal["one", "any"],
) -> None:
    """The run that another kernel rebuilds knows how it was compared before."""
    run = swept(session, name).run(first=20)
    run.contrast("model", "even", looks=looks)
    run.run()
    session.close()

    again = stored_run(open_session(emulator), run.run_id)

    assert LOOKED_AT in again.contrast("model", "even").notes[0]
    assert tuple(again.manifest["looks"]) == (20,)
    other = plan_run(session, manifest=again.manifest, name="other")
    assert tuple(other.manifest["looks"]) == ()


def test_a_look_at_a_complete_run_counts_when_it_grows(session: Session) -> None:
    """More rows are a second look; another model is not. The plan is stored once."""
    run = swept(session, "grows", n_rows=10).run()
    assert run.contrast("model", "even").notes == []
    assert session.ledger.plans(run.run_id)[-1].digest
    assert tuple(run.manifest["looks"]) == ()
    models = [SMALL, LARGE, "svc-v2-8b-instruct"]
    more = swept(session, "grows", n_rows=10, model=models).run()
    notes = more.contrast("model", "even").notes
    assert not [note for note in notes if "looked at" in note]

    grown = swept(session, "grows", model=models).run()

    [note] = [
        note
        for note in grown.contrast("model", "even").notes
        if note.startswith("This run was looked at")
    ]
    assert "with 30 of its 90 replies" in note
    assert tuple(grown.manifest["looks"]) == (20, 30)


def test_a_look_changes_no_plan(session: Session) -> None:
    """It is kept apart from the plan, which may be large."""
    run = swept(session, "looks").run(first=20)
    before = session.ledger.plans(run.run_id)

    run.contrast("model", "even")

    assert session.ledger.plans(run.run_id) == before


def test_looks_in_plans_of_earlier_versions_are_read(session: Session) -> None:
    """They stood in the plan."""
    run = swept(session, "looks").run(first=20)
    [stored] = session.ledger.plans(run.run_id)
    values = json.loads(decompress(stored.manifest)) | {"looks": [20]}
    manifest = compress(json.dumps(values).encode())
    session.ledger.add_plan(stored._replace(manifest=manifest, digest="earlier"))

    run.run()

    assert LOOKED_AT in run.contrast("model", "even").notes[0]


def test_a_report_says_one_thing_about_looks(session: Session, tmp_path: Path) -> None:
    """The intervals are for one look, or the run was looked at before."""
    run = swept(session, "looks").run()
    [page] = map(Path.read_text, run.report(tmp_path / "one.md")[:1])
    assert "for one look, at the end" in page
    assert "looked at" not in page

    run = swept(session, "others").run(first=20)
    run.report(tmp_path / "pilot.md")
    run.run()
    [page] = map(Path.read_text, run.report(tmp_path / "two.md")[:1])

    assert page.count(LOOKED_AT) == 1
    assert "for one look, at the end" not in page


def test_a_run_that_is_not_complete_is_not_compared_unasked(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pilot and its display have only means, so neither counts as a look."""
    run = swept(session, "looks").run(first=20)
    said = " ".join(capsys.readouterr().err.split())
    shown = run._repr_mimebundle_()

    texts = (" ".join(text.split()) for text in (repr(run), shown["text/plain"]))
    for text in (said, *texts):
        assert re.search(
            r"even: svc-instruct \d+ %; svc-v2.1-12b-instruct \d+ % ", text
        )
        assert text.endswith(
            "nothing is compared yet. run.contrast(...) compares now, which counts as "
            "a look."
        )
    assert "counts as a look" in shown["text/html"]
    assert " to " not in shown["text/html"].partition("<svg")[2]
    run.run()
    assert "more often" in repr(run) or "no difference" in repr(run)
    assert run.contrast("model", "even").notes == []


def test_too_early_to_say_is_not_a_look(session: Session) -> None:
    """Without an interval there is nothing for which one could stop."""
    run = swept(session, "looks").run(first=4)
    assert run.contrast_df("model", "even")["low"].isna().all()

    run.run()

    assert run.contrast("model", "even").notes == []


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

    with pytest.raises(ParameterError, match=r"give against=svc\.run\('prompt 0'\)"):
        new.contrast("run", against="prompt 0", on="long")
    for against in (old, old.replies_df()):
        compared = new.contrast("run", against=against, on="long")
        row = compared.df.iloc[0]
        assert (row["level"], row["against"]) == ("prompt 1", "prompt 0")
        assert row["n_prompts"] == 6
    assert len(svc.contrast([old, new], "run", on="long").df) == 1
